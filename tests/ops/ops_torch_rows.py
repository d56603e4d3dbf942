"""The rows that PyTorch is the oracle of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from ops_rows import Array, Row, flags, integers, positive, reals

BROADCASTS = (((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 1, 4), (3, 1)), ((), (2, 3)), ((1, 3), (2, 1)), ((3, 1), ()))


def _binary(kind: str, oracle: Callable[..., Any], **attributes: Any) -> list[Row]:
    return [Row(kind, (reals(*a, seed=1), reals(*b, seed=2)), oracle, attributes) for a, b in BROADCASTS]


def _unary(kind: str, oracle: Callable[..., Any], make: Callable[..., Array] = reals, **attributes: Any) -> list[Row]:
    return [Row(kind, (make(*shape),), oracle, attributes) for shape in ((), (5,), (2, 1, 3))]


ARITHMETIC = [
    *_binary("add", torch.add),
    *_binary("add", lambda a, b: torch.add(a, b, alpha=0.5), alpha=0.5),
    Row("add", (integers(9, 3), integers(9, 3, seed=1)), lambda a, b: torch.add(a, b, alpha=3), {"alpha": 3}, derivative=False),
    *_binary("sub", torch.sub),
    *_binary("sub", lambda a, b: torch.sub(a, b, alpha=-2), alpha=-2),
    *_binary("mul", torch.mul),
    Row("mul", (reals(3, 4), flags(3, 4)), torch.mul),
    Row("mul", (integers(5, 4), reals(3, 1)), torch.mul),
    *_binary("div", torch.div),
    Row("floor_divide", (integers(20, 8) - 10, integers(4, 8, seed=1) + 1), torch.floor_divide, derivative=False),
    Row("remainder", (integers(20, 8) - 10, integers(4, 8, seed=1) + 1), torch.remainder, derivative=False),
    *_unary("neg", torch.neg),
    *(row for e in (0, 1, 2, 3, -1, -2) for row in _unary("pow", lambda x, e=e: x**e, exponent=e)),
    *(row for e in (0.5, -0.5, 1.5, "-3/2") for row in _unary("pow", lambda x, e=e: x ** (-1.5 if e == "-3/2" else e), positive, exponent=e)),
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
    Row("clamp", (integers(9, 6) - 4,), lambda x: x.clamp(0, 3), {"min": 0, "max": 3}, derivative=False),
]

ACTIVATIONS = [
    *_unary("sigmoid", torch.sigmoid),
    *_unary("silu", F.silu),
    *_unary("tanh", torch.tanh),
    *_unary("softplus", F.softplus),
    *_unary("relu", torch.relu),
    *_unary("erf", torch.erf),
    *_unary("gelu", F.gelu),
    *_unary("gelu", F.gelu, approximate="none"),
    *_unary("gelu", lambda x: F.gelu(x, approximate="tanh"), approximate="tanh"),
]

MATRIX = [
    *(Row("linear", (reals(*s, 4), reals(3, 4, seed=1)), F.linear) for s in ((), (2,), (2, 3), (1, 2, 1))),
    *(Row("linear", (reals(*s, 4), reals(3, 4, seed=1), reals(3, seed=2)), F.linear) for s in ((), (2,), (2, 3))),
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

NORMALIZATION = [
    *(Row("softmax", (reals(2, 3, 4),), lambda x, a=a: x.softmax(a), {"axis": a}) for a in (0, 1, -1)),
]

_AXES: tuple[Any, ...] = (None, 0, -1, (0, 2), (-1, -2), (0, 1, 2))


def _over(kind: str, oracle: Callable[..., Any], axes: tuple[Any, ...] = _AXES) -> list[Row]:
    return [
        Row(kind, (reals(2, 1, 3),), lambda x, a=a, k=k: oracle(x, a, k), {**({} if a is None else {"axes": a}), "keepdim": k})
        for a in axes
        for k in (False, True)
    ]


REDUCTIONS = [
    *_over("sum", lambda x, a, k: x.sum(dim=a, keepdim=k)),
    *_over("mean", lambda x, a, k: x.mean(dim=a, keepdim=k)),
    Row("sum", (integers(9, 2, 3),), lambda x: x.sum(1), {"axes": 1}, derivative=False),
]

STRUCTURE = [
    *(Row(kind, (reals(2, 6),), lambda x, s=s: x.reshape(s), {"sizes": s}) for kind in ("view", "reshape") for s in ((12,), (3, 4), (2, -1, 2), (1, 2, 6))),
    *(Row("transpose", (reals(2, 3, 4),), lambda x, a=a, b=b: x.transpose(a, b), {"dim0": a, "dim1": b}) for a, b in ((0, 1), (-1, 0), (1, 1))),
    *(Row(kind, (reals(2, 3),), lambda x: x.clone()) for kind in ("identity", "contiguous")),
    Row("multiref", (reals(2, 3),), lambda x: (x.clone(), x.clone(), x.clone()), {"count": 3}),
    *(Row("chunk", (reals(4, 6),), lambda x, a=a, p=p: x.chunk(2, a)[p].clone(), {"axis": a, "count": 2, "position": p}) for a in (0, 1, -1) for p in (0, 1)),
    *(
        Row("cat", (reals(*a), reals(*b, seed=1), reals(*b, seed=2)), lambda *xs, d=d: torch.cat(xs, d), {"axis": d})
        for a, b, d in (((2, 3), (1, 3), 0), ((2, 3), (2, 2), -1), ((2, 3), (2, 1), 1))
    ),
    Row("cat", (reals(2, 3),), lambda x: x.clone(), {"axis": 0}),
]

ROWS = [*ARITHMETIC, *ACTIVATIONS, *MATRIX, *NORMALIZATION, *REDUCTIONS, *STRUCTURE]
