"""A vocabulary shrinks together with the integers that are places along it, and only where nothing
else is done with them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.by_day import some_at_once
from zoo.builder import Builder, table

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Number, Plan
from pitcheck.report.report import Report

ROWS, WIDE, TP = 4800, 5, 4
OWN = ROWS // TP
Mask = Callable[[Builder, str, str, str], str]


def _inside(low: str = "ge", high: str = "lt") -> Mask:
    return lambda b, ids, first, end: str(
        b.op("logical_and", b.op(low, ids, first), b.op(high, ids, end))
    )


@dataclass(frozen=True)
class Shards:
    """A vocabulary-parallel embedding and score of a label, as a rank computes them, with what can
    go wrong.
    """

    begins: tuple[int, ...] = tuple(OWN * i for i in range(TP))
    ends: tuple[int, ...] = tuple(OWN * (i + 1) for i in range(TP))
    inside: Mask = field(default_factory=_inside)
    moved_by: str = "first"
    fill: Number = field(default_factory=lambda: Number(0))
    masked: bool = True
    summed: bool = True


def _reference(bounds: int = ROWS, more: str = "") -> Plan:
    b = Builder("reference")
    ids = b.input("ids", (4, 6), dtype="int64", bounds=(0, bounds))
    w = b.parameter("w", (ROWS, WIDE))
    found = b.op("embedding", ids, w, out="found")
    _finish(b, ids, found, more)
    scores = b.op("linear", found, w, out="scores")
    b.output(
        b.op(
            "squeeze",
            b.op("gather", scores, b.op("unsqueeze", ids, axis=2), axis=2),
            out="picked",
            axis=2,
        )
    )
    return b.plan()


def _finish(b: Builder, ids: str, found: str, more: str) -> None:
    """``more``: what else is done with the integers."""
    if more == "number":
        found = b.op("add", found, b.op("cast", b.op("unsqueeze", ids, axis=2), dtype="float32"))
    elif more == "threshold":
        found = b.op(
            "where", b.op("lt", b.op("unsqueeze", ids, axis=2), Number(1300)), found, Number(0)
        )
    b.output(b.op("mul", found, Number(1), out="out"))


def _parallel(shards: Shards, bounds: int = ROWS, more: str = "") -> Plan:
    b = Builder("parallel", {"tp": TP})
    ids = b.input("ids", (4, 6), {}, dtype="int64", bounds=(0, bounds))
    w = b.parameter("w", (OWN, WIDE), {0: ("tp",)})
    row, away = _own(b, ids, w, shards)
    found = b.op("embedding", row, w)
    _finish(b, ids, _summed(b, found, b.op("unsqueeze", away, axis=2), shards, "found"), more)
    scores = b.op("linear", "found", w, out="scores")
    picked = b.op("squeeze", b.op("gather", scores, b.op("unsqueeze", row, axis=2), axis=2), axis=2)
    b.output(_summed(b, picked, away, shards, "picked"))
    return b.plan()


def _own(b: Builder, ids: str, w: str, shards: Shards) -> tuple[str, str]:
    first = b.op("boundary", w, axis=0, offset=table("tp", *shards.begins))
    end = b.op("boundary", w, axis=0, offset=table("tp", *shards.ends))
    away = b.op("logical_not", shards.inside(b, ids, first, end))
    moved = b.op("sub", ids, {"first": first, "end": end}[shards.moved_by])
    return b.op("masked_fill", moved, away, shards.fill), away


def _summed(b: Builder, part: str, away: str, shards: Shards, out: str) -> str:
    own = b.op("masked_fill", part, away, Number(0)) if shards.masked else part
    return str(
        b.op("all_reduce", own, out=out, group="tp")
        if shards.summed
        else b.op("mul", own, Number(1), out=out)
    )


def _report(parallel: Shards, bounds: int = ROWS, more: str = "", **options: Any) -> Report:
    plans = _reference(bounds, more), _parallel(parallel, bounds, more)
    return check(*plans, Options(seed=5, explain=False, **options))


@pytest.mark.parametrize("shapes", ["reduced", "full"])
@pytest.mark.parametrize("bounds", [ROWS, ROWS - 1, ROWS - 10, ROWS - OWN, 1])
def test_a_vocabulary_is_reduced_with_its_integers(bounds: int, shapes: Any) -> None:
    report = _report(Shards(), bounds, shapes=shapes)
    assert report.verdict == "equivalent", [f.title for f in report.findings]
    assert any(line.startswith(f"{ROWS} -> ") for line in report.reductions) == (
        shapes == "reduced"
    )


@pytest.mark.parametrize("more", ["number", "threshold"])
def test_integers_that_are_used_otherwise_keep_it_whole(more: str) -> None:
    report = _report(Shards(), more=more)
    assert report.verdict == "equivalent", [f.title for f in report.findings]
    assert any(line.startswith(f"{ROWS} whole") for line in report.reductions), report.reductions


def _shifted(places: tuple[int, ...], rank: int, by: int) -> tuple[int, ...]:
    return tuple(place + by * (rank == i) for i, place in enumerate(places))


RIGHT = Shards()
MISSES: dict[str, Shards] = {
    "a shard that begins one late": Shards(begins=_shifted(RIGHT.begins, 2, 1)),
    "a shard that ends one early": Shards(ends=_shifted(RIGHT.ends, 1, -1)),
    "the first row is left out": Shards(inside=_inside(low="gt")),
    "the next shard's first row is taken for one's own": Shards(inside=_inside(high="le")),
    "moved by the end": Shards(moved_by="end"),
    "other ranks' rows are not masked": Shards(masked=False),
    "not summed": Shards(summed=False),
    "two shards change places": Shards(
        begins=(OWN, 0, 2 * OWN, 3 * OWN), ends=(2 * OWN, OWN, 3 * OWN, 4 * OWN)
    ),
    "a shard is left out": Shards(ends=_shifted(RIGHT.ends, 3, -OWN)),
}


@pytest.mark.parametrize("what", some_at_once(MISSES, 2))
def test_a_wrong_shard_of_the_vocabulary(what: str) -> None:
    report = _report(MISSES[what])
    # To look up a row that the rank does not have is an error in a program, too.
    beyond = report.verdict == "invalid" and "an index lies outside" in report.findings[0].title
    assert report.verdict == "mismatch" or beyond, [
        report.verdict,
        *(f.title for f in report.findings),
    ]


def test_rows_beyond_the_integers_do_not_matter() -> None:
    """A padded row is never looked up: leaving out its shard's last rows changes nothing, as long
    as no integer reaches them.
    """
    assert (
        _report(Shards(ends=_shifted(RIGHT.ends, 3, -10)), bounds=ROWS - 10).verdict == "equivalent"
    )
    assert _report(Shards(ends=_shifted(RIGHT.ends, 3, -10)), bounds=ROWS - 9).verdict == "mismatch"
