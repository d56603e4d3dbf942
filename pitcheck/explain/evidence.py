"""The values of one run of both plans on the reals, in which causes are looked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.value import Value
from pitcheck.claims.conjecture import VIEWS
from pitcheck.claims.real_numbers import Floats, real_differences
from pitcheck.claims.reference_index import Corners, Index, build_index, lookup
from pitcheck.claims.shard_places import Places
from pitcheck.claims.specification import Specification
from pitcheck.errors import PitcheckError
from pitcheck.explain.families import MOVES
from pitcheck.graph.cuts import Cut
from pitcheck.graph.graph import Graph, Node, Source, sources_of
from pitcheck.graph.grids import Codes
from pitcheck.graph.spoken_names import Spoken, spoken_names
from pitcheck.ops.registry import BACKWARD, operator_kind
from pitcheck.plan.model import MICROBATCH_AXIS
from pitcheck.refute.whole_run import WholeRun
from pitcheck.stage.batch import Step
from pitcheck.stage.run_batch import run_batch

Mask = NDArray[np.bool_]
MOST_COPIES = 8
"""Copies of a tensor that are followed back."""
MOST_AT_A_LINE = 4
"""Operators of one kind that are told apart within one round of a loop."""
MOST_DOWNSTREAM = 32
"""Values of which all that is computed from them is kept: repairs at one place ask again."""
SAME = 1e-8
"""Relative difference up to which a value counts as what it should be."""


@dataclass(frozen=True)
class Grouping:
    """A partition of coordinates into groups. ``table``: shape (groups, members).

    ``name``: what it runs over, e.g. ``tp`` or ``ranks [0, 2]``. ``reference``: the reference value
    of which a sum over it is part, if that was found. ``beside``: further values that hold addends
    of the same sum, those of other rounds of a loop. ``times``: the sum is so many times what it is
    part of; for a mean the number of its addends.
    """

    name: str
    table: Codes
    axes: tuple[str, ...] = ()
    reference: int | None = None
    beside: tuple[int, ...] = ()
    times: int = 1

    @property
    def what(self) -> str:
        """ "sum" or "mean"."""
        return "sum" if self.times == 1 else "mean"

    @property
    def reduction(self) -> str:
        """The reduction that makes the whole of the addends."""
        return "sum" if self.times == 1 else "avg"


class Evidence:
    """Values, steps and conjectured cuts of a run."""

    def __init__(
        self,
        first: Graph,
        second: Graph,
        specification: Specification,
        run: WholeRun,
        cuts: Mapping[int, Cut],
    ) -> None:
        self.first = first
        self.second = second
        self.specification = specification
        self.run = run
        self.cuts = {**cuts, **specification.initial}
        self.batch = run.stage.parallel
        places = Places(run.symbolic, run.shaped, self.cuts)
        corners = Corners(run.symbolic, run.shaped, places)
        self.index: Index = build_index(run.stage.reference, run.evaluated, corners)
        self._true: dict[int, bool] = {}
        self.writers: dict[int, list[Step]] = {}
        for step in self.batch.steps:
            for output in step.outputs:
                if output is not None:
                    self.writers.setdefault(output, []).append(step)
        self._at_line: dict[tuple[object, ...], list[int]] = {}
        for value, steps in sorted(
            self.writers.items(), key=lambda item: second.nodes[item[1][-1].node].position
        ):
            self._at_line.setdefault(self._line(value, steps[-1]), []).append(value)
        self._numbers = {id(step): number for number, step in enumerate(self.batch.steps)}
        self._alike: dict[int, int] = {}
        self._downstream: dict[int, frozenset[int]] = {}
        self._unused: dict[int, frozenset[int]] = {}
        self.readers: dict[int, list[Step]] = {}
        for step in self.batch.steps:
            for source in self.inputs(step):
                self.readers.setdefault(source, []).append(step)
        nodes = (
            second.nodes
            if run.blocks is None
            else [second.nodes[step.node] for step in self.batch.steps]
        )
        self.groupings = _groupings(second, nodes)

    def array(self, value: int) -> Floats:
        """Return a parallel value, shape (trials, rows, *shape)."""
        data = np.asarray(self.run.evaluated.parallel[value].data, dtype=np.float64)[0]
        return np.broadcast_to(
            data, (len(self.run.evaluated.algebra.trials), self.batch.count(value), *data.shape[2:])
        )

    def at(self, value: int, codes: Codes) -> Floats | None:
        """Return a parallel value at coordinates, shape (trials, codes, *shape).

        None if it is not there at one of them.
        """
        rows = self.batch.rows[value][codes]
        return None if (rows < 0).any() else self.array(value)[:, rows]

    def codes(self, value: int) -> Codes:
        """Return the coordinates that hold a parallel value, shape (codes,)."""
        return np.flatnonzero(self.batch.rows[value] >= 0)

    def name(self, value: int) -> str:
        """Return the name of a parallel value, which a sentence shows in its author's words."""
        name, words = self.second.values[value].name, self._words.get(value)
        return name if words is None else Spoken(name, words)

    @cached_property
    def _words(self) -> Mapping[int, str]:
        """By value what its author calls it, where the plan had to name it."""
        return spoken_names(self.second)

    def called(self, value: int) -> str:
        """Return the name of a parallel value, quoted, with the names of its copies."""
        copies = [
            name
            for name, number in self.second.number.items()
            if number == value and name != self.name(value)
        ]
        return repr(self.name(value)) + (
            f" (copied as {', '.join(map(repr, copies[:3]))})" if copies else ""
        )

    def holds(self, value: int) -> int | None:
        """Return the reference value of which a value holds unscaled parts; None if unknown."""
        cut = self.cuts.get(value)
        return None if cut is None or cut.scale != 1 else cut.reference

    def origin(self, value: int) -> str:
        """Return as text how a value is made from another part of its reference tensor.

        "" if it is not made so.
        """
        said: list[str] = []
        reference = self.holds(value)
        while reference is not None and len(said) < MOST_COPIES:
            step = next(iter(self.writers.get(value, [])), None)
            sources = self.inputs(step) if step is not None else []
            if step is None or len(sources) != 1:
                break
            held = self.holds(sources[0])
            if (
                self.alike(reference) != self.alike(held)
                if held is not None
                else not self.is_true(sources[0])
            ):
                break
            value = sources[0]
            said.append(self.operator(step))
        return (
            f", which {', '.join(map(repr, said))} makes from {self.name(value)!r}," if said else ""
        )

    def alike(self, reference: int) -> int:
        """Return the canonical one of numerically equal reference values.

        The weight of a block of data is mapped to the value that it weights first.
        """
        if self.run.blocks is not None:
            reference = self.run.blocks.batched.scaled.get(reference, reference)
        if not self._alike:
            seen: dict[bytes, int] = {}
            for value, held in self.run.evaluated.reference.items():
                data = np.asarray(held.data)
                self._alike[value] = seen.setdefault(
                    repr(data.shape).encode() + data.tobytes(), value
                )
        return self._alike.get(reference, reference)

    def rounds(self, value: int) -> Iterator[tuple[int, ...]]:
        """Yield the values that a loop in the user's program computes in the place of this one.

        They have the same line, kind of operator and shape, and this value is among them. If the
        line has several such operators, every second of them, or third.
        """
        steps = self.writers.get(value, [])
        if not steps or not self.second.nodes[steps[-1].node].source or self.is_constant(value):
            return
        found = self._at_line[self._line(value, steps[-1])]
        for stride in range(1, min(len(found) // 2, MOST_AT_A_LINE) + 1):
            if len(found) % stride == 0:
                yield tuple(found[found.index(value) % stride :: stride])

    def _line(self, value: int, step: Step) -> tuple[object, ...]:
        """Return a key that is equal for the values that a line computes again and again."""
        node, held = self.second.nodes[step.node], self.second.values[value]
        return node.source, node.kind, held.shape, held.kind, held.name.partition("#")[0]

    def operator(self, step: Step) -> str:
        """Return the name of the plan's operator that a step belongs to."""
        return self.second.nodes[step.node].operator

    def inputs(self, step: Step) -> list[int]:
        """Return the parallel values that a step reads, each once."""
        found = [argument.value for argument in step.arguments]
        return list(dict.fromkeys(found))

    def outputs(self, step: Step) -> list[int]:
        """Return the parallel values that a step writes."""
        return [output for output in step.outputs if output is not None]

    def unused(self, step: Step) -> frozenset[int]:
        """Return the values that a derivative reads and does not depend on.

        The gradient of a linear function does not depend on its result.
        """
        number = self._numbers[id(step)]
        if number not in self._unused:
            self._unused[number] = (
                frozenset(self._find_unused(number))
                if step.kind.endswith(BACKWARD)
                else frozenset()
            )
        return self._unused[number]

    def _find_unused(self, number: int) -> Iterator[int]:
        step = self.batch.steps[number]
        given = {value: self.run.evaluated.parallel[value] for value in self.inputs(step)}
        try:
            before = self._alone(number, given)
            for value, held in given.items():
                after = (
                    self._alone(number, {**given, value: Value(held.kind, held.data * 3 + 1)})
                    if held.kind == "field"
                    else {}
                )
                if after and all(
                    np.array_equal(before[o].data, after[o].data, equal_nan=True)
                    for o in step.outputs
                    if o is not None
                ):
                    yield value
        except PitcheckError:  # an operator may refuse other inputs: then all count as used
            return

    def _alone(self, number: int, given: Mapping[int, Value]) -> dict[int, Value]:
        """Return the values that one step writes, run on all rows of its inputs."""
        inputs = {value: np.arange(self.batch.count(value), dtype=np.int64) for value in given}
        part = replace(self.batch, inputs=inputs, steps=[self.batch.steps[number]])
        with np.errstate(all="ignore"):
            return run_batch(
                part, self.run.evaluated.algebra, given, [self.run.shaped.attributes[1][number]]
            )

    def is_constant(self, value: int) -> bool:
        """Return True if a value is made of nothing but numbers of the program."""
        steps = self.writers.get(value, [])
        return bool(steps) and not any(self.inputs(step) for step in steps)

    def is_true(self, value: int) -> bool:
        """Return True if a value holds what the reference holds.

        It is constant, has unscaled parts of one reference value, or only views a value that does.
        """
        if value not in self._true:
            stack, seen = [value], {value}
            while stack:
                held = stack.pop()
                viewed = self._viewed(held)
                if viewed is None or any(not self._true.get(v, True) for v in viewed):
                    self._true[value] = False
                    return False
                stack.extend(v for v in viewed if v not in seen and v not in self._true)
                seen.update(viewed)
            self._true.update(dict.fromkeys(seen, True))
        return self._true[value]

    def _viewed(self, value: int) -> list[int] | None:
        """Return what a value only views; None if it is computed, or off by a factor.

        Nothing, if it is known to be true by itself.
        """
        cut = self.cuts.get(value)
        if cut is not None:
            return [] if cut.scale == 1 else None
        steps = (
            []
            if value in self.batch.inputs
            else [step for step in self.writers.get(value, []) if self.inputs(step)]
        )
        return (
            None
            if any(step.kind not in VIEWS for step in steps)
            else [v for step in steps for v in self.inputs(step)]
        )

    def reductions_of(self, value: int) -> list[Step]:
        """Return the collectives that read a value, or what has its elements in another form."""
        steps = self.read_behind([value], lambda step: step.kind in MOVES)
        return [step for step in steps if operator_kind(step.kind).collective]

    def read_behind(self, values: Iterable[int], goes_on: Callable[[Step], bool]) -> Iterator[Step]:
        """Yield the steps that read values, or what steps behind them make of these.

        ``goes_on`` tells the steps whose results are followed. A step that reads several of the
        values comes several times.
        """
        stack = list(values)
        seen = set(stack)
        while stack:
            for step in self.readers.get(stack.pop(), []):
                yield step
                if goes_on(step):
                    new = [output for output in self.outputs(step) if output not in seen]
                    seen.update(new)
                    stack.extend(new)

    @cached_property
    def behind_right(self) -> Mapping[int, Mask]:
        """By value a mask of the coordinates from which a right output is computed, shape (codes,).

        Values without such coordinates are left out.
        """
        found: dict[int, Mask] = {}

        def add(value: int, codes: Codes) -> None:
            found.setdefault(value, np.zeros(self.second.codes, dtype=np.bool_))[codes] = True

        for comparison in self.run.comparisons:
            differences = np.where(
                comparison.judged[:1], real_differences(comparison.actual, comparison.expected), 0.0
            )
            if not (differences > SAME).any():
                add(comparison.target.cut.value, comparison.target.codes)
        for step in reversed(self.batch.steps):
            node = self.second.nodes[step.node]
            behind = [found[output] for output in self.outputs(step) if output in found]
            codes = (
                np.flatnonzero(node.mask & np.logical_or.reduce(behind))
                if behind
                else np.zeros(0, dtype=np.int64)
            )
            for source in (
                s
                for operand in node.inputs
                for s in sources_of(operand)
                if len(codes) and s.value not in self.unused(step)
            ):
                add(source.value, source.at(codes))
        return found

    def first_reader(self, value: int) -> Step | None:
        """Return the step that reads a value first in the program; None if none does."""
        return min(
            self.readers.get(value, []), key=lambda step: self.second.rank[step.node], default=None
        )

    def read_first(self, values: Iterable[int]) -> int:
        """Return the one of several values that is read first in the program."""
        steps = {value: self.first_reader(value) for value in values}
        return min(
            steps,
            key=lambda value: (
                len(self.second.nodes)
                if (step := steps[value]) is None
                else self.second.rank[step.node]
            ),
        )

    def downstream(self, value: int) -> frozenset[int]:
        """Return what is computed from a value, and the value itself."""
        if value not in self._downstream:
            found, stack = {value}, [value]
            while stack:
                for step in self.readers.get(stack.pop(), []):
                    new = [output for output in self.outputs(step) if output not in found]
                    found.update(new)
                    stack.extend(new)
            if len(self._downstream) >= MOST_DOWNSTREAM:
                self._downstream.clear()
            self._downstream[value] = frozenset(found)
        return self._downstream[value]

    def holding(self, reference: int) -> list[int]:
        """Return the parallel values that hold parts of a reference value."""
        return self._holders.get(reference, [])

    @cached_property
    def _holders(self) -> Mapping[int, list[int]]:
        """By canonical reference value the parallel values that hold parts of it."""
        found: dict[int, list[int]] = {}
        for value, cut in self.cuts.items():
            if cut.scale == 1:
                found.setdefault(self.alike(cut.reference), []).append(value)
        return found

    def part_of(self, data: Floats) -> int | None:
        """Return the reference value of which all rows are parts; None if there is none.

        Args:
            data: the rows, shape (trials, rows, *shape).
        """
        return lookup(data, self.index) if np.isfinite(data).all() and data[0].size > 0 else None

    def ranks_of(self, codes: Codes) -> tuple[int, ...]:
        """Return the ranks of coordinates, in order."""
        return tuple(sorted({int(c) // self.second.coordinates.microbatches for c in codes}))

    def microbatches_of(self, value: int, codes: Codes) -> tuple[int, ...]:
        """Return the micro-batches of coordinates in order; none for a value that exists once."""
        if not self.second.values[value].tensor.microbatched:
            return ()
        return tuple(sorted({int(c) % self.second.coordinates.microbatches for c in codes}))


def _groupings(graph: Graph, nodes: Sequence[Node]) -> list[Grouping]:
    """Return the groups over which a sum may have been forgotten.

    These are every mesh axis, micro-batches, pairs of axes, all of them, groups that ``nodes`` use,
    and those of a mesh that a single axis may stand for.
    """
    coordinates = graph.coordinates
    axes = [name for name, size in coordinates.sizes.items() if size > 1] + (
        [MICROBATCH_AXIS] if coordinates.microbatches > 1 else []
    )
    sets: list[tuple[str, ...]] = [(a,) for a in axes] + [
        (a, b) for i, a in enumerate(axes) for b in axes[i + 1 :]
    ]
    if len(axes) > 2:
        sets.append(tuple(axes))
    everything = (*coordinates.sizes, MICROBATCH_AXIS)
    result = []
    for over in sets:
        others = tuple(a for a in everything if a not in over)
        outer = coordinates.row_major(others).reshape(-1)
        inner = coordinates.row_major(over).reshape(-1)
        table = np.lexsort((inner, outer)).reshape(-1, coordinates.count(over))
        result.append(Grouping(" and ".join(over), table, over))
    used: dict[tuple[tuple[int, ...], bytes], Grouping] = {}
    for node in nodes:
        for operand in node.inputs:
            if (
                isinstance(operand, Source)
                and operand.table is not None
                and operand.table.ndim == 2
            ):
                table = np.unique(operand.table[np.flatnonzero(node.mask)], axis=0)
                used.setdefault((table.shape, table.tobytes()), _of_ranks(graph, table))
    if len(axes) == 1 and axes != [MICROBATCH_AXIS]:
        for table in _parts_of_axis(result[0].table):
            used.setdefault((table.shape, table.tobytes()), _of_ranks(graph, table))
    return [*result, *list(used.values())[:16]]


def _of_ranks(graph: Graph, table: Codes) -> Grouping:
    """Return groups that no axes name, called after the first one."""
    ranks = [int(code) // graph.coordinates.microbatches for code in table[0]]
    return Grouping(f"ranks {ranks}", table)


def _parts_of_axis(table: Codes) -> Iterator[Codes]:
    """Yield the groups of evenly spaced members of the groups of an axis, in order of their codes.

    A compiler numbers the devices of all axes of a mesh in one row. An axis of ``count`` members,
    with ``step`` devices in the axes behind it, gives the groups of ``count`` members, ``step``
    apart.
    """
    size = table.shape[1]
    for count in (m for m in range(2, size // 2 + 1) if size % m == 0):
        for step in (s for s in range(1, size // count + 1) if size // count % s == 0):
            cut = table.reshape(-1, size // (count * step), count, step)
            groups = np.swapaxes(cut, 2, 3).reshape(-1, count)
            yield groups[np.lexsort(groups.T[::-1])]
