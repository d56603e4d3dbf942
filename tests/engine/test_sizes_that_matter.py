"""Pairs in which sizes decide: a wrong plan is never equivalent at reduced shapes, and a right one
is proven there as at full ones.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.verdicts import said
from zoo.builder import Builder, intervals, lineage

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.execution.judge import judge_often
from pitcheck.plan.model import Number, Plan

Make = Callable[[Builder, str, bool], str]
"""Appends to a plan what is computed from x, rightly or wrongly, and gives the result."""


def _alike(
    shape: tuple[int, ...], right: Make, wrong: Make | None = None
) -> Callable[[bool], tuple[Plan, Plan]]:
    """One device on both sides; the reference is always right."""

    def pair(is_wrong: bool) -> tuple[Plan, Plan]:
        sides = []
        for side in range(2):
            b = Builder(f"side{side}")
            make = wrong if is_wrong and side and wrong is not None else right
            b.output(b.op("identity", make(b, b.input("x", shape), bool(side)), out="y"))
            sides.append(b.plan())
        return sides[0], sides[1]

    return pair


def _sum(b: Builder, x: str, axis: int) -> str:
    found: str = b.op("sum", x, axes=(axis,))
    return found


def _scaled(b: Builder, x: str, by: float | str) -> str:
    found: str = b.op("mul", x, Number(by))
    return found


def _view(b: Builder, x: str, *sizes: int) -> str:
    found: str = b.op("reshape", x, sizes=sizes)
    return found


def _turn(b: Builder, x: str, first: int = 0, second: int = 1) -> str:
    found: str = b.op("transpose", x, dim0=first, dim1=second)
    return found


PAIRS: dict[str, Callable[[bool], tuple[Plan, Plan]]] = {
    "a mean by a literal": _alike(
        (6, 8),
        lambda b, x, p: _scaled(b, _sum(b, x, 0), "1/6") if p else b.op("mean", x, axes=(0,)),
        lambda b, x, _: _scaled(b, _sum(b, x, 0), "1/8"),
    ),
    "a mean by half of it": _alike(
        (12, 8),
        lambda b, x, p: _scaled(b, _sum(b, x, 0), "1/12") if p else b.op("mean", x, axes=(0,)),
        lambda b, x, _: _scaled(b, _sum(b, x, 0), "1/3"),
    ),
    "a mean as at reduced size": _alike(
        (9, 7),
        lambda b, x, _: b.op("mean", x, axes=(0,)),
        lambda b, x, _: _scaled(b, _sum(b, x, 0), "1/3"),
    ),
    "a mean of equal sizes": _alike(
        (6, 6),
        lambda b, x, _: b.op("mean", x, axes=(0,)),
        lambda b, x, _: b.op("mean", x, axes=(1,)),
    ),
    "a square turned": _alike(
        (6, 6), lambda b, x, _: _turn(b, x), lambda b, x, _: b.op("identity", x)
    ),
    "a product turned": _alike(
        (6, 6),
        lambda b, x, _: b.op("matmul", x, _turn(b, x)),
        lambda b, x, _: b.op("matmul", _turn(b, x), x),
    ),
    "a view for a turn": _alike(
        (4, 6), lambda b, x, _: _turn(b, x), lambda b, x, _: _view(b, x, 6, 4)
    ),
    "views that merge": _alike(
        (4, 6),
        lambda b, x, p: _view(b, _view(b, x, 24), 4, 6) if p else b.op("identity", x),
        lambda b, x, _: _turn(b, _view(b, x, 6, 4)),
    ),
    "merged after a turn": _alike(
        (4, 6), lambda b, x, _: _view(b, _turn(b, x), 24), lambda b, x, _: _view(b, x, 24)
    ),
    "groups of the same count": _alike(
        (6, 9),
        lambda b, x, _: b.op("sum", _view(b, x, 6, 3, 3), axes=(2,)),
        lambda b, x, _: b.op("sum", _view(b, x, 6, 3, 3), axes=(1,)),
    ),
    "groups of another count": _alike(
        (5, 12),
        lambda b, x, _: b.op("sum", _view(b, x, 5, 3, 4), axes=(1, 2)),
        lambda b, x, _: _scaled(b, b.op("mean", x, axes=(1,)), 4),
    ),
    "interleaved": _alike(
        (3, 8),
        lambda b, x, _: _view(b, _turn(b, _view(b, x, 3, 4, 2), 1, 2), 3, 8),
        lambda b, x, _: _view(b, _turn(b, _view(b, x, 3, 2, 4), 1, 2), 3, 8),
    ),
    "interleaved twice": _alike(
        (3, 16), lambda b, x, _: b.op("identity", x), lambda b, x, _: _twice(b, x)
    ),
    "rolled the other way": _alike(
        (8, 3),
        lambda b, x, _: b.op("roll", x, shift=1, axis=0),
        lambda b, x, _: b.op("roll", x, shift=-1, axis=0),
    ),
    "rolled by what is left": _alike(
        (8, 3),
        lambda b, x, p: b.op("roll", x, shift=7 if p else -1, axis=0),
        lambda b, x, _: b.op("roll", x, shift=2, axis=0),
    ),
    "rolled by a reduced size": _alike(
        (9, 3),
        lambda b, x, _: b.op("identity", x),
        lambda b, x, _: b.op("roll", x, shift=5, axis=0),
    ),
    "a slice that is the whole of a smaller one": _alike(
        (9, 4),
        lambda b, x, _: b.op("identity", x),
        lambda b, x, _: _masked(b, x, 3),
    ),
    "flipped": _alike(
        (7, 3),
        lambda b, x, _: b.op("flip", x, axes=(0,)),
        lambda b, x, _: b.op("flip", x, axes=(1,)),
    ),
    "a literal that is a size": _alike(
        (5, 7),
        lambda b, x, _: _scaled(b, x, 5),
        lambda b, x, _: b.op("scale_by_size", x, axis=1, exponent=1),
    ),
    "a literal that is a reduced size": _alike(
        (9, 7),
        lambda b, x, _: b.op("scale_by_size", x, axis=0, exponent=1),
        lambda b, x, _: _scaled(b, x, 3),
    ),
    "attention's scale": _alike(
        (5, 16),
        lambda b, x, p: (
            _scaled(b, x, "sqrt(1/16)") if p else b.op("scale_by_size", x, axis=1, exponent="-1/2")
        ),
        lambda b, x, _: _scaled(b, x, "1/3"),
    ),
    "another size in a scale": _alike(
        (6, 9),
        lambda b, x, _: b.op("scale_by_size", x, axis=1, exponent=-1),
        lambda b, x, _: b.op("scale_by_size", x, axis=0, exponent=-1),
    ),
    "a dimension of one": _alike(
        (1, 6),
        lambda b, x, _: b.op("mul", x, b.op("sum", x, axes=(1,), keepdim=True)),
        lambda b, x, _: b.op("mul", x, x),
    ),
    "a sum over one": _alike(
        (1, 6),
        lambda b, x, p: _view(b, _sum(b, x, 0), 1, 6) if p else b.op("identity", x),
        lambda b, x, _: _scaled(b, x, 2),
    ),
    "a softmax over the other": _alike(
        (6, 6),
        lambda b, x, _: b.op("softmax", x, axis=0),
        lambda b, x, _: b.op("softmax", x, axis=1),
    ),
    "a variance's correction": _alike(
        (5, 8),
        lambda b, x, _: b.op("var", x, axes=(1,), correction=1),
        lambda b, x, _: b.op("var", x, axes=(1,), correction=0),
    ),
    "a triangle": _alike(
        (6, 6),
        lambda b, x, _: b.op("tril", x, diagonal=0),
        lambda b, x, _: b.op("tril", x, diagonal=1),
    ),
    "a triangle beyond the reduced": _alike(
        (8, 8),
        lambda b, x, _: b.op("identity", x),
        lambda b, x, _: b.op("tril", x, diagonal=4),
    ),
    "repeated": _alike(
        (3, 4),
        lambda b, x, _: b.op("repeat_interleave", x, count=2, axis=0),
        lambda b, x, _: b.op("cat", x, x, axis=0),
    ),
    "a running sum": _alike(
        (7, 3),
        lambda b, x, _: b.op("cumsum", x, axis=0),
        lambda b, x, _: b.op("flip", b.op("cumsum", b.op("flip", x, axes=(0,)), axis=0), axes=(0,)),
    ),
}


def _twice(b: Builder, x: str) -> str:
    """Interleaved pairs to halves, twice: at four elements nothing is changed."""
    for _ in range(2):
        x = _view(b, _turn(b, _view(b, x, 3, 8, 2), 1, 2), 3, 16)
    return x


def _masked(b: Builder, x: str, rows: int) -> str:
    """The first rows, and nothing in the others."""
    size = b.tensors[x].shape[0]
    first = b.op("slice", x, axis=0, start=0, stop=rows)
    rest = b.op("slice", x, axis=0, start=rows, stop=size)
    found: str = b.op("cat", first, b.op("mul", rest, Number(0)), axis=0)
    return found


def _uneven(is_wrong: bool) -> tuple[Plan, Plan]:
    """Shards of 6 and 3 rows, gathered by hand; wrong: scaled by the mean over the shard's own
    rows.
    """
    r = Builder("whole")
    r.output(r.op("mul", r.input("x", (9, 4)), Number(2), out="y"))
    b = Builder("uneven", {"dp": 3})
    table = intervals("dp", [(0, 3)], [(6, 9)], [(3, 6)])
    x = b.input("x", (3, 4), lineage("x", {0: table}))
    said_of = intervals("dp", [(0, 3)], [(3, 6)], [(6, 9)]) if is_wrong else table
    b.output(b.op("mul", x, Number(2), out="y"), "y", lineage("y", {0: said_of}))
    return r.plan(), b.plan()


def _tied_once(is_wrong: bool) -> tuple[Plan, Plan]:
    """Two inputs of one size that the reference ties by a product; the parallel side sums them
    apart, rightly only for a sum of products over both.
    """
    r = Builder("tied")
    x, w = r.input("x", (6, 5)), r.input("w", (6, 5))
    r.output(r.op("sum", r.op("mul", x, w), axes=(0, 1), out="y"))
    b = Builder("apart")
    x, w = b.input("x", (6, 5), {}), b.input("w", (6, 5), {})
    if is_wrong:
        y = b.op("mul", b.op("sum", x, axes=(0, 1)), b.op("sum", w, axes=(0, 1)), out="y")
    else:
        y = b.op(
            "sum",
            b.op("matmul", b.op("reshape", x, sizes=(1, 30)), b.op("reshape", w, sizes=(30, 1))),
            axes=(0, 1),
            out="y",
        )
    b.output(y)
    return r.plan(), b.plan()


def _per_rank(is_wrong: bool) -> tuple[Plan, Plan]:
    """A mean over ranks of means of equal shards; wrong: a sum of means, or as many rows as there
    are ranks.
    """
    r = Builder("whole")
    r.output(r.op("mean", r.input("x", (12, 4)), axes=(0,), out="y"))
    b = Builder("shards", {"dp": 3})
    own = b.op("mean", b.input("x", (4, 4), {0: "dp"}), axes=(0,))
    y = b.op(
        "all_reduce",
        own,
        out="y" if not is_wrong else "s",
        group="dp",
        reduction="sum" if is_wrong else "avg",
    )
    b.output(b.op("mul", y, Number("1/4"), out="y") if is_wrong else y)
    return r.plan(), b.plan()


PAIRS |= {
    "uneven shards": _uneven,
    "tied through one side only": _tied_once,
    "means of shards": _per_rank,
}


@pytest.mark.parametrize("name", PAIRS)
def test_right(name: str) -> None:
    pair = PAIRS[name](False)
    for shapes in ("reduced", "full"):
        report = check(*pair, Options(seed=4, shapes=shapes))
        assert report.verdict == "equivalent", said(report)


@pytest.mark.parametrize("name", PAIRS)
def test_wrong(name: str) -> None:
    pair = PAIRS[name](True)
    assert not judge_often(*pair, range(2)).same
    for shapes in ("reduced", "full"):
        report = check(*pair, Options(seed=4, shapes=shapes))
        assert report.verdict == "mismatch", said(report)
