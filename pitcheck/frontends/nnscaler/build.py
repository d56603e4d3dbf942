"""From an execution plan to a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from pitcheck.frontends.nnscaler.context import Context, Shared
from pitcheck.frontends.nnscaler.execution_plan import Compute, ExecutionPlan
from pitcheck.frontends.nnscaler.families import GRADIENT, LOSS, Family
from pitcheck.frontends.nnscaler.gradient_names import gradient_names
from pitcheck.frontends.nnscaler.layout import Layout
from pitcheck.frontends.nnscaler.lineage import Lineages
from pitcheck.frontends.nnscaler.lower import DeviceLowering, microbatches_of
from pitcheck.frontends.nnscaler.reader import read_program
from pitcheck.plan.collector import collector_off
from pitcheck.plan.fold import Instance, fold
from pitcheck.plan.model import Lineage, Number, Operator, Output, Plan, Tensor

_SEED = "the gradient of the loss is 1"
_DATA = (
    "row r of micro-batch m on data-parallel replica d is row (d * micro-batches + m) * size + r "
    "of the reference's input, "
    "where size is the number of rows of a micro-batch"
)
_LOSS = (
    "the loss of the parallel plan is one term per replica and micro-batch; the sum of the "
    "terms is compared"
)
_WHOLE = frozenset({"sum", "mean"})
_LOSSES = frozenset({"cross_entropy", "mse_loss"})
_RESHAPES = frozenset({"view"})


def read_nnscaler(path: str | Path) -> Plan:
    """Return the plan in a pickle of nnScaler's ``ModuleCodeGen``, a reference or a parallel plan.

    Neither nnScaler nor torch is needed, and nothing in the file runs. The mesh is (dp, pp, tp), or
    (dp, device) if the stages differ in size. A plan of one rank and one micro-batch is a
    reference, whose tensors have no lineage. The outputs are the loss, ``loss``, and for every
    parameter P its gradient, ``grad:P``.

    Raises:
        PlanError: for a file that is damaged, holds something else, contradicts itself or cannot
            run.
        UnsupportedError: for a primitive without a meaning.
        OSError: if the file cannot be opened.
    """
    path = Path(path)
    with collector_off():
        return _Builder(read_program(path), path.name).run()


class _Builder:
    """The plan of one file in the making."""

    def __init__(self, plan: ExecutionPlan, name: str) -> None:
        self.plan = plan
        self.name = name
        self.layout = Layout(plan)
        self.microbatches = microbatches_of(plan.programs)
        self.shared = Shared(self.layout, self.microbatches, scalars_of(plan), gradient_names(plan))
        self.is_reference = plan.ranks == 1 and self.microbatches == 1
        self.lineages = Lineages(self.layout, self.microbatches)
        self._held: frozenset[str] = frozenset()

    def run(self) -> Plan:
        """Return the plan."""
        operators, blocks, programs = fold(self.layout.mesh, self.microbatches, self._programs())
        self._held = frozenset(family.name for family in self.shared.parameters)
        return Plan(
            mesh=self.layout.mesh,
            tensors=tuple(self._tensor(family) for family in self._families(operators)),
            operators=operators,
            outputs=tuple(self._outputs()),
            microbatches=self.microbatches,
            blocks=blocks,
            programs=programs,
            name=self.name,
            assumptions=tuple(self._assumptions(operators)),
        )

    def _programs(self) -> dict[int, list[Instance]]:
        by_device: dict[int, list[Instance]] = {}
        for stage in self.layout.stages:
            for device in stage:
                by_device[device] = DeviceLowering(Context(self.shared, device)).run(
                    self.plan.programs[device], self.plan.returned
                )
            self.shared.end_stage()
        size = self.layout.devices
        return {
            rank: _shifted(by_device[rank % size], rank - rank % size)
            for rank in range(self.plan.ranks)
        }

    # --- tensors

    def _families(self, operators: Iterable[Operator]) -> Iterator[Family]:
        """Yield inputs, parameters, then the others in the order in which operators name them."""
        seen = dict.fromkeys(
            family.name for family in (*self.shared.inputs, *self.shared.parameters)
        )
        for operator in operators:
            for operand in operator.inputs:
                if not isinstance(operand, Number):
                    seen[operand if isinstance(operand, str) else operand.tensor] = None
            seen.update(dict.fromkeys(name for name in operator.outputs if name))
        return (self.shared.families.by_name[name] for name in seen)

    def _tensor(self, family: Family) -> Tensor:
        return Tensor(
            name=family.name,
            shape=family.shape,
            dtype=family.dtype,
            role=family.role,
            microbatched=family.microbatched,
            lineage=None if self.is_reference else self._lineage(family),
            gradient_of=family.gradient_of,
            value=family.value,
        )

    def _lineage(self, family: Family) -> Lineage | None:
        if family.value is not None or not family.parts:
            return None
        if family.role == "input":
            return self.lineages.of_input(family.stated, len(family.shape))
        if family.name in self._held:
            return self.lineages.of_parameter(family.stated, family.parts)
        if not family.stated:
            return None
        owned = family.gradient_of is not None
        return self.lineages.hint(
            family.stated,
            family.parts,
            shape=family.shape,
            batched=not owned,
            partial=owned,
            reduced=family.reduced,
        )

    # --- outputs

    def _outputs(self) -> Iterator[Output]:
        names = self.shared.families.by_name
        if self.is_reference:
            yield from (Output(family.name) for family in self.shared.losses)
            yield from (
                Output(name)
                for family in self._trained()
                if (name := f"{GRADIENT}{family.name}") in names
            )
            return
        yield from (
            Output(family.name, LOSS, self.lineages.of_loss()) for family in self.shared.losses[:1]
        )
        yield from (
            Output(name, name)
            for family in self._trained()
            if (name := f"{GRADIENT}{family.name}") in names
        )

    def _trained(self) -> list[Family]:
        return [family for family in self.shared.parameters if family.role == "parameter"]

    def _assumptions(self, operators: Iterable[Operator]) -> Iterator[str]:
        seed = f"{GRADIENT}{LOSS}"
        if any(seed in operator.inputs for operator in operators):
            yield _SEED
        if not self.is_reference:
            yield _DATA
            if self.lineages.of_loss() is not None:
                yield _LOSS
        yield from self.shared.disregarded


def _shifted(instances: list[Instance], shift: int) -> list[Instance]:
    """Return the operators of a device as a later replica runs them.

    Its peers differ; groups name all replicas already.
    """
    if not shift or not any("peer" in instance.attributes for instance in instances):
        return instances
    return [
        _moved(instance, shift) if "peer" in instance.attributes else instance
        for instance in instances
    ]


def _moved(instance: Instance, shift: int) -> Instance:
    peer = instance.attributes["peer"]
    return msgspec.structs.replace(
        instance,
        attributes={**instance.attributes, "peer": peer + shift if isinstance(peer, int) else peer},
    )


def scalars_of(plan: ExecutionPlan) -> frozenset[int]:
    """Return the ids of full tensors, and of their gradients, that have no dimension when they run.

    nnScaler writes their shape as (1,). They are made by reductions over all dimensions, and by
    element-wise operators from such tensors alone.
    """
    candidates = [
        node
        for cell in plan.cells
        if cell.kind == "forward"
        for node in cell.nodes
        if isinstance(node, Compute) and any(result.tensor.shape == (1,) for result in node.results)
    ]
    scalars: set[int] = set()
    before = -1
    while before != len(scalars):
        before = len(scalars)
        for node in candidates:
            read = [operand.full for operand in node.operands if not isinstance(operand, Number)]
            if _reduces_all(node) or (node.kind not in _RESHAPES and scalars.issuperset(read)):
                for result in node.results:
                    scalars.add(result.tensor.full)
                    if result.gradient_full is not None:
                        scalars.add(result.gradient_full)
    return frozenset(scalars)


def _reduces_all(node: Compute) -> bool:
    if node.kind in _LOSSES:
        return bool(node.attributes.get("reduction", "mean") != "none")
    return node.kind in _WHOLE and "axes" not in node.attributes
