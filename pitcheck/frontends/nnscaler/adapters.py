"""Running the primitives of an adapter on one device."""

from __future__ import annotations

from math import prod

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.nnscaler.context import Context, Value
from pitcheck.frontends.nnscaler.objects import dtype_of, placed, shown
from pitcheck.frontends.nnscaler.primitives import Step, backward_step, contradiction, device_of, devices_of, forward_step, is_step, keyword
from pitcheck.frontends.nnscaler.program import Adapter, Primitive
from pitcheck.frontends.nnscaler.tensors import SubTensor
from pitcheck.plan.model import Number


def run_adapter(context: Context, adapter: Adapter, local: dict[int, Value], microbatch: int) -> None:
    """Append what an adapter runs; ``local`` are the values by id, to which its outputs are added.

    Raises PlanError for a primitive whose keywords or tensors do not fit, UnsupportedError for one that is not known.
    """
    for primitive in adapter.primitives:
        if said := contradiction(primitive):
            context.shared.contradictions[said] = None
    runner = _Runner(context, local, microbatch)
    if adapter.mirrored:
        runner.backward(adapter)
        return
    for number, primitive in enumerate(adapter.primitives):
        try:
            runner.forward(primitive)
        except PlanError as error:
            raise placed(error, f"_prims[{number}]") from None


