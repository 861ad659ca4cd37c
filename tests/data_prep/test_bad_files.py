"""Inputs that cannot be read at all end in one clear error, and outputs are whole or absent."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from toucan_rows import MULTI, build, kimi, read, write

from data_prep import demo_world

ROOT = Path(__file__).parents[2]


def complaint(capsys, source, tmp_path, *options):
    build(source, tmp_path / "out", *options, expect=2)
    assert list((tmp_path / "out").glob("*")) == []
    return capsys.readouterr().err


def test_truncated_parquet(tmp_path, capsys):
    source = write(tmp_path / "rows.parquet", [kimi(uuid=str(at)) for at in range(50)])
    source.write_bytes(source.read_bytes()[:-100])
    assert "rows.parquet: not a complete parquet file" in complaint(capsys, source, tmp_path)


def test_damaged_row_group(tmp_path, capsys):
    source = write(tmp_path / "rows.parquet", [kimi(MULTI, uuid=str(at)) for at in range(500)], compression="zstd")
    damaged = bytearray(source.read_bytes())
    damaged[100:3000] = b"\x55" * 2900
    source.write_bytes(damaged)
    assert "rows.parquet: row group 0 cannot be read" in complaint(capsys, source, tmp_path)


def test_not_parquet(tmp_path, capsys):
    source = tmp_path / "rows.parquet"
    source.write_text("<html>404</html>")
    assert "fetch it again" in complaint(capsys, source, tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("rows.json", json.dumps([kimi()])[:-1] + ', {"a', "not a JSON list of rows"),
        ("rows.json", json.dumps([kimi()])[:-1] + " {}]", "between two elements"),
        ("rows.json", "[" * 2000, "not a JSON list of rows"),
        ("rows.json", "<html>", "not a JSON list of rows"),
        ("rows.jsonl", "", "unknown layout"),
        ("rows.csv", "a,b", "use a .parquet, .json, .jsonl file"),
    ],
)
def test_broken_text_files(tmp_path, capsys, name, text, said):
    source = tmp_path / name
    source.write_text(text)
    assert said in complaint(capsys, source, tmp_path)


def test_missing_input(tmp_path, capsys):
    assert "nowhere: no such file" in complaint(capsys, tmp_path / "nowhere", tmp_path)


def test_mixed_layouts(tmp_path, capsys):
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder / "a.parquet", [kimi()])
    write(folder / "b.parquet", [{"conversations": "[]"}])
    assert "mix layouts (toucan: " in complaint(capsys, folder, tmp_path)


def test_unknown_layout_lists_columns(tmp_path, capsys):
    source = write(tmp_path / "rows.parquet", [{"text": "x", "label": 1}])
    error = complaint(capsys, source, tmp_path)
    assert "columns seen: text, label" in error and "toucan-sft" in error


def test_forced_layout_names_missing_columns(tmp_path, capsys):
    source = write(tmp_path / "rows.parquet", [{"messages": "[]"}])
    assert "needs the columns available_tools" in complaint(capsys, source, tmp_path, "--layout", "toucan")


def test_column_of_another_type(tmp_path, capsys):
    source = write(tmp_path / "rows.parquet", [{**kimi(), "messages": 5}])
    assert "column messages holds int64" in complaint(capsys, source, tmp_path)


def test_missing_optional_and_extra_columns(tmp_path):
    row = {key: value for key, value in kimi().items() if key in ("messages", "available_tools")} | {"surplus": 1}
    source = write(tmp_path / "rows.parquet", [{**row, "subset": "x"}])
    report = build(source, tmp_path / "out", "--splits", "sft=rest")
    assert report["conversations_used"] == {"sft": 1}
    assert len(read(tmp_path / "out", "sft")[0]["uuid"]) == 32


def test_invalid_utf8_is_counted(tmp_path):
    good, bad = kimi(uuid="good"), kimi(uuid="bad")
    table = pa.Table.from_pylist([good, bad, {**good, "uuid": "also good", "question": "q2"}])
    raw = table["messages"].cast(pa.binary()).to_pylist()
    raw[1] = raw[1].replace(b"Oslo", b"\xff\xfe\xff")
    broken = pa.StringArray.from_buffers(3, *pa.array(raw, pa.binary()).buffers()[1:])
    source = tmp_path / "rows.parquet"
    pq.write_table(table.set_column(table.schema.names.index("messages"), "messages", broken), source)
    report = build(source, tmp_path / "out", "--splits", "sft=rest")
    assert report["dropped"] == {"invalid_text": 1, "duplicate": 1}


def test_binary_columns_are_text(tmp_path):
    table = pa.Table.from_pylist([kimi()])
    table = table.set_column(2, "messages", table["messages"].cast(pa.binary()))
    pq.write_table(table, tmp_path / "rows.parquet")
    report = build(tmp_path / "rows.parquet", tmp_path / "out", "--splits", "sft=rest")
    assert report["conversations_used"] == {"sft": 1}


def test_existing_outputs_are_kept_without_overwrite(tmp_path, capsys):
    source = write(tmp_path / "rows.parquet", [kimi()])
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    build(source, tmp_path / "out", "--splits", "sft=rest", expect=0)
    before = (tmp_path / "out" / "sft.parquet").read_bytes()
    build(source, tmp_path / "out", "--splits", "rl=rest", expect=2)
    assert "sft.parquet, report.md, report.json exist" in capsys.readouterr().err
    build(source, tmp_path / "out", "--splits", "rl=rest", "--overwrite", expect=0)
    assert before and sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "notes.txt", "report.json", "report.md", "rl.parquet",
    ]  # fmt: skip


def test_output_that_is_a_file(tmp_path, capsys):
    (tmp_path / "out").write_text("")
    source = write(tmp_path / "rows.parquet", [kimi()])
    build(source, tmp_path / "out", expect=2)
    assert "cannot be used as a folder" in capsys.readouterr().err


def test_empty_split_is_reported_and_fails(tmp_path, capsys):
    source = write(tmp_path / "rows.parquet", [kimi("")])
    report = build(source, tmp_path / "out", "--splits", "sft=rest", expect=1)
    assert report["dropped"] == {"empty_messages": 1}
    assert "no row is left for sft" in capsys.readouterr().err


def demo_file(tmp_path, conversations):
    path = tmp_path / "demo.parquet"
    demo_world.main(["--output", str(path), "--conversations", str(conversations)])
    return path


def command(source, output, *options):
    return [sys.executable, "-m", "data_prep.build", "--input", str(source), "--output", str(output), *options]


def test_full_disk(tmp_path):
    source = demo_file(tmp_path, 1000)

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    done = subprocess.run(
        command(source, tmp_path / "out"), cwd=ROOT, preexec_fn=limit, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2, done.stderr
    assert "writing failed" in done.stderr and "Traceback" not in done.stderr
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("workers", ["1", "2"])
def test_killed_run_leaves_no_output_and_a_rerun_starts_clean(tmp_path, workers):
    source = demo_file(tmp_path, 4000)
    output = tmp_path / "out"
    running = subprocess.Popen(command(source, output, "--workers", workers), cwd=ROOT, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 40
    while not any(output.glob(".data_prep-*/spool-*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    build(source, output, expect=2)  # another build is at work there
    running.kill()
    running.wait()
    assert not any(output.glob("*.parquet"))
    assert any(output.glob(".data_prep-*"))
    report = build(source, output, expect=0)
    assert sorted(path.name for path in output.iterdir()) == [
        "eval.parquet", "report.json", "report.md", "rl.parquet", "sft.parquet",
    ]  # fmt: skip
    assert report["rows_in"] == 4000


def test_help_needs_no_package():
    for module in ("build", "inspect", "demo_world"):
        loaded = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", f"data_prep.{module}", "--help"],
            cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert "usage:" in loaded.stdout
        heavy = {"pyarrow", "numpy", "transformers", "torch", "pydantic", "tqdm"}
        assert not heavy & {line.split("|")[-1].strip() for line in loaded.stderr.splitlines()}


def test_no_progress_bar_without_a_terminal(tmp_path):
    source = write(tmp_path / "rows.parquet", [kimi()])
    done = subprocess.run(
        command(source, tmp_path / "out", "--splits", "sft=rest"), cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert json.loads((tmp_path / "out" / "report.json").read_text())["rows_in"] == 1
    assert os.listdir(tmp_path / "out")
