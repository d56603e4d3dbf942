"""Gradients that many coordinates add up are proven by a few of their terms, and only where all
terms are alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from zoo.builder import Builder, lineage

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Number, Plan, Use
from pitcheck.report.report import Report

DP, MB, ROWS = 8, 6, 2
BATCH = {0: ("dp", "mb")}
ALL = tuple(d for d in range(DP))
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
    term: Change = lambda _, name: name,
    microbatches: tuple[int, ...] | None = None,
    group: Any = "dp",
    **attributes: Any,
) -> Plan:
    b = Builder("parallel", {"dp": DP}, MB)
    _gradient(b, kind, ROWS, BATCH, own)
    chosen = {} if microbatches is None else {"microbatches": microbatches}
    b.op("accumulate", term(b, "term"), out="added", **chosen)
    if group is None:
        b.output("added", "dw", lineage("dw", partial=("dp",)))
        return b.plan()
    b.op("all_reduce", "added", out="dw", group=group, **attributes)
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


def _pinned(
    kind: str, *operands: Any, dp: tuple[int, ...] = (5,), mb: tuple[int, ...] = tuple(range(MB))
) -> Change:
    """An operator that one rank, or one micro-batch of it, runs in place of a copy."""

    def change(b: Builder, name: str) -> str:
        here = {"dp": dp, "mb": mb}
        others = [
            {"dp": tuple(d for d in ALL if d not in dp)},
            {"dp": dp, "mb": tuple(m for m in range(MB) if m not in mb)},
        ]
        b.op(kind, name, *operands, out=f"{name}.own", where=here)
        b.op(
            "mul",
            name,
            Number(1),
            out=f"{name}.own",
            where=[box for box in others if all(box.values())],
        )
        return f"{name}.own"

    return change


def _of_another_microbatch(b: Builder, name: str) -> str:
    """One rank takes the first micro-batch for the fifth, too."""
    nothing = b.op("sub", name, name)
    b.op("add", nothing, Use(name, 0), out=f"{name}.own", where={"dp": (5,), "mb": (4,)})
    b.op(
        "add",
        nothing,
        name,
        out=f"{name}.own",
        where=[{"dp": tuple(d for d in ALL if d != 5)}, {"dp": (5,), "mb": (0, 1, 2, 3, 5)}],
    )
    return f"{name}.own"


WRONG: dict[str, Callable[[], Plan]] = {
    "the last micro-batch is missing": lambda: _parallel(microbatches=tuple(range(MB - 1))),
    "one micro-batch twice": lambda: _parallel(microbatches=(0, 1, 2, 3, 4, 4)),
    "one rank doubles its gradient": lambda: _parallel(own=_pinned("mul", Number(2))),
    "one micro-batch of one rank is doubled": lambda: _parallel(
        own=_pinned("mul", Number(2), mb=(3,))
    ),
    "one rank's term is scaled": lambda: _parallel(term=_pinned("mul", Number("1/2"))),
    "one rank rolls its rows": lambda: _parallel(own=_pinned_roll),
    "one rank reads another micro-batch": lambda: _parallel(own=_of_another_microbatch),
    "an average": lambda: _parallel(reduction="avg"),
    "two halves": lambda: _parallel(group=(ALL[:4], ALL[4:])),
    "one rank is left out": lambda: _parallel(group=(ALL[:7], ALL[7:])),
    "all are scaled by the number of ranks": lambda: _parallel(
        own=lambda b, dy: b.op("mul", dy, Number(f"1/{DP}"))
    ),
    "all are scaled by the terms that are kept": lambda: _parallel(
        own=lambda b, dy: b.op("mul", dy, Number("1/4"))
    ),
}


def _pinned_roll(b: Builder, name: str) -> str:
    b.op("roll", name, out=f"{name}.own", where={"dp": (5,)}, axis=0, shift=1)
    b.op("mul", name, Number(1), out=f"{name}.own", where={"dp": tuple(d for d in ALL if d != 5)})
    return f"{name}.own"


@pytest.mark.parametrize("what", WRONG)
def test_a_sum_that_is_not_the_reference_s(what: str) -> None:
    report = _both(_reference(), WRONG[what]())
    assert report.verdict == "mismatch", [f.title for f in report.findings]


def test_right_terms_that_are_not_alike_are_all_evaluated() -> None:
    """One rank computes its part in another way, which is as right."""
    report = _both(_reference(), _parallel(own=_pinned("div", Number(1))))
    assert report.verdict == "equivalent"
    assert not any("terms of a sum" in line for line in report.reductions)


@pytest.mark.parametrize("right", [True, False])
def test_what_is_done_with_a_sum_is_no_sum(right: bool) -> None:
    """The square of the sum against the sum of squares: no term of either may be left out."""
    r = Builder("reference")
    _gradient(r, "linear", DP * MB * ROWS, None)
    r.output(r.op("square", "term", out="y"))
    b = Builder("parallel", {"dp": DP}, MB)
    _gradient(b, "linear", ROWS, BATCH)
    b.op("accumulate", "term" if right else b.op("square", "term"), out="added")
    whole = b.op("all_reduce", "added", group="dp")
    b.output(b.op("square", whole, out="y") if right else b.op("identity", whole, out="y"))
    report = _both(r.plan(), b.plan())
    assert report.verdict == ("equivalent" if right else "mismatch")


# --- terms that ranks hold, to be scattered, say


@pytest.mark.parametrize("kind", ["linear", "embedding", "rms"])
def test_terms_that_ranks_hold_are_a_sum_with_them(kind: str) -> None:
    report = _both(_reference(kind), _parallel(kind, group=None))
    assert report.verdict == "equivalent", [f.title for f in report.findings]
    assert any(f"{DP * MB} terms of a sum" in line for line in report.reductions)


WRONG_TERMS: dict[str, Callable[[], Plan]] = {
    "the last micro-batch is missing": lambda: _parallel(
        microbatches=tuple(range(MB - 1)), group=None
    ),
    "one rank doubles its gradient": lambda: _parallel(own=_pinned("mul", Number(2)), group=None),
    "one micro-batch of one rank is doubled": lambda: _parallel(
        own=_pinned("mul", Number(2), mb=(3,)), group=None
    ),
    "one rank rolls its rows": lambda: _parallel(own=_pinned_roll, group=None),
    "one rank reads another micro-batch": lambda: _parallel(own=_of_another_microbatch, group=None),
    "all are scaled by the number of ranks": lambda: _parallel(
        own=lambda b, dy: b.op("mul", dy, Number(f"1/{DP}")), group=None
    ),
    "all are scaled by the terms that are kept": lambda: _parallel(
        own=lambda b, dy: b.op("mul", dy, Number("1/4")), group=None
    ),
}


@pytest.mark.parametrize("what", WRONG_TERMS)
def test_terms_that_are_not_the_reference_s(what: str) -> None:
    report = _both(_reference(), WRONG_TERMS[what]())
    assert report.verdict == "mismatch", [f.title for f in report.findings]


@pytest.mark.parametrize("right", [True, False])
def test_terms_of_different_sums_are_told_apart(right: bool) -> None:
    """Two shards, each a sum over ``dp`` of its own; on one rank the terms of both may be swapped,
    so that all terms together are the same.
    """
    r = Builder("reference")
    r.output(r.op("sum", r.input("x", (DP, 6)), out="y", axes=(0,)))
    b = Builder("parallel", {"dp": DP, "tp": 2})
    x = b.input("x", (1, 6), {0: "dp"})
    halves = b.op("split", b.op("sum", x, axes=(0,)), sizes=(3, 3), axis=0, out=["low", "high"])
    for place, half in enumerate(halves):
        b.op(
            "identity",
            half,
            out="y",
            where=[
                {"tp": (place,), "dp": tuple(d for d in ALL if d != 5 or right)},
                *([] if right else [{"tp": (1 - place,), "dp": (5,)}]),
            ],
        )
    b.output("y", "y", lineage("y", {0: "tp"}, partial=("dp",)))
    assert _both(r.plan(), b.plan()).verdict == ("equivalent" if right else "mismatch")
