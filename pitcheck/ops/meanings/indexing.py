"""Reading and writing by index, masks, positions and constants. Indices are int values.

>>> import numpy as np
>>> from pitcheck.algebra.reals.real import RealAlgebra
>>> from pitcheck.ops.registry import evaluate
>>> reals = RealAlgebra(np, seed=0, trials=(0,))
>>> x, indices = reals.integers(np.array([[[10, 20, 30]]])), reals.integers(np.array([[[2, 0]]]))
>>> evaluate(reals, "index_select", [x, indices], {"axis": 0})[0].data[0, 0, 0].tolist()
[30, 10]
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from pitcheck.algebra.interface import Algebra, Kind
from pitcheck.errors import ShapeError
from pitcheck.ops.declaration import Attributes, OperatorKind
from pitcheck.ops.declare import Lazy, Local, declare
from pitcheck.ops.meanings.cast import kind_named
from pitcheck.ops.term import Term, concatenate, needed, number, promote, sum_to
from pitcheck.ops.traits import Trait


def _axis(x: Term, attributes: Attributes) -> int:
    return x.axis(needed(attributes, "axis"))


# --- whole rows by index


def _embedding(inputs: list[Term], _: Attributes) -> list[Term]:
    return [inputs[1].take(0, inputs[0])]


def _embedding_backward(local: Local) -> Sequence[Lazy | None]:
    indices, weight = local.inputs

    def gradient() -> Term:
        dy, padding = local.dy, local.attributes.get("padding_idx")
        if padding is not None:
            row = int(padding) % weight.shape[0]
            dy = indices.compare("eq", row).unsqueeze(-1).where(dy.like(0), dy)
        return weight.like(0).add_at(0, indices, dy)

    return [None, gradient]


def _index_select(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [inputs[0].take(_axis(inputs[0], attributes), inputs[1])]


def _index_select_backward(local: Local) -> Sequence[Lazy | None]:
    return [
        lambda: local.x.like(0).add_at(_axis(local.x, local.attributes), local.b, local.dy),
        None,
    ]


def _index_add(inputs: list[Term], attributes: Attributes) -> list[Term]:
    base, indices, source = inputs
    return [base.add_at(_axis(base, attributes), indices, source)]


def _index_add_backward(local: Local) -> Sequence[Lazy | None]:
    return [
        lambda: local.dy,
        None,
        lambda: local.dy.take(_axis(local.dy, local.attributes), local.b),
    ]


# --- single elements by index


def _along(x: Term, indices: Term, attributes: Attributes) -> int:
    """Return the axis that ``indices`` index.

    Along other axes they may leave out the last elements of ``x``.
    """
    axis = _axis(x, attributes)
    if indices.ndim != x.ndim:
        raise ShapeError(
            f"indices of shape {indices.shape} do not index a tensor of shape {x.shape}: the "
            f"number of dimensions differs"
        )
    if any(m > n for i, (m, n) in enumerate(zip(indices.shape, x.shape, strict=True)) if i != axis):
        raise ShapeError(
            f"indices of shape {indices.shape} do not fit a tensor of shape {x.shape} beside axis "
            f"{axis}"
        )
    return axis


def _taken(x: Term, axis: int, indices: Term) -> Term:
    """Return one element of ``x`` per index along ``axis``."""
    for dim, size in enumerate(indices.shape):
        if dim != axis and size != x.shape[dim]:
            x = x.slice(dim, 0, size)
    return x.take_along(axis, indices)


def _added(base: Term, axis: int, indices: Term, source: Term) -> Term:
    """Return ``base`` with ``source`` added, element by element, at ``indices`` along ``axis``.

    Elements of the base beyond the indices along other axes stay.
    """
    for dim, (size, whole) in enumerate(zip(indices.shape, base.shape, strict=True)):
        if dim != axis and size != whole:
            return concatenate(
                (
                    _added(base.slice(dim, 0, size), axis, indices, source),
                    base.slice(dim, size, whole),
                ),
                dim,
            )
    return base.add_along(axis, indices, source)


def _gather(inputs: list[Term], attributes: Attributes) -> list[Term]:
    x, indices = inputs
    return [_taken(x, _along(x, indices, attributes), indices)]


def _gather_backward(local: Local) -> Sequence[Lazy | None]:
    return [
        lambda: _added(
            local.x.like(0), _along(local.x, local.b, local.attributes), local.b, local.dy
        ),
        None,
    ]


def _scatter_add(inputs: list[Term], attributes: Attributes) -> list[Term]:
    base, indices, source = inputs
    return [_added(base, _along(base, indices, attributes), indices, source)]


def _scatter_add_backward(local: Local) -> Sequence[Lazy | None]:
    return [
        lambda: local.dy,
        None,
        lambda: _taken(local.dy, _along(local.dy, local.b, local.attributes), local.b),
    ]


def _written(base: Term, indices: Term, attributes: Attributes) -> Term:
    """Return True for each element of ``base`` that ``indices`` name."""
    hits = _added(
        base.like(0, "int"), _along(base, indices, attributes), indices, indices.like(1, "int")
    )
    return hits.compare("gt", 0)


def _scatter_value(inputs: list[Term], attributes: Attributes) -> list[Term]:
    base, indices, value = inputs
    _scalar(value)
    base, value = promote((base, value))
    return [_written(base, indices, attributes).where(value, base)]


def _scatter_value_backward(local: Local) -> Sequence[Lazy | None]:
    def kept(inside: bool) -> Term:
        written, zeros = _written(local.x, local.b, local.attributes), local.dy.like(0)
        return written.where(local.dy, zeros) if inside else written.where(zeros, local.dy)

    return [lambda: kept(False), None, lambda: kept(True).sum()]


def _scalar(value: Term) -> None:
    if value.ndim:
        raise ShapeError(f"the value that fills is 0-dimensional, not of shape {value.shape}")


# --- choices


def _where(inputs: list[Term], _: Attributes) -> list[Term]:
    a, b = promote(inputs[1:])
    return [inputs[0].cast("bool").where(a, b)]


def _where_backward(local: Local) -> Sequence[Lazy | None]:
    condition, a, b = local.inputs
    zero = local.dy.constant(Fraction(0))
    return [
        None,
        lambda: sum_to(condition.cast("bool").where(local.dy, zero), a.shape),
        lambda: sum_to(condition.cast("bool").where(zero, local.dy), b.shape),
    ]


def _masked_fill(inputs: list[Term], _: Attributes) -> list[Term]:
    x, mask, value = inputs
    _scalar(value)
    filled = mask.cast("bool").where(value.cast(x.kind), x)
    if filled.shape != x.shape:
        raise ShapeError(
            f"a mask of shape {mask.shape} does not broadcast to a tensor of shape {x.shape}"
        )
    return [filled]


def _masked_fill_backward(local: Local) -> Sequence[Lazy | None]:
    x, mask, _ = local.inputs
    zero = local.dy.constant(Fraction(0))
    return [
        lambda: sum_to(mask.cast("bool").where(zero, local.dy), x.shape),
        None,
        lambda: mask.cast("bool").where(local.dy, zero).sum(),
    ]


# --- made from positions


def _one_hot(inputs: list[Term], attributes: Attributes) -> list[Term]:
    classes = (
        inputs[0]
        .constant(Fraction(0), "int")
        .expand((int(needed(attributes, "classes")),))
        .arange(0)
    )
    return [inputs[0].unsqueeze(-1).compare("eq", classes).cast("int")]


def _positions(inputs: list[Term], attributes: Attributes) -> list[Term]:
    x, axis, offset = inputs[0], _axis(inputs[0], attributes), attributes.get("offset", 0)
    return [x.arange(axis) + x.boundary(axis, offset) if offset else x.arange(axis)]


def _boundary(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [inputs[0].boundary(_axis(inputs[0], attributes), needed(attributes, "offset"))]


def _causal_mask(inputs: list[Term], _: Attributes) -> list[Term]:
    return [causal(inputs[0])]


def causal(scores: Term) -> Term:
    """Return True where row i of (..., queries, keys) may see column j: j <= i.

    The result has shape (queries, keys).
    """
    if scores.ndim < 2:
        raise ShapeError(
            f"a causal mask needs scores (..., queries, keys), not shape {scores.shape}"
        )
    return scores.arange(-1).unsqueeze(0).compare("le", scores.arange(-2).unsqueeze(1))


# --- constants


def _full(algebra: Algebra[Any], inputs: Sequence[Any], attributes: Attributes) -> list[Any]:  # noqa: ARG001
    value = number(algebra, needed(attributes, "value"), "attributes.value")
    return [
        value.cast(kind_named(attributes.get("dtype", "float32")))
        .expand(tuple(needed(attributes, "sizes")))
        .value
    ]


def _uninitialised(
    algebra: Algebra[Any], inputs: Sequence[Any], attributes: Attributes
) -> list[Any]:
    """Return zeros, which stand for any contents.

    They do so once no output depends on them (:mod:`pitcheck.refute.uninitialised`).
    """
    return _full(algebra, inputs, {**attributes, "value": 0})


def _full_like(inputs: list[Term], attributes: Attributes) -> list[Term]:
    x = inputs[0]
    return [
        number(x.algebra, needed(attributes, "value"), "attributes.value")
        .cast(_kind(x, attributes))
        .expand(x.shape)
    ]


def _kind(x: Term, attributes: Attributes) -> Kind:
    return kind_named(attributes["dtype"]) if "dtype" in attributes else x.kind


UNINITIALISED = "uninitialised"
"""The operator of memory that nobody has written to."""

_TAKEN = (Trait.TOTAL, Trait.ROUNDS_NOTHING)
_ADDED = (Trait.ADDS_WITHIN, Trait.TOTAL)

OPERATORS = (
    declare(
        "embedding",
        _embedding,
        _embedding_backward,
        inputs=(2, 2),
        attributes={"padding_idx": "literal"},
        shared=(1,),
        inner=0,
        traits=_TAKEN,
        derives_from_inputs=True,
        doc="Int indices (...), weight (n, d) -> (..., d), the rows of weight; row `padding_idx` "
        "gets no gradient.",
    ),
    declare(
        "index_select",
        _index_select,
        _index_select_backward,
        inputs=(2, 2),
        attributes={"axis": "axis"},
        required=("axis",),
        traits=_TAKEN,
        doc="x at int indices along `axis`, which the dimensions of the indices replace.",
    ),
    declare(
        "index_add",
        _index_add,
        _index_add_backward,
        inputs=(3, 3),
        attributes={"axis": "axis"},
        required=("axis",),
        traits=_ADDED,
        doc="Base, int indices, source: base with slice i of source added at position indices[i] "
        "of `axis`; repeats add up.",
    ),
    declare(
        "gather",
        _gather,
        _gather_backward,
        inputs=(2, 2),
        attributes={"axis": "axis"},
        required=("axis",),
        traits=_TAKEN,
        doc="x and int indices, of x's sizes or less but for `axis`: the element of x at the "
        "index along `axis`.",
    ),
    declare(
        "scatter_add",
        _scatter_add,
        _scatter_add_backward,
        inputs=(3, 3),
        attributes={"axis": "axis"},
        required=("axis",),
        traits=_ADDED,
        doc="Base, int indices, source: base with each element of source added at its index along "
        "`axis`; repeats add up.",
    ),
    declare(
        "scatter_value",
        _scatter_value,
        _scatter_value_backward,
        inputs=(3, 3),
        attributes={"axis": "axis"},
        required=("axis",),
        traits=(Trait.ROUNDS_NOTHING,),
        doc="Base, int indices, a 0-dimensional value: base with the value written at each index "
        "along `axis`.",
    ),
    declare(
        "where",
        _where,
        _where_backward,
        inputs=(3, 3),
        in_place=True,
        traits=_TAKEN,
        conditions=(0,),
        masked=1,
        doc="Condition, a, b, which broadcast: a where the condition holds, else b.",
    ),
    declare(
        "masked_fill",
        _masked_fill,
        _masked_fill_backward,
        inputs=(3, 3),
        in_place=True,
        traits=_TAKEN,
        conditions=(1,),
        derives_from_inputs=True,
        masked=0,
        doc="x, mask, a 0-dimensional value: the value where the mask holds, else x.",
    ),
    declare(
        "one_hot",
        _one_hot,
        attributes={"classes": "literal"},
        required=("classes",),
        traits=(Trait.GIVES_BITS,),
        doc="Int indices (...) -> int (..., `classes`): 1 at the index, else 0; an index outside "
        "0 .. `classes` - 1 gives zeros only.",
    ),
    declare(
        "positions",
        _positions,
        attributes={"axis": "axis", "offset": "position"},
        required=("axis",),
        traits=(Trait.READS_SHAPE,),
        doc="`offset` (default 0), `offset` + 1, ... along `axis` of x, 1-dimensional int; the "
        "values of x do not matter.",
    ),
    declare(
        "boundary",
        _boundary,
        attributes={"axis": "axis", "offset": "position"},
        required=("axis", "offset"),
        traits=(Trait.READS_SHAPE,),
        doc="The number `offset`, 0-dimensional int: the place between two shards of what x is a "
        "part of along `axis`; the values of x do not matter. Less 1, it is the last place of the "
        "shard before it.",
    ),
    declare(
        "causal_mask",
        _causal_mask,
        traits=(Trait.READS_SHAPE,),
        doc="x (..., queries, keys) -> bool (queries, keys): column <= row; the values of x do "
        "not matter. Compare `positions` where rows do not begin at 0.",
    ),
    OperatorKind(
        "full",
        _full,
        inputs=(0, 0),
        attributes=MappingProxyType({"sizes": "sizes", "value": "literal", "dtype": "value"}),
        required=("sizes", "value"),
        traits=frozenset({Trait.ROUNDS_NOTHING}),
        doc="A tensor of shape `sizes` filled with `value`, of `dtype` (default float32).",
    ),
    OperatorKind(
        UNINITIALISED,
        _uninitialised,
        inputs=(0, 0),
        attributes=MappingProxyType({"sizes": "sizes", "dtype": "value"}),
        required=("sizes",),
        traits=frozenset({Trait.ROUNDS_NOTHING}),
        doc="Memory of shape `sizes` and `dtype` (default float32) that nobody has written to: "
        "every element is any value, on every coordinate and side, "
        "NaN and infinity too. An output that depends on it is never equivalent.",
    ),
    declare(
        "full_like",
        _full_like,
        attributes={"value": "literal", "dtype": "value"},
        required=("value",),
        traits=(Trait.READS_SHAPE, Trait.TOTAL, Trait.ROUNDS_NOTHING),
        doc="A tensor of the shape of x filled with `value`, of `dtype` (default: the kind of x).",
    ),
)
