"""Cuts at values that the reference may not have: what stands on them needs no more than it does.

A stage takes the numbers at its cuts as given, and draws them. If inputs leave an element of a cut
without a value, in both plans, the proof says nothing of such inputs: where(m, a, 0) and m * a are
equal for all numbers a, and only the first has a value where m does not hold and a is NaN. So each
element of such a cut is a guard of the stage (:mod:`pitcheck.prove.domains.guards`), of both sides.

>>> samples = patterns((2, 40), Extent.SOME)
>>> samples.shape, int(patterns((2, 2), Extent.SOME).sum(axis=(1, 2)).max())
((32, 2, 40), 1)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.residues.undefined import Undefined
from pitcheck.prove.domains.guards import DRAWS_OF_CHOICES, Extent, Further, extent, undefined
from pitcheck.prove.domains.operands import Bools
from pitcheck.stage.drawn_inputs import draw
from pitcheck.stage.evaluate import compare_target, evaluate_stage
from pitcheck.stage.shaped_stage import ShapedStage

MOST_ELEMENTS = 32
"""The elements of a cut up to which each is undefined by itself. Of more, random ones are so
together.
"""
SHARES = (0.5, 0.25, 0.0625, 0.015625)
"""The shares of elements that are then undefined, in turn."""

Redraw = Callable[[Sequence[int]], Undefined]
"""A function that returns an algebra for some draws, each of which may stand there often."""


def patterns(shape: tuple[int, ...], part: Extent) -> Bools:
    """Return elements that are undefined together, shape (patterns, *shape)."""
    size = prod(shape)
    if part is Extent.ALL:
        return np.ones((1, *shape), dtype=np.bool_)
    if size <= MOST_ELEMENTS:
        return np.eye(size, dtype=np.bool_).reshape(size, *shape)
    shares = np.resize(np.array(SHARES), MOST_ELEMENTS)
    drawn: NDArray[np.float64] = np.random.default_rng(0).random((MOST_ELEMENTS, size))
    return (drawn < shares[:, None]).reshape(MOST_ELEMENTS, *shape)


def needed(
    shaped: ShapedStage,
    parts: Mapping[int, Extent],
    redraw: Redraw,
    at_once: int,
    further: Further = lambda _: (),
) -> Extent | None:
    """Return the part of a stage's target that reference values may leave without a value.

    ``parts`` says by reference value what they may lack, ``further`` in which draws integers decide
    as they seldom do. Return None if the parallel plan may then lack more than the reference.

    Raises:
        StepError: an operator raised an error.
        BudgetError: the primes have too few levels.
    """
    given = {value: part for value, part in parts.items() if value in shaped.fresh}
    found = Extent.NOTHING
    for value, part in given.items():
        made = patterns(shaped.fresh[value].shape, part)
        rows = [(0, pattern) for pattern in made]
        hidden, needs = _needs(shaped, value, rows, redraw, (False, at_once))
        # Elements that no choice can hide are the same in every draw.
        places = np.flatnonzero(hidden)
        draws = [*range(DRAWS_OF_CHOICES), *further(DRAWS_OF_CHOICES)] if len(places) else []
        rows = [(draw, made[n]) for draw in draws for n in places]
        needs += _needs(shaped, value, rows, redraw, (True, at_once))[1]
        if any((parallel & ~reference).any() for parallel, reference in needs):
            return None
        counts = [int(reference.sum()) for _, reference in needs]
        found = max(found, extent(counts, needs[0][1].size if needs else 0))
    return found


def _needs(
    shaped: ShapedStage,
    value: int,
    rows: Sequence[tuple[int, Bools]],
    redraw: Redraw,
    how: tuple[bool, int],
) -> tuple[Bools, list[tuple[Bools, Bools]]]:
    """Return what is undefined on both sides, row by row, if elements of a value are.

    A row has a draw, and the elements. ``how``: True if decisions have random outcomes, and the
    trials that are evaluated together.

    Returns:
        Where a choice may have hidden something, shape (rows,); what lacks a value, per row.
    """
    free, at_once = how
    hidden, found = np.zeros(len(rows), dtype=np.bool_), []
    for start in range(0, len(rows), max(at_once, 2)):
        some = rows[start : start + max(at_once, 2)]
        many = some if len(some) > 1 else [*some, *some]
        algebra = redraw([trial for trial, _ in many])
        algebra.free_order = free
        drawn = {number: draw(algebra, fresh) for number, fresh in shaped.fresh.items()}
        lacking = np.stack([elements for _, elements in many])[None, :, None]
        drawn[value] = algebra.without(drawn[value], lacking)
        evaluated = evaluate_stage(shaped, algebra, drawn)
        compared = [compare_target(shaped, evaluated, n) for n in range(len(shaped.stage.targets))]
        found += undefined(algebra, compared)[: len(some)]
        hidden[start : start + len(some)] = np.broadcast_to(algebra.hidden, len(many))[: len(some)]
    return hidden, found
