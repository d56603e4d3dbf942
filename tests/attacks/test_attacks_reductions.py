"""Wrong plans beside right ones for what makes stages smaller: coordinates that look alike, sums of
which some terms are left out, buffers of which a part is read, and steps that may give anything.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from attacks.pairs import alone, found, given, spread, tensor

from pitcheck.plan.model import Axis, Lineage, Operator, Output, Plan, Shard, Table, Tensor

RANKS = 8
MESH = (Axis("r", RANKS),)


def pieces(reference: str, places: Sequence[int]) -> Lineage:
    """Lineage of one row for each rank, the row at its place."""
    rows = tuple(((place, place + 1),) for place in places)
    return Lineage(reference, (Shard(0, intervals=Table(("r",), rows)),))


def piece(name: str, reference: str, places: Sequence[int]) -> Tensor:
    return given(name, 1, lineage=pieces(reference, places))


def with_changed(rank: int, place: int) -> list[int]:
    """All places, but another one for one rank."""
    return [place if number == rank else number for number in range(RANKS)]


# --- coordinates whose cones look alike


def nested(outer: str, inner: str) -> list[Operator]:
    """The steps y = outer(inner(a, u), inner(v, d))."""
    return [
        Operator("g", inner, ("a", "u"), ("g",)),
        Operator("h", inner, ("v", "d"), ("h",)),
        Operator("y", outer, ("g", "h"), ("y",)),
    ]


def nested_on_one(outer: str, inner: str) -> Plan:
    steps = [*(Operator(name, "identity", ("x",), (name,)) for name in "uv"), *nested(outer, inner)]
    tensors = [given("x", RANKS), given("a", RANKS), given("d", RANKS)]
    return alone([*tensors, *(tensor(name, RANKS) for name in "uvghy")], steps)


def nested_on_many(
    outer: str, inner: str, first: Sequence[int], second: Sequence[int], reference: str = "x"
) -> Plan:
    own = range(RANKS)
    tensors = [
        piece("u", "x", first),
        piece("v", "x", second),
        piece("a", "a", own),
        piece("d", "d", own),
        *(tensor(name, 1) for name in "ghy"),
    ]
    return spread(
        tensors, nested(outer, inner), Output("y", reference, pieces("y", own)), mesh=MESH
    )
