"""From the traces of all ranks to a plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.torch.aten.operators import translated
from pitcheck.frontends.torch.known_names import check_known
from pitcheck.frontends.torch.planning.compared_state import compared
from pitcheck.frontends.torch.planning.families import (
    SCORES,
    Families,
    RankNames,
    check_given,
    given_tensor,
    result_name,
    result_names,
)
from pitcheck.frontends.torch.planning.groups import (
    axes_of_groups,
    check_members,
    with_all_groups,
    with_communicators,
)
from pitcheck.frontends.torch.planning.known_integers import KnownIntegers
from pitcheck.frontends.torch.planning.microbatch_rows import microbatch_labels
from pitcheck.frontends.torch.planning.parts_from_shapes import PartsFromShapes
from pitcheck.frontends.torch.planning.plan_lineage import (
    Box,
    axes_of,
    of_boxes,
    of_input,
    of_output,
    within,
)
from pitcheck.frontends.torch.planning.rank_kinds import kind_labels
from pitcheck.frontends.torch.program import Spec
from pitcheck.frontends.torch.rewrites.batches import with_whole_batches
from pitcheck.frontends.torch.rewrites.index_bounds import never_ignored, with_boundaries
from pitcheck.frontends.torch.rewrites.mean_gradients import with_means
from pitcheck.frontends.torch.rewrites.split_flat_buffers import without_flat_buffers
from pitcheck.frontends.torch.rewrites.uneven_all_to_all import with_even_parts
from pitcheck.frontends.torch.trace import Given, Ref, Result, Trace
from pitcheck.ops.meanings.indexing import UNINITIALISED
from pitcheck.ops.registry import operator_kind
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.fold import Instance, fold
from pitcheck.plan.model import Axis, Lineage, Output, Plan, Tensor
from pitcheck.plan.schedule.run_order import EXTERNAL_ROLES
from pitcheck.plan.tables import Places

REFERENCE_MESH = (Axis("rank", 1),)


def reference_plan(trace: Trace, spec: Spec) -> Plan:
    """Return the plan of the single-device program.

    Raises UnsupportedError for an operator without a meaning.
    """
    return _Building(REFERENCE_MESH, [trace], spec).plan("reference")


def parallel_plan(
    traces: Sequence[Trace], spec: Spec, reference: Plan, single: Trace | None = None
) -> Plan:
    """Return the plan of the distributed program, to be compared with the reference.

    There is one trace per rank. ``single`` is that of the reference; names of values that belong to
    its micro-batches are taken from it.

    Raises:
        UnsupportedError: for an operator without a meaning, and for a tensor if nothing tells which
            part of it a rank holds.
        PlanError: for traces that contradict themselves or each other.
    """
    check_members(traces)
    return _Building(
        tuple(Axis(name, size) for name, size in spec.mesh.items()),
        [with_boundaries(trace) for trace in without_flat_buffers(with_communicators(traces))],
        spec,
        reference,
        single,
    ).plan("parallel")


class _Building:
    """The plan of one program in the making.

    ``reference`` is the plan of the reference, None if this program is the reference; ``single`` is
    its trace.
    """

    def __init__(
        self,
        mesh: tuple[Axis, ...],
        traces: Sequence[Trace],
        spec: Spec,
        reference: Plan | None = None,
        single: Trace | None = None,
    ) -> None:
        self._mesh = mesh
        traces = with_even_parts([compared(trace) for trace in traces])
        self._spec = spec
        self._reference = (
            None if reference is None else {tensor.name: tensor for tensor in reference.tensors}
        )
        self._coordinates = Coordinates(mesh, 1)
        self._places = Places(self._coordinates)
        batch = frozenset(spec.batch)
        for trace in traces:
            check_given(trace, batch)
        begun = (
            {tensor.name for tensor in reference.tensors if tensor.role in EXTERNAL_ROLES}
            if reference is not None
            else set()
        )
        self._taken = (
            batch | begun | {given.name for trace in traces for given in trace.given if given.name}
        )
        self._results = result_names(traces, self._taken)
        self._compared = (
            self._results if reference is None else _compared(self._results, reference, spec)
        )
        self._families = Families(self._taken | self._results.keys())
        self._boxes: dict[str, dict[int, Box]] = defaultdict(dict)
        self._wholes: dict[str, tuple[int, ...]] = {}
        self._from_shapes = PartsFromShapes(spec.mesh)
        self._scattered = {name for trace in traces for name in trace.scattered}
        self._ends_at: dict[str, dict[int, Box]] = defaultdict(dict)
        self._terms: dict[str, dict[int, tuple[int, ...]]] = defaultdict(dict)
        self._bounds = {
            name: given.bounds for name, given in spec.batch.items() if given.bounds is not None
        }
        self._labels = {} if reference is None else kind_labels(traces, spec.mesh)
        self._traces = [
            with_whole_batches(with_means(never_ignored(trace, self._bounds))) for trace in traces
        ]
        self._microbatches = {} if single is None else microbatch_labels(single, self._traces)

    def plan(self, name: str) -> Plan:
        """Return the plan."""
        programs = with_all_groups(
            {trace.rank: self._instances(trace) for trace in self._traces}, self._coordinates
        )
        # The plan leaves out tensors that no operator makes or reads: unwritten memory that nobody
        # reads, and results without elements.
        used = {
            name
            for instances in programs.values()
            for instance in instances
            for name in (*instance.inputs, *instance.outputs)
        }
        operators, blocks, folded = fold(self._mesh, 1, programs)
        return Plan(
            mesh=self._mesh,
            tensors=tuple(
                self._placed(tensor)
                for tensor in self._families.tensors.values()
                if tensor.role != "activation" or tensor.name in used
            ),
            operators=operators,
            outputs=tuple(self._outputs()),
            blocks=blocks,
            programs=folded,
            name=name,
            assumptions=tuple(
                dict.fromkeys(
                    (
                        *(line for trace in self._traces for line in trace.assumptions),
                        *self._from_shapes.assumptions(),
                    )
                )
            ),
        )

    # --- the operators of a rank

    def _instances(self, trace: Trace) -> list[Instance]:
        wanted = self._wanted(trace)
        names = RankNames(
            trace,
            self._families,
            wanted,
            self._compared,
            self._labels.get(trace.rank, ""),
            self._microbatches.get(trace.rank, {}),
        )
        integers = KnownIntegers(names)
        found = [
            instance
            for given in trace.given
            for instance in self._given(given, trace, names, integers)
        ]
        waited = {
            operand.value
            for event in trace.events
            if event.operator == "wait"
            for operand in event.arguments
            if isinstance(operand, Ref)
        }
        for event in trace.events:
            names.enter_outputs(event)
            asynchronous = event.launched or any(output in waited for output in event.outputs)
            try:
                made = translated(event, trace.values, names.of, names.new, asynchronous)
            except UnsupportedError as error:
                raise UnsupportedError(
                    f"{event.source}: {error}" if event.source else str(error)
                ) from None
            found += made.instances
        found += self._ends(trace, names, wanted)
        results = {names.of(result.value) for result in trace.results}
        read = {
            operand for instance in found for operand in instance.inputs if isinstance(operand, str)
        }
        # Unwritten memory that nobody reads, as of a tensor made for its shape, is left out.
        found = [
            instance
            for instance in found
            if instance.kind != UNINITIALISED or instance.outputs[0] in results | read
        ]
        if self._spec.buffered_sends:
            found = [_buffered(instance) for instance in found]
        if self._spec.dropout is not None and self._reference is not None:
            alike = axes_of(self._spec.dropout.alike)
            check_known(alike, self._spec.mesh, "Spec.dropout.alike")
            found = [_drawn_for_own_elements(instance, alike) for instance in found]
        return found

    def _wanted(self, trace: Trace) -> dict[int, str]:
        """Return the name of every value that is a result and no given one.

        A value of several results has the name of the first.
        """
        given = {own.value for own in trace.given}
        found: dict[int, str] = {}
        for result in trace.results:
            if result.value not in given:
                found.setdefault(result.value, result_name(result, self._taken))
        return found

    def _given(
        self, given: Given, trace: Trace, names: RankNames, integers: KnownIntegers
    ) -> Iterator[Instance]:
        value = trace.values[given.value]
        if 0 in value.shape:
            # No operator makes or reads a tensor without elements.
            names.enter(given.value, given.name)
            return
        if given.integers is not None:
            yield from integers.made(given, given.integers, value)
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
        box: Box | None = given.box
        if not box:
            box = (
                tuple(((0, size),) for size in whole)
                if whole == shape
                else self._from_shapes.of(given.name, shape, whole, trace.rank)
            )
        if box is None:
            raise UnsupportedError(
                f"rank {trace.rank} holds {shape} of {given.name!r}, which is {whole} in the "
                f"reference, and its shape does not tell the part; say it in Program.parts, by "
                f"name or for a pattern of names, such as {{'*': Part(split={{0: 'tp'}})}}"
            )
        box = within(box, whole)
        self._wholes[given.name] = whole
        self._boxes[given.name][trace.rank] = box

    def _whole(self, given: Given, rank: int) -> tuple[int, ...]:
        """Return the shape of the whole tensor that a rank holds a part of.

        Raises PlanError if the reference does not have it, or has it in another shape.
        """
        known = (self._reference or {}).get(given.name)
        if known is None:
            raise PlanError(
                f"rank {rank} begins with {given.name!r}, which the reference does not have; map "
                f"its name in Program.names"
            )
        if given.whole not in ((), known.shape):
            raise PlanError(
                f"rank {rank} holds a part of {given.name!r} of shape {given.whole}, which is "
                f"{known.shape} in the reference"
            )
        return known.shape

    def _ends(
        self, trace: Trace, names: RankNames, wanted: Mapping[int, str]
    ) -> Iterator[Instance]:
        """Yield identities for values that are several results; mark results by their kind."""
        for result in trace.results:
            name, value = result_name(result, self._taken), trace.values[result.value]
            if 0 in value.shape:
                raise UnsupportedError(
                    f"rank {trace.rank}: {name!r} has shape {value.shape}; a result without "
                    f"elements has no form here"
                )
            computed = names.of(result.value)
            if wanted.get(result.value) != name:
                computed = names.result(name, value)
                yield Instance("identity", (names.of(result.value),), (computed,))
            if result.kind == "gradient":
                self._mark(computed, gradient_of=result.name, role="gradient")
            elif result.kind == "updated":
                self._mark(
                    computed, updated=result.name if result.name in self._families.tensors else None
                )
            self._ends_at[name][trace.rank] = result.box
            self._terms[name][trace.rank] = result.partial

    def _mark(self, name: str, **changes: object) -> None:
        self._families.tensors[name] = replace(self._families.tensors[name], **changes)

    # --- tensors and outputs

    def _placed(self, tensor: Tensor) -> Tensor:
        """Return a tensor with its lineage, if the step begins with it."""
        if self._reference is None:
            return tensor
        if tensor.name in self._boxes:
            return replace(
                tensor,
                lineage=of_boxes(
                    tensor.name, self._wholes[tensor.name], self._boxes[tensor.name], self._places
                ),
            )
        if tensor.role == "input":
            return replace(tensor, lineage=of_input(tensor.name, self._spec.batch[tensor.name]))
        return tensor

    def _outputs(self) -> Iterator[Output]:
        if self._reference is None:
            yield from (Output(name) for name in self._compared)
            return
        for name, result in self._compared.items():
            part = self._spec.outputs.get(name)
            if result.kind == "scores":
                yield self._scores(name, result)
            else:
                yield Output(
                    name,
                    name,
                    self._summed(name, self._elsewhere(name))
                    if part is None
                    else of_output(name, part, self._spec.mesh),
                )

    def _scores(self, name: str, result: Result) -> Output:
        """Return the scores of a router, which ranks have of the tokens that are theirs."""
        held = self._ends_at[name]
        return Output(name, name, of_boxes(name, result.whole, held, self._places))

    def _summed(self, name: str, lineage: Lineage | None) -> Lineage | None:
        """Return the lineage of a result whose ranks hold terms of a sum; without terms, as it is.

        A DTensor says so itself: the gradient of a norm that sequence parallelism replicates is
        partial until the optimizer adds it up. Raises UnsupportedError if no axes of the mesh make
        up the sums.
        """
        terms = self._terms[name]
        if not any(terms.values()):
            return lineage
        axes = axes_of_groups(terms, self._coordinates)
        if axes is None:
            rank, ranks = next((rank, ranks) for rank, ranks in terms.items() if ranks)
            raise UnsupportedError(
                f"rank {rank} ends with a term of {name!r}, which is a sum over ranks "
                f"{', '.join(map(str, ranks))}, and these are the ranks of no axes of the mesh; "
                f"add the terms up, or say in Spec.outputs[{name!r}] what ranks hold"
            )
        held = self._boxes.get(self._compared[name].name)
        if lineage is None:
            lineage = (
                Lineage(name)
                if held is None
                else of_boxes(name, self._wholes[self._compared[name].name], held, self._places)
            )
        return replace(lineage, partial=axes)

    def _elsewhere(self, name: str) -> Lineage | None:
        """Return the lineage of a gradient or new value that every rank has as a whole.

        It differs from that of the parameter or state, which ranks hold in parts. Returns None if
        ranks have these parts of the result, too.

        A program's statement about a result is only a claim: a gradient labelled as another part
        would make a missing exchange look right. Raises UnsupportedError if the result is neither.
        """
        result = self._compared[name]
        held = self._boxes.get(result.name)
        if result.kind == "output" or held is None:
            return None
        whole_shape = self._wholes[result.name]
        ends = {
            rank: within(box, whole_shape) or held.get(rank)
            for rank, box in self._ends_at[name].items()
        }
        if all(box == held.get(rank) for rank, box in ends.items()):
            return None
        if result.kind == "gradient" and result.name in self._scattered:
            # All elements together are those of the whole, which was checked.
            own = {rank: box for rank, box in ends.items() if box is not None}
            return of_boxes(name, self._wholes[result.name], own, self._places)
        whole = tuple(((0, size),) for size in whole_shape)
        wrong = next((rank for rank, box in ends.items() if box != whole), None)
        if wrong is not None:
            raise UnsupportedError(
                f"rank {wrong} ends with {name!r} in intervals {ends[wrong]}, but holds "
                f"{held.get(wrong)} of {result.name!r}; "
                f"if it shall be so, say in Spec.outputs[{name!r}] which part ranks have"
            )
        return Lineage(name)


def _buffered(instance: Instance) -> Instance:
    """Return an instance; a send does not wait for its receive."""
    return (
        replace(instance, attributes={**instance.attributes, "protocol": "buffered"})
        if instance.kind == "send"
        else instance
    )


def _drawn_for_own_elements(instance: Instance, alike: tuple[str, ...]) -> Instance:
    """Return an instance; a mask that it draws is one for the elements that the rank holds."""
    return (
        replace(instance, attributes={**instance.attributes, "own": alike})
        if operator_kind(instance.kind).random and "probability" in instance.attributes
        else instance
    )


def _compared(results: Mapping[str, Result], reference: Plan, spec: Spec) -> dict[str, Result]:
    """Return the results that the reference has, too.

    Whatever a rank keeps beside them, such as gradients of padding, is not compared.
    """
    wanted = {output.tensor for output in reference.outputs}
    check_known(
        spec.outputs, {name for name in wanted if not name.startswith(SCORES)}, "Spec.outputs"
    )
    return {name: result for name, result in results.items() if name in wanted}
