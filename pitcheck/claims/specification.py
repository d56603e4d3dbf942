"""The specification: what is given, and what must come out.

It is the lineage of the parallel plan's initial tensors and of its outputs. Nothing here looks at
what the parallel plan computes. An output must equal the reference's in full, with scale 1, on
every replica. Whatever a plan file says to the contrary is an exception, which the report prints
first.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from pitcheck.base.nearest import nearest
from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.graph.cuts import Box, Cut, resolve, uncovered
from pitcheck.graph.graph import Graph
from pitcheck.graph.grids import Grid, Mask, either
from pitcheck.graph.parts import Interval
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import MICROBATCH_AXIS, Lineage, Output, Plan, Tensor

Readers = dict[int, Mask]
"""The coordinates at which some node reads a value, by value."""


@dataclass(frozen=True)
class Expected:
    """One output to prove: a value must hold what ``cut`` says at the coordinates ``where``."""

    name: str
    cut: Cut
    where: Mask


@dataclass(frozen=True)
class Gap:
    """A part of a reference tensor that no rank holds, of an initial tensor or of an output."""

    reference: str
    tensor: str
    box: Box
    output: bool
    """True for an output: then something is not compared. A gap of an initial tensor is no
    difference by itself, but may be the cause of one.
    """


@dataclass
class Specification:
    """The values given to both plans, and the outputs that the parallel one must compute.

    ``initial``: the cuts of the parallel plan's initial values. ``expected``: its outputs.
    ``missing``: reference outputs without one, each with the reason. ``total``: the number of
    reference outputs.
    """

    initial: dict[int, Cut] = field(default_factory=dict)
    expected: list[Expected] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)
    changed: list[tuple[str, str, str]] = field(default_factory=list)
    """(side, new value, old value) of state that a plan changes and that is not compared."""
    gaps: list[Gap] = field(default_factory=list)
    exceptions: list[str] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    total: int = 0


@dataclass
class _Coverage:
    """A table of what cuts cover: thousands of tensors are spread over the ranks in a few ways."""

    known: dict[Hashable, tuple[Cut, Box | None]] = field(default_factory=dict)
    full: dict[int, tuple[Grid, bool]] = field(default_factory=dict)

    def gap(self, cut: Cut, shape: tuple[int, ...], where: Mask) -> Box | None:
        """Return what ``uncovered`` returns, computed once for cuts that agree."""
        key = (id(cut.parts), id(cut.grid), shape, where.shape, where.tobytes())
        found = self.known.get(key)
        if found is None:
            # The cut is kept: others in its place in memory would have its identities.
            found = self.known[key] = cut, uncovered(cut, shape, where)
        return found[1]

    def everywhere(self, grid: Grid) -> bool:
        """Return True if every coordinate of a grid of parts holds one."""
        found = self.full.get(id(grid))
        if found is None:
            found = self.full[id(grid)] = grid, bool((grid >= 0).all())
        return found[1]


def specify(reference: Plan, parallel: Plan, first: Graph, second: Graph) -> Specification:
    """Read the specification off both plans and their graphs.

    Raises:
        PlanError: lineage that does not fit, or an initial tensor that corresponds to nothing.
        UnsupportedError: a lineage, or an input of the reference, that has no meaning here.
    """
    return _Specifier(reference, parallel, first, second).run()


_LINEAGE = (
    'write one, such as {"reference": "NAME", "shards": [{"dim": 0, "by": ["AXIS"]}]}, with the '
    "dimension that is cut and the mesh axes that cut it"
)


class _Specifier:
    """The specification of one pair of plans while it is read off them."""

    def __init__(self, reference: Plan, parallel: Plan, first: Graph, second: Graph) -> None:
        self._reference = reference
        self._parallel = parallel
        self._first = first
        self._second = second
        self._read = _read_codes(second)
        self._coverage = _Coverage()
        self._result = Specification()

    def run(self) -> Specification:
        """Return the whole specification."""
        for tensor in self._reference.tensors:
            if (
                tensor.microbatched
                and self._reference.microbatches > 1
                and is_drawn(tensor, self._first)
            ):
                raise UnsupportedError(
                    f"{tensor.name!r} comes from outside of the reference once per micro-batch, "
                    f"which other ones than the reference's cannot be compared with; "
                    "let the reference take the whole batch, and slice it"
                )
        for tensor in self._parallel.tensors:
            if is_drawn(tensor, self._second):
                self._initial(tensor)
        self._outputs()
        compared = {output.tensor for output in self._reference.outputs}
        self._result.changed += _changed("reference", self._reference, compared)
        self._result.changed += _changed(
            "parallel",
            self._parallel,
            {o.tensor for o in self._parallel.outputs if (o.reference or o.tensor) in compared},
        )
        return self._result

    def _initial(self, tensor: Tensor) -> None:
        """Enter the cut of a tensor that is given from outside, and what it lacks."""
        value = self._second.number[tensor.name]
        lineage = tensor.lineage or Lineage(tensor.name)
        place = f"tensors[{tensor.name}].lineage"
        if tensor.lineage is None and tensor.name not in self._first.number:
            raise PlanError(
                f"{tensor.name!r} is given from outside and has no lineage, which says the part of "
                f"which reference tensor it is, and the reference has no tensor of that name"
                f"{nearest(tensor.name, self._first.number)}; {_LINEAGE}",
                place,
            )
        if lineage.reference not in self._first.number:
            raise PlanError(
                f"{tensor.name!r} is given from outside but corresponds to no tensor of the "
                f"reference ({lineage.reference!r} is not there)",
                place,
            )
        target = self._first.number[lineage.reference]
        if self._first.values[target].writers:
            raise PlanError(
                f"{tensor.name!r} is given from outside, but {lineage.reference!r} is computed in "
                f"the reference",
                place,
            )
        if self._first.values[target].kind != self._second.values[value].kind:
            raise PlanError(
                f"{tensor.name!r} is {tensor.dtype}, but {lineage.reference!r} is "
                f"{self._first.values[target].tensor.dtype}",
                place,
            )
        if (
            tensor.lineage is None
            and self._second.coordinates.ranks * self._second.coordinates.microbatches > 1
        ):
            self._result.assumptions.append(
                f"{tensor.name} has no lineage: it is taken to be whole on every rank"
            )
        whole = self._first.values[target].shape
        if tensor.lineage is None and tensor.shape != whole:
            raise PlanError(
                f"{tensor.name!r} has no lineage, which says the part of which reference tensor it "
                f"is; it has shape {list(tensor.shape)}, so that it is not the whole "
                f"{lineage.reference!r} of shape {list(whole)}; {_LINEAGE}",
                place,
            )
        cut = resolve(lineage, value, self._second, target, self._first.values[target].shape, place)
        self._result.initial[value] = cut
        if value in self._read:
            box = self._coverage.gap(cut, self._first.values[target].shape, self._read[value])
            if box is not None:
                self._result.gaps.append(Gap(lineage.reference, tensor.name, box, False))

    def _outputs(self) -> None:
        """Enter a target for every reference output that the parallel plan has; note the others."""
        offered: dict[str, list[Output]] = {}
        holding: dict[int, list[int]] = {}
        for value, cut in self._result.initial.items():
            holding.setdefault(cut.reference, []).append(value)
        for output in self._parallel.outputs:
            offered.setdefault(output.reference or output.tensor, []).append(output)
        self._result.total = len(self._reference.outputs)
        tensors = {t.name: t for t in self._parallel.tensors}
        # Several outputs may be one value, such as a gradient that is also kept as a momentum:
        # each belongs to the tensor that its name says.
        theirs = {t.name: t for t in self._reference.tensors}
        for wanted in self._reference.outputs:
            if wanted.tensor not in offered:
                self._result.missing.append(
                    (wanted.tensor, "the parallel plan names no tensor for it")
                )
                continue
            for output in offered[wanted.tensor]:
                if output.tensor not in tensors:
                    self._result.missing.append(
                        (wanted.tensor, f"the parallel plan has no tensor {output.tensor!r}")
                    )
                    continue
                self._expect(theirs[wanted.tensor], output, tensors[output.tensor])
            given = [(o, tensors[o.tensor]) for o in offered[wanted.tensor] if o.tensor in tensors]
            owner = _owner_of(theirs[wanted.tensor])
            if owner is not None and owner in self._first.number:
                copies = holding.get(self._first.number[owner], ())
                self._every_copy(wanted.tensor, owner, given, copies)

    def _every_copy(
        self, name: str, owner: str, given: list[tuple[Output, Tensor]], holding: Sequence[int]
    ) -> None:
        """Note each tensor in ``holding`` for which the plan names no gradient or new value.

        ``holding`` are the values of the parallel plan that hold the parameter or state ``owner``.
        ``given`` are the outputs for ``name``, each with its tensor.
        """
        served = {self._second.number.get(_owner_of(tensor) or "") for _, tensor in given}
        if len(holding) == 1 and any(
            _owner_of(tensor) is None and output.lineage is not None for output, tensor in given
        ):
            # An output with a lineage, and without an owner, belongs to the only tensor.
            return
        for value in holding:
            if value in self._read and value not in served:
                self._result.missing.append(
                    (
                        name,
                        f"{self._second.values[value].name!r} holds {owner!r} too, but nothing is "
                        f"named as what becomes of it",
                    )
                )

    def _expect(self, wanted: Tensor, output: Output, tensor: Tensor) -> None:
        """Enter one target: the tensor of an output must hold its part of ``wanted``.

        Note what keeps it from being compared on some rank.
        """
        name = wanted.name
        value, target = self._second.number[tensor.name], self._first.number[name]
        owner = _owner_of(tensor)
        place = f"outputs[{output.tensor}]"
        shape = self._first.values[target].shape
        held = self._held(owner, wanted)
        if output.lineage is not None:
            cut = resolve(_named(output.lineage, name), value, self._second, target, shape, place)
            self._result.exceptions.extend(
                _exception(name, output.lineage, self._second.coordinates)
            )
        elif held is not None:
            if self._first.values[held.reference].shape != shape:
                raise PlanError(
                    f"{name!r} has shape {shape}, but the tensor it belongs to has "
                    f"{self._first.values[held.reference].shape}",
                    place,
                )
            if tensor.shape != self._second.values[held.value].shape:
                raise PlanError(
                    f"{tensor.name!r} has shape {tensor.shape}, but {owner!r}, whose part it "
                    f"should be, has {self._second.values[held.value].shape}",
                    place,
                )
            if held.scale != 1 and tensor.updated is None:
                raise UnsupportedError(
                    f"{place}: the gradient of a parameter that is held at scale {held.scale} has "
                    f"no meaning here"
                )
            cut = Cut(value, target, held.parts, held.grid, held.lattice, held.scale)
        else:
            cut = resolve(Lineage(name), value, self._second, target, shape, place)
        held_somewhere = _written(self._second, value)
        nowhere = np.zeros(self._second.anywhere, dtype=np.bool_)
        where = (
            held_somewhere
            if self._coverage.everywhere(cut.grid)
            else held_somewhere & (cut.grid >= 0)
        )
        if not where.any():
            self._result.missing.append((name, f"{tensor.name!r} is computed on no rank"))
            return
        box = self._coverage.gap(cut, shape, where)
        if box is not None:
            self._result.gaps.append(Gap(name, tensor.name, box, True))
        replaced = held if owner is not None else self._only_one_held(wanted)
        lost = (
            self._read.get(replaced.value, nowhere) & ~held_somewhere
            if replaced is not None
            else nowhere
        )
        if lost.any():
            ranks = sorted(
                {
                    int(c) // self._second.coordinates.microbatches
                    for c in self._second.values[value].lattice.codes(lost)
                }
            )
            self._result.missing.append(
                (
                    name,
                    f"ranks {', '.join(map(str, ranks))} hold {owner or wanted.updated!r} but "
                    f"compute no {tensor.name!r}",
                )
            )
        if output.lineage is not None and replaced is not None and wanted.updated is not None:
            other = _first_held_otherwise(cut, replaced, self._read.get(replaced.value, nowhere))
            if other is not None:
                rank = other // self._second.coordinates.microbatches
                name_held = self._second.values[replaced.value].name
                why = (
                    f"on rank {rank} {name_held!r} is another part of it than its new value "
                    f"{tensor.name!r}, so the next step would begin with something else"
                )
                self._result.missing.append((name, f"{why}; spread both alike"))
        self._result.expected.append(Expected(name, cut, where))

    def _only_one_held(self, wanted: Tensor) -> Cut | None:
        """Return how the only tensor is held whose new value an output is.

        Return None if there are several: these must be named.
        """
        theirs = self._first.number.get(wanted.updated or "")
        found = [cut for cut in self._result.initial.values() if cut.reference == theirs]
        return found[0] if len(found) == 1 else None

    def _held(self, owner: str | None, wanted: Tensor) -> Cut | None:
        """Return how the tensor ``owner`` is held that an output belongs to.

        Return None if the reference does not say that ``wanted`` belongs to the same tensor.
        """
        theirs = _owner_of(wanted)
        cut = (
            self._result.initial.get(self._second.number[owner])
            if owner is not None and owner in self._second.number
            else None
        )
        return (
            cut
            if cut is not None
            and theirs is not None
            and cut.reference == self._first.number.get(theirs)
            else None
        )


def _changed(side: str, plan: Plan, compared: set[str]) -> list[tuple[str, str, str]]:
    """Return the state that a plan changes but does not compare.

    The next step would begin with it.
    """
    return [
        (side, tensor.name, tensor.updated)
        for tensor in plan.tensors
        if tensor.updated is not None and tensor.name not in compared
    ]


def is_drawn(tensor: Tensor, graph: Graph) -> bool:
    """Return True if a tensor comes from outside the plan.

    Nothing writes it, and it is no constant of known value.
    """
    value = graph.number[tensor.name]
    return (
        not graph.values[value].writers
        and graph.values[value].name == tensor.name
        and tensor.value is None
    )


def _read_codes(graph: Graph) -> Readers:
    """Return for every value the coordinates at which some node reads it."""
    read: Readers = {}
    for node in graph.nodes:
        for source, mask in node.reads:
            read[source.value] = either(read.get(source.value), mask)
    return read


def _owner_of(tensor: Tensor) -> str | None:
    """Return the name of the tensor whose gradient or new value a tensor is, or None."""
    return tensor.gradient_of or tensor.updated


def _first_held_otherwise(cut: Cut, held: Cut, read: Mask) -> int | None:
    """Return the first coordinate code in ``read`` at which two cuts differ in part or scale.

    Return None if there is none.
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
    """Return True if two cuts hold the same part at these numbers, or none; paddings are equal."""
    if number < 0 or theirs < 0:
        return number == theirs
    mine, its = cut.parts[number], other.parts[theirs]
    if (mine.term, mine.terms) != (its.term, its.terms):
        return False
    return mine.box == its.box or [_joined(own) for own in mine.box] == [
        _joined(own) for own in its.box
    ]


