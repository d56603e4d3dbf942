"""Elements at other places, or some of them replaced by zeros: orders and triangles."""

from __future__ import annotations

from pitcheck.errors import ShapeError
from pitcheck.ops.declaration import Attributes
from pitcheck.ops.declare import Backward, Formula, declare
from pitcheck.ops.term import Term, concatenate, needed
from pitcheck.ops.traits import Trait

# --- orders


def _flip(x: Term, attributes: Attributes) -> Term:
    for axis in x.axes(needed(attributes, "axes")):
        x = x.flip(axis)
    return x


def _rolled(x: Term, attributes: Attributes, sign: int) -> Term:
    axis = x.axis(needed(attributes, "axis"))
    size = x.shape[axis]
    shift = sign * int(needed(attributes, "shift")) % size if size else 0
    return (
        concatenate([x.slice(axis, size - shift, size), x.slice(axis, 0, size - shift)], axis)
        if shift
        else x
    )


# --- triangles


def _triangle(x: Term, attributes: Attributes, upper: bool) -> Term:
    if x.ndim < 2:
        raise ShapeError(f"a triangle needs at least two dimensions, not shape {x.shape}")
    column, row = x.positions(-1), x.positions(-2) + int(attributes.get("diagonal", 0))
    return column.compare("ge" if upper else "le", row).where(x, x.like(0, x.kind))


def _triangular(upper: bool) -> Formula:
    return lambda inputs, attributes: [_triangle(inputs[0], attributes, upper)]


def _triangular_backward(upper: bool) -> Backward:
    return lambda local: [lambda: _triangle(local.dy, local.attributes, upper)]


_PLACED = (Trait.ROUNDS_NOTHING,)


OPERATORS = (
    declare(
        "flip",
        lambda inputs, attributes: [_flip(inputs[0], attributes)],
        lambda local: [lambda: _flip(local.dy, local.attributes)],
        attributes={"axes": "axes"},
        required=("axes",),
        permutes=True,
        traits=_PLACED,
        doc="The order along each of `axes` reversed.",
    ),
    declare(
        "roll",
        lambda inputs, attributes: [_rolled(inputs[0], attributes, 1)],
        lambda local: [lambda: _rolled(local.dy, local.attributes, -1)],
        attributes={"axis": "axis", "shift": "literal"},
        required=("axis", "shift"),
        permutes=True,
        traits=_PLACED,
        doc="The element at i moves to i + `shift`, modulo the size, along `axis`.",
    ),
    *(
        declare(
            name,
            _triangular(upper),
            _triangular_backward(upper),
            attributes={"diagonal": "literal"},
            traits=_PLACED,
            doc=f"Zeros where column - row {sign} `diagonal` (default 0), in the last two "
            f"dimensions.",
        )
        for name, upper, sign in (("tril", False, ">"), ("triu", True, "<"))
    ),
)
