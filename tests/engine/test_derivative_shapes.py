"""A derivative is given the outputs of its operator: what has another shape is none of them, and
the plan is invalid even where the numbers agree.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from zoo.builder import Builder

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Plan


def summed(keepdim: bool, mesh: dict[str, int] | None, rows: int) -> Plan:
    """A sum over columns that keeps its dimension, and its gradient by a derivative that says
    ``keepdim``.
    """
    b = Builder("dp" if mesh else "reference", mesh)
    placement = ({},) if mesh else ()
    x = b.input("x", (rows, 3), *placement)
    total = b.op("sum", x, axes=(1,), keepdim=True, out="total")
    gradient = b.op("mul", total, total, out="g")
    b.output(b.op("sum.backward", x, total, gradient, axes=(1,), keepdim=True, out="dx"))
    plan = b.plan()
    said = (
        replace(o, attributes={**o.attributes, "keepdim": keepdim})
        if o.kind == "sum.backward"
        else o
        for o in plan.operators
    )
    return replace(plan, operators=tuple(said))


@pytest.mark.parametrize("rows", [1, 4])
def test_a_derivative_of_the_operator_that_ran_is_proven(rows: int) -> None:
    assert (
        check(summed(True, None, rows), summed(True, {"dp": 2}, rows), Options(seed=1)).verdict
        == "equivalent"
    )


@pytest.mark.parametrize("rows", [1, 4])
def test_a_derivative_of_an_operator_of_another_shape_is_refused(rows: int) -> None:
    report = check(summed(True, None, rows), summed(False, {"dp": 2}, rows), Options(seed=1))
    assert report.verdict == "invalid"
    (found,) = report.findings
    assert found.operator is not None
    assert "sum.backward" in found.operator
    assert (
        f"gives a tensor of shape ({rows},) as output 0, but what is given as that output has "
        f"shape ({rows}, 1)" in found.title
    )
