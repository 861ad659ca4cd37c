"""Reading a dump: what is kept, what is skipped and counted, and what is refused."""

import json
import random

import pytest
from make_dump import make_group, write_dump

from recipe_slca.report import rollout_dump
from recipe_slca.report.errors import ReportError


def _folder(run_dir):
    folder = run_dir / rollout_dump.FOLDER
    folder.mkdir(parents=True)
    return folder


def _lines(step=10, size=4, seed=0):
    return [json.dumps(rollout) for rollout in make_group(random.Random(seed), step, f"group {seed}", size=size)]


def test_groups_are_whole_and_ordered_by_step(tmp_path):
    write_dump(tmp_path, groups=6, steps=3)
    dump = rollout_dump.read(tmp_path)
    assert [group.step for group in dump.groups] == [10, 10, 20, 20, 30, 30]
    assert all(len(group.rollouts) == 16 for group in dump.groups)
    assert dump.notes() == []


def test_validation_and_training_of_one_step_stay_apart(tmp_path):
    folder = _folder(tmp_path)
    (folder / "10.jsonl").write_text("\n".join(_lines()) + "\n")
    validation = [json.dumps(json.loads(line) | {"validate": True}) for line in _lines()]
    (folder / "val_10.jsonl").write_text("\n".join(validation) + "\n")
    assert [group.validate for group in rollout_dump.read(tmp_path).groups] == [False, True]


def test_latest_steps_are_kept_and_the_rest_is_counted(tmp_path):
    write_dump(tmp_path, groups=9, steps=3)
    dump = rollout_dump.read(tmp_path, max_rollouts=64)
    assert [(group.step, len(group.rollouts)) for group in dump.groups] == [(20, 16), (30, 16), (30, 16), (30, 16)]
    assert dump.left_out_groups == 2
    assert dump.left_out_files == ["10.jsonl"]
    assert len(dump.notes()) == 2


def test_steps_can_be_chosen(tmp_path):
    write_dump(tmp_path, groups=6, steps=3)
    assert {group.step for group in rollout_dump.read(tmp_path, steps={10, 30}).groups} == {10, 30}
    with pytest.raises(ReportError, match=r"none of the steps \[7\]; it holds 10, 20, 30"):
        rollout_dump.read(tmp_path, steps={7})


def test_unusable_lines_are_counted_by_reason_with_their_place(tmp_path):
    good = _lines()
    other_version = json.dumps(json.loads(good[0]) | {"format": "slca-rollouts/2"})
    without_runs = {key: value for key, value in json.loads(good[0]).items() if key != "runs"}
    wrong_type = json.loads(good[0]) | {"prompt": 3}
    unreadable_gold = json.loads(good[0]) | {"gold_calls": [[{"arguments": {}}]]}
    lines = [
        good[0].encode(),
        b'{"format": "slca-rollouts/1", "st\xff\xfe',
        b"{broken",
        b"[1, 2]",
        b"",
        other_version.encode(),
        json.dumps(without_runs).encode(),
        json.dumps(wrong_type).encode(),
        json.dumps(unreadable_gold).encode(),
        b"[" * 100_000,
        good[1].encode(),
        good[2].encode()[: len(good[2]) // 2],
    ]
    (_folder(tmp_path) / "10.jsonl").write_bytes(b"\n".join(lines))
    dump = rollout_dump.read(tmp_path)
    assert dump.rollout_count == 2
    assert {reason: (skipped.count, skipped.first) for reason, skipped in dump.skipped.items()} == {
        "not readable as JSON": (3, "10.jsonl line 2"),
        "not a rollout": (1, "10.jsonl line 4"),
        "written in the format 'slca-rollouts/2', this version reads 'slca-rollouts/1'": (1, "10.jsonl line 6"),
        "the rollout has no 'runs'": (1, "10.jsonl line 7"),
        "a field of the rollout is of another type than expected": (2, "10.jsonl line 8"),
        "half a line at the end of a file, the run is still writing it": (1, "10.jsonl line 12"),
    }


def test_every_cut_of_the_last_line_is_counted_and_never_raises(tmp_path):
    first, last = (line.encode() for line in _lines(size=2))
    file = _folder(tmp_path) / "10.jsonl"
    for length in range(1, len(last), 97):
        file.write_bytes(first + b"\n" + last[:length])
        dump = rollout_dump.read(tmp_path)
        assert dump.rollout_count == 1
        assert sum(skipped.count for skipped in dump.skipped.values()) == 1


def test_a_complete_last_line_without_newline_is_kept(tmp_path):
    (_folder(tmp_path) / "10.jsonl").write_text("\n".join(_lines(size=3)))
    assert rollout_dump.read(tmp_path).rollout_count == 3


def test_runs_without_rollouts_say_why(tmp_path):
    with pytest.raises(ReportError, match="has no folder slca_rollouts"):
        rollout_dump.read(tmp_path)
    folder = _folder(tmp_path)
    with pytest.raises(ReportError, match="has not reached its first dumped step"):
        rollout_dump.read(tmp_path)
    (folder / "10.jsonl").touch()
    with pytest.raises(ReportError, match="has not written a rollout yet"):
        rollout_dump.read(tmp_path)
    (folder / "10.jsonl").write_text('{"format": "slca-rollouts/2"}\n' * 3)
    with pytest.raises(ReportError, match="3 lines skipped: written in the format 'slca-rollouts/2'"):
        rollout_dump.read(tmp_path)
