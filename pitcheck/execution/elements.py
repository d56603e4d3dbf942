"""Meanings of operators that choose, move or index elements, of losses and of attention."""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from pitcheck.execution.places import ExecutionError, number
from pitcheck.execution.unwritten_memory import UNINITIALISED, unwritten

Tensor = torch.Tensor
Attributes = dict[str, Any]


def _norm(inputs: list[Tensor], attributes: Attributes, centred: bool) -> Tensor:
    x = inputs[0]
    axes = tuple(range(-int(attributes.get("dims", 1)), 0))
    if centred:
        x = x - x.mean(axes, keepdim=True)
    y = x / torch.sqrt((x * x).mean(axes, keepdim=True) + number(attributes["eps"]))
    if len(inputs) > 1:
        y = y * inputs[1]
    return y + inputs[2] if len(inputs) > 2 else y


def _slice(inputs: list[Tensor], attributes: Attributes) -> Tensor:
    x, axis = inputs[0], attributes["axis"]
    start, stop = attributes.get("start", 0), attributes.get("stop", x.shape[axis])
    if not 0 <= start <= stop <= x.shape[axis]:
        raise ExecutionError(f"slice [{start}:{stop}] of {x.shape[axis]}")
    return x.index_select(axis, torch.arange(start, stop, attributes.get("step", 1)))


def _pad(inputs: list[Tensor], attributes: Attributes) -> Tensor:
    x, axis = inputs[0], attributes["axis"]
    pieces = []
    for name in ("before", "after"):
        shape = list(x.shape)
        shape[axis] = int(attributes.get(name, 0))
        pieces.append(torch.full(shape, number(attributes.get("value", 0)), dtype=x.dtype))
    return torch.cat([pieces[0], x, pieces[1]], axis)


def _positions(inputs: list[Tensor], attributes: Attributes) -> Tensor:
    return torch.arange(inputs[0].shape[attributes["axis"]]) + int(attributes.get("offset", 0))


def _boundary(inputs: list[Tensor], attributes: Attributes) -> Tensor:
    _ = inputs[0].shape[attributes["axis"]]
    return torch.tensor(int(attributes["offset"]))


def _causal_mask(inputs: list[Tensor]) -> Tensor:
    queries, keys = inputs[0].shape[-2:]
    return torch.ones(queries, keys, dtype=torch.bool).tril()


