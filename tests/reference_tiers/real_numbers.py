"""Formulas on real numbers with many digits: what is accepted must hold there."""

from __future__ import annotations

import random

from mpmath import mp, mpf
from reference_tiers.formulas import COMPARISONS, PLACES, Formula, walk

DIGITS = 80
LARGEST = mpf(10) ** 20
LARGEST_EXPONENT = 30
TOLERANCE = mpf(10) ** -30
CLOSE = mpf(10) ** -40
"""Numbers that are closer than this may be parted by rounding alone."""


class OutsideError(Exception):
    """A number is outside a domain, or too large to be trusted."""


def _applied(term: Formula, operands: list[list[mpf]], inputs: dict[str, list[mpf]]) -> list[mpf]:
    kind = term.kind
    if kind == "input":
        return inputs[term.name]
    if term.number is not None:
        return [mpf(term.number.numerator) / term.number.denominator]
    if kind == "sum":
        return [sum(operands[0], mpf(0))]
    if kind == "top":
        return [max(operands[0])]
    size = term.size
    if kind == "ranked":
        a, b = operands
        if any(0 < abs(x - y) < CLOSE for x in a for y in a):
            raise OutsideError
        return [b[place] for place in sorted(range(size), key=lambda place: -a[place])]
    if kind == "picked":
        a, b = (each * size if len(each) < size else each for each in operands)
        return [a[0], *b[1:]]
    wide = [each * size if len(each) < size else each for each in operands]
    return [_element(kind, *each) for each in zip(*wide, strict=True)]


def _element(kind: str, a: mpf, b: mpf | None = None, c: mpf | None = None) -> mpf:
    if kind == "where":
        return b if a else c
    if kind in ("exp", "log", "sqrt"):
        if (kind == "exp" and abs(a) > LARGEST_EXPONENT) or (kind != "exp" and a <= 0):
            raise OutsideError
        return getattr(mp, kind)(a)
    if kind == "div" and abs(b) < 1 / LARGEST:
        raise OutsideError
    if kind in COMPARISONS and 0 < abs(a - b) < CLOSE:
        raise OutsideError
    return {
        "add": lambda: a + b,
        "sub": lambda: a - b,
        "mul": lambda: a * b,
        "div": lambda: a / b,
        "neg": lambda: -a,
        "square": lambda: a * a,
        "erf": lambda: mp.erf(a),
        "cos": lambda: mp.cos(a),
        "max": lambda: max(a, b),
        "min": lambda: min(a, b),
        "number": lambda: a,
        "lt": lambda: mpf(a < b),
        "le": lambda: mpf(a <= b),
        "gt": lambda: mpf(a > b),
        "ge": lambda: mpf(a >= b),
        "eq": lambda: mpf(a == b),
        "ne": lambda: mpf(a != b),
        "and": lambda: a * b,
        "or": lambda: max(a, b),
        "not": lambda: 1 - a,
    }[kind]()


def _value(root: Formula, inputs: dict[str, list[mpf]]) -> list[mpf]:
    known: dict[Formula, list[mpf]] = {}
    for term in walk(root):
        known[term] = _applied(term, [known[each] for each in term.operands], inputs)
        if any(abs(x) > LARGEST for x in known[term]):
            raise OutsideError
    return known[root]


def _drawn(rng: random.Random, point: int) -> list[mpf]:
    if point % 3 == 0:
        return [mpf(rng.randint(-2, 2)) for _ in range(PLACES)]
    if point % 3 == 1:
        return [mpf(rng.randint(-(10**9), 10**9)) / 10**9 for _ in range(PLACES)]
    return [mpf(rng.randint(-3 * 10**9, 3 * 10**9)) / 10**9 for _ in range(PLACES)]


def shown_unequal(first: Formula, second: Formula, seed: int, points: int = 9) -> bool:
    """True if some real input at which both formulas have a value shows that they differ."""
    rng = random.Random(seed)
    with mp.workdps(DIGITS):
        for point in range(points):
            inputs = {name: _drawn(rng, point) for name in ("x", "y", "z")}
            try:
                a, b = _value(first, inputs), _value(second, inputs)
            except OutsideError:
                continue
            if any(abs(x - y) > TOLERANCE for x, y in zip(a, b, strict=True)):
                return True
    return False
