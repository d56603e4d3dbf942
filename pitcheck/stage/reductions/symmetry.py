"""Reduction of symmetric coordinates: a few target coordinates represent their renamings.

Let a reference dimension be a pure batch dimension of the stage: no operator of either side mixes,
cuts or measures it. Let the cones of two target coordinates have the same operators, attributes and
inputs, except that every box along that dimension is moved by one common offset. Then the two
claims are the same claim about renamed rows, and one proves the other. Nothing is assumed about
mesh axes: the cones themselves are compared.

>>> spread(np.arange(9), keep=3).tolist()
[0, 4, 8]
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.keyed import key_of, mix
from pitcheck.graph.grids import Codes, Mask, near
from pitcheck.ops.axis_templates import Templates
from pitcheck.stage.batch import Argument, Step
from pitcheck.stage.reductions.reference_alone import ReferenceAlone
from pitcheck.stage.reductions.spans import carriers, once_per_class, spans
from pitcheck.stage.shapes import SymbolicPair
from pitcheck.stage.stage import Stage, Target, compared_rows

WORTHWHILE = 3
"""The size of classes up to which they are left whole: reducing them costs more than it saves."""

Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Symmetry:
    """A dimension whose segments are treated the same way, its size, and the kept coordinates."""

    carrier: tuple[int, int]
    """A reference value that has the dimension, and where."""
    total: int
    segment: int
    where: Mask
    """The coordinates kept, near the home of the target's value."""
    kept: int
    classes: int
    members: int
    rule: str
    """The reason why the kept ones stand for all."""
    what: str = "coordinates"


def find_symmetry(
    stage: Stage,
    symbolic: SymbolicPair,
    keep: int,
    seed: int,
    templates: Templates | None = None,
    done: Collection[int] = (),
) -> Symmetry | None:
    """Return a reduction that keeps ``keep`` coordinates of every class.

    ``seed`` keys the words by which cones are compared. Return None if none is worthwhile along a
    dimension of a class not in ``done``.
    """
    if len(stage.targets) != 1 or stage.targets[0].cut.group_of is not None:
        return None
    target = stage.targets[0]
    dims = symbolic.reference.values[target.cut.reference].dims
    compared, _, codes = compared_rows(target, stage.parallel)
    for dim, node in enumerate(dims):
        begins = target.cut.parts.begins(dim)
        if begins is None or len(np.unique(begins[compared[1]])) <= WORTHWHILE:
            continue
        root = symbolic.system.number_of(node)
        if root in done:
            continue
        total = stage.reference.graph.values[target.cut.reference].shape[dim]
        segment = common_segment(stage, symbolic, root, total)
        batch = symbolic.system.is_batch(node)
        if segment is None or not (
            batch or _lie_apart(stage, symbolic, root, dim, segment, templates)
        ):
            continue
        classes = _classes(stage, symbolic, root, target, dim, compared, seed)
        members = _members(stage, classes, codes)
        kept = np.sort(
            np.concatenate(
                [
                    spread(np.flatnonzero(classes == own), keep)
                    for own in range(int(classes.max()) + 1)
                ]
            )
        )
        if members and len(kept) * 2 <= len(codes):
            count, rule = (
                int(classes.max()) + 1,
                "pure batch dimension" if batch else "each computed from a segment of its own",
            )
            return Symmetry(
                (target.cut.reference, dim),
                total,
                segment,
                near(target.cut.lattice.mask(codes[kept]), target.home),
                len(kept),
                count,
                members,
                rule,
            )
    return None


def _lie_apart(
    stage: Stage,
    symbolic: SymbolicPair,
    root: int,
    dim: int,
    segment: int,
    templates: Templates | None,
) -> bool:
    """Return True if every compared row depends on one segment of the dimension, a different one.

    The reference must compute every place along the dimension separately. No tensor of the parallel
    side may have more of it than one segment: its extent would tell how many segments there are.
    """
    target = stage.targets[0]
    rows, held = compared_rows(target, stage.parallel)[0]
    begins = target.cut.parts.begins(dim)
    low, high = spans(stage, symbolic, root)
    own, last = low[target.cut.value][rows], high[target.cut.value][rows]
    if begins is None or (own != last).any() or (own != begins[held]).any():
        return False
    if any(
        node.size > segment and symbolic.system.number_of(node) == root
        for own in symbolic.parallel.values.values()
        for node in own.dims
    ):
        return False
    alone = ReferenceAlone.of(stage.reference, templates, {target.cut.reference})
    node = alone.values[target.cut.reference].dims[dim]
    return alone.is_batch(
        node, [carrier for carrier in carriers(stage, symbolic, root) if carrier[0] in alone.read]
    )


