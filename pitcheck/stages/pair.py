"""A stage: a part of the reference and a part of the parallel plan between the same cuts, with what must hold at its target.

The whole pair of plans is one such stage too, cut at the plans' initial tensors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.size_choice import Sizes
from pitcheck.check.derive import STRUCTURAL, Derived, Fresh
from pitcheck.errors import UnsupportedError
from pitcheck.plan.numbers import parse_number
from pitcheck.stages.batch import Argument, Batch, Step, extract
from pitcheck.stages.cuts import FREE, Box, Cut
from pitcheck.stages.distinct import distinct
from pitcheck.stages.graph import Codes, Graph
from pitcheck.stages.literals import integers_at_issue
from pitcheck.stages.shapes import SymbolicPair

CutOf = Callable[[int], Cut | None]
ROOTS = frozenset({"sqrt", "rsqrt"})


@dataclass(frozen=True)
class Target:
    """What must hold: ``cut`` at ``codes`` of the parallel value; the terms of a partial cut are added over every group."""

    cut: Cut
    codes: Codes
    name: str = ""


@dataclass
class Stage:
    """Both sides of a stage. ``cuts`` maps every drawn parallel input to its cut."""

    reference: Batch
    parallel: Batch
    cuts: dict[int, Cut]
    targets: tuple[Target, ...]

    def all_cuts(self) -> list[Cut]:
        """The cuts of inputs and targets, by which the two sides' dimensions are tied."""
        return [*self.cuts.values(), *(target.cut for target in self.targets)]


def constant_mask(graph: Graph, value: int) -> NDArray[np.int64] | None:
    """A boundary of one part for tensors of known constant value; they are never drawn."""
    if graph.values[value].tensor.value is None or graph.values[value].writers:
        return None
    return np.zeros(graph.codes, dtype=np.int64)


def build_stage(first: Graph, second: Graph, cut_of: CutOf, targets: Sequence[Target]) -> Stage:
    """Cut out the cone of ``targets``: the parallel side back to cut tensors, the reference side back to the same tensors.

    ``cut_of`` gives the cut at which a parallel value may be taken as given (it must be proven elsewhere, or be initial). A target itself is never
    taken as given. Raises UnsupportedError where something is needed that nothing computes.
    """
    own = {target.cut.value for target in targets}

    def parallel_boundary(value: int) -> NDArray[np.int64] | None:
        constant = constant_mask(second, value)
        cut = None if constant is not None or (value in own and second.values[value].writers) else cut_of(value)
        return constant if cut is None else cut.part_of

    masks: dict[int, NDArray[np.bool_]] = {}
    for target in targets:
        masks.setdefault(target.cut.value, np.zeros(second.codes, dtype=np.bool_))[target.codes] = True
    parallel = extract(second, masks, parallel_boundary)
    _no_missing(parallel, "parallel")
    cuts = {value: cut for value in parallel.inputs if (cut := cut_of(value)) is not None and constant_mask(second, value) is None}
    given = {cut.reference for cut in cuts.values()}

    def reference_boundary(value: int) -> NDArray[np.int64] | None:
        if value in given or not first.values[value].writers:
            return np.zeros(first.codes, dtype=np.int64)
        return None

    wanted = {target.cut.reference: np.ones(first.codes, dtype=np.bool_) for target in targets}
    reference = extract(first, wanted, reference_boundary)
    _no_missing(reference, "reference")
    for value in given - reference.inputs.keys():
        # The parallel side reads a tensor that this part of the reference does not: an input all the same, from which it is derived.
        if value not in reference.rows:
            reference.inputs[value] = np.zeros(1, dtype=np.int64)
            reference.rows[value] = np.zeros(first.codes, dtype=np.int64)
    return Stage(reference, parallel, cuts, tuple(targets))


def _no_missing(batch: Batch, side: str) -> None:
    for value, codes in batch.missing.items():
        rank, microbatch = batch.graph.place(int(codes[0]))
        raise UnsupportedError(f"{side} plan: {batch.graph.values[value].name!r} is read on rank {rank}, micro-batch {microbatch}, where nothing computes it")


@dataclass
class ShapedStage:
    """A stage at definite sizes, ready to be evaluated in any algebra."""

    stage: Stage
    fresh: dict[int, Fresh]
    derived: dict[int, Derived]
    constants: tuple[dict[int, tuple[Any, tuple[int, ...], str]], dict[int, tuple[Any, tuple[int, ...], str]]]
    attributes: tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]
    boxes: list[tuple[Box, ...]]
    """Per target the boxes of its parts."""
    sizes: Sizes


