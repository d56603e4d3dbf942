"""Running the primitives of an adapter on one device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pitcheck.base.dtypes import DType
from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.nnscaler.autograd_tape import Communicated, Customized, Forward
from pitcheck.frontends.nnscaler.context import FLOATS, Context, Value
from pitcheck.frontends.nnscaler.execution_plan import Adapter, Primitive
from pitcheck.frontends.nnscaler.objects import SLICE, dtype_of, placed, shown
from pitcheck.frontends.nnscaler.primitives import (
    Step,
    check_call,
    contradiction,
    denied_by_tensors,
    devices_of,
    forward_step,
    integer_of,
    is_differentiable,
    keyword,
)
from pitcheck.frontends.nnscaler.tensors import SubTensor
from pitcheck.plan.model import Attribute, Number


def run_adapter(
    context: Context, adapter: Adapter, local: dict[int, Value], forward: Forward, *, alone: bool
) -> None:
    """Append the operators that an adapter runs.

    ``local`` are the values by id, to which its outputs are added. Autograd watches an adapter
    inside a segment, which goes onto the tape of ``forward``. It does not watch one that stands
    ``alone``.

    Raises PlanError for a primitive whose class contradicts its signature, or whose keywords or
    tensors do not fit; UnsupportedError for an unknown one.
    """
    if adapter.backward is None:
        run_primitives(context, adapter, local, forward.microbatch, None if alone else forward)
        return
    operands = tuple([context.read(number, local) for number in adapter.inputs])
    run_primitives(context, adapter, local, forward.microbatch)
    tracked = any(operand.tracked for operand in operands)
    results = tuple(
        [
            msgspec.structs.replace(
                context.read(tensor.id, local), tracked=tracked and tensor.dtype in FLOATS
            )
            for tensor in adapter.outputs
        ]
    )
    local.update({tensor.id: value for tensor, value in zip(adapter.outputs, results, strict=True)})
    if tracked:
        forward.entries.append(Customized(adapter, operands, results))


def run_primitives(
    context: Context,
    adapter: Adapter,
    local: dict[int, Value],
    microbatch: int,
    forward: Forward | None = None,
) -> None:
    """Append the operators that the primitives of an adapter run, in order.

    Primitives with a backward half go onto the tape of ``forward``, if it is given.
    """
    runner = _Runner(context, local, microbatch)
    for number, primitive in enumerate(adapter.primitives):
        try:
            check_class(
                context,
                primitive,
                watched=any(_is_tracked(local, name) for name in primitive.inputs),
            )
            check_call(primitive)
            if forward is None:
                runner.run(primitive)
            else:
                _taped(runner, adapter, number, forward)
        except PlanError as error:
            raise placed(error, f"_prims[{number}]") from None


def check_class(context: Context, primitive: Primitive, *, watched: bool) -> None:
    """Raise PlanError if the class of a primitive contradicts its signature, which is what runs.

    One kind of contradiction is noted and let pass: the primitive returns the very tensor that it
    takes, as its signature says, and no gradient ever comes back through it.
    """
    said = contradiction(primitive)
    if not said:
        return
    if watched or not denied_by_tensors(primitive):
        raise PlanError(
            f"{said}: the plan contradicts itself; write the primitive that is meant", ".signature"
        )
    context.shared.disregarded[f"{said}, which is what runs"] = None


def _is_tracked(local: Mapping[int, Value], number: int) -> bool:
    value = local.get(number)
    return value is not None and value.tracked


def _taped(runner: _Runner, adapter: Adapter, number: int, forward: Forward) -> None:
    """Run a primitive inside a segment.

    Gradients flow through functions with a backward half, and through a primitive that returns its
    input.
    """
    primitive = adapter.primitives[number]
    if not is_differentiable(primitive):
        runner.run(primitive)
        return
    operand = runner.context.read(_only_input(primitive), runner.local)
    runner.run(primitive)
    tensor = _only_output(primitive)
    result = msgspec.structs.replace(
        runner.context.read(tensor.id, runner.local), tracked=operand.tracked
    )
    runner.local[tensor.id] = result
    if operand.tracked:
        forward.entries.append(Communicated(adapter, primitive, operand, (result,)))


class _Runner:
    """The primitives of an adapter as one device runs them for a micro-batch.

    ``local`` are the values by id.
    """

    def __init__(self, context: Context, local: dict[int, Value], microbatch: int) -> None:
        self.context = context
        self.local = local
        self.microbatch = microbatch

    def run(self, primitive: Primitive) -> None:
        """Run the forward half of one primitive.

        Raises UnsupportedError for a function without a meaning.
        """
        special = {
            "identity": self._same,
            "move": self._move,
            "vmerge": self._sum,
            "smerge": self._merge,
            "select": self._select,
            "rdscatter": self._scatter,
            "rdgather": self._gather,
        }.get(primitive.function)
        if special is not None:
            special(primitive)
            return
        step = forward_step(primitive, self.context.device)
        if step is None:
            raise UnsupportedError(f"{primitive.function[:100]} has no meaning here")
        self._step(primitive, step)

    def _step(self, primitive: Primitive, step: Step) -> None:
        receives = step.kind == "broadcast" and not primitive.inputs
        value = (
            self._nothing(primitive)
            if receives
            else self.context.read(_only_input(primitive), self.local)
        )
        # Only the root of a reduce has a result.
        has_result = step.kind != "reduce" or bool(primitive.outputs)
        results = [self._write(_only_output(primitive))] if has_result else []
        operands: tuple[Value | Number, ...] = (value, *step.numbers)
        self._emit(primitive, step.kind, operands, results, step.attributes, step.group)

    def _nothing(self, primitive: Primitive) -> Value:
        """Return the operand of a member that only receives a broadcast.

        It is zeros, which nobody reads.
        """
        shape, dtype = self._buffer(primitive, _only_output(primitive))
        return Value(self.context.shared.zero(shape, dtype), None)

    def _buffer(
        self, primitive: Primitive, tensor: SubTensor, said: tuple[int, ...] | None = None
    ) -> tuple[tuple[int, ...], DType]:
        """Return the shape and dtype of the buffer into which a primitive receives a tensor.

        The buffer of a tensor without dimensions has one element. The keyword must say the shape
        ``said``, by default that of the tensor.

        Raises PlanError if the file gives the tensor another shape or dtype than its buffer.
        """
        shape = keyword(primitive, "shape")
        if not isinstance(shape, tuple) or any(type(size) is not int or size < 0 for size in shape):
            raise PlanError(f"{primitive.name} needs a shape, not {shown(shape)}", ".kwargs.shape")
        dtype = dtype_of(keyword(primitive, "dtype"), primitive.name)
        if dtype != tensor.dtype:
            raise PlanError(
                f"{primitive.name} receives {tensor.name!r}, which is {tensor.dtype}, into a "
                f"buffer of {dtype}",
                ".kwargs.dtype",
            )
        if shape != (tensor.shape if said is None else said):
            raise PlanError(
                f"{primitive.name} receives {tensor.name!r} of shape {tensor.shape} into a buffer "
                f"of shape {shape}",
                ".kwargs.shape",
            )
        return self.context.shared.shape_of(tensor), dtype

    def _emit(
        self,
        primitive: Primitive,
        kind: str,
        inputs: Sequence[Value | Number],
        outputs: Sequence[Value],
        attributes: Mapping[str, Attribute],
        devices: tuple[int, ...] | None = None,
    ) -> None:
        """Append an operator of a primitive, over a group of ``devices`` if there are some."""
        self.context.emit(
            kind,
            inputs,
            outputs,
            attributes,
            self.microbatch,
            group=self.context.group(devices),
            module=primitive.name,
        )

    def _write(self, tensor: SubTensor) -> Value:
        value = self.local[tensor.id] = self.context.write(tensor, self.microbatch)
        return value

    def _same(self, primitive: Primitive) -> None:
        """Run the identity: its output is its input, which autograd goes on watching."""
        self.local[_only_output(primitive).id] = self.context.read(
            _only_input(primitive), self.local
        )

    def _kept(self, primitive: Primitive, value: Value) -> None:
        """Give a sender back what it has sent, as nnScaler's functions do."""
        for tensor in primitive.outputs:
            self.local[tensor.id] = value

    # --- between two devices

    def _move(self, primitive: Primitive) -> None:
        source, target = integer_of(primitive, "src"), integer_of(primitive, "dst")
        if self.context.device == source:
            value = self.context.read(_only_input(primitive), self.local)
            self._send(primitive, value, target)
            self._kept(primitive, value)
        elif self.context.device == target:
            tensor = _only_output(primitive)
            self._buffer(primitive, tensor)
            self._receive(primitive, source, self._write(tensor))
        else:
            raise PlanError(
                f"{primitive.name} from device {source} to device {target} runs on device "
                f"{self.context.device}",
                ".kwargs",
            )

    def _send(self, primitive: Primitive, value: Value, target: int) -> None:
        self._check_device(target)
        self._emit(primitive, "send", (value,), (), {"peer": target})

    def _receive(self, primitive: Primitive, source: int, value: Value) -> None:
        self._check_device(source)
        self._emit(primitive, "receive", (), (value,), {"peer": source})

    def _check_device(self, device: int) -> None:
        if not 0 <= device < self.context.layout.devices:
            raise PlanError(
                f"device {device} is not among the {self.context.layout.devices} of the plan",
                ".kwargs",
            )

    def _scatter(self, primitive: Primitive) -> None:
        """Send every target its part, or receive it."""
        source, targets, axis = (
            integer_of(primitive, "src"),
            _in_order(primitive, "dsts"),
            integer_of(primitive, "dim"),
        )
        if self.context.device != source:
            self._check_member(primitive, targets)
            tensor = _only_output(primitive)
            whole = list(tensor.shape)
            if not -len(whole) <= axis < len(whole):
                raise PlanError(
                    f"{primitive.name} cuts dimension {axis} of a tensor of shape {tensor.shape}",
                    ".kwargs.dim",
                )
            whole[axis] *= len(targets)
            self._buffer(primitive, tensor, tuple(whole))
            self._receive(primitive, source, self._write(tensor))
            return
        value = self.context.read(_only_input(primitive), self.local)
        shape = _divided(value.family.shape, axis, len(targets), "cut into")
        for position, target in enumerate(targets):
            part = self._temporary(value, shape)
            chunk = {"axis": axis, "count": len(targets), "position": position}
            self._emit(primitive, "chunk", (value,), (part,), chunk)
            self._send(primitive, part, target)
        self._kept(primitive, value)

    def _gather(self, primitive: Primitive) -> None:
        """Receive every source's part, in the order of the sources, and join them; or send it."""
        sources, target, axis = (
            _in_order(primitive, "srcs"),
            integer_of(primitive, "dst"),
            integer_of(primitive, "dim"),
        )
        if self.context.device != target:
            self._check_member(primitive, sources)
            value = self.context.read(_only_input(primitive), self.local)
            self._send(primitive, value, target)
            self._kept(primitive, value)
            return
        tensor = _only_output(primitive)
        whole = self.context.shared.shape_of(tensor)
        shape = _divided(whole, axis, len(sources), "joined from")
        self._buffer(primitive, tensor, shape)
        parts = [self.context.write(tensor, self.microbatch, shape=shape) for _ in sources]
        for source, part in zip(sources, parts, strict=True):
            self._receive(primitive, source, part)
        self._emit(primitive, "cat", parts, (self._write(tensor),), {"axis": axis})

    def _check_member(self, primitive: Primitive, devices: tuple[int, ...]) -> None:
        if self.context.device not in devices:
            raise PlanError(
                f"{primitive.name} between other devices than {self.context.device} runs on it",
                ".kwargs",
            )

    def _temporary(self, like: Value, shape: tuple[int, ...]) -> Value:
        return self.context.write_unnamed(
            f"{like.family.name}.part", like.family, self.microbatch, shape=shape
        )

    # --- on one device

    def _sum(self, primitive: Primitive) -> None:
        values = [self.context.read(number, self.local) for number in primitive.inputs]
        if len(values) < 2:
            raise PlanError(f"{primitive.name} adds {len(values)} tensors")
        total = values[0]
        for value in values[1:]:
            result = self._write(_only_output(primitive))
            self._emit(primitive, "add", (total, value), (result,), {})
            total = result

    def _select(self, primitive: Primitive) -> None:
        """Take a box of a tensor, and a term of it: the box divided by the number of terms."""
        box, terms = keyword(primitive, "indmap"), integer_of(primitive, "valmap")
        value, tensor = (
            self.context.read(_only_input(primitive), self.local),
            _only_output(primitive),
        )
        shape = list(value.family.shape)
        if not isinstance(box, tuple) or len(box) != len(shape) or terms < 1:
            raise PlanError(
                f"{primitive.name} takes the box {box} of a tensor of shape {value.family.shape}, "
                f"and one of {terms} terms",
                ".kwargs",
            )
        steps: list[tuple[str, dict[str, Attribute], tuple[Number, ...], tuple[int, ...]]] = []
        for axis, (entry, size) in enumerate(zip(box, tuple(shape), strict=True)):
            start, stop = _bounds(primitive, entry, size)
            if (start, stop) != (0, size):
                shape[axis] = stop - start
                steps.append(
                    ("slice", {"axis": axis, "start": start, "stop": stop}, (), tuple(shape))
                )
        if terms != 1:
            steps.append(("div", {}, (Number(terms),), tuple(shape)))
        if not steps:
            steps.append(("identity", {}, (), tuple(shape)))
        for number, (kind, attributes, numbers, sizes) in enumerate(steps, 1):
            result = self._temporary(value, sizes) if number < len(steps) else self._write(tensor)
            self._emit(primitive, kind, (value, *numbers), (result,), attributes)
            value = result

    def _merge(self, primitive: Primitive) -> None:
        values = [self.context.read(number, self.local) for number in primitive.inputs]
        result = self._write(_only_output(primitive))
        self._emit(primitive, "cat", values, (result,), {"axis": integer_of(primitive, "dim")})


