"""Reduction of sums over symmetric coordinates: of a gradient that 1,024 coordinates add up, a few terms are evaluated.

Let both sides be sums over the segments of one reference dimension, each segment entering once: the parallel side through accumulation, all-reduce or
reduce-scatter over terms whose cones are the same but for the segment, the reference through one contraction. Then the claim is

    sum over i of f(x_i) = sum over i of g(x_i)    for all x,

with f and g that do not depend on the number of segments. If it holds for some number n >= 1 of segments, then f - g does not depend on x and n (f - g) = 0,
hence f = g, since n is below every prime in use, and the claim holds for every number. Anything that is not of this form is evaluated with all its terms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.axes import AxisAlgebra
from pitcheck.algebra.axis_classes import AxisSystem
from pitcheck.algebra.axis_templates import Templates
from pitcheck.algebra.axis_values import AxisValue
from pitcheck.ops.registry import divided, evaluate
from pitcheck.stages.batch import Argument, Batch, Step
from pitcheck.stages.grids import Codes
from pitcheck.stages.pair import Stage
from pitcheck.stages.prune import pruned
from pitcheck.stages.run import run_batch
from pitcheck.stages.shapes import SymbolicPair, symbolic_pair
from pitcheck.stages.symmetry import WORTHWHILE, RestrictedSizes, Symmetry, Words, common_segment, mixed, signatures, spread

SUMS = frozenset({"accumulate", "all_reduce", "reduce_scatter"})
MOVES = frozenset({"view", "reshape", "transpose", "permute", "identity", "contiguous", "squeeze", "unsqueeze"})
TAIL = MOVES | {f"{kind}.backward" for kind in MOVES}
"""Operators behind a contraction that leave a sum a sum."""
NOWHERE = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Sum:
    """The steps of the parallel side that add up terms of different segments, and the dimension over whose segments they do."""

    steps: frozenset[int]
    carrier: tuple[int, int]
    """A reference input that has the dimension, and where."""
    symmetry: Symmetry


def find_sum(stage: Stage, symbolic: SymbolicPair, templates: Templates | None, keep: int) -> Sum | None:
    """A sum of which ``keep`` members are kept at every level, or None where there is none worthwhile that is proven to be one."""
    if len(stage.targets) != 1 or stage.targets[0].cut.groups is not None:
        return None
    steps, term = _sum_steps(stage.parallel, stage.targets[0].cut.value)
    members = [step.inputs[0].rows.shape[1] for n, step in enumerate(stage.parallel.steps) if n in steps and isinstance(step.inputs[0], Argument)]
    if not members or (stage.sampling is None and max(members) <= WORTHWHILE):
        return None
    dimensions = _dimensions(stage, symbolic)
    summed = _Summed.of(stage, templates) if dimensions else None
    if summed is None:
        return None
    for root, carriers in dimensions.items():
        value, dim = carriers[0]
        total = stage.reference.graph.values[value].shape[dim]
        segment = common_segment(stage, symbolic, root, total)
        if segment is None or not summed.over(carriers):
            continue
        count = _segments(stage, total // segment)
        found = _kept(stage, symbolic, root, steps, term, count, segment, keep) if count else None
        if found is not None:
            cut, kept = found
            if stage.sampling is not None and stage.sampling.crossed(stage.parallel, cut):
                continue
            symmetry = Symmetry(dim, root, total, segment, stage.targets[0].where, kept, 1, total // segment, "terms of a sum")
            return Sum(cut, (value, dim), symmetry)
    return None


def _segments(stage: Stage, segments: int) -> int:
    """How many segments of the dimension the stage shows; 0 where those that it does not show are not all the others."""
    if stage.sampling is None:
        return segments
    seen, full = stage.sampling.counts(stage.sampling.differing(cut.grid for cut in stage.all_cuts()))
    return 0 if segments % full else segments // full * seen


def restrict_sum(stage: Stage, found: Sum, templates: Templates | None, variant: int, keep: int) -> tuple[Stage, SymbolicPair, RestrictedSizes]:
    """The stage with the kept terms alone, and its sizes."""
    value, dim = found.carrier
    parallel = _with_columns(stage.parallel, found.steps, stage.targets[0].cut.value, keep)
    fewer = replace(stage, parallel=parallel, cuts={own: cut for own, cut in stage.cuts.items() if own in parallel.inputs})
    symbolic = symbolic_pair(fewer.reference, fewer.parallel, fewer.all_cuts(), templates)
    root = symbolic.system.number_of(symbolic.reference.values[value].dims[dim])
    sizes = RestrictedSizes(symbolic.system.solve(variant), symbolic.system, replace(found.symmetry, root=root), fewer, symbolic)
    return fewer, symbolic, sizes


def _sum_steps(batch: Batch, target: int) -> tuple[frozenset[int], int]:
    """(the steps behind the target that add up members, all that write each value on the way; the value of the terms)."""
    chosen: set[int] = set()
    value = target
    while True:
        writers = [n for n, step in enumerate(batch.steps) if value in step.outputs]
        sources = {step.inputs[0].value for n in writers if _adds(step := batch.steps[n]) and isinstance(step.inputs[0], Argument)}
        if len(sources) != 1 or not all(_adds(batch.steps[n]) for n in writers) or value in batch.inputs:
            return frozenset(chosen), value
        chosen.update(writers)
        value = sources.pop()


def _adds(step: Step) -> bool:
    stacked = len(step.inputs) == 1 and isinstance(step.inputs[0], Argument) and step.inputs[0].rows.ndim == 2
    return step.kind in SUMS and stacked and step.attributes.get("reduction", "sum") == "sum"


def _dimensions(stage: Stage, symbolic: SymbolicPair) -> dict[int, list[tuple[int, int]]]:
    """For every class of dimensions that cuts divide: the (reference input, dimension) that belong to it."""
    divided: dict[int, None] = {}
    for cut in stage.cuts.values():
        for dim, node in enumerate(symbolic.reference.values[cut.reference].dims):
            if len(cut.parts.intervals[dim]) > WORTHWHILE:
                divided[symbolic.system.number_of(node)] = None
    inputs = dict.fromkeys([*stage.reference.inputs, *(cut.reference for cut in stage.cuts.values())])
    found: dict[int, list[tuple[int, int]]] = {root: [] for root in divided}
    for value in inputs:
        for dim, node in enumerate(symbolic.reference.values[value].dims):
            if symbolic.system.number_of(node) in found:
                found[symbolic.system.number_of(node)].append((value, dim))
    return found


# --- the reference


@dataclass(frozen=True)
class _Summed:
    """The contractions at the end of the reference, and the dimensions of what is computed before them, each by itself as far as operators say."""

    contractions: list[Step]
    values: Mapping[int, AxisValue]
    system: AxisSystem

    @classmethod
    def of(cls, stage: Stage, templates: Templates | None) -> _Summed | None:
        """None where the reference's target does not come from contractions alone."""
        batch, target = stage.reference, stage.targets[0].cut.reference
        tail = _contractions(batch, target)
        if tail is None:
            return None
        system = AxisSystem()
        algebra = AxisAlgebra(system)
        inputs = {value: algebra.tensor(batch.graph.values[value].shape, batch.graph.values[value].kind) for value in batch.inputs}
        before = replace(batch, steps=[step for n, step in enumerate(batch.steps) if n not in tail])
        values = run_batch(before, algebra, inputs, evaluator=(templates or Templates(evaluate)).run)
        return cls([batch.steps[n] for n in tail if batch.steps[n].kind in CONTRACTIONS], values, system)

    def over(self, carriers: Sequence[tuple[int, int]]) -> bool:
        """Whether the target is a sum over the dimension of what is computed for each place along it alone."""
        nodes = [self.values[value].dims[dim] for value, dim in carriers if value in self.values]
        if not nodes or not all(self.system.is_batch(node) for node in nodes):
            return False
        roots = {self.system.number_of(node) for node in nodes}

        def places(value: int) -> list[int]:
            return [dim for dim, node in enumerate(self.values[value].dims) if self.system.number_of(node) in roots]

        return all(_contracts(step, self.values, places) for step in self.contractions)


