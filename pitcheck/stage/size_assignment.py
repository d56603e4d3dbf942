"""Reduced sizes as one consistent assignment.

Every reference dimension has one size, and every shard the part of it that it has at full size.
Sizes follow from ties, and a tie that is missing or wrong could make two plans equal, or unequal,
that are not. So the result of the ties is checked once more, on the sizes alone. Sizes that do not
pass are refused, and larger or full ones are tried.

>>> halves = [([((0, 4),)], [((0, 2),)]), ([((4, 8),)], [((2, 4),)])]
>>> check_parts("w", ((8,), (4,)), ((4,), (2,)), halves)  # 8 elements in two parts become 4
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from pitcheck.errors import ReductionError
from pitcheck.graph.cuts import Interval, length

Shape = tuple[int, ...]
Pair = tuple[Shape, Shape]
Intervals = tuple[Interval, ...]


def check_parts(
    name: str,
    whole: Pair,
    local: Pair,
    boxes: Iterable[tuple[Sequence[Intervals], Sequence[Intervals]]],
) -> None:
    """Check the parts of one reference tensor that a parallel tensor ``name`` holds.

    ``whole`` and ``local`` are the shapes of both, full and reduced; ``boxes`` are the parts, full
    and reduced.

    Raises:
        ReductionError: a part has another shape than the tensor, lies outside, is empty, or does
            not
        lie beside the others as at full size.
    """
    met: list[dict[Interval, Interval]] = [{} for _ in whole[0]]
    for full, small in boxes:
        for dim, (before, after) in enumerate(zip(full, small, strict=True)):
            if sum(map(length, after)) != local[1][dim] or len(before) != len(after):
                raise _refused(
                    name,
                    dim,
                    f"a part has {sum(map(length, after))} elements and the tensor {local[1][dim]}",
                )
            for old, new in zip(before, after, strict=True):
                if (length(old) > 0) != (length(new) > 0):
                    raise _refused(name, dim, f"{old} would be {new}")
                if old[0] >= 0 and met[dim].setdefault(old, new) != new:
                    raise _refused(name, dim, f"{old} would be both {met[dim][old]} and {new}")
    for dim, places in enumerate(met):
        _check_places(name, dim, places, whole[0][dim], whole[1][dim])


def _check_places(
    name: str, dim: int, places: Mapping[Interval, Interval], size: int, small: int
) -> None:
    """Check the intervals of one dimension, reduced by full.

    Check their order, which are equal, which meet, and that the whole stays the whole.
    """
    if not places:
        return
    ends = sorted(
        {(full, new) for old, after in places.items() for full, new in zip(old, after, strict=True)}
    )
    if any((a == b and x != y) or x > y for (a, x), (b, y) in pairwise(ends)):
        raise _refused(
            name, dim, f"places {[full for full, _ in ends]} would be {[new for _, new in ends]}"
        )
    inside = 0 <= ends[0][1] <= ends[-1][1] <= small
    if not inside or any(
        (full == size and new != small) or (full == 0 and new != 0) for full, new in ends
    ):
        where = (
            f"places {[full for full, _ in ends]} of {size} would be "
            f"{[new for _, new in ends]} of {small}"
        )
        raise _refused(name, dim, where)
    if len(set(places.values())) != len(places):
        raise _refused(name, dim, "two different parts would be the same one")
    lengths: dict[int, int] = {}
    for old, after in places.items():
        if lengths.setdefault(length(old), length(after)) != length(after):
            raise _refused(
                name,
                dim,
                f"parts of {length(old)} elements would have {lengths[length(old)]} and "
                f"{length(after)}",
            )


def check_shapes(
    algebra: Any, values: Mapping[int, Any], shapes: Mapping[int, Shape], side: str
) -> None:
    """Check that values have the shapes that their dimensions say. Raises ReductionError."""
    for value, held in values.items():
        found = tuple(algebra.shape(held))
        if found != shapes.get(value, found):
            raise ReductionError(
                f"a {side} value has shape {found} where its dimensions say {shapes[value]}; "
                f"these sizes are refused"
            )


def _refused(name: str, dim: int, why: str) -> ReductionError:
    """Return the error that refuses sizes."""
    return ReductionError(f"{name!r}, dimension {dim}: {why}; these reduced sizes are refused")
