"""The classes of the values of one drawn integer, and a value of each.

All that a stage computes from one integer element alone is a table over the values that it can
have. Values are in one class if everything that is decided by them is decided equally. Within a
class the tables of both sides must be the same functions of each other; values at which they are
not are classes of their own.

>>> i = np.arange(1000)
>>> representatives(i, [Table(0, i * i == 1369)], frozenset()).tolist()
[500, 37]
>>> tables = Table(0, i // 7), Table(1, i * 9363 // 65536 + (i == 777))
>>> representatives(i, tables, frozenset())[1:]
array([777])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_CASES = 256
"""The values of one integer that are tried at most."""
FEW = 16
"""The number of different results up to which each must be seen."""
MOST_APART = 24
"""The values up to which those that break a rule are tried one by one."""
MOST_TABLES = 10
"""The tables of one side up to which every two of one side are compared."""
LEAST_FITTED = 4
"""The values from which on it is a rule that most of them follow."""
FITS = 12
"""The number of attempts to find the rule by which a table follows from others."""
CLOSE = 1e-7
"""The relative distance below which two numbers of float64 are one."""
LARGEST = 2.0**52
"""The size of whole numbers above which float64 does not tell them apart."""

Lanes = NDArray[np.int64]
Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Table:
    """The results for all values of an integer, shape (values,), on side 0 or 1.

    ``named`` are the integers with which what reads it may compare it. ``hard`` is False if no
    computed integer decides it.
    """

    side: int
    results: NDArray[Any]
    named: frozenset[int] = frozenset()
    hard: bool = True

    @property
    def key(self) -> bytes:
        """Return a digest of the results; equal ones have the same."""
        numbers = np.ascontiguousarray(self.results)
        if numbers.dtype.kind == "f":
            finite = np.isfinite(numbers)
            if bool((finite & (numbers == np.rint(numbers)) & (np.abs(numbers) < LARGEST)).all()):
                numbers = numbers.astype(np.int64)
            else:
                size = np.abs(numbers, where=finite, out=np.zeros_like(numbers)).max() or 1.0
                numbers = np.where(finite, np.round(numbers / size, 12) * size, numbers)
        return blake2b(numbers.tobytes(), digest_size=16).digest() + numbers.dtype.kind.encode()


def representatives(values: Lanes, tables: Sequence[Table], marks: frozenset[int]) -> Lanes | None:
    """Return a value of every class, of shape (classes,); None if there are too many classes.

    ``values`` are all that the integer can have, ascending. A value of ``marks`` is taken if a
    class has one.
    """
    distinct = {(t.side, t.key): t for t in tables}
    varied = [t for t in distinct.values() if len(t.results) and _varies(t.results)]
    words = _words(values, [t for t in varied if t.hard])
    if words is None:
        return None
    known = _words(values, varied)
    words = words if known is None else known
    few = [t for t in _few(varied) if not _linear(values, t, varied, words)]
    joined = _with_few(words, few)
    refined = None if joined is None else _related(values, joined, varied)
    if refined is None:
        return None
    chosen = _chosen(values, refined, few, marks)
    return chosen if len(chosen) <= MOST_CASES else None


def _varies(results: NDArray[Any]) -> bool:
    return bool((results != results[:1]).any())


def _few(tables: Sequence[Table]) -> list[Table]:
    """Return the tables of numbers that have so few different ones that each must be seen."""
    numbers = (t for t in tables if t.results.dtype.kind != "b")
    return [t for t in numbers if len(np.unique(t.results)) <= FEW]


def _words(values: Lanes, tables: Sequence[Table]) -> Words | None:
    """Return a word for every value, equal for values of which everything is decided equally.

    Decided are conditions, and how integers lie to those that their readers name. Return None if
    there are too many classes.
    """
    words: Words = np.zeros(len(values), dtype=np.uint64)
    for table in tables:
        if table.results.dtype.kind == "b":
            words = _joined(words, table.results)
        elif table.results.dtype.kind == "i":
            for number in sorted(table.named)[:FEW]:
                words = _joined(words, np.sign(table.results - number))
    return words if len(np.unique(words)) <= MOST_CASES else None


def _with_few(words: Words, few: Sequence[Table]) -> Words | None:
    """Return words that also tell apart the results of tables that have few of them.

    Those of one side alone must be told apart. Return None if there are too many.
    """
    sides = [{t.key for t in few if t.side == side} for side in (0, 1)]
    shared = sides[0] & sides[1]
    for table in sorted(few, key=lambda t: t.key in shared):
        more = _joined(words, table.results)
        if len(np.unique(more)) <= MOST_CASES:
            words = more
        elif table.key not in shared:
            return None
    return words


def _linear(values: Lanes, table: Table, tables: Sequence[Table], words: Words) -> bool:
    """Return True if a table is linear in one of the other side, or constant, in every class.

    A table that the other side has as well is not.
    """
    other = [t for t in tables if t.side != table.side]
    if any(t.key == table.key for t in other):
        return False
    bases = [values, *(t.results for t in other)]
    generator = np.random.default_rng(len(words))
    for word in np.unique(words):
        lanes = np.flatnonzero(words == word)
        wanted = table.results[lanes].astype(np.float64)
        beside = [base[lanes].astype(np.float64) for base in bases]
        if _varies(wanted) and not _follows(wanted, beside, generator):
            return False
    return True


def _joined(words: Words, outcomes: NDArray[Any]) -> Words:
    """Return words that tell apart what either tells apart, numbered from 0."""
    _, first = np.unique(words, return_inverse=True)
    kinds, second = np.unique(outcomes, return_inverse=True)
    joined: Words = (first.reshape(-1) * len(kinds) + second.reshape(-1)).astype(np.uint64)
    return joined


def _related(values: Lanes, words: Words, tables: Sequence[Table]) -> Words | None:
    """Return words that tell apart the values at which tables break the rules that they follow.

    A table of one side must follow from those of the other, within each class. Two tables of one
    side may follow from each other but for a few values. Return None if a table follows no rule.
    """
    few = {t.key for t in _few(tables)}
    many = [t for t in tables if t.results.dtype.kind != "b" and t.key not in few]
    sides = [{t.key: t for t in many if t.side == side} for side in (0, 1)]
    numbers = values.astype(np.float64)
    refined = words
    for own, other in (sides, sides[::-1]):
        bases = [numbers, *(t.results.astype(np.float64) for t in other.values())]
        for key in own.keys() - other.keys() if other.keys() != own.keys() else ():
            if not own[key].hard:
                continue
            found = _broken(own[key].results, bases, words, required=True)
            if found is None:
                return None
            refined = _joined(refined, found)
    shared = [t.results.astype(np.float64) for t in {**sides[0], **sides[1]}.values() if t.hard]
    if len(shared) <= MOST_TABLES:
        for one, two in combinations([numbers, *shared], 2):
            found = _broken(one, [two], words, required=False)
            refined = refined if found is None else _joined(refined, found)
    return refined if len(np.unique(refined)) <= MOST_CASES else None


def _broken(
    results: NDArray[Any], bases: Sequence[NDArray[np.float64]], words: Words, *, required: bool
) -> NDArray[np.int64] | None:
    """Return 0 for values at which a table is a linear function of others, else other numbers.

    The functions may differ from class to class. Return None if ``required`` and there are none.
    """
    wanted = results.astype(np.float64)
    found = np.zeros(len(wanted), dtype=np.int64)
    generator = np.random.default_rng(len(wanted))
    with np.errstate(all="ignore"):
        for word in np.unique(words):
            lanes = np.flatnonzero(words == word)
            if len(lanes) <= MOST_APART and required:
                if not _follows(wanted[lanes], [base[lanes] for base in bases], generator):
                    found[lanes] = np.arange(1, len(lanes) + 1)
                continue
            if len(lanes) < LEAST_FITTED:
                continue
            apart = _off(wanted[lanes], [base[lanes] for base in bases], generator)
            if apart is None and required:
                products = [a * b for a in bases for b in bases]
                apart = _off(wanted[lanes], [x[lanes] for x in (*bases, *products)], generator)
            if apart is None:
                if required:
                    return None
                continue
            places = lanes[apart]
            found[places] = np.arange(1, len(places) + 1) if len(places) <= MOST_APART else 1
    return found


def _follows(
    wanted: NDArray[np.float64],
    bases: Sequence[NDArray[np.float64]],
    generator: np.random.Generator,
) -> bool:
    """Return True if a table is a linear function of one other at all of some places."""
    found = (_off(wanted, [base], generator) for base in bases)
    return len(wanted) >= LEAST_FITTED and any(off is not None and not len(off) for off in found)


def _off(
    wanted: NDArray[np.float64],
    bases: Sequence[NDArray[np.float64]],
    generator: np.random.Generator,
) -> Lanes | None:
    """Return the places at which a table is not the linear function that it is at most of them.

    Return None if it is none at half of the places.
    """
    columns = np.stack([np.ones(len(wanted)), *bases], axis=1)
    if not np.isfinite(columns).all() or not np.isfinite(wanted).all():
        return np.flatnonzero(~np.isfinite(wanted)) if np.isfinite(columns).all() else None
    scale = np.maximum(np.abs(columns).max(axis=0), 1e-300)
    columns = columns / scale
    size = max(float(np.abs(wanted).max()), 1e-300)
    best: Lanes | None = None
    for _ in range(FITS):
        chosen = generator.choice(len(wanted), size=min(len(wanted), 2 + columns.shape[1]))
        rule = np.linalg.lstsq(columns[chosen], wanted[chosen] / size, rcond=1e-12)[0]
        off = np.flatnonzero(np.abs(columns @ rule - wanted / size) * size > CLOSE * _unit(wanted))
        if best is None or len(off) < len(best):
            best = off
        if not len(off):
            break
    return best if best is not None and 2 * len(best) <= len(wanted) else None


def _unit(wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the distance that counts for every number: half of one for whole ones."""
    whole = bool((wanted == np.rint(wanted)).all())
    result: NDArray[np.float64] = np.maximum(np.abs(wanted), 1.0)
    return np.full(len(wanted), 0.25 / CLOSE) if whole else result


def _chosen(values: Lanes, words: Words, few: Sequence[Table], marks: frozenset[int]) -> Lanes:
    """Return a value of every class, and more so that each of few results is seen."""
    marked = np.isin(values, np.array(sorted(marks), dtype=np.int64))
    chosen = []
    for word in np.unique(words):
        lanes = np.flatnonzero(words == word)
        own = lanes[marked[lanes]]
        chosen.append(int(own[0]) if len(own) else int(lanes[len(lanes) // 2]))
    for table in few:
        kinds, of_lane = np.unique(table.results, return_inverse=True)  # NaN is one of them
        for kind in range(len(kinds)):
            lanes = np.flatnonzero(of_lane.reshape(-1) == kind)
            if not np.isin(lanes, chosen).any():
                chosen.append(int(lanes[len(lanes) // 2]))
    return values[chosen]
