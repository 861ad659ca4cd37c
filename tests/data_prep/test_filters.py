"""Every bad row is dropped for a named reason, and the report accounts for all rows."""

import contextlib
import gc
import json

import pytest
from toucan_rows import MULTI, OSLO, OTHER_TOOL, SINGLE, TOOL, build, build_rows, call, kimi, read, response, said, user

from data_prep import spool
from data_prep.filters import FilterOptions
from data_prep.readers import toucan
from data_prep.reasons import REASONS, Unusable
from data_prep.spool import SpoolOptions
from recipe_slca.sgls.tools import OUTPUT_KEYS, Tools


def named(name):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def nest(levels):
    return "[" * levels + "]" * levels


LONG_NAME = "n" * 200
BAD_ROWS = {
    "empty_messages": [kimi(""), kimi("[]"), kimi("null"), kimi(messages="  ")],
    "unparseable_messages": [
        kimi("[{"),
        kimi('{"role": "user"}'),
        kimi('["text"]'),
        kimi('[{"content": "no role"}]'),
        kimi('[{"role": "stranger", "content": "x"}]'),
        kimi('[{"role": "user", "content": 5}]'),
        kimi('[{"role": "user", "content": NaN}]'),
        kimi(nest(1000)),
        kimi(nest(100_000)),
    ],
    "no_tools": [
        kimi(json.dumps(SINGLE), available_tools=""),
        kimi(json.dumps(SINGLE), available_tools="[]"),
        kimi(json.dumps(SINGLE), available_tools="null"),
    ],
    "unparseable_tools": [
        kimi(available_tools="[{"),
        kimi(available_tools='"text"'),
        kimi(available_tools="[5]"),
        kimi(available_tools='[{"type": "function"}]'),
        kimi(available_tools='[{"name": "a", "parameters": [1]}]'),
        kimi(available_tools='[{"name": "a", "parameters": {"default": NaN}}]'),
        kimi(available_tools='[{"name": "a", "parameters": {"default": 1e999}}]'),
        kimi(available_tools=nest(1000)),
    ],
    "conflicting_tools": [
        kimi(available_tools=json.dumps([TOOL, {"function": {**TOOL["function"], "description": "another"}}]))
    ],
    "unparseable_arguments": [
        kimi([user(), call("{"), response(), said()]),
        kimi([user(), call("[1]"), response(), said()]),
        kimi([user(), call('{"city": NaN}'), response(), said()]),
        kimi([user(), call('{"city": 1e999}'), response(), said()]),
        kimi([user(), call(nest(1000)), response(), said()]),
        kimi([user(), {**call(), "function_call": {"arguments": OSLO}}, response(), said()]),
        kimi([user(), {**call(), "function_call": "weather-get"}, response(), said()]),
    ],
    "nested_too_deeply": [kimi([user(), call('{"city": ' + nest(100) + "}"), response(), said()])],
    "undeclared_tool": [kimi([user(), call(name="nobody-knows"), response(name="nobody-knows"), said()])],
    "invalid_arguments": [
        kimi([user(), call("{}"), response(), said()]),
        kimi([user(), call('{"city": "Oslo", "days": 0}'), response(), said()]),
        kimi([user(), call(""), response(), said()]),
    ],
    "unanswered_calls": [
        kimi([user(), call(), said()]),
        kimi([user(), call(), call(), response(), said()]),
        kimi([user(), call(), response(), response(), said()]),
        kimi([user(), response(), said()]),
        kimi([user(), call(), response(name="another"), said()]),
        kimi([user(), call(), said("between"), response(), said()]),
    ],
    "unreadable_calls": [
        kimi([user(), said("I <think> aloud."), call(), response(), said()]),
        kimi([user(), call(), response(), said("Write <tool_call> yourself.")]),
        kimi([user(), call(), response(), said("Stray </tool_call>.")]),
    ],
    "special_tokens": [
        kimi([user("Hi <|im_end|>"), *SINGLE[1:]]),
        kimi([*SINGLE[:-1], said("Done.<|tool_calls_section_end|>")]),
        kimi([user(), call(), response("<|endoftext|>"), said()]),
    ],
    "ends_on_tool_response": [kimi(SINGLE[:-1])],
    "no_final_reply": [
        kimi([*SINGLE[:-1], said("")]),
        kimi([*SINGLE[:-1], said("<think>only thought</think>")]),
        kimi([*SINGLE, user()]),
        kimi([user()]),
    ],
    "no_question": [kimi([said("Hello"), *SINGLE])],
    "no_tool_calls": [kimi([user(), said()])],
    "irrelevant": [kimi([user(), said()], subset_name="irrelevant", response_quality_assessment="")],
    "invalid_text": [
        kimi([user("nul \0 here"), *SINGLE[1:]]),
        kimi(available_tools=json.dumps([TOOL, named("half \ud800")])),
        kimi(available_tools=json.dumps([TOOL, named("nul \0")])),
    ],
    "too_large": [kimi([*SINGLE[:-1], said("x" * 50_000_000)])],
}


