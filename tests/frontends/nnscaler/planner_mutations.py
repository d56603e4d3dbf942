"""Near misses of the plans of a pipelined planner, of the kinds that its own files could hold:
groups, peers, order, slices, single ranks.

Some change nothing that is compared: an executor says which.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from pitcheck.execution.places import Coordinate, program_of, rank_coordinates, runs_at
from pitcheck.plan.model import (
    Attribute,
    Box,
    Group,
    Lineage,
    Operator,
    Plan,
    Program,
    Shard,
    Step,
    Table,
    Tensor,
)

Mutant = tuple[str, Plan]
Event = tuple[Operator, int]
POINT_TO_POINT = ("send", "receive")


def planner_mutants(plan: Plan) -> Iterator[Mutant]:
    """(name, plan) of every near miss."""
    yield from _regrouped(plan)
    yield from _other_peers(plan)
    for rank in _one_rank_per_program(plan):
        yield from _reordered(plan, rank)
        yield from _exchanged_microbatches(plan, rank)
        yield from _left_out(plan, rank)
        yield from _added(plan, rank)
    yield from _other_slices(plan)


def _operator(plan: Plan, changed: Operator) -> Plan:
    return replace(
        plan,
        operators=tuple(
            changed if operator.id == changed.id else operator for operator in plan.operators
        ),
    )


def _ranks_of(plan: Plan, operator: Operator) -> list[int]:
    return [
        rank
        for rank, place in enumerate(rank_coordinates(plan))
        if any(runs_at(operator, place, m) for m in range(plan.microbatches))
    ]


def _communicates(operator: Operator) -> bool:
    return operator.group is not None or operator.kind in POINT_TO_POINT


# --- groups


def _regrouped(plan: Plan) -> Iterator[Mutant]:
    """A collective over other ranks, each of which is in one group and meets as many others."""
    for operator in plan.operators:
        if operator.group is None or not operator.group.axes:
            continue
        ranks = _ranks_of(plan, operator)
        groups = _groups(plan, ranks, operator.group.axes)
        others = {
            "every rank alone": tuple((rank,) for rank in ranks),
            "members in reverse": tuple(group[::-1] for group in groups),
            "last members exchanged": tuple(
                group[:-1] + groups[(n + 1) % len(groups)][-1:] for n, group in enumerate(groups)
            ),
            "one group alone": (*((rank,) for rank in groups[0]), *groups[1:]),
        }
        for name, changed in others.items():
            if changed != groups:
                yield (
                    f"{operator.id}: {name}",
                    _operator(plan, replace(operator, group=Group(ranks=changed))),
                )


def _groups(plan: Plan, ranks: list[int], axes: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    places = rank_coordinates(plan)
    found: dict[tuple[int, ...], list[int]] = {}
    for rank in ranks:
        found.setdefault(
            tuple(value for axis, value in places[rank].items() if axis not in axes), []
        ).append(rank)
    return tuple(tuple(group) for group in found.values())


# --- point to point


def _other_peers(plan: Plan) -> Iterator[Mutant]:
    """Messages to and from another rank of the same stage: on one side, on both sides, and in all
    messages.
    """
    messages = [operator for operator in plan.operators if operator.kind in POINT_TO_POINT]
    for axis in ("dp", "tp"):
        exchanged = {
            operator.id: changed
            for operator in messages
            if (changed := _exchanged_peers(plan, operator, axis)) is not None
        }
        for number in exchanged.values():
            yield f"{number.id}: peers exchanged over {axis}", _operator(plan, number)
        for first, second in _meetings(plan):
            if first in exchanged and second in exchanged:
                yield (
                    f"{first} and {second}: peers exchanged over {axis}",
                    _operator(_operator(plan, exchanged[first]), exchanged[second]),
                )
        if exchanged:
            everywhere = plan
            for changed in exchanged.values():
                everywhere = _operator(everywhere, changed)
            yield f"all messages: peers exchanged over {axis}", everywhere


def _exchanged_peers(plan: Plan, operator: Operator, axis: str) -> Operator | None:
    """The operator with the peers of the two places of ``axis`` exchanged; None where the axis is
    no pair.
    """
    peer = operator.attributes["peer"]
    sizes = {a.name: a.size for a in plan.mesh}
    if not isinstance(peer, Table) or axis not in peer.over or sizes[axis] != 2:
        return None
    places = list(itertools.product(*(range(sizes[name]) for name in peer.over)))
    at = dict(zip(places, peer.values, strict=True))
    along = peer.over.index(axis)
    values = tuple(at[(*place[:along], 1 - place[along], *place[along + 1 :])] for place in places)
    return replace(operator, attributes={**operator.attributes, "peer": Table(peer.over, values)})


def _meetings(plan: Plan) -> list[tuple[str, str]]:
    """(send, receive) of every pair of records of which one takes what the other gives: the k-th
    message of each pair of ranks.
    """
    places = rank_coordinates(plan)
    sent: dict[tuple[int, int], list[str]] = {}
    received: dict[tuple[int, int], list[str]] = {}
    for rank in range(len(places)):
        for operator, _ in program_of(plan, rank):
            if operator.kind in POINT_TO_POINT:
                peer = _at(plan, operator.attributes["peer"], places[rank])
                pair = (rank, peer) if operator.kind == "send" else (peer, rank)
                (sent if operator.kind == "send" else received).setdefault(pair, []).append(
                    operator.id
                )
    return list(
        dict.fromkeys(
            pair
            for ranks, ids in sent.items()
            for pair in zip(ids, received.get(ranks, []), strict=False)
        )
    )


def _at(plan: Plan, peer: Attribute, place: Coordinate) -> int:
    if not isinstance(peer, Table):
        assert isinstance(peer, int)
        return peer
    sizes = {axis.name: axis.size for axis in plan.mesh}
    number = 0
    for axis in peer.over:
        number = number * sizes[axis] + place[axis]
    value = peer.values[number]
    assert isinstance(value, int)
    return value


# --- the order on one rank


def _one_rank_per_program(plan: Plan) -> list[int]:
    """The last rank of every program."""
    places = rank_coordinates(plan)
    chosen: dict[int, int] = {}
    for rank, place in enumerate(places):
        for number, program in enumerate(plan.programs):
            if _covers(program, place):
                chosen[number] = rank
                break
    return list(chosen.values())


def _with_events(plan: Plan, rank: int, events: Sequence[Event]) -> Plan:
    """The plan in which ``rank`` runs ``events``, and every other rank what it ran."""
    box: Box = {axis: (value,) for axis, value in rank_coordinates(plan)[rank].items()}
    per_microbatch = _runs_per_microbatch(plan)
    blocks = {f"alone{number}": (operator.id,) for number, (operator, _) in enumerate(events)}
    steps = tuple(
        Step(f"alone{number}", m if per_microbatch[operator.id] else None)
        for number, (operator, m) in enumerate(events)
    )
    others = [
        replace(program, where=boxes)
        for program in plan.programs
        if (boxes := _without(plan, program, rank))
    ]
    return replace(
        plan, blocks={**plan.blocks, **blocks}, programs=(Program(steps, (box,)), *others)
    )


def _without(plan: Plan, program: Program, rank: int) -> tuple[Box, ...]:
    """The ranks of a program but one, a box for each."""
    places = enumerate(rank_coordinates(plan))
    return tuple(
        {axis: (value,) for axis, value in place.items()}
        for number, place in places
        if number != rank and _covers(program, place)
    )


def _covers(program: Program, place: Coordinate) -> bool:
    return not program.where or any(
        all(place[axis] in values for axis, values in box.items()) for box in program.where
    )


def _runs_per_microbatch(plan: Plan) -> dict[str, bool]:
    microbatched = {tensor.name: tensor.microbatched for tensor in plan.tensors}
    names = {
        operator.id: [n for n in operator.outputs if n]
        or [i for i in operator.inputs if isinstance(i, str)]
        for operator in plan.operators
    }
    return {
        operator: any(microbatched[name] for name in found) for operator, found in names.items()
    }


def _reordered(plan: Plan, rank: int) -> Iterator[Mutant]:
    """One rank runs a communication after the next one instead of before."""
    events = list(program_of(plan, rank))
    places = [number for number, (operator, _) in enumerate(events) if _communicates(operator)]
    for first, second in itertools.pairwise(places):
        moved = [
            *events[:first],
            *events[first + 1 : second + 1],
            events[first],
            *events[second + 1 :],
        ]
        operator, microbatch = events[first]
        yield (
            f"rank {rank}: {operator.id} of micro-batch {microbatch} after {events[second][0].id}",
            _with_events(plan, rank, moved),
        )


def _exchanged_microbatches(plan: Plan, rank: int) -> Iterator[Mutant]:
    """One rank runs an operator for micro-batch 1 where it should run it for micro-batch 0, and the
    other way round.
    """
    events = list(program_of(plan, rank))
    for operator in dict.fromkeys(operator.id for operator, _ in events if _communicates(operator)):
        at = {
            microbatch: number
            for number, (other, microbatch) in enumerate(events)
            if other.id == operator
        }
        if at.keys() >= {0, 1}:
            exchanged = list(events)
            exchanged[at[0]], exchanged[at[1]] = events[at[1]], events[at[0]]
            yield (
                f"rank {rank}: micro-batches of {operator} exchanged",
                _with_events(plan, rank, exchanged),
            )


def _left_out(plan: Plan, rank: int) -> Iterator[Mutant]:
    """One rank leaves out a communication or a final accumulation."""
    events = list(program_of(plan, rank))
    for number, (operator, microbatch) in enumerate(events):
        if _communicates(operator) or operator.kind == "accumulate":
            yield (
                f"rank {rank}: {operator.id} of micro-batch {microbatch} is left out",
                _with_events(plan, rank, [*events[:number], *events[number + 1 :]]),
            )


def _added(plan: Plan, rank: int) -> Iterator[Mutant]:
    """A collective more: on one rank, which then waits for ever, or on all, where nothing
    uses it.
    """
    tensors = {tensor.name: tensor for tensor in plan.tensors}
    place = rank_coordinates(plan)[rank]
    for operator in [o for o in plan.operators if o.group is not None and runs_at(o, place, 0)]:
        result = operator.outputs[0]
        like = tensors[result]
        extra = Tensor(f"{result}+", like.shape, like.dtype, microbatched=like.microbatched)
        again = Operator(
            f"{operator.id}+",
            "all_reduce",
            (result,),
            (extra.name,),
            {"reduction": "sum"},
            operator.group,
            operator.where,
        )
        blocks = {
            name: tuple(
                itertools.chain.from_iterable(
                    (i, again.id) if i == operator.id else (i,) for i in ids
                )
            )
            for name, ids in plan.blocks.items()
        }
        longer = replace(plan, tensors=(*plan.tensors, extra), operators=(*plan.operators, again))
        yield f"{operator.id}: once more on all ranks, unused", replace(longer, blocks=blocks)
        alone = replace(again, where=({axis: (value,) for axis, value in place.items()},))
        yield (
            f"{operator.id}: once more on rank {rank} alone",
            replace(_operator(longer, alone), blocks=blocks),
        )


# --- slices


def _other_slices(plan: Plan) -> Iterator[Mutant]:
    """Parameters of which the parts are exchanged: on one replica, on all, and in two or all
    parameters together.
    """
    sharded = [
        tensor
        for tensor in plan.tensors
        if tensor.role == "parameter" and tensor.lineage is not None and tensor.lineage.shards
    ]
    for tensor in sharded:
        yield f"{tensor.name}: parts exchanged", _sliced(plan, [tensor], every=True)
        if any(axis.name == "dp" and axis.size > 1 for axis in plan.mesh):
            yield (
                f"{tensor.name}: parts exchanged on the last replica",
                _sliced(plan, [tensor], every=False),
            )
    for first, second in itertools.pairwise(sharded):
        yield (
            f"{first.name} and {second.name}: parts exchanged",
            _sliced(plan, [first, second], every=True),
        )
        yield (
            f"{first.name} and {second.name}: parts exchanged on the last replica",
            _sliced(plan, [first, second], every=False),
        )
    if sharded:
        yield "all parameters: parts exchanged", _sliced(plan, sharded, every=True)


def _sliced(plan: Plan, tensors: Sequence[Tensor], every: bool) -> Plan:
    changed = {tensor.name: _exchanged_parts(plan, tensor, every) for tensor in tensors}
    return replace(plan, tensors=tuple(changed.get(tensor.name, tensor) for tensor in plan.tensors))


def _exchanged_parts(plan: Plan, tensor: Tensor, every: bool) -> Tensor:
    """The tensor with its even shards in reverse; on the last replica alone where not ``every``."""
    sizes = {axis.name: axis.size for axis in plan.mesh}
    assert tensor.lineage is not None
    shards = []
    for shard in tensor.lineage.shards:
        if not shard.by:
            shards.append(shard)
            continue
        step, count = tensor.shape[shard.dim], 1
        for axis in shard.by:
            count *= sizes[axis]
        parts = tuple(((number * step, (number + 1) * step),) for number in range(count))
        replicas = sizes["dp"]
        values = parts[::-1] if every else (*(parts * (replicas - 1)), *parts[::-1])
        shards.append(
            Shard(shard.dim, intervals=Table(shard.by if every else ("dp", *shard.by), values))
        )
    return replace(tensor, lineage=Lineage(tensor.lineage.reference, tuple(shards)))
