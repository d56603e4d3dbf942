"""Activation functions, element by element.

Those with an algebra are written through exp; the others are functions known by name.

>>> import numpy as np
>>> from pitcheck.algebra.reals.real import RealAlgebra
>>> from pitcheck.ops.registry import evaluate
>>> reals = RealAlgebra(np, seed=0, trials=(0,))
>>> evaluate(reals, "sigmoid", [reals.constant(0.0)], {})[0].data.item()
0.5
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from pitcheck.base.numbers import Root
from pitcheck.errors import UnsupportedError
from pitcheck.ops.declaration import Attributes
from pitcheck.ops.declare import Lazy, Local, declare, elementwise
from pitcheck.ops.meanings.normalization import log_of_sum
from pitcheck.ops.term import Term, concatenate, exact
from pitcheck.ops.traits import Trait

_GELU_CUBIC = Fraction(44715, 10**6)


def _relu(x: Term) -> Term:
    return x.maximum(x.constant(Fraction(0), x.kind))


def _softplus(x: Term) -> Term:
    """Return log(exp(0) + exp(x)) of shifted exponents, which stay in the range of floats."""
    pair = concatenate((x.like(0).unsqueeze(-1), x.unsqueeze(-1)), -1)
    return log_of_sum(pair, pair.ndim - 1).squeeze(-1)


def _step(x: Term) -> Term:
    return x.compare("gt", 0).cast("field")


def _silu_slope(d: Local) -> Term:
    s = d.x.sigmoid()
    return s * (1 + d.x * (1 - s))


def _gelu_inner(x: Term) -> Term:
    """Return sqrt(2/pi) (x + 0.044715 x^3), the argument of tanh."""
    return _root_two_over_pi(x) * (x + x.constant(_GELU_CUBIC) * x**3)


def _root_two_over_pi(x: Term) -> Term:
    """Return sqrt(2/pi)."""
    return exact(x.algebra, Root(Fraction(2), over_pi=True))


def _density(x: Term) -> Term:
    """Return exp(-x^2/2) / sqrt(2 pi), the density of the normal distribution."""
    return (-(x * x) / 2).exp() * exact(x.algebra, Root(Fraction(1, 2), over_pi=True))


def _gelu(inputs: list[Term], attributes: Attributes) -> list[Term]:
    x = inputs[0]
    if _is_tanh(attributes):
        return [x * (1 + _gelu_inner(x).tanh()) / 2]
    return [x * x.function("normal_cdf")]


def _gelu_backward(local: Local) -> Sequence[Lazy | None]:
    x = local.x

    def gradient() -> Term:
        if not _is_tanh(local.attributes):
            return local.dy * (x.function("normal_cdf") + x * _density(x))
        t = _gelu_inner(x).tanh()
        inner = _root_two_over_pi(x) * (1 + x.constant(3 * _GELU_CUBIC) * (x * x))
        return local.dy * (1 + t + x * (1 - t * t) * inner) / 2

    return [gradient]


def _is_tanh(attributes: Attributes) -> bool:
    approximate = attributes.get("approximate", "none")
    if approximate not in ("none", "tanh"):
        raise UnsupportedError(
            f"gelu knows the approximations 'none' and 'tanh', not {approximate!r}"
        )
    return bool(approximate == "tanh")


def _erf_slope(d: Local) -> Term:
    """Return 2 / sqrt(pi) exp(-x^2)."""
    return exact(d.x.algebra, Root(Fraction(4), over_pi=True)) * (-(d.x * d.x)).exp()


OPERATORS = (
    elementwise(
        "sigmoid",
        lambda x: x.sigmoid(),
        lambda d: d.y * (1 - d.y),
        mistaken_for="tanh",
        doc="1 / (1 + exp(-x)).",
    ),
    elementwise(
        "silu",
        lambda x: x * x.sigmoid(),
        _silu_slope,
        mistaken_for="relu",
        derives_from_inputs=True,
        doc="x * sigmoid(x).",
    ),
    elementwise(
        "tanh",
        lambda x: x.tanh(),
        lambda d: 1 - d.y * d.y,
        mistaken_for="sigmoid",
        doc="2 sigmoid(2x) - 1.",
    ),
    elementwise("softplus", _softplus, lambda d: d.x.sigmoid(), doc="log(1 + exp(x))."),
    elementwise(
        "relu",
        _relu,
        lambda d: _step(d.x),
        traits=(
            Trait.LIMITS,
            Trait.ROUNDS_NOTHING,
        ),
        mistaken_for="silu",
        derives_from_inputs=True,
        doc="max(x, 0); the derivative is 1 where x > 0, else 0.",
    ),
    elementwise(
        "erf",
        lambda x: x.function("erf"),
        _erf_slope,
        doc="The error function; its derivative is 2 / sqrt(pi) exp(-x^2).",
    ),
    elementwise("sin", lambda x: x.function("sin"), lambda d: d.x.function("cos"), doc="The sine."),
    elementwise(
        "cos", lambda x: x.function("cos"), lambda d: -d.x.function("sin"), doc="The cosine."
    ),
    declare(
        "gelu",
        _gelu,
        _gelu_backward,
        attributes={"approximate": "value"},
        in_place=True,
        mistaken_for="relu",
        derives_from_inputs=True,
        doc='x * Phi(x) with the normal distribution Phi; with `approximate` "tanh": x / 2 (1 + '
        "tanh(sqrt(2/pi) (x + 0.044715 x^3))).",
    ),
)
