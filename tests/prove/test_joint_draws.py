"""Draws in which conditions by integers have joint outcomes that other draws lack."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from attacks.formulas import planned

from pitcheck.claims.problem import Problem
from pitcheck.prove.integers.cases import with_cases
from pitcheck.prove.integers.joint import MOST_DRAWS, joint_draws, outcomes, telling
from pitcheck.prove.integers.marked_pairs import paired_draws
from pitcheck.stage.drawn_inputs import FIRST_MIXED, discrete, mixed_numbers
from pitcheck.stage.shaped_stage import ShapedStage, shape_reduced


def shaped_of(formula: Any) -> ShapedStage:
    plan = planned(formula)
    return with_cases(shape_reduced(Problem.of(plan, plan).whole_stage())).shaped


def integers(shaped: ShapedStage, draws: list[int]) -> list[Any]:
    """All integers of a stage in some draws, shapes (draws, *shape)."""
    fresh = [each for each in shaped.fresh.values() if each.kind == "int"]
    return [discrete(each, 1, draws)[:, 0] for each in fresh]


@pytest.mark.parametrize("seed", range(4))
def test_two_integers_are_what_a_plan_names(seed: int) -> None:
    shaped = shaped_of(lambda x, z, j, k: j.eq(7).where(k.eq(9).where(z, x), x))
    draws = [*range(1), *joint_draws(shaped, seed, 1)]
    first, second = (
        discrete(each, seed, draws)[:, 0] for each in shaped.fresh.values() if each.kind == "int"
    )
    assert any(((a == 7) & (b == 9)).any() for a, b in ((first, second), (second, first)))


@pytest.mark.parametrize("seed", range(4))
def test_two_conditions_are_met_at_two_places(seed: int) -> None:
    # A sum shows at the places of small integers what is decided at a place of large ones.
    shaped = shaped_of(
        lambda x, z, j: j.lt(3).where(j.ge(1998).where(z, x).sum(axes=(0,), keepdim=True), x),
    )
    draws = [*range(1), *joint_draws(shaped, seed, 1)]
    (drawn,) = integers(shaped, draws)
    assert any((each < 3).any() and (each >= 1998).any() for each in drawn)


def test_mixed_draws_hold_integers_of_which_something_computed_decides() -> None:
    shaped = shaped_of(lambda x, z, j: (j * 31).eq(24087).where(z, x))
    (drawn,) = integers(shaped, list(range(FIRST_MIXED, FIRST_MIXED + 16)))
    assert (drawn == 777).any()
    assert not (drawn == 777).all()


def test_some_elements_hold_a_rare_integer_where_others_do_not() -> None:
    shaped = shaped_of(lambda x, z, j: (j * 31).eq(24087).where(z, x))
    (own,) = (each for each in shaped.fresh.values() if each.kind == "int")
    held = np.array(own.cases) == 777
    assert held[0].all()
    assert (held[1] ^ held[2]).all()
    assert held[1].any()
    assert held[2].any()


def test_nothing_is_added_where_no_integers_decide() -> None:
    assert joint_draws(shaped_of(lambda x, z: x + z), 1, 16) == []
    assert joint_draws(shaped_of(lambda x, m: m.where(x, x * 2)), 1, 16) == []


def test_the_draws_named_have_all_outcomes_that_are_there() -> None:
    seen = np.random.default_rng(1).random((200, 40)) < 0.02
    found = telling(seen, 5, 200)
    assert (seen[[*range(5), *found]].any(axis=0) == seen.any(axis=0)).all()
    assert len(telling(seen, 5, MOST_DRAWS)) <= MOST_DRAWS


def test_each_pair_of_marked_values_is_shown() -> None:
    shaped = shaped_of(lambda x, z, j, k: j.eq(7).where(k.gt(3).where(z, x), x))
    fresh = [each for each in shaped.fresh.values() if each.kind == "int"]
    draws = [*range(12), *paired_draws(shaped, 5, 12, 1024)]
    first, second = (discrete(each, 5, draws)[:, 0].reshape(len(draws), -1) for each in fresh)
    seen = {(int(a), int(b)) for a, b in zip(first.ravel(), second.ravel(), strict=True)}
    marks = [mixed_numbers(each).tolist() for each in fresh]
    assert 7 in marks[0] and {3, 4} <= set(marks[1])
    assert seen >= set(product(*marks))


def test_one_single_integer_needs_no_pairs() -> None:
    shaped = shaped_of(lambda x, z, j, k: j.eq(7).where(z, x))
    scalar = {v: replace(f, shape=()) for v, f in shaped.fresh.items() if f.kind == "int"}
    assert paired_draws(replace(shaped, fresh=shaped.fresh | scalar), 1, 4, 64) == []


def test_outcomes_of_conditions_with_other_numbers_of_outcomes() -> None:
    one, two = np.array([[[0, 1]], [[2, 2]]]), np.array([[[4, 0]], [[4, 4]]])
    seen = outcomes(one, two, (3, 5))
    together = [{(0, 4), (1, 0)}, {(2, 4)}]
    elsewhere = [{(0, 0), (1, 4)}, {(2, 4)}]
    columns = sorted(set.union(*together)), sorted(set.union(*elsewhere))
    expected = [
        [*(c in t for c in columns[0]), *(c in e for c in columns[1])]
        for t, e in zip(together, elsewhere, strict=True)
    ]
    assert seen.tolist() == expected
