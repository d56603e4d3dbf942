"""Folding: unfolding gives the instances back, and few records and boxes are made."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitcheck.errors import PlanError
from pitcheck.plan.boxes import boxes_of
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.fold import Instance, fold
from pitcheck.plan.model import Axis, Group, Number, Operator, Program, Table, Use

MESH = (Axis("pp", 2), Axis("dp", 3), Axis("tp", 2))


def holds(box: dict[str, tuple[int, ...]], coordinate: dict[str, int]) -> bool:
    return all(coordinate[axis] in values for axis, values in box.items())


def unfold(
    mesh: tuple[Axis, ...],
    microbatches: int,
    folded: tuple[tuple[Operator, ...], dict[str, tuple[str, ...]], tuple[Program, ...]],
) -> dict[int, list[tuple[object, ...]]]:
    """Every rank's instances, in plain loops over ranks, steps and operators."""
    operators, blocks, programs = folded
    by_id = {operator.id: operator for operator in operators}
    assert len(by_id) == len(operators)
    coordinates = Coordinates(mesh, microbatches)
    result: dict[int, list[tuple[object, ...]]] = {}
    for rank in range(coordinates.ranks):
        mine = [
            program
            for program in programs
            if not program.where
            or any(holds(box, coordinates.describe(rank)) for box in program.where)
        ]
        assert len(mine) <= 1
        for step in mine[0].steps if mine else ():
            for name in blocks[step.block]:
                operator = by_id[name]
                at = {**coordinates.describe(rank), "mb": step.microbatch or 0}
                assert not operator.where or any(holds(box, at) for box in operator.where)
                attributes = {
                    k: resolve(v, at, mesh, microbatches) for k, v in operator.attributes.items()
                }
                row = (
                    operator.kind,
                    operator.inputs,
                    operator.outputs,
                    repr(sorted(attributes.items())),
                    operator.group,
                    operator.source,
                    operator.module,
                )
                result.setdefault(rank, []).append((*row, step.microbatch))
    return result


def resolve(value: object, at: dict[str, int], mesh: tuple[Axis, ...], microbatches: int) -> object:
    if not isinstance(value, Table):
        return value
    position = 0
    for axis in value.over:
        size = microbatches if axis == "mb" else next(a.size for a in mesh if a.name == axis)
        position = position * size + at[axis]
    return value.values[position]


def plain(instances: list[Instance]) -> list[tuple[object, ...]]:
    return [
        (
            i.kind,
            i.inputs,
            i.outputs,
            repr(sorted(i.attributes.items())),
            i.group,
            i.source,
            i.module,
            i.microbatch,
        )
        for i in instances
    ]


values = st.sampled_from([0, 1, 2, True, False, 1.0, "s", None, (1, 2), ((1, 2),), ("a",)])
instances = st.builds(
    Instance,
    kind=st.sampled_from(["neg", "send"]),
    inputs=st.sampled_from(
        [("x",), ("y", "x"), (Use("x", 1),), (Number(1), "x"), (Number(1.0), "x")]
    ),
    outputs=st.sampled_from([(), ("y",), ("z",)]),
    attributes=st.dictionaries(st.sampled_from(["a", "b"]), values, max_size=2),
    group=st.sampled_from([None, Group(axes=("tp",))]),
    source=st.sampled_from(["", "a.py:1"]),
    microbatch=st.sampled_from([None, 0, 1, 2]),
)


@given(st.dictionaries(st.integers(0, 11), st.lists(instances, max_size=6), max_size=12))
def test_unfolding_gives_every_rank_its_instances_back(programs: dict[int, list[Instance]]) -> None:
    unfolded = unfold(MESH, 3, fold(MESH, 3, programs))
    assert unfolded == {rank: plain(sequence) for rank, sequence in programs.items() if sequence}


def test_equal_ranks_become_one_record_block_and_program() -> None:
    sequence = [Instance("neg", ("x",), ("y",), microbatch=m) for m in range(4)] + [
        Instance("add", ("g", "h"), ("i",))
    ]
    operators, blocks, programs = fold(MESH, 4, {rank: list(sequence) for rank in range(12)})
    assert [(o.id, o.where) for o in operators] == [("neg:y", ()), ("add:i", ())]
    assert list(blocks.values()) == [("neg:y",), ("add:i",)]
    assert len(programs) == 1
    assert programs[0].where == ()
    assert [step.microbatch for step in programs[0].steps] == [0, 1, 2, 3, None]


