"""An example, or several, of every overload of losses, structure, indexing, constants, lists and
optimizers.
"""

from __future__ import annotations

import torch
from frontends.torch.aten.aten_harness import Row
from frontends.torch.aten.aten_rows import cases, flags, integers, pairs, positive, reals

Tensor = torch.Tensor


def _nll() -> list[Row]:
    rows = []
    for d, shape, places in (("", (4, 5), (4,)), ("", (5,), ()), ("2d", (2, 5, 3, 2), (2, 3, 2))):
        scores, target = reals(*shape), integers(5, *places)
        ignored = target.clone()
        ignored.view(-1)[::2] = -100
        for reduction in (0, 1, 2):
            for at, case in ((target, "all"), (ignored, "ignored")):
                name = f"nll_loss{d}_forward.default"
                out, total = getattr(torch.ops.aten, name.partition(".")[0]).default(
                    scores, at, None, reduction, -100
                )
                if not (case == "ignored" and not places):
                    rows.append(
                        Row(
                            name,
                            (scores, at, None, reduction, -100),
                            {},
                            f"{shape}-{reduction}-{case}",
                        )
                    )
                    gradient = reals(*out.shape, seed=5)
                    rows.append(
                        Row(
                            f"nll_loss{d}_backward.default",
                            (gradient, scores, at, None, reduction, -100, total),
                            {},
                            f"{shape}-{reduction}-{case}",
                        )
                    )
        rows.append(
            Row(f"nll_loss{d}_forward.default", (scores, target, None, 1, 2), {}, f"{shape}-2")
        )
    return rows


LOSSES = [
    *_nll(),
    *(
        Row("mse_loss.default", (reals(2, 3), reals(2, 3, seed=1), r), {}, str(r))
        for r in (0, 1, 2)
    ),
    *(
        Row(
            "mse_loss_backward.default",
            (reals(*(2, 3)[: 2 * (r == 0)]), reals(2, 3, seed=2), reals(2, 3, seed=1), r),
            {},
            str(r),
        )
        for r in (0, 1, 2)
    ),
    *(
        Row(
            "binary_cross_entropy_with_logits.default",
            (reals(2, 3), positive(2, 3) / 3, None, None, r),
            {},
            str(r),
        )
        for r in (0, 1, 2)
    ),
]

_X = reals(2, 3, 4)
_Z = pairs(2, 3, 4)

