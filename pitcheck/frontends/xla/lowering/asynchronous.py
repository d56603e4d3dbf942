"""Operators in two halves, of which the first starts and the second waits.

A plan has no time: the result is computed where it starts. What the first half gives beside the
operands and the result means nothing to a program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.arrays import Array, Tuple, Value
from pitcheck.frontends.xla.lowering.building import Building, unsupported
from pitcheck.frontends.xla.lowering.collectives import collective_of
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape, TupleShape


@dataclass(frozen=True)
class Started(Tuple):
    """What the first half of an operator gives.

    Attributes:
        opcode: the opcode of the second half.
        result: the result of the operator.
        calls: the computations that it calls.
    """

    opcode: str
    result: Value
    calls: tuple[str, ...]


def started(
    b: Building, instruction: Instruction, operands: Sequence[Array]
) -> Started | Array | None:
    """Return what the first half of a collective or a copy gives; None for other opcodes.

    The first half of an all-reduce gives the result.

    Raises:
        UnsupportedError: for what has no meaning in a plan.
        PlanError: for groups that do not fit the program.
    """
    stem, _, half = instruction.opcode.rpartition("-")
    if half != "start" or stem not in {*_COLLECTIVES, "copy"}:
        return None
    if stem == "copy":
        x = operands[0]
        return pending(b, instruction, (x, x), x)
    results = collective_of(b, stem, instruction, operands)
    found: Value = results[0] if len(results) == 1 else Tuple(tuple(results))
    if stem == "all-reduce":
        if len(results) > 1:
            raise unsupported(b, "all-reduce-start of several arrays")
        return results[0]
    given: Value = operands[0] if len(operands) == 1 else Tuple(tuple(operands))
    return pending(b, instruction, (given, found), found)


_COLLECTIVES = frozenset({"all-reduce", "all-gather", "collective-permute"})


def pending(
    b: Building, instruction: Instruction, elements: tuple[Value, ...], result: Value
) -> Started:
    """Return some elements with others behind them that mean nothing, as the shape has them.

    Raises PlanError for a shape of fewer elements.
    """
    shape = instruction.shape
    if not isinstance(shape, TupleShape) or len(shape.elements) < len(elements):
        raise PlanError(f"{instruction.opcode} is stated to be {shape}", b.place)
    others = [_meaningless(b, each) for each in shape.elements[len(elements) :]]
    done = instruction.opcode.removesuffix("start") + "done"
    return Started((*elements, *others), done, result, instruction.calls)


def _meaningless(b: Building, shape: object) -> Array:
    """Return a number that no operator may read."""
    if not isinstance(shape, ArrayShape) or shape.dimensions or not shape.element.is_integer:
        raise unsupported(b, f"an operator that starts with {shape} beside its result")
    place = b.place

    def read() -> str:
        raise PlanError("a number is read that the start of an operator gives", place)

    return Array(shape, read)


def done(b: Building, instruction: Instruction, given: Value) -> Value:
    """Return the result of an operator that was started.

    Raises PlanError if the operand is no start of this operator.
    """
    opcode = instruction.opcode
    if opcode == "all-reduce-done" and isinstance(given, Array):
        return given
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
