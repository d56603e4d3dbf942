"""Comparison, order and hashes of residues as array operations, for every arithmetic on arrays.

>>> import numpy as np
>>> forms = ArrayForms(np, (11, 23))
>>> forms.vanishes(np.array([[0, 0], [0, 5]])).tolist()
[[True, False]]
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Literal

import numpy as np

from pitcheck.algebra.keyed import (
    BLOCK,
    SHORT,
    bulk_keys,
    bulk_words,
    drawn_words,
    hash_words,
    lane_keys,
    mix,
    remainder,
)
from pitcheck.algebra.residues.residue_order import order_key
from pitcheck.algebra.special import codes_of, stand_in
from pitcheck.algebra.value import FINITE

Parity = Literal["odd", "even"]
Output = Literal["any", "nonzero", "words"]
AT_ONCE = 1 << 20
"""The words of a level and trial that are made together, a multiple of those of a block."""
_WORD = 2
"""The levels whose residues, each below 2^31, make one 64-bit word."""


class ArrayForms:
    """Operations beside those of a ring, on arrays (levels, trials, instances, ...).

    ``low`` is the chain level of an array's first entry.
    """

    def __init__(self, xp: Any, members: Sequence[int]) -> None:
        self.xp = xp
        self.members = tuple(members)

    def negate(self, a: Any, low: int) -> Any:
        raise NotImplementedError

    def inverse(self, a: Any, low: int) -> Any:
        raise NotImplementedError

    def residues_of(self, words: Any, domain: str) -> Any:
        raise NotImplementedError

    def drawn(
        self,
        parts: tuple[object, ...],
        trials: Sequence[int],
        instances: int,
        shape: Sequence[int],
        domain: str,
    ) -> Any:
        """Return random residues of shape (all levels, trials, instances, *shape).

        Those of a level and trial are a function of ``parts`` and their numbers alone. Domains are
        those of :meth:`residues_of`. A trial that is asked for several times is drawn once.
        """
        distinct = list(dict.fromkeys(trials))
        if len(distinct) < len(trials):
            once = self.drawn(parts, distinct, instances, shape, domain)
            return once[:, self.xp.asarray([distinct.index(trial) for trial in trials])]
        if instances * prod(shape) > SHORT:
            return self.drawn_in_bulk(parts, trials, instances, shape, domain)
        words = drawn_words(parts, range(len(self.members)), trials, instances, shape)
        return self.residues_of(words, domain)

    def drawn_rows(
        self,
        parts: tuple[object, ...],
        trials: Sequence[int],
        shape: Sequence[int],
        rows: tuple[int, int],
        domain: str,
    ) -> Any:
        """Return the places from ``rows[0]`` to ``rows[1]`` along the first dimension of a draw.

        They are those of :meth:`drawn` for one instance of ``shape``, bit for bit. If words of a
        large draw are asked for from the midst of a block on, all of it is drawn.
        """
        start, stop = rows
        inner = prod(shape[1:])
        if prod(shape) <= SHORT or start * inner % BLOCK:
            return self.drawn(parts, trials, 1, shape, domain)[:, :, :, start:stop]
        own = (stop - start, *shape[1:])
        return self.drawn_in_bulk(parts, trials, 1, own, domain, start * inner)

    def drawn_in_bulk(
        self,
        parts: tuple[object, ...],
        trials: Sequence[int],
        instances: int,
        shape: Sequence[int],
        domain: str,
        first: int = 0,
    ) -> Any:
        """Return a part of a draw of :meth:`drawn` that is too large for SHAKE128.

        ``first``: the number of its first word, a multiple of ``BLOCK``. Words become residues a
        few at a time, so that hardly more than the residues is held.
        """
        keys = bulk_keys(parts, range(len(self.members)), trials)
        count = instances * prod(shape)
        out = self.xp.empty((*keys.shape[:2], count), dtype=np.int64)
        for begin in range(0, count, AT_ONCE):
            few = min(AT_ONCE, count - begin)
            words = bulk_words(keys, few, first + begin)
            out[:, :, begin : begin + few] = self.residues_of(words, domain)
        return out.reshape(*keys.shape[:2], instances, *shape)

    def concatenate(self, arrays: Sequence[Any], axis: int) -> Any:
        """Return arrays of one dtype and equally many axes, concatenated along an array axis."""
        return self.xp.concatenate(arrays, axis=axis)

    def equal(self, a: Any, b: Any) -> Any:
        """Return True where ``a`` and ``b`` agree at all levels, shape (1, ...)."""
        return (a == b).all(axis=0, keepdims=True)

    def differ(self, a: Any, b: Any) -> Any:
        """Return True where ``a`` and ``b`` differ at any level, shape (1, ...)."""
        return (a != b).any(axis=0, keepdims=True)

    def vanishes(self, a: Any) -> Any:
        """Return True where ``a`` is 0 at all levels, shape (1, ...)."""
        return (a == 0).all(axis=0, keepdims=True)

    def order_key(self, top: Any, level: int, special: Any = None, nan_first: bool = False) -> Any:
        """Return the keys by which residues at one level compare, by :func:`order_key`."""
        return order_key(self.xp, top, self.members[level], special, nan_first)

    def inverse_or_one(self, a: Any, low: int) -> tuple[Any, Any]:
        """Return 1/a, with 1 in place of 1/0, and where ``a`` is 0; None if it is nowhere."""
        zero = a == 0
        if not bool(zero.any()):
            return self.inverse(a, low), None
        return self.inverse(self.xp.where(zero, 1, a), low), zero

    def balanced(self, residues: Any, level: int) -> Any:
        """Return residues at one level as integers in [-(p-1)/2, (p-1)/2]."""
        prime = self.members[level]
        return self.xp.where(residues > prime // 2, residues - prime, residues)

    def signless(self, a: Any, low: int, bound: int, special: Any = None) -> Any:
        """Return True where finite numbers are no integers below ``bound``, shape (1, ...).

        Integers agree at all levels. ``special`` has the codes, of the same shape but for levels.
        """
        numbers = [self.balanced(a[i : i + 1], low + i) for i in range(a.shape[0])]
        known = abs(numbers[0]) < bound
        for other in numbers[1:]:
            known = known & (other == numbers[0])
        return ~known if special is None else ~known & (special == FINITE)

    def sign(self, a: Any, low: int) -> Any:
        """Return -1, 0 or 1 by the order of residues, shape (1, ...); 0 if all levels are 0."""
        key = self.order_key(a[-1:], low + a.shape[0] - 1)
        return self.xp.where(self.vanishes(a), 0, self.xp.where(key < 0, -1, 1))

    def stand_ins(self, a: Any, low: int, special: Any) -> Any:
        """Return float64 stand-ins (:func:`pitcheck.algebra.special.stand_in`), shape (1, ...)."""
        return stand_in(self.xp, self.sign(a, low), special)

    def codes_of(self, stand_ins: Any) -> Any:
        """Return the codes of float64 stand-ins, or None if all are finite."""
        return codes_of(self.xp, stand_ins)

    # --- hashes
    def hashed(
        self,
        key: int,
        trials: Sequence[int],
        arguments: Sequence[Any],
        low: int,
        levels: int,
        parity: Parity | None = None,
    ) -> Any:
        """Return keyed random residues of arguments, shape (levels, trials, instances, *shape).

        Arguments are arrays of one rank whose residues at their two highest levels count, or
        int64 words at one level. With a parity the only argument is taken as x or -x, and the
        result of an odd function is negated, and 0 at 0.
        """
        turned, negative = self._turned(arguments, low, parity)
        lanes = self._lanes(key, trials, low, levels, turned[0].ndim)
        words = [word for x in turned for word in joint_words(x[-_WORD:])]
        start = self.xp.zeros((1,) * lanes.ndim, dtype=np.uint64)
        state = mix(self.xp, hash_words(self.xp, start, words) ^ lanes)
        return self._signed(self._residues(state, low), turned, negative, low, parity)

    def entries(
        self,
        key: int,
        trials: Sequence[int],
        arguments: Sequence[Any],
        parity: Parity | None = None,
        output: Output = "any",
    ) -> Any:
        """Return entries of a table, shape (levels, trials, instances, *shape).

        Arguments are arrays of one rank, at all levels of the chain; residues of all of them
        count. The output is residues, nonzero ones, or 64-bit words. A parity is that of
        :meth:`hashed`.
        """
        turned, negative = self._turned(arguments, 0, parity)
        lanes = self._lanes(key, trials, 0, len(self.members), turned[0].ndim)
        words = hash_words(self.xp, lanes, [word for x in turned for word in joint_words(x)])
        if output == "words":
            return words
        found = self._nonzero(words) if output == "nonzero" else self._residues(words, 0)
        return self._signed(found, turned, negative, 0, parity)

    def _lanes(self, key: int, trials: Sequence[int], low: int, levels: int, ndim: int) -> Any:
        lanes = lane_keys(self.xp, key, range(low, low + levels), trials)
        return lanes.reshape(lanes.shape + (1,) * (ndim - 2))

    def _turned(
        self, arguments: Sequence[Any], low: int, parity: Parity | None
    ) -> tuple[list[Any], Any]:
        """Return the arguments, those below 0 negated, and where they are below 0."""
        if parity is None:
            return list(arguments), None
        (x,) = arguments
        negative = self.order_key(x[-1:], low + x.shape[0] - 1) < 0
        return [self.xp.where(negative, self.negate(x, low), x)], negative

    def _signed(
        self, found: Any, turned: Sequence[Any], negative: Any, low: int, parity: Parity | None
    ) -> Any:
        if parity != "odd":
            return found
        signed = self.xp.where(negative, self.negate(found, low), found)
        return self.xp.where(self.vanishes(turned[0]), 0, signed)

    def _residues(self, words: Any, low: int) -> Any:
        return remainder(words, self._divisors(words, low)).view(np.int64)

    def _nonzero(self, words: Any) -> Any:
        one = np.uint64(1)
        return (remainder(words, self._divisors(words, 0) - one) + one).view(np.int64)

    def _divisors(self, words: Any, low: int) -> Any:
        primes = self.xp.asarray(self.members[low : low + words.shape[0]], dtype=np.uint64)
        return primes.reshape((-1,) + (1,) * (words.ndim - 1))


def joint_words(data: Any) -> list[Any]:
    """Return 64-bit words of shape (1, ...) that hold the residues at all levels, two in each."""
    words = []
    for level in range(0, data.shape[0], _WORD):
        word = data[level : level + 1].view(np.uint64)
        if level + 1 < data.shape[0]:
            word = word | (data[level + 1 : level + _WORD].view(np.uint64) << np.uint64(32))
        words.append(word)
    return words
