"""Views, copies and repetitions: all elements of a tensor in another shape.

>>> from pitcheck.algebra.dimensions.axes import AxisAlgebra, AxisSystem
>>> from pitcheck.ops.registry import evaluate
>>> axes = AxisAlgebra(AxisSystem())
>>> evaluate(axes, "reshape", [axes.tensor((4, 6))], {"sizes": (2, -1)})[0].shape
(2, 12)
"""

from __future__ import annotations

from collections.abc import Sequence

from pitcheck.errors import PlanError, ShapeError
from pitcheck.ops.declaration import Attributes
from pitcheck.ops.declare import Lazy, Local, declare
from pitcheck.ops.term import Term, needed, sum_to
from pitcheck.ops.traits import Trait

# --- views


def _view(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [inputs[0].reshape(tuple(needed(attributes, "sizes")))]


def _view_backward(local: Local) -> Sequence[Lazy | None]:
    return [lambda: local.dy.reshape(local.x.shape)]


def _transpose(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [inputs[0].swap(needed(attributes, "dim0"), needed(attributes, "dim1"))]


def _transpose_backward(local: Local) -> Sequence[Lazy | None]:
    return [lambda: local.dy.swap(local.attributes["dim0"], local.attributes["dim1"])]


def _permute(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [inputs[0].permute(needed(attributes, "permutation"))]


def _permute_backward(local: Local) -> Sequence[Lazy | None]:
    order = local.x.axes(local.attributes["permutation"])
    return [lambda: local.dy.permute(tuple(order.index(i) for i in range(len(order))))]


def _unsqueeze(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [inputs[0].unsqueeze(needed(attributes, "axis"))]


def _squeeze(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [inputs[0].squeeze(needed(attributes, "axis"))]


def _expand(inputs: list[Term], attributes: Attributes) -> list[Term]:
    x, sizes = inputs[0], tuple(needed(attributes, "sizes"))
    extra = len(sizes) - x.ndim
    if (
        extra < 0
        or any(n < 0 for n in sizes[:extra])
        or any(m not in (n, -1) and n != 1 for m, n in zip(sizes[extra:], x.shape, strict=True))
    ):
        raise ShapeError(f"a tensor of shape {x.shape} cannot be expanded to {sizes}")
    return [
        x.expand(
            sizes[:extra]
            + tuple(n if m == -1 else m for m, n in zip(sizes[extra:], x.shape, strict=True))
        )
    ]


def _expand_backward(local: Local) -> Sequence[Lazy | None]:
    return [lambda: sum_to(local.dy, local.x.shape)]


# --- copies


def _identity(inputs: list[Term], _: Attributes) -> list[Term]:
    return inputs


def _identity_backward(local: Local) -> Sequence[Lazy | None]:
    return [lambda: local.dy]


def _no_gradient(local: Local) -> Sequence[Lazy | None]:
    return [None] * len(local.inputs)


def _multiref(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return inputs * _at_least_one(attributes, "count")


def _multiref_backward(local: Local) -> Sequence[Lazy | None]:
    def gradient() -> Term:
        total = local.dy
        for another in local.gradients[1:]:
            total = total + another
        return total

    return [gradient]


def _at_least_one(attributes: Attributes, name: str) -> int:
    count = int(needed(attributes, name))
    if count < 1:
        raise PlanError(f"{name} is at least 1, not {count}", f"attributes.{name}")
    return count


def _repeat_interleave(inputs: list[Term], attributes: Attributes) -> list[Term]:
    x, count = inputs[0], _at_least_one(attributes, "count")
    axis = x.axis(needed(attributes, "axis"))
    return [repeated(x, axis, count)]


def repeated(x: Term, axis: int, count: int) -> Term:
    """Return every element along ``axis`` ``count`` times, one after the other."""
    before, after = x.shape[: axis + 1], x.shape[axis + 1 :]
    return (
        x.unsqueeze(axis + 1)
        .expand((*before, count, *after))
        .reshape((*before[:-1], before[-1] * count, *after))
    )


def unrepeated(gradient: Term, axis: int, count: int) -> Term:
    """Return the sum over the repetitions that :func:`repeated` made."""
    before, after = gradient.shape[:axis], gradient.shape[axis + 1 :]
    return gradient.reshape((*before, gradient.shape[axis] // count, count, *after)).sum(axis + 1)


def _repeat_interleave_backward(local: Local) -> Sequence[Lazy | None]:
    return [
        lambda: unrepeated(
            local.dy, local.x.axis(local.attributes["axis"]), int(local.attributes["count"])
        )
    ]


_SHOWN = (Trait.SHOWS_ALL, Trait.TOTAL, Trait.KEEPS_POSITIVE, Trait.ROUNDS_NOTHING)
"""The traits of every operator that shows all of its operand and nothing else, in any places."""
_ARRANGED = (*_SHOWN, Trait.REARRANGES)
_ORDERED = (*_ARRANGED, Trait.KEEPS_ORDER)
_HANDED_ON = (Trait.KEEPS_ORDER, Trait.TOTAL, Trait.KEEPS_POSITIVE, Trait.ROUNDS_NOTHING)


OPERATORS = (
    *(
        declare(
            name,
            _view,
            _view_backward,
            attributes={"sizes": "sizes"},
            required=("sizes",),
            permutes=True,
            traits=_ORDERED,
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
        traits=_ARRANGED,
        doc="Dimensions `dim0` and `dim1` exchanged.",
    ),
    declare(
        "permute",
        _permute,
        _permute_backward,
        attributes={"permutation": "value"},
        required=("permutation",),
        traits=_ARRANGED,
        doc="Dimension i of the result is dimension `permutation`[i] of x.",
    ),
    declare(
        "unsqueeze",
        _unsqueeze,
        _view_backward,
        attributes={"axis": "axis"},
        required=("axis",),
        traits=_ORDERED,
        doc="A dimension of size 1 inserted at `axis`.",
    ),
    declare(
        "squeeze",
        _squeeze,
        _view_backward,
        attributes={"axis": "axis"},
        required=("axis",),
        traits=_ORDERED,
        doc="Dimension `axis`, of size 1, removed.",
    ),
    declare(
        "expand",
        _expand,
        _expand_backward,
        attributes={"sizes": "sizes"},
        required=("sizes",),
        traits=_SHOWN,
        doc="x broadcast to shape `sizes`; -1 keeps a size; dimensions may be added in front.",
    ),
    *(
        declare(name, _identity, _identity_backward, traits=_ORDERED, copies=True, doc="x itself.")
        for name in ("identity", "contiguous")
    ),
    declare(
        "detach",
        _identity,
        _no_gradient,
        traits=_HANDED_ON,
        copies=True,
        doc="x itself, without a gradient.",
    ),
    declare(
        "multiref",
        _multiref,
        _multiref_backward,
        attributes={"count": "value"},
        required=("count",),
        copies=True,
        traits=_HANDED_ON,
        doc="x itself, `count` times; the gradient is the sum of the gradients of the copies.",
    ),
    declare(
        "repeat_interleave",
        _repeat_interleave,
        _repeat_interleave_backward,
        attributes={"count": "literal", "axis": "axis"},
        required=("count", "axis"),
        traits=(Trait.ROUNDS_NOTHING,),
        doc="Every element along `axis` `count` times, one after the other.",
    ),
)
