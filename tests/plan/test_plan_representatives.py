"""Rules on order and communication, decided on representatives of the ranks.

They give the same findings and the same matching as among all ranks.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan.plan_samples import change

from pitcheck.plan.instances import count_instances
from pitcheck.plan.model import Axis, Box, Group, Operator, Plan, Program, Step, Table, Tensor
from pitcheck.plan.schedule.deadlock import find_deadlocks
from pitcheck.plan.schedule.events import Events
from pitcheck.plan.schedule.matching import match, match_events
from pitcheck.plan.schedule.representatives import representatives
from pitcheck.plan.schedule.run_order import Schedule
from pitcheck.plan.validate import _of_these, examine, validate

MESH = (Axis("pp", 3), Axis("dp", 5), Axis("tp", 4))
RANKS = 60


def stage(number: int) -> tuple[Box, ...]:
    return ({"pp": (number,)},)


def neighbour(axis: str, distance: int) -> Table:
    """Return the rank that is ``distance`` further on along an axis, as a number per rank."""
    ranks = np.arange(RANKS).reshape(3, 5, 4)
    place = [a.name for a in MESH].index(axis)
    return Table(
        ("pp", "dp", "tp"), tuple(np.roll(ranks, -distance, axis=place).reshape(-1).tolist())
    )


def training(microbatches: int = 2, **send: object) -> Plan:
    """Return three pipeline stages forward and backward.

    There is an all-reduce over tp in each, and one over dp at the end.
    """
    tensors = [
        Tensor("x", (4,), role="input", microbatched=True),
        Tensor("loss", (4,), microbatched=True),
        Tensor("total", (4,)),
        Tensor("synced", (4,)),
    ]
    operators: list[Operator] = []
    blocks: dict[str, tuple[str, ...]] = {}
    before = "x"
    for way, order in (("f", (0, 1, 2)), ("b", (2, 1, 0))):
        for at, number in enumerate(order):
            ids = []
            if at:
                name, distance = f"{way}{number}:in", 1 if way == "f" else -1
                tensors.append(Tensor(name, (4,), microbatched=True))
                operators.append(
                    Operator(
                        f"{way}{number}:send",
                        "send",
                        (before,),
                        (),
                        {"peer": neighbour("pp", distance), **send},
                        where=stage(order[at - 1]),
                    )
                )
                operators.append(
                    Operator(
                        f"{way}{number}:receive",
                        "receive",
                        (),
                        (name,),
                        {"peer": neighbour("pp", -distance)},
                        where=stage(number),
                    )
                )
                blocks[f"{way}{order[at - 1]}"] += (f"{way}{number}:send",)
                if send.get("async"):
                    operators.append(
                        Operator(
                            f"{way}{number}:sent",
                            "wait",
                            (before,),
                            (),
                            {"of": f"{way}{number}:send"},
                            where=stage(order[at - 1]),
                        )
                    )
                    blocks[f"sent{order[at - 1]}"] = (
                        *blocks.get(f"sent{order[at - 1]}", ()),
                        f"{way}{number}:sent",
                    )
                ids.append(f"{way}{number}:receive")
                before = name
            tensors += [
                Tensor(f"{way}{number}:part", (4,), microbatched=True),
                Tensor(f"{way}{number}:out", (4,), microbatched=True),
            ]
            operators.append(
                Operator(
                    f"{way}{number}:op",
                    "neg",
                    (before,),
                    (f"{way}{number}:part",),
                    where=stage(number),
                )
            )
            operators.append(
                Operator(
                    f"{way}{number}:sum",
                    "all_reduce",
                    (f"{way}{number}:part",),
                    (f"{way}{number}:out",),
                    {},
                    Group(axes=("tp",)),
                    stage(number),
                )
            )
            before = f"{way}{number}:out"
            blocks[f"{way}{number}"] = (*ids, f"{way}{number}:op", f"{way}{number}:sum")
    operators.append(Operator("add", "accumulate", ("f0:out",), ("total",), where=stage(0)))
    operators.append(
        Operator("sync", "all_reduce", ("total",), ("synced",), {}, Group(axes=("dp",)), stage(0))
    )
    blocks["end"] = ("add", "sync")

    def sent(n: int) -> list[Step]:
        return [Step(f"sent{n}", m) for m in range(microbatches) if f"sent{n}" in blocks]

    def steps(n: int) -> tuple[Step, ...]:
        passes = [Step(f"{way}{n}", m) for way in "fb" for m in range(microbatches)]
        return (*passes, *sent(n), *([Step("end")] if n == 0 else []))

    programs = [Program(steps(n), stage(n)) for n in range(3)]
    tensors = [t for t in tensors if t.name != "loss"]
    return Plan(MESH, tuple(tensors), tuple(operators), (), microbatches, blocks, tuple(programs))


def whole(plan: Plan) -> list[str]:
    """Return the findings of the same rules among all ranks."""
    found = _of_these(plan)
    return [str(v) for v in (*found.assignment, *found.order)]


def at_ranks(plan: Plan) -> list[str]:
    return [
        str(v)
        for v in validate(plan, limit=10_000)
        if v.code
        in ("PIT002", "PIT004", "PIT005", "PIT006", "PIT007", "PIT009", "PIT010", "PIT012")
    ]


def edited(plan: Plan, identity: str, **fields: object) -> Plan:
    return change(
        plan,
        operators=tuple(change(o, **fields) if o.id == identity else o for o in plan.operators),
    )


ONE: Box = {"pp": (1,), "dp": (3,), "tp": (2,)}
REST: tuple[Box, ...] = (
    {"pp": (1,), "dp": (0, 1, 2, 4)},
    {"pp": (1,), "dp": (3,), "tp": (0, 1, 3)},
)


def replaced_on_one(plan: Plan, identity: str, **fields: object) -> Plan:
    """One rank runs a record of its own for an operator."""
    plan = edited(plan, identity, where=REST)
    old = next(o for o in plan.operators if o.id == identity)
    own = change(old, id=f"{identity}:own", where=(ONE,), **fields)
    blocks = {
        name: tuple(
            i for other in ids for i in ((other, own.id) if other == identity else (other,))
        )
        for name, ids in plan.blocks.items()
    }
    return change(plan, operators=(*plan.operators, own), blocks=blocks)


def test_axes_that_nothing_tells_apart_keep_two_coordinates() -> None:
    few = representatives(training())
    assert few is not None
    assert few.plan.mesh == (Axis("pp", 3), Axis("dp", 2), Axis("tp", 2))
    assert [kept.tolist() for kept in few.kept] == [[0, 1, 2], [0, 1], [0, 1]]
    assert few.of[1].tolist() == [0, 1, 0, 0, 0]
    assert few.of_rank.tolist() == [
        p * 4 + (d == 1) * 2 + (t == 1) for p in range(3) for d in range(5) for t in range(4)
    ]


def test_one_rank_of_its_own_stays() -> None:
    few = representatives(replaced_on_one(training(), "f1:sum"))
    assert few is not None
    assert [kept.tolist() for kept in few.kept] == [[0, 1, 2], [0, 1, 3], [0, 1, 2]]


def test_a_table_that_only_computes_tells_nothing_apart_and_one_of_a_collective_does() -> None:
    offsets = Table(("tp",), (0, 4, 8, 12))
    few = representatives(edited(training(), "f1:op", attributes={"offset": offsets}))
    assert few is not None
    assert len(few.kept[2]) == 2
    few = representatives(
        edited(training(), "f1:sum", attributes={"root": Table(("tp",), (0, 0, 1, 0))})
    )
    assert few is not None
    assert few.kept[2].tolist() == [0, 1, 2]


def test_a_ring_keeps_the_ranks_of_its_axis() -> None:
    plan = training()
    ring = (
        Operator(
            "ring:send", "send", ("f0:out",), (), {"peer": neighbour("dp", 1)}, where=stage(0)
        ),
        Operator(
            "ring:receive", "receive", (), ("ring",), {"peer": neighbour("dp", -1)}, where=stage(0)
        ),
    )
    plan = change(
        plan,
        tensors=(*plan.tensors, Tensor("ring", (4,), microbatched=True)),
        operators=(*plan.operators, *ring),
    )
    plan = change(
        plan, blocks={**plan.blocks, "f0": (*plan.blocks["f0"], "ring:send", "ring:receive")}
    )
    few = representatives(plan)
    assert few is not None
    assert [len(kept) for kept in few.kept] == [3, 5, 2]
    assert at_ranks(plan) == whole(plan) != []  # rendezvous: the ring hangs
    same(plan)


def test_rank_lists_across_an_axis_keep_its_ranks_and_are_kept_whole() -> None:
    ranks = np.arange(RANKS).reshape(3, 5, 4)
    ends = Group(
        ranks=tuple(
            (int(a), int(b))
            for a, b in zip(ranks[2].reshape(-1), ranks[0].reshape(-1), strict=True)
        )
    )
    plan = training()
    tensors = (*plan.tensors, Tensor("tied", (4,)), Tensor("given", (4,), role="input"))
    both = ({"pp": (0, 2)},)
    plan = change(
        plan,
        tensors=tensors,
        operators=(
            *plan.operators,
            Operator("tie", "all_reduce", ("given",), ("tied",), {}, ends, both),
        ),
    )
    programs = tuple(change(p, steps=(*p.steps, Step("tie"))) for p in plan.programs)
    plan = change(plan, blocks={**plan.blocks, "tie": ("tie",)}, programs=programs)
    few = representatives(plan)
    assert few is not None
    assert few.plan.mesh == (Axis("pp", 3), Axis("dp", 2), Axis("tp", 2))
    assert few.plan.operators[-1].group == Group(ranks=((8, 0), (9, 1), (10, 2), (11, 3)))
    same(plan)
    # Lists that differ from one coordinate to the next tell them apart.
    turned = list(ends.ranks)
    turned[4], turned[5] = (turned[4][0], turned[5][1]), (turned[5][0], turned[4][1])
    few = representatives(edited(plan, "tie", group=Group(ranks=tuple(turned))))
    assert few is not None
    assert few.kept[1].tolist() == [0, 1, 2]
    assert few.kept[2].tolist() == [0, 1, 2, 3]
    same(edited(plan, "tie", group=Group(ranks=tuple(turned))))


def test_peers_that_depend_on_another_axis_tell_its_coordinates_apart() -> None:
    plan = training()
    values = list(next(o for o in plan.operators if o.id == "f1:send").attributes["peer"].values)  # type: ignore[union-attr]
    # (pp 0, dp 1, tp 0) and (pp 0, dp 2, tp 0) change their peers
    values[4], values[8] = values[8], values[4]
    few = representatives(
        edited(plan, "f1:send", attributes={"peer": Table(("pp", "dp", "tp"), tuple(values))})
    )
    assert few is not None
    assert few.kept[1].tolist() == [0, 1, 2, 3]


def same(plan: Plan) -> None:
    """Fail unless matching and findings are those among all ranks."""
    assert at_ranks(plan) == whole(plan)
    found, violations = match(plan)
    expected, wrong = match_events(Events(plan))
    assert [str(v) for v in violations] == [str(v) for v in wrong]
    said, examined = examine(plan, limit=10_000)
    assert (examined is None) == (found is None)
    assert {str(v) for v in said} == {str(v) for v in (*validate(plan, limit=10_000), *violations)}
    assert (found is None) == (expected is None)
    if found is None or expected is None:
        return
    assert set(found.received) == set(expected.received)
    assert set(found.members) == set(expected.members)
    for name, table in expected.received.items():
        assert np.array_equal(found.received[name], table), name
        assert examined is not None
        assert np.array_equal(examined.received[name], table), name
    for name, members in expected.members.items():
        mine = found.members[name]
        assert (
            mine is None if members is None else mine is not None and np.array_equal(mine, members)
        ), name


@pytest.mark.parametrize("send", [{}, {"protocol": "buffered"}, {"async": True}])
def test_a_sound_plan_has_the_same_matching(send: dict[str, object]) -> None:
    plan = training(**send)
    assert at_ranks(plan) == []
    same(plan)


@pytest.mark.parametrize(
    ("plan", "code", "said"),
    [
        (
            edited(
                training(),
                "f2:receive",
                where=({"pp": (2,), "dp": (0, 1, 2, 4)}, {"pp": (2,), "dp": (3,), "tp": (0, 1, 3)}),
            ),
            "PIT005",
            "rank 34",
        ),
        (edited(training(), "f1:sum", where=REST), "PIT006", "rank 34"),
        (
            replaced_on_one(training(), "f1:sum", attributes={"reduction": "max"}),
            "PIT006",
            "rank 34",
        ),
        (
            edited(training(), "f1:sum", attributes={"root": Table(("tp",), (0, 0, 1, 0))}),
            "PIT006",
            "rank 22",
        ),
        (replaced_on_one(training(), "f1:op", inputs=("f1:part",)), "PIT009", "rank 34"),
        (replaced_on_one(training(), "f1:op", inputs=("f0:out",)), "PIT002", "rank 34"),
    ],
)
def test_what_is_wrong_on_one_rank_is_found_and_said_as_among_all(
    plan: Plan, code: str, said: str
) -> None:
    assert representatives(plan) is not None
    found = at_ranks(plan)
    assert any(f"[{code}]" in text and said in text for text in found), found
    assert found == whole(plan)


def deadlocked(ranks: Box) -> Plan:
    """On some ranks of the first stage the first backward receive comes before the forward send."""
    plan = training(protocol="rendezvous")
    first = plan.programs[0]
    rest = tuple(
        {"pp": (0,), "dp": tuple(d for d in range(5) if d not in ranks["dp"])} for _ in (0,)
    )
    wrong = change(
        first,
        steps=(first.steps[2], *first.steps[:2], *first.steps[3:]),
        where=({"pp": (0,), **ranks},),
    )
    return change(plan, programs=(change(first, where=rest), wrong, *plan.programs[1:]))


@pytest.mark.parametrize("ranks", [{"dp": (4,)}, {"dp": (1, 3)}])
def test_a_deadlock_of_one_class_of_ranks_is_found(ranks: Box) -> None:
    plan = deadlocked(ranks)
    found = at_ranks(plan)
    assert any("[PIT007]" in text for text in found)
    assert found == whole(plan)
    few = representatives(plan)
    assert few is not None
    schedule_events = Events(few.plan)
    matching, _ = match_events(schedule_events)
    assert matching is not None
    assert find_deadlocks(schedule_events, matching)


def test_what_does_not_fit_the_mesh_has_no_representatives() -> None:
    assert representatives(edited(training(), "f1:op", where=({"dp": (7,)},))) is None
    assert representatives(edited(training(), "f1:op", where=({"xp": (0,)},))) is None
    assert representatives(edited(training(), "f1:send", attributes={"peer": 60})) is None
    assert representatives(edited(training(), "f1:send", attributes={})) is None
    assert representatives(edited(training(), "f1:sum", group=Group(axes=("xp",)))) is None
    assert representatives(edited(training(), "f1:sum", group=Group(ranks=((0, 0),)))) is None
    assert (
        representatives(edited(training(), "f1:sum", attributes={"root": Table(("tp",), (0,))}))
        is None
    )


def test_different_groups_stay_different() -> None:
    """Sum over dp on half of the ranks, over dp and tp on the others.

    With one rank kept of each axis both groups would be one.
    """
    plan = edited(training(), "sync", where=({"pp": (0,), "tp": (0, 1)},))
    own = Operator(
        "sync:own",
        "all_reduce",
        ("total",),
        ("synced",),
        {},
        Group(axes=("dp", "tp")),
        ({"pp": (0,), "tp": (2, 3)},),
    )
    plan = change(
        plan,
        operators=(*plan.operators, own),
        blocks={**plan.blocks, "end": ("add", "sync", "sync:own")},
    )
    assert any("[PIT004]" in text for text in at_ranks(plan))
    assert at_ranks(plan) == whole(plan)


@pytest.mark.parametrize("root", [0, 3, Table(("dp",), (0, 1, 2, 3, 1))])
def test_the_root_of_a_group_is_always_among_the_representatives(root: int | Table) -> None:
    """The broadcast value is made on the roots alone, or on one rank alone that is no root."""
    plan = edited(training(), "f1:sum", kind="broadcast", attributes={"root": root})
    made = next(
        operator for operator in plan.operators if operator.outputs == plan_inputs(plan, "f1:sum")
    )
    places = root.values if isinstance(root, Table) else (root,) * 5
    for off in (0, 1):
        boxes = tuple(
            {"pp": (1,), "dp": (row,), "tp": ((int(place) + off * (row == 4)) % 4,)}
            for row, place in enumerate(places)
        )  # type: ignore[call-overload]
        few = edited(plan, made.id, where=boxes)
        found = at_ranks(few)
        assert any("[PIT002]" in text and "'f1:sum'" in text for text in found) == bool(off), found
        assert found == whole(few)


def plan_inputs(plan: Plan, identity: str) -> tuple[object, ...]:
    """Return the tensors that an operator reads."""
    return next(operator.inputs for operator in plan.operators if operator.id == identity)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Return the training plan with a few random changes, most of which break something."""
    plan = training(
        draw(st.integers(1, 2)),
        **draw(st.sampled_from(({}, {"protocol": "buffered"}, {"protocol": "rendezvous"}))),
    )
    for _ in range(draw(st.integers(0, 3))):
        operator = draw(st.sampled_from(plan.operators))
        change_of = draw(st.sampled_from(("where", "own", "peer", "group", "root", "order")))
        box = {
            axis.name: tuple(sorted(draw(st.sets(st.integers(0, axis.size - 1), min_size=1))))
            for axis in draw(st.sets(st.sampled_from(MESH[1:])))
        }
        where = tuple({**base, **box} for base in operator.where or ({},))
        if change_of == "where":
            plan = edited(plan, operator.id, where=where)
        elif change_of == "own" and box:
            name = next(iter(box))
            rest = tuple(
                v for v in range(next(a.size for a in MESH if a.name == name)) if v not in box[name]
            )
            own = change(
                operator,
                id=f"{operator.id}'",
                where=tuple({**base, name: box[name]} for base in operator.where or ({},)),
            )
            if rest and own.id not in {o.id for o in plan.operators}:
                plan = edited(
                    plan,
                    operator.id,
                    where=tuple({**base, name: rest} for base in operator.where or ({},)),
                )
                blocks = {
                    k: tuple(
                        i
                        for other in ids
                        for i in ((other, own.id) if other == operator.id else (other,))
                    )
                    for k, ids in plan.blocks.items()
                }
                plan = change(plan, operators=(*plan.operators, own), blocks=blocks)
        elif change_of == "peer" and "peer" in operator.attributes:
            table = draw(
                st.sampled_from((neighbour("dp", 1), neighbour("pp", 1), neighbour("tp", 2), 7))
            )
            plan = edited(plan, operator.id, attributes={**operator.attributes, "peer": table})
        elif change_of == "group" and operator.group is not None:
            ranks = np.arange(RANKS).reshape(3, 5, 4)
            lists = Group(ranks=tuple(map(tuple, ranks.reshape(-1, 2).tolist())))
            plan = edited(
                plan,
                operator.id,
                group=draw(st.sampled_from((Group(axes=("dp", "tp")), Group(), lists))),
            )
        elif change_of == "root" and operator.group is not None:
            values = tuple(draw(st.lists(st.integers(0, 1), min_size=5, max_size=5)))
            root = draw(st.sampled_from((Table(("dp",), values), 0, 3)))
            kind = draw(st.sampled_from((operator.kind, "broadcast", "reduce")))
            plan = edited(
                plan, operator.id, kind=kind, attributes={**operator.attributes, "root": root}
            )
        elif change_of == "order":
            name = draw(st.sampled_from(sorted(plan.blocks)))
            plan = change(
                plan, blocks={**plan.blocks, name: tuple(draw(st.permutations(plan.blocks[name])))}
            )
    return plan


