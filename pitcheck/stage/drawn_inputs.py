"""Draws of the inputs of a stage: fresh values for the reference, and rows derived from them.

By lineage, the rows of the parallel values are parts of the reference values.

>>> labels = Fresh("labels", (4,), "int", bounds=(0, 3), marks=(0, 2))
>>> drawn = discrete(labels, seed=1, trials=[0, 1])
>>> drawn.shape, bool((drawn < 3).all())
((2, 1, 4), True)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from hashlib import sha256
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.keyed import drawn_words
from pitcheck.errors import UnsupportedError
from pitcheck.graph.cuts import FREE, ZERO, Box
from pitcheck.stage.inputs import Derived, Fresh, Padding

MARKED = 0.75
"""The share of marked values in a trial of them."""

CASES = 4
"""The number of kinds of discrete draws, which follow each other."""

FIRST_MIXED = 1 << 40
"""The first trial in which every element is a marked or rare integer, whatever the others are."""

LAYOUTS = 3
"""The number of ways in which the elements that hold one integer are spread."""


def draw(algebra: Any, fresh: Fresh) -> Any:
    """Return one instance of a reference tensor in an algebra."""
    if fresh.numbers:
        over, under = (
            _filled(algebra, fresh, [getattr(n, part) for n in fresh.numbers])
            for part in ("numerator", "denominator")
        )
        return (
            over if all(n.denominator == 1 for n in fresh.numbers) else algebra.divide(over, under)
        )
    if fresh.kind == "field":
        return algebra.fresh(fresh.key, fresh.shape, 1, fresh.domain)
    if fresh.unread:
        zeros: np.ndarray[Any, np.dtype[Any]] = np.zeros(
            (1, 1, *(1 for _ in fresh.shape)), dtype=np.int64 if fresh.kind == "int" else np.bool_
        )
        return algebra.integers(np.broadcast_to(zeros, (len(algebra.trials), 1, *fresh.shape)))
    return algebra.integers(discrete(fresh, algebra.seed, list(algebra.trials)))


def _filled(algebra: Any, fresh: Fresh, numbers: Sequence[int]) -> Any:
    """Return a tensor filled with definite integers, in every trial."""
    filled = np.array(numbers, dtype=np.int64).reshape(1, 1, *fresh.shape)
    return algebra.cast(
        algebra.integers(np.repeat(filled, len(algebra.trials), axis=0)), fresh.kind
    )


def discrete(fresh: Fresh, seed: int, trials: Sequence[int]) -> np.ndarray[Any, np.dtype[Any]]:
    """Return integers or booleans of shape (trials, 1, *shape).

    Of four trials of integers one holds marked values in a random order, with uniform ones between
    them. One has half of its rows filled with one marked value, in one all are different if the
    range has so many, and one is uniform. Of four trials of booleans one has rows of equal
    elements, one lacks half of its rows altogether, one is all true, one is uniform. The definite
    cases of a tensor come after the first ``CASES`` trials. From ``FIRST_MIXED`` on all integers
    are marked or rare ones.

    Raises:
        UnsupportedError: integers have no bounds.
    """
    bits = np.random.Philox(key=_key(fresh.key, seed))
    generator, begin = np.random.Generator(bits), bits.state
    distinct = dict.fromkeys(trials)
    mixed = [trial for trial in distinct if trial >= FIRST_MIXED]
    drawn = dict(zip(mixed, _mixed(fresh, seed, mixed), strict=True)) if mixed else {}
    for trial in distinct:
        if trial < FIRST_MIXED:
            begin["state"]["counter"][3] = trial
            bits.state = begin  # to begin anew costs a tenth of what another generator does
            drawn[trial] = _discrete_trial(fresh, generator, trial)
    return np.stack([drawn[trial] for trial in trials])[:, None]


def _discrete_trial(
    fresh: Fresh, generator: np.random.Generator, trial: int
) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the numbers of one trial, of the tensor's shape."""
    if fresh.cases and trial >= CASES:
        if trial < CASES + len(fresh.cases):
            case = fresh.cases[trial - CASES]
            return case != 0 if fresh.kind == "bool" else case
        trial -= len(fresh.cases)
    if fresh.loads and trial % 2:
        return _loaded(fresh, generator, trial // 2)
    if fresh.kind == "bool":
        return _booleans(fresh.shape, generator, trial)
    if fresh.bounds is None:
        raise UnsupportedError(
            f"integer tensor {fresh.key!r} has no bounds: say between which values it lies "
            f"(bounds of the tensor)"
        )
    uniform = _unequal_or_any(fresh.shape, *fresh.bounds, generator, trial)
    if not fresh.marks or trial % 2:
        return uniform
    if trial % CASES == 2:
        fill = fresh.marks[trial // CASES % len(fresh.marks)]
        return _half(
            uniform, fill, fill + 1 if fill + 1 < fresh.bounds[1] else fresh.bounds[0], trial
        )
    count = prod(fresh.shape)
    marks = np.concatenate(
        [
            generator.permutation(np.array(fresh.marks, dtype=np.int64))
            for _ in range(count // len(fresh.marks) + 1)
        ]
    )
    return np.where(
        generator.random(fresh.shape) < MARKED, marks[:count].reshape(fresh.shape), uniform
    )


def _unequal_or_any(
    shape: tuple[int, ...], low: int, high: int, generator: np.random.Generator, trial: int
) -> np.ndarray[Any, np.dtype[Any]]:
    """Return integers of which in one trial of four no two are equal, if there are so many."""
    if trial % CASES == CASES - 1 and prod(shape) <= high - low:
        return low + generator.choice(high - low, size=shape, replace=False).astype(np.int64)
    return generator.integers(low, high, size=shape, dtype=np.int64)


def _mixed(fresh: Fresh, seed: int, trials: Sequence[int]) -> np.ndarray[Any, np.dtype[Any]]:
    """Return trials in which every element is one of the ``mixed_numbers``, or a boolean.

    So what few integers decide comes about together with all else that they do. The booleans of a
    trial are true with a probability that is drawn, too.
    """
    parts = seed, fresh.key, "mixed"
    count = prod(fresh.shape)
    words = drawn_words(parts, range(1), trials, 1, (count + 1,))[0, :, 0]
    first, words = words[:, :1], words[:, 1:].reshape(len(trials), *fresh.shape)
    if fresh.kind == "bool":
        return words < first.reshape(len(trials), *(1,) * len(fresh.shape))
    numbers = mixed_numbers(fresh)
    if len(numbers):
        return numbers[(words % np.uint64(len(numbers))).astype(np.int64)]
    low, high = fresh.bounds or (0, 2)
    return low + (words % np.uint64(high - low)).astype(np.int64)


def mixed_numbers(fresh: Fresh) -> NDArray[np.int64]:
    """Return the marked and the rare integers of a tensor, ascending."""
    return np.unique(np.array([*fresh.marks, *fresh.rare], dtype=np.int64))


def _loaded(
    fresh: Fresh, generator: np.random.Generator, number: int
) -> np.ndarray[Any, np.dtype[Any]]:
    """Return a trial in which exactly so many elements hold one integer, and the others do not.

    They are the first ones, the last ones, and evenly spread ones, in turn. If one row has room for
    so many, they are in each row.
    """
    held, count = fresh.loads[number // LAYOUTS % len(fresh.loads)]
    low, high = fresh.bounds if fresh.kind == "int" and fresh.bounds is not None else (0, 2)
    others = generator.integers(low, max(high - 1, low + 1), size=fresh.shape, dtype=np.int64)
    others += (others >= held) & (high - low > 1)
    row = fresh.shape[-1] if count <= fresh.shape[-1] else prod(fresh.shape)
    layout = number % LAYOUTS
    places = (
        np.arange(count)
        if layout == 0
        else np.arange(row - count, row)
        if layout == 1
        else np.arange(count) * row // count
    )
    flat = others.reshape(-1, row)
    flat[:, places] = held
    result = flat.reshape(fresh.shape)
    return result if fresh.kind == "int" else result.astype(np.bool_)


def _booleans(
    shape: tuple[int, ...], generator: np.random.Generator, trial: int
) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the booleans of one trial."""
    uniform = generator.integers(0, 2, size=shape).astype(np.bool_)
    if not shape or trial % CASES == 0:
        return uniform
    if trial % CASES == 1:
        return np.broadcast_to(
            generator.integers(0, 2, size=(*shape[:-1], 1)).astype(np.bool_), shape
        )
    return _half(uniform, 0, 1, trial) if trial % CASES == 2 else np.ones(shape, dtype=np.bool_)


def _half(
    values: np.ndarray[Any, np.dtype[Any]], fill: int, other: int, trial: int
) -> np.ndarray[Any, np.dtype[Any]]:
    """Return values of which half of the rows, and nothing else, hold one number.

    It is the first or the last half. Of several ranks that share the rows, one is then filled
    wholly, but not all are. A single number is filled.
    """
    if not values.ndim:
        return np.array(fill, dtype=values.dtype)
    result = np.where(values == fill, np.array(other, dtype=values.dtype), values)
    length = (result.shape[0] + 1) // 2
    result[
        slice(0, length) if trial // CASES % 2 == 0 else slice(result.shape[0] - length, None)
    ] = fill
    return result


class Case(NamedTuple):
    """A discrete case that draws must show, in words, and how many of the first trials do."""

    said: str
    trials: int


def cases_of(fresh: Fresh, boxes: Sequence[Box], seed: int, most: int) -> list[Case]:
    """Return the discrete cases of a tensor: all kinds of draws, and each marked value in each box.

    A case that none of the first ``most`` trials shows needs ``most + 1``.
    """
    if fresh.unread or fresh.kind == "field":
        return []
    kinds = max(CASES, 2 * LAYOUTS * len(fresh.loads)) + len(fresh.cases)
    found = [Case(f"all kinds of draws of {fresh.key}", kinds)]
    if fresh.kind == "int" and fresh.marks:
        firsts = _first_held(fresh, [_places(box) for box in dict.fromkeys(boxes)], seed, most)
        found += [
            Case(f"{fresh.key} = {mark} on every shard", first + 1)
            for mark, first in zip(sorted(fresh.marks), firsts, strict=True)
        ]
    return found


def _places(box: Box) -> list[NDArray[np.int64]]:
    """Return the places of a box along each dimension, without those that are free or zero."""
    nothing = np.zeros(0, dtype=np.int64)
    return [
        np.concatenate([np.arange(a, b) for a, b in intervals if a >= 0] or [nothing])
        for intervals in box
    ]


def _first_held(
    fresh: Fresh, boxes: Sequence[Sequence[NDArray[np.int64]]], seed: int, most: int
) -> list[int]:
    """Return for each marked value, in ascending order, by which trial all boxes have held it.

    It is ``most`` if they have not in the trials before. Boxes without places do not count.
    """
    boxes = [box for box in boxes if all(len(places) for places in box)]
    marks = np.array(sorted(fresh.marks), dtype=np.int64)
    count = min(most, CASES * (len(marks) + 1) + len(fresh.cases))
    while True:
        drawn = discrete(fresh, seed, range(count))[:, 0]
        shown = np.ones((count, len(marks)), dtype=np.bool_)
        for box in boxes:
            shown &= np.logical_or.accumulate(_held(drawn, box, marks), axis=0)
        if count == most or shown[-1].all():
            firsts: list[int] = np.where(shown[-1], shown.argmax(axis=0), most).tolist()
            return firsts
        count = min(most, 2 * count)


def _held(
    drawn: NDArray[Any], box: Sequence[NDArray[np.int64]], marks: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which trials hold which values in a box, shape (trials, values)."""
    inside = drawn[np.ix_(np.arange(len(drawn)), *box)].reshape(len(drawn), -1, 1)
    held: NDArray[np.bool_] = (inside == marks).any(axis=1)
    return held


def _key(text: str, seed: int) -> int:
    """Return a 128-bit key from a text and a seed."""
    return int.from_bytes(sha256(f"{seed}:{text}".encode()).digest()[:16], "little")


def derive(algebra: Any, derived: Derived, whole: Any) -> Any:
    """Return all rows of a parallel value, from the instance ``whole`` of its reference."""
    places = derived.places if len(derived.terms) > 1 else None
    if places is not None:
        return scaled(algebra, algebra.boxes(whole, places, len(derived.terms)), derived.scale)
    blocks: dict[tuple[int, int], int] = {}
    made: list[Any] = []
    counts: list[int] = []
    rows = []
    total = 0
    for row, (box, term, terms) in enumerate(derived.terms):
        if (box, terms) not in blocks:
            blocks[box, terms] = total
            total += terms
            held = scaled(
                algebra,
                take_box(
                    algebra, whole, derived.boxes[box], f"{derived.key}/free{row}", derived.padding
                ),
                derived.scale,
            )
            made.append(
                held if terms == 1 else _shares(algebra, held, terms, f"{derived.key}/{box}")
            )
            counts.append(terms)
        rows.append(blocks[box, terms] + term)
    joined = made[0] if len(made) == 1 else algebra.join(made, counts)
    return (
        joined
        if rows == list(range(total))
        else algebra.gather(joined, np.array(rows, dtype=np.int64))
    )


def _shares(algebra: Any, total: Any, terms: int, key: str) -> Any:
    """Return rows of random terms that add up to ``total``.

    Of integers nothing reads more than their sum, so that all but the first are 0.
    """
    if algebra.kind(total) == "int":
        zero = algebra.subtract(total, total)
        return algebra.join([total, *[zero] * (terms - 1)], (1,) * terms)
    drawn = algebra.fresh(f"{key}/terms", algebra.shape(total), terms - 1, "any")
    last = algebra.subtract(
        total,
        algebra.sum(algebra.stack(drawn, np.arange(terms - 1, dtype=np.int64)[None, :]), (0,)),
    )
    return algebra.join([drawn, last], (terms - 1, 1))


def scaled(algebra: Any, value: Any, scale: Fraction) -> Any:
    """Return ``scale`` times a value.

    Raises:
        UnsupportedError: the value is not of floating-point numbers.
    """
    if scale == 1:
        return value
    if algebra.kind(value) != "field":
        raise UnsupportedError("a lineage with a scale needs a floating-point tensor")
    return algebra.multiply(value, algebra.constant(scale))


def take_box(algebra: Any, whole: Any, box: Box, key: str, padding: Padding | None = None) -> Any:
    """Return the box of a value.

    Free intervals are drawn afresh under ``key``, integers as ``padding`` says. Other padding is
    zero.
    """
    value = whole
    for dim, intervals in enumerate(box):
        size = algebra.shape(value)[dim]
        if intervals == ((0, size),):
            continue
        pieces = []
        for number, (start, stop) in enumerate(intervals):
            if start == FREE:
                shape = (*algebra.shape(value)[:dim], stop, *algebra.shape(value)[dim + 1 :])
                pieces.append(_free(algebra, value, f"{key}/{dim}.{number}", shape, padding))
            elif start == ZERO:
                shape = (*algebra.shape(value)[:dim], stop, *algebra.shape(value)[dim + 1 :])
                pieces.append(
                    algebra.expand(algebra.constant(Fraction(0), algebra.kind(value)), shape)
                )
            else:
                pieces.append(algebra.slice(value, dim, start, stop))
        value = pieces[0] if len(pieces) == 1 else algebra.concatenate(pieces, dim)
    return value


def _free(
    algebra: Any, like: Any, key: str, shape: tuple[int, ...], padding: Padding | None
) -> Any:
    """Return numbers for the free elements of a box."""
    kind = algebra.kind(like)
    if kind == "field":
        return algebra.fresh(key, shape, 1, "any")
    trials = list(algebra.trials)
    drawn = discrete(
        Fresh(
            key,
            shape,
            kind,
            bounds=(padding.bounds if padding else (0, 2)) if kind == "int" else None,
        ),
        algebra.seed,
        trials,
    )
    if kind == "int" and padding is not None and padding.marks:
        filled = [n for n, trial in enumerate(trials) if trial % 2 == 0]
        numbers = [padding.marks[trials[n] // 2 % len(padding.marks)] for n in filled]
        drawn[filled] = np.array(numbers, dtype=np.int64).reshape(-1, *(1,) * (drawn.ndim - 1))
    return algebra.integers(drawn)


def derive_all(
    algebra: Any, drawn: Mapping[int, Any], derived: Mapping[int, Derived]
) -> dict[int, Any]:
    """Return all parallel inputs."""
    return {value: derive(algebra, rows, drawn[rows.source]) for value, rows in derived.items()}
