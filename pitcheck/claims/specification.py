"""What is given and what must come out: the lineage of the parallel plan's initial tensors, and of
its outputs.

Nothing here looks at what the parallel plan computes. An output must equal the reference's in full,
with scale 1, on every replica; what a plan file says otherwise is an exception that the report
prints first.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.graph.cuts import Box, Cut, resolve, uncovered
from pitcheck.graph.graph import Graph
from pitcheck.graph.grids import Grid, Mask, either
from pitcheck.graph.parts import Interval
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import Lineage, Output, Plan, Tensor

Readers = dict[int, Mask]
"""For a value the coordinates at which some node reads it."""

INITIAL = frozenset({"input", "parameter", "optimizer_state", "constant"})


@dataclass(frozen=True)
class Expected:
    """One output to prove: ``cut`` says what the parallel value must hold at the coordinates
    ``where``.
    """

    name: str
    cut: Cut
    where: Mask


@dataclass(frozen=True)
class Gap:
    """A part of a reference tensor that no rank holds, of an initial tensor or an output."""

    reference: str
    tensor: str
    box: Box
    output: bool
    """Of an output: then something is not compared. Of an initial tensor: it may be the cause of a
    difference, and is none by itself.
    """


@dataclass
class Specification:
    """``initial``: cuts of the parallel plan's initial values; ``expected``: its outputs;
    ``missing``: reference outputs without one.
    """

    initial: dict[int, Cut] = field(default_factory=dict)
    expected: list[Expected] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)
    changed: list[tuple[str, str, str]] = field(default_factory=list)
    """(side, new value, of what) of state that a plan changes and that is not compared."""
    gaps: list[Gap] = field(default_factory=list)
    exceptions: list[str] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    total: int = 0


@dataclass
class _Coverage:
    """What is covered, found once for all cuts that are alike: thousands of tensors are spread over
    the ranks in a few ways.
    """

    known: dict[Hashable, tuple[Cut, Box | None]] = field(default_factory=dict)
    full: dict[int, tuple[Grid, bool]] = field(default_factory=dict)

    def gap(self, cut: Cut, shape: tuple[int, ...], where: Mask) -> Box | None:
        """As ``uncovered``."""
        key = (id(cut.parts), id(cut.grid), shape, where.shape, where.tobytes())
        found = self.known.get(key)
        if found is None:
            # The cut is kept, so that the identities stay its own.
            found = self.known[key] = cut, uncovered(cut, shape, where)
        return found[1]

    def everywhere(self, grid: Grid) -> bool:
        """Whether every coordinate holds a part."""
        found = self.full.get(id(grid))
        if found is None:
            found = self.full[id(grid)] = grid, bool((grid >= 0).all())
        return found[1]


def specify(reference: Plan, parallel: Plan, first: Graph, second: Graph) -> Specification:
    """Read the specification off both plans. Raises PlanError for lineage that does not fit and for
    an initial tensor that corresponds to nothing.
    """
    result = Specification()
    read = _read_codes(second)
    coverage = _Coverage()
    for tensor in reference.tensors:
        if tensor.microbatched and reference.microbatches > 1 and is_drawn(tensor, first):
            raise UnsupportedError(
                f"{tensor.name!r} comes from outside of the reference once per micro-batch, which "
                f"other ones than the reference's cannot be compared with; "
                "let the reference take the whole batch, and slice it"
            )
    for tensor in parallel.tensors:
        if is_drawn(tensor, second):
            _initial(tensor, first, second, read, coverage, result)
    _outputs(reference, parallel, first, second, read, coverage, result)
    compared = {output.tensor for output in reference.outputs}
    result.changed += _changed("reference", reference, compared)
    result.changed += _changed(
        "parallel",
        parallel,
        {o.tensor for o in parallel.outputs if (o.reference or o.tensor) in compared},
    )
    return result


def _changed(side: str, plan: Plan, compared: set[str]) -> list[tuple[str, str, str]]:
    """State that a plan changes beside what is compared: the next step would begin with it."""
    return [
        (side, tensor.name, tensor.updated)
        for tensor in plan.tensors
        if tensor.updated is not None and tensor.name not in compared
    ]


def is_drawn(tensor: Tensor, graph: Graph) -> bool:
    """Whether a tensor's values come from outside the plan: nothing writes it and it is no constant
    of known value.
    """
    value = graph.number[tensor.name]
    return (
        not graph.values[value].writers
        and graph.values[value].name == tensor.name
        and tensor.value is None
    )


def _read_codes(graph: Graph) -> Readers:
    """For every value the codes at which some node reads it."""
    read: Readers = {}
    for node in graph.nodes:
        for source, mask in node.reads:
            read[source.value] = either(read.get(source.value), mask)
    return read


def _initial(
    tensor: Tensor,
    first: Graph,
    second: Graph,
    read: Readers,
    coverage: _Coverage,
    result: Specification,
) -> None:
    value = second.number[tensor.name]
    lineage = tensor.lineage or Lineage(tensor.name)
    place = f"tensors[{tensor.name}].lineage"
    if lineage.reference not in first.number:
        raise PlanError(
            f"{tensor.name!r} is given from outside but corresponds to no tensor of the reference "
            f"({lineage.reference!r} is not there)",
            place,
        )
    target = first.number[lineage.reference]
    if first.values[target].writers:
        raise PlanError(
            f"{tensor.name!r} is given from outside, but {lineage.reference!r} is computed in the "
            f"reference",
            place,
        )
    if first.values[target].kind != second.values[value].kind:
        raise PlanError(
            f"{tensor.name!r} is {tensor.dtype}, but {lineage.reference!r} is "
            f"{first.values[target].tensor.dtype}",
            place,
        )
    if tensor.lineage is None and second.coordinates.ranks * second.coordinates.microbatches > 1:
        result.assumptions.append(
            f"{tensor.name} has no lineage: it is taken to be whole on every rank"
        )
    cut = resolve(lineage, value, second, target, first.values[target].shape, place)
    result.initial[value] = cut
    if value in read:
        box = coverage.gap(cut, first.values[target].shape, read[value])
        if box is not None:
            result.gaps.append(Gap(lineage.reference, tensor.name, box, False))


def _outputs(
    reference: Plan,
    parallel: Plan,
    first: Graph,
    second: Graph,
    read: Readers,
    coverage: _Coverage,
    result: Specification,
) -> None:
    offered: dict[str, list[Output]] = {}
    holding: dict[int, list[int]] = {}
    for value, cut in result.initial.items():
        holding.setdefault(cut.reference, []).append(value)
    for output in parallel.outputs:
        offered.setdefault(output.reference or output.tensor, []).append(output)
    result.total = len(reference.outputs)
    tensors = {t.name: t for t in parallel.tensors}
    # Several outputs may be one value, such as a gradient that is kept as a momentum, too: each
    # belongs to what it is named after.
    theirs = {t.name: t for t in reference.tensors}
    for wanted in reference.outputs:
        if wanted.tensor not in offered:
            result.missing.append((wanted.tensor, "the parallel plan names no tensor for it"))
            continue
        for output in offered[wanted.tensor]:
            if output.tensor not in tensors:
                result.missing.append(
                    (wanted.tensor, f"the parallel plan has no tensor {output.tensor!r}")
                )
                continue
            _expect(
                theirs[wanted.tensor],
                output,
                tensors[output.tensor],
                first,
                second,
                read,
                coverage,
                result,
            )
        given = [(o, tensors[o.tensor]) for o in offered[wanted.tensor] if o.tensor in tensors]
        owner = _owner_of(theirs[wanted.tensor])
        if owner is not None and owner in first.number:
            _every_copy(
                wanted.tensor,
                owner,
                given,
                holding.get(first.number[owner], ()),
                second,
                read,
                result,
            )


def _owner_of(tensor: Tensor) -> str | None:
    return tensor.gradient_of or tensor.updated


def _every_copy(
    name: str,
    owner: str,
    given: list[tuple[Output, Tensor]],
    holding: Sequence[int],
    second: Graph,
    read: Readers,
    result: Specification,
) -> None:
    """Each tensor of the parallel plan that holds a parameter or state, those in ``holding``, must
    have its own gradient or new value.
    """
    served = {second.number.get(_owner_of(tensor) or "") for _, tensor in given}
    if len(holding) == 1 and any(
        _owner_of(tensor) is None and output.lineage is not None for output, tensor in given
    ):
        # An output that says how it is spread, and not what it belongs to, belongs to the only
        # tensor that there is.
        return
    for value in holding:
        if value in read and value not in served:
            result.missing.append(
                (
                    name,
                    f"{second.values[value].name!r} holds {owner!r} too, but nothing is named as "
                    f"what becomes of it",
                )
            )


def _expect(
    wanted: Tensor,
    output: Output,
    tensor: Tensor,
    first: Graph,
    second: Graph,
    read: Readers,
    coverage: _Coverage,
    result: Specification,
) -> None:
    name = wanted.name
    value, target = second.number[tensor.name], first.number[name]
    owner = _owner_of(tensor)
    place = f"outputs[{output.tensor}]"
    shape = first.values[target].shape
    held = _held(owner, wanted, first, second, result)
    if output.lineage is not None:
        cut = resolve(_named(output.lineage, name), value, second, target, shape, place)
        result.exceptions.extend(_exception(name, output.lineage, second.coordinates))
    elif held is not None:
        if first.values[held.reference].shape != shape:
            raise PlanError(
                f"{name!r} has shape {shape}, but the tensor it belongs to has "
                f"{first.values[held.reference].shape}",
                place,
            )
        if tensor.shape != second.values[held.value].shape:
            raise PlanError(
                f"{tensor.name!r} has shape {tensor.shape}, but {owner!r}, whose part it should "
                f"be, has {second.values[held.value].shape}",
                place,
            )
        if held.scale != 1 and tensor.updated is None:
            raise UnsupportedError(
                f"{place}: the gradient of a parameter that is held at scale {held.scale} has no "
                f"meaning here"
            )
        cut = Cut(value, target, held.parts, held.grid, held.lattice, held.scale)
    else:
        cut = resolve(Lineage(name), value, second, target, shape, place)
    held_somewhere = _written(second, value)
    nowhere = np.zeros(second.anywhere, dtype=np.bool_)
    where = held_somewhere if coverage.everywhere(cut.grid) else held_somewhere & (cut.grid >= 0)
    if not where.any():
        result.missing.append((name, f"{tensor.name!r} is computed on no rank"))
        return
    box = coverage.gap(cut, shape, where)
    if box is not None:
        result.gaps.append(Gap(name, tensor.name, box, True))
    replaced = held if owner is not None else _only_one_held(wanted, first, result)
    lost = read.get(replaced.value, nowhere) & ~held_somewhere if replaced is not None else nowhere
    if lost.any():
        ranks = sorted(
            {
                int(c) // second.coordinates.microbatches
                for c in second.values[value].lattice.codes(lost)
            }
        )
        result.missing.append(
            (
                name,
                f"ranks {', '.join(map(str, ranks))} hold {owner or wanted.updated!r} but compute "
                f"no {tensor.name!r}",
            )
        )
    if output.lineage is not None and replaced is not None and wanted.updated is not None:
        other = _first_held_otherwise(cut, replaced, read.get(replaced.value, nowhere))
        if other is not None:
            rank = other // second.coordinates.microbatches
            name_held = second.values[replaced.value].name
            why = (
                f"on rank {rank} {name_held!r} is another part of it than its new value "
                f"{tensor.name!r}, so the next step would begin with something else"
            )
            result.missing.append((name, f"{why}; spread both alike"))
    result.expected.append(Expected(name, cut, where))


def _only_one_held(wanted: Tensor, first: Graph, result: Specification) -> Cut | None:
    """How the only tensor is held of which an output is the new value; None where there are
    several, which must be named.
    """
    theirs = first.number.get(wanted.updated or "")
    found = [cut for cut in result.initial.values() if cut.reference == theirs]
    return found[0] if len(found) == 1 else None


def _first_held_otherwise(cut: Cut, held: Cut, read: Mask) -> int | None:
    """The first coordinate code among those in ``read`` at which two cuts hold different parts, or
    at different scales; None if there is none.
    """
    codes = np.asarray(held.lattice.codes(read), dtype=np.int64)
    if cut.scale != held.scale:
        return int(codes[0]) if len(codes) else None
    if cut.parts is held.parts and cut.grid is held.grid:
        return None
    pairs, first = np.unique(
        np.stack([cut.part_of[codes], held.part_of[codes]], axis=1), axis=0, return_index=True
    )
    apart = [
        int(codes[at])
        for (new, old), at in zip(pairs.tolist(), first.tolist(), strict=True)
        if not _alike(cut, new, held, old)
    ]
    return min(apart, default=None)


def _alike(cut: Cut, number: int, other: Cut, theirs: int) -> bool:
    """Return True if two cuts have the same part at these numbers, or hold none; padding may be
    anybody's.
    """
    if number < 0 or theirs < 0:
        return number == theirs
    mine, its = cut.parts[number], other.parts[theirs]
    if (mine.term, mine.terms) != (its.term, its.terms):
        return False
    return mine.box == its.box or [_joined(own) for own in mine.box] == [
        _joined(own) for own in its.box
    ]


def _joined(intervals: Sequence[Interval]) -> list[Interval]:
    """Intervals that say the same in as few as possible: a lineage may name one stretch
    in pieces.
    """
    result: list[Interval] = []
    for start, stop in intervals:
        first, last = result[-1] if result else (0, 0)
        if result and first == start < 0:
            result[-1] = (start, last + stop)
        elif result and first >= 0 and last == start:
            result[-1] = (first, stop)
        else:
            result.append((start, stop))
    return result


def _held(
    owner: str | None, wanted: Tensor, first: Graph, second: Graph, result: Specification
) -> Cut | None:
    """How the tensor is held that an output belongs to, if the reference says the same of what is
    wanted.
    """
    theirs = _owner_of(wanted)
    cut = (
        result.initial.get(second.number[owner])
        if owner is not None and owner in second.number
        else None
    )
    return (
        cut
        if cut is not None and theirs is not None and cut.reference == first.number.get(theirs)
        else None
    )


def _written(graph: Graph, value: int) -> Mask:
    mask: Mask | None = None
    for writer in graph.values[value].writers:
        mask = either(mask, graph.nodes[writer].where)
    return np.ones(graph.anywhere, dtype=np.bool_) if mask is None else mask


def _named(lineage: Lineage, name: str) -> Lineage:
    if lineage.reference not in ("", name):
        raise PlanError(
            f"the output for {name!r} has a lineage of {lineage.reference!r}",
            f"outputs[{name}].lineage",
        )
    return lineage


def _exception(name: str, lineage: Lineage, coordinates: Coordinates) -> list[str]:
    said: list[str] = []
    # As many times the reference as there are terms: each of them is what the reference is the mean
    # of.
    mean = bool(lineage.partial) and lineage.scale == str(coordinates.count(lineage.partial))
    if lineage.partial:
        said.append(
            f"{name}: one term per {' and '.join(lineage.partial)}; the "
            f"{'mean' if mean else 'sum'} of the terms is compared"
        )
    if lineage.partial_ranks:
        said.append(
            f"{name}: one term per rank of {[list(r) for r in lineage.partial_ranks]}; the sum of "
            f"the terms is compared"
        )
    if lineage.scale != "1" and not mean:
        said.append(f"{name}: compared with {lineage.scale} times the reference")
    if lineage.shards:
        said.append(
            f"{name}: spread over ranks along dimension "
            f"{', '.join(str(s.dim) for s in lineage.shards)}"
        )
    return said
