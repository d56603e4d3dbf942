"""Arithmetic, element by element; operands broadcast.

>>> import numpy as np
>>> from pitcheck.algebra.reals.real import RealAlgebra
>>> from pitcheck.ops.registry import evaluate
>>> reals = RealAlgebra(np, seed=0, trials=(0,))
>>> two, three = reals.constant(2.0), reals.constant(3.0)
>>> evaluate(reals, "add", [two, three], {"alpha": 10})[0].data.item()
32.0
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from pitcheck.base.numbers import Root, parse_number
from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.ops.declaration import Attributes
from pitcheck.ops.declare import Lazy, Local, declare, elementwise
from pitcheck.ops.term import Term, needed, number, promote, sum_to
from pitcheck.ops.traits import Trait


def _scaled(b: Term, attributes: Attributes) -> Term:
    if "alpha" not in attributes:
        return b
    return number(b.algebra, attributes["alpha"], "attributes.alpha").cast(b.kind) * b


def _add(inputs: list[Term], attributes: Attributes) -> list[Term]:
    a, b = promote(inputs)
    return [a + _scaled(b, attributes)]


def _add_backward(local: Local) -> Sequence[Lazy | None]:
    a, b = local.inputs
    return [
        lambda: sum_to(local.dy, a.shape),
        lambda: sum_to(_scaled(local.dy, local.attributes), b.shape),
    ]


def _sub(inputs: list[Term], attributes: Attributes) -> list[Term]:
    a, b = promote(inputs)
    return [a - _scaled(b, attributes)]


def _sub_backward(local: Local) -> Sequence[Lazy | None]:
    a, b = local.inputs
    return [
        lambda: sum_to(local.dy, a.shape),
        lambda: -sum_to(_scaled(local.dy, local.attributes), b.shape),
    ]


def _adds_plainly(attributes: Attributes) -> bool:
    return parse_number(attributes.get("alpha", 1), "attributes.alpha") == 1


def _adds_positive(attributes: Attributes) -> bool:
    alpha = parse_number(attributes.get("alpha", 1), "attributes.alpha")
    return alpha.sign > 0 if isinstance(alpha, Root) else isinstance(alpha, Fraction) and alpha > 0


def _power(x: Term, exponent: Fraction) -> Term:
    if exponent.denominator == 1:
        return x**exponent.numerator
    if exponent.denominator == 2:
        return x.sqrt() ** exponent.numerator
    raise UnsupportedError(
        f"the power {exponent} has no meaning here: exponents are multiples of 1/2"
    )


def _exponent(attributes: Attributes) -> Fraction:
    exponent = parse_number(needed(attributes, "exponent"), "attributes.exponent")
    if not isinstance(exponent, Fraction):
        raise UnsupportedError(
            f"the power {attributes['exponent']!r} has no meaning here: exponents are multiples "
            f"of 1/2"
        )
    return exponent


def _takes_root(attributes: Attributes) -> bool:
    return _exponent(attributes).denominator == 2


def _squares(attributes: Attributes) -> bool:
    return _exponent(attributes) == 2


def _pow(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [_power(inputs[0], _exponent(attributes))]


def _pow_backward(local: Local) -> Sequence[Lazy | None]:
    exponent = _exponent(local.attributes)
    if exponent == 0:
        return [lambda: local.x.like(0)]
    return [lambda: local.dy * (local.x.constant(exponent) * _power(local.x, exponent - 1))]


def _size_factor(x: Term, attributes: Attributes) -> Term:
    """Return the number of elements along ``axis`` to the power ``exponent``.

    It stays bound to the dimension.
    """
    return _power(x.extent(int(needed(attributes, "axis"))), _exponent(attributes))


def _scale_by_size(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [inputs[0] * _size_factor(inputs[0], attributes)]


def _scale_by_size_backward(local: Local) -> Sequence[Lazy | None]:
    return [lambda: local.dy * _size_factor(local.x, local.attributes)]


def _sign(x: Term) -> Term:
    zero, one = x.constant(Fraction(0), x.kind), x.constant(Fraction(1), x.kind)
    return x.compare("gt", 0).where(one, x.compare("lt", 0).where(-one, zero))


def _clamp_bounds(x: Term, attributes: Attributes) -> tuple[Term | None, Term | None]:
    if attributes.get("min") is None and attributes.get("max") is None:
        raise PlanError("clamp needs at least one of the attributes 'min' and 'max'", "attributes")
    return _clamp_bound(x, attributes, "min", "-inf"), _clamp_bound(x, attributes, "max", "inf")


def _clamp_bound(x: Term, attributes: Attributes, name: str, endless: str) -> Term | None:
    """Return a bound, or None if every number lies within it."""
    bound, place = attributes.get(name), f"attributes.{name}"
    if bound is None or parse_number(bound, place) == float(endless):
        return None
    return number(x.algebra, bound, place).cast(x.kind)


def _clamp(inputs: list[Term], attributes: Attributes) -> list[Term]:
    x = inputs[0]
    low, high = _clamp_bounds(x, attributes)
    raised = x if low is None else x.maximum(low)
    return [raised if high is None else raised.minimum(high)]


def _clamp_backward(local: Local) -> Sequence[Lazy | None]:
    def gradient() -> Term:
        low, high = _clamp_bounds(local.x, local.attributes)
        zero = local.dy.constant(Fraction(0))
        kept = local.dy if low is None else local.x.compare("ge", low).where(local.dy, zero)
        return kept if high is None else local.x.compare("le", high).where(kept, zero)

    return [gradient]


OPERATORS = (
    declare(
        "add",
        _add,
        _add_backward,
        inputs=(2, 2),
        attributes={"alpha": "literal"},
        in_place=True,
        traits=(Trait.ADDS_TERMS, Trait.PLACE_BY_PLACE, Trait.TOTAL),
        conditional={
            Trait.ADDS_PLAINLY: _adds_plainly,
            Trait.COMMUTES: _adds_plainly,
            Trait.KEEPS_POSITIVE: _adds_positive,
        },
        mistaken_for="sub",
        doc="a + alpha * b; alpha is 1 by default.",
    ),
    declare(
        "sub",
        _sub,
        _sub_backward,
        inputs=(2, 2),
        attributes={"alpha": "literal"},
        in_place=True,
        traits=(Trait.ADDS_TERMS, Trait.PLACE_BY_PLACE, Trait.TOTAL),
        conditional={Trait.SUBTRACTS: _adds_plainly},
        mistaken_for="add",
        doc="a - alpha * b; alpha is 1 by default.",
    ),
    elementwise(
        "mul",
        lambda a, b: a * b,
        lambda d: d.b,
        lambda d: d.a,
        traits=(Trait.COMMUTES, Trait.MULTILINEAR, Trait.SCALES, Trait.TOTAL, Trait.KEEPS_POSITIVE),
        mistaken_for="div",
        derives_from_inputs=True,
        doc="a * b.",
    ),
    elementwise(
        "div",
        lambda a, b: a / b,
        lambda d: 1 / d.b,
        lambda d: -(d.y / d.b),
        traits=(Trait.DIVIDES, Trait.SCALES, Trait.KEEPS_POSITIVE),
        mistaken_for="mul",
        doc="a / b, a field division.",
    ),
    elementwise(
        "floor_divide",
        lambda a, b: Term(a.algebra, a.algebra.floor_divide(a.value, b.value)),
        doc="The greatest integer at most a / b, for integers.",
    ),
    elementwise(
        "remainder",
        lambda a, b: Term(a.algebra, a.algebra.remainder(a.value, b.value)),
        doc="a - b * floor(a / b), for integers; has the sign of b.",
    ),
    elementwise(
        "neg",
        lambda x: -x,
        lambda d: d.x.constant(Fraction(-1)),
        traits=(Trait.SCALES, Trait.TOTAL, Trait.ROUNDS_NOTHING, Trait.FLIPS_SIGNS),
        doc="-x.",
    ),
    declare(
        "pow",
        _pow,
        _pow_backward,
        attributes={"exponent": "literal"},
        required=("exponent",),
        in_place=True,
        traits=(Trait.PLACE_BY_PLACE,),
        conditional={Trait.TAKES_ROOT: _takes_root, Trait.SQUARES: _squares},
        doc="x to the power `exponent`, a multiple of 1/2: an integer power of x or of sqrt(x).",
    ),
    declare(
        "scale_by_size",
        _scale_by_size,
        _scale_by_size_backward,
        attributes={"axis": "axis", "exponent": "value"},
        required=("axis", "exponent"),
        in_place=True,
        traits=(Trait.SCALES,),
        doc="x times n to the power `exponent`, a multiple of 1/2; n is the number of elements "
        "along `axis`, at any size of it.",
    ),
    elementwise(
        "square",
        lambda x: x * x,
        lambda d: 2 * d.x,
        traits=(Trait.SQUARES, Trait.TOTAL),
        mistaken_for="abs",
        derives_from_inputs=True,
        doc="x * x.",
    ),
    elementwise(
        "reciprocal",
        lambda x: 1 / x,
        lambda d: -(d.y * d.y),
        traits=(Trait.DEFINED_FOR_POSITIVE,),
        doc="1 / x.",
    ),
    elementwise(
        "sqrt",
        lambda x: x.sqrt(),
        lambda d: 1 / (2 * d.y),
        traits=(Trait.TAKES_ROOT, Trait.DEFINED_FOR_POSITIVE),
        mistaken_for="rsqrt",
        doc="The square root.",
    ),
    elementwise(
        "rsqrt",
        lambda x: 1 / x.sqrt(),
        lambda d: -(d.y**3) / 2,
        traits=(Trait.TAKES_ROOT, Trait.DEFINED_FOR_POSITIVE),
        mistaken_for="sqrt",
        doc="1 / sqrt(x).",
    ),
    elementwise(
        "exp",
        lambda x: x.exp(),
        lambda d: d.y,
        traits=(Trait.TOTAL, Trait.GIVES_POSITIVE),
        mistaken_for="square",
        doc="e to the power x.",
    ),
    elementwise(
        "log",
        lambda x: x.log(),
        lambda d: 1 / d.x,
        traits=(Trait.DEFINED_FOR_POSITIVE,),
        doc="The natural logarithm.",
    ),
    elementwise(
        "abs",
        lambda x: x.compare("lt", 0).where(-x, x),
        lambda d: _sign(d.x),
        traits=(Trait.ROUNDS_NOTHING, Trait.FLIPS_SIGNS),
        doc="x or, where x < 0, -x; the derivative at 0 is 0.",
    ),
    elementwise(
        "sign",
        _sign,
        lambda d: d.x.constant(Fraction(0)),
        traits=(
            Trait.STEPS,
            Trait.ROUNDS_NOTHING,
        ),
        mistaken_for="identity",
        doc="1 where x > 0, -1 where x < 0, else 0; the derivative is 0.",
    ),
    declare(
        "clamp",
        _clamp,
        _clamp_backward,
        attributes={"min": "literal", "max": "literal"},
        in_place=True,
        traits=(
            Trait.LIMITS,
            Trait.ROUNDS_NOTHING,
        ),
        doc="min(max(x, `min`), `max`); at least one bound. The derivative is 1 where `min` <= x "
        "<= `max`, else 0.",
    ),
)
