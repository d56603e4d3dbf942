"""Training steps as data: rows of instructions over named buffers, one column per rank.

The same interpreter runs them when they are recorded, where it calls torch.distributed, and when
they are judged (``timing.py``), where communication is made up.

The model is ``h = h * w + x`` for every parameter, its loss the mean of squares; the reference is
written out without any of this.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pitcheck.torch import Input, Part, Program, Spec

SIZE = 4
"""Elements of a parameter."""
ROWS = 2
"""Rows of the batch on each rank."""
RATE, MOMENTUM, DECAY = 0.1, 0.5, 0.25
BLOCKS = (
    "broadcast",
    "reduce",
    "all_reduce",
    "all_gather",
    "all_gather_list",
    "reduce_scatter",
    "all_to_all",
    "barrier",
    "send",
    "recv",
    "batch",
)
"""Instructions that communicate."""
REDUCTIONS = {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.AVG, "max": dist.ReduceOp.MAX}


@dataclass(frozen=True)
class Task:
    """The work of the reference.

    ``zero``: when gradients are zeroed, at the "start" or "end" of a step.
    """

    ranks: int
    parameters: int = 1
    momentum: bool = False
    total: bool = False
    average: bool = False
    zero: str = "start"


@dataclass(frozen=True)
class Do:
    """An instruction of one rank. ``handle``: under which name what does not block is waited for;
    ``peer``: the root, or the other rank.
    """

    what: str
    names: tuple[str, ...] = ()
    number: float = 0.0
    op: str = "sum"
    group: str = "world"
    handle: str = ""
    peer: int = 0
    source: int = 0
    """The rank that a batch receives from; ``peer`` is the one that it sends to."""
    tag: int = 0


Row = tuple[Do | None, ...]


@dataclass(frozen=True)
class View:
    """A part of another buffer; it begins ``step`` elements later on every further rank."""

    base: str
    start: int
    size: int
    step: int = 0


@dataclass(frozen=True)
class Written:
    """A program of all ranks. ``kept``: buffers that outlive a step, with their sizes; ``fresh``:
    those made in every step without any contents.
    """

    task: Task
    rows: tuple[Row, ...]
    kept: Mapping[str, int] = field(default_factory=dict)
    fresh: Mapping[str, int] = field(default_factory=dict)
    views: Mapping[str, View] = field(default_factory=dict)
    flat: bool = False
    """True if gradients are views of the kept buffer "flat"."""


def groups(ranks: int) -> dict[str, list[list[int]]]:
    """The groups by name, each as the lists of ranks that it divides all of them into."""
    everyone = [list(range(ranks))]
    found = {"world": everyone, "second": everyone, "third": everyone}
    return found if ranks == 2 else {**found, "low": [[0, 1], [2, 3]], "high": [[0, 2], [1, 3]]}


class Work(Protocol):
    """Something in flight."""

    def wait(self) -> Any:
        """Wait for it."""


class World(Protocol):
    """A place in which a rank runs."""

    dtype: torch.dtype

    def empty(self, size: int) -> Tensor:
        """Memory that nobody has written to."""

    def call(self, do: Do, tensors: list[Tensor]) -> list[Any]:
        """Launch communication, and return what is to be waited for."""


def begun(task: Task, dtype: torch.dtype) -> dict[str, nn.Parameter]:
    """The parameters, the same on all ranks."""
    torch.manual_seed(0)
    return {f"w{n}": nn.Parameter(torch.randn(SIZE, dtype=dtype)) for n in range(task.parameters)}


def loss_of(parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """The loss of some rows."""
    h = x
    for parameter in parameters.values():
        h = h * parameter + x
    return (h * h).mean()


def state_names(task: Task) -> list[str]:
    """Return the names that the reference has for the tensors that a program keeps."""
    return [f"m{n}" for n in range(task.parameters) if task.momentum] + ["average"] * task.average


def state_of(task: Task, dtype: torch.dtype) -> dict[str, Tensor]:
    """Return the tensors that a program keeps, as they are in the beginning."""
    return {
        name: torch.zeros(1 if name == "average" else SIZE, dtype=dtype)
        for name in state_names(task)
    }


class Running:
    """One rank of a program, and what it keeps between steps."""

    def __init__(self, program: Written, rank: int, world: World) -> None:
        self.program, self.rank, self.world = program, rank, world
        self.parameters = begun(program.task, world.dtype)
        self.kept = state_of(program.task, world.dtype)
        for name, size in program.kept.items():
            self.kept[name] = (
                torch.zeros(size, dtype=world.dtype) if name == "flat" else world.empty(size)
            )
        if program.flat:
            for n, parameter in enumerate(self.parameters.values()):
                parameter.grad = self.kept["flat"][SIZE * n : SIZE * (n + 1)]

    def step(self, x: Tensor) -> Generator[Any, None, dict[str, Tensor]]:
        """Run one step, and yield whatever the rank has to wait for; returns its outputs."""
        made: dict[str, Tensor] = {
            name: self.world.empty(size) for name, size in self.program.fresh.items()
        }
        handles: dict[str, list[Any]] = {}
        outputs: dict[str, Tensor] = {}
        for row in self.program.rows:
            do = row[self.rank]
            if do is None:
                continue
            if do.what == "train":
                part = x[int(do.names[0]) : int(do.names[1])]
                loss = loss_of(self.parameters, part) * do.number
                loss.backward()
                now = loss.detach().reshape(1)
                made["loss"] = now if "loss" not in made else made["loss"] + now
            elif do.what == "output":
                outputs[do.names[0]] = self._tensor(do.names[1], made)
            elif do.what == "wait":
                yield from handles[do.handle]
            elif do.what in BLOCKS:
                with torch.no_grad():
                    works = self.world.call(do, [self._tensor(name, made) for name in do.names])
                if do.handle:
                    handles[do.handle] = works
                else:
                    yield from works
            else:
                with torch.no_grad():
                    self._compute(do, made)
        return outputs

    def _tensor(self, name: str, made: Mapping[str, Tensor]) -> Tensor:
        if name in self.program.views:
            view = self.program.views[name]
            start = view.start + view.step * self.rank
            return self._tensor(view.base, made)[start : start + view.size]
        if name.endswith(".grad"):
            gradient = self.parameters[name.removesuffix(".grad")].grad
            if gradient is None:
                raise KeyError(name)
            return gradient
        return (
            made[name]
            if name in made
            else self.kept[name]
            if name in self.kept
            else self.parameters[name].detach()
        )

    def _compute(self, do: Do, made: dict[str, Tensor]) -> None:
        if do.what == "zero":
            for parameter in self.parameters.values():
                parameter.grad = None
            return
        if do.what == "clone":
            made[do.names[0]] = self._tensor(do.names[1], made).clone()
            return
        if do.what == "same":
            made[do.names[0]] = self._tensor(do.names[1], made)
            return
        if do.what == "keep":
            self.kept[do.names[0]] = self._tensor(do.names[1], made)
            return
        COMPUTED[do.what](do.number, *(self._tensor(name, made) for name in do.names))


COMPUTED: dict[str, Callable[..., object]] = {
    "fill": lambda number, to: to.fill_(number),
    "scale": lambda number, to: to.mul_(number),
    "copy": lambda number, to, of: to.copy_(of),
    "copy part": lambda number, to, of: to[: int(number)].copy_(of[: int(number)]),
    "add": lambda number, to, of: to.add_(of, alpha=number),
    "sum rows": lambda number, to, of: to.copy_(of.view(-1, to.shape[0]).sum(0)),
}
"""Functions of the instructions that compute in place.

