"""Shapes that fit: the checks that all algebras share.

>>> broadcast((4, 1), (3,))
(4, 3)
>>> check_view((4, 6), (5, 5))
Traceback (most recent call last):
    ...
pitcheck.errors.ShapeError: a tensor of shape (4, 6) cannot be viewed as (5, 5): the number of \
elements differs
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from pitcheck.errors import ShapeError


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that ``shapes`` broadcast to.

    Raises:
        ShapeError: if they do not broadcast.
    """
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        raise ShapeError(f"shapes {' and '.join(map(str, shapes))} do not broadcast") from None


def check_view(old: tuple[int, ...], new: Sequence[int]) -> None:
    """Raise ShapeError unless a tensor of shape ``old`` can be viewed as ``new``."""
    if prod(new) != prod(old) or (new and min(new) < 0):
        raise ShapeError(
            f"a tensor of shape {old} cannot be viewed as {tuple(map(int, new))}: the number of "
            f"elements differs"
        )


def check_permutation(shape: tuple[int, ...], permutation: Sequence[int]) -> None:
    """Raise ShapeError unless ``permutation`` names each dimension of ``shape`` once."""
    if sorted(permutation) != list(range(len(shape))):
        raise ShapeError(
            f"the permutation {tuple(permutation)} does not name each of the {len(shape)} "
            f"dimensions once"
        )


def check_expansion(old: tuple[int, ...], new: Sequence[int]) -> None:
    """Raise ShapeError unless a tensor of shape ``old`` broadcasts to ``new``."""
    extra = len(new) - len(old)
    if extra < 0 or any(m not in (1, n) for m, n in zip(old, new[extra:], strict=True)):
        raise ShapeError(f"a tensor of shape {old} cannot be expanded to {tuple(map(int, new))}")


def check_slice(shape: tuple[int, ...], axis: int, start: int, stop: int, step: int) -> None:
    """Raise ShapeError unless a half-open slice lies within dimension ``axis`` of ``shape``."""
    if not (0 <= axis < len(shape) and 0 <= start <= stop <= shape[axis] and step >= 1):
        raise ShapeError(
            f"the slice [{start}:{stop}:{step}] does not lie within dimension {axis} of {shape}"
        )


def check_matmul(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    """Raise ShapeError unless the shapes are (..., m, k) and (..., k, n)."""
    if len(first) < 2 or len(second) < 2 or first[-1] != second[-2]:
        raise ShapeError(f"matmul takes (..., m, k) and (..., k, n), not {first} and {second}")
