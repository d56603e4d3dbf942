"""Plans on two ranks that read memory nobody has written to: ones of which no output depends on it,
and ones of which an output does.

Input x of shape (6, 4), spread over rows, and outputs y; the reference computes y of x alone,
unless it reads such memory as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zoo.builder import Builder, intervals, lineage

from pitcheck.plan.model import Number, Operator, Plan, Tensor

Build = Callable[[Builder, str], str]
"""From a builder and the rows of a rank to the rank's output."""
MESH = {"dp": 2}
FREE = -1


def memory(b: Builder, *sizes: int, dtype: str = "float32", **more: Any) -> str:
    """Memory that nobody has written to."""
    name: str = b.op("uninitialised", sizes=sizes, dtype=dtype, **more)
    return name


def pair(
    build: Build, reference: Build | None = None, spread: dict[int, Any] | None = None
) -> tuple[Plan, Plan]:
    """Twice x, or what ``reference`` makes of x, and ``build`` on the three rows of each rank;
    ``spread``: how y is (by default over rows).
    """
    first = Builder("reference")
    x = first.input("x", (6, 4))
    first.op(
        "identity", reference(first, x) if reference else first.op("mul", x, Number(2)), out="y"
    )
    first.output("y")
    second = Builder("parallel", MESH)
    x = second.input("x", (3, 4), {0: "dp"})
    second.op("identity", build(second, x), out="y")
    second.output("y", "y", lineage("y", {0: "dp"} if spread is None else spread))
    return first.plan(), second.plan()


def twice(b: Builder, x: str) -> str:
    """2 x."""
    result: str = b.op("mul", x, Number(2))
    return result


def padded(b: Builder, x: str, rows: int = 2) -> str:
    """The rows of x, and memory behind them."""
    result: str = b.op("cat", x, memory(b, rows, 4), axis=0)
    return result


def first(b: Builder, x: str, rows: int = 3) -> str:
    """The first rows."""
    result: str = b.op("slice", x, axis=0, start=0, stop=rows)
    return result


def whole(b: Builder, number: int) -> str:
    """An integer."""
    result: str = b.op("full", sizes=(), value=number, dtype="int64")
    return result


def divided(b: Builder, kind: str, a: str, by: str) -> str:
    """An integer operator of divisors that are not 0, whatever the builder tries."""
    name = f"{kind}_{len(b.operators)}"
    b.add(Tensor(name, b.tensors[a].shape, "int64"))
    b.operators.append(
        Operator(
            f"{len(b.operators)}:{kind}",
            kind,
            (a, by),
            (name,),
            source=f"parallel.py:{len(b.operators) + 1}",
        )
    )
    return name


def mask(b: Builder, rows: int, holds: int) -> str:
    """Return a mask of the first ``holds`` rows; shape (rows, 1)."""
    places = b.op("positions", b.op("full", sizes=(rows,), value=0, dtype="int64"), axis=0)
    result: str = b.op("unsqueeze", b.op("lt", places, Number(holds)), axis=1)
    return result


# --- right


def _tail_is_cut(b: Builder, x: str) -> str:
    return first(b, twice(b, padded(b, x)))


def _tail_is_chosen_away(b: Builder, x: str) -> str:
    return first(b, b.op("where", mask(b, 5, 3), twice(b, padded(b, x)), Number(0)))


def _tail_is_filled(b: Builder, x: str) -> str:
    return first(
        b,
        b.op("masked_fill", twice(b, padded(b, x)), b.op("logical_not", mask(b, 5, 3)), Number(0)),
    )


def _gathered_with_tails(b: Builder, x: str) -> str:
    whole = b.op("all_gather", padded(b, x), group="dp", axis=0)
    parts = [b.op("slice", whole, axis=0, start=start, stop=start + 3) for start in (0, 5)]
    return twice(b, b.op("cat", *parts, axis=0))


def _summed_with_tails(b: Builder, x: str) -> str:
    total = b.op("all_reduce", padded(b, x), group="dp")
    return b.op("div", b.op("sum", first(b, total), axes=(0,)), Number(3))


def _sum_by_columns(b: Builder, x: str) -> str:
    return b.op("sum", x, axes=(0,))


def _by_index(b: Builder, x: str) -> str:
    return twice(b, b.op("index_select", padded(b, x), b.op("positions", x, axis=0), axis=0))


