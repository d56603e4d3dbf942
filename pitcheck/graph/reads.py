"""From which coordinates an operand is read."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.graph.grids import Codes, Mask, Shape

_MOST_KEPT = 4096
"""Masks for which it is kept what a read reaches from them."""


@dataclass(frozen=True, eq=False)
class Read:
    """From which coordinates a coordinate reads. ``shape`` is that of all coordinates; ``members``
    is 0 for one tensor, else how many are stacked.
    """

    shape: Shape

    @property
    def members(self) -> int:
        """Number of tensors that are stacked, 0 where one is read as it is."""
        return 0

    @property
    def key(self) -> Hashable:
        """Equal for reads of the same coordinates."""
        raise NotImplementedError

    @property
    def axes(self) -> tuple[int, ...]:
        """The dimensions along which it may leave the own coordinate."""
        return tuple(range(len(self.shape)))

    def gather(self, grid: NDArray[Any]) -> NDArray[Any]:
        """What is read of a grid at every coordinate: a grid, with a last dimension more for the
        members of a stack.
        """
        raise NotImplementedError

    def reach(self, mask: Mask) -> Mask:
        """The coordinates that are read from the coordinates of ``mask``."""
        raise NotImplementedError

    @cached_property
    def _reached(self) -> dict[int, tuple[Mask, Mask]]:
        return {}

    def reach_of_all(self, mask: Mask) -> Mask:
        """As ``reach``, for the mask of a whole node: kept, because many nodes share a mask as one
        object and read alike.
        """
        found = self._reached.get(id(mask))
        if found is None:
            if len(self._reached) >= _MOST_KEPT:
                self._reached.clear()
            # The mask is kept, so that its identity stays its own.
            found = self._reached[id(mask)] = mask, self.reach(mask)
        return found[1]

    def at(self, codes: Codes) -> Codes:
        """The codes read at some codes, shape (n,) or (n, members)."""
        found: Codes = self.table[codes]
        return found

    @cached_property
    def table(self) -> Codes:
        """The codes read at every code, shape (codes,) or (codes, members)."""
        codes = np.arange(prod(self.shape), dtype=np.int64).reshape(self.shape)
        found = self.gather(codes)
        shape = (*self.shape, self.members) if self.members else self.shape
        return (
            np.broadcast_to(found, shape).reshape(-1, self.members)
            if self.members
            else np.broadcast_to(found, shape).reshape(-1)
        )


class Once(Read):
    """A tensor that exists once, read in every micro-batch."""

    @property
    def key(self) -> Hashable:
        """There is one such read."""
        return "once"

    @property
    def axes(self) -> tuple[int, ...]:
        """Micro-batches."""
        return (len(self.shape) - 1,)

    def gather(self, grid: NDArray[Any]) -> NDArray[Any]:
        """The entry of micro-batch 0."""
        return grid[..., :1]

    def reach(self, mask: Mask) -> Mask:
        """Micro-batch does not matter."""
        return np.asarray(mask.any(axis=-1, keepdims=True))


@dataclass(frozen=True, eq=False)
class OfMicrobatch(Read):
    """The tensor of one given micro-batch."""

    microbatch: int

    @property
    def key(self) -> Hashable:
        """The micro-batch."""
        return "microbatch", self.microbatch

    @property
    def axes(self) -> tuple[int, ...]:
        """Micro-batches."""
        return (len(self.shape) - 1,)

    def gather(self, grid: NDArray[Any]) -> NDArray[Any]:
        """The entry of the micro-batch."""
        return grid if grid.shape[-1] == 1 else grid[..., self.microbatch : self.microbatch + 1]

    def reach(self, mask: Mask) -> Mask:
        """The same ranks, at the micro-batch."""
        return _at_microbatches(mask, [self.microbatch], self.shape[-1])


@dataclass(frozen=True, eq=False)
class OverMicrobatches(Read):
    """A stack of the tensors of several micro-batches."""

    chosen: tuple[int, ...]

    @property
    def members(self) -> int:
        """How many micro-batches."""
        return len(self.chosen)

    @property
    def key(self) -> Hashable:
        """The micro-batches."""
        return "microbatches", self.chosen

    @property
    def axes(self) -> tuple[int, ...]:
        """Micro-batches."""
        return (len(self.shape) - 1,)

    def gather(self, grid: NDArray[Any]) -> NDArray[Any]:
        """The entries of the micro-batches."""
        dense = np.broadcast_to(grid, (*grid.shape[:-1], self.shape[-1]))
        return dense[..., None, list(self.chosen)]

    def at(self, codes: Codes) -> Codes:
        """The codes of the same ranks at those micro-batches."""
        count = self.shape[-1]
        return (codes // count * count)[:, None] + np.array(self.chosen, dtype=np.int64)

    def reach(self, mask: Mask) -> Mask:
        """The same ranks, at all those micro-batches."""
        return _at_microbatches(mask, self.chosen, self.shape[-1])


@dataclass(frozen=True, eq=False)
class OverGroup(Read):
    """A stack over the members of the groups along mesh dimensions ``over``, row-major."""

    over: tuple[int, ...]

    @property
    def axes(self) -> tuple[int, ...]:
        """Those of the group."""
        return self.over

    @property
    def members(self) -> int:
        """Ranks of a group."""
        return prod(self.shape[axis] for axis in self.over)

    @property
    def key(self) -> Hashable:
        """The axes."""
        return "group", self.over

    def gather(self, grid: NDArray[Any]) -> NDArray[Any]:
        """The entries of the members."""
        full = np.broadcast_to(
            grid, [self.shape[d] if d in self.over else size for d, size in enumerate(grid.shape)]
        )
        others = [d for d in range(grid.ndim) if d not in self.over]
        moved = full.transpose((*others, *self.over))
        kept = [1 if d in self.over else size for d, size in enumerate(grid.shape)]
        return moved.reshape((*kept, self.members))

    def at(self, codes: Codes) -> Codes:
        """The codes of the members, found without those of all groups."""
        places = list(np.unravel_index(codes[:, None], self.shape))
        members = np.unravel_index(
            np.arange(self.members), [self.shape[axis] for axis in self.over]
        )
        for axis, own in zip(self.over, members, strict=True):
            places[axis] = own[None, :]
        return np.ravel_multi_index(tuple(np.broadcast_arrays(*places)), self.shape).astype(
            np.int64
        )

    def reach(self, mask: Mask) -> Mask:
        """All members of the groups that a coordinate of the mask is in."""
        return np.asarray(mask.any(axis=self.over, keepdims=True))


@dataclass(frozen=True, eq=False)
class OverRoot(Read):
    """A stack over the groups along mesh dimensions ``over`` in which every member stands for the
    root, at places ``root`` along them.
    """

    over: tuple[int, ...]
    root: tuple[int, ...]

    @property
    def axes(self) -> tuple[int, ...]:
        """Those of the group."""
        return self.over

    @property
    def members(self) -> int:
        """Ranks of a group."""
        return prod(self.shape[axis] for axis in self.over)

    @property
    def key(self) -> Hashable:
        """The axes and the root."""
        return "root", self.over, self.root

    def gather(self, grid: NDArray[Any]) -> NDArray[Any]:
        """The entry of the root, for every member."""
        for axis, place in zip(self.over, self.root, strict=True):
            grid = grid if grid.shape[axis] == 1 else np.take(grid, [place], axis=axis)
        return np.broadcast_to(grid[..., None], (*grid.shape, self.members))

    def at(self, codes: Codes) -> Codes:
        """The code of the root, for every member."""
        places = list(np.unravel_index(codes, self.shape))
        for axis, place in zip(self.over, self.root, strict=True):
            places[axis] = np.full_like(places[axis], place)
        return np.repeat(
            np.ravel_multi_index(tuple(places), self.shape).astype(np.int64)[:, None],
            self.members,
            axis=1,
        )

    def reach(self, mask: Mask) -> Mask:
        """The roots of the groups that a coordinate of the mask is in."""
        anywhere = mask.any(axis=self.over, keepdims=True)
        result = np.zeros(
            [self.shape[d] if d in self.over else size for d, size in enumerate(anywhere.shape)],
            dtype=np.bool_,
        )
        places = dict(zip(self.over, self.root, strict=True))
        result[
            tuple(
                slice(places[d], places[d] + 1) if d in places else slice(None)
                for d in range(result.ndim)
            )
        ] = anywhere
        return result


@dataclass(frozen=True, eq=False)
class OverListed(Read):
    """A stack over the members of listed groups that leave a coordinate along dimensions ``over``
    alone, and for all others are the same.

    ``listed``: for every place along ``over``, row-major, the places of the members, shape (places,
    members); -1 where nothing is read.
    """

    over: tuple[int, ...]
    listed: Codes

    @property
    def axes(self) -> tuple[int, ...]:
        """Those along which the groups go."""
        return self.over

    @property
    def members(self) -> int:
        """Ranks of a group."""
        return int(self.listed.shape[1])

    @property
    def key(self) -> Hashable:
        """The axes and the places."""
        return "listed", self.over, self.listed.shape, self.listed.tobytes()

    def gather(self, grid: NDArray[Any]) -> NDArray[Any]:
        """The entries of the members."""
        moved, back, sizes = self._moved(grid)
        found = moved[..., np.maximum(self.listed, 0)].reshape((*sizes, self.members))
        return found.transpose((*back, grid.ndim))

    def reach(self, mask: Mask) -> Mask:
        """All members of the groups that a coordinate of the mask is in."""
        moved, back, sizes = self._moved(mask)
        result = np.zeros(moved.shape, dtype=np.bool_)
        for place, members in enumerate(self.listed):
            for member in members[members >= 0]:
                result[..., member] |= moved[..., place]
        return result.reshape(sizes).transpose(back)

    def _moved(self, grid: NDArray[Any]) -> tuple[NDArray[Any], list[int], list[int]]:
        """(the grid with the groups' dimensions as one at the end, the order that undoes it, the
        sizes in between).
        """
        order = [*(d for d in range(grid.ndim) if d not in self.over), *self.over]
        full = np.broadcast_to(
            grid, [self.shape[d] if d in self.over else size for d, size in enumerate(grid.shape)]
        ).transpose(order)
        sizes = list(full.shape)
        return full.reshape((*sizes[: -len(self.over)], -1)), np.argsort(order).tolist(), sizes


@dataclass(frozen=True, eq=False)
class FromPlaces(Read):
    """The tensor at another coordinate along mesh dimension ``axis``: at its coordinate i that of
    ``places[i]`` (-1: none is read there).
    """

    axis: int
    places: tuple[int, ...]

    @property
    def key(self) -> Hashable:
        """The axis and the places."""
        return "places", self.axis, self.places

    @property
    def axes(self) -> tuple[int, ...]:
        """The one."""
        return (self.axis,)

    def gather(self, grid: NDArray[Any]) -> NDArray[Any]:
        """The entries there."""
        return (
            grid
            if grid.shape[self.axis] == 1
            else np.take(grid, np.maximum(self.places, 0), axis=self.axis)
        )

    def reach(self, mask: Mask) -> Mask:
        """The coordinates there."""
        shape = [*mask.shape]
        shape[self.axis] = self.shape[self.axis]
        dense = np.moveaxis(np.broadcast_to(mask, shape), self.axis, 0)
        result = np.zeros_like(dense)
        for own, place in enumerate(self.places):
            if place >= 0:
                result[place] |= dense[own]
        return np.moveaxis(result, 0, self.axis)


@dataclass(frozen=True, eq=False)
class FromCodes(Read):
    """Any coordinates at all: a code, or a row of codes that are stacked, for every code (-1 where
    nothing is read).
    """

    codes: Codes

    @property
    def members(self) -> int:
        """Codes in a row, 0 for a single one."""
        return self.codes.shape[1] if self.codes.ndim == 2 else 0

    @property
    def key(self) -> Hashable:
        """The codes."""
        return "codes", self.codes.shape, self.codes.tobytes()

    def gather(self, grid: NDArray[Any]) -> NDArray[Any]:
        """The entries at the codes."""
        found = np.broadcast_to(grid, self.shape).reshape(-1)[np.maximum(self.codes, 0)]
        return found.reshape((*self.shape, self.members) if self.members else self.shape)

    def reach(self, mask: Mask) -> Mask:
        """The codes read."""
        where = np.flatnonzero(np.broadcast_to(mask, self.shape).reshape(-1))
        read = self.codes[where].reshape(-1)
        result = np.zeros(prod(self.shape), dtype=np.bool_)
        result[read[read >= 0]] = True
        return result.reshape(self.shape)


@dataclass(frozen=True, eq=False)
class Through(Read):
    """What a coordinate reads by ``inner``, seen from the coordinates that ``outer`` reads."""

    outer: Read
    inner: Read

    @property
    def members(self) -> int:
        """Those of the outer read: the inner one reads one tensor."""
        return self.outer.members

    @property
    def key(self) -> Hashable:
        """Both keys."""
        return "through", self.outer.key, self.inner.key

    @property
    def axes(self) -> tuple[int, ...]:
        """Those of both."""
        return (*self.outer.axes, *self.inner.axes)

    def gather(self, grid: NDArray[Any]) -> NDArray[Any]:
        """Inner, then outer."""
        return self.outer.gather(self.inner.gather(grid))

    def reach(self, mask: Mask) -> Mask:
        """Outer, then inner."""
        return self.inner.reach(self.outer.reach(mask))


def _at_microbatches(mask: Mask, chosen: Sequence[int], count: int) -> Mask:
    anywhere = mask.any(axis=-1, keepdims=True)
    result = np.zeros((*mask.shape[:-1], count), dtype=np.bool_)
    result[..., list(chosen)] = anywhere
    return result
