"""The agent loop, turn by turn, with a policy that says what the test tells it to."""

import json

import pytest
import torch
from hydra.errors import InstantiationException
from scripted_policy import CALL, REPLY, WEATHER, make_row
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from recipe_slca import segments, task
from recipe_slca.verl_plugin.chat_tokens import cut_middle, end_of_turn_token
from recipe_slca.verl_plugin.sft_dataset import conversation_tokens

TWO_CALLS = (
    '<tool_call>\n[{"name": "weather", "arguments": {"city": "Oslo"}}, '
    '{"name": "weather", "arguments": {"city": "Rome"}}]\n</tool_call>'
)


def statuses(rollout) -> list[str]:
    return [call.status for call in rollout.trajectory.calls]


def mask_of(rollout) -> torch.Tensor:
    return torch.tensor([rollout.output.response_mask])


def test_call_observation_reply(roll_out):
    rollout = roll_out(CALL, REPLY)
    assert rollout.trajectory.ended == "replied"
    assert statuses(rollout) == ["ok"]
    assert rollout.trajectory.reply == "It is sunny in Oslo today."
    tool, summary = segments.split(mask_of(rollout))
    ids = torch.tensor(rollout.output.response_ids)
    assert rollout.tokenizer.decode(ids[tool[0]]) == CALL
    assert rollout.tokenizer.decode(ids[summary[0]]) == REPLY
    assert len(rollout.output.response_logprobs) == len(rollout.output.response_mask)


def test_rollout_and_sft_have_the_same_tokens(roll_out, tokenizer):
    rollout = roll_out(TWO_CALLS, CALL, REPLY)
    observations = [call.observation for call in rollout.trajectory.calls]
    messages = [
        {"role": "user", "content": "What is the weather in Oslo?"},
        {"role": "assistant", "content": TWO_CALLS},
        {"role": "tool", "content": observations[0]},
        {"role": "tool", "content": observations[1]},
        {"role": "assistant", "content": CALL},
        {"role": "tool", "content": observations[2]},
        {"role": "assistant", "content": REPLY.removesuffix("<|im_end|>")},
    ]
    builder = create_continuous_token_builder(tokenizer, hf_model_type="qwen2")
    system = [{"role": "system", "content": f"<tools>\n{json.dumps(WEATHER)}\n</tools>"}]
    embedded = roll_out(TWO_CALLS, CALL, REPLY, row=make_row(system=system[0]["content"]))
    tokens, learnt = conversation_tokens(builder, tokenizer, system + messages, end_of_turn_token(tokenizer))
    assert embedded.output.prompt_ids + embedded.output.response_ids == tokens
    rendered = tokenizer.apply_chat_template(system + messages, tokenize=False)
    assert tokenizer.decode(tokens) + "\n" == rendered
    # What SFT learns and RL does not: the token that closes a turn which the rollout stopped at </tool_call>.
    prompt = len(embedded.output.prompt_ids)
    policy = [learnt[prompt + i] for i, on in enumerate(embedded.output.response_mask) if on]
    assert all(policy)


def test_parallel_observations_keep_the_order_of_the_calls(roll_out):
    recorded = json.dumps(
        [
            {"name": "weather", "arguments": {"city": "Rome"}, "response": "rain in Rome"},
            {"name": "weather", "arguments": {"city": "Oslo"}, "response": "sun in Oslo"},
        ]
    )
    rollout = roll_out(TWO_CALLS, REPLY, row=make_row(recorded=recorded))
    assert [call.observation for call in rollout.trajectory.calls] == ["sun in Oslo", "rain in Rome"]
    assert rollout.text.index("sun in Oslo") < rollout.text.index("rain in Rome")


@pytest.mark.parametrize(
    ("turn", "status"),
    [
        ('<tool_call>[{"name": "nope", "arguments": {}}]</tool_call>', "unknown_tool"),
        ('<tool_call>[{"name": "weather", "arguments": {}}]</tool_call>', "missing_argument"),
        ('<tool_call>[{"name": "weather", "arguments": {"city": 3}}]</tool_call>', "wrong_type"),
        ("<tool_call>[{</tool_call>", "malformed_call"),
        ('<tool_call>{"arguments": {}}</tool_call>', "malformed_call"),
    ],
)
def test_bad_call_gets_a_typed_error_and_the_rollout_goes_on(roll_out, turn, status):
    rollout = roll_out(turn, CALL, REPLY)
    assert statuses(rollout) == [status, "ok"]
    assert json.loads(rollout.trajectory.calls[0].observation)["error"]["type"] == status
    assert rollout.trajectory.ended == "replied"


def test_turn_limit(roll_out):
    rollout = roll_out(CALL, CALL, overrides=("actor_rollout_ref.rollout.multi_turn.max_assistant_turns=2",))
    assert rollout.trajectory.ended == "turn_limit"
    assert len(rollout.trajectory.turns) == 2


def test_reply_in_the_last_turn_is_a_reply(roll_out):
    rollout = roll_out(CALL, REPLY, overrides=("actor_rollout_ref.rollout.multi_turn.max_assistant_turns=2",))
    assert rollout.trajectory.ended == "replied"