def _through_a_product(b: Builder, x: str) -> str:
    identity = b.op(
        "cast",
        b.op(
            "eq",
            b.op("positions", x, axis=1),
            b.op("unsqueeze", b.op("positions", x, axis=1), axis=1),
        ),
        dtype="float32",
    )
    return twice(b, first(b, b.op("matmul", padded(b, x), identity)))


def _through_softmax_of_rows(b: Builder, x: str) -> str:
    return first(b, b.op("softmax", padded(b, x), axis=1))


def _softmax(b: Builder, x: str) -> str:
    result: str = b.op("softmax", x, axis=1)
    return result


def _turned(b: Builder, x: str) -> str:
    wide = b.op("transpose", padded(b, x), dim0=0, dim1=1)
    return twice(b, b.op("transpose", b.op("slice", wide, axis=1, start=0, stop=3), dim0=0, dim1=1))


def _as_one_row(b: Builder, x: str) -> str:
    flat = b.op("view", padded(b, x), sizes=(20,))
    return twice(b, b.op("view", b.op("slice", flat, axis=0, start=0, stop=12), sizes=(3, 4)))


def _broadcast_from_the_root(b: Builder, x: str) -> str:
    b.op("uninitialised", sizes=(6, 4), out="held", where={"dp": (1,)})
    b.op("all_gather", x, group="dp", axis=0, out="gathered")
    b.op("identity", "gathered", out="held", where={"dp": (0,)})
    return twice(b, b.op("broadcast", "held", group="dp", root=0))


def _received_into_a_part(b: Builder, x: str) -> str:
    b.send(x, 1, {"dp": (0,)})
    b.receive(x, "a", 0, {"dp": (1,)})
    b.send(x, 0, {"dp": (1,)})
    b.receive(x, "a", 1, {"dp": (0,)})
    buffer = b.op("cat", memory(b, 1, 4), "a", memory(b, 1, 4), axis=0)
    other = b.op("slice", buffer, axis=0, start=1, stop=4)
    b.op("cat", x, other, axis=0, out="joined", where={"dp": (0,)})
    b.op("cat", other, x, axis=0, out="joined", where={"dp": (1,)})
    return twice(b, "joined")


def _not_read_at_all(b: Builder, x: str) -> str:
    memory(b, 7)
    return twice(b, x)


def _shape_alone(b: Builder, x: str) -> str:
    return b.op("add", twice(b, x), b.op("full_like", memory(b, 3, 4), value=0))


def _placed_by_index(b: Builder, x: str) -> str:
    ones = b.op(
        "index_add",
        b.op("full", sizes=(5,), value=0, dtype="int64"),
        b.op("positions", x, axis=0),
        b.op("full", sizes=(3,), value=1, dtype="int64"),
        axis=0,
    )
    rows = b.op(
        "index_add", b.op("full", sizes=(5, 4), value=0), b.op("positions", x, axis=0), x, axis=0
    )
    return twice(
        b,
        first(
            b,
            b.op(
                "where",
                b.op("unsqueeze", b.op("gt", ones, Number(0)), axis=1),
                rows,
                memory(b, 5, 4),
            ),
        ),
    )


def _sorted_by_rows(b: Builder, x: str) -> str:
    values, _ = b.op("sort", padded(b, x), axis=1, out=["sorted", ""])
    return first(b, values)


def _sorted(b: Builder, x: str) -> str:
    values, _ = b.op("sort", x, axis=1, out=["sorted", ""])
    result: str = values
    return result


def _scattered_sum(b: Builder, x: str) -> str:
    whole = b.op("cat", b.op("all_gather", x, group="dp", axis=0), memory(b, 2, 4), axis=0)
    mine = b.op(
        "slice",
        b.op("reduce_scatter", b.op("div", whole, Number(2)), group="dp", axis=0, reduction="sum"),
        axis=0,
        start=0,
        stop=2,
    )
    return b.op("sum", b.op("all_gather", mine, group="dp", axis=0), axes=(1,))


def _few_rows(b: Builder, x: str) -> str:
    return b.op(
        "sum",
        b.op(
            "cat",
            b.op("slice", x, axis=0, start=0, stop=2),
            b.op("slice", x, axis=0, start=4, stop=6),
            axis=0,
        ),
        axes=(1,),
    )


