"""Softmax and its logarithm, and normalisation layers.

>>> import numpy as np
>>> from pitcheck.algebra.reals.real import RealAlgebra
>>> from pitcheck.ops.registry import evaluate
>>> reals = RealAlgebra(np, seed=0, trials=(0,))
>>> y = evaluate(reals, "softmax", [reals.fresh("x", (3,))], {"axis": 0})[0]
>>> round(reals.sum(y, (0,)).data.item(), 9)
1.0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from pitcheck.errors import ShapeError
from pitcheck.ops.declaration import AttributeRole, Attributes
from pitcheck.ops.declare import Lazy, Local, declare
from pitcheck.ops.term import Term, flag, needed, number, sum_to
from pitcheck.ops.traits import Trait

_INFINITY, _NEGATIVE_INFINITY = float("inf"), float("-inf")

# --- softmax. The shift m cancels in every formula; it keeps floating point in range.


def softmax_of(x: Term, axis: int) -> Term:
    """Return exp(x - m) / sum exp(x - m) along ``axis``, with a shift m that cancels.

    It is NaN where all of x is -inf. The shape is that of x.
    """
    e = (x - x.shift_over(axis)).exp()
    return e / e.sum(axis, keep=True)


def log_sum_exp_of(x: Term, axis: int) -> Term:
    """Return m + log sum exp(x - m) along ``axis``, which keeps size 1.

    It is NaN where all of x is -inf.
    """
    m = x.shift_over(axis)
    return m + (x - m).exp().sum(axis, keep=True).log()


def log_of_sum(x: Term, axis: int) -> Term:
    """Return log sum exp(x) along ``axis``, which keeps size 1, also where x is infinite."""
    zero = x.constant(Fraction(0))
    m = endless(x, axis).where(zero, nothing_left(x, axis).where(zero, x.shift_over(axis)))
    return m + (x - m).exp().sum(axis, keep=True).log()


def softmax_gradient(y: Term, dy: Term, axis: int) -> Term:
    """Return y (dy - sum y dy), the gradient of the argument of a softmax with result y."""
    return y * (dy - (y * dy).sum(axis, keep=True))


def nothing_left(x: Term, axis: int) -> Term:
    """Return True where all of x along ``axis`` is -inf; the axis keeps size 1."""
    finite = x.compare("ne", x.constant(_NEGATIVE_INFINITY)).cast("int")
    return finite.sum(axis, keep=True).compare("eq", finite.constant(Fraction(0), "int"))


def endless(x: Term, axis: int) -> Term:
    """Return True where some of x along ``axis`` is +inf; the axis keeps size 1."""
    infinite = x.compare("eq", x.constant(_INFINITY)).cast("int")
    return infinite.sum(axis, keep=True).compare("ne", infinite.constant(Fraction(0), "int"))


def _axis(x: Term, attributes: Attributes) -> int:
    return x.axis(needed(attributes, "axis"))


def _softmax(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [softmax_of(inputs[0], _axis(inputs[0], attributes))]


def _softmax_backward(local: Local) -> Sequence[Lazy | None]:
    return [lambda: softmax_gradient(local.y, local.dy, _axis(local.x, local.attributes))]


def _log_softmax(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [inputs[0] - log_sum_exp_of(inputs[0], _axis(inputs[0], attributes))]


def _log_softmax_backward(local: Local) -> Sequence[Lazy | None]:
    axis = _axis(local.x, local.attributes)
    return [lambda: local.dy - softmax_of(local.x, axis) * local.dy.sum(axis, keep=True)]


def _logsumexp(inputs: list[Term], attributes: Attributes) -> list[Term]:
    x = inputs[0]
    axis = _axis(x, attributes)
    result = log_of_sum(x, axis)
    return [result if flag(attributes, "keepdim") else result.squeeze(axis)]


def _logsumexp_backward(local: Local) -> Sequence[Lazy | None]:
    def gradient() -> Term:
        axis = _axis(local.x, local.attributes)
        dy = local.dy if local.dy.ndim == local.x.ndim else local.dy.unsqueeze(axis)
        return softmax_of(local.x, axis) * dy

    return [gradient]


# --- layers


def _last(x: Term, attributes: Attributes) -> tuple[int, ...]:
    """Return the dimensions that are normalised: the last ``dims`` ones."""
    dims = int(attributes.get("dims", 1))
    if not 1 <= dims <= x.ndim:
        raise ShapeError(f"the last {dims} dimensions of {x.shape} cannot be normalised")
    return tuple(range(x.ndim - dims, x.ndim))


def _deviation(x: Term, attributes: Attributes) -> Term:
    """Return sqrt(mean x^2 + eps)."""
    return (
        (x * x).mean(_last(x, attributes), keep=True)
        + number(x.algebra, attributes["eps"], "attributes.eps")
    ).sqrt()


def _centred(x: Term, attributes: Attributes) -> Term:
    return x - x.mean(_last(x, attributes), keep=True)


def _itself(x: Term, _: Attributes) -> Term:
    return x


_Before = Callable[[Term, Attributes], Term]


def _normalised(before: _Before, x: Term, attributes: Attributes) -> Term:
    prepared = before(x, attributes)
    return prepared / _deviation(prepared, attributes)


def _layer(before: _Before) -> Callable[[list[Term], Attributes], list[Term]]:
    def formula(inputs: list[Term], attributes: Attributes) -> list[Term]:
        result = _normalised(before, inputs[0], attributes)
        if len(inputs) > 1:
            result = result * inputs[1]
        if len(inputs) > 2:
            result = result + inputs[2]
        return [result]

    return formula


def _layer_backward(before: _Before) -> Callable[[Local], Sequence[Lazy | None]]:
    """Return the derivative of a layer x'/s, where x' is x, or x - mean x.

    With n = x'/s, s = sqrt(mean x'^2 + eps) and dn = dy w: dx' = (dn - n mean(n dn)) / s. x' = x -
    mean x takes the mean off dx' once more.
    """

    def backward(local: Local) -> Sequence[Lazy | None]:
        x, dy, attributes = local.x, local.dy, local.attributes

        def to_x() -> Term:
            prepared = before(x, attributes)
            s = _deviation(prepared, attributes)
            n, dn = prepared / s, dy * local.inputs[1] if len(local.inputs) > 1 else dy
            return before((dn - n * (n * dn).mean(_last(x, attributes), keep=True)) / s, attributes)

        gradients: list[Lazy | None] = [
            to_x,
            lambda: sum_to(dy * _normalised(before, x, attributes), local.inputs[1].shape),
            lambda: sum_to(dy, local.inputs[2].shape),
        ]
        return gradients[: len(local.inputs)]

    return backward


_LAYER: dict[str, AttributeRole] = {"eps": "literal", "dims": "value"}

OPERATORS = (
    declare(
        "softmax",
        _softmax,
        _softmax_backward,
        attributes={"axis": "axis"},
        required=("axis",),
        traits=(Trait.NORMALIZES,),
        doc="exp(x) / sum exp(x) along `axis`; NaN where all of x is -inf.",
    ),
    declare(
        "log_softmax",
        _log_softmax,
        _log_softmax_backward,
        attributes={"axis": "axis"},
        required=("axis",),
        traits=(Trait.NORMALIZES,),
        doc="x - log sum exp(x) along `axis`; NaN where all of x is -inf.",
    ),
    declare(
        "logsumexp",
        _logsumexp,
        _logsumexp_backward,
        attributes={"axis": "axis", "keepdim": "value"},
        required=("axis",),
        traits=(Trait.NORMALIZES, Trait.BOUNDS_ABOVE),
        doc="log sum exp(x) along `axis`; -inf, with gradient NaN, where all of x is -inf.",
    ),
    declare(
        "layer_norm",
        _layer(_centred),
        _layer_backward(_centred),
        inputs=(1, 3),
        attributes=_LAYER,
        required=("eps",),
        traits=(Trait.NORMALIZES,),
        shared=(1, 2),
        inner="dims",
        doc="(x - mean) / sqrt(mean (x - mean)^2 + `eps`) * weight + bias over the last `dims` "
        "(default 1) dimensions; weight and bias are optional.",
    ),
    declare(
        "rms_norm",
        _layer(_itself),
        _layer_backward(_itself),
        inputs=(1, 3),
        attributes=_LAYER,
        required=("eps",),
        traits=(Trait.NORMALIZES,),
        shared=(1, 2),
        inner="dims",
        doc="x / sqrt(mean x^2 + `eps`) * weight + bias over the last `dims` (default 1) "
        "dimensions; weight and bias are optional.",
    ),
)
