"""Decomposition, and splits that depend on identities alone."""

import json
import random

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toucan_rows import LIMA, MULTI, OSLO, build, build_rows, call, kimi, read, response, said, user, write

from data_prep import demo_world, splits
from data_prep.samples import Sample
from data_prep.splits import KEPT, Size, SplitError, assign, find_duplicates, parse_sizes
from recipe_slca.tool_calls import ToolCall

WEATHER_OSLO = {"name": "weather-get", "arguments": {"city": "Oslo"}}
WEATHER_LIMA = {"name": "weather-get", "arguments": {"city": "Lima", "days": 2}}


def test_decomposition_leaves_out_the_first_tool_turn(tmp_path):
    _, output = build_rows(tmp_path, [kimi(MULTI, subset_name="multi-turn")], "--splits", "rl=rest")
    (row,) = read(output, "rl")
    assert [message["role"] for message in row["prompt"]] == [
        "system", "user", "assistant", "tool", "assistant", "user", "assistant", "user",
    ]  # fmt: skip
    truth, info = row["reward_model"]["ground_truth"], row["extra_info"]
    assert truth["question_content"] == "And Oslo and Lima, then Oslo again?" == row["prompt"][-1]["content"]
    assert json.loads(truth["gold_tool_calls"]) == [[WEATHER_OSLO, WEATHER_LIMA], [WEATHER_OSLO]]
    assert json.loads(info.pop("recorded_calls")) == [
        {**WEATHER_OSLO, "response": "sun"},
        {**WEATHER_OSLO, "response": "sun"},
        {**WEATHER_LIMA, "response": "rain"},
        {**WEATHER_OSLO, "response": "fog"},
    ]
    assert info == {
        "index": 0, "original_idx": 0, "uuid": "u1", "source": "decomposed_multi_turn",
        "parallel_type": "multi_step_has_parallel", "has_history": True, "need_tools_kwargs": False,
        "turn_index": 3, "split_position": 7,
    }  # fmt: skip
    assert (row["data_source"], row["agent_name"]) == ("toucan_toolcall_v4_rl", "slca_tool_agent")


def test_single_turn_sample(tmp_path):
    _, output = build_rows(tmp_path, [kimi()], "--splits", "eval=rest")
    (row,) = read(output, "eval")
    assert row["data_source"] == "toucan_eval_v4"
    assert json.loads(row["reward_model"]["ground_truth"]["gold_tool_calls"]) == [[WEATHER_OSLO]]
    info = row["extra_info"]
    assert (info["source"], info["has_history"]) == ("native_single_turn", False)
    assert info["turn_index"] is info["split_position"] is None


def test_users_who_write_twice_are_one_turn(tmp_path):
    messages = [user("Hi."), user("Weather in Oslo?"), call(), response(), said()]
    report, output = build_rows(tmp_path, [kimi(messages)], "--splits", "rl=rest")
    (row,) = read(output, "rl")
    assert row["reward_model"]["ground_truth"]["question_content"] == "Weather in Oslo?"
    assert row["extra_info"]["source"] == "native_single_turn"


@pytest.mark.parametrize(
    ("widths", "kind"),
    [
        ([], "irrelevant"),
        ([1], "single_step_single_tool"),
        ([2], "single_step_parallel"),
        ([1, 1], "multi_step_all_serial"),
        ([2, 1], "multi_step_has_parallel"),
        ([1, 3], "multi_step_has_parallel"),
        ([2, 2], "multi_step_all_parallel"),
    ],
)
def test_parallel_type(widths, kind):
    assert Sample(1, [[ToolCall("a")] * width for width in widths]).parallel_type == kind


def dialogues(count):
    """Single and multi-turn rows in one file, and for some identities a second dialogue."""
    rows = []
    for number in range(count):
        question = user(f"Weather number {number}?")
        if number % 3:
            rows.append(kimi([question, *MULTI[1:]], uuid=f"u{number}"))
        else:
            rows.append(kimi([question, call(OSLO if number % 2 else LIMA), response(), said()], uuid=f"u{number}"))
        if number % 5 == 0:
            rows.append(kimi([question, call(), response(), said("Another teacher.")], uuid=f"u{number}"))
    return rows


