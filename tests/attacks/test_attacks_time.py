"""Handles, batches, roots, peers, micro-batches and one rank of many: plans that no run gets right,
beside those that do.
"""

from __future__ import annotations

from typing import Any

import pytest
from attacks.pairs import (
    ALL,
    FIRST,
    NEG,
    NEGATED,
    OTHER,
    SECOND,
    against,
    alone,
    evenly,
    found,
    given,
    rows,
    spread,
    tensor,
)

from pitcheck.plan.model import (
    Axis,
    Group,
    Lineage,
    Number,
    Operator,
    Output,
    Program,
    Shard,
    Step,
    Table,
    Use,
)

A, B = tensor("a"), tensor("b")


def broadcast(output: str = "b", **more: Any) -> Operator:
    return Operator("broadcast", "broadcast", ("a",), (output,), {"root": 0, **more}, ALL)


LAUNCHED, WAIT = broadcast(**{"async": True}), Operator("wait", "wait", ("b",), ("y",))
SEND = Operator("send", "send", ("a",), (), {"peer": 1}, where=FIRST)
RECEIVE = Operator("receive", "receive", (), ("y",), {"peer": 0}, where=SECOND)
KEEP = Operator("keep", "identity", ("a",), ("y",), where=FIRST)
MEAN = Operator("mean", "all_reduce", ("a",), ("b",), {"reduction": "avg"}, ALL)


# --- handles


def test_what_a_broadcast_moves_stays_until_its_wait() -> None:
    over = Operator("over", "square", ("x",), ("j",))
    memory = [tensor("a", storage="S"), B, tensor("j", storage="S")]
    assert against([A, B], [NEG, LAUNCHED, WAIT])[0] == "equivalent"
    assert against(memory, [NEG, LAUNCHED, WAIT, over])[0] == "equivalent"
    assert against(memory, [NEG, LAUNCHED, over, WAIT]) == ("invalid", "PIT010")


@pytest.mark.parametrize(
    "early",
    [
        Operator("early", "identity", ("b",), ("y",)),
        Operator("early", "mul", ("v", Number(1)), ("y",)),
    ],
)
def test_a_result_is_read_after_its_wait_also_through_a_view(early: Operator) -> None:
    view = Operator("view", "reshape", ("b",), ("v",), {"sizes": (4,)})
    wait = Operator("wait", "wait", ("b",), ("c",))
    memory = [A, tensor("b", storage="S"), tensor("v", storage="S"), tensor("c", storage="S")]
    assert against(memory, [NEG, LAUNCHED, view, early, wait]) == ("invalid", "PIT010")
    late = Operator("late", "identity", ("c",), ("y",))
    assert against(memory, [NEG, LAUNCHED, view, wait, late])[0] == "equivalent"


@pytest.mark.parametrize("flag", [True, Table(("r",), (False, True))])
def test_what_is_launched_on_some_rank_is_waited_for_there(flag: Any) -> None:
    assert against([A], [NEG, broadcast("y", **{"async": flag})]) == ("invalid", "PIT010")
    assert against([A, B], [NEG, broadcast("b", **{"async": flag}), WAIT])[0] == "equivalent"


@pytest.mark.parametrize("flag", [1, 0, 1.0, "true", "", None])
def test_a_flag_is_true_or_false(flag: Any) -> None:
    assert against([A], [NEG, broadcast("y", **{"async": flag})]) == ("invalid", "PIT001")


def test_a_wait_that_comes_before_what_the_other_waits_for() -> None:
    send = Operator("send", "send", ("a",), (), {"peer": OTHER, "async": True})
    receive = Operator("receive", "receive", (), ("b",), {"peer": OTHER, "async": True})
    sent = Operator("sent", "wait", ("a",))
    assert against([A, B], [NEG, receive, send, WAIT, sent])[0] == "equivalent"
    assert against([A, B], [NEG, receive, WAIT, send, sent]) == ("invalid", "PIT007")


def test_a_collective_stands_on_one_side_of_a_message() -> None:
    used = Operator("used", "identity", ("b",), ("y",), where=FIRST)
    launched = Operator("send", "send", ("a",), (), {"peer": 1, "async": True}, where=FIRST)
    sent = Operator("sent", "wait", ("a",), where=FIRST)
    assert against([A, B], [NEG, MEAN, SEND, RECEIVE, used])[0] == "equivalent"
    assert against([A, B], [NEG, launched, MEAN, sent, RECEIVE, used])[0] == "equivalent"
    assert against([A, B], [NEG, SEND, MEAN, RECEIVE, used]) == ("invalid", "PIT012")
    assert against([A, B], [NEG, launched, sent, MEAN, RECEIVE, used]) == ("invalid", "PIT012")


