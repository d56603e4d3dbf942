"""Conjectured cuts: which parallel tensor holds which part of which reference tensor.

Both plans are run once on the reals, and the values of one are looked up in the other. The result
decides where stages are cut, and nothing else: a stage is proven with fresh residues, and a
conjecture that does not hold is discarded. The reals serve because a whole model is deeper than any
chain of primes has exponential levels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.dimensions.scaling_class import Dimension
from pitcheck.claims.shard_places import Places
from pitcheck.graph.cuts import Cut, Part, cut_by_code
from pitcheck.ops.registry import BACKWARD, kinds_with
from pitcheck.ops.traits import Trait
from pitcheck.stage.batch import Batch
from pitcheck.stage.evaluate import Evaluated
from pitcheck.stage.shaped_stage import ShapedStage
from pitcheck.stage.shapes import SymbolicPair

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
TOLERANCE = 1e-8
"""The relative difference up to which two elements count as equal."""
CANCELLED = 1e-13
"""The share of a value's largest element below which an element may be what rounding leaves of
zero. Such remains differ between the plans.
"""
CANDIDATES = 6
"""The number of reference values that are compared with one parallel value."""
MOST_OWNERS = 256
"""The number of reference values that are narrowed down to these candidates."""
VIEWS = kinds_with(Trait.SHOWS_ALL)
"""The operators that show their operand in another shape."""
SORTED_IN = 64
"""The times that each element may be looked at in the time in which all are sorted."""
MOST_PLACES = 32
"""The number of places in one reference value that are compared."""


@dataclass
class Index:
    """Elements of the reference's values in trial 0, sorted, each with the value it belongs to."""

    keys: Floats
    owner: NDArray[np.int64]
    arrays: Mapping[int, Floats]
    """The reference values, shape (trials, *shape) each."""
    _scanned: int = 0
    """The elements that were looked through one by one."""

    @cached_property
    def shapes(self) -> Mapping[int, Numbers]:
        """Return the shapes of all reference values by number of dimensions.

        Each entry has shape (values, dimensions), and -1 for values with another number of
        dimensions.
        """
        found: dict[int, Numbers] = {}
        for value, array in self.arrays.items():
            rank = array.ndim - 1
            held = found.setdefault(
                rank, np.full((max(self.arrays) + 1, max(rank, 1)), -1, dtype=np.int64)
            )
            held[value] = array.shape[1:] if rank else 0
        return found

    @cached_property
    def _elements(self) -> tuple[Floats, Numbers]:
        """Return all elements in trial 0, sorted, and the value that each belongs to."""
        values = list(self.arrays)
        flat = np.concatenate([self.arrays[value][0].reshape(-1) for value in values])
        sizes = [self.arrays[value][0].size for value in values]
        owner = np.repeat(np.array(values, dtype=np.int64), sizes)
        order = np.argsort(flat)
        return flat[order], owner[order]

    @cached_property
    def _total(self) -> int:
        return sum(array[0].size for array in self.arrays.values())

    def holding(self, element: float, values: Numbers) -> Iterator[int]:
        """Yield those of some values that have an element in trial 0, in their order.

        Few values are looked through; all are sorted once that has taken as long as to sort them.
        """
        margin = TOLERANCE * abs(element)
        low, high = element - margin, element + margin
        if self._scanned > SORTED_IN * self._total:
            elements, owner = self._elements
            first = int(np.searchsorted(elements, low))
            behind = int(np.searchsorted(elements, high, side="right"))
            yield from values[np.isin(values, np.unique(owner[first:behind]))].tolist()
            return
        for value in values.tolist():
            array = self.arrays[value][0]
            self._scanned += array.size
            if bool(((array >= low) & (array <= high)).any()):
                yield value


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
    index = build_index(stage.reference, evaluated, Corners(symbolic, shaped), order)
    places = Places(symbolic, shaped, known)
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
        data = _ordered(
            _all_rows(np.asarray(evaluated.parallel[value].data)[0], stage.parallel.count(value)),
            order,
        )
        if not _tells(data):
            continue
        cut = _match(value, data, index, places, scales)
        if cut is not None:
            found[value] = cut
            places.learn(cut)
    return found


def _all_rows(data: Floats, rows: int) -> Floats:
    """Return a value with all of its ``rows``, also if it stores one row for all."""
    return (
        np.broadcast_to(data, (data.shape[0], rows, *data.shape[2:]))
        if data.shape[1] != rows
        else data
    )


