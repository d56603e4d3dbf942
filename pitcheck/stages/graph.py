"""The graph a plan is lowered to: nodes over coordinates, every operand with the coordinates it is read from.

A *value* is a tensor family: one tensor per coordinate code ``rank * microbatches + microbatch`` (micro-batch 0 for families that are not
microbatched). A *node* runs one operator at a set of coordinates. Nothing is stored per coordinate but masks that many nodes share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.base import Kind
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import Tensor
from pitcheck.plan.numbers import Literal

Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Source:
    """Where a node reads an operand from.

    ``table`` is None for the node's own coordinate, else an array of coordinate codes indexed by the node's own code: shape (codes,) for one
    tensor, (codes, members) for a stack of the members of a group (or of micro-batches).
    """

    value: int
    table: Codes | None = None

    def at(self, codes: Codes) -> Codes:
        """The codes read by a node that runs at ``codes``: shape (n,) or (n, members)."""
        return codes if self.table is None else self.table[codes]


@dataclass(frozen=True)
class Stacked:
    """A stack whose members come from different values: the members of a collective that run different operators."""

    members: tuple[Source, ...]


Operand = Source | Stacked | Literal


@dataclass(frozen=True)
class Node:
    """One operator at all coordinates of ``mask`` (boolean, indexed by coordinate code). ``outputs`` are values, None where not wanted."""

    kind: str
    attributes: Mapping[str, Any]
    inputs: tuple[Operand, ...]
    outputs: tuple[int | None, ...]
    mask: NDArray[np.bool_]
    operator: str
    position: int
    """Position of the operator in the plan's list."""

    @cached_property
    def whole(self) -> Whole:
        """What running at all its coordinates reads."""
        codes = np.flatnonzero(self.mask)
        reads = []
        for operand in self.inputs:
            for source in sources_of(operand):
                mask = np.zeros(len(self.mask), dtype=np.bool_)
                mask[source.at(codes).reshape(-1)] = True
                reads.append((source, mask))
        return Whole(codes, tuple(reads))


@dataclass(frozen=True)
class Whole:
    """The codes of a node, and for every source the mask of codes that they read there."""

    codes: Codes
    reads: tuple[tuple[Source, NDArray[np.bool_]], ...]


def sources_of(operand: Operand) -> tuple[Source, ...]:
    """The tensors that an operand reads; none for a literal."""
    if isinstance(operand, Source):
        return (operand,)
    return operand.members if isinstance(operand, Stacked) else ()


@dataclass
class GraphValue:
    """A tensor family. ``writers`` are node numbers."""

    name: str
    shape: tuple[int, ...]
    kind: Kind
    tensor: Tensor
    writers: list[int] = field(default_factory=list)


@dataclass
class Graph:
    """A lowered plan. ``number`` maps tensor names to values; several names may be one value (copies)."""

    coordinates: Coordinates
    values: list[GraphValue] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    number: dict[str, int] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    """Nodes in topological order; ``rank`` is its inverse."""
    rank: list[int] = field(default_factory=list)

    @property
    def codes(self) -> int:
        """Number of coordinate codes."""
        return self.coordinates.ranks * self.coordinates.microbatches

    def place(self, code: int) -> tuple[int, int]:
        """(rank, micro-batch) of a coordinate code."""
        return divmod(int(code), self.coordinates.microbatches)


def kind_of(dtype: str) -> Kind:
    """What a dtype is to the algebras: a field value, an integer or a boolean."""
    if dtype == "bool":
        return "bool"
    return "int" if dtype.startswith(("int", "uint")) else "field"
