"""A cause is looked for on inputs for which the decisions on the way fall both ways."""

from __future__ import annotations

import pytest
from support.explain_plans import Pair, said
from zoo.builder import Builder

from pitcheck.base.options import Options
from pitcheck.claims.problem import Problem
from pitcheck.engine.check import check
from pitcheck.plan.model import Number
from pitcheck.refute.both_ways import WAYS, run_both_ways
from pitcheck.refute.whole_run import run_whole

LONG = 30
"""The operators between a factor and the clipping: more than are looked at around a wrong value."""


def _clipped(b: Builder, gradient: str, limit: str) -> None:
    for _ in range(LONG):
        gradient = b.op("neg", gradient)
    norm = b.op("sqrt", b.op("sum", b.op("square", gradient)), out="norm")
    quotient = b.op(
        "div", Number(limit), b.op("add", norm, Number("1/1000000"), out="above"), out="quotient"
    )
    scale = b.op("clamp", quotient, max=1, out="scale")
    b.output(b.op("mul", gradient, scale, out="clipped"))


def clipping(divisor: int = 1, limit: str = "1/8") -> Pair:
    """A gradient clipped to a norm; the parallel plan divides it by a number before."""
    r = Builder("reference")
    _clipped(r, r.op("mul", r.input("x", (6, 5)), r.input("w", (5,)), out="gradient"), limit)
    b = Builder("parallel", {"dp": 2})
    product = b.op("mul", b.input("x", (6, 5)), b.input("w", (5,)), out="product")
    _clipped(b, b.op("div", product, Number(str(divisor)), out="gradient"), limit)
    return r.plan(), b.plan()


def bounded(added: str = "0") -> Pair:
    """A sum of squares, never below -1, to which the parallel plan adds a number."""
    r = Builder("reference")
    squares = r.op("sum", r.op("square", r.input("x", (6,))))
    r.output(r.op("clamp", squares, min=-1, out="y"))
    b = Builder("parallel", {"dp": 2})
    squares = b.op("sum", b.op("square", b.input("x", (6,))), out="squares")
    b.output(b.op("clamp", b.op("add", squares, Number(added), out="moved"), min=-1, out="y"))
    return r.plan(), b.plan()


@pytest.mark.parametrize("limit", ["1/8", "8"])
def test_a_clipped_gradient_is_wrong_by_its_factor_and_not_by_the_epsilon(limit: str) -> None:
    """Clipped, the factor cancels up to the epsilon, as with another epsilon."""
    report = check(*clipping(3, limit), Options(seed=1))
    (finding,) = report.findings
    assert finding.code == "PIT101", said(report)
    assert finding.operator == "1:div (div)"
    assert finding.tried is not None
    assert "one way" not in str(finding.repair)


def test_the_same_without_the_factor_is_right() -> None:
    assert check(*clipping(), Options(seed=1)).verdict == "equivalent"


def test_inputs_are_added_that_decide_the_other_way() -> None:
    problem = Problem.of(*clipping(2), seed=1)
    run = run_whole(problem)
    both = run_both_ways(run, [0], problem.options.max_memory)
    clamps = [d for d in both.evaluated.algebra.decisions if d.site.endswith("clamp#0")]
    assert both.ways
    assert all(d.true.any() and d.false.any() for d in clamps), clamps
    assert both.largest[0] > 1000 * run.largest[0]


def test_what_no_input_decides_the_other_way_is_said() -> None:
    report = check(*bounded("1/2"), Options(seed=1))
    (finding,) = report.findings
    assert f"none of {len(WAYS)} other inputs" in str(finding.repair), said(report)
