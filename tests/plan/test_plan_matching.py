"""Matching of sends with receives and of the members of collectives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan.plan_samples import (
    FIRST,
    LAST,
    change,
    crossing,
    linear_parallel,
    pipeline,
    with_operator,
    with_tensor,
)

from pitcheck.plan.model import Axis, Group, Operator, Plan, Program, Step, Table, Tensor
from pitcheck.plan.schedule.matching import Matching, match


def matched(plan: Plan) -> Matching:
    matching, violations = match(plan)
    assert violations == []
    assert matching is not None
    return matching


def only_code(plan: Plan) -> tuple[str, str]:
    """(code, message) of the first finding; all findings must have this code."""
    matching, violations = match(plan)
    assert matching is None
    assert len({violation.code for violation in violations}) == 1
    return violations[0].code, violations[0].message


def test_a_pipeline_is_matched_by_micro_batch() -> None:
    matching = matched(pipeline())
    assert matching.received["receive1"].tolist() == [[[-1] * 3] * 2, [[1, 0, 0], [1, 0, 1]]]
    assert matching.received["receive0"].tolist() == [[[5, 1, 0], [5, 1, 1]], [[-1] * 3] * 2]
    assert matching.members == {}


def test_channels_are_first_in_first_out_even_where_micro_batches_are_turned() -> None:
    matching = matched(pipeline(("f1", "f0", "b0", "b1")))
    assert matching.received["receive1"].tolist()[1] == [[1, 0, 1], [1, 0, 0]]


def test_a_tag_is_a_channel_of_its_own() -> None:
    tensors = (
        Tensor("x", (4,), role="input"),
        Tensor("u", (4,), role="input"),
        Tensor("y", (4,)),
        Tensor("z", (4,)),
    )

    def plan(first: int, second: int) -> Plan:
        operators = (
            Operator("s", "send", ("x",), (), {"peer": 1, "tag": 7}, where=FIRST),
            Operator("t", "send", ("u",), (), {"peer": 1, "tag": 8}, where=FIRST),
            Operator("y", "receive", (), ("y",), {"peer": 0, "tag": first}, where=LAST),
            Operator("z", "receive", (), ("z",), {"peer": 0, "tag": second}, where=LAST),
        )
        return Plan((Axis("pp", 2),), tensors, operators, ())

    assert matched(plan(7, 8)).received["y"][1, 0, 0] == 0
    assert matched(plan(8, 7)).received["y"][1, 0, 0] == 1
    assert only_code(plan(7, 9))[0] == "PIT005"


def test_a_ring_is_matched_by_tables_of_peers() -> None:
    found = matched(crossing(5)).received["receive"]
    assert found[:, 0].tolist() == [[0, (rank - 1) % 5, 0] for rank in range(5)]


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (with_operator(pipeline(), 1, where=({"pp": (0,), "mb": (0,)},)), "no send meets it"),
        (with_operator(pipeline(), 2, where=({"pp": (1,), "mb": (0,)},)), "no receive meets it"),
        (
            with_operator(pipeline(), 2, attributes={"peer": 1}),
            "rank 1 has 2 receives, the first of them 'receive1' with peer 1",
        ),
        (with_operator(pipeline(), 1, attributes={"peer": 0}), "no receive meets it"),
        (with_operator(pipeline(), 1, attributes={"peer": 2}), "not one of the 2 ranks"),
        (with_operator(pipeline(), 1, attributes={"peer": -1}), "not one of the 2 ranks"),
        (with_tensor(pipeline(), 2, shape=(5,)), "both must be equal"),
        (with_tensor(pipeline(), 2, dtype="float16"), "both must be equal"),
    ],
)
def test_sends_and_receives_that_do_not_meet(plan: Plan, message: str) -> None:
    code, text = only_code(plan)
    assert code == "PIT005"
    assert message in text


def test_a_peer_that_is_no_integer_is_malformed() -> None:
    for peer in (None, "1", True, 1.0, (1,)):
        assert only_code(with_operator(pipeline(), 1, attributes={"peer": peer}))[0] == "PIT001"


def test_a_tag_that_is_no_integer_or_name_is_malformed() -> None:
    """1 and true would be two channels here, and are one to the library."""
    for tag in (True, 1.0, None, (1,)):
        assert (
            only_code(with_operator(pipeline(), 1, attributes={"peer": 1, "tag": tag}))[0]
            == "PIT001"
        )


def test_a_regular_collective_has_no_table_of_members() -> None:
    assert matched(linear_parallel()).members == {"sum": None}


def two_records(**second: object) -> Plan:
    """Return an all-reduce over tp in which rank 1 runs a separate record."""
    plan = linear_parallel()
    other = Operator(
        "sum1",
        "all_reduce",
        ("p",),
        ("y",),
        {"reduction": "sum"},
        Group(axes=("tp",)),
        where=({"tp": (1,)},),
    )
    plan = with_operator(plan, 1, where=({"tp": (0,)},))
    return change(plan, operators=(*plan.operators, change(other, **second)))


def test_members_may_run_different_records() -> None:
    members = matched(two_records()).members
    table = members["sum"]
    assert table is not None
    assert table[0, 0].tolist() == [[1, 0, 0], [2, 1, 0]]
    assert (table[1] == -1).all()
    assert members["sum1"] is not None
    assert members["sum1"][1, 0].tolist() == [[1, 0, 0], [2, 1, 0]]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"attributes": {"reduction": "max"}}, "reduction max"),
        ({"kind": "all_gather", "attributes": {"axis": 0}}, "all_gather"),
        ({"kind": "broadcast", "attributes": {"root": 0}}, "broadcast"),
    ],
)
def test_members_must_agree(second: dict[str, object], message: str) -> None:
    code, text = only_code(two_records(**second))
    assert code == "PIT006"
    assert message in text


def test_the_default_reduction_is_sum() -> None:
    assert matched(two_records(attributes={})).members["sum"] is not None


def test_a_shape_that_differs_is_found() -> None:
    plan = two_records(inputs=("q",), outputs=("r",))
    plan = change(
        plan, tensors=(*plan.tensors, Tensor("q", (4, 9), role="input"), Tensor("r", (4, 9)))
    )
    assert only_code(plan)[0] == "PIT006"


def test_a_member_that_never_comes() -> None:
    code, text = only_code(with_operator(linear_parallel(), 1, where=({"tp": (0,)},)))
    assert code == "PIT004"
    assert "rank 1 is in the group [0, 1] but runs no collective" in text


def test_a_rank_outside_every_group() -> None:
    code, text = only_code(with_operator(linear_parallel(), 1, group=Group(ranks=((0,),))))
    assert code == "PIT004"
    assert "rank 1, which is in none of its groups" in text


def collectives(orders: tuple[tuple[str, ...], ...]) -> Plan:
    """Ranks run all-reduces a, b, c, ... over all of them in these orders."""
    names = sorted({name for order in orders for name in order})
    tensors = [Tensor(f"x{name}", (ord(name),), role="input") for name in names] + [
        Tensor(f"y{name}", (ord(name),)) for name in names
    ]
    ranks = {
        name: tuple(rank for rank, order in enumerate(orders) if name in order) for name in names
    }
    operators = [
        Operator(
            name,
            "all_reduce",
            (f"x{name}",),
            (f"y{name}",),
            {},
            Group(axes=("r",)),
            where=({"r": ranks[name]},),
        )
        for name in names
    ]
    programs = [Program((Step(f"b{rank}"),), ({"r": (rank,)},)) for rank in range(len(orders))]
    blocks = {f"b{rank}": order for rank, order in enumerate(orders)}
    return Plan(
        (Axis("r", len(orders)),), tuple(tensors), tuple(operators), (), 1, blocks, tuple(programs)
    )


def test_the_order_of_collectives_must_agree() -> None:
    assert matched(collectives((("a", "b"), ("a", "b"), ("a", "b"))))
    code, text = only_code(collectives((("a", "b"), ("b", "a"), ("a", "b"))))
    assert code == "PIT006"
    assert "collective 0 over the group [0, 1, 2]: rank 0 runs 'a'" in text
    assert "rank 1 runs 'b'" in text


def test_the_collective_that_a_rank_leaves_out_is_named() -> None:
    code, text = only_code(collectives((("a", "b", "c"), ("a", "c"), ("a", "b", "c"))))
    assert code == "PIT006"
    assert "collective 1" in text
    assert "'b'" in text
    assert "rank 1" in text


def test_groups_of_rank_lists_keep_their_order() -> None:
    plan = two_records(group=Group(ranks=((1, 0),)))
    plan = with_operator(plan, 1, group=Group(ranks=((1, 0),)))
    table = matched(plan).members["sum"]
    assert table is not None
    assert table[0, 0].tolist() == [[2, 1, 0], [1, 0, 0]]


@settings(max_examples=100)
@given(st.data())
def test_random_channels_agree_with_queues(data: st.DataObject) -> None:
    """Random sends and receives against one Python queue a channel."""
    ranks, microbatches, count = 3, 2, 3
    mesh = (Axis("r", ranks),)
    tensors = [Tensor("x", (4,), role="input", microbatched=True)]
    operators = []
    for number in range(count):
        # One permutation of the peers per record: sends and receives of the record balance.
        shift = data.draw(st.integers(1, ranks - 1))
        tensors.append(Tensor(f"y{number}", (4,), microbatched=True))
        forward = Table(("r",), tuple((rank + shift) % ranks for rank in range(ranks)))
        back = Table(("r",), tuple((rank - shift) % ranks for rank in range(ranks)))
        operators += [
            Operator(f"s{number}", "send", ("x",), (), {"peer": forward}),
            Operator(f"r{number}", "receive", (), (f"y{number}",), {"peer": back}),
        ]
    blocks, programs, orders = {}, [], []
    for rank in range(ranks):
        order = data.draw(
            st.permutations(
                [(operator.id, m) for operator in operators for m in range(microbatches)]
            )
        )
        orders.append(order)
        blocks.update({operator.id: (operator.id,) for operator in operators})
        programs.append(Program(tuple(Step(name, m) for name, m in order), ({"r": (rank,)},)))
    plan = Plan(mesh, tuple(tensors), tuple(operators), (), microbatches, blocks, tuple(programs))
    queues: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    position = {operator.id: number for number, operator in enumerate(operators)}
    for rank, order in enumerate(orders):
        for name, m in order:
            if name[0] == "s":
                queues.setdefault(
                    (rank, operators[position[name]].attributes["peer"].values[rank]), []
                ).append((position[name], rank, m))
    matching = matched(plan)
    for rank, order in enumerate(orders):
        for name, m in order:
            if name[0] == "r":
                channel = (operators[position[name]].attributes["peer"].values[rank], rank)
                assert tuple(matching.received[name][rank, m]) == queues[channel].pop(0)


def test_many_ranks_cost_little() -> None:
    mesh = (Axis("dp", 512), Axis("tp", 8))
    tensors = tuple(
        Tensor(f"x{i}", (4,), role="activation" if i else "input", microbatched=True)
        for i in range(101)
    )
    operators = tuple(
        Operator(
            f"o{i}",
            "all_reduce",
            (f"x{i}",),
            (f"x{i + 1}",),
            {},
            Group(axes=(("tp",), ("dp",))[i % 2]),
        )
        for i in range(100)
    )
    matching = matched(Plan(mesh, tensors, operators, (), 16))
    assert set(matching.members.values()) == {None}


def test_uneven_groups_are_padded() -> None:
    plan = Plan(
        (Axis("r", 3),),
        (Tensor("x", (4,), role="input"), Tensor("y", (4,))),
        (
            Operator(
                "a",
                "all_reduce",
                ("x",),
                ("y",),
                {},
                Group(ranks=((0, 1), (2,))),
                where=({"r": (0, 2)},),
            ),
            Operator(
                "b",
                "all_reduce",
                ("x",),
                ("y",),
                {},
                Group(ranks=((0, 1), (2,))),
                where=({"r": (1,)},),
            ),
        ),
        (),
    )
    table = matched(plan).members["a"]
    assert table is not None
    assert np.array_equal(
        table[:, 0], [[[0, 0, 0], [1, 1, 0]], [[-1] * 3] * 2, [[0, 2, 0], [-1] * 3]]
    )
