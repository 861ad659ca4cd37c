"""Every published layout becomes the same dialogue, and nothing of it is lost."""

import json

import pytest
from toucan_rows import (
    LIMA,
    MULTI,
    OSLO,
    OTHER_TOOL,
    SINGLE,
    TOOL,
    build,
    build_rows,
    call,
    kimi,
    read,
    response,
    said,
    user,
)

from data_prep.readers import UnknownLayout, recognise
from data_prep.readers.slca_rl import read_gold
from data_prep.rows import system_message
from data_prep.tools import read_tools
from recipe_slca.tool_calls import ToolCall, parse

SYSTEM = system_message(read_tools([TOOL, OTHER_TOOL]).text)
ONE_CALL = '<tool_call>\n[{"name": "weather-get", "arguments": {"city": "Oslo"}}]\n</tool_call>'
TWO_CALLS = (
    '<tool_call>\n[{"name": "weather-get", "arguments": {"city": "Oslo"}}, '
    '{"name": "weather-get", "arguments": {"city": "Lima", "days": 2}}]\n</tool_call>'
)


def sft_messages(tmp_path, row, *options):
    report, output = build_rows(tmp_path, [row], "--splits", "sft=rest", *options)
    assert report["dropped"] == {}
    return [(message["role"], message["content"]) for message in read(output, "sft")[0]["messages"]]


def test_kimi_serial_call(tmp_path):
    assert sft_messages(tmp_path, kimi()) == [
        ("system", SYSTEM),
        ("user", "Weather in Oslo?"),
        ("assistant", ONE_CALL),
        ("tool", "sun"),
        ("assistant", "It is sunny."),
    ]


def test_kimi_parallel_calls_are_one_turn_with_the_text_before_them(tmp_path):
    messages = [user(), said("Both."), call(OSLO), call(LIMA), response("sun"), response("rain"), said("Done.")]
    assert sft_messages(tmp_path, kimi(messages))[2:] == [
        ("assistant", f"Both.\n{TWO_CALLS}"),
        ("tool", "sun"),
        ("tool", "rain"),
        ("assistant", "Done."),
    ]


def test_oss_reasoning_messages_and_call_ids(tmp_path):
    messages = [
        user(),
        {"role": "assistant", "content": "", "reasoning_content": "I need the weather."},
        call(call_id="call_1"),
        response(),
        {"role": "assistant", "content": None, "reasoning_content": "Tell it."},
        said(),
    ]
    assert sft_messages(tmp_path, kimi(messages))[2:] == [
        ("assistant", f"<think>\nI need the weather.\n</think>\n{ONE_CALL}"),
        ("tool", "sun"),
        ("assistant", "<think>\nTell it.\n</think>\nIt is sunny."),
    ]


def test_qwen_tools_text_serves_where_the_column_is_empty(tmp_path):
    system = {
        "role": "system",
        "content": "# Tools\n<tools></tools> tags hold them:\n<tools>\n"
        + "\n".join(map(json.dumps, [TOOL, OTHER_TOOL]))
        + "\n</tools>",
    }
    row = kimi(json.dumps([system, *SINGLE]), available_tools="")
    assert sft_messages(tmp_path, row)[0] == ("system", SYSTEM)


def test_system_tools_serve_where_only_they_hold_the_called_tool(tmp_path):
    row = kimi(available_tools=json.dumps([OTHER_TOOL]))
    assert sft_messages(tmp_path, row)[0] == ("system", SYSTEM)


def test_arguments_given_as_an_object_keep_long_numbers(tmp_path):
    number = 2**200 + 1
    free = {"type": "function", "function": {"name": "weather-get", "parameters": {"type": "object"}}}
    row = kimi([user(), call({"n": number}), response(), said()], available_tools=json.dumps([free]))
    text = sft_messages(tmp_path, row)[2][1]
    assert parse(text).calls == [ToolCall("weather-get", {"n": number})]


def test_toucan_sft_python_literals(tmp_path):
    def literal(arguments):
        return {"role": "tool_call", "content": str({"name": "weather-get", "arguments": arguments})}

    messages = [
        user(),
        said("Both."),
        literal(OSLO),
        literal(LIMA),
        {"role": "tool_response", "content": "it's sun"},
        {"role": "tool_response", "content": "rain"},
        said("Done."),
    ]
    row = {
        "uuid": "u1",
        "subset_name": "single-turn-original",
        "question": "q",
        "target_tools": "get",
        "tools": json.dumps([TOOL, OTHER_TOOL]),
        "messages": json.dumps(messages),
    }
    assert sft_messages(tmp_path, row) == [
        ("system", SYSTEM),
        ("user", "Weather in Oslo?"),
        ("assistant", f"Both.\n{TWO_CALLS}"),
        ("tool", "it's sun"),
        ("tool", "rain"),
        ("assistant", "Done."),
    ]


