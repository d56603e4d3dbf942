"""The graph that a plan is lowered to.

A *value* is a tensor family: one tensor per coordinate code ``rank * microbatches + microbatch``
(micro-batch 0 for families that are not microbatched). A *node* runs one operator at a set of
coordinates, and every operand says from which coordinates it is read. What is stored over
coordinates is a grid: it has no extent along axes that do not matter.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pitcheck.algebra.interface import Kind
from pitcheck.base.numbers import Literal
from pitcheck.graph.grids import Codes, Grid, Home, Lattice, Mask, focus, near
from pitcheck.graph.reads import Read
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import Tensor


@dataclass(frozen=True)
class Source:
    """The place from which a node reads an operand; ``read`` is None for the node's coordinate."""

    value: int
    read: Read | None = None

    @property
    def members(self) -> int:
        """Return how many tensors are stacked, 0 if one is read as it is."""
        return 0 if self.read is None else self.read.members

    @property
    def key(self) -> Hashable:
        """Return a key that is equal for sources that read the same coordinates."""
        return None if self.read is None else self.read.key

    @property
    def table(self) -> Codes | None:
        """Return the codes read at every code of the node, shape (codes,) or (codes, members).

        Return None if every coordinate reads itself.
        """
        return None if self.read is None else self.read.table

    def at(self, codes: Codes) -> Codes:
        """Return the codes read by a node that runs at ``codes``, shape (n,) or (n, members)."""
        return codes if self.read is None else self.read.at(codes)

    def gather(self, grid: Grid) -> Grid:
        """Return what is read of a grid, with one more dimension for the members of a stack."""
        return grid if self.read is None else self.read.gather(grid)

    def reach(self, mask: Mask) -> Mask:
        """Return the coordinates read by a node that runs at ``mask``."""
        return mask if self.read is None else self.read.reach(mask)

    def reach_of_all(self, mask: Mask) -> Mask:
        """Return the same for the mask of a whole node."""
        return mask if self.read is None else self.read.reach_of_all(mask)


@dataclass(frozen=True)
class Stacked:
    """A stack whose members come from different values.

    They are the members of a collective that run different operators.
    """

    members: tuple[Source, ...]


Operand = Source | Stacked | Literal


@dataclass(frozen=True)
class Node:
    """One operator at all coordinates of ``where``; ``outputs`` are values, None if not wanted."""

    kind: str
    attributes: Mapping[str, Any]
    inputs: tuple[Operand, ...]
    outputs: tuple[int | None, ...]
    where: Mask
    lattice: Lattice
    operator: str
    position: int
    """The position of the operator in the plan's list."""
    unread: frozenset[int] = frozenset()
    """The places of operands whose shape alone matters."""
    source: str = ""
    """The place of the operator in the user's program: a line, or the path of a module."""

    @cached_property
    def mask(self) -> Mask:
        """Return True where the node runs, by coordinate code, shape (codes,)."""
        return self.lattice.flat(self.where, False)

    @cached_property
    def home(self) -> Home:
        """Return the dimensions along which it runs at one coordinate only."""
        return focus(self.where)

    @cached_property
    def near(self) -> Mask:
        """Return the coordinates at which the node runs, near its home."""
        return near(self.where, self.home)

    @cached_property
    def reads(self) -> tuple[tuple[Source, Mask], ...]:
        """Return every source with the coordinates that running everywhere reads of it."""
        return tuple(
            [
                (source, source.reach_of_all(self.where))
                for operand in self.inputs
                for source in sources_of(operand)
            ]
        )


def sources_of(operand: Operand) -> tuple[Source, ...]:
    """Return the tensors that an operand reads; none for a literal."""
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
    lattice: Lattice
    writers: list[int] = field(default_factory=list)
    home: Home = ()
    """The home of its only writer. Masks and rows of a value are kept near its home."""


@dataclass
class Graph:
    """A lowered plan.

    ``number`` maps tensor names to values; several names may be one value (copies).
    ``rounded_literals``: True if literals are rounded to the dtype of what they are computed with.
    """

    coordinates: Coordinates
    values: list[GraphValue] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    number: dict[str, int] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    """The nodes in topological order; ``rank`` is its inverse."""
    rank: list[int] = field(default_factory=list)

    placements: dict[Hashable, Any] = field(default_factory=dict)
    """The meanings of lineages that were resolved, by their form."""
    rounded_literals: bool = False

    def with_values(self, values: list[GraphValue]) -> Graph:
        """Return the same graph with more values behind those that it has."""
        return replace(self, values=values)

    @property
    def anywhere(self) -> tuple[int, ...]:
        """Return the shape of a grid that depends on no axis."""
        return (1,) * len(self.coordinates.shape)

    @property
    def codes(self) -> int:
        """Return the number of coordinate codes."""
        return self.coordinates.ranks * self.coordinates.microbatches

    def depth(self, value: int) -> int:
        """Return the place of a value's last writer in the topological order, or -1."""
        return max((self.rank[writer] for writer in self.values[value].writers), default=-1)

    def last_operator(self, value: int) -> tuple[str, str]:
        """Return the last operator that writes a value, in words, and its line; "" for none."""
        writers = self.values[value].writers
        if not writers:
            return "", ""
        node = self.nodes[writers[-1]]
        return f"{node.operator} ({node.kind})", node.source

    def place(self, code: int) -> tuple[int, int]:
        """Return (rank, micro-batch) of a coordinate code."""
        return divmod(int(code), self.coordinates.microbatches)


def kind_of(dtype: str) -> Kind:
    """Return the kind of a dtype in the algebras: a field value, an integer or a boolean."""
    if dtype == "bool":
        return "bool"
    return "int" if dtype.startswith(("int", "uint")) else "field"
