"""From the traces of all ranks to a plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.torch.families import GRADIENT, Families, RankNames, given_tensor, result_name
from pitcheck.frontends.torch.flat import taken_apart
from pitcheck.frontends.torch.groups import with_all_groups
from pitcheck.frontends.torch.integers import known_integers
from pitcheck.frontends.torch.means import with_means
from pitcheck.frontends.torch.operators import translated
from pitcheck.frontends.torch.places import never_ignored, with_boundaries
from pitcheck.frontends.torch.plan_lineage import Box, of_boxes, of_input, of_output
from pitcheck.frontends.torch.program import Spec
from pitcheck.frontends.torch.trace import Given, Ref, Result, Trace
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.fold import Instance, fold
from pitcheck.plan.model import Axis, Lineage, Output, Plan, Tensor

REFERENCE_MESH = (Axis("rank", 1),)


def reference_plan(trace: Trace, spec: Spec) -> Plan:
    """The plan of the single-device program. Raises UnsupportedError for an operator without a meaning."""
    return _Building(REFERENCE_MESH, [trace], spec).plan("reference")


def parallel_plan(traces: Sequence[Trace], spec: Spec, reference: Plan) -> Plan:
    """The plan of the distributed program, one trace per rank, against the reference that it must equal.

    Raises UnsupportedError for an operator without a meaning and for a tensor of which nothing tells what part a rank holds, PlanError for what
    contradicts itself.
    """
    return _Building(
        tuple(Axis(name, size) for name, size in spec.mesh.items()), [with_boundaries(trace) for trace in taken_apart(traces)], spec, reference
    ).plan("parallel")


class _Building:
    def __init__(self, mesh: tuple[Axis, ...], traces: Sequence[Trace], spec: Spec, reference: Plan | None = None) -> None:
        self._mesh = mesh
        self._spec = spec
        self._reference = None if reference is None else {tensor.name: tensor for tensor in reference.tensors}
        self._coordinates = Coordinates(mesh, 1)
        self._families = Families()
        self._boxes: dict[str, dict[int, Box]] = defaultdict(dict)
        self._wholes: dict[str, tuple[int, ...]] = {}
        self._results: dict[str, Result] = {}
        self._ends_at: dict[str, dict[int, Box]] = defaultdict(dict)
        self._bounds = {name: given.bounds for name, given in spec.batch.items() if given.bounds is not None}
        self._traces = [with_means(never_ignored(trace, self._bounds)) for trace in traces]

    def plan(self, name: str) -> Plan:
        """The plan."""
        programs = with_all_groups({trace.rank: self._instances(trace) for trace in self._traces}, self._coordinates)
        operators, blocks, folded = fold(self._mesh, 1, programs)
        return Plan(
            mesh=self._mesh,
            tensors=tuple(self._placed(tensor) for tensor in self._families.tensors.values()),
            operators=operators,
            outputs=tuple(self._outputs()),
            blocks=blocks,
            programs=folded,
            name=name,
            assumptions=tuple(dict.fromkeys(line for trace in self._traces for line in trace.assumptions)),
        )

    # --- the operators of a rank

    def _instances(self, trace: Trace) -> list[Instance]:
        names = RankNames(trace, self._families)
        found = [instance for given in trace.given for instance in self._given(given, trace, names)]
        waited = {operand.value for event in trace.events if event.operator == "wait" for operand in event.arguments if isinstance(operand, Ref)}
        for event in trace.events:
            names.enter_outputs(event)
            own = translated(event, trace.values, names.of, names.next, any(output in waited for output in event.outputs))
            for name, value in own.tensors.items():
                self._families.claim(name, value)
            found += own.instances
        found += self._ends(trace, names)
        return found

    def _given(self, given: Given, trace: Trace, names: RankNames) -> Iterator[Instance]:
        value = trace.values[given.value]
        if given.integers is not None:
            names.enter(given.value, self._families.claim(given.name or names.next("constant"), value))
            yield from known_integers(given.integers, value, names.of(given.value), names)
            return
        tensor = given_tensor(given, value, self._bounds)
        names.enter(given.value, self._families.given(tensor))
        if given.role not in ("constant", "input"):
            self._held(given, trace)

    def _held(self, given: Given, trace: Trace) -> None:
        """Note the part of a tensor that a rank holds."""
        shape = trace.values[given.value].shape
        if self._reference is None:
            return
        whole = self._whole(given, trace.rank)
        if not given.box and whole != shape:
            raise UnsupportedError(f"rank {trace.rank} holds {shape} of {given.name!r}, which is {whole} in the reference; say which part in Program.parts")
        self._wholes[given.name] = whole
        self._boxes[given.name][trace.rank] = given.box or tuple(((0, size),) for size in whole)

    def _whole(self, given: Given, rank: int) -> tuple[int, ...]:
        """The shape of the whole of which a rank holds a part."""
        known = (self._reference or {}).get(given.name)
        if known is None:
            raise PlanError(f"rank {rank} begins with {given.name!r}, which the reference does not have; map its name in Program.names")
        if given.whole not in ((), known.shape):
            raise PlanError(f"rank {rank} holds a part of {given.name!r} of shape {given.whole}, which is {known.shape} in the reference")
        return known.shape

    def _ends(self, trace: Trace, names: RankNames) -> Iterator[Instance]:
        """Results that are something else as well, under names of their own; and what all results belong to."""
        taken = {given.name for given in trace.given}
        for result in trace.results:
            name, value = result_name(result, taken), trace.values[result.value]
            if result.partial and name not in self._spec.outputs:
                ranks = ", ".join(map(str, result.partial))
                raise UnsupportedError(f"{name!r} is a sum over ranks {ranks} that nobody has added up; if it shall be so, say it in Spec.outputs")
            computed = names.of(result.value)
            if computed.partition("~")[0] != name:
                computed = self._families.claim(name, value)
                yield Instance("identity", (names.of(result.value),), (computed,))
            if result.kind == "gradient":
                self._mark(computed, gradient_of=result.name, role="gradient")
            elif result.kind == "updated":
                self._mark(computed, updated=result.name)
            self._results.setdefault(name, result)
            if result.box:
                self._ends_at[name][trace.rank] = result.box

    def _mark(self, name: str, **changes: object) -> None:
        self._families.tensors[name] = replace(self._families.tensors[name], **changes)

    # --- tensors and outputs

    def _placed(self, tensor: Tensor) -> Tensor:
        """The tensor with its lineage, if the step begins with it."""
        if self._reference is None:
            return tensor
        if tensor.name in self._boxes:
            return replace(tensor, lineage=of_boxes(tensor.name, self._wholes[tensor.name], self._boxes[tensor.name], self._coordinates))
        if tensor.role == "input":
            return replace(tensor, lineage=of_input(tensor.name, self._spec.batch[tensor.name]))
        return tensor

    def _outputs(self) -> Iterator[Output]:
        if self._reference is None:
            yield from (Output(name) for name in self._results)
            return
        for name in self._compared():
            part = self._spec.outputs.get(name)
            yield Output(name, name, self._elsewhere(name) if part is None else of_output(name, part, self._spec.mesh))

    def _elsewhere(self, name: str) -> Lineage | None:
        """The lineage of a gradient or new value that ranks hold another part of than of what it belongs to, such as all of it; None for the same part."""
        result, ends = self._results[name], self._ends_at.get(name)
        if ends is None or result.name not in self._boxes or ends == {rank: self._boxes[result.name].get(rank) for rank in ends}:
            return None
        return of_boxes(name, self._wholes[result.name], ends, self._coordinates)

    def _compared(self) -> Iterable[str]:
        """The results that the reference has, too. What a rank keeps beside them, such as gradients of padding, is its own affair."""
        return (name for name in self._results if name in (self._reference or {}))


__all__ = ["GRADIENT", "parallel_plan", "reference_plan"]
