"""Softmax and normalisation layers."""

from __future__ import annotations

from collections.abc import Sequence

from pitcheck.ops.declaration import Attributes
from pitcheck.ops.declare import Lazy, Local, declare
from pitcheck.ops.term import Term, needed


def shifted_sum(x: Term, axis: int) -> tuple[Term, Term, Term]:
    """(m, e, s): the maximum along ``axis``, e = exp(x - m) and s the sum of e; m and s keep the dimension.

    The maximum cancels in every formula; it keeps floating point in range.
    """
    m = x.maximum_over(axis, keep=True)
    e = (x - m).exp()
    return m, e, e.sum(axis, keep=True)


def softmax_of(x: Term, axis: int) -> Term:
    """exp(x - m) / sum exp(x - m) along ``axis``."""
    _, e, s = shifted_sum(x, axis)
    return e / s


def log_sum_exp_of(x: Term, axis: int) -> Term:
    """m + log sum exp(x - m) along ``axis``, which keeps size 1."""
    m, _, s = shifted_sum(x, axis)
    return m + s.log()


def softmax_gradient(y: Term, dy: Term, axis: int) -> Term:
    """y (dy - sum y dy)."""
    return y * (dy - (y * dy).sum(axis, keep=True))


def _axis(x: Term, attributes: Attributes) -> int:
    return x.axis(needed(attributes, "axis"))


def _softmax(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [softmax_of(inputs[0], _axis(inputs[0], attributes))]


def _softmax_backward(local: Local) -> Sequence[Lazy | None]:
    return [lambda: softmax_gradient(local.y, local.dy, _axis(local.x, local.attributes))]


OPERATORS = (
    declare(
        "softmax",
        _softmax,
        _softmax_backward,
        attributes={"axis": "axis"},
        required=("axis",),
        doc="exp(x) / sum exp(x) along `axis`. A slice that is -inf throughout is NaN.",
    ),
)
