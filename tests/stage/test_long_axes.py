"""Collectives whose results have a part per member, over axes longer than those that are always
seen whole.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace
from support.verdicts import said
from zoo.builder import Builder, lineage

from pitcheck.algebra.dimensions.axes import AxisAlgebra
from pitcheck.algebra.dimensions.axis_classes import AxisSystem
from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.execution.judge import judge_often
from pitcheck.ops.registry import evaluate, kinds_with, operator_kind, operator_names
from pitcheck.ops.traits import Trait
from pitcheck.plan.model import Plan
from pitcheck.report.report import Report
from pitcheck.stage.coordinate_sample import KEPT, KEPT_ALONE

Pair = tuple[Plan, Plan]
LENGTHS = (9, 16, 24, 64)


def gathered(
    size: int, axis: int, joined: int | None = None, mesh: dict[str, int] | None = None
) -> Pair:
    """Squares that ``size`` ranks hold parts of along ``axis``, joined along ``joined``, by default
    the same.
    """
    shape, joined = [4, 6], axis if joined is None else joined
    whole = [n * size if dim == axis else n for dim, n in enumerate(shape)]
    r = Builder("whole")
    r.output(r.op("square", r.input("x", whole), out="y"))
    b = Builder("parts", {"dp": size, **(mesh or {})})
    own = b.op("square", b.input("x", shape, {axis: "dp"}))
    b.output(b.op("all_gather", own, out="y", group="dp", axis=joined))
    return r.plan(), b.plan()


def scattered(size: int, axis: int, held: int | None = None) -> Pair:
    """A sum over the batch, of which every rank has a part along ``axis``, said to be one along
    ``held``.
    """
    whole = [n * size for n in (2, 3)]
    r = Builder("whole")
    r.output(r.op("sum", r.op("square", r.input("x", [size, *whole])), out="y", axes=(0,)))
    b = Builder("parts", {"dp": size})
    own = b.op("sum", b.op("square", b.input("x", [1, *whole], {0: "dp"})), axes=(0,))
    y = b.op("reduce_scatter", own, out="y", group="dp", axis=axis)
    b.output(y, "y", lineage("y", {axis if held is None else held: "dp"}))
    return r.plan(), b.plan()


def exchanged(size: int, split: int, joined: int, twice: bool = False) -> Pair:
    """Parts along one dimension exchanged for parts along the other; ``twice``: every part is of
    the next rank's.
    """
    whole = [2 * size, 3 * size]
    r = Builder("whole")
    r.output(r.op("square", r.input("x", whole), out="y"))
    b = Builder("parts", {"dp": size})
    local = [n // size if dim == joined else n for dim, n in enumerate(whole)]
    own = b.op("square", b.input("x", local, {joined: "dp"}))
    own = b.op("roll", own, shift=whole[split] // size, axis=split) if twice else own
    y = b.op("all_to_all", own, out="y", group="dp", split_axis=split, concat_axis=joined)
    b.output(y, "y", lineage("y", {split: "dp"}))
    return r.plan(), b.plan()


def verdict(pair: Pair) -> Report:
    return check(*pair, Options(seed=5))


@pytest.mark.parametrize("size", LENGTHS)
@pytest.mark.parametrize("axis", [0, 1])
def test_right_ones_are_proven(size: int, axis: int) -> None:
    for pair in (gathered(size, axis), scattered(size, axis), exchanged(size, axis, 1 - axis)):
        report = verdict(pair)
        assert report.verdict == "equivalent", said(report)


@pytest.mark.parametrize("mesh", [{"tp": 2}, {"tp": 12}])
def test_beside_another_axis(mesh: dict[str, int]) -> None:
    report = verdict(gathered(12, 0, mesh=mesh))
    assert report.verdict == "equivalent", said(report)


def _declared(plan: Plan, axis: int, change: Callable[[int], int]) -> Plan:
    """The plan with another size of ``y`` along an axis."""
    tensors = (
        replace(t, shape=tuple(change(n) if dim == axis else n for dim, n in enumerate(t.shape)))
        if t.name == "y"
        else t
        for t in plan.tensors
    )
    return replace(plan, tensors=tuple(tensors))


@pytest.mark.parametrize("size", LENGTHS)
@pytest.mark.parametrize("axis", [0, 1])
def test_a_wrong_shape_is_refused(size: int, axis: int) -> None:
    """One that is declared for fewer members, or for a join along the other dimension."""
    for pair in (gathered(size, axis), scattered(size, axis), exchanged(size, axis, 1 - axis)):
        for change in (lambda n: n // 2 if n > 1 else 2, lambda n: n + 1):
            report = verdict((pair[0], _declared(pair[1], axis, change)))
            assert report.verdict == "invalid", said(report)


@pytest.mark.parametrize("size", [9, 24])
def test_wrong_ones_are_caught(size: int) -> None:
    for pair in (exchanged(size, 0, 1, twice=True), exchanged(size, 1, 0, twice=True)):
        assert not judge_often(*pair, range(2)).same
        report = verdict(pair)
        assert report.verdict == "mismatch", said(report)


@pytest.mark.parametrize("members", [KEPT, KEPT_ALONE])
def test_a_shape_of_as_many_members_as_are_looked_at(members: int) -> None:
    reference, parallel = gathered(16, 0)
    report = verdict((reference, _declared(parallel, 0, lambda _: 4 * members)))
    assert report.verdict == "invalid", said(report)


def test_joined_along_the_wrong_dimension() -> None:
    report = verdict(gathered(9, 0, joined=1))
    assert report.verdict == "invalid", said(report)


def test_a_part_along_another_dimension_than_said() -> None:
    report = verdict(scattered(9, 0, held=1))
    assert report.verdict == "invalid", said(report)


ATTRIBUTES = {"axis": 0, "split_axis": 0, "concat_axis": 1, "position": 0, "root": 0}
COLLECTIVES = [name for name in operator_names() if operator_kind(name).collective]


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_every_result_that_has_a_part_per_member_is_named(kind: str) -> None:
    """A stage of such a collective must not be looked at with fewer members: there its results have
    other sizes.
    """
    shapes = []
    for members in (2, 4):
        algebra = AxisAlgebra(AxisSystem())
        stack = algebra.stack(
            algebra.tensor((8, 12), "field"), np.zeros((1, members), dtype=np.int64)
        )
        attributes = {
            name: place
            for name, place in ATTRIBUTES.items()
            if name in operator_kind(kind).attributes
        }
        shapes.append(
            [algebra.shape(result) for result in evaluate(algebra, kind, [stack], attributes)]
        )
    assert (kind not in kinds_with(Trait.KEEPS_SIZES)) == (shapes[0] != shapes[1]), shapes
