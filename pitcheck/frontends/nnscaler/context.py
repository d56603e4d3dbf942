"""The state of the lowering of a device: names, values, and the operators so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import msgspec

from pitcheck.base.dtypes import DType
from pitcheck.errors import PlanError
from pitcheck.frontends.nnscaler.families import GRADIENT, LOSS, Families, Family, base_of
from pitcheck.frontends.nnscaler.layout import Layout
from pitcheck.frontends.nnscaler.tensors import SubTensor
from pitcheck.plan.fold import Instance
from pitcheck.plan.model import Attribute, Group, Number, Operand, Role, Use

FLOATS = frozenset({"float64", "float32", "float16", "bfloat16"})
"""The dtypes that have gradients."""


class Value(msgspec.Struct, frozen=True, gc=False):
    """A tensor of a device.

    ``microbatch`` is the micro-batch whose tensor it is; None if there is one for all. ``tracked``
    says that autograd watches it.
    """

    family: Family
    microbatch: int | None
    tracked: bool = False


class Shared:
    """The state that all devices share.

    It has the families, the plan's inputs, parameters and losses, and the tensors without
    dimensions.
    """

    def __init__(
        self,
        layout: Layout,
        microbatches: int,
        scalars: frozenset[int],
        gradient_names: Mapping[int, str],
    ) -> None:
        self.layout = layout
        self.microbatches = microbatches
        self.families = Families()
        self.inputs: list[Family] = []
        self.parameters: list[Family] = []
        self.losses: list[Family] = []
        self._scalars = scalars
        self._gradient_names = gradient_names
        self._inputs: dict[tuple[int, int], Family] = {}
        self._owners: dict[str, int] = {}
        self._starts: dict[str, int] = {}
        self._ends: dict[str, int] = {}
        self.disregarded: dict[str, None] = {}
        """Sentences, in order, about statements of the file that are not what runs."""

    def shape_of(self, tensor: SubTensor) -> tuple[int, ...]:
        """Return the shape of a tensor when it runs.

        It is () for tensors without dimensions, which nnScaler writes as (1,).
        """
        return () if tensor.full in self._scalars and tensor.shape == (1,) else tensor.shape

    def input(self, cell: int, position: int, tensor: SubTensor, device: int) -> Family:
        """Return the family of an output of the data loader.

        Raises PlanError if its shape or dtype differs between devices.
        """
        key = (cell, position)
        if key not in self._inputs:
            base = base_of(tensor)
            version = sum(family.stated == base for family in self.inputs)
            family = self.families.named(
                base, version, tensor.shape, tensor.dtype, "input", microbatched=True
            )
            family.stated = base
            self._inputs[key] = family
            self.inputs.append(family)
            self._starts[base] = max(self._starts.get(base, 0), version + 1)
        found = self._inputs[key]
        found.parts.setdefault(device, tensor)
        if found.shape != tensor.shape or found.dtype != tensor.dtype:
            raise PlanError(
                f"the data loader gives {tensor.name!r} as {tensor.dtype} {tensor.shape} here and "
                f"as {found.dtype} {found.shape} elsewhere"
            )
        return found

    def parameter(self, tensor: SubTensor, version: int) -> Family:
        """Return the family of a parameter or buffer.

        Raises PlanError if two tensors have one name.
        """
        base = base_of(tensor)
        if self._owners.setdefault(base, tensor.full) != tensor.full:
            raise PlanError(f"two different tensors of the model are both named {tensor.name!r}")
        role: Role = "parameter" if tensor.trainable else "constant"
        family = self.families.named(
            base, version, tensor.shape, tensor.dtype, role, microbatched=False
        )
        if not family.stated:
            family.stated = base
            self.parameters.append(family)
        return family

    def seed(self, loss: Family) -> Family:
        """Return the gradient of the loss, which is one.

        Raises PlanError for a loss of more than one element, where PyTorch stops.
        """
        if prod(loss.shape) != 1:
            raise PlanError(
                f"the loss {loss.name!r} has shape {loss.shape}; a backward pass can begin at one "
                f"element only"
            )
        return self._constant(f"{GRADIENT}{LOSS}", loss.shape, loss.dtype, 1)

    def zero(self, shape: tuple[int, ...], dtype: DType) -> Family:
        """Return a tensor of zeros."""
        return self._constant(f"zero:{'x'.join(map(str, shape))}", shape, dtype, 0)

    def _constant(self, name: str, shape: tuple[int, ...], dtype: DType, value: int) -> Family:
        family = self.families.named(name, 0, shape, dtype, "constant", microbatched=False)
        family.value = value
        return family

    def base_of(self, tensor: SubTensor) -> str:
        """Return the name with which a tensor's families begin."""
        return (
            self._gradient_names.get(tensor.full) or base_of(tensor)
            if tensor.gradient
            else base_of(tensor)
        )

    # --- versions

    def first_version(self, base: str) -> int:
        """Return the version with which the devices of the present stage begin."""
        return self._starts.get(base, 0)

    def saw(self, base: str, version: int) -> None:
        """Note that a device of the present stage has used a version."""
        if version >= self._ends.get(base, 0):
            self._ends[base] = version + 1

    def end_stage(self) -> None:
        """Have the next stage count on from the versions that were used."""
        self._starts = dict(self._ends)


