"""HierR: both rewards of a rollout, the omission guard, and the metrics."""

import asyncio
import json
import math

import pytest
import torch

from recipe_slca import advantage
from recipe_slca.hierr.grades import Grade
from recipe_slca.hierr.hierr import HierR
from recipe_slca.metrics import segment_token_rewards
from recipe_slca.settings import SettingsError, read_settings
from recipe_slca.tool_calls import ToolCall, render
from recipe_slca.trajectory import CallRecord, Trajectory, TurnRecord

TOOLS = ["weather", "time"]
OSLO = ToolCall("weather", {"city": "Oslo"})
GOLD = [[{"name": "weather", "arguments": {"city": "Oslo"}}]]
REPLY = "It is 12 degrees in Oslo."
METRICS = {
    *("process", "format", "name", "key", "value", "parallel", "name_f1", "arg_match"),
    *("success_0.7", "success_0.8", "success_0.9", "success_1.0"),
    *("tool_reward", "summary_reward", "ungraded", "omission", "tool_segment"),
    *("calls", "tool_turns", "redundant_calls"),
    *("ended_replied", "ended_turn_limit", "ended_call_limit", "ended_response_full", "ended_aborted"),
}


class FixedJudge:
    """Gives one grade to all; remembers what it was asked."""

    def __init__(self, grade=None):
        self.fixed = grade or Grade(0.75)
        self.asked = []

    async def grade(self, question, tool_responses, reply):
        self.asked.append((question, list(tool_responses), reply))
        return self.fixed

    def metrics(self):
        return {"asked": float(len(self.asked))}

    async def close(self):
        self.closed = True


def turn(*calls, observation='{"temp": 12}', status="ok", text=None):
    records = [CallRecord(call.name, call.arguments, observation, status, "replay") for call in calls]
    return TurnRecord(render(calls) if text is None else text, records)


def rollout(*turns, ended="replied"):
    return Trajectory("How warm is it in Oslo?", list(turns), ended)


def score(trajectory, gold=GOLD, judge=None, settings=None, tools=TOOLS, **row):
    async def run():
        hierr = HierR(read_settings({"judge": {"kind": "rule"}, **(settings or {})}), judge or FixedJudge())
        try:
            return await hierr.score(trajectory, gold, tools, **row)
        finally:
            await hierr.close()

    result = asyncio.run(run())
    assert result.metrics.keys() == METRICS
    assert all(isinstance(value, float) and math.isfinite(value) for value in result.metrics.values())
    assert len(result.turn_rewards) == len(trajectory.turns)
    return result


def reply_turn(text=REPLY):
    return TurnRecord(text)


class TestBothRewards:
    def test_a_right_rollout(self):
        judge = FixedJudge()
        result = score(rollout(turn(OSLO), reply_turn("<think>12 then</think>" + REPLY)), judge=judge)
        assert (result.tool_reward, result.summary_reward) == (1.0, 0.75)
        assert result.turn_rewards == [1.0, 0.0]
        assert judge.asked == [("How warm is it in Oslo?", ['{"temp": 12}'], REPLY)]
        assert result.metrics["success_1.0"] == result.metrics["tool_segment"] == result.metrics["ended_replied"] == 1

    def test_gold_as_json_text(self):
        assert score(rollout(turn(OSLO), reply_turn()), json.dumps(GOLD)).tool_reward == 1.0

    def test_a_single_turn_has_no_tool_segment(self):
        result = score(rollout(turn(OSLO), ended="response_full"))
        assert result.tool_reward is None
        assert result.metrics["process"] == 1.0
        assert (result.metrics["tool_reward"], result.metrics["tool_segment"]) == (0.0, 0.0)

    def test_no_allowed_tool_scores_zero(self):
        assert score(rollout(turn(OSLO), reply_turn()), tools=[]).tool_reward == 0.0

    def test_without_hierr_the_tool_reward_is_zero(self):
        weights = {"weights": dict.fromkeys(["format", "name", "key", "value", "parallel"], 0.0)}
        result = score(rollout(turn(OSLO), reply_turn()), settings={"process": weights})
        assert (result.tool_reward, result.summary_reward, result.turn_rewards) == (0.0, 0.75, [0.0, 0.0])

    def test_a_rollout_without_turns(self):
        result = score(rollout(ended="aborted"), gold=[])
        assert (result.tool_reward, result.summary_reward, result.turn_rewards) == (None, 0.0, [])

    def test_unreadable_gold_raises(self):
        with pytest.raises(ValueError, match="gold calls"):
            score(rollout(reply_turn()), gold="[[")


