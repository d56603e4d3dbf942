"""Reshapes as the common refinement of two factorisations.

>>> system = AxisSystem()
>>> outer, inner = view(system, [system.dimension(12)], (3, 4))
>>> outer.size, inner.size
(3, 4)
"""

from __future__ import annotations

from collections.abc import Sequence

from pitcheck.algebra.dimensions.axis_classes import AxisSystem
from pitcheck.algebra.dimensions.scaling_class import Dimension


def view(
    system: AxisSystem, dims: Sequence[Dimension], shape: Sequence[int]
) -> tuple[Dimension, ...]:
    """Return the dimensions of a row-major reshape to ``shape``, with the same number of elements.

    Sizes 1 are skipped. The rest falls into the shortest runs of equal products. In each run the
    new dimensions are taken from the innermost outwards as products of factors of the old ones. A
    run without a common refinement is rigid on both sides.
    """
    result: list[Dimension | None] = [system.dimension(1) if n == 1 else None for n in shape]
    if any(n == 0 for n in shape):
        for node in dims:
            system.fix(node, "a tensor without elements is viewed in another shape")
        return tuple(system.dimension(n, fixed="it is of a tensor without elements") for n in shape)
    old = [d for d in dims if d.size != 1]
    new = [i for i, n in enumerate(shape) if n != 1]
    while new:
        count, places = _run(old, [int(shape[i]) for i in new])
        made = _refined(system, old[:count], [int(shape[i]) for i in new[:places]])
        for i, node in zip(new[:places], made, strict=True):
            result[i] = node
        old, new = old[count:], new[places:]
    return tuple(node for node in result if node is not None)


def _run(old: Sequence[Dimension], new: Sequence[int]) -> tuple[int, int]:
    """Return the shortest leading runs of both sides that have one product.

    Returns:
        A pair: the number of old dimensions, and the number of new sizes.
    """
    count, places, have, want = 1, 1, old[0].size, new[0]
    while have != want:
        if have < want:
            have *= old[count].size
            count += 1
        else:
            want *= new[places]
            places += 1
    return count, places


def _refined(system: AxisSystem, old: Sequence[Dimension], new: Sequence[int]) -> list[Dimension]:
    if len(old) == len(new) == 1:
        return list(old)
    for whole in old:
        system.mix(whole)
    left = list(old)
    made = [_taken(system, left, size) for size in reversed(new)]
    for taken in made:
        if taken is not None:
            system.mix(taken)
    if all(node is not None for node in made):
        _mark_permuted(system, old, made)
        return [node for node in reversed(made) if node is not None]
    for node in (*old, *made):
        if node is not None:
            system.fix(
                node,
                f"sizes {tuple(d.size for d in old)} viewed as {tuple(new)} have no common "
                f"refinement",
            )
    return [
        system.dimension(
            n, fixed=f"it is part of a view without a common refinement as {tuple(new)}"
        )
        for n in new
    ]


def _taken(system: AxisSystem, left: list[Dimension], size: int) -> Dimension | None:
    """Take a dimension of ``size`` off the inner end of ``left``.

    Return None if the factors do not divide.
    """
    node = left.pop()
    if node.size == size:
        return node
    if node.size % size == 0:
        outer, inner = system.factor(node, size)
        left.append(outer)
        return inner
    if size % node.size == 0:
        outer_part = _taken(system, left, size // node.size)
        return None if outer_part is None else system.product(outer_part, node)
    left.append(node)
    return None


def _mark_permuted(
    system: AxisSystem, old: Sequence[Dimension], made: Sequence[Dimension | None]
) -> None:
    """Mark all dimensions of a view that joins factors in another order: elements change places."""
    if len(made) == 1 and not old[0].copies and not system.joins_in_order(old):
        for node in old:
            system.mark_permuted(node)
