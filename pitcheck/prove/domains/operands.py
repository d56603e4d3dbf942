"""The operands of guards: what a plan divides by, and takes logarithms and roots of, in some draws.

>>> first, second = (Operand("parallel 0 div", {0: np.array([place])}) for place in (3, 5))
>>> together([first, second]).places
{0: array([3, 5])}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.backend import to_host
from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.algebra.value import Value
from pitcheck.prove.domains.guard_factors import Class

Words = NDArray[np.int64]
Bools = NDArray[np.bool_]
Elements = NDArray[np.int64]
"""The compared elements that need something, as flat places in ascending order."""

BITS = 31
"""The bits of a residue. An operand's word has a residue, or two, the upper level's below."""
UPPER = (1 << BITS) - 1
"""The bits of the upper residue."""


@dataclass(frozen=True, eq=False)
class Guard:
    """A guard, by its number among all, with its operand in every draw.

    ``words`` and ``finite`` have shape (draws, instances, *shape). NaN and infinity have no word.
    """

    number: int
    site: str
    what: str
    words: Words
    finite: Bools

    def operands(self, draw: int) -> Words:
        """Return the words of the different operands of a draw."""
        return np.unique(self.words[draw][self.finite[draw]])

    def has(self, draw: int, word: int) -> bool:
        """Return True if some operand of a draw has a word."""
        return bool(((self.words[draw] == word) & self.finite[draw]).any())

    def places(self, draw: int) -> dict[Class, Words]:
        """Return the different operands of a draw, each with the flat places where it stands."""
        finite = np.flatnonzero(self.finite[draw])
        words = self.words[draw].ravel()[finite]
        different, which, counts = np.unique(words, return_inverse=True, return_counts=True)
        parts = np.split(finite[np.argsort(which, kind="stable")], np.cumsum(counts))[:-1]
        return {(self.what, w): part for w, part in zip(different.tolist(), parts, strict=True)}


@dataclass(frozen=True)
class Operand:
    """One operand of a draw: the site of its first guard, and where it stands.

    ``places`` has flat places by the number of a guard.
    """

    site: str
    places: dict[int, Words]

    @cached_property
    def key(self) -> bytes:
        """Return what is the same in two draws if the operand stands in the same places."""
        hashed = blake2b(digest_size=16)
        for number, places in self.places.items():
            hashed.update(np.array([number, places.size]).tobytes() + places.tobytes())
        return hashed.digest()


def together(operands: Sequence[Operand]) -> Operand:
    """Return several operands as one, which stands where any of them does."""
    places: dict[int, list[Words]] = {}
    for operand in operands:
        for number, own in operand.places.items():
            places.setdefault(number, []).append(own)
    return Operand(
        operands[0].site, {number: np.concatenate(own) for number, own in places.items()}
    )


def residue(word: int) -> int:
    """Return the upper residue of a word."""
    return word & UPPER


def elements_of(operand: Operand) -> frozenset[tuple[int, int]]:
    """Return where an operand stands: numbers of a guard and flat places."""
    return frozenset(
        (number, place) for number, places in operand.places.items() for place in places.tolist()
    )


def guards_of(algebra: ResidueAlgebra) -> tuple[int, list[Guard], int]:
    """Return the prime of the upper residues, all guards of an evaluation, and their levels.

    Words are of the upper levels that all operands have. If they have none in common, each has the
    word of its own upper level, and equals only those of that level.
    """
    spans = [(v.lowest, v.lowest + int(v.data.shape[0])) for _, _, v in algebra.guarded]
    low, stop = max(low for low, _ in spans), min(stop for _, stop in spans)
    found = []
    for number, (site, what, value) in enumerate(algebra.guarded):
        own = (low, stop) if low < stop else (value.lowest, spans[number][1])
        words, finite = _words(algebra, value, *own)
        if low >= stop:
            words = words | (np.int64(own[1]) << 2 * BITS)
        found.append(Guard(number, site, what, words, finite))
    return algebra.chain.primes[stop - 1], found, stop - low


def _words(algebra: ResidueAlgebra, value: Value, low: int, stop: int) -> tuple[Words, Bools]:
    """Return the words of all elements at levels from ``low`` to before ``stop``.

    Returns:
        The words and where they stand for finite numbers, both of shape (draws, instances, *shape).
    """
    data = to_host(algebra.xp, value.data)
    words = data[stop - 1 - value.lowest]
    if stop - low > 1:
        words = words | (data[stop - 2 - value.lowest] << BITS)
    special = np.uint8(0) if value.special is None else to_host(algebra.xp, value.special)[0]
    words, special = np.broadcast_arrays(words, special)
    shape = (len(algebra.trials), *words.shape[1:])
    return np.broadcast_to(words, shape), np.broadcast_to(special == 0, shape)