STRUCTURE = [
    *(
        Row(f"{n}.default", (x,), {}, str(x.dtype))
        for n in (
            "detach",
            "alias",
            "lift_fresh",
            "lift",
            "lift_fresh_copy",
            "detach_copy",
            "alias_copy",
        )
        for x in (_X, _Z)
    ),
    *(
        Row(f"{n}.default", (x,), {}, str(x.dtype))
        for n in ("clone", "contiguous")
        for x in (_X, _Z, flags(3))
    ),
    *(
        Row("_to_copy.default", (x,), {"dtype": d}, f"{x.dtype}-{d}")
        for x in (3 * _X, integers(3, 4), flags(4))
        for d in (torch.float64, torch.int64, torch.bool, None)
    ),
    Row("_to_copy.default", (flags(4),), {"dtype": torch.int8}, "int8"),
    *cases(
        "copy.default",
        (_X, reals(3, 1)),
        (_X, integers(5, 4)),
        (integers(3, 4), 3 * reals(4)),
        (flags(3), integers(2, 3)),
        (_Z, pairs(4)),
    ),
    *cases("view.default", (_X, [6, 4]), (_X, [-1]), (_X, [2, 3, 2, 2]), (_Z, [6, 4])),
    *cases("_unsafe_view.default", (_X, [6, -1])),
    *cases("view_copy.default", (_X, [6, -1])),
    *cases("reshape.default", (_X, [6, -1])),
    *cases("_reshape_alias.default", (_X, [6, 4], [4, 1])),
    *cases("squeeze.default", (reals(1, 3, 1),)),
    *cases("squeeze.dim", (reals(1, 3, 1), 0), (reals(1, 3, 1), 1), (pairs(1, 3, 1), -1)),
    *cases("squeeze.dims", (reals(1, 3, 1), [0, 2])),
    *cases("unsqueeze.default", (_X, 0), (_X, -1), (_X, 2), (_Z, -1), (reals(), 0)),
    *cases(
        "expand.default",
        (reals(2, 1, 3), [2, 4, 3]),
        (reals(3), [2, -1]),
        (reals(), [2, 3]),
        (pairs(1, 3), [2, 4, 3]),
        (reals(2, 3), [2, 3]),
    ),
    *cases("transpose.int", (_X, 0, 1), (_X, -1, 0), (_X, 1, 1), (_Z, -1, -2)),
    *cases("t.default", (reals(2, 3),), (reals(3),)),
    *cases("permute.default", (_X, [2, 0, 1]), (_X, [-1, -2, 0]), (_Z, [2, 0, 1]), (reals(), [])),
    *cases("view_as_real.default", (_Z,)),
    *cases("view_as_complex.default", (reals(3, 4, 2),)),
    *cases(
        "slice.Tensor",
        (_X,),
        (_X, 1, 1, 3),
        (_X, -1, -3, -1),
        (_X, 2, 0, 2**63 - 1),
        (_X, 2, 0, 100, 3),
        (_X, 2, 1, 4, 2),
        (_Z, -1, 1),
    ),
    *cases("select.int", (_X, 0, 1), (_X, -1, -1), (_Z, -1, 2)),
    *cases(
        "split_with_sizes.default",
        (_X, [1, 2], 1),
        (_X, [4], -1),
        (_Z, [1, 3], -1),
        (_X, [1, 0, 2], 1),
        (_X, [0, 4], -1),
    ),
    *cases("split_with_sizes_copy.default", (_X, [1, 1, 2], -1)),
    *cases("unsafe_split_with_sizes.default", (_X, [1, 1, 2], -1)),
    *cases("split.Tensor", (_X, 2, -1), (_X, 2, 1), (_X, 5)),
    *cases("unsafe_split.Tensor", (_X, 2, 1)),
    *cases("unbind.int", (_X,), (_X, -1), (_Z, -1)),
    *cases(
        "slice_backward.default",
        (reals(2, 2, 4), [2, 5, 4], 1, 1, 3, 1),
        (reals(2, 2), [2, 5], -1, 1, 2**63 - 1, 3),
        (reals(2, 3), [2, 3], 1, 0, 3, 1),
    ),
    *cases(
        "slice_backward.default",
        (pairs(2, 2), [2, 5], -1, 1, 3, 1),
        (reals(2, 2), [5, 2], 0, -2, 2**63 - 1, 1),
        (reals(2, 0), [2, 5], 1, 3, 3, 1),
    ),
    *cases(
        "select_backward.default", (reals(2, 4), [2, 3, 4], 1, 1), (reals(2, 3), [2, 3, 4], -1, -1)
    ),
    *cases(
        "slice_scatter.default",
        (_X, reals(2, 2, 4), 1, 1, 3),
        (_X, reals(2, 3, 1), -1, -1),
        (_X, reals(2, 3, 4)),
        (_X, integers(9, 1, 3, 4), 0, None, 1),
    ),
    *cases("select_scatter.default", (_X, reals(2, 4), 1, 1), (_X, reals(2, 3), -1, -1)),
    *cases(
        "cat.default",
        ([reals(2, 3), reals(1, 3)],),
        ([reals(2, 3), reals(2, 1), reals(2, 3)], -1),
        ([reals(2, 3)],),
        ([integers(3, 2), reals(2)],),
    ),
    *cases("cat.default", ([torch.zeros(0), reals(2, 3)],), ([_Z, _Z], -1)),
    *cases(
        "stack.default",
        ([reals(2, 3), reals(2, 3, seed=1)],),
        ([reals(2, 3), reals(2, 3, seed=1)], -1),
        ([_Z, _Z], -1),
        ([reals(), reals()],),
    ),
    *cases("_chunk_cat.default", ([reals(3, 2), reals(4), reals(2, 1, 3)], 0, 2)),
    *cases(
        "constant_pad_nd.default",
        (reals(2, 3), [1, 2]),
        (reals(2, 3), [1, 2, 0, 3], 1.5),
        (reals(2, 5), [-1, 2]),
        (reals(3, 5), [0, -2, -1, -1]),
    ),
    *cases("repeat.default", (reals(2, 3), [2, 3]), (reals(2, 3), [4, 1, 2]), (reals(3), [1])),
    *cases("repeat_interleave.self_int", (_X, 3, 1), (_X, 2, -1), (reals(2, 3), 2)),
    *cases("flip.default", (_X, [0]), (_X, [1, -1]), (_X, []), (_Z, [-1])),
    *cases("roll.default", (_X, [1], [1]), (_X, [2, -1], [0, -1]), (_X, [5]), (_X, [0], [0])),
    *(
        row
        for n in ("tril.default", "triu.default")
        for row in cases(n, (reals(3, 3),), (reals(2, 3, 4), 1), (flags(3, 3), -1))
    ),
]

_FIRST, _SECOND, _THIRD = integers(4, 5), integers(3, 5, seed=1), integers(2, 5, seed=2)
_BASE = reals(4, 3, 2)
_APART = torch.tensor([[0, 2], [3, 1]])

