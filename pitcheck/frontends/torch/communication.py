"""What every operator of torch.distributed does: which tensors it reads and writes, in which group, and when its result may be read.

The schemas of c10d do not say what is written. An asynchronous operator's result is there when somebody has waited for its work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from math import prod
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FakeWork, ProcessGroup, Work
from torch._ops import OpOverload

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.torch.arguments import dtype_name, signature
from pitcheck.frontends.torch.storages import Storages
from pitcheck.frontends.torch.tape import Kind, Tape
from pitcheck.frontends.torch.trace import Argument, Ref

REDUCTIONS = {0: "sum", 1: "avg", 2: "product", 3: "min", 4: "max"}
PREMULTIPLIED = 8
"""The kind of a sum of what every rank has times a factor."""
NAMED = {"sum": "sum", "avg": "avg", "product": "product", "prod": "product", "min": "min", "max": "max"}

COALESCED = frozenset({"allreduce_coalesced_", "allgather_into_tensor_coalesced_", "allgather_coalesced_", "reduce_scatter_tensor_coalesced_"})

Tensors = Sequence[torch.Tensor]


class Flight:
    """A collective that has been launched: where its results go, what it reads, and the values at launch."""

    def __init__(self, work: Work | None, written: list[tuple[torch.Tensor, int]], read: list[tuple[torch.Tensor, int]], source: str) -> None:
        self.work = work
        self.written = written
        self.read = read
        self.source = source


class Communication:
    """Records collectives, sends and receives."""

    def __init__(self, tape: Tape, storages: Storages) -> None:
        self._tape = tape
        self._storages = storages
        self._flights: dict[int, Flight] = {}
        self._batch: FrameType | None = None
        self._batches = 0
        self.factor: float | None = None
        """The factor of the premultiplied sum that the program has just called for, which the operator does not tell."""

    def emit(self, operator: str, arguments: tuple[Argument, ...], shape: Sequence[int], like: torch.Tensor, group: tuple[int, ...]) -> int:
        """A collective of one result."""
        return self._tape.emit(operator, arguments, [Kind(tuple(shape), like.dtype)], group)[0]

    def read(self, tensor: torch.Tensor) -> int:
        """The value of an operand."""
        return self._storages.read(tensor)

    def store(self, tensor: torch.Tensor, value: int) -> None:
        """New contents of a tensor, for which nobody has to wait."""
        self._storages.write(tensor, value)

    def viewed(self, value: int, shape: Sequence[int]) -> int:
        """A value in another shape."""
        kind = self._tape.kinds[value]
        if kind.shape == tuple(shape):
            return value
        return self._tape.one("view.default", (Ref(value), tuple(shape)), shape, kind.dtype)

    def joined(self, tensors: Tensors) -> int:
        """Tensors joined along dimension 0."""
        values = [self.viewed(self.read(tensor), rows_of(tensor.shape)) for tensor in tensors]
        if len(values) == 1:
            return values[0]
        shape = (sum(rows_of(tensor.shape)[0] for tensor in tensors), *rows_of(tensors[0].shape)[1:])
        return self._tape.one("cat.default", (tuple(map(Ref, values)), 0), shape, tensors[0].dtype)

    def parts(self, value: int, sizes: Sequence[int]) -> list[int]:
        """A value cut along dimension 0."""
        kind, begin, found = self._tape.kinds[value], 0, []
        for size in sizes:
            arguments = (Ref(value), 0, begin, begin + size, 1)
            found.append(self._tape.one("slice.Tensor", arguments, (size, *kind.shape[1:]), kind.dtype))
            begin += size
        return found

    def scaled(self, value: int, factor: float) -> int:
        """A value times a number."""
        kind = self._tape.kinds[value]
        return self._tape.one("mul.Tensor", (Ref(value), factor), kind.shape, kind.dtype)

    def none(self, like: torch.Tensor) -> int:
        """No rows at all."""
        shape = (0, *rows_of(like.shape)[1:])
        return self._tape.one("full.default", (shape, 0, dtype_name(like.dtype), None, None, None), shape, like.dtype)

    def send(self, value: int, peer: int, tag: int, group: tuple[int, ...]) -> None:
        """A send, which has no result."""
        self._tape.emit("send", (Ref(value), peer, tag), [], group, self.batch())

    def receive(self, like: torch.Tensor, peer: int, tag: int, group: tuple[int, ...]) -> int:
        """What a peer sends."""
        return self._tape.emit("receive", (peer, tag), [Kind(tuple(like.shape), like.dtype)], group, self.batch())[0]

    def batch(self) -> int | None:
        """The number of the batch of sends and receives that is being launched, None outside of one."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code is not dist.batch_isend_irecv.__code__:
            frame = frame.f_back
        if frame is None:
            return None
        if frame is not self._batch:
            self._batch, self._batches = frame, self._batches + 1
        return self._batches

    def undefined(self, like: torch.Tensor) -> int:
        """What nobody may read."""
        return self._storages.undefined(tuple(like.shape), like.dtype)

    def land(self, work: Any, written: list[tuple[torch.Tensor, int]], read: list[torch.Tensor], waits: bool) -> None:
        """Store results; ``waits``: they may be read only when the work, or the tensor itself, has been waited for."""
        inputs = [(tensor, self.read(tensor)) for tensor in read]
        for tensor, value in written:
            self._storages.write(tensor, value)
        memory = {tensor.untyped_storage()._cdata for tensor, _ in written}
        flight = Flight(None, written, [(t, v) for t, v in inputs if t.untyped_storage()._cdata not in memory], self._tape.where())
        if not waits:
            self._finish(flight)
            return
        for _, value in written:
            self._tape.pending[value] = flight.source
        if work is not None:
            flight.work = Work.unbox(work)
            # Held, the object is the one that the program waits for.
            self._flights[id(flight.work)] = flight

    def waited(self, work: Work) -> list[torch.Tensor]:
        """The program has waited for a work; what it wrote, where that was not known before."""
        flight = self._flights.pop(id(work), None)
        if flight is None:
            return []
        self._finish(flight)
        return [tensor for tensor, _ in flight.written]

    def wait_tensor(self, tensor: torch.Tensor) -> int:
        """The program has waited for a tensor of a functional collective; the value that may be read now."""
        value = self.read(tensor)
        if value in self._tape.pending:
            value = self._finished(value)
            self._storages.write(tensor, value)
        return value

    def _finish(self, flight: Flight) -> None:
        for tensor, value in flight.read:
            if self.read(tensor) != value:
                raise PlanError(
                    f"the operand of the asynchronous communication at {flight.source} was written to before it was waited for at {self._tape.where()}"
                )
        for tensor, value in flight.written:
            if self.read(tensor) != value:
                raise PlanError(
                    f"the result of the asynchronous communication at {flight.source} was written to before it was waited for at {self._tape.where()}"
                )
            self._storages.write(tensor, self._finished(value))

    def _finished(self, value: int) -> int:
        self._tape.pending.pop(value, None)
        kind = self._tape.kinds[value]
        return self._tape.one("wait", (Ref(value),), kind.shape, kind.dtype)


