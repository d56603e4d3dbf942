"""The recording of one rank: its program, built and run on tensors without numbers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from math import prod
from multiprocessing.connection import Connection
from typing import Any, Literal

import torch
import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # its import registers the backend "fake"
from msgspec.structs import replace
from torch.utils._python_dispatch import _disable_current_modes

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.torch.packing.derived import call_before, index_of, of_document
from pitcheck.frontends.torch.packing.layout import Document, Layout, layouts
from pitcheck.frontends.torch.patches.bypasses import bypass_patches
from pitcheck.frontends.torch.patches.distributed import distributed_patches
from pitcheck.frontends.torch.patches.flex_attention import flex_attention_patches
from pitcheck.frontends.torch.patches.layers_and_optimizers import library_patches
from pitcheck.frontends.torch.patches.nondeterminism import deterministic
from pitcheck.frontends.torch.patches.patching import patched
from pitcheck.frontends.torch.patches.reads import read_patches
from pitcheck.frontends.torch.patches.reducer import reducer_patches
from pitcheck.frontends.torch.patches.tensor_copies import copy_patches
from pitcheck.frontends.torch.program import Input, Program, Rank, Spec
from pitcheck.frontends.torch.recording.arguments import DTYPES, dtype_name
from pitcheck.frontends.torch.recording.beginnings import beginnings
from pitcheck.frontends.torch.recording.blame import Blame
from pitcheck.frontends.torch.recording.generator_state import begin
from pitcheck.frontends.torch.recording.numberless import Numberless
from pitcheck.frontends.torch.recording.parameter_lineage import local, part_of
from pitcheck.frontends.torch.recording.program_tensors import Held, Names
from pitcheck.frontends.torch.recording.rank_batch import box_of, coordinate_of
from pitcheck.frontends.torch.recording.recorder import Recorder
from pitcheck.frontends.torch.recording.tape import Kind, Tape
from pitcheck.frontends.torch.rewrites.assumed_choices import without_assumed_choices
from pitcheck.frontends.torch.rewrites.needed_events import trace_of
from pitcheck.frontends.torch.routers.choices import Routers
from pitcheck.frontends.torch.routers.token_numbers import TokenNumbers
from pitcheck.frontends.torch.routing import Routed
from pitcheck.frontends.torch.storage.parameter_copies import ParameterCopies
from pitcheck.frontends.torch.storage.state import Memory
from pitcheck.frontends.torch.storage.storages import Mark
from pitcheck.frontends.torch.together.answers import Recorded
from pitcheck.frontends.torch.together.line import Line
from pitcheck.frontends.torch.together.meetings import Meetings
from pitcheck.frontends.torch.together.objects import objects_exchanged
from pitcheck.frontends.torch.together.passed_infinity import reliance_of
from pitcheck.frontends.torch.together.stores import SharedStore, store_patches
from pitcheck.frontends.torch.trace import Ref, Result, Role, Trace

Side = Literal["reference", "parallel"]


def record_rank(
    spec: Spec, side: Side, number: int, connection: Connection, routed: Routed | None = None
) -> Recorded:
    """Return the recording of a rank, whose routers choose as ``routed`` says.

    ``connection`` leads to the process that records all ranks.

    It changes the process, and is called once in each. Raises UnsupportedError for a program that
    cannot be recorded, PlanError for one that contradicts itself, and whatever the program raises.
    """
    # A forked process has none of the threads that libraries started before.
    torch.set_num_threads(1)
    # Without this library every layer consists of operators that have a meaning.
    torch._C._set_mkldnn_enabled(False)
    begin(f"{side} {number}")
    blame = Blame(record_rank.__code__)
    tape = Tape(blame.place)
    line = Line(connection, tape.where)
    meetings = tape.meetings = Meetings(number, line, tape.kinds, tape.known, tape.finite)
    mesh = dict(spec.mesh) if side == "parallel" else {}
    coordinate = coordinate_of(number, mesh)
    if side == "parallel":
        _start_group(number, prod(mesh.values()), SharedStore("default", tape, meetings))
    with ExitStack() as stack:
        fake = stack.enter_context(Numberless(allow_non_fake_inputs=True))
        recorder = Recorder(tape, fake)
        recorder.drawn = spec.drawn, f"{side} {number}"
        for context in (
            patched(distributed_patches(recorder)),
            patched(reducer_patches()),
            patched(copy_patches(recorder)),
            patched(bypass_patches(recorder)),
            objects_exchanged(recorder, meetings),
            patched(store_patches(tape, meetings)),
            patched(read_patches(tape.reads)),
            patched(library_patches(recorder)),
            patched(flex_attention_patches(recorder)),
            deterministic(recorder, number),
            blame,
            recorder,
        ):
            stack.enter_context(context)
        try:
            program = (
                spec.parallel(Rank(number, mesh, coordinate))
                if side == "parallel"
                else spec.reference()
            )
            session = _Session(spec, mesh, coordinate, recorder, program, blame)
            if routed is not None:
                session.route(routed)
            trace = session.run(number)
        except BaseException:
            # The program is not to blame for an error that follows from a refusal.
            if tape.refused is not None:
                raise tape.refused from None
            raise
        finally:
            line.flush()
        if tape.refused is not None:
            raise tape.refused
        return Recorded(
            trace,
            reliance_of(meetings.passages, tape.relied),
            reliance_of(meetings.touching, tape.choosing),
        )


def _start_group(rank: int, size: int, store: dist.Store) -> None:
    """Start the process group, and tell frameworks of it as ``torchrun`` does on one machine."""
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        GROUP_RANK="0",
        WORLD_SIZE=str(size),
        LOCAL_WORLD_SIZE=str(size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="29500",
    )
    dist.init_process_group("fake", store=store, rank=rank, world_size=size)


class _Session:
    """The two calls of one rank's step.

    ``mesh`` and ``coordinate`` are empty for the reference.
    """

    def __init__(
        self,
        spec: Spec,
        mesh: Mapping[str, int],
        coordinate: Mapping[str, int],
        recorder: Recorder,
        program: Program,
        blame: Blame,
    ) -> None:
        self._spec = spec
        self._mesh = mesh
        self._coordinate = coordinate
        self._recorder = recorder
        self._tape = recorder.tape
        self._program = program
        self._names = Names(program, mesh, coordinate)
        blame.name(self._names.modules())

    def route(self, routed: Routed) -> None:
        """Let routers choose as a routing says."""
        total = len(routed.routers[0].tokens) if routed.routers else None
        self._recorder.routers = Routers(
            self._tape,
            routed.routing,
            self._spec.router,
            TokenNumbers(self._spec.router, self._spec.batch, self._mesh, self._coordinate, total),
            routed.routers if self._mesh else None,
        )

    def run(self, number: int) -> Trace:
        """Run the step twice and return the trace of the second call.

        The first call makes what frameworks make lazily.
        """
        begun = beginnings(
            self._recorder,
            [*self._names.parameters(), *self._names.buffers()],
            list(self._names.states()),
        )
        shapes = self._shapes()
        self._recorder.building = False
        self._step(call_before(self._spec))
        self._check_shapes(shapes)
        self._recorder.communication.settle()
        copies = ParameterCopies(self._recorder, self._names)
        memory = Memory(self._recorder, self._names)
        before = self._begin()
        copies.begin()
        memory.begin([*(held.tensor for held in before.values()), *copies.tensors])
        values = {
            name: self._recorder.storages.read(held.memory(self._recorder))
            for name, held in before.items()
        }
        marks = {name: self._mark(held) for name, held in before.items()}
        start = len(self._tape.events)
        outputs = self._step(self._spec)
        self._tape.ended = True
        copies.check()
        updated = self._updated(values, marks)
        parameters = {held.name for held in self._names.parameters()}
        updates = bool(self._names.optimizers()) or any(
            result.asked and result.name in parameters for result in updated
        )
        ended = [
            held.tensor
            for held in (*self._names.parameters(), *self._names.buffers(), *self._names.states())
        ]
        ended += copies.tensors
        gradients = self._gradients()
        core, kept = memory.end(
            [*self._outputs(outputs), *self._scores(), *gradients, *updated],
            ended,
            updates=updates,
            everything=not self._mesh,
        )
        remaining = [
            *kept.begun,
            *(values[one.name] for one in (*updated, *gradients) if one.name in values),
        ]
        results = without_assumed_choices(self._tape, start, [*core, *kept.results])
        trace = trace_of(number, self._tape, start, results, self._assumptions(), remaining)
        routers = self._recorder.routers
        return replace(
            trace,
            numbers=tuple(kept.numbers),
            accumulated=tuple(kept.accumulated),
            scattered=tuple(self._names.scattered),
            routers=() if routers is None else routers.found(),
            beginnings=begun,
        )

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {held.name: tuple(local(held.tensor).shape) for held in self._names.buffers()}

    def _check_shapes(self, built: Mapping[str, tuple[int, ...]]) -> None:
        """Raise UnsupportedError for a saved buffer whose shape the first call has changed.

        By its new shape it could be taken for the rank's part of the reference's buffer.
        """
        for name, shape in self._shapes().items():
            if shape != built.get(name, shape):
                raise UnsupportedError(
                    f"the step leaves the buffer {name!r} with the shape {shape}, and has found it "
                    f"with {built[name]}; what it then holds of the reference's is not known: give "
                    f"it its shape when the program is built"
                )

    def _step(self, spec: Spec) -> Any:
        if self._recorder.routers is not None:
            self._recorder.routers.begin()
        batch = {name: self._input(name, given) for name, given in spec.batch.items()}
        packed = spec.packings and not self._mesh
        outputs = self._program.step(self._documents(batch, spec) if packed else batch)
        self._recorder.communication.check_done()
        return outputs

    def _assumptions(self) -> list[str]:
        """Return sentences that the report must say beside the verdict."""
        timed = self._tape.meetings.timed if self._tape.meetings is not None else {}
        said = [
            *self._program.assumptions,
            *self._tape.reads.assumptions,
            *(f"ranks come in the order of their numbers to {call}" for call in timed),
        ]
        if self._names.optimizers():
            said.append(
                "the recorded step is the optimizer's second: corrections that depend on the "
                "number of the step have the numbers of that one"
            )
        if self._names.scattered:
            said.append(
                f"of the gradients of {len(self._names.scattered)} parameters each rank has the "
                f"elements that Program.scattered gives it; nobody uses what lies beside them"
            )
        if self._names.replicated:
            said.append("the buckets of DistributedDataParallel are those of its first step")
        return said

    def _documents(
        self, batch: Mapping[str, torch.Tensor], spec: Spec
    ) -> list[dict[str, torch.Tensor]]:
        """Return a batch for each document of the packing, in memory of its own."""
        (layout,) = layouts(spec)
        return [
            {
                name: self._of_document(name, spec.batch[name], tensor, layout, document)
                for name, tensor in batch.items()
            }
            for document in layout.documents
        ]

    def _of_document(
        self, name: str, given: Input, tensor: torch.Tensor, layout: Layout, document: Document
    ) -> torch.Tensor:
        if given.packed:
            own = of_document(name, given, layout, document)
            with _disable_current_modes():
                known = torch.tensor(own.values, dtype=DTYPES[own.dtype]).reshape(own.shape)
            return self._recorder.constant(known)
        return (tensor if given.tokens is None else tensor[index_of(given, document)]).clone()

    def _input(self, name: str, given: Input) -> torch.Tensor:
        if given.dtype not in DTYPES:
            raise PlanError(
                f"batch[{name!r}] has dtype {given.dtype!r}; use one of {', '.join(DTYPES)}"
            )
        # The reference reads the batch as a whole.
        box = box_of(
            name, given if self._mesh else Input(given.shape), self._mesh, self._coordinate
        )
        shape = tuple(stop - start for ((start, stop),) in box)
        dtype = DTYPES[given.dtype]
        integers = _values(name, given, box)
        where = (
            {"integers": tuple(map(int, integers.reshape(-1).tolist()))}
            if integers is not None
            else {}
        )
        # Known values are stored as integers; a tensor of floats is cast from them.
        stored = dtype if integers is None else integers.dtype
        value = self._tape.give(
            Kind(shape, stored), "input", name, whole=given.shape, box=box, **where
        )
        if integers is not None:
            self._tape.known[value] = integers
        elif given.bounds is not None:
            self._tape.bounds[value] = given.bounds
        if stored != dtype:
            arguments = (Ref(value), dtype_name(dtype), None, None, None, False, None)
            value = self._tape.one("_to_copy.default", arguments, shape, dtype)
        tensor = torch.empty(shape, dtype=dtype)
        self._recorder.storages.write(tensor, value)
        return tensor

    def _begin(self) -> dict[str, Held]:
        """Give parameters, saved buffers and optimizer state new values; return them by name.

        The step begins with any values of these. A state whose numbers are known keeps them.
        """
        self._names.check_parts()
        begun = {}
        roles: list[tuple[Role, list[Held]]] = [
            ("parameter", self._names.parameters()),
            ("buffer", self._names.buffers()),
        ]
        states = [
            held
            for held in self._names.states()
            if self._recorder.storages.read(held.memory(self._recorder)) not in self._tape.known
        ]
        for role, helds in [*roles, ("optimizer_state", states)]:
            for held in helds:
                tensor = held.memory(self._recorder)
                value = self._tape.give(
                    Kind(tuple(tensor.shape), tensor.dtype),
                    role,
                    held.name,
                    whole=held.part.whole,
                    box=held.part.box,
                )
                self._recorder.storages.write(tensor, value)
                begun[held.name] = held
        return begun

    def _outputs(self, outputs: Any) -> list[Result]:
        if outputs is None:
            return []
        named = outputs if isinstance(outputs, Mapping) else {"loss": outputs}
        for name, tensor in named.items():
            if not isinstance(tensor, torch.Tensor):
                raise PlanError(
                    f"Program.step returns {name!r} as {type(tensor).__name__}; return a tensor, "
                    f"outputs by name, or None"
                )
        return [
            self._result("output", Held(name, tensor, part_of(tensor)))
            for name, tensor in named.items()
        ]

    def _scores(self) -> list[Result]:
        routers = self._recorder.routers
        return [] if routers is None else list(routers.results())

    def _gradients(self) -> list[Result]:
        return [self._result("gradient", held) for held in self._names.gradients()]

    def _mark(self, held: Held) -> Mark:
        return self._recorder.storages.mark(held.memory(self._recorder))

    def _updated(self, before: Mapping[str, int], marks: Mapping[str, Mark]) -> list[Result]:
        """Return parameters, saved buffers and the state of optimizers after the step.

        They are asked for if there is an optimizer or the step has changed them.
        """
        steps = bool(self._names.optimizers())
        stepped = [
            *self._names.parameters(),
            *(held for held in self._names.states() if held.name in before),
        ]
        results = []
        for helds, asked in ((stepped, steps), (self._names.buffers(), False)):
            for held in helds:
                result = self._result("updated", held)
                if self._mark(held) == marks.get(held.name):
                    results.append(replace(result, value=before[held.name], asked=asked))
                else:
                    results.append(result)
        return results

    def _result(self, kind: Literal["output", "gradient", "updated"], held: Held) -> Result:
        self._recorder.writes.check(local(held.tensor))
        tensor = held.memory(self._recorder)
        self._recorder.communication.flights.touch(
            tensor, False, f"what reads the result {held.name!r} after the step", ""
        )
        value = self._recorder.storages.read(tensor)
        return Result(value, kind, held.name, held.part.whole, held.part.box, held.part.partial)


def _values(name: str, given: Input, box: tuple[Any, ...]) -> torch.Tensor | None:
    """Return the known elements of an input on this rank, None if the user gives none.

    Those of a tensor of floats are whole numbers, as int64.
    Raises PlanError for elements that do not fit dtype or shape.
    """
    if given.values is None:
        return None
    with _disable_current_modes():
        try:
            stated = torch.as_tensor(given.values)
        except (ValueError, TypeError, RuntimeError) as error:
            raise PlanError(f"batch[{name!r}] has values that are no array: {error}") from None
        if tuple(stated.shape) not in (tuple(given.shape), (prod(given.shape),)):
            raise PlanError(
                f"batch[{name!r}] has values of shape {tuple(stated.shape)}; give them in its "
                f"shape {given.shape}, or as a list of its {prod(given.shape)} elements, row-major"
            )
        dtype = DTYPES[given.dtype]
        floats = dtype.is_floating_point
        whole = stated.to(torch.int64 if floats else dtype).reshape(given.shape)
        held = whole.to(dtype).to(whole.dtype)
        if not torch.equal(held, whole) or not torch.equal(
            whole.reshape(stated.shape).to(stated.dtype), stated
        ):
            wanted = f"whole numbers that {given.dtype} holds" if floats else given.dtype
            raise PlanError(f"batch[{name!r}] has values that are no {wanted}")
        return whole[tuple(slice(start, stop) for ((start, stop),) in box)].clone()
