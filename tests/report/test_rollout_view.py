"""What the page is told of one rollout."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from make_dump import make_group

from recipe_slca.hierr.process import score_process
from recipe_slca.report.cutting import ROLLOUT_LIMIT, TEXT_LIMIT, Cutter
from recipe_slca.report.rollout_view import view_rollout, view_task
from recipe_slca.settings import ProcessSettings
from recipe_slca.tool_calls import ToolCall, parse, render


def _rollout(**changes):
    return make_group(random.Random(3), 10, "g", hostile=False, size=1)[0] | changes


def _with_turns(*turns):
    rollout = _rollout()
    rollout["trajectory"] = {"question": "?", "turns": list(turns), "ended": "replied"}
    return rollout


@settings(deadline=None)
@given(st.text(max_size=50), st.integers(1, 40))
def test_a_cut_text_keeps_both_ends_and_counts_the_rest(text, limit):
    cutter = Cutter()
    cutter.room = limit
    shown = cutter.text(text)
    if len(text) <= limit:
        assert (shown, cutter.characters, cutter.room) == (text, 0, limit - len(text))
    else:
        head, rest = shown.split("\n[... ", 1) if "\n[... " not in text else (text[: limit - limit // 3], shown)
        assert text.startswith(head)
        assert rest.endswith(text[len(text) - limit // 3 :])
        assert (cutter.characters, cutter.room) == (len(text) - limit, 0)


def test_a_rollout_of_any_size_takes_a_bounded_place():
    call = {"name": "t" * 999, "arguments": {"a": "x" * 10_000}, "observation": "y" * 50_000, "status": "ok"}
    written = {"name": "t", "arguments": {f"argument {number}": "x" * 10_000 for number in range(500)}}
    turn = {"text": f"<tool_call>{json.dumps(written)}</tool_call>" + "z" * 100_000, "calls": [call] * 300}
    rollout = _with_turns(*[turn] * 10, *[{"text": "short", "calls": []}] * 290)
    rollout["gold_calls"] = [[{"name": "t", "arguments": {"argument 1": "x" * 10_000}}]]
    rollout["runs"] *= 1000
    view = view_rollout(rollout, "10.jsonl line 1")
    assert len(json.dumps(view)) < 4 * ROLLOUT_LIMIT
    assert view["cut"]["items"] > 1000 and view["cut"]["characters"] > 1_000_000
    assert len(view["turns"]) == 200
    assert len(view["runs"]) <= 200
    assert len(view["turns"][0]["content"]) < TEXT_LIMIT + 100


def test_gold_matches_agree_with_the_process_reward():
    compared = 0
    for seed in range(30):
        for rollout in make_group(random.Random(seed), 10, "g", size=4):
            gold = rollout["gold_calls"]
            score = score_process([turn["text"] for turn in rollout["trajectory"]["turns"]], gold, ["any"])
            calls = [call for step in view_rollout(rollout, "here")["gold"] for call in step]
            with_arguments = [call for call in calls if any(a["gold"] is not None for a in call["arguments"])]
            if not with_arguments:
                continue
            for term in ("key", "value"):
                mean = sum(c["match"][term] if c["match"] else 0 for c in with_arguments) / len(with_arguments)
                assert mean == pytest.approx(getattr(score, term), abs=1e-5)
            for call in calls:
                if call["match"]:
                    gold_arguments = [a for a in call["arguments"] if a["fits"] != "extra"]
                    equal = sum(a["fits"] == "equal" for a in gold_arguments)
                    assert equal / len(gold_arguments) == pytest.approx(call["match"]["value"], abs=1e-5)
                    compared += 1
    assert compared > 50


def _with_calls(*calls, gold, **settings):
    """A rollout that makes the calls in one turn, scored with these process settings."""
    rollout = _with_turns({"text": render([ToolCall(*call) for call in calls]), "calls": []})
    rollout["gold_calls"] = [[{"name": name, "arguments": arguments} for name, arguments in gold]]
    texts = [turn["text"] for turn in rollout["trajectory"]["turns"]]
    schemas = {"a": {"properties": {"x": {"type": "integer"}}}}
    score = score_process(texts, rollout["gold_calls"], ["a"], ProcessSettings(**settings), schemas)
    rollout["metrics"] |= {"key": score.key, "value": score.value}
    return rollout, score


def test_pairs_are_those_of_the_assignment_that_the_rollout_was_scored_by():
    calls = [("a", {"x": 1, "y": 2}), ("a", {"x": 1})]
    gold = [("a", {"x": 1, "y": 3}), ("a", {"x": 1, "y": 2})]
    pairs = {}
    for assignment in ("greedy", "optimal"):
        rollout, score = _with_calls(*calls, gold=gold, assignment=assignment)
        view = view_rollout(rollout, "here")
        assert view["goldAsScored"]
        pairs[assignment] = [call["match"]["call"] for call in view["gold"][0]]
        assert pairs[assignment] == [match.predicted for match in score.matches]
    assert pairs["greedy"] != pairs["optimal"]


def test_calls_that_were_scored_in_another_way_are_told():
    rollout, score = _with_calls(("a", {"x": "1,000"}), gold=[("a", {"x": 1000})], schema_aware_values=True)
    assert score.value == 1
    assert view_rollout(rollout, "here")["goldAsScored"] is False
    assert view_rollout(rollout | {"metrics": {}}, "here")["goldAsScored"] is True


def test_a_turn_of_stray_tags_shows_them():
    turns = view_rollout(_with_turns({"text": "</tool_call>\n", "calls": []}, {"text": " ", "calls": []}), "here")[
        "turns"
    ]
    assert [turn["content"] for turn in turns] == ["</tool_call>", ""]


def test_a_match_points_to_the_call_that_stands_for_the_gold_call():
    for rollout in make_group(random.Random(5), 10, "g", size=16):
        view = view_rollout(rollout, "here")
        for gold in (call for step in view["gold"] for call in step if call["match"]):
            turn = parse(rollout["trajectory"]["turns"][gold["match"]["turn"]]["text"])
            assert turn.calls[gold["match"]["call"]].name == gold["name"]


def test_malformed_and_unexecuted_calls_are_told_apart():
    blocks = ['{"name": "a", "arguments": {"x": 1}}', "[{]", '{"name": "b"}']
    text = "".join(f"<tool_call>{block}</tool_call>" for block in blocks)
    answered = {"name": "a", "arguments": {"x": 1}, "observation": "ok", "status": "ok", "source": "llm"}
    malformed = {
        "name": "",
        "arguments": {},
        "observation": "error",
        "status": "malformed_call",
        "source": "validation",
    }
    calls = view_rollout(_with_turns({"text": text, "calls": [answered, malformed]}), "here")["turns"][0]["calls"]
    assert [(call["name"], call["status"]) for call in calls] == [
        ("a", "ok"),
        ("", "malformed_call"),
        ("b", "not_executed"),
    ]
    assert calls[1]["written"] == "<tool_call>[{]</tool_call>"
    assert calls[1]["reason"] == "the block does not start with a JSON value"
    refused = malformed | {"status": "call_limit"}
    calls = view_rollout(_with_turns({"text": text, "calls": [answered, refused, answered | {"name": "b"}]}), "here")
    assert [call["status"] for call in calls["turns"][0]["calls"]] == ["ok", "call_limit", "ok"]
    assert calls["turns"][0]["calls"][1]["written"] == "<tool_call>[{]</tool_call>"
    calls = view_rollout(_with_turns({"text": "<tool_call>[{", "calls": []}), "here")["turns"][0]["calls"]
    assert [(call["status"], call["written"]) for call in calls] == [("malformed_call", "<tool_call>[{")]


def test_large_whole_numbers_keep_their_digits():
    call = {
        "name": "a",
        "arguments": {"id": 9007199254740993},
        "observation": '{"id": 9007199254740995}',
        "status": "ok",
        "source": "",
    }
    turn = {"text": '<tool_call>{"name": "a", "arguments": {"id": 9007199254740993}}</tool_call>', "calls": [call]}
    shown = view_rollout(_with_turns(turn), "here")["turns"][0]["calls"][0]
    assert "9007199254740993" in shown["arguments"]
    assert shown["observation"] == '{\n  "id": 9007199254740995\n}'


def test_numbers_that_json_cannot_hold_go_by_name():
    rollout = _rollout(tool_reward=float("nan"), summary_reward=float("-inf"))
    rollout["runs"][0]["advantage"] = float("inf")
    view = view_rollout(rollout, "here")
    assert (view["toolReward"], view["summaryReward"], view["runs"][0]["advantage"]) == ("nan", "-inf", "inf")
    json.dumps(view, allow_nan=False)


def test_turns_are_tinted_only_when_each_has_a_run():
    rollout = _rollout()
    written = [i for i, run in enumerate(rollout["runs"]) if run["kind"] != "observation"]
    assert view_rollout(rollout, "here")["turnRuns"] == written
    rollout["runs"] = rollout["runs"][:-1]
    assert view_rollout(rollout, "here")["turnRuns"] == []


def test_task_keeps_messages_that_hold_no_plain_text():
    rollout = _rollout(prompt=[{"role": "user", "content": [{"type": "text", "text": "hello"}]}], task=None)
    task = view_task(rollout)
    assert '"hello"' in task["prompt"][0]["text"]
    assert task["task"] == {"estimator": "slca"}


def test_success_is_the_process_reward_at_the_papers_threshold():
    for rollout in make_group(random.Random(8), 10, "g"):
        view = view_rollout(rollout, "here")
        assert view["success"] is (view["process"] >= 0.9 - 1e-9)
    assert view_rollout(_rollout(metrics={}), "here")["success"] is None
