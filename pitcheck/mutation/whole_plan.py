"""Mutations of whole plans: the order of programs, the receivers of messages, what is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

from msgspec.structs import replace

from pitcheck.mutation.edits import MARK, Member, put, split
from pitcheck.mutation.facts import Facts
from pitcheck.ops.registry import communication_of
from pitcheck.ops.traits import Communication
from pitcheck.plan.model import (
    Box,
    Lineage,
    Number,
    Operator,
    Plan,
    Program,
    Shard,
    Step,
    Table,
    Tensor,
    Use,
)

Changed = Iterator[tuple[str, str, Callable[[], Plan]]]
"""(the changed record or tensor, the change, the plan)."""
EVERY = 7
"""Every so many-th pair of neighbours in a list is also exchanged on one rank only."""


def orders(facts: Facts) -> Changed:
    """Yield two neighbours in a program in the other order."""
    plan = facts.plan
    for number, program in enumerate(plan.programs):
        for at in range(len(program.steps) - 1):
            if program.steps[at] != program.steps[at + 1]:
                yield (
                    _step(program.steps[at]),
                    f"steps {at} and {at + 1} of program {number} exchanged",
                    partial(_other_steps, plan, number, at),
                )
    ranks: list[Box] = [
        {axis.name: (place,)} for axis in plan.mesh if axis.size > 1 for place in (0, axis.size - 1)
    ]
    operators = {operator.id: operator for operator in plan.operators}
    for name, members in _lists(plan).items():
        for at, (first, second) in enumerate(pairwise(members)):
            other = _exchanged(members, at)
            if _reads(operators[second], operators[first].outputs):
                yield (
                    first,
                    f"behind {second}, which reads it",
                    partial(_reordered, plan, name, other, None),
                )
                continue
            yield first, f"after {second}", partial(_reordered, plan, name, other, None)
            if ranks and at % EVERY == 0:
                where = ranks[at // EVERY % len(ranks)]
                yield (
                    first,
                    f"after {second} where {_said(where)}",
                    partial(_reordered, plan, name, other, where),
                )


def collective_orders(facts: Facts) -> Changed:
    """Yield a collective that runs after the next one, on all ranks or on some.

    Then collectives of one kind exchange their data, and others hang.
    """
    plan = facts.plan
    operators = {operator.id: operator for operator in plan.operators}
    for name, members in _lists(plan).items():
        events = [
            at for at, identity in enumerate(members) if operators[identity].group is not None
        ]
        for first, second in pairwise(events):
            moved = operators[members[first]]
            if any(
                _reads(operators[identity], moved.outputs)
                for identity in members[first + 1 : second + 1]
            ):
                continue
            other = (
                *members[:first],
                *members[first + 1 : second + 1],
                members[first],
                *members[second + 1 :],
            )
            yield (
                moved.id,
                f"everywhere after {members[second]}",
                partial(_reordered, plan, name, other, None),
            )
            for axis in facts.spread(moved):
                where: Box = {axis: (facts.sizes[axis] - 1,)}
                yield (
                    moved.id,
                    f"after {members[second]} where {_said(where)}",
                    partial(_reordered, plan, name, other, where),
                )


def _reads(operator: Operator, names: tuple[str, ...]) -> bool:
    return any(
        (operand.tensor if isinstance(operand, Use) else operand) in names
        for operand in operator.inputs
        if not isinstance(operand, Number)
    )


def _said(where: Box) -> str:
    return ", ".join(f"{axis}={values[0]}" for axis, values in where.items())


def _lists(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Return the orders that a plan states.

    They are its blocks, or the list of its operators under an empty name.
    """
    return plan.blocks or {"": tuple(operator.id for operator in plan.operators)}


def _step(step: Step) -> str:
    return (
        step.block if step.microbatch is None else f"{step.block} of micro-batch {step.microbatch}"
    )


def _other_steps(plan: Plan, number: int, at: int) -> Plan:
    program = plan.programs[number]
    changed = replace(program, steps=_exchanged(program.steps, at))
    return replace(plan, programs=put(plan.programs, number, changed))


def _reordered(plan: Plan, name: str, other: tuple[str, ...], where: Box | None) -> Plan:
    """Return the plan with another order of a block, or of its list of operators.

    The order holds for all ranks, or for those in the box ``where``.
    """
    if not plan.blocks:
        return _listed(plan, other, where)
    if where is None:
        return replace(plan, blocks={**plan.blocks, name: other})
    programs = [part for program in plan.programs for part in _apart(plan, program, where, name)]
    return replace(plan, blocks={**plan.blocks, f"{name}{MARK}": other}, programs=tuple(programs))


def _apart(plan: Plan, program: Program, where: Box, name: str) -> Iterator[Program]:
    place = {axis: values[0] for axis, values in where.items()}
    inside, outside = split(program.where, place, {axis.name: axis.size for axis in plan.mesh})
    if inside:
        steps = tuple(
            replace(step, block=f"{name}{MARK}") if step.block == name else step
            for step in program.steps
        )
        yield Program(steps, inside)
    if outside:
        yield replace(program, where=outside)


def _listed(plan: Plan, other: tuple[str, ...], where: Box | None) -> Plan:
    """Return a plan without programs with its operators in another order."""
    facts = Facts(plan)
    changed = tuple(plan.operators[facts.position[identity]] for identity in other)
    if where is None:
        return replace(plan, operators=changed)
    inside, outside = split((), {axis: values[0] for axis, values in where.items()}, facts.sizes)
    programs = (
        Program(_steps(facts, changed), inside),
        Program(_steps(facts, plan.operators), outside),
    )
    return replace(
        plan, blocks={operator.id: (operator.id,) for operator in plan.operators}, programs=programs
    )


