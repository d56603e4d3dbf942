"""Attacks on roots of collectives, on quotients that the reference lacks, and on new values that
are spread otherwise than what they replace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attacks.pairs import alone, found, given, tensor
from msgspec.structs import replace

from pitcheck.plan.model import (
    Axis,
    Group,
    Lineage,
    Number,
    Operator,
    Output,
    Plan,
    Program,
    Shard,
    Step,
    Table,
    Tensor,
    Use,
)

FOUR = (Axis("a", 4),)
ALL = Group(axes=("a",))
BY_RANK = (Shard(0, by=("a",)),)
NOT_PROVEN = ("mismatch", "invalid", "inconclusive")
Steps = tuple[Operator, ...]


def op(
    name: str,
    kind: str,
    *inputs: Any,
    at: tuple[int, ...] = (),
    group: Group | None = None,
    out: str = "",
    **attributes: Any,
) -> Operator:
    return Operator(
        name, kind, inputs, (out or name,), attributes, group, ({"a": at},) if at else ()
    )


def plan_of(
    operators: Steps,
    *tensors: Tensor,
    shape: tuple[int, ...] = (6,),
    outputs: tuple[Output, ...] = (Output("y"),),
) -> Plan:
    """A plan over four ranks; tensors that are not given have one shape."""
    known = {each.name for each in tensors}
    made = dict.fromkeys(
        name for operator in operators for name in operator.outputs if name not in known
    )
    return Plan(FOUR, (*tensors, *(Tensor(name, shape) for name in made)), operators, outputs)


# --- quotients that the reference does not have

DOUBLE = alone([given("d", 6), tensor("y", 6)], [Operator("y", "add", ("d", "d"), ("y",))])
D = given("d", 6, lineage=Lineage("d"))
ONE = op("q", "div", "d", "d")


def scaled(where: tuple[int, ...], *then: Operator) -> Steps:
    """Ranks ``where`` have d d / d as h, the others d."""
    others = tuple(rank for rank in range(4) if rank not in where)
    return (
        ONE,
        op("h1", "mul", "d", "q", at=where, out="h"),
        op("h2", "identity", "d", at=others, out="h"),
        *then,
    )


ADDED = op("y", "add", "b", "b")
FROM_TWO = op("b", "broadcast", "h", group=ALL, root=2)
QUOTIENTS: dict[str, Steps] = {
    "at the root of a broadcast": scaled((2,), FROM_TWO, ADDED),
    "chosen as a maximum over ranks": scaled(
        (1,), op("b", "all_reduce", "h", group=ALL, reduction="max"), ADDED
    ),
    "in a mean over ranks": scaled(
        (3,), op("b", "all_reduce", "h", group=ALL, reduction="avg"), ADDED
    ),
    "reduced to a root and sent on": scaled(
        (0,),
        op("r", "reduce", "h", group=ALL, root=1, reduction="avg"),
        op("b", "broadcast", "r", group=ALL, root=1),
        ADDED,
    ),
    "times 0": (
        op("z", "div", "d", "d"),
        op("n", "mul", "z", Number(0)),
        op("b", "add", "d", "n"),
        ADDED,
    ),
    "behind a function": (ONE, op("e", "sign", "q"), op("b", "mul", "d", "e"), ADDED),
}


@pytest.mark.parametrize("name", QUOTIENTS)
def test_a_quotient_of_one_rank_is_seen(name: str) -> None:
    assert found(DOUBLE, plan_of(QUOTIENTS[name], D))[0] in NOT_PROVEN


def test_a_quotient_that_only_others_than_the_root_have_matters_to_nobody() -> None:
    assert found(DOUBLE, plan_of(scaled((0, 1, 3), FROM_TWO, ADDED), D)) == ("equivalent", "")
    assert found(
        DOUBLE, plan_of(scaled((2,), replace(FROM_TWO, attributes={"root": 3}), ADDED), D)
    ) == ("equivalent", "")


# --- roots

X = given("x", 1, 6, lineage=Lineage("x", BY_RANK))
MINE = op("mine", "reshape", "x", sizes=(6,))


def chosen(index: int) -> Plan:
    return alone(
        [given("x", 4, 6), tensor("s", 6), tensor("y", 6)],
        [
            Operator("s", "select", ("x",), ("s",), {"axis": 0, "index": index}),
            Operator("y", "add", ("s", "s"), ("y",)),
        ],
    )


LISTS = Group(ranks=((3, 1), (0, 2)))
SECOND = Group(ranks=((1, 0), (3, 2)))


def test_a_broadcast_of_a_broadcast_goes_by_the_places_in_the_lists() -> None:
    """Rank 3 gives its part to 1, or rank 1 to 3; then 1 gives it to 0, and 3 to 2."""

    def chain(first: int, second: int) -> Plan:
        return plan_of(
            (
                MINE,
                op("h", "broadcast", "mine", group=LISTS, root=first),
                op("b", "broadcast", "h", group=SECOND, root=second),
                ADDED,
            ),
            X,
        )

    assert found(chosen(3), chain(0, 0)) == ("equivalent", "")
    assert found(chosen(1), chain(1, 0)) == ("equivalent", "")
    assert found(chosen(1), chain(0, 0))[0] == "mismatch"
    assert found(chosen(3), chain(0, 1))[0] == "mismatch"


def test_the_axes_of_a_group_are_those_of_the_mesh_in_its_order() -> None:
    """Root 1 of a group over both axes of a mesh of 2 by 3 is rank 1, in whatever order the axes
    are named.
    """

    def spread(axes: tuple[str, ...], root: int) -> Plan:
        both = given("x", 1, 6, lineage=Lineage("x", (Shard(0, by=("a", "b")),)))
        made = plan_of(
            (MINE, op("b", "broadcast", "mine", group=Group(axes=axes), root=root), ADDED), both
        )
        return replace(made, mesh=(Axis("a", 2), Axis("b", 3)))

    whole = chosen(1)
    six = replace(whole, tensors=(given("x", 6, 6), *whole.tensors[1:]))
    for axes in (("a", "b"), ("b", "a")):
        assert found(six, spread(axes, 1)) == ("equivalent", "")
        assert found(six, spread(axes, 2))[0] == "mismatch"


@pytest.mark.parametrize(
    ("roots", "microbatch", "verdict"),
    [((1, 0, 3), 2, "equivalent"), ((1, 0, 3), 0, "mismatch"), ((3, 0, 1), 2, "mismatch")],
)
def test_what_runs_once_uses_the_broadcast_of_one_micro_batch(
    roots: tuple[int, ...], microbatch: int, verdict: str
) -> None:
    """The reference takes part 11 of 12: that of micro-batch 2 on rank 3, as micro-batches are cut
    first.
    """
    given_x = given("x", 1, 6, microbatched=True, lineage=Lineage("x", (Shard(0, by=("mb", "a")),)))
    operators = (
        MINE,
        op("h", "broadcast", "mine", group=ALL, root=Table(("mb",), roots)),
        Operator("y", "add", (Use("h", microbatch), Use("h", microbatch)), ("y",)),
    )
    many = [Tensor(name, (6,), microbatched=True) for name in ("mine", "h")]
    steps = (*(Step("each", m) for m in (1, 2, 0)), Step("last", None))
    made = replace(
        plan_of(operators, given_x, *many),
        microbatches=3,
        blocks={"each": ("mine", "h"), "last": ("y",)},
        programs=(Program(steps),),
    )
    whole = chosen(11)
    assert (
        found(replace(whole, tensors=(given("x", 12, 6), *whole.tensors[1:])), made)[0] == verdict
    )


# --- new values

STEP = Plan(
    (),
    (given("w", 8, 2, role="parameter"), given("g", 8, 2), Tensor("u", (8, 2), updated="w")),
    (Operator("u", "sub", ("w", "g"), ("u",)),),
    (Output("u"),),
)


def rows(*values: Any) -> tuple[Shard, ...]:
    return (Shard(0, intervals=Table(("a",), tuple(values))),)


def new_values(
    held: tuple[Shard, ...],
    said: tuple[Shard, ...],
    *operators: Operator,
    of: str | None = "w",
    **more: Any,
) -> Plan:
    tensors = (
        given("w", 2, 2, role="parameter", lineage=Lineage("w", held)),
        given("g", 2, 2, lineage=Lineage("g", held)),
        Tensor("u", (2, 2), updated=of),
    )
    return plan_of(
        operators,
        *tensors,
        shape=(2, 2),
        outputs=(Output("u", lineage=Lineage("u", said, **more)),),
    )


SUBTRACTED = op("u", "sub", "w", "g")
WHOLE = tuple(((2 * i, 2 * i + 2),) for i in range(4))
PIECES = tuple(((2 * i, 2 * i + 1), (2 * i + 1, 2 * i + 2)) for i in range(4))
TURNED = tuple(((2 * i + 1, 2 * i + 2), (2 * i, 2 * i + 1)) for i in range(4))


@pytest.mark.parametrize("said", [BY_RANK, rows(*WHOLE), rows(*PIECES)])
@pytest.mark.parametrize("held", [BY_RANK, rows(*PIECES)])
def test_a_new_value_may_name_the_rows_of_its_parameter_in_pieces(
    held: tuple[Shard, ...], said: tuple[Shard, ...]
) -> None:
    assert found(STEP, new_values(held, said, SUBTRACTED)) == ("equivalent", "")


@pytest.mark.parametrize("of", ["w", None])
def test_a_new_value_has_the_rows_of_its_parameter_in_the_same_order(of: str | None) -> None:
    """Also where the plan does not say of what it is the new value, because there is one such
    tensor only.
    """
    turned: list[Callable[[], Plan]] = [
        lambda: new_values(
            BY_RANK, rows(*TURNED), op("v", "sub", "w", "g"), op("u", "flip", "v", axes=(0,)), of=of
        ),
        lambda: new_values(
            BY_RANK,
            BY_RANK,
            op("v", "sub", "w", "g"),
            op("u", "mul", "v", Number(2)),
            of=of,
            scale="2",
        ),
    ]
    for made in turned:
        assert found(STEP, made())[0] in NOT_PROVEN
    assert found(STEP, new_values(rows(*TURNED), rows(*TURNED), SUBTRACTED, of=of)) == (
        "equivalent",
        "",
    )
    assert found(STEP, new_values(BY_RANK, rows(*PIECES), SUBTRACTED, of=of)) == ("equivalent", "")
    here = replace(SUBTRACTED, where=({"a": (0,)},))
    whole = (
        given("w", 8, 2, role="parameter", lineage=Lineage("w")),
        given("g", 8, 2, lineage=Lineage("g")),
        Tensor("u", (8, 2), updated=of),
    )
    kept = op("k", "neg", "w")
    for subtracted, verdict in ((SUBTRACTED, "equivalent"), (here, "inconclusive")):
        assert (
            found(
                STEP,
                plan_of(
                    (subtracted, kept),
                    *whole,
                    shape=(8, 2),
                    outputs=(Output("u", lineage=Lineage("u")),),
                ),
            )[0]
            == verdict
        )
