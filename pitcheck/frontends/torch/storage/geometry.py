"""The places of a strided view in its storage, and views as blocks of contiguous stretches.

This module does not need torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod
from typing import NamedTuple


class Geometry(NamedTuple):
    """A view of a storage, counted in elements.

    The stride of a dimension of size 1 is 0, because it has no meaning.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @property
    def elements(self) -> int:
        """Return the number of elements of the view."""
        return prod(self.shape)

    @property
    def extent(self) -> tuple[int, int]:
        """Return the half-open interval of the storage that the view touches.

        It is empty for a view without elements.
        """
        if not self.elements:
            return self.offset, self.offset
        return self.offset, self.offset + 1 + sum(
            (size - 1) * step for size, step in zip(self.shape, self.stride, strict=True)
        )

    @property
    def order(self) -> tuple[int, ...]:
        """Return the dimensions of size above 1 by falling stride, as they lie in memory."""
        return tuple(
            sorted(
                (dim for dim, size in enumerate(self.shape) if size > 1),
                key=lambda dim: (-self.stride[dim], dim),
            )
        )

    @property
    def repeats(self) -> bool:
        """Return True if a stride of 0 shows some element several times, as after an expand."""
        return any(
            size > 1 and not step for size, step in zip(self.shape, self.stride, strict=True)
        )

    @property
    def dense(self) -> bool:
        """Return True if the view shows each element of its extent exactly once.

        The dimensions may lie in memory in any order.
        """
        expected = 1
        for dim in reversed(self.order):
            if self.stride[dim] != expected:
                return False
            expected *= self.shape[dim]
        return True

    @property
    def memory_shape(self) -> tuple[int, ...]:
        """Return the sizes above 1 in the order of :attr:`order`."""
        return tuple(self.shape[dim] for dim in self.order)

    def single(self) -> Geometry:
        """Return the view with every repeated dimension reduced to size 1."""
        return geometry(
            (1 if not step else size for size, step in zip(self.shape, self.stride, strict=True)),
            self.stride,
            self.offset,
        )

    def offsets(self) -> tuple[int, ...]:
        """Return the place of every element in the extent. The elements are row-major."""
        steps = [
            range(0, size * step, step) if step else (0,) * size
            for size, step in zip(self.shape, self.stride, strict=True)
        ]
        return tuple(map(sum, product(*steps)))


def geometry(shape: Iterable[int], stride: Iterable[int], offset: int) -> Geometry:
    """Return a geometry in canonical form, so that equal views are equal."""
    sizes = tuple(shape)
    return Geometry(
        sizes,
        tuple(0 if size == 1 else step for size, step in zip(sizes, stride, strict=True)),
        offset,
    )


def contiguous(shape: Iterable[int], offset: int = 0) -> Geometry:
    """Return the row-major view of a shape."""
    sizes = tuple(shape)
    return geometry(sizes, (prod(sizes[dim + 1 :]) for dim in range(len(sizes))), offset)


@dataclass(frozen=True)
class Block:
    """A view as a block of a contiguous stretch.

    ``stretch`` is a row-major shape that begins at element ``start`` of the storage. In each of its
    dimensions the block begins at ``begins`` and has ``sizes`` elements.
    """

    start: int
    stretch: tuple[int, ...]
    begins: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def stop(self) -> int:
        """Return the end of the stretch in the storage."""
        return self.start + prod(self.stretch)


def block(view: Geometry, starts: Iterable[int], size: int) -> Block | None:
    """Return a view as a block; None for a view that is none, such as a diagonal.

    A view is a block if its strides divide each other. The stretch lies within a storage of
    ``size`` elements. If possible it begins at one of ``starts``, or a whole number of rows of its
    first dimension after it.
    """
    strides = [view.stride[dim] for dim in view.order]
    sizes = view.memory_shape
    if not strides or 0 in strides or any(outer % inner for outer, inner in pairwise(strides)):
        return None
    stretch = (sizes[0], *(outer // inner for outer, inner in pairwise(strides)), strides[-1])
    for begin in _beginnings(view.offset, strides[0], starts):
        rest, begins = view.offset - begin, [0]
        for step in [*strides[1:], 1]:
            begins.append(rest // step)
            rest %= step
        found = Block(begin, stretch, tuple(begins), (*sizes, 1))
        fits = all(
            at + count <= dim for at, count, dim in zip(begins, found.sizes, stretch, strict=True)
        )
        if fits and found.stop <= size:
            return found
    return None


def _beginnings(offset: int, step: int, starts: Iterable[int]) -> Iterator[int]:
    yield from dict.fromkeys(
        offset - (offset - start) % step for start in starts if start <= offset
    )
    yield offset
