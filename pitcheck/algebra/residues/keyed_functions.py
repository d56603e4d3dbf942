"""Functions without algebra, as keyed random functions.

Equal arguments give equal results; nothing else is assumed but the symmetry of known functions. A
function is keyed by its name, the trial, and the joint residues of its arguments at the two highest
levels that they have in common. These are about 62 bits, so that different arguments do not meet.
They include none of the lower levels that one side of a comparison may have lost to an exponential.

>>> import numpy as np
>>> from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
>>> from pitcheck.algebra.residues.chains import chains_of
>>> algebra = ResidueAlgebra(np, chains_of(2)[0], seed=1, trials=(0,))
>>> x = algebra.fresh("x", (3,))
>>> odd = algebra.function("erf", algebra.negate(x)), algebra.negate(algebra.function("erf", x))
>>> bool(algebra.differs(*odd).any())
False
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from pitcheck.algebra.keyed import key_of
from pitcheck.algebra.structure import Structure, aligned
from pitcheck.algebra.value import LEADING, NAN, NEGATIVE_INFINITY, POSITIVE_INFINITY, Value
from pitcheck.errors import ShapeError

ODD = frozenset({"erf", "sin", "tan"})
"""The functions with f(-x) = -f(x)."""

EVEN = frozenset({"cos", "normal_density"})
"""The functions with f(-x) = f(x)."""

TOTAL = frozenset(
    {
        "erf",
        "sin",
        "cos",
        "normal_cdf",
        "normal_density",
        "normal_quantile",
        "floor",
        "ceil",
        "round",
    }
)
"""The functions that have a value for all numbers, or for all random draws if they are taken of
these alone. Others are partial operations, like a quotient.
"""

LIMITS = {"erf": (1, -1), "normal_cdf": (1, 0), "normal_density": (0, 0)}
"""The values at +inf and -inf; other functions are NaN there."""


class KeyedFunctions(Structure):
    """``function`` and ``draw`` over residues."""

    arithmetic: Any
    chain: Any
    seed: int
    trials: tuple[int, ...]

    def add(self, a: Value, b: Value) -> Value:
        raise NotImplementedError

    def multiply(self, a: Value, b: Value) -> Value:
        raise NotImplementedError

    def sqrt(self, a: Value) -> Value:
        raise NotImplementedError

    def guard(self, what: str, operand: Value) -> Value:
        raise NotImplementedError

    def function(self, name: str, *arguments: Value) -> Value:
        plain = [self.plain(a) for a in arguments]
        if not plain or any(a.kind != "field" for a in plain):
            raise ShapeError(
                f"the function {name!r} is defined for field values, not for "
                f"{[a.kind for a in plain]}; cast first"
            )
        if name not in TOTAL:
            plain = [self.guard(name, a) for a in plain]
        if len(plain) == 1 and name == "normal_cdf":
            result = self._normal_cdf(plain[0])
        else:
            single = len(plain) == 1
            result = self._hashed(
                name, plain, odd=single and name in ODD, even=single and name in EVEN
            )
        return result if result.special is None else self._at_infinity(name, result)

    def _normal_cdf(self, x: Value) -> Value:
        """Return (1 + erf(x / sqrt 2)) / 2."""
        half = self.constant(Fraction(1, 2))
        erf = self._hashed(
            "erf", [self.multiply(Value("field", x.data, x.lowest), self.sqrt(half))], odd=True
        )
        result = self.multiply(half, self.add(self.constant(Fraction(1)), erf))
        return Value("field", result.data, result.lowest, x.special)

    def _hashed(
        self, name: str, arguments: list[Value], odd: bool = False, even: bool = False
    ) -> Value:
        low, stop = self._common(arguments)
        rank = max(a.rank for a in arguments)
        result = self.arithmetic.hashed(
            key_of(self.seed, "function", name, len(arguments)),
            self.trials,
            [aligned(a.data[low - a.lowest : stop - a.lowest], rank) for a in arguments],
            low,
            stop - low,
            "odd" if odd else "even" if even else None,
        )
        return Value("field", result, low, self._special_any(arguments, result.shape[LEADING:]))

    def _special_any(self, arguments: list[Value], shape: tuple[int, ...]) -> Any:
        """Return the codes of the only argument; of several, NaN wherever one is special."""
        if all(a.special is None for a in arguments):
            return None
        if len(arguments) == 1:
            return arguments[0].special
        rank = len(shape)
        found = False
        for a in arguments:
            if a.special is not None:
                found = found | (aligned(a.special, rank) != 0)
        codes = self.xp.where(found, np.uint8(NAN), np.uint8(0))
        return self.xp.broadcast_to(codes, (1, *codes.shape[1:LEADING], *shape))

    def _at_infinity(self, name: str, result: Value) -> Value:
        limits = LIMITS.get(name)
        if limits is None:
            return Value(
                "field",
                result.data,
                result.lowest,
                self.xp.where(result.special != 0, np.uint8(NAN), np.uint8(0)),
            )
        data, special = result.data, result.special
        for code, limit in ((POSITIVE_INFINITY, limits[0]), (NEGATIVE_INFINITY, limits[1])):
            constant = aligned(
                self.arithmetic.constant(limit, 1, result.lowest, data.shape[0]),
                data.ndim - LEADING,
            )
            data = self.xp.where(special == code, constant, data)
        left = self.xp.where(special == NAN, special, np.uint8(0))
        return Value("field", data, result.lowest, left if bool(left.any()) else None)

    def draw(self, stream: str, index: Value) -> Value:
        """Return uniform residues, one function of (stream, index) per trial.

        They stand on both sides of every probability in the order of residues.

        Raises:
            ShapeError: if ``index`` is not an int value.
        """
        if index.kind != "int":
            raise ShapeError(f"the index of a draw is an int value, not a {index.kind} value")
        key = key_of(self.seed, "draw", stream)
        words = [index.data]
        return Value("field", self.arithmetic.hashed(key, self.trials, words, 0, len(self.chain)))
