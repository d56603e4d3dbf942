"""Conditionals whose branch depends on the device: every device runs all, and keeps its result.

Pipelines have them, for what only the first or the last stage does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pitcheck.frontends.xla.lowering.arrays import Array, Copies, Tuple, Value
from pitcheck.frontends.xla.lowering.building import Building, unsupported
from pitcheck.frontends.xla.lowering.elementwise import chosen
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType


def branches_of(choice: Value, count: int) -> tuple[int, ...] | None:
    """Return the branch of each device, or the one for all; None if it is not known.

    A truth chooses the first of two, else the second; a number outside chooses the last.
    """
    numbers = [number for array in _each(choice) for number in _numbers(array)]
    if not numbers or None in numbers:
        return None
    taken = [_branch(number, count) for number in numbers]
    return (taken[0],) if len(set(taken)) == 1 else tuple(taken)


def _each(choice: Value) -> Sequence[Array]:
    if isinstance(choice, Copies):
        return choice.arrays
    return [choice] if isinstance(choice, Array) else []


def _numbers(array: Array) -> Sequence[bool | int | None]:
    """Return a number that is known on each device, or the one for all."""
    if array.rank or array.known is None:
        return [None]
    numbers: list[bool | int] = array.known.tolist()
    return numbers


def _branch(number: bool | int | None, count: int) -> int:
    if isinstance(number, bool):
        return 0 if number else 1
    return number if number is not None and 0 <= number < count else count - 1


def merged(b: Building, taken: Sequence[int], results: Mapping[int, Value]) -> Value:
    """Return on each device the result of its branch. ``results``: those of all that are taken.

    Raises UnsupportedError if one lies in a manual region and another does not.
    """
    first = next(iter(results.values()))
    tuples = {branch: x.elements for branch, x in results.items() if isinstance(x, Tuple)}
    if len(tuples) == len(results):
        rows = zip(*tuples.values(), strict=True)
        return Tuple(tuple(merged(b, taken, dict(zip(tuples, row, strict=True))) for row in rows))
    copies = {branch: x.arrays for branch, x in results.items() if isinstance(x, Copies)}
    if len(copies) == len(results) and isinstance(first, Copies):
        arrays = tuple(copies[branch][device] for device, branch in enumerate(taken))
        return Copies(arrays, first.groups)
    whole = {branch: x for branch, x in results.items() if isinstance(x, Array)}
    if len(whole) < len(results) or not isinstance(first, Array):
        raise unsupported(b, "a conditional of whose branches one lies in a manual region")
    for branch, other in whole.items():
        first = chosen(b, other.shape, _takers(b, taken, branch, other), other, first)
    return first


def _takers(b: Building, taken: Sequence[int], branch: int, result: Array) -> Array:
    """Return truths of the sizes of a result, which hold on the devices that take a branch."""
    here = np.array([number == branch for number in taken])
    mask = np.broadcast_to(here.reshape(-1, *(1,) * result.rank), (len(taken), *result.sizes))
    return b.known(ArrayShape(ElementType.PRED, result.sizes), mask)