def rows_of(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape with a dimension 0: a number is a row of one."""
    return tuple(shape) or (1,)


def ranks_of(group: Any) -> tuple[int, ...]:
    """The global ranks of a process group, its name, or its handle, in the group's order."""
    if isinstance(group, str):
        found = dist.distributed_c10d._resolve_process_group(group)  # type: ignore[arg-type]
    elif isinstance(group, ProcessGroup):
        found = group
    else:
        found = ProcessGroup.unbox(group)
    return tuple(dist.get_process_group_ranks(found))


def reduction_of(reduction: Any) -> str:
    """The name that traces have for a kind of reduction."""
    name = NAMED.get(reduction.lower()) if isinstance(reduction, str) else REDUCTIONS.get(kind_number(reduction))
    if name is None:
        raise UnsupportedError(f"a reduction of kind {reduction} is not known; use one of {', '.join(sorted(set(NAMED.values())))}")
    return name


def kind_number(reduction: Any) -> int:
    """The number of a kind of reduction: of a ``ReduceOp``, of its kind alone, or of the object that operators are given for it, which tells it when called."""
    kind: Any = getattr(reduction, "op", reduction)
    number: Any = kind if isinstance(kind, dist.ReduceOp.RedOpType) else kind()
    return int(number)


class Call:
    """A call of an operator of c10d: its arguments by the schema's names."""

    def __init__(self, to: Communication, func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.to = to
        # Those of several tensors at once have no kernel for tensors without numbers; they give a work alone.
        self.result = FakeWork().boxed() if func._schema.name.removeprefix("c10d::") in COALESCED else func(*args, **kwargs)
        self.named = {parameter.name: value for parameter, value in signature(func).bound(args, kwargs)}

    @property
    def group(self) -> tuple[int, ...]:
        """Global ranks of the members."""
        return ranks_of(self.named["process_group"])

    @property
    def reduction(self) -> str:
        """What a reducing collective does with :meth:`terms`."""
        return "sum" if self._premultiplied else reduction_of(self.named["reduce_op"])

    @property
    def _premultiplied(self) -> bool:
        return kind_number(self.named["reduce_op"]) == PREMULTIPLIED

    def term(self, value: int) -> int:
        """What a rank adds: its operand, or that times the factor of a premultiplied sum."""
        if not self._premultiplied:
            return value
        if self.to.factor is None:
            raise UnsupportedError("a premultiplied sum whose factor is not known: call it through torch.distributed or a ProcessGroup, with a number")
        return value if self.to.factor == 1 else self.to.scaled(value, self.to.factor)

    def land(self, written: list[tuple[torch.Tensor, int]], read: list[torch.Tensor]) -> Any:
        """Store what was computed, and give back what the operator gives."""
        work = self.result[-1] if isinstance(self.result, tuple) else self.result
        self.to.land(work, written, read, bool(self.named.get("async_op", True)))
        return self.result


Handler = Callable[["Communication", OpOverload, Sequence[Any], dict[str, Any]], Any]


def _c10d(handle: Callable[[Call], Any]) -> Handler:
    def run(to: Communication, func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return handle(Call(to, func, args, kwargs))

    return run


def _all_reduce(call: Call) -> Any:
    tensors = call.named["tensors"]
    group, reduction = call.group, call.reduction
    written = [(tensor, call.to.emit("all_reduce", (Ref(call.term(call.to.read(tensor))), reduction), tensor.shape, tensor, group)) for tensor in tensors]
    return call.land(written, [])


def _broadcast(call: Call) -> Any:
    group, root = call.group, call.named["root_rank"]
    written = [(tensor, call.to.emit("broadcast", (Ref(call.to.read(tensor)), root), tensor.shape, tensor, group)) for tensor in call.named["tensors"]]
    return call.land(written, [])


def _reduce(call: Call) -> Any:
    """An all-reduce, of which the root alone has the result."""
    group, reduction = call.group, call.reduction
    written: list[tuple[torch.Tensor, int]] = []
    for tensor in call.named["tensors"]:
        value = call.to.emit("all_reduce", (Ref(call.term(call.to.read(tensor))), reduction), tensor.shape, tensor, group)
        written.append((tensor, value if group[call.named["root_rank"]] == dist.get_rank() else call.to.undefined(tensor)))
    return call.land(written, [])


def _gathered(call: Call, target: torch.Tensor, tensor: torch.Tensor) -> int:
    rows = rows_of(tensor.shape)
    value = call.to.emit("all_gather", (Ref(call.to.viewed(call.to.read(tensor), rows)),), (rows[0] * len(call.group), *rows[1:]), tensor, call.group)
    return call.to.viewed(value, target.shape)


def _all_gather_base(call: Call) -> Any:
    target, tensor = call.named["output_tensor"], call.named["input_tensor"]
    return call.land([(target, _gathered(call, target, tensor))], [tensor])


def _all_gather_coalesced(call: Call) -> Any:
    pairs = list(zip(call.named["outputs"], call.named["inputs"], strict=True))
    return call.land([(target, _gathered(call, target, tensor)) for target, tensor in pairs], [tensor for _, tensor in pairs])


def _all_gather_list(call: Call) -> Any:
    lists = call.named["output_tensors" if "output_tensors" in call.named else "output_lists"]
    inputs = call.named["input_tensors" if "input_tensors" in call.named else "input_list"]
    written: list[tuple[torch.Tensor, int]] = []
    for targets, tensor in zip(lists, inputs, strict=True):
        if any(target.shape != tensor.shape for target in targets):
            raise UnsupportedError("all_gather of tensors of different shapes; pad them to one shape")
        rows = rows_of(tensor.shape)
        value = call.to.emit("all_gather", (Ref(call.to.viewed(call.to.read(tensor), rows)),), (rows[0] * len(targets), *rows[1:]), tensor, call.group)
        parts = call.to.parts(value, [rows[0]] * len(targets))
        written.extend((target, call.to.viewed(part, target.shape)) for target, part in zip(targets, parts, strict=True))
    return call.land(written, list(inputs))


def _scattered(call: Call, target: torch.Tensor, value: int, shape: Sequence[int]) -> int:
    """The rank's part of a sum, whose rows are cut evenly where the shapes say so, else its elements."""
    members = len(call.group)
    rows = rows_of(target.shape)
    whole = (rows[0] * members, *rows[1:])
    if tuple(shape) != whole:
        whole, rows = (prod(shape),), (prod(rows),)
    got = call.to.emit("reduce_scatter", (Ref(call.term(call.to.viewed(value, whole))), call.reduction), rows, target, call.group)
    return call.to.viewed(got, target.shape)


def _reduce_scatter_base(call: Call) -> Any:
    target, tensor = call.named["output_tensor"], call.named["input_tensor"]
    return call.land([(target, _scattered(call, target, call.to.read(tensor), tensor.shape))], [tensor])


def _reduce_scatter_coalesced(call: Call) -> Any:
    pairs = list(zip(call.named["outputs"], call.named["inputs"], strict=True))
    written = [(target, _scattered(call, target, call.to.read(tensor), tensor.shape)) for target, tensor in pairs]
    return call.land(written, [tensor for _, tensor in pairs])


def _reduce_scatter_list(call: Call) -> Any:
    written: list[tuple[torch.Tensor, int]] = []
    read: list[torch.Tensor] = []
    for target, tensors in zip(call.named["output_tensors"], call.named["input_tensors"], strict=True):
        rows = rows_of(target.shape)
        written.append((target, _scattered(call, target, call.to.joined(tensors), (rows[0] * len(tensors), *rows[1:]))))
        read.extend(tensors)
    return call.land(written, read)


def _exchanged(call: Call, value: int, sent: Sequence[int], received: Sequence[int], like: torch.Tensor) -> int:
    rest = rows_of(like.shape)[1:]
    return call.to.emit("all_to_all", (Ref(value), *both_sizes(sent, received)), (sum(received), *rest), like, call.group)


def both_sizes(sent: Sequence[int], received: Sequence[int]) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """Sizes sent and received as traces have them: None where all parts are equal."""
    if len({*sent, *received}) == 1:
        return None, None
    return tuple(sent), tuple(received)


def even_sizes(sizes: Sequence[int] | None, count: int, members: int) -> Sequence[int]:
    return list(sizes) if sizes else [count // members] * members


def _all_to_all_base(call: Call) -> Any:
    target, tensor = call.named["output"], call.named["input"]
    members = len(call.group)
    sent = even_sizes(call.named["input_split_sizes"], tensor.shape[0], members)
    received = even_sizes(call.named["output_split_sizes"], target.shape[0], members)
    return call.land([(target, _exchanged(call, call.to.read(tensor), sent, received, tensor))], [tensor])


def _all_to_all_list(call: Call) -> Any:
    targets, tensors = call.named["output_tensors"], call.named["input_tensors"]
    sent, received = ([rows_of(tensor.shape)[0] for tensor in some] for some in (tensors, targets))
    value = _exchanged(call, call.to.joined(tensors), sent, received, tensors[0])
    parts = call.to.parts(value, received)
    return call.land([(target, call.to.viewed(part, target.shape)) for target, part in zip(targets, parts, strict=True)], list(tensors))


def _send(call: Call) -> Any:
    group = call.group
    for tensor in call.named["tensors"]:
        call.to.send(call.to.read(tensor), group[call.named["dst"]], call.named["tag"], group)
    return call.land([], list(call.named["tensors"]))


def _receive(call: Call) -> Any:
    group = call.group
    source = group[call.named["src"]]
    written = [(tensor, call.to.receive(tensor, source, call.named["tag"], group)) for tensor in call.named["tensors"]]
    return call.land(written, [])


def _scatter(call: Call) -> Any:
    """An exchange in which the root alone has something to give."""
    group, root, mine = call.group, call.named["root_rank"], dist.get_rank()
    written: list[tuple[torch.Tensor, int]] = []
    read: list[torch.Tensor] = []
    for place, target in enumerate(call.named["output_tensors"]):
        rows = rows_of(target.shape)
        tensors = call.named["input_tensors"][place] if group[root] == mine else []
        value = call.to.joined(tensors) if tensors else call.to.none(target)
        sent = tuple(rows_of(tensor.shape)[0] for tensor in tensors) or (0,) * len(group)
        received = tuple(rows[0] if member == root else 0 for member in range(len(group)))
        written.append((target, call.to.viewed(call.to.emit("all_to_all", (Ref(value), sent, received), rows, target, group), target.shape)))
        read.extend(tensors)
    return call.land(written, read)


def _gather(call: Call) -> Any:
    """An exchange in which all give to the root."""
    group, root, mine = call.group, call.named["root_rank"], dist.get_rank()
    written: list[tuple[torch.Tensor, int]] = []
    for place, tensor in enumerate(call.named["input_tensors"]):
        rows = rows_of(tensor.shape)
        targets = call.named["output_tensors"][place] if group[root] == mine else []
        sent = tuple(rows[0] if member == root else 0 for member in range(len(group)))
        received = tuple(rows_of(target.shape)[0] for target in targets) or (0,) * len(group)
        arguments = (Ref(call.to.viewed(call.to.read(tensor), rows)), sent, received)
        parts = call.to.parts(call.to.emit("all_to_all", arguments, (sum(received), *rows[1:]), tensor, group), received if targets else [])
        written.extend((target, call.to.viewed(part, target.shape)) for target, part in zip(targets, parts, strict=True))
    return call.land(written, list(call.named["input_tensors"]))


def _from_any(call: Call) -> Any:
    raise UnsupportedError(f"a receive from any rank of {call.group}: what arrives depends on time; name the source")


COMMUNICATION: dict[tuple[str, str], Handler] = {
    ("c10d", "allreduce_"): _c10d(_all_reduce),
    ("c10d", "allreduce_coalesced_"): _c10d(_all_reduce),
    ("c10d", "broadcast_"): _c10d(_broadcast),
    ("c10d", "reduce_"): _c10d(_reduce),
    ("c10d", "_allgather_base_"): _c10d(_all_gather_base),
    ("c10d", "allgather_into_tensor_coalesced_"): _c10d(_all_gather_coalesced),
    ("c10d", "allgather_"): _c10d(_all_gather_list),
    ("c10d", "allgather_coalesced_"): _c10d(_all_gather_list),
    ("c10d", "_reduce_scatter_base_"): _c10d(_reduce_scatter_base),
    ("c10d", "reduce_scatter_tensor_coalesced_"): _c10d(_reduce_scatter_coalesced),
    ("c10d", "reduce_scatter_"): _c10d(_reduce_scatter_list),
    ("c10d", "alltoall_base_"): _c10d(_all_to_all_base),
    ("c10d", "alltoall_"): _c10d(_all_to_all_list),
    ("c10d", "send"): _c10d(_send),
    ("c10d", "recv_"): _c10d(_receive),
    ("c10d", "recv_any_source_"): _c10d(_from_any),
    ("c10d", "gather_"): _c10d(_gather),
    ("c10d", "scatter_"): _c10d(_scatter),
}
