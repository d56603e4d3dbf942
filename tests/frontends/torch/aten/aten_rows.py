"""An example, or several, of every overload of arithmetic, choices, matrices, reductions and
layers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from frontends.torch.aten.aten_harness import Row

Tensor = torch.Tensor


def reals(*shape: int, seed: int = 0) -> Tensor:
    """Reals of both signs, none near 0."""
    generator = torch.Generator().manual_seed(1000 + seed)
    size = torch.rand(shape, generator=generator, dtype=torch.float64) * 1.8 + 0.2
    return size * (torch.randint(0, 2, shape, generator=generator) * 2 - 1)


def positive(*shape: int, seed: int = 0) -> Tensor:
    """Reals above 0."""
    return reals(*shape, seed=seed).abs()


def integers(high: int, *shape: int, seed: int = 0) -> Tensor:
    """Integers 0 .. high - 1."""
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed))


def flags(*shape: int, seed: int = 0) -> Tensor:
    """Booleans."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.5


def pairs(*shape: int, seed: int = 0) -> Tensor:
    """Complex numbers."""
    return torch.complex(reals(*shape, seed=seed), reals(*shape, seed=seed + 50))


def cases(operator: str, *arguments: tuple[Any, ...], **keywords: Any) -> list[Row]:
    """One row per tuple of arguments."""
    return [Row(operator, given, keywords, str(i)) for i, given in enumerate(arguments)]


_PAIRS = (
    (reals(3, 4), reals(3, 4, seed=1)),
    (reals(2, 1, 4), reals(3, 1, seed=1)),
    (integers(9, 4) + 1, integers(5, 4, seed=1) + 1),
)
_MIXED = (
    (integers(9, 4) + 1, reals(3, 1)),
    (reals(3, 4), flags(4)),
    (reals(3), 0.5),
    (reals(3), 3),
    (integers(5, 3), 2),
    (integers(5, 3), 2.0),
)
_COMPLEX = ((pairs(2, 3), pairs(3, seed=1)), (pairs(2, 1, 3), pairs(2, 3, seed=1)))

