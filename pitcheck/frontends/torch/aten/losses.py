"""ATen's loss functions and their derivatives."""

from __future__ import annotations

from pitcheck.frontends.torch.aten.emitter import Emitter, Tensor
from pitcheck.frontends.torch.aten.row import Row, row
from pitcheck.plan.model import Attribute

_REDUCTIONS = ("none", "mean", "sum")


def _reduction(e: Emitter, reduction: int) -> str:
    if not 0 <= reduction < len(_REDUCTIONS):
        raise e.unsupported("reduction", reduction, f"it is 0 to {len(_REDUCTIONS) - 1}")
    return _REDUCTIONS[reduction]


def _unweighted(e: Emitter, **weights: Tensor | None) -> None:
    for name, weight in weights.items():
        if weight is not None:
            raise e.unsupported(name, weight, "weights are not known")


def _ignored(ignore_index: int | None) -> dict[str, Attribute]:
    return {} if ignore_index is None else {"ignore_index": ignore_index}


def _nll(
    e: Emitter,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int | None,
) -> tuple[Tensor, Tensor | None]:
    """Return the loss and the number of places that count.

    That number is read only for a mean; it is None for no reduction. ``ignore_index`` is None if no
    target equals it.
    """
    _unweighted(e, weight=weight)
    kind = _reduction(e, reduction)
    loss = e.op(
        "nll_loss",
        self,
        target,
        shape=e.shape,
        attributes={"reduction": kind, **_ignored(ignore_index)},
    )
    if kind == "none":
        return loss, None
    counted = (
        e.map("eq", target, target, dtype="bool")
        if ignore_index is None
        else e.map("ne", target, ignore_index, dtype="bool")
    )
    counts = e.cast(counted, e.dtype)
    return loss, e.reduce("sum", counts, None, False)


def _nll_backward(
    e: Emitter,
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int | None,
    total_weight: Tensor,
) -> Tensor:
    """Return the gradient of a sum of losses.

    For a mean the gradient is first divided by the number of places, which the forward operator
    returned.
    """
    _unweighted(e, weight=weight)
    kind = _reduction(e, reduction)
    gradient = e.map("div", grad_output, total_weight) if kind == "mean" else grad_output
    said: dict[str, Attribute] = {
        "reduction": "none" if kind == "none" else "sum",
        **_ignored(ignore_index),
        "forward_inputs": 2,
        "forward_outputs": 0,
    }
    return _first(e, "nll_loss.backward", (self, target, gradient), said)


def _first(
    e: Emitter, kind: str, inputs: tuple[Tensor, ...], attributes: dict[str, Attribute]
) -> Tensor:
    """Return the gradient of the first of two operands."""
    x = inputs[0]
    name = e.raw(kind, inputs, [e.target, None], attributes)[0]
    return Tensor(name, x.shape, x.dtype)


def _reduced(e: Emitter, losses: Tensor, reduction: int) -> Tensor:
    kind = _reduction(e, reduction)
    return losses if kind == "none" else e.reduce(kind, losses, None, False)


def _mse(e: Emitter, self: Tensor, target: Tensor, reduction: int) -> Tensor:
    return _reduced(e, e.map("square", e.map("sub", self, target)), reduction)


def _mse_backward(
    e: Emitter, grad_output: Tensor, self: Tensor, target: Tensor, reduction: int
) -> Tensor:
    difference = e.map("sub", self, target)
    if _reduction(e, reduction) != "mean":
        return e.map("mul", e.map("mul", difference, 2), grad_output)
    said: dict[str, Attribute] = {"forward_inputs": 1, "forward_outputs": 0}
    each = e.op(
        "mean.backward",
        difference,
        e.view(grad_output, ()),
        shape=difference.shape,
        attributes=said,
    )
    return e.map("mul", e.map("mul", difference, 2), each)


def _cross_entropy_of_two(
    e: Emitter,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None,
    pos_weight: Tensor | None,
    reduction: int,
) -> Tensor:
    """Return (1 - t) x + log(1 + exp(-x))."""
    _unweighted(e, weight=weight, pos_weight=pos_weight)
    linear = e.map("mul", e.map("sub", 1, target), self)
    return _reduced(e, e.map("add", linear, e.map("softplus", e.map("neg", self))), reduction)


TABLE: dict[str, Row] = {
    **{
        f"nll_loss{d}_forward.default": row(_nll, "self target weight reduction ignore_index")
        for d in ("", "2d")
    },
    **{
        f"nll_loss{d}_backward.default": row(
            _nll_backward, "grad_output self target weight reduction ignore_index total_weight"
        )
        for d in ("", "2d")
    },
    "mse_loss.default": row(_mse, "self target reduction"),
    "mse_loss_backward.default": row(_mse_backward, "grad_output self target reduction"),
    "binary_cross_entropy_with_logits.default": row(
        _cross_entropy_of_two, "self target weight pos_weight reduction"
    ),
}