@pytest.mark.parametrize("reason", BAD_ROWS)
def test_reason(tmp_path, reason):
    rows = [{**row, "uuid": f"row {at}"} for at, row in enumerate(BAD_ROWS[reason])]
    report, _ = build_rows(tmp_path, [*rows, kimi(uuid="good")], "--splits", "sft=rest")
    assert report["dropped"] == {reason: len(rows)}
    assert report["rows_in"] == len(rows) + 1
    assert "row 0" in report["examples"][reason][0]


def test_every_reason_has_a_test():
    tested_elsewhere = {
        "unparseable_row",
        "unparseable_gold",
        "question_quality",
        "response_quality",
        "too_long",
        "duplicate",
    }
    assert set(BAD_ROWS) | tested_elsewhere == set(REASONS)


@pytest.mark.parametrize(
    "tools",
    [
        TOOL,
        [TOOL, TOOL, OTHER_TOOL],
        json.dumps([TOOL]),
        [json.dumps(TOOL)],
        [TOOL["function"]],
        [{"function": TOOL["function"]}],
        [{"name": "weather-get", "input_schema": TOOL["function"]["parameters"]}],
        [{"name": "weather-get", "inputSchema": TOOL["function"]["parameters"]}],
        [{"name": "weather-get", "parameters": None}],
        [{"name": "weather-get"}],
        [{"name": "weather-get", "parameters": {"properties": {"city": {}}}}],
        [
            {
                "name": "weather-get",
                "parameters": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"},
            }
        ],
    ],
    ids=str,
)
def test_tool_spellings(tmp_path, tools):
    report, output = build_rows(tmp_path, [kimi(available_tools=json.dumps(tools))], "--splits", "rl=rest")
    assert report["dropped"] == {}
    (row,) = read(output, "rl")
    written = json.loads(row["tools"])
    assert written[0]["function"]["name"] == "weather-get"
    assert isinstance(written[0]["function"]["parameters"], dict)
    assert row["reward_model"]["ground_truth"]["allowed_tools"] == [tool["function"]["name"] for tool in written]
    prompt_lines = row["prompt"][0]["content"].split("<tools>\n")[1].split("\n</tools>")[0].splitlines()
    assert [json.loads(line) for line in prompt_lines] == written


@pytest.mark.parametrize("key", OUTPUT_KEYS)
def test_the_declared_form_of_answers_reaches_the_simulator(tmp_path, key):
    answers = {"type": "object", "properties": {"sky": {"enum": ["sun", "fog"]}}}
    tools = [{"function": {**TOOL["function"], key: answers}}, {"function": {**OTHER_TOOL["function"], key: "text"}}]
    _, output = build_rows(tmp_path, [kimi(available_tools=json.dumps(tools))], "--splits", "rl=rest")
    (row,) = read(output, "rl")
    declared = [tool.output for tool in Tools.from_schemas(row["tools"]).by_name.values()]
    assert declared == [answers, None]


@pytest.mark.parametrize(
    "name", ["shadcn/ui-get", "two words", "pok\u00e9mcp-get", LONG_NAME, 'quote"s', "line\nbreak"]
)
def test_tool_names(tmp_path, name):
    row = kimi([user(), call("{}", name), response(name=name), said()], available_tools=json.dumps([named(name)]))
    report, output = build_rows(tmp_path, [row], "--splits", "rl=rest")
    assert report["dropped"] == {}
    gold = json.loads(read(output, "rl")[0]["reward_model"]["ground_truth"]["gold_tool_calls"])
    assert gold == [[{"name": name, "arguments": {}}]]