ARITHMETIC = [
    *cases(
        "add.Tensor", *_PAIRS, *_MIXED, *_COMPLEX, (flags(5), flags(5, seed=1)), (reals(), reals(2))
    ),
    Row("add.Tensor", (reals(3), reals(3, seed=1)), {"alpha": -0.5}, "alpha"),
    *cases("add.Scalar", (reals(3), 2.5), (integers(5, 3), 2), (integers(5, 3), 1.0, 2)),
    *cases("sub.Tensor", *_PAIRS, *_MIXED[:1], (reals(3), 2)),
    Row("sub.Tensor", (reals(3), reals(3, seed=1)), {"alpha": 2}, "alpha"),
    *cases("sub.Scalar", (reals(3), 2.5, 2)),
    *cases("rsub.Tensor", *_PAIRS, (reals(3), reals(3, seed=1))),
    *cases("rsub.Scalar", (reals(3), 2.5), (integers(5, 3), 2, 3)),
    *cases(
        "mul.Tensor",
        *_PAIRS,
        *_MIXED,
        *_COMPLEX,
        (pairs(2, 3), 2.0),
        (pairs(2, 3), reals(3)),
        (reals(3), pairs(2, 3)),
        (flags(5), flags(5, seed=1)),
    ),
    *cases("mul.Tensor", (pairs(2, 3), pairs(1, 3, seed=2)), (pairs(3), pairs(2, 3))),
    *cases("mul.Scalar", (reals(3), 2.5), (integers(5, 3), 1.0)),
    *cases("div.Tensor", *_PAIRS, (reals(3), 3), (integers(9, 4), 2)),
    *cases("div.Scalar", (reals(3), 2.5), (integers(5, 3), 2)),
    *(
        Row("div.Tensor_mode", args, {"rounding_mode": mode}, str(mode))
        for args, mode in ((_PAIRS[0], None), ((integers(30, 5) - 15, integers(4, 5) + 1), "floor"))
    ),
    *(
        Row("div.Scalar_mode", args, {"rounding_mode": mode}, str(mode))
        for args, mode in (((reals(3), 2), None), ((integers(30, 5) - 15, 4), "floor"))
    ),
    *cases("floor_divide.default", (integers(30, 5) - 15, integers(4, 5) + 1)),
    *cases("floor_divide.Scalar", (integers(30, 5) - 15, 4)),
    *cases("remainder.Tensor", (integers(30, 5) - 15, integers(4, 5) + 1)),
    *cases("remainder.Scalar", (integers(30, 5) - 15, 4)),
    *(
        row
        for name, make in (
            *(
                (n, reals)
                for n in (
                    "neg",
                    "abs",
                    "sign",
                    "reciprocal",
                    "exp",
                    "sigmoid",
                    "tanh",
                    "erf",
                    "relu",
                    "silu",
                    "cos",
                    "sin",
                    "square",
                    "expm1",
                )
            ),
            *((n, positive) for n in ("sqrt", "rsqrt", "log", "log1p")),
        )
        for row in cases(f"{name}.default", (make(2, 3),), (make(),))
    ),
    *(
        row
        for name in ("sqrt", "reciprocal", "exp", "log")
        for row in cases(f"{name}.default", (integers(5, 4) + 1,))
    ),
    *(
        row
        for name in ("neg", "abs", "sign", "relu", "square")
        for row in cases(f"{name}.default", (integers(9, 6) - 4,))
    ),
    *cases("sgn.default", (reals(2, 3),)),
    *cases("neg.default", (pairs(2, 3),)),
    *cases(
        "pow.Tensor_Scalar",
        (reals(3), 2),
        (reals(3), 3.0),
        (reals(3), -1),
        (positive(3), 0.5),
        (positive(3), -1.5),
        (reals(3), 0),
        (integers(5, 3), 2),
    ),
    *cases("pow.Tensor_Scalar", (integers(5, 3) + 1, 0.5), (reals(3), 1.0)),
    *cases("pow.Scalar", (10000.0, reals(3)), (2.0, integers(5, 3)), (0.9, positive())),
    *cases(
        "clamp.default",
        (reals(9), -0.5, 0.5),
        (reals(9), None, 1),
        (reals(9), 0.25),
        (integers(9, 6), 2, 5),
        (integers(9, 6), 2.5),
    ),
    *cases(
        "clamp.Tensor",
        (reals(3, 3), reals(3, seed=1), reals(3, 1, seed=2)),
        (reals(3), None, reals(3, seed=2)),
        (reals(3), reals(3, seed=2)),
    ),
    *cases("clamp_min.default", (reals(9), 0.25), (integers(9, 6), 3)),
    *cases("clamp_min.Tensor", (reals(9), reals(9, seed=1))),
    *cases("clamp_max.default", (reals(9), 0.25)),
    *cases("clamp_max.Tensor", (reals(9), reals(9, seed=1))),
    *(
        row
        for name in ("maximum.default", "minimum.default", "max.other", "min.other")
        for row in cases(name, *_PAIRS)
    ),
    *(
        row
        for name in ("addcmul.default", "addcdiv.default")
        for row in (
            Row(name, (reals(2, 3), reals(3, seed=1), reals(2, 1, seed=2))),
            Row(name, (reals(3), reals(3, seed=1), reals(3, seed=2)), {"value": -0.01}, "v"),
        )
    ),
    *cases("logaddexp.default", (reals(2, 3), reals(3, seed=1))),
    *cases("lerp.Scalar", (reals(3), reals(3, seed=1), 0.1)),
    *cases(
        "lerp.Tensor",
        (reals(3), reals(3, seed=1), reals(3, seed=2)),
        (reals(3), reals(3, seed=1), reals()),
    ),
    *(
        row
        for name in ("_conj", "_conj_physical", "conj_physical")
        for row in cases(f"{name}.default", (pairs(2, 3),))
    ),
    *cases("conj_physical.default", (reals(2, 3),)),
    *cases("complex.default", (reals(2, 3), reals(3, seed=1))),
    *cases("polar.default", (positive(2, 3), reals(2, 3, seed=1))),
]

ACTIVATIONS = [
    *(Row("gelu.default", (reals(3, 4),), {"approximate": a}, a) for a in ("none", "tanh")),
    *(
        Row("gelu_backward.default", (reals(3, 4), reals(3, 4, seed=1)), {"approximate": a}, a)
        for a in ("none", "tanh")
    ),
    *(
        Row(f"{n}.default", (reals(3, 4), reals(3, 4, seed=1)))
        for n in ("silu_backward", "sigmoid_backward", "tanh_backward")
    ),
    *cases(
        "threshold_backward.default",
        (reals(3, 4), reals(3, 4, seed=1), 0),
        (reals(3, 4), reals(3, 4, seed=1), 0.5),
    ),
    *cases("softplus.default", (reals(3, 4),)),
    *cases("softplus_backward.default", (reals(3, 4), reals(3, 4, seed=1), 1, 20)),
    *cases("log_sigmoid_forward.default", (reals(3, 4),)),
    *cases(
        "log_sigmoid_backward.default",
        (reals(3, 4), reals(3, 4, seed=1), torch.exp(-reals(3, 4, seed=1).abs())),
    ),
    *cases("glu.default", (reals(3, 4),), (reals(4, 3), 0)),
    *cases(
        "glu_backward.default",
        (reals(3, 2), reals(3, 4, seed=1), -1),
        (reals(2, 3), reals(4, 3, seed=1), 0),
    ),
]

