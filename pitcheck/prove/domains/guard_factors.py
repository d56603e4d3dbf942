"""Guards that follow from others: a product of numbers that are not 0 is not 0, nor is a factor.

>>> prime = 2147483647
>>> (0, 1) in discharging(("div", 1900 * 1700), [("div", 1900), ("div", 1700)], Known(prime))
True
>>> known = Known(prime, defined={1700})
>>> list(discharging(("div", 1900), [("div", 1900 * 1700)], known))
[(0,)]
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
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


SIGNED = ("div", "log", "sqrt")
"""The operations that have a value of a product if they have one of each factor."""


@dataclass(frozen=True)
class Known:
    """The residues, modulo ``prime``, of numbers about which something is known.

    ``positive``: the guards that are positive by construction. ``defined``: operands in the
    parallel plan that have a value whatever the inputs are.
    """

    prime: int
    positive: Collection[Class] = ()
    defined: Collection[int] = ()

    def constants(self, what: str) -> set[int]:
        """Return small numbers and their inverses, of which an operation has a value."""
        own = {*range(1, NUMBERS + 1)}
        own |= {pow(each, -1, self.prime) for each in own}
        return own | ({-each % self.prime for each in own} if what == "div" else set())

    def factors(self, what: str) -> set[int]:
        """Return the numbers *c* for which an operation that has a value of r has one of r / c."""
        own = {operand for kind, operand in self.positive if kind in as_strong(what) and operand}
        inverse = {pow(each, -1, self.prime) for each in own}
        # From r c nothing follows for r / c with c = 0: a root is taken of 0, too.
        both = inverse if what == "sqrt" else own | inverse
        signed = both | ({-each % self.prime for each in both} if what == "div" else set())
        return signed | self.constants(what)


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
    for factor in known.factors(what):
        if (place := places.get(operand * factor % prime)) is not None:
            yield (place,)
    signs = (1, -1) if what == "div" else (1,)
    for first, place in places.items():
        left = operand * pow(first, -1, prime) % prime
        for sign in signs:
            if (second := sign * left % prime) in places:
                yield place, places[second]
            if what != "sqrt" and (second := sign * pow(left, -1, prime) % prime) in places:
                yield place, places[second]
        if what == "div" and _is_product(pow(left, -1, prime), operand, known):
            yield (place,)
    if len(places) <= MOST_IN_THREES:
        yield from _in_threes(operand, places, signs, prime)


def _is_product(rest: int, operand: int, known: Known) -> bool:
    """Return True if a number is, but for its sign, one or two numbers that are defined."""
    prime, defined = known.prime, {operand, *known.defined} - {0}
    inverses = (pow(each, -1, prime) for each in defined)
    return (
        rest in defined
        or -rest % prime in defined
        or any(sign * rest * each % prime in defined for each in inverses for sign in (1, -1))
    )


def _in_threes(
    operand: int, places: Mapping[int, int], signs: Sequence[int], prime: int
) -> Iterator[tuple[int, ...]]:
    """Yield the guards whose product is the operand, or with another sign if there are two."""
    inverses = {residue: pow(residue, -1, prime) for residue in places}
    for first, inverse in inverses.items():
        for second, place in places.items():
            for sign in signs:
                third = sign * operand * inverse * inverses[second] % prime
                if third in places:
                    yield places[first], place, places[third]