class _Runner:
    def __init__(self, context: Context, local: dict[int, Value], microbatch: int) -> None:
        self.context = context
        self.local = local
        self.microbatch = microbatch

    def backward(self, adapter: Adapter) -> None:
        """The backward halves of the forward primitives, last first."""
        if len(adapter.inputs) != 1 or len(adapter.outputs) != 1:
            raise UnsupportedError(f"a backward adapter has {len(adapter.inputs)} inputs and {len(adapter.outputs)} outputs; one of each is read")
        value = self.context.read(adapter.inputs[0], self.local)
        for number in reversed(range(len(adapter.primitives))):
            try:
                value = self._step_back(adapter, number, value)
            except PlanError as error:
                raise placed(error, f"_prims[{number}]") from None
        self.local[adapter.outputs[0].id] = value

    def _step_back(self, adapter: Adapter, number: int, value: Value) -> Value:
        """The backward half of one primitive: its gradient has the shape of what the primitive before gave."""
        primitive = adapter.primitives[number]
        tensor = _only_output(adapter.primitives[number - 1]) if number else adapter.outputs[0]
        result = self.context.write(adapter.outputs[0], self.microbatch, shape=self.context.shared.shape_of(tensor))
        self._emit(primitive, backward_step(primitive, self.context.device), value, result)
        return result

    def forward(self, primitive: Primitive) -> None:
        """One primitive as it stands."""
        special = {
            "MovePrim": self._move,
            "SumPrim": self._sum,
            "MergeDimPrim": self._merge,
            "RDScatterPrim": self._scatter,
            "RDGatherPrim": self._gather,
        }.get(primitive.name)
        if special is not None:
            special(primitive)
        elif is_step(primitive):
            self._step(primitive)
        else:
            raise UnsupportedError(f"the primitive {primitive.name[:60]} has no meaning here")

    def _step(self, primitive: Primitive) -> None:
        step = forward_step(primitive, self.context.device)
        receives = step.kind == "broadcast" and not primitive.inputs
        value = self._nothing(primitive) if receives else self.context.read(_only_input(primitive), self.local)
        if step.kind == "reduce" and not primitive.outputs:
            self._emit(primitive, step, value, None)
            return
        self._emit(primitive, step, value, self._write(_only_output(primitive)))

    def _nothing(self, primitive: Primitive) -> Value:
        """What a member that only receives gives to a broadcast: zeros, which nobody reads."""
        shape = keyword(primitive, "shape")
        if not isinstance(shape, tuple) or any(type(size) is not int or size < 0 for size in shape):
            raise PlanError(f"{primitive.name} needs a shape, not {shown(shape)}", ".kwargs.shape")
        return Value(self.context.shared.zero(shape, dtype_of(keyword(primitive, "dtype"), primitive.name)), None)

    def _emit(self, primitive: Primitive, step: Step, value: Value, result: Value | None) -> None:
        group = self.context.layout.group(self.context.device, step.group) if step.group is not None else None
        outputs = () if result is None else (result,)
        self.context.emit(step.kind, (value, *step.numbers), outputs, step.attributes, self.microbatch, group=group, module=primitive.name)

    def _write(self, tensor: SubTensor) -> Value:
        value = self.local[tensor.id] = self.context.write(tensor, self.microbatch)
        return value

    # --- between two devices

    def _move(self, primitive: Primitive) -> None:
        source, target = device_of(primitive, "src"), device_of(primitive, "dst")
        if self.context.device == source:
            self._send(primitive, self.context.read(_only_input(primitive), self.local), target)
        elif self.context.device == target:
            tensor = _only_output(primitive)
            shape = keyword(primitive, "shape")
            if not isinstance(shape, tuple) or any(type(size) is not int for size in shape) or prod(shape) != prod(tensor.shape):
                raise PlanError(f"{primitive.name} receives {tensor.name!r} of shape {tensor.shape} into a buffer of shape {shape}", ".kwargs.shape")
            self._receive(primitive, source, self._write(tensor))
        else:
            raise PlanError(f"{primitive.name} from device {source} to device {target} runs on device {self.context.device}", ".kwargs")

    def _send(self, primitive: Primitive, value: Value, target: int) -> None:
        self._check_device(target)
        self.context.emit("send", (value,), (), {"peer": target}, self.microbatch, module=primitive.name)

    def _receive(self, primitive: Primitive, source: int, value: Value) -> None:
        self._check_device(source)
        self.context.emit("receive", (), (value,), {"peer": source}, self.microbatch, module=primitive.name)

    def _check_device(self, device: int) -> None:
        if not 0 <= device < self.context.layout.devices:
            raise PlanError(f"device {device} is not among the {self.context.layout.devices} of the plan", ".kwargs")

    def _scatter(self, primitive: Primitive) -> None:
        """The source sends every target its part."""
        source, targets, axis = device_of(primitive, "src"), _in_order(primitive, "dsts"), device_of(primitive, "dim")
        if self.context.device != source:
            self._receive(primitive, source, self._write(_only_output(primitive)))
            return
        value = self.context.read(_only_input(primitive), self.local)
        shape = list(value.family.shape)
        if not -len(shape) <= axis < len(shape) or shape[axis] % len(targets):
            raise PlanError(f"a tensor of shape {value.family.shape} cannot be cut into {len(targets)} along dimension {axis}", ".kwargs.dim")
        shape[axis] //= len(targets)
        for position, target in enumerate(targets):
            part = self._temporary(value, tuple(shape))
            self.context.emit("chunk", (value,), (part,), {"axis": axis, "count": len(targets), "position": position}, self.microbatch, module=primitive.name)
            self._send(primitive, part, target)

    def _gather(self, primitive: Primitive) -> None:
        """The target receives every source's part, in the order of the sources, and joins them."""
        sources, target, axis = _in_order(primitive, "srcs"), device_of(primitive, "dst"), device_of(primitive, "dim")
        if self.context.device != target:
            self._send(primitive, self.context.read(_only_input(primitive), self.local), target)
            return
        tensor = _only_output(primitive)
        shape = list(self.context.shared.shape_of(tensor))
        if not -len(shape) <= axis < len(shape) or shape[axis] % len(sources):
            raise PlanError(f"a tensor of shape {tensor.shape} cannot be joined from {len(sources)} along dimension {axis}", ".kwargs.dim")
        shape[axis] //= len(sources)
        parts = [self.context.write(tensor, self.microbatch, shape=tuple(shape)) for _ in sources]
        for source, part in zip(sources, parts, strict=True):
            self._receive(primitive, source, part)
        self.context.emit("cat", parts, (self._write(tensor),), {"axis": axis}, self.microbatch, module=primitive.name)

    def _temporary(self, like: Value, shape: tuple[int, ...]) -> Value:
        return self.context.write(like.family.parts[self.context.device], self.microbatch, shape=shape)

    # --- on one device

    def _sum(self, primitive: Primitive) -> None:
        values = [self.context.read(number, self.local) for number in primitive.inputs]
        if len(values) < 2:
            raise PlanError(f"{primitive.name} adds {len(values)} tensors")
        total = values[0]
        for value in values[1:]:
            result = self._write(_only_output(primitive))
            self.context.emit("add", (total, value), (result,), {}, self.microbatch, module=primitive.name)
            total = result

    def _merge(self, primitive: Primitive) -> None:
        values: list[Value | Number] = [self.context.read(number, self.local) for number in primitive.inputs]
        self.context.emit("cat", values, (self._write(_only_output(primitive)),), {"axis": device_of(primitive, "dim")}, self.microbatch, module=primitive.name)


def _only_input(primitive: Primitive) -> int:
    if len(primitive.inputs) != 1:
        raise PlanError(f"{primitive.name} has {len(primitive.inputs)} inputs; it must have one")
    return primitive.inputs[0]


def _only_output(primitive: Primitive) -> SubTensor:
    if len(primitive.outputs) != 1:
        raise PlanError(f"{primitive.name} has {len(primitive.outputs)} outputs; it must have one")
    return primitive.outputs[0]


def _in_order(primitive: Primitive, name: str) -> tuple[int, ...]:
    """Devices of point-to-point primitives, whose order is that of the parts."""
    devices_of(primitive, name)
    value: tuple[int, ...] = keyword(primitive, name)
    return value