def shape_stage(stage: Stage, symbolic: SymbolicPair, sizes: Sizes, keys: Mapping[int, str]) -> ShapedStage:
    """Give a stage definite sizes; ``keys`` names the reference inputs, so that equal stages draw equal numbers."""
    squares = _square_inputs(stage)
    fresh = {}
    for value in _drawn_reference(stage):
        info = stage.reference.graph.values[value]
        domain = "square" if value in squares and info.kind == "field" else "any"
        bounds = info.tensor.bounds
        marks = _marks(stage, bounds) if bounds is not None else ()
        fresh[value] = Fresh(keys[value], symbolic.reference.shape(value, sizes), info.kind, domain, bounds, marks)
    derived = {value: _derived(stage, value, cut, symbolic, sizes, f"{keys[cut.reference]}/{n}") for n, (value, cut) in enumerate(stage.cuts.items())}
    boxes = [tuple(symbolic.box(target.cut, part.box, sizes) for part in target.cut.parts) for target in stage.targets]
    return ShapedStage(
        stage,
        fresh,
        derived,
        (_constants(stage.reference, symbolic.reference.shape, sizes), _constants(stage.parallel, symbolic.parallel.shape, sizes)),
        (symbolic.reference.attributes(sizes), symbolic.parallel.attributes(sizes)),
        boxes,
        sizes,
    )


def _drawn_reference(stage: Stage) -> list[int]:
    """Reference values to draw: its own boundary, and what parallel inputs are derived from."""
    given = [value for value in stage.reference.inputs if constant_mask(stage.reference.graph, value) is None]
    return list(dict.fromkeys([*given, *(cut.reference for cut in stage.cuts.values())]))


def _derived(stage: Stage, value: int, cut: Cut, symbolic: SymbolicPair, sizes: Sizes, key: str) -> Derived:
    boxes: dict[tuple[Box, int], int] = {}
    shaped: list[Box] = []
    rows = []
    for number in stage.parallel.inputs[value]:
        part = cut.parts[int(number)]
        if (part.box, part.owner) not in boxes:
            boxes[part.box, part.owner] = len(shaped)
            shaped.append(symbolic.box(cut, part.box, sizes))
        rows.append((boxes[part.box, part.owner], part.term, part.terms))
    return Derived(key, cut.reference, tuple(shaped), tuple(rows), cut.scale)


def _constants(batch: Batch, shape: Callable[[int, Sizes], tuple[int, ...]], sizes: Sizes) -> dict[int, tuple[Any, tuple[int, ...], str]]:
    found: dict[int, tuple[Any, tuple[int, ...], str]] = {}
    for value in batch.inputs:
        info = batch.graph.values[value]
        if constant_mask(batch.graph, value) is not None and info.tensor.value is not None:
            found[value] = (parse_number(info.tensor.value, f"tensors[{info.name}].value"), shape(value, sizes), info.kind)
    return found


def _square_inputs(stage: Stage) -> set[int]:
    """Reference inputs whose elements are arguments of the reference's roots as they are: they are drawn as squares.

    A root of the parallel plan alone narrows nothing: its argument may be any number in the reference.
    """
    marked: set[int] = set()
    origin: dict[int, int] = {value: value for value in stage.reference.inputs}
    for step in stage.reference.steps:
        source = step.inputs[0] if step.inputs else None
        if not isinstance(source, Argument) or source.value not in origin:
            continue
        if step.kind in STRUCTURAL:
            origin.update({output: origin[source.value] for output in step.outputs if output is not None})
        elif step.kind in ROOTS or (step.kind == "pow" and _is_half(step)):
            marked.add(origin[source.value])
    return marked


def _is_half(step: Step) -> bool:
    """Whether a power has a fractional exponent: it is made of roots."""
    exponent = step.inputs[1] if len(step.inputs) > 1 else step.attributes.get("exponent")
    return isinstance(exponent, (Fraction, float)) and Fraction(exponent).denominator != 1


def _marks(stage: Stage, bounds: tuple[int, int]) -> tuple[int, ...]:
    """Values an integer input must take: its first and last, both sides of every shard boundary of a dimension of that extent, and those that steps name."""
    low, high = bounds
    marks = {low, high - 1} | integers_at_issue(stage.reference) | integers_at_issue(stage.parallel)
    for cut in stage.all_cuts():
        shape = stage.reference.graph.values[cut.reference].shape
        for part in cut.parts:
            for size, intervals in zip(shape, part.box, strict=True):
                if size == high:
                    marks |= {x for start, stop in intervals if start != FREE for x in (start, stop - 1)}
    return tuple(sorted(m for m in marks if low <= m < high))


