"""The demo world: learnable rows in Toucan's layout that go through the same code as real ones."""

import json
from collections import Counter

import pyarrow.parquet as pq
import pytest
from toucan_rows import build, read

from data_prep import demo_world
from data_prep.demo_tools import TOOLS
from recipe_slca.tool_calls import parse

COUNT = 400


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clean")
    write = ["--output", str(folder / "rows.parquet"), "--conversations", str(COUNT), "--seed", "5"]
    demo_world.main(write)
    return folder / "rows.parquet"


def demo_rows(**options):
    return list(demo_world.rows(COUNT, seed=5, **options))


def called(row):
    return [message["function_call"] for message in json.loads(row["messages"]) if "function_call" in message]


def test_nine_string_columns(clean):
    schema = pq.read_schema(clean)
    assert schema.names == [
        "uuid", "subset_name", "messages", "question", "available_tools", "target_tools",
        "question_quality_assessment", "response_quality_assessment", "metadata",
    ]  # fmt: skip
    assert {str(kind) for kind in schema.types} == {"string"}
    assert pq.read_table(clean).to_pylist() == demo_rows()


def test_clean_rows_pass_every_filter_and_have_every_kind(clean, tmp_path):
    report = build(clean, tmp_path, "--splits", "rl=rest", "--keep-irrelevant", expect=0)
    assert set(report["dropped"]) <= {"duplicate"} and report["notes"] == {}
    assert set(report["splits"]["rl"]["kinds"]) == {
        "irrelevant", "single_step_single_tool", "single_step_parallel", "multi_step_all_serial",
        "multi_step_has_parallel",
    }  # fmt: skip
    assert any(row["extra_info"]["has_history"] for row in read(tmp_path, "rl"))
    assert {subset["subset_name"] for subset in demo_rows()} == {"single-turn-original", "multi-turn", "irrelevant"}
    assert report["splits"]["rl"]["tools"]["p100"] <= 3


def test_schemas_are_of_many_forms():
    text = json.dumps([tool.schema for tool in TOOLS])
    assert all(f'"{keyword}"' in text for keyword in ("enum", "anyOf", "minimum", "maximum", "required", "default"))
    assert len(TOOLS) == 12 and len({tool.server for tool in TOOLS}) >= 5


def test_imperfect_rows_pass_every_filter_and_keep_their_tasks(tmp_path):
    path = tmp_path / "rows.parquet"
    demo_world.main(["--output", str(path), "--conversations", str(COUNT), "--seed", "5", "--imperfect", "0.5"])
    report = build(path, tmp_path / "out", "--splits", "sft=rest", "--keep-irrelevant", expect=0)
    assert set(report["dropped"]) <= {"duplicate"} and report["notes"] == {}


def test_imperfect_share():
    rows = demo_rows(imperfect=1.0)
    faults = Counter(json.loads(row["metadata"])["fault"] for row in rows)
    assert faults["none"] == sum(row["subset_name"] == "irrelevant" for row in rows)
    assert min(faults[kind] for kind in demo_world.IMPERFECTIONS) > 30
    half = Counter(json.loads(row["metadata"])["fault"] == "none" for row in demo_rows(imperfect=0.5))
    assert 0.4 < half[True] / COUNT < 0.7
    assert all(json.loads(row["metadata"])["fault"] == "none" for row in demo_rows())


def test_folds_share_no_question():
    folds = [{row["question"].lower().removeprefix("please ") for row in demo_rows(fold=(k, 3))} for k in (1, 2, 3)]
    assert not folds[0] & folds[1] and not folds[0] & folds[2] and not folds[1] & folds[2]


def test_same_seed_same_rows():
    assert demo_rows(imperfect=0.3) == demo_rows(imperfect=0.3)
    assert demo_rows() != list(demo_world.rows(COUNT, seed=6))


def test_observations_are_what_the_tools_answer_and_replies_quote_them(clean, tmp_path):
    build(clean, tmp_path, "--splits", "sft=rest", expect=0)
    answers = {tool.full_name: tool for tool in TOOLS}
    for row in read(tmp_path, "sft"):
        waiting = []
        for message in row["messages"][1:]:
            if message["role"] == "assistant":
                waiting = list(parse(message["content"]).calls)
            elif message["role"] == "tool":
                call = waiting.pop(0)
                answer = answers[call.name].answer(call.arguments)
                assert json.loads(message["content"]) == answer
                for value in answer.values():
                    assert value is True or str(value) in row["messages"][-1]["content"] or len(row["messages"]) > 5


@pytest.mark.parametrize(
    "options", [["--fold", "3/2"], ["--fold", "x"], ["--imperfect", "2"], ["--conversations", "0"]], ids=" ".join
)
def test_unusable_options(tmp_path, options, capsys):
    with pytest.raises(SystemExit):
        demo_world.main(["--output", str(tmp_path / "rows.parquet"), *options])
    assert options[0] in capsys.readouterr().err


def test_kinds_can_be_chosen_and_unknown_ones_are_named(tmp_path, capsys):
    demo_world.main(["--output", str(tmp_path / "x.parquet"), "--conversations", "30", "--kinds", "multi_turn=1"])
    subsets = pq.read_table(tmp_path / "x.parquet")["subset_name"].to_pylist()
    assert set(subsets) == {"multi-turn"}
    with pytest.raises(SystemExit):
        demo_world.main(["--output", str(tmp_path / "y.parquet"), "--kinds", "nonsense=1"])
    assert "use positive weights of single, parallel" in capsys.readouterr().err
