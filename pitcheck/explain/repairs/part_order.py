"""Whether the parts of something that is given lie on the ranks in another order than that of the
mesh: in reverse, or each one further.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice, permutations
from math import prod

import numpy as np

from pitcheck.algebra.value import Value
from pitcheck.explain import messages
from pitcheck.explain.diagnosis import Diagnosis
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.hypotheses import spell
from pitcheck.explain.repairs.fused_parameter import right_where_it_lies
from pitcheck.explain.rerun import Override, Rerun
from pitcheck.graph.cuts import Cut
from pitcheck.graph.grids import Codes
from pitcheck.graph.parts import Box

MOST_AXES = 3
"""Axes that cut one dimension, up to which all their orders are tried."""
MOST_ORDERS = 2
"""Orders of the axes that are tried, that of the mesh first."""


def parts_in_order(
    rerun: Rerun, left: Sequence[int]
) -> tuple[Diagnosis, list[Override], list[int]] | None:
    """(the cause, the repair, the outputs that it makes right) of what is given in another order:
    all of it in order, else one tensor.

    Outputs that lie so are compared as they then lie. Plans may well give parts in any order and
    mean it: it is shown only where the outputs are right then.
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
            if (
                not others
                or not rerun.right(overrides, others[:1])
                or len(rerun.right(overrides, others)) < len(others)
            ):
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
    """What a cut has at codes where its parts lie in an order of the mesh; None where they do
    already, or cannot.
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
    """By code the stretches of a dimension in an order of the axes that cut it; none where they lie
    in one already.
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
    """Whether a number is not the same at all codes that agree in all other coordinates."""
    seen: dict[tuple[int, ...], int] = {}
    rows = zip(*(other.tolist() for other in others), strict=True) if others else ((),) * len(index)
    return any(
        seen.setdefault(tuple(row), number) != number
        for row, number in zip(rows, index.tolist(), strict=True)
    )


def _cause(evidence: Evidence, order: int, values: Sequence[int]) -> Diagnosis:
    """What lies otherwise, at the operator that reads it first."""
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
    return Diagnosis(messages.PARTS_ORDERED, facts, codes, evidence.first_reader(value), value)