def _members(stage: Stage, classes: Codes, codes: Codes) -> int:
    """Return for how many coordinates those of the stage stand.

    Each stands for itself. If the stage shows a few of some axes, they stand for all, provided that
    these are of one class; return 0 if they are not.
    """
    if stage.sampling is None:
        return len(codes)
    axes = stage.sampling.differing(cut.grid for cut in stage.all_cuts())
    seen, full = stage.sampling.counts(axes)
    alike = axes == stage.sampling.differing(
        [stage.targets[0].cut.grid]
    ) and stage.sampling.in_one_class(classes, codes, stage.targets[0].cut.lattice, axes)
    return len(codes) // seen * full if alike and not stage.sampling.crossed(stage.parallel) else 0


def common_segment(stage: Stage, symbolic: SymbolicPair, root: int, total: int) -> int | None:
    """Return the common length of all boxes along the dimension, or None.

    Every offset must be a multiple of it.
    """
    lengths: set[int] = set()
    for cut in stage.all_cuts():
        nodes = symbolic.reference.values[cut.reference].dims
        shape = stage.reference.graph.values[cut.reference].shape
        for dim, node in enumerate(nodes):
            if symbolic.system.number_of(node) != root:
                continue
            if shape[dim] != total or cut.parts.begins(dim) is None:
                return None
            for intervals in cut.parts.intervals[dim]:
                start, stop = intervals[0]
                lengths.add(stop - start)
                if start % (stop - start):
                    return None
    return lengths.pop() if len(lengths) == 1 else None


def _classes(
    stage: Stage,
    symbolic: SymbolicPair,
    root: int,
    target: Target,
    dim: int,
    compared: Codes,
    seed: int,
) -> Codes:
    """Return the class of every compared pair of row and part, shape (pairs,).

    The cones of one class are the same but for an offset along the dimension.
    """
    shapes, sums, weights = signatures(stage, symbolic, root, seed)
    value, parts = target.cut.value, target.cut.parts
    rows, held = compared
    begins = parts.begins(dim)
    moved = (
        np.zeros(len(held), dtype=np.uint64) if begins is None else begins[held].astype(np.uint64)
    )
    with np.errstate(over="ignore"):
        relative = sums[value][rows] - weights[value][rows] * moved
    others = parts.others(dim)[held].astype(np.uint64)
    order = np.lexsort((np.arange(len(held)), others, relative, shapes[value][rows]))
    keys = np.stack([shapes[value][rows][order], relative[order], others[order]])
    bounds = np.flatnonzero((keys[:, 1:] != keys[:, :-1]).any(axis=0)) + 1
    classes = np.zeros(len(held), dtype=np.int64)
    classes[order] = np.searchsorted(bounds, np.arange(len(held)), side="right")
    return classes