INDEXING = [
    *cases(
        "index.Tensor",
        (_BASE, [_FIRST]),
        (_BASE, [None, _SECOND]),
        (_BASE, [_FIRST, _SECOND]),
        (_BASE, [_FIRST, _SECOND, _THIRD]),
    ),
    *cases(
        "index.Tensor",
        (_BASE, [integers(4, 2, 3)]),
        (_BASE, [integers(4, 2, 1), integers(3, 5)]),
        (_BASE, [None, integers(3, 3, 2), integers(2, 2)]),
    ),
    *cases(
        "index.Tensor",
        (pairs(4, 3), [_FIRST]),
        (_BASE, [torch.tensor(1)]),
        (integers(9, 4), [_FIRST]),
    ),
    *cases("_unsafe_index.Tensor", (_BASE, [_FIRST, _SECOND])),
    *cases(
        "index_put.default",
        (_BASE, [_FIRST], reals(5, 3, 2), True),
        (_BASE, [_FIRST, _SECOND], reals(5, 2), True),
        (_BASE, [None, _SECOND, _THIRD], reals(5), True),
        (_BASE, [_FIRST, _SECOND, _THIRD], reals(5), True),
        (_BASE, [integers(4, 2, 1), integers(3, 5)], reals(2), True),
        (_BASE, [_APART], reals(2, 2, 3, 2)),
        (_BASE, [_APART.view(-1)[:3], torch.arange(3)], reals(3, 2)),
        (_BASE, [torch.arange(4), integers(3, 4)], reals()),
        (integers(9, 4), [_FIRST], torch.tensor(7)),
        (_BASE, [flags(4, 3, 2)], reals()),
        (_BASE, [flags(4)], reals(1)),
        (integers(5, 4, 3), [flags(4)], torch.tensor(0)),
    ),
    *cases("_unsafe_index_put.default", (_BASE, [_FIRST], reals(5, 3, 2), True)),
    *cases("index_select.default", (_BASE, 1, _SECOND), (_BASE, -1, _THIRD)),
    *cases(
        "index_add.default", (_BASE, 0, _FIRST, reals(5, 3, 2)), (_BASE, -1, _THIRD, reals(4, 3, 5))
    ),
    Row("index_add.default", (_BASE, 0, _FIRST, reals(5, 3, 2)), {"alpha": 2.5}, "alpha"),
    *cases(
        "index_copy.default",
        (_BASE, 0, torch.tensor([2, 0]), reals(2, 3, 2)),
        (_BASE, -2, torch.tensor([1]), reals(4, 1, 2)),
    ),
    *cases("index_fill.int_Scalar", (_BASE, 1, torch.tensor([2, 0]), 1.5), (_BASE, 0, _FIRST, 0)),
    *cases(
        "gather.default",
        (reals(3, 4), 1, integers(4, 3, 2)),
        (reals(3, 4), 0, integers(3, 6, 2)),
        (reals(3, 4), -1, integers(4, 2, 5)),
    ),
    *cases(
        "scatter_add.default",
        (reals(3, 4), 1, integers(4, 3, 2), reals(3, 2)),
        (reals(3, 4), 0, integers(3, 2, 3), reals(5, 4)),
    ),
    *cases(
        "scatter.src",
        (reals(3, 4), 1, torch.tensor([[0, 2], [3, 1], [1, 0]]), reals(3, 2)),
        (reals(4), 0, torch.tensor([2, 0]), reals(3)),
    ),
    *cases(
        "scatter.value",
        (reals(3, 4), 1, integers(4, 3, 2), 1.5),
        (torch.zeros(5, 7, dtype=torch.int64), -1, integers(7, 5, 1), 1),
    ),
    *cases("scatter_reduce.two", (reals(3, 4), 1, integers(4, 3, 2), reals(3, 2), "sum")),
    *cases("embedding.default", (reals(7, 3), integers(7, 2, 5)), (reals(7, 3), integers(7, 5), 2)),
    *cases(
        "embedding_dense_backward.default",
        (reals(2, 5, 3), integers(7, 2, 5), 7, -1, False),
        (reals(9, 3), integers(7, 9), 7, 2, False),
    ),
    *cases("bincount.default", (integers(3, 9), None, 5)),
]

_MADE = {"dtype": torch.float64}

