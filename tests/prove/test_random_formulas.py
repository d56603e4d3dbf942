"""Random formulas: a right rewriting is proven, and a mistake that few inputs or only large sizes
show is never called equivalent. ``bench/soundness.py`` tries thousands.
"""

from __future__ import annotations

import pytest
from random_formulas.mistakes import MISTAKES
from random_formulas.pairs import case_of, outcomes

SEEDS = range(24)
CALLED_ESTIMATES = 200248, 200904
"""Seeds whose mistakes were once accepted, as estimates: two integers decide together."""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_formula_gets_a_verdict_that_is_right(seed: int) -> None:
    for outcome in outcomes(seed):
        assert not outcome.wrong, outcome


@pytest.mark.parametrize("seed", CALLED_ESTIMATES)
def test_what_two_integers_decide_is_no_estimate_either(seed: int) -> None:
    right, wrong = outcomes(seed)
    assert right.verdict == "equivalent"
    assert wrong.differs
    assert wrong.verdict != "equivalent"


def test_every_mistake_is_made_in_some_formula() -> None:
    assert {case_of(seed).mistake for seed in range(400)} >= set(MISTAKES)
