"""Stages leave out what a buffer holds besides, and a part of another tensor is still
another part.
"""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zoo.builder import Builder, lineage

from pitcheck.base.options import Options
from pitcheck.claims.specification import specify
from pitcheck.engine.check import check
from pitcheck.graph.graph import Graph
from pitcheck.graph.lowering import lower
from pitcheck.plan.model import Plan
from pitcheck.plan.schedule.matching import match
from pitcheck.stage.building import build_stage
from pitcheck.stage.stage import Stage, Target

RANKS = 2
SHAPES = {"all_reduce": (4,), "reduce_scatter": (4, 2), "all_gather": (2,)}
"""Kind of collective -> the dimensions of every tensor before the one along which they
are joined.
"""


def _computed(b: Builder, kind: str, sizes: list[int], spread: bool) -> list[str]:
    """Per tensor what is moved: terms of a sum over the first dimension, or for all_gather rows."""
    inputs = [
        b.input(
            f"x{n}",
            (SHAPES[kind][0] // (RANKS if spread else 1), *SHAPES[kind][1:], size),
            {0: "dp"} if spread else None,
        )
        for n, size in enumerate(sizes)
    ]
    squares = [b.op("square", x) for x in inputs]
    return (
        squares
        if kind == "all_gather"
        else [b.op("sum", x, axes=(0,), keepdim=kind == "all_reduce") for x in squares]
    )


def _reference(kind: str, sizes: list[int], parts: list[int]) -> Plan:
    b = Builder("reference")
    whole = b.op("cat", *_computed(b, kind, sizes, False), axis=1)
    for n, (start, stop) in enumerate(pairwise([0, *accumulate(parts)])):
        b.output(b.op("slice", whole, out=f"y{n}", axis=1, start=start, stop=stop))
    return b.plan()


def _parallel(
    kind: str, sizes: list[int], parts: list[int], order: list[int] | None = None, **reduction: str
) -> Plan:
    b = Builder("parallel", {"dp": RANKS})
    buffer = b.op("cat", *_computed(b, kind, sizes, True), axis=1)
    attributes = {} if kind == "all_reduce" else {"axis": 0}
    moved = b.op(kind, buffer, group="dp", **attributes, **reduction)
    b.op(
        "split",
        moved,
        out=[f"y{n}" for n in order or range(len(parts))],
        axis=1,
        sizes=tuple(parts),
    )
    for n in range(len(parts)):
        spec = {0: "dp"} if kind == "reduce_scatter" else None
        b.output(f"y{n}", spec=None if spec is None else lineage(f"y{n}", spec))
    return b.plan()


def _graph(plan: Plan) -> Graph:
    matching, violations = match(plan)
    assert matching is not None, violations
    return lower(plan, matching)


def _stage(reference: Plan, parallel: Plan, number: int) -> Stage:
    """The stage of one output."""
    first, second = _graph(reference), _graph(parallel)
    specification = specify(reference, parallel, first, second)
    expected = specification.expected[number]
    return build_stage(
        first, second, specification.initial.get, [Target.at(expected.cut, expected.where, second)]
    )


@pytest.mark.parametrize("kind", SHAPES)
def test_a_stage_has_one_tensor_of_a_buffer(kind: str) -> None:
    sizes = [3, 4, 5, 4, 3]
    stages = [
        _stage(_reference(kind, sizes, sizes), _parallel(kind, sizes, sizes), n)
        for n in range(len(sizes))
    ]
    for n, stage in enumerate(stages):
        assert len(stage.parallel.inputs) == 1
        split = next(step for step in stage.parallel.steps if step.kind == "split")
        assert split.attributes["sizes"] == (sizes[n],)


@pytest.mark.parametrize("kind", SHAPES)
def test_a_part_of_two_tensors_has_both(kind: str) -> None:
    """Parts of 2, 6 and 4 out of tensors of 4, 4 and 4: the second has elements of the first two
    tensors.
    """
    stage = _stage(_reference(kind, [4, 4, 4], [2, 6, 4]), _parallel(kind, [4, 4, 4], [2, 6, 4]), 1)
    assert len(stage.parallel.inputs) == 2
    split = next(step for step in stage.parallel.steps if step.kind == "split")
    assert split.attributes["sizes"] == (2, 6)


@settings(max_examples=25)
@given(
    kind=st.sampled_from(sorted(SHAPES)),
    sizes=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    data=st.data(),
)
def test_parts_of_any_sizes(kind: str, sizes: list[int], data: st.DataObject) -> None:
    ends = (
        sorted(data.draw(st.sets(st.integers(1, sum(sizes) - 1), max_size=3)))
        if sum(sizes) > 1
        else []
    )
    parts = [stop - start for start, stop in pairwise([0, *ends, sum(sizes)])]
    reference = _reference(kind, sizes, parts)
    report = check(reference, _parallel(kind, sizes, parts), Options(seed=1))
    assert report.verdict == "equivalent", [f.title for f in report.findings]


@pytest.mark.parametrize("kind", SHAPES)
def test_wrong_parts_are_caught(kind: str) -> None:
    sizes = [3, 4, 4]
    reference = _reference(kind, sizes, sizes)
    wrong = [_parallel(kind, sizes, sizes, [0, 2, 1])]
    if kind != "all_gather":
        wrong.append(_parallel(kind, sizes, sizes, reduction="avg"))
    for plan in wrong:
        assert check(reference, plan, Options(seed=1)).verdict == "mismatch"


@pytest.mark.parametrize("kind", SHAPES)
def test_tensors_of_another_order_are_caught(kind: str) -> None:
    assert (
        check(
            _reference(kind, [3, 5], [3, 5]), _parallel(kind, [3, 5], [3, 5]), Options(seed=1)
        ).verdict
        == "equivalent"
    )
    assert (
        check(
            _reference(kind, [3, 5], [5, 3]), _parallel(kind, [3, 5], [5, 3]), Options(seed=1)
        ).verdict
        == "equivalent"
    )
    crossed = _parallel(kind, [5, 3], [5, 3])
    assert check(_reference(kind, [3, 5], [5, 3]), crossed, Options(seed=1)).verdict != "equivalent"


def test_symmetric_coordinates_are_left_out_of_narrow_stages() -> None:
    """A stage is cut out again for a few of six symmetric coordinates, and again without the other
    tensor of the buffer.
    """
    sizes, ranks = [3, 4], 6
    r, b = Builder("reference"), Builder("parallel", {"dp": 2, "tp": ranks})
    squares = [
        r.op("square", r.input(f"x{n}", (4, size, 2 * ranks))) for n, size in enumerate(sizes)
    ]
    whole = r.op("cat", *squares, axis=1)
    for n, start in enumerate((0, 3)):
        r.output(r.op("slice", whole, out=f"y{n}", axis=1, start=start, stop=start + sizes[n]))
    own = [
        b.op("square", b.input(f"x{n}", (2, size, 2), {0: "dp", 2: "tp"}))
        for n, size in enumerate(sizes)
    ]
    b.op(
        "split",
        b.op("all_gather", b.op("cat", *own, axis=1), group="dp", axis=0),
        out=["y0", "y1"],
        axis=1,
        sizes=tuple(sizes),
    )
    for n in range(2):
        b.output(f"y{n}", spec=lineage(f"y{n}", {2: "tp"}))
    report = check(r.plan(), b.plan(), Options(seed=1))
    assert report.verdict == "equivalent", [f.title for f in report.findings]
    assert any("coordinates" in line for line in report.reductions), report.reductions
    assert report.stages.total == len(sizes)
