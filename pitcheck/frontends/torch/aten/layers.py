"""ATen's softmax, normalisation layers, attention and dropout, with their derivatives.

The derivatives read what the forward operators have returned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pitcheck.frontends.torch.aten.emitter import Emitter, Operand, Tensor
from pitcheck.frontends.torch.aten.row import Row, row
from pitcheck.plan.model import Attribute

_INFINITY = float("inf")
_EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}

# --- softmax


def _softmax_like(kind: str) -> Callable[[Emitter, Tensor, int, bool], Tensor]:
    def meaning(e: Emitter, self: Tensor, dim: int, _half_to_float: bool) -> Tensor:
        return softmax(e, self, dim, kind)

    return meaning


def softmax(e: Emitter, x: Tensor, dim: int, kind: str = "softmax") -> Tensor:
    """Return a softmax along a dimension; a single number is given that dimension."""
    if x.ndim == 0:
        return e.view(softmax(e, e.unsqueeze(x, 0), 0, kind), ())
    numbers = e.numeric(x)
    return e.map(kind, numbers, attributes={"axis": dim % x.ndim})


def _safe_softmax(e: Emitter, self: Tensor, dim: int) -> Tensor:
    """Return a softmax that is 0 where all of a row is -inf."""
    hidden = e.reduce("all", e.map("eq", self, -_INFINITY, dtype="bool"), (dim,), True)
    return e.map("where", hidden, 0, softmax(e, self, dim))


def _softmax_backward(e: Emitter, grad_output: Tensor, output: Tensor, dim: int) -> Tensor:
    """Return y (dy - sum y dy)."""
    total = e.reduce("sum", e.map("mul", output, grad_output), (dim,), True)
    return e.map("mul", output, e.map("sub", grad_output, total))


def _log_softmax_backward(e: Emitter, grad_output: Tensor, output: Tensor, dim: int) -> Tensor:
    """Return dy - exp(y) sum dy."""
    total = e.reduce("sum", grad_output, (dim,), True)
    return e.map("sub", grad_output, e.map("mul", e.map("exp", output), total))


# --- normalisation: with the statistics that the forward operator gives, which the derivative reads


def _last(x: Tensor, normalized_shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(range(x.ndim - len(normalized_shape), x.ndim))


def _reciprocal_deviation(e: Emitter, x: Tensor, over: tuple[int, ...], eps: float) -> Tensor:
    """Return 1 / sqrt(mean x^2 + eps)."""
    return e.map("rsqrt", e.map("add", e.reduce("mean", e.map("square", x), over, True), eps))


def _scaled(e: Emitter, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    result = x if weight is None else e.map("mul", x, weight)
    return result if bias is None else e.map("add", result, bias)


def _layer_norm(
    e: Emitter,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    over = _last(input, normalized_shape)
    mean = e.reduce("mean", input, over, True)
    centred = e.map("sub", input, mean)
    rstd = _reciprocal_deviation(e, centred, over, eps)
    return _scaled(e, e.map("mul", centred, rstd), weight, bias), mean, rstd


def _rms_norm(
    e: Emitter,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    eps: float | None,
) -> tuple[Tensor, Tensor]:
    if eps is None and input.dtype not in _EPSILON:
        raise e.unsupported("eps", eps, f"the least number of {input.dtype} is not known")
    rstd = _reciprocal_deviation(
        e, input, _last(input, normalized_shape), _EPSILON[input.dtype] if eps is None else eps
    )
    return _scaled(e, e.map("mul", input, rstd), weight, None), rstd


def _to_input(e: Emitter, n: Tensor, dn: Tensor, rstd: Tensor, over: tuple[int, ...]) -> Tensor:
    """Return (dn - n mean(n dn)) rstd, where n is the normalised input."""
    mean = e.reduce("mean", e.map("mul", n, dn), over, True)
    return e.map("mul", e.map("sub", dn, e.map("mul", n, mean)), rstd)


def _summed(e: Emitter, x: Tensor, normalized_shape: Sequence[int]) -> Tensor:
    """Return the sum over all dimensions that are not normalised."""
    rows = x.ndim - len(normalized_shape)
    return e.reduce("sum", x, tuple(range(rows)), False) if rows else x


def _layer_norm_backward(
    e: Emitter,
    grad_out: Tensor,
    input: Tensor,
    normalized_shape: Sequence[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    output_mask: Sequence[bool],
) -> Sequence[Tensor | None]:
    over = _last(input, normalized_shape)
    n = e.map("mul", e.map("sub", input, mean), rstd)
    dn = _scaled(e, grad_out, weight, None)
    to_input = None
    if output_mask[0]:
        through = _to_input(e, n, dn, rstd, over)
        to_input = e.map("sub", through, e.reduce("mean", through, over, True))
    to_weight = (
        _summed(e, e.map("mul", grad_out, n), normalized_shape)
        if output_mask[1] and weight is not None
        else None
    )
    return (
        to_input,
        to_weight,
        _summed(e, grad_out, normalized_shape) if output_mask[2] and bias is not None else None,
    )


def _rms_norm_backward(
    e: Emitter,
    grad_out: Tensor,
    input: Tensor,
    normalized_shape: Sequence[int],
    rstd: Tensor,
    weight: Tensor | None,
    output_mask: Sequence[bool],
) -> Sequence[Tensor | None]:
    n = e.map("mul", input, rstd)
    to_input = (
        _to_input(e, n, _scaled(e, grad_out, weight, None), rstd, _last(input, normalized_shape))
        if output_mask[0]
        else None
    )
    return to_input, _summed(e, e.map("mul", grad_out, n), normalized_shape) if output_mask[
        1
    ] and weight is not None else None


# --- attention


def _check_attention(
    e: Emitter, query: Tensor, key: Tensor, value: Tensor, dropout_p: float
) -> None:
    if dropout_p != 0:
        raise e.unsupported(
            "dropout_p",
            dropout_p,
            "a trace does not say which random numbers are drawn; train with dropout 0",
        )
    heads, own = query.shape[-3], key.shape[-3]
    if (
        query.shape[:-3] != key.shape[:-3]
        or key.shape[:-1] != value.shape[:-1]
        or not own
        or heads % own
    ):
        raise e.unsupported(
            "key",
            key,
            f"its heads are not those of query {query.shape}, nor is one of them there for "
            f"equally many of these",
        )


def _per_query_head(e: Emitter, x: Tensor, query: Tensor) -> Tensor:
    """Return keys or values with a head for every head of the queries.

    With grouped queries each of fewer heads serves as many successive heads of the queries.
    """
    count = query.shape[-3] // x.shape[-3]
    if count == 1:
        return x
    return e.op(
        "repeat_interleave",
        x,
        shape=(*x.shape[:-3], query.shape[-3], *x.shape[-2:]),
        attributes={"count": count, "axis": x.ndim - 3},
    )


def _per_own_head(e: Emitter, gradient: Tensor, x: Tensor) -> Tensor:
    """Return the sum over the heads of the queries that each head of ``x`` serves.

    It is the derivative of :func:`_per_query_head`.
    """
    own = x.shape[-3]
    if gradient.shape[-3] == own:
        return gradient
    apart = e.view(
        gradient, (*gradient.shape[:-3], own, gradient.shape[-3] // own, *gradient.shape[-2:])
    )
    return e.reduce("sum", apart, (apart.ndim - 3,), False)


def _scores(
    e: Emitter,
    query: Tensor,
    key: Tensor,
    is_causal: bool,
    attn_mask: Tensor | None,
    scale: float | None,
) -> Tensor:
    """Return scale * q k^T + mask; the scale is 1 / sqrt(the last dimension) by default."""
    if is_causal and attn_mask is not None:
        raise e.unsupported("attn_mask", attn_mask, "it is causal as well")
    scores = e.matmul(_by_scale(e, query, scale), e.transpose(key, -2, -1))
    if is_causal:
        visible = e.op("causal_mask", scores, shape=scores.shape[-2:], dtype="bool")
        return e.map("where", visible, scores, -_INFINITY)
    if attn_mask is None:
        return scores
    return (
        e.map("where", attn_mask, scores, -_INFINITY)
        if attn_mask.dtype == "bool"
        else e.map("add", scores, attn_mask)
    )


def _by_scale(e: Emitter, x: Tensor, scale: float | None) -> Tensor:
    if scale is None:
        return e.map("scale_by_size", x, attributes={"axis": x.ndim - 1, "exponent": "-1/2"})
    return e.map("mul", x, scale)


def _attention(
    e: Emitter,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float,
    is_causal: bool,
    attn_mask: Tensor | None,
    scale: float | None,
) -> tuple[Tensor, Tensor]:
    _check_attention(e, query, key, value, dropout_p)
    key, value = (_per_query_head(e, x, query) for x in (key, value))
    scores = _scores(e, query, key, is_causal, attn_mask, scale)
    total = e.op("logsumexp", scores, shape=scores.shape[:-1], attributes={"axis": scores.ndim - 1})
    said: dict[str, Attribute] = {
        **({"is_causal": True} if is_causal else {}),
        **({} if scale is None else {"scale": scale}),
    }
    operands = (query, key, value, *(() if attn_mask is None else (attn_mask,)))
    return e.op(
        "scaled_dot_product_attention",
        *operands,
        shape=(*query.shape[:-1], value.shape[-1]),
        attributes=said,
    ), total


def _attention_backward(
    e: Emitter,
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    attn_mask: Tensor | None,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of query, key and value.

    With p = exp(s - logsumexp) of the scores s they follow from ds = p (do v^T - sum do o). The
    sums in ``logsumexp`` and ``out`` may run over more keys than these, as in ring attention.
    """
    _check_attention(e, query, key, value, dropout_p)
    own_key, own_value = key, value
    key, value = (_per_query_head(e, x, query) for x in (key, value))
    total = e.unsqueeze(logsumexp, -1)
    p = e.map("exp", e.map("sub", _scores(e, query, key, is_causal, attn_mask, scale), total))
    if attn_mask is not None:
        p = e.map("where", e.map("eq", total, -_INFINITY, dtype="bool"), 0, p)
    spread = e.reduce("sum", e.map("mul", grad_out, out), (-1,), True)
    ds = e.map("mul", p, e.map("sub", e.matmul(grad_out, e.transpose(value, -2, -1)), spread))
    to_query = _by_scale(e, e.matmul(ds, key), scale)
    to_key, to_value = (
        e.matmul(e.transpose(ds, -2, -1), _by_scale(e, query, scale)),
        e.matmul(e.transpose(p, -2, -1), grad_out),
    )
    return to_query, _per_own_head(e, to_key, own_key), _per_own_head(e, to_value, own_value)