def identities(output):
    sft = {row["uuid"] for row in read(output, "sft")}
    rl = {row["extra_info"]["uuid"] for row in read(output, "rl")}
    return {row["extra_info"]["uuid"] for row in read(output, "eval")}, sft, rl


def test_no_dialogue_is_in_two_splits(tmp_path):
    report, output = build_rows(tmp_path, dialogues(120), "--splits", "eval=20+15,sft=40,rl=rest")
    evaluated, sft, rl = identities(output)
    assert len(evaluated) > 20 and len(sft) > 20 and len(rl) > 20
    assert not evaluated & sft and not evaluated & rl and not sft & rl
    questions = [
        {row[column][1]["content"] for row in read(output, split)}
        for split, column in (("eval", "prompt"), ("sft", "messages"), ("rl", "prompt"))
    ]
    assert not questions[0] & questions[1] and not questions[0] & questions[2]
    sources = [row["extra_info"]["source"] for row in read(output, "eval")]
    assert (sources.count("native_single_turn"), sources.count("decomposed_multi_turn")) == (20, 15)
    assert report["splits"]["sft"]["rows"] == 40


def test_splits_do_not_depend_on_file_order(tmp_path):
    rows = dialogues(90)
    _, output = build_rows(tmp_path, rows, "--splits", "eval=20%,sft=50%,rl=rest")
    random.Random(1).shuffle(rows)
    folder = tmp_path / "shuffled"
    folder.mkdir()
    for part in range(3):
        write(folder / f"{part}.parquet", rows[part::3])
    build(folder, tmp_path / "other", "--splits", "eval=20%,sft=50%,rl=rest")
    assert identities(output) == identities(tmp_path / "other")
    build(folder, tmp_path / "seeded", "--splits", "eval=20%,sft=50%,rl=rest", "--seed", "1")
    assert identities(output) != identities(tmp_path / "seeded")


