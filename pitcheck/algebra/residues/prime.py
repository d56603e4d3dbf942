"""Values as residues along a prime chain: the meaning of operations, for any arithmetic.

Ring operations and division act on every level; exp maps level i to level i+1. log stays formal as
long as it can (``Value.logs``), so that exp of it is exact. Divisors that vanish at every level are
zeros of the discrete data and give NaN or infinity. A divisor that vanishes at some levels only
does so by chance, and the trial is marked in ``void``: it must be drawn anew.

>>> import numpy as np
>>> from pitcheck.algebra.residues.modular import Modular
>>> chain = Chain((101,))
>>> algebra = PrimeAlgebra(np, chain, seed=0, trials=(0,), arithmetic=Modular(np, chain))
>>> algebra.divide(algebra.constant(Fraction(1)), algebra.constant(Fraction(2))).data.item()
51
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.backend import to_host
from pitcheck.algebra.batched import Domain
from pitcheck.algebra.discrete import Discrete
from pitcheck.algebra.interface import Comparison, Kind
from pitcheck.algebra.residues.chains import Chain
from pitcheck.algebra.residues.formal_exponentials import Formal, Logs
from pitcheck.algebra.residues.formal_roots import Roots
from pitcheck.algebra.residues.keyed_functions import KeyedFunctions
from pitcheck.algebra.residues.signless_infinity import SignlessInfinity
from pitcheck.algebra.shape_checks import check_matmul
from pitcheck.algebra.structure import aligned
from pitcheck.algebra.value import (
    FINITE,
    LEADING,
    NAN,
    NEGATIVE_INFINITY,
    POSITIVE_INFINITY,
    Value,
)
from pitcheck.errors import BudgetError, ShapeError, UnsupportedError


class PrimeAlgebra(SignlessInfinity, Roots, KeyedFunctions, Formal, Discrete):
    """An algebra of residues.

    ``arithmetic`` computes on arrays (levels, trials, instances, ...), as
    :class:`pitcheck.algebra.residues.modular.Modular` does.
    """

    def __init__(
        self,
        xp: Any,
        chain: Chain,
        seed: int,
        trials: Sequence[int],
        arithmetic: Any,
        formal_roots: bool = True,
    ) -> None:
        super().__init__()
        self.formal_roots = formal_roots
        self.xp = xp
        self.chain = chain
        self.seed = seed
        self.trials = tuple(trials)
        self.arithmetic = arithmetic
        self._void = xp.zeros(len(self.trials), dtype=np.bool_)
        self._constants: dict[tuple[Fraction | float, Kind], Value] = {}

    @property
    def void(self) -> NDArray[np.bool_]:
        """True for each trial that must be drawn anew, shape (trials,)."""
        result: NDArray[np.bool_] = to_host(self.xp, self._void)
        return result

    # --- making values
    def fresh(
        self, key: str, shape: Sequence[int], instances: int = 1, domain: Domain = "any"
    ) -> Value:
        parts, nonnegative = (self.seed, "fresh", key), domain == "nonnegative"
        of = "any" if nonnegative else domain
        data = self.arithmetic.drawn(parts, self.trials, instances, shape, of)
        return Value("field", data, nonnegative=nonnegative)

    def fresh_rows(
        self, key: str, shape: Sequence[int], rows: tuple[int, int], domain: Domain = "any"
    ) -> Value:
        """Return the places ``rows[0]`` to ``rows[1]`` along the first dimension of a fresh value.

        They are those of :meth:`fresh` for one instance of ``shape``.
        """
        parts, nonnegative = (self.seed, "fresh", key), domain == "nonnegative"
        of = "any" if nonnegative else domain
        data = self.arithmetic.drawn_rows(parts, self.trials, shape, rows, of)
        return Value("field", data, nonnegative=nonnegative)

    def constant(self, number: Fraction | float, kind: Kind = "field") -> Value:
        found = self._constants.get((number, kind))
        if found is None:
            found = (
                self._constant(number) if kind == "field" else self._discrete_constant(number, kind)
            )
            if not (isinstance(number, float) and isnan(number)):
                self._constants[number, kind] = found
        return found

    def _constant(self, number: Fraction | float) -> Value:
        if isinstance(number, float) and (isnan(number) or number in (float("inf"), float("-inf"))):
            code = NAN if isnan(number) else POSITIVE_INFINITY if number > 0 else NEGATIVE_INFINITY
            zeros = self.arithmetic.constant(0, 1, 0, len(self.chain))
            return Value("field", zeros, 0, self.xp.full((1, 1, 1), code, dtype=np.uint8))
        exact = Fraction(number)
        if any(exact.denominator % p == 0 for p in self.chain.primes):
            raise BudgetError(
                f"the constant {exact} does not exist modulo the primes {self.chain.primes}; draw "
                f"another chain"
            )
        return Value(
            "field",
            self.arithmetic.constant(exact.numerator, exact.denominator, 0, len(self.chain)),
            nonnegative=exact >= 0,
        )

    def _embedded(self, a: Value) -> Value:
        return Value("field", self.arithmetic.embed(a.data, 0, len(self.chain)))

    def _truncated(self, a: Value) -> Value:
        """Return integers, recognised if all levels agree on a number far below the primes.

        At least two levels are needed.
        """
        a = self.plain(a)
        balanced = [
            self.arithmetic.balanced(a.data[i : i + 1], a.lowest + i)
            for i in range(a.data.shape[0])
        ]
        number = balanced[0]
        agree = all(bool((other == number).all()) for other in balanced[1:]) and bool(
            (abs(number) < 1 << 24).all()
        )
        if len(balanced) < 2 or a.special is not None or not agree:
            raise UnsupportedError(
                "a residue that is not a small integer has no integer part: casting computed "
                "field values to int has no meaning here"
            )
        return Value("int", number)

    # --- specials
    def _stand_ins(self, a: Value) -> Any:
        return self.arithmetic.stand_ins(a.data, a.lowest, a.special)

    def _codes(self, stand_ins: Any) -> Any:
        return self.arithmetic.codes_of(stand_ins)

    def _special_of(self, operation: Callable[..., Any], *operands: Value) -> Any:
        """Return the codes of an operation's result, by running it on stand-ins.

        Return None if no operand is special or nothing special comes out.
        """
        for v in operands:
            if v.special is not None:
                break
        else:
            return None
        rank = max(v.rank for v in operands)
        with np.errstate(all="ignore"):
            return self._codes(operation(*(aligned(self._stand_ins(v), rank) for v in operands)))

    def _zeroed(self, data: Any, where: Any) -> Any:
        """Return ``data`` with 0 where bool ``where`` (1, trials, instances, ...) holds."""
        return self.xp.where(where, 0, data)

    def _void_where(self, chance: Any) -> None:
        """Void the trials in which bool ``chance`` (any, trials or 1, instances, ...) holds.

        One place is enough.
        """
        self._void |= chance.any(axis=(0, *range(2, chance.ndim)))

    # --- ring
    def _pair(self, what: str, a: Value, b: Value) -> tuple[Any, Any, int]:
        """Return the arrays of two field values on their common levels, logical axes aligned.

        Returns:
            Both arrays, and the lowest of the common levels.
        """
        if a.kind != "field" or b.kind != "field":
            raise ShapeError(
                f"{what} needs two operands of one kind, field or int, not {a.kind} and {b.kind}; "
                f"cast first"
            )
        x, y, low = a.data, b.data, a.lowest
        if low != b.lowest or x.shape[0] != y.shape[0]:
            low, stop = self._common([a, b])
            x, y = x[low - a.lowest : stop - a.lowest], y[low - b.lowest : stop - b.lowest]
        if x.ndim != y.ndim:
            rank = max(a.rank, b.rank)
            x, y = aligned(x, rank), aligned(y, rank)
        return x, y, low

    def _ring(
        self, what: str, operation: Callable[[Any, Any, int], Any], a: Value, b: Value
    ) -> tuple[Any, int]:
        x, y, low = self._pair(what, a, b)
        try:
            return operation(x, y, low), low
        except ValueError as error:
            raise ShapeError(
                f"{what}: tensors of shapes {self.shape(a)} and {self.shape(b)} do not fit together"
            ) from error

    def add(self, a: Value, b: Value) -> Value:
        return self._sum_of_two("add", self.arithmetic.add, self.xp.add, a, b, 1)

    def subtract(self, a: Value, b: Value) -> Value:
        return self._sum_of_two("subtract", self.arithmetic.subtract, self.xp.subtract, a, b, -1)

    def _sum_of_two(
        self,
        what: str,
        operation: Callable[[Any, Any, int], Any],
        on_numbers: Callable[[Any, Any], Any],
        a: Value,
        b: Value,
        sign: int,
    ) -> Value:
        if a.kind == "int":
            return self._int_binary(what, on_numbers, a, b)
        a, b = self.opened(a), self.opened(b)
        data, low = self._ring(what, operation, a, b)
        special = self._special_of(on_numbers, a, b)
        logs: Logs = ()
        if a.logs or b.logs:
            second = tuple((sign * n, s) for n, s in b.logs)
            logs = self._added_logs(a.logs, second, data.shape[LEADING:])
        nonnegative = sign > 0 and a.nonnegative and b.nonnegative
        return Value("field", data, low, special, logs, nonnegative)

    def negate(self, a: Value) -> Value:
        if a.kind == "int":
            return Value("int", -a.data)
        if a.kind != "field":
            raise self._wrong_kind("negate", a, "field and int")
        a = self.opened(a)
        special = self._special_of(self.xp.negative, a)
        return Value(
            "field",
            self.arithmetic.negate(a.data, a.lowest),
            a.lowest,
            special,
            tuple((-n, s) for n, s in a.logs),
        )

    def multiply(self, a: Value, b: Value) -> Value:
        if a.kind == "int":
            return self._int_binary("multiply", self.xp.multiply, a, b)
        square = self.square_of(a, b)
        if square is not None:
            return square
        nonnegative = a is b or (a.nonnegative and b.nonnegative)
        under = self.under_one_root(self.multiply, a, b)
        if under is None:
            a, b = self.opened(a), self.opened(b)
        if a.logs or b.logs:
            scaled = self._scaled_logs(a, b) or self._scaled_logs(b, a)
            if scaled is not None:
                return scaled
            a, b = self.plain(a), self.plain(b)
        data, low = self._ring("multiply", self.arithmetic.multiply, a, b)
        special = self._special_of(self.xp.multiply, a, b)
        if special is not None:
            special = self._with_signs(special, a, b)
        return Value("field", data, low, special, (), nonnegative, under)

    def divide(self, a: Value, b: Value) -> Value:
        under = self.under_one_root(self.divide, a, b)
        if under is None:
            a, b = self.plain(a), self.plain(b)
        nonnegative = a.nonnegative and b.nonnegative
        if b.kind != "field":
            raise ShapeError(
                f"divide needs two field operands, not {a.kind} and {b.kind}; cast first"
            )
        b = self.guard("div", b)
        inverse, discrete_zero = self._inverse(b)
        data, low = self._ring("divide", self.arithmetic.multiply, a, inverse)
        if not discrete_zero and a.special is None and b.special is None:
            return Value("field", data, low, None, (), nonnegative, under)
        rank = max(a.rank, b.rank)
        with np.errstate(all="ignore"):
            quotient = aligned(self._stand_ins(a), rank) / aligned(self._stand_ins(b), rank)
        if b.special is not None:
            data = self._zeroed(data, aligned(b.special, rank) > NAN)
        return Value(
            "field",
            data,
            low,
            self._with_signs(self._codes(quotient), a, b, quotient=True),
            (),
            nonnegative,
            under,
        )

    def _inverse(self, b: Value) -> tuple[Value, bool]:
        """Return 1/b, with 1 for 1/0; chance zeros void their trials.

        Returns:
            The inverse, and True if ``b`` has finite elements that are 0 at all levels.
        """
        inverse, zero = self.arithmetic.inverse_or_one(b.data, b.lowest)
        if zero is None:
            return Value("field", inverse, b.lowest), False
        discrete = zero.all(axis=0, keepdims=True)
        chance = zero & ~discrete
        if b.special is not None:
            chance &= b.special == 0
        self._void_where(chance)
        return Value("field", inverse, b.lowest), bool(discrete.any())

    def power(self, a: Value, exponent: int) -> Value:
        power = self.power_of_root(a, exponent)
        if power is not None:
            return power
        a = self.plain(a)
        if a.kind != "field":
            raise self._wrong_kind("power", a, "field")
        if exponent < 0:
            return self.power(self.divide(self.constant(Fraction(1)), a), -exponent)
        # The sign of a power is told by the parity of its exponent, which may be huge.
        small = exponent if exponent < 2 else 2 + exponent % 2
        special = self._special_of(lambda x: x**small, a)
        if exponent == 0:
            return Value("field", self.xp.ones_like(a.data), a.lowest, special)
        nonnegative = a.nonnegative or exponent % 2 == 0
        return Value(
            "field",
            self.arithmetic.power(a.data, exponent, a.lowest),
            a.lowest,
            special,
            (),
            nonnegative,
        )

    def sum(self, a: Value, axes: Sequence[int]) -> Value:
        places = tuple(LEADING + axis for axis in axes)
        if a.kind == "int":
            return Value("int", a.data.sum(axis=places))
        if a.kind != "field":
            raise self._wrong_kind("sum", a, "field and int")
        a = self.opened(a)
        special = self._special_of(lambda x: x.sum(axis=places), a)
        if special is None and a.special is None:
            data = self.arithmetic.sum(a.data, places, a.lowest)
        else:
            data = self.arithmetic.sum(self._zeroed(a.data, a.special != 0), places, a.lowest)
        logs = tuple((n, self._product(s, axes)) for n, s in a.logs)
        return Value("field", data, a.lowest, special, logs, a.nonnegative)

    def matmul(self, a: Value, b: Value) -> Value:
        a, b = self.plain(a), self.plain(b)
        check_matmul(self.shape(a), self.shape(b))
        data, low = self._ring("matmul", self.arithmetic.matmul, a, b)
        special = self._special_of(self.xp.matmul, a, b)
        special = self._with_signs_of_sums(special, a, b)
        return Value("field", data, low, special)

    def _concatenated(self, arrays: Sequence[Any], axis: int) -> Any:
        return self.arithmetic.concatenate(arrays, axis)

    def _added_at(self, base: Any, axis: int, index: Any, source: Any, like: Value) -> Any:
        if like.kind == "field":
            return self.arithmetic.add_at(base, axis, index, source, like.lowest)
        return super()._added_at(base, axis, index, source, like)

    # --- order
    def _keys(self, values: tuple[Value, ...], nan_first: bool = False) -> list[Any]:
        if any(v.kind != "field" for v in values):
            return super()._keys(values, nan_first)
        plain = [self.plain(v) for v in values]
        _, stop = self._common(plain)
        return [
            self.arithmetic.order_key(
                v.data[stop - 1 - v.lowest : stop - v.lowest],
                stop - 1,
                v.special,
                nan_first,
            )
            for v in plain
        ]

    def shift(self, a: Value, axis: int) -> Value:
        """Return 0: nothing overflows here, and no decision is taken for a number that cancels.

        Only infinity does not cancel, so the shift is +inf where an element is.
        """
        shape = self.shape(a)[:axis] + self.shape(a)[axis + 1 :]
        zero = self.expand(self.constant(Fraction(0)), shape)
        if a.special is None:
            return zero
        endless = (a.special == POSITIVE_INFINITY).any(axis=LEADING + axis)
        if not bool(endless.any()):
            return zero
        codes = self.xp.where(endless, np.uint8(POSITIVE_INFINITY), np.uint8(FINITE))
        return replace(zero, special=codes)

    def _compare_field(self, comparison: Comparison, a: Value, b: Value) -> Value:
        a, b = self.plain(a), self.plain(b)
        rank = max(a.rank, b.rank)
        if comparison in ("eq", "ne"):
            x, y, _ = self._pair("a comparison", a, b)
            outcome = self.arithmetic.equal(x, y)
            if a.special is not None or b.special is not None:
                codes = [
                    self.xp.zeros((1,) * (rank + LEADING), np.uint8)
                    if v.special is None
                    else aligned(v.special, rank)
                    for v in (a, b)
                ]
                outcome = self.xp.where((codes[0] | codes[1]) == 0, outcome, codes[0] == codes[1])
        else:
            first, second = (aligned(key, rank) for key in self._keys((a, b)))
            outcome = {
                "lt": first < second,
                "le": first <= second,
                "gt": first > second,
                "ge": first >= second,
            }[comparison]
        free = self.xp.zeros_like(outcome)
        for v in (a, b):
            if v.special is not None:
                outcome = outcome & (aligned(v.special, rank) != NAN)
                free = free | (aligned(v.special, rank) != 0)
        if comparison == "ne":
            outcome = ~outcome
        self._record(outcome, free)
        return Value("bool", outcome)

    # --- comparison of results
    def differs(self, a: Value, b: Value) -> NDArray[np.bool_]:
        self._same_kind("a comparison of results", a, b)
        a, b = self.opened(a), self.opened(b)
        if a.kind != "field":
            differs = self._broadcast(self.xp.not_equal, a, b)
        elif a.logs or b.logs:
            differs = self._log_differs(
                self.subtract(replace(a, special=None), replace(b, special=None))
            )
        else:
            x, y, _ = self._pair("a comparison of results", a, b)
            differs = self.arithmetic.differ(x, y)
        if a.special is not None or b.special is not None:
            rank = differs.ndim - LEADING
            codes = [
                self.xp.zeros((1,) * differs.ndim, np.uint8)
                if v.special is None
                else aligned(v.special, rank)
                for v in (a, b)
            ]
            differs = self.xp.where((codes[0] | codes[1]) == 0, differs, codes[0] != codes[1])
        shape = len(self.trials), *differs.shape[2:]
        # Both sides agree nearly always. Then one bit leaves the device, and not one per element.
        host = to_host(self.xp, differs[0]) if bool(differs[0].any()) else np.False_
        result: NDArray[np.bool_] = np.broadcast_to(host, shape)
        return result
