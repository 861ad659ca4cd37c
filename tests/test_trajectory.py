"""The record of a rollout."""

import json

from recipe_slca.tool_calls import ToolCall, render
from recipe_slca.trajectory import CallRecord, Trajectory, TurnRecord

CALLS = [
    CallRecord("find", {"city": "Oslo"}, "12 °C", "ok", "replay"),
    CallRecord("find", {}, "city is missing", "missing_required", "validation"),
    CallRecord("book", {"nights": [1, {"a": None}]}, "", "service_unavailable", ""),
]


def trajectory(*calls: CallRecord) -> Trajectory:
    call_text = f"<think>Look.</think>{render([ToolCall(call.name, call.arguments) for call in calls] or CALLS)}"
    return Trajectory(
        "Is it cold?", [TurnRecord(call_text, list(calls)), TurnRecord("<think>So.</think>It is.\n")], "replied"
    )


def test_to_dict_and_back_through_json():
    record = trajectory(*CALLS)
    assert Trajectory.from_dict(json.loads(json.dumps(record.to_dict()))) == record
    assert Trajectory.from_dict(Trajectory("Nothing?").to_dict()) == Trajectory("Nothing?")


def test_the_reply_is_the_last_turn_without_reasoning_and_calls():
    assert trajectory(*CALLS).reply == "It is."
    assert Trajectory("Nothing?").reply == ""
    only_a_call = Trajectory("Is it cold?", trajectory(*CALLS).turns[:1], "turn_limit")
    assert only_a_call.reply == ""


def test_calls_are_those_of_all_turns_in_order():
    record = Trajectory("Is it cold?", [TurnRecord("a", CALLS[:2]), TurnRecord("b"), TurnRecord("c", CALLS[2:])])
    assert record.calls == CALLS
    assert Trajectory("Nothing?").calls == []


def test_a_call_that_no_responder_answered_marks_the_rollout():
    assert trajectory(*CALLS).unanswered
    assert not trajectory(*CALLS[:2]).unanswered
    assert not Trajectory("Nothing?").unanswered


def test_a_rollout_counts_as_aborted_until_it_ends_otherwise():
    assert Trajectory("Is it cold?").ended == "aborted"


def test_records_do_not_share_their_lists():
    first, second = Trajectory("a"), Trajectory("b")
    first.turns.append(TurnRecord("x"))
    first.turns[0].calls.append(CALLS[0])
    assert second.turns == [] and TurnRecord("y").calls == []
