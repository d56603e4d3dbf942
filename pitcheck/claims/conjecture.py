"""Conjectured cuts: which parallel tensor holds which part of which reference tensor.

Both plans are run once on the reals, and the values of one are looked up in the other. The result
decides where stages are cut, and nothing else: a stage is proven with fresh residues, and a
conjecture that does not hold is discarded. The reals serve because a whole model is deeper than any
chain of primes has exponential levels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.dimensions.scaling_class import Dimension
from pitcheck.claims.copies import Copies, at_nearest_copies
from pitcheck.claims.real_numbers import CANCELLED, Floats, tells
from pitcheck.claims.reference_index import (
    Corners,
    Index,
    beginning_like,
    build_index,
    computed_values,
    fitting_starts,
    in_order,
    likeliest,
    stands_at,
)
from pitcheck.claims.shard_places import Places
from pitcheck.graph.cuts import Cut, Part, cut_by_code
from pitcheck.ops.registry import BACKWARD, kinds_with
from pitcheck.ops.traits import Trait
from pitcheck.stage.batch import Batch
from pitcheck.stage.evaluate import Evaluated
from pitcheck.stage.shaped_stage import ShapedStage
from pitcheck.stage.shapes import SymbolicPair

VIEWS = kinds_with(Trait.SHOWS_ALL)
"""The operators that show their operand in another shape."""


def find_cuts(
    shaped: ShapedStage,
    symbolic: SymbolicPair,
    evaluated: Evaluated,
    scales: Sequence[Fraction],
    known: Mapping[int, Cut],
) -> dict[int, Cut]:
    """Return a cut for every computed parallel value that holds parts of one reference value.

    It must do so at every needed coordinate. ``scales`` are the factors tried besides 1. ``known``
    cuts are kept as they are.
    """
    stage = shaped.stage
    order = _telling_first(stage.reference, evaluated)
    places = Places(symbolic, shaped, known)
    corners = Corners(symbolic, shaped, places)
    index = build_index(stage.reference, evaluated, corners, order)
    found: dict[int, Cut] = {}
    views = _views(stage.parallel)
    numbers = of_numbers(stage.parallel)
    for value in computed_values(stage.parallel):
        if (
            value in known
            or value in views
            or value not in numbers
            or value in stage.parallel.inputs
            or stage.parallel.graph.values[value].kind != "field"
        ):
            continue
        data = in_order(
            _all_rows(np.asarray(evaluated.parallel[value].data)[0], stage.parallel.count(value)),
            order,
        )
        if not tells(data):
            continue
        cut = _match(value, data, index, places, scales)
        if cut is not None:
            found[value] = cut
            places.learn(cut)
    return at_nearest_copies(stage, found, Copies(index, places))


def _all_rows(data: Floats, rows: int) -> Floats:
    """Return a value with all of its ``rows``, also if it stores one row for all."""
    return (
        np.broadcast_to(data, (data.shape[0], rows, *data.shape[2:]))
        if data.shape[1] != rows
        else data
    )


def _views(batch: Batch) -> set[int]:
    """Return the values that only show another one in another shape: a cut there saves nothing."""
    return {
        output
        for step in batch.steps
        if step.kind.removesuffix(BACKWARD) in VIEWS
        for output in step.outputs
        if output is not None
    }


def of_numbers(batch: Batch) -> set[int]:
    """Return the values that depend on floating-point inputs.

    All others come of discrete data (a count of tokens). A cut would forget these: zero has a
    meaning there.
    """
    found = {
        value
        for value in batch.inputs
        if batch.graph.values[value].kind == "field"
        and batch.graph.values[value].tensor.value is None
    }
    for step in batch.steps:
        arguments = step.arguments
        if any(a.value in found for a in arguments):
            found.update(output for output in step.outputs if output is not None)
    return found


def _telling_first(batch: Batch, evaluated: Evaluated) -> NDArray[np.int64]:
    """Return the trials in the order in which they tell most, shape (trials,).

    In the first ones most reference values are finite and begin with more than what rounding may
    leave of zero: values are looked up by what they begin with. If all tokens are equal, whole
    gradients are such remains.
    """
    counts = _count(batch, evaluated, _begins)
    return np.argsort(-counts, kind="stable").astype(np.int64)


def _begins(rows: Floats) -> NDArray[np.bool_]:
    """Return which trials, shape (trials, elements), are finite and do not begin with about 0."""
    finite = np.isfinite(rows).all(axis=1)
    largest = float(np.abs(rows[finite]).max(initial=0.0))
    return np.logical_and(finite, np.abs(rows[:, 0]) > CANCELLED * largest)


def telling_trials(batch: Batch, evaluated: Evaluated) -> int:
    """Return how many trials are about as finite as the most finite one.

    With fewer than two of them nothing can be distinguished from a constant.
    """
    counts = _count(batch, evaluated, lambda rows: np.isfinite(rows).all(axis=1))
    return int((10 * counts >= 9 * counts.max()).sum())


def _count(batch: Batch, evaluated: Evaluated, holds: Callable[[Floats], Any]) -> NDArray[np.int64]:
    """Return for every trial how many computed reference values satisfy ``holds``, shape (trials,).

    ``holds`` maps the elements of a value, shape (trials, elements), to truths of shape (trials,).
    """
    computed = (
        evaluated.reference[value].data
        for value in computed_values(batch)
        if batch.graph.values[value].kind == "field"
    )
    found = [
        holds(data[0].reshape(data.shape[1], -1)) for data in map(np.asarray, computed) if data.size
    ]
    trials = max((len(each) for each in found), default=1)
    return (
        np.sum([np.broadcast_to(each, (trials,)) for each in found], axis=0, dtype=np.int64)
        if found
        else np.zeros(trials, dtype=np.int64)
    )


def _match(
    value: int, data: Floats, index: Index, places: Places, scales: Sequence[Fraction]
) -> Cut | None:
    """Return the cut of a value, looked up by ``data`` of shape (trials, rows, *shape), or None.

    Equal numbers abound: twice the gradient of some scores may be that of their softmax. So what a
    hint or the name says is tried with each factor before other references are with any.
    """
    tried = [
        (scale, scaled, beginning_like(scaled, index))
        for scale in (Fraction(1), *scales)
        for scaled in (data / float(scale) if scale != 1 else data,)
    ]
    named = [
        (scale, scaled, reference)
        for reference in places.named(value)
        for scale, scaled, beginning in tried
        if reference in beginning
    ]
    others = (
        (scale, scaled, reference)
        for scale, scaled, beginning in tried
        for reference in likeliest(scaled, index, places.preferred(value, beginning))
    )
    for scale, scaled, reference in chain(named, others):
        cut = _locate(value, scaled, index.arrays[reference], reference, scale, places)
        if cut is not None:
            return cut
    return None


def _locate(
    value: int, data: Floats, whole: Floats, reference: int, scale: Fraction, places: Places
) -> Cut | None:
    """Return the cut of a value in one reference value, or None if some row is not found there.

    Places where shards of this shape are known to lie come first.
    """
    stage = places.shaped.stage
    rows = stage.parallel.rows[value]
    codes = np.flatnonzero(rows >= 0)
    expected = places.expected(value, reference)
    unknown = np.full(len(codes), -1, dtype=np.int64)
    table = np.stack(
        [rows[codes], *(unknown if c is None else c for c in expected)], axis=1
    ).tolist()
    seen: dict[tuple[int, ...], int] = {}
    which = [seen.setdefault(tuple(line), len(seen)) for line in table]
    nodes = places.symbolic.reference.values[reference].dims
    local = stage.parallel.graph.values[value].shape
    parts: dict[Part, int] = {}
    of_line = []
    for row, *offsets in seen:
        full = _place(data[:, row], whole, nodes, offsets, places)
        if full is None or any(
            o + n > node.size for o, n, node in zip(full, local, nodes, strict=True)
        ):
            return None
        of_line.append(
            parts.setdefault(
                Part(tuple(((o, o + n),) for o, n in zip(full, local, strict=True))), len(parts)
            )
        )
    part_of = np.full(len(rows), -1, dtype=np.int64)
    part_of[codes] = np.array(of_line, dtype=np.int64)[which]
    return cut_by_code(stage.parallel.graph, value, reference, tuple(parts), part_of, scale)


def _place(
    data: Floats, whole: Floats, nodes: Sequence[Dimension], offsets: list[int], places: Places
) -> list[int] | None:
    """Return the full offsets at which ``data`` stands in ``whole``, or None.

    ``data`` has shape (trials, *shape). ``offsets`` are tried first (-1: unknown), then all places.
    """
    if -1 not in offsets:
        starts = places.reduced(nodes, offsets)
        if starts is not None and stands_at(data, whole, starts):
            return offsets
    found = [start for start in fitting_starts(data, whole) if stands_at(data, whole, start)]
    full = [f for f in (places.full(nodes, start) for start in found) if f is not None]
    return max(
        full, key=lambda f: sum(a == b for a, b in zip(f, offsets, strict=True)), default=None
    )