# --- batches, peers and roots


def exchange(batch: Any) -> list[Operator]:
    return [
        NEG,
        Operator("send", "send", ("a",), (), {"peer": OTHER, "batch": batch}),
        Operator("receive", "receive", (), ("y",), {"peer": OTHER, "batch": batch}),
    ]


def test_batches_are_each_ranks_own() -> None:
    assert against([A], exchange(Table(("r",), ("p", "q"))))[0] == "equivalent"
    # One rank that begins both is enough.
    assert against([A], exchange(Table(("r",), ("p", None))))[0] == "equivalent"
    assert against([A], exchange(Table(("r",), (None, None)))) == ("invalid", "PIT012")


def test_a_collective_of_a_batch_does_not_read_what_the_batch_receives() -> None:
    send = Operator("send", "send", ("a",), (), {"peer": OTHER, "batch": 1})
    receive = Operator("receive", "receive", (), ("b",), {"peer": OTHER, "batch": 1})
    mean = Operator("mean", "all_reduce", ("b",), ("y",), {"reduction": "avg"}, ALL)
    together = Operator("mean", "all_reduce", ("b",), ("y",), {"reduction": "avg", "batch": 1}, ALL)
    assert against([A, B], [NEG, send, receive, mean])[0] == "equivalent"
    assert against([A, B], [NEG, send, receive, together]) == ("invalid", "PIT010")


@pytest.mark.parametrize("peer", [-1, 2, True, "1", 0.0])
def test_a_peer_is_another_rank(peer: Any) -> None:
    wrong = Operator("send", "send", ("a",), (), {"peer": peer}, where=FIRST)
    assert against([A], [NEG, SEND, RECEIVE, KEEP])[0] == "equivalent"
    assert against([A], [NEG, wrong, RECEIVE, KEEP])[0] == "invalid"


@pytest.mark.parametrize("root", [-1, 2, Table(("r",), (0, 1))])
def test_a_root_is_one_member(root: Any) -> None:
    assert against([A], [NEG, broadcast("y", root=root)])[0] == "invalid"


def test_members_name_one_list_of_ranks() -> None:
    def mean(second: Group) -> list[Operator]:
        given_ = {"reduction": "avg"}
        one = Operator("one", "all_reduce", ("a",), ("y",), given_, Group(ranks=((0, 1),)), FIRST)
        return [NEG, one, Operator("two", "all_reduce", ("a",), ("y",), given_, second, SECOND)]

    assert against([A], mean(ALL))[0] == "equivalent"
    assert against([A], mean(Group(ranks=((1, 0),))))[0] == "invalid"
    assert (
        against(
            [A],
            [
                NEG,
                Operator(
                    "both",
                    "all_reduce",
                    ("a",),
                    ("y",),
                    {"reduction": "avg"},
                    Group(ranks=((0, 1), (1, 0))),
                ),
            ],
        )[0]
        == "invalid"
    )


def test_only_the_root_has_what_is_reduced_to_it() -> None:
    reduced = Operator("reduce", "reduce", ("a",), ("b",), {"root": 0, "reduction": "avg"}, ALL)
    read = Operator("read", "identity", ("b",), ("y",))
    assert against([A, B], [NEG, reduced, read]) == ("mismatch", "PIT118")
    own = Operator("own", "identity", ("a",), ("y",), where=SECOND)
    assert (
        against(
            [A, B], [NEG, reduced, Operator("read", "identity", ("b",), ("y",), where=FIRST), own]
        )[0]
        == "equivalent"
    )


# --- memory


def test_an_input_is_overwritten_on_one_rank_and_read_there_again() -> None:
    memory = [given("x", storage="Q"), tensor("a", storage="Q")]
    over, use = (
        Operator("over", "square", ("x",), ("a",), where=SECOND),
        Operator("use", "neg", ("x",), ("y",)),
    )
    assert against(memory, [use, over])[0] == "equivalent"
    assert against(memory, [over, use]) == ("invalid", "PIT010")


