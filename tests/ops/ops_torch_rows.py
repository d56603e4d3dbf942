"""The rows that PyTorch is the oracle of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from ops.ops_rows import Array, Row, flags, integers, positive, reals

BROADCASTS = (
    ((3, 4), (3, 4)),
    ((3, 4), (4,)),
    ((2, 1, 4), (3, 1)),
    ((), (2, 3)),
    ((1, 3), (2, 1)),
    ((3, 1), ()),
)


def _binary(kind: str, oracle: Callable[..., Any], **attributes: Any) -> list[Row]:
    return [
        Row(kind, (reals(*a, seed=1), reals(*b, seed=2)), oracle, attributes) for a, b in BROADCASTS
    ]


def _unary(
    kind: str, oracle: Callable[..., Any], make: Callable[..., Array] = reals, **attributes: Any
) -> list[Row]:
    return [Row(kind, (make(*shape),), oracle, attributes) for shape in ((), (5,), (2, 1, 3))]


ARITHMETIC = [
    *_binary("add", torch.add),
    *_binary("add", lambda a, b: torch.add(a, b, alpha=0.5), alpha=0.5),
    Row(
        "add",
        (integers(9, 3), integers(9, 3, seed=1)),
        lambda a, b: torch.add(a, b, alpha=3),
        {"alpha": 3},
        derivative=False,
    ),
    *_binary("sub", torch.sub),
    *_binary("sub", lambda a, b: torch.sub(a, b, alpha=-2), alpha=-2),
    *_binary("mul", torch.mul),
    Row("mul", (reals(3, 4), flags(3, 4)), torch.mul),
    Row("mul", (integers(5, 4), reals(3, 1)), torch.mul),
    *_binary("div", torch.div),
    Row(
        "floor_divide",
        (integers(20, 8) - 10, integers(4, 8, seed=1) + 1),
        torch.floor_divide,
        derivative=False,
    ),
    Row(
        "remainder",
        (integers(20, 8) - 10, integers(4, 8, seed=1) + 1),
        torch.remainder,
        derivative=False,
    ),
    *_unary("neg", torch.neg),
    *(row for e in (0, 1, 2, 3, -1, -2) for row in _unary("pow", lambda x, e=e: x**e, exponent=e)),
    *(
        row
        for e in (0.5, -0.5, 1.5, "-3/2")
        for row in _unary(
            "pow", lambda x, e=e: x ** (-1.5 if e == "-3/2" else e), positive, exponent=e
        )
    ),
    *(
        Row("scale_by_size", (reals(2, 3, 5),), lambda x, e=e: x * 3**e, {"axis": 1, "exponent": e})
        for e in (1, -2, -0.5)
    ),
    Row("scale_by_size", (reals(2, 3, 5),), lambda x: x / 5**0.5, {"axis": -1, "exponent": "-1/2"}),
    *_unary("square", torch.square),
    *_unary("reciprocal", torch.reciprocal),
    *_unary("sqrt", torch.sqrt, positive),
    *_unary("rsqrt", torch.rsqrt, positive),
    *_unary("exp", torch.exp),
    *_unary("log", torch.log, positive),
    *_unary("abs", torch.abs),
    Row("abs", (integers(9, 6) - 4,), torch.abs, derivative=False),
    *_unary("sign", torch.sign),
    *_unary("clamp", lambda x: x.clamp(min=-0.5), min=-0.5),
    *_unary("clamp", lambda x: x.clamp(max=0.75), max=0.75),
    *_unary("clamp", lambda x: x.clamp(-1, 1), min=-1, max=1),
    *_unary("clamp", lambda x: x.clamp(-0.5, float("inf")), min=-0.5, max="inf"),
    Row(
        "clamp",
        (integers(9, 6) - 4,),
        lambda x: x.clamp(0, 3),
        {"min": 0, "max": 3},
        derivative=False,
    ),
]

ACTIVATIONS = [
    *_unary("sigmoid", torch.sigmoid),
    *_unary("silu", F.silu),
    *_unary("tanh", torch.tanh),
    *_unary("softplus", F.softplus),
    *_unary("relu", torch.relu),
    *_unary("erf", torch.erf),
    *_unary("sin", torch.sin),
    *_unary("cos", torch.cos),
    *_unary("gelu", F.gelu),
    *_unary("gelu", F.gelu, approximate="none"),
    *_unary("gelu", lambda x: F.gelu(x, approximate="tanh"), approximate="tanh"),
]

MATRIX = [
    *(
        Row("linear", (reals(*s, 4), reals(3, 4, seed=1)), F.linear)
        for s in ((), (2,), (2, 3), (1, 2, 1))
    ),
    *(
        Row("linear", (reals(*s, 4), reals(3, 4, seed=1), reals(3, seed=2)), F.linear)
        for s in ((), (2,), (2, 3))
    ),
    *(
        Row("matmul", (reals(*a), reals(*b, seed=1)), torch.matmul)
        for a, b in (
            ((4,), (4,)),
            ((4,), (4, 3)),
            ((2, 4), (4,)),
            ((2, 4), (4, 3)),
            ((5, 2, 4), (4,)),
            ((4,), (5, 4, 3)),
            ((5, 2, 4), (4, 3)),
            ((5, 1, 2, 4), (3, 4, 2)),
            ((1, 2, 4), (3, 4, 1)),
        )
    ),
    Row("bmm", (reals(3, 2, 4), reals(3, 4, 5)), torch.bmm),
]

EINSUM = [
    Row(
        "einsum",
        tuple(reals(*shape, seed=i) for i, shape in enumerate(shapes)),
        lambda *xs, e=e: torch.einsum(e, *xs),
        {"equation": e},
    )
    for e, shapes in (
        ("bsh,oh->bso", ((2, 3, 4), (5, 4))),
        ("bhqd,bhkd->bhqk", ((2, 3, 4, 5), (2, 3, 6, 5))),
        ("ij->ji", ((2, 3),)),
        ("ij->", ((2, 3),)),
        ("i,j->ij", ((2,), (3,))),
        ("i,i->", ((4,), (4,))),
        ("ij,jk,kl->li", ((2, 3), (3, 4), (4, 1))),
        ("ij,k->i", ((2, 3), (4,))),
        ("sec, sm -> ecm", ((4, 2, 3), (4, 5))),
        ("i,i,i->i", ((4,), (4,), (4,))),
        (",i->i", ((), (4,))),
    )
]

_INF = float("inf")
_HIDDEN = np.array([[1.0, -_INF, 2.0], [-_INF, -_INF, -_INF], [0.5, 0.25, -_INF]])


def _layer(
    x: torch.Tensor, oracle: Callable[..., torch.Tensor], dims: int, rest: tuple[torch.Tensor, ...]
) -> torch.Tensor:
    return oracle(x, x.shape[x.ndim - dims :], *rest, eps=1e-5)


def _rms(
    x: torch.Tensor, shape: Any, weight: Any = None, bias: Any = None, eps: float = 0.0
) -> torch.Tensor:
    result = F.rms_norm(x, shape, weight, eps)
    return result if bias is None else result + bias


def _layers(kind: str, oracle: Callable[..., torch.Tensor]) -> list[Row]:
    return [
        Row(
            kind,
            (reals(2, 3, 4), *(reals(*(3, 4)[2 - dims :], seed=i) for i in range(extra))),
            lambda x, *r, d=dims: _layer(x, oracle, d, r),
            attributes,
        )
        for extra in (0, 1, 2)
        for dims, attributes in ((1, {"eps": 1e-5}), (2, {"eps": 1e-5, "dims": 2}))
    ]


NORMALIZATION = [
    *(
        Row("softmax", (reals(2, 3, 4),), lambda x, a=a: x.softmax(a), {"axis": a})
        for a in (0, 1, -1)
    ),
    *(
        Row("log_softmax", (reals(2, 3, 4),), lambda x, a=a: x.log_softmax(a), {"axis": a})
        for a in (0, 1, -1)
    ),
    *(
        Row("logsumexp", (reals(2, 3, 4),), lambda x, a=a: x.logsumexp(a), {"axis": a})
        for a in (0, 1, -1)
    ),
    Row(
        "logsumexp",
        (reals(2, 3),),
        lambda x: x.logsumexp(0, keepdim=True),
        {"axis": 0, "keepdim": True},
    ),
    Row("softmax", (1000 * reals(2, 3),), lambda x: x.softmax(0), {"axis": 0}),
    Row("logsumexp", (1000 * reals(2, 3),), lambda x: x.logsumexp(0), {"axis": 0}),
    Row("softmax", (_HIDDEN,), lambda x: x.softmax(-1), {"axis": -1}, derivative=False),
    Row("log_softmax", (_HIDDEN,), lambda x: x.log_softmax(-1), {"axis": -1}, derivative=False),
    Row("logsumexp", (_HIDDEN,), lambda x: x.logsumexp(-1), {"axis": -1}),
    *_layers("layer_norm", F.layer_norm),
    *_layers("rms_norm", _rms),
]


def _rotate_half(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), -1)


def _rotary_half(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    if cos.shape[-1] != x.shape[-1]:
        cos, sin = torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)
    return x * cos + _rotate_half(x) * sin


def _rotary_interleaved(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Multiply complex numbers, or element by element if cos and sin are given twice."""
    if cos.shape[-1] != x.shape[-1]:
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * torch.complex(cos, sin)).flatten(-2)
    even, odd, result = x[..., ::2], x[..., 1::2], torch.empty_like(x * cos)
    result[..., ::2] = even * cos[..., ::2] - odd * sin[..., ::2]
    result[..., 1::2] = odd * cos[..., 1::2] + even * sin[..., 1::2]
    return result


