"""Operators in two halves, of which the first starts and the second waits.

A plan has no time: the result is computed where it starts. Nothing but the second half may read it,
and nothing may read the other numbers that the first half gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.arrays import Array, Tuple, Value
from pitcheck.frontends.xla.lowering.building import Building, unsupported
from pitcheck.frontends.xla.lowering.collectives import collective_of
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape, TupleShape


@dataclass(frozen=True)
class Started(Tuple):
    """The tuple that the first half of an operator gives.

    Attributes:
        opcode: the opcode of the second half.
        result: the result of the operator.
        calls: the computations that it calls.
    """

    opcode: str
    result: Value
    calls: tuple[str, ...]


class StartedArray(Array):
    """The array that an all-reduce gives, which is there once it is done."""

    def __init__(self, b: Building, result: Array) -> None:
        super().__init__(result.shape, _unread(b))
        self.result = result


def started(
    b: Building, instruction: Instruction, operands: Sequence[Array]
) -> Started | Array | None:
    """Return what the first half of a collective or a copy gives; None for other opcodes.

    Raises:
        UnsupportedError: for what has no meaning in a plan.
        PlanError: for groups that do not fit the program.
    """
    stem, _, half = instruction.opcode.rpartition("-")
    if half != "start" or stem not in {*_COLLECTIVES, "copy"}:
        return None
    if stem == "copy":
        x = operands[0]
        # The copy stands before the array that is copied.
        return pending(b, instruction, (_underway(b, x), x), x)
    results = collective_of(b, stem, instruction, operands)
    found: Value = results[0] if len(results) == 1 else Tuple(tuple(results))
    if stem == "all-reduce":
        if len(results) > 1:
            raise unsupported(b, "all-reduce-start of several arrays")
        return StartedArray(b, results[0])
    given: Value = operands[0] if len(operands) == 1 else Tuple(tuple(operands))
    return pending(b, instruction, (given, found), found)


_COLLECTIVES = frozenset({"all-reduce", "all-gather", "collective-permute"})


def pending(
    b: Building, instruction: Instruction, elements: tuple[Value, ...], result: Value
) -> Started:
    """Return the operands and the result with others behind them, as the shape has them.

    Only the operands may be read. Raises PlanError for a shape of fewer elements.
    """
    shape = instruction.shape
    if not isinstance(shape, TupleShape) or len(shape.elements) < len(elements):
        raise PlanError(f"{instruction.opcode} is stated to be {shape}", b.place)
    given, begun = elements
    others = [_meaningless(b, each) for each in shape.elements[len(elements) :]]
    done = instruction.opcode.removesuffix("start") + "done"
    return Started((given, _underway(b, begun), *others), done, result, instruction.calls)


def _underway(b: Building, value: Value) -> Value:
    """Return arrays that no operator may read yet, of the shapes of a result."""
    if isinstance(value, Tuple):
        return Tuple(tuple(_underway(b, element) for element in value.elements))
    shape = value.shape if isinstance(value, Array) else value.arrays[0].shape
    return Array(shape, _unread(b))


def _unread(b: Building) -> Callable[[], str]:
    """Return what raises PlanError where the tensor of an array is asked for."""
    place = b.place

    def read() -> str:
        raise PlanError(
            "an operator that was started is read before it is done; read what its second half "
            "gives",
            place,
        )

    return read


def _meaningless(b: Building, shape: object) -> Array:
    """Return a number that no operator may read."""
    if not isinstance(shape, ArrayShape) or shape.dimensions or not shape.element.is_integer:
        raise unsupported(b, f"an operator that starts with {shape} beside its result")
    return Array(shape, _unread(b))


def done(b: Building, instruction: Instruction, given: Value) -> Value:
    """Return the result of an operator that was started.

    Raises PlanError if the operand is no start of this operator.
    """
    opcode = instruction.opcode
    if opcode == "all-reduce-done" and isinstance(given, StartedArray):
        return given.result
    calls = instruction.calls
    if not isinstance(given, Started) or given.opcode != opcode or calls not in {(), given.calls}:
        raise PlanError(f"{opcode} of what is no start of it", b.place)
    return given.result


DONE = (
    "all-gather-done",
    "all-reduce-done",
    "async-done",
    "collective-permute-done",
    "copy-done",
)
"""The second halves of operators."""