@pytest.mark.parametrize(
    ("kind", "attributes", "shape"),
    [("transpose", {"dim0": 0, "dim1": 1}, (2, 2)), ("expand", {"sizes": (3, 2, 2)}, (3, 2, 2))],
)
def test_what_is_no_view_of_whole_places_is_written(
    kind: str, attributes: dict[str, Any], shape: tuple[int, ...]
) -> None:
    reference = alone([given("x", 2, 2), tensor("y", 2, 2)], [Operator("u", "neg", ("x",), ("y",))])
    moved, use = (
        Operator("moved", kind, ("a",), ("v",), attributes),
        Operator("use", "identity", ("a",), ("y",)),
    )
    for storage, verdict in (("S", "invalid"), ("T", "equivalent")):
        memory = [
            given("x", 2, 2),
            tensor("a", 2, 2, storage="S"),
            tensor("v", *shape, storage=storage),
            tensor("y", 2, 2),
        ]
        assert found(reference, spread(memory, [NEG, moved, use]))[0] == verdict


# --- micro-batches

EIGHT = alone([given("x", 8), tensor("y", 8)], [Operator("u", "neg", ("x",), ("y",))])
BY_MB = Lineage("y", (Shard(0, by=("mb",)),))
PARTS = [
    given("x", 4, microbatched=True, lineage=Lineage("x", (Shard(0, by=("mb",)),))),
    tensor("a", 4, microbatched=True),
    tensor("y", 4, microbatched=True),
]


def ordered(
    operators: list[Operator], first: tuple[int, ...], second: tuple[int, ...]
) -> tuple[str, str]:
    """Both ranks run all operators of theirs once per micro-batch, in these orders."""
    blocks = {"b": tuple(operator.id for operator in operators)}
    programs = tuple(
        Program(tuple(Step("b", mb) for mb in order), where)
        for order, where in ((first, FIRST), (second, SECOND))
    )
    return found(
        EIGHT,
        spread(
            PARTS,
            operators,
            Output("y", "y", BY_MB),
            microbatches=2,
            blocks=blocks,
            programs=programs,
        ),
    )


MEANS = [NEG, Operator("mean", "all_reduce", ("a",), ("y",), {"reduction": "avg"}, ALL)]
PIPELINE = [Operator("neg", "neg", ("x",), ("a",), where=FIRST), SEND, RECEIVE]


@pytest.mark.parametrize("operators", [MEANS, PIPELINE], ids=["collectives", "messages"])
def test_micro_batches_meet_in_the_order_in_which_they_come(operators: list[Operator]) -> None:
    assert (
        ordered(operators, (0, 1), (0, 1))[0]
        == ordered(operators, (1, 0), (1, 0))[0]
        == "equivalent"
    )
    assert ordered(operators, (0, 1), (1, 0))[0] == "mismatch"


@pytest.mark.parametrize(("number", "verdict"), [(0, "mismatch"), (-1, "invalid"), (2, "invalid")])
def test_a_micro_batch_is_named_by_its_number(number: int, verdict: str) -> None:
    use = Operator("neg", "neg", (Use("x", number),), ("y",))
    assert (
        found(EIGHT, spread([PARTS[0], PARTS[2]], [use], Output("y", "y", BY_MB), microbatches=2))[
            0
        ]
        == verdict
    )


@pytest.mark.parametrize(
    ("listed", "verdict"),
    [
        (None, "equivalent"),
        ((1, 0), "equivalent"),
        ((0, 0), "mismatch"),
        ((0, 1, 1), "mismatch"),
        ((0,), "mismatch"),
        ((), "invalid"),
        ((0, -1), "invalid"),
    ],
)
def test_each_micro_batch_is_added_up_once(listed: tuple[int, ...] | None, verdict: str) -> None:
    folded = [
        Operator("fold", "reshape", ("x",), ("s",), {"sizes": (2, 4)}),
        Operator("sum", "sum", ("s",), ("y",), {"axes": (0,)}),
    ]
    reference = alone([given("x", 8), tensor("s", 2, 4), tensor("y")], folded)
    operators = [
        Operator("a", "identity", ("x",), ("a",)),
        Operator(
            "y", "accumulate", ("a",), ("y",), {} if listed is None else {"microbatches": listed}
        ),
    ]
    assert (
        found(reference, spread([*PARTS[:2], tensor("y")], operators, microbatches=2))[0] == verdict
    )


# --- one rank of many

MANY, ODD = 1024, 517
MESH = (Axis("r", MANY),)


def at_one(there: Any, elsewhere: Any) -> Table:
    return Table(("r",), tuple(there if rank == ODD else elsewhere for rank in range(MANY)))


