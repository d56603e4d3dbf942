"""An independent judge of written programs: all ranks run in float64, and what they communicate
moves when a policy says so.

An operation is in flight from its launch until somebody waits for it. Each member's operands are
read at some moment in between, and its results written at some moment after the operands of all
have been read. Memory that nobody has written to holds random numbers. What is in flight at the end
of a step stays so.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from frontends.torch.recording.written_programs import (
    ROWS,
    SIZE,
    Do,
    Running,
    Written,
    groups,
    reference,
    state_names,
)
from torch import Tensor

STEPS = 3
CLOSE = 1e-9


class StuckError(Exception):
    """Ranks wait for ever, or disagree on what they do together."""


@dataclass
class Member:
    """The part of one rank in an operation."""

    do: Do
    tensors: list[Tensor]
    read: list[Tensor] | None = None
    """Its operands as they were when they were read."""
    written: bool = False


@dataclass
class Operation:
    """Something that ranks do together. ``members``: all that have to come."""

    what: str
    ranks: list[int]
    members: dict[int, Member] = field(default_factory=dict)

    def moves(self) -> list[tuple[str, int]]:
        """Return the events that may happen now."""
        found = [("read", rank) for rank, member in self.members.items() if member.read is None]
        if not found and len(self.members) == len(self.ranks):
            found = [("write", rank) for rank, member in self.members.items() if not member.written]
        return found

    def move(self, what: str, rank: int, chance: torch.Generator) -> None:
        """Let it happen."""
        member = self.members[rank]
        if what == "read":
            member.read = [tensor.clone() for tensor in member.tensors]
        else:
            _write(self, rank, chance)
            member.written = True


@dataclass
class Flight:
    """An operation that a rank waits for."""

    operation: Operation
    rank: int

    @property
    def done(self) -> bool:
        """True if the rank may go on.

        A send is done when it was read and its receiver is there.
        """
        member = self.operation.members[self.rank]
        if self.operation.what == "pair" and member.do.what == "send":
            return member.read is not None and len(self.operation.members) == 2
        return member.written


def _write(operation: Operation, rank: int, chance: torch.Generator) -> None:
    member = operation.members[rank]
    do, place = member.do, operation.ranks.index(rank)
    if do.what == "barrier" or (operation.what == "pair" and do.what == "send"):
        return
    read = [
        given.read
        for other in operation.ranks
        if (given := operation.members[other]).read is not None
    ]
    if operation.what == "pair":
        sent = operation.members[operation.ranks[0]].read
        value = sent[0] if sent else member.tensors[0]
    elif do.what == "broadcast":
        value = read[operation.ranks.index(do.peer)][0]
    elif do.what in ("all_reduce", "reduce"):
        value = _reduced(do, [tensors[0] for tensors in read])
        if do.what == "reduce" and do.peer != rank:
            value = torch.randn(value.shape, dtype=value.dtype, generator=chance)
    elif do.what == "reduce_scatter":
        value = _reduced(do, [tensors[1] for tensors in read]).view(len(read), -1)[place]
    elif do.what == "all_to_all":
        value = torch.cat([tensors[1].view(len(read), -1)[place] for tensors in read])
    else:
        value = torch.cat([tensors[1] for tensors in read])
    if value.shape != member.tensors[0].shape:
        raise StuckError(f"{do.what} of shapes that do not fit")
    member.tensors[0].copy_(value)


def _reduced(do: Do, terms: list[Tensor]) -> Tensor:
    whole = torch.stack(terms)
    return whole.amax(0) if do.op == "max" else whole.sum(0) if do.op == "sum" else whole.mean(0)


class Network:
    """All communication of a run."""

    def __init__(self, ranks: int) -> None:
        self._divided = groups(ranks)
        self._open: dict[Any, list[Operation]] = {}
        self._count: dict[Any, int] = {}
        self.live: list[Operation] = []

    def launch(self, rank: int, do: Do, tensors: list[Tensor]) -> list[Flight]:
        """A rank comes to an operation."""
        if do.what == "batch":
            sent, received = tensors
            there = self.launch(rank, Do("send", group=do.group, peer=do.peer, tag=do.tag), [sent])
            return there + self.launch(
                rank, Do("recv", group=do.group, peer=do.source, tag=do.tag), [received]
            )
        if do.what in ("send", "recv"):
            pair = [rank, do.peer] if do.what == "send" else [do.peer, rank]
            if rank == do.peer or do.peer not in self._members(rank, do):
                raise StuckError("a peer that is not there")
            return [self._come(("pair", do.group, do.tag, *pair), "pair", pair, rank, do, tensors)]
        members = self._members(rank, do)
        if do.what in ("broadcast", "reduce") and do.peer not in members:
            raise StuckError("a root that is not there")
        return [self._come((do.group, *members), do.what, members, rank, do, tensors)]

    def _members(self, rank: int, do: Do) -> list[int]:
        return next(ranks for ranks in self._divided[do.group] if rank in ranks)

    def _come(
        self, key: Any, what: str, ranks: list[int], rank: int, do: Do, tensors: list[Tensor]
    ) -> Flight:
        known = self._open.setdefault(key, [])
        number = self._count[key, rank] = self._count.get((key, rank), -1) + 1
        if number == len(known):
            known.append(Operation(what, ranks))
            self.live.append(known[-1])
        operation = known[number]
        for other in operation.members.values():
            if what != "pair" and (other.do.what, other.do.op, other.do.peer) != (
                do.what,
                do.op,
                do.peer,
            ):
                raise StuckError(f"{other.do} meets {do}")
            if what != "pair" and [tensor.shape for tensor in tensors] != [
                tensor.shape for tensor in other.tensors
            ]:
                raise StuckError(f"{do.what} of shapes that differ")
        operation.members[rank] = Member(do, tensors)
        return Flight(operation, rank)


class Place:
    """The world of one rank of a run."""

    dtype = torch.float64

    def __init__(self, network: Network, rank: int, seed: int) -> None:
        self._network, self._rank = network, rank
        self.chance = torch.Generator().manual_seed(1000 * seed + rank)

    def empty(self, size: int) -> Tensor:
        return torch.randn(size, dtype=self.dtype, generator=self.chance)

    def call(self, do: Do, tensors: list[Tensor]) -> list[Flight]:
        return self._network.launch(self._rank, do, tensors)


@dataclass(frozen=True)
class Policy:
    """When things happen. ``early``: the moves that happen as soon as they may; ``often``: of the
    others, how often; ``turns``: which rank goes next.
    """

    early: tuple[str, ...] = ()
    often: float = 0.0
    turns: str = "random"


POLICIES = (
    Policy(early=("read", "write")),
    Policy(early=("read",)),
    Policy(turns="first"),
    Policy(turns="last"),
    *(Policy(often=often) for often in (0.1, 0.3, 0.5, 0.7)),
)

Shown = list[dict[str, Tensor]]
"""The values of a rank after each of its steps."""


def batches(ranks: int) -> list[Tensor]:
    """The whole batch of every step."""
    chance = torch.Generator().manual_seed(5)
    return [
        torch.randn(ROWS * ranks, SIZE, dtype=torch.float64, generator=chance) for _ in range(STEPS)
    ]


def run(program: Written, policy: Policy, seed: int) -> list[Shown]:
    """Run all ranks. Raises StuckError where they wait for ever, and whatever the program
    raises.
    """
    choose = random.Random(seed)
    count = program.task.ranks
    network = Network(count)
    places = [Place(network, rank, seed) for rank in range(count)]
    shown: list[Shown] = [[] for _ in range(count)]
    ranks = [_all_steps(Running(program, rank, places[rank]), shown[rank]) for rank in range(count)]
    waiting: dict[int, Flight | None] = dict.fromkeys(range(count))
    while waiting:
        _happen(network, policy, choose, places)
        ready = [rank for rank, flight in waiting.items() if flight is None or flight.done]
        if not ready:
            _help([flight for flight in waiting.values() if flight is not None], choose, places)
            continue
        rank = (
            choose.choice(ready)
            if policy.turns == "random"
            else ready[0 if policy.turns == "first" else -1]
        )
        try:
            waiting[rank] = next(ranks[rank])
        except StopIteration:
            del waiting[rank]
    return shown


def _all_steps(running: Running, shown: Shown) -> Generator[Flight | None, None, None]:
    rank, task = running.rank, running.program.task
    for whole in batches(task.ranks):
        outputs = yield from _paused(running.step(whole[ROWS * rank : ROWS * (rank + 1)]))
        left = {
            **outputs,
            **running.parameters,
            **{name: running.kept[name] for name in state_names(task)},
        }
        left |= {
            f"{name}.grad": parameter.grad
            for name, parameter in running.parameters.items()
            if parameter.grad is not None
        }
        shown.append({name: tensor.detach().clone() for name, tensor in left.items()})


def _paused(
    steps: Generator[Any, None, dict[str, Tensor]],
) -> Generator[Flight | None, None, dict[str, Tensor]]:
    outputs = yield from steps
    # What is in flight may move between two steps, or not.
    yield None
    return outputs


def _happen(network: Network, policy: Policy, choose: random.Random, places: list[Place]) -> None:
    """Let data move that nobody has waited for yet."""
    while True:
        moves = [(operation, *move) for operation in network.live for move in operation.moves()]
        early = [move for move in moves if move[1] in policy.early]
        if early:
            operation, what, rank = early[0]
        elif moves and choose.random() < policy.often:
            operation, what, rank = choose.choice(moves)
        else:
            break
        with torch.no_grad():
            operation.move(what, rank, places[rank].chance)
    network.live = [
        operation
        for operation in network.live
        if operation.moves() or len(operation.members) < len(operation.ranks)
    ]


def _help(flights: list[Flight], choose: random.Random, places: list[Place]) -> None:
    """Move what somebody waits for. Raises StuckError where nothing can."""
    moves = [(flight, *move) for flight in flights for move in _needed(flight)]
    if not moves:
        raise StuckError("ranks wait for each other")
    flight, what, rank = choose.choice(moves)
    with torch.no_grad():
        flight.operation.move(what, rank, places[rank].chance)


def _needed(flight: Flight) -> Iterator[tuple[str, int]]:
    for what, rank in flight.operation.moves():
        if len(flight.operation.members) == len(flight.operation.ranks) and (
            what == "read" or rank == flight.rank
        ):
            yield what, rank


def expected(program: Written) -> Shown:
    """Return the values of the reference after each step."""
    made = reference(program.task, torch.float64)
    shown: Shown = []
    for whole in batches(program.task.ranks):
        outputs = made.step({"x": whole})
        left = {**outputs, **made.model, **(made.state() if made.state else {})}
        left |= {
            f"{name}.grad": parameter.grad
            for name, parameter in made.model.items()
            if parameter.grad is not None
        }
        shown.append({name: tensor.detach().clone() for name, tensor in left.items()})
    return shown


def judged(program: Written, policies: tuple[Policy, ...] = POLICIES) -> str:
    """Run a program under every timing; return "same", or the difference that a timing shows."""
    wanted = expected(program)
    for seed, policy in enumerate(policies):
        try:
            found = run(program, policy, seed)
        except (StuckError, RuntimeError, KeyError, ValueError) as error:
            return f"{policy}: {type(error).__name__}: {error}"
        for number, step in enumerate(wanted):
            ranks = [_mean_loss(rank[number], [other[number] for other in found]) for rank in found]
            for name in ranks[0].keys() | step.keys():
                for place, rank in enumerate(ranks):
                    if name not in rank or name not in step or not _close(rank[name], step[name]):
                        return f"{policy}: {name} on rank {place} after step {number}"
    return "same"


def _mean_loss(mine: dict[str, Tensor], everyone: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    losses = [rank["loss"] for rank in everyone if "loss" in rank]
    return {**mine, "loss": torch.stack(losses).mean(0)} if "loss" in mine else mine


def _close(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool(
        ((one - other).abs() <= CLOSE * (1 + other.abs())).all()
    )
