"""The plugin in vLLM's own interface, where vLLM is installed; `tool_call_stream` is tested without it."""

import json

import pytest
from conftest import REPOSITORY

pytest.importorskip("vllm", reason="vLLM is not installed; the plugin only runs inside it")
PLUGIN = REPOSITORY / "recipe_slca/evaluation/vllm_tool_parser.py"
TEXT = 'Let me see. <tool_call>[{"name": "f", "arguments": {"x": 1}}, {"name": "g"}]</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]


@pytest.fixture
def parser():
    from vllm.tool_parsers.abstract_tool_parser import ToolParserManager

    ToolParserManager.import_tool_parser(str(PLUGIN))
    return ToolParserManager.get_tool_parser("slca")(tokenizer=object())


@pytest.fixture
def request_with_tools():
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    return ChatCompletionRequest(messages=[{"role": "user", "content": "Hi"}], model="m", tools=TOOLS)


def test_a_whole_turn(parser, request_with_tools):
    extracted = parser.extract_tool_calls(TEXT, request_with_tools)
    assert extracted.tools_called and extracted.content == "Let me see. "
    made = [(call.function.name, json.loads(call.function.arguments)) for call in extracted.tool_calls]
    assert made == [("f", {"x": 1}), ("g", {})]
    plain = parser.extract_tool_calls("Just text.", request_with_tools)
    assert (plain.tools_called, plain.tool_calls, plain.content) == (False, [], "Just text.")


def test_a_turn_in_pieces(parser, request_with_tools):
    content, made = "", []
    for end in range(1, len(TEXT) + 1):
        delta = parser.extract_tool_calls_streaming(
            TEXT[: end - 1], TEXT[:end], TEXT[end - 1 : end], [], [], [], request_with_tools
        )
        if delta:
            content += delta.content or ""
            made += [(call.index, call.function.name, call.function.arguments) for call in delta.tool_calls]
    assert content == "Let me see. "
    assert made == [(0, "f", '{"x": 1}'), (1, "g", "{}")]
    assert parser.get_remaining_unstreamed_args() == ""


def test_generation_stops_at_the_tag_unless_the_client_has_its_own_stops(parser, request_with_tools):
    adjusted = parser.adjust_request(request_with_tools)
    assert (adjusted.stop, adjusted.include_stop_str_in_output) == (["</tool_call>"], True)
    request_with_tools.stop = ["END"]
    request_with_tools.include_stop_str_in_output = False
    adjusted = parser.adjust_request(request_with_tools)
    assert (adjusted.stop, adjusted.include_stop_str_in_output) == (["END"], False)
