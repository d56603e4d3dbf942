"""Execution of a plan rank by rank in program order: a rank runs until it waits for another."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from pitcheck.execution.meanings import backward, forward, reduced
from pitcheck.execution.places import (
    Coordinate,
    DeadlockError,
    ExecutionError,
    attributes_at,
    group_of,
    number,
    program_of,
    rank_coordinates,
    repeated,
    tensor_name,
)
from pitcheck.execution.unwritten_memory import UNINITIALISED, unwritten
from pitcheck.plan.model import Group, Number, Operand, Operator, Plan, Use

Array = np.ndarray[Any, Any]
WORD = 2.0**63
"""The size from which an integer does not fit 64 bits."""
Instance = tuple[str, int, int]
"""(tensor, rank, micro-batch); micro-batch 0 for tensors that exist once."""


def execute(
    plan: Plan,
    initial: dict[Instance, Array],
    memory: int = 0,
    rounding: np.random.Generator | None = None,
) -> dict[Instance, Array]:
    """Return all values of the plan.

    Memory that nobody has written to is filled from seed ``memory``. With ``rounding`` every
    floating-point result is moved by its last digit, up or down at random. Raises ExecutionError
    for a plan that cannot run, DeadlockError if all ranks wait.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are tiny
    try:
        run = _Run(plan, initial, memory, rounding)
        run.all()
    finally:
        torch.set_num_threads(threads)
    return {key: value.numpy() for key, value in run.values.items()}


LAST_DIGIT = 2.0**-52
"""The last digit of 1 in float64."""


