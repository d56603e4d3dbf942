"""Parts of given tensors that lie on the ranks in another order than that of the mesh.

They may lie in reverse, or each one further.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice, permutations
from math import prod

import numpy as np

from pitcheck.algebra.value import Value
from pitcheck.explain.diagnosis import Diagnosis, Kind
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.messages import spell
from pitcheck.explain.placements.fused_parameter import right_where_it_lies
from pitcheck.explain.rerun.changes import Override
from pitcheck.explain.rerun.rerun import Rerun
from pitcheck.graph.cuts import Cut
from pitcheck.graph.grids import Codes
from pitcheck.graph.parts import Box

PARTS_ORDERED = Kind(
    "PIT107",
    "{names}: parts lie in another order than the program takes them in: rank {rank} holds {held} "
    "where it should hold {box}",
    "give ranks and micro-batches the parts of {names} in the order of the mesh",
    edits=(
        "- rank {rank}: {held} of {names}",
        "+ rank {rank}: {box} of {names}",
    ),
)


MOST_AXES = 3
"""Axes that cut one dimension, up to which all their orders are tried."""
MOST_ORDERS = 2
"""Orders of the axes that are tried, the mesh's first."""


def parts_in_order(
    rerun: Rerun, left: Sequence[int]
) -> tuple[Diagnosis, list[Override], list[int]] | None:
    """Find given tensors whose parts have to lie in the order of the mesh: all of them, or one.

    Outputs that lie so are compared as they then lie. Plans may give parts in any order and mean
    it, so it is a cause only if all outputs are right then.

    Returns:
        The cause, the repair, the outputs that it makes right; None if there are no such tensors.
    """
    evidence = rerun.evidence
    given = [
        (v, cut) for v, cut in evidence.specification.initial.items() if v in evidence.batch.inputs
    ]
    for order in range(MOST_ORDERS):
        lie = partial(_in_order, rerun, order)
        found = [
            Override(v, codes, data)
            for v, cut in given
            if (data := lie(cut, codes := evidence.codes(v))) is not None and _fits(rerun, v, data)
        ]
        own = [
            n
            for n in left
            if found
            and lie((target := evidence.run.comparisons[n].target).cut, target.codes) is not None
        ]
        others = [n for n in left if n not in own]
        for overrides in (*([found] if len(found) > 1 else []), *([each] for each in found)):
            if not rerun.all_right(overrides, others):
                continue
            if all(
                rerun.right(overrides, [n]) or right_where_it_lies(rerun, n, overrides, lie)
                for n in own
            ):
                return (
                    _cause(evidence, order, [override.value for override in overrides]),
                    overrides,
                    list(left),
                )
    return None


def _fits(rerun: Rerun, value: int, data: Value) -> bool:
    return tuple(data.data.shape[3:]) == rerun.shape(value)


def _in_order(rerun: Rerun, order: int, cut: Cut, codes: Codes) -> Value | None:
    """Return what a cut has at coordinates if its parts lie in an order of the mesh.

    None if they do already, or cannot.
    """
    boxes = _boxes(rerun.evidence, order, cut, codes)
    return None if boxes is None else rerun.boxes(cut.reference, boxes)


def _boxes(evidence: Evidence, order: int, cut: Cut, codes: Codes) -> list[Box] | None:
    if (
        cut.group_of is not None
        or cut.scale != 1
        or not len(codes)
        or (cut.part_of[codes] < 0).any()
    ):
        return None
    own = boxes = [cut.parts[int(part)].box for part in cut.part_of[codes]]
    for dim in range(len(own[0])):
        intervals = next(
            islice(_intervals(evidence, codes, [box[dim] for box in own]), order, None), None
        )
        if intervals is not None:
            boxes = [
                (*box[:dim], interval, *box[dim + 1 :])
                for box, interval in zip(boxes, intervals, strict=True)
            ]
    return None if boxes is own else boxes


def _intervals(
    evidence: Evidence, codes: Codes, own: Sequence[tuple[tuple[int, int], ...]]
) -> Iterator[list[tuple[tuple[int, int], ...]]]:
    """Yield by coordinate the stretches of a dimension in each order of the axes that cut it.

    None are yielded if they lie in one of these orders already.
    """
    coordinates = evidence.second.coordinates
    starts = sorted(set(own))
    if len(starts) < 2:
        return
    index = np.array([starts.index(each) for each in own])
    sizes = coordinates.extents
    places = dict(zip(sizes, np.unravel_index(codes, coordinates.shape), strict=True))
    axes = [
        axis
        for axis in places
        if _depends(index, [p for other, p in places.items() if other != axis])
    ]
    if len(axes) > MOST_AXES or prod(sizes[axis] for axis in axes) != len(starts):
        return
    orders = []
    for order in permutations(axes):
        place = np.zeros(len(codes), dtype=np.int64)
        for axis in order:
            place = place * sizes[axis] + places[axis]
        orders.append(place)
    if not any((place == index).all() for place in orders):
        yield from ([starts[p] for p in place] for place in orders)


def _depends(index: Codes, others: Sequence[Codes]) -> bool:
    """Return True if a number differs between coordinates that agree in all other axes."""
    seen: dict[tuple[int, ...], int] = {}
    rows = zip(*(other.tolist() for other in others), strict=True) if others else ((),) * len(index)
    return any(
        seen.setdefault(tuple(row), number) != number
        for row, number in zip(rows, index.tolist(), strict=True)
    )


def _cause(evidence: Evidence, order: int, values: Sequence[int]) -> Diagnosis:
    """Return the diagnosis at the operator that reads a misplaced tensor first."""
    value = evidence.read_first(values)
    cut, codes = evidence.specification.initial[value], evidence.codes(value)
    held = [cut.parts[int(part)].box for part in cut.part_of[codes]]
    due = _boxes(evidence, order, cut, codes) or held
    first = next(
        (n for n, (own, other) in enumerate(zip(held, due, strict=True)) if own != other), 0
    )
    name, more = evidence.name(value), f" and {len(values) - 1} more" if len(values) > 1 else ""
    rank = int(codes[first]) // evidence.second.coordinates.microbatches
    facts = {
        "names": f"{name!r}{more}",
        "rank": rank,
        "held": spell(held[first]),
        "box": spell(due[first]),
    }
    return Diagnosis(PARTS_ORDERED, facts, codes, evidence.first_reader(value), value)
