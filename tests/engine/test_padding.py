"""Padding of a part is free, or it is zero: then a sum over it may be taken, and it is compared."""

from __future__ import annotations

from zoo.builder import Builder, intervals, lineage, table

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Lineage, Plan
from pitcheck.report.report import Report

FREE, ZERO = -1, -2


def _held(padding: int) -> Lineage:
    """Five rows over two ranks of three."""
    return lineage("y", {0: intervals("dp", [(0, 3)], [(3, 5), (padding, 1)])})


def _reference() -> Plan:
    b = Builder("reference")
    b.op("square", b.input("x", (5, 4)), out="y")
    b.output(b.op("sum", "y", out="s"))
    b.output("y")
    return b.plan()


def _parallel(hint: int, filled: int = 0, output: int = FREE) -> Plan:
    b = Builder("parallel", {"dp": 2})
    even = b.op("pad", b.input("x", (5, 4), {}), axis=0, before=0, after=1, value=filled)
    own = b.op("chunk", even, axis=0, count=2, position=table("dp", 0, 1))
    b.op("square", own, out="y", hint=_held(hint))
    b.output(b.op("all_reduce", b.op("sum", "y"), out="s", group="dp"))
    b.output("y", spec=_held(output))
    return b.plan()


def _report(parallel: Plan) -> Report:
    return check(_reference(), parallel, Options(seed=1))


def test_a_sum_over_zeros_is_proven_between_hints() -> None:
    report = _report(_parallel(ZERO))
    assert (report.verdict, report.stages.total, report.stages.widened) == ("equivalent", 3, 0), (
        report.findings
    )
