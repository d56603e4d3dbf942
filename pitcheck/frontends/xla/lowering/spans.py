"""The least and the largest integer that the elements of an array may be.

Spans are half-open. One that leaves the range of its type is dropped: there XLA wraps.

>>> added((0, 4), (1, 2), ElementType.S32)
(1, 5)
"""

from __future__ import annotations

from pitcheck.frontends.xla.lowering.arrays import Array, Span
from pitcheck.frontends.xla.text.shapes import ElementType


def limits(element: ElementType) -> Span:
    """Return the span of all integers of a type."""
    bits = int(element.value[1:])
    return (0, 1 << bits) if element.value[0] == "u" else (-(1 << (bits - 1)), 1 << (bits - 1))


def held(span: Span, element: ElementType) -> Span | None:
    """Return a span that the type holds; None if it is larger."""
    low, high = limits(element)
    return span if low <= span[0] and span[1] <= high else None


def added(a: Span, b: Span, element: ElementType) -> Span | None:
    """Return the span of sums."""
    return held((a[0] + b[0], a[1] + b[1] - 1), element)


def spanned(opcode: str, operands: list[Array], element: ElementType) -> Span | None:
    """Return the span of the result of an elementwise operator; None if it is not known."""
    spans = [a.span for a in operands]
    if opcode == "clamp":
        low, x, high = spans
        if low is None or high is None or low[1] > high[1]:
            return None
        least, most = low[0], high[1]
        return (
            (least, most)
            if x is None
            else (max(least, min(x[0], most - 1)), min(most, max(x[1], low[1])))
        )
    if opcode == "select":
        first, second = spans[1:]
        return None if first is None or second is None else _joined(first, second)
    if any(span is None for span in spans):
        return None
    known = [span for span in spans if span is not None]
    if opcode == "add":
        return added(known[0], known[1], element)
    if opcode == "subtract":
        low, high = known[1]
        return added(known[0], (1 - high, 1 - low), element)
    if opcode == "multiply":
        return held(_product(known[0], known[1]), element)
    if opcode == "maximum":
        return max(known[0][0], known[1][0]), max(known[0][1], known[1][1])
    if opcode == "minimum":
        return min(known[0][0], known[1][0]), min(known[0][1], known[1][1])
    if opcode == "negate":
        return held((1 - known[0][1], 1 - known[0][0]), element)
    if opcode in {"copy", "convert"}:
        return held(known[0], element)
    if opcode == "remainder" and known[0][0] >= 0 and known[1][0] > 0:
        return 0, min(known[0][1], known[1][1] - 1)
    if opcode == "divide" and known[0][0] >= 0 and known[1][0] > 0:
        return known[0][0] // (known[1][1] - 1), (known[0][1] - 1) // known[1][0] + 1
    return None


def _joined(a: Span, b: Span) -> Span:
    return min(a[0], b[0]), max(a[1], b[1])


def _product(a: Span, b: Span) -> Span:
    corners = [x * y for x in (a[0], a[1] - 1) for y in (b[0], b[1] - 1)]
    return min(corners), max(corners) + 1


def decided(direction: str, a: Span | None, b: Span | None) -> bool | None:
    """Return what a comparison of two arrays gives for all elements; None if it may differ."""
    if a is None or b is None:
        return None
    below, above = a[1] - 1 < b[0], a[0] > b[1] - 1
    at_most, at_least = a[1] - 1 <= b[0], a[0] >= b[1] - 1
    same = a == b and a[1] - a[0] == 1
    found: dict[str, tuple[bool, bool]] = {
        "LT": (below, at_least),
        "GE": (at_least, below),
        "GT": (above, at_most),
        "LE": (at_most, above),
        "EQ": (same, below or above),
        "NE": (below or above, same),
    }
    true, false = found[direction]
    return True if true else False if false else None