Their arguments are a number, the tensor that they write to, and the tensors that they read.
"""


class Distributed:
    """torch.distributed, for the rank of this process."""

    dtype = torch.float32

    def __init__(self, ranks: int) -> None:
        mine = dist.get_rank()
        self._groups: dict[str, Any] = {}
        for name, divided in groups(ranks).items():
            made = [
                dist.group.WORLD if name == "world" else dist.new_group(members)
                for members in divided
            ]
            self._groups[name] = next(
                group for group, members in zip(made, divided, strict=True) if mine in members
            )

    def empty(self, size: int) -> Tensor:
        return torch.empty(size)

    def call(self, do: Do, tensors: list[Tensor]) -> list[Any]:
        group, later, op = self._groups[do.group], bool(do.handle), REDUCTIONS[do.op]
        work: Any
        if do.what == "all_reduce":
            work = dist.all_reduce(*tensors, op=op, group=group, async_op=later)
        elif do.what == "broadcast":
            work = dist.broadcast(*tensors, src=do.peer, group=group, async_op=later)
        elif do.what == "reduce":
            work = dist.reduce(*tensors, dst=do.peer, op=op, group=group, async_op=later)
        elif do.what == "all_gather":
            work = dist.all_gather_into_tensor(*tensors, group=group, async_op=later)
        elif do.what == "all_gather_list":
            work = dist.all_gather(
                list(tensors[0].view(-1, tensors[1].shape[0]).unbind()),
                tensors[1],
                group=group,
                async_op=later,
            )
        elif do.what == "reduce_scatter":
            work = dist.reduce_scatter_tensor(*tensors, op=op, group=group, async_op=later)
        elif do.what == "all_to_all":
            work = dist.all_to_all_single(*tensors, group=group, async_op=later)
        elif do.what == "barrier":
            work = dist.barrier(group=group)
        elif do.what == "batch":
            sent, received = tensors
            pair = [
                dist.P2POp(dist.isend, sent, do.peer, group, do.tag),
                dist.P2POp(dist.irecv, received, do.source, group, do.tag),
            ]
            return list(dist.batch_isend_irecv(pair))
        elif do.what == "send":
            work = (dist.isend if later else dist.send)(*tensors, do.peer, group, do.tag)
        else:
            work = (dist.irecv if later else dist.recv)(*tensors, do.peer, group, do.tag)
        return [work] if later else []


def reference(task: Task, dtype: torch.dtype = torch.float32) -> Program:
    """Return the program on one device."""
    parameters, kept = begun(task, dtype), state_of(task, dtype)

    def step(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if task.zero == "start":
            for parameter in parameters.values():
                parameter.grad = None
        loss = loss_of(parameters, batch["x"])
        loss.backward()
        now = loss.detach().reshape(1)
        with torch.no_grad():
            for number, parameter in enumerate(parameters.values()):
                change = parameter.grad
                if task.momentum:
                    change = kept[f"m{number}"].mul_(MOMENTUM).add_(change)
                parameter.sub_(RATE * change)
            if task.average:
                kept["average"].mul_(1 - DECAY).add_(DECAY * now)
        if task.zero == "end":
            for parameter in parameters.values():
                parameter.grad = None
        return {"loss": now, "total": now.clone()} if task.total else {"loss": now}

    return Program(parameters, step, state=lambda: kept)


def parallel(program: Written, rank: int) -> Program:
    """A rank of a program as it is recorded."""
    running = Running(program, rank, Distributed(program.task.ranks))

    def step(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        steps = running.step(batch["x"])
        while True:
            try:
                work = next(steps)
            except StopIteration as ended:
                return dict(ended.value)
            work.wait()

    return Program(
        running.parameters,
        step,
        state=lambda: {name: running.kept[name] for name in state_names(program.task)},
    )


def spec_of(program: Written) -> Spec:
    """The pair of programs."""
    ranks = program.task.ranks
    return Spec(
        lambda: reference(program.task),
        lambda rank: parallel(program, rank.number),
        {"dp": ranks},
        {"x": Input((ROWS * ranks, SIZE), split={0: "dp"})},
        {"loss": Part(mean="dp")},
    )
