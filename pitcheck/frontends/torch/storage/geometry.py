"""Where the elements of a strided view lie in its storage, and how to get at them from a contiguous
stretch of it. Knows nothing of torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod
from typing import NamedTuple


class Geometry(NamedTuple):
    """A view of a storage, counted in elements. Strides of dimensions of size 1 are 0, for they say
    nothing.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @property
    def elements(self) -> int:
        """Number of elements of the view."""
        return prod(self.shape)

    @property
    def extent(self) -> tuple[int, int]:
        """The half-open interval of the storage that the view touches, which is empty without
        elements.
        """
        if not self.elements:
            return self.offset, self.offset
        return self.offset, self.offset + 1 + sum(
            (size - 1) * step for size, step in zip(self.shape, self.stride, strict=True)
        )

    @property
    def order(self) -> tuple[int, ...]:
        """The dimensions of more than one element by falling stride: as they lie in memory."""
        return tuple(
            sorted(
                (dim for dim, size in enumerate(self.shape) if size > 1),
                key=lambda dim: (-self.stride[dim], dim),
            )
        )

    @property
    def repeats(self) -> bool:
        """Whether some element is seen several times because of a stride of 0, as after
        an expand.
        """
        return any(
            size > 1 and not step for size, step in zip(self.shape, self.stride, strict=True)
        )

    @property
    def dense(self) -> bool:
        """Whether the view is all of its extent, each element once, in whichever order of
        dimensions.
        """
        expected = 1
        for dim in reversed(self.order):
            if self.stride[dim] != expected:
                return False
            expected *= self.shape[dim]
        return True

    @property
    def memory_shape(self) -> tuple[int, ...]:
        """The sizes above 1 in the order of :attr:`order`."""
        return tuple(self.shape[dim] for dim in self.order)

    def single(self) -> Geometry:
        """The same view with every repeated dimension seen once."""
        return geometry(
            (1 if not step else size for size, step in zip(self.shape, self.stride, strict=True)),
            self.stride,
            self.offset,
        )

    def offsets(self) -> tuple[int, ...]:
        """Of every element, row-major, its place in the extent."""
        steps = [
            range(0, size * step, step) if step else (0,) * size
            for size, step in zip(self.shape, self.stride, strict=True)
        ]
        return tuple(map(sum, product(*steps)))


def geometry(shape: Iterable[int], stride: Iterable[int], offset: int) -> Geometry:
    """A geometry in its one form, so that equal views are equal."""
    sizes = tuple(shape)
    return Geometry(
        sizes,
        tuple(0 if size == 1 else step for size, step in zip(sizes, stride, strict=True)),
        offset,
    )


def contiguous(shape: Iterable[int], offset: int = 0) -> Geometry:
    """The row-major view of a shape."""
    sizes = tuple(shape)
    return geometry(sizes, (prod(sizes[dim + 1 :]) for dim in range(len(sizes))), offset)


@dataclass(frozen=True)
class Block:
    """A view as a block of a contiguous stretch.

    ``stretch`` is a row-major shape beginning at ``start`` of the storage; ``begins`` is where the
    block begins in each of its dimensions, ``sizes`` how many elements it takes there.
    """

    start: int
    stretch: tuple[int, ...]
    begins: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def stop(self) -> int:
        """End of the stretch in the storage."""
        return self.start + prod(self.stretch)


def block(view: Geometry, starts: Iterable[int], size: int) -> Block | None:
    """A view whose strides divide each other as a block; None if it is none, as a diagonal is.

    The stretch begins a whole number of its first dimension's rows after one of ``starts``, if that
    can be, and lies within a storage of ``size`` elements.
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