def test_lenient_counts_only(tmp_path):
    rows = [kimi([user(), call("{}"), response(), said()])]
    report, _ = build_rows(tmp_path, rows, "--splits", "sft=rest", "--lenient")
    assert report["notes"] == {"invalid_arguments": 1}
    assert report["conversations_used"] == {"sft": 1}


@pytest.mark.parametrize("parameters", [{"type": "nothing"}, {"$ref": "http://localhost:9/schema"}, {"$ref": "#/gone"}])
def test_a_broken_schema_is_noted_and_fetches_nothing(tmp_path, parameters):
    tools = [{"type": "function", "function": {"name": "weather-get", "parameters": parameters}}]
    report, _ = build_rows(tmp_path, [kimi(available_tools=json.dumps(tools))], "--splits", "sft=rest")
    assert report["notes"] == {"broken_tool_schema": 1}
    assert report["conversations_used"] == {"sft": 1}


def test_kept_irrelevant_rows_have_empty_gold(tmp_path):
    row = kimi([user(), said()], subset_name="irrelevant", response_quality_assessment="")
    report, output = build_rows(
        tmp_path, [row], "--splits", "rl=rest", "--keep-irrelevant", "--min-response-quality", "2"
    )
    (written,) = read(output, "rl")
    truth = written["reward_model"]["ground_truth"]
    assert (truth["gold_tool_calls"], truth["subset_name"]) == ("[]", "irrelevant")
    assert written["extra_info"]["parallel_type"] == "irrelevant"
    assert report["dropped"] == {}


@pytest.mark.parametrize(("kind", "score"), [("question", 4.0), ("response", 3.0)])
def test_quality(tmp_path, kind, score):
    rows = [kimi(uuid="a"), kimi(uuid="b", **{f"{kind}_quality_assessment": ""})]
    rows += [kimi(uuid="c", **{f"{kind}_quality_assessment": '{"overall_score": "high"}'})]
    for limit, dropped in ((score, 2), (score + 0.1, 3)):
        report, _ = build_rows(tmp_path, rows, "--splits", "sft=rest", f"--min-{kind}-quality", str(limit))
        assert report["dropped"][f"{kind}_quality"] == dropped


def test_duplicates_by_content(tmp_path):
    report, output = build_rows(
        tmp_path, [kimi(uuid="a"), kimi(uuid="b"), kimi(MULTI, uuid="c")], "--splits", "sft=rest"
    )
    assert report["dropped"] == {"duplicate": 1}
    assert len(read(output, "sft")) == 2


@pytest.mark.parametrize("number", ["NaN", "1e999"])
@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"messages": [user(), call({"city": "?"}), response(), said()]}, "unparseable_arguments"),
        ({"available_tools": [{**TOOL["function"], "description": "?"}]}, "unparseable_tools"),
    ],
)
def test_numbers_that_json_cannot_hold(tmp_path, row, reason, number):
    source = tmp_path / "rows.json"
    source.write_text(json.dumps([{**kimi(uuid="bad"), **row}, kimi()]).replace('"?"', number))
    report = build(source, tmp_path / "out", "--splits", "sft=rest")
    assert report["dropped"] == {reason: 1}


def test_dropped_rows_leave_no_cycles():
    """They would be held until the next search for cycles, which is rare."""
    options = SpoolOptions(FilterOptions(), seed=0)
    gc.collect()
    gc.disable()
    try:
        for row in [row for rows in BAD_ROWS.values() for row in rows]:
            with contextlib.suppress(Unusable):
                spool._convert(row, 0, toucan, options)
        assert gc.collect() < 10
    finally:
        gc.enable()


def test_json_rows_that_are_none(tmp_path):
    source = tmp_path / "rows.jsonl"
    source.write_bytes(json.dumps(kimi()).encode() + b'\n[1]\n{"broken\nnull\n{"uuid": "\xff"}\n')
    report = build(source, tmp_path / "out", "--splits", "sft=rest")
    assert report["dropped"] == {"unparseable_row": 3, "invalid_text": 1}
    assert report["rows_in"] == 5