def _contractions(batch: Batch, target: int) -> frozenset[int] | None:
    """The steps from contractions to the target; None where something else lies in between."""
    found: set[int] = set()
    waiting = [target]
    while waiting:
        value = waiting.pop()
        writers = [n for n, step in enumerate(batch.steps) if value in step.outputs]
        if len(writers) != 1 or value in batch.inputs:
            return None
        step = batch.steps[writers[0]]
        found.add(writers[0])
        arguments = [argument.value for argument in step.looked_into]
        if step.kind in TAIL or (step.kind == "add" and len(arguments) == 2 and step.attributes.get("alpha", 1) == 1):
            waiting.extend(arguments)
        elif step.kind not in CONTRACTIONS or step.outputs.index(value) not in CONTRACTIONS[step.kind]:
            return None
    # What is summed must not be read by anything but the way to the target.
    inside = {output for n in found for output in batch.steps[n].outputs if output is not None}
    others = (step for n, step in enumerate(batch.steps) if n not in found)
    return None if any(a.value in inside for step in others for a in step.arguments) else frozenset(found)


CONTRACTIONS: Mapping[str, frozenset[int]] = {
    "linear.backward": frozenset({1, 2}),
    "embedding.backward": frozenset({1}),
    "rms_norm.backward": frozenset({1, 2}),
    "layer_norm.backward": frozenset({1, 2}),
    "matmul.backward": frozenset({1}),
}
"""Derivatives whose gradients of these operands (weight, bias) are sums over the leading dimensions of the first operand: of all but the last ``dims`` (default
1), of an embedding over all, of a product of matrices over those but the last two that the second operand lacks."""
LAST = {"embedding.backward": 0, "matmul.backward": 2}
WORD = 64
MOST_BITS = 1 << 24
"""Words of sets of segments over all steps: more would cost more than evaluating all terms."""