# --- dropout


def _dropout(e: Emitter, input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    if p != 0 and train is not False:
        raise e.unsupported(
            "p", p, "a trace does not say which random numbers are drawn; train with dropout 0"
        )
    return input, e.full(input.shape, True, "bool")


def _dropout_backward(e: Emitter, grad_output: Tensor, mask: Tensor, scale: float) -> Tensor:
    kept: Operand = e.map("mul", grad_output, e.numeric(mask))
    return e.map("mul", kept, scale)


_FLASH = "_scaled_dot_product_flash_attention_for_cpu"

TABLE: dict[str, Row] = {
    "_softmax.default": row(_softmax_like("softmax"), "self dim half_to_float"),
    "_log_softmax.default": row(_softmax_like("log_softmax"), "self dim half_to_float"),
    "_safe_softmax.default": row(_safe_softmax, "self dim dtype"),
    "_softmax_backward_data.default": row(_softmax_backward, "grad_output output dim input_dtype"),
    "_log_softmax_backward_data.default": row(
        _log_softmax_backward, "grad_output output dim input_dtype"
    ),
    "native_layer_norm.default": row(_layer_norm, "input normalized_shape weight bias eps"),
    "native_layer_norm_backward.default": row(
        _layer_norm_backward, "grad_out input normalized_shape mean rstd weight bias output_mask"
    ),
    "_fused_rms_norm.default": row(_rms_norm, "input normalized_shape weight eps"),
    "_fused_rms_norm_backward.default": row(
        _rms_norm_backward, "grad_out input normalized_shape rstd weight output_mask"
    ),
    f"{_FLASH}.default": row(_attention, "query key value dropout_p is_causal attn_mask scale"),
    f"{_FLASH}_backward.default": row(
        _attention_backward,
        "grad_out query key value out logsumexp dropout_p is_causal attn_mask scale",
    ),
    "native_dropout.default": row(_dropout, "input p train"),
    "native_dropout_backward.default": row(_dropout_backward, "grad_output mask scale"),
}
