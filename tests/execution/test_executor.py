"""The executor against values computed by hand, and its errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from zoo.builder import Builder, intervals, lineage, table

from pitcheck.execution.executor import execute
from pitcheck.execution.judge import initial_values, judge, region
from pitcheck.execution.places import DeadlockError, ExecutionError
from pitcheck.plan.model import Lineage, Number, Plan, Use


def _run(b: Builder, **given: Any) -> dict[tuple[str, int, int], Any]:
    """``given``: per tensor the values on the ranks, in order."""
    initial = {
        (name, rank, 0): np.array(value, dtype=float)
        for name, values in given.items()
        for rank, value in enumerate(values)
    }
    return execute(b.plan(), initial)


@pytest.mark.parametrize(
    ("kind", "attributes", "expected"),
    [
        ("all_reduce", {}, ([11, 22, 33, 44], [11, 22, 33, 44])),
        ("all_reduce", {"reduction": "avg"}, ([5.5, 11, 16.5, 22], [5.5, 11, 16.5, 22])),
        ("all_reduce", {"reduction": "max"}, ([10, 20, 30, 40], [10, 20, 30, 40])),
        ("all_reduce", {"reduction": "product"}, ([10, 40, 90, 160], [10, 40, 90, 160])),
        ("all_gather", {"axis": 0}, ([1, 2, 3, 4, 10, 20, 30, 40],) * 2),
        ("reduce_scatter", {"axis": 0}, ([11, 22], [33, 44])),
        ("all_to_all", {"split_axis": 0, "concat_axis": 0}, ([1, 2, 10, 20], [3, 4, 30, 40])),
        ("broadcast", {"root": 1}, ([10, 20, 30, 40],) * 2),
    ],
)
def test_collectives(
    kind: str, attributes: dict[str, Any], expected: tuple[list[float], ...]
) -> None:
    b = Builder("c", {"r": 2})
    x = b.input("x", (4,))
    y = b.op(kind, x, group="r", **attributes)
    values = _run(b, x=([1, 2, 3, 4], [10, 20, 30, 40]))
    for rank in range(2):
        assert values[y, rank, 0].tolist() == expected[rank]


def test_groups_follow_the_mesh_and_rank_lists() -> None:
    b = Builder("g", {"a": 2, "b": 2})
    x = b.input("x", (1,))
    over_a, over_b = (
        b.op("all_gather", x, group="a", axis=0),
        b.op("all_gather", x, group="b", axis=0),
    )
    listed = b.op("all_gather", x, group=[[3, 0], [1, 2]], axis=0)
    values = _run(b, x=([0], [1], [2], [3]))
    assert [values[over_a, r, 0].tolist() for r in range(4)] == [[0, 2], [1, 3], [0, 2], [1, 3]]
    assert [values[over_b, r, 0].tolist() for r in range(4)] == [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert [values[listed, r, 0].tolist() for r in range(4)] == [[3, 0], [1, 2], [1, 2], [3, 0]]


def test_accumulation_and_uses() -> None:
    b = Builder("a", microbatches=3)
    x = b.input("x", (), microbatched=True)
    twice = b.op("mul", x, Number(2))
    total, some = b.op("accumulate", twice), b.op("accumulate", twice, microbatches=(0, 2))
    first = b.op("sub", Use(x, 2), Use(x, 0))
    initial = {("x", 0, m): np.array(10.0**m) for m in range(3)}
    values = execute(b.plan(), initial)
    assert (values[total, 0, 0], values[some, 0, 0], values[first, 0, 0]) == (222, 202, 99)


def test_messages_arrive_in_order() -> None:
    b = Builder("m", {"r": 2})
    x, y = b.input("x", ()), b.input("y", ())
    b.send(x, 1, {"r": (0,)})
    b.send(y, 1, {"r": (0,)})
    b.receive(x, "first", 0, {"r": (1,)})
    b.receive(x, "second", 0, {"r": (1,)})
    values = _run(b, x=(1, 2), y=(3, 4))
    assert (values["first", 1, 0], values["second", 1, 0]) == (1, 3)


def test_deadlock() -> None:
    b = Builder("d", {"r": 2})
    x = b.input("x", ())
    b.receive(x, "y", table("r", 1, 0), ())
    b.send(x, table("r", 1, 0), ())
    with pytest.raises(DeadlockError):
        _run(b, x=(1, 2))


def test_a_collective_that_one_rank_leaves_out() -> None:
    b = Builder("d", {"r": 2})
    b.op("all_reduce", b.input("x", ()), group="r", where={"r": (0,)})
    with pytest.raises(DeadlockError):
        _run(b, x=(1, 2))


def test_collectives_in_different_order() -> None:
    b = Builder("d", {"r": 2})
    x = b.input("x", (2,))
    b.op("all_reduce", x, out="s", group="r", where={"r": (0,)})
    b.op("all_reduce", x, out="m", group="r", reduction="max")
    b.op("all_reduce", x, out="s", group="r", where={"r": (1,)})
    with pytest.raises(ExecutionError):
        _run(b, x=([1, 2], [3, 4]))


def test_what_is_read_before_it_is_written() -> None:
    b = Builder("d", {"r": 2})
    y = b.op("neg", b.input("x", ()), where={"r": (0,)})
    b.op("neg", y)
    with pytest.raises(ExecutionError, match="before it is written"):
        _run(b, x=(1, 2))


def test_backward_is_the_derivative() -> None:
    b = Builder("b")
    x, w, g = b.input("x", (1, 2)), b.input("w", (1, 2)), b.input("g", (1, 1))
    y = b.op("linear", x, w)
    b.back("linear", [x, w], y, g, ["dx", "dw"])
    values = _run(b, x=([[2, 3]],), w=([[5, 7]],), g=([[10]],))
    assert (values[y, 0, 0].tolist(), values["dx", 0, 0].tolist(), values["dw", 0, 0].tolist()) == (
        [[31]],
        [[50, 70]],
        [[20, 30]],
    )


def _held(
    mesh: dict[str, int], held: Lineage, shape: tuple[int, ...], microbatches: int = 1
) -> list[Any]:
    plan = Builder("l", mesh, microbatches).plan()
    ranks = np.prod(list(mesh.values()))
    return [
        region(plan, held, shape, rank, m) for rank in range(ranks) for m in range(microbatches)
    ]


def test_lineage() -> None:
    assert _held({"a": 2, "b": 2}, lineage("x", {0: ("b", "a")}), (4,)) == [
        ((0,),),
        ((2,),),
        ((1,),),
        ((3,),),
    ]
    assert _held({"a": 2}, lineage("x", {1: ("mb", "a")}), (1, 4), 2) == [
        ((0,), (0,)),
        ((0,), (2,)),
        ((0,), (1,)),
        ((0,), (3,)),
    ]
    assert _held(
        {"a": 2}, lineage("x", {0: intervals("a", [(0, 1), (3, 4)], [(1, 2), (-1, 1)])}), (4,)
    ) == [((0, 3),), ((1, -1),)]


def test_initial_values_add_up() -> None:
    b = Builder("i", {"r": 3})
    b.input("x", (2,), Lineage("x", partial=("r",), scale="1/2"))
    whole = np.array([4.0, 6.0])
    found = initial_values({("x", 0, 0): whole}, b.plan(), 1)
    assert np.allclose(sum(found["x", r, 0] for r in range(3)), [2, 3])


def _doubling(
    factor: int, mesh: dict[str, int], output: Lineage | None = None, where: Any = ()
) -> Plan:
    b = Builder("j", mesh)
    x = b.input("x", (4,)) if output is None else b.input("x", (2,), {0: "r"})
    b.output(b.op("mul", x, Number(factor), out="y", where=where), spec=output)
    return b.plan()


def test_judge_compares_every_replica_and_all_parts() -> None:
    reference = _doubling(2, {"d": 1})
    assert judge(reference, _doubling(2, {"r": 2}), 1).same
    assert judge(reference, _doubling(3, {"r": 2}), 1).different == ["y"]
    assert judge(reference, _doubling(2, {"r": 2}, lineage("y", {0: "r"})), 1).same
    assert judge(
        reference, _doubling(2, {"r": 2}, lineage("y", {0: "r"}), {"r": (0,)}), 1
    ).missing == ["y"]
