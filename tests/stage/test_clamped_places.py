"""A vocabulary in shards shrinks where places are clamped to the shard, and masked afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from zoo.builder import Builder, table

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Number, Plan
from pitcheck.report.report import Report

ROWS, WIDE, TP = 4800, 5, 4
OWN = ROWS // TP


@dataclass(frozen=True)
class Clamped:
    """An embedding as XLA computes it of the rows of a device, with what can go wrong."""

    begins: tuple[int, ...] = tuple(OWN * i for i in range(TP))
    ends: tuple[int, ...] = tuple(OWN * (i + 1) for i in range(TP))
    below: str = "lt"
    above: str = "ge"
    either: str = "logical_or"
    before_end: Number = field(default_factory=lambda: Number(1))
    first: Number = field(default_factory=lambda: Number(0))
    order: tuple[str, str] = ("maximum", "minimum")
    masked: bool = True


def reference(bounds: int) -> Plan:
    b = Builder("reference")
    ids = b.input("ids", (4, 6), dtype="int64", bounds=(0, bounds))
    w = b.parameter("w", (ROWS, WIDE))
    b.output(b.op("embedding", ids, w, out="out"))
    return b.plan()


def parallel(clamped: Clamped, bounds: int) -> Plan:
    b = Builder("parallel", {"tp": TP})
    ids = b.input("ids", (4, 6), {}, dtype="int64", bounds=(0, bounds))
    w = b.parameter("w", (OWN, WIDE), {0: ("tp",)})
    begin = b.op("boundary", w, axis=0, offset=table("tp", *clamped.begins))
    end = b.op("boundary", w, axis=0, offset=table("tp", *clamped.ends))
    away = b.op(clamped.either, b.op(clamped.below, ids, begin), b.op(clamped.above, ids, end))
    last = b.op("sub", b.op("boundary", w, axis=0, offset=OWN), clamped.before_end)
    low, high = clamped.order
    row = b.op(high, b.op(low, b.op("sub", ids, begin), clamped.first), last)
    found = b.op("embedding", row, w)
    if clamped.masked:
        found = b.op("masked_fill", found, b.op("unsqueeze", away, axis=2), Number(0))
    b.output(b.op("all_reduce", found, out="out", group="tp"))
    return b.plan()


def report(clamped: Clamped, bounds: int = ROWS, **options: Any) -> Report:
    plans = reference(bounds), parallel(clamped, bounds)
    return check(*plans, Options(seed=5, explain=False, **options))


@pytest.mark.parametrize("shapes", ["reduced", "full"])
@pytest.mark.parametrize("bounds", [ROWS, ROWS - 1, ROWS - 10, ROWS - OWN, 1])
def test_a_vocabulary_is_reduced_with_clamped_places(bounds: int, shapes: Any) -> None:
    found = report(Clamped(), bounds, shapes=shapes)
    assert found.verdict == "equivalent", [f.title for f in found.findings]
    assert any(line.startswith(f"{ROWS} -> ") for line in found.reductions) == (shapes == "reduced")


def test_another_place_than_the_last_keeps_it_whole() -> None:
    """The place before the last is masked where it matters, but is no place at another size."""
    found = report(Clamped(ends=(OWN - 1, *Clamped().ends[1:])), ROWS)
    assert found.verdict == "mismatch"
    assert not any(line.startswith(f"{ROWS} -> ") for line in found.reductions)


def shifted(places: tuple[int, ...], rank: int, by: int) -> tuple[int, ...]:
    return tuple(place + by * (rank == i) for i, place in enumerate(places))


RIGHT = Clamped()
MISSES: dict[str, Clamped] = {
    "a shard that begins one late": Clamped(begins=shifted(RIGHT.begins, 2, 1)),
    "a shard that ends one early": Clamped(ends=shifted(RIGHT.ends, 1, -1)),
    "a shard that ends one late": Clamped(ends=shifted(RIGHT.ends, 1, 1)),
    "the first row is masked": Clamped(below="le"),
    "the last row of the next shard is not masked": Clamped(above="gt"),
    "masked where both hold": Clamped(either="logical_and"),
    "clamped to the last place but one": Clamped(before_end=Number(2)),
    "clamped to the end": Clamped(before_end=Number(0)),
    "clamped to the second place": Clamped(first=Number(1)),
    "extrema exchanged": Clamped(order=("minimum", "maximum")),
    "not masked": Clamped(masked=False),
    "two shards change places": Clamped(
        begins=(OWN, 0, 2 * OWN, 3 * OWN), ends=(2 * OWN, OWN, 3 * OWN, 4 * OWN)
    ),
    "the begin of the first shard everywhere": Clamped(begins=(0,) * TP),
}


@pytest.mark.parametrize("what", MISSES)
def test_a_wrong_clamp_or_mask(what: str) -> None:
    found = report(MISSES[what])
    # To look up a row that the rank does not have is an error in a program, too.
    beyond = found.verdict == "invalid" and "an index lies outside" in found.findings[0].title
    assert found.verdict == "mismatch" or beyond, [f.title for f in found.findings]
