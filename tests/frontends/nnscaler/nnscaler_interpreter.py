"""Runs a plan rank by rank in float64 with PyTorch: what the operators of a reader's plan compute,
without any of the package's own evaluation.
"""

from __future__ import annotations

from collections import defaultdict, deque
from itertools import product
from typing import Any

import torch

from pitcheck.plan.model import Lineage, Number, Operator, Plan, Table, Use

COLLECTIVES = {"all_reduce", "all_gather", "broadcast"}


class StuckError(Exception):
    """No rank can go on."""


class Coordinates:
    def __init__(self, plan: Plan) -> None:
        self.names = [axis.name for axis in plan.mesh]
        self.sizes = {axis.name: axis.size for axis in plan.mesh} | {"mb": plan.microbatches}
        self.of = [
            dict(zip(self.names, place, strict=True))
            for place in product(*(range(axis.size) for axis in plan.mesh))
        ]

    def at(self, rank: int, microbatch: int | None) -> dict[str, int]:
        return {**self.of[rank], "mb": microbatch or 0}

    def position(self, over: tuple[str, ...], place: dict[str, int]) -> int:
        position = 0
        for axis in over:
            position = position * self.sizes[axis] + place[axis]
        return position

    def inside(self, where: tuple[dict[str, tuple[int, ...]], ...], place: dict[str, int]) -> bool:
        return not where or any(
            all(place[axis] in values for axis, values in box.items()) for box in where
        )


def part(
    whole: torch.Tensor, lineage: Lineage | None, coordinates: Coordinates, place: dict[str, int]
) -> torch.Tensor:
    """The part of a reference tensor that a coordinate holds."""
    for shard in lineage.shards if lineage else ():
        if shard.intervals is None:
            count = 1
            for axis in shard.by:
                count *= coordinates.sizes[axis]
            width = whole.shape[shard.dim] // count
            start = coordinates.position(shard.by, place) * width
            whole = whole.narrow(shard.dim, start, width)
        else:
            entry: Any = shard.intervals.values[coordinates.position(shard.intervals.over, place)]
            whole = torch.cat(
                [whole.narrow(shard.dim, start, stop - start) for start, stop in entry], shard.dim
            )
    return whole


