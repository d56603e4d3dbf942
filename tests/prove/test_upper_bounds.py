"""Numbers less what bounds them from above are never plus infinity; numbers near it may be."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from zoo.attention import INFINITE
from zoo.builder import Builder

from pitcheck.claims.problem import Problem
from pitcheck.plan.model import Number
from pitcheck.prove.domains.reference_signs import Signs
from pitcheck.stage.fingerprint import Fingerprints

SIDE = 6
Formula = Callable[[Builder, str], str]
"""A difference, of a builder and of scores that a mask makes minus infinity in places."""


def masked(b: Builder, x: str) -> str:
    return str(b.op("where", b.op("causal_mask", x), x, INFINITE))


def less_log_sum(b: Builder, x: str) -> str:
    scores = masked(b, x)
    return str(b.op("sub", scores, b.op("logsumexp", scores, axis=1, keepdim=True)))


def computed_again(b: Builder, x: str) -> str:
    total = b.op("unsqueeze", b.op("logsumexp", masked(b, x), axis=1), axis=1)
    return str(b.op("sub", masked(b, x), total))


def less_maximum(b: Builder, x: str) -> str:
    scores = masked(b, x)
    return str(b.op("sub", scores, b.op("amax", scores, axes=(-1,), keepdim=True)))


def less_maximum_of_all(b: Builder, x: str) -> str:
    scores = masked(b, x)
    largest = b.op("reshape", b.op("amax", scores), sizes=(1, 1))
    return str(b.op("sub", scores, largest))


def less_chosen_maximum(b: Builder, x: str) -> str:
    scores = masked(b, x)
    largest, _ = b.op("max", scores, out=["largest", "places"], axis=1, keepdim=True)
    return str(b.op("sub", scores, largest))


def of_other_scores(b: Builder, x: str) -> str:
    total = b.op("logsumexp", masked(b, b.op("neg", x)), axis=1, keepdim=True)
    return str(b.op("sub", masked(b, x), total))


def along_the_other_axis(b: Builder, x: str) -> str:
    scores = masked(b, x)
    total = b.op("unsqueeze", b.op("logsumexp", scores, axis=1), axis=0)
    return str(b.op("sub", scores, total))


def less_minimum(b: Builder, x: str) -> str:
    scores = masked(b, x)
    return str(b.op("sub", scores, b.op("amin", scores, axes=(1,), keepdim=True)))


def less_half_of_it(b: Builder, x: str) -> str:
    scores = masked(b, x)
    return str(b.op("sub", scores, b.op("logsumexp", scores, axis=1, keepdim=True), alpha="1/2"))


def the_other_way_round(b: Builder, x: str) -> str:
    scores = masked(b, x)
    return str(b.op("sub", b.op("logsumexp", scores, axis=1, keepdim=True), scores))


def with_another_mask(b: Builder, x: str) -> str:
    turned = b.op("transpose", b.op("causal_mask", x), dim0=0, dim1=1)
    total = b.op("logsumexp", b.op("where", turned, x, INFINITE), axis=1, keepdim=True)
    return str(b.op("sub", masked(b, x), total))


def with_another_number(b: Builder, x: str) -> str:
    finite = b.op("where", b.op("causal_mask", x), x, Number(-1000000000))
    hidden = b.op("sub", finite, b.op("logsumexp", masked(b, x), axis=1, keepdim=True))
    return str(hidden)


def may_be_infinite(*formulas: Formula) -> list[bool]:
    """Return for each difference if its exponential may be infinite, all in one plan."""
    b = Builder("scores")
    for number, formula in enumerate(formulas):
        difference = formula(b, b.input(f"x{number}", (SIDE, SIDE)))
        b.output(b.op("exp", difference, out=f"p{number}"))
    plan = b.plan()
    problem = Problem.of(plan, plan)
    graph = problem.reference
    signs = Signs(graph, Fingerprints(graph, problem.parallel, {}))
    return [signs.may_be_infinite(graph.number[f"p{n}"]) for n in range(len(formulas))]


@pytest.mark.parametrize(
    "formula",
    [less_log_sum, computed_again, less_maximum, less_maximum_of_all, less_chosen_maximum],
)
def test_an_exponential_of_numbers_less_their_bound_is_finite(formula: Formula) -> None:
    assert may_be_infinite(formula) == [False]


@pytest.mark.parametrize(
    "formula",
    [
        of_other_scores,
        along_the_other_axis,
        less_minimum,
        less_half_of_it,
        the_other_way_round,
        with_another_mask,
        with_another_number,
    ],
)
def test_of_numbers_less_what_is_no_bound_nothing_is_said(formula: Formula) -> None:
    assert may_be_infinite(formula) == [True]


def test_a_clamp_with_an_endless_bound_makes_no_number_infinite() -> None:
    """But one whose least number is infinity does, and a masked score stays minus infinity."""

    def clamped(low: float | str, high: float | str) -> Formula:
        return lambda b, x: str(b.op("clamp", x, min=low, max=high))

    def negated(b: Builder, x: str) -> str:
        return str(b.op("neg", b.op("clamp", masked(b, x), min="-inf", max=1)))

    formulas = clamped(0, "inf"), clamped("-inf", 0), clamped("inf", "inf"), negated
    assert may_be_infinite(*formulas) == [False, False, True, True]


def test_of_equal_operators_on_other_numbers_each_has_its_answer() -> None:
    assert may_be_infinite(computed_again, less_negated, computed_again) == [False, True, False]


def less_negated(b: Builder, x: str) -> str:
    """The operators of ``computed_again``, with the bound of other numbers."""
    total = b.op("unsqueeze", b.op("logsumexp", masked(b, b.op("neg", x)), axis=1), axis=1)
    return str(b.op("sub", masked(b, x), total))