def released(tools_text, *turns):
    roles = ("human", "gpt")
    conversations = [{"from": "system", "value": f"Use the tools.\n<tools>\n{tools_text}\n</tools>\nBe brief."}]
    return {"conversations": conversations + [{"from": roles[at % 2], "value": text} for at, text in enumerate(turns)]}


@pytest.mark.parametrize(
    "tools_text",
    [
        "\n".join(map(json.dumps, [TOOL, OTHER_TOOL])),
        json.dumps([TOOL, OTHER_TOOL]),
        json.dumps(TOOL),
        json.dumps(TOOL, indent=2),
        str([TOOL, OTHER_TOOL]),
        f"{TOOL}\n{OTHER_TOOL}",
    ],
    ids=["lines", "array", "object", "indented", "literal", "literal lines"],
)
def test_released_sft_is_lossless(tmp_path, tools_text):
    first = f"<think>\nTwo at once.\n</think>\nI look.\n{TWO_CALLS}\n"
    second = '<tool_call>{"name": "weather-get", "arguments": {"city": "Oslo"}}</tool_call>'
    row = released(
        tools_text,
        "Weather?",
        first,
        "<tool_response>\nsun\n</tool_response>\n<tool_response>\n{'rain': true}\n</tool_response>",
        second,
        "<tool_response>fog</tool_response>",
        "<think>x</think>\nDone.",
    )
    assert sft_messages(tmp_path, row) == [
        ("system", row["conversations"][0]["value"]),
        ("user", "Weather?"),
        ("assistant", first),
        ("tool", "sun"),
        ("tool", "{'rain': true}"),
        ("assistant", second),
        ("tool", "fog"),
        ("assistant", "<think>x</think>\nDone."),
    ]


def test_released_sft_keeps_text_around_a_response(tmp_path):
    mixed = "<tool_response>\nsun\n</tool_response>\nAnd now Lima, please."
    row = released(json.dumps(TOOL), "Weather?", ONE_CALL, mixed, "Done.")
    assert sft_messages(tmp_path, row)[3] == ("user", mixed)


def test_released_sft_python_literal_call_becomes_json(tmp_path):
    literal = "Look.\n<tool_call>\n[{'name': 'weather-get', 'arguments': {'city': 'Oslo'}}]\n</tool_call>"
    row = released(json.dumps(TOOL), "Weather?", literal, "<tool_response>sun</tool_response>", "Done.")
    assert sft_messages(tmp_path, row)[2] == ("assistant", f"Look.\n{ONE_CALL}")


def test_released_sft_conversations_as_a_string(tmp_path):
    row = released(json.dumps(TOOL), "Weather?", ONE_CALL, "<tool_response>sun</tool_response>", "Done.")
    for written in (json.dumps(row["conversations"]), str(row["conversations"])):
        assert sft_messages(tmp_path, {"conversations": written})[2] == ("assistant", ONE_CALL)


def released_task(gold, **info):
    return {
        "data_source": "toucan_toolcall_v4_rl",
        "prompt": [
            {"role": "system", "content": f"Tools:\n<tools>\n{json.dumps(TOOL)}\n</tools>"},
            {"role": "user", "content": "Weather in Lima?"},
            {
                "role": "assistant",
                "content": '<tool_call>{"name": "weather-get", "arguments": {"city": "Lima"}}</tool_call>',
            },
            {"role": "user", "content": "<tool_response>\nrain\n</tool_response>"},
            {"role": "assistant", "content": "Rain."},
            {"role": "user", "content": "And Oslo?"},
        ],
        "tools": json.dumps([TOOL]),
        "reward_model": {
            "style": "rule",
            "ground_truth": {
                "question_content": "And Oslo?",
                "allowed_tools": ["weather-get"],
                "tool_schemas": json.dumps([TOOL]),
                "gold_tool_calls": gold,
            },
        },
        "extra_info": {"original_idx": 14680, "has_history": True, "turn_index": 2, "split_position": 5, **info},
    }