def spread(members: Codes, keep: int) -> Codes:
    """Return ``keep`` members of a class: the first, the last, and evenly spread ones."""
    if len(members) <= keep:
        return members
    return members[[i * (len(members) - 1) // max(keep - 1, 1) for i in range(keep)]]


@once_per_class
def signatures(
    stage: Stage, symbolic: SymbolicPair, root: int, seed: int
) -> tuple[dict[int, Words], dict[int, Words], dict[int, Words]]:
    """Return what identifies the cone of every row up to an offset along the dimension.

    Two rows have the same relative offsets if ``form - ones * offset`` agree, up to a collision of
    64-bit words. All words are keyed by the run's secret ``seed``: with known weights a plan could
    be made whose offsets have a form of 0.

    Returns:
        By value, words of shape (rows,): a hash of the cone without offsets along the dimension; a
        random linear form of those offsets; the form of ones.
    """
    shapes: dict[int, list[Words]] = {}
    sums: dict[int, list[Words]] = {}
    weights: dict[int, list[Words]] = {}
    for value in stage.parallel.inputs:
        shape, total, ones = _leaves(stage, symbolic, root, value, seed)
        shapes[value], sums[value], weights[value] = [shape], [total], [ones]
    with np.errstate(over="ignore"):
        for step in stage.parallel.steps:
            _step_signature(step, seed, shapes, sums, weights)
    return (
        {v: np.concatenate(a) for v, a in shapes.items()},
        {v: np.concatenate(a) for v, a in sums.items()},
        {v: np.concatenate(a) for v, a in weights.items()},
    )


def _leaves(
    stage: Stage, symbolic: SymbolicPair, root: int, value: int, seed: int
) -> tuple[Words, Words, Words]:
    """Return the signatures of the rows of an input."""
    cut = stage.cuts.get(value)
    parts = stage.parallel.inputs[value]
    shape = np.zeros(len(parts), dtype=np.uint64)
    total = np.zeros(len(parts), dtype=np.uint64)
    ones = np.zeros(len(parts), dtype=np.uint64)
    if cut is None:
        shape[:] = _word(seed, "constant", value)
        return shape, total, ones
    batch = tuple(
        dim
        for dim, node in enumerate(symbolic.reference.values[cut.reference].dims)
        if symbolic.system.number_of(node) == root
    )
    words = cut.parts.words(batch, seed)[parts]
    own = _word(seed, "leaf", cut.reference, cut.scale)
    with np.errstate(over="ignore"):
        shape = mix(np, words * own)
        for dim in batch:
            weight = _word(seed, "dim", cut.reference, dim)
            begins = cut.parts.begins(dim)
            if begins is not None:
                total += weight * begins[parts].astype(np.uint64)
            ones += weight
    return shape, total, ones


def _step_signature(
    step: Step,
    seed: int,
    shapes: dict[int, list[Words]],
    sums: dict[int, list[Words]],
    weights: dict[int, list[Words]],
) -> None:
    """Append the signatures of the rows that a step writes."""
    shape = np.full(step.count, step_word(step, seed), dtype=np.uint64)
    for factor, value, rows in _columns(step, seed):
        shape = mix(np, shape * np.uint64(3) + np.concatenate(shapes[value])[rows] * factor)
    total, ones = np.zeros((2, step.count), dtype=np.uint64)
    # Products of words commute. With the word of the reader in each factor a product is that of one
    # way down the cone; without it f(g(a, b), h(c, d)) gives b and c the same weight. Odd words do
    # not multiply to 0.
    own_word = mix(np, shape) | np.uint64(1)
    for factor, value, rows in _columns(step, seed):
        weight = own_word + np.uint64(2) * factor
        total += np.concatenate(sums[value])[rows] * weight
        ones += np.concatenate(weights[value])[rows] * weight
    for number, output in enumerate(step.outputs):
        if output is not None:
            own = _word(seed, "output", number)
            shapes.setdefault(output, []).append(mix(np, shape + own))
            sums.setdefault(output, []).append(total * own)
            weights.setdefault(output, []).append(ones * own)


def step_word(step: Step, seed: int, output: int | None = None) -> np.uint64:
    """Return a word for the operator of a step, its attributes and the numbers among its operands.

    With ``output`` the word is that of one of its results.
    """
    return _word(
        seed,
        step.kind,
        sorted(step.attributes.items()),
        [o if not isinstance(o, (Argument, tuple)) else None for o in step.inputs],
        *(() if output is None else (output,)),
    )


def _columns(step: Step, seed: int) -> Iterator[tuple[np.uint64, int, Codes]]:
    """Yield every operand of ``step`` that is read.

    Yields:
        A word for the operand's place, its value, and the rows of it that the step reads, of shape
        (step.count,).
    """
    for place, operand in enumerate(step.inputs):
        if place in step.unread:
            continue
        arguments = (
            operand
            if isinstance(operand, tuple)
            else (operand,)
            if isinstance(operand, Argument)
            else ()
        )
        for member, argument in enumerate(arguments):
            table = argument.rows if argument.rows.ndim == 2 else argument.rows[:, None]
            for column in range(table.shape[1]):
                yield (
                    _word(seed, "operand", place, member, column),
                    argument.value,
                    table[:, column],
                )


def _word(seed: int, *what: object) -> np.uint64:
    """Return an odd 64-bit word from anything printable, keyed by the run's seed."""
    return np.uint64(key_of(seed, *what) | 1)