class Machine:
    """All ranks of one plan. ``given`` are the reference's inputs and parameters."""

    def __init__(self, plan: Plan, given: dict[str, torch.Tensor]) -> None:
        self.plan = plan
        self.coordinates = Coordinates(plan)
        self.tensors = {tensor.name: tensor for tensor in plan.tensors}
        self.operators = {operator.id: operator for operator in plan.operators}
        self.given = given
        self.values: dict[tuple[str, int, int | None], torch.Tensor] = {}
        self.ranks = len(self.coordinates.of)
        self.channels: dict[tuple[int, int], deque[torch.Tensor]] = defaultdict(deque)
        self.meetings: dict[
            tuple[tuple[int, ...], int], dict[int, tuple[Operator, torch.Tensor]]
        ] = defaultdict(dict)
        self.turns: dict[tuple[tuple[int, ...], int], int] = defaultdict(int)

    def run(self) -> None:
        programs = {rank: deque(self._program(rank)) for rank in range(self.ranks)}
        while any(programs.values()):
            moved = False
            for rank, program in programs.items():
                while program and self._step(rank, *program[0]):
                    program.popleft()
                    moved = True
            if not moved:
                raise StuckError(
                    str({rank: program[0][0].id for rank, program in programs.items() if program})
                )

    def _program(self, rank: int) -> list[tuple[Operator, int | None]]:
        for program in self.plan.programs:
            if self.coordinates.inside(program.where, self.coordinates.of[rank]):
                return [
                    (self.operators[name], step.microbatch)
                    for step in program.steps
                    for name in self.plan.blocks[step.block]
                ]
        return []

    def read(self, operand: Any, rank: int, microbatch: int | None) -> Any:
        if isinstance(operand, Number):
            return operand.value
        name, microbatch = (
            (operand.tensor, operand.microbatch)
            if isinstance(operand, Use)
            else (operand, microbatch)
        )
        tensor = self.tensors[name]
        key = (name, rank, microbatch if tensor.microbatched else None)
        if key not in self.values:
            place = self.coordinates.at(rank, key[2])
            if tensor.value is not None:
                self.values[key] = torch.full(
                    tensor.shape, float(tensor.value), dtype=torch.float64
                )
            else:
                source = tensor.lineage.reference if tensor.lineage else name
                self.values[key] = part(self.given[source], tensor.lineage, self.coordinates, place)
            assert tuple(self.values[key].shape) == tensor.shape
        return self.values[key]

    def _write(self, name: str, rank: int, microbatch: int | None, value: torch.Tensor) -> None:
        tensor = self.tensors[name]
        key = (name, rank, microbatch if tensor.microbatched else None)
        assert key not in self.values, f"{key} is written twice"
        assert tuple(value.shape) == tensor.shape, (
            f"{name}: {tuple(value.shape)} is not {tensor.shape}"
        )
        self.values[key] = value

    def _step(self, rank: int, operator: Operator, microbatch: int | None) -> bool:
        place = self.coordinates.at(rank, microbatch)
        assert self.coordinates.inside(operator.where, place), (
            f"{operator.id} does not run on rank {rank}"
        )
        attributes = {
            k: v.values[self.coordinates.position(v.over, place)] if isinstance(v, Table) else v
            for k, v in operator.attributes.items()
        }
        if operator.kind == "receive":
            channel = self.channels[attributes["peer"], rank]
            if not channel:
                return False
            self._write(operator.outputs[0], rank, microbatch, channel.popleft())
            return True
        if operator.kind == "accumulate":
            chosen = attributes.get("microbatches", range(self.plan.microbatches))
            total = sum(self.read(Use(operator.inputs[0], m), rank, None) for m in chosen)
            self._write(operator.outputs[0], rank, None, total)
            return True
        inputs = [self.read(operand, rank, microbatch) for operand in operator.inputs]
        if operator.kind == "send":
            self.channels[rank, attributes["peer"]].append(inputs[0])
            return True
        if operator.kind in COLLECTIVES:
            return self._collective(rank, operator, microbatch, inputs[0], attributes)
        for name, value in zip(
            operator.outputs, compute(operator.kind, inputs, attributes), strict=True
        ):
            if name:
                self._write(name, rank, microbatch, value)
        return True

    def _collective(
        self,
        rank: int,
        operator: Operator,
        microbatch: int | None,
        value: torch.Tensor,
        attributes: dict[str, Any],
    ) -> bool:
        group = self._group(rank, operator)
        turn = self.turns[group, rank]
        meeting = self.meetings[group, turn]
        meeting[rank] = (operator, value)
        if len(meeting) < len(group):
            return False
        assert len({other.kind for other, _ in meeting.values()}) == 1
        values = [meeting[member][1] for member in group]
        if operator.kind == "broadcast":
            result = values[attributes["root"]]
        else:
            result = (
                torch.cat(values, attributes["axis"])
                if operator.kind == "all_gather"
                else sum(values[1:], values[0])
            )
        self._write(operator.outputs[0], rank, microbatch, result)
        self.turns[group, rank] += 1
        return True

    def _group(self, rank: int, operator: Operator) -> tuple[int, ...]:
        assert operator.group is not None
        if operator.group.ranks:
            return next((ranks for ranks in operator.group.ranks if rank in ranks), (-1, rank))
        own = self.coordinates.of[rank]
        fixed = [axis for axis in self.coordinates.names if axis not in operator.group.axes]
        return tuple(
            r
            for r, place in enumerate(self.coordinates.of)
            if all(place[axis] == own[axis] for axis in fixed)
        )


