"""The effect of a step on operands that are split into parts.

>>> exchanges_parts("all_to_all"), exchanges_parts("scatter_from")
(True, False)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pitcheck.algebra.dimensions.axes import AxisAlgebra
from pitcheck.algebra.dimensions.axis_classes import AxisSystem
from pitcheck.algebra.dimensions.axis_values import AxisValue
from pitcheck.algebra.dimensions.scaling_class import Dimension
from pitcheck.algebra.dimensions.size_choice import Sizes
from pitcheck.ops.axis_attributes import reduce_attributes
from pitcheck.ops.axis_templates import Templates
from pitcheck.ops.registry import BACKWARD, declared, divided, forward_attributes, kinds_with
from pitcheck.ops.traits import Trait
from pitcheck.stage.batch import Argument, Batch, Step, StepOperand
from pitcheck.stage.run_batch import literal_operand, wanted_of
from pitcheck.stage.shapes import tie_derivative


def exchanges_parts(kind: str) -> bool:
    """Return True if each member cuts its tensor into parts and sends one to every member.

    Its attributes ``split_axis`` and ``concat_axis`` are the dimensions that are cut and joined.
    """
    known = declared(kind)
    return (
        known is not None
        and known.divided_axis == "split_axis"
        and "concat_axis" in known.required
        and kind in kinds_with(Trait.CARRIES)
    )


@dataclass(frozen=True)
class Form:
    """The way in which a tensor is split: into ``count`` equal parts along dimension ``dim``."""

    dim: int
    count: int


@dataclass(frozen=True)
class Passed:
    """The effect of a step on parts.

    ``attributes``: those for one part. ``dims``: per output the dimension of its parts; -1 for an
    output that is the sum of the parts' results.
    """

    attributes: Mapping[str, Any]
    dims: Mapping[int, int]


class PartEffects:
    """The effects of steps on parts, found once for equal steps.

    Steps are equal here if they have one kind, the same attributes and operands of the same shapes.
    """

    def __init__(self, batch: Batch, templates: Templates) -> None:
        self._batch = batch
        self._templates = templates
        self._known: dict[tuple[object, ...], Passed | None] = {}

    def of(self, step: Step, forms: Sequence[Form | None]) -> Passed | None:
        """Return the effect of a step on split operands; None if it combines parts."""
        key = (
            step.kind,
            repr(sorted(step.attributes.items())),
            tuple(self._look(o) for o in step.inputs),
            tuple(forms),
            wanted_of(step),
        )
        if key not in self._known:
            self._known[key] = self._found(step, forms)
        return self._known[key]

    def _look(self, operand: StepOperand) -> object:
        """Return all that the effect depends on of an operand."""
        if not isinstance(operand, Argument):
            return operand
        return (
            self._batch.shape(operand.value),
            self._batch.graph.values[operand.value].kind,
            operand.rows.shape[1:],
        )

    def _found(self, step: Step, forms: Sequence[Form | None]) -> Passed | None:
        """Compute what ``of`` returns."""
        dims: dict[int, int] = {}
        attributes: Mapping[str, Any] | None = None
        for place, output in enumerate(step.outputs):
            if output is None:
                continue
            alone = _Alone(
                self._batch,
                self._templates,
                step,
                forms,
                tuple(n == place for n in range(len(step.outputs))),
            )
            dim = alone.dim_of(place)
            if dim is None and not _adds_up(self._batch, self._templates, step, forms, place):
                return None
            dims[place] = -1 if dim is None else dim
            attributes = alone.attributes(step) if attributes is None else attributes
        return None if attributes is None else Passed(attributes, dims)


def _adds_up(
    batch: Batch, templates: Templates, step: Step, forms: Sequence[Form | None], place: int
) -> bool:
    """Return True if a result is the sum of the gradients that parts give.

    That is so for the gradient of an operand that all parts share, by an operator that treats each
    part by itself.
    """
    if not step.kind.endswith(BACKWARD) or forms[place] is not None:
        return False
    inputs, outputs, gradients = divided(step.attributes, len(step.inputs))
    plain = replace(
        step,
        kind=step.kind.removesuffix(BACKWARD),
        attributes=forward_attributes(step.attributes),
        inputs=step.inputs[:inputs],
    )
    forward = _Alone(batch, templates, plain, forms[:inputs], None)
    of_outputs = [forward.dim_of(number) for number in range(len(forward.results))]
    given = {number: forms[inputs + outputs + at] for at, number in enumerate(gradients)}
    seen = {number: forms[inputs + number] for number in range(outputs)}
    return all(dim is not None for dim in of_outputs) and all(
        form is not None and form.dim == of_outputs[number]
        for known in (given, seen)
        for number, form in known.items()
    )


class _Alone:
    """A step run on axes by itself: what it alone ties and mixes."""

    def __init__(
        self,
        batch: Batch,
        templates: Templates,
        step: Step,
        forms: Sequence[Form | None],
        wanted: tuple[bool, ...] | None,
    ) -> None:
        self._system = AxisSystem()
        algebra = AxisAlgebra(self._system)
        tensors = [_tensor(algebra, batch, operand) for operand in step.inputs]
        discrete = all(tensor is None or tensor.kind != "field" for tensor in tensors)
        self._given = [
            literal_operand(algebra, operand, discrete)
            if tensor is None and not isinstance(operand, (Argument, tuple))
            else tensor
            for tensor, operand in zip(tensors, step.inputs, strict=True)
        ]
        self.results: Sequence[AxisValue | None] = templates.run(
            algebra, step.kind, self._given, step.attributes, wanted
        )
        tie_derivative(
            algebra,
            step,
            self._given,
            self.results,
            templates,
            batch.graph.nodes[step.node].operator,
        )
        self._nodes = [
            tensor.dims[form.dim - len(batch.shape(operand.value))]
            for tensor, operand, form in zip(self._given, step.inputs, forms, strict=True)
            if form is not None and isinstance(operand, Argument)
        ]
        self._count = next((form.count for form in forms if form is not None), 1)

    def dim_of(self, place: int) -> int | None:
        """Return the dimension of a result along which it is split as the operands are.

        Return None if parts meet, or if the result does not have them.
        """
        result = self.results[place]
        roots = {self._system.number_of(node) for node in self._nodes}
        if (
            result is None
            or len(roots) != 1
            or not all(self._system.is_batch(node) for node in self._nodes)
        ):
            return None
        others = [node for value in self._given for node in value.dims if node not in self._nodes]
        if any(self._system.number_of(node) in roots for node in others):
            return None
        dims = [
            dim for dim, node in enumerate(result.dims) if self._system.number_of(node) in roots
        ]
        return (
            dims[0] if len(dims) == 1 and result.dims[dims[0]].size == self._nodes[0].size else None
        )

    def attributes(self, step: Step) -> Mapping[str, Any]:
        """Return the attributes of the step for one part."""
        return reduce_attributes(
            step.kind,
            step.attributes,
            self._given,
            self.results,
            _OnePart(self._system, self._nodes, self._count),
        )


def _tensor(algebra: AxisAlgebra, batch: Batch, operand: StepOperand) -> Any:
    """Return an operand on axes, or None for a literal."""
    if not isinstance(operand, Argument):
        return None
    tensor = algebra.tensor(batch.shape(operand.value), batch.graph.values[operand.value].kind)
    return algebra.stack(tensor, operand.rows) if operand.rows.ndim == 2 else tensor


class _OnePart(Sizes):
    """Full sizes, except for one part along the dimensions that are split."""

    def __init__(self, system: AxisSystem, nodes: Sequence[Dimension], count: int) -> None:
        super().__init__(system, {})
        self._roots = {system.number_of(node) for node in nodes}
        self._parts = count

    def size(self, node: Dimension) -> int:
        """Return the size of a dimension, or of one part of it."""
        size = super().size(node)
        return size // self._parts if self._system.number_of(node) in self._roots else size