RIGHT: dict[str, tuple[Plan, Plan]] = {
    "tail is cut": pair(_tail_is_cut),
    "tail is chosen away": pair(_tail_is_chosen_away),
    "tail is filled": pair(_tail_is_filled),
    "gathered with tails": pair(_gathered_with_tails, spread={}),
    "summed with tails": pair(
        lambda b, x: b.op("mul", _summed_with_tails(b, x), Number(3)), _sum_by_columns, spread={}
    ),
    "by index": pair(_by_index),
    "through a product": pair(_through_a_product),
    "softmax of rows": pair(_through_softmax_of_rows, _softmax),
    "turned": pair(_turned),
    "as one row": pair(_as_one_row),
    "broadcast from the root": pair(_broadcast_from_the_root, spread={}),
    "received into a part": pair(_received_into_a_part, spread={}),
    "not read at all": pair(_not_read_at_all),
    "shape alone": pair(_shape_alone),
    "placed by index": pair(_placed_by_index),
    "sorted by rows": pair(_sorted_by_rows, _sorted),
    "scattered sum": pair(_scattered_sum, _few_rows, spread={}),
    "reference alone": pair(
        twice, _tail_is_cut_of_six := lambda b, x: first(b, twice(b, padded(b, x)), 6)
    ),
    "both sides": pair(_tail_is_cut, _tail_is_cut_of_six),
    "free padding of an output": pair(
        lambda b, x: twice(b, padded(b, x)),
        spread={0: intervals("dp", [(0, 3), (FREE, 2)], [(3, 6), (FREE, 2)])},
    ),
}


# --- wrong


def _added(b: Builder, x: str, extra: str) -> str:
    """2 x, and ``extra``, which would be 0 of most numbers, or be expected to change nothing."""
    result: str = b.op("add", twice(b, x), extra)
    return result


def _bool(b: Builder, condition: str) -> str:
    result: str = b.op("cast", condition, dtype="float32")
    return result


def _times_zero(b: Builder, x: str) -> str:
    return _added(b, x, b.op("mul", memory(b, 3, 4), Number(0)))


def _minus_itself(b: Builder, x: str) -> str:
    m = memory(b, 3, 4)
    return _added(b, x, b.op("sub", m, m))


def _equal_to_itself(b: Builder, x: str) -> str:
    m = memory(b, 3, 4)
    return b.op("mul", b.op("mul", x, Number(2)), _bool(b, b.op("eq", m, m)))


def _power_of_zero(b: Builder, x: str) -> str:
    return b.op("mul", twice(b, x), b.op("pow", memory(b, 3, 4), exponent=0))


def _summed_then_masked(b: Builder, x: str) -> str:
    total = b.op("sum", b.op("mul", padded(b, x), _bool(b, mask(b, 5, 3))), axes=(0,))
    return b.op("add", b.op("mul", x, Number(2)), b.op("sub", total, b.op("sum", x, axes=(0,))))


def _mask_off_by_one(b: Builder, x: str) -> str:
    rows = b.op("where", mask(b, 5, 4), padded(b, x), Number(0))
    return b.op("slice", twice(b, rows), axis=0, start=0, stop=4)


def _slice_off_by_one(b: Builder, x: str) -> str:
    return b.op("slice", twice(b, b.op("cat", memory(b, 1, 4), x, axis=0)), axis=0, start=0, stop=3)


def _largest(b: Builder, x: str) -> str:
    return b.op("amax", padded(b, x), axes=(0,))


def _least(b: Builder, x: str) -> str:
    return b.op("amin", padded(b, x), axes=(0,))


def _mean(b: Builder, x: str) -> str:
    return b.op("mean", padded(b, x), axes=(0,))


def _softmax_over_tail(b: Builder, x: str) -> str:
    return first(b, b.op("softmax", padded(b, x), axis=0))


def _softmax_of_columns(b: Builder, x: str) -> str:
    return b.op("softmax", x, axis=0)


def _sorted_over_tail(b: Builder, x: str) -> str:
    values, _ = b.op("sort", padded(b, x), axis=0, out=["sorted", ""])
    return first(b, values)


def _top(b: Builder, x: str) -> str:
    values, _ = b.op("topk", padded(b, x), axis=0, k=3, out=["top", ""])
    result: str = values
    return result


def _sign(b: Builder, x: str) -> str:
    return b.op("mul", twice(b, x), b.op("abs", b.op("sign", memory(b, 3, 4))))


def _relu(b: Builder, x: str) -> str:
    m = memory(b, 3, 4)
    return _added(b, x, b.op("mul", b.op("relu", m), b.op("relu", b.op("neg", m))))


def _clamped(b: Builder, x: str) -> str:
    return _added(b, x, b.op("clamp", memory(b, 3, 4), min=0, max=0))


