"""One rank of many that does something else than all others, and a batch that only some ranks have,
which no plan file can say.
"""

from __future__ import annotations

from typing import Any

import pytest
from attacks.pairs import (
    ALL,
    NEG,
    NEGATED,
    OTHER,
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
    Operator,
    Output,
    Table,
)

A = tensor("a")


def exchange(batch: Any) -> list[Operator]:
    return [
        NEG,
        Operator("send", "send", ("a",), (), {"peer": OTHER, "batch": batch}),
        Operator("receive", "receive", (), ("y",), {"peer": OTHER, "batch": batch}),
    ]


def test_one_rank_that_begins_both_messages_is_enough() -> None:
    assert against([A], exchange(Table(("r",), ("p", None))))[0] == "equivalent"
    assert against([A], exchange(Table(("r",), (None, None)))) == ("invalid", "PIT012")


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