class TestSummary:
    def test_calls_due_but_no_tool_response(self):
        silent = rollout(turn(OSLO, observation=" "), reply_turn())
        judge = FixedJudge()
        assert score(silent, judge=judge).summary_reward == 0.0
        assert judge.asked == []

    @pytest.mark.parametrize(("reply", "reward"), [("123456789", 0.0), ("1234567890", 0.75), ("<think>" + REPLY, 0.0)])
    def test_short_replies(self, reply, reward):
        assert score(rollout(turn(OSLO), reply_turn(reply))).summary_reward == reward

    def test_an_unanswered_call_leaves_the_reply_ungraded(self):
        down = rollout(turn(OSLO, status="service_unavailable"), reply_turn("short"))
        result = score(down)
        assert (result.tool_reward, result.summary_reward) == (1.0, None)
        assert (result.metrics["ungraded"], result.metrics["summary_reward"]) == (1.0, 0.0)

    def test_a_judge_that_fails_leaves_the_reply_ungraded(self):
        result = score(rollout(turn(OSLO), reply_turn()), judge=FixedJudge(Grade(None, "timeout")))
        assert result.summary_reward is None
        assert result.metrics["ungraded"] == 1.0

    def test_direct_replies(self):
        direct = rollout(reply_turn("I can help with the weather."))
        assert score(direct, gold=[]).summary_reward == 0.75
        paper = score(direct, gold=[], settings={"judge": {"kind": "rule", "grade_direct_replies": False}})
        assert paper.summary_reward == 0.0
        assert paper.metrics["process"] == pytest.approx(0.9)
        assert paper.metrics["success_0.9"] == 1.0

    def test_calls_that_were_not_due_are_judged_all_the_same(self):
        settings = {"judge": {"kind": "rule", "grade_direct_replies": False}}
        assert score(rollout(turn(OSLO), reply_turn()), gold=[], settings=settings).summary_reward == 0.75


class TestOmission:
    @pytest.mark.parametrize(
        ("turns", "tool_reward"),
        [
            ([reply_turn()], None),
            ([reply_turn("<think>" + render([OSLO]) + "</think>" + REPLY)], None),
            ([turn(text="<tool_call>oops</tool_call>"), reply_turn()], 0.0),
            ([turn(text="<tool_call>oops</tool_call>")] * 3, 0.0),
            ([], None),
        ],
    )
    @pytest.mark.parametrize("gold", [GOLD, [[{"name": "time", "arguments": {}}]]])
    def test_no_parseable_call_although_one_was_due(self, turns, tool_reward, gold):
        judge = FixedJudge()
        result = score(rollout(*turns), gold, judge=judge)
        assert (result.tool_reward, result.summary_reward) == (tool_reward, -0.5)
        assert result.metrics["tool_segment"] == (tool_reward is not None)
        assert result.turn_rewards == [0.0] * len(turns)
        assert (result.metrics["omission"], result.metrics["process"]) == (1.0, 0.0)
        assert judge.asked == []

    @pytest.mark.parametrize("estimator", [advantage.slca, advantage.slca_turn, advantage.toolpo, advantage.rltr])
    def test_the_tokens_of_a_malformed_call_are_discouraged(self, estimator):
        malformed = turn(text="<tool_call>oops</tool_call>")
        scores = [score(rollout(first, reply_turn())) for first in (turn(OSLO), malformed)]
        rewards = [segment_token_rewards(s.tool_reward, s.summary_reward, s.turn_rewards) for s in scores]
        token_rewards = torch.tensor([[0, tool, 0, 0, summary] for tool, summary in rewards])
        advantages = estimator(token_rewards, torch.tensor([[1, 1, 0, 1, 1]] * 2), [0, 0])
        assert (advantages[0, :2] > 0).all()
        assert (advantages[1, :2] < 0).all()

    def test_a_wrong_call_is_no_omission(self):
        assert score(rollout(turn(ToolCall("time", {})), reply_turn())).metrics["omission"] == 0.0


