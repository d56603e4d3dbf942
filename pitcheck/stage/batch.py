"""A part of a graph between a boundary and its targets, as a straight list of batched steps.

Coordinates at which an operator would compute the same thing from the same inputs are computed
once: every value has *rows*, and coordinates point to rows. That is exact for any pattern of
replication, because an operator is a function of its inputs.

>>> first, which = distinct_columns([np.array([7, 8, 7])], 3)
>>> first.tolist(), which.tolist()
([0, 1], [0, 1, 0])
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from pitcheck.base.numbers import Literal
from pitcheck.graph.distinct import distinct
from pitcheck.graph.graph import Graph, Node, Source, Stacked, sources_of
from pitcheck.graph.grids import Codes, Grid, Home, Mask, either, far, focus, near

MANY_COLUMNS = 8
"""The number of columns from which on rows are compared by a word of each."""
ODD = np.uint64(0x9E3779B97F4A7C15)
"""The odd word from which the weights of these columns are made."""

Boundary = Callable[[int], Grid | None]
"""A function of a value: the number of the part it holds at every coordinate (-1: computed there),
or None if it is not on the boundary at all.
"""


@dataclass(frozen=True)
class Argument:
    """Rows of a value: shape (count,), or (count, members) for a stack."""

    value: int
    rows: Codes


StepOperand = Argument | tuple[Argument, ...] | Literal


@dataclass(frozen=True)
class Step:
    """One operator at ``count`` distinct rows; its results extend the rows of its output values."""

    node: int
    kind: str
    attributes: Mapping[str, Any]
    inputs: tuple[StepOperand, ...]
    outputs: tuple[int | None, ...]
    count: int
    unread: frozenset[int] = frozenset()
    """The places of operands whose shape alone matters: they are read at row 0."""

    @property
    def arguments(self) -> list[Argument]:
        """Return the operands that are values, those of a stack one by one."""
        return values_of(self.inputs)

    @property
    def looked_into(self) -> list[Argument]:
        """Return those of which more than the shape matters."""
        return values_of(
            operand for place, operand in enumerate(self.inputs) if place not in self.unread
        )


def values_of(operands: Iterable[StepOperand]) -> list[Argument]:
    """Return those of some operands that are values, the members of a stack one by one."""
    return [
        a
        for operand in operands
        for a in (operand if isinstance(operand, tuple) else (operand,))
        if isinstance(a, Argument)
    ]


@dataclass
class Batch:
    """Steps in order, with the rows of all values.

    ``inputs`` maps a boundary value to the parts its rows hold; ``grids`` maps a value to its row
    at every coordinate of ``held``. Both are kept near the value's home. Where a value is not held
    a grid may have any row, or -1.
    """

    graph: Graph
    inputs: dict[int, Codes] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    grids: dict[int, Grid] = field(default_factory=dict)
    held: dict[int, Mask] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    missing: dict[int, Mask] = field(default_factory=dict)
    """The values that are needed at coordinates where nothing writes them."""
    shapes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """The shapes of values that hold less here than in the plan."""

    def shape(self, value: int) -> tuple[int, ...]:
        """Return the full shape of a value."""
        return self.shapes.get(value) or self.graph.values[value].shape

    def count(self, value: int) -> int:
        """Return the number of rows of a value."""
        return self.counts[value]

    @cached_property
    def rows(self) -> Rows:
        """Return by value the row at every coordinate code (-1: absent), shape (codes,)."""
        return Rows(self)

    def add_input(self, value: int, grid: Grid, parts: Codes, held: Mask) -> None:
        """Enter a boundary value: its rows and the parts that they hold."""
        self.inputs[value] = parts
        self.grids[value] = grid
        self.held[value] = held
        self.counts[value] = len(parts)


class Rows(Mapping[int, Codes]):
    """The grids of a batch as arrays by coordinate code, made when they are asked for."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._known: dict[int, Codes] = {}

    def __getitem__(self, value: int) -> Codes:
        if value not in self._known:
            batch = self._batch
            info = batch.graph.values[value]
            grid = np.where(batch.held[value], batch.grids[value], -1)
            self._known[value] = info.lattice.flat(far(grid, info.home, info.lattice.shape, -1), -1)
        return self._known[value]

    def __iter__(self) -> Iterator[int]:
        return iter(self._batch.grids)

    def __len__(self) -> int:
        return len(self._batch.grids)


def extract(graph: Graph, targets: Mapping[int, Mask], boundary: Boundary) -> Batch:
    """Cut out what computes ``targets`` (value -> coordinates near its home) from the boundary."""
    cone = _Cone(graph, boundary)
    cone.walk(targets)
    batch = Batch(graph, missing=cone.missing())
    for value, mask in cone.needed.items():
        parts = cone.parts(value)
        if parts is not None:
            _add_input(batch, value, mask, parts)
        batch.held[value] = mask
    if batch.missing:
        return batch
    for number in sorted(cone.running, key=graph.rank.__getitem__):
        node = graph.nodes[number]
        _add_step(
            batch,
            number,
            node,
            cone.running[number],
            tuple(output if output in cone.needed else None for output in node.outputs),
        )
    return batch


