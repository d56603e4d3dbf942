"""Reads: from which coordinates an operand is read, at every coordinate."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.graph.grids import Codes, Home, Mask, Shape, far, near

_MOST_KEPT = 4096
"""The number of masks for which a read keeps what it reaches from them."""


@dataclass(frozen=True, eq=False)
class Read:
    """The coordinates from which a coordinate reads; ``shape`` is that of all coordinates."""

    shape: Shape

    @property
    def members(self) -> int:
        """Return how many tensors are stacked, 0 if one is read as it is."""
        return 0

    @property
    def key(self) -> Hashable:
        """Return a key that is equal for reads of the same coordinates."""
        raise NotImplementedError

    @property
    def axes(self) -> tuple[int, ...]:
        """Return the dimensions along which it may leave the reader's coordinate."""
        return tuple(range(len(self.shape)))

    def gather(self, grid: NDArray[Any]) -> NDArray[Any]:
        """Return what is read of a grid at every coordinate: a grid.

        It has one more dimension, the last, for the members of a stack.
        """
        raise NotImplementedError

    def reach(self, mask: Mask) -> Mask:
        """Return the coordinates that are read from the coordinates of ``mask``."""
        raise NotImplementedError

    @cached_property
    def _reached(self) -> dict[int, tuple[Mask, Mask]]:
        """Return the masks that were reached from whole nodes."""
        return {}

    def reach_of_all(self, mask: Mask) -> Mask:
        """Return the same as ``reach``, for the mask of a whole node, and keep it.

        Many nodes share a mask as one object and read the same way.
        """
        found = self._reached.get(id(mask))
        if found is None:
            if len(self._reached) >= _MOST_KEPT:
                self._reached.clear()
            # The mask is kept: another one in its place in memory would have its identity.
            found = self._reached[id(mask)] = mask, self.reach(mask)
        return found[1]

    def at(self, codes: Codes) -> Codes:
        """Return the codes read at some codes, shape (n,) or (n, members)."""
        found: Codes = self.table[codes]
        return found

    @cached_property
    def table(self) -> Codes:
        """Return the codes read at every code, shape (codes,) or (codes, members)."""
        codes = np.arange(prod(self.shape), dtype=np.int64).reshape(self.shape)
        found = self.gather(codes)
        shape = (*self.shape, self.members) if self.members else self.shape
        return (
            np.broadcast_to(found, shape).reshape(-1, self.members)
            if self.members
            else np.broadcast_to(found, shape).reshape(-1)
        )


class _AlongMicrobatches(Read):
    """A read of other micro-batches of the same rank."""

    @property
    def axes(self) -> tuple[int, ...]:
        """Return the dimension of micro-batches."""
        return (len(self.shape) - 1,)


class Once(_AlongMicrobatches):
    """A read of a tensor that exists once, in every micro-batch."""

    @property
    def key(self) -> Hashable:
        """Return the key: there is one such read."""
        return "once"

    def gather(self, grid: NDArray[Any]) -> NDArray[Any]:
        """Return the entry of micro-batch 0."""
        return grid[..., :1]

    def reach(self, mask: Mask) -> Mask:
        """Return the same ranks; the micro-batch does not matter."""
        return np.asarray(mask.any(axis=-1, keepdims=True))


@dataclass(frozen=True, eq=False)
class OfMicrobatch(_AlongMicrobatches):
    """A read of the tensor of one given micro-batch."""

    microbatch: int

    @property
    def key(self) -> Hashable:
        """Return the micro-batch."""
        return "microbatch", self.microbatch

    def gather(self, grid: NDArray[Any]) -> NDArray[Any]:
        """Return the entry of the micro-batch."""
        return grid if grid.shape[-1] == 1 else grid[..., self.microbatch : self.microbatch + 1]

    def reach(self, mask: Mask) -> Mask:
        """Return the same ranks, at the micro-batch."""
        return _at_microbatches(mask, [self.microbatch], self.shape[-1])