def _rotary(inputs: list[Tensor], attributes: Attributes) -> Tensor:
    x, cos, sin = inputs
    half = x.shape[-1] // 2
    interleaved = attributes["convention"] == "interleaved"
    first, second = (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    if cos.shape[-1] != half:
        angles = [
            (a[..., ::2], a[..., 1::2]) if interleaved else (a[..., :half], a[..., half:])
            for a in (cos, sin)
        ]
        (c1, c2), (s1, s2) = angles
    else:
        (c1, c2), (s1, s2) = (cos, cos), (sin, sin)
    y1, y2 = first * c1 - second * s1, second * c2 + first * s2
    return torch.stack([y1, y2], -1).flatten(-2) if interleaved else torch.cat([y1, y2], -1)


def _attention(inputs: list[Tensor], attributes: Attributes) -> Tensor:
    scale = attributes.get("scale")
    return F.scaled_dot_product_attention(
        inputs[0],
        inputs[1],
        inputs[2],
        attn_mask=inputs[3] if len(inputs) > 3 else None,
        is_causal=bool(attributes.get("is_causal", False)),
        scale=None if scale is None else number(scale),
        enable_gqa=bool(attributes.get("enable_gqa", False)),
    )


def _classes_loss(function: Any) -> Any:
    def meaning(inputs: list[Tensor], attributes: Attributes) -> Tensor:
        ignored = attributes.get("ignore_index")
        result: Tensor = function(
            inputs[0],
            inputs[1],
            reduction=attributes.get("reduction", "mean"),
            ignore_index=-(10**6) if ignored is None else ignored,
        )
        return result

    return meaning


def _flattened(x: Tensor, axis: int, count: int) -> tuple[int, ...]:
    """Return the shape of x with ``count`` dimensions from ``axis`` on as one."""
    return (*x.shape[:axis], math.prod(x.shape[axis : axis + count]), *x.shape[axis + count :])


def _cast(inputs: list[Tensor], attributes: Attributes) -> Tensor:
    dtype = attributes["dtype"]
    if dtype == "bool":
        return inputs[0] != 0
    return (
        inputs[0].double()
        if dtype.startswith(("float", "bfloat"))
        else inputs[0].trunc().long()
        if inputs[0].is_floating_point()
        else inputs[0].long()
    )


def _topk(inputs: list[Tensor], attributes: Attributes) -> tuple[Tensor, Tensor]:
    axis = attributes.get("axis", -1)
    values, places = inputs[0].sort(
        dim=axis, descending=attributes.get("largest", True), stable=True
    )
    return values.narrow(axis, 0, attributes["k"]), places.narrow(axis, 0, attributes["k"])


def _extreme(largest: bool) -> Any:
    def meaning(inputs: list[Tensor], attributes: Attributes) -> tuple[Tensor, Tensor]:
        axis, keep = attributes["axis"], bool(attributes.get("keepdim", False))
        places = (inputs[0].argmax if largest else inputs[0].argmin)(axis, keepdim=True)
        values = inputs[0].gather(axis, places)
        return (values, places) if keep else (values.squeeze(axis), places.squeeze(axis))

    return meaning


def _where(inputs: list[Tensor]) -> Tensor:
    a, b = inputs[1:]
    if a.is_floating_point() or b.is_floating_point():
        a, b = a.double(), b.double()
    return torch.where(inputs[0].bool(), a, b)


def _one_hot(inputs: list[Tensor], attributes: Attributes) -> Tensor:
    return (inputs[0].unsqueeze(-1) == torch.arange(attributes["classes"])).long()


def _place(function: Any) -> Any:
    return lambda i, a: function(i[0], a.get("axis"), keepdim=bool(a.get("keepdim", False)))


def _sort(inputs: list[Tensor], attributes: Attributes) -> tuple[Tensor, Tensor]:
    values, places = inputs[0].sort(
        dim=attributes.get("axis", -1),
        descending=bool(attributes.get("descending", False)),
        stable=True,
    )
    return values, places


def _var(inputs: list[Tensor], attributes: Attributes) -> Tensor:
    x = inputs[0]
    axes = attributes.get("axes", tuple(range(x.ndim)))
    return x.var(
        axes,
        correction=attributes.get("correction", 1),
        keepdim=bool(attributes.get("keepdim", False)),
    )


def _every(function: Any) -> Any:
    def meaning(inputs: list[Tensor], attributes: Attributes) -> Tensor:
        result = inputs[0] != 0
        axes = attributes.get("axes", tuple(range(result.ndim)))
        for axis in sorted((a % max(result.ndim, 1) for a in axes), reverse=True):
            result = function(result, axis, bool(attributes.get("keepdim", False)))
        return result

    return meaning


def _filled(sizes: Any, attributes: Attributes, dtype: str) -> Tensor:
    return _cast(
        [torch.full(tuple(sizes), number(attributes["value"]), dtype=torch.float64)],
        {"dtype": dtype},
    )


def _full_like(inputs: list[Tensor], attributes: Attributes) -> Tensor:
    own = (
        "bool"
        if inputs[0].dtype == torch.bool
        else "float64"
        if inputs[0].is_floating_point()
        else "int64"
    )
    return _filled(inputs[0].shape, attributes, attributes.get("dtype", own))


def _compared(function: Any) -> Any:
    return lambda i, a: function(*(t.double() for t in i))


def _logic(function: Any) -> Any:
    return lambda i, a: function(*(t.bool() for t in i))


def _uniform(inputs: list[Tensor], attributes: Attributes) -> Tensor:
    """Return uniform draws: draw number i of a stream is the i-th of one generator.

    The number of an element is its row-major place in the whole.
    """
    shape = tuple(inputs[0].shape)
    whole, start = attributes.get("whole", shape), attributes.get("start", (0,) * len(shape))
    generator = np.random.default_rng(zlib.crc32(str(attributes["stream"]).encode()))
    offset = int(attributes.get("offset", 0))
    draws = torch.from_numpy(generator.random(offset + math.prod(whole))[offset:].reshape(whole))
    for axis, (first, size) in enumerate(zip(start, shape, strict=True)):
        draws = draws.narrow(axis, first, size)
    return draws


def _normal(inputs: list[Tensor], attributes: Attributes) -> Tensor:
    draws: Tensor = torch.special.ndtri(_uniform(inputs, attributes))
    return draws


def _dropout_mask(inputs: list[Tensor], attributes: Attributes) -> Tensor:
    return _uniform(inputs, attributes) >= number(attributes["probability"])


MEANINGS: dict[str, Any] = {
    "scale_by_size": lambda i, a: i[0] * i[0].shape[a["axis"]] ** number(a["exponent"]),
    "layer_norm": lambda i, a: _norm(i, a, True),
    "rms_norm": lambda i, a: _norm(i, a, False),
    "log_softmax": lambda i, a: i[0].log_softmax(a["axis"]),
    "logsumexp": lambda i, a: i[0].logsumexp(a["axis"], bool(a.get("keepdim", False))),
    "permute": lambda i, a: i[0].permute(a["permutation"]),
    "unsqueeze": lambda i, a: i[0].unsqueeze(a["axis"]),
    "squeeze": lambda i, a: i[0].squeeze(a["axis"]),
    "expand": lambda i, a: i[0].expand(a["sizes"]).clone(),
    "detach": lambda i, a: i[0].detach(),
    "slice": _slice,
    "select": lambda i, a: i[0].select(a["axis"], a["index"]),
    "split": lambda i, a: i[0].split(list(a["sizes"]), a["axis"]),
    "unbind": lambda i, a: i[0].unbind(a["axis"]),
    "stack": lambda i, a: torch.stack(i, a["axis"]),
    "pad": _pad,
    "flip": lambda i, a: i[0].flip(a["axes"]),
    "roll": lambda i, a: i[0].roll(a["shift"], a["axis"]),
    "tril": lambda i, a: i[0].tril(a.get("diagonal", 0)),
    "triu": lambda i, a: i[0].triu(a.get("diagonal", 0)),
    "diagonal": lambda i, a: i[0].diagonal(a.get("offset", 0), a["axis"], a["other"]),
    "repeat_interleave": lambda i, a: i[0].repeat_interleave(a["count"], a["axis"]),
    "embedding": lambda i, a: F.embedding(i[0], i[1]),
    "index_select": lambda i, a: i[0][(slice(None),) * a["axis"] + (i[1],)],
    "index_add": lambda i, a: i[0].index_add(
        a["axis"], i[1].flatten(), i[2].reshape(_flattened(i[2], a["axis"] % i[0].ndim, i[1].ndim))
    ),
    "gather": lambda i, a: i[0].gather(a["axis"], i[1]),
    "scatter_add": lambda i, a: i[0].scatter_add(a["axis"], i[1], i[2]),
    "where": lambda i, a: _where(i),
    "masked_fill": lambda i, a: torch.where(i[1].bool(), i[2].to(i[0].dtype), i[0]),
    "one_hot": _one_hot,
    "positions": _positions,
    "boundary": _boundary,
    "causal_mask": lambda i, a: _causal_mask(i),
    "rotary": _rotary,
    "scaled_dot_product_attention": _attention,
    "einsum": lambda i, a: torch.einsum(a["equation"], *i),
    "cross_entropy": _classes_loss(F.cross_entropy),
    "nll_loss": _classes_loss(F.nll_loss),
    "mse_loss": lambda i, a: F.mse_loss(i[0], i[1], reduction=a.get("reduction", "mean")),
    "uniform": _uniform,
    "normal": _normal,
    "dropout_mask": _dropout_mask,
    "dropout": lambda i, a: i[0] * i[1].double() / (1 - number(a["probability"])),
    "cast": _cast,
    "topk": _topk,
    "max": _extreme(True),
    "min": _extreme(False),
    "argmax": _place(torch.argmax),
    "cumsum": lambda i, a: i[0].cumsum(a["axis"]),
    "eq": _compared(torch.eq),
    "ne": _compared(torch.ne),
    "lt": _compared(torch.lt),
    "le": _compared(torch.le),
    "gt": _compared(torch.gt),
    "ge": _compared(torch.ge),
    "logical_and": _logic(torch.logical_and),
    "logical_or": _logic(torch.logical_or),
    "logical_not": _logic(torch.logical_not),
    "logical_xor": _logic(torch.logical_xor),
    "argmin": _place(torch.argmin),
    "sort": _sort,
    "var": _var,
    "any": _every(torch.any),
    "all": _every(torch.all),
    "scatter_value": lambda i, a: i[0].scatter(
        a["axis"], i[1], i[2].to(i[0].dtype).expand(i[1].shape)
    ),
    "full": lambda i, a: _filled(a["sizes"], a, a.get("dtype", "float32")),
    "full_like": _full_like,
    UNINITIALISED: lambda i, a: unwritten(a, (0,)),
    "wait": lambda i, a: i[0].clone(),
}