@settings(max_examples=60)
@given(plans())
def test_random_plans_have_the_findings_and_the_matching_of_all_ranks(plan: Plan) -> None:
    same(plan)


@settings(max_examples=30)
@given(plans())
def test_instances_are_counted_one_by_one(plan: Plan) -> None:
    schedule = Schedule(plan)
    assert count_instances(plan) == sum(
        int(schedule.mask(position).sum()) for position in range(len(plan.operators))
    )


def test_a_hundred_thousand_ranks_cost_what_a_few_do() -> None:
    mesh = (Axis("pp", 2), Axis("dp", 8192), Axis("tp", 8))
    tensors = (
        Tensor("x", (4,), role="input", microbatched=True),
        Tensor("y", (4,), microbatched=True),
        Tensor("z", (4,), microbatched=True),
    )
    ranks = np.arange(131072).reshape(2, 8192, 8)
    peers = {
        way: Table(("pp", "dp", "tp"), tuple(np.roll(ranks, way, axis=0).reshape(-1).tolist()))
        for way in (1, -1)
    }
    operators = (
        Operator("send", "send", ("x",), (), {"peer": peers[1]}, where=({"pp": (0,)},)),
        Operator("receive", "receive", (), ("y",), {"peer": peers[-1]}, where=({"pp": (1,)},)),
        Operator("sum", "all_reduce", ("y",), ("z",), {}, Group(axes=("dp",)), ({"pp": (1,)},)),
    )
    plan = Plan(mesh, tensors, operators, (), 8)
    few = representatives(plan)
    assert few is not None
    assert few.plan.mesh == (Axis("pp", 2), Axis("dp", 2), Axis("tp", 2))
    matching, violations = match(plan)
    assert matching is not None
    assert violations == []
    table = matching.received["receive"]
    assert table[70000, 3].tolist() == [0, 70000 - 65536, 3]


def test_a_send_without_a_receive_on_one_rank_of_many_is_found() -> None:
    mesh = (Axis("pp", 2), Axis("dp", 1024), Axis("tp", 8))
    ranks = np.arange(16384).reshape(2, 1024, 8)
    peers = {
        way: Table(("pp", "dp", "tp"), tuple(np.roll(ranks, way, axis=0).reshape(-1).tolist()))
        for way in (1, -1)
    }
    tensors = (Tensor("x", (4,), role="input"), Tensor("y", (4,)))
    without_one: tuple[Box, ...] = (
        {"pp": (1,), "dp": tuple(range(1023))},
        {"pp": (1,), "dp": (1023,), "tp": tuple(range(7))},
    )
    operators = (
        Operator("send", "send", ("x",), (), {"peer": peers[1]}, where=({"pp": (0,)},)),
        Operator("receive", "receive", (), ("y",), {"peer": peers[-1]}, where=without_one),
    )
    (found,) = validate(Plan(mesh, tensors, operators, ()))
    assert found.code == "PIT005"
    assert found.ranks == (8191, 16383)
    assert (
        found.message
        == "'send' on rank 8191 (micro-batch 0) goes to rank 16383, where no receive meets it; "
        "rank 16383 has no receive at all"
    )