def test_an_integer_that_differs_becomes_a_table_over_the_axis_it_depends_on() -> None:
    programs = {
        rank: [Instance("slice", ("x",), ("y",), {"axis": 0, "start": 4 * (rank % 2)})]
        for rank in range(12)
    }
    operators, _, folded = fold(MESH, 1, programs)
    assert len(operators) == len(folded) == 1
    assert operators[0].attributes == {"axis": 0, "start": Table(("tp",), (0, 4))}


def test_anything_else_that_differs_makes_two_records() -> None:
    for one, other in (
        ({"m": "sum"}, {"m": "max"}),
        ({"m": 1}, {"m": True}),
        ({"m": 1}, {"m": 1.0}),
        ({"m": 1}, {}),
    ):
        operators, _, folded = fold(
            MESH,
            1,
            {rank: [Instance("neg", ("x",), ("y",), one if rank else other)] for rank in range(12)},
        )
        assert len(operators) == len(folded) == 2
        assert operators[0].id != operators[1].id


def test_one_odd_rank_is_a_record_of_that_rank() -> None:
    right, wrong = Instance("neg", ("x",), ("y",)), Instance("abs", ("x",), ("y",))
    operators, _, _ = fold(MESH, 1, {rank: [wrong if rank == 5 else right] for rank in range(12)})
    assert {operator.kind: len(operator.where) for operator in operators} == {"neg": 3, "abs": 1}
    assert operators[1].where == ({"pp": (0,), "dp": (2,), "tp": (1,)},)


def test_ranks_and_micro_batches_out_of_range_are_refused() -> None:
    with pytest.raises(PlanError, match="rank 12"):
        fold(MESH, 1, {12: []})
    for microbatch in (-1, 1, 5):
        with pytest.raises(PlanError, match="micro-batch"):
            fold(MESH, 1, {0: [Instance("neg", ("x",), ("y",), microbatch=microbatch)]})


@given(st.integers(0, 2**36 - 1))
def test_boxes_cover_a_mask_exactly(bits: int) -> None:
    coordinates = Coordinates(MESH, 3)
    mask = np.array([bool(bits >> i & 1) for i in range(36)]).reshape(12, 3)
    boxes = boxes_of(mask, coordinates)
    assert (coordinates.mask(boxes) == mask).all()
    if boxes:
        assert sum(coordinates.mask((box,)).sum() for box in boxes) == mask.sum()


def test_regular_masks_need_one_box() -> None:
    coordinates = Coordinates(MESH, 3)
    for box in (
        {"pp": (1,)},
        {"dp": (0, 2), "tp": (1,)},
        {"mb": (1,), "pp": (0,)},
        {"pp": (0,), "dp": (1,), "tp": (0,), "mb": (0, 2)},
    ):
        assert len(boxes_of(coordinates.mask((box,)), coordinates)) == 1
    assert boxes_of(np.ones((12, 3), dtype=np.bool_), coordinates) == ()
    assert boxes_of(np.ones(12, dtype=np.bool_), coordinates) == ()
    nowhere = boxes_of(np.zeros((12, 3), dtype=np.bool_), coordinates)
    assert nowhere
    assert not coordinates.mask(nowhere).any()


@pytest.mark.slow
def test_many_instances_are_folded_in_time() -> None:
    programs = {
        rank: [
            Instance(
                "matmul",
                (f"x{i}", f"w{i}"),
                (f"x{i + 1}",),
                {"d": 1, "s": rank % 2},
                None,
                "a.py:3",
                f"m.{i}",
                m,
            )
            for m in range(4)
            for i in range(1770)
        ]
        for rank in range(12)
    }
    start = time.perf_counter()
    operators, _, _ = fold(MESH, 4, programs)
    assert len(operators) == 1770
    assert time.perf_counter() - start < 2.0
