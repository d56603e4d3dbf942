"""The backward pass of a segment, as PyTorch's autograd derives it from the forward segment.

nnScaler calls ``torch.autograd.backward`` on the outputs of the forward segment. The backward
operators in the file never run; they only name gradients. Autograd runs the operators that need a
gradient in the reverse of the order in which they ran forward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pitcheck.errors import PlanError
from pitcheck.frontends.nnscaler.accumulation import Accumulation
from pitcheck.frontends.nnscaler.adapters import run_primitives
from pitcheck.frontends.nnscaler.autograd_tape import (
    Communicated,
    Computed,
    Customized,
    Entry,
    Forward,
)
from pitcheck.frontends.nnscaler.context import Context, Value
from pitcheck.frontends.nnscaler.execution_plan import Adapter, Argument, Cell, Compute, Derive
from pitcheck.frontends.nnscaler.primitives import backward_step
from pitcheck.frontends.nnscaler.tensors import SubTensor
from pitcheck.plan.model import Attribute


class Names:
    """The names that a backward segment of the file gives to gradients."""

    def __init__(self, cell: Cell) -> None:
        self._of_operators: dict[tuple[int, int], SubTensor] = {}
        self._of_adapters: dict[int, SubTensor] = {}
        for node in cell.nodes:
            if isinstance(node, Derive):
                self._of_operators.update(
                    {(node.mirror, result.id): result for result in node.results}
                )
            elif isinstance(node, Adapter) and node.mirror is not None and len(node.outputs) == 1:
                self._of_adapters[node.mirror] = node.outputs[0]

    def of_operand(self, node: Compute, argument: Argument) -> SubTensor | None:
        """Return the gradient of an operand of an operator; None if the file does not name it."""
        return (
            None
            if argument.gradient is None
            else self._of_operators.get((node.id, argument.gradient))
        )

    def of_adapter(self, adapter: Adapter) -> SubTensor | None:
        """Return the gradient of an adapter's input; None if the file does not name it."""
        return self._of_adapters.get(adapter.id)