def test_calls_beyond_the_limit_of_a_turn_get_an_error(roll_out):
    rollout = roll_out(TWO_CALLS, REPLY, overrides=("slca.limits.max_calls_per_turn=1",))
    assert statuses(rollout) == ["ok", "call_limit"]


def test_call_limit_ends_the_rollout_at_the_next_call(roll_out):
    rollout = roll_out(TWO_CALLS, CALL, overrides=("slca.limits.max_calls=1",))
    assert statuses(rollout) == ["ok", "call_limit"]
    assert rollout.trajectory.ended == "call_limit"


def test_first_turn_that_fills_the_response(roll_out, tokenizer):
    length = len(tokenizer.encode(CALL))
    rollout = roll_out(CALL, overrides=(f"data.max_response_length={length}",))
    assert rollout.trajectory.ended == "response_full"
    assert rollout.output.response_mask == [1] * length


def test_reply_that_exactly_fills_the_response_is_a_reply(roll_out, tokenizer):
    rollout = roll_out(REPLY, overrides=(f"data.max_response_length={len(tokenizer.encode(REPLY))}",))
    assert rollout.trajectory.ended == "replied"


def test_observation_that_exactly_fills_the_response_is_left_out(roll_out):
    whole = roll_out(CALL, REPLY)
    with_observation = segments.find_runs(mask_of(whole)).start[1].item()
    full = roll_out(CALL, REPLY, overrides=(f"data.max_response_length={with_observation}",))
    assert full.trajectory.ended == "response_full"
    assert 0 not in full.output.response_mask
    room_for_one = roll_out(CALL, REPLY, overrides=(f"data.max_response_length={with_observation + 1}",))
    assert room_for_one.output.response_mask[-2:] == [0, 1]
    assert room_for_one.trajectory.ended == "response_full"


def test_empty_generation_is_aborted_and_has_no_learnable_token(roll_out):
    rollout = roll_out("")
    assert rollout.trajectory.ended == "aborted"
    assert rollout.output.response_mask == [0]
    assert rollout.output.prompt_ids == rollout.policy.prompts[0]


def test_empty_generation_after_an_observation(roll_out):
    rollout = roll_out(CALL, "")
    assert rollout.trajectory.ended == "aborted"
    assert len(rollout.trajectory.turns) == len(segments.find_runs(mask_of(rollout)).row) == 1


def test_generation_of_only_special_tokens_is_an_empty_reply(roll_out):
    rollout = roll_out("<|im_start|><|endoftext|><|im_end|>")
    assert rollout.trajectory.ended == "replied"
    assert rollout.trajectory.reply == ""
    assert rollout.output.response_mask == [1, 1, 1]


def test_generation_stops_at_the_closing_tag_unless_told_otherwise(roll_out, tokenizer):
    closing = tokenizer.convert_tokens_to_ids("</tool_call>")
    assert closing in roll_out(REPLY).policy.sampling[0]["stop_token_ids"]
    free = roll_out(REPLY, overrides=("slca.stop_at_tool_call=false",)).policy.sampling[0]
    assert free["stop_token_ids"] == [end_of_turn_token(tokenizer)]


def test_tools_are_shown_by_the_template_or_are_in_the_prompt_already(roll_out):
    assert roll_out(REPLY).text.count('"name": "weather"') == 1
    system = f"<tools>\n{json.dumps(WEATHER)}\n</tools>"
    assert roll_out(REPLY, row=make_row(system=system)).text.count('"name": "weather"') == 1
    both = roll_out(REPLY, row=make_row(system=system), overrides=("slca.tool_prompt=template",))
    assert both.text.count('"name": "weather"') == 2


def test_tools_come_from_the_ground_truth_when_the_column_is_missing(roll_out):
    row = make_row()
    row["reward_model"]["ground_truth"]["tool_schemas"] = row.pop("tools")
    assert statuses(roll_out(CALL, REPLY, row=row)) == ["ok"]


def test_row_without_readable_tools_is_an_error_that_names_the_column(roll_out):
    with pytest.raises(task.TaskError, match="column tools is not JSON"):
        roll_out(REPLY, row=make_row(tools="[{"))


def test_long_observation_is_cut_and_says_so(roll_out, tokenizer):
    response = "start " + "many words " * 400 + "finish"
    recorded = [{"name": "weather", "arguments": {"city": "Oslo"}, "response": response}]
    rollout = roll_out(
        CALL, REPLY, row=make_row(recorded=recorded), overrides=("slca.limits.max_observation_tokens=40",)
    )
    shown = rollout.trajectory.calls[0].observation
    assert shown.startswith("start") and shown.endswith("finish") and "tokens left out" in shown
    assert len(tokenizer.encode(shown)) < 40 + 30


def test_cut_middle_keeps_what_fits(tokenizer):
    assert cut_middle(tokenizer, "two words", 100) == "two words"
    assert cut_middle(tokenizer, "a" * 50, 2).count("left out") == 1


def test_unknown_setting_names_the_key(roll_out):
    with pytest.raises(InstantiationException, match="slca.limits.max_callz is not a setting"):
        roll_out(REPLY, overrides=("slca.limits.max_callz=3",))