_COMPARED = (
    (integers(4, 12), integers(4, 12, seed=1)),
    (integers(4, 3, 1).double(), integers(4, 4, seed=1)),
    (flags(6), flags(6, seed=1)),
)

_SIGNS = ("eq", "ne", "lt", "le", "gt", "ge")

CHOICES = [
    *(
        row
        for n in ("eq", "ne", "lt", "le", "gt", "ge")
        for row in cases(f"{n}.Tensor", *_COMPARED)
    ),
    *(
        row
        for n in ("eq", "ne", "lt", "le", "gt", "ge")
        for row in cases(
            f"{n}.Scalar", (integers(4, 9), 2), (integers(4, 9), 1.5), (reals(9), 0), (flags(6), 1)
        )
    ),
    *(row for n in ("and", "or", "xor") for row in cases(f"logical_{n}.default", *_COMPARED)),
    *(row for n in ("and", "or", "xor") for row in cases(f"bitwise_{n}.Tensor", _COMPARED[2])),
    *(
        row
        for n in ("and", "or", "xor")
        for row in cases(f"bitwise_{n}.Scalar", (flags(6), True), (flags(6), False))
    ),
    *cases("logical_not.default", (flags(6),), (integers(3, 6),)),
    *cases("bitwise_not.default", (flags(6),)),
    *(
        row
        for n in ("isnan", "isinf")
        for row in cases(
            f"{n}.default", (torch.tensor([1.0, float("nan"), float("inf"), -float("inf"), 0.0]),)
        )
    ),
    *cases(
        "where.self",
        (flags(2, 3), reals(3), reals(2, 1, seed=1)),
        (flags(3), integers(5, 3), reals(3)),
        (flags(2, 3), reals(2, 3), reals()),
    ),
    *cases("where.ScalarSelf", (flags(2, 3), 0.5, reals(3))),
    *cases("where.ScalarOther", (flags(2, 3), reals(3), -float("inf"))),
    *cases("where.Scalar", (flags(2, 3), 1.5, 2.0), (flags(2, 3), 1.0, 2.0), (flags(2, 3), 1, 2)),
    *cases(
        "masked_fill.Scalar",
        (reals(2, 3), flags(3), -float("inf")),
        (integers(9, 4), flags(4), 7),
        (reals(2, 3), flags(2, 3), -10000.0),
    ),
    *cases("masked_fill.Tensor", (reals(2, 3), flags(3), reals())),
]


def _added(operator: str, self: Tensor, a: Tensor, b: Tensor) -> list[Row]:
    return [
        Row(operator, (self, a, b), k, "".join(k))
        for k in ({}, {"beta": 0.5, "alpha": 2}, {"beta": 0, "alpha": 0.125}, {"beta": 0})
    ]


MATRIX = [
    *cases("mm.default", (reals(2, 4), reals(4, 3))),
    *cases("bmm.default", (reals(5, 2, 4), reals(5, 4, 3))),
    *cases(
        "matmul.default",
        (reals(5, 2, 4), reals(4, 3)),
        (reals(4), reals(4)),
        (reals(2, 4), reals(4)),
    ),
    *cases("mv.default", (reals(2, 4), reals(4))),
    *cases("dot.default", (reals(4), reals(4, seed=1))),
    *_added("addmm.default", reals(3), reals(2, 4), reals(4, 3)),
    *_added("addmm.default", reals(2, 3), reals(2, 4), reals(4, 3))[:1],
    *_added("baddbmm.default", reals(5, 2, 3), reals(5, 2, 4), reals(5, 4, 3)),
    *_added("baddbmm.default", reals(1, 1), reals(5, 2, 4), reals(5, 4, 3)),
    *_added("addbmm.default", reals(2, 3), reals(5, 2, 4), reals(5, 4, 3)),
    *_added("addmv.default", reals(2), reals(2, 4), reals(4)),
    *cases("outer.default", (reals(2), reals(3))),
    *cases("linear.default", (reals(2, 5, 4), reals(3, 4)), (reals(5, 4), reals(3, 4), reals(3))),
]


