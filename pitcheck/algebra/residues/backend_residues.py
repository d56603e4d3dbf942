"""The algebra of residues on NumPy or CuPy arrays.

>>> import numpy as np
>>> from pitcheck.algebra.residues.chains import chains_of
>>> algebra = ResidueAlgebra(np, chains_of(2)[0], seed=1, trials=(0, 1))
>>> x, y = algebra.fresh("x", (3,)), algebra.fresh("y", (3,))
>>> sums = algebra.exp(algebra.add(x, y)), algebra.multiply(algebra.exp(x), algebra.exp(y))
>>> bool(algebra.differs(*sums).any())
False
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pitcheck.algebra.device.device_exponential import DeviceExponential
from pitcheck.algebra.device.device_modular import DeviceModular
from pitcheck.algebra.discrete import Decision
from pitcheck.algebra.residues.chains import Chain
from pitcheck.algebra.residues.exponential import Exponential
from pitcheck.algebra.residues.logarithm import Logarithm
from pitcheck.algebra.residues.modular import Modular
from pitcheck.algebra.residues.prime import PrimeAlgebra

__all__ = ["Decision", "Logarithms", "ResidueAlgebra", "arithmetic", "functions"]


def arithmetic(xp: Any, chain: Chain) -> Modular:
    """Return the arithmetic modulo the members of a chain, on NumPy's or CuPy's arrays."""
    return Modular(xp, chain) if xp is np else DeviceModular(xp, chain)


class _Functions:
    """The exponential and the logarithm beside modular arithmetic."""

    _exponential: Exponential
    _logarithm: Logarithm

    def exp(self, x: Any, low: int) -> Any:
        """Return w^x, one level up."""
        return self._exponential(x, low)

    def log(self, x: Any, low: int) -> Any:
        """Return the discrete logarithm of |x| to base w, one level down."""
        return self._logarithm(x, low, self._exponential.exponents)


class _Arithmetic(_Functions, Modular):
    """Modular arithmetic with the exponential of given trials."""

    def __init__(
        self, xp: Any, chain: Chain, seed: int, trials: Sequence[int], logarithm: Logarithm | None
    ) -> None:
        super().__init__(xp, chain)
        self._exponential = Exponential(self, seed, trials)
        self._logarithm = logarithm or Logarithm(self)


class _DeviceArithmetic(_Functions, DeviceModular):
    """The same on a GPU."""

    def __init__(
        self, xp: Any, chain: Chain, seed: int, trials: Sequence[int], logarithm: Logarithm | None
    ) -> None:
        super().__init__(xp, chain)
        self._exponential = DeviceExponential(self, seed, trials)
        self._logarithm = logarithm or Logarithm(self)


def functions(
    xp: Any,
    chain: Chain,
    seed: int,
    trials: Sequence[int],
    logarithm: Logarithm | None = None,
) -> _Arithmetic | _DeviceArithmetic:
    """Return the arithmetic with the exponential of given trials."""
    made = _Arithmetic if xp is np else _DeviceArithmetic
    return made(xp, chain, seed, trials, logarithm)


class Logarithms:
    """The discrete logarithms of the chains that were asked for, whose tables are made once.

    They take some megabytes for each prime, so they serve where few chains do.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Any, Chain], Logarithm] = {}

    def of(self, xp: Any, chain: Chain) -> Logarithm:
        """Return those of a chain, on NumPy's or CuPy's arrays."""
        if (xp, chain) not in self._known:
            self._known[xp, chain] = Logarithm(arithmetic(xp, chain))
        return self._known[xp, chain]


class ResidueAlgebra(PrimeAlgebra):
    """Residues along ``chain`` for trial numbers ``trials``.

    The numbers of a (seed, trial) do not depend on the other trials. ``xp`` is numpy or cupy
    (:func:`pitcheck.algebra.backend.array_module`). ``logarithm`` has the tables of discrete
    logarithms of this chain, shared between algebras. With ``formal_roots``, the square of a root
    is its argument; without, it is that of the residue
    (:mod:`pitcheck.algebra.residues.formal_roots`). With only one trial, constants cannot be told
    from drawn values, and decisions between constants are recorded too.
    """

    def __init__(
        self,
        xp: Any,
        chain: Chain,
        seed: int,
        trials: Sequence[int],
        logarithm: Logarithm | None = None,
        formal_roots: bool = True,
    ) -> None:
        made = functions(xp, chain, seed, trials, logarithm)
        super().__init__(xp, chain, seed, trials, made, formal_roots)
