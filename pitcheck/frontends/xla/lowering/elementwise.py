"""Elementwise operators of HLO as operators of a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType

import numpy as np

from pitcheck.frontends.xla.lowering.arrays import NUMPY, Array, dtype_of
from pitcheck.frontends.xla.lowering.building import Building, literal, unsupported
from pitcheck.frontends.xla.lowering.known_numbers import computed
from pitcheck.frontends.xla.lowering.spans import decided, spanned
from pitcheck.frontends.xla.text.literals import Special
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType
from pitcheck.plan.model import Number

_PLAIN = MappingProxyType(
    {
        "exponential": "exp",
        "log": "log",
        "sqrt": "sqrt",
        "rsqrt": "rsqrt",
        "negate": "neg",
        "abs": "abs",
        "sign": "sign",
        "tanh": "tanh",
        "logistic": "sigmoid",
        "cosine": "cos",
        "sine": "sin",
        "erf": "erf",
        "copy": "identity",
        "add": "add",
        "subtract": "sub",
        "multiply": "mul",
        "maximum": "maximum",
        "minimum": "minimum",
    }
)
"""The operators of a plan with the meaning of an HLO operator."""
_FLOATING = frozenset(
    {"exponential", "log", "sqrt", "rsqrt", "tanh", "logistic", "cosine", "sine", "erf"}
)
_LOGICAL = MappingProxyType({"and": "logical_and", "or": "logical_or", "xor": "logical_xor"})
_COMPARE = MappingProxyType(
    {"EQ": "eq", "NE": "ne", "LT": "lt", "LE": "le", "GT": "gt", "GE": "ge"}
)
_MIRRORED = MappingProxyType(
    {"EQ": "EQ", "NE": "NE", "LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}
)
_NEUTRAL = MappingProxyType({"maximum": Special.MINUS_INFINITY, "minimum": Special.INFINITY})
"""The operand that changes nothing. JAX takes an extremum with it once more."""


def elementwise(b: Building, instruction: Instruction, operands: Sequence[Array]) -> Array | None:
    """Return the result of an elementwise operator; None if the opcode is none of these.

    Raises UnsupportedError for one that has no meaning in a plan.
    """
    opcode, shape = instruction.opcode, instruction.shape
    if not isinstance(shape, ArrayShape):
        return None
    if opcode not in _LOWER:
        return None
    direction = instruction.get("direction", "EQ")
    if b.computes(shape, *operands):
        numbers = computed(opcode, operands, shape, direction)
        if numbers is not None:
            return b.known(
                shape, numbers, lambda: _LOWER[opcode](b, instruction, shape, list(operands)).name
            )
    return _LOWER[opcode](b, instruction, shape, list(operands))


Lower = Callable[[Building, Instruction, ArrayShape, list[Array]], Array]


def _plain(b: Building, instruction: Instruction, shape: ArrayShape, given: list[Array]) -> Array:
    """Return the result of an operator that a plan has, too."""
    opcode, element = instruction.opcode, shape.element
    if element is ElementType.PRED and opcode != "copy":
        raise unsupported(b, f"{opcode} of truths")
    if element.is_integer and opcode in _FLOATING:
        raise unsupported(b, f"{opcode} of integers")
    if opcode == "copy":
        return given[0]
    neutral = _NEUTRAL.get(opcode)
    for number, a in enumerate(given):
        if neutral is not None and a.uniform is neutral:
            return given[1 - number]
    span = spanned(opcode, given, element) if element.is_integer else None
    return b.array(_PLAIN[opcode], _operands(b, given), shape, span=span)


def _operands(b: Building, given: Sequence[Array]) -> list[str | Number]:
    """Return operands, of which one at least is a tensor: literals alone have no shape."""
    found = [b.operand(a) for a in given]
    if all(isinstance(each, Number) for each in found):
        found[0] = given[0].name
    return [each for each in found if isinstance(each, str | Number)]


def _convert(b: Building, instruction: Instruction, shape: ArrayShape, given: list[Array]) -> Array:
    x = given[0]
    number = x.uniform
    if number is not None and shape.element not in NUMPY and not isinstance(number, float):
        exact = Fraction(number) if isinstance(number, bool | int) else number
        if x.shape.element in NUMPY or not isinstance(exact, Fraction):
            return b.filled(shape, exact)
    if x.shape.element.is_integer and shape.element.is_integer:
        span = spanned("convert", given, shape.element)
        if span is None:
            raise unsupported(b, "a conversion between integers that may wrap")
        return b.array("cast", (x.name,), shape, {"dtype": _dtype(shape)}, span=span)
    span = (0, 2) if x.shape.element is ElementType.PRED and shape.element.is_integer else None
    return b.array("cast", (x.name,), shape, {"dtype": _dtype(shape)}, span=span)


def _dtype(shape: ArrayShape) -> str:
    return str(dtype_of(shape.element))


def _divide(b: Building, instruction: Instruction, shape: ArrayShape, given: list[Array]) -> Array:
    if not shape.element.is_integer:
        return b.array("div", _operands(b, given), shape)
    first, second = (a.span for a in given)
    if first is None or second is None or first[0] < 0 or second[0] <= 0:
        raise unsupported(b, "a quotient of integers that may be negative, or 0")
    span = spanned("divide", given, shape.element)
    return b.array("floor_divide", _operands(b, given), shape, span=span)


def _remainder(
    b: Building, instruction: Instruction, shape: ArrayShape, given: list[Array]
) -> Array:
    first, second = (a.span for a in given)
    if not shape.element.is_integer:
        raise unsupported(b, "a remainder of floating-point numbers")
    if first is None or second is None or first[0] < 0 or second[0] <= 0:
        raise unsupported(b, "a remainder of integers that may be negative, or 0")
    span = spanned("remainder", given, shape.element)
    return b.array("remainder", _operands(b, given), shape, span=span)


def _logic(b: Building, instruction: Instruction, shape: ArrayShape, given: list[Array]) -> Array:
    """Return a conjunction or disjunction, without the operand that decides nothing."""
    if shape.element is not ElementType.PRED:
        raise unsupported(b, f"{instruction.opcode} of the bits of integers")
    opcode = instruction.opcode
    for number, a in enumerate(given):
        if opcode != "xor" and isinstance(a.uniform, bool):
            # True decides "or", and is nothing to "and"; false the other way round.
            return a if a.uniform == (opcode == "or") else given[1 - number]
    return b.array(_LOGICAL[opcode], [a.name for a in given], shape)


def _not(b: Building, instruction: Instruction, shape: ArrayShape, given: list[Array]) -> Array:
    if shape.element is not ElementType.PRED:
        raise unsupported(b, "not of the bits of integers")
    return b.array("logical_not", (given[0].name,), shape)


def _compare(b: Building, instruction: Instruction, shape: ArrayShape, given: list[Array]) -> Array:
    direction = instruction.get("direction", "EQ")
    if instruction.get("type", "") == "TOTALORDER":
        raise unsupported(b, "a comparison in total order, which tells 0 from -0")
    first, second = given
    if first.is_integer:
        answer = decided(direction, first.span, second.span)
        if answer is not None:
            numbers = np.full((1, *shape.dimensions), answer)
            return b.known(shape, numbers)
    return b.array(*_compared(b, direction, first, second), shape)


def _compared(
    b: Building, direction: str, first: Array, second: Array
) -> tuple[str, list[str | Number]]:
    """Return the kind and the operands of a comparison.

    Integers are compared with < and >= where a literal allows it: then the literal is the place
    between two shards, not the one before it.
    """
    if first.per_device is not None and second.per_device is None:
        first, second, direction = second, first, _MIRRORED[direction]
    if direction in {"LE", "GT"} and first.is_integer and second.per_device is not None:
        moved = tuple(number + 1 for number in second.per_device)
        shape = ArrayShape(ElementType.S64, second.sizes)
        numbers = np.array(moved).reshape(-1, *(1,) * second.rank)
        whole = np.broadcast_to(numbers, (len(moved), *second.sizes))
        second = b.known(shape, np.ascontiguousarray(whole))
        direction = "LT" if direction == "LE" else "GE"
    return _COMPARE[direction], _operands(b, (first, second))


def _select(b: Building, instruction: Instruction, shape: ArrayShape, given: list[Array]) -> Array:
    condition, first, second = given
    if isinstance(condition.uniform, bool):
        return first if condition.uniform else second
    if first is second:
        return first
    if shape.element is ElementType.PRED:
        return _chosen_truth(b, shape, condition, first, second)
    span = spanned("select", given, shape.element) if shape.element.is_integer else None
    return b.array("where", (condition.name, *_operands(b, (first, second))), shape, span=span)


def _chosen_truth(
    b: Building, shape: ArrayShape, condition: Array, first: Array, second: Array
) -> Array:
    """Return the first truth where the condition holds, else the second."""
    if first.uniform is True and second.uniform is False and condition.sizes == shape.dimensions:
        return condition
    other = b.emit("logical_not", (condition.name,), condition.shape)
    yes = b.emit("logical_and", (condition.name, first.name), shape)
    no = b.emit("logical_and", (other, second.name), shape)
    return b.array("logical_or", (yes, no), shape)


def _clamp(b: Building, instruction: Instruction, shape: ArrayShape, given: list[Array]) -> Array:
    low, x, high = given
    if x.is_integer:
        bounds = low.span, high.span
        if bounds[0] and bounds[1] and x.within(bounds[0][1] - 1, bounds[1][0] + 1):
            return x
        if low.known is None or high.known is None:
            raise unsupported(b, "clamp of integers to limits that are not known")
    span = spanned("clamp", given, shape.element) if x.is_integer else None
    if _is_number(low.uniform) and _is_number(high.uniform):
        limits = {"min": literal(_number(low)), "max": literal(_number(high))}
        return b.array("clamp", (x.name,), shape, limits, span=span)
    least = b.emit("maximum", _operands(b, (x, low)), shape)
    return b.array("minimum", (least, b.operand(high)), shape, span=span)


def _is_number(number: object) -> bool:
    return number is not None and not isinstance(number, bool)


def _number(a: Array) -> int:
    return a.uniform  # type: ignore[return-value]


def _log_plus_one(b: Building, _: Instruction, shape: ArrayShape, given: list[Array]) -> Array:
    more = b.emit("add", (given[0].name, Number(1)), shape)
    return b.array("log", (more,), shape)


def _exp_minus_one(b: Building, _: Instruction, shape: ArrayShape, given: list[Array]) -> Array:
    power = b.emit("exp", (given[0].name,), shape)
    return b.array("sub", (power, Number(1)), shape)


def _power(b: Building, _: Instruction, shape: ArrayShape, given: list[Array]) -> Array:
    base, exponent = given
    if shape.element.is_integer:
        raise unsupported(b, "a power of integers")
    number = exponent.uniform
    if isinstance(number, Fraction) and (2 * number).denominator == 1:
        return b.array("pow", (base.name,), shape, {"exponent": literal(number)})
    known = base.uniform
    if isinstance(known, Fraction) and known > 0:
        # b^x is exp(x log b) for a positive b.
        logarithm = b.emit("log", (base.name,), shape)
        product = b.emit("mul", (exponent.name, logarithm), shape)
        return b.array("exp", (product,), shape)
    raise unsupported(
        b, "a power whose exponent is no multiple of 1/2, of a base that is no positive constant"
    )


_OTHERS: Mapping[str, Lower] = {
    "convert": _convert,
    "divide": _divide,
    "remainder": _remainder,
    "and": _logic,
    "or": _logic,
    "xor": _logic,
    "not": _not,
    "compare": _compare,
    "select": _select,
    "clamp": _clamp,
    "log-plus-one": _log_plus_one,
    "exponential-minus-one": _exp_minus_one,
    "power": _power,
}
_LOWER: Mapping[str, Lower] = MappingProxyType({**dict.fromkeys(_PLAIN, _plain), **_OTHERS})