def _add_input(batch: Batch, value: int, mask: Mask, parts: Grid) -> None:
    """Enter rows for the parts that are needed, where the grid has one."""
    places = focus(mask)
    present, held = np.broadcast_arrays(near(parts, places), near(mask, places))
    given = held & (present >= 0)
    if not given.any():
        return
    whole = present[given]
    first, which = distinct(whole)
    grid = np.full(present.shape, -1, dtype=np.int64)
    grid[given] = which
    if (present < 0).any():
        grid = far(grid, places, batch.graph.values[value].lattice.shape, -1)
    batch.add_input(value, grid, whole[first], mask)


class _Cone:
    """All that lies between a boundary and some targets.

    All masks are near the homes of what they belong to.
    """

    def __init__(self, graph: Graph, boundary: Boundary) -> None:
        self.graph = graph
        self.boundary = boundary
        self.needed: dict[int, Mask] = {}
        self.running: dict[int, Mask] = {}
        self._outside: dict[int, Mask] = {}
        self._queue: list[int] = []
        self._queued: set[int] = set()

    def parts(self, value: int) -> Grid | None:
        """Return the parts of a boundary value, near its home, or None."""
        found = self.boundary(value)
        return None if found is None else near(found, self.graph.values[value].home)

    def walk(self, targets: Mapping[int, Mask]) -> None:
        """Go back from the targets."""
        for value, mask in targets.items():
            self._need(value, mask)
        while self._queue:
            number = self.graph.order[-heapq.heappop(self._queue)]
            node = self.graph.nodes[number]
            run = self._wanted(node)
            if run is None:
                continue
            left_out = bool((node.near & ~run).any())
            run = run & node.near if left_out else node.near
            if run.any():
                self.running[number] = run
                for operand in node.inputs:
                    for source in sources_of(operand):
                        self._read(node, source, run)

    def missing(self) -> dict[int, Mask]:
        """Return where a value is needed but nothing writes it."""
        result: dict[int, Mask] = {}
        for value, mask in self.needed.items():
            left = self._computed(value, mask)
            for writer in self.graph.values[value].writers:
                node = self.graph.nodes[writer]
                left = left & ~(node.near if self.graph.values[value].home else node.where)
            if left.any():
                result[value] = left
            elif value in self._outside and self.boundary(value) is None:
                result[value] = self._outside[value]
        return result

    def _need(self, value: int, mask: Mask) -> None:
        """Note where a value is needed, and visit the nodes that write it."""
        if not self.graph.values[value].lattice.microbatched:
            mask = mask[..., :1]
        self.needed[value] = either(self.needed.get(value), mask)
        for writer in self.graph.values[value].writers:
            if writer not in self._queued:
                self._queued.add(writer)
                heapq.heappush(self._queue, -self.graph.rank[writer])

    def _wanted(self, node: Node) -> Mask | None:
        """Return the coordinates at which a node computes something that is needed, or None."""
        run: Mask | None = None
        for output in node.outputs:
            if output in self.needed:
                wanted = self._computed(output, self.needed[output])
                run = either(
                    run, wanted if self.graph.values[output].home else near(wanted, node.home)
                )
        return run

    def _computed(self, value: int, mask: Mask) -> Mask:
        """Return those coordinates of a mask at which a value is not given by the boundary."""
        parts = self.parts(value)
        return mask if parts is None else mask & (parts < 0)

    def _read(self, node: Node, source: Source, run: Mask) -> None:
        """Note what a node reads, near the home of the value; nobody writes what lies elsewhere."""
        home = self.graph.values[source.value].home
        if home == node.home and not crosses(source, home):
            self._need(source.value, source.reach(run))
            return
        reach = source.reach(far(run, node.home, node.lattice.shape, False))
        mask = near(reach, home)
        if home and int(
            np.broadcast_to(reach, _full(reach, home, node.lattice.shape)).sum()
        ) != int(mask.sum()):
            self._outside[source.value] = reach
        self._need(source.value, mask)


def _full(mask: Mask, home: Home, shape: tuple[int, ...]) -> list[int]:
    """Return the shape of a mask over all coordinates of a home."""
    axes = {axis for axis, _ in home}
    return [shape[d] if d in axes else size for d, size in enumerate(mask.shape)]


def crosses(source: Source, home: Home) -> bool:
    """Return True if a source may lie elsewhere along a dimension of a home."""
    return source.read is not None and any(axis in source.read.axes for axis, _ in home)


