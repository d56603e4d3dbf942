"""Gradients that many coordinates add up are proven by a few of their terms.

All terms must be computed in one way. Wrong sums are plan files (tests/attacks/data/sums).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from zoo.builder import Builder, lineage

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Number, Plan
from pitcheck.report.report import Report

DP, MB, ROWS = 8, 6, 2
BATCH = {0: ("dp", "mb")}
OPERATOR = {"linear": "linear", "rms": "rms_norm"}
Change = Callable[[Builder, str], str]


def _reference(kind: str = "linear") -> Plan:
    b = Builder("reference")
    _gradient(b, kind, DP * MB * ROWS, None)
    b.op("identity", "term", out="dw")
    b.gradient("dw", "w")
    return b.plan()


def _gradient(b: Builder, kind: str, rows: int, spec: Any, own: Change = lambda _, dy: dy) -> None:
    """A gradient of w, ``term``, from ``rows`` rows."""
    many = {"microbatched": True} if spec else {}
    if kind == "embedding":
        x = b.input("x", (rows, 3), spec, dtype="int64", bounds=(0, 7), **many)
        w, dy = (
            b.parameter("w", (7, 5), {} if spec else None),
            b.input("dy", (rows, 3, 5), spec, **many),
        )
        b.back("embedding", [x, w], b.op("embedding", x, w), own(b, dy), ["", "term"])
        return
    x = b.input("x", (rows, 4), spec, **many)
    w = b.parameter("w", (5, 4) if kind == "linear" else (4,), {} if spec else None)
    dy = b.input("dy", (rows, 5 if kind == "linear" else 4), spec, **many)
    more = {} if kind == "linear" else {"eps": "1/100"}
    b.back(
        OPERATOR[kind], [x, w], b.op(OPERATOR[kind], x, w, **more), own(b, dy), ["", "term"], **more
    )


def _parallel(
    kind: str = "linear",
    own: Change = lambda _, dy: dy,
    group: str | None = "dp",
) -> Plan:
    b = Builder("parallel", {"dp": DP}, MB)
    _gradient(b, kind, ROWS, BATCH, own)
    b.op("accumulate", "term", out="added")
    if group is None:
        b.output("added", "dw", lineage("dw", partial=("dp",)))
        return b.plan()
    b.op("all_reduce", "added", out="dw", group=group)
    b.gradient("dw", "w")
    return b.plan()


def _both(reference: Plan, parallel: Plan) -> Report:
    """The report at reduced coordinates, which at full ones is the same verdict."""
    found = [
        check(reference, parallel, Options(seed=3, coordinates=coordinates))
        for coordinates in ("reduced", "full")
    ]
    assert found[0].verdict == found[1].verdict, [
        (r.verdict, [f.title for f in r.findings]) for r in found
    ]
    return found[0]


@pytest.mark.parametrize("kind", ["linear", "embedding", "rms"])
def test_a_sum_is_proven_by_a_few_of_its_terms(kind: str) -> None:
    report = _both(_reference(kind), _parallel(kind))
    assert report.verdict == "equivalent", [f.title for f in report.findings]
    assert any(f"{DP * MB} terms of a sum" in line for line in report.reductions)


def _divided_on_one_rank(b: Builder, name: str) -> str:
    """Divide by 1 on rank 5, and multiply with 1 on all others."""
    here, others = {"dp": (5,)}, {"dp": tuple(d for d in range(DP) if d != 5)}
    b.op("div", name, Number(1), out=f"{name}.own", where=here)
    b.op("mul", name, Number(1), out=f"{name}.own", where=others)
    return f"{name}.own"


def test_right_terms_that_are_not_alike_are_all_evaluated() -> None:
    """One rank computes its part in another way, which is as right."""
    report = _both(_reference(), _parallel(own=_divided_on_one_rank))
    assert report.verdict == "equivalent"
    assert not any("terms of a sum" in line for line in report.reductions)


# --- terms that ranks hold, to be scattered, say


@pytest.mark.parametrize("kind", ["linear", "embedding", "rms"])
def test_terms_that_ranks_hold_are_a_sum_with_them(kind: str) -> None:
    report = _both(_reference(kind), _parallel(kind, group=None))
    assert report.verdict == "equivalent", [f.title for f in report.findings]
    assert any(f"{DP * MB} terms of a sum" in line for line in report.reductions)
