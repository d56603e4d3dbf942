"""Where the parallel plan is defined: what it divides by, and takes logarithms and roots of.

That two formulas are equal as functions says nothing where one of them has no value: x / x is 1, and sqrt(a) sqrt(c) is sqrt(a c), where they are defined. So
every such operation of the parallel plan reads what is positive by construction, or is seen to be 0 or not in the discrete data, or what the reference
reads in an operation that has no value there, either. Residues tell which numbers are the same. For what is none of these, trials on real numbers of both
signs decide; only a quotient, which lacks a value at single points, is left open, if the reference divides by nothing that it divides by.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.backend import to_host
from pitcheck.algebra.prime import PrimeAlgebra
from pitcheck.algebra.value import Value

REFERENCE, PARALLEL = "reference ", "parallel "
AS_STRONG = {"div": ("div", "log"), "log": ("log",), "sqrt": ("sqrt", "log")}
"""Operations that have no value where one has none, either. What a logarithm is taken of is neither 0 nor negative."""
SAID = {"div": "a quotient by", "log": "the logarithm of", "sqrt": "the root of"}
MOST_TRIALS = 4
"""Draws of an evaluation in which operands are compared: other numbers have the same residues once in 2^28 in each."""


class Unguarded(NamedTuple):
    """What the parallel plan computes that may have no value where the reference has one.

    ``quotient``: the first quotient among it in words, or "". It lacks a value at single points, which no trial meets. ``any``: whether there is anything;
    roots and logarithms lack values for half of all numbers, which trials show.
    """

    quotient: str
    any: bool


def unguarded(algebra: PrimeAlgebra, guards: Collection[tuple[str, str]]) -> Unguarded:
    """Compare the operands of partial operations of both sides. ``guards``: (site, operation) of those that are not positive by construction."""
    found = list(_unmatched(algebra, guards))
    return Unguarded(next((text for what, text in found if what == "div"), ""), bool(found))


def _unmatched(algebra: PrimeAlgebra, guards: Collection[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    own = [(site, what, value) for site, what, value in algebra.guarded if (site, what) in guards and site.startswith(PARALLEL)]
    if not own:
        return
    given = [(what, value) for site, what, value in algebra.guarded if site.startswith(REFERENCE)]
    matched: dict[tuple[str, int], NDArray[np.int64]] = {}
    said: set[str] = set()
    for site, what, value in own:
        if what in said:
            continue
        level = value.lowest + value.data.shape[0] - 1
        if (what, level) not in matched:
            known = [_words(algebra, v, level) for kind, v in given if kind in AS_STRONG[what] and v.lowest <= level < v.lowest + v.data.shape[0]]
            matched[what, level] = np.unique(np.concatenate(known)) if known else np.zeros(0, dtype=np.int64)
        same = np.isin(_words(algebra, value, level), matched[what, level])
        # A flat buffer has elements of other tensors beside those that are compared; what these are divided by is matched elsewhere.
        if not (same.any() if what == "div" else same.all()):
            said.add(what)
            yield what, f"{SAID[what]} something at {site!r} has no value for all numbers, and the reference has none like it"


def _words(algebra: PrimeAlgebra, value: Value, level: int) -> NDArray[np.int64]:
    """The different residues at a level in the first draws, each with the number of its draw; those of elements that are NaN or infinite are left out."""
    trials = min(len(algebra.trials), MOST_TRIALS)
    data = to_host(algebra.xp, value.data)[level - value.lowest]
    shape = (trials, prod(data.shape[1:]))
    residues = np.broadcast_to(data.reshape(data.shape[0], -1)[:trials], shape)
    words: NDArray[np.int64] = residues | (np.arange(trials, dtype=np.int64)[:, None] << 32)
    if value.special is not None:
        words = words[_finite(algebra, value.special, data.shape, shape)]
    return np.unique(words)


def _finite(algebra: PrimeAlgebra, special: Any, wide: tuple[int, ...], shape: tuple[int, int]) -> NDArray[np.bool_]:
    codes = to_host(algebra.xp, special)[0]
    lead = max(codes.shape[0], wide[0])
    spread = np.broadcast_to(codes, np.broadcast_shapes(codes.shape, (lead, *wide[1:]))).reshape(lead, -1)[: shape[0]]
    return np.asarray(np.broadcast_to(spread, shape) == 0)
