"""The deterministic judge and its noise."""

import asyncio
import statistics

import pytest

from recipe_slca.hierr.rule_judge import RuleJudge
from recipe_slca.settings import JudgeSettings

QUESTION = "How warm is it in Oslo and Bergen?"
RESPONSES = ['{"city": "Oslo", "temp": 12}', '{"city": "Bergen", "temp": 9.5, "sky": "heavy rain"}']


def grade(reply, responses=RESPONSES, question=QUESTION, **settings):
    judge = RuleJudge(JudgeSettings(kind="rule", **settings))
    return asyncio.run(judge.grade(question, responses, reply)).score


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ("It is 12 degrees in Oslo and 9.5 in Bergen.", 1.0),
        ("It is 12 degrees in Oslo, and in Bergen there is HEAVY RAIN!", 1.0),
        ("Oslo 12, Bergen 9.5", 0.75),
        ("It is 12 degrees in Oslo, Bergen is cold.", 0.5),
        ("It is cold in Oslo and in Bergen.", 0.25),
        ("It is 120 degrees in Oslo and 19.5 in Bergen.", 0.25),
        ("", 0.0),
        ('{"temp": 12}', 0.0),
        ("It is 12 degrees, 9.5 in Bergen. <|im_end|>", 0.0),
        ('<tool_call>[{"name": "a"}]</tool_call> 12 and 9.5.', 0.0),
    ],
)
def test_the_five_grades(reply, score):
    assert grade(reply) == score


@pytest.mark.parametrize(
    ("response", "reply", "score"),
    [
        ("12 degrees and sunny", "It is sunny there.", 1.0),
        ("", "There was no answer.", 1.0),
        ("[]", "Nothing was found.", 1.0),
        ('{"city": "Oslo"}', "That is in Oslo.", 1.0),
        ('{"n": 12.0}', "There are 12 of them.", 1.0),
        ('{"a": {"b": ["deep", null, true]}}', "It says deep.", 1.0),
        ('{"ok": "unclosed', "It is unclosed.", 1.0),
    ],
)
def test_what_counts_as_quoted(response, reply, score):
    assert grade(reply, [response]) == score


def test_a_direct_reply_is_graded_by_its_form():
    assert (grade("Hello, I can help.", []), grade("Hello", [])) == (1.0, 0.75)


def test_noise_is_seeded_by_what_is_graded():
    clean = grade("Oslo 12, Bergen 9.5")
    noisy = grade("Oslo 12, Bergen 9.5", noise_std=0.2)
    assert noisy != clean
    assert noisy == grade("Oslo 12, Bergen 9.5", noise_std=0.2)
    assert noisy != grade("Oslo 12, Bergen 9.5", noise_std=0.2, noise_seed=1)
    assert noisy != grade("Oslo 12, Bergen 9.5 ", noise_std=0.2)
    assert noisy - clean == pytest.approx((grade("Oslo 12, Bergen 9.5", noise_std=0.4) - clean) / 2)


def test_noise_has_the_spread_asked_for():
    errors = [grade(f"Oslo 12, Bergen 9.5, {number}", noise_std=0.3) - 0.75 for number in range(800)]
    assert statistics.fmean(errors) == pytest.approx(0, abs=0.04)
    assert statistics.stdev(errors) == pytest.approx(0.3, abs=0.03)
