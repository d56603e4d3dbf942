"""An independent reading of traces: all ranks together on float64, every operator by torch itself,
collectives by what they are defined to do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isnan
from typing import Any
from unittest.mock import patch

import torch

from pitcheck.frontends.torch.planning.compared_state import compared
from pitcheck.frontends.torch.program import Program, Spec
from pitcheck.frontends.torch.trace import Event, Given, Ref, Result, Trace

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
DTYPES = {
    name: getattr(torch, name) for name in ("int64", "int32", "int16", "int8", "uint8", "bool")
}
REDUCED = {
    "sum": lambda stack: stack.sum(0),
    "avg": lambda stack: stack.mean(0),
    "max": lambda stack: stack.amax(0),
    "min": lambda stack: stack.amin(0),
    "product": lambda stack: stack.prod(0),
}

Tensors = Mapping[str, torch.Tensor]
Skip = tuple[tuple[int, ...], int]
"""A collective that is left out: the group, and how many of the group were before it. Of a receive
(source, rank) and the number.
"""
Together = tuple[Mapping[int, Sequence[int]], int]
"""Terms of a result that are added up.

By rank: the ranks whose terms it adds; and the divisor of the sum.
"""


class StuckError(Exception):
    """No rank can go on."""


def dtype(name: str) -> torch.dtype:
    return DTYPES.get(name, torch.float64)


def held(tensor: torch.Tensor, box: Sequence[Sequence[Sequence[int]]]) -> torch.Tensor:
    """The part of a whole tensor that a box names."""
    for dim, intervals in enumerate(box):
        tensor = (
            torch.cat([tensor.narrow(dim, start, stop - start) for start, stop in intervals], dim)
            if intervals
            else tensor.narrow(dim, 0, 0)
        )
    return tensor


@dataclass
class Machine:
    """One rank: what it has computed, and how far it is."""

    trace: Trace
    values: dict[int, torch.Tensor]
    at: int = 0
    counts: dict[tuple[int, ...], int] = field(default_factory=lambda: defaultdict(int))


class Replay:
    """Runs traces against each other; ``skipped`` collectives give each rank what it would have
    without communication.
    """

    def __init__(
        self, traces: Sequence[Trace], tensors: Tensors, skipped: Skip | None = None
    ) -> None:
        self.traces = traces = [compared(trace) for trace in traces]
        self.skipped = skipped
        self.machines = {
            trace.rank: Machine(
                trace, {given.value: self._given(given, trace, tensors) for given in trace.given}
            )
            for trace in traces
        }
        self.boards: dict[tuple[tuple[int, ...], int], dict[int, tuple[Event, torch.Tensor]]] = (
            defaultdict(dict)
        )
        self.sent: dict[tuple[int, int, int], list[torch.Tensor]] = defaultdict(list)

    def run(self) -> dict[int, dict[tuple[str, str], torch.Tensor]]:
        """Per rank the results by kind and name."""
        torch.set_default_dtype(torch.float64)
        try:
            return self._run()
        finally:
            torch.set_default_dtype(torch.float32)

    def _run(self) -> dict[int, dict[tuple[str, str], torch.Tensor]]:
        moved = True
        while moved:
            moved = False
            for machine in self.machines.values():
                while machine.at < len(machine.trace.events) and self._step(
                    machine, machine.trace.events[machine.at]
                ):
                    machine.at += 1
                    moved = True
        for machine in self.machines.values():
            if machine.at < len(machine.trace.events):
                raise StuckError(
                    f"rank {machine.trace.rank} waits at {machine.trace.events[machine.at]}"
                )
        if any(self.sent.values()):
            raise StuckError("a tensor was sent that nobody received")
        return {
            rank: {
                (result.kind, result.name): machine.values[result.value]
                for result in machine.trace.results
            }
            for rank, machine in self.machines.items()
        }

    def _given(self, given: Given, trace: Trace, tensors: Tensors) -> torch.Tensor:
        value = trace.values[given.value]
        if given.integers is not None:
            return torch.tensor(given.integers, dtype=dtype(value.dtype)).reshape(value.shape)
        if given.number is not None:
            return torch.full(value.shape, given.number, dtype=dtype(value.dtype))
        tensor = held(tensors[given.name], given.box)
        assert tensor.shape == value.shape, (given, tensor.shape, value.shape)
        return tensor.clone()

    def _step(self, machine: Machine, event: Event) -> bool:
        if event.operator in COLLECTIVES:
            return self._collective(machine, event)
        if event.operator == "send":
            value, peer, tag = event.arguments
            self.sent[machine.trace.rank, peer, tag].append(machine.values[value.value])
            return True
        if event.operator == "receive":
            return self._receive(machine, event)
        if event.operator == "barrier" or (event.operator == "wait" and not event.outputs):
            return True
        if event.operator == "wait":
            machine.values[event.outputs[0]] = machine.values[event.arguments[0].value]
            return True
        results = call(event, machine.values)
        for number, result in zip(event.outputs, results, strict=True):
            if number is not None:
                said = machine.trace.values[number]
                assert tuple(result.shape) == said.shape and result.dtype == dtype(said.dtype), (
                    event,
                    result.shape,
                    result.dtype,
                    said,
                )
                machine.values[number] = result
        return True

    def _receive(self, machine: Machine, event: Event) -> bool:
        peer, tag = event.arguments
        line = self.sent[peer, machine.trace.rank, tag]
        if not line:
            return False
        key = (peer, machine.trace.rank)
        value = line.pop(0)
        # A group may have the same numbers.
        received = (-1, *key)
        machine.values[event.outputs[0]] = (
            value * 0 if self.skipped == (key, machine.counts[received]) else value
        )
        machine.counts[received] += 1
        return True

    def _collective(self, machine: Machine, event: Event) -> bool:
        if machine.trace.rank not in event.group:
            raise StuckError(f"rank {machine.trace.rank} is no member of the group at {event}")
        key = (event.group, machine.counts[event.group])
        board = self.boards[key]
        board[machine.trace.rank] = (event, machine.values[event.arguments[0].value])
        if len(board) < len(event.group):
            return False
        # The parts of an all-to-all have sizes of their own on every member.
        said = {
            (other.operator, *(() if other.operator == "all_to_all" else other.arguments[1:2]))
            for other, _ in board.values()
        }
        assert len(said) == 1, said
        place = event.group.index(machine.trace.rank)
        members = [board[rank] for rank in event.group]
        if self.skipped == key:
            if event.operator == "all_to_all":
                mine, shape = members[place][1], machine.trace.values[event.outputs[0]].shape
                machine.values[event.outputs[0]] = torch.cat([mine, mine.new_zeros(shape)])[
                    : shape[0]
                ]
                machine.counts[event.group] += 1
                return True
            members = [members[place]] * len(members)
            if event.operator == "all_reduce" and event.arguments[1] == "sum":
                members = members[:1]
        machine.values[event.outputs[0]] = communicate(event, place, members)
        machine.counts[event.group] += 1
        return True


def communicate(
    event: Event, place: int, members: Sequence[tuple[Event, torch.Tensor]]
) -> torch.Tensor:
    values = [value for _, value in members]
    size = len(event.group)
    if event.operator == "all_reduce":
        return REDUCED[event.arguments[1]](torch.stack(values))
    if event.operator == "all_gather":
        return torch.cat(values)
    if event.operator == "reduce_scatter":
        return REDUCED[event.arguments[1]](torch.stack(values)).chunk(size)[place]
    if event.operator == "broadcast":
        return values[event.arguments[1]]
    parts = []
    for other, value in members:
        sizes = other.arguments[1] or [value.shape[0] // size] * size
        parts.append(value.split(list(sizes))[place])
    got = event.arguments[2]
    assert got is None or [part.shape[0] for part in parts] == list(got)
    return torch.cat(parts)


def call(event: Event, values: Mapping[int, torch.Tensor]) -> list[torch.Tensor]:
    """An ATen operator on real tensors."""
    if event.operator in ("view.default", "_unsafe_view.default"):
        # Of a value nothing is known about its strides.
        tensor, shape = event.arguments
        return [values[tensor.value].reshape(shape)]
    if event.operator == "boundary":
        return [torch.tensor(event.arguments[2])]
    if event.operator == "spread_mean":
        like, gradient = (values[argument.value] for argument in event.arguments[:2])
        return [gradient.expand(like.shape) * gradient.numel() / like.numel()]
    packet, overload = event.operator.split(".")
    func = getattr(getattr(torch.ops.aten, packet), overload)
    schema = func._schema.arguments
    assert len(schema) == len(event.arguments), event
    args, kwargs = [], {}
    for parameter, argument in zip(schema, event.arguments, strict=True):
        # No target is a class that is ignored.
        value = (
            -100
            if parameter.name == "ignore_index" and argument is None
            else real(argument, values, "dtype" in parameter.name)
        )
        if parameter.kwarg_only:
            kwargs[parameter.name] = value
        else:
            args.append(value)
    result = func(*args, **kwargs)
    return list(result) if isinstance(result, tuple | list) else [result]


def real(argument: Any, values: Mapping[int, torch.Tensor], is_dtype: bool) -> Any:
    if isinstance(argument, Ref):
        return values[argument.value].clone()
    if isinstance(argument, tuple):
        return [real(item, values, is_dtype) for item in argument]
    return dtype(argument) if is_dtype and isinstance(argument, str) else argument


def collectives(traces: Sequence[Trace]) -> list[Skip]:
    """All collectives of some ranks, and receives, to be left out one by one."""
    found: dict[Skip, None] = {}
    for trace in traces:
        counts: dict[tuple[int, ...], int] = defaultdict(int)
        for event in trace.events:
            if event.operator in COLLECTIVES or event.operator == "receive":
                key = (
                    event.group
                    if event.operator in COLLECTIVES
                    else (event.arguments[0], trace.rank)
                )
                counted = key if event.operator in COLLECTIVES else (-1, *key)
                found[key, counts[counted]] = None
                counts[counted] += 1
    return list(found)


def expected(result: Result, tensors: Mapping[tuple[str, str], torch.Tensor]) -> torch.Tensor:
    return held(tensors[result.kind, result.name], result.box)


def difference(
    traces: Sequence[Trace],
    tensors: Tensors,
    whole: Mapping[tuple[str, str], torch.Tensor],
    skipped: Skip | None = None,
    together: Mapping[tuple[str, str], Together] | None = None,
) -> float:
    """The largest difference, relative to the largest element, of any rank's results from its part
    of the whole ones; of those that are given.

    ``together``: of results that ranks have terms of, by rank the ranks whose terms are added up,
    and the number by which the sum is divided.
    """
    found = Replay(traces, tensors, skipped).run()
    worst = 0.0
    seen = set()
    added = together or {}
    for trace in traces:
        for result in trace.results:
            key = (result.kind, result.name)
            if key not in whole:
                continue
            seen.add(key)
            members, divisor = (
                (result.partial or (trace.rank,), 1)
                if key not in added
                else (added[key][0][trace.rank], added[key][1])
            )
            value = sum(found[rank][key] for rank in members) / divisor
            want = expected(result, whole)
            assert want.shape == value.shape, (result, want.shape, value.shape)
            if value.numel():
                apart = float((want - value).abs().max() / want.abs().max().clamp(min=1))
                if isnan(apart):
                    return inf
                worst = max(worst, apart)
    assert seen == set(whole), set(whole) - seen
    return worst


@dataclass
class Truth:
    """The single-device run on real tensors: all initial values, and all final ones."""

    tensors: dict[str, torch.Tensor]
    results: dict[tuple[str, str], torch.Tensor]


def truth(spec: Spec, seed: int = 0, gradients: bool = True) -> Truth:
    """Run the reference itself, in float64, without any of pitcheck; what it makes float32 of is as
    exact.
    """
    generator = torch.Generator().manual_seed(seed)
    torch.set_default_dtype(torch.float64)
    try:
        with patch.object(torch.Tensor, "float", torch.Tensor.double):
            return _truth(spec, generator, gradients)
    finally:
        torch.set_default_dtype(torch.float32)


def _truth(spec: Spec, generator: torch.Generator, gradients: bool) -> Truth:
    program = spec.reference()
    tensors = {}
    for name, given in spec.batch.items():
        if given.values is not None:
            tensors[name] = torch.tensor(list(given.values), dtype=dtype(given.dtype)).reshape(
                given.shape
            )
        elif given.dtype.startswith(("int", "bool")):
            low, high = given.bounds or (0, 2)
            tensors[name] = torch.randint(low, high, given.shape, generator=generator).to(
                dtype(given.dtype)
            )
        else:
            tensors[name] = torch.randn(given.shape, generator=generator)
    with torch.no_grad():
        saved = program.model.state_dict()
        for name, tensor in [*program.model.named_parameters(), *program.model.named_buffers()]:
            if tensor.dtype.is_floating_point and name in saved:
                tensor.copy_(torch.randn(tensor.shape, generator=generator))
            tensors[name] = tensor.detach().clone()
    return Truth(tensors, _outcome(program, tensors, generator, gradients))


def _outcome(
    program: Program, tensors: dict[str, torch.Tensor], generator: torch.Generator, gradients: bool
) -> dict[tuple[str, str], torch.Tensor]:
    named = dict(program.model.named_parameters())
    if program.optimizer is not None:
        _begin_state(program, named, tensors, generator)
    outputs = program.step({name: tensor.clone() for name, tensor in tensors.items()})
    results = {
        ("output", name): value.detach()
        for name, value in (outputs if isinstance(outputs, Mapping) else {"loss": outputs}).items()
    }
    if gradients:
        results |= {
            ("gradient", name): parameter.grad
            for name, parameter in named.items()
            if parameter.grad is not None
        }
    if program.optimizer is not None:
        results |= {("updated", name): parameter.detach() for name, parameter in named.items()}
        for name, parameter in named.items():
            for key, value in program.optimizer.state[parameter].items():
                if f"{key}:{name}" in tensors:
                    results["updated", f"{key}:{name}"] = value
    return results


def _begin_state(
    program: Program,
    named: Mapping[str, torch.nn.Parameter],
    tensors: dict[str, torch.Tensor],
    generator: torch.Generator,
) -> None:
    """State as after one step, whose numbers are drawn."""
    for parameter in named.values():
        parameter.grad = torch.zeros_like(parameter)
    before = {name: parameter.detach().clone() for name, parameter in named.items()}
    program.optimizer.step()
    with torch.no_grad():
        for name, parameter in named.items():
            parameter.copy_(before[name])
            parameter.grad = None
            for key, value in program.optimizer.state[parameter].items():
                if isinstance(value, torch.Tensor) and value.dim():
                    value.copy_(torch.rand(value.shape, generator=generator) + 0.1)
                    tensors[f"{key}:{name}"] = value.clone()