def _as_condition(b: Builder, x: str) -> str:
    return b.op("where", b.op("gt", memory(b, 3, 4), Number(0)), twice(b, x), b.op("neg", x))


def _bool_memory(b: Builder, x: str) -> str:
    return b.op("where", memory(b, 3, 4, dtype="bool"), twice(b, x), b.op("neg", x))


def _cast_to_bool(b: Builder, x: str) -> str:
    return b.op("mul", twice(b, x), _bool(b, b.op("cast", memory(b, 3, 4), dtype="bool")))


def _as_index(b: Builder, x: str) -> str:
    return twice(
        b,
        b.op(
            "index_select",
            x,
            divided(b, "remainder", memory(b, 3, dtype="int64"), whole(b, 3)),
            axis=0,
        ),
    )


def _index_of_equal_rows(b: Builder, x: str) -> str:
    zeros = b.op("full", sizes=(3, 4), value=0)
    return _added(
        b,
        x,
        b.op("index_select", zeros, b.op("mul", memory(b, 3, dtype="int64"), whole(b, 0)), axis=0),
    )


def _divided(b: Builder, x: str) -> str:
    one = b.op("full", sizes=(3, 4), value=0, dtype="int64")
    return _added(
        b,
        x,
        b.op(
            "cast", divided(b, "floor_divide", one, memory(b, 3, 4, dtype="int64")), dtype="float32"
        ),
    )


def _integers_times_zero_divided(b: Builder, x: str) -> str:
    return _added(
        b,
        x,
        b.op(
            "cast",
            divided(b, "remainder", memory(b, 3, 4, dtype="int64"), whole(b, 1)),
            dtype="float32",
        ),
    )


def _summed_tail_is_used(b: Builder, x: str) -> str:
    total = b.op("all_reduce", padded(b, x), group="dp")
    tail = b.op("slice", total, axis=0, start=3, stop=5)
    return _added(b, x, b.op("sum", b.op("sub", tail, tail), axes=(0,)))


def _on_one_rank(b: Builder, x: str) -> str:
    b.op("uninitialised", sizes=(3, 4), out="m", where={"dp": (1,)})
    b.op("full", sizes=(3, 4), value=0, out="m", where={"dp": (0,)})
    return _added(b, x, b.op("mul", "m", Number(0)))


def _reduced_from_one_rank(b: Builder, x: str) -> str:
    b.op("uninitialised", sizes=(3, 4), out="m", where={"dp": (1,)})
    b.op("full", sizes=(3, 4), value=0, out="m", where={"dp": (0,)})
    return _added(b, x, b.op("mul", b.op("all_reduce", "m", group="dp"), Number(0)))


def _broadcast_from_the_wrong_root(b: Builder, x: str) -> str:
    b.op("uninitialised", sizes=(6, 4), out="held", where={"dp": (1,)})
    b.op("all_gather", x, group="dp", axis=0, out="gathered")
    b.op("identity", "gathered", out="held", where={"dp": (0,)})
    return twice(b, b.op("broadcast", "held", group="dp", root=1))


def _gathered_tail_is_used(b: Builder, x: str) -> str:
    whole = b.op("all_gather", padded(b, x, 1), group="dp", axis=0)
    parts = [b.op("slice", whole, axis=0, start=start, stop=start + 3) for start in (0, 3)]
    return twice(b, b.op("cat", *parts, axis=0))


def _zero_gradient(b: Builder, x: str) -> str:
    """The gradient of a weight is zero times what lies in the tail, which is NaN where that is."""
    dy = b.op("cat", x, b.op("full", sizes=(2, 4), value=0), axis=0)
    return b.op("matmul", b.op("transpose", padded(b, x), dim0=0, dim1=1), dy)


def _squared(b: Builder, x: str) -> str:
    return b.op("matmul", b.op("transpose", x, dim0=0, dim1=1), x)


def _norm(b: Builder, x: str) -> str:
    return b.op("softmax", b.op("exp", padded(b, x)), axis=0)


def _of_equal_branches(b: Builder, x: str) -> str:
    return b.op("where", b.op("gt", memory(b, 3, 4), Number(0)), twice(b, x), b.op("add", x, x))


def _as_they_are(b: Builder, x: str) -> str:
    return b.op("uninitialised", sizes=(int(b.tensors[x].shape[0]), 4), dtype="float32")