def canonical_form(stage: Stage) -> tuple[str, dict[int, str]]:
    """(SHA-256 of everything that decides whether the stage holds, the canonical key of every reference input).

    Names, layers, ranks and micro-batches are left out: values are numbered as the steps meet them. Constants, literals, dtype kinds, full shapes,
    gather tables, parts and bounds are in.
    """
    digest = hashlib.sha256()
    reference = _Numbering(stage.reference)
    parallel = _Numbering(stage.parallel)
    for numbering in (reference, parallel):
        for line in numbering.lines():
            digest.update(line)
    for value, cut in stage.cuts.items():
        chosen = tuple(cut.parts[int(i)] for i in stage.parallel.inputs[value])
        digest.update(repr((parallel.of(value), reference.of(cut.reference), chosen, cut.scale)).encode())
    for target in stage.targets:
        rows = stage.parallel.rows[target.cut.value][target.codes]
        compared, sums = compared_rows(target, rows)
        digest.update(repr((parallel.of(target.cut.value), reference.of(target.cut.reference), target.cut.key, compared.shape, sums.shape)).encode())
        digest.update(compared.tobytes() + sums.tobytes())
    drawn = _drawn_reference(stage)
    for value in drawn:
        bounds = stage.reference.graph.values[value].tensor.bounds
        if bounds is not None:
            digest.update(repr((reference.of(value), _marks(stage, bounds))).encode())
    keys = {value: f"r{reference.of(value)}" for value in drawn}
    for numbering in (reference, parallel):
        digest.update(repr(numbering.described()).encode())
    return digest.hexdigest(), keys


def compared_rows(target: Target, rows: Codes) -> tuple[Codes, Codes]:
    """(distinct pairs (row, part) to compare, shape (2, n)); for a partial cut instead (part per group, shape (1, n); rows of its terms, shape (n, terms))).

    Raises UnsupportedError where a group lacks a term: nothing may be compared then.
    """
    parts = target.cut.part_of[target.codes]
    if target.cut.group_of is None:
        pairs, _ = distinct(rows * len(target.cut.parts) + parts)
        return np.stack([rows[pairs], parts[pairs]]), np.zeros((0, 0), dtype=np.int64)
    groups = target.cut.group_of[target.codes]
    sums: dict[tuple[int, ...], int] = {}
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        terms = {target.cut.parts[int(parts[m])].term: m for m in members}
        expected = target.cut.parts[int(parts[members[0]])].terms
        if len(terms) != expected or len(members) != expected:
            raise UnsupportedError(f"{target.name}: a sum has {len(members)} of its {expected} terms")
        sums.setdefault(tuple(int(rows[terms[t]]) for t in range(expected)), int(parts[terms[0]]))
    return np.array([list(sums.values())], dtype=np.int64), np.array(list(sums), dtype=np.int64)


class _Numbering:
    """Numbers the values of a batch in the order in which its steps meet them."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self._numbers: dict[int, int] = {}

    def of(self, value: int) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    def lines(self) -> list[bytes]:
        result = []
        for step in self.batch.steps:
            parts: list[bytes] = [step.kind.encode(), repr(sorted(step.attributes.items())).encode()]
            for operand in step.inputs:
                if isinstance(operand, Argument):
                    parts.append(self._argument(operand))
                elif isinstance(operand, tuple):
                    parts.append(b"stack" + b"".join(self._argument(a) for a in operand))
                else:
                    parts.append(repr(operand).encode())
            parts.append(repr([None if o is None else self.of(o) for o in step.outputs]).encode())
            result.append(b"|".join(parts))
        return result

    def _argument(self, argument: Argument) -> bytes:
        return repr((self.of(argument.value), argument.rows.shape)).encode() + argument.rows.tobytes()

    def described(self) -> list[tuple[object, ...]]:
        values = self.batch.graph.values
        known: list[tuple[object, ...]] = []
        for value, number in self._numbers.items():
            info = values[value]
            given = value in self.batch.inputs
            known.append((number, info.shape, info.kind, given, info.tensor.value if given else None, info.tensor.bounds if given else None))
        return known