def _contracts(step: Step, values: Mapping[int, AxisValue], places: Callable[[int], list[int]]) -> bool:
    """Whether the dimension stands at one and the same leading place of the first operand and of the gradient that is given, and nowhere else."""
    arguments = [operand for operand in step.inputs if isinstance(operand, Argument)]
    if len(arguments) != len(step.inputs) or any(a.value not in values for a in arguments):
        return False
    given = arguments[-1].value
    first = arguments[0].value
    where = places(first)
    last = LAST.get(step.kind, int(step.attributes.get("dims", 1)))
    inputs, outputs, gradients = divided(step.attributes, len(arguments))
    if len(where) != 1 or places(given) != where or where[0] >= len(values[first].dims) - last or gradients != (0,) or outputs not in (0, 1):
        return False
    return all(not places(a.value) for a in arguments[1:inputs])


# --- the parallel side


def _kept(
    stage: Stage, symbolic: SymbolicPair, root: int, steps: frozenset[int], term: int, count: int, segment: int, keep: int
) -> tuple[frozenset[int], int] | None:
    """(the steps whose members are cut down, how many segments are kept); None where the terms are not the same for every block but for where it begins.

    A *block* is what one term depends on: a segment, or several, such as the sequences of ranks that exchange tokens. Blocks have no segment in common.
    """
    batch, target = stage.parallel, stage.targets[0].cut.value
    low, high = _spans(stage, symbolic, root)
    if term not in low or (low[term] == NOWHERE).any():
        return None
    size = _block_size(stage, symbolic, root, term, low, high)
    if not size or count % size:
        return None
    blocks, cones = low[term] // segment, _cones(stage, symbolic, root, term, low[term])
    full = _terms(batch, steps, target, term)
    if not all(_alike(blocks[row], cones[row], count // size) for row in full):
        return None
    if stage.sampling is not None and any(_repeated(blocks[row], cones[row]) for row in full):
        return None
    cut = frozenset(number for number in steps if _goes_over(batch.steps[number], low, high))
    some = _terms(batch, steps, target, term, cut, keep)
    chosen = {tuple(np.unique(blocks[row]).tolist()) for row in some}
    if len(chosen) != 1:
        return None
    kept = len(chosen.pop())
    whole = all(len(part) * (count // size) == len(row) * kept for part, row in zip(some, full, strict=True))
    return (cut, kept * size) if whole and all(_alike(blocks[row], cones[row], kept) for row in some) else None


def _cones(stage: Stage, symbolic: SymbolicPair, root: int, term: int, begins: Codes) -> Words:
    """A word for what every row of the terms is computed by, from which places along the dimension, seen from where its block begins."""
    shapes, sums, weights = signatures(stage, symbolic, root)
    with np.errstate(over="ignore"):
        relative = sums[term] - weights[term] * begins.astype(np.uint64)
        return mixed(mixed(shapes[term]) + relative)


def _block_size(stage: Stage, symbolic: SymbolicPair, root: int, term: int, low: Mapping[int, Codes], high: Mapping[int, Codes]) -> int:
    """How many segments every term depends on; 0 where blocks are of different sizes or overlap, or are too many to tell."""
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


def _segment_sets(stage: Stage, symbolic: SymbolicPair, root: int, term: int) -> NDArray[np.uint64] | None:
    """Of every row of the terms the set of segments it depends on, as bits, shape (rows, words); None where these would be too many."""
    places: dict[int, list[Codes]] = {}
    for value, parts in stage.parallel.inputs.items():
        cut = stage.cuts.get(value)
        dims = [] if cut is None else [d for d, n in enumerate(symbolic.reference.values[cut.reference].dims) if symbolic.system.number_of(n) == root]
        begins = [] if cut is None else [own[parts] for own in (cut.parts.begins(dim) for dim in dims) if own is not None]
        places[value] = begins
    segments = np.unique(np.concatenate([own for several in places.values() for own in several]))
    words = -(-len(segments) // WORD)
    if words * sum(step.count for step in stage.parallel.steps) > MOST_BITS:
        return None
    sets = {value: [_bits([np.searchsorted(segments, own) for own in places[value]], len(parts), words)] for value, parts in stage.parallel.inputs.items()}
    for step in stage.parallel.steps:
        found = np.zeros((step.count, words), dtype=np.uint64)
        for argument in step.looked_into:
            found |= np.bitwise_or.reduce(np.concatenate(sets[argument.value])[argument.rows.reshape(step.count, -1)], axis=1)
        for output in step.outputs:
            if output is not None:
                sets.setdefault(output, []).append(found)
    return np.concatenate(sets[term])


def _bits(places: Sequence[Codes], rows: int, words: int) -> NDArray[np.uint64]:
    """Sets of places as bits."""
    result = np.zeros((rows, words), dtype=np.uint64)
    for own in places:
        result[np.arange(rows), own // WORD] |= np.uint64(1) << (own % WORD).astype(np.uint64)
    return result


def _alike(segments: Codes, shapes: NDArray[np.uint64], count: int) -> bool:
    """Whether terms belong to ``count`` segments and are, but for the segment, the same in each."""
    if len(segments) % count:
        return False
    order = np.lexsort((shapes, segments))
    by_segment, cones = segments[order].reshape(count, -1), shapes[order].reshape(count, -1)
    return bool((by_segment == by_segment[:, :1]).all() and len(np.unique(by_segment[:, 0])) == count and (cones == cones[:1]).all())


def _repeated(segments: Codes, shapes: NDArray[np.uint64]) -> bool:
    """Whether a term is added more than once: how often may depend on the number of coordinates."""
    return len(np.unique(np.stack([segments.astype(np.uint64), shapes], axis=1), axis=0)) < len(segments)


def _goes_over(step: Step, low: Mapping[int, Codes], high: Mapping[int, Codes]) -> bool:
    """Whether the members of a sum lie in different segments."""
    operand = step.inputs[0]
    if not isinstance(operand, Argument):
        return False
    least, most = low[operand.value][operand.rows], high[operand.value][operand.rows]
    return bool((least != least[:, :1]).any() or (most != most[:, :1]).any())


def _terms(batch: Batch, steps: frozenset[int], target: int, term: int, cut: frozenset[int] = frozenset(), keep: int = 0) -> list[Codes]:
    """For every row of the target the rows of the terms that it adds up, where the steps ``cut`` have ``keep`` of their members."""
    rows: dict[int, list[Codes]] = {term: [np.array([n], dtype=np.int64) for n in range(batch.count(term))]}
    for number, step in enumerate(batch.steps):
        operand = step.inputs[0] if number in steps else None
        if isinstance(operand, Argument):
            for output in step.outputs:
                if output is not None:
                    table = operand.rows[:, _columns(operand, keep)] if number in cut else operand.rows
                    rows.setdefault(output, []).extend(np.concatenate([rows[operand.value][n] for n in line]) for line in table.tolist())
    return rows[target]


def _columns(operand: Argument, keep: int) -> Codes:
    return spread(np.arange(operand.rows.shape[1], dtype=np.int64), keep)


def _spans(stage: Stage, symbolic: SymbolicPair, root: int) -> tuple[dict[int, Codes], dict[int, Codes]]:
    """Per value and row the first and the last offset along the dimension at which an input of its cone begins; (NOWHERE, -1) for none."""
    low: dict[int, list[Codes]] = {}
    high: dict[int, list[Codes]] = {}
    for value, parts in stage.parallel.inputs.items():
        cut = stage.cuts.get(value)
        own_low, own_high = np.full(len(parts), NOWHERE, dtype=np.int64), np.full(len(parts), -1, dtype=np.int64)
        if cut is not None:
            for dim, node in enumerate(symbolic.reference.values[cut.reference].dims):
                begins = cut.parts.begins(dim)
                if symbolic.system.number_of(node) == root and begins is not None:
                    own_low = np.minimum(own_low, begins[parts])
                    own_high = np.maximum(own_high, begins[parts])
        low[value], high[value] = [own_low], [own_high]
    for step in stage.parallel.steps:
        least, most = np.full(step.count, NOWHERE, dtype=np.int64), np.full(step.count, -1, dtype=np.int64)
        for argument in step.looked_into:
            table = argument.rows.reshape(step.count, -1)
            least = np.minimum(least, np.concatenate(low[argument.value])[table].min(axis=1, initial=NOWHERE))
            most = np.maximum(most, np.concatenate(high[argument.value])[table].max(axis=1, initial=-1))
        for output in step.outputs:
            if output is not None:
                low.setdefault(output, []).append(least)
                high.setdefault(output, []).append(most)
    return {v: np.concatenate(a) for v, a in low.items()}, {v: np.concatenate(a) for v, a in high.items()}


def _with_columns(batch: Batch, steps: frozenset[int], target: int, keep: int) -> Batch:
    """The batch with the kept members alone in its sums, and without the rows that nothing needs then."""
    fewer = []
    for number, step in enumerate(batch.steps):
        operand = step.inputs[0] if number in steps else None
        if isinstance(operand, Argument):
            fewer.append(replace(step, inputs=(Argument(operand.value, operand.rows[:, _columns(operand, keep)]),)))
        else:
            fewer.append(step)
    return pruned(replace(batch, steps=fewer), target)