def _divided(shape: tuple[int, ...], axis: int, count: int, what: str) -> tuple[int, ...]:
    """Return a shape with dimension ``axis`` divided by ``count``.

    Raises PlanError if that cannot be done; ``what`` says there what is done to the tensor.
    """
    if not -len(shape) <= axis < len(shape) or shape[axis] % count:
        raise PlanError(
            f"a tensor of shape {shape} cannot be {what} {count} along dimension {axis}",
            ".kwargs.dim",
        )
    sizes = list(shape)
    sizes[axis] //= count
    return tuple(sizes)


def _only_input(primitive: Primitive) -> int:
    if len(primitive.inputs) != 1:
        raise PlanError(f"{primitive.name} has {len(primitive.inputs)} inputs; it must have one")
    return primitive.inputs[0]


def _only_output(primitive: Primitive) -> SubTensor:
    if len(primitive.outputs) != 1:
        raise PlanError(f"{primitive.name} has {len(primitive.outputs)} outputs; it must have one")
    return primitive.outputs[0]


def _in_order(primitive: Primitive, name: str) -> tuple[int, ...]:
    """Return the devices of a point-to-point primitive, in the order of their parts."""
    devices_of(primitive, name)
    value: tuple[int, ...] = keyword(primitive, name)
    return value


def _bounds(primitive: Primitive, entry: object, size: int) -> tuple[int, int]:
    """Return start and stop of a slice of a dimension of ``size``.

    Raises PlanError for anything else than a slice of step 1 within the dimension.
    """
    if isinstance(entry, tuple) and len(entry) == 4 and entry[0] == SLICE and entry[3] is None:
        start, stop = entry[1], entry[2]
        if type(start) is int and type(stop) is int and 0 <= start <= stop <= size:
            return start, stop
    raise PlanError(
        f"{primitive.name} takes {shown(entry)}, which is no part of a dimension of size {size}",
        ".kwargs.indmap",
    )