def _attention(*shapes: tuple[int, ...], mask: Array | None = None, **attributes: Any) -> Row:
    inputs = tuple(reals(*shape, seed=i) for i, shape in enumerate(shapes))

    def oracle(*tensors: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(*tensors, **attributes)

    return Row(
        "scaled_dot_product_attention",
        inputs if mask is None else (*inputs, mask),
        oracle,
        attributes,
    )


_VISIBLE = np.array([[True, False, True], [False, False, False], [True, True, True]])

ATTENTION = [
    *(
        Row(
            "rotary",
            (reals(2, 3, 6), reals(*a, seed=1), reals(*a, seed=2)),
            oracle,
            {"convention": convention},
        )
        for convention, oracle in (("half", _rotary_half), ("interleaved", _rotary_interleaved))
        for a in ((6,), (3, 6), (3,), (3, 3), (2, 1, 3))
    ),
    _attention((2, 3, 4), (2, 5, 4), (2, 5, 6)),
    _attention((2, 2, 3, 4), (2, 2, 3, 4), (2, 2, 3, 4), is_causal=True),
    _attention((2, 3, 4), (2, 5, 4), (2, 5, 6), is_causal=True),
    _attention((1, 5, 4), (1, 3, 4), (1, 3, 1), is_causal=True, scale=0.3),
    _attention((2, 3, 4), (2, 3, 4), (2, 3, 4), mask=_VISIBLE),
    _attention((2, 3, 4), (2, 5, 4), (2, 5, 6), mask=reals(3, 5), scale=2.0),
    _attention((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 6), mask=reals(2, 1, 3, 5)),
    _attention((2, 4, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3), enable_gqa=True),
    _attention((6, 3, 4), (2, 3, 4), (2, 3, 4), enable_gqa=True, is_causal=True),
]

_TIES = np.array([[1.0, 3.0, 3.0, 1.0], [2.0, 2.0, 2.0, 2.0], [0.0, 5.0, 0.0, 5.0]])
_AXES: tuple[Any, ...] = (None, 0, -1, (0, 2), (-1, -2), (0, 1, 2))


def _over(kind: str, oracle: Callable[..., Any], axes: tuple[Any, ...] = _AXES) -> list[Row]:
    return [
        Row(
            kind,
            (reals(2, 1, 3),),
            lambda x, a=a, k=k: oracle(x, a, k),
            {**({} if a is None else {"axes": a}), "keepdim": k},
        )
        for a in axes
        for k in (False, True)
    ]


REDUCTIONS = [
    *_over("sum", lambda x, a, k: x.sum(dim=a, keepdim=k)),
    *_over("mean", lambda x, a, k: x.mean(dim=a, keepdim=k)),
    Row("sum", (integers(9, 2, 3),), lambda x: x.sum(1), {"axes": 1}, derivative=False),
    *(
        Row(
            "var",
            (reals(2, 1, 3),),
            lambda x, c=c, a=a: x.var(dim=a, correction=c, keepdim=True),
            {"axes": a, "correction": c, "keepdim": True},
        )
        for a, c in (((0,), 1), ((0, 2), 0), ((-1, 0), 2), (None, 1))
    ),
    Row("var", (reals(2, 3),), lambda x: x.var(), {}),
    *_over("amax", lambda x, a, k: x.amax(dim=() if a is None else a, keepdim=k)),
    *_over("amin", lambda x, a, k: x.amin(dim=() if a is None else a, keepdim=k)),
    *(
        Row(kind, (_TIES,), lambda x, f=f: f(x, 1), {"axes": (1,)})
        for kind, f in (("amax", torch.amax), ("amin", torch.amin))
    ),
    Row("amax", (_TIES,), lambda x: x.max(), {}),
    *(
        Row(kind, (x,), lambda x, f=f, a=a, k=k: tuple(f(x, a, k)), {"axis": a, "keepdim": k})
        for kind, f in (("max", torch.max), ("min", torch.min))
        for x in (reals(2, 1, 3), _TIES[None])
        for a in (0, -1)
        for k in (False, True)
    ),
    *(
        Row(
            kind,
            (x,),
            lambda x, f=f, a=a, k=k: f(x, a, k),
            {"axis": a, "keepdim": k},
            derivative=False,
        )
        for kind, f in (("argmax", torch.argmax), ("argmin", torch.argmin))
        for x in (reals(2, 1, 3), _TIES[None], integers(9, 2, 2, 5))
        for a in (None, 1, -1)
        for k in (False, True)
    ),
    *(
        Row(
            "topk",
            (reals(3, 5),),
            lambda x, k=k, a=a, g=g: tuple(x.topk(k, a, g)),
            {"k": k, "axis": a, "largest": g},
        )
        for k, a in ((1, 0), (3, 0), (2, -1), (5, 1))
        for g in (True, False)
    ),
    Row("topk", (reals(3, 5),), lambda x: tuple(x.topk(2)), {"k": 2}),
    *(
        Row(
            "sort",
            (x,),
            lambda x, a=a, d=d: tuple(x.sort(dim=a, descending=d, stable=True)),
            {"axis": a, "descending": d},
        )
        for x in (reals(3, 5), _TIES)
        for a in (0, -1)
        for d in (False, True)
    ),
    *(
        Row("cumsum", (reals(2, 3, 4),), lambda x, a=a: x.cumsum(a), {"axis": a})
        for a in (0, 1, -1)
    ),
    Row("cumsum", (integers(9, 4, 3),), lambda x: x.cumsum(0), {"axis": 0}, derivative=False),
    Row("cumsum", (flags(4, 3),), lambda x: x.cumsum(1), {"axis": 1}, derivative=False),
    *(
        Row(
            kind,
            (x,),
            lambda x, f=f, a=a: f(x, dim=a, keepdim=True) if a is not None else f(x),
            {} if a is None else {"axes": a, "keepdim": True},
            derivative=False,
        )
        for kind, f in (("any", torch.any), ("all", torch.all))
        for x in (
            flags(4, 2),
            integers(2, 4, 2),
            np.zeros((2, 2), bool),
            np.ones((2, 2), bool),
            np.array([[0.0, 0.5], [0.0, 0.0]]),
        )
        for a in (None, 0, -1)
    ),
]

STRUCTURE = [
    *(
        Row(kind, (reals(2, 6),), lambda x, s=s: x.reshape(s), {"sizes": s})
        for kind in ("view", "reshape")
        for s in ((12,), (3, 4), (2, -1, 2), (1, 2, 6))
    ),
    *(
        Row(
            "transpose",
            (reals(2, 3, 4),),
            lambda x, a=a, b=b: x.transpose(a, b),
            {"dim0": a, "dim1": b},
        )
        for a, b in ((0, 1), (-1, 0), (1, 1))
    ),
    *(Row(kind, (reals(2, 3),), lambda x: x.clone()) for kind in ("identity", "contiguous")),
    Row("multiref", (reals(2, 3),), lambda x: (x.clone(), x.clone(), x.clone()), {"count": 3}),
    *(
        Row(
            "chunk",
            (reals(4, 6),),
            lambda x, a=a, p=p: x.chunk(2, a)[p].clone(),
            {"axis": a, "count": 2, "position": p},
        )
        for a in (0, 1, -1)
        for p in (0, 1)
    ),
    *(
        Row(
            "cat",
            (reals(*a), reals(*b, seed=1), reals(*b, seed=2)),
            lambda *xs, d=d: torch.cat(xs, d),
            {"axis": d},
        )
        for a, b, d in (((2, 3), (1, 3), 0), ((2, 3), (2, 2), -1), ((2, 3), (2, 1), 1))
    ),
    Row("cat", (reals(2, 3),), lambda x: x.clone(), {"axis": 0}),
    *(
        Row("permute", (reals(2, 3, 4),), lambda x, p=p: x.permute(p), {"permutation": p})
        for p in ((0, 1, 2), (2, 0, 1), (-1, -2, 0))
    ),
    *(
        Row("unsqueeze", (reals(2, 3),), lambda x, a=a: x.unsqueeze(a), {"axis": a})
        for a in (0, 1, 2, -1, -3)
    ),
    *(
        Row("squeeze", (reals(1, 3, 1),), lambda x, a=a: x.squeeze(a), {"axis": a})
        for a in (0, 2, -1, -3)
    ),
    *(
        Row("expand", (reals(2, 1, 3),), lambda x, n=n: x.expand(n), {"sizes": n})
        for n in ((2, 4, 3), (-1, 4, -1), (5, 2, 1, 3))
    ),
    Row("expand", (reals(),), lambda x: x.expand(2, 3), {"sizes": (2, 3)}),
    *(
        Row(
            "repeat_interleave",
            (reals(2, 3, 4),),
            lambda x, a=a, n=n: x.repeat_interleave(n, a),
            {"axis": a, "count": n},
        )
        for a, n in ((0, 2), (1, 3), (-1, 1), (-1, 4))
    ),
    *(
        Row("slice", (reals(4, 7),), lambda x, i=i: x[i].clone(), {"axis": a, **b})
        for a, b, i in (
            (0, {"start": 1, "stop": 3}, np.s_[1:3]),
            (-1, {"start": 0, "stop": 7}, np.s_[:, 0:7]),
            (1, {"start": 2}, np.s_[:, 2:]),
            (1, {"stop": 5, "step": 2}, np.s_[:, :5:2]),
            (-1, {"start": 1, "step": 3}, np.s_[:, 1::3]),
            (0, {"start": 2, "stop": 2}, np.s_[2:2]),
        )
    ),
    *(
        Row("select", (reals(4, 3),), lambda x, a=a, i=i: x.select(a, i), {"axis": a, "index": i})
        for a, i in ((0, 0), (0, 3), (1, 2), (-1, 1))
    ),
    *(
        Row(
            "split",
            (reals(4, 6),),
            lambda x, a=a, n=n: tuple(t.clone() for t in x.split(n, a)),
            {"axis": a, "sizes": n},
        )
        for a, n in ((0, (1, 3)), (-1, (2, 3, 1)), (1, (6,)))
    ),
    *(
        Row(
            "unbind",
            (reals(2, 3),),
            lambda x, a=a: tuple(t.clone() for t in x.unbind(a)),
            {"axis": a},
        )
        for a in (0, 1, -1)
    ),
    *(
        Row(
            "stack",
            (reals(2, 3), reals(2, 3, seed=1)),
            lambda *xs, a=a: torch.stack(xs, a),
            {"axis": a},
        )
        for a in (0, 1, 2, -1)
    ),
    *(
        Row(
            "pad",
            (reals(2, 3),),
            lambda x, p=p, v=v: F.pad(x, p, value=v),
            {"axis": a, "before": b, "after": c, "value": v},
        )
        for a, b, c, v, p in (
            (1, 1, 2, 0, (1, 2)),
            (-1, 0, 1, 1.5, (0, 1)),
            (0, 2, 0, 0, (0, 0, 2, 0)),
            (0, 0, 0, 0, (0, 0)),
        )
    ),
    Row(
        "pad",
        (integers(5, 3),),
        lambda x: F.pad(x, (0, 2), value=-1),
        {"axis": 0, "after": 2, "value": -1},
        derivative=False,
    ),
    *(
        Row("flip", (reals(2, 3, 4),), lambda x, a=a: x.flip(a), {"axes": a})
        for a in ((0,), (1, -1), (0, 1, 2))
    ),
    *(
        Row("roll", (reals(3, 5),), lambda x, a=a, n=n: x.roll(n, a), {"axis": a, "shift": n})
        for a, n in ((0, 1), (1, 2), (-1, -1), (1, 12), (0, 0))
    ),
    *(Row("detach", (reals(2, 3),), lambda x: x.detach(), derivative=False) for _ in range(1)),
    *(
        Row(kind, (reals(2, *shape),), lambda x, f=f, d=d: f(x, d), {"diagonal": d})
        for kind, f in (("tril", torch.tril), ("triu", torch.triu))
        for shape in ((3, 3), (2, 4))
        for d in (-1, 0, 1, 7)
    ),
    Row("tril", (reals(3, 4),), torch.tril),
    Row("triu", (flags(3, 4),), torch.triu, derivative=False),
    *(
        Row(
            "diagonal",
            (reals(2, 3, 5),),
            lambda x, o=o, a=a, b=b: x.diagonal(o, a, b),
            {"axis": a, "other": b, "offset": o},
        )
        for a, b, o in ((-2, -1, 0), (1, 2, 3), (2, 1, 3), (2, 0, -3), (0, 1, 1), (1, 0, 0))
    ),
]

_MINUS_INF = np.array(-_INF)


def _embedding(padding: int | None = None) -> Callable[..., torch.Tensor]:
    return lambda i, w: F.embedding(i, w, padding_idx=padding)


INDEXING = [
    *(
        Row("embedding", (integers(5, *shape), reals(5, 3)), _embedding())
        for shape in ((), (4,), (2, 6))
    ),
    *(
        Row("embedding", (integers(5, 8), reals(5, 3)), _embedding(p), {"padding_idx": p})
        for p in (0, 3, -1)
    ),
    *(
        Row(
            "index_select",
            (reals(3, 4, 5), integers(3, 6)),
            lambda x, i, a=a: x.index_select(a, i),
            {"axis": a},
        )
        for a in (0, 1, -1)
    ),
    *(
        Row(
            "index_add",
            (reals(*b), integers(3, 4), reals(*s, seed=1)),
            lambda b, i, s, a=a: b.index_add(a, i, s),
            {"axis": a},
        )
        for a, b, s in ((0, (3, 2), (4, 2)), (-1, (2, 3), (2, 4)))
    ),
    *(
        Row("gather", (reals(3, 4), integers(3, *i)), lambda x, i, a=a: x.gather(a, i), {"axis": a})
        for a, i in ((0, (3, 4)), (0, (6, 4)), (1, (3, 2)), (-1, (3, 5)), (0, (6, 3)), (1, (2, 2)))
    ),
    *(
        Row(
            "scatter_add",
            (reals(3, 4), integers(3, *i), reals(*i, seed=1)),
            lambda b, i, s, a=a: b.scatter_add(a, i, s),
            {"axis": a},
        )
        for a, i in ((0, (6, 4)), (1, (3, 2)), (-1, (3, 5)), (0, (6, 3)), (1, (2, 2)))
    ),
    *(
        Row(
            "scatter_value",
            (reals(3, 4), integers(3, *i), np.array(1.5)),
            lambda b, i, v, a=a: _scatter_value(b, i, v, a),
            {"axis": a},
        )
        for a, i in ((0, (6, 4)), (1, (3, 2)), (-1, (3, 5)), (0, (6, 3)), (1, (2, 2)))
    ),
    *(
        Row("where", (flags(*c), reals(*a), reals(*b, seed=1)), torch.where)
        for c, a, b in (((2, 3), (2, 3), (2, 3)), ((3,), (2, 1), ()), ((2, 1), (3,), (2, 3)))
    ),
    *(
        Row("masked_fill", (reals(2, 3), flags(*m), np.array(0.5)), torch.masked_fill)
        for m in ((2, 3), (3,), (2, 1))
    ),
    Row("masked_fill", (reals(2, 3), flags(2, 3), _MINUS_INF), lambda x, m, v: x.masked_fill(m, v)),
    Row(
        "masked_fill", (integers(9, 4), flags(4), np.array(7)), torch.masked_fill, derivative=False
    ),
    *(
        Row(
            "one_hot",
            (integers(4, *n),),
            lambda i: F.one_hot(i, 5),
            {"classes": 5},
            derivative=False,
        )
        for n in ((), (3,), (2, 3))
    ),
    *(
        Row(
            "positions",
            (reals(2, 5),),
            lambda x, a=a, o=o: torch.arange(x.shape[a]) + o,
            {"axis": a, "offset": o},
            derivative=False,
        )
        for a, o in ((0, 0), (-1, 0), (1, 10))
    ),
    *(
        Row(
            "boundary",
            (reals(2, 5),),
            lambda _, o=o: torch.tensor(o),
            {"axis": 1, "offset": o},
            derivative=False,
        )
        for o in (0, 3, 10)
    ),
    *(
        Row(
            "causal_mask",
            (reals(2, 3, k),),
            lambda x: torch.ones(x.shape[-2:], dtype=torch.bool).tril(),
            derivative=False,
        )
        for k in (2, 3, 5)
    ),
    Row(
        "full",
        (),
        lambda: torch.full((2, 3), 0.1, dtype=torch.float64),
        {"sizes": (2, 3), "value": 0.1},
        derivative=False,
    ),
    Row(
        "uninitialised",
        (),
        lambda: torch.zeros(2, 3, dtype=torch.float64),
        {"sizes": (2, 3)},
        derivative=False,
    ),
    Row(
        "uninitialised",
        (),
        lambda: torch.zeros(2, dtype=torch.bool),
        {"sizes": (2,), "dtype": "bool"},
        derivative=False,
    ),
    Row(
        "full",
        (),
        lambda: torch.full((2,), 3),
        {"sizes": (2,), "value": 3, "dtype": "int64"},
        derivative=False,
    ),
    Row(
        "full_like",
        (reals(2, 3),),
        lambda x: torch.full_like(x, -_INF),
        {"value": "-inf"},
        derivative=False,
    ),
    Row(
        "full_like",
        (reals(2, 3),),
        lambda x: torch.ones_like(x, dtype=torch.bool),
        {"value": 1, "dtype": "bool"},
        derivative=False,
    ),
    Row(
        "full_like",
        (integers(9, 2, 3),),
        lambda x: torch.full_like(x, -2),
        {"value": -2},
        derivative=False,
    ),
]


def _scatter_value(
    base: torch.Tensor, indices: torch.Tensor, value: torch.Tensor, axis: int
) -> torch.Tensor:
    written = torch.zeros_like(base, dtype=torch.bool).scatter(axis, indices, True)
    return torch.where(written, value, base)


_PAIRS = (
    (integers(4, 12), integers(4, 12, seed=1)),
    (integers(4, 3, 1).astype(np.float64), integers(4, 4, seed=1).astype(np.float64)),
    (flags(6), flags(6, seed=1)),
    (integers(3, 6), integers(3, 6, seed=1).astype(np.float64)),
)

COMPARISON = [
    *(
        Row(kind, pair, getattr(torch, kind), derivative=False)
        for kind in ("eq", "ne", "lt", "le", "gt", "ge")
        for pair in _PAIRS
    ),
    *(
        Row(kind, pair, getattr(torch, kind), derivative=False)
        for kind in ("logical_and", "logical_or", "logical_xor")
        for pair in _PAIRS
    ),
    *(Row("logical_not", (pair[0],), torch.logical_not, derivative=False) for pair in _PAIRS),
    *_binary("maximum", torch.maximum),
    *_binary("minimum", torch.minimum),
    *(Row(kind, _PAIRS[1], getattr(torch, kind)) for kind in ("maximum", "minimum")),
    *(
        Row(kind, _PAIRS[0], getattr(torch, kind), derivative=False)
        for kind in ("maximum", "minimum")
    ),
]


def _class_losses(kind: str, oracle: Callable[..., torch.Tensor]) -> list[Row]:
    cases = (
        ((4, 5), (4,)),
        ((5,), ()),
        ((2, 5, 3), (2, 3)),
        ((2, 5, 2, 3), (2, 2, 3)),
        ((1, 5), (1,)),
    )
    whole = [
        Row(
            kind,
            (reals(*x), integers(5, *t)),
            lambda x, t, r=r: oracle(x, t, reduction=r),
            {"reduction": r},
        )
        for x, t in cases
        for r in ("none", "sum", "mean")
    ]
    ignoring = [
        Row(
            kind,
            (reals(*x), _with_ignored(integers(5, *t), i)),
            lambda x, t, r=r, i=i: oracle(x, t, reduction=r, ignore_index=i),
            {"reduction": r, "ignore_index": i},
        )
        for x, t in (cases[0], cases[2])
        for r in ("none", "sum", "mean")
        for i in (-100, 2)
    ]
    return [*whole, *ignoring, Row(kind, (reals(4, 5), integers(5, 4)), oracle)]


def _with_ignored(target: Array, ignored: int) -> Array:
    target.reshape(-1)[::2] = ignored
    return target


LOSSES = [
    *_class_losses("cross_entropy", F.cross_entropy),
    *_class_losses("nll_loss", F.nll_loss),
    Row(
        "cross_entropy",
        (reals(2, 5), np.array([-100, -100])),
        F.cross_entropy,
        {"ignore_index": -100},
        derivative=False,
    ),
    *(
        Row(
            "mse_loss",
            (reals(2, 3), reals(2, 3, seed=1)),
            lambda a, b, r=r: F.mse_loss(a, b, reduction=r),
            {"reduction": r},
        )
        for r in ("none", "sum", "mean")
    ),
    Row("mse_loss", (reals(2, 3), reals(2, 3, seed=1)), F.mse_loss),
]

CAST = [
    Row("cast", (reals(2, 3),), lambda x: x.to(torch.float64).clone(), {"dtype": "float32"}),
    *(
        Row("cast", (3 * reals(8),), lambda x, t=t: x.to(t), {"dtype": d}, derivative=False)
        for d, t in (("int64", torch.int64), ("bool", torch.bool))
    ),
    Row(
        "cast",
        (integers(3, 6),),
        lambda x: x.to(torch.float64),
        {"dtype": "bfloat16"},
        derivative=False,
    ),
    Row("cast", (integers(3, 6),), lambda x: x.to(torch.bool), {"dtype": "bool"}, derivative=False),
    Row("cast", (flags(6),), lambda x: x.to(torch.float64), {"dtype": "float64"}, derivative=False),
    Row("cast", (flags(6),), lambda x: x.to(torch.int64), {"dtype": "int64"}, derivative=False),
]

DROPOUT = [
    Row(
        "dropout", (reals(3, 4), flags(3, 4)), lambda x, m, p=p: x * m / (1 - p), {"probability": p}
    )
    for p in (0, 0.1, 0.5)
] + [
    Row(
        "dropout",
        (reals(3, 4), reals(3, 1, seed=1)),
        lambda x, m: x * m / 0.75,
        {"probability": 0.25},
    )
]

ROWS = [
    *ARITHMETIC,
    *ACTIVATIONS,
    *MATRIX,
    *EINSUM,
    *NORMALIZATION,
    *ATTENTION,
    *REDUCTIONS,
    *STRUCTURE,
    *INDEXING,
    *COMPARISON,
    *LOSSES,
    *CAST,
    *DROPOUT,
]
