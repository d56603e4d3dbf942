"""An HLO module as it is read: computations of instructions, with nothing interpreted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

from pitcheck.frontends.xla.text.attributes import CALLS, Value
from pitcheck.frontends.xla.text.literals import Literal
from pitcheck.frontends.xla.text.shapes import Shape
from pitcheck.frontends.xla.text.sharding import AnySharding
from pitcheck.frontends.xla.text.sources import Metadata, Place, Stacks

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        name: its name in its computation, without ``%``.
        opcode: its operator, such as ``get-tuple-element``.
        shape: the shape of its result.
        operands: the names of its operands, which stand before it.
        attributes: its attributes by name, without sharding and metadata.
        sharding: how its result is distributed; of a tuple, one for each of its arrays.
        metadata: where it comes from.
        line: its line in the text.
        parameter: the number of a parameter, None for other operators.
        literal: the elements of a constant, None for other operators.
    """

    name: str
    opcode: str
    shape: Shape
    operands: tuple[str, ...]
    attributes: Mapping[str, Value]
    sharding: AnySharding | None
    metadata: Metadata
    line: int
    parameter: int | None = None
    literal: Literal | None = None

    @property
    def calls(self) -> tuple[str, ...]:
        """Return the names of the computations that it calls, in the order of ``CALLS``."""
        names: list[str] = []
        for name in CALLS:
            value = self.attributes.get(name, ())
            names.extend((value,) if isinstance(value, str) else cast("tuple[str, ...]", value))
        return tuple(names)

    def integers(self, name: str) -> tuple[int, ...]:
        """Return an attribute that lists integers; none if it is absent."""
        return cast("tuple[int, ...]", self.attributes.get(name, ()))

    def get(self, name: str, default: T) -> T:
        """Return an attribute, of the type of ``default``, which stands for one that is absent."""
        return cast("T", self.attributes.get(name, default))


@dataclass(frozen=True, slots=True)
class Computation:
    """A computation: instructions in an order in which each stands behind its operands.

    Attributes:
        name: its name, without ``%``.
        parameters: the names of its parameters, by number.
        instructions: its instructions by name, in the order of the text.
        root: the name of the instruction whose result is that of the computation.
        line: the line of its head.
    """

    name: str
    parameters: tuple[str, ...]
    instructions: Mapping[str, Instruction]
    root: str
    line: int

    @property
    def result(self) -> Instruction:
        """Return the root."""
        return self.instructions[self.root]

    @property
    def signature(self) -> tuple[tuple[Shape, ...], Shape]:
        """Return the shapes of the parameters, and that of the result."""
        given = tuple(self.instructions[name].shape for name in self.parameters)
        return given, self.result.shape


@dataclass(frozen=True, slots=True)
class Header:
    """The head of a module.

    Attributes:
        replicas: the number of replicas.
        partitions: the number of partitions of each replica. A program before partitioning has
            it, too.
        layout: the shapes of the entry's parameters, and that of its result; None if absent.
        free_parameters: for each parameter, or one for all, True if the partitioner may
            choose the sharding itself.
        free_outputs: for each output, or one for all, True if the partitioner may choose the
            sharding itself. The program before partitioning does not say what it chose.
        is_scheduled: True if the order of instructions is that in which they run.
        attributes: aliases and donated buffers, as text by name.
        frontend_attributes: what the writer of the program added, by name.
    """

    replicas: int
    partitions: int
    layout: tuple[tuple[Shape, ...], Shape] | None
    free_parameters: tuple[bool, ...]
    free_outputs: tuple[bool, ...]
    is_scheduled: bool
    attributes: Mapping[str, str]
    frontend_attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Module:
    """A module.

    Attributes:
        name: its name.
        file: the name of its file, for messages.
        header: what its head says.
        computations: its computations by name; each stands behind those that it calls.
        entry: the name of the computation that is the program.
        stacks: the stack frames that instructions come from.
    """

    name: str
    file: str
    header: Header
    computations: Mapping[str, Computation]
    entry: str
    stacks: Stacks

    def source(self, instruction: Instruction) -> Place | None:
        """Return the line of the user's program that an instruction comes from, if stated."""
        return self.stacks.place(instruction.metadata)
