"""The gradients of parameters on one device.

They are summed over micro-batches, as autograd does, and reduced over devices by reducers. A
reducer sums what has been accumulated when it runs; later terms are added to its result.
"""

from __future__ import annotations

import msgspec

from pitcheck.frontends.nnscaler.context import Context, Value
from pitcheck.frontends.nnscaler.execution_plan import Cell
from pitcheck.frontends.nnscaler.families import GRADIENT, Family
from pitcheck.plan.model import Attribute, Group


class Accumulation:
    """The gradients of all parameters of one device."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._pending: dict[str, list[tuple[Family, int]]] = {}
        self._sums: dict[str, Value] = {}
        self._writers: dict[str, int] = {}
        self._versions: dict[str, int] = {}

    def add(self, parameter: str, gradient: Value, microbatch: int) -> None:
        """Add a term to the gradient of a parameter."""
        self._pending.setdefault(parameter, []).append((gradient.family, microbatch))

    def reduce(self, cell: Cell) -> None:
        """Run a reducer: an all-reduce of the gradient of each of its weights.

        A weight without a gradient takes part with zeros.
        """
        context = self.context
        group = context.layout.group(context.device, cell.devices, joined=True)
        for tensor in cell.tensors:
            weight = context.parameter(tensor).family
            self._flush(weight.name)
            present = self._sums.get(weight.name) or Value(
                context.shared.zero(weight.shape, weight.dtype), None
            )
            self._write("all_reduce", (present,), {"reduction": "sum"}, weight.name, group=group)

    def finish(self) -> None:
        """Accumulate the remaining terms, and name the last version of every gradient."""
        for parameter in list(self._pending):
            self._flush(parameter)
        context = self.context
        for parameter, position in self._writers.items():
            last = self._sums[parameter].family
            final = context.shared.families.named(
                f"{GRADIENT}{parameter}",
                0,
                last.shape,
                last.dtype,
                "gradient",
                microbatched=False,
                gradient_of=parameter,
            )
            final.stated, final.reduced = final.name, True
            context.instances[position] = msgspec.structs.replace(
                context.instances[position], outputs=(final.name,)
            )

    def _flush(self, parameter: str) -> None:
        """Sum every pending family over its micro-batches, and add up the sums of all families."""
        terms: dict[str, tuple[Family, list[int]]] = {}
        for family, microbatch in self._pending.pop(parameter, []):
            terms.setdefault(family.name, (family, []))[1].append(microbatch)
        for family, microbatches in terms.values():
            before = self._sums.get(parameter)
            chosen = tuple(sorted(microbatches))
            attributes: dict[str, Attribute] = (
                {}
                if chosen == tuple(range(self.context.microbatches))
                else {"microbatches": chosen}
            )
            self._write("accumulate", (Value(family, None),), attributes, parameter, of=family)
            if before is not None:
                self._write("add", (before, self._sums[parameter]), {}, parameter)

    def _write(
        self,
        kind: str,
        inputs: tuple[Value, ...],
        attributes: dict[str, Attribute],
        parameter: str,
        *,
        of: Family | None = None,
        group: Group | None = None,
    ) -> None:
        context = self.context
        like = inputs[0].family
        version = self._versions.get(parameter, 0)
        self._versions[parameter] = version + 1
        family = context.shared.families.named(
            f"partial:{parameter}",
            version,
            like.shape,
            like.dtype,
            "gradient",
            microbatched=False,
            gradient_of=parameter,
        )
        if of is not None and context.device in of.parts:
            family.parts.setdefault(context.device, of.parts[context.device])
            family.stated, family.reduced = f"{GRADIENT}{parameter}", True
        value = Value(family, None)
        context.emit(
            kind,
            inputs,
            (value,),
            attributes,
            None,
            group=group,
            module="gradient accumulation" if group is None else "IRWeightReducer",
        )
        self._sums[parameter] = value
        self._writers[parameter] = len(context.instances) - 1