def test_released_rl_keeps_prompt_gold_and_provenance(tmp_path):
    gold = json.dumps([[{"name": "weather-get", "arguments": {"city": "Oslo"}}]])
    source = released_task(gold, source="decomposed_multi_turn", parallel_type="single_step_single_tool")
    report, output = build_rows(tmp_path, [source], "--splits", "rl=rest")
    (row,) = read(output, "rl")
    assert [(m["role"], m["content"]) for m in row["prompt"]] == [
        (m["role"], m["content"]) if "<tool_response>" not in m["content"] else ("tool", "rain")
        for m in source["prompt"]
    ]
    assert json.loads(row["reward_model"]["ground_truth"]["gold_tool_calls"]) == json.loads(gold)
    expected = source["extra_info"]
    assert {key: row["extra_info"][key] for key in expected} == expected
    assert report["splits"]["rl"]["kinds"] == {"single_step_single_tool": 1}


CALL = {"name": "a", "arguments": {"x": 1}}


@pytest.mark.parametrize(
    ("value", "parallel_type", "widths"),
    [
        ([[CALL, CALL], [CALL]], None, [2, 1]),
        (json.dumps(json.dumps([[CALL]])), None, [1]),
        ([CALL, CALL], None, [1, 1]),
        ([CALL, CALL], "single_step_parallel", [2]),
        (str([CALL]), None, [1]),
        ([[CALL], []], None, [1]),
        ("", None, []),
        (None, None, []),
    ],
)
def test_gold_layouts(value, parallel_type, widths):
    steps, complete = read_gold(value, parallel_type)
    assert [len(step) for step in steps] == widths
    assert complete
    assert all(call == ToolCall("a", {"x": 1}) for step in steps for call in step)


def test_bare_gold_names_are_not_checked_against_required_arguments(tmp_path):
    report, output = build_rows(tmp_path, [released_task('["weather-get"]')], "--splits", "rl=rest")
    (row,) = read(output, "rl")
    assert json.loads(row["reward_model"]["ground_truth"]["gold_tool_calls"]) == [
        [{"name": "weather-get", "arguments": {}}]
    ]


def test_our_own_rows_come_through_unchanged(tmp_path):
    rows = [kimi(uuid="a"), kimi(MULTI, uuid="b", subset_name="multi-turn")]
    build_rows(tmp_path, rows, "--splits", "rl=rest")
    build(tmp_path / "out" / "rl.parquet", tmp_path / "again", "--splits", "rl=rest")
    assert (tmp_path / "out" / "rl.parquet").read_bytes() == (tmp_path / "again" / "rl.parquet").read_bytes()


def test_evaluation_rows_never_reach_training(tmp_path):
    row = released_task(json.dumps([[CALL | {"name": "weather-get", "arguments": {"city": "Oslo"}}]]))
    row["data_source"] = "toucan_eval_v4"
    report, _ = build_rows(tmp_path, [row], "--splits", "rl=rest")
    assert report["splits"]["rl"]["rows"] == 0
    assert report["not_selected"] == 1


@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_json_files_give_the_same_rows_as_parquet(tmp_path, suffix):
    rows = [kimi(uuid="a"), kimi(MULTI, uuid="b")]
    build_rows(tmp_path, rows, "--splits", "sft=rest")
    source = tmp_path / f"rows.{suffix}"
    source.write_text(json.dumps(rows) if suffix == "json" else "".join(json.dumps(row) + "\n\n" for row in rows))
    build(source, tmp_path / "json", "--splits", "sft=rest")
    assert read(tmp_path / "json", "sft") == read(tmp_path / "out", "sft")


def test_layouts_are_recognised_by_columns():
    assert recognise(["uuid", "messages", "available_tools", "surplus"]) == "toucan"
    assert recognise(["messages", "tools"]) == "toucan-sft"
    assert recognise(["conversations"]) == "slca-sft"
    assert recognise(["prompt", "reward_model", "tools", "messages"]) == "slca-rl"
    with pytest.raises(UnknownLayout, match=r"seen: text\..*toucan-sft .*messages, tools"):
        recognise(["text"])


def test_lists_instead_of_json_text(tmp_path):
    row = {**kimi(), "messages": SINGLE, "available_tools": [TOOL, OTHER_TOOL]}
    source = tmp_path / "rows.jsonl"
    source.write_text(json.dumps(row))
    report = build(source, tmp_path / "out", "--splits", "sft=rest")
    assert report["conversations_used"] == {"sft": 1}