class Context:
    """One device: its reads, its writes, and the operators so far."""

    def __init__(self, shared: Shared, device: int) -> None:
        self.shared = shared
        self.device = device
        self.layout = shared.layout
        self.microbatches = shared.microbatches
        self.instances: list[Instance] = []
        self._versions: dict[tuple[str, int | None], int] = {}
        self._parameters: dict[int, Value] = {}
        self._losses: dict[int, Family] = {}

    def parameter(self, tensor: SubTensor) -> Value:
        """Return the value of a parameter or buffer; there is one per sub-tensor."""
        found = self._parameters.get(tensor.id)
        if found is None:
            base = base_of(tensor)
            version = self._versions.get((base, None), 0)
            self._versions[base, None] = version + 1
            found = self._parameters[tensor.id] = Value(
                self.shared.parameter(tensor, version), None, tensor.trainable
            )
            found.family.parts[self.device] = tensor
        return found

    def read(self, number: int, local: Mapping[int, Value]) -> Value:
        """Return the value that was last written under an id.

        Raises PlanError if there is none.
        """
        found = local.get(number)
        if found is None:
            raise PlanError(
                f"tensor {number} is read, but nothing on device {self.device} has written it "
                f"before; it is dropped, renamed or made too late"
            )
        return found

    def write(
        self,
        tensor: SubTensor,
        microbatch: int,
        like: Family | None = None,
        gradient_of: str | None = None,
        shape: tuple[int, ...] | None = None,
        tracked: bool = False,
    ) -> Value:
        """Return a new value for a tensor; ``like`` is the tensor whose gradient it is."""
        base = self.shared.base_of(tensor)
        version = self._next_version(base, microbatch)
        actual = (
            like.shape
            if like is not None
            else shape
            if shape is not None
            else self.shared.shape_of(tensor)
        )
        role: Role = "gradient" if tensor.gradient else "activation"
        family = self.shared.families.named(
            base, version, actual, tensor.dtype, role, microbatched=True, gradient_of=gradient_of
        )
        if self.device not in family.parts:
            family.parts[self.device] = tensor
            family.stated = f"{GRADIENT}{gradient_of}" if gradient_of else _stated(tensor, base)
        if tensor.loss and not tensor.gradient:
            self._losses[microbatch] = family
        return Value(family, microbatch, tracked and tensor.dtype in FLOATS)

    def write_unnamed(
        self,
        base: str,
        like: Family,
        microbatch: int,
        *,
        shape: tuple[int, ...] | None = None,
        gradient_of: str | None = None,
    ) -> Value:
        """Return a new value that the file does not name.

        It has the shape and dtype of ``like``, unless ``shape`` is given.
        """
        version = self._next_version(base, microbatch)
        sizes = like.shape if shape is None else shape
        family = self.shared.families.named(
            base,
            version,
            sizes,
            like.dtype,
            "activation",
            microbatched=True,
            gradient_of=gradient_of,
        )
        return Value(family, microbatch)

    def _next_version(self, base: str, microbatch: int) -> int:
        key = (base, microbatch)
        version = self._versions.get(key)
        if version is None:
            version = self.shared.first_version(base)
        self._versions[key] = version + 1
        self.shared.saw(base, version)
        return version

    def emit(
        self,
        kind: str,
        inputs: Sequence[Value | Number],
        outputs: Sequence[Value | None],
        attributes: Mapping[str, Attribute],
        microbatch: int | None,
        *,
        group: Group | None = None,
        source: str = "",
        module: str = "",
    ) -> None:
        """Append an operator. An operand of another micro-batch is named with its micro-batch."""
        self.instances.append(
            Instance(
                kind=kind,
                inputs=tuple(
                    [
                        value if isinstance(value, Number) else _operand(value, microbatch)
                        for value in inputs
                    ]
                ),
                outputs=tuple(["" if value is None else value.family.name for value in outputs]),
                attributes=attributes if isinstance(attributes, dict) else dict(attributes),
                group=group,
                source=source,
                module=module,
                microbatch=microbatch,
            )
        )

    def group(self, devices: Sequence[int] | None) -> Group | None:
        """Return the group over ``devices`` that the device names; None without devices."""
        return None if devices is None else self.layout.group(self.device, devices)

    def returned(self, losses: Mapping[int, Family]) -> None:
        """Set the losses to the tensors that a step returns, by micro-batch."""
        self._losses = dict(losses)

    def name_loss(self) -> None:
        """Give the last version of the loss one name on every device."""
        renamed: dict[tuple[str, int | None], str] = {}
        for microbatch, family in self._losses.items():
            final = self.shared.families.named(
                LOSS, 0, family.shape, family.dtype, "output", microbatched=True
            )
            final.parts.setdefault(self.device, family.parts[self.device])
            final.stated = LOSS
            if final not in self.shared.losses:
                self.shared.losses.append(final)
            renamed[family.name, microbatch] = final.name
        if renamed:
            names: set[Operand] = {name for name, _ in renamed}
            names.update(
                [
                    Use(name, microbatch)
                    for name, _ in renamed
                    for microbatch in range(self.microbatches)
                ]
            )
            apart = names.isdisjoint
            self.instances = [
                i if apart(i.inputs) and apart(i.outputs) else _renamed(i, renamed)
                for i in self.instances
            ]


def _stated(tensor: SubTensor, base: str) -> str:
    """Return the reference's name for a tensor.

    It is "" for the gradient of the loss, which the reference does not have.
    """
    if tensor.loss:
        return "" if tensor.gradient else LOSS
    return base


def _operand(value: Value, microbatch: int | None) -> Operand:
    own = value.microbatch
    if own is None or own == microbatch or microbatch is None:
        return value.family.name
    return Use(value.family.name, own)


def _renamed(instance: Instance, names: Mapping[tuple[str, int | None], str]) -> Instance:
    def operand(operand: Operand) -> Operand:
        if isinstance(operand, Number):
            return operand
        if isinstance(operand, Use):
            return Use(
                names.get((operand.tensor, operand.microbatch), operand.tensor), operand.microbatch
            )
        return names.get((operand, instance.microbatch), operand)

    outputs = tuple([names.get((name, instance.microbatch), name) for name in instance.outputs])
    return msgspec.structs.replace(
        instance, inputs=tuple([operand(o) for o in instance.inputs]), outputs=outputs
    )