class TestMetrics:
    def test_redundant_calls_and_turns(self):
        same = ToolCall("weather", {"city": "Oslo"})
        result = score(rollout(turn(OSLO), turn(same, ToolCall("time", {})), reply_turn()))
        assert (result.metrics["calls"], result.metrics["tool_turns"]) == (3.0, 2.0)
        assert result.metrics["redundant_calls"] == 1.0

    @pytest.mark.parametrize("ended", ["replied", "turn_limit", "call_limit", "response_full", "aborted"])
    def test_the_ending_is_marked(self, ended):
        metrics = score(rollout(turn(OSLO), reply_turn(), ended=ended)).metrics
        assert [name for name in metrics if name.startswith("ended_") and metrics[name]] == [f"ended_{ended}"]


class TestExecutionMatch:
    SCHEMAS = [
        {"name": name, "parameters": {"type": "object", "properties": {"city": {}, "place": {}}}}
        for name in ("weather", "forecast")
    ]
    RECORDED = [
        {"name": "weather", "arguments": {"city": "Oslo"}, "response": '{"temp": 12, "sky": "clear"}'},
        {"name": "forecast", "arguments": {"place": "Oslo"}, "response": '{"sky": "clear", "temp": 12}'},
        {"name": "forecast", "arguments": {"place": "Paris"}, "response": '{"sky": "rain", "temp": 15}'},
        {"name": "forecast", "arguments": {}, "response": "[]"},
        {"name": "weather", "arguments": {"city": "Nowhere"}, "response": "[]"},
    ]

    def process(self, call, gold=GOLD, match=True):
        settings = {"process": {"execution_match": match}, "simulator": {"responders": ["replay"]}}
        trajectory = rollout(turn(call), reply_turn())
        row = {"tool_schemas": json.dumps(self.SCHEMAS), "recorded_calls": json.dumps(self.RECORDED)}
        return score(trajectory, gold, settings=settings, tools=["weather", "forecast"], **row).tool_reward

    def test_another_plan_with_the_same_result_counts_in_full(self):
        other_plan = ToolCall("forecast", {"place": "Oslo"})
        assert self.process(other_plan, match=False) == pytest.approx(0.4)
        assert self.process(other_plan) == pytest.approx(1.0)

    def test_another_result_does_not_count(self):
        assert self.process(ToolCall("forecast", {"place": "Paris"})) == pytest.approx(0.4)

    def test_an_unanswered_or_invalid_call_does_not_count(self):
        assert self.process(ToolCall("forecast", {"place": "Rome"})) == pytest.approx(0.4)
        assert self.process(ToolCall("unknown", {})) == pytest.approx(0.3)

    def test_empty_answers_are_no_evidence(self):
        gold = [[{"name": "weather", "arguments": {"city": "Nowhere"}}]]
        assert self.process(ToolCall("forecast", {}), gold) == pytest.approx(0.4)


def test_execution_match_works_with_synthetic_answers_too():
    settings = {"process": {"execution_match": True}, "simulator": {"responders": ["synthetic"]}}
    schemas = [{"name": "weather", "parameters": {"type": "object"}}]
    result = score(rollout(turn(OSLO), reply_turn()), settings=settings, tool_schemas=schemas)
    assert result.tool_reward == 1.0


def test_rewards_do_not_depend_on_order_or_company():
    rollouts = [rollout(turn(ToolCall("weather", {"city": city})), reply_turn()) for city in ("Oslo", "Rome", "Bonn")]
    settings = read_settings({"judge": {"kind": "rule", "noise_std": 0.3, "noise_seed": 5}})

    async def run(order):
        hierr = HierR(settings)
        scores = await asyncio.gather(*(hierr.score(rollouts[number], GOLD, TOOLS) for number in order))
        return dict(zip(order, scores, strict=True))

    assert asyncio.run(run([0, 1, 2])) == asyncio.run(run([2, 0, 1]))


def test_the_default_judge_needs_an_endpoint():
    with pytest.raises(SettingsError, match=r"slca\.judge\.endpoint\.base_urls"):
        HierR()


def test_the_judge_is_closed():
    judge = FixedJudge()
    asyncio.run(HierR(read_settings({}), judge).close())
    assert judge.closed
