"""A stage at definite sizes, ready to be evaluated in any algebra.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("exp", [(64, 512)], (64, 512))
>>> shape_reduced(Problem.of(plan, plan).whole_stage()).fresh[0].kind
'field'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import Any

from pitcheck.algebra.dimensions.size_choice import Sizes
from pitcheck.algebra.residues.weights import Pattern
from pitcheck.base.numbers import parse_number
from pitcheck.errors import ReductionError, UnsupportedError
from pitcheck.graph.cuts import Box, Cut, present_parts
from pitcheck.graph.grids import Codes
from pitcheck.ops.registry import has_trait, kinds_with
from pitcheck.ops.traits import Trait
from pitcheck.stage.batch import Argument, Batch
from pitcheck.stage.inputs import Derived, Fresh, Padding
from pitcheck.stage.literals import integers_at_issue
from pitcheck.stage.shapes import SymbolicBatch, SymbolicPair, symbolic_pair
from pitcheck.stage.size_assignment import check_parts
from pitcheck.stage.stage import Stage, Target, constant_mask, drawn_reference

MOST_LOADED = 8
"""The number of different integers up to which each is held by many elements in some trial."""


MOST_LOADS = 32
"""The most pairs of such an integer and the number of elements that hold it."""


LEAST_LOADS = 8
"""The number of these pairs that are tried however large a stage is."""


LOADED_CELLS = 1 << 12
"""The elements that all these pairs may have between them."""


LARGE = 1 << 31
"""The bound of free integers that have none: they lie between minus this and this."""


MOST_PADDING = 48
"""The most numbers that are filled in for free integers."""


@dataclass
class ShapedStage:
    """A stage at definite sizes."""

    stage: Stage
    fresh: dict[int, Fresh]
    derived: dict[int, Derived]
    constants: tuple[
        dict[int, tuple[Any, tuple[int, ...], str]], dict[int, tuple[Any, tuple[int, ...], str]]
    ]
    attributes: tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]
    boxes: list[Mapping[int, Box]]
    """The boxes of the parts that are compared, per target."""
    sizes: Sizes
    shapes: tuple[Mapping[int, tuple[int, ...]], Mapping[int, tuple[int, ...]]]
    """The shapes that their dimensions give all values, of the reference and of the parallel side.
    """
    free: Mapping[int, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    """The parallel steps for whose result any numbers are drawn: (key, shape) by number of the
    step.
    """
    weights: Mapping[int, Pattern] = field(default_factory=dict)
    """The weights of the places of an axis, by its size."""


def shape_stage(
    stage: Stage, symbolic: SymbolicPair, sizes: Sizes, keys: Mapping[int, str]
) -> ShapedStage:
    """Give a stage definite sizes.

    ``keys`` names the reference inputs, so that equal stages draw equal numbers.

    Raises:
        ReductionError: these sizes are not one assignment, or leave nothing of a tensor that has
        elements. Equality of nothing would prove nothing.
    """
    squares = _square_inputs(stage)
    unread = _unread(stage)
    fresh = {}
    for value in drawn_reference(stage):
        info = stage.reference.graph.values[value]
        domain = "any"
        if info.kind == "field":
            # A norm of norms takes roots of some sums at once and of others later: all are formal.
            drawn = "square" if value in squares else "any"
            domain = "nonnegative" if value in stage.nonnegative else drawn
        given = info.tensor.bounds
        bounds, marks = (
            (None, ()) if given is None else _between(stage, symbolic, value, given, sizes)
        )
        shape = symbolic.reference.shape(value, sizes)
        if 0 in shape and 0 not in info.shape:
            raise ReductionError(
                f"{info.name!r} of shape {info.shape} would be reduced to {shape}: nothing would "
                f"be compared"
            )
        fresh[value] = Fresh(
            keys[value], shape, info.kind, domain, bounds, marks, unread=value in unread
        )
        if symbolic.system.decides and info.kind != "field" and not fresh[value].unread:
            fresh[value] = replace(fresh[value], loads=_loads(stage, fresh[value]))
    derived = {
        value: _derived(stage, value, cut, symbolic, sizes, f"{keys[cut.reference]}/{n}")
        for n, (value, cut) in enumerate(stage.cuts.items())
    }
    boxes = [_boxes(target, symbolic, sizes) for target in stage.targets]
    shapes = _shapes(symbolic.reference, sizes), _shapes(symbolic.parallel, sizes)
    _check(stage, shapes, derived, boxes)
    return ShapedStage(
        stage,
        fresh,
        derived,
        (
            _constants(stage.reference, symbolic.reference.shape, sizes),
            _constants(stage.parallel, symbolic.parallel.shape, sizes),
        ),
        (symbolic.reference.attributes(sizes), symbolic.parallel.attributes(sizes)),
        boxes,
        sizes,
        shapes,
    )


def shape_reduced(stage: Stage) -> ShapedStage:
    """Return a stage at the reduced sizes that a first proof uses, its inputs named by numbers."""
    symbolic = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts())
    keys = {value: str(value) for value in drawn_reference(stage)}
    return shape_stage(stage, symbolic, symbolic.system.solve(0), keys)


def _shapes(side: SymbolicBatch, sizes: Sizes) -> dict[int, tuple[int, ...]]:
    """Return the shape of every value of a side."""
    return {value: side.shape(value, sizes) for value in side.values}


def _check(
    stage: Stage,
    shapes: Sequence[Mapping[int, tuple[int, ...]]],
    derived: Mapping[int, Derived],
    boxes: Sequence[Mapping[int, Box]],
) -> None:
    """Check that the sizes are one assignment over both sides. Raises ReductionError."""
    parts: list[tuple[Cut, list[tuple[Box, Box]]]] = []
    for value, cut in stage.cuts.items():
        first_with = {
            row[0]: n
            for n, row in zip(
                stage.parallel.inputs[value].tolist(), derived[value].terms, strict=True
            )
        }
        parts.append(
            (cut, [(cut.parts[n].box, derived[value].boxes[box]) for box, n in first_with.items()])
        )
    parts += [
        (target.cut, [(target.cut.parts[n].box, box) for n, box in own.items()])
        for target, own in zip(stage.targets, boxes, strict=True)
    ]
    first, second = stage.reference.graph.values, stage.parallel.graph.values
    for cut, pairs in parts:
        whole, local = (
            (first[cut.reference].shape, shapes[0][cut.reference]),
            (second[cut.value].shape, shapes[1][cut.value]),
        )
        check_parts(second[cut.value].name, whole, local, pairs)


def _loads(stage: Stage, fresh: Fresh) -> tuple[tuple[int, int], ...]:
    """Return how many elements are to hold which integer, if counts decide something.

    The counts are those with which a step compares, one more or less, all and half of the elements.
    Of many integers the first and last marked ones are taken.
    """
    low, high = fresh.bounds or (0, 2)
    values = (
        [1]
        if fresh.kind == "bool"
        else list(range(low, high))
        if high - low <= MOST_LOADED
        else _ends(fresh.marks)
    )
    total = prod(fresh.shape)
    named = sorted(
        integers_at_issue(stage.reference) | integers_at_issue(stage.parallel), reverse=True
    )
    counts = dict.fromkeys((total, *(n + more for n in named for more in (1, 0, -1)), total // 2))
    own = [n for n in counts if 0 < n <= total]
    pairs = sorted(product(range(len(values)), range(len(own))), key=sum)
    most = max(LEAST_LOADS, min(MOST_LOADS, LOADED_CELLS // max(total, 1)))
    return (
        tuple((values[value], own[count]) for value, count in pairs[:most]) if fresh.shape else ()
    )


def _ends(marks: Sequence[int]) -> list[int]:
    """Return the first and the last ones of some marks."""
    half = MOST_LOADED // 2
    return list(dict.fromkeys((*marks[:half], *marks[-half:])))


def _unread(stage: Stage) -> set[int]:
    """Return the reference inputs of which neither side looks at more than the shape."""
    compared = {target.cut.reference for target in stage.targets}
    read = (
        compared
        | _looked_into(stage.reference)
        | {
            stage.cuts[value].reference
            for value in _looked_into(stage.parallel)
            if value in stage.cuts
        }
    )
    return set(drawn_reference(stage)) - read


def _looked_into(batch: Batch) -> set[int]:
    """Return the values whose elements some step reads."""
    return {argument.value for step in batch.steps for argument in step.looked_into}


def _boxes(target: Target, symbolic: SymbolicPair, sizes: Sizes) -> Mapping[int, Box]:
    """Return the boxes at reduced sizes of the parts that a target compares, by number."""
    reduced = symbolic.boxes(target.cut, sizes)
    return {
        n: reduced(target.cut.parts[n].box)
        for n in present_parts(target.cut, target.where, target.home).tolist()
    }


def _derived(
    stage: Stage, value: int, cut: Cut, symbolic: SymbolicPair, sizes: Sizes, key: str
) -> Derived:
    """Return the rows of a parallel input at reduced sizes."""
    boxes: dict[tuple[Box, int], int] = {}
    shaped: list[Box] = []
    rows = []
    reduced = symbolic.boxes(cut, sizes)
    for number in stage.parallel.inputs[value].tolist():
        part = cut.parts[number]
        if (part.box, part.owner) not in boxes:
            boxes[part.box, part.owner] = len(shaped)
            shaped.append(reduced(part.box))
        rows.append((boxes[part.box, part.owner], part.term, part.terms))
    if stage.parallel.graph.values[value].kind != "field":
        _check_terms(stage, value, rows)
    return Derived(
        key,
        cut.reference,
        tuple(shaped),
        tuple(rows),
        cut.scale,
        _padding(stage, symbolic, value, cut, sizes),
    )


def _check_terms(stage: Stage, value: int, rows: Sequence[tuple[int, int, int]]) -> None:
    """Check that of discrete terms nothing but their sum is read.

    ``rows`` has (part, term, number of terms) of every row. Raises UnsupportedError.
    """
    if all(terms == 1 for _, _, terms in rows):
        return
    info = stage.parallel.graph.values[value]
    reads = [(step, a) for step in stage.parallel.steps for a in step.arguments if a.value == value]
    if (
        info.kind != "int"
        or any(value == target.cut.value for target in stage.targets)
        or not all(
            has_trait(step.kind, Trait.ADDS_MEMBERS, step.attributes) and _whole(a.rows, rows)
            for step, a in reads
        )
    ):
        raise UnsupportedError(
            f"{info.name!r} is {info.tensor.dtype}, and ranks hold terms of a sum of it: of these "
            f"only integers have a meaning that one all-reduce adds up; give each rank its own "
            f"input"
        )


def _whole(read: Codes, rows: Sequence[tuple[int, int, int]]) -> bool:
    """Return True if all terms of a part are read together, each once, in every row."""
    if read.ndim < 2:
        return False
    for members in read.tolist():
        part, _, terms = rows[members[0]]
        if sorted(rows[row] for row in members) != [(part, n, terms) for n in range(terms)]:
            return False
    return True


def _padding(
    stage: Stage, symbolic: SymbolicPair, value: int, cut: Cut, sizes: Sizes
) -> Padding | None:
    """Return the range of free elements of an integer input of the parallel plan.

    It is what its bounds allow or, if it has none, anything. Anything is tried as the numbers that
    steps name, those right beside the bounds of the reference, small ones and large ones. Padding
    that is a place along a reduced dimension is no other place than there are, or lies right before
    the first or behind the last.
    """
    graph = stage.parallel.graph
    if graph.values[value].kind != "int":
        return None
    own, due = (
        graph.values[value].tensor.bounds,
        stage.reference.graph.values[cut.reference].tensor.bounds,
    )
    (low, high), marks = _between(stage, symbolic, cut.reference, own or due or (0, 2), sizes)
    if own is None:
        whole = due is None or high == due[1]
        marks = (*marks, low - 1, high, *((-1, 0, 1, -LARGE, LARGE - 1) if whole else ()))
        low, high = (-LARGE, LARGE) if whole else (low - 1, high + 1)
    return Padding((low, high), tuple(sorted(set(marks)))[:MOST_PADDING])


def _constants(
    batch: Batch, shape: Callable[[int, Sizes], tuple[int, ...]], sizes: Sizes
) -> dict[int, tuple[Any, tuple[int, ...], str]]:
    """Return (number, shape, kind) of the constant inputs of a batch."""
    found: dict[int, tuple[Any, tuple[int, ...], str]] = {}
    for value in batch.inputs:
        info = batch.graph.values[value]
        if constant_mask(batch.graph, value) is not None and info.tensor.value is not None:
            found[value] = (
                parse_number(info.tensor.value, f"tensors[{info.name}].value"),
                shape(value, sizes),
                info.kind,
            )
    return found


def _square_inputs(stage: Stage) -> set[int]:
    """Return the reference inputs whose elements the reference takes roots of as they are.

    They are drawn as squares. A root of the parallel plan alone narrows nothing: its argument may
    be any number in the reference.
    """
    marked: set[int] = set()
    parts = kinds_with(Trait.SHOWS_ALL, Trait.CUTS)
    origin: dict[int, int] = {value: value for value in stage.reference.inputs}
    for step in stage.reference.steps:
        source = step.inputs[0] if step.inputs else None
        if not isinstance(source, Argument) or source.value not in origin:
            continue
        if step.kind in parts:
            origin.update(
                {output: origin[source.value] for output in step.outputs if output is not None}
            )
        elif has_trait(step.kind, Trait.TAKES_ROOT, step.attributes):
            marked.add(origin[source.value])
    return marked


def _between(
    stage: Stage, symbolic: SymbolicPair, value: int, bounds: tuple[int, int], sizes: Sizes
) -> tuple[tuple[int, int], tuple[int, ...]]:
    """Return bounds, and the integers within them that must be tried.

    They are for what holds integers of the kind that reference input ``value`` does. These integers
    are the first and last, both sides of every boundary of the dimension along which they are
    places, and those that steps name. Places along a dimension that is reduced are reduced with it;
    no step names another of them than 0.
    """
    along = symbolic.reference.values[value].places
    low, high = bounds[0], bounds[1] if along is None else sizes.below(along, bounds[1])
    marks = {low, high - 1}
    if high == bounds[1]:
        marks |= (
            integers_at_issue(stage.reference)
            | integers_at_issue(stage.parallel)
            | _shard_ends(stage, high)
        )
    if along is not None:
        marks |= {x for place in sizes.boundaries(along) for x in (place - 1, place)}
    return (low, high), tuple(sorted(m for m in marks if low <= m < high))


def _shard_ends(stage: Stage, high: int) -> set[int]:
    """Return the first and last place of every shard of a dimension of that extent."""
    found: set[int] = set()
    for cut in stage.all_cuts():
        shape = stage.reference.graph.values[cut.reference].shape
        for size, different in zip(shape, cut.parts.intervals, strict=False):
            if size == high:
                found |= {
                    x
                    for intervals in different
                    for start, stop in intervals
                    if start >= 0
                    for x in (start, stop - 1)
                }
    return found
