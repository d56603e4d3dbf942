"""Operators that move elements without computing: views, slices, joins and copies."""

from __future__ import annotations

from collections.abc import Sequence

from pitcheck.errors import PlanError
from pitcheck.ops.declaration import Attributes
from pitcheck.ops.declare import MANY, Lazy, Local, declare
from pitcheck.ops.term import Term, concatenate, needed


def _view(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [inputs[0].reshape(tuple(needed(attributes, "sizes")))]


def _view_backward(local: Local) -> Sequence[Lazy | None]:
    return [lambda: local.dy.reshape(local.x.shape)]


def _transpose(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [inputs[0].swap(needed(attributes, "dim0"), needed(attributes, "dim1"))]


def _transpose_backward(local: Local) -> Sequence[Lazy | None]:
    return [lambda: local.dy.swap(local.attributes["dim0"], local.attributes["dim1"])]


def _identity(inputs: list[Term], _: Attributes) -> list[Term]:
    return inputs


def _identity_backward(local: Local) -> Sequence[Lazy | None]:
    return [lambda: local.dy]


def _multiref(inputs: list[Term], attributes: Attributes) -> list[Term]:
    count = needed(attributes, "count")
    if count < 1:
        raise PlanError(f"multiref makes at least one copy, not {count}", "attributes.count")
    return inputs * int(count)


def _multiref_backward(local: Local) -> Sequence[Lazy | None]:
    def gradient() -> Term:
        total = local.dy
        for another in local.gradients[1:]:
            total = total + another
        return total

    return [gradient]


def _embedded(part: Term, like: Term, axis: int, start: int) -> Term:
    """``part`` at offset ``start`` along ``axis``, zeros elsewhere, in the shape of ``like``."""
    zeros = like.like(0)
    pieces = [zeros.slice(axis, 0, start), part, zeros.slice(axis, start + part.shape[axis], like.shape[axis])]
    return concatenate([p for p in pieces if p.shape[axis]], axis)


def _chunk(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [inputs[0].part(needed(attributes, "axis"), needed(attributes, "count"), needed(attributes, "position"))]


def _chunk_backward(local: Local) -> Sequence[Lazy | None]:
    def gradient() -> Term:
        axis = local.x.axis(local.attributes["axis"])
        size = local.x.shape[axis] // local.attributes["count"]
        return _embedded(local.dy, local.x, axis, size * local.attributes["position"])

    return [gradient]


def _cat(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [concatenate(inputs, inputs[0].axis(needed(attributes, "axis")))]


def _cat_backward(local: Local) -> Sequence[Lazy | None]:
    axis = local.x.axis(local.attributes["axis"])
    ends = [0]
    for term in local.inputs:
        ends.append(ends[-1] + term.shape[axis])

    def gradient(position: int) -> Lazy:
        return lambda: local.dy.slice(axis, ends[position], ends[position + 1])

    return [gradient(i) for i in range(len(local.inputs))]


OPERATORS = (
    *(
        declare(
            name,
            _view,
            _view_backward,
            attributes={"sizes": "sizes"},
            required=("sizes",),
            permutes=True,
            doc="The same elements, row-major, in shape `sizes`; one size may be -1.",
        )
        for name in ("view", "reshape")
    ),
    declare(
        "transpose",
        _transpose,
        _transpose_backward,
        attributes={"dim0": "axis", "dim1": "axis"},
        required=("dim0", "dim1"),
        doc="Dimensions `dim0` and `dim1` exchanged.",
    ),
    *(declare(name, _identity, _identity_backward, doc="x itself.") for name in ("identity", "contiguous")),
    declare(
        "multiref",
        _multiref,
        _multiref_backward,
        attributes={"count": "value"},
        required=("count",),
        doc="x itself, `count` times; the gradient is the sum of the gradients of the copies.",
    ),
    declare(
        "chunk",
        _chunk,
        _chunk_backward,
        attributes={"axis": "axis", "count": "value", "position": "value"},
        required=("axis", "count", "position"),
        doc="Part number `position` of `count` equal parts of dimension `axis`.",
    ),
    declare("cat", _cat, _cat_backward, inputs=(1, MANY), attributes={"axis": "axis"}, required=("axis",), doc="The inputs joined along `axis`."),
)
