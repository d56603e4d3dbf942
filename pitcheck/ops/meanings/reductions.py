"""Reductions over dimensions, sorting and running sums.

`axes` is all dimensions by default; with `keepdim` they stay with size 1.

>>> import numpy as np
>>> from pitcheck.algebra.reals.real import RealAlgebra
>>> from pitcheck.ops.registry import evaluate
>>> reals = RealAlgebra(np, seed=0, trials=(0,))
>>> x = reals.integers(np.array([[[3, 1, 2]]]))
>>> [v.data[0, 0, 0].tolist() for v in evaluate(reals, "sort", [x], {"axis": 0})]
[[1, 2, 3], [1, 2, 0]]
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod

from pitcheck.errors import ShapeError, UnsupportedError
from pitcheck.ops.declaration import AttributeRole, Attributes
from pitcheck.ops.declare import Formula, Lazy, Local, declare
from pitcheck.ops.term import Term, flag, needed, number
from pitcheck.ops.traits import Trait

_OVER: dict[str, AttributeRole] = {"axes": "axes", "keepdim": "value"}
_ALONG: dict[str, AttributeRole] = {"axis": "axis", "keepdim": "value"}


def restored(reduced: Term, like: Term, attributes: Attributes) -> Term:
    """Return a reduced value broadcast back to the shape of ``like``.

    Every element of a slice gets the value of its slice.
    """
    over = like.axes(attributes.get("axes"))
    kept = reduced.reshape(tuple(1 if i in over else n for i, n in enumerate(like.shape)))
    return kept.expand(like.shape)


# --- sums


def _sum(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [inputs[0].sum(attributes.get("axes"), flag(attributes, "keepdim"))]


def _sum_backward(local: Local) -> Sequence[Lazy | None]:
    return [lambda: restored(local.dy, local.x, local.attributes)]


def _mean(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [inputs[0].mean(attributes.get("axes"), flag(attributes, "keepdim"))]


def _mean_backward(local: Local) -> Sequence[Lazy | None]:
    return [
        lambda: restored(
            local.dy / local.x.extent(local.attributes.get("axes")), local.x, local.attributes
        )
    ]


def _freedom(x: Term, attributes: Attributes) -> Term:
    """Return the number of elements less the correction, by which the squares are divided."""
    correction = number(x.algebra, attributes.get("correction", 1), "attributes.correction")
    axes = x.axes(attributes.get("axes"))
    if prod(x.shape[i] for i in axes) < Fraction(str(attributes.get("correction", 1))):
        raise UnsupportedError(
            f"a variance over fewer elements than its correction "
            f"{attributes.get('correction', 1)} has no meaning here"
        )
    return x.extent(axes) - correction


def _centred(x: Term, attributes: Attributes) -> Term:
    return x - x.mean(attributes.get("axes"), keep=True)


def _var(inputs: list[Term], attributes: Attributes) -> list[Term]:
    x = inputs[0]
    centred = _centred(x, attributes)
    return [
        (centred * centred).sum(attributes.get("axes"), flag(attributes, "keepdim"))
        / _freedom(x, attributes)
    ]


def _var_backward(local: Local) -> Sequence[Lazy | None]:
    def gradient() -> Term:
        scaled = restored(
            2 * local.dy / _freedom(local.x, local.attributes), local.x, local.attributes
        )
        return scaled * _centred(local.x, local.attributes)

    return [gradient]


# --- extremes


def _extreme_value(least: bool) -> Formula:
    return lambda inputs, attributes: [
        inputs[0].maximum_over(attributes.get("axes"), flag(attributes, "keepdim"), least)
    ]


def _extreme_value_backward(local: Local) -> Sequence[Lazy | None]:
    """Share the gradient evenly among all elements that equal the extreme."""

    def gradient() -> Term:
        axes = local.attributes.get("axes")
        hit = local.x.compare("eq", restored(local.y, local.x, local.attributes)).cast("field")
        return hit / hit.sum(axes, keep=True) * restored(local.dy, local.x, local.attributes)

    return [gradient]


def _first(x: Term, axis: int, least: bool) -> Term:
    """Return the position of the first extreme along ``axis``, which keeps size 1."""
    if x.shape[axis] == 0:
        raise ShapeError(f"an extreme over dimension {axis} of {x.shape}, which is empty")
    return x.order(axis, descending=not least).slice(axis, 0, 1)


def _dropped(x: Term, axis: int, attributes: Attributes) -> Term:
    return x if flag(attributes, "keepdim") else x.squeeze(axis)


def _extreme(least: bool) -> Formula:
    def formula(inputs: list[Term], attributes: Attributes) -> list[Term]:
        x = inputs[0]
        axis = x.axis(needed(attributes, "axis"))
        return [
            x.maximum_over(axis, flag(attributes, "keepdim"), least),
            _dropped(_first(x, axis, least), axis, attributes),
        ]

    return formula


def _place(least: bool) -> Formula:
    def formula(inputs: list[Term], attributes: Attributes) -> list[Term]:
        x = inputs[0]
        if attributes.get("axis") is None:
            flat = _first(x.reshape((prod(x.shape),)), 0, least)
            return [flat.reshape((1,) * x.ndim if flag(attributes, "keepdim") else ())]
        axis = x.axis(attributes["axis"])
        return [_dropped(_first(x, axis, least), axis, attributes)]

    return formula


def _chosen_backward(local: Local) -> Sequence[Lazy | None]:
    """Give the gradient to the elements whose positions are output 1."""

    def gradient() -> Term:
        axis = local.x.axis(local.attributes.get("axis", -1))
        indices, dy = local.outputs[1], local.dy
        if indices.ndim < local.x.ndim:
            indices, dy = indices.unsqueeze(axis), dy.unsqueeze(axis)
        return local.x.like(0).add_along(axis, indices, dy)

    return [gradient]


# --- orders


def _topk(inputs: list[Term], attributes: Attributes) -> list[Term]:
    x, k = inputs[0], int(needed(attributes, "k"))
    axis = x.axis(attributes.get("axis", -1))
    if not 0 < k <= x.shape[axis]:
        raise ShapeError(
            f"topk takes between 1 and {x.shape[axis]} of dimension {axis} of {x.shape}, not {k}"
        )
    indices = x.order(axis, descending=flag(attributes, "largest", True)).slice(axis, 0, k)
    return [x.take_along(axis, indices), indices]


def _sort(inputs: list[Term], attributes: Attributes) -> list[Term]:
    x = inputs[0]
    axis = x.axis(attributes.get("axis", -1))
    indices = x.order(axis, descending=flag(attributes, "descending"))
    return [x.take_along(axis, indices), indices]


# --- running sums


def _running(x: Term, axis: int, upwards: bool) -> Term:
    """Return sums of the elements up to (with ``upwards``: from) each position.

    A triangle chooses among them: no size enters the formula. Those beyond do not enter either, not
    even if they are NaN.
    """
    moved = x.move(axis, -1).unsqueeze(-1)
    source, target = x.arange(axis).unsqueeze(1), x.arange(axis).unsqueeze(0)
    counted = source.compare("ge" if upwards else "le", target)
    return counted.where(moved, moved.like(0, x.kind)).sum(-2).move(-1, axis)


def _cumsum(inputs: list[Term], attributes: Attributes) -> list[Term]:
    x = inputs[0].cast("int") if inputs[0].kind == "bool" else inputs[0]
    return [_running(x, x.axis(needed(attributes, "axis")), upwards=False)]


def _cumsum_backward(local: Local) -> Sequence[Lazy | None]:
    return [lambda: _running(local.dy, local.x.axis(local.attributes["axis"]), upwards=True)]


# --- truth


def _some(x: Term, attributes: Attributes) -> Term:
    return x.cast("int").sum(attributes.get("axes"), flag(attributes, "keepdim")).compare("gt", 0)


def _any(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [_some(inputs[0].cast("bool"), attributes)]


def _all(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [~_some(~inputs[0].cast("bool"), attributes)]


_PICKED = (Trait.ROUNDS_NOTHING,)
_ADDS = (Trait.ADDS_TERMS, Trait.ADDS_ALONG, Trait.TOTAL, Trait.KEEPS_POSITIVE)

OPERATORS = (
    declare(
        "sum",
        _sum,
        _sum_backward,
        attributes=_OVER,
        traits=_ADDS,
        mistaken_for="mean",
        doc="The sum over `axes`.",
    ),
    declare(
        "mean",
        _mean,
        _mean_backward,
        attributes=_OVER,
        traits=(*_ADDS, Trait.AVERAGES),
        mistaken_for="sum",
        doc="The sum over `axes` divided by the number of elements along them.",
    ),
    declare(
        "var",
        _var,
        _var_backward,
        attributes={**_OVER, "correction": "literal"},
        traits=(Trait.NORMALIZES,),
        doc="sum (x - mean)^2 / (n - `correction`) over `axes`, n the number of elements along "
        "them; `correction` is 1 by default.",
    ),
    declare(
        "amax",
        _extreme_value(False),
        _extreme_value_backward,
        attributes=_OVER,
        traits=(*_PICKED, Trait.BOUNDS_ABOVE),
        mistaken_for="amin",
        doc="The maximum over `axes`; equal maxima share the gradient evenly.",
    ),
    declare(
        "amin",
        _extreme_value(True),
        _extreme_value_backward,
        attributes=_OVER,
        traits=_PICKED,
        mistaken_for="amax",
        doc="The minimum over `axes`; equal minima share the gradient evenly.",
    ),
    declare(
        "max",
        _extreme(False),
        _chosen_backward,
        attributes=_ALONG,
        required=("axis",),
        traits=(Trait.ROUNDS_NOTHING, Trait.PICKS_PLACES, Trait.BOUNDS_ABOVE),
        doc="Values and int positions of the maximum along `axis`; of equal maxima the first, "
        "which gets the whole gradient.",
    ),
    declare(
        "min",
        _extreme(True),
        _chosen_backward,
        attributes=_ALONG,
        required=("axis",),
        traits=_PICKED,
        doc="Values and int positions of the minimum along `axis`; of equal minima the first, "
        "which gets the whole gradient.",
    ),
    declare(
        "argmax",
        _place(False),
        attributes=_ALONG,
        traits=(
            Trait.STEPS,
            Trait.PICKS_PLACES,
        ),
        doc="The int position of the first maximum along `axis`, or without `axis` in row-major "
        "order.",
    ),
    declare(
        "argmin",
        _place(True),
        attributes=_ALONG,
        traits=(Trait.STEPS,),
        doc="The int position of the first minimum along `axis`, or without `axis` in row-major "
        "order.",
    ),
    declare(
        "topk",
        _topk,
        _chosen_backward,
        attributes={"k": "literal", "axis": "axis", "largest": "value"},
        required=("k",),
        traits=(Trait.ROUNDS_NOTHING, Trait.PICKS_PLACES),
        doc="Values and int positions of the `k` greatest (`largest` false: least) elements along "
        "`axis` (default -1), in order; of equal ones the first.",
    ),
    declare(
        "sort",
        _sort,
        _chosen_backward,
        attributes={"axis": "axis", "descending": "value"},
        traits=_PICKED,
        permutes=True,
        doc="Values and int positions of the elements in order along `axis` (default -1); equal "
        "ones keep their order.",
    ),
    declare(
        "cumsum",
        _cumsum,
        _cumsum_backward,
        attributes={"axis": "axis"},
        required=("axis",),
        traits=(Trait.ADDS_WITHIN,),
        doc="The sum of all elements up to each, along `axis`.",
    ),
    declare(
        "any",
        _any,
        attributes=_OVER,
        mistaken_for="all",
        traits=(Trait.STEPS,),
        doc="True if an element along `axes` is not 0 or false.",
    ),
    declare(
        "all",
        _all,
        attributes=_OVER,
        traits=(Trait.STEPS,),
        doc="True if no element along `axes` is 0 or false.",
    ),
)
