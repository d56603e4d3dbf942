"""Elements at other places, or some of them replaced by zeros: orders, triangles, diagonals.

>>> import numpy as np
>>> from pitcheck.algebra.reals.real import RealAlgebra
>>> from pitcheck.ops.registry import evaluate
>>> reals = RealAlgebra(np, seed=0, trials=(0,))
>>> x = reals.integers(np.array([[[1, 2, 3, 4]]]))
>>> evaluate(reals, "roll", [x], {"axis": 0, "shift": 1})[0].data.tolist()
[[[[4, 1, 2, 3]]]]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pitcheck.errors import ShapeError
from pitcheck.ops.declaration import Attributes
from pitcheck.ops.declare import Backward, Formula, Lazy, Local, declare
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


# --- diagonals


@dataclass(frozen=True)
class _Diagonal:
    """A diagonal of the matrices that two dimensions of a tensor form.

    It begins at ``row`` and ``column`` and has ``length`` elements. ``order`` is the permutation
    that makes the two dimensions the last ones.
    """

    order: tuple[int, ...]
    row: int
    column: int
    length: int

    def rows(self, matrices: Term) -> Term:
        """Return the rows that the diagonal crosses, shape (..., length, columns)."""
        return matrices.slice(-2, self.row, self.row + self.length)

    def columns(self, rows: Term) -> Term:
        """Return the column at which the diagonal crosses each row, int, (..., length, 1)."""
        places = rows.positions(-2) + self.column
        return places.expand((*rows.shape[:-1], 1))


def _diagonal_of(x: Term, attributes: Attributes) -> _Diagonal:
    first, second = x.axes((needed(attributes, "axis"), needed(attributes, "other")))
    offset = int(attributes.get("offset", 0))
    row, column = max(0, -offset), max(0, offset)
    length = max(0, min(x.shape[first] - row, x.shape[second] - column))
    rest = (i for i in range(x.ndim) if i not in (first, second))
    return _Diagonal((*rest, first, second), row if length else 0, column, length)


def _diagonal(inputs: list[Term], attributes: Attributes) -> list[Term]:
    diagonal = _diagonal_of(inputs[0], attributes)
    rows = diagonal.rows(inputs[0].permute(diagonal.order))
    return [rows.take_along(-1, diagonal.columns(rows)).squeeze(-1)]


def _diagonal_backward(local: Local) -> Sequence[Lazy | None]:
    def gradient() -> Term:
        diagonal = _diagonal_of(local.x, local.attributes)
        zeros = local.x.like(0).permute(diagonal.order)
        rows = diagonal.rows(zeros)
        filled = rows.add_along(-1, diagonal.columns(rows), local.dy.unsqueeze(-1))
        below = zeros.slice(-2, diagonal.row + diagonal.length, zeros.shape[-2])
        parts = (zeros.slice(-2, 0, diagonal.row), filled, below)
        whole = concatenate([p for p in parts if p.shape[-2]] or [filled], zeros.ndim - 2)
        return whole.permute(tuple(diagonal.order.index(i) for i in range(zeros.ndim)))

    return [gradient]


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
    declare(
        "diagonal",
        _diagonal,
        _diagonal_backward,
        attributes={"axis": "axis", "other": "axis", "offset": "literal"},
        required=("axis", "other"),
        traits=(Trait.ROUNDS_NOTHING, Trait.TOTAL, Trait.KEEPS_POSITIVE),
        doc="The elements at place i of `axis` and i + `offset` (default 0) of `other`, along a "
        "new last dimension in place of both.",
    ),
)
