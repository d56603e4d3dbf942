"""Checks that what a text states twice agrees: shapes, types, shardings."""

from __future__ import annotations

from collections.abc import Mapping

from pitcheck.frontends.xla.text.checks.called import check_calls
from pitcheck.frontends.xla.text.checks.dimensions import check_dimensions
from pitcheck.frontends.xla.text.lexer import Lexer
from pitcheck.frontends.xla.text.module import Computation, Header, Instruction
from pitcheck.frontends.xla.text.opcodes import Opcode
from pitcheck.frontends.xla.text.shapes import (
    ArrayShape,
    ElementType,
    Shape,
    TupleShape,
    leaves,
)
from pitcheck.frontends.xla.text.sharding import Form, Sharding

Named = Mapping[str, Instruction]
Computations = Mapping[str, Computation]

_SAME_SHAPE = frozenset({"copy", "opt-barrier", "async-update", "while"})


def check_instruction(
    lexer: Lexer,
    instruction: Instruction,
    form: Opcode,
    above: Named,
    computations: Computations,
    partitions: int,
) -> None:
    """Raise PlanError if an instruction contradicts its operands or what it calls."""
    given = tuple(above[name].shape for name in instruction.operands)
    if instruction.opcode in _SAME_SHAPE:
        _agree(lexer, instruction, given[0], "its operand")
    elif form.elementwise:
        _check_elementwise(lexer, instruction, given)
    elif instruction.opcode == "tuple":
        _check_tuple(lexer, instruction, given)
    elif instruction.opcode == "get-tuple-element":
        _check_element(lexer, instruction, given[0])
    check_dimensions(lexer, instruction, given)
    if instruction.opcode == "compare":
        _check_comparison(lexer, instruction, given[0])
    called = tuple(computations[name] for name in instruction.calls)
    if called:
        check_calls(lexer, instruction, given, called)
    if instruction.sharding is not None:
        _check_sharding(lexer, instruction, partitions)


def check_entry(lexer: Lexer, header: Header, entry: Computation) -> None:
    """Raise PlanError if the head of a module contradicts its program."""
    given, result = entry.signature
    if header.layout is not None and header.layout != (given, result):
        raise lexer.damaged(
            "entry_computation_layout and the program differ in the shapes of parameters or of "
            "the result"
        )
    outputs = len(result.elements) if isinstance(result, TupleShape) else 1
    for flags, count, meaning in (
        (header.free_parameters, len(given), "parameters"),
        (header.free_outputs, outputs, "output"),
    ):
        if len(flags) not in (0, 1, count):
            raise lexer.damaged(
                f"allow_spmd_sharding_propagation_to_{meaning} has {len(flags)} values for {count}"
            )


def _agree(lexer: Lexer, instruction: Instruction, shape: Shape, meaning: str) -> None:
    """Raise PlanError unless the result has this shape."""
    if instruction.shape != shape:
        raise lexer.damaged(
            f"{instruction.opcode} is said to be {instruction.shape}, but {meaning} is {shape}"
        )


def _check_elementwise(lexer: Lexer, instruction: Instruction, given: tuple[Shape, ...]) -> None:
    """Raise PlanError unless all operands are arrays of the result's dimensions."""
    result = instruction.shape
    for shape in given:
        if (
            isinstance(result, TupleShape)
            or isinstance(shape, TupleShape)
            or shape.dimensions != result.dimensions
        ):
            raise lexer.damaged(
                f"{instruction.opcode} is said to be {result}, but an operand is {shape}"
            )


def _check_comparison(lexer: Lexer, instruction: Instruction, shape: Shape) -> None:
    """Raise PlanError for a comparison that is of another type than its operands."""
    stated = instruction.get("type", "")
    if not isinstance(shape, ArrayShape) or stated in ("", "TOTALORDER"):
        return
    if stated != _compared_as(shape.element):
        raise lexer.damaged(
            f"compare has type={stated}, but {shape.element} is compared as "
            f"{_compared_as(shape.element)}"
        )


def _compared_as(element: ElementType) -> str:
    if element.is_integer:
        return "SIGNED" if element.value.startswith("s") else "UNSIGNED"
    return "UNSIGNED" if element is ElementType.PRED else "FLOAT"


def _check_tuple(lexer: Lexer, instruction: Instruction, given: tuple[Shape, ...]) -> None:
    """Raise PlanError unless the result is the tuple of the operands."""
    if not isinstance(instruction.shape, TupleShape) or instruction.shape.elements != given:
        raise lexer.damaged(
            f"tuple is said to be {instruction.shape}, but its operands are {TupleShape(given)}"
        )


def _check_element(lexer: Lexer, instruction: Instruction, given: Shape) -> None:
    """Raise PlanError unless the result is the element of the operand that ``index`` names."""
    index = instruction.get("index", 0)
    if not isinstance(given, TupleShape) or index >= len(given.elements):
        raise lexer.damaged(f"get-tuple-element takes element {index} of {given}")
    _agree(lexer, instruction, given.elements[index], f"element {index} of its operand")


def _check_sharding(lexer: Lexer, instruction: Instruction, partitions: int) -> None:
    """Raise PlanError unless the sharding fits the shape and the number of partitions."""
    arrays = tuple(leaves(instruction.shape))
    stated = instruction.sharding or ()
    if isinstance(stated, Sharding):
        shardings = (stated,) * len(arrays)
    elif isinstance(instruction.shape, ArrayShape):
        raise lexer.damaged(f"the sharding of {instruction.shape} is that of a tuple")
    else:
        shardings = stated if arrays else ()
    if len(shardings) != len(arrays):
        raise lexer.damaged(f"{len(shardings)} shardings are of a tuple of {len(arrays)} arrays")
    for sharding, array in zip(shardings, arrays, strict=True):
        _check_one(lexer, sharding, array, partitions)


def _check_one(lexer: Lexer, sharding: Sharding, array: ArrayShape, partitions: int) -> None:
    """Raise PlanError unless a sharding fits an array and the number of partitions."""
    if sharding.cuts is not None and len(sharding.cuts) != len(array.dimensions):
        raise lexer.damaged(f"the sharding of {array} cuts {len(sharding.cuts)} dimensions")
    if partitions == 1:
        return
    if sharding.form is Form.TILED and len(sharding.devices) != partitions:
        raise lexer.damaged(
            f"a sharding has {len(sharding.devices)} devices; the module has {partitions} "
            "partitions"
        )
    if sharding.device is not None and sharding.device >= partitions:
        raise lexer.damaged(
            f"a sharding names device {sharding.device}; the module has {partitions} partitions"
        )
