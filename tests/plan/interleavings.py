"""Runs a plan on real buffers under many timings: an operation in flight reads and writes its
buffers at any moment between its launch and its end.

Every rank goes through its order; what it communicates moves by steps of its own: the operand of
each member is read, then each result is written. A scheduler takes one enabled step after the
other. ``single_assignment`` runs the same plan where no buffer is ever shared and every read waits
for its tensor. A plan that is free of races gives these values under every timing, and never stops.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from pitcheck.execution.executor import COLLECTIVES, Array, Instance
from pitcheck.execution.meanings import forward
from pitcheck.execution.places import (
    ExecutionError,
    attributes_at,
    group_of,
    number,
    program_of,
    rank_coordinates,
    repeated,
    tensor_name,
)
from pitcheck.plan.model import Number, Operator, Plan, Use

READ_AT_ROOT = ("broadcast", "scatter_from")
"""Collectives of which the other members read nothing."""
Policy = Callable[[list["Step"], np.random.Generator], "Step"]
LASTING = ("parameter", "optimizer_state", "constant")


class HangError(Exception):
    """No step is enabled, and some rank is not at its end."""


@dataclass(eq=False)
class Part:
    """The part of one rank in one communication.

    It is ``done`` when its operand is read and its result written.
    """

    rank: int
    operator: Operator
    microbatch: int
    attributes: dict[str, Any]
    read: bool = False
    written: bool = False
    operand: Array | None = None

    @property
    def done(self) -> bool:
        return self.read and self.written


@dataclass(eq=False)
class Meeting:
    """One communication: the parts that have come, and how many there must be."""

    members: tuple[int, ...]
    parts: dict[int, Part] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return len(self.parts) == len(self.members)


@dataclass(frozen=True)
class Step:
    """Something that may happen next: a rank goes on, or data moves."""

    moves_data: bool
    run: Callable[[], None]


def eager(steps: list[Step], generator: np.random.Generator) -> Step:
    """Data moves as soon as it can."""
    moving = [step for step in steps if step.moves_data]
    return (moving or steps)[int(generator.integers(len(moving or steps)))]


def lazy(steps: list[Step], generator: np.random.Generator) -> Step:
    """Data moves only when no rank can go on."""
    running = [step for step in steps if not step.moves_data]
    return (running or steps)[int(generator.integers(len(running or steps)))]


def anyhow(steps: list[Step], generator: np.random.Generator) -> Step:
    """Any step."""
    return steps[int(generator.integers(len(steps)))]


class Interleaving:
    """One run of a plan. ``initial``: values of what comes from outside, per (tensor, rank,
    micro-batch).

    ``shared``: tensors of one storage share memory; otherwise each has a buffer of its own, and
    what reads it waits until it is there.
    """

    def __init__(
        self,
        plan: Plan,
        initial: dict[Instance, Array],
        policy: Policy,
        seed: int,
        *,
        shared: bool = True,
    ) -> None:
        self.shared = shared
        self.there: set[Instance] = set(initial)
        self.plan = plan
        self.policy = policy
        self.generator = np.random.default_rng(seed)
        self.tensors = {tensor.name: tensor for tensor in plan.tensors}
        self.coordinates = rank_coordinates(plan)
        self.repeated = repeated(plan)
        self.programs = [list(program_of(plan, rank)) for rank in range(len(self.coordinates))]
        self.at = [0] * len(self.programs)
        self.memory: dict[tuple[int, object], Array] = {}
        self.blocked: dict[int, list[Part]] = {}
        self.handles: dict[int, list[Part]] = defaultdict(list)
        self.begun: dict[tuple[int, int], Part] = {}
        """Parts that have begun with the first of their batch, by rank and place."""
        self.unfinished: dict[int, list[Part]] = defaultdict(list)
        self.meetings: dict[object, list[Meeting]] = defaultdict(list)
        self.turns: dict[tuple[int, object], int] = defaultdict(int)
        self.lies = {name: self._lies(name) for name in self.tensors}
        for (name, rank, microbatch), value in initial.items():
            self.view(name, rank, microbatch)[...] = value
        self.given = dict(initial)
        self.made: set[Instance] = set()

    # --- memory

    def _lies(self, name: str) -> str:
        """The tensor whose place another has: of what was waited for, that of the operation's
        result.
        """
        for operator in self.plan.operators:
            if (
                operator.kind == "wait"
                and name in operator.outputs
                and self.tensors[name].storage is None
            ):
                return self._lies(tensor_name(operator.inputs[0]) or "")
        return name

    def view(self, name: str, rank: int, microbatch: int) -> Array:
        """The places of a tensor in its buffer."""
        if not self.shared:
            return self.memory.setdefault(
                (rank, (name, microbatch)), np.full(self.tensors[name].shape, np.nan)
            )
        tensor = self.tensors[self.lies[name]]
        size = int(np.prod(tensor.shape))
        key: object = tensor.storage if tensor.storage is not None else (tensor.name, microbatch)
        needed = tensor.offset + size
        buffer = self.memory.get((rank, key))
        if buffer is None or len(buffer) < needed:
            larger = np.full(needed, np.nan)
            if buffer is not None:
                larger[: len(buffer)] = buffer
            buffer = self.memory[rank, key] = larger
        return buffer[tensor.offset : needed].reshape(self.tensors[name].shape)

    # --- the run

    def run(self) -> dict[Instance, Array]:
        """Return the contents of the places of all results when every rank is at its end.

        Raises HangError, ExecutionError.
        """
        while self._going():
            steps = [*self._ranks(), *self._moves()]
            if not steps:
                raise HangError(str(self.at))
            self.policy(steps, self.generator).run()
        found = {key: self.view(*key).copy() for key in self.made if self._is_result(key[0])}
        for key in self.given:
            tensor = self.tensors[key[0]]
            new = [other.name for other in self.plan.tensors if other.updated == tensor.name]
            if tensor.role in LASTING and not any((name, *key[1:]) in self.made for name in new):
                found[key] = self.view(*key).copy()
        return found

    def _going(self) -> bool:
        if any(at < len(program) for at, program in zip(self.at, self.programs, strict=True)):
            return True
        return any(not part.done for parts in self.blocked.values() for part in parts)

    def _is_result(self, name: str) -> bool:
        return self.tensors[name].updated is not None or any(
            output.tensor == name for output in self.plan.outputs
        )

    def _ranks(self) -> Iterator[Step]:
        for rank, program in enumerate(self.programs):
            if self.at[rank] < len(program) and self._may_go_on(rank):
                yield Step(False, lambda rank=rank: self._advance(rank))  # type: ignore[misc]

    def _may_go_on(self, rank: int) -> bool:
        if not all(part.done for part in self.blocked.get(rank, [])):
            return False
        operator, microbatch = self.programs[rank][self.at[rank]]
        return (
            operator.group is not None
            or operator.kind in ("send", "receive")
            or self._readable(operator, rank, microbatch)
        )

    def _readable(self, operator: Operator, rank: int, microbatch: int) -> bool:
        """Return True if single assignment has the operands of an operator."""
        names = [
            (tensor_name(o), o.microbatch if isinstance(o, Use) else microbatch)
            for o in operator.inputs
        ]
        return self.shared or all(
            name is None or (name, rank, self._version(name, at)) in self.there
            for name, at in names
        )

    def _advance(self, rank: int) -> None:
        self.blocked[rank] = []
        operator, microbatch = self.programs[rank][self.at[rank]]
        if operator.kind == "wait":
            self.blocked[rank] = self._awaited(rank, operator, microbatch)
            self.at[rank] += 1
            if operator.outputs:
                self._made(operator, rank, microbatch)
                if not self.shared:
                    self._compute(rank, operator, microbatch)
            return
        if operator.group is None and operator.kind not in ("send", "receive"):
            self._compute(rank, operator, microbatch)
            self.at[rank] += 1
            return
        start = self.at[rank]
        if (rank, start) not in self.begun:
            for place in self._batch(rank):
                self._begin(rank, place)
        part = self.begun.pop((rank, start))
        self.at[rank] += 1
        (self.handles if part.attributes.get("async") else self.unfinished)[rank].append(part)
        if not any(other == rank for other, _ in self.begun):
            # The last of its batch: the rank goes on when all of them are done.
            self.blocked[rank], self.unfinished[rank] = self.unfinished[rank], []

    def _begin(self, rank: int, place: int) -> None:
        operator, microbatch = self.programs[rank][place]
        part = Part(
            rank,
            operator,
            microbatch,
            attributes_at(self.plan, operator, self.coordinates[rank], microbatch),
        )
        self.begun[rank, place] = part
        self._join(part)
        self._made(operator, rank, microbatch)

    def _batch(self, rank: int) -> list[int]:
        """The places of what begins together with what a rank has come to; what is computed between
        them is no part of it.
        """
        program, start = self.programs[rank], self.at[rank]
        found, ids = [start], {program[start][0].id}
        batch = attributes_at(self.plan, *self._where(rank, start)).get("batch")
        for place in range(start + 1, len(program)) if batch is not None else ():
            operator, microbatch = program[place]
            if operator.group is None and operator.kind not in ("send", "receive", "wait"):
                continue
            same = (
                attributes_at(self.plan, operator, self.coordinates[rank], microbatch).get("batch")
                == batch
            )
            if not same or operator.kind in ("wait", "barrier") or operator.id in ids:
                break
            found.append(place)
            ids.add(operator.id)
        return found

    def _where(self, rank: int, at: int) -> tuple[Operator, dict[str, int], int]:
        operator, microbatch = self.programs[rank][at]
        return operator, self.coordinates[rank], microbatch

    def _awaited(self, rank: int, operator: Operator, microbatch: int) -> list[Part]:
        operand = operator.inputs[0]
        name = tensor_name(operand)
        at = operand.microbatch if isinstance(operand, Use) else microbatch
        named = operator.attributes.get("of")
        found = []
        for part in self.handles[rank]:
            right = part.microbatch == (at if part.operator.id in self.repeated else 0)
            if operator.outputs:
                right = right and name in part.operator.outputs
            else:
                right = (
                    right
                    and part.operator.kind == "send"
                    and tensor_name(part.operator.inputs[0]) == name
                )
                right = right and (
                    named is None
                    or part.operator.id in ((named,) if isinstance(named, str) else named)
                )
            if right:
                found.append(part)
        return found

    def _compute(self, rank: int, operator: Operator, microbatch: int) -> None:
        attributes = attributes_at(self.plan, operator, self.coordinates[rank], microbatch)
        inputs = [self._operand(operand, rank, microbatch) for operand in operator.inputs]
        for name, value in zip(
            operator.outputs, forward(operator.kind, inputs, attributes), strict=True
        ):
            self._store(name, rank, self._version(name, microbatch), value.numpy())
        self._made(operator, rank, microbatch)

    def _made(self, operator: Operator, rank: int, microbatch: int) -> None:
        self.made.update(
            (name, rank, self._version(name, microbatch)) for name in operator.outputs if name
        )

    def _store(self, name: str, rank: int, version: int, value: Array) -> None:
        self.view(name, rank, version)[...] = value
        self.there.add((name, rank, version))

    def _version(self, name: str, microbatch: int) -> int:
        return microbatch if self.tensors[name].microbatched else 0

    def _operand(self, operand: str | Use | Number, rank: int, microbatch: int) -> torch.Tensor:
        if isinstance(operand, Number):
            return torch.tensor(number(operand.value), dtype=torch.float64)
        if isinstance(operand, Use):
            return torch.from_numpy(self.view(operand.tensor, rank, operand.microbatch).copy())
        return torch.from_numpy(self.view(operand, rank, self._version(operand, microbatch)).copy())

    # --- communication

    def _join(self, part: Part) -> None:
        operator = part.operator
        if operator.group is not None:
            members = group_of(self.plan, operator.group, part.rank)
            key: object = (members, operator.group.name)
        else:
            peer = part.attributes["peer"]
            members = (part.rank, peer) if operator.kind == "send" else (peer, part.rank)
            key = (members, part.attributes.get("tag"), "p2p")
        turn = self.turns[part.rank, key]
        self.turns[part.rank, key] += 1
        line = self.meetings[key]
        while len(line) <= turn:
            line.append(Meeting(members))
        line[turn].parts[part.rank] = part
        if line[turn].complete:
            self._agree(line[turn])
            for place, rank in enumerate(members):
                other = line[turn].parts[rank]
                other.read = (
                    other.operator.kind in READ_AT_ROOT and place != other.attributes["root"]
                )

    def _agree(self, meeting: Meeting) -> None:
        parts = [meeting.parts[rank] for rank in meeting.members]
        if parts[0].operator.group is None:
            return
        said = {
            (
                p.operator.kind,
                *sorted(
                    (k, str(v))
                    for k, v in p.attributes.items()
                    if k not in ("async", "batch", "tag")
                ),
            )
            for p in parts
        }
        shapes = {self.tensors[str(p.operator.inputs[0])].shape for p in parts if p.operator.inputs}
        if len(said) > 1 or len(shapes) > 1:
            raise ExecutionError("the members of a group meet in different collectives")

    def _moves(self) -> Iterator[Step]:
        for line in self.meetings.values():
            for meeting in line:
                if meeting.complete:
                    yield from self._moves_of(meeting)
                else:
                    for part in meeting.parts.values():
                        if (
                            part.operator.kind == "send"
                            and part.attributes.get("protocol") == "buffered"
                            and not part.read
                            and self._readable(part.operator, part.rank, part.microbatch)
                        ):
                            yield Step(True, lambda part=part: self._read(part))  # type: ignore[misc]

    def _moves_of(self, meeting: Meeting) -> Iterator[Step]:
        parts = list(meeting.parts.values())
        unread = [part for part in parts if not part.read]
        for part in (p for p in unread if self._readable(p.operator, p.rank, p.microbatch)):
            yield Step(True, lambda part=part: self._read(part))  # type: ignore[misc]
        if not unread:
            for part in parts:
                if not part.written:
                    yield Step(True, lambda part=part: self._write(meeting, part))  # type: ignore[misc]

    def _read(self, part: Part) -> None:
        part.read = True
        if part.operator.inputs:
            part.operand = self._operand(
                part.operator.inputs[0], part.rank, part.microbatch
            ).numpy()
        if part.operator.kind == "send":
            part.written = True

    def _write(self, meeting: Meeting, part: Part) -> None:
        part.written = True
        operator = part.operator
        if not operator.outputs:
            return
        stack = [meeting.parts[rank].operand for rank in meeting.members]
        if operator.group is None:
            value: Any = stack[0]
        else:
            if operator.kind in READ_AT_ROOT:
                stack = [stack[part.attributes["root"]]] * len(stack)
            tensors = [torch.from_numpy(each) for each in stack if each is not None]
            value = COLLECTIVES[operator.kind](
                tensors, part.attributes, meeting.members.index(part.rank)
            )
        if value is None:
            # What is not the root of a reduce has something; it is the same under every timing, for
            # this is not about its value.
            value = np.full(self.tensors[operator.outputs[0]].shape, 1000.0 + part.rank)
        self._store(
            operator.outputs[0],
            part.rank,
            self._version(operator.outputs[0], part.microbatch),
            np.asarray(value),
        )


def single_assignment(plan: Plan, initial: dict[Instance, Array]) -> dict[Instance, Array]:
    """The values of all results where no buffer is shared. Raises HangError, ExecutionError."""
    return Interleaving(plan, initial, eager, 0, shared=False).run()