@pytest.mark.parametrize(
    ("kind", "attributes", "code"),
    [
        ("broadcast", {"root": 0, "async": at_one(True, False)}, "PIT010"),
        ("broadcast", {"root": at_one(1, 0)}, "PIT006"),
        ("all_reduce", {"reduction": at_one("max", "avg")}, "PIT006"),
    ],
)
def test_a_collective_that_one_rank_of_many_calls_otherwise(
    kind: str, attributes: dict[str, Any], code: str
) -> None:
    one = Operator("one", kind, ("a",), ("y",), attributes, ALL)
    assert found(NEGATED, spread([given("x"), A, tensor("y")], [NEG, one], mesh=MESH)) == (
        "invalid",
        code,
    )


def test_one_rank_of_many_overwrites_its_output() -> None:
    memory = [given("x"), tensor("y", storage="S"), tensor("z", storage="S")]
    use, over = (
        Operator("use", "neg", ("x",), ("y",)),
        Operator("over", "square", ("x",), ("z",), where=({"r": (ODD,)},)),
    )
    assert found(NEGATED, spread(memory, [over, use], mesh=MESH))[0] == "equivalent"
    assert found(NEGATED, spread(memory, [use, over], mesh=MESH)) == ("invalid", "PIT010")


def test_two_of_many_messages_are_exchanged() -> None:
    turned = [
        Operator("u", "neg", ("x",), ("n",)),
        Operator("v", "roll", ("n",), ("y",), {"axis": 0, "shift": 1}),
    ]
    reference = alone([given("x", MANY), tensor("n", MANY), tensor("y", MANY)], turned)

    def ring(exchanged: bool, both: bool = True) -> tuple[str, str]:
        to, back = (
            [(rank + 1) % MANY for rank in range(MANY)],
            [(rank - 1) % MANY for rank in range(MANY)],
        )
        if exchanged:
            to[516], to[700] = to[700], to[516]
            if both:
                back[517], back[701] = back[701], back[517]
        moves = [
            Operator("send", "send", ("a",), (), {"peer": Table(("r",), tuple(to)), "batch": 1}),
            Operator(
                "receive", "receive", (), ("y",), {"peer": Table(("r",), tuple(back)), "batch": 1}
            ),
        ]
        tensors = [given("x", 1, lineage=evenly("x")), tensor("a", 1), tensor("y", 1)]
        return found(
            reference, spread(tensors, [NEG, *moves], Output("y", "y", evenly("y")), mesh=MESH)
        )

    assert ring(False)[0] == "equivalent"
    assert ring(True)[0] == "mismatch"
    assert ring(True, both=False) == ("invalid", "PIT005")


def test_one_of_many_groups_gathers_in_another_order() -> None:
    reference = alone([given("x", MANY), tensor("y", MANY)], [Operator("u", "neg", ("x",), ("y",))])
    pairs = [(first, first + 1) for first in range(0, MANY, 2)]
    held = rows("y", *(((rank - rank % 2, rank - rank % 2 + 2),) for rank in range(MANY)))
    for reverse, verdict in ((False, "equivalent"), (True, "mismatch")):
        lists = [pair[::-1] if reverse and pair[0] == ODD - 1 else pair for pair in pairs]
        gather = Operator(
            "gather", "all_gather", ("a",), ("y",), {"axis": 0}, Group(ranks=tuple(lists))
        )
        tensors = [given("x", 1, lineage=evenly("x")), tensor("a", 1), tensor("y", 2)]
        assert (
            found(reference, spread(tensors, [NEG, gather], Output("y", "y", held), mesh=MESH))[0]
            == verdict
        )


# --- random draws


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ({"whole": (8,), "start": Table(("r",), ((0,), (4,)))}, True),
        ({"offset": Table(("r",), (0, 4))}, True),
        ({}, False),
        ({"offset": Table(("r",), (0, 5))}, False),
        ({"stream": "other", "offset": Table(("r",), (0, 4))}, False),
        ({"whole": (8,), "start": Table(("r",), ((4,), (0,)))}, False),
    ],
)
def test_ranks_draw_their_own_numbers(said: dict[str, Any], right: bool) -> None:
    times = Operator("times", "mul", ("x", "d"), ("y",))
    reference = alone(
        [given("x", 8), tensor("d", 8), tensor("y", 8)],
        [Operator("draw", "uniform", ("x",), ("d",), {"stream": "noise"}), times],
    )
    draw = Operator("draw", "uniform", ("x",), ("d",), {"stream": "noise", **said})
    tensors = [given("x", 4, lineage=evenly("x")), tensor("d", 4), tensor("y", 4)]
    assert (
        found(reference, spread(tensors, [draw, times], Output("y", "y", evenly("y"))))[0]
        == "equivalent"
    ) == right
