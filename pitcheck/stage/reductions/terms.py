"""The terms that the parallel side of a stage adds up over the segments of a dimension.

A few of them stand for all.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> sum_steps(Problem.of(plan, plan).whole_stage().parallel, 1)  # nothing is added up
(frozenset(), 1)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.keyed import mix
from pitcheck.graph.grids import Codes
from pitcheck.ops.registry import has_trait
from pitcheck.ops.traits import Trait
from pitcheck.stage.batch import Argument, Batch, Step
from pitcheck.stage.pruned_batch import pruned
from pitcheck.stage.reductions.spans import NOWHERE, once_per_class, spans
from pitcheck.stage.reductions.symmetry import Words, signatures, spread, step_word
from pitcheck.stage.shapes import SymbolicPair
from pitcheck.stage.stage import Stage

WORD = 64
"""The bits of a word."""
MOST_BITS = 1 << 24
"""The words of sets of segments over all steps. More would cost more than evaluating all terms."""


def sum_steps(batch: Batch, target: int) -> tuple[frozenset[int], int]:
    """Return the steps behind the target that add up members or move elements.

    All steps that write a value on the way are among them.

    Returns:
        The numbers of the steps; the value of the terms.
    """
    chosen: set[int] = set()
    value, term, adding = target, target, frozenset[int]()
    while value not in batch.inputs:
        writers = [n for n, step in enumerate(batch.steps) if value in step.outputs]
        sources = {source for n in writers if (source := _added(batch.steps[n])) is not None}
        if len(sources) != 1 or not all(_added(batch.steps[n]) is not None for n in writers):
            break
        chosen.update(writers)
        value = sources.pop()
        if any(_adds(batch.steps[n]) for n in writers):
            term, adding = value, frozenset(chosen)
    return adding, term


def _added(step: Step) -> int | None:
    """Return the value whose members a step adds up, or whose elements it moves, or None."""
    read = step.looked_into
    return (
        read[0].value
        if len(read) == 1 and (_adds(step) or (is_linear(step) and read[0].rows.ndim == 1))
        else None
    )


def is_linear(step: Step) -> bool:
    """Return True if a step moves elements, or multiplies them by a number: a sum stays a sum."""
    by_number = len(step.inputs) == len(step.arguments) + 1 == 2
    return has_trait(step.kind, Trait.REARRANGES, step.attributes) or (
        by_number and has_trait(step.kind, Trait.MULTILINEAR, step.attributes)
    )


def _adds(step: Step) -> bool:
    """Return True if a step adds up the members of a stack."""
    stacked = (
        len(step.inputs) == 1
        and isinstance(step.inputs[0], Argument)
        and step.inputs[0].rows.ndim == 2
    )
    return stacked and has_trait(step.kind, Trait.ADDS_MEMBERS, step.attributes)


class _Added(NamedTuple):
    """The terms that one row adds up.

    ``rows`` has their rows, and ``ways`` a word for the steps between each term and the sum. Both
    have shape (terms,).
    """

    rows: Codes
    ways: Words


@dataclass(frozen=True)
class Terms:
    """The terms that every row of the target adds up.

    A *block* is what one term depends on: ``size`` segments, such as the sequences of ranks that
    exchange tokens. Blocks have no segment in common; there are ``count`` of them. ``low`` and
    ``high`` are spans of all values. For every term, ``blocks`` tells its block, by the segment in
    which it begins, and ``cones`` has a word for how it is computed. ``full`` has the rows of the
    terms of every row of the target. ``seed`` keys the words.
    """

    steps: frozenset[int]
    term: int
    low: Mapping[int, Codes]
    high: Mapping[int, Codes]
    blocks: Codes
    cones: Words
    full: list[_Added]
    size: int
    count: int
    seed: int

    def chosen(self, batch: Batch, target: int, keep: int) -> tuple[dict[int, Codes], int] | None:
        """Return the rows of the members that are left, by step, and how many segments they have.

        Return None if rows of the target keep different blocks, or all.
        """
        cut = [
            number
            for number in sorted(self.steps)
            if _goes_over(batch.steps[number], self.low, self.high)
        ]
        # Only the sums next to the terms keep more than one block: the blocks that several sums
        # keep would multiply.
        nearest = frozenset(batch.steps[cut[0]].outputs) if cut else frozenset()
        found = {
            n: _some_members(
                batch.steps[n],
                self.low,
                keep if nearest.intersection(batch.steps[n].outputs) else 1,
            )
            for n in cut
        }
        tables = {number: table for number, table in found.items() if table is not None}
        some = (
            _terms(batch, self.steps, target, self.term, self.seed, tables)
            if len(tables) == len(found)
            else []
        )
        chosen = {tuple(np.unique(self.blocks[row.rows]).tolist()) for row in some}
        kept = len(chosen.pop()) if len(chosen) == 1 else 0
        fewer = 0 < kept < self.count
        whole = fewer and all(
            len(part.rows) * self.count == len(row.rows) * kept
            for part, row in zip(some, self.full, strict=True)
        )
        return (
            (tables, kept * self.size)
            if whole and all(_alike(*self.described(row), kept) for row in some)
            else None
        )

    def described(self, row: _Added) -> tuple[Codes, Words]:
        """Return where the terms that a row adds up come from, and a word for each.

        Returns:
            The block of every term, and a word for how the term is computed and what becomes of it
            on its way. Both have shape (terms,).
        """
        return self.blocks[row.rows], mix(np, self.cones[row.rows] + mix(np, row.ways))


@once_per_class
def terms_of(
    stage: Stage, symbolic: SymbolicPair, root: int, segments: int, segment: int, seed: int
) -> Terms | None:
    """Return the terms over the ``segments`` of a dimension, each of length ``segment``.

    Return None if they differ between blocks by more than where the block begins.
    """
    batch, target = stage.parallel, stage.targets[0].cut.value
    steps, term = sum_steps(batch, target)
    low, high = spans(stage, symbolic, root)
    size = (
        0
        if term not in low or (low[term] == NOWHERE).any()
        else _block_size(stage, symbolic, root, term, low, high)
    )
    if not size or segments % size:
        return None
    full = _terms(batch, steps, target, term, seed)
    found = Terms(
        steps,
        term,
        low,
        high,
        low[term] // segment,
        _cones(stage, symbolic, root, term, low[term], seed),
        full,
        size,
        segments // size,
        seed,
    )
    if not all(_alike(*found.described(row), found.count) for row in full):
        return None
    repeated = stage.sampling is not None and any(_repeated(*found.described(row)) for row in full)
    return None if repeated else found


def _cones(
    stage: Stage, symbolic: SymbolicPair, root: int, term: int, begins: Codes, seed: int
) -> Words:
    """Return a word for how every row of the terms is computed, shape (rows,).

    Places along the dimension are seen from where its block begins.
    """
    shapes, sums, weights = signatures(stage, symbolic, root, seed)
    with np.errstate(over="ignore"):
        relative = sums[term] - weights[term] * begins.astype(np.uint64)
        found: Words = mix(np, mix(np, shapes[term]) + relative)
        return found


def _block_size(
    stage: Stage,
    symbolic: SymbolicPair,
    root: int,
    term: int,
    low: Mapping[int, Codes],
    high: Mapping[int, Codes],
) -> int:
    """Return how many segments every term depends on.

    Return 0 if blocks are of different sizes, overlap, or are too many to tell.
    """
    if (low[term] == high[term]).all():
        return 1
    sets = _segment_sets(stage, symbolic, root, term)
    if sets is None:
        return 0
    _, first, block = np.unique(low[term], return_index=True, return_inverse=True)
    block = block.reshape(-1)
    if (sets != sets[first][block]).any():
        return 0
    sizes = np.bitwise_count(sets[first]).sum(axis=1, dtype=np.int64)
    together = int(np.bitwise_count(np.bitwise_or.reduce(sets[first], axis=0)).sum(dtype=np.int64))
    return int(sizes[0]) if (sizes == sizes[0]).all() and int(sizes.sum()) == together else 0


def _segment_sets(
    stage: Stage, symbolic: SymbolicPair, root: int, term: int
) -> NDArray[np.uint64] | None:
    """Return the set of segments that every row of the terms depends on, as bits.

    The shape is (rows, words). Return None if these would be too many.
    """
    places: dict[int, list[Codes]] = {}
    for value, parts in stage.parallel.inputs.items():
        cut = stage.cuts.get(value)
        dims = (
            []
            if cut is None
            else [
                d
                for d, n in enumerate(symbolic.reference.values[cut.reference].dims)
                if symbolic.system.number_of(n) == root
            ]
        )
        begins = (
            []
            if cut is None
            else [own[parts] for own in (cut.parts.begins(dim) for dim in dims) if own is not None]
        )
        places[value] = begins
    segments = np.unique(np.concatenate([own for several in places.values() for own in several]))
    words = -(-len(segments) // WORD)
    if words * sum(step.count for step in stage.parallel.steps) > MOST_BITS:
        return None
    sets = {
        value: [_bits([np.searchsorted(segments, own) for own in places[value]], len(parts), words)]
        for value, parts in stage.parallel.inputs.items()
    }
    for step in stage.parallel.steps:
        found = np.zeros((step.count, words), dtype=np.uint64)
        for argument in step.looked_into:
            found |= np.bitwise_or.reduce(
                np.concatenate(sets[argument.value])[argument.rows.reshape(step.count, -1)], axis=1
            )
        for output in step.outputs:
            if output is not None:
                sets.setdefault(output, []).append(found)
    return np.concatenate(sets[term])


def _bits(places: Sequence[Codes], rows: int, words: int) -> NDArray[np.uint64]:
    """Return sets of places as bits, shape (rows, words)."""
    result = np.zeros((rows, words), dtype=np.uint64)
    for own in places:
        result[np.arange(rows), own // WORD] |= np.uint64(1) << (own % WORD).astype(np.uint64)
    return result


def _alike(segments: Codes, shapes: NDArray[np.uint64], count: int) -> bool:
    """Return True if terms belong to ``count`` segments and are the same in each."""
    if len(segments) % count:
        return False
    order = np.lexsort((shapes, segments))
    by_segment, cones = segments[order].reshape(count, -1), shapes[order].reshape(count, -1)
    return bool(
        (by_segment == by_segment[:, :1]).all()
        and len(np.unique(by_segment[:, 0])) == count
        and (cones == cones[:1]).all()
    )


def _repeated(segments: Codes, shapes: NDArray[np.uint64]) -> bool:
    """Return True if a term is added more than once.

    How often may depend on the number of coordinates.
    """
    return len(np.unique(np.stack([segments.astype(np.uint64), shapes], axis=1), axis=0)) < len(
        segments
    )


def _goes_over(step: Step, low: Mapping[int, Codes], high: Mapping[int, Codes]) -> bool:
    """Return True if the members of a sum lie in different segments."""
    operand = step.inputs[0]
    if not isinstance(operand, Argument) or operand.rows.ndim != 2:
        return False
    least, most = low[operand.value][operand.rows], high[operand.value][operand.rows]
    return bool((least != least[:, :1]).any() or (most != most[:, :1]).any())


def _terms(
    batch: Batch,
    steps: frozenset[int],
    target: int,
    term: int,
    seed: int,
    tables: Mapping[int, Codes] | None = None,
) -> list[_Added]:
    """Return for every row of the target the terms that it adds up.

    ``tables`` has the rows of the members of steps of which some are left out.
    """
    found: dict[int, list[_Added]] = {
        term: [
            _Added(np.array([n], dtype=np.int64), np.zeros(1, dtype=np.uint64))
            for n in range(batch.count(term))
        ]
    }
    for number, step in enumerate(batch.steps):
        for operand in step.looked_into if number in steps else ():
            table = operand.rows if tables is None else tables.get(number, operand.rows)
            lines = table.reshape(step.count, -1).tolist()
            for place, output in enumerate(step.outputs):
                if output is not None:
                    word = step_word(step, seed, place)
                    found.setdefault(output, []).extend(
                        _together([found[operand.value][n] for n in line], word) for line in lines
                    )
    return found[target]


def _together(rows: Sequence[_Added], word: np.uint64) -> _Added:
    """Return the terms of several rows, once they went through a step that has this word."""
    with np.errstate(over="ignore"):
        ways = mix(np, np.concatenate([row.ways for row in rows]) + word)
    return _Added(np.concatenate([row.rows for row in rows]), ways)


def _some_members(step: Step, low: Mapping[int, Codes], keep: int) -> Codes | None:
    """Return the rows of the members that belong to ``keep`` of the blocks of a step.

    Return None if blocks have unequally many members.
    """
    operand = step.inputs[0]
    # If a sum is also cut into parts, sizes depend on the number of members.
    if not isinstance(operand, Argument) or not has_trait(
        step.kind, Trait.ADDS_PLAINLY, step.attributes
    ):
        return None
    lines = []
    for line in operand.rows:
        begins = low[operand.value][line]
        lines.append(line[np.isin(begins, spread(np.unique(begins), keep))])
    return np.stack(lines) if len({len(line) for line in lines}) == 1 else None


def with_members(batch: Batch, tables: Mapping[int, Codes], target: int) -> Batch:
    """Return the batch with some members alone in its sums, without rows that are then unused."""
    fewer = list(batch.steps)
    for number, table in tables.items():
        operand = fewer[number].inputs[0]
        if isinstance(operand, Argument):
            fewer[number] = replace(fewer[number], inputs=(Argument(operand.value, table),))
    return pruned(replace(batch, steps=fewer), target)
