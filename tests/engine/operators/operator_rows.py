"""Every operator once or more: what goes in, how it is cut over two ranks, and how its results are
put together again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from zoo.builder import table

How = int | str | None
"""A dimension along which the ranks' parts are joined; a reduction by which they are combined;
None: every rank has the whole.
"""


@dataclass(frozen=True)
class In:
    """An input of the operator: its whole shape, and the dimension that is cut over the ranks
    (None: replicated).
    """

    shape: tuple[int, ...]
    cut: int | None = None
    dtype: str = "float32"
    bounds: tuple[int, int] | None = None


@dataclass(frozen=True)
class Row:
    """One way to spread one operator. ``local`` are attributes that differ in the parallel plan;
    ``gradient`` says whether the derivative is run too.
    """

    name: str
    kind: str
    inputs: tuple[In, ...]
    outputs: tuple[How, ...] = (0,)
    attributes: dict[str, Any] = field(default_factory=dict)
    local: dict[str, Any] = field(default_factory=dict)
    gradient: bool = True
    scaled: str = ""
    """Factor that mends a reduction which the derivative must share, e.g. 1/2 for a mean over both
    ranks.
    """


X = In((16, 12), 0)
V = In((12,))


def ints(shape: tuple[int, ...], stop: int, cut: int | None = 0, start: int = 0) -> In:
    """An integer input with its range."""
    return In(shape, cut, "int64", (start, stop))


def bools(shape: tuple[int, ...], cut: int | None = 0) -> In:
    """A boolean input."""
    return In(shape, cut, "bool")


def _unary() -> Iterator[Row]:
    plain = (
        "neg square reciprocal sqrt rsqrt exp log abs sign sigmoid silu tanh softplus relu "
        "erf sin cos gelu identity contiguous detach wait"
    )
    for kind in plain.split():
        yield Row(kind, kind, (X,), gradient=kind not in ("detach", "wait"))
    yield Row("gelu_tanh", "gelu", (X,), attributes={"approximate": "tanh"})
    yield Row("clamp", "clamp", (X,), attributes={"min": -0.5, "max": 0.5})
    yield Row("clamp_min", "clamp", (X,), attributes={"min": 0})
    for name, exponent in (
        ("square", 2),
        ("cube", 3),
        ("half", 0.5),
        ("inverse", -1),
        ("inverse_half", -0.5),
    ):
        yield Row(f"pow_{name}", "pow", (X,), attributes={"exponent": exponent})
    yield Row("scale_by_size", "scale_by_size", (X,), attributes={"axis": 1, "exponent": -1})
    yield Row(
        "scale_by_root_of_size",
        "scale_by_size",
        (In((3, 8, 5), 1),),
        (1,),
        {"axis": -1, "exponent": "-1/2"},
    )
    yield Row("cast_narrow", "cast", (X,), attributes={"dtype": "bfloat16"}, gradient=False)
    yield Row(
        "cast_integer", "cast", (ints((16, 6), 9),), attributes={"dtype": "int32"}, gradient=False
    )
    yield Row(
        "cast_bool", "cast", (ints((16, 6), 3),), attributes={"dtype": "bool"}, gradient=False
    )
    yield Row(
        "cast_number", "cast", (ints((16, 6), 9),), attributes={"dtype": "float32"}, gradient=False
    )


def _binary() -> Iterator[Row]:
    for kind in ("add", "sub", "mul", "div", "maximum", "minimum"):
        yield Row(kind, kind, (X, X))
        yield Row(f"{kind}_broadcast", kind, (X, V))
    yield Row("add_alpha", "add", (X, X), attributes={"alpha": 3})
    yield Row("sub_alpha", "sub", (X, X), attributes={"alpha": 3})
    yield Row(
        "floor_divide", "floor_divide", (ints((16,), 30), ints((16,), 5, start=1)), gradient=False
    )
    yield Row("remainder", "remainder", (ints((16,), 30), ints((16,), 5, start=1)), gradient=False)
    for kind in ("eq", "ne", "lt", "le", "gt", "ge"):
        yield Row(kind, kind, (ints((16, 6), 4), ints((16, 6), 4)), gradient=False)
    for kind in ("lt", "ge"):
        yield Row(f"{kind}_real", kind, (X, X), gradient=False)
    for kind in ("logical_and", "logical_or", "logical_xor"):
        yield Row(kind, kind, (bools((16, 6)), bools((16, 6))), gradient=False)
    yield Row("logical_not", "logical_not", (bools((16, 6)),), gradient=False)


def _products() -> Iterator[Row]:
    yield Row("linear_batch", "linear", (X, In((10, 12)), In((10,))))
    yield Row("linear_columns", "linear", (In((16, 12)), In((10, 12), 0), In((10,), 0)), (1,))
    yield Row("linear_rows", "linear", (In((16, 12), 1), In((10, 12), 1)), ("sum",))
    yield Row("matmul_batch", "matmul", (In((16, 12), 0), In((12, 10))))
    yield Row("matmul_columns", "matmul", (In((16, 12)), In((12, 10), 1)), (1,))
    yield Row("matmul_inner", "matmul", (In((16, 12), 1), In((12, 10), 0)), ("sum",))
    yield Row("matmul_vector", "matmul", (In((16, 12), 0), In((12,))))
    yield Row("bmm_batch", "bmm", (In((8, 9, 7), 0), In((8, 7, 5), 0)))
    yield Row("bmm_rows", "bmm", (In((4, 10, 7), 1), In((4, 7, 5))), (1,))
    yield Row("bmm_inner", "bmm", (In((4, 5, 14), 2), In((4, 14, 6), 1)), ("sum",))
    heads = {"equation": "bhqd,bhkd->bhqk"}
    yield Row("einsum_heads", "einsum", (In((3, 8, 5, 7), 1), In((3, 8, 6, 7), 1)), (1,), heads)
    yield Row(
        "einsum_inner", "einsum", (In((3, 4, 5, 14), 3), In((3, 4, 6, 14), 3)), ("sum",), heads
    )


def _normalisations() -> Iterator[Row]:
    for kind in ("softmax", "log_softmax"):
        yield Row(kind, kind, (X,), attributes={"axis": 1})
        yield Row(f"{kind}_first", kind, (In((10, 16), 1),), (1,), {"axis": 0})
    yield Row("logsumexp", "logsumexp", (X,), attributes={"axis": 1})
    yield Row("logsumexp_keepdim", "logsumexp", (X,), attributes={"axis": -1, "keepdim": True})
    for kind in ("layer_norm", "rms_norm"):
        yield Row(kind, kind, (X, V, V), attributes={"eps": 1e-5})
        yield Row(f"{kind}_plain", kind, (X,), attributes={"eps": 1e-6})
        yield Row(
            f"{kind}_two_dimensions",
            kind,
            (In((8, 5, 4), 0),),
            attributes={"eps": 1e-5, "dims": 2},
            gradient=False,
        )


def _attention() -> Iterator[Row]:
    for convention in ("half", "interleaved"):
        attributes = {"convention": convention}
        yield Row(
            f"rotary_{convention}",
            "rotary",
            (In((10, 8), 0), In((10, 4), 0), In((10, 4), 0)),
            attributes=attributes,
        )
        yield Row(
            f"rotary_{convention}_heads",
            "rotary",
            (In((8, 5, 8), 0), In((5, 8)), In((5, 8))),
            attributes=attributes,
        )
    q = In((2, 8, 5, 4), 1)
    yield Row("attention_heads", "scaled_dot_product_attention", (q, q, q), (1,))
    yield Row(
        "attention_causal", "scaled_dot_product_attention", (q, q, q), (1,), {"is_causal": True}
    )
    yield Row(
        "attention_scale",
        "scaled_dot_product_attention",
        (q, q, q),
        (1,),
        {"scale": 0.5},
        gradient=False,
    )
    yield Row(
        "attention_batch_mask",
        "scaled_dot_product_attention",
        (In((8, 3, 4), 0), In((8, 6, 4), 0), In((8, 6, 5), 0), bools((3, 6), None)),
        gradient=False,
    )
    yield Row(
        "attention_grouped",
        "scaled_dot_product_attention",
        (q, In((2, 4, 5, 4), 1), In((2, 4, 5, 4), 1)),
        (1,),
        {"enable_gqa": True},
        gradient=False,
    )
    yield Row(
        "attention_queries",
        "scaled_dot_product_attention",
        (In((2, 10, 4), 1), In((2, 6, 4)), In((2, 6, 5))),
        (1,),
    )


def _reductions() -> Iterator[Row]:
    yield Row("sum_over_ranks", "sum", (X,), ("sum",), {"axes": (0,)})
    yield Row("sum_all", "sum", (X,), ("sum",))
    yield Row("sum_within", "sum", (X,), attributes={"axes": (1,), "keepdim": True})
    yield Row("mean_over_ranks", "mean", (X,), ("avg",), {"axes": (0,)}, scaled="1/2")
    yield Row("mean_within", "mean", (X,), attributes={"axes": (-1,)})
    yield Row("var_within", "var", (X,), attributes={"axes": (1,)})
    yield Row(
        "var_biased", "var", (X,), attributes={"axes": (1,), "correction": 0, "keepdim": True}
    )
    for kind, reduction in (("amax", "max"), ("amin", "min")):
        yield Row(f"{kind}_over_ranks", kind, (X,), (reduction,), {"axes": (0,)}, gradient=False)
        yield Row(f"{kind}_within", kind, (X,), attributes={"axes": (1,)})
    for kind in ("max", "min"):
        yield Row(kind, kind, (X,), (0, 0), {"axis": 1})
        yield Row(
            f"{kind}_keepdim", kind, (X,), (0, 0), {"axis": 1, "keepdim": True}, gradient=False
        )
    for kind in ("argmax", "argmin"):
        yield Row(kind, kind, (X,), attributes={"axis": 1}, gradient=False)
    yield Row("topk", "topk", (In((8, 6), 0),), (0, 0), {"k": 2})
    yield Row(
        "topk_least", "topk", (In((8, 6), 0),), (0, 0), {"k": 2, "largest": False}, gradient=False
    )
    yield Row("sort", "sort", (In((8, 4), 0),), (0, 0))
    yield Row(
        "sort_descending", "sort", (In((8, 4), 0),), (0, 0), {"descending": True}, gradient=False
    )
    yield Row("cumsum", "cumsum", (X,), attributes={"axis": 1})
    yield Row(
        "cumsum_integers", "cumsum", (ints((16, 6), 5),), attributes={"axis": 1}, gradient=False
    )
    for kind in ("any", "all"):
        yield Row(kind, kind, (bools((16, 3)),), attributes={"axes": (1,)}, gradient=False)


def _structure() -> Iterator[Row]:
    for kind in ("view", "reshape"):
        yield Row(kind, kind, (X,), attributes={"sizes": (16, 3, 4)}, local={"sizes": (8, 3, 4)})
        yield Row(
            f"{kind}_merge",
            kind,
            (In((16, 5, 6), 0),),
            attributes={"sizes": (80, 6)},
            local={"sizes": (40, 6)},
        )
        yield Row(
            f"{kind}_heads",
            kind,
            (In((5, 24), 1),),
            (1,),
            {"sizes": (5, 4, 6)},
            {"sizes": (5, 2, 6)},
        )
    yield Row("transpose", "transpose", (X,), (1,), {"dim0": 0, "dim1": 1})
    yield Row("permute", "permute", (In((16, 5, 6), 0),), (2,), {"permutation": (1, 2, 0)})
    yield Row("unsqueeze", "unsqueeze", (X,), (1,), {"axis": 0})
    yield Row("squeeze", "squeeze", (In((16, 1, 12), 0),), attributes={"axis": 1})
    yield Row(
        "expand",
        "expand",
        (In((16, 1), 0),),
        attributes={"sizes": (16, 5)},
        local={"sizes": (8, 5)},
    )
    yield Row("multiref", "multiref", (X,), (0, 0), {"count": 2})
    yield Row(
        "repeat_interleave",
        "repeat_interleave",
        (In((6, 10), 0),),
        attributes={"count": 2, "axis": 0},
    )
    yield Row("chunk", "chunk", (X,), attributes={"axis": 1, "count": 3, "position": 1})
    yield Row("slice", "slice", (X,), attributes={"axis": 1, "start": 4, "stop": 8})
    yield Row(
        "slice_step", "slice", (X,), attributes={"axis": 1, "start": 1, "stop": 11, "step": 2}
    )
    yield Row("select", "select", (X,), attributes={"axis": 1, "index": 7})
    yield Row("split", "split", (X,), (0, 0), {"axis": 1, "sizes": (4, 8)})
    yield Row("unbind", "unbind", (In((16, 2), 0),), (0, 0), {"axis": 1})
    yield Row("cat", "cat", (X, In((16, 5), 0)), attributes={"axis": 1})
    yield Row("stack", "stack", (X, X), (1,), {"axis": 0})
    yield Row("pad", "pad", (X,), attributes={"axis": 1, "before": 1, "after": 2, "value": 3})
    yield Row("flip", "flip", (X,), attributes={"axes": (1,)})
    yield Row("roll", "roll", (X,), attributes={"axis": 1, "shift": 1})
    for kind in ("tril", "triu"):
        yield Row(kind, kind, (In((8, 6, 6), 0),), attributes={"diagonal": 1})
    diagonal = {"axis": 1, "other": 2, "offset": 1}
    yield Row("diagonal", "diagonal", (In((8, 6, 6), 0),), attributes=diagonal)


def _indexing() -> Iterator[Row]:
    yield Row("embedding_ids", "embedding", (ints((10,), 7), In((7, 8))))
    yield Row("embedding_columns", "embedding", (ints((10,), 7, None), In((7, 8), 1)), (1,))
    yield Row(
        "index_select", "index_select", (In((10, 8), 1), ints((5,), 10, None)), (1,), {"axis": 0}
    )
    yield Row(
        "index_add",
        "index_add",
        (In((6, 8), 1), ints((5,), 6, None), In((5, 8), 1)),
        (1,),
        {"axis": 0},
    )
    yield Row("gather", "gather", (In((10, 6), 0), ints((10, 3), 6)), attributes={"axis": 1})
    yield Row(
        "gather_fewer", "gather", (In((10, 9, 6), 0), ints((10, 4, 3), 6)), attributes={"axis": 2}
    )
    yield Row(
        "scatter_add",
        "scatter_add",
        (In((10, 6), 0), ints((10, 3), 6), In((10, 3), 0)),
        attributes={"axis": 1},
    )
    yield Row(
        "scatter_add_fewer",
        "scatter_add",
        (In((10, 9, 6), 0), ints((10, 4, 3), 6), In((10, 4, 3), 0)),
        attributes={"axis": 2},
    )
    yield Row(
        "scatter_value",
        "scatter_value",
        (In((10, 6), 0), ints((10, 2), 6), In(())),
        attributes={"axis": 1},
    )
    yield Row("where", "where", (bools((16, 12)), X, X))
    yield Row("where_broadcast", "where", (bools((16, 1)), X, V))
    yield Row("masked_fill", "masked_fill", (X, bools((16, 12)), In(())))
    yield Row("one_hot", "one_hot", (ints((10,), 5),), attributes={"classes": 5}, gradient=False)
    yield Row(
        "positions",
        "positions",
        (X,),
        attributes={"axis": 0},
        local={"offset": table("tp", 0, 8)},
        gradient=False,
    )
    yield Row(
        "boundary", "boundary", (X,), (None,), attributes={"axis": 0, "offset": 8}, gradient=False
    )
    yield Row("causal_mask", "causal_mask", (In((8, 6, 6), 0),), (None,), gradient=False)
    yield Row(
        "full",
        "full",
        (),
        attributes={"sizes": (16, 5), "value": 3},
        local={"sizes": (8, 5)},
        gradient=False,
    )
    yield Row("full_like", "full_like", (X,), attributes={"value": 3}, gradient=False)


def _losses() -> Iterator[Row]:
    z, t = In((10, 5), 0), ints((10,), 5)
    for kind in ("cross_entropy", "nll_loss"):
        yield Row(f"{kind}_none", kind, (z, t), attributes={"reduction": "none"})
        yield Row(f"{kind}_sum", kind, (z, t), ("sum",), {"reduction": "sum"})
        yield Row(f"{kind}_mean", kind, (z, t), ("avg",), {"reduction": "mean"}, scaled="1/2")
        yield Row(f"{kind}_ignore", kind, (z, t), ("sum",), {"reduction": "sum", "ignore_index": 2})
    for reduction, how in (("none", 0), ("sum", "sum"), ("mean", "avg")):
        yield Row(
            f"mse_loss_{reduction}",
            "mse_loss",
            (X, X),
            (how,),
            {"reduction": reduction},
            scaled="1/2" if how == "avg" else "",
        )


def _random() -> Iterator[Row]:
    where = {"start": table("tp", (0, 0), (5, 0)), "whole": (10, 4)}
    yield Row(
        "uniform",
        "uniform",
        (In((10, 4), 0),),
        attributes={"stream": "s"},
        local=where,
        gradient=False,
    )
    yield Row(
        "normal",
        "normal",
        (In((10, 4), 0),),
        attributes={"stream": "s"},
        local=where,
        gradient=False,
    )
    more = {"stream": "s", "probability": 0.5}
    yield Row(
        "dropout_mask",
        "dropout_mask",
        (In((10, 4), 0),),
        attributes=more,
        local=where,
        gradient=False,
    )
    yield Row("dropout", "dropout", (X, bools((16, 12))), attributes={"probability": 0.25})


ROWS: dict[str, Row] = {
    row.name: row
    for rows in (
        _unary,
        _binary,
        _products,
        _normalisations,
        _attention,
        _reductions,
        _structure,
        _indexing,
        _losses,
        _random,
    )
    for row in rows()
}
