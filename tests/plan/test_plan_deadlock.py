"""Deadlock on the quotient, against a plain simulation of single ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan.plan_samples import PP2, change, crossing, pipeline, with_operator

from pitcheck.plan.model import Axis, Group, Operator, Plan, Program, Step, Table, Tensor
from pitcheck.plan.rules.violations import Violation
from pitcheck.plan.schedule.deadlock import find_deadlocks
from pitcheck.plan.schedule.events import Events
from pitcheck.plan.schedule.matching import match_events
from pitcheck.plan.schedule.progress import run_to_fixpoint
from pitcheck.plan.schedule.quotient import Meetings, equitable_classes


def deadlocks(plan: Plan) -> list[Violation]:
    events = Events(plan)
    matching, violations = match_events(events)
    assert violations == []
    assert matching is not None
    found = find_deadlocks(events, matching)
    singly = find_deadlocks(events, matching, np.arange(events.coordinates.ranks))
    assert {violation.code for violation in found} == {violation.code for violation in singly}
    return found


def codes(plan: Plan) -> list[str]:
    return sorted({violation.code for violation in deadlocks(plan)})


def test_a_pipeline_runs_to_its_end() -> None:
    for protocol in ({}, {"protocol": "rendezvous"}, {"protocol": "buffered"}):
        assert codes(pipeline(**protocol)) == []


def test_a_backward_step_before_its_forward_step_hangs_at_any_buffering() -> None:
    """Let the first stage wait for a gradient before it sends the activation that this needs."""
    plan = pipeline()
    late = (Step("b0", 0), Step("f0", 0), Step("f0", 1), Step("b0", 1))
    plan = change(plan, programs=(change(plan.programs[0], steps=late), plan.programs[1]))
    for protocol in ({}, {"protocol": "buffered"}, {"protocol": "rendezvous"}):
        changed = with_operator(
            with_operator(plan, 1, attributes={"peer": 1, **protocol}),
            5,
            attributes={"peer": 0, **protocol},
        )
        found = deadlocks(changed)
        assert [violation.code for violation in found] == ["PIT007"]
        assert "rank 0 waits in receive 'receive0' (micro-batch 0) for rank 1" in found[0].message
        assert "rank 1 waits in receive 'receive1' (micro-batch 0) for rank 0" in found[0].message
        assert set(found[0].ranks) == {0, 1}


def one_forward_one_backward(stages: int, microbatches: int, batch: bool) -> Plan:
    """Return the 1F1B schedule of every stage.

    With ``batch``, sends and receives between two steps are one event, as in Megatron-LM.
    """
    tensors = [
        Tensor("f0", (4,), role="input", microbatched=True),
        Tensor("loss", (4,), role="input", microbatched=True),
    ]
    operators, blocks, programs = [], {}, []
    for stage in range(stages):
        where = ({"pp": (stage,)},)
        tensors += [
            Tensor(f"{kind}{stage}", (4,), microbatched=True)
            for kind in ("in", "grad")
            if (stage if kind == "in" else stage < stages - 1)
        ]
        for kind, peer, runs in (
            ("in", stage - 1, stage > 0),
            ("grad", stage + 1, stage < stages - 1),
        ):
            if runs:
                attributes: dict[str, Any] = {"peer": peer, **({"batch": "b"} if batch else {})}
                operators.append(
                    Operator(
                        f"r{kind}{stage}",
                        "receive",
                        (),
                        (f"{kind}{stage}",),
                        attributes,
                        where=where,
                    )
                )
        for kind, peer, name, runs in (
            ("out", stage + 1, f"in{stage}" if stage else "f0", stage < stages - 1),
            ("back", stage - 1, "loss", stage > 0),
        ):
            if runs:
                operators.append(
                    Operator(
                        f"s{kind}{stage}",
                        "send",
                        (name,),
                        (),
                        {"peer": peer, **({"batch": "b"} if batch else {})},
                        where=where,
                    )
                )
        blocks.update({operator.id: (operator.id,) for operator in operators})
        warm = min(stages - 1 - stage, microbatches)
        steps: list[tuple[str, int]] = []
        for m in range(microbatches + warm):
            if m < microbatches:
                steps += [(f"rin{stage}", m)] if stage and m < warm + 1 else []
            if m < microbatches:
                steps.append((f"sout{stage}", m))
            if m >= warm:
                steady = stage and m + 1 < microbatches
                steps.append((f"rgrad{stage}", m - warm))
                steps.append((f"sback{stage}", m - warm))
                steps += [(f"rin{stage}", m + 1)] if steady and m + 1 > warm else []
        known = {operator.id for operator in operators}
        unique = list(dict.fromkeys(step for step in steps if step[0] in known))
        programs.append(Program(tuple(Step(*step) for step in unique), where))
    return Plan(
        (Axis("pp", stages), Axis("dp", 4)),
        tuple(tensors),
        tuple(spread(o, 4) for o in operators),
        (),
        microbatches,
        blocks,
        tuple(programs),
    )


def spread(operator: Operator, copies: int) -> Operator:
    """Return the operator on a mesh with one more axis, every copy with its peer."""
    peer = operator.attributes["peer"]
    assert isinstance(peer, int)
    return change(
        operator,
        attributes={
            **operator.attributes,
            "peer": Table(("dp",), tuple(peer * copies + c for c in range(copies))),
        },
    )


def test_one_forward_one_backward_hangs_only_under_rendezvous_and_not_when_batched() -> None:
    found = deadlocks(one_forward_one_backward(4, 8, batch=False))
    assert {violation.code for violation in found} == {"PIT012"}
    assert {violation.severity for violation in found} == {"error"}
    assert codes(one_forward_one_backward(4, 8, batch=True)) == []


def test_the_quotient_of_replicas_has_one_class_per_stage() -> None:
    events = Events(one_forward_one_backward(4, 8, batch=False))
    matching, _ = match_events(events)
    assert matching is not None
    classes = equitable_classes(Meetings(events, matching))
    assert len(set(classes.tolist())) == 4
    assert len(set(classes.reshape(4, 4)[:, 0].tolist())) == 4


@pytest.mark.parametrize("ranks", [2, 3, 7])
def test_a_ring_of_sends_hangs_only_under_rendezvous(ranks: int) -> None:
    assert codes(crossing(ranks)) == ["PIT012"]
    assert codes(crossing(ranks, protocol="buffered")) == []
    assert codes(crossing(ranks, protocol="rendezvous")) == ["PIT007"]
    assert codes(crossing(ranks, batch="ring")) == []
    assert codes(crossing(ranks, sends_first=False)) == ["PIT007"]


def test_a_cycle_of_three_names_all_three() -> None:
    found = deadlocks(crossing(3, sends_first=False))
    assert set(found[0].ranks) == {0, 1, 2}
    for rank in range(3):
        assert (
            f"rank {rank} waits in receive 'receive' (micro-batch 0) for rank {(rank - 1) % 3}"
            in found[0].message
        )


def crossed_collectives(*, swapped: bool, asynchronous: bool = False, early: bool = False) -> Plan:
    """Return four ranks in two overlapping pairs of groups, over a and over b.

    Ranks with a = b may run them in the other order.
    """
    tensors = tuple(
        Tensor(name, (4,), role="input" if name in "xu" else "activation")
        for name in ("x", "u", "y", "v", "z")
    )
    operators = (
        Operator(
            "a",
            "all_reduce",
            ("x",),
            ("y",),
            {"async": True} if asynchronous else {},
            Group(axes=("a",)),
        ),
        Operator("b", "all_reduce", ("u",), ("v",), {}, Group(axes=("b",))),
        Operator("w", "wait", ("y",), ("z",)),
    )
    blocks = {"ab": ("a", "w", "b") if early else ("a", "b", "w"), "ba": ("b", "a", "w")}
    equal = ({"a": (0,), "b": (0,)}, {"a": (1,), "b": (1,)})
    other = ({"a": (0,), "b": (1,)}, {"a": (1,), "b": (0,)})
    programs = (Program((Step("ba" if swapped else "ab"),), equal), Program((Step("ab"),), other))
    return Plan((Axis("a", 2), Axis("b", 2)), tensors, operators, (), 1, blocks, programs)


def test_collectives_of_two_groups_in_two_orders_hang() -> None:
    assert codes(crossed_collectives(swapped=False)) == []
    assert codes(crossed_collectives(swapped=True)) == ["PIT007"]


def test_an_asynchronous_collective_waits_at_its_wait() -> None:
    assert codes(crossed_collectives(swapped=True, asynchronous=True)) == []
    assert codes(crossed_collectives(swapped=True, asynchronous=True, early=True)) == ["PIT007"]
    assert codes(crossed_collectives(swapped=False, asynchronous=True, early=True)) == []


def test_a_receive_before_a_collective_that_its_sender_runs_first_hangs() -> None:
    tensors = tuple(
        Tensor(name, (4,), role="input" if name in "xu" else "activation")
        for name in ("x", "u", "y", "v")
    )
    operators = (
        Operator(
            "s", "send", ("x",), (), {"peer": 1, "protocol": "buffered"}, where=({"pp": (0,)},)
        ),
        Operator("r", "receive", (), ("y",), {"peer": 0}, where=({"pp": (1,)},)),
        Operator("c", "all_reduce", ("u",), ("v",), {}, Group(axes=("pp",))),
    )

    def plan(first: tuple[str, ...]) -> Plan:
        blocks = {"0": first, "1": ("r", "c")}
        return Plan(
            PP2,
            tensors,
            operators,
            (),
            1,
            blocks,
            (Program((Step("0"),), ({"pp": (0,)},)), Program((Step("1"),), ({"pp": (1,)},))),
        )

    assert codes(plan(("s", "c"))) == []
    found = deadlocks(plan(("c", "s")))
    assert [violation.code for violation in found] == ["PIT007"]
    assert "all_reduce 'c'" in found[0].message
    assert "receive 'r'" in found[0].message


# --- against a plain simulation


def simulate(programs: list[list[tuple[str, Any]]], buffered: bool) -> bool:
    """Return True if all ranks finish.

    Events are ("s", dst), ("r", src), ("c", members). Every rank is tried again and again, one
    event at a time.
    """
    at = [0] * len(programs)
    sent = {(i, j): 0 for i in range(len(programs)) for j in range(len(programs))}

    def now(rank: int) -> tuple[str, Any] | None:
        return programs[rank][at[rank]] if at[rank] < len(programs[rank]) else None

    moved = True
    while moved:
        moved = False
        for rank in range(len(programs)):
            event = now(rank)
            if event is None:
                continue
            kind, what = event
            if kind == "c" and all(now(member) == event for member in what):
                for member in what:
                    at[member] += 1
                moved = True
            elif kind == "s" and buffered:
                sent[rank, what] += 1
                at[rank] += 1
                moved = True
            elif kind == "s" and now(what) == ("r", rank):
                at[rank] += 1
                at[what] += 1
                moved = True
            elif kind == "r" and buffered and sent[what, rank]:
                sent[what, rank] -= 1
                at[rank] += 1
                moved = True
    return all(now(rank) is None for rank in range(len(programs)))


@st.composite
def random_programs(draw: st.DrawFn) -> list[list[tuple[str, Any]]]:
    """Return programs that match, disturbed a little.

    Global events are in a random order, then every rank's list is disturbed. Half of the programs
    are doubled, for symmetry.
    """
    ranks = draw(st.integers(2, 4))
    programs: list[list[tuple[str, Any]]] = [[] for _ in range(ranks)]
    for _ in range(draw(st.integers(1, 7))):
        if draw(st.booleans()):
            source, destination = draw(st.permutations(range(ranks)))[:2]
            programs[source].append(("s", destination))
            programs[destination].append(("r", source))
        else:
            members = tuple(
                sorted(draw(st.permutations(range(ranks)))[: draw(st.integers(2, ranks))])
            )
            for member in members:
                programs[member].append(("c", members))
    for events in programs:
        if len(events) > 1 and draw(st.booleans()):
            i = draw(st.integers(0, len(events) - 2))
            events[i], events[i + 1] = events[i + 1], events[i]
    return programs


def as_plan(programs: list[list[tuple[str, Any]]], copies: int, protocol: str | None) -> Plan:
    """Return the programs on a mesh of ``copies`` times their ranks; a copy meets only itself."""
    count = len(programs)
    tensors = [Tensor("x", (4,), role="input")]
    operators: list[Operator] = []
    blocks: dict[str, tuple[str, ...]] = {}
    for rank, events in enumerate(programs):
        mine = []
        for number, (kind, what) in enumerate(events):
            name, where = f"{kind}{rank}.{number}", ({"r": (rank,)},)
            tensors.append(Tensor(name, (4,)))
            if kind == "c":
                group = Group(
                    ranks=tuple(tuple(c * count + member for member in what) for c in range(copies))
                )
                operators.append(Operator(name, "all_reduce", ("x",), (name,), {}, group, where))
            else:
                attributes: dict[str, Any] = {
                    "peer": Table(("copy",), tuple(c * count + what for c in range(copies)))
                }
                if kind == "s" and protocol:
                    attributes["protocol"] = protocol
                operators.append(
                    Operator(
                        name,
                        "send" if kind == "s" else "receive",
                        ("x",) if kind == "s" else (),
                        () if kind == "s" else (name,),
                        attributes,
                        None,
                        where,
                    )
                )
            mine.append(name)
        blocks[str(rank)] = tuple(mine)
    steps = tuple(Program((Step(str(rank)),), ({"r": (rank,)},)) for rank in range(count))
    return Plan(
        (Axis("copy", copies), Axis("r", count)),
        tuple(tensors),
        tuple(operators),
        (),
        1,
        blocks,
        steps,
    )


@settings(max_examples=150)
@given(random_programs(), st.sampled_from([1, 3]))
def test_random_programs_agree_with_a_plain_simulation(
    programs: list[list[tuple[str, Any]]], copies: int
) -> None:
    buffered, rendezvous = simulate(programs, True), simulate(programs, False)
    assert buffered or not rendezvous
    expected = [] if rendezvous else ["PIT012"] if buffered else ["PIT007"]
    assert codes(as_plan(programs, copies, None)) == expected
    assert codes(as_plan(programs, copies, "buffered")) == ([] if buffered else ["PIT007"])
    assert codes(as_plan(programs, copies, "rendezvous")) == ([] if rendezvous else ["PIT007"])


def test_random_programs_cover_all_three_outcomes() -> None:
    """The generator above is only worth something if it makes all of them."""
    right = [[("s", 1), ("c", (0, 1))], [("r", 0), ("c", (0, 1))]]
    crossing_sends = [[("s", 1), ("r", 1)], [("s", 0), ("r", 0)]]
    wrong = [[("c", (0, 1)), ("s", 1)], [("r", 0), ("c", (0, 1))]]
    assert [(simulate(p, True), simulate(p, False)) for p in (right, crossing_sends, wrong)] == [
        (True, True),
        (True, False),
        (False, False),
    ]
    assert [codes(as_plan(p, 3, None)) for p in (right, crossing_sends, wrong)] == [
        [],
        ["PIT012"],
        ["PIT007"],
    ]


def test_the_fixpoint_counts_steps() -> None:
    assert run_to_fixpoint([]) == []
    assert run_to_fixpoint([[[], []], [[(0, 1)]]]) == [2, 1]
    assert run_to_fixpoint([[[(1, 0)], [(1, 1)]], [[(0, 1)], []]]) == [2, 2]
    assert run_to_fixpoint([[[(1, 1)], []], [[(0, 1)], []]]) == [0, 0]
    assert run_to_fixpoint([[[(0, 1)], []]]) == [0]


def test_a_mesh_of_thousands_costs_little() -> None:
    plan = one_forward_one_backward(4, 8, batch=True)
    copies = 2048
    operators = []
    for operator in plan.operators:
        table = operator.attributes["peer"]
        assert isinstance(table, Table)
        first = table.values[0]
        assert isinstance(first, int)
        peers = Table(("dp",), tuple(first // 4 * copies + c for c in range(copies)))
        operators.append(change(operator, attributes={**operator.attributes, "peer": peers}))
    plan = change(plan, mesh=(Axis("pp", 4), Axis("dp", copies)), operators=tuple(operators))
    events = Events(plan)
    matching, violations = match_events(events)
    assert violations == []
    assert matching is not None
    assert find_deadlocks(events, matching) == []