def test_two_workers_write_the_same_bytes(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for part in range(3):
        rows = list(demo_world.rows(120, seed=part, imperfect=0.5))
        rows += [kimi("[{", uuid=f"bad {part}"), kimi(MULTI, uuid=f"multi {part}")]
        write(folder / f"{part}.parquet", rows, row_group_size=50)
    for workers in ("1", "2"):
        build(folder, tmp_path / workers, "--workers", workers, expect=0)
    for name in ("sft.parquet", "rl.parquet", "eval.parquet", "report.json", "report.md"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_too_few_rows_say_what_fits(tmp_path, capsys):
    source = write(tmp_path / "rows.parquet", dialogues(60))
    build(source, tmp_path / "out", "--preset", "paper", expect=2)
    error = capsys.readouterr().err
    assert "too few rows: wanted eval=4000, sft=42423, rl=31818" in error
    assert "32 samples of one-turn dialogues" in error and "40 decomposed samples" in error
    fitting = error.split("--splits ")[1].strip()
    report = build(source, tmp_path / "out", "--splits", fitting, expect=0)
    assert all(split["rows"] for split in report["splits"].values())


def kept_rows(seed, count):
    """Rows with few different hashes, so that identities and digests meet."""
    rng = np.random.default_rng(seed)
    rows = np.zeros(count, KEPT)
    rows["group"], rows["samples"] = rng.integers(0, 12, count), rng.integers(0, 4, count)
    rows["digest"] = rng.integers(0, 6, (count, 2))
    for name in ("decomposed", "sft", "evaluation_only"):
        rows[name] = rng.random(count) < 0.5
    return rows[~find_duplicates(rows)]


@settings(deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(0, 40),
    st.dictionaries(st.sampled_from(["eval", "sft", "rl"]), st.floats(0.01, 1).map(lambda share: Size(share=share))),
)
def test_assignment_properties(seed, count, sizes):
    rows = kept_rows(seed, count)
    sizes = {name: sizes[name] for name in splits.SPLITS if name in sizes}
    split, taken = assign(rows, sizes)
    groups = [set(rows["group"][split == code].tolist()) for code in (splits.EVAL, splits.SFT, splits.RL)]
    assert not groups[0] & groups[1] and not groups[0] & groups[2] and not groups[1] & groups[2]
    assert (taken[split == splits.NONE] == 0).all() and (taken[split != splits.NONE] > 0).all()
    assert not rows["evaluation_only"][(split == splits.SFT) | (split == splits.RL)].any()
    assert rows["sft"][split == splits.SFT].all()
    within = split != splits.SFT
    assert (taken[within] <= rows["samples"][within]).all()
    order = np.random.default_rng(0).permutation(len(rows))
    split_again, taken_again = assign(rows[order], sizes)
    assert (split_again == split[order]).all() and (taken_again == taken[order]).all()


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(0, 30), st.integers(1, 40))
def test_sizes_in_rows_are_exact_or_refused(wanted, decomposed, count):
    rng = np.random.default_rng(count)
    rows = np.zeros(count, KEPT)
    rows["group"] = np.arange(count)
    rows["samples"] = rng.integers(0, 4, count)
    rows["decomposed"] = rng.random(count) < 0.5
    rows["sft"] = True
    try:
        split, taken = assign(rows, {"eval": Size(wanted, decomposed=decomposed), "rl": Size(wanted)})
    except SplitError as error:
        assert "too few rows" in str(error)
        return
    evaluated = split == splits.EVAL
    assert taken[evaluated & ~rows["decomposed"]].sum() == wanted
    assert taken[evaluated & rows["decomposed"]].sum() == decomposed
    assert taken[split == splits.RL].sum() == wanted


@pytest.mark.parametrize(
    "text", ["", "eval", "eval=0", "sft=120%", "sft=3+4", "rl=some", "rl=5,rl=6", "test=4", "sft=-1"]
)
def test_unusable_sizes(tmp_path, text, capsys):
    build(tmp_path, tmp_path / "out", "--splits", text, expect=2)
    assert "--splits: " in capsys.readouterr().err


def test_sizes_are_drawn_in_order():
    assert list(parse_sizes("rl=rest, sft=5,eval=3+1")) == ["eval", "sft", "rl"]
    assert parse_sizes("eval=3+1,rl=50%") == {"eval": Size(3, decomposed=1), "rl": Size(share=0.5)}


def test_rows_of_a_long_dialogue_are_written_in_parts(tmp_path, monkeypatch):
    """Each of its samples repeats the history, so that they do not fit into memory together."""
    messages = [part for turn in range(40) for part in (user(f"Turn {turn}?"), call(), response(), said("x" * 500))]
    _, output = build_rows(tmp_path, [kimi(messages, subset_name="multi-turn")], "--splits", "rl=rest")
    whole = read(output, "rl")
    monkeypatch.setattr("data_prep.pipeline.ROW_GROUP_BYTES", 30_000)
    monkeypatch.setattr("data_prep.outputs.ROW_GROUP_BYTES", 1)
    _, output = build_rows(tmp_path, [kimi(messages, subset_name="multi-turn")], "--splits", "rl=rest")
    assert read(output, "rl") == whole
    assert [row["extra_info"]["index"] for row in whole] == list(range(39))
    assert pq.ParquetFile(output / "rl.parquet").metadata.num_row_groups > 10


def test_outputs_stream_in_zstd_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr("data_prep.outputs.ROW_GROUP_BYTES", 50_000)
    monkeypatch.setattr("data_prep.spool._BATCH_CHARS", 20_000)
    rows = list(demo_world.rows(300, seed=3))
    report, output = build_rows(tmp_path, rows, "--splits", "rl=rest", "--keep-irrelevant")
    metadata = pq.ParquetFile(output / "rl.parquet").metadata
    assert metadata.num_row_groups > 3
    assert metadata.row_group(0).column(0).compression == "ZSTD"
    written = read(output, "rl")
    assert len(written) == report["splits"]["rl"]["rows"]
    assert [row["extra_info"]["index"] for row in written] == list(range(len(written)))
    places = [row["extra_info"]["original_idx"] for row in written]
    assert places == sorted(places)
    assert all(rows[row["extra_info"]["original_idx"]]["uuid"] == row["extra_info"]["uuid"] for row in written)
