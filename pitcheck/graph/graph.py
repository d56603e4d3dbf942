"""The graph a plan is lowered to: nodes over coordinates, every operand with the coordinates it is
read from.

A *value* is a tensor family: one tensor per coordinate code ``rank * microbatches + microbatch``
(micro-batch 0 for families that are not microbatched). A *node* runs one operator at a set of
coordinates. What is stored over coordinates is a grid: it has no extent along axes that do not
matter.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
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
    """Where a node reads an operand from: at its own coordinate where ``read`` is None."""

    value: int
    read: Read | None = None

    @property
    def members(self) -> int:
        """How many tensors are stacked, 0 where one is read as it is."""
        return 0 if self.read is None else self.read.members

    @property
    def key(self) -> Hashable:
        """Equal for sources that read the same coordinates."""
        return None if self.read is None else self.read.key

    @property
    def table(self) -> Codes | None:
        """The codes read at every code of the node, shape (codes,) or (codes, members); None for
        its own.
        """
        return None if self.read is None else self.read.table

    def at(self, codes: Codes) -> Codes:
        """The codes read by a node that runs at ``codes``: shape (n,) or (n, members)."""
        return codes if self.read is None else self.read.at(codes)

    def gather(self, grid: Grid) -> Grid:
        """What is read of a grid, with a last dimension more for the members of a stack."""
        return grid if self.read is None else self.read.gather(grid)

    def reach(self, mask: Mask) -> Mask:
        """The coordinates read by a node that runs at ``mask``."""
        return mask if self.read is None else self.read.reach(mask)

    def reach_of_all(self, mask: Mask) -> Mask:
        """The same for the mask of a whole node."""
        return mask if self.read is None else self.read.reach_of_all(mask)


@dataclass(frozen=True)
class Stacked:
    """A stack whose members come from different values: the members of a collective that run
    different operators.
    """

    members: tuple[Source, ...]


Operand = Source | Stacked | Literal


@dataclass(frozen=True)
class Node:
    """One operator at all coordinates of ``where``. ``outputs`` are values, None where
    not wanted.
    """

    kind: str
    attributes: Mapping[str, Any]
    inputs: tuple[Operand, ...]
    outputs: tuple[int | None, ...]
    where: Mask
    lattice: Lattice
    operator: str
    position: int
    """Position of the operator in the plan's list."""
    unread: frozenset[int] = frozenset()
    """Places of operands whose shape alone matters."""
    source: str = ""
    """Where the operator stands in the user's program: a line, or the path of a module."""

    @cached_property
    def mask(self) -> Mask:
        """Whether it runs, by coordinate code, shape (codes,)."""
        return self.lattice.flat(self.where, False)

    @cached_property
    def home(self) -> Home:
        """The dimensions along which it runs at one coordinate only."""
        return focus(self.where)

    @cached_property
    def near(self) -> Mask:
        """Where it runs near its home."""
        return near(self.where, self.home)

    @cached_property
    def reads(self) -> tuple[tuple[Source, Mask], ...]:
        """Every source with the coordinates that running everywhere reads of it."""
        return tuple(
            [
                (source, source.reach_of_all(self.where))
                for operand in self.inputs
                for source in sources_of(operand)
            ]
        )


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
    lattice: Lattice
    writers: list[int] = field(default_factory=list)
    home: Home = ()
    """The home of its only writer. Masks and rows of a value are kept near its home."""


@dataclass
class Graph:
    """A lowered plan. ``number`` maps tensor names to values; several names may be one value
    (copies).
    """

    coordinates: Coordinates
    values: list[GraphValue] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    number: dict[str, int] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    """Nodes in topological order; ``rank`` is its inverse."""
    rank: list[int] = field(default_factory=list)

    placements: dict[Hashable, Any] = field(default_factory=dict)
    """What lineages of one form mean, found once."""

    def with_values(self, values: list[GraphValue]) -> Graph:
        """The same graph with more values behind its own, for parts of it that are rewritten."""
        return Graph(
            self.coordinates,
            values,
            self.nodes,
            self.number,
            self.order,
            self.rank,
            self.placements,
        )

    @property
    def anywhere(self) -> tuple[int, ...]:
        """The shape of a grid that depends on no axis."""
        return (1,) * len(self.coordinates.shape)

    @property
    def codes(self) -> int:
        """Number of coordinate codes."""
        return self.coordinates.ranks * self.coordinates.microbatches

    def depth(self, value: int) -> int:
        """Where in the topological order the last writer of a value stands, -1 where nothing writes
        it.
        """
        return max((self.rank[writer] for writer in self.values[value].writers), default=-1)

    def place(self, code: int) -> tuple[int, int]:
        """(rank, micro-batch) of a coordinate code."""
        return divmod(int(code), self.coordinates.microbatches)


def kind_of(dtype: str) -> Kind:
    """What a dtype is to the algebras: a field value, an integer or a boolean."""
    if dtype == "bool":
        return "bool"
    return "int" if dtype.startswith(("int", "uint")) else "field"
