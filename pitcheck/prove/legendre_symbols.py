"""Legendre symbols of the arguments of square roots: they show which of these are no squares.

The root of a square has a sign that depends on the draw, and a bound by norms does not hold.

The root of q modulo p is q^((p+1)/4), and its square is X(q) q, X the Legendre symbol. A difference
with a root y of q is A + B y, its norm A^2 - X B^2 q is not 0 where q is no square. Where q = h^2
the root is h X(h): it is h in half of all draws, and sqrt(x^2) = x would be believed as often.
Where q_1 q_2 = h^2 the same is true of the product of both roots. So it must be *seen* that
arguments, and products of two different ones, are no squares. A constant times a square has the
same symbol modulo p in all draws (but where it is 0), another polynomial in about half of them.
Both symbols modulo one prime are a proof.

Where X is -1, y^2 is -q, and what is false of the root of a real number may be true: y^2 + q is 0
there, whatever q is. So a draw says something of a difference with a root only where the argument
is a square at some level, and those draws alone are counted (:meth:`Characters.counted`).

>>> _of_counted(-20.0, levels=1), round(_of_counted(-20.0, levels=3), 2)
(-19.0, -16.19)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, comb, log2, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.backend import to_host
from pitcheck.algebra.residues.prime import PrimeAlgebra
from pitcheck.algebra.value import LEADING, Value

Residues = NDArray[np.int64]
LIKELY = 0.5
"""The expected number of arguments that still lack draws after as many as are asked for."""


class Characters:
    """The Legendre symbols of all arguments of roots over the draws of a stage.

    Each evaluation has primes of its own.
    """

    def __init__(self) -> None:
        self._arguments: list[Residues] = []
        self._symbols: list[Residues] = []
        self._squares: list[Residues] = []
        self._varying: list[Residues] | None = None

    def observe(
        self, algebra: PrimeAlgebra, squares: Sequence[Value], good: NDArray[np.bool_]
    ) -> None:
        """Take in the ``good`` trials of one evaluation.

        ``squares`` are inputs drawn as squares: their roots are separate variables.
        """
        if not algebra.roots or not good.any():
            return
        low = max(argument.lowest for argument, _ in algebra.roots)
        stop = max(
            low, min(argument.lowest + argument.data.shape[0] for argument, _ in algebra.roots)
        )
        primes = np.array(algebra.chain.primes[low:stop], dtype=np.int64)[:, None, None]

        def columns(values: Sequence[Value]) -> Residues:
            parts = [_columns(algebra.xp, value, low, stop, len(good)) for value in values]
            return np.concatenate(
                [np.zeros((stop - low, len(good), 0), dtype=np.int64), *parts], axis=2
            )[:, good]

        arguments, roots = (columns([pair[side] for pair in algebra.roots]) for side in (0, 1))
        self._arguments.append(arguments)
        self._symbols.append(
            np.where(arguments == 0, 0, np.where(roots * roots % primes == arguments, 1, -1))
        )
        self._squares.append(columns(squares))
        self._varying = None

    def unproven(self, enough: int) -> bool:
        """Return True if some argument, or the product of two, may still be a square.

        Arguments that keep their residues are constants, whose roots have one sign. That is
        believed when they kept them ``enough`` times.
        """
        batches = self._of_varying(enough)
        if not batches or not batches[0].shape[2]:
            return False
        both = [
            ((symbols.max(axis=1) > 0) & (symbols.min(axis=1) < 0)).any(axis=0)
            for symbols in batches
        ]
        if not np.any(both, axis=0).all():
            return True
        relative = np.concatenate([_from_first(symbols) for symbols in batches], axis=1)
        return len(np.unique(_rows(relative), axis=0)) < int(relative.shape[2])

    def counted(self, enough: int) -> Residues:
        """Return in how many draws each argument is a square at some level.

        The shape is (evaluations, arguments). An evaluation without a good draw is left out.
        """
        batches = self._of_varying(enough)
        return (
            np.stack([(symbols > 0).any(axis=0).sum(axis=0) for symbols in batches])
            if batches
            else np.zeros((0, 0), dtype=np.int64)
        )

    def of_counted(self, per_draw: float) -> float:
        """Return log2 of the error of a draw that counts for a difference with one root.

        ``per_draw`` is that of a draw at its best level. The levels' errors, each at most twice
        that of the next, are added. How many draws it took until so many counted costs a bit for
        each.
        """
        return _of_counted(per_draw, self._arguments[0].shape[0]) if self._arguments else 0.0

    def draws(self, per_draw: float, target: float, enough: int, most: int) -> int:
        """Return how many draws it probably takes until the error is at most ``target`` (log2).

        Every argument needs enough draws that count for it. Return 0 without roots. If more than
        ``most`` are needed, of which there will not be as many, any number from that on is
        returned.
        """
        batches = self._of_varying(enough)
        levels, _, arguments = batches[0].shape if batches else (0, 0, 0)
        gain = _of_counted(per_draw, levels) if arguments else 0.0
        if gain >= 0:
            return 0
        least, lost = ceil(target / gain), 0.5**levels
        needed = least
        while (
            needed < most
            and arguments
            * sum(comb(needed, n) * (1 - lost) ** n * lost ** (needed - n) for n in range(least))
            > LIKELY
        ):
            needed += 1
        return needed

    def _of_varying(self, enough: int) -> list[Residues]:
        """Return the symbols of the arguments that are neither constants nor drawn as squares.

        Equal arguments count once.
        """
        if self._varying is None and self._arguments:
            self._varying = self._find_varying(enough)
        return self._varying or []

    def _find_varying(self, enough: int) -> list[Residues]:
        """Compute what ``_of_varying`` returns."""
        arguments, squares = (
            np.concatenate(self._arguments, axis=1),
            np.concatenate(self._squares, axis=1),
        )
        _, first = np.unique(_rows(arguments), axis=0, return_index=True)
        kept_residues = [(own == own[:, :1]).all(axis=(0, 1)) for own in self._arguments]
        times = sum(own.shape[0] * (own.shape[1] - 1) for own in self._arguments)
        constant = np.all(kept_residues, axis=0) & (times >= enough)
        drawn = {row.tobytes() for row in _rows(squares)}
        kept = [
            i
            for i in first
            if not constant[i] and _rows(arguments[:, :, i : i + 1])[0].tobytes() not in drawn
        ]
        return [symbols[:, :, kept] for symbols in self._symbols]


def _of_counted(per_draw: float, levels: int) -> float:
    """Return log2 of the error of a draw that counts."""
    return min(per_draw + 1 + log2(2**levels - 1), 0.0)


def _columns(xp: Any, value: Value, low: int, stop: int, trials: int) -> Residues:
    """Return the residues of all elements at levels ``low`` .. ``stop`` - 1.

    The shape is (levels, trials, elements).
    """
    data = to_host(xp, value.data)
    held = data[max(low - value.lowest, 0) : max(stop - value.lowest, 0)]
    spread = np.broadcast_to(held, (len(held), trials, *held.shape[LEADING - 1 :]))
    return spread.reshape(len(held), trials, prod(held.shape[LEADING - 1 :]))


def _rows(columns: Residues) -> Residues:
    """Return the residues with a row for every element, shape (elements, levels * trials)."""
    return np.ascontiguousarray(
        columns.reshape(columns.shape[0] * columns.shape[1], columns.shape[2]).T
    )


def _from_first(symbols: Residues) -> Residues:
    """Return symbols relative to the first draw at each level.

    They are equal for two arguments whose product has one symbol. Draws with an argument 0 are left
    out.
    """
    usable = (symbols != 0).all(axis=2, keepdims=True)
    first = np.take_along_axis(symbols, usable.argmax(axis=1)[:, None], axis=1)
    relative: Residues = np.where(usable, symbols * first, 0)
    return relative
