"""A broadcast or scatter reads its root's operand alone; a reduce or gather gives a result to its
root alone, and to all others what nobody may use.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from support.verdicts import caught, proven, said

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import (
    Axis,
    Group,
    Lineage,
    Operator,
    Output,
    Plan,
    Program,
    Shard,
    Step,
    Table,
    Tensor,
)

ROWS, COLUMNS = 2, 4
ALL = Group(axes=("dp",))


def reference(n: int, kind: str = "sum") -> Plan:
    """The sum over x, of shape (n, 2, 4), the whole of it, or its first part; squared."""
    given = Tensor("x", (n, ROWS, COLUMNS), role="input")
    if kind == "whole":
        return Plan(
            (),
            (given, Tensor("y", given.shape)),
            (Operator("y", "square", ("x",), ("y",)),),
            (Output("y"),),
        )
    first = {"sum": Operator("s", "sum", ("x",), ("s",), {"axes": (0,)})}.get(kind) or Operator(
        "s", "select", ("x",), ("s",), {"axis": 0, "index": int(kind)}
    )
    tensors = (given, *(Tensor(name, (ROWS, COLUMNS)) for name in "sy"))
    return Plan((), tensors, (first, Operator("y", "square", ("s",), ("y",))), (Output("y"),))


def plan(n: int, *operators: Operator, out: Lineage | None = None, **tensors: Tensor) -> Plan:
    """A plan of n ranks, each with one part of x, as ``mine``; tensors are of its shape unless they
    are given.
    """
    given = Tensor(
        "x", (1, ROWS, COLUMNS), role="input", lineage=Lineage("x", (Shard(0, by=("dp",)),))
    )
    begin = Operator("mine", "reshape", ("x",), ("mine",), {"sizes": (ROWS, COLUMNS)})
    names = {name: None for operator in (begin, *operators) for name in operator.outputs if name}
    made = tuple(tensors.get(name, Tensor(name, (ROWS, COLUMNS))) for name in names)
    return Plan((Axis("dp", n),), (given, *made), (begin, *operators), (Output("y", lineage=out),))


def at(*ranks: int) -> tuple[dict[str, tuple[int, ...]], ...]:
    return ({"dp": ranks},)


def others(n: int, root: int) -> tuple[dict[str, tuple[int, ...]], ...]:
    return at(*(rank for rank in range(n) if rank != root))


def collective(
    kind: str, operand: str, result: str, group: Group = ALL, **attributes: Any
) -> Operator:
    return Operator(result, kind, (operand,), (result,), attributes, group)


SQUARE = Operator("y", "square", ("b",), ("y",))


@pytest.mark.parametrize(
    ("n", "root", "group"),
    [
        (2, 1, ALL),
        (3, 2, ALL),
        (3, 1, Group(ranks=((2, 0, 1),))),
        (3, 0, Group(ranks=((1, 2, 0),))),
    ],
)
def test_what_is_reduced_to_a_root_may_be_broadcast_from_there(
    n: int, root: int, group: Group
) -> None:
    def at_root(follow: int) -> Plan:
        return plan(
            n,
            collective("reduce", "mine", "r", group, root=root),
            collective("broadcast", "r", "b", group, root=follow),
            SQUARE,
        )

    proven(reference(n), at_root(root))
    caught(reference(n), at_root((root + 1) % n))


@pytest.mark.parametrize("group", [ALL, Group(ranks=((2, 0, 1),))])
def test_the_operand_of_a_broadcast_may_be_there_at_the_root_alone(group: Group) -> None:
    def held(rank: int, root: int) -> Plan:
        return plan(
            3,
            Operator("h", "identity", ("mine",), ("h",), where=at(rank)),
            collective("broadcast", "h", "b", group, root=root),
            SQUARE,
        )

    rank_at = [0, 1, 2] if group is ALL else [2, 0, 1]
    for root, rank in enumerate(rank_at):
        proven(reference(3, str(rank)), held(rank, root))
        caught(reference(3, str((rank + 1) % 3)), held(rank, root))
        wrong = check(reference(3, str(rank)), held(rank, (root + 1) % 3), Options(seed=1))
        assert (wrong.verdict, wrong.findings[0].code, wrong.findings[0].ranks) == (
            "invalid",
            "PIT002",
            (rank_at[(root + 1) % 3],),
        ), said(wrong)


def test_members_that_run_other_operators_have_a_buffer_that_is_not_read() -> None:
    """The root broadcasts h, the others come with a tensor that nobody has written; all must be of
    one shape and dtype.
    """

    def met(root: int, buffer: Tensor) -> Plan:
        there = replace(collective("broadcast", "mine", "b", root=root), where=at(1))
        here = Operator("here", "broadcast", ("buffer",), ("c",), {"root": root}, ALL, others(3, 1))
        ends = (
            Operator("y1", "square", ("b",), ("y",), where=at(1)),
            Operator("y2", "square", ("c",), ("y",), where=others(3, 1)),
        )
        late = Operator("late", "neg", ("c",), ("buffer",), where=others(3, 1))
        return plan(3, there, here, *ends, late, c=replace(buffer, name="c"), buffer=buffer)

    proven(reference(3, "1"), met(1, Tensor("buffer", (ROWS, COLUMNS))))
    caught(reference(3, "0"), met(1, Tensor("buffer", (ROWS, COLUMNS))))
    codes = {
        "PIT009": met(0, Tensor("buffer", (ROWS, COLUMNS))),
        "PIT006": met(1, Tensor("buffer", (COLUMNS, ROWS))),
    }
    for code, wrong in codes.items():
        report = check(reference(3, "1"), wrong, Options(seed=1))
        assert report.verdict == "invalid", said(report)
        assert code in {finding.code for finding in report.findings}, said(report)


def test_members_write_their_buffer_after_the_broadcast_and_the_root_before() -> None:
    """Members other than the root write a value into the operand that depends on the result.

    They read later a buffer that they do not bring to the broadcast.
    """
    operators = (
        Operator("h", "square", ("mine",), ("h",), where=at(1)),
        collective("broadcast", "h", "b", root=1),
        Operator("late", "neg", ("b",), ("h",), where=others(3, 1)),
        Operator("z1", "neg", ("h",), ("z",), where=at(1)),
        Operator("z2", "identity", ("h",), ("z",), where=others(3, 1)),
        Operator("y", "neg", ("z",), ("y",)),
    )
    proven(reference(3, "1"), plan(3, *operators))
    caught(
        reference(3, "1"), plan(3, *operators[:4], replace(operators[4], kind="neg"), operators[5])
    )
    early = check(
        reference(3, "1"), plan(3, operators[1], operators[0], *operators[2:]), Options(seed=1)
    )
    assert (early.verdict, early.findings[0].code, early.findings[0].ranks) == (
        "invalid",
        "PIT009",
        (1,),
    ), said(early)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_output_at_the_root_alone_is_right_and_elsewhere_undefined(asynchronous: bool) -> None:
    reduce = collective("reduce", "mine", "r", root=2, **({"async": True} if asynchronous else {}))
    made = (
        reduce,
        *(
            (Operator("w", "wait", ("r",), ("b",)),)
            if asynchronous
            else (Operator("w", "identity", ("r",), ("b",)),)
        ),
    )
    proven(reference(3), plan(3, *made, replace(SQUARE, where=at(2))))
    for wrong in (SQUARE, replace(SQUARE, where=at(0)), replace(SQUARE, where=at(1, 2))):
        caught(reference(3), plan(3, *made, wrong))
    report = check(reference(3), plan(3, *made, SQUARE), Options(seed=1))
    assert (report.verdict, report.findings[0].code, report.findings[0].ranks) == (
        "mismatch",
        "PIT118",
        (0, 1),
    ), said(report)
    assert "not its root" in report.findings[0].title
    sums, kept = replace(reference(3), outputs=(Output("s"),)), plan(3, *made, SQUARE)
    assert (
        check(sums, replace(kept, outputs=(Output("r", "s"),)), Options(seed=1)).findings[0].code
        == "PIT118"
    )


def test_what_is_gathered_may_be_scattered_from_the_same_root() -> None:
    def spread(root: int, follow: int) -> Plan:
        gather = collective("gather_to", "x", "g", axis=0, root=root)
        scatter = collective("scatter_from", "g", "b", axis=0, root=follow)
        one = {
            "b": Tensor("b", (1, ROWS, COLUMNS)),
            "y": Tensor("y", (1, ROWS, COLUMNS)),
            "g": Tensor("g", (3, ROWS, COLUMNS)),
        }
        return plan(3, gather, scatter, SQUARE, out=Lineage("y", (Shard(0, by=("dp",)),)), **one)

    proven(reference(3, "whole"), spread(1, 1))
    caught(reference(3, "whole"), spread(1, 0))


def test_a_root_may_be_told_by_a_table() -> None:
    """On a mesh of two axes: the root of every group along the second depends on the first."""

    def held(roots: tuple[int, ...], ranks: tuple[int, ...]) -> Plan:
        boxes = tuple({"dp": (row,), "tp": (rank,)} for row, rank in enumerate(ranks))
        given = Tensor("x", (ROWS, COLUMNS), role="input", lineage=Lineage("x"))
        operators = (
            Operator("h", "identity", ("x",), ("h",), where=boxes),
            Operator(
                "b",
                "broadcast",
                ("h",),
                ("b",),
                {"root": Table(("dp",), roots)},
                Group(axes=("tp",)),
            ),
            Operator(
                "r",
                "reduce",
                ("b",),
                ("r",),
                {"root": Table(("dp",), roots), "reduction": "max"},
                Group(axes=("tp",)),
            ),
            Operator("y", "square", ("r",), ("y",), where=boxes),
        )
        tensors = (given, *(Tensor(name, (ROWS, COLUMNS)) for name in ("h", "b", "r", "y")))
        return Plan((Axis("dp", 2), Axis("tp", 3)), tensors, operators, (Output("y"),))

    first = Plan(
        (),
        (Tensor("x", (ROWS, COLUMNS), role="input"), Tensor("y", (ROWS, COLUMNS))),
        (Operator("y", "square", ("x",), ("y",)),),
        (Output("y"),),
    )
    proven(first, held((2, 1), (2, 1)))
    assert check(first, held((2, 1), (2, 0)), Options(seed=1)).findings[0].code == "PIT002"
    assert check(first, held((2, 1), (1, 2)), Options(seed=1)).verdict == "invalid"
    moved = held((2, 1), (2, 1))
    late = (
        *moved.operators[:3],
        replace(moved.operators[3], where=({"dp": (0,), "tp": (2,)}, {"dp": (1,), "tp": (2,)})),
    )
    caught(first, replace(moved, operators=late))


def test_a_root_may_change_with_the_micro_batch() -> None:
    def spread(
        roots: tuple[int, ...], ranks: tuple[int, ...], order: tuple[int, ...] = (0, 1)
    ) -> Plan:
        boxes = tuple({"dp": (rank,), "mb": (microbatch,)} for microbatch, rank in enumerate(ranks))
        given = Tensor(
            "x",
            (1, COLUMNS),
            role="input",
            microbatched=True,
            lineage=Lineage("x", (Shard(0, by=("mb",)),)),
        )
        operators = (
            Operator("h", "square", ("x",), ("h",), where=boxes),
            Operator("b", "broadcast", ("h",), ("b",), {"root": Table(("mb",), roots)}, ALL),
            Operator("y", "identity", ("b",), ("y",)),
        )
        tensors = (
            given,
            *(Tensor(name, (1, COLUMNS), microbatched=True) for name in ("h", "b", "y")),
        )
        out = Output("y", lineage=Lineage("y", (Shard(0, by=("mb",)),)))
        program = Program(tuple(Step("all", microbatch) for microbatch in order))
        return Plan(
            (Axis("dp", 3),), tensors, operators, (out,), 2, {"all": ("h", "b", "y")}, (program,)
        )

    first = Plan(
        (),
        (Tensor("x", (2, COLUMNS), role="input"), Tensor("y", (2, COLUMNS))),
        (Operator("y", "square", ("x",), ("y",)),),
        (Output("y"),),
    )
    proven(first, spread((2, 1), (2, 1)))
    proven(first, spread((0, 1), (0, 1), (1, 0)))
    report = check(first, spread((2, 1), (1, 1)), Options(seed=1))
    assert (report.verdict, report.findings[0].code) == ("invalid", "PIT002"), said(report)
    assert report.findings[0].microbatches == (0,)


@pytest.mark.parametrize("root", [0, 7, 11])
def test_the_root_of_a_long_axis_is_seen(root: int) -> None:
    """Few of twelve ranks stand for all of them; the root is never among those left out."""

    def held(rank: int) -> Plan:
        return plan(
            12,
            Operator("h", "identity", ("mine",), ("h",), where=at(rank)),
            collective("broadcast", "h", "b", root=root),
            SQUARE,
        )

    assert check(reference(12, str(root)), held(root), Options(seed=1)).verdict == "equivalent"
    assert check(reference(12, "5"), held(root), Options(seed=1)).verdict == "mismatch"
    wrong = check(reference(12, "5"), held(5), Options(seed=1))
    assert (wrong.verdict, wrong.findings[0].code, wrong.findings[0].ranks) == (
        "invalid",
        "PIT002",
        (root,),
    ), said(wrong)
    both = plan(
        12,
        collective("reduce", "mine", "r", root=root),
        collective("broadcast", "r", "b", root=root),
        SQUARE,
    )
    assert check(reference(12), both, Options(seed=1)).verdict == "equivalent"
    last = replace(both.operators[2], attributes={"root": (root + 1) % 12})
    assert (
        check(
            reference(12),
            replace(both, operators=(*both.operators[:2], last, SQUARE)),
            Options(seed=1),
        ).verdict
        == "mismatch"
    )


@pytest.mark.parametrize("root", [True, 0.0, "0", None, -1, 2, 2**70])
def test_a_root_is_an_integer(root: Any) -> None:
    report = check(
        reference(2, "0"),
        plan(2, collective("broadcast", "mine", "b", root=root), SQUARE),
        Options(seed=1),
    )
    assert (report.verdict, report.findings[0].code) == ("invalid", "PIT004"), said(report)
