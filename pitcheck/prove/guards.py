"""The domain of the parallel plan: what it divides by, and takes logarithms and roots of.

That two formulas are equal as functions says nothing where one of them has no value: x / x is 1,
and sqrt(a) sqrt(c) is sqrt(a c), where they are defined. So the operand of every such operation of
the parallel plan must pass one of these tests: it is positive by construction; the discrete data
shows it to be 0 or not; the reference reads it in an operation that has no value there, either.
Residues tell which numbers are the same. If an operand passes none, trials on real numbers of both
signs decide. Only a quotient, which lacks a value at single points, is left open, provided that
what is compared depends on it: that is NaN where its quotients are. A flat buffer has elements of
other tensors beside those that are compared; the divisors of these are matched where they are
compared.

>>> AS_STRONG["sqrt"]  # the reference takes one of these of the number: then a root of it is fine
('sqrt', 'log')
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.backend import to_host
from pitcheck.algebra.residues.prime import PrimeAlgebra
from pitcheck.algebra.value import Value

REFERENCE, PARALLEL = "reference ", "parallel "
AS_STRONG = {"div": ("div", "log"), "log": ("log",), "sqrt": ("sqrt", "log")}
"""The operations that have no value where the key has none. A logarithm is taken of numbers that
are neither 0 nor negative.
"""
SAID = {"div": "a quotient by", "log": "the logarithm of", "sqrt": "the root of"}
MOST_TRIALS = 4
"""The draws of an evaluation in which operands are compared. Different numbers have the same
residues once in 2^28 in each.
"""


class Unguarded(NamedTuple):
    """The partial operations of the parallel plan that may lack a value the reference has.

    ``quotient`` names the first quotient among them, or is "". A quotient lacks a value at single
    points, which no trial meets. ``any`` is True if there are such operations at all; roots and
    logarithms lack values for half of all numbers, which trials show. ``places`` has the divisors
    of those quotients: the number of the operand in ``guarded`` -> its elements, see
    :attr:`~pitcheck.algebra.residues.formal_roots.Roots.undefined`.
    """

    quotient: str
    any: bool
    places: Mapping[int, NDArray[np.bool_]]


def unguarded(algebra: PrimeAlgebra, guards: Collection[tuple[str, str]]) -> Unguarded:
    """Compare the operands of partial operations of both sides.

    ``guards``: (site, operation) of those that are not positive by construction.
    """
    own = [
        (number, *each)
        for number, each in enumerate(algebra.guarded)
        if each[:2] in guards and each[0].startswith(PARALLEL)
    ]
    given = (
        [(what, value) for site, what, value in algebra.guarded if site.startswith(REFERENCE)]
        if own
        else []
    )
    matched: dict[tuple[str, int], NDArray[np.int64]] = {}
    places: dict[int, NDArray[np.bool_]] = {}
    quotient, lacking = "", False
    for number, site, what, value in own:
        level = value.lowest + value.data.shape[0] - 1
        if (what, level) not in matched:
            known = [
                _words(algebra, v, level)[0]
                for kind, v in given
                if kind in AS_STRONG[what] and v.lowest <= level < v.lowest + v.data.shape[0]
            ]
            matched[what, level] = (
                np.unique(np.concatenate([words.reshape(-1) for words in known]))
                if known
                else np.zeros(0, dtype=np.int64)
            )
        words, finite = _words(algebra, value, level)
        without = np.asarray(
            (~np.isin(words, matched[what, level]) & finite).any(axis=0, keepdims=True)
        )
        if without.any():
            lacking = True
            if what == "div":
                places[number] = without
                quotient = (
                    quotient
                    or f"{SAID[what]} something at {site!r} has no value for all numbers, and the "
                    f"reference has none like it"
                )
    return Unguarded(quotient, lacking, places)


def _words(
    algebra: PrimeAlgebra, value: Value, level: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the residues of all elements at a level in the first draws.

    Returns:
        The residues, each with the number of its draw in the high bits, shape (trials, rows,
            *shape);
        and, of the same shape, where they are neither NaN nor infinite.
    """
    trials = min(len(algebra.trials), MOST_TRIALS)
    data = to_host(algebra.xp, value.data)[level - value.lowest]
    special = (
        np.zeros((1,) * data.ndim, dtype=np.uint8)
        if value.special is None
        else to_host(algebra.xp, value.special)[0]
    )
    shape = (
        max(data.shape[0], special.shape[0]),
        *np.broadcast_shapes(data.shape[1:], special.shape[1:]),
    )
    rows = (trials, *shape[1:])
    residues = np.broadcast_to(np.broadcast_to(data, shape)[:trials], rows)
    finite = np.broadcast_to(np.broadcast_to(special == 0, shape)[:trials], rows)
    numbers = np.arange(trials, dtype=np.int64).reshape(-1, *(1,) * (data.ndim - 1))
    return residues | (numbers << 32), finite