def _joined(intervals: Sequence[Interval]) -> list[Interval]:
    """Return intervals that say the same in as few pieces as possible."""
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


def _written(graph: Graph, value: int) -> Mask:
    """Return the coordinates at which a value is computed; all of them if no node writes it."""
    mask: Mask | None = None
    for writer in graph.values[value].writers:
        mask = either(mask, graph.nodes[writer].where)
    return np.ones(graph.anywhere, dtype=np.bool_) if mask is None else mask


def _named(lineage: Lineage, name: str) -> Lineage:
    """Return the lineage of an output, after a check that it names the output itself."""
    if lineage.reference not in ("", name):
        raise PlanError(
            f"the output for {name!r} has a lineage of {lineage.reference!r}",
            f"outputs[{name}].lineage",
        )
    return lineage


def _holders(lineage: Lineage) -> str:
    """Return in words what holds terms of an output; "" if nothing does."""
    axes = [axis for axis in lineage.partial if axis != MICROBATCH_AXIS]
    ranks = [f"{' and '.join(axes)} rank"] if axes else []
    ranks += (
        [f"rank of {[list(r) for r in lineage.partial_ranks]}"] if lineage.partial_ranks else []
    )
    rounds = ["micro-batch"] if MICROBATCH_AXIS in lineage.partial else []
    return f"each {' and '.join([*ranks, *rounds])}" if ranks or rounds else ""


def _exception(name: str, lineage: Lineage, coordinates: Coordinates) -> list[str]:
    """Return a sentence for everything by which a lineage departs from the reference's output."""
    said: list[str] = []
    # With as many times the reference as there are terms, the reference is their mean.
    mean = bool(lineage.partial) and lineage.scale == str(coordinates.count(lineage.partial))
    times = "" if mean or lineage.scale == "1" else f" with {lineage.scale} times the reference"
    what, kind = ("value", "mean") if mean else ("share", "sum")
    if holders := _holders(lineage):
        compared = f"the {kind} of all {what}s is compared{times}"
        said.append(f"{name}: {holders} holds its own {what}; {compared}")
    elif times:
        said.append(f"{name}: compared{times}")
    if lineage.shards:
        said.append(
            f"{name}: spread over ranks along dimension "
            f"{', '.join(str(s.dim) for s in lineage.shards)}"
        )
    return said
