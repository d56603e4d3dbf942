"""Matrix products.

>>> from pitcheck.algebra.dimensions.axes import AxisAlgebra, AxisSystem
>>> from pitcheck.ops.registry import evaluate
>>> axes = AxisAlgebra(AxisSystem())
>>> evaluate(axes, "linear", [axes.tensor((2, 5, 8)), axes.tensor((4, 8))], {})[0].shape
(2, 5, 4)
"""

from __future__ import annotations

from collections.abc import Sequence

from pitcheck.errors import ShapeError
from pitcheck.ops.declaration import Attributes
from pitcheck.ops.declare import Lazy, Local, declare
from pitcheck.ops.term import Term, sum_to
from pitcheck.ops.traits import Trait


def _flat(x: Term) -> Term:
    """Return all dimensions but the last as one: (m, k)."""
    return x if x.ndim == 2 else x.reshape((-1, x.shape[-1]))


def _linear(inputs: list[Term], _: Attributes) -> list[Term]:
    x, w = inputs[:2]
    if w.ndim != 2 or x.ndim < 1 or x.shape[-1] != w.shape[1]:
        raise ShapeError(f"linear takes x (..., k) and w (n, k), not {x.shape} and {w.shape}")
    product = x @ w.swap(0, 1) if x.ndim > 1 else (x.unsqueeze(0) @ w.swap(0, 1)).squeeze(0)
    return [product + inputs[2] if len(inputs) == 3 else product]


def _linear_backward(local: Local) -> Sequence[Lazy | None]:
    x, w, dy = local.x, local.inputs[1], local.dy

    def to_x() -> Term:
        return dy @ w if dy.ndim > 1 else (dy.unsqueeze(0) @ w).squeeze(0)

    def to_w() -> Term:
        return _rows(dy).swap(0, 1) @ _rows(x)

    gradients: list[Lazy | None] = [to_x, to_w]
    if len(local.inputs) == 3:
        gradients.append(lambda: sum_to(dy, local.inputs[2].shape))
    return gradients


def _rows(x: Term) -> Term:
    return x.unsqueeze(0) if x.ndim == 1 else _flat(x)


def _pair(inputs: list[Term]) -> tuple[Term, Term]:
    """Return both operands with at least two dimensions.

    A vector becomes a row on the left, a column on the right.
    """
    a, b = inputs
    if a.ndim < 1 or b.ndim < 1:
        raise ShapeError(
            f"matmul takes operands with at least one dimension, not {a.shape} and {b.shape}"
        )
    return (a.unsqueeze(0) if a.ndim == 1 else a), (b.unsqueeze(1) if b.ndim == 1 else b)


def _matmul(inputs: list[Term], _: Attributes) -> list[Term]:
    a, b = _pair(inputs)
    product = a @ b
    if inputs[1].ndim == 1:
        product = product.squeeze(-1)
    if inputs[0].ndim == 1:
        product = product.squeeze(-1 if inputs[1].ndim == 1 else -2)
    return [product]


def _matmul_backward(local: Local) -> Sequence[Lazy | None]:
    a, b = _pair(local.inputs)

    def dy() -> Term:
        gradient = local.dy
        if local.inputs[0].ndim == 1:
            gradient = gradient.unsqueeze(-1 if local.inputs[1].ndim == 1 else -2)
        return gradient.unsqueeze(-1) if local.inputs[1].ndim == 1 else gradient

    return [
        lambda: sum_to(dy() @ b.swap(-1, -2), a.shape).reshape(local.inputs[0].shape),
        lambda: sum_to(a.swap(-1, -2) @ dy(), b.shape).reshape(local.inputs[1].shape),
    ]


def _bmm(inputs: list[Term], attributes: Attributes) -> list[Term]:
    a, b = inputs
    if a.ndim != 3 or b.ndim != 3 or a.shape[0] != b.shape[0]:
        raise ShapeError(f"bmm takes (b, m, k) and (b, k, n), not {a.shape} and {b.shape}")
    return _matmul(inputs, attributes)


_PRODUCT = (Trait.MULTILINEAR, Trait.CONTRACTS, Trait.MULTIPLIES_MATRICES, Trait.TOTAL)

OPERATORS = (
    declare(
        "linear",
        _linear,
        _linear_backward,
        inputs=(2, 3),
        traits=(Trait.CONTRACTS, Trait.MULTIPLIES_MATRICES, Trait.TOTAL),
        shared=(1, 2),
        derives_from_inputs=True,
        doc="x (..., k), w (n, k), optional bias (n,) -> x w^T + bias, (..., n).",
    ),
    declare(
        "matmul",
        _matmul,
        _matmul_backward,
        inputs=(2, 2),
        traits=_PRODUCT,
        shared=(1,),
        derives_from_inputs=True,
        doc="a (..., m, k), b (..., k, n) -> (..., m, n); batch dimensions broadcast; a vector is "
        "a row on the left, a column on the right.",
    ),
    declare(
        "bmm",
        _bmm,
        _matmul_backward,
        inputs=(2, 2),
        traits=_PRODUCT,
        derives_from_inputs=True,
        doc="a (b, m, k), b (b, k, n) -> (b, m, n).",
    ),
)