def _both_times_zero(b: Builder, x: str) -> str:
    return b.op("add", twice(b, x), b.op("mul", _as_they_are(b, x), Number(0)))


def _both_added(b: Builder, x: str) -> str:
    return b.op("add", twice(b, x), _as_they_are(b, x))


def _both_compared(b: Builder, x: str) -> str:
    return b.op("mul", twice(b, x), _bool(b, b.op("gt", _as_they_are(b, x), Number(0))))


def _tail_of_a_sum_over_rows(b: Builder, x: str) -> str:
    return b.op("all_reduce", b.op("sum", padded(b, x), axes=(0,)), group="dp")


WRONG: dict[str, tuple[Plan, Plan]] = {
    "times zero": pair(_times_zero),
    "minus itself": pair(_minus_itself),
    "equal to itself": pair(_equal_to_itself),
    "power of zero": pair(_power_of_zero),
    "summed then masked": pair(_summed_then_masked),
    "mask off by one": pair(
        _mask_off_by_one,
        lambda b, x: twice(
            b,
            b.op(
                "cat",
                *(
                    b.op("slice", x, axis=0, start=s, stop=s + 3)
                    if s >= 0
                    else b.op("full", sizes=(1, 4), value=0)
                    for s in (0, -1, 3, -1)
                ),
                axis=0,
            ),
        ),
    ),
    "slice off by one": pair(_slice_off_by_one),
    "largest": pair(
        lambda b, x: b.op("all_reduce", _largest(b, x), group="dp", reduction="max"),
        lambda b, x: b.op("amax", x, axes=(0,)),
        spread={},
    ),
    "least": pair(
        lambda b, x: b.op("all_reduce", _least(b, x), group="dp", reduction="min"),
        lambda b, x: b.op("amin", x, axes=(0,)),
        spread={},
    ),
    "mean over the tail": pair(
        lambda b, x: b.op("all_reduce", _mean(b, x), group="dp", reduction="avg"),
        lambda b, x: b.op("mean", x, axes=(0,)),
        spread={},
    ),
    "softmax over the tail": pair(
        lambda b, x: _softmax_over_tail(b, b.op("all_gather", x, group="dp", axis=0)),
        lambda b, x: first(b, _softmax_of_columns(b, x)),
        spread={},
    ),
    "sorted over the tail": pair(
        lambda b, x: _sorted_over_tail(b, b.op("all_gather", x, group="dp", axis=0)),
        lambda b, x: first(b, b.op("sort", x, axis=0, out=["sorted", ""])[0]),
        spread={},
    ),
    "top of the tail": pair(
        lambda b, x: _top(b, b.op("all_gather", x, group="dp", axis=0)),
        lambda b, x: b.op("topk", x, axis=0, k=3, out=["top", ""])[0],
        spread={},
    ),
    "sign": pair(_sign),
    "relu": pair(_relu),
    "clamped to zero": pair(_clamped),
    "a condition": pair(_as_condition),
    "booleans": pair(_bool_memory),
    "cast to bool": pair(_cast_to_bool),
    "an index": pair(_as_index),
    "an index of equal rows": pair(_index_of_equal_rows),
    "a divisor": pair(_divided),
    "a remainder": pair(_integers_times_zero_divided),
    "the tail of a sum is used": pair(_summed_tail_is_used),
    "on one rank": pair(_on_one_rank),
    "summed from one rank": pair(_reduced_from_one_rank),
    "broadcast from the wrong root": pair(_broadcast_from_the_wrong_root, spread={}),
    "the tail that was gathered is used": pair(_gathered_tail_is_used, spread={}),
    "a gradient of zeros": pair(
        lambda b, x: b.op("all_reduce", _zero_gradient(b, x), group="dp"), _squared, spread={}
    ),
    "normalised over the tail": pair(
        lambda b, x: first(b, _norm(b, b.op("all_gather", x, group="dp", axis=0)), 6),
        lambda b, x: b.op("softmax", b.op("exp", x), axis=0),
        spread={},
    ),
    "a condition of equal branches": pair(_of_equal_branches),
    "as it is on both sides": pair(_as_they_are, _as_they_are),
    "times zero on both sides": pair(_both_times_zero, _both_times_zero),
    "added on both sides": pair(_both_added, _both_added),
    "compared on both sides": pair(_both_compared, _both_compared),
    "in the reference alone": pair(twice, _both_times_zero),
    "in a sum over ranks": pair(_tail_of_a_sum_over_rows, _sum_by_columns, spread={}),
}
