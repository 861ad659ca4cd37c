"""verl tool parser `toucan`: the `<tool_call>` grammar of `recipe_slca.tool_calls`."""

import json

from verl.experimental.agent_loop.tool_parser import FunctionCall, ToolParser

from recipe_slca import tool_calls
from recipe_slca.verl_plugin.chat_tokens import policy_text


@ToolParser.register("toucan")
class ToucanToolParser(ToolParser):
    """Reads JSON lists and single objects in `<tool_call>` blocks.

    stop_at_tool_call: end a turn at `</tool_call>`, so that the policy cannot write its own observations.
    Takes effect when the tokenizer has `</tool_call>` as one token.
    """

    def __init__(self, tokenizer, stop_at_tool_call: bool = True) -> None:
        super().__init__(tokenizer)
        closing_tag = tokenizer.encode(tool_calls.CLOSE_TAG, add_special_tokens=False)
        self._stop_token_ids = closing_tag if stop_at_tool_call and len(closing_tag) == 1 else []

    @property
    def stop_token_ids(self) -> list[int]:
        return self._stop_token_ids

    async def extract_tool_calls(self, responses_ids, tools=None) -> tuple[str, list[FunctionCall]]:
        """The turn's text outside its blocks, and one call for each well-formed call in it.

        A malformed block comes as a call without a name, so that a loop answers it with an error and goes on.
        """
        parsed = tool_calls.parse(policy_text(self.tokenizer, list(responses_ids)))
        calls = []
        for block in parsed.blocks:
            if block.error:
                calls.append(FunctionCall(name="", arguments=block.text))
            calls += [
                FunctionCall(name=call.name, arguments=json.dumps(call.arguments, ensure_ascii=False))
                for call in block.calls
            ]
        return parsed.content, calls