def forward(kind: str, inputs: list[Any], a: dict[str, Any]) -> list[torch.Tensor]:
    x = inputs[0]
    simple = {
        "linear": lambda: torch.nn.functional.linear(*inputs),
        "matmul": lambda: torch.matmul(*inputs),
        "add": lambda: torch.add(*inputs, alpha=a.get("alpha", 1)),
        "mul": lambda: torch.mul(*inputs),
        "div": lambda: torch.div(*inputs),
        "pow": lambda: torch.pow(x, a["exponent"]),
        "mean": lambda: torch.mean(x, dim=a["axes"], keepdim=a.get("keepdim", False)),
        "sum": lambda: torch.sum(x),
        "rsqrt": lambda: torch.rsqrt(x),
        "silu": lambda: torch.nn.functional.silu(x),
        "softmax": lambda: torch.softmax(x, a["axis"]),
        "view": lambda: x.reshape(a["sizes"]),
        "transpose": lambda: x.transpose(a["dim0"], a["dim1"]),
        "contiguous": lambda: x * 1,
        "identity": lambda: x * 1,
        "chunk": lambda: x.chunk(a["count"], a["axis"])[a["position"]],
    }
    if kind == "multiref":
        return [x * 1 for _ in range(a["count"])]
    return [simple[kind]()]


def compute(kind: str, inputs: list[Any], attributes: dict[str, Any]) -> list[Any]:
    if not kind.endswith(".backward"):
        return forward(kind, inputs, attributes)
    count, results, given = (
        attributes["forward_inputs"],
        attributes["forward_outputs"],
        attributes["gradients"],
    )
    assert len(inputs) == count + results + len(given)
    leaves = [
        v.detach().clone().requires_grad_() if isinstance(v, torch.Tensor) else v
        for v in inputs[:count]
    ]
    with torch.enable_grad():
        outputs = forward(kind.removesuffix(".backward"), leaves, attributes)
    assert all(torch.equal(out, inputs[count + n]) for n, out in enumerate(outputs)), (
        "the derivative is given other outputs than the forward operator wrote"
    )
    wanted = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    gradients = iter(
        torch.autograd.grad([outputs[n] for n in given], wanted, inputs[count + results :])
    )
    return [next(gradients) if isinstance(leaf, torch.Tensor) else None for leaf in leaves]


def given_for(plan: Plan) -> dict[str, torch.Tensor]:
    """Random inputs and parameters of a reference."""
    generator = torch.Generator().manual_seed(7)
    roles = ("input", "parameter")
    return {
        t.name: torch.randn(t.shape, generator=generator, dtype=torch.float64) / 4
        for t in plan.tensors
        if t.role in roles
    }


def differing_outputs(reference: Plan, parallel: Plan) -> list[str]:
    """Reference outputs that the parallel plan does not compute on some rank that holds the
    parameter; raises StuckError where it cannot run.
    """
    # The tensors are small: threads cost more than they give.
    torch.set_num_threads(1)
    given = given_for(reference)
    first, second = Machine(reference, given), Machine(parallel, given)
    first.run()
    second.run()
    offered = {output.reference: output for output in parallel.outputs}
    return [
        output.tensor
        for output in reference.outputs
        if output.tensor not in offered
        or not _agrees(first, second, output.tensor, offered[output.tensor])
    ]


def _agrees(first: Machine, second: Machine, name: str, output: Any) -> bool:
    tensor = second.tensors[output.tensor]
    held = {key: value for key, value in second.values.items() if key[0] == output.tensor}
    expected = next(value for key, value in first.values.items() if key[0] == name)
    if name == "loss":
        axes = output.lineage.partial if output.lineage else ()
        sums: dict[tuple[tuple[str, int], ...], Any] = defaultdict(float)
        for (_, rank, microbatch), value in held.items():
            place = second.coordinates.at(rank, microbatch)
            sums[tuple((axis, number) for axis, number in place.items() if axis not in axes)] += (
                value
            )
        return bool(sums) and all(
            torch.allclose(total, expected, rtol=1e-9, atol=1e-9) for total in sums.values()
        )
    owner = second.tensors[tensor.gradient_of]
    users = {rank for (used, rank, _) in second.values if used == owner.name}
    if users != {rank for _, rank, _ in held}:
        return False
    return all(
        torch.allclose(
            value,
            part(expected, owner.lineage, second.coordinates, second.coordinates.at(rank, None)),
            rtol=1e-9,
            atol=1e-9,
        )
        for (_, rank, _), value in held.items()
    )
