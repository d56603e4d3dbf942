"""From the calls of one device to operators of the plan.

A tensor id read is what was last written under this id on this device. A segment has ids of its own, bound to those of the call at its borders; its
backward pass reads what the forward call saved, as autograd does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from pitcheck.errors import PlanError
from pitcheck.frontends.nnscaler.accumulation import Accumulation
from pitcheck.frontends.nnscaler.adapters import run_adapter
from pitcheck.frontends.nnscaler.context import Context, Value
from pitcheck.frontends.nnscaler.objects import placed, within
from pitcheck.frontends.nnscaler.program import Adapter, Argument, Call, Compute, Derive
from pitcheck.plan.fold import Instance
from pitcheck.plan.model import Attribute, Number


class Saved(msgspec.Struct, frozen=True, gc=False):
    """A forward operator as it ran."""

    node: Compute
    operands: tuple[Value | Number, ...]
    results: tuple[Value, ...]


@dataclass
class Forward:
    """A forward call: its micro-batch, and what its operators read and wrote."""

    microbatch: int
    saved: dict[int, Saved] = field(default_factory=dict)
    derived: set[int] = field(default_factory=set)
    """Ids of the gradients that its backward pass has computed so far."""


class Derivation(msgspec.Struct, frozen=True, gc=False):
    """What a backward operator is, whatever micro-batch it runs for.

    ``order``: the given gradients in the order of the outputs of the forward operator that they belong to; ``owners``: per result the positions of the operands
    whose gradient it is; ``attributes`` are those of the derivative.
    """

    forward: Compute
    order: tuple[int, ...]
    owners: list[list[int]]
    attributes: dict[str, Attribute]


Operate = Callable[[Compute | Derive, dict[int, Value], Forward], None]


class DeviceLowering:
    """The operators of one device, in order."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.accumulation = Accumulation(context)
        self._environment: dict[int, Value] = {}
        self._forwards: dict[int, Forward] = {}
        self._of_cell: dict[int, list[Forward]] = {}
        self._counts: dict[int, int] = {}
        self._derivations: dict[int, Derivation] = {}

    def run(self, calls: list[Call]) -> list[Instance]:
        """Raises PlanError for what cannot run: a tensor that is read before it is written, a backward pass before its forward pass."""
        for call in calls:
            with within(f"execplan._seq[{self.context.device}]{call.place}"):
                self._call(call)
        self.accumulation.finish()
        self.context.name_loss()
        return self.context.instances

    def _call(self, call: Call) -> None:
        kind = call.cell.kind
        if kind == "reducer":
            self.accumulation.reduce(call.cell)
            return
        microbatch = self._count(call.cell.id)
        if kind == "data":
            self._load(call, microbatch)
        elif kind == "backward":
            self._backward(call, self._forward_of(call, microbatch))
        else:
            self._forward(call, min(microbatch, self.context.microbatches - 1))

    def _count(self, cell: int) -> int:
        number = self._counts.get(cell, 0)
        self._counts[cell] = number + 1
        return number

    # --- calls

    def _load(self, call: Call, microbatch: int) -> None:
        """The n-th call of the data loader gives micro-batch n."""
        outer = [tensor for tensor in call.outputs if tensor is not None]
        for position, (name, tensor) in enumerate(zip(outer, call.cell.tensors, strict=True)):
            self._environment[name] = Value(self.context.shared.input(call.cell.id, position, tensor, self.context.device), microbatch)

    def _forward(self, call: Call, microbatch: int) -> None:
        local = self._bound(call)
        forward = Forward(microbatch)
        self._forwards[call.id] = forward
        self._of_cell.setdefault(call.cell.id, []).append(forward)
        self._run(call, local, forward, self._compute)

    def _forward_of(self, call: Call, number: int) -> Forward:
        """The forward call whose backward pass a call is."""
        found = self._forwards.get(call.mirror) if call.mirror is not None else None
        if found is None and call.cell.mirror is not None:
            earlier = self._of_cell.get(call.cell.mirror, [])
            found = earlier[number] if number < len(earlier) else None
        if found is None:
            raise PlanError("the backward pass runs on this device before its forward pass, or without one")
        return found

    def _backward(self, call: Call, forward: Forward) -> None:
        local = self._bound(call)
        forward.derived.clear()
        for seed in call.cell.seeds:
            local.setdefault(seed.id, Value(self.context.shared.seed(seed), None))
        self._run(call, local, forward, self._derive)

    def _run(self, call: Call, local: dict[int, Value], forward: Forward, operate: Operate) -> None:
        """Run the nodes of a call: operators by ``operate``, adapters as they are."""
        position = 0
        try:
            for position, node in enumerate(call.cell.nodes):  # noqa: B007
                if isinstance(node, Adapter):
                    run_adapter(self.context, node, local, forward.microbatch)
                else:
                    operate(node, local, forward)
        except PlanError as error:
            raise placed(error, f"_nodes[{position}]") from None
        self._export(call, local)

    def _bound(self, call: Call) -> dict[int, Value]:
        """The values that a cell's own ids have at the start of a call."""
        pairs = zip(call.cell.inputs, call.inputs, strict=True)
        return {inner: self._environment[outer] for inner, outer in pairs if inner is not None and outer is not None and outer in self._environment}

    def _export(self, call: Call, local: Mapping[int, Value]) -> None:
        for inner, outer in zip(call.cell.outputs, call.outputs, strict=True):
            if inner is not None and outer is not None and inner in local:
                self._environment[outer] = local[inner]

    # --- operators

    def _compute(self, node: Compute | Derive, local: dict[int, Value], forward: Forward) -> None:
        if isinstance(node, Derive):
            raise PlanError("a backward operator stands in a forward segment")
        context = self.context
        operands = tuple([operand if isinstance(operand, Number) else self._read(operand, local) for operand in node.operands])
        results = tuple([context.write(result.tensor, forward.microbatch) for result in node.results])
        context.emit(node.kind, operands, results, node.attributes, forward.microbatch, source=node.source, module=node.module)
        for result, value in zip(node.results, results, strict=True):
            local[result.tensor.id] = value
        forward.saved[node.id] = Saved(node, operands, results)

    def _read(self, argument: Argument, local: Mapping[int, Value]) -> Value:
        if argument.attribute is not None:
            return self.context.parameter(argument.attribute)
        return self.context.read(argument.id, local)

    def _derive(self, node: Compute | Derive, local: dict[int, Value], forward: Forward) -> None:
        if isinstance(node, Compute):
            raise PlanError("a forward operator stands in a backward segment")
        saved = forward.saved.get(node.mirror)
        if saved is None:
            raise PlanError(f"the forward operator {node.mirror}, whose derivative this is, does not run in the forward segment")
        derivation = self._derivations.get(id(node))
        if derivation is None or derivation.forward is not saved.node:
            derivation = self._derivations[id(node)] = self._new_derivation(node, saved)
        owners = derivation.owners
        given = [self.context.read(number, local) for number in node.given]
        gradients: list[Value | None] = [None] * len(saved.operands)
        for tensor, positions in zip(node.results, owners, strict=True):
            for position in positions:
                operand = saved.operands[position]
                if isinstance(operand, Number):
                    continue
                argument = saved.node.operands[position]
                owner = operand.family.name if isinstance(argument, Argument) and argument.attribute is not None else None
                gradients[position] = self.context.write(tensor, forward.microbatch, like=operand.family, gradient_of=owner)
        if not any(gradients):
            return
        inputs = (*saved.operands, *saved.results, *[given[i] for i in derivation.order])
        attributes = derivation.attributes
        self.context.emit(f"{saved.node.kind}.backward", inputs, gradients, attributes, forward.microbatch, source=saved.node.source, module=saved.node.module)
        self._store(node, owners, gradients, local, forward)

    def _new_derivation(self, node: Derive, saved: Saved) -> Derivation:
        places = self._given(node, saved)
        attributes: dict[str, Attribute] = {
            **saved.node.attributes,
            "forward_inputs": len(saved.operands),
            "forward_outputs": len(saved.results),
            "gradients": tuple(sorted(places)),
        }
        return Derivation(saved.node, tuple(sorted(range(len(places)), key=places.__getitem__)), self._positions(node, saved), attributes)

    def _given(self, node: Derive, saved: Saved) -> list[int]:
        """Which output of the forward operator every given gradient belongs to."""
        places = {result.gradient: position for position, result in enumerate(saved.node.results) if result.gradient is not None}
        found = [places.get(number) for number in node.given]
        if any(place is None for place in found):
            if len(node.given) != len(saved.results):
                raise PlanError(f"the gradients {list(node.given)} are none of the outputs of the forward operator {node.mirror}")
            return list(range(len(node.given)))
        known = [place for place in found if place is not None]
        if len(set(known)) != len(known):
            raise PlanError("an output of the forward operator gets two gradients")
        return known

    def _positions(self, node: Derive, saved: Saved) -> list[list[int]]:
        """Which operands of the forward operator every resulting gradient belongs to."""
        arguments = [(position, operand) for position, operand in enumerate(saved.node.operands) if isinstance(operand, Argument)]
        found = [[position for position, operand in arguments if operand.gradient == tensor.id] for tensor in node.results]
        if all(found):
            return found
        trainable = [position for position, operand in arguments if operand.gradient is not None]
        if len(trainable) != len(node.results):
            raise PlanError(f"{len(node.results)} gradients result for {len(trainable)} operands of the forward operator {node.mirror} that have one")
        return [[position] for position in trainable]

    def _store(self, node: Derive, owners: list[list[int]], gradients: list[Value | None], local: dict[int, Value], forward: Forward) -> None:
        """Gradients become what later operators read; those of parameters are collected. A tensor that was read more than once gets the sum."""
        for tensor, positions in zip(node.results, owners, strict=True):
            values = [value for position in positions if (value := gradients[position]) is not None]
            if not values:
                continue
            if tensor.id in forward.derived and tensor.id in local and values[0].family.gradient_of is None:
                values.insert(0, local[tensor.id])
            forward.derived.add(tensor.id)
            total = values[0]
            for more in values[1:]:
                summed = self.context.write(tensor, forward.microbatch, like=total.family, gradient_of=total.family.gradient_of)
                self.context.emit("add", (total, more), (summed,), {}, forward.microbatch, module="autograd")
                total = summed
            local[tensor.id] = total
            owner = total.family.gradient_of
            if owner is not None:
                self.accumulation.add(owner, total, forward.microbatch)


def microbatches_of(programs: Mapping[int, list[Call]]) -> int:
    """The number of micro-batches: how often a device runs one forward segment, or loads data, at most."""
    most = 1
    for calls in programs.values():
        counts: dict[int, int] = {}
        for call in calls:
            if call.cell.kind in ("forward", "data"):
                counts[call.cell.id] = counts.get(call.cell.id, 0) + 1
        most = max(most, *counts.values(), 1)
    return most
