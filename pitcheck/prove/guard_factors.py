"""Guards that follow from others: a product of numbers that are not 0 is not 0, nor is a factor.

>>> prime = 2147483647
>>> (0, 1) in discharging(("div", 1900 * 1700), [("div", 1900), ("div", 1700)], Known(prime))
True
>>> known = Known(prime, defined={1700})
>>> list(discharging(("div", 1900), [("div", 1900 * 1700)], known))
[(0,)]
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

Class = tuple[str, int]
"""A guard: its operation ("div", "log", "sqrt" or the name of a function), and its operand."""

AS_STRONG = {"div": ("div", "log"), "sqrt": ("sqrt", "log")}
"""The operations that have no value where the key has none; others have themselves alone. A
logarithm is taken of numbers that are neither 0 nor negative.
"""
NUMBERS = 16
"""The integers up to which, and up to whose inverses, a guard may be a multiple of another."""
MOST_IN_THREES = 32
"""The guards up to which products of three are looked at."""


@dataclass(frozen=True)
class Known:
    """The residues, modulo ``prime``, of numbers about which something is known.

    ``positive``: the guards that are positive by construction. ``defined``: operands in the
    parallel plan that have a value whatever the inputs are.
    """

    prime: int
    positive: Collection[Class] = ()
    defined: Collection[int] = ()

    def units(self, what: str) -> set[int]:
        """Return the factors that change nothing about the domain of an operation."""
        own = {operand for kind, operand in self.positive if kind in as_strong(what)}
        own |= set(range(1, NUMBERS + 1))
        own |= {pow(each, -1, self.prime) for each in own if each}
        return own | ({-each % self.prime for each in own} if what == "div" else set())


def as_strong(what: str) -> tuple[str, ...]:
    """Return the operations that have no value of a number of which ``what`` has none."""
    return AS_STRONG.get(what, (what,))


def discharging(own: Class, given: Sequence[Class], known: Known) -> Iterator[tuple[int, ...]]:
    """Yield sets of ``given`` guards; where all of one hold, the guard ``own`` holds.

    Operands are residues modulo the prime. Numbers that are equal by chance are found in one draw
    and not in the next.
    """
    what, operand = own
    if what not in SIGNED or operand == 0:
        return
    prime = known.prime
    places = {
        residue: place
        for place, (kind, residue) in enumerate(given)
        if kind in as_strong(what) and residue
    }
    inverse = pow(operand, -1, prime)
    for unit in known.units(what):
        if (place := places.get(operand * unit % prime)) is not None:
            yield (place,)
    signs = (1, -1) if what == "div" else (1,)
    rest = {residue: operand * pow(residue, -1, prime) % prime for residue in places}
    for first, left in rest.items():
        for sign in signs:
            if (second := sign * left % prime) in places:
                yield places[first], places[second]
            if what == "div" and sign * first * inverse % prime in {operand, *known.defined}:
                yield (places[first],)
    if len(places) <= MOST_IN_THREES:
        for first, left in rest.items():
            for second, place in places.items():
                for sign in signs:
                    third = sign * left * pow(second, -1, prime) % prime
                    if third in places:
                        yield places[first], place, places[third]


SIGNED = ("div", "log", "sqrt")
"""The operations that a product has if all of its factors have them."""
