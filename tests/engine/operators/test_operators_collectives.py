"""Every collective, and sends, by its right use and by near misses: another reduction, root, axis,
order, group or member.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from support.verdicts import caught, proven
from zoo.builder import Builder, table

from pitcheck.plan.model import Plan, Tensor

ROWS = 6


def _alone(kind: str, **attributes: Any) -> Plan:
    """One device: x of shape (n, 6, 4) is combined over its first dimension, or squared and left as
    rows (6n, 4).
    """
    b = Builder("alone")
    n = attributes.pop("ranks")
    x = b.input("x", (n, ROWS * n, 4))
    if kind == "rows":
        b.output(b.op("square", b.op("select", x, axis=0, index=0), out="y"))
    elif kind == "select":
        b.output(b.op("select", x, axis=0, out="y", **attributes))
    else:
        b.output(b.op(kind, x, axes=(0,), out="y", **attributes))
    return b.plan()


def _spread(n: int, write: Callable[[Builder, str], str]) -> Plan:
    """Rank i has x[i]."""
    b = Builder("spread", {"dp": n})
    b.op(
        "identity",
        write(b, b.op("squeeze", b.input("x", (1, ROWS * n, 4), {0: "dp"}), axis=0)),
        out="y",
    )
    b.output("y")
    return b.plan()


def _again(b: Builder, part: str, axis: int = 0) -> str:
    whole: str = b.op("all_gather", part, group="dp", axis=axis)
    return whole


RANKS = pytest.mark.parametrize("n", [2, 3])


@RANKS
def test_reduce_scatter(n: int) -> None:
    reference = _alone("sum", ranks=n)
    proven(
        reference, _spread(n, lambda b, x: _again(b, b.op("reduce_scatter", x, group="dp", axis=0)))
    )
    caught(
        reference,
        _spread(
            n,
            lambda b, x: _again(b, b.op("reduce_scatter", x, group="dp", axis=0, reduction="avg")),
        ),
    )
    turned = [tuple(range(n))[::-1]]
    caught(
        reference,
        _spread(n, lambda b, x: _again(b, b.op("reduce_scatter", x, group=turned, axis=0))),
    )
    proven(
        reference,
        _spread(
            n,
            lambda b, x: b.op(
                "all_gather", b.op("reduce_scatter", x, group=turned, axis=0), group=turned, axis=0
            ),
        ),
    )


@RANKS
def test_broadcast_and_its_root(n: int) -> None:
    for root, index in itertools.product(range(n), range(n)):
        verdict = proven if root == index else caught
        verdict(
            _alone("select", ranks=n, index=index),
            _spread(n, lambda b, x, root=root: b.op("broadcast", x, group="dp", root=root)),
        )


@RANKS
def test_all_to_all(n: int) -> None:
    """Rows are exchanged for columns and back; exchanged once more along another axis they are not
    where they were.
    """
    b = Builder("rows")
    b.output(b.op("square", b.input("x", (6 * n, 36)), out="y"))

    def spread(back: tuple[int, int], order: tuple[int, ...] | None = None) -> Plan:
        p = Builder("exchanged", {"dp": n})
        x = p.input("x", (6, 36), {0: "dp"})
        columns = p.op("square", p.op("all_to_all", x, group="dp", split_axis=1, concat_axis=0))
        rows = p.op(
            "all_to_all",
            columns,
            group="dp" if order is None else [order],
            split_axis=back[0],
            concat_axis=back[1],
        )
        p.output(
            p.op(
                "reshape", p.op("all_gather", rows, group="dp", axis=0), out="y", sizes=(6 * n, 36)
            )
        )
        return p.plan()

    proven(b.plan(), spread((0, 1)))
    caught(b.plan(), spread((1, 0)))
    caught(b.plan(), spread((0, 0)))
    caught(b.plan(), spread((0, 1), tuple(range(n))[::-1]))


def _to_root(n: int, root: int, follow: int) -> Plan:
    """A sum that only ``root`` has is broadcast from ``follow``; the other ranks bring what they
    had.
    """

    def write(b: Builder, x: str) -> str:
        there, others = {"dp": (root,)}, {"dp": tuple(r for r in range(n) if r != root)}
        b.add(Tensor("total", b.tensors[x].shape))
        b._append(
            "reduce", (x,), ("total",), {"root": root, "reduction": "sum"}, (), b._group("dp")
        )
        have = b.op("identity", "total", out="have", where=there)
        b.op("identity", x, out=have, where=others)
        whole: str = b.op("broadcast", have, group="dp", root=follow)
        return whole

    return _spread(n, write)


@RANKS
def test_reduce_to_a_root(n: int) -> None:
    for root, follow in itertools.product(range(n), range(n)):
        verdict = proven if root == follow else caught
        verdict(_alone("sum", ranks=n), _to_root(n, root, follow))


@RANKS
@pytest.mark.parametrize("wrong", ["", "gather root", "scatter root", "axis"])
def test_gathered_to_a_root_and_scattered(n: int, wrong: str) -> None:
    r = Builder("rooted")
    r.output(r.op("square", r.input("x", (6 * n, 4 * n)), out="y"))
    b = Builder("rooted", {"dp": n})
    x = b.input("x", (6, 4 * n), {0: "dp"})
    at = {"dp": (0,)}
    whole = b.add(Tensor("whole", (6 * n, 4 * n)))
    b._append(
        "gather_to",
        (x,),
        (whole,),
        {"root": 1 if wrong == "gather root" else 0, "axis": 0},
        (),
        b._group("dp"),
    )
    squares = b.op("square", whole, out="squares", where=at)
    b.op("full", out=squares, sizes=(6 * n, 4 * n), value=1, where={"dp": tuple(range(1, n))})
    axis = 1 if wrong == "axis" else 0
    shape = (6 * n, 4) if wrong == "axis" else (6, 4 * n)
    part = b.add(Tensor("part", shape))
    b._append(
        "scatter_from",
        (squares,),
        (part,),
        {"root": 1 if wrong == "scatter root" else 0, "axis": axis},
        (),
        b._group("dp"),
    )
    gathered = b.op("all_gather", part, group="dp", axis=0)
    b.output(b.op("reshape", gathered, out="y", sizes=(6 * n, 4 * n)))
    (caught if wrong else proven)(r.plan(), b.plan())


def _passed_on(n: int, peers: tuple[int, ...], sources: tuple[int, ...]) -> Plan:
    b = Builder("passed", {"dp": n})
    x = b.input("x", (6, 4), {0: "dp"})
    b._append("send", (x,), (), {"peer": table("dp", *peers), "batch": "one"}, (), None)
    b.add(Tensor("got", (6, 4)))
    b._append("receive", (), ("got",), {"peer": table("dp", *sources), "batch": "one"}, (), None)
    b.output(b.op("all_gather", b.op("square", "got"), out="y", group="dp", axis=0))
    return b.plan()


def test_sends_and_receives() -> None:
    r = Builder("passed")
    r.output(r.op("square", r.op("roll", r.input("x", (18, 4)), axis=0, shift=6), out="y"))
    proven(r.plan(), _passed_on(3, (1, 2, 0), (2, 0, 1)))
    caught(r.plan(), _passed_on(3, (2, 0, 1), (1, 2, 0)))
    caught(r.plan(), _passed_on(3, (1, 2, 0), (1, 2, 0)))
    caught(r.plan(), _passed_on(3, (1, 2, 1), (2, 0, 1)))
    caught(r.plan(), _passed_on(3, (0, 1, 2), (0, 1, 2)))


@pytest.mark.parametrize("tag", ["crossed", "straight"])
def test_two_messages_by_their_tags(tag: str) -> None:
    """Two tensors to one rank: the tags say which is which, not the order."""
    r = Builder("tags")
    x, z = r.input("x", (6, 4)), r.input("z", (6, 4))
    r.output(r.op("sub", x, z, out="y"))
    b = Builder("tags", {"pp": 2})
    x, z = b.input("x", (6, 4), {}), b.input("z", (6, 4), {})
    first, second = {"pp": (0,)}, {"pp": (1,)}
    for name, mark in ((x, "a"), (z, "b")):
        b._append("send", (name,), (), {"peer": 1, "tag": mark, "batch": "pair"}, (first,), None)
    marks = ("b", "a") if tag == "crossed" else ("a", "b")
    for name, mark in zip(("got_x", "got_z"), marks, strict=True):
        b.add(Tensor(name, (6, 4)))
        b._append(
            "receive", (), (name,), {"peer": 0, "tag": mark, "batch": "pair"}, (second,), None
        )
    b.op("sub", x, z, out="own", where=first)
    b.op("sub", "got_x", "got_z", out="own", where=second)
    b.output(b.op("identity", "own", out="y"))
    (caught if tag == "crossed" else proven)(r.plan(), b.plan())


@pytest.mark.parametrize("reduction", ["sum", "avg"])
@pytest.mark.parametrize("axes", [("dp",), ("tp",), ("dp", "tp")])
def test_axes_of_a_sum(axes: tuple[str, ...], reduction: str) -> None:
    """Three by two ranks with a term each."""
    r = Builder("axes")
    r.output(r.op("sum", r.input("x", (6, 4)), axes=(0,), out="y"))
    b = Builder("axes", {"dp": 3, "tp": 2})
    x = b.op("squeeze", b.input("x", (1, 4), {0: ("dp", "tp")}), axis=0)
    b.output(b.op("all_reduce", x, out="y", group=axes, reduction=reduction))
    right = len(axes) == 2 and reduction == "sum"
    (proven if right else caught)(r.plan(), b.plan())


def test_sums_one_after_the_other() -> None:
    r = Builder("axes")
    r.output(r.op("sum", r.input("x", (6, 4)), axes=(0,), out="y"))

    def spread(*steps: tuple[str, str]) -> Plan:
        b = Builder("axes", {"dp": 3, "tp": 2})
        x = b.op("squeeze", b.input("x", (1, 4), {0: ("dp", "tp")}), axis=0)
        for axis, reduction in steps:
            x = b.op("all_reduce", x, group=axis, reduction=reduction)
        b.output(b.op("identity", x, out="y"))
        return b.plan()

    proven(r.plan(), spread(("dp", "sum"), ("tp", "sum")))
    proven(r.plan(), spread(("tp", "sum"), ("dp", "sum"), ("tp", "avg"), ("dp", "max")))
    caught(r.plan(), spread(("dp", "sum"), ("dp", "sum")))
    caught(r.plan(), spread(("dp", "sum"), ("tp", "avg")))
    caught(r.plan(), spread(("dp", "sum"), ("tp", "sum"), ("tp", "sum")))
    caught(r.plan(), spread(("dp", "max"), ("tp", "sum")))


def test_sum_that_only_the_root_has() -> None:
    """Every rank reads what only rank 0 was given."""
    plan = _spread(2, lambda b, x: b.op("square", b.op("reduce", x, group="dp", root=0)))
    r = Builder("root")
    r.output(r.op("square", r.op("sum", r.input("x", (2, 12, 4)), axes=(0,)), out="y"))
    caught(r.plan(), plan)