class _Run:
    def __init__(
        self,
        plan: Plan,
        initial: dict[Instance, Array],
        memory: int,
        rounding: np.random.Generator | None,
    ) -> None:
        self.plan = plan
        self.rounding = rounding
        self.memory = memory
        self.tensors = {tensor.name: tensor for tensor in plan.tensors}
        self.coordinates = rank_coordinates(plan)
        self.repeated = repeated(plan)
        self.values = {key: torch.from_numpy(np.array(value)) for key, value in initial.items()}
        self.programs = [deque(program_of(plan, rank)) for rank in range(len(self.coordinates))]
        self.waiting: dict[int, tuple[int, ...]] = {}
        self.mail: dict[tuple[int, int, Any], deque[torch.Tensor]] = defaultdict(deque)
        self.groups: dict[tuple[int, Any], tuple[int, ...]] = {}

    def all(self) -> None:
        """Run all ranks to their ends; raise DeadlockError if none can go on."""
        while any(self.programs):
            moved = [self._advance(rank) for rank in range(len(self.programs))]
            if not any(moved):
                raise DeadlockError(
                    f"ranks {[r for r, p in enumerate(self.programs) if p]} wait for ever"
                )

    def _advance(self, rank: int) -> bool:
        """Run a rank until it waits; return True if it did anything."""
        moved = False
        while self.programs[rank] and rank not in self.waiting:
            operator, microbatch = self.programs[rank][0]
            if operator.group is not None:
                self.waiting[rank] = self._group(operator.group, rank)
                return self._meet(self.waiting[rank]) or moved
            if not self._alone(operator, rank, microbatch):
                return moved
            self.programs[rank].popleft()
            moved = True
        return moved

    def _group(self, group: Group, rank: int) -> tuple[int, ...]:
        key = (rank, group)
        if key not in self.groups:
            self.groups[key] = group_of(self.plan, group, rank)
        return self.groups[key]

    def _alone(self, operator: Operator, rank: int, microbatch: int) -> bool:
        """Run an operator that meets nobody; return False if it waits for a message."""
        attributes = attributes_at(self.plan, operator, self.coordinates[rank], microbatch)
        if operator.kind == "receive":
            box = self.mail[(int(attributes["peer"]), rank, attributes.get("tag"))]
            if not box:
                return False
            self._write(operator, rank, microbatch, [box.popleft()])
            return True
        if operator.kind == "accumulate":
            self._accumulate(operator, rank, attributes)
            return True
        if operator.kind == UNINITIALISED:
            found = unwritten(
                attributes, (self.memory, self.plan.operators.index(operator), rank, microbatch)
            )
            self._write(operator, rank, microbatch, [found])
            return True
        inputs = [self._read(operator, operand, rank, microbatch) for operand in operator.inputs]
        inputs = _with_whole_literals(operator, inputs)
        if operator.kind == "send":
            self._send(operator, rank, attributes, inputs[0])
        elif operator.outputs or operator.kind != "wait":
            # Nothing waits for a send: a message is a copy here, and sent as soon as it is in the
            # mail.
            self._compute(operator, rank, microbatch, attributes, inputs)
        return True

    def _send(
        self, operator: Operator, rank: int, attributes: dict[str, Any], value: torch.Tensor
    ) -> None:
        peer = int(attributes["peer"])
        if not 0 <= peer < len(self.coordinates):
            raise ExecutionError(f"{operator.id}: rank {peer} does not exist")
        self.mail[(rank, peer, attributes.get("tag"))].append(value)

    def _compute(
        self,
        operator: Operator,
        rank: int,
        microbatch: int,
        attributes: dict[str, Any],
        inputs: list[torch.Tensor],
    ) -> None:
        wanted = [bool(name) for name in operator.outputs]
        try:
            if operator.kind.endswith(".backward"):
                results = backward(
                    operator.kind.removesuffix(".backward"), inputs, attributes, wanted
                )
            else:
                results = forward(operator.kind, inputs, attributes)
        except (RuntimeError, IndexError, ValueError) as error:
            raise ExecutionError(f"{operator.id}: {error}") from error
        self._write(operator, rank, microbatch, results)

    def _accumulate(self, operator: Operator, rank: int, attributes: dict[str, Any]) -> None:
        operand = operator.inputs[0]
        chosen = attributes.get("microbatches") or range(self.plan.microbatches)
        if not isinstance(operand, str):
            raise ExecutionError(
                f"{operator.id}: accumulate sums the micro-batches of a tensor, not {operand}"
            )
        total = torch.zeros(self.tensors[operand].shape, dtype=torch.float64)
        for m in chosen:
            total = total + self._value(operator, operand, rank, m)
        self._write(operator, rank, 0, [total])

    def _read(
        self, operator: Operator, operand: Operand, rank: int, microbatch: int
    ) -> torch.Tensor:
        if isinstance(operand, Number):
            return torch.tensor(number(operand.value), dtype=torch.float64)
        if isinstance(operand, Use):
            return self._value(operator, operand.tensor, rank, operand.microbatch)
        microbatched = self.tensors[operand].microbatched
        if microbatched and operator.id not in self.repeated and self.plan.microbatches > 1:
            raise ExecutionError(
                f"{operator.id}: runs once but reads {operand}, which exists per micro-batch"
            )
        return self._value(operator, operand, rank, microbatch if microbatched else 0)

    def _value(self, operator: Operator, name: str, rank: int, microbatch: int) -> torch.Tensor:
        found = self.values.get((name, rank, microbatch))
        if found is None:
            raise ExecutionError(
                f"{operator.id}: rank {rank} reads {name} (micro-batch {microbatch}) before it is "
                f"written"
            )
        return found

    def _write(
        self, operator: Operator, rank: int, microbatch: int, results: list[torch.Tensor | None]
    ) -> None:
        if len(results) != len(operator.outputs):
            raise ExecutionError(
                f"{operator.id}: {len(operator.outputs)} outputs are named, {len(results)} computed"
            )
        for name, result in zip(operator.outputs, results, strict=True):
            if not name:
                continue
            if result is None:
                raise ExecutionError(f"{operator.id}: {name} has no gradient")
            tensor = self.tensors[name]
            if tuple(result.shape) != tensor.shape:
                raise ExecutionError(
                    f"{operator.id}: {name} has shape {tuple(result.shape)}, declared "
                    f"{tensor.shape}"
                )
            key = (name, rank, microbatch if tensor.microbatched else 0)
            if key in self.values:
                raise ExecutionError(f"{operator.id}: {key} is written twice")
            self.values[key] = self._rounded(result.detach())

    def _rounded(self, result: torch.Tensor) -> torch.Tensor:
        if self.rounding is None or not result.is_floating_point():
            return result
        digits = self.rounding.integers(-1, 2, tuple(result.shape)) * LAST_DIGIT
        return result * torch.from_numpy(np.asarray(1.0 + digits))

    # --- collectives

    def _meet(self, group: tuple[int, ...]) -> bool:
        """Run the collective that all members of a group have reached.

        Return False if a member has not reached it.
        """
        if any(self.waiting.get(member) != group for member in group):
            return False
        met = [self.programs[member][0] for member in group]
        attributes = [
            attributes_at(self.plan, op, self.coordinates[rank], m)
            for rank, (op, m) in zip(group, met, strict=True)
        ]
        kinds = {
            (op.kind, tuple(sorted((k, v) for k, v in a.items() if k != "position")))
            for (op, _), a in zip(met, attributes, strict=True)
        }
        if len(kinds) > 1:
            raise ExecutionError(
                f"the members of {group} meet in different collectives: {sorted(map(str, kinds))}"
            )
        if met[0][0].kind == "barrier":
            for rank in group:
                self.programs[rank].popleft()
                del self.waiting[rank]
            return True
        inputs = self._brought(group, met, attributes)
        if (
            len(
                {
                    self.tensors[name].shape
                    for op, _ in met
                    for name in map(tensor_name, op.inputs)
                    if name
                }
                | {tuple(i.shape) for i in inputs}
            )
            > 1
        ):
            raise ExecutionError(f"{met[0][0].id}: the members bring different shapes")
        for place, (rank, (operator, microbatch)) in enumerate(zip(group, met, strict=True)):
            try:
                result = collective(operator.kind, inputs, attributes[place], place)
            except (RuntimeError, IndexError, ValueError) as error:
                raise ExecutionError(f"{operator.id}: {error}") from error
            if result is None and any(operator.outputs):
                tensor = self.tensors[operator.outputs[0]]
                seed = (self.memory, self.plan.operators.index(operator), rank, microbatch)
                result = unwritten({"sizes": tensor.shape, "dtype": tensor.dtype}, seed)
            self._write(operator, rank, microbatch, [result])
            self.programs[rank].popleft()
            del self.waiting[rank]
        return True

    def _brought(
        self,
        group: tuple[int, ...],
        met: list[tuple[Operator, int]],
        attributes: list[dict[str, Any]],
    ) -> list[torch.Tensor]:
        """Return what the members bring.

        For collectives that read the root alone, that is what the root brings, in every place.
        """
        members = [(op, op.inputs[0], rank, m) for rank, (op, m) in zip(group, met, strict=True)]
        if met[0][0].kind not in READ_AT_ROOT:
            return [self._read(*member) for member in members]
        root = attributes[0].get("root")
        if not isinstance(root, int) or not 0 <= root < len(group):
            raise ExecutionError(f"root {root} is no place in a group of {len(group)}")
        return [self._read(*members[root])] * len(group)