CONSTANTS = [
    *(
        Row(f"{n}.default", ([2, 3],), {"dtype": d}, str(d))
        for n in ("zeros", "ones")
        for d in (torch.float64, torch.int64, torch.bool)
    ),
    *(
        Row(f"{n}_like.default", (x,), {}, str(x.dtype))
        for n in ("zeros", "ones")
        for x in (_X, flags(3), integers(3, 4))
    ),
    Row("zeros_like.default", (_Z,), {}, "complex"),
    *(Row(f"new_{n}.default", (_X, [2, 5])) for n in ("zeros", "ones")),
    *cases("full.default", ([2, 3], 1.5), ([2], -float("inf")), **_MADE),
    *cases("full.default", ([2, 3], 7), ([2], True)),
    *cases("full_like.default", (_X, -1e4), (integers(3, 4), 2)),
    *cases("new_full.default", (_X, [2, 5], 0.5)),
    *cases("scalar_tensor.default", (-float("inf"),), (0.1,), **_MADE),
    *cases("fill.Scalar", (_X, 0.5), (flags(3), True), (integers(3, 4), 2)),
    *cases("fill.Tensor", (_X, reals()), (_X, torch.tensor(3))),
    *cases("zero.default", (_X,), (integers(3, 4),)),
    *cases("empty.memory_format", ([2, 3],)),
    *cases("empty_like.default", (_X,)),
    *cases("empty_strided.default", ([2, 3], [3, 1])),
    *cases("empty_permuted.default", ([2, 3], [1, 0])),
    *cases("new_empty.default", (_X, [2, 3])),
    *cases("new_empty_strided.default", (_X, [2, 3], [3, 1])),
    *cases("arange.default", (5,)),
    *cases("arange.default", (5,), (4.5,), **_MADE),
    *cases("arange.start", (5, 10), (2, 7), (-3, 3)),
    *cases("arange.start", (0.5, 4), **_MADE),
    *cases("arange.start_step", (0, 8, 2), (1, 8, 3), (5, 0, -2)),
    *cases("arange.start_step", (0, 8, 2), (0, 1, 0.25), **_MADE),
    *(Row("eye.default", (3,), {"dtype": d}, str(d)) for d in (torch.float64, torch.int64)),
    Row("eye.m", (2, 4), _MADE),
]


def _lists(count: int) -> list[list[Tensor]]:
    return [[reals(2, 3, seed=s), reals(4, seed=s + 10), reals(seed=s + 20)] for s in range(count)]


def _listed(name: str, make: str = "reals") -> list[Row]:
    maker = positive if make == "positive" else reals
    return cases(f"_foreach_{name}.default", ([maker(2, 3), maker(4), maker()],))


_A, _B, _C = _lists(3)
_FACTORS = [0.5, -2.0, 3]

LISTS = [
    *(
        row
        for n in (
            "neg",
            "abs",
            "sign",
            "reciprocal",
            "exp",
            "sigmoid",
            "tanh",
            "erf",
            "cos",
            "sin",
            "max",
            "zero",
            "clone",
        )
        for row in _listed(n)
    ),
    *(row for n in ("sqrt", "rsqrt", "log") for row in _listed(n, "positive")),
    *(
        row
        for n in ("add", "sub", "mul", "div", "clamp_min", "clamp_max", "maximum", "minimum")
        for row in (
            Row(f"_foreach_{n}.Scalar", (_A, 0.5)),
            Row(f"_foreach_{n}.List", (_A, _B)),
            Row(f"_foreach_{n}.ScalarList", (_A, _FACTORS)),
        )
    ),
    *(Row(f"_foreach_{n}.List", (_A, _B), {"alpha": -0.1}, "alpha") for n in ("add", "sub")),
    *(Row(f"_foreach_{n}.Tensor", (_A, reals())) for n in ("add", "mul", "div")),
    Row("_foreach_add.Tensor", (_A, torch.tensor(1.0)), {"alpha": 2.0}, "alpha"),
    *(
        row
        for n in ("addcmul", "addcdiv")
        for row in (
            Row(f"_foreach_{n}.Scalar", (_A, _B, _C, -0.01)),
            Row(f"_foreach_{n}.ScalarList", (_A, _B, _C, _FACTORS)),
            Row(f"_foreach_{n}.Tensor", (_A, _B, _C, torch.tensor(_FACTORS, dtype=torch.float64))),
        )
    ),
    Row("_foreach_lerp.List", (_A, _B, _C)),
    Row("_foreach_lerp.Scalar", (_A, _B, 0.1)),
    Row("_foreach_lerp.ScalarList", (_A, _B, _FACTORS)),
    Row("_foreach_pow.Scalar", (_A, 2)),
    Row("_foreach_pow.ScalarList", (_A, [2, 3, -1])),
    Row("_foreach_pow.ScalarAndTensor", (0.9, _A)),
    *cases("_foreach_norm.Scalar", (_A,), (_A, 1), (_A, float("inf"))),
    Row("_foreach_mm.default", ([reals(2, 3), reals(4, 2)], [reals(3, 2), reals(2, 5)])),
    Row("_foreach_copy.default", (_A, _B)),
]


ROWS = [*LOSSES, *STRUCTURE, *INDEXING, *CONSTANTS, *LISTS]