def _add_step(
    batch: Batch, number: int, node: Node, run: Mask, outputs: tuple[int | None, ...]
) -> None:
    """Append a node as a step.

    Outputs that nothing reads are left out: they need not be computed, and computing them could mix
    dimensions.
    """
    anywhere = np.zeros(batch.graph.anywhere, dtype=np.int64)
    grids = [
        [(anywhere, 0)]
        if place in node.unread
        else [
            (near(_seen(source, batch.grids[source.value], node), node.home), source.members)
            for source in sources_of(operand)
        ]
        for place, operand in enumerate(node.inputs)
    ]
    flat = [(grid, members) for several in grids for grid, members in several]
    shape = np.broadcast_shapes(
        run.shape, *(grid.shape[:-1] if members else grid.shape for grid, members in flat)
    )
    chosen = None if run.all() else np.flatnonzero(np.broadcast_to(run, shape).reshape(-1))
    count = prod(shape) if chosen is None else len(chosen)
    columns = [_column(grid, members, shape, chosen) for grid, members in flat]
    first, which = distinct_columns(columns, count)
    if len(first) < count:
        columns = [column[first] for column in columns]
    batch.steps.append(
        Step(
            number,
            node.kind,
            node.attributes,
            _operands(node, grids, columns),
            outputs,
            len(first),
            node.unread,
        )
    )
    for output in outputs:
        if output is not None:
            rows = np.full(prod(shape), -1, dtype=np.int64)
            rows[slice(None) if chosen is None else chosen] = batch.counts.get(output, 0) + which
            _write(batch, output, rows.reshape(shape), len(first), node)
            info = batch.graph.values[output]
            batch.held[output] = either(
                batch.held.get(output),
                run if info.home else far(run, node.home, info.lattice.shape, False),
            )


def _seen(source: Source, grid: Grid, node: Node) -> Grid:
    """Return what a node reads of a grid.

    A node that runs once has one entry along micro-batches: the others of a read by code stand for
    no coordinate.
    """
    found = source.gather(grid)
    if node.lattice.microbatched:
        return found
    return found[..., :1, :] if source.members else found[..., :1]


def _column(grid: Grid, members: int, shape: tuple[int, ...], chosen: Codes | None) -> Codes:
    """Return an operand's rows where chosen, shape (count,) or (count, members)."""
    dense = np.broadcast_to(grid, (*shape, members) if members else shape).reshape(
        (-1, members) if members else (-1,)
    )
    return dense if chosen is None else dense[chosen]


def _operands(
    node: Node, grids: Sequence[Sequence[object]], columns: Sequence[Codes]
) -> tuple[StepOperand, ...]:
    """Return the operands of a step, with rows for those that are values."""
    left = iter(columns)
    result: list[StepOperand] = []
    for operand, several in zip(node.inputs, grids, strict=True):
        found = [
            Argument(source.value, next(left))
            for source, _ in zip(sources_of(operand), several, strict=True)
        ]
        if isinstance(operand, Source):
            result.append(found[0])
        elif isinstance(operand, Stacked):
            result.append(tuple(found))
        else:
            result.append(operand)
    return tuple(result)


def _write(batch: Batch, output: int, rows: Grid, more: int, node: Node) -> None:
    """Append rows to a value; other writers, or a boundary, have written elsewhere."""
    info = batch.graph.values[output]
    grid = rows if info.home else far(rows, node.home, info.lattice.shape, -1)
    before = batch.grids.get(output)
    batch.grids[output] = grid if before is None else np.where(before >= 0, before, grid)
    batch.counts[output] = batch.counts.get(output, 0) + more


def needed_steps(
    batch: Batch, target: int, given: Collection[int] = ()
) -> tuple[list[int], set[int]]:
    """Return what computes ``target`` from the values ``given`` and the inputs.

    A value that is given is not computed, even if it is the target.

    Returns:
        The numbers of the steps, ascending, and all values that they need.
    """
    needed, kept = {target}, []
    for number in reversed(range(len(batch.steps))):
        step = batch.steps[number]
        if needed.isdisjoint(step.outputs):
            continue
        if any(output in needed and output not in given for output in step.outputs):
            kept.append(number)
            needed.update(argument.value for argument in step.arguments)
    return kept[::-1], needed


def distinct_columns(columns: list[Codes], count: int) -> tuple[Codes, Codes]:
    """Return the distinct rows of some columns, in the order in which they first occur.

    Returns:
        The position of the first of every distinct row; which distinct row each one is.
    """
    if count == 1 or not columns:
        return np.zeros(1, dtype=np.int64), np.zeros(count, dtype=np.int64)
    if sum(1 if column.ndim == 1 else column.shape[1] for column in columns) > MANY_COLUMNS:
        found = _distinct_words(columns)
        if found is not None:
            return found
    key = np.zeros(count, dtype=np.int64)
    span = 1
    for column in (
        c[:, i] if c.ndim == 2 else c
        for c in columns
        for i in range(c.shape[1] if c.ndim == 2 else 1)
    ):
        width = int(column.max()) + 1
        if width == 1:
            continue
        if span * width > 2**62:
            _, key = distinct(key)
            span = int(key.max()) + 1
        key = key * width + column
        span *= width
    return distinct(key)


def _distinct_words(columns: list[Codes]) -> tuple[Codes, Codes] | None:
    """Return the same by a word of every row; None if two different rows have one word."""
    table = np.concatenate([column.reshape(len(column), -1) for column in columns], axis=1)
    weights = np.arange(1, table.shape[1] + 1, dtype=np.uint64) * ODD | np.uint64(1)
    with np.errstate(over="ignore"):
        words = (table.astype(np.uint64) * weights).sum(axis=1, dtype=np.uint64).view(np.int64)
    first, which = distinct(words)
    return (first, which) if np.array_equal(table[first][which], table) else None
