"""Recording the communication of a rank: collectives, sends and receives.

The schemas of c10d do not say what an operator writes. An asynchronous operator uses its operands,
and has no result, until somebody has waited for its work. Communication moves memory and knows
nothing of indices: where dimensions may lie in memory in another order, an operand is taken as it
lies there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from types import FrameType
from typing import Any, NamedTuple

import msgspec
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup, Work
from torch._ops import OpOverload

from pitcheck.errors import PitcheckError, PlanError, UnsupportedError
from pitcheck.frontends.torch.communication.flights import Flights
from pitcheck.frontends.torch.communication.works import Launched
from pitcheck.frontends.torch.recording.arguments import dtype_name
from pitcheck.frontends.torch.recording.tape import Kind, Tape
from pitcheck.frontends.torch.storage.storages import Storages, view_of
from pitcheck.frontends.torch.trace import Argument, Ref

REDUCTIONS = {0: "sum", 1: "avg", 2: "product", 3: "min", 4: "max"}
"""The names of reductions in traces, by their numbers in c10d."""
PREMULTIPLIED = 8
"""The number of the kind of reduction that multiplies each operand by a factor and adds up."""
NAMED = {
    "sum": "sum",
    "avg": "avg",
    "product": "product",
    "prod": "product",
    "min": "min",
    "max": "max",
}
"""The names of reductions in traces, by their names in functional collectives."""

Tensors = Sequence[torch.Tensor]


class Landing(NamedTuple):
    """A tensor that an operator writes to.

    ``raw`` is the value that the operator gives. ``made`` makes the tensor's value of it once it
    may be read. ``lost`` says that something else is written, which nobody may read.
    """

    target: torch.Tensor
    raw: int
    made: Callable[[int], int] = lambda raw: raw
    lost: bool = False


@dataclass(eq=False)
class Flight:
    """An operator that has been launched.

    ``sends`` are the numbers of the events that send, with the values that they send. ``work`` is
    what the program waits for; None if it waits for a tensor.
    """

    landings: Sequence[Landing]
    sends: Sequence[tuple[int, int]]
    work: Work | None = None


class Communication:
    """The communication of a rank on its tape.

    ``factor`` is the factor of the premultiplied sum that the program has just called for, which
    the operator does not tell.
    """

    def __init__(self, tape: Tape, storages: Storages) -> None:
        self._tape = tape
        self._storages = storages
        self.flights = Flights()
        self._launched: dict[int, Flight] = {}
        """Operators in flight, by the identity of their work, or of the flight if it has none."""
        self._tensors: dict[int, list[Flight]] = {}
        """The flights that end with a wait for a tensor, by the tensor's storage."""
        self._works: list[Launched] = []
        """All works, which C++ may call after the program has dropped them."""
        self._batch: FrameType | None = None
        self._batches = 0
        self.factor: float | None = None

    def emit(
        self,
        operator: str,
        arguments: tuple[Argument, ...],
        shape: Sequence[int],
        like: torch.Tensor,
        group: Members,
    ) -> int:
        """Record a collective with one result; return the number of its value."""
        return self._tape.emit(
            operator,
            arguments,
            [Kind(tuple(shape), like.dtype)],
            group.ranks,
            communicator=group.name,
        )[0]

    def all_reduce(self, value: int, reduction: str, like: torch.Tensor, group: Members) -> int:
        """Record an all-reduce of a value of the shape of ``like``; return its result."""
        return self.emit("all_reduce", (Ref(value), reduction), like.shape, like, group)

    def all_gather(self, tensor: torch.Tensor, group: Members) -> int:
        """Record an all-gather of a tensor's rows; return its result."""
        rows = rows_of(tensor.shape)
        arguments = (Ref(self.viewed(self.read(tensor), rows)),)
        return self.emit("all_gather", arguments, (rows[0] * len(group), *rows[1:]), tensor, group)

    def all_to_all(
        self,
        value: int,
        sent: Sequence[int],
        received: Sequence[int],
        like: torch.Tensor,
        group: Members,
    ) -> int:
        """Record an all-to-all of rows like those of a tensor; return its result.

        ``sent`` and ``received`` are the numbers of rows for and from each member.
        """
        shape = (sum(received), *rows_of(like.shape)[1:])
        # A trace has no sizes for equal parts.
        even = len({*sent, *received}) == 1
        sizes = (None, None) if even else (tuple(sent), tuple(received))
        return self.emit("all_to_all", (Ref(value), *sizes), shape, like, group)

    def of_bytes(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor of bytes in the dtype in which they were written, any other as it is.

        Moving the bytes of numbers moves the numbers.
        """
        dtype = self._storages.dtype_of(tensor)
        if tensor.dtype != torch.uint8 or dtype is None or not tensor.is_contiguous():
            return tensor
        start, size = int(tensor.storage_offset()), dtype.itemsize
        if start % size or tensor.numel() % size:
            return tensor
        return torch.empty(0, dtype=dtype).set_(
            tensor.untyped_storage(), start // size, (tensor.numel() // size,), (1,)
        )

    def broadcast(self, tensor: torch.Tensor, root: int, group: Members) -> int:
        """Record a broadcast from the member at place ``root``; return its result."""
        arguments = (Ref(self.read_at_root(tensor, root, group)), root)
        return self.emit("broadcast", arguments, tensor.shape, tensor, group)

    def barrier(self, group: Members) -> None:
        """Record a barrier: nobody of the group goes on before all have come here."""
        self._tape.emit("barrier", (), [], group.ranks, communicator=group.name)

    def where(self) -> str:
        """Return the user's present line."""
        return self._tape.where()

    def read(self, tensor: torch.Tensor) -> int:
        """Return the value of an operand."""
        return self._storages.read(tensor)

    def read_at_root(self, tensor: torch.Tensor, root: int, group: Members) -> int:
        """Return the value of an operand that only the member at place ``root`` reads.

        On any other member it is a buffer, whose contents do not matter.
        """
        if group.ranks[root] == dist.get_rank():
            return self.read(tensor)
        return self._storages.undefined(tuple(tensor.shape), tensor.dtype)

    def store(self, tensor: torch.Tensor, value: int) -> None:
        """Write new contents to a tensor; nobody has to wait for them."""
        self._storages.write(tensor, value)

    def viewed(self, value: int, shape: Sequence[int]) -> int:
        """Return a value in another shape."""
        kind = self._tape.kinds[value]
        if kind.shape == tuple(shape):
            return value
        return self._tape.one("view.default", (Ref(value), tuple(shape)), shape, kind.dtype)

    def joined(self, tensors: Tensors) -> int:
        """Return tensors joined along dimension 0."""
        values = [self.viewed(self.read(tensor), rows_of(tensor.shape)) for tensor in tensors]
        if len(values) == 1:
            return values[0]
        shape = (
            sum(rows_of(tensor.shape)[0] for tensor in tensors),
            *rows_of(tensors[0].shape)[1:],
        )
        return self._tape.one("cat.default", (tuple(map(Ref, values)), 0), shape, tensors[0].dtype)

    def as_parts(self, raw: int, targets: Tensors) -> list[Landing]:
        """Return the landings that give tensors the rows of a value, one after the other."""
        landings, begin = [], 0
        for target in targets:
            end = begin + rows_of(target.shape)[0]
            landings.append(
                Landing(target, raw, partial(self._rows, begin, end, tuple(target.shape)))
            )
            begin = end
        return landings

    def _rows(self, begin: int, end: int, shape: tuple[int, ...], value: int) -> int:
        kind = self._tape.kinds[value]
        rows = self._tape.one(
            "slice.Tensor",
            (Ref(value), 0, begin, end, 1),
            (end - begin, *kind.shape[1:]),
            kind.dtype,
        )
        return self.viewed(rows, shape)

    def as_whole(self, raw: int, target: torch.Tensor) -> Landing:
        """Return the landing that gives a tensor a value in the tensor's shape."""
        return Landing(target, raw, partial(self._shaped, tuple(target.shape)))

    def _shaped(self, shape: tuple[int, ...], value: int) -> int:
        return self.viewed(value, shape)

    def scaled(self, value: int, factor: float) -> int:
        """Return a value times a number."""
        kind = self._tape.kinds[value]
        return self._tape.one("mul.Tensor", (Ref(value), factor), kind.shape, kind.dtype)

    def none(self, like: torch.Tensor) -> int:
        """Return a value without rows."""
        shape = (0, *rows_of(like.shape)[1:])
        return self._tape.one(
            "full.default", (shape, 0, dtype_name(like.dtype), None, None, None), shape, like.dtype
        )

    def send(self, value: int, peer: int, tag: int, group: Members) -> tuple[int, int]:
        """Record a send; return the number of its event, and the value that it sends."""
        self._tape.emit("send", (Ref(value), peer, tag), [], group.ranks, self.batch(), group.name)
        return len(self._tape.events) - 1, value

    def receive(self, like: torch.Tensor, peer: int, tag: int, group: Members) -> int:
        """Record a receive; return the number of the value that a peer sends."""
        return self._tape.emit(
            "receive",
            (peer, tag),
            [Kind(tuple(like.shape), like.dtype)],
            group.ranks,
            self.batch(),
            group.name,
        )[0]

    def batch(self) -> int | None:
        """Return the number of the batch of sends and receives that is being launched.

        Returns None outside of a batch.
        """
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code is not dist.batch_isend_irecv.__code__:
            frame = frame.f_back
        if frame is None:
            return None
        if frame is not self._batch:
            self._batch, self._batches = frame, self._batches + 1
        return self._batches

    def land(
        self,
        what: str,
        work: Any,
        landings: Sequence[Landing],
        read: Tensors,
        sends: Sequence[tuple[int, int]] = (),
        waits: bool = True,
    ) -> None:
        """Launch an operator, which ``what`` names.

        ``waits`` says that operands are in use, and results may not be read, until the program has
        waited. It waits for the work or, if that is None, for a tensor that the operator writes to.
        Raises PlanError if memory that it uses is in use by another operator.
        """
        flight = Flight(landings, sends, None if work is None else Work.unbox(work))
        handle = id(flight) if flight.work is None else id(flight.work)
        written = [landing.target for landing in landings]
        self.flights.launch(handle, what, read, written, self._tape.where())
        if not waits:
            self.flights.finish(handle)
            self._complete(landing.raw for landing in landings)
            self._land(landings, {})
            return
        # The flight holds the work, so that no other object gets its identity.
        self._launched[handle] = flight
        if flight.work is None:
            for memory in {target.untyped_storage()._cdata for target in written}:
                self._tensors.setdefault(memory, []).append(flight)

    def work(self) -> Launched:
        """Return a new work, for which a program may wait in Python or in C++."""
        self._works.append(Launched(self))
        return self._works[-1]

    def refused(self, message: str) -> PitcheckError:
        """Return the refusal, to be raised, of what the program asks at its present line."""
        return self._tape.unsupported(message)

    def run_later(
        self, settle: Callable[[], object], callback: Callable[[], Any]
    ) -> tuple[Callable[[], None], Any]:
        """Run a callback that the program runs at some time, as soon as ``settle`` has waited.

        Returns:
            The function by which the program waits for the callback, and what this one returns.
            Until then nobody may use the memory that the callback uses, nor that for which
            ``settle`` waits.
        """
        with self.flights.watched() as used:
            settle()
            value = callback()
        handle = object()
        self.flights.again(handle, used, f"the callback given at {self._tape.where()}")
        return partial(self.flights.finish, handle), value

    def targets(self, work: Work) -> list[torch.Tensor]:
        """Return the tensors that a work in flight writes to."""
        flight = self._launched.get(id(work))
        return [] if flight is None else [landing.target for landing in flight.landings]

    def waited(self, work: Work) -> None:
        """Complete a work for which the program has waited."""
        flight = self._launched.pop(id(work), None)
        if flight is not None:
            self._finish(id(work), flight)

    def wait_tensor(self, tensor: torch.Tensor) -> int:
        """Complete what the program has waited for by a tensor; return its value from now on."""
        for flight in self._tensors.pop(tensor.untyped_storage()._cdata, []):
            if self._launched.pop(id(flight), None) is not None:
                self._finish(id(flight), flight)
        return self.read(tensor)

    def check_done(self) -> None:
        """Raise PlanError for a work that was launched and never waited for.

        The result of a functional collective that nobody reads needs no wait; one that is read is
        waited for before.
        """
        for handle, source in self.flights.sources():
            flight = self._launched.get(handle) if isinstance(handle, int) else None
            if flight is None or flight.work is not None:
                raise PlanError(
                    f"{source} is in flight at the end of the step; wait for it, for nobody knows "
                    f"when its operands and results may be used"
                )

    def settle(self) -> None:
        """Complete what is in flight between two calls of the step.

        These are results of functional collectives that nobody has read.
        """
        for handle, flight in list(self._launched.items()):
            del self._launched[handle]
            self._finish(handle, flight)
        self._tensors.clear()

    def _finish(self, handle: int, flight: Flight) -> None:
        self.flights.finish(handle)
        self._land(
            flight.landings, {landing.raw: self._waited(landing.raw) for landing in flight.landings}
        )
        for number, value in flight.sends:
            if number < self._last():
                self._tape.events[number] = msgspec.structs.replace(
                    self._tape.events[number], launched=True
                )
                self._tape.emit("wait", (Ref(value),), [])

    def _last(self) -> int:
        """Return the number of the last event that communicates or waits; -1 without one."""
        events = self._tape.events
        return next(
            (
                number
                for number in range(len(events) - 1, -1, -1)
                if events[number].group or events[number].operator == "wait"
            ),
            -1,
        )

    def _land(self, landings: Sequence[Landing], values: Mapping[int, int]) -> None:
        for landing in landings:
            if landing.lost:
                self._storages.write(
                    landing.target,
                    self._storages.undefined(tuple(landing.target.shape), landing.target.dtype),
                )
            else:
                self._storages.write(
                    landing.target, landing.made(values.get(landing.raw, landing.raw))
                )

    def _complete(self, values: Iterable[int]) -> None:
        if self._tape.meetings is not None:
            for value in values:
                self._tape.meetings.complete(value)

    def _waited(self, value: int) -> int:
        self._complete([value])
        kind = self._tape.kinds[value]
        return self._tape.one("wait", (Ref(value),), kind.shape, kind.dtype)


def rows_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Return a shape that has a dimension 0: a number is one row."""
    return tuple(shape) or (1,)


class Members(NamedTuple):
    """The members of a process group by their global ranks, in the group's order, and its name.

    Several groups may have the same ranks.
    """

    ranks: tuple[int, ...]
    name: str

    def __len__(self) -> int:
        return len(self.ranks)


def members_of(group: Any) -> Members:
    """Return the members of a process group, given as itself, its name or its handle."""
    if isinstance(group, str):
        found = dist.distributed_c10d._resolve_process_group(group)  # type: ignore[arg-type]
    elif isinstance(group, ProcessGroup):
        found = group
    else:
        found = ProcessGroup.unbox(group)
    return Members(tuple(dist.get_process_group_ranks(found)), found.group_name)


def laid(tensor: torch.Tensor, what: str) -> torch.Tensor:
    """Return a tensor as it lies in memory, with its dimensions in that order.

    Raises PlanError for a tensor whose elements are not side by side.
    """
    view = view_of(tensor)
    if tensor.is_contiguous():
        return tensor
    if not view.dense:
        raise PlanError(
            f"{what} is given a tensor of shape {tuple(tensor.shape)} and strides "
            f"{tuple(tensor.stride())}, which has gaps; call .contiguous() on it"
        )
    shape = view.memory_shape
    return torch.as_strided(
        tensor.detach(),
        shape,
        [prod(shape[dim + 1 :]) for dim in range(len(shape))],
        tensor.storage_offset(),
    )


def reduction_of(reduction: Any) -> str:
    """Return the name of a kind of reduction in traces.

    Raises UnsupportedError for an unknown kind.
    """
    name = (
        NAMED.get(reduction.lower())
        if isinstance(reduction, str)
        else REDUCTIONS.get(kind_number(reduction))
    )
    if name is None:
        raise UnsupportedError(
            f"a reduction of kind {reduction} is not known; use one of "
            f"{', '.join(sorted(set(NAMED.values())))}"
        )
    return name


def kind_number(reduction: Any) -> int:
    """Return the number of a kind of reduction.

    It is given as a ``ReduceOp``, as its kind alone, or as the object that operators get for it,
    which returns its number when called.
    """
    kind: Any = getattr(reduction, "op", reduction)
    number: Any = kind if isinstance(kind, dist.ReduceOp.RedOpType) else kind()
    return int(number)


Handler = Callable[[Communication, OpOverload, Sequence[Any], dict[str, Any]], Any]
"""A function that records a call of an operator, given the operator and its arguments."""
