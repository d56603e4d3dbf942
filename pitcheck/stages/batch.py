"""A part of a graph, cut out between a boundary and its targets, as a straight list of batched steps.

Coordinates at which an operator would compute the same thing from the same inputs are computed once: every value has *rows*, and coordinates
point to rows. That is exact for any pattern of replication, because an operator is a function of its inputs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.plan.numbers import Literal
from pitcheck.stages.distinct import distinct
from pitcheck.stages.graph import Codes, Graph, Node, Operand, Source, Stacked

Boundary = Callable[[int], NDArray[np.int64] | None]
"""For a value, the number of the part it holds at every code (-1: computed there), or None where it is not on the boundary at all."""


@dataclass(frozen=True)
class Argument:
    """Rows of a value: shape (count,), or (count, members) for a stack."""

    value: int
    rows: Codes


StepOperand = Argument | tuple[Argument, ...] | Literal


@dataclass(frozen=True)
class Step:
    """One operator at ``count`` distinct rows; its results are appended to the rows of its output values."""

    node: int
    kind: str
    attributes: Mapping[str, Any]
    inputs: tuple[StepOperand, ...]
    outputs: tuple[int | None, ...]
    count: int


@dataclass
class Batch:
    """Steps in order. ``inputs`` maps a boundary value to the parts its rows hold; ``rows`` maps a value to its row per code (-1: absent)."""

    graph: Graph
    inputs: dict[int, Codes] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    rows: dict[int, Codes] = field(default_factory=dict)
    missing: dict[int, Codes] = field(default_factory=dict)
    """Values that are needed at codes where nothing writes them."""

    def count(self, value: int) -> int:
        """Number of rows of a value."""
        return int(self.rows[value].max()) + 1


def extract(graph: Graph, targets: Mapping[int, NDArray[np.bool_]], boundary: Boundary) -> Batch:
    """Cut out what computes ``targets`` (value -> mask of codes) from the boundary."""
    running, needed, missing = _cone(graph, targets, boundary)
    batch = Batch(graph, missing=missing)
    for value, mask in needed.items():
        parts = boundary(value)
        if parts is None:
            continue
        held = mask & (parts >= 0)
        if held.any():
            present = parts[held]
            first, which = distinct(present)
            batch.inputs[value] = present[first]
            rows = np.full(graph.codes, -1, dtype=np.int64)
            rows[held] = which
            batch.rows[value] = rows
    if missing:
        return batch
    filled = {value: len(parts) for value, parts in batch.inputs.items()}
    for number in sorted(running, key=graph.rank.__getitem__):
        _add_step(batch, number, graph.nodes[number], running[number], filled)
    return batch


def _cone(
    graph: Graph, targets: Mapping[int, NDArray[np.bool_]], boundary: Boundary
) -> tuple[dict[int, NDArray[np.bool_]], dict[int, NDArray[np.bool_]], dict[int, Codes]]:
    """Walk back from the targets: (codes at which each node runs, codes at which each value is needed, needed codes that nothing writes)."""
    needed: dict[int, NDArray[np.bool_]] = {}
    running: dict[int, NDArray[np.bool_]] = {}
    missing: dict[int, Codes] = {}
    queue: list[int] = []
    queued: set[int] = set()

    def need(value: int, mask: NDArray[np.bool_]) -> None:
        known = needed.get(value)
        if known is None:
            needed[value] = mask.copy()
        else:
            known |= mask
        for writer in graph.values[value].writers:
            if writer not in queued:
                queued.add(writer)
                heapq.heappush(queue, -graph.rank[writer])

    for value, mask in targets.items():
        need(value, mask)
    while queue:
        number = graph.order[-heapq.heappop(queue)]
        node = graph.nodes[number]
        run = np.zeros(graph.codes, dtype=np.bool_)
        for output in node.outputs:
            if output in needed:
                run |= _computed(boundary, output, needed[output])
        run &= node.mask
        if not run.any():
            continue
        running[number] = run
        whole = node.whole
        full = len(whole.codes) == int(run.sum())
        codes = whole.codes if full else run.nonzero()[0]
        for source, reads in whole.reads:
            if full:
                need(source.value, reads)
                continue
            mask = np.zeros(graph.codes, dtype=np.bool_)
            mask[source.at(codes).reshape(-1)] = True
            need(source.value, mask)
    for value, mask in needed.items():
        left = _computed(boundary, value, mask)
        for writer in graph.values[value].writers:
            left = left & ~graph.nodes[writer].mask
        if left.any():
            missing[value] = np.flatnonzero(left)
    return running, needed, missing


def _computed(boundary: Boundary, value: int, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    parts = boundary(value)
    return mask if parts is None else mask & (parts < 0)


def _add_step(batch: Batch, number: int, node: Node, run: NDArray[np.bool_], filled: dict[int, int]) -> None:
    codes = node.whole.codes if len(node.whole.codes) == int(run.sum()) else run.nonzero()[0]
    operands = [_rows(batch, operand, codes) for operand in node.inputs]
    columns = [
        argument.rows.reshape(len(codes), -1)
        for operand in operands
        for argument in (operand if isinstance(operand, tuple) else (operand,))
        if isinstance(argument, Argument)
    ]
    chosen, which = _distinct(columns, len(codes))
    inputs = tuple(operands) if len(chosen) == len(codes) else tuple(_choose(operand, chosen) for operand in operands)
    step = Step(number, node.kind, node.attributes, inputs, node.outputs, len(chosen))
    batch.steps.append(step)
    for output in node.outputs:
        if output is None:
            continue
        rows = batch.rows.get(output)
        if rows is None:
            rows = batch.rows[output] = np.full(batch.graph.codes, -1, dtype=np.int64)
        start = filled.get(output, 0)
        fresh = rows[codes] < 0
        rows[codes[fresh]] = start + which[fresh]
        filled[output] = start + len(chosen)


def _rows(batch: Batch, operand: Operand, codes: Codes) -> StepOperand:
    if isinstance(operand, Source):
        return Argument(operand.value, batch.rows[operand.value][operand.at(codes)])
    if isinstance(operand, Stacked):
        return tuple(Argument(m.value, batch.rows[m.value][m.at(codes)]) for m in operand.members)
    return operand


def _distinct(columns: list[Codes], count: int) -> tuple[Codes, Codes]:
    """(position of the first of every distinct row, which distinct row each one is)."""
    if count == 1 or not columns:
        return np.zeros(1, dtype=np.int64), np.zeros(count, dtype=np.int64)
    key = np.zeros(count, dtype=np.int64)
    span = 1
    for column in (c[:, i] for c in columns for i in range(c.shape[1])):
        width = int(column.max()) + 1
        if width == 1:
            continue
        if span * width > 2**62:
            _, key = distinct(key)
            span = int(key.max()) + 1
        key = key * width + column
        span *= width
    return distinct(key)


def _choose(operand: StepOperand, chosen: Codes) -> StepOperand:
    if isinstance(operand, Argument):
        return Argument(operand.value, operand.rows[chosen])
    if isinstance(operand, tuple):
        return tuple(Argument(a.value, a.rows[chosen]) for a in operand)
    return operand
