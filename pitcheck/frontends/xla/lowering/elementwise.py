"""Elementwise operators of HLO as operators of a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from types import MappingProxyType

import numpy as np

from pitcheck.base.numbers import Root
from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.xla.lowering.arrays import NUMPY, Array, Numbers, Real, Span, dtype_of
from pitcheck.frontends.xla.lowering.building import Building, literal, unsupported
from pitcheck.frontends.xla.lowering.indexed.boundaries import boundary
from pitcheck.frontends.xla.lowering.known_numbers import computed
from pitcheck.frontends.xla.lowering.loops.counted import counted_by, scalar_of
from pitcheck.frontends.xla.lowering.random.bits import (
    coded,
    direction_of,
    has_code,
    is_drawn_later,
    is_late,
    with_codes,
)
from pitcheck.frontends.xla.lowering.rounding import is_finite, rounded
from pitcheck.frontends.xla.lowering.spans import (
    contradict,
    decided,
    fact_of,
    held,
    joined_span,
    spanned,
)
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


MOST_COUNTED = 1 << 24
"""The magnitude below which plans compute with known integers. Larger ones are bits, not counts."""
LARGEST_LITERAL = 1 << 62
"""The magnitude below which a literal is compared as a 64-bit integer."""

Lower = Callable[[Building, Instruction, ArrayShape, Sequence[Array]], Array]


def elementwise(b: Building, instruction: Instruction, operands: Sequence[Array]) -> Array | None:
    """Return the result of an elementwise operator; None if the opcode is none of these.

    Raises:
        UnsupportedError: for one that has no meaning in a plan.
        PlanError: for operands of types that the operator does not take.
    """
    opcode, shape = instruction.opcode, instruction.shape
    lower = _LOWER.get(opcode)
    if lower is None or not isinstance(shape, ArrayShape):
        return None
    _check_types(b, opcode, shape, operands)
    numbers = None
    if b.computes(shape, *operands):
        given = [np.asarray(a.known) for a in operands]
        numbers = computed(opcode, given, shape, direction_of(instruction))
    if numbers is not None:
        return _known(b, instruction, shape, operands, numbers)
    counted = counted_by(instruction, shape, operands)
    scalar = None if counted is None else scalar_of(b, shape, counted, operands)
    if scalar is not None:
        return scalar
    has_codes = has_code(b, instruction, shape, operands)
    if has_codes and is_drawn_later(b, instruction, shape, operands):
        made = partial(lower, b, instruction, shape, operands) if is_late(b) else None
        return coded(b, instruction, shape, operands, made)
    try:
        found = lower(b, instruction, shape, operands)
    except UnsupportedError:
        if not has_codes:
            raise
        return coded(b, instruction, shape, operands)
    if all(found is not a for a in operands):
        found.fact = fact_of(opcode, direction_of(instruction), operands)
        found.counted = counted
    return with_codes(b, instruction, found, operands)


def _known(
    b: Building,
    instruction: Instruction,
    shape: ArrayShape,
    operands: Sequence[Array],
    numbers: Numbers,
) -> Array:
    """Return known numbers, made by their operator, or one by one if a plan has none for them."""

    def made() -> str:
        if any(a.span is not None and not a.within(-MOST_COUNTED, MOST_COUNTED) for a in operands):
            return b.listed(shape, numbers)
        try:
            return _LOWER[instruction.opcode](b, instruction, shape, operands).name
        except UnsupportedError:
            return b.listed(shape, numbers)

    return b.known(shape, numbers, made)


def _check_types(b: Building, opcode: str, shape: ArrayShape, operands: Sequence[Array]) -> None:
    """Raise an error unless operands have the types that an operator takes."""
    given = [a.shape.element for a in operands]
    expected = [shape.element] * len(given)
    if opcode == "convert":
        expected = given
    elif opcode == "compare":
        expected = given[:1] * 2
    elif opcode == "select":
        expected[0] = ElementType.PRED
    elif opcode == "is-finite":
        expected = given
    truths = opcode in {"compare", "is-finite"}
    if given != expected or (truths and shape.element is not ElementType.PRED):
        if opcode in _PLAIN and not any(element in NUMPY for element in (*given, shape.element)):
            raise unsupported(b, f"{opcode} of floating-point types that differ")
        raise PlanError(
            f"{opcode} of {', '.join(given)} gives {shape.element}; types of operands and result "
            f"must agree",
            b.place,
        )


def _spanned(b: Building, opcode: str, shape: ArrayShape, given: Sequence[Array]) -> Span | None:
    """Return the span of a result. Raises UnsupportedError for integers that may wrap."""
    if not shape.element.is_integer:
        return None
    span = spanned(opcode, given, shape.element)
    if span is None:
        raise unsupported(b, f"{opcode} of {shape.element}, whose result may wrap around,")
    return span


def _plain(
    b: Building, instruction: Instruction, shape: ArrayShape, given: Sequence[Array]
) -> Array:
    """Return the result of an operator that a plan has, too."""
    opcode, element = instruction.opcode, shape.element
    if opcode == "copy":
        return given[0]
    if element is ElementType.PRED:
        raise unsupported(b, f"{opcode} of truths")
    if element.is_integer and opcode in _FLOATING:
        raise unsupported(b, f"{opcode} of integers")
    neutral = _NEUTRAL.get(opcode)
    for number, a in enumerate(given):
        if neutral is not None and a.uniform is neutral:
            return given[1 - number]
    span = _spanned(b, opcode, shape, given)
    found = b.array(_PLAIN[opcode], _operands(b, given), shape, span=span)
    if opcode == "subtract" and element.is_integer and given[1].per_device is not None:
        found.moved = given[0], given[1].per_device
    return found


def _operands(b: Building, given: Sequence[Array]) -> list[str | Number]:
    """Return operands, of which one at least is a tensor: literals alone have no shape."""
    found = [b.operand(a) for a in given]
    if all(isinstance(each, Number) for each in found):
        found[0] = given[0].name
    return [each for each in found if isinstance(each, str | Number)]


# --- conversions
def _convert(b: Building, _: Instruction, shape: ArrayShape, given: Sequence[Array]) -> Array:
    x = given[0]
    source, target = x.shape.element, shape.element
    if x.number is not None:
        return _converted(b, x.number, shape)
    number = x.uniform
    if isinstance(number, bool | int) and target not in NUMPY:
        return b.filled(shape, Fraction(number))
    if not target.is_integer:
        return b.array("cast", (x.name,), shape, {"dtype": dtype_of(target)})
    if source.is_integer:
        return _integers(b, x, shape, _spanned(b, "convert", shape, given))
    if source is ElementType.PRED:
        return _integers(b, x, shape, (0, 2))
    if target not in {ElementType.S32, ElementType.S64}:
        raise unsupported(b, f"a conversion of {source} to {target}, which may not hold it,")
    return b.array("cast", (x.name,), shape, {"dtype": dtype_of(target)})


def _integers(b: Building, x: Array, shape: ArrayShape, span: Span | None) -> Array:
    """Return truths or integers as integers of a type that holds them."""
    return b.array("cast", (x.name,), shape, {"dtype": dtype_of(shape.element)}, span=span)


def _converted(b: Building, number: Real, shape: ArrayShape) -> Array:
    """Return an array of one floating-point number, as another type."""
    element = shape.element
    if element not in NUMPY:
        return b.filled(shape, number)
    exact = Fraction(0) if number is Special.MINUS_ZERO else number
    if element is ElementType.PRED:
        return b.known(shape, np.full((1, *shape.dimensions), exact != 0))
    if not isinstance(exact, Fraction) or not held((int(exact), int(exact) + 1), element):
        raise unsupported(b, f"a conversion of {literal(number)} to {element}")
    return b.known(shape, np.full((1, *shape.dimensions), int(exact), dtype=NUMPY[element]))


# --- quotients
def _divide(
    b: Building, instruction: Instruction, shape: ArrayShape, given: Sequence[Array]
) -> Array:
    if shape.element.is_integer:
        return _quotient(b, instruction, shape, given)
    if given[1].number in (Fraction(0), Special.MINUS_ZERO):
        raise unsupported(b, "a division by 0, which gives an infinity of either sign, or none,")
    return b.array("div", _operands(b, given), shape)


def _quotient(
    b: Building, instruction: Instruction, shape: ArrayShape, given: Sequence[Array]
) -> Array:
    """Return a quotient of integers, rounded toward 0, or the remainder, which has its sign.

    Of a dividend that may be negative it is that of the magnitude, with its sign.
    """
    opcode = instruction.opcode
    if not shape.element.is_integer:
        raise unsupported(b, f"{opcode} of floating-point numbers")
    dividend, divisor = given
    if divisor.span is None or divisor.span[0] <= 0:
        raise unsupported(b, f"{opcode} by integers that may be negative, or 0,")
    kind = {"divide": "floor_divide", "remainder": "remainder"}[opcode]
    span = _spanned(b, opcode, shape, given)
    if dividend.span is not None and dividend.span[0] >= 0:
        return b.array(kind, _operands(b, given), shape, span=span)
    wide = ArrayShape(ElementType.S64, shape.dimensions)
    magnitude = b.emit("abs", (dividend.name,), wide)
    part = b.emit(kind, (magnitude, b.operand(divisor)), wide)
    sign = b.emit("sign", (dividend.name,), shape)
    return b.array("mul", (sign, part), shape, span=span)


# --- truths
def _logic(
    b: Building, instruction: Instruction, shape: ArrayShape, given: Sequence[Array]
) -> Array:
    """Return a conjunction or disjunction, without the operand that decides nothing."""
    opcode = instruction.opcode
    if shape.element is not ElementType.PRED:
        raise unsupported(b, f"{opcode} of the bits of integers")
    for number, a in enumerate(given):
        if opcode != "xor" and isinstance(a.uniform, bool):
            # True decides "or", and is nothing to "and"; false the other way round.
            return a if a.uniform == (opcode == "or") else given[1 - number]
    if opcode == "and" and contradict(*given):
        return b.known(shape, np.zeros((1, *shape.dimensions), dtype=np.bool_))
    # One of random numbers is made at once: codes tell it where the plan has no operator for them.
    if not any(a.drawn for a in given):
        make = b.later(lambda: b.emit(_LOGICAL[opcode], [a.name for a in given], shape))
        return Array(shape, make)
    return b.array(_LOGICAL[opcode], [a.name for a in given], shape)


def _not(b: Building, _: Instruction, shape: ArrayShape, given: Sequence[Array]) -> Array:
    if shape.element is not ElementType.PRED:
        raise unsupported(b, "not of the bits of integers")
    return b.array("logical_not", (given[0].name,), shape)


def _shift(b: Building, instruction: Instruction, _: ArrayShape, __: Sequence[Array]) -> Array:
    raise unsupported(b, f"{instruction.opcode} of integers that are not known")


def _count(b: Building, instruction: Instruction, _: ArrayShape, __: Sequence[Array]) -> Array:
    raise unsupported(b, f"{instruction.opcode} of integers that are not known")


def _compare(
    b: Building, instruction: Instruction, shape: ArrayShape, given: Sequence[Array]
) -> Array:
    direction = instruction.get("direction", "EQ")
    if instruction.get("type", "") == "TOTALORDER":
        raise unsupported(b, "a comparison in total order, which tells 0 from -0,")
    first, second = given
    if first.is_integer:
        answer = decided(direction, first.span, second.span)
        if answer is not None:
            return b.known(shape, np.full((1, *shape.dimensions), answer))
    if first.per_device is not None and second.per_device is None:
        first, second, direction = second, first, _MIRRORED[direction]
    places = second.per_device
    if not first.is_integer or places is None or max(places) >= LARGEST_LITERAL:
        return b.array(_COMPARE[direction], _operands(b, (first, second)), shape)
    if direction in {"LE", "GT"}:
        second = _next(b, second, places)
        direction = "LT" if direction == "LE" else "GE"
    return _compared_with(b, _COMPARE[direction], first, second, shape)


def _compared_with(b: Building, kind: str, first: Array, second: Array, shape: ArrayShape) -> Array:
    """Return a comparison of integers with one that is known on each device, by < or >= if ordered.

    That one is a place between two shards then, and not the one before it. It is made when it is
    asked for: what the integers are places of is said by a later gather, whose result it masks.
    """
    made, source = first.name, first.shown or first

    def make() -> str:
        offsets = second.per_device
        if source.places is None or not offsets or min(offsets) < 0 or not any(offsets):
            return b.emit(kind, _operands(b, (first, second)), shape)
        place = boundary(b, *source.places, offsets, first.shape.element)
        return b.emit(kind, (made, place), shape)

    return Array(shape, b.later(make))


def _next(b: Building, x: Array, places: Sequence[int]) -> Array:
    """Return the integer behind that which all elements are on each device."""
    numbers = np.array([place + 1 for place in places], dtype=np.int64)
    whole = np.broadcast_to(numbers.reshape(-1, *(1,) * x.rank), (len(places), *x.sizes))
    return b.known(ArrayShape(ElementType.S64, x.sizes), whole)


# --- choices
def _select(b: Building, _: Instruction, shape: ArrayShape, given: Sequence[Array]) -> Array:
    return chosen(b, shape, *given)


def chosen(b: Building, shape: ArrayShape, condition: Array, first: Array, second: Array) -> Array:
    """Return the elements of ``first`` where a condition holds, else those of ``second``."""
    if isinstance(condition.uniform, bool):
        return first if condition.uniform else second
    if first is second:
        return first
    if shape.element is ElementType.PRED:
        return _chosen_truth(b, shape, condition, first, second)
    span = joined_span((first.span, second.span))
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


def _clamp(b: Building, _: Instruction, shape: ArrayShape, given: Sequence[Array]) -> Array:
    low, x, high = given
    if shape.element is ElementType.PRED:
        raise unsupported(b, "clamp of truths")
    if low.span and high.span and x.within(low.span[1] - 1, high.span[0] + 1):
        return x
    if Special.NAN in {low.uniform, high.uniform}:
        raise unsupported(b, "clamp to a limit that is no number")
    span = _spanned(b, "clamp", shape, given)
    least, most = low.uniform, high.uniform
    if least is not None and most is not None:
        bounds = {"min": literal(least), "max": literal(most)}
        return b.array("clamp", (x.name,), shape, bounds, span=span)
    raised = b.emit("maximum", _operands(b, (x, low)), shape)
    return b.array("minimum", (raised, b.operand(high)), shape, span=span)


# --- logarithms and powers
def _log_plus_one(b: Building, _: Instruction, shape: ArrayShape, given: Sequence[Array]) -> Array:
    more = b.emit("add", (given[0].name, Number(1)), shape)
    return b.array("log", (more,), shape)


def _exp_minus_one(b: Building, _: Instruction, shape: ArrayShape, given: Sequence[Array]) -> Array:
    power = b.emit("exp", (given[0].name,), shape)
    return b.array("sub", (power, Number(1)), shape)


def _power(b: Building, _: Instruction, shape: ArrayShape, given: Sequence[Array]) -> Array:
    base, exponent = given
    if shape.element in NUMPY:
        raise unsupported(b, "a power of integers")
    number = exponent.number
    if isinstance(number, Fraction) and (2 * number).denominator == 1:
        return b.array("pow", (base.name,), shape, {"exponent": literal(number)})
    known = base.number
    if isinstance(known, Fraction | Root) and float(known) > 0:
        # b^x is exp(x log b) for a positive b.
        logarithm = b.emit("log", (base.name,), shape)
        product = b.emit("mul", (exponent.name, logarithm), shape)
        return b.array("exp", (product,), shape)
    raise unsupported(
        b, "a power whose exponent is no multiple of 1/2, of a base that is no positive constant,"
    )


_OTHERS: Mapping[str, Lower] = {
    "convert": _convert,
    "divide": _divide,
    "remainder": _quotient,
    "and": _logic,
    "or": _logic,
    "xor": _logic,
    "not": _not,
    "shift-left": _shift,
    "shift-right-logical": _shift,
    "shift-right-arithmetic": _shift,
    "compare": _compare,
    "select": _select,
    "clamp": _clamp,
    "log-plus-one": _log_plus_one,
    "exponential-minus-one": _exp_minus_one,
    "power": _power,
    "floor": rounded,
    "ceil": rounded,
    "round-nearest-even": rounded,
    "round-nearest-afz": rounded,
    "is-finite": is_finite,
    "popcnt": _count,
    "count-leading-zeros": _count,
}
_LOWER: Mapping[str, Lower] = MappingProxyType({**dict.fromkeys(_PLAIN, _plain), **_OTHERS})
