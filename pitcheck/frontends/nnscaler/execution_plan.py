"""The execution plan of nnScaler as plain data.

It has for each device the calls that it runs, in order, and the contents of every call. The names
of fields are nnScaler's (``nnscaler/ir``, ``nnscaler/execplan``). A call is a cell whose tensors
are replaced by those of one micro-batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from pitcheck.frontends.nnscaler.tensors import SubTensor
from pitcheck.plan.model import Number

CallKind = Literal["data", "forward", "backward", "adapter", "reducer"]


class Argument(msgspec.Struct, frozen=True, gc=False):
    """A tensor that an operator reads.

    ``attribute`` is set if it is a parameter or buffer. ``gradient`` is the id of its gradient.
    """

    id: int
    full: int
    attribute: SubTensor | None
    gradient: int | None


class Result(msgspec.Struct, frozen=True, gc=False):
    """A tensor that an operator writes, with the ids of its gradient and of the full gradient."""

    tensor: SubTensor
    gradient: int | None
    gradient_full: int | None


class Compute(msgspec.Struct, frozen=True, gc=False):
    """A forward operator, whose operands are arguments and numbers."""

    id: int
    kind: str
    operands: tuple[Argument | Number, ...]
    attributes: Mapping[str, Any]
    results: tuple[Result, ...]
    source: str
    module: str


class Derive(msgspec.Struct, frozen=True, gc=False):
    """A backward operator, the derivative of operator ``mirror``.

    ``given`` are ids of gradients, ``results`` are gradients.
    """

    mirror: int
    given: tuple[int, ...]
    results: tuple[SubTensor, ...]


class Primitive(msgspec.Struct, frozen=True, gc=False):
    """One communication or local step of an adapter.

    ``function``, from its signature, is what runs (``nn.allreduce_identity``). ``name`` is its
    class.
    """

    name: str
    function: str
    inputs: tuple[int, ...]
    outputs: tuple[SubTensor, ...]
    keywords: Mapping[str, Any]


class Adapter(msgspec.Struct, frozen=True, gc=False):
    """A chain of primitives.

    ``backward`` is the adapter that runs as a whole in the backward pass, if the planner has made
    one function of the two (``custom``). Otherwise every primitive has a backward half, or stops
    the gradient. ``mirror`` is the id of the adapter of the other pass.
    """

    id: int
    inputs: tuple[int, ...]
    outputs: tuple[SubTensor, ...]
    primitives: tuple[Primitive, ...]
    mirror: int | None = None
    backward: Adapter | None = None


class Measure(msgspec.Struct, frozen=True, gc=False):
    """A tensor for whose shape the model's code asks. ``shape`` is the answer in the file."""

    id: int
    shape: tuple[int, ...]


Node = Compute | Derive | Adapter | Measure


class Cell(msgspec.Struct, frozen=True, gc=False):
    """The content of a call.

    A call replaces ``inputs`` and ``outputs`` by its own ids, position by position; None is no
    tensor. ``tensors`` are the outputs of a data loader or the weights of a reducer, and
    ``devices`` those of a reducer.
    """

    id: int
    kind: CallKind
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    nodes: tuple[Node, ...] = ()
    tensors: tuple[SubTensor, ...] = ()
    mirror: int | None = None
    devices: tuple[int, ...] = ()


class Call(msgspec.Struct, frozen=True, gc=False):
    """A cell as one device runs it once.

    ``tracked`` says that autograd watches. A backward segment has two further fields: ``given`` are
    the gradients that it gets, and ``of`` are the tensors that the forward call takes and returns,
    by the ids of their gradients.
    """

    id: int
    cell: Cell
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    place: str
    tracked: bool = False
    given: tuple[SubTensor, ...] = ()
    of: Mapping[int, int] = MappingProxyType({})


@dataclass
class ExecutionPlan:
    """The calls of every device of one replica.

    ``ranks`` is the number of ranks of all replicas. ``returned`` are the tensors that a step
    returns.
    """

    ranks: int
    programs: dict[int, list[Call]] = field(default_factory=dict)
    returned: tuple[SubTensor, ...] = ()

    @property
    def devices(self) -> int:
        """Return the number of devices of one replica."""
        return len(self.programs)

    @property
    def cells(self) -> list[Cell]:
        """Return the different cells of all calls, in the order of their first calls."""
        cells = [call.cell for calls in self.programs.values() for call in calls]
        return list({id(cell): cell for cell in cells}.values())