def _reduction(operator: str, make: Callable[..., Tensor] = reals) -> list[Row]:
    return cases(
        operator,
        (make(2, 3, 4), [1]),
        (make(2, 3, 4), [0, -1], True),
        (make(2, 3, 4), [0, 1, 2]),
        (make(2, 3, 4), [], True),
    )


def _spread(operator: str) -> list[Row]:
    return [
        Row(operator, (reals(2, 3, 4),), k, str(i))
        for i, k in enumerate(
            (
                {},
                {"dim": [1], "correction": 0},
                {"dim": [0, -1], "keepdim": True},
                {"dim": [2], "correction": 2},
            )
        )
    ]


REDUCTIONS = [
    *cases("sum.default", (reals(2, 3),), (reals(),), (integers(5, 4),), (flags(5),)),
    Row("sum.default", (integers(5, 4),), {"dtype": torch.float64}, "dtype"),
    *_reduction("sum.dim_IntList"),
    *cases(
        "sum.dim_IntList",
        (flags(4, 3), [0]),
        (reals(3), None),
        (reals(), [0]),
        (reals(), None, True),
    ),
    *cases("mean.default", (reals(2, 3),)),
    *_reduction("mean.dim"),
    Row("mean.dim", (integers(5, 4, 2), [0]), {"dtype": torch.float64}, "dtype"),
    *_spread("var.correction"),
    *_spread("std.correction"),
    *_spread("var_mean.correction"),
    *_reduction("amax.default"),
    *_reduction("amin.default"),
    *cases("max.default", (reals(2, 3),), (integers(9, 4),)),
    *cases("aminmax.default", (reals(2, 3),), (integers(9, 4),)),
    Row("aminmax.default", (reals(2, 3),), {"dim": 1, "keepdim": True}, "dim"),
    *cases("max.default", (flags(3),)),
    *cases("amin.default", (flags(3, 4), [1]), (flags(3, 4), [0], True)),
    *(
        row
        for name in ("maximum.default", "minimum.default")
        for row in cases(name, (flags(5), flags(5, seed=1)))
    ),
    *cases("min.default", (reals(2, 3),)),
    *(
        row
        for n in ("max.dim", "min.dim")
        for row in cases(n, (reals(2, 3, 4), 1), (reals(2, 3, 4), -1, True), (integers(40, 5), 0))
    ),
    *(
        row
        for n in ("argmax.default", "argmin.default")
        for row in cases(n, (reals(2, 3, 4), 1), (reals(2, 3, 4), -1, True), (reals(2, 3, 4),))
    ),
    *(
        row
        for n in ("any.default", "all.default")
        for row in cases(n, (flags(3),), (reals(3),), (torch.zeros(3, dtype=torch.float64),))
    ),
    *(
        row
        for n in ("any.dim", "all.dim")
        for row in cases(n, (flags(4, 2), 0), (integers(2, 4, 2), -1, True))
    ),
    *(
        row
        for n in ("any.dims", "all.dims")
        for row in cases(n, (flags(4, 2, 3), [0, 2]), (flags(4, 2), [1], True), (flags(4, 2),))
    ),
    *(
        row
        for p in (2, 2.0, 1, float("inf"))
        for row in cases(
            "linalg_vector_norm.default",
            (reals(2, 3), p),
            (reals(2, 3, 4), p, [1], True),
            (reals(), p),
        )
    ),
    *cases("norm.Scalar", (reals(2, 3),), (reals(2, 3), 1)),
    *cases("norm.ScalarOpt_dim", (reals(2, 3), None, [1]), (reals(2, 3), 2, [0], True)),
    Row("norm.ScalarOpt_dim_dtype", (reals(2, 3), 2, [1], False), {"dtype": torch.float64}),
    *cases(
        "topk.default",
        (reals(3, 5), 2),
        (reals(5, 3), 3, 0, False),
        (reals(3, 5), 2, 1, True, False),
    ),
    *cases("sort.default", (reals(3, 5),), (reals(3, 5), 0, True)),
    Row("sort.stable", (integers(3, 9).double(),), {"stable": True}, "ties"),
    Row(
        "sort.stable", (integers(3, 9, 2),), {"stable": True, "dim": 0, "descending": True}, "ints"
    ),
    *cases(
        "cumsum.default", (reals(2, 3), 1), (reals(2, 3), -2), (flags(5), 0), (integers(5, 4), 0)
    ),
    *cases("logsumexp.default", (reals(2, 3), [1]), (reals(2, 3), [-2], True)),
]

