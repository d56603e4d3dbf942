"""From the calls of one device to operators of the plan.

A tensor id stands for the value that was last written under it on this device. The ids of a segment
are bound to those of the call at its borders. The backward pass of a segment is autograd of the
forward call, whose saved inputs are taken first in, first out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import msgspec

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.nnscaler.accumulation import Accumulation
from pitcheck.frontends.nnscaler.adapters import check_class, run_adapter
from pitcheck.frontends.nnscaler.autograd import Backward, Names
from pitcheck.frontends.nnscaler.autograd_tape import Computed, Forward
from pitcheck.frontends.nnscaler.context import FLOATS, Context, Value
from pitcheck.frontends.nnscaler.execution_plan import (
    Adapter,
    Argument,
    Call,
    Cell,
    Compute,
    Measure,
    Node,
)
from pitcheck.frontends.nnscaler.families import Family
from pitcheck.frontends.nnscaler.objects import placed, within
from pitcheck.frontends.nnscaler.tensors import SubTensor
from pitcheck.plan.fold import Instance
from pitcheck.plan.model import Attribute, Number


class DeviceLowering:
    """The lowering of one device."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.accumulation = Accumulation(context)
        self._environment: dict[int, Value] = {}
        self._saved: dict[int, deque[Forward]] = {}
        self._counts: dict[int, int] = {}
        self._names: dict[int, Names] = {}
        self._attributes: dict[int, dict[str, Attribute]] = {}

    def run(self, calls: list[Call], returned: tuple[SubTensor, ...] = ()) -> list[Instance]:
        """Return the operators of the device, in order.

        Raises PlanError for calls that cannot run: a tensor that is read before it is written, a
        backward pass before its forward pass.
        """
        for call in calls:
            with within(f"execplan._seq[{self.context.device}]{call.place}"):
                self._call(call)
        self.accumulation.finish()
        self._return(returned)
        self.context.name_loss()
        return self.context.instances

    def _return(self, returned: tuple[SubTensor, ...]) -> None:
        """Take the losses from the tensors that the step returns, one for each micro-batch.

        Raises PlanError for a tensor that nothing has written, and for a second loss of a
        micro-batch.
        """
        losses: dict[int, Family] = {}
        for tensor in returned:
            value = self._environment.get(tensor.id)
            if value is None:
                raise PlanError(
                    f"the step returns {tensor.name!r} (tensor {tensor.id}), but nothing on "
                    f"device {self.context.device} has written it",
                    "_outputs",
                )
            if tensor.loss:
                if value.microbatch is None or value.microbatch in losses:
                    raise PlanError(
                        f"the step returns the loss of micro-batch {value.microbatch} twice on "
                        f"device {self.context.device}",
                        "_outputs",
                    )
                losses[value.microbatch] = value.family
        if losses:
            self.context.returned(losses)

    def _call(self, call: Call) -> None:
        kind = call.cell.kind
        if kind == "reducer":
            self.accumulation.reduce(call.cell)
            return
        if kind == "backward":
            self._backward(call)
            return
        microbatch = self._count(call.cell.id)
        if kind == "data":
            self._load(call, microbatch)
        else:
            self._forward(call, min(microbatch, self.context.microbatches - 1))

    def _count(self, cell: int) -> int:
        number = self._counts.get(cell, 0)
        self._counts[cell] = number + 1
        return number

    # --- calls

    def _load(self, call: Call, microbatch: int) -> None:
        """Load data: the n-th call of the data loader gives micro-batch n."""
        outer = [tensor for tensor in call.outputs if tensor is not None]
        for position, (name, tensor) in enumerate(zip(outer, call.cell.tensors, strict=True)):
            self._environment[name] = Value(
                self.context.shared.input(call.cell.id, position, tensor, self.context.device),
                microbatch,
            )

    def _forward(self, call: Call, microbatch: int) -> None:
        """Run a forward segment, or an adapter between segments.

        The inputs of a segment are cut off from what autograd watched before.
        """
        segment = call.cell.kind == "forward"
        given = [None if name is None else self._environment.get(name) for name in call.inputs]
        fresh = {
            id(value): msgspec.structs.replace(value, tracked=value.tracked and call.tracked)
            for value in given
            if value is not None
        }
        inputs = (
            tuple([None if value is None else fresh[id(value)] for value in given])
            if segment
            else tuple(given)
        )
        local = {
            inner: value
            for inner, value in zip(call.cell.inputs, inputs, strict=True)
            if inner is not None and value is not None
        }
        forward = Forward(microbatch, inputs)
        position = 0
        try:
            for position, node in enumerate(call.cell.nodes):  # noqa: B007
                self._node(node, local, forward, call)
        except PlanError as error:
            raise placed(error, f"_nodes[{position}]") from None
        if segment and call.tracked:
            self._saved.setdefault(call.cell.id, deque()).append(forward)
        for inner, outer in zip(call.cell.outputs, call.outputs, strict=True):
            if inner is not None and outer is not None and inner in local:
                value = local[inner]
                # The next segment begins with the results of an adapter between segments, and
                # autograd watches them.
                tracked = (
                    value.tracked if segment else value.family.dtype in FLOATS
                ) and call.tracked
                value = (
                    value
                    if value.tracked == tracked
                    else msgspec.structs.replace(value, tracked=tracked)
                )
                self._environment[outer] = value
                forward.outputs.append(value)

    def _node(self, node: Node, local: dict[int, Value], forward: Forward, call: Call) -> None:
        if isinstance(node, Adapter):
            run_adapter(self.context, node, local, forward, alone=call.cell.kind != "forward")
        elif isinstance(node, Compute):
            self._compute(node, local, forward, call.tracked)
        elif isinstance(node, Measure):
            self._measure(node, local)
        else:
            raise PlanError("a backward operator stands in a forward segment")

    # --- backward

    def _backward(self, call: Call) -> None:
        """Run a backward segment as nnScaler does.

        That is autograd from the outputs of a forward call; it gives the gradients of the call's
        inputs in their order.
        """
        cell = call.cell
        if cell.mirror is None:
            raise PlanError("the backward pass of no forward pass", "._mirror")
        saved = self._saved.get(cell.mirror)
        if not saved:
            raise PlanError(
                "the backward pass runs on this device before its forward pass, or without one"
            )
        forward = saved.popleft()
        outputs = [
            self.context.read(call.of[tensor.id], self._environment)
            for tensor in call.given
            if tensor.id in call.of
        ]
        given = [
            None if tensor.loss else self.context.read(tensor.id, self._environment)
            for tensor in call.given
        ]
        self._check_order(outputs, forward)
        pairs = zip(outputs, given, strict=False)
        gradients = [
            Value(self.context.shared.seed(output.family), None) if gradient is None else gradient
            for output, gradient in pairs
        ]
        if not outputs:
            return
        results = Backward(
            self.context, self.accumulation, forward, self._names_of(cell), self._attributes
        ).run(outputs, gradients)
        self._take(call, results)

    def _check_order(self, outputs: list[Value], forward: Forward) -> None:
        """Raise PlanError if a backward pass begins at outputs of the wrong forward call.

        The right one is the call whose inputs were saved first.
        """
        for value in outputs:
            if not forward.gives(value) and any(
                other.gives(value) for waiting in self._saved.values() for other in waiting
            ):
                raise PlanError(
                    f"the backward pass begins at {value.family.name!r} of micro-batch "
                    f"{value.microbatch}, but the inputs that were saved first are those of "
                    f"micro-batch {forward.microbatch}; saved inputs are taken first in, first "
                    f"out: run backward passes in the order of the forward passes"
                )

    def _take(self, call: Call, results: list[Value]) -> None:
        """Give gradients the names of the call.

        Raises PlanError if there are more or fewer names than gradients.
        """
        names = [name for name in call.outputs if name is not None]
        for name in names:
            self._environment.pop(name, None)
        if not names or not results:
            return
        if len(names) != len(results):
            raise PlanError(
                f"the backward pass gives {len(results)} gradients, but the file names {len(names)}"
            )
        self._environment.update(zip(names, results, strict=True))

    def _names_of(self, cell: Cell) -> Names:
        known = self._names.get(id(cell))
        if known is None:
            for node in cell.nodes:
                if isinstance(node, Adapter):
                    for primitive in node.primitives:
                        check_class(self.context, primitive, watched=False)
            known = self._names[id(cell)] = Names(cell)
        return known

    # --- operators

    def _compute(
        self, node: Compute, local: dict[int, Value], forward: Forward, watched: bool
    ) -> None:
        context = self.context
        operands = tuple(
            [
                operand if isinstance(operand, Number) else self._read(operand, local)
                for operand in node.operands
            ]
        )
        tracked = watched and any(
            isinstance(operand, Value) and operand.tracked for operand in operands
        )
        results = tuple(
            [
                context.write(result.tensor, forward.microbatch, tracked=tracked)
                for result in node.results
            ]
        )
        context.emit(
            node.kind,
            operands,
            results,
            node.attributes,
            forward.microbatch,
            source=node.source,
            module=node.module,
        )
        for result, value in zip(node.results, results, strict=True):
            local[result.tensor.id] = value
        if tracked:
            forward.entries.append(Computed(node, operands, results))

    def _read(self, argument: Argument, local: Mapping[int, Value]) -> Value:
        if argument.attribute is not None:
            return self.context.parameter(argument.attribute)
        return self.context.read(argument.id, local)

    def _measure(self, node: Measure, local: Mapping[int, Value]) -> None:
        """Raise UnsupportedError if a tensor's shape is not the one in the file.

        The model's code has computed with that shape.
        """
        value = self.context.read(node.id, local)
        if value.family.shape != node.shape:
            raise UnsupportedError(
                f"the code of the model asks for the shape of {value.family.name!r}, which is "
                f"{value.family.shape}; the file says {node.shape}"
            )


def microbatches_of(programs: Mapping[int, list[Call]]) -> int:
    """Return the number of micro-batches.

    It is the greatest number of times that a device runs one forward segment or loads data.
    """
    most = 1
    for calls in programs.values():
        counts: dict[int, int] = {}
        for call in calls:
            if call.cell.kind in ("forward", "data"):
                counts[call.cell.id] = counts.get(call.cell.id, 0) + 1
        most = max(most, *counts.values(), 1)
    return most