def collective(
    kind: str, inputs: list[torch.Tensor], attributes: dict[str, Any], place: int
) -> torch.Tensor | None:
    """Return what the member at ``place`` gets; None if only the root gets something.

    Raises ExecutionError for an unknown collective.
    """
    if kind not in COLLECTIVES:
        raise ExecutionError(f"unknown collective {kind}")
    return COLLECTIVES[kind](inputs, attributes, place)


def _all_reduce(inputs: list[torch.Tensor], attributes: dict[str, Any], place: int) -> torch.Tensor:
    return reduced(inputs, attributes.get("reduction", "sum"))


def _all_gather(inputs: list[torch.Tensor], attributes: dict[str, Any], place: int) -> torch.Tensor:
    return torch.cat(inputs, attributes["axis"])


def _scan(inputs: list[torch.Tensor], attributes: dict[str, Any], place: int) -> torch.Tensor:
    met = inputs[place:] if attributes.get("reverse", False) else inputs[: place + 1]
    return reduced(met, attributes.get("reduction", "sum"))


def _reduce_scatter(
    inputs: list[torch.Tensor], attributes: dict[str, Any], place: int
) -> torch.Tensor:
    return _part(_all_reduce(inputs, attributes, place), attributes["axis"], len(inputs), place)


def _all_to_all(inputs: list[torch.Tensor], attributes: dict[str, Any], place: int) -> torch.Tensor:
    return torch.cat(
        [_part(x, attributes["split_axis"], len(inputs), place) for x in inputs],
        attributes["concat_axis"],
    )


def _broadcast(inputs: list[torch.Tensor], attributes: dict[str, Any], place: int) -> torch.Tensor:
    if not 0 <= attributes["root"] < len(inputs):
        raise ExecutionError(f"root {attributes['root']} is no place in a group of {len(inputs)}")
    root: int = attributes["root"]
    return inputs[root]


def _reduce(
    inputs: list[torch.Tensor], attributes: dict[str, Any], place: int
) -> torch.Tensor | None:
    return _all_reduce(inputs, attributes, place) if place == attributes["root"] else None


def _gather_to(
    inputs: list[torch.Tensor], attributes: dict[str, Any], place: int
) -> torch.Tensor | None:
    return _all_gather(inputs, attributes, place) if place == attributes["root"] else None


def _scatter_from(
    inputs: list[torch.Tensor], attributes: dict[str, Any], place: int
) -> torch.Tensor:
    return _part(inputs[attributes["root"]], attributes["axis"], len(inputs), place)


COLLECTIVES: dict[str, Callable[[list[torch.Tensor], dict[str, Any], int], torch.Tensor | None]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "gather_to": _gather_to,
    "scatter_from": _scatter_from,
    "scan": _scan,
}


READ_AT_ROOT = frozenset({"broadcast", "scatter_from"})
"""Collectives that read the operand of their root alone."""


def _part(x: torch.Tensor, axis: int, count: int, place: int) -> torch.Tensor:
    if x.shape[axis] % count:
        raise ExecutionError(f"{x.shape[axis]} elements cannot be cut into {count} equal parts")
    size = x.shape[axis] // count
    return x.narrow(axis, place * size, size)


__all__ = ["Array", "Coordinate", "Instance", "execute"]


def _with_whole_literals(operator: Operator, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return operands with whole literals as integers if no tensor beside them is floating-point.

    So a product of an integer tensor and 2 is an integer, as in a PyTorch program.
    """
    literal = [isinstance(operand, Number) for operand in operator.inputs]
    tensors = [value for value, fixed in zip(inputs, literal, strict=True) if not fixed]
    if not tensors or any(value.is_floating_point() for value in tensors):
        return inputs
    return [
        value.to(torch.int64)
        if fixed and float(value).is_integer() and abs(float(value)) < WORD
        else value
        for value, fixed in zip(inputs, literal, strict=True)
    ]
