"""A policy that says what a test tells it to, and rows for it."""

import json
from typing import Any

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "day": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
            "required": ["city"],
        },
    },
}
CALL = '<tool_call>\n[{"name": "weather", "arguments": {"city": "Oslo"}}]\n</tool_call>'
REPLY = "It is sunny in Oslo today.<|im_end|>"


class ScriptedPolicy:
    """Stands in for the rollout server: one text a turn; "" is a generation of no token at all.

    Not a dataclass: hydra turns those into configs.
    """

    def __init__(self, tokenizer: Any, turns: list[str]):
        self.tokenizer = tokenizer
        self.turns = turns
        self.prompts: list[list[int]] = []
        self.sampling: list[dict] = []

    async def generate(self, request_id, *, prompt_ids, sampling_params, **_):
        from verl.workers.rollout.replica import TokenOutput

        self.prompts.append(list(prompt_ids))
        self.sampling.append(dict(sampling_params))
        tokens = self.tokenizer.encode(self.turns[len(self.prompts) - 1], add_special_tokens=False)
        steps = {"min_global_steps": 0, "max_global_steps": 0}
        return TokenOutput(token_ids=tokens, log_probs=[-0.5] * len(tokens), extra_fields=steps)


def make_row(schemas: Any = (WEATHER,), recorded: Any = None, system: str = "", **columns: Any) -> dict[str, Any]:
    """A dataset row as the loop gets it."""
    messages = [{"role": "user", "content": "What is the weather in Oslo?"}]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    return {
        "raw_prompt": messages,
        "tools": json.dumps(list(schemas)),
        "extra_info": {"recorded_calls": recorded},
        "reward_model": {"ground_truth": {"gold_tool_calls": "[]", "allowed_tools": ["weather"]}},
        "uid": "group-0",
        "session_id": 0,
        **columns,
    }
