"""Attention and rotary position embedding.

>>> from pitcheck.algebra.dimensions.axes import AxisAlgebra, AxisSystem
>>> from pitcheck.ops.registry import evaluate
>>> axes = AxisAlgebra(AxisSystem())
>>> q, k, v = (axes.tensor((2, length, size)) for length, size in ((5, 8), (7, 8), (7, 4)))
>>> evaluate(axes, "scaled_dot_product_attention", [q, k, v], {})[0].shape
(2, 5, 4)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from pitcheck.errors import PlanError, ShapeError, UnsupportedError
from pitcheck.ops.declaration import Attributes
from pitcheck.ops.declare import Lazy, Local, declare
from pitcheck.ops.meanings.indexing import causal
from pitcheck.ops.meanings.normalization import nothing_left, softmax_gradient, softmax_of
from pitcheck.ops.meanings.views import repeated, unrepeated
from pitcheck.ops.term import Term, concatenate, flag, needed, number, sum_to
from pitcheck.ops.traits import Trait

_HEADS = -3

# --- rotary embedding: (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin) for the pairs of a convention


def _interleaved(attributes: Attributes) -> bool:
    convention = needed(attributes, "convention")
    if convention not in ("half", "interleaved"):
        raise UnsupportedError(
            f"rotary knows the conventions 'half' and 'interleaved', not {convention!r}"
        )
    return bool(convention == "interleaved")


def _rotate(x: Term, interleaved: bool, sign: int = 1) -> Term:
    """Return every pair (x1, x2) turned to (-x2, x1); with ``sign`` -1 turned back."""
    half = x.shape[-1] // 2
    if interleaved:
        pairs = x.reshape((*x.shape[:-1], half, 2))
        first, second = pairs.slice(-1, 0, 1), pairs.slice(-1, 1, 2)
    else:
        first, second = x.slice(-1, 0, half), x.slice(-1, half, 2 * half)
    turned = (-second, first) if sign > 0 else (second, -first)
    return concatenate(turned, -1).reshape(x.shape)


def _angles(values: Term, x: Term, interleaved: bool) -> Term:
    """Return cosines or sines for all d elements, from d of them or one for each pair, d/2."""
    if 2 * values.shape[-1] != x.shape[-1]:
        return values
    return (
        repeated(values, values.ndim - 1, 2) if interleaved else concatenate((values, values), -1)
    )


def _angles_gradient(gradient: Term, values: Term, x: Term, interleaved: bool) -> Term:
    if 2 * values.shape[-1] != x.shape[-1]:
        return sum_to(gradient, values.shape)
    half = values.shape[-1]
    folded = (
        unrepeated(gradient, gradient.ndim - 1, 2)
        if interleaved
        else gradient.slice(-1, 0, half) + gradient.slice(-1, half, 2 * half)
    )
    return sum_to(folded, values.shape)


def _check_rotary(inputs: list[Term]) -> None:
    x, *angles = inputs
    for values in angles:
        if (
            x.ndim < 1
            or values.ndim < 1
            or x.shape[-1] % 2
            or values.shape[-1] not in (x.shape[-1], x.shape[-1] // 2)
        ):
            raise ShapeError(
                f"rotary takes x (..., d) with d even and cos, sin (..., d) or (..., d/2), not "
                f"{x.shape} and {values.shape}"
            )


def _rotary(inputs: list[Term], attributes: Attributes) -> list[Term]:
    _check_rotary(inputs)
    x, interleaved = inputs[0], _interleaved(attributes)
    cos, sin = (_angles(values, x, interleaved) for values in inputs[1:])
    return [x * cos + _rotate(x, interleaved) * sin]


def _rotary_backward(local: Local) -> Sequence[Lazy | None]:
    x, cos, sin = local.inputs
    dy, interleaved = local.dy, _interleaved(local.attributes)

    def to_x() -> Term:
        turned = _rotate(dy * _angles(sin, x, interleaved), interleaved, sign=-1)
        return sum_to(dy * _angles(cos, x, interleaved) + turned, x.shape)

    return [
        to_x,
        lambda: _angles_gradient(dy * x, cos, x, interleaved),
        lambda: _angles_gradient(dy * _rotate(x, interleaved), sin, x, interleaved),
    ]


# --- scaled dot product attention


class _Attention:
    """p = softmax(scale q k^T + mask).

    With ``enable_gqa``, keys and values are repeated for groups of query heads.
    """

    def __init__(self, inputs: list[Term], attributes: Attributes) -> None:
        self.q, k, v = inputs[:3]
        self.mask = inputs[3] if len(inputs) > 3 else None
        self.is_causal = flag(attributes, "is_causal")
        if self.mask is not None and self.is_causal:
            raise PlanError("attention takes a mask or is causal, not both", "attributes.is_causal")
        if min(self.q.ndim, k.ndim, v.ndim) < 2:
            raise ShapeError(
                f"attention takes q (..., l, e), k (..., s, e), v (..., s, f), not "
                f"{self.q.shape}, {k.shape} and {v.shape}"
            )
        self.groups = self._groups(k) if flag(attributes, "enable_gqa") else 1
        self.k, self.v = (
            t if self.groups == 1 else repeated(t, t.axis(_HEADS), self.groups) for t in (k, v)
        )
        scale = attributes.get("scale")
        self.scale = (
            1 / self.q.extent(-1).sqrt()
            if scale is None
            else number(self.q.algebra, scale, "attributes.scale")
        )

    def _groups(self, k: Term) -> int:
        if min(self.q.ndim, k.ndim) < 3 or self.q.shape[_HEADS] % k.shape[_HEADS]:
            raise ShapeError(
                f"the heads of q {self.q.shape} are no multiple of those of k {k.shape}"
            )
        return self.q.shape[_HEADS] // k.shape[_HEADS]

    def probabilities(self) -> Term:
        """Return the softmax; a row that its mask hides wholly is 0 throughout."""
        scores = (self.q @ self.k.swap(-1, -2)) * self.scale
        if self.is_causal:
            return softmax_of(self._hidden(scores, causal(scores)), scores.ndim - 1)
        if self.mask is None:
            return softmax_of(scores, scores.ndim - 1)
        masked = self._hidden(scores, self.mask) if self.mask.kind == "bool" else scores + self.mask
        last = masked.ndim - 1
        return nothing_left(masked, last).where(masked.like(0), softmax_of(masked, last))

    def _hidden(self, scores: Term, visible: Term) -> Term:
        return visible.where(scores, scores.constant(float("-inf")))

    def folded(self, gradient: Term, shape: tuple[int, ...]) -> Term:
        """Return the gradient of keys or values, summed over the query heads that share them."""
        return sum_to(
            gradient
            if self.groups == 1
            else unrepeated(gradient, gradient.axis(_HEADS), self.groups),
            shape,
        )


def _attention(inputs: list[Term], attributes: Attributes) -> list[Term]:
    attention = _Attention(inputs, attributes)
    return [attention.probabilities() @ attention.v]


def _attention_backward(local: Local) -> Sequence[Lazy | None]:
    attention, dy = _Attention(local.inputs, local.attributes), local.dy
    p = cache(attention.probabilities)
    ds = cache(lambda: softmax_gradient(p(), dy @ attention.v.swap(-1, -2), p().ndim - 1))
    gradients: list[Lazy | None] = [
        lambda: sum_to((ds() @ attention.k) * attention.scale, local.inputs[0].shape),
        lambda: attention.folded(
            (ds().swap(-1, -2) @ attention.q) * attention.scale, local.inputs[1].shape
        ),
        lambda: attention.folded(p().swap(-1, -2) @ dy, local.inputs[2].shape),
        lambda: sum_to(ds(), local.inputs[3].shape),
    ]
    return gradients[: len(local.inputs)]


OPERATORS = (
    declare(
        "rotary",
        _rotary,
        _rotary_backward,
        inputs=(3, 3),
        attributes={"convention": "value"},
        required=("convention",),
        permutes=True,
        doc="x (..., d), cos and sin (..., d) or (..., d/2): x cos + rotate(x) sin. `convention` "
        "says what a pair is: 'half' elements i and i + d/2, "
        "'interleaved' elements 2i and 2i + 1; rotate turns every pair (x1, x2) to (-x2, x1).",
    ),
    declare(
        "scaled_dot_product_attention",
        _attention,
        _attention_backward,
        inputs=(3, 4),
        attributes={"is_causal": "value", "scale": "literal", "enable_gqa": "value"},
        traits=(Trait.MULTIPLIES_MATRICES,),
        doc="q (..., l, e), k (..., s, e), v (..., s, f), optional mask: softmax(`scale` q k^T + "
        "mask) v, (..., l, f). A bool mask says what is visible, "
        "any other is added; `is_causal` hides columns beyond the row's number; rows hidden "
        "wholly by a mask give 0. `scale` is 1 / sqrt(e) by default; "
        "with `enable_gqa` k and v are repeated to the heads (dimension -3) of q.",
    ),
)