def computed_values(batch: Batch) -> list[int]:
    """Return the values that the steps of a batch compute, in order and once each."""
    return list(
        dict.fromkeys(
            output for step in batch.steps for output in step.outputs if output is not None
        )
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


def varies(data: Floats) -> bool:
    """Return True if finite numbers, shape (trials, ...), differ between trials 0 and 1.

    What does not vary is a constant. It matches by accident and is never cut at.
    """
    return (
        data.shape[0] > 1
        and data[0].size > 0
        and bool(np.isfinite(data).all())
        and not np.array_equal(data[0], data[1])
    )


def _tells(data: Floats) -> bool:
    """Return True if trial 0 is finite and some other finite trial differs from it.

    A trial may be NaN from the loss on, for example if no token counts in it.
    """
    if data.shape[0] < 2 or not data[0].size or not np.isfinite(data[0]).all():
        return False
    return any(
        bool(np.isfinite(other).all()) and not np.array_equal(data[0], other) for other in data[1:]
    )


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


def _ordered(data: Floats, order: NDArray[np.int64] | None) -> Floats:
    """Return the trials of ``data`` (trials, ...) in an order; data that all trials share stay."""
    if order is None or data.shape[0] != len(order) or bool((order[1:] > order[:-1]).all()):
        return data
    return data[order]


def build_index(
    batch: Batch, evaluated: Evaluated, corners: Corners, order: NDArray[np.int64] | None = None
) -> Index:
    """Return the index of all elements of reference values at which a part may begin.

    ``order``: the order in which trials are used, shape (trials,); None keeps it.
    """
    arrays: dict[int, Floats] = {}
    keys, owners = [], []
    for value in dict.fromkeys([*batch.inputs, *computed_values(batch)]):
        if batch.graph.values[value].kind == "field" and value in evaluated.reference:
            data = _ordered(np.asarray(evaluated.reference[value].data)[0][:, 0], order)
            if _tells(data):
                arrays[value] = data
                keys.append(
                    data[0][np.ix_(*corners.of(value))].reshape(-1)
                    if data[0].ndim
                    else data[0].reshape(1)
                )
                owners.append(np.full(len(keys[-1]), value, dtype=np.int64))
    if not arrays:
        return Index(np.zeros(0), np.zeros(0, dtype=np.int64), arrays)
    flat, owner = np.concatenate(keys), np.concatenate(owners)
    order = np.argsort(flat)
    return Index(flat[order], owner[order], arrays)


class Corners:
    """Reduced positions along the dimensions of reference values at which a part can begin.

    These are the multiples of a unit at full size.
    """

    def __init__(self, symbolic: SymbolicPair, shaped: ShapedStage) -> None:
        self._symbolic = symbolic
        self._sizes = shaped.sizes
        self._known: dict[tuple[int, int], NDArray[np.int64]] = {}

    def of(self, value: int) -> list[NDArray[np.int64]]:
        """Return the positions along every dimension of a reference value."""
        return [self._along(node) for node in self._symbolic.reference.values[value].dims]

    def _along(self, node: Dimension) -> NDArray[np.int64]:
        key = self._symbolic.system.number_of(node), node.size
        if key not in self._known:
            self._known[key] = np.array(self._places(node), dtype=np.int64)
        return self._known[key]

    def _places(self, node: Dimension) -> list[int]:
        own = self._symbolic.system.class_of(node)
        if own.inner is None and not own.positions and self._sizes.size(node) == node.size:
            return [0]
        if own.inner is None:
            starts = dict.fromkeys(
                self._sizes.position(node, start) for start in range(0, node.size, own.unit)
            )
            return [start for start in starts if start < self._sizes.size(node)]
        return [
            i
            for i in range(self._sizes.size(node))
            if self._sizes.full_position(node, i) is not None
        ]


def lookup(data: Floats, index: Index) -> int | None:
    """Return a reference value of which every row of ``data`` is a box, or None.

    ``data`` has shape (trials, rows, *shape).
    """
    for reference in _likely(data, index, _candidates(data, index)):
        whole = index.arrays[reference]
        if all(
            any(_stands(data[:, row], whole, start) for start in _starts(data[:, row], whole))
            for row in range(data.shape[1])
        ):
            return reference
    return None


def _stands(data: Floats, whole: Floats, starts: Sequence[int]) -> bool:
    """Return True if ``data`` is the box of ``whole`` that begins at ``starts``."""
    box = whole[
        (slice(None), *(slice(s, s + n) for s, n in zip(starts, data.shape[1:], strict=True)))
    ]
    return box.shape[1:] == data.shape[1:] and _same(data, box)


def _starts(data: Floats, whole: Floats) -> list[list[int]]:
    """Return the places at which ``data`` may begin in ``whole``, told by its largest element."""
    flat = data[0].reshape(-1)
    pivot = _pivot(flat)
    if whole.shape[1:] == data.shape[1:]:
        there = abs(whole[0].reshape(-1)[pivot] - flat[pivot]) <= TOLERANCE * abs(flat[pivot])
        return [[0] * (data.ndim - 1)] if there else []
    place = np.array(np.unravel_index(pivot, data.shape[1:]), dtype=np.int64)
    starts = np.argwhere(np.abs(whole[0] - flat[pivot]) <= TOLERANCE * abs(flat[pivot])) - place
    fitting = (starts >= 0).all(axis=1) & (
        starts + np.array(data.shape[1:], dtype=np.int64)
        <= np.array(whole.shape[1:], dtype=np.int64)
    ).all(axis=1)
    return [[int(i) for i in start] for start in starts[fitting][:MOST_PLACES]]


def _pivot(flat: Floats) -> int:
    """Return the place of the largest element, of those that do not fill a mask if there are any.

    An element fills a mask if it is the largest, and not the only one.
    """
    sizes = np.abs(flat)
    largest = sizes == sizes.max()
    return int(sizes.argmax() if largest.sum() == 1 else np.where(largest, -1.0, sizes).argmax())


def _candidates(data: Floats, index: Index) -> Numbers:
    """Return the reference values in which a part may begin with the first element, ascending.

    They have as many dimensions as ``data``, whose first row decides.
    """
    own = data[0, 0].reshape(-1)
    first = float(own[0])
    margin = max(TOLERANCE * abs(first), CANCELLED * float(np.abs(own).max()))
    low = int(np.searchsorted(index.keys, first - margin))
    high = int(np.searchsorted(index.keys, first + margin, side="right"))
    shape = data.shape[2:]
    owners = np.unique(index.owner[low:high])
    held = index.shapes.get(len(shape))
    if held is None:
        return owners[:0]
    return owners[(held[owners] >= np.array(shape or (0,), dtype=np.int64)).all(axis=1)]


def _likely(data: Floats, index: Index, ordered: Numbers) -> Iterator[int]:
    """Yield the first few of some reference values in which a part may begin with the first row.

    All are yielded if they are few.
    """
    if len(ordered) <= CANDIDATES:
        yield from ordered.tolist()
        return
    # Many values begin with a zero: the largest element distinguishes them.
    row = data[0, 0].reshape(-1)
    holding = islice(index.holding(float(row[_pivot(row)]), ordered), MOST_OWNERS)
    fitting = (owner for owner in holding if _starts(data[:, 0], index.arrays[owner]))
    yield from islice(fitting, CANDIDATES)


def _same(a: Floats, b: Floats) -> bool:
    """Return True if two arrays agree up to ``TOLERANCE`` times the largest element of ``b``.

    Elements that are exactly the same say nothing of the others' size: they may fill a mask. But
    what rounding leaves of zero is as large as it may be beside them.
    """
    finite = np.where(np.isfinite(b), np.abs(b), 0.0)
    rounded = float(np.max(finite, where=a != b, initial=0.0))
    flat = finite.reshape(-1)
    remains = CANCELLED * float(flat[_pivot(flat)])
    limit = max(TOLERANCE * rounded, remains, TOLERANCE * 1e-300)
    with np.errstate(invalid="ignore"):
        return bool(((np.abs(a - b) <= limit) | (a == b) | (np.isnan(a) & np.isnan(b))).all())


def real_differences(comparison_actual: Any, comparison_expected: Any) -> Floats:
    """Return the relative difference of every element, shape (trials, rows, *shape).

    It is |a - b| divided by the largest finite magnitude of the trial.
    """
    actual = np.asarray(comparison_actual.data, dtype=np.float64)[0]
    expected = np.asarray(comparison_expected.data, dtype=np.float64)[0]
    actual, expected = np.broadcast_arrays(actual, expected)
    both = np.abs(np.stack([actual, expected])).reshape(2, len(actual), -1)
    scale = np.max(both, axis=(0, 2), where=np.isfinite(both), initial=1e-300).reshape(
        -1, *(1,) * (actual.ndim - 1)
    )
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    with np.errstate(invalid="ignore"):
        return np.where(
            same, 0.0, np.nan_to_num(np.abs(actual - expected) / scale, nan=np.inf, posinf=np.inf)
        )


def _match(
    value: int, data: Floats, index: Index, places: Places, scales: Sequence[Fraction]
) -> Cut | None:
    """Return the cut of a value, looked up by ``data`` of shape (trials, rows, *shape), or None."""
    for scale in (Fraction(1), *scales):
        scaled = data / float(scale) if scale != 1 else data
        for reference in _likely(
            scaled, index, places.preferred(value, _candidates(scaled, index))
        ):
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
        if starts is not None and _stands(data, whole, starts):
            return offsets
    found = [start for start in _starts(data, whole) if _stands(data, whole, start)]
    full = [f for f in (places.full(nodes, start) for start in found) if f is not None]
    return max(
        full, key=lambda f: sum(a == b for a, b in zip(f, offsets, strict=True)), default=None
    )
