"""Reductions over dimensions; `axes` is all of them by default."""

from __future__ import annotations

from collections.abc import Sequence

from pitcheck.ops.declaration import AttributeRole, Attributes
from pitcheck.ops.declare import Lazy, Local, declare
from pitcheck.ops.term import Term

_OVER: dict[str, AttributeRole] = {"axes": "axes", "keepdim": "value"}


def restored(reduced: Term, like: Term, attributes: Attributes) -> Term:
    """What stands for a slice in every element of the slice: a reduced value broadcast back to the shape of ``like``."""
    over = like.axes(attributes.get("axes"))
    kept = reduced.reshape(tuple(1 if i in over else n for i, n in enumerate(like.shape)))
    return kept.expand(like.shape)


def _keep(attributes: Attributes) -> bool:
    return bool(attributes.get("keepdim", False))


def _sum(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [inputs[0].sum(attributes.get("axes"), _keep(attributes))]


def _sum_backward(local: Local) -> Sequence[Lazy | None]:
    return [lambda: restored(local.dy, local.x, local.attributes)]


def _mean(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [inputs[0].mean(attributes.get("axes"), _keep(attributes))]


def _mean_backward(local: Local) -> Sequence[Lazy | None]:
    return [lambda: restored(local.dy / local.x.extent(local.attributes.get("axes")), local.x, local.attributes)]


OPERATORS = (
    declare("sum", _sum, _sum_backward, attributes=_OVER, doc="The sum over `axes`; with `keepdim` they stay with size 1."),
    declare("mean", _mean, _mean_backward, attributes=_OVER, doc="The sum over `axes` divided by the number of elements along them."),
)