@dataclass(frozen=True, eq=False)
class OverMicrobatches(_AlongMicrobatches):
    """A read of a stack of the tensors of several micro-batches."""

    chosen: tuple[int, ...]

    @property
    def members(self) -> int:
        """Return the number of micro-batches."""
        return len(self.chosen)

    @property
    def key(self) -> Hashable:
        """Return the micro-batches."""
        return "microbatches", self.chosen

    def gather(self, grid: NDArray[Any]) -> NDArray[Any]:
        """Return the entries of the micro-batches."""
        dense = np.broadcast_to(grid, (*grid.shape[:-1], self.shape[-1]))
        return dense[..., None, list(self.chosen)]

    def at(self, codes: Codes) -> Codes:
        """Return the codes of the same ranks at those micro-batches, shape (n, members)."""
        count = self.shape[-1]
        return (codes // count * count)[:, None] + np.array(self.chosen, dtype=np.int64)

    def reach(self, mask: Mask) -> Mask:
        """Return the same ranks, at all those micro-batches."""
        return _at_microbatches(mask, self.chosen, self.shape[-1])


@dataclass(frozen=True, eq=False)
class _AlongGroups(Read):
    """A read of a stack with a member for every rank of groups along mesh dimensions ``over``."""

    over: tuple[int, ...]

    @property
    def axes(self) -> tuple[int, ...]:
        """Return the dimensions of the group."""
        return self.over

    @property
    def members(self) -> int:
        """Return the number of ranks of a group."""
        return prod(self.shape[axis] for axis in self.over)


class OverGroup(_AlongGroups):
    """A read of a stack over the members of groups along mesh dimensions, row-major."""

    @property
    def key(self) -> Hashable:
        """Return the dimensions."""
        return "group", self.over

    def gather(self, grid: NDArray[Any]) -> NDArray[Any]:
        """Return the entries of the members."""
        full = np.broadcast_to(
            grid, [self.shape[d] if d in self.over else size for d, size in enumerate(grid.shape)]
        )
        others = [d for d in range(grid.ndim) if d not in self.over]
        moved = full.transpose((*others, *self.over))
        kept = [1 if d in self.over else size for d, size in enumerate(grid.shape)]
        return moved.reshape((*kept, self.members))

    def at(self, codes: Codes) -> Codes:
        """Return the codes of the members, shape (n, members), without looking at all groups."""
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
        """Return all members of the groups that a coordinate of the mask is in."""
        return np.asarray(mask.any(axis=self.over, keepdims=True))


@dataclass(frozen=True, eq=False)
class OverRoot(_AlongGroups):
    """A read of a stack over groups in which every member stands for the root.

    The groups go along mesh dimensions ``over``; the root is at places ``root`` along them.
    """

    root: tuple[int, ...]

    @property
    def _home(self) -> Home:
        """Return the places of the root."""
        return tuple(zip(self.over, self.root, strict=True))

    @property
    def key(self) -> Hashable:
        """Return the dimensions and the root."""
        return "root", self.over, self.root

    def gather(self, grid: NDArray[Any]) -> NDArray[Any]:
        """Return the entry of the root, for every member."""
        grid = near(grid, self._home)
        return np.broadcast_to(grid[..., None], (*grid.shape, self.members))

    def at(self, codes: Codes) -> Codes:
        """Return the code of the root, for every member, shape (n, members)."""
        places = list(np.unravel_index(codes, self.shape))
        for axis, place in zip(self.over, self.root, strict=True):
            places[axis] = np.full_like(places[axis], place)
        return np.repeat(
            np.ravel_multi_index(tuple(places), self.shape).astype(np.int64)[:, None],
            self.members,
            axis=1,
        )

    def reach(self, mask: Mask) -> Mask:
        """Return the roots of the groups that a coordinate of the mask is in."""
        anywhere = np.asarray(mask.any(axis=self.over, keepdims=True))
        return far(anywhere, self._home, self.shape, False)


@dataclass(frozen=True, eq=False)
class OverListed(_AlongGroups):
    """A read of a stack over the members of listed groups.

    These leave a coordinate along dimensions ``over`` alone, and for all others are the same.
    ``listed``: for every place along ``over``, row-major, the places of the members, shape (places,
    members); -1 if nothing is read.
    """

    listed: Codes

    @property
    def members(self) -> int:
        """Return the number of ranks of a group."""
        return int(self.listed.shape[1])

    @property
    def key(self) -> Hashable:
        """Return the dimensions and the places."""
        return "listed", self.over, self.listed.shape, self.listed.tobytes()

    def gather(self, grid: NDArray[Any]) -> NDArray[Any]:
        """Return the entries of the members."""
        moved, back, sizes = self._moved(grid)
        found = moved[..., np.maximum(self.listed, 0)].reshape((*sizes, self.members))
        return found.transpose((*back, grid.ndim))

    def reach(self, mask: Mask) -> Mask:
        """Return all members of the groups that a coordinate of the mask is in."""
        moved, back, sizes = self._moved(mask)
        result = np.zeros(moved.shape, dtype=np.bool_)
        for place, members in enumerate(self.listed):
            for member in members[members >= 0]:
                result[..., member] |= moved[..., place]
        return result.reshape(sizes).transpose(back)

    def _moved(self, grid: NDArray[Any]) -> tuple[NDArray[Any], list[int], list[int]]:
        """Return a grid with the groups' dimensions as one at the end.

        Returns:
            The grid; the order that undoes the move; the sizes in between.
        """
        order = [*(d for d in range(grid.ndim) if d not in self.over), *self.over]
        full = np.broadcast_to(
            grid, [self.shape[d] if d in self.over else size for d, size in enumerate(grid.shape)]
        ).transpose(order)
        sizes = list(full.shape)
        return full.reshape((*sizes[: -len(self.over)], -1)), np.argsort(order).tolist(), sizes


@dataclass(frozen=True, eq=False)
class FromPlaces(Read):
    """A read of the tensor at another coordinate along mesh dimension ``axis``.

    At coordinate i along it, that is the one of ``places[i]`` (-1: none is read there).
    """

    axis: int
    places: tuple[int, ...]

    @property
    def key(self) -> Hashable:
        """Return the dimension and the places."""
        return "places", self.axis, self.places

    @property
    def axes(self) -> tuple[int, ...]:
        """Return the dimension."""
        return (self.axis,)

    def gather(self, grid: NDArray[Any]) -> NDArray[Any]:
        """Return the entries there."""
        return (
            grid
            if grid.shape[self.axis] == 1
            else np.take(grid, np.maximum(self.places, 0), axis=self.axis)
        )

    def reach(self, mask: Mask) -> Mask:
        """Return the coordinates there."""
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
    """A read of any coordinates at all.

    ``codes`` has a code, or a row of codes that are stacked, for every code (-1: nothing is read).
    """

    codes: Codes

    @property
    def members(self) -> int:
        """Return the number of codes in a row, 0 for a single one."""
        return self.codes.shape[1] if self.codes.ndim == 2 else 0

    @property
    def key(self) -> Hashable:
        """Return the codes."""
        return "codes", self.codes.shape, self.codes.tobytes()

    def gather(self, grid: NDArray[Any]) -> NDArray[Any]:
        """Return the entries at the codes."""
        found = np.broadcast_to(grid, self.shape).reshape(-1)[np.maximum(self.codes, 0)]
        return found.reshape((*self.shape, self.members) if self.members else self.shape)

    def reach(self, mask: Mask) -> Mask:
        """Return the codes read."""
        where = np.flatnonzero(np.broadcast_to(mask, self.shape).reshape(-1))
        read = self.codes[where].reshape(-1)
        result = np.zeros(prod(self.shape), dtype=np.bool_)
        result[read[read >= 0]] = True
        return result.reshape(self.shape)


@dataclass(frozen=True, eq=False)
class Through(Read):
    """A read by ``inner``, seen from the coordinates that ``outer`` reads."""

    outer: Read
    inner: Read

    @property
    def members(self) -> int:
        """Return those of the outer read: the inner one reads one tensor."""
        return self.outer.members

    @property
    def key(self) -> Hashable:
        """Return both keys."""
        return "through", self.outer.key, self.inner.key

    @property
    def axes(self) -> tuple[int, ...]:
        """Return the dimensions of both."""
        return (*self.outer.axes, *self.inner.axes)

    def gather(self, grid: NDArray[Any]) -> NDArray[Any]:
        """Return what ``inner`` and then ``outer`` gather."""
        return self.outer.gather(self.inner.gather(grid))

    def reach(self, mask: Mask) -> Mask:
        """Return what ``outer`` and then ``inner`` reach."""
        return self.inner.reach(self.outer.reach(mask))


def _at_microbatches(mask: Mask, chosen: Sequence[int], count: int) -> Mask:
    """Return the ranks of a mask at some micro-batches."""
    anywhere = mask.any(axis=-1, keepdims=True)
    result = np.zeros((*mask.shape[:-1], count), dtype=np.bool_)
    result[..., list(chosen)] = anywhere
    return result
