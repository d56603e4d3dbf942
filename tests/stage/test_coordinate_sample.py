"""Stages of plans whose ranks all do the same are proven at a few coordinates, and only where these
show that they stand for all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from support.by_day import some_at_once
from zoo.builder import Builder, lineage, table

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Number, Plan, Use
from pitcheck.prove.prover import Obligation, Prover
from pitcheck.report.report import Report
from pitcheck.stage.coordinate_sample import KEPT, KEPT_ALONE

DP, MB, ROWS = 16, 12, 2
TOTAL = DP * MB * ROWS
BATCH = {0: ("dp", "mb")}
Change = Callable[[Builder, str], str]


def _layer(
    b: Builder, rows: int, spec: Any, hint: Any, own: Change = lambda _, x: x
) -> tuple[str, str]:
    """y = x w, twice the hidden h in between, and the gradient of w from dy: (y, that gradient)."""
    many = {"microbatched": True} if spec else {}
    x, w = b.input("x", (rows, 4), spec, **many), b.parameter("w", (5, 4), {} if spec else None)
    h = b.op("linear", own(b, x), w, out="h", hint=hint)
    y = b.op("mul", b.op("exp", h), Number(2), out="y")
    dy = b.input("dy", (rows, 5), spec, **many)
    b.back("linear", [x, w], h, own(b, dy), ["", "term"])
    return y, "term"


def _reference() -> Plan:
    b = Builder("reference")
    y, term = _layer(b, TOTAL, None, None)
    b.output(y)
    b.op("identity", term, out="dw")
    b.gradient("dw", "w")
    return b.plan()


def _parallel(
    own: Change = lambda _, x: x,
    term: Change = lambda _, t: t,
    total: Change = lambda _, t: t,
    **attributes: Any,
) -> Plan:
    b = Builder("parallel", {"dp": DP}, MB)
    y, gradient = _layer(b, ROWS, BATCH, BATCH, own)
    b.output(y, spec=lineage("y", BATCH))
    b.op("accumulate", term(b, gradient), out="added")
    b.op("identity", total(b, str(b.op("all_reduce", "added", group="dp", **attributes))), out="dw")
    b.gradient("dw", "w")
    return b.plan()


def _report(parallel: Plan, **options: Any) -> tuple[Report, list[bool]]:
    """The report, and for every stage that was tried at a few coordinates whether that
    was enough.
    """
    found: list[bool] = []

    def spied(prover: Prover, *arguments: Any) -> Obligation | None:
        result = prove_sample(prover, *arguments)
        found.append(result is not None)
        return result

    prove_sample = Prover._prove_sample
    with patch.object(Prover, "_prove_sample", spied):
        return check(_reference(), parallel, Options(seed=2, explain=False, **options)), found


def test_batches_and_sums_are_proven_at_a_few_coordinates() -> None:
    report, found = _report(_parallel())
    assert report.verdict == "equivalent", [f.title for f in report.findings]
    assert found
    assert all(found)
    assert any(f"{DP * MB} coordinates" in line for line in report.reductions), report.reductions
    assert any(f"{DP * MB} terms of a sum" in line for line in report.reductions), report.reductions


@pytest.mark.parametrize("shapes", ["reduced", "full"])
def test_all_coordinates_are_not_sampled_if_they_are_asked_for(shapes: str) -> None:
    report, found = _report(_parallel(), coordinates="full", shapes=shapes)
    assert (report.verdict, found) == ("equivalent", [])


def test_full_shapes_are_sampled_like_reduced_ones() -> None:
    report, found = _report(_parallel(), shapes="full")
    assert (report.verdict, all(found), bool(found)) == ("equivalent", True, True)
    assert any(f"{DP * MB} coordinates" in line for line in report.reductions), report.reductions


def _counted(number: int) -> Change:
    """Times a constant that all ranks add up, divided by ``number``: right for the number of ranks
    alone.
    """

    def change(b: Builder, x: str) -> str:
        ones = b.op("all_reduce", b.op("mul", b.constant(f"one.{x}", 1), Number(1)), group="dp")
        return str(b.op("mul", x, b.op("div", ones, Number(number))))

    return change


def _added_again(number: int) -> Change:
    """A complete gradient that all ranks add up once more, divided by ``number``."""
    return lambda b, t: str(b.op("div", b.op("all_reduce", t, group="dp"), Number(number)))


@pytest.mark.parametrize("place", ["own", "term", "total"])
def test_what_depends_on_the_number_of_ranks_is_seen_at_all_of_them(place: str) -> None:
    change = _added_again if place == "total" else _counted
    report, found = _report(_parallel(**{place: change(DP)}))
    assert report.verdict == "equivalent", [f.title for f in report.findings]
    assert not all(found)


def _by_rank(factor: Callable[[int], int]) -> Change:
    def change(b: Builder, x: str) -> str:
        for value in sorted({factor(d) for d in range(DP)}):
            b.op(
                "mul",
                x,
                Number(value),
                out=f"{x}.own",
                where={"dp": tuple(d for d in range(DP) if factor(d) == value)},
            )
        return f"{x}.own"

    return change


def _rolled(b: Builder, x: str) -> str:
    return str(b.op("roll", x, axis=0, shift=table("dp", *(1 if d == 9 else 0 for d in range(DP)))))


def _without(microbatch: int) -> Plan:
    b = Builder("parallel", {"dp": DP}, MB)
    y, gradient = _layer(b, ROWS, BATCH, BATCH)
    b.output(y, spec=lineage("y", BATCH))
    b.op(
        "accumulate",
        gradient,
        out="added",
        microbatches=tuple(m for m in range(MB) if m != microbatch),
    )
    b.op("all_reduce", "added", out="dw", group="dp")
    b.gradient("dw", "w")
    return b.plan()


def _halves() -> Plan:
    b = Builder("parallel", {"dp": DP}, MB)
    y, gradient = _layer(b, ROWS, BATCH, BATCH)
    b.output(y, spec=lineage("y", BATCH))
    b.op("accumulate", gradient, out="added")
    b.op("all_reduce", "added", out="dw", group=(tuple(range(8)), tuple(range(8, DP))))
    b.gradient("dw", "w")
    return b.plan()


SEEN = (KEPT, KEPT_ALONE, KEPT * KEPT)
WRONG: dict[str, Callable[[], Plan]] = {
    **{
        f"a factor that is right for {n} ranks": lambda n=n: _parallel(own=_counted(n))
        for n in SEEN
    },  # type: ignore[misc]
    **{
        f"terms with a factor that is right for {n} ranks": lambda n=n: _parallel(term=_counted(n))
        for n in SEEN
    },  # type: ignore[misc]
    **{
        f"added again, right for {n} ranks": lambda n=n: _parallel(total=_added_again(n))
        for n in SEEN
    },  # type: ignore[misc]
    **{
        f"an average times {n}": lambda n=n: _parallel(
            total=lambda b, t: b.op("mul", t, Number(n)), reduction="avg"
        )
        for n in SEEN
    },  # type: ignore[misc]
    "every term scaled by the coordinates": lambda: _parallel(
        term=lambda b, t: b.op("mul", t, Number(f"1/{DP * MB}"))
    ),
    "one rank that is not seen scales its rows": lambda: _parallel(
        own=_by_rank(lambda d: 2 if d == 7 else 1)
    ),
    "one rank that is not seen moves its rows": lambda: _parallel(own=_rolled),
    "the rows of the first micro-batch": lambda: _parallel(
        own=lambda b, x: b.op("add", b.op("mul", x, Number(0)), Use(x, 0))
    ),
    "one micro-batch is missing": lambda: _without(8),
    "the ranks of two halves": _halves,
}


@pytest.mark.parametrize("what", some_at_once(WRONG, 2))
def test_a_wrong_plan_is_not_taken_for_right_at_a_few_coordinates(what: str) -> None:
    report, _ = _report(WRONG[what]())
    assert report.verdict == "mismatch", (report.verdict, [f.title for f in report.findings])


FEW = 4
"""Data-parallel ranks, too few to be cut out in part, that hold terms of a gradient; micro-batches
are cut out.
"""


def _terms(number: int | None = None, **attributes: Any) -> Plan:
    """Every rank has its term of the gradient, from all its micro-batches; with ``number`` times
    how many these are, divided by that.
    """
    b = Builder("parallel", {"dp": FEW}, MB)
    y, term = _layer(b, TOTAL // FEW // MB, BATCH, BATCH)
    b.output(y, spec=lineage("y", BATCH))
    added = b.op("accumulate", term, out="added", **attributes)
    if number is not None:
        counted = b.op("accumulate", b.op("add", b.op("mul", term, Number(0)), Number(1)))
        added = b.op("mul", added, b.op("div", counted, Number(number)))
    b.op("identity", added, out="dw")
    b.output("dw", spec=lineage("dw", partial=("dp",)))
    return b.plan()


def test_terms_that_ranks_hold_are_proven_at_a_few_micro_batches() -> None:
    report, found = _report(_terms())
    assert report.verdict == "equivalent", [f.title for f in report.findings]
    assert found
    assert all(found)
    assert any(f"{FEW * MB} terms of a sum" in line for line in report.reductions), (
        report.reductions
    )


@pytest.mark.parametrize("number", [*SEEN, 1])
def test_terms_that_are_right_for_the_micro_batches_seen_alone(number: int) -> None:
    assert _report(_terms(number))[0].verdict == "mismatch"


def test_terms_that_are_right_for_all_micro_batches_are_seen_at_all() -> None:
    report, found = _report(_terms(MB))
    assert report.verdict == "equivalent", [f.title for f in report.findings]
    assert not all(found)


def test_terms_without_the_last_micro_batch() -> None:
    assert _report(_terms(microbatches=tuple(range(MB - 1))))[0].verdict == "mismatch"


def _gathered(factor: int) -> Plan:
    b = Builder("parallel", {"dp": DP})
    x = b.input("x", (ROWS, 4), {0: "dp"})
    whole = b.op("all_gather", b.op("exp", b.op("mul", x, Number(factor))), group="dp", axis=0)
    b.output(b.op("identity", whole, out="y"))
    return b.plan()


@pytest.mark.parametrize(("factor", "verdict"), [(2, "equivalent"), (3, "mismatch")])
def test_what_is_joined_from_many_ranks_has_its_own_sizes(factor: int, verdict: str) -> None:
    """At a few coordinates the result would have fewer rows."""
    b = Builder("reference")
    b.output(b.op("exp", b.op("mul", b.input("x", (DP * ROWS, 4), None), Number(2)), out="y"))
    assert check(b.plan(), _gathered(factor), Options(seed=1)).verdict == verdict
