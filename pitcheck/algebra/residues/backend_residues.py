"""The algebra of residues on NumPy or CuPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pitcheck.algebra.discrete import Decision
from pitcheck.algebra.residues.chains import Chain
from pitcheck.algebra.residues.exponential import Exponential
from pitcheck.algebra.residues.logarithm import Logarithm
from pitcheck.algebra.residues.modular import Modular
from pitcheck.algebra.residues.prime import PrimeAlgebra

__all__ = ["Decision", "ResidueAlgebra"]


class _Arithmetic(Modular):
    """Modular arithmetic with the exponential of given trials."""

    def __init__(
        self, xp: Any, chain: Chain, seed: int, trials: Sequence[int], logarithm: Logarithm | None
    ) -> None:
        super().__init__(xp, chain)
        self._exponential = Exponential(self, seed, trials)
        self._logarithm = logarithm or Logarithm(self)

    def exp(self, x: Any, low: int) -> Any:
        """w^x, one level up."""
        return self._exponential(x, low)

    def log(self, x: Any, low: int) -> Any:
        """The discrete logarithm of |x| to base w, one level down."""
        return self._logarithm(x, low, self._exponential.exponents)


class ResidueAlgebra(PrimeAlgebra):
    """Residues along ``chain`` for trial numbers ``trials``; the same numbers for the same (seed,
    trial) whatever the other trials are.

    ``xp``: numpy or cupy (:func:`pitcheck.algebra.backend.array_module`). ``logarithm``: tables of
    discrete logarithms of this chain, shared between algebras. ``formal_roots``: whether the square
    of a root is its argument, or that of the residue
    (:mod:`pitcheck.algebra.residues.formal_roots`). With one trial alone, constants cannot be told
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
        super().__init__(
            xp, chain, seed, trials, _Arithmetic(xp, chain, seed, trials, logarithm), formal_roots
        )