_HIDDEN = torch.tensor(
    [[1.0, -float("inf"), 2.0], [-float("inf")] * 3, [0.5, 0.25, -float("inf")]],
    dtype=torch.float64,
)


def _attention() -> list[Row]:
    q, k, v, mask, shown = (
        reals(2, 2, 3, 4),
        reals(2, 2, 5, 4, seed=1),
        reals(2, 2, 5, 4, seed=2),
        reals(3, 5, seed=3),
        flags(3, 5),
    )
    shown[:, 0] = True
    added = torch.where(shown, 0.0, -float("inf")).double()
    forward, backward = (
        f"_scaled_dot_product_flash_attention_for_cpu{suffix}.default"
        for suffix in ("", "_backward")
    )
    rows = []
    for case, positional, keywords in (
        ("plain", (q, k, v), {}),
        (
            "causal",
            (q, reals(2, 2, 3, 4, seed=1), reals(2, 2, 3, 4, seed=2), 0.0, True),
            {"scale": 0.25},
        ),
        ("added", (q, k, v), {"attn_mask": mask}),
        ("hidden", (q, k, v), {"attn_mask": added, "scale": 0.5}),
        ("grouped", (reals(2, 6, 3, 4), k, v), {}),
        ("of one head", (reals(2, 6, 3, 4), k[:, :1], v[:, :1]), {"attn_mask": mask}),
    ):
        rows.append(Row(forward, positional, keywords, case))
        out, total = getattr(torch.ops.aten, forward.partition(".")[0]).default(
            *positional, **keywords
        )
        operands = (
            reals(*positional[0].shape, seed=4),
            *positional[:3],
            out,
            total,
            0.0,
            len(positional) > 3,
        )
        rows.append(Row(backward, operands, keywords, case))
    return rows


def _normalised(bias: bool) -> list[Row]:
    x, g, forward, backward = (
        reals(2, 3, 4),
        reals(2, 3, 4, seed=9),
        *(f"{'native_layer' if bias else '_fused_rms'}_norm{s}.default" for s in ("", "_backward")),
    )
    rows = []
    for case, shape in (("one", [4]), ("two", [3, 4]), ("all", [2, 3, 4])):
        for weighted in (True, False):
            weights = (
                reals(*shape, seed=1) if weighted else None,
                *((reals(*shape, seed=2) if weighted else None,) if bias else ()),
            )
            rows.append(Row(forward, (x, shape, *weights, 1e-5), {}, f"{case}-{weighted}"))
            _, *statistics = getattr(torch.ops.aten, forward.partition(".")[0]).default(
                x, shape, *weights, 1e-5
            )
            mask = [True, weighted, weighted][: 2 + bias]
            rows.append(
                Row(backward, (g, x, shape, *statistics, *weights, mask), {}, f"{case}-{weighted}")
            )
    if not bias:
        rows.append(Row(forward, (x, [4], None, None), {}, "default"))
    return rows


LAYERS = [
    *cases(
        "_softmax.default", (reals(2, 3), -1, False), (reals(2, 3), 0, False), (reals(), 0, False)
    ),
    *cases("_log_softmax.default", (reals(2, 3), -1, False), (reals(2, 3), 0, False)),
    *cases("_safe_softmax.default", (reals(2, 3), -1), (_HIDDEN, -1), (_HIDDEN, 0)),
    *cases(
        "_softmax_backward_data.default",
        *((reals(2, 3), reals(2, 3, seed=1).softmax(d), d, torch.float64) for d in (0, -1)),
    ),
    *cases(
        "_log_softmax_backward_data.default",
        *((reals(2, 3), reals(2, 3, seed=1).log_softmax(d), d, torch.float64) for d in (0, -1)),
    ),
    *_normalised(True),
    *_normalised(False),
    *_attention(),
    *cases("native_dropout.default", (reals(2, 3), 0.0, True), (reals(2, 3), 0.5, False)),
    *cases("native_dropout_backward.default", (reals(2, 3), flags(2, 3), 2.0)),
]

ROWS = [*ARITHMETIC, *ACTIVATIONS, *CHOICES, *MATRIX, *REDUCTIONS, *LAYERS]
