"""The least and the largest integer that the elements of an array may be.

Spans are half-open. A result whose span is larger than its type may wrap in XLA, and does not in a
plan: it has none, and is refused.

>>> held((0, 256), ElementType.U8), held((0, 257), ElementType.U8)
((0, 256), None)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from pitcheck.frontends.xla.lowering.arrays import Array, Span, Told, limits, width_of
from pitcheck.frontends.xla.text.shapes import ElementType


def held(span: Span, element: ElementType) -> Span | None:
    """Return a span that the type holds; None if it is larger."""
    low, high = limits(element)
    return span if low <= span[0] and span[1] <= high else None


def spanned(opcode: str, operands: Sequence[Array], element: ElementType) -> Span | None:
    """Return the span of the result of an elementwise operator on integers.

    None if it is larger than the type, or if the operator is not followed.
    """
    rule = _RULES.get(opcode)
    spans = [a.span for a in operands if a.span is not None]
    if rule is None or len(spans) < len(operands):
        return None
    return held(rule(*spans), element)


def span_of_bits(opcode: str, operands: Sequence[Array], element: ElementType) -> Span:
    """Return the span of the result of an operator that may wrap around, or mixes bits.

    It is that of the type where nothing narrower is known.
    """
    if opcode in {"popcnt", "count-leading-zeros"}:
        return 0, width_of(element) + 1
    if opcode == "convert" and operands[0].shape.element is ElementType.PRED:
        return 0, 2
    found = None
    if opcode == "select":
        found = joined_span([a.span for a in operands[1:]])
    elif opcode in _OF_BITS:
        found = _span_of_naturals(opcode, operands, element)
    elif opcode not in {"divide", "remainder"} or operands[1].within(1, limits(element)[1]):
        found = spanned(opcode, operands, element)
    return found or limits(element)


def _span_of_naturals(opcode: str, operands: Sequence[Array], element: ElementType) -> Span | None:
    """Return the span of an operator on the bits of natural numbers; None for others."""
    spans = [a.span for a in operands if a.span is not None and a.span[0] >= 0]
    # An arithmetic shift keeps the highest bit, of an unsigned integer as well.
    most = limits(element)[1]
    if opcode == "shift-right-arithmetic":
        most = 1 << (width_of(element) - 1)
    if len(spans) < len(operands) or spans[0][1] > most:
        return None
    return held(_OF_BITS[opcode](*spans), element)


def joined_span(spans: Sequence[Span | None]) -> Span | None:
    """Return the span of elements that lie in one of several; None if one is not known."""
    known = [span for span in spans if span is not None]
    if len(known) < len(spans):
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def summed(span: Span, count: int) -> Span:
    """Return the span of sums of ``count`` integers."""
    return count * span[0], count * (span[1] - 1) + 1


def decided(direction: str, a: Span | None, b: Span | None) -> bool | None:
    """Return what a comparison of two arrays gives for all elements; None if it may differ."""
    if a is None or b is None:
        return None
    below, above = a[1] - 1 < b[0], a[0] > b[1] - 1
    at_most, at_least = a[1] - 1 <= b[0], a[0] >= b[1] - 1
    same = a == b and a[1] - a[0] == 1
    answers: Mapping[str, tuple[bool, bool]] = {
        "LT": (below, at_least),
        "GE": (at_least, below),
        "GT": (above, at_most),
        "LE": (at_most, above),
        "EQ": (same, below or above),
        "NE": (below or above, same),
    }
    true, false = answers[direction]
    return true if true or false else None


def fact_of(opcode: str, direction: str, operands: Sequence[Array]) -> tuple[Told, Array] | None:
    """Return what the result of an operator tells of an array of natural numbers, or None.

    ``direction``: that of a comparison.
    """
    x = operands[0]
    if opcode in _TOLD:
        natural = x.span is not None and x.span[0] >= 0
        return (_TOLD[opcode], x) if natural else None
    if opcode != "compare" or x.fact is None:
        return None
    told, of = x.fact
    found = _TOLD_BY_COMPARISON.get((told, direction, operands[1].uniform))
    return None if found is None else (found, of)


def contradict(first: Array, second: Array) -> bool:
    """Return True if two truths never both hold, by what they tell of one array."""
    if first.fact is None or second.fact is None or first.fact[1] is not second.fact[1]:
        return False
    return {first.fact[0], second.fact[0]} == {Told.ZERO, Told.MORE}


def _corners(operator: Callable[[int, int], int], a: Span, b: Span) -> Span:
    """Return the span of an operator that is monotone in each operand, up or down."""
    found = [operator(x, y) for x in (a[0], a[1] - 1) for y in (b[0], b[1] - 1)]
    return min(found), max(found) + 1


def _over(operator: Callable[[int, int], int]) -> Callable[[Span, Span], Span]:
    return lambda a, b: _corners(operator, a, b)


def _truncated(a: int, b: int) -> int:
    return abs(a) // b * (1 if a >= 0 else -1)


def _remainder(a: Span, b: Span) -> Span:
    """Return the span of remainders with the sign of the dividend, of positive divisors."""
    most = b[1] - 2
    return max(min(a[0], 0), -most), min(max(a[1] - 1, 0), most) + 1


def _clamp(low: Span, x: Span, high: Span) -> Span:
    return _corners(min, _corners(max, x, low), high)


def _absolute(a: Span) -> Span:
    ends = abs(a[0]), abs(a[1] - 1)
    return 0 if a[0] <= 0 < a[1] else min(ends), max(ends) + 1


def _sign(a: Span) -> Span:
    return max(-1, min(a[0], 1)), min(1, max(a[1] - 1, -1)) + 1


def _all_bits(*spans: Span) -> int:
    """Return the integer of as many ones as the largest of some natural numbers has bits."""
    return int((1 << max(high - 1 for _, high in spans).bit_length()) - 1)


def _disjunction(a: Span, b: Span) -> Span:
    """Return the span of ``x | y``, which is at most ``x + y``."""
    return max(a[0], b[0]), min(_all_bits(a, b), a[1] + b[1] - 2) + 1


def _shifted_left(a: Span, b: Span) -> Span:
    return 0, ((a[1] - 1) << min(b[1] - 1, _MOST_BITS)) + 1


def _shifted_right(a: Span, b: Span) -> Span:
    return 0, ((a[1] - 1) >> min(b[0], _MOST_BITS)) + 1


_MOST_BITS = 64
_OF_BITS: Mapping[str, Callable[..., Span]] = MappingProxyType(
    {
        "and": lambda a, b: (0, min(a[1], b[1])),
        "or": _disjunction,
        "xor": lambda a, b: (0, _all_bits(a, b) + 1),
        "shift-left": _shifted_left,
        "shift-right-logical": _shifted_right,
        "shift-right-arithmetic": _shifted_right,
    }
)
"""The spans of operators on the bits of natural numbers. A shift by all bits or more gives 0."""
_RULES: Mapping[str, Callable[..., Span]] = MappingProxyType(
    {
        "add": _over(lambda a, b: a + b),
        "subtract": _over(lambda a, b: a - b),
        "multiply": _over(lambda a, b: a * b),
        "maximum": _over(max),
        "minimum": _over(min),
        "divide": _over(_truncated),
        "remainder": _remainder,
        "clamp": _clamp,
        "negate": lambda a: (1 - a[1], 1 - a[0]),
        "abs": _absolute,
        "sign": _sign,
        "copy": lambda a: a,
        "convert": lambda a: a,
    }
)
_TOLD: Mapping[str, Told] = MappingProxyType({"sign": Told.SIGN, "remainder": Told.REMAINDER})
_TOLD_BY_COMPARISON: Mapping[tuple[Told, str, object], Told] = MappingProxyType(
    {
        (Told.SIGN, "NE", 1): Told.ZERO,
        (Told.SIGN, "EQ", 0): Told.ZERO,
        (Told.REMAINDER, "NE", 0): Told.MORE,
        (Told.REMAINDER, "GT", 0): Told.MORE,
    }
)
"""The fact that a comparison with a number tells, by that of its first operand."""