def _steps(facts: Facts, operators: tuple[Operator, ...]) -> tuple[Step, ...]:
    """Return every operator for all its micro-batches, in this order."""
    count = facts.plan.microbatches
    return tuple(
        Step(o.id, m) for o in operators for m in (range(count) if facts.repeated(o) else (None,))
    )


def _exchanged(members: tuple[Member, ...], at: int) -> tuple[Member, ...]:
    return (*members[:at], members[at + 1], members[at], *members[at + 2 :])


def peers(facts: Facts) -> Changed:
    """Yield two ranks that get what was meant for the other."""
    plan = facts.plan
    order = tuple(axis.name for axis in plan.mesh)
    receives = {
        str(o.attributes.get("tag")): o
        for o in plan.operators
        if communication_of(o.kind) is Communication.RECEIVE
    }
    for send in plan.operators:
        receive = receives.get(str(send.attributes.get("tag")))
        if (
            communication_of(send.kind) is not Communication.SEND
            or receive is None
            or not (_per_rank(send, order) and _per_rank(receive, order))
        ):
            continue
        takers = facts.ranks(receive)
        for first, second in zip(takers[::2], takers[1::2], strict=False):
            yield (
                send.id,
                f"ranks {first} and {second} exchanged",
                partial(_exchanged_peers, plan, send, receive, first, second),
            )


def _per_rank(operator: Operator, order: tuple[str, ...]) -> bool:
    peer = operator.attributes.get("peer")
    return isinstance(peer, Table) and peer.over == order


def _exchanged_peers(
    plan: Plan, send: Operator, receive: Operator, first: int, second: int
) -> Plan:
    other = {first: second, second: first}
    sent, taken = send.attributes["peer"], receive.attributes["peer"]
    if not (isinstance(sent, Table) and isinstance(taken, Table)):
        return plan
    to = tuple(other.get(rank, rank) if isinstance(rank, int) else rank for rank in sent.values)
    by = tuple(taken.values[other.get(rank, rank)] for rank in range(len(taken.values)))
    changed = {
        send.id: replace(send, attributes={**send.attributes, "peer": Table(sent.over, to)}),
        receive.id: replace(
            receive, attributes={**receive.attributes, "peer": Table(taken.over, by)}
        ),
    }
    return replace(plan, operators=tuple(changed.get(o.id, o) for o in plan.operators))


def given(facts: Facts) -> Changed:
    """Yield tensors that are given another part of the reference's."""
    for number, tensor in enumerate(facts.plan.tensors):
        if facts.written[tensor.name] >= 0 or tensor.lineage is None:
            continue
        for label, changed in (
            *_other_cuts(facts, tensor.lineage),
            *_shifted(facts, tensor, tensor.lineage),
        ):
            yield tensor.name, label, partial(_with_lineage, facts.plan, number, changed)


def _with_lineage(plan: Plan, number: int, lineage: Lineage) -> Plan:
    changed = replace(plan.tensors[number], lineage=lineage)
    return replace(plan, tensors=put(plan.tensors, number, changed))


def _other_cuts(facts: Facts, lineage: Lineage) -> Iterator[tuple[str, Lineage]]:
    for place, shard in enumerate(lineage.shards):
        if len(shard.by) > 1 and all(facts.sizes[axis] > 1 for axis in shard.by):
            yield (
                f"dimension {shard.dim} cut in the other order of axes",
                _reshard(lineage, place, Shard(shard.dim, by=shard.by[::-1])),
            )
        if shard.intervals is not None and len(set(shard.intervals.values)) > 1:
            values = shard.intervals.values
            yield (
                f"parts of dimension {shard.dim} of the next one",
                _reshard(
                    lineage, place, _cut(shard.dim, shard.intervals.over, (*values[1:], values[0]))
                ),
            )


def _shifted(facts: Facts, tensor: Tensor, lineage: Lineage) -> Iterator[tuple[str, Lineage]]:
    """Yield even shards of one axis whose last part begins early, or that stand in reverse."""
    for place, shard in enumerate(lineage.shards):
        if len(shard.by) != 1 or facts.sizes[shard.by[0]] < 2:
            continue
        step, count = tensor.shape[shard.dim], facts.sizes[shard.by[0]]
        early = tuple(
            (((i * step) - (i == count - 1), (i + 1) * step - (i == count - 1)),)
            for i in range(count)
        )
        yield (
            f"the last part of dimension {shard.dim} begins one earlier",
            _reshard(lineage, place, _cut(shard.dim, shard.by, early)),
        )
        reverse = tuple(((i * step, (i + 1) * step),) for i in reversed(range(count)))
        yield (
            f"parts of dimension {shard.dim} in reverse",
            _reshard(lineage, place, _cut(shard.dim, shard.by, reverse)),
        )


def _cut(dim: int, over: tuple[str, ...], values: tuple[object, ...]) -> Shard:
    return Shard(dim, intervals=Table(over, values))  # type: ignore[arg-type]


def _reshard(lineage: Lineage, place: int, shard: Shard) -> Lineage:
    return replace(lineage, shards=put(lineage.shards, place, shard))
