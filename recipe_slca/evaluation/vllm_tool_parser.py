"""Tool parser plugin for vLLM: native tool calls from a model that this project trained.

    vllm serve MODEL_DIR --enable-auto-tool-choice --tool-call-parser slca \\
        --tool-parser-plugin recipe_slca/evaluation/vllm_tool_parser.py

vLLM loads this file by its path, with this project installed beside vLLM or on PYTHONPATH. MODEL_DIR is an
export of ours (`run_scripts/export_model.sh`), whose chat template shows tools as training did. Add vLLM's
`--reasoning-parser qwen3` to get `<think>` text apart from the content. Written for vLLM 0.24.
"""

import json
from collections.abc import Sequence

from vllm.entrypoints.chat_utils import make_tool_call_id
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.engine.protocol import (
    DeltaFunctionCall,
    DeltaMessage,
    DeltaToolCall,
    ExtractedToolCallInformation,
    FunctionCall,
    ToolCall,
)
from vllm.tool_parsers.abstract_tool_parser import ToolParser, ToolParserManager

from recipe_slca.evaluation.tool_call_stream import ToolCallStream, split_turn
from recipe_slca.tool_calls import CLOSE_TAG


class SlcaToolParser(ToolParser):
    """Reads `<tool_call>` blocks of one call or a list of calls, by `tool_calls.parse`."""

    def __init__(self, tokenizer, tools=None):
        super().__init__(tokenizer, tools)
        self._stream = ToolCallStream()

    def adjust_request(self, request):
        """Stop at `</tool_call>` as in training, unless the client has stop strings of its own."""
        request = super().adjust_request(request)
        if request.tools and request.tool_choice in (None, "auto"):
            request.skip_special_tokens = False  # some tokenizers mark the tags as special
            if isinstance(request, ChatCompletionRequest) and not request.stop:
                request.stop = [CLOSE_TAG]
                request.include_stop_str_in_output = True
        return request

    def extract_tool_calls(self, model_output: str, request: ChatCompletionRequest) -> ExtractedToolCallInformation:
        """Calls and content of a whole turn."""
        content, calls = split_turn(model_output)
        return ExtractedToolCallInformation(
            tools_called=bool(calls),
            tool_calls=[ToolCall(function=FunctionCall(name=call.name, arguments=_written(call))) for call in calls],
            content=content or None,
        )

    def extract_tool_calls_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
        request: ChatCompletionRequest,
    ) -> DeltaMessage | None:
        """What the newest tokens add: content, or calls as their block closes."""
        delta = self._stream.read(current_text)
        if not delta.content and not delta.calls:
            return None
        message = DeltaMessage(content=delta.content or None)
        for call in delta.calls:
            # vLLM reads these two at the end of the stream, to see whether arguments are still to be sent.
            self.prev_tool_call_arr.append({"name": call.name, "arguments": _written(call)})
            self.streamed_args_for_tool.append(_written(call))
            self.current_tool_id = len(self.prev_tool_call_arr) - 1
            message.tool_calls.append(
                DeltaToolCall(
                    index=self.current_tool_id,
                    type="function",
                    id=make_tool_call_id(),
                    function=DeltaFunctionCall(name=call.name, arguments=_written(call)),
                )
            )
        return message


def _written(call) -> str:
    return json.dumps(call.arguments, ensure_ascii=False)


ToolParserManager.register_module("slca", module=SlcaToolParser)
