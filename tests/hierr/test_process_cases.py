"""METHOD 3's process reward on trajectories whose terms were worked out by hand."""

import json
from fractions import Fraction
from pathlib import Path

import pytest

from recipe_slca.hierr.process import score_process

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data/process_cases.jsonl").read_text(encoding="utf-8").splitlines()
]
METHOD_WEIGHTS = {"format": "0.10", "name": "0.25", "key": "0.15", "value": "0.20", "parallel": "0.30"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_terms_and_total(case):
    score = score_process(case["turns"], case["gold"], case["tools"])
    expected = {term: Fraction(value) for term, value in case["expected"].items()}
    assert {term: getattr(score, term) for term in expected} == pytest.approx(
        {term: float(value) for term, value in expected.items()}, abs=1e-12
    )
    total = sum(Fraction(METHOD_WEIGHTS[term]) * value for term, value in expected.items())
    assert score.total == pytest.approx(float(total), abs=1e-12)
