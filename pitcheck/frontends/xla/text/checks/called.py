"""Checks that called computations take what they are given, and give what is stated."""

from __future__ import annotations

from collections.abc import Sequence

from pitcheck.frontends.xla.text.lexer import Lexer
from pitcheck.frontends.xla.text.module import Computation, Instruction
from pitcheck.frontends.xla.text.shapes import (
    ArrayShape,
    ElementType,
    Shape,
    TupleShape,
    leaves,
)

_PREDICATE = ArrayShape(ElementType.PRED, ())
_INDEX = ArrayShape(ElementType.S32, ())
_BINARY = frozenset({"all-reduce", "all-reduce-start", "reduce-scatter", "select-and-scatter"})


def check_calls(
    lexer: Lexer,
    instruction: Instruction,
    given: tuple[Shape, ...],
    called: tuple[Computation, ...],
) -> None:
    """Raise PlanError if a called computation does not take what it is given."""
    opcode, result = instruction.opcode, instruction.shape
    if opcode == "while":
        condition, body = called
        _takes(lexer, instruction, condition, given, _PREDICATE)
        _takes(lexer, instruction, body, given, result)
    elif opcode in ("call", "fusion"):
        _takes(lexer, instruction, called[0], given, result)
    elif opcode == "async-start":
        _check_start(lexer, instruction, called[0], given)
    elif opcode == "conditional":
        _check_branches(lexer, instruction, given, called)
    else:
        expected = _parameters(opcode, len(given))
        for computation in called if expected else ():
            if len(computation.parameters) != expected:
                raise lexer.damaged(
                    f"{opcode} of {len(given)} operands calls a computation of "
                    f"{len(computation.parameters)} parameters; it must have {expected}"
                )
            if opcode != "map":
                _check_region(lexer, instruction, computation, given)


def _parameters(opcode: str, operands: int) -> int:
    """Return how many parameters a computation of an operator has; 0 if any number will do."""
    if opcode in _BINARY:
        return 2
    return {
        "map": operands,
        "reduce": operands,
        "reduce-window": operands,
        "scatter": operands - 1,
        "sort": 2 * operands,
    }.get(opcode, 0)


def _check_region(
    lexer: Lexer, instruction: Instruction, computation: Computation, given: tuple[Shape, ...]
) -> None:
    """Raise PlanError unless a computation is of single elements of the operands.

    XLA lets floating-point types differ.
    """
    opcode, (parameters, result) = instruction.opcode, computation.signature
    arrays = [shape for shape in given if isinstance(shape, ArrayShape)]
    expected = [_kind(array.element) for array in _elements(opcode, arrays)]
    decides = opcode == "sort" or computation.name == instruction.attributes.get("select")
    made = ["pred"] if decides else expected[: _results(opcode, len(arrays))]
    if not _are(parameters, expected):
        raise lexer.damaged(
            f"{opcode} of {', '.join(map(str, arrays[:4]))} calls {computation.name[:60]!r}, which "
            f"is of {', '.join(map(str, parameters[:4]))}"
        )
    if not _are(tuple(leaves(result)), made):
        raise lexer.damaged(
            f"{opcode} calls {computation.name[:60]!r}, which gives {result}, and not single "
            f"elements of {', '.join(made[:4])}"
        )


def _are(shapes: Sequence[Shape], kinds: Sequence[str]) -> bool:
    """Return True if shapes are those of single elements of some kinds."""
    return len(shapes) == len(kinds) and all(
        isinstance(shape, ArrayShape) and not shape.dimensions and _kind(shape.element) == kind
        for shape, kind in zip(shapes, kinds, strict=True)
    )


def _kind(element: ElementType) -> str:
    """Return an element type, or "a number" for any that is floating-point."""
    exact = element.is_integer or element.is_complex or element is ElementType.PRED
    return element.value if exact else "a number"


def _elements(opcode: str, arrays: Sequence[ArrayShape]) -> Sequence[ArrayShape]:
    """Return for each parameter of a computation the array whose elements it is given."""
    if opcode in _BINARY:
        return [arrays[0]] * 2
    count = _results(opcode, len(arrays))
    if opcode == "scatter":
        return [*arrays[:count], *arrays[count + 1 :]]
    if opcode == "sort":
        return [array for array in arrays for _ in range(2)]
    return [*arrays[:count], *arrays[:count]]


def _results(opcode: str, operands: int) -> int:
    """Return how many elements a computation gives."""
    return 1 if opcode in _BINARY else operands // 2


def _check_start(
    lexer: Lexer, instruction: Instruction, computation: Computation, given: tuple[Shape, ...]
) -> None:
    """Raise PlanError unless a computation that starts takes the operands, and gives its result."""
    shape = instruction.shape
    elements = shape.elements if isinstance(shape, TupleShape) else ()
    if len(elements) < 2 or elements[0] != TupleShape(given):
        raise lexer.damaged(f"async-start is said to be {shape}; its operands come first")
    _takes(lexer, instruction, computation, given, elements[1])


def _takes(
    lexer: Lexer,
    instruction: Instruction,
    computation: Computation,
    given: tuple[Shape, ...],
    result: Shape,
) -> None:
    """Raise PlanError unless a computation is of these shapes."""
    if computation.signature != (given, result):
        raise lexer.damaged(
            f"{instruction.opcode} calls {computation.name[:60]!r}, whose parameters and result "
            "are not of the shapes of its operands and result"
        )


def _check_branches(
    lexer: Lexer,
    instruction: Instruction,
    given: tuple[Shape, ...],
    called: tuple[Computation, ...],
) -> None:
    """Raise PlanError unless a conditional has an operand for each branch, and a choice of one."""
    two = {"true_computation", "false_computation"} <= instruction.attributes.keys()
    listed = "branch_computations" in instruction.attributes
    if two == listed or (two and len(called) != 2):
        raise lexer.damaged(
            "a conditional has true_computation and false_computation, or branch_computations"
        )
    if given[0] != (_PREDICATE if two else _INDEX):
        raise lexer.damaged(f"a conditional chooses by {given[0]}; pred[] or s32[] is expected")
    if len(called) != len(given) - 1:
        raise lexer.damaged(f"a conditional has {len(called)} branches for {len(given)} operands")
    for branch, shape in zip(called, given[1:], strict=True):
        _takes(lexer, instruction, branch, (shape,), instruction.shape)
