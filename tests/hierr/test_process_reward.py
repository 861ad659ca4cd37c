"""The process reward's shares by turn, its refinements, and its bounds."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe_slca.hierr.process import score_process
from recipe_slca.settings import ProcessSettings, ProcessWeights
from recipe_slca.tool_calls import ToolCall, render

TOOLS = ["weather", "time", "convert", "ping"]
REPLY = "Here is what I found for you."
OSLO = ToolCall("weather", {"city": "Oslo"})
NOON = ToolCall("time", {"zone": "CET"})
WRONG_NOON = ToolCall("time", {"zone": "UTC"})


def steps(*calls_of_steps):
    return [[{"name": call.name, "arguments": call.arguments} for call in calls] for calls in calls_of_steps]


def shares(turns, gold, **options):
    score = score_process([*turns, REPLY], gold, TOOLS, **options)
    assert len(score.turn_rewards) == len(turns) + 1
    assert score.turn_rewards[-1] == 0
    assert sum(score.turn_rewards) == pytest.approx(score.total)
    return score.turn_rewards[:-1]


class TestTurnShares:
    GOLD = steps([OSLO], [NOON])

    def test_right_turns_share_alike(self):
        first, second = shares([render([OSLO]), render([NOON])], self.GOLD)
        assert first == pytest.approx(second) == pytest.approx(0.5)

    def test_a_wrong_second_call_gets_less_than_a_right_first_one(self):
        first, second = shares([render([OSLO]), render([WRONG_NOON])], self.GOLD)
        assert first > second

    def test_a_wrong_first_call_gets_less_than_a_right_second_one(self):
        first, second = shares([render([WRONG_NOON]), render([OSLO])], self.GOLD)
        assert first < second

    def test_a_wrong_tool_gets_what_its_format_is_worth(self):
        # Merits 1.0 and 0.1; total 0.1 + 0.25 * 1/2 + (0.15 + 0.2) * 1/2 + 0.3 = 0.7.
        first, second = shares([render([OSLO]), render([ToolCall("ping", {})])], self.GOLD)
        assert first == pytest.approx(0.7 * 1.0 / 1.1)
        assert second == pytest.approx(0.7 * 0.1 / 1.1)

    def test_a_redundant_turn_gets_little(self):
        right, redundant, also_right = shares([render([OSLO]), render([OSLO]), render([NOON])], self.GOLD)
        assert right == pytest.approx(also_right)
        assert redundant == pytest.approx(0.1 * right)

    def test_a_malformed_turn_gets_nothing_beside_a_right_one(self):
        malformed, right = shares(["<tool_call>oops</tool_call>", render([OSLO])], steps([OSLO]))
        assert malformed == 0
        assert right > 0

    def test_parallel_calls_made_one_by_one_share_alike(self):
        first, second = shares([render([OSLO]), render([NOON])], steps([OSLO, NOON]))
        assert first == pytest.approx(second)

    def test_right_turns_share_alike_whatever_their_size(self):
        ping = ToolCall("ping", {})
        first, second = shares([render([OSLO, ping]), render([NOON])], steps([OSLO, ping], [NOON]))
        assert first == pytest.approx(second)

    def test_an_extra_parallel_call_lowers_its_turn(self):
        padded, right = shares([render([OSLO, ToolCall("ping", {})]), render([NOON])], self.GOLD)
        assert padded < right

    def test_turns_without_merit_share_alike(self):
        weights = ProcessWeights(format=0, name=0, key=1, value=0, parallel=0)
        gold = steps([ToolCall("ping", {})])
        first, second = shares([render([NOON]), render([OSLO])], gold, settings=ProcessSettings(weights=weights))
        assert first == second == 0.5

    def test_a_single_turn_has_no_tool_turn(self):
        assert score_process([render([OSLO])], steps([OSLO]), TOOLS).turn_rewards == (0.0,)

    def test_no_turn_at_all(self):
        score = score_process([], steps([OSLO]), TOOLS)
        assert (score.total, score.turn_rewards) == (0, ())


CALLS = st.builds(
    ToolCall,
    st.sampled_from([*TOOLS, "unknown"]),
    st.dictionaries(st.sampled_from("abc"), st.sampled_from([1, "1", 2, None, True, [1], {"x": 1}]), max_size=3),
)
TURNS = st.lists(
    st.lists(CALLS, min_size=1, max_size=3).map(render)
    | st.sampled_from(["<tool_call>[", "<think>" + render([OSLO]), "</tool_call>", "", REPLY]),
    max_size=5,
)
GOLD = st.lists(st.lists(CALLS, min_size=1, max_size=3), max_size=3).map(lambda listed: steps(*listed))
SCHEMA = {"properties": {"a": {"type": "integer", "default": 2}, "b": {"default": None}, "c": {"enum": [1, 2]}}}
SCHEMAS = dict.fromkeys(TOOLS, SCHEMA)


@given(TURNS, GOLD, st.sampled_from(["greedy", "optimal"]), st.booleans())
def test_bounds_and_sums(turns, gold, assignment, schema_aware):
    settings = ProcessSettings(assignment=assignment, schema_aware_values=schema_aware)
    score = score_process(turns, gold, TOOLS, settings, SCHEMAS)
    terms = [score.format, score.name, score.key, score.value, score.parallel]
    assert all(0 <= term <= 1 for term in [*terms, *score.turn_rewards])
    assert score.total == pytest.approx(sum(w * t for w, t in zip([0.1, 0.25, 0.15, 0.2, 0.3], terms, strict=True)))
    assert len(score.turn_rewards) == len(turns)
    if len(turns) > 1:
        assert sum(score.turn_rewards) == pytest.approx(score.total)
    assert len({match.predicted for match in score.matches}) == len(score.matches)
    assert len({match.gold for match in score.matches}) == len(score.matches)


@given(TURNS, GOLD)
def test_optimal_assignment_never_scores_less(turns, gold):
    greedy = score_process(turns, gold, TOOLS)
    optimal = score_process(turns, gold, TOOLS, ProcessSettings(assignment="optimal"))
    assert optimal.key + optimal.value >= greedy.key + greedy.value - 1e-9
    assert (optimal.format, optimal.name, optimal.parallel) == (greedy.format, greedy.name, greedy.parallel)


@given(CALLS, CALLS)
def test_schema_aware_values_never_score_a_pair_less(made, gold):
    plain = score_process([render([made])], steps([gold]), TOOLS)
    aware = score_process([render([made])], steps([gold]), TOOLS, ProcessSettings(schema_aware_values=True), SCHEMAS)
    assert aware.key >= plain.key - 1e-9
    assert aware.value >= plain.value - 1e-9


@given(st.lists(CALLS, min_size=1, max_size=4), st.randoms())
def test_a_right_rollout_scores_one_whatever_the_order_inside_a_step(calls, dice):
    allowed = [*TOOLS, "unknown"]
    shuffled = random.Random(dice.random()).sample(calls, len(calls))
    score = score_process([render(shuffled), REPLY], steps(calls), allowed, ProcessSettings(assignment="optimal"))
    assert score.total == pytest.approx(1)


class TestOptimalAssignment:
    GOLD = steps([ToolCall("convert", {"a": 1, "b": 2}), ToolCall("convert", {"a": 1, "b": 3})])
    TURNS = (render([ToolCall("convert", {"a": 1, "b": 3}), ToolCall("convert", {"a": 1, "b": 9})]), REPLY)

    def test_it_sees_what_greedy_under_rates(self):
        greedy = score_process(self.TURNS, self.GOLD, TOOLS)
        optimal = score_process(self.TURNS, self.GOLD, TOOLS, ProcessSettings(assignment="optimal"))
        assert (greedy.value, optimal.value) == (0.5, 0.75)


class TestSchemaAwareValues:
    SCHEMA = {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "units": {"type": "string", "enum": ["metric", "imperial"], "default": "metric"},
            "fields": {"type": "array", "items": {"enum": ["TEMP", "WIND"]}},
            "day": {"type": "string", "format": "date"},
            "at": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]},
            "amount": {"type": ["number", "null"]},
            "options": {"$ref": "#/$defs/options"},
        },
        "$defs": {"options": {"type": "object", "properties": {"since": {"format": "date"}, "top": {"default": 10}}}},
    }

    def score(self, made, gold, aware):
        return score_process(
            [render([ToolCall("weather", made)]), REPLY],
            steps([ToolCall("weather", gold)]),
            TOOLS,
            ProcessSettings(schema_aware_values=aware),
            {"weather": self.SCHEMA},
        ).total

    @pytest.mark.parametrize(
        ("made", "gold"),
        [
            ({"city": "Oslo"}, {"city": "Oslo", "units": "metric"}),
            ({"city": "Oslo", "units": "Metric"}, {"city": "Oslo"}),
            ({}, {"units": "metric"}),
            ({"fields": ["temp", "Wind"]}, {"fields": ["TEMP", "WIND"]}),
            ({"day": "5 March 2024"}, {"day": "2024-03-05"}),
            ({"day": "2024/3/5"}, {"day": "2024-03-05"}),
            ({"at": "2024-03-05T12:00:00+02:00"}, {"at": "2024-03-05T10:00:00Z"}),
            ({"amount": "1,250.50"}, {"amount": 1250.5}),
            ({"options": {"since": "March 5, 2024", "top": 10}}, {"options": {"since": "2024-03-05"}}),
        ],
    )
    def test_the_default_under_rates_what_the_schema_makes_equal(self, made, gold):
        assert self.score(made, gold, aware=False) < 1
        assert self.score(made, gold, aware=True) == pytest.approx(1)

    @pytest.mark.parametrize(
        ("made", "gold"),
        [
            ({"city": "Oslo"}, {"city": "Oslo", "units": "imperial"}),
            ({"day": "05/03/2024"}, {"day": "2024-03-05"}),
            ({"day": "03/05/2024"}, {"day": "2024-03-05"}),
            ({"day": "March"}, {"day": "2024-03-05"}),
            ({"day": "x" * 10_000}, {"day": "2024-03-05"}),
            ({"at": "2024-03-05 10:00 EST"}, {"at": "2024-03-05T15:00:00Z"}),
            ({"city": "1,250"}, {"city": "1250"}),
            ({"city": "5 March 2024"}, {"city": "2024-03-05"}),
            ({"fields": ["WIND", "TEMP"]}, {"fields": ["TEMP", "WIND"]}),
            ({"amount": None}, {"amount": 0}),
            ({"options": {"top": 11}}, {"options": {}}),
        ],
    )
    def test_what_differs_stays_different(self, made, gold):
        assert self.score(made, gold, aware=True) == self.score(made, gold, aware=False) < 1

    @pytest.mark.parametrize(
        "schema",
        [None, [], "text", {"properties": []}, {"$ref": "#"}, {"properties": {"city": {"$ref": "#/nowhere/x"}}}],
    )
    def test_a_useless_schema_changes_nothing(self, schema):
        score = score_process(
            [render([OSLO]), REPLY],
            steps([OSLO]),
            TOOLS,
            ProcessSettings(schema_aware_values=True),
            {"weather": schema},
        )
        assert score.total == pytest.approx(1)


def test_deeply_nested_arguments_do_not_break_scoring():
    deep = '<tool_call>[{"name": "ping", "arguments": {"x": ' + "[" * 400 + "]" * 400 + "}}]</tool_call>"
    gold = steps([ToolCall("ping", {"x": [[]]})])
    assert score_process([deep, REPLY], gold, TOOLS).value == 0
