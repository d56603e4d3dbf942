"""Functions without their algebra, and the exponential with the one law that needs no chain.

Here exp, log, sqrt, maximum and named functions are tables of random residues. Equal arguments give
equal values, and different arguments values that have nothing to do with each other. What holds for
all tables holds for the functions of real numbers, and the error of one draw is a theorem:
``docs/mathematics.md`` proves it. A table is keyed by the residues of its arguments at all levels
together, and its values at different levels are independent. So nothing ties the primes of a draw
to each other, and no function spends a level.

Some laws are kept, because real functions have them:

- exp(a - b) = exp(a) / exp(b), exp(-a) = 1 / exp(a), and exp(n a) = exp(a)^n for literal integers.
  A value remembers the differences of which it is made (``Value.parts``). Sums of two plain values
  are not split, nor are sums along an axis: the other side may have added up otherwise.
- exp(log(S)) = S, by formal logarithms. A logarithm that is used otherwise is one function of its
  exponential.
- sqrt(q)^2 = q, for q that cannot be negative, by formal roots. Roots of numbers are residues if
  the primes allow it.
- exp(0) = 1, log(1) = 0, sqrt(0) = 0; the maximum of equal numbers is that number. A sum of which
  one term is not 0 is that term.

Comparisons are functions, too (:mod:`pitcheck.algebra.residues.free_outcomes`), and so are orders
along an axis: their tables hold permutations. Nothing else may depend on the order of residues: it
raises ``UnsupportedError``.

>>> import numpy as np
>>> from pitcheck.algebra.residues.chains import Chain
>>> algebra = FreeAlgebra(np, Chain((1000003, 999983), linked=False), seed=1, trials=(0, 1))
>>> x, y = algebra.fresh("x", (3,)), algebra.fresh("y", (3,))
>>> quotient = algebra.divide(algebra.exp(x), algebra.exp(y))
>>> bool(algebra.differs(algebra.exp(algebra.subtract(x, y)), quotient).any())
False
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from pitcheck.algebra.interface import Kind
from pitcheck.algebra.keyed import hash_words, key_of, lane_keys, mix
from pitcheck.algebra.residues.array_forms import Output, Parity, joint_words
from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.algebra.residues.drawn_primes import SQUARES
from pitcheck.algebra.residues.free_outcomes import (
    ASCENDING,
    DESCENDING,
    FreeOutcomes,
    finite,
    of_order,
)
from pitcheck.algebra.residues.weights import WeightedAlgebra
from pitcheck.algebra.shape_checks import broadcast
from pitcheck.algebra.structure import aligned
from pitcheck.algebra.value import (
    FINITE,
    LEADING,
    NAN,
    NEGATIVE_INFINITY,
    POSITIVE_INFINITY,
    Value,
)

Parts = tuple[tuple[int, Value], ...]

LARGEST_FACTOR = 64
"""The largest literal integer n for which exp(n a) is taken to be exp(a)^n."""
MOST_PARTS = 6
"""The parts that a value remembers. One of more is a value like any other."""
_RANKS = 4
"""The bits of a 64-bit word that are left for the places of infinities beside random ranks."""
_BEYOND = tuple(place << (64 - _RANKS) for place in (0, 2, 1, -1))
"""The numbers added to ranks of finite numbers, NaN, +inf and -inf, in the order of their codes."""


class FreeFunctions(FreeOutcomes):
    """Residues over primes without relation to each other, and tables in place of functions.

    ``numbers`` has, for every site, the rational of which each of its roots is taken, or None for
    anything else.
    """

    def __init__(
        self,
        *arguments: Any,
        numbers: Mapping[str, Sequence[Fraction | None]] | None = None,
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self._numbers = numbers or {}
        self._taken: dict[str, int] = {}
        self._literals: dict[int, int] = {}
        self._tabled: dict[int, tuple[Value, Value]] = {}

    # --- tables
    def _entries(
        self,
        name: str,
        arguments: Sequence[Value],
        *,
        parity: Parity | None = None,
        output: Output = "any",
    ) -> Any:
        """Return the entries of a table, shape (levels, trials, instances, *shape).

        They are uniform in [0, p), nonzero ones in [1, p), and words in [0, 2^64).
        """
        rank = max(a.rank for a in arguments)
        return self.arithmetic.entries(
            self._table(name, len(arguments)),
            self.trials,
            [aligned(a.data, rank) for a in arguments],
            parity,
            output,
        )

    def _table(self, name: str, arity: int) -> int:
        return key_of(self.seed, "table", name, arity)

    def _hashed(
        self, name: str, arguments: list[Value], odd: bool = False, even: bool = False
    ) -> Value:
        """Return a named function. One with a symmetry is looked up at one of x and -x."""
        result = self._looked_up(name, arguments, odd, even)
        return Value("field", result, 0, self._special_any(arguments, result.shape[LEADING:]))

    def _looked_up(self, name: str, arguments: list[Value], odd: bool, even: bool) -> Any:
        return self._entries(name, arguments, parity="odd" if odd else "even" if even else None)

    # --- making values
    def constant(self, number: Fraction | float, kind: Kind = "field") -> Value:
        value = super().constant(number, kind)
        if kind != "field" or not isinstance(number, Fraction) or number.denominator != 1:
            return value
        if abs(number) <= LARGEST_FACTOR:
            self._literals[id(value)] = int(number)
        return value

    def extent(self, a: Value, axes: Sequence[int]) -> Value:
        # A number of places is no literal: at other sizes it is another one.
        return replace(super().extent(a, axes), nonnegative=True)

    # --- exp and log
    def exp(self, a: Value) -> Value:
        return replace(super().exp(a), nonnegative=True)

    def _exp_of_data(self, a: Value) -> Value:
        """Return the product of the powers of the parts' exponentials."""
        above: Any = None
        below: Any = None
        for n, part in a.parts or ((1, a),):
            entry = self._entries("exp", [part], output="nonzero")
            entry = self.xp.where(self._vanishes(part), 1, entry)
            power = self.arithmetic.power(entry, abs(n), 0)
            if n > 0:
                above = power if above is None else self.arithmetic.multiply(above, power, 0)
            else:
                below = power if below is None else self.arithmetic.multiply(below, power, 0)
        if below is None:
            return Value("field", above)
        inverse = self.arithmetic.inverse(below, 0)
        return Value(
            "field", inverse if above is None else self.arithmetic.multiply(above, inverse, 0)
        )

    def _exp_of_sum(self, a: Value) -> Value:
        """Return the exponential of data and logarithms; those are of residues other than 0."""
        result = None if a.logs and not self._own_parts(a) else self._exp_of_data(a).data
        for n, s in a.logs:
            factor = self.arithmetic.power(s.data, abs(n), 0)
            factor = factor if n > 0 else self.arithmetic.inverse(factor, 0)
            result = factor if result is None else self.arithmetic.multiply(result, factor, 0)
        return Value("field", result)

    def _check_level_below(self, a: Value) -> None:
        """Check nothing: a logarithm needs no level."""

    def plain(self, a: Value) -> Value:
        """Return ``a`` with its logarithms worked out, as one function of its exponential."""
        a = self.opened(a)
        if not a.logs:
            return a
        power = self._exp_of_sum(a)
        entry = self._entries("log", [power])
        one = self.arithmetic.equal(power.data, self._one(power))
        return Value("field", self.xp.where(one, 0, entry), 0, a.special)

    def _log_differs(self, difference: Value) -> Any:
        """Return True where the exponential is not 1: of real numbers it is injective."""
        power = self._exp_of_sum(difference)
        return self.arithmetic.differ(power.data, self._one(power))

    def _one(self, like: Value) -> Any:
        """Return 1 at the levels of a value, with as many axes."""
        return aligned(self.constant(Fraction(1)).data, like.rank)

    def _small_integer(self, a: Value) -> int | None:
        """Return the integer that a literal is, else None; numbers of places are no literals."""
        return self._literals.get(id(a))

    # --- roots
    @property
    def roots(self) -> list[tuple[Value, Value]]:
        """Nothing: no sign of a root is a matter of chance."""
        return []

    def sqrt(self, a: Value) -> Value:
        a = self.plain(a)
        if a.kind != "field":
            raise self._wrong_kind("sqrt", a, "field")
        number = self._number_under_root()
        a = self.guard("sqrt", a)
        special = (
            None
            if a.special is None
            else self.xp.where(a.special == NEGATIVE_INFINITY, np.uint8(NAN), a.special)
        )
        if number is not None and self._has_root(number, a):
            return Value("field", self.arithmetic.root(a.data, 0), 0, special, (), True)
        root = Value("field", a.data, 0, special, (), True, a)
        return root if a.nonnegative and self.formal_roots else self.opened(root)

    def _number_under_root(self) -> Fraction | None:
        """Return the rational of which the next root at this site is taken, or None."""
        number = self._taken.get(self.site, 0)
        self._taken[self.site] = number + 1
        known = self._numbers.get(self.site, ())
        return known[number] if number < len(known) else None

    def _has_root(self, number: Fraction, a: Value) -> bool:
        """Return True if ``a`` is the number, and a root of it is exact modulo all primes.

        Then it is made of small primes that are squares, and so are their roots: x^((p+1)/4) is a
        homomorphism on squares that takes m^2 to m.
        """
        left = abs(number.numerator) * number.denominator
        if number <= 0:
            return False
        for small in SQUARES:
            if left % small == 0 and any(
                p % 4 != 3 or pow(small, (p - 1) // 2, p) != 1 for p in self.chain.primes
            ):
                return False
            while left % small == 0:
                left //= small
        return left == 1 and bool((a.data == aligned(self._constant(number).data, a.rank)).all())

    def opened(self, a: Value) -> Value:
        """Return a formal root as the entry of a table for its argument."""
        if a.square is None:
            return a
        found = self._tabled.get(id(a))
        if found is None:
            entry = self.xp.where(self._vanishes(a.square), 0, self._entries("sqrt", [a.square]))
            found = self._tabled[id(a)] = (a, Value("field", entry, 0, a.special, (), True))
        return found[1]

    # --- ring
    def _sum_of_two(
        self, what: str, operation: Any, on_numbers: Any, a: Value, b: Value, sign: int
    ) -> Value:
        result = super()._sum_of_two(what, operation, on_numbers, a, b, sign)
        if result.kind != "field" or not (sign < 0 or a.parts or b.parts):
            return result
        first, second = (self._own_parts(v) for v in (a, b))
        return self._with_parts(result, (*first, *((sign * n, part) for n, part in second)))

    def negate(self, a: Value) -> Value:
        result = super().negate(a)
        if result.kind != "field":
            return result
        return self._with_parts(result, tuple((-n, part) for n, part in self._own_parts(a)))

    def multiply(self, a: Value, b: Value) -> Value:
        result = super().multiply(a, b)
        if result.kind != "field":
            return result
        self._check_sign_matters(a, b)
        if result.logs or a.logs or b.logs or result.square is not None:
            return result
        for one, other in ((a, b), (b, a)):
            factor = self._small_integer(other)
            if factor is not None:
                parts = tuple((n * factor, part) for n, part in self._own_parts(one) if factor)
                return (
                    result
                    if factor in (0, 1) and not one.parts
                    else self._with_parts(result, parts)
                )
            if one.parts and other.data[0, 0, 0].size == 1:
                scale = replace(other, special=None, parts=())
                return self._with_parts(
                    result,
                    tuple(
                        (n, super(FreeFunctions, self).multiply(part, scale))
                        for n, part in one.parts
                    ),
                )
        return result

    def divide(self, a: Value, b: Value) -> Value:
        result = super().divide(a, b)
        if result.special is not None:
            self._check_sign_of_quotient(a, self.plain(b))
        if not a.parts or a.logs or b.logs or b.data[0, 0, 0].size != 1:
            return result
        inverse, _ = self._inverse(replace(self.plain(b), special=None, parts=()))
        return self._with_parts(
            result,
            tuple((n, super(FreeFunctions, self).multiply(part, inverse)) for n, part in a.parts),
        )

    def matmul(self, a: Value, b: Value) -> Value:
        for one, other in ((a, b), (b, a)):
            if one.special is not None and bool((one.special > NAN).any()) and self._drawn(other):
                raise of_order("the sign of infinity in a product of matrices")
        return super().matmul(a, b)

    def sum(self, a: Value, axes: Sequence[int]) -> Value:
        if a.kind != "field":
            return super().sum(a, axes)
        a = self.plain(a)
        result = super().sum(a, axes)
        places = tuple(LEADING + axis for axis in axes)
        if not a.parts or any(self._has_weights(self.shape(a)[axis]) for axis in axes):
            return result
        given = ~self._vanishes(a)
        if bool((given.sum(axis=places) > 1).any()):
            return result
        # One term at most is not 0: the sum is that term, and has its parts.
        parts = (
            (n, self.arithmetic.sum(self.xp.where(given, part.data, 0), places, 0))
            for n, part in a.parts
        )
        return self._with_parts(result, tuple((n, Value("field", data)) for n, data in parts))

    def _has_weights(self, size: int) -> bool:  # noqa: ARG002
        """Return True if places along an axis of ``size`` have weights."""
        return False

    def _own_parts(self, a: Value) -> Parts:
        """Return the parts of the data of a value, () for the number 0."""
        if a.parts:
            return a.parts
        data = a.data if a.square is None else self.opened(a).data
        if data.shape[1] == data.shape[2] == 1 and not bool(data.any()):
            return ()
        return ((1, Value("field", data)),)

    def _with_parts(self, a: Value, parts: Parts) -> Value:
        """Return ``a`` with parts; without if that is one value, or if they are too many."""
        kept = tuple((n, self.expand(part, self.shape(a))) for n, part in parts if n)
        single = len(kept) == 1 and kept[0][0] == 1
        return replace(a, parts=() if single or len(kept) > MOST_PARTS else kept)

    # --- infinity: its sign must not come of the order of residues
    def _drawn(self, a: Value) -> bool:
        """Return True if finite elements of ``a`` may have either sign, as far as is known."""
        return not a.nonnegative and id(a) not in self._literals

    def _check_sign_matters(self, a: Value, b: Value) -> None:
        """Check that nothing infinite is multiplied by what may have either sign.

        Raises:
            UnsupportedError: if it is.
        """
        for one, other in ((a, b), (b, a)):
            if one.special is None or not self._drawn(other):
                continue
            infinite = aligned(one.special > NAN, max(a.rank, b.rank))
            finite = (
                True
                if other.special is None
                else aligned(other.special == FINITE, max(a.rank, b.rank))
            )
            if bool((infinite & finite).any()):
                raise of_order("the sign of infinity in a product")

    def _check_sign_of_quotient(self, a: Value, b: Value) -> None:
        """Check that infinity is divided by no number that may have either sign, and none by 0.

        Raises:
            UnsupportedError: if it is.
        """
        infinite = a.special is not None and bool((a.special > NAN).any())
        if (infinite and self._drawn(b)) or (
            self._drawn(a) and bool((self._vanishes(b) & finite(b)).any())
        ):
            raise of_order("the sign of an infinite quotient")

    # --- order
    def _extremum(self, what: str, a: Value, b: Value, largest: bool) -> Value:
        if a.kind != "field" or b.kind != "field":
            return super()._extremum(what, a, b, largest)
        shape = broadcast(self.shape(a), self.shape(b))
        both = [
            self.reshape(self.expand(replace(self.plain(v), parts=()), shape), (*shape, 1))
            for v in (a, b)
        ]
        found = self._reduced(self.concatenate(both, len(shape)), len(shape), largest)
        nonnegative = (a.nonnegative or b.nonnegative) if largest else found.nonnegative
        return replace(found, nonnegative=nonnegative)

    def _reduced(self, a: Value, axis: int, largest: bool) -> Value:
        """Return an extremum along ``axis``: a table for the set of its finite operands.

        It is infinite or NaN as IEEE 754 says, so the maximum of -inf alone is -inf.
        """
        if a.kind != "field" or not 0 <= axis < a.rank or not self.shape(a)[axis]:
            return super()._reduced(a, axis, largest)
        a = replace(self.plain(a), parts=())
        if not largest:
            lowest = self._reduced(self.negate(a), axis, True)
            return replace(self.negate(lowest), nonnegative=a.nonnegative)
        place = LEADING + axis
        if a.special is None:
            special, finite = None, self.xp.ones((1,) * a.data.ndim, dtype=np.bool_)
        else:
            special, finite = self._greatest_special(a.special, place), a.special == FINITE
        finite = self.xp.broadcast_to(finite, (1, *finite.shape[1:LEADING], *self.shape(a)))
        data = self.xp.where(finite, a.data, 0)
        words = self._entries("max", [Value("field", data)], output="words")
        entries = self.xp.where(finite, words, np.uint64(0))
        table = self.arithmetic.residues_of(
            mix(self.xp, entries.sum(axis=place, dtype=np.uint64)), "any"
        )
        first = self.xp.take_along_axis(
            data, self.xp.expand_dims(finite.argmax(axis=place), place), axis=place
        )
        one = (self.arithmetic.equal(data, first) | ~finite).all(axis=place)
        found = self.xp.where(one, first.squeeze(place), table)
        return Value("field", found, 0, special, (), a.nonnegative)

    def _greatest_special(self, codes: Any, place: int) -> Any:
        """Return the codes of maxima along an array axis."""
        found = self.xp.where(
            (codes == NEGATIVE_INFINITY).all(axis=place), np.uint8(NEGATIVE_INFINITY), np.uint8(0)
        )
        for code in (POSITIVE_INFINITY, NAN):
            found = self.xp.where((codes == code).any(axis=place), np.uint8(code), found)
        return found if bool(found.any()) else None

    def _ranks(self, a: Value, axis: int, descending: bool) -> Any:
        """Return random ranks of numbers along ``axis``, a table for all of them in their order.

        Infinities stand at the ends and NaN is above all, as for real numbers. Equal numbers have
        ranks of their own, and a descending order is not the reverse of the ascending one: so
        every way to break ties is among the orders.
        """
        if a.kind != "field":
            return super()._ranks(a, axis, descending)
        a = replace(self.plain(a), parts=())
        shape = self.shape(a)
        table = self._table(DESCENDING if descending else ASCENDING, 1)
        lanes = lane_keys(self.xp, table, range(1), self.trials)
        lanes = lanes.reshape(lanes.shape + (1,) * (a.rank + LEADING - 2))
        places = self.xp.arange(shape[axis], dtype=np.uint64)
        places = places.reshape((-1,) + (1,) * (a.rank - 1 - axis))
        special = self.xp.zeros((1,) * a.data.ndim, np.uint8) if a.special is None else a.special
        words = [
            *joint_words(self.xp.where(special == FINITE, a.data, 0)),
            special.astype(np.uint64),
        ]
        entries = hash_words(self.xp, lanes, [places, *words])
        line = entries.sum(axis=LEADING + axis, dtype=np.uint64, keepdims=True)
        ranks = hash_words(self.xp, lanes, [line, places]) >> np.uint64(_RANKS)
        return ranks.view(np.int64) + self.xp.asarray(_BEYOND, dtype=np.int64)[special]

    def _truncated(self, a: Value) -> Value:
        if self.site not in self._whole:
            raise of_order("an integer part")
        return super()._truncated(a)


class FreeAlgebra(FreeFunctions, ResidueAlgebra):
    """Tables in place of functions, over NumPy or CuPy arrays."""


class WeightedFreeAlgebra(FreeFunctions, WeightedAlgebra):
    """The same, with weights for the places of reduced axes."""

    def _has_weights(self, size: int) -> bool:
        return self.weights(size) is not None
