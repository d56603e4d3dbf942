"""The meaning of every operator over float64 tensors; derivatives are PyTorch's autograd."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from pitcheck.execution import elements
from pitcheck.execution.places import ExecutionError, number

Tensor = torch.Tensor
Attributes = dict[str, Any]
Meaning = Callable[[list[Tensor], Attributes], Any]


def _common(tensors: list[Tensor]) -> list[Tensor]:
    if any(t.is_floating_point() for t in tensors):
        return [t.double() for t in tensors]
    if any(t.dtype == torch.int64 for t in tensors):
        return [t.long() for t in tensors]
    return tensors


def _binary(function: Callable[[Tensor, Tensor], Tensor]) -> Meaning:
    return lambda i, a: function(*_common(i))


def _scaled(function: Callable[[Tensor, Tensor], Tensor]) -> Meaning:
    def meaning(inputs: list[Tensor], attributes: Attributes) -> Tensor:
        a, b = _common(inputs)
        return function(
            a, b * _beside(b, number(attributes["alpha"])) if "alpha" in attributes else b
        )

    return meaning


def _beside(x: Tensor, value: float) -> float:
    """Return a number for use beside ``x``: an integer beside integers if it is whole."""
    return value if x.is_floating_point() or value != int(value) else int(value)


def _unary(function: Callable[[Tensor], Tensor]) -> Meaning:
    return lambda i, a: function(i[0])


def _axes(attributes: Attributes, x: Tensor) -> tuple[int, ...]:
    axes = attributes.get("axes")
    if axes is None:
        return tuple(range(x.ndim))
    return (axes,) if isinstance(axes, int) else tuple(axes)


def _over(function: Callable[[Tensor, tuple[int, ...], bool], Tensor]) -> Meaning:
    def meaning(inputs: list[Tensor], attributes: Attributes) -> Tensor:
        axes = _axes(attributes, inputs[0])
        x = inputs[0].long() if inputs[0].dtype == torch.bool else inputs[0]
        return function(x, axes, bool(attributes.get("keepdim", False))) if axes else x

    return meaning


def _clamp(inputs: list[Tensor], attributes: Attributes) -> Tensor:
    low, high = attributes.get("min"), attributes.get("max")
    return inputs[0].clamp(
        *(None if bound is None else _beside(inputs[0], number(bound)) for bound in (low, high))
    )


def _chunk(inputs: list[Tensor], attributes: Attributes) -> Tensor:
    x, axis, count, position = (
        inputs[0],
        attributes["axis"],
        attributes["count"],
        attributes["position"],
    )
    if x.shape[axis] % count or not 0 <= position < count:
        raise ExecutionError(f"no part {position} of {count} of {x.shape[axis]}")
    size = x.shape[axis] // count
    return x.narrow(axis, position * size, size)


def reduced(tensors: list[Tensor], reduction: str) -> Tensor:
    """Return the members' tensors combined.

    Raises ExecutionError for an unknown reduction.
    """
    stack = torch.stack(tensors)
    if reduction == "sum":
        return stack.sum(0)
    if reduction == "avg":
        return stack.mean(0)
    if reduction == "max":
        return stack.amax(0)
    if reduction == "min":
        return stack.amin(0)
    if reduction == "product":
        return stack.prod(0)
    raise ExecutionError(f"unknown reduction {reduction}")


MEANINGS: dict[str, Meaning] = {
    "add": _scaled(torch.add),
    "sub": _scaled(torch.sub),
    "mul": _binary(torch.mul),
    "div": _binary(torch.true_divide),
    "neg": _unary(torch.neg),
    "pow": lambda i, a: i[0] ** number(a["exponent"]),
    "square": _unary(torch.square),
    "reciprocal": _unary(torch.reciprocal),
    "sqrt": _unary(torch.sqrt),
    "rsqrt": _unary(torch.rsqrt),
    "exp": _unary(torch.exp),
    "log": _unary(torch.log),
    "abs": _unary(torch.abs),
    "sign": _unary(torch.sign),
    "clamp": _clamp,
    "sigmoid": _unary(torch.sigmoid),
    "silu": _unary(F.silu),
    "tanh": _unary(torch.tanh),
    "softplus": _unary(F.softplus),
    "relu": _unary(torch.relu),
    "erf": _unary(torch.erf),
    "sin": _unary(torch.sin),
    "cos": _unary(torch.cos),
    "gelu": lambda i, a: F.gelu(i[0], approximate=a.get("approximate", "none")),
    "linear": lambda i, a: F.linear(*i),
    "matmul": lambda i, a: torch.matmul(*i),
    "bmm": lambda i, a: torch.bmm(*i),
    "softmax": lambda i, a: i[0].softmax(a["axis"]),
    "sum": _over(lambda x, axes, keep: x.sum(axes, keep)),
    "mean": _over(lambda x, axes, keep: x.mean(axes, keep)),
    "view": lambda i, a: i[0].reshape(a["sizes"]),
    "reshape": lambda i, a: i[0].reshape(a["sizes"]),
    "transpose": lambda i, a: i[0].transpose(a["dim0"], a["dim1"]),
    "identity": _unary(lambda x: x),
    "contiguous": _unary(lambda x: x),
    "multiref": lambda i, a: [i[0]] * a["count"],
    "chunk": _chunk,
    "cat": lambda i, a: torch.cat(i, a["axis"]),
    "amax": _over(lambda x, axes, keep: x.amax(axes, keep)),
    "amin": _over(lambda x, axes, keep: x.amin(axes, keep)),
    "maximum": _binary(torch.maximum),
    "minimum": _binary(torch.minimum),
    "floor_divide": _binary(torch.floor_divide),
    "remainder": _binary(torch.remainder),
    **elements.MEANINGS,
}


def forward(kind: str, inputs: list[Tensor], attributes: Attributes) -> list[Tensor | None]:
    """Return the outputs of an operator.

    Raises ExecutionError for an unknown operator.
    """
    if kind not in MEANINGS:
        raise ExecutionError(f"unknown operator {kind}")
    result = MEANINGS[kind](inputs, attributes)
    return list(result) if isinstance(result, (list, tuple)) else [result]


BOOKKEEPING = ("forward_inputs", "forward_outputs", "gradients", "wanted")


def backward(
    kind: str, inputs: list[Tensor], attributes: Attributes, wanted: list[bool]
) -> list[Tensor | None]:
    """Return the gradients of the forward inputs, None for those not wanted.

    ``inputs`` are the forward inputs, the forward outputs, and the gradients of the outputs; the
    forward outputs are computed anew. Raises ExecutionError for inputs that do not fit.
    """
    outputs = attributes.get("forward_outputs", 1)
    given = attributes.get("gradients", tuple(range(max(outputs, 1))))
    count = attributes.get("forward_inputs", len(inputs) - outputs - len(given))
    if count + outputs + len(given) != len(inputs) or count < 1:
        raise ExecutionError(f"{kind}.backward has {len(inputs)} inputs")
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs[:count]]
    plain = {k: v for k, v in attributes.items() if k not in BOOKKEEPING}
    with torch.enable_grad():
        results = forward(kind, leaves, plain)
    gradients = inputs[count + outputs :]
    pairs = [(results[i], g) for i, g in zip(given, gradients, strict=True)]
    for result, given_gradient in pairs:
        if result is not None and result.shape != given_gradient.shape:
            raise ExecutionError(
                f"{kind}.backward: a gradient of shape {tuple(given_gradient.shape)} for an "
                f"output of shape {tuple(result.shape)}"
            )
    chosen = [
        leaf for leaf, want in zip(leaves, wanted, strict=True) if want and leaf.requires_grad
    ]
    if not chosen:
        return [None] * count
    found: Iterator[Any] = iter(
        torch.autograd.grad(
            [r for r, _ in pairs if r is not None], chosen, [g for _, g in pairs], allow_unused=True
        )
    )
    answers: list[Tensor | None] = []
    for leaf, want in zip(leaves, wanted, strict=True):
        if not (want and leaf.requires_grad):
            answers.append(None)
            continue
        gradient: Tensor | None = next(found)
        answers.append(torch.zeros_like(leaf).detach() if gradient is None else gradient)
    return answers