class Backward:
    """One backward pass over the tape of a forward call."""

    def __init__(
        self,
        context: Context,
        accumulation: Accumulation,
        forward: Forward,
        names: Names,
        attributes: dict[int, dict[str, Attribute]],
    ) -> None:
        self.context = context
        self.accumulation = accumulation
        self.forward = forward
        self.names = names
        self._attributes = attributes
        self._gradients: dict[int, Value] = {}

    def run(self, outputs: Sequence[Value], gradients: Sequence[Value]) -> list[Value]:
        """Differentiate ``outputs``, whose gradients are given.

        Returns the gradients of the inputs that autograd watches, in order. Raises PlanError for an
        output that autograd does not watch, and for an input that gets no gradient, where nnScaler
        stops.
        """
        given: list[tuple[Value, Value]] = []
        for value, gradient in zip(outputs, gradients, strict=False):
            if not value.tracked:
                raise PlanError(
                    f"the backward pass begins at {value.family.name!r}, which autograd does not "
                    f"watch"
                )
            if not any(value is known and gradient is other for known, other in given):
                given.append((value, gradient))
        for output, gradient in given:
            self._add(output, gradient, None)
        for entry in reversed(self.forward.entries):
            self._differentiate(entry)
        watched = [value for value in self.forward.inputs if value is not None and value.tracked]
        for value in watched:
            if id(value) not in self._gradients:
                raise PlanError(
                    f"the input {value.family.name!r} of the segment gets no gradient, where "
                    f"nnScaler stops"
                )
        return [self._gradients[id(value)] for value in watched]

    def _add(self, value: Value, gradient: Value, name: SubTensor | None) -> None:
        """Add a term to the gradient of a value."""
        before = self._gradients.get(id(value))
        if before is not None:
            total = self._write(value, name)
            self.context.emit(
                "add", (before, gradient), (total,), {}, self.forward.microbatch, module="autograd"
            )
            gradient = total
        self._gradients[id(value)] = gradient

    def _write(self, of: Value, name: SubTensor | None, owner: str | None = None) -> Value:
        microbatch = self.forward.microbatch
        if name is None or name.dtype != of.family.dtype:
            return self.context.write_unnamed(
                f"g{of.family.name}.unnamed", of.family, microbatch, gradient_of=owner
            )
        return self.context.write(name, microbatch, like=of.family, gradient_of=owner)

    def _differentiate(self, entry: Entry) -> None:
        given = {
            position: gradient
            for position, value in enumerate(entry.results)
            if (gradient := self._gradients.pop(id(value), None)) is not None
        }
        if not given:
            return
        if isinstance(entry, Computed):
            self._operator(entry, given)
        elif isinstance(entry, Communicated):
            self._primitive(entry, given[0])
        else:
            self._adapter(entry, given)

    def _operator(self, entry: Computed, given: Mapping[int, Value]) -> None:
        node = entry.node
        results: list[Value | None] = []
        names: list[SubTensor | None] = []
        for operand, argument in zip(entry.operands, node.operands, strict=True):
            watched = (
                isinstance(operand, Value) and isinstance(argument, Argument) and operand.tracked
            )
            names.append(
                self.names.of_operand(node, argument)
                if watched and isinstance(argument, Argument)
                else None
            )
            if not watched or not isinstance(operand, Value) or not isinstance(argument, Argument):
                results.append(None)
                continue
            owner = operand.family.name if argument.attribute is not None else None
            results.append(self._write(operand, names[-1], owner))
        if not any(results):
            return
        inputs = (*entry.operands, *entry.results, *given.values())
        kind = f"{node.kind}.backward"
        self.context.emit(
            kind,
            inputs,
            results,
            self._derived(entry, tuple(given)),
            self.forward.microbatch,
            source=node.source,
            module=node.module,
        )
        for operand, result, name in zip(entry.operands, results, names, strict=True):
            if isinstance(operand, Value) and result is not None:
                self._pass_on(operand, result, name)

    def _pass_on(self, operand: Value, gradient: Value, name: SubTensor | None) -> None:
        owner = gradient.family.gradient_of
        if owner is None:
            self._add(operand, gradient, name)
        else:
            self.accumulation.add(owner, gradient, self.forward.microbatch)

    def _derived(self, entry: Computed, given: tuple[int, ...]) -> dict[str, Attribute]:
        """Return the attributes of a derivative.

        They are one object for each operator of the file and each set of gradients that it is
        given.
        """
        known = self._attributes.get(id(entry.node))
        if known is None or known["gradients"] != given:
            counts: dict[str, Attribute] = {
                "forward_inputs": len(entry.operands),
                "forward_outputs": len(entry.results),
                "gradients": given,
            }
            known = self._attributes[id(entry.node)] = {**entry.node.attributes, **counts}
        return known

    def _primitive(self, entry: Communicated, gradient: Value) -> None:
        if not entry.operand.tracked:
            return
        name = self.names.of_adapter(entry.adapter)
        result = self._write(entry.operand, name)
        step = backward_step(entry.primitive, self.context.device)
        self.context.emit(
            step.kind,
            (gradient, *step.numbers),
            (result,),
            step.attributes,
            self.forward.microbatch,
            group=self.context.group(step.group),
            module=entry.primitive.name,
        )
        self._add(entry.operand, result, name)

    def _adapter(self, entry: Customized, given: Mapping[int, Value]) -> None:
        """Run the backward adapter of a custom one as a whole.

        A result without a gradient has zeros.
        """
        backward = entry.adapter.backward
        if backward is None or not any(operand.tracked for operand in entry.operands):
            return
        if len(backward.inputs) != len(entry.results) or len(backward.outputs) != len(
            entry.operands
        ):
            raise PlanError(
                f"the backward adapter takes {len(backward.inputs)} gradients and gives "
                f"{len(backward.outputs)}, "
                f"but its forward adapter gives {len(entry.results)} tensors and takes "
                f"{len(entry.operands)}"
            )
        zero = self.context.shared.zero
        values = [
            given.get(n) or Value(zero(value.family.shape, value.family.dtype), None)
            for n, value in enumerate(entry.results)
        ]
        local = dict(zip(backward.inputs, values, strict=True))
        run_primitives(self.context, backward, local, self.forward.microbatch)
        for operand, tensor in zip(entry.operands, backward.outputs, strict=True):
            if operand.tracked:
                self._add(operand, self.context.read(tensor.id, local), tensor)
