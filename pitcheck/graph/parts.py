"""Parts of a reference value: boxes and terms of sums, as columns.

Hundreds of thousands of parts may differ in a few intervals per dimension.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.keyed import key_of, mix

Ints = NDArray[np.int64]
Interval = tuple[int, int]
Box = tuple[tuple[Interval, ...], ...]
"""The intervals whose concatenation is the local dimension, per dimension of the reference. (-1, n)
are n free elements, (-2, n) n zeros.
"""

FREE, ZERO = -1, -2
"""The begin of an interval of free elements of padding, and of one of zeros."""


@dataclass(frozen=True)
class Part:
    """A box of the reference value, or term number ``term`` of ``terms`` that add up to it.

    ``owner`` distinguishes the free padding of different ranks.
    """

    box: Box
    term: int = 0
    terms: int = 1
    owner: int = -1


class Parts(Sequence[Part]):
    """The different parts of a cut.

    ``intervals``: per dimension the different lists of intervals, in the order of first use.
    ``which``: the list that a part has, shape (parts, dimensions). ``term``, ``terms`` and
    ``owner`` have shape (parts,).
    """

    def __init__(self, parts: Iterable[Part]) -> None:
        given = list(parts)
        numbers: list[dict[tuple[Interval, ...], int]] = [
            {} for _ in (given[0].box if given else ())
        ]
        rows = [
            [
                own.setdefault(intervals, len(own))
                for own, intervals in zip(numbers, part.box, strict=True)
            ]
            for part in given
        ]
        self.intervals = tuple(tuple(own) for own in numbers)
        self.which: Ints = np.array(rows, dtype=np.int64).reshape(len(given), len(numbers))
        self.term: Ints = np.array([part.term for part in given], dtype=np.int64)
        self.terms: Ints = np.array([part.terms for part in given], dtype=np.int64)
        self.owner: Ints = np.array([part.owner for part in given], dtype=np.int64)

    @classmethod
    def of(
        cls,
        intervals: Sequence[Sequence[tuple[Interval, ...]]],
        index: Ints,
        term: Ints,
        terms: int,
        owner: Ints,
    ) -> Parts:
        """Return parts from columns.

        The intervals of a dimension are all different, in any order, and need not all be used.
        """
        result = cls(())
        used = [distinct_rows([index[:, dim]]) for dim in range(index.shape[1])]
        result.intervals = tuple(
            tuple(own[number] for number in index[first, dim].tolist())
            for dim, (own, (first, _)) in enumerate(zip(intervals, used, strict=True))
        )
        result.which = np.stack([which for _, which in used], axis=1) if used else index
        result.term, result.owner = term, owner
        result.terms = np.full(len(index), terms, dtype=np.int64)
        return result

    def __len__(self) -> int:
        return len(self.term)

    @overload
    def __getitem__(self, number: int) -> Part: ...

    @overload
    def __getitem__(self, number: slice) -> tuple[Part, ...]: ...

    def __getitem__(self, number: int | slice) -> Part | tuple[Part, ...]:
        if isinstance(number, slice):
            return tuple(self[own] for own in range(*number.indices(len(self))))
        box = tuple(
            own[which]
            for own, which in zip(self.intervals, self.which[number].tolist(), strict=True)
        )
        return Part(box, int(self.term[number]), int(self.terms[number]), int(self.owner[number]))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Parts):
            return NotImplemented
        if self is other:
            return True
        return self.intervals == other.intervals and all(
            np.array_equal(a, b) for a, b in zip(self._arrays, other._arrays, strict=True)
        )

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def _arrays(self) -> tuple[Ints, ...]:
        return self.which, self.term, self.terms, self.owner

    def owned(self, numbers: Ints, owner: Ints) -> Parts:
        """Return some of the parts, each with an owner."""
        result = Parts.of(self.intervals, self.which[numbers], self.term[numbers], 1, owner)
        result.terms = self.terms[numbers]
        return result

    @property
    def lengths(self) -> list[Ints]:
        """Return per dimension the number of elements of every list of intervals."""
        return [
            np.array([sum(length(i) for i in own) for own in column], dtype=np.int64)
            for column in self.intervals
        ]

    @property
    def shapes(self) -> Ints:
        """Return the local shape of every part, shape (parts, dimensions)."""
        lengths = [own[self.which[:, dim]] for dim, own in enumerate(self.lengths)]
        return np.stack(lengths, axis=1) if lengths else np.zeros((len(self), 0), dtype=np.int64)

    def begins(self, dim: int) -> Ints | None:
        """Return where every part begins along one dimension, shape (parts,).

        Return None if a part is no single interval there, or is padding.
        """
        if dim not in self._begins:
            column = self.intervals[dim]
            single = all(len(i) == 1 and i[0][0] >= 0 for i in column)
            self._begins[dim] = (
                np.array([i[0][0] for i in column], dtype=np.int64)[self.which[:, dim]]
                if single
                else None
            )
        return self._begins[dim]

    @cached_property
    def _begins(self) -> dict[int, Ints | None]:
        return {}

    @cached_property
    def _words(self) -> dict[tuple[int, tuple[int, ...]], NDArray[np.uint64]]:
        return {}

    def others(self, dim: int) -> Ints:
        """Return numbers of the parts, shape (parts,): equal if all but one dimension is."""
        columns = np.delete(self.which, dim, axis=1).T
        return distinct_rows([*columns, self.term, self.terms, self.owner])[1]

    def words(self, without: tuple[int, ...], seed: int) -> NDArray[np.uint64]:
        """Return a 64-bit hash of every part without some dimensions, shape (parts,).

        ``seed`` keys it: no plan can be made so that two of its parts collide.
        """
        known = seed, without
        if known not in self._words:
            total = np.zeros(len(self), dtype=np.uint64)
            kept = [dim for dim in range(len(self.intervals)) if dim not in without]
            for place, dim in enumerate(kept):
                keys = [key_of(seed, place, i) for i in self.intervals[dim]]
                total += mix(np, np.array(keys, dtype=np.uint64)[self.which[:, dim]])
            for name, column in (("term", self.term), ("terms", self.terms), ("owner", self.owner)):
                key = np.uint64(key_of(seed, name, len(kept)) | 1)
                total += mix(np, column.astype(np.uint64) * np.uint64(2) + key)
            # Sums of these words over parts must not be sums of words of dimensions, so the last
            # step is not linear.
            self._words[known] = mix(np, total)
        return self._words[known]

    @cached_property
    def digest(self) -> bytes:
        """Return bytes that are equal for equal parts."""
        found = hashlib.blake2b(repr((len(self), self.intervals)).encode(), digest_size=16)
        for column in self._arrays:
            found.update(np.ascontiguousarray(column).tobytes())
        return found.digest()

    # --- which boxes are held

    def complete(self, numbers: Ints) -> Ints:
        """Return one of the parts ``numbers`` for every box of which all terms are among them."""
        if not len(numbers):
            return numbers
        boxes, of = distinct_rows([column[numbers] for column in self.which.T] or [numbers * 0])
        present, _ = distinct_rows([of, self.term[numbers]])
        counts = np.bincount(of[present], minlength=len(boxes))
        found: Ints = numbers[boxes[counts == int(self.terms.max())]]
        return found

    def marked(self, numbers: Ints) -> list[list[tuple[tuple[Interval, ...], bool]]]:
        """Return per dimension the different lists of intervals, and if one of the parts has it."""
        found = []
        for dim, column in enumerate(self.intervals):
            used = np.zeros(len(column), dtype=np.bool_)
            used[self.which[numbers, dim]] = True
            found.append(list(zip(column, used.tolist(), strict=True)))
        return found

    def used(self, numbers: Ints) -> list[list[Interval]]:
        """Return per dimension the intervals that the parts ``numbers`` have, without padding."""
        return [
            [i for intervals, used in column if used for i in intervals if i[0] >= 0]
            for column in self.marked(numbers)
        ]


def distinct_rows(columns: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Return the distinct rows of columns of one length, in the order of first appearance.

    Returns:
        The place of the first of every distinct row; which of these every row is.
    """
    which = np.zeros(len(columns[0]), dtype=np.int64)
    first = np.zeros(min(len(which), 1), dtype=np.int64)
    for column in columns:
        if len(column) and (column != column[0]).any():
            low = int(column.min())
            # Numbers of different rows are below their count: the product is far below 2^63.
            _, numbers = np.unique(column - low, return_inverse=True)
            _, first, which = np.unique(
                which * (int(numbers.max()) + 1) + numbers, return_index=True, return_inverse=True
            )
    order = np.argsort(first, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return first[order].astype(np.int64), place[which.reshape(-1)]


def length(interval: Interval) -> int:
    """Return the number of elements of an interval."""
    start, stop = interval
    return stop if start < 0 else stop - start
