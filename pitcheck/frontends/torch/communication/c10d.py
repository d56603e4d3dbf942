"""The operators of torch.distributed one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch._ops import OpOverload
from torch._prims_common import suggest_memory_format

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.torch.communication.calls import (
    PREMULTIPLIED,
    Communication,
    Handler,
    Landing,
    Members,
    Tensors,
    kind_number,
    laid,
    members_of,
    reduction_of,
    rows_of,
)
from pitcheck.frontends.torch.communication.flights import overlap
from pitcheck.frontends.torch.recording.arguments import signature
from pitcheck.frontends.torch.trace import Ref

COALESCED = frozenset(
    {
        "allreduce_coalesced_",
        "allgather_into_tensor_coalesced_",
        "allgather_coalesced_",
        "reduce_scatter_tensor_coalesced_",
    }
)
"""The operators on several tensors at once."""

MOVING = frozenset(
    {
        "alltoall_base_",
        "alltoall_",
        "_allgather_base_",
        "allgather_into_tensor_coalesced_",
        "_reduce_scatter_base_",
        "reduce_scatter_tensor_coalesced_",
    }
)
"""The operators that move elements while they run, so that results need memory of their own.

Other operators copy first, or have each element's result in its place.
"""


class Call:
    """A call of an operator of c10d, with its arguments by the schema's names."""

    def __init__(
        self, to: Communication, func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> None:
        self.to = to
        self.name = func._schema.name.removeprefix("c10d::")
        # Coalesced operators have no kernel for tensors without numbers. They return only a work.
        result = ... if self.name in COALESCED else func(*args, **kwargs)
        self.result = _with_work(result, to.work().boxed())
        self.named = {
            parameter.name: value for parameter, value in signature(func).bound(args, kwargs)
        }

    @property
    def group(self) -> Members:
        """Return the members."""
        return members_of(self.named["process_group"])

    @property
    def reduction(self) -> str:
        """Return the kind of reduction of the ranks' terms."""
        return "sum" if self._premultiplied else reduction_of(self.named["reduce_op"])

    @property
    def _premultiplied(self) -> bool:
        return kind_number(self.named["reduce_op"]) == PREMULTIPLIED

    def laid(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor of a collective as it lies in memory, which is what is communicated.

        NCCL takes dimensions in the order of ``channels_last``, and no other. Raises PlanError.
        """
        order = suggest_memory_format(tensor)
        if not (tensor.is_contiguous() or tensor.is_contiguous(memory_format=order)):
            raise self._not_contiguous(tensor)
        return laid(tensor, self.name.strip("_"))

    def of_a_message(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor of a send or receive as it lies in memory, in whatever order.

        Raises PlanError for a tensor with gaps.
        """
        return laid(tensor, self.name.strip("_"))

    def with_rows(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor whose rows are communicated.

        Raises PlanError if its rows do not lie one after the other.
        """
        if not tensor.is_contiguous():
            raise self._not_contiguous(tensor)
        return tensor

    def _not_contiguous(self, tensor: torch.Tensor) -> PlanError:
        return PlanError(
            f"{self.to.where()}: {self.name.strip('_')} is given a tensor of shape "
            f"{tuple(tensor.shape)} and strides {tuple(tensor.stride())}, and NCCL refuses one "
            f"that is not contiguous; call .contiguous() on it, and use what that returns"
        )

    def term(self, value: int) -> int:
        """Return what a rank adds: its operand, times the factor of a premultiplied sum.

        Raises UnsupportedError if that factor is not known.
        """
        if not self._premultiplied:
            return value
        if self.to.factor is None:
            raise UnsupportedError(
                "a premultiplied sum whose factor is not known: call it through torch.distributed "
                "or a ProcessGroup, with a number"
            )
        return value if self.to.factor == 1 else self.to.scaled(value, self.to.factor)

    def reduced(self, tensor: torch.Tensor) -> int:
        """Record the all-reduce of a tensor; return the number of its value."""
        term = self.term(self.to.read(tensor))
        return self.to.all_reduce(term, self.reduction, tensor, self.group)

    def land(
        self, landings: Sequence[Landing], read: Tensors = (), sends: Sequence[tuple[int, int]] = ()
    ) -> Any:
        """Launch the operator, and return what it returns.

        Raises PlanError if it writes to memory that it reads, and must not.
        """
        if self.name in MOVING:
            self._check_overlap([landing.target for landing in landings], read)
        work = self.result[-1] if isinstance(self.result, tuple) else self.result
        self.to.land(
            self.name.strip("_"),
            work,
            landings,
            read,
            sends,
            bool(self.named.get("async_op", True)),
        )
        return self.result

    def _check_overlap(self, written: Tensors, read: Tensors) -> None:
        shared = [(one, other) for one, other in combinations(written, 2) if overlap(one, other)]
        shared += [
            (one, other)
            for one in written
            for other in read
            if overlap(one, other) and not self._in_place(one, other)
        ]
        for one, other in shared:
            raise PlanError(
                f"{self.to.where()}: {self.name.strip('_')} writes to a tensor of shape "
                f"{tuple(one.shape)} in the memory of another of its tensors, of shape "
                f"{tuple(other.shape)}, while that is in use; give it a tensor of its own"
            )

    def _in_place(self, written: torch.Tensor, read: torch.Tensor) -> bool:
        """Return True if the rank's part lies exactly in its place in the whole.

        Libraries allow that.
        """
        part, whole = (read, written) if read.numel() <= written.numel() else (written, read)
        place = self.group.ranks.index(dist.get_rank()) if "alltoall" not in self.name else -1
        return (
            place >= 0
            and int(part.storage_offset()) == int(whole.storage_offset()) + place * part.numel()
        )


def _c10d(handle: Callable[[Call], Any]) -> Handler:
    def run(
        to: Communication, func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        return handle(Call(to, func, args, kwargs))

    return run


def _all_reduce(call: Call) -> Any:
    return call.land(
        [Landing(tensor, call.reduced(tensor)) for tensor in map(call.laid, call.named["tensors"])]
    )


def _broadcast(call: Call) -> Any:
    group, root = call.group, call.named["root_rank"]
    tensors = [call.to.of_bytes(call.laid(tensor)) for tensor in call.named["tensors"]]
    return call.land(
        [Landing(tensor, call.to.broadcast(tensor, root, group)) for tensor in tensors]
    )


def _reduce(call: Call) -> Any:
    """Record an all-reduce whose result only the root has."""
    is_root = call.group.ranks[call.named["root_rank"]] == dist.get_rank()
    return call.land(
        [
            Landing(tensor, call.reduced(tensor), lost=not is_root)
            for tensor in map(call.laid, call.named["tensors"])
        ]
    )


def _all_gather_base(call: Call) -> Any:
    target, tensor = call.laid(call.named["output_tensor"]), call.laid(call.named["input_tensor"])
    return call.land([call.to.as_whole(call.to.all_gather(tensor, call.group), target)], [tensor])


def _all_gather_coalesced(call: Call) -> Any:
    targets, tensors = (
        [call.laid(tensor) for tensor in call.named[name]] for name in ("outputs", "inputs")
    )
    return call.land(
        [
            call.to.as_whole(call.to.all_gather(tensor, call.group), target)
            for target, tensor in zip(targets, tensors, strict=True)
        ],
        tensors,
    )


def _all_gather_list(call: Call) -> Any:
    lists = call.named["output_tensors" if "output_tensors" in call.named else "output_lists"]
    inputs = call.named["input_tensors" if "input_tensors" in call.named else "input_list"]
    landings: list[Landing] = []
    for targets, tensor in zip(lists, inputs, strict=True):
        if any(target.shape != tensor.shape for target in targets):
            raise UnsupportedError(
                "all_gather of tensors of different shapes; pad them to one shape"
            )
        landings.extend(
            call.to.as_parts(call.to.all_gather(call.with_rows(tensor), call.group), targets)
        )
    return call.land(landings, list(inputs))


def _scattered(call: Call, target: torch.Tensor, value: int, shape: Sequence[int]) -> Landing:
    """Record a reduce-scatter; return the rank's part as it lands in ``target``.

    Rows are cut evenly if the shapes say so, and elements if they do not.
    """
    members = len(call.group)
    rows = rows_of(target.shape)
    whole = (rows[0] * members, *rows[1:])
    if tuple(shape) != whole:
        whole, rows = (prod(shape),), (prod(rows),)
    got = call.to.emit(
        "reduce_scatter",
        (Ref(call.term(call.to.viewed(value, whole))), call.reduction),
        rows,
        target,
        call.group,
    )
    return call.to.as_whole(got, target)


def _reduce_scatter_base(call: Call) -> Any:
    target, tensor = call.laid(call.named["output_tensor"]), call.laid(call.named["input_tensor"])
    return call.land([_scattered(call, target, call.to.read(tensor), tensor.shape)], [tensor])


def _reduce_scatter_coalesced(call: Call) -> Any:
    targets, tensors = (
        [call.laid(tensor) for tensor in call.named[name]] for name in ("outputs", "inputs")
    )
    landings = [
        _scattered(call, target, call.to.read(tensor), tensor.shape)
        for target, tensor in zip(targets, tensors, strict=True)
    ]
    return call.land(landings, tensors)


def _reduce_scatter_list(call: Call) -> Any:
    landings: list[Landing] = []
    read: list[torch.Tensor] = []
    for target, tensors in zip(
        call.named["output_tensors"], call.named["input_tensors"], strict=True
    ):
        rows = rows_of(target.shape)
        landings.append(
            _scattered(
                call,
                call.with_rows(target),
                call.to.joined(tensors),
                (rows[0] * len(tensors), *rows[1:]),
            )
        )
        read.extend(tensors)
    return call.land(landings, read)


def _sizes(sizes: Sequence[int] | None, count: int, members: int) -> Sequence[int]:
    """Return the sizes of an all-to-all's parts, which are equal if none are stated."""
    return list(sizes) if sizes else [count // members] * members


def _all_to_all_base(call: Call) -> Any:
    target, tensor = call.with_rows(call.named["output"]), call.with_rows(call.named["input"])
    members = len(call.group)
    sent = _sizes(call.named["input_split_sizes"], tensor.shape[0], members)
    received = _sizes(call.named["output_split_sizes"], target.shape[0], members)
    value = call.to.all_to_all(call.to.read(tensor), sent, received, tensor, call.group)
    return call.land([Landing(target, value)], [tensor])


def _all_to_all_list(call: Call) -> Any:
    targets, tensors = (
        [call.with_rows(tensor) for tensor in call.named[name]]
        for name in ("output_tensors", "input_tensors")
    )
    sent, received = ([rows_of(tensor.shape)[0] for tensor in some] for some in (tensors, targets))
    joined = call.to.joined(tensors)
    value = call.to.all_to_all(joined, sent, received, tensors[0], call.group)
    return call.land(call.to.as_parts(value, targets), tensors)


def _send(call: Call) -> Any:
    group = call.group
    tensors = [call.of_a_message(tensor) for tensor in call.named["tensors"]]
    sends = [
        call.to.send(call.to.read(tensor), group.ranks[call.named["dst"]], call.named["tag"], group)
        for tensor in tensors
    ]
    return call.land([], tensors, sends)


def _receive(call: Call) -> Any:
    group = call.group
    source = group.ranks[call.named["src"]]
    return call.land(
        [
            Landing(tensor, call.to.receive(tensor, source, call.named["tag"], group))
            for tensor in map(call.of_a_message, call.named["tensors"])
        ]
    )


def _scatter(call: Call) -> Any:
    """Record an exchange in which the root alone has something to give."""
    group, root, mine = call.group, call.named["root_rank"], dist.get_rank()
    landings: list[Landing] = []
    read: list[torch.Tensor] = []
    for place, target in enumerate(map(call.with_rows, call.named["output_tensors"])):
        rows = rows_of(target.shape)
        tensors = call.named["input_tensors"][place] if group.ranks[root] == mine else []
        value = call.to.joined(tensors) if tensors else call.to.none(target)
        sent = tuple(rows_of(tensor.shape)[0] for tensor in tensors) or (0,) * len(group)
        received = tuple(rows[0] if member == root else 0 for member in range(len(group)))
        landings.append(
            call.to.as_whole(
                call.to.emit("all_to_all", (Ref(value), sent, received), rows, target, group),
                target,
            )
        )
        read.extend(tensors)
    return call.land(landings, read)


def _gather(call: Call) -> Any:
    """Record an exchange in which all give to the root."""
    group, root, mine = call.group, call.named["root_rank"], dist.get_rank()
    landings: list[Landing] = []
    tensors = [call.with_rows(tensor) for tensor in call.named["input_tensors"]]
    for place, tensor in enumerate(tensors):
        rows = rows_of(tensor.shape)
        targets = call.named["output_tensors"][place] if group.ranks[root] == mine else []
        sent = tuple(rows[0] if member == root else 0 for member in range(len(group)))
        received = tuple(rows_of(target.shape)[0] for target in targets) or (0,) * len(group)
        arguments = (Ref(call.to.viewed(call.to.read(tensor), rows)), sent, received)
        landings.extend(
            call.to.as_parts(
                call.to.emit("all_to_all", arguments, (sum(received), *rows[1:]), tensor, group),
                targets,
            )
        )
    return call.land(landings, tensors)


def _barrier(call: Call) -> Any:
    """Record a barrier.

    It is taken to be over when it is launched, even if somebody waits for it later.
    """
    call.to.barrier(call.group)
    return call.result


def _from_any(call: Call) -> Any:
    raise UnsupportedError(
        f"a receive from any rank of {call.group}: what arrives depends on time; name the source"
    )


def _with_work(result: Any, work: Any) -> Any:
    """Return what an operator returns, with a recorded work in the place of its work.

    An operator returns a work, tensors and a work, or nothing.
    """
    if isinstance(result, tuple):
        return (*result[:-1], work)
    return result if result is None else work


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
    ("c10d", "barrier"): _c10d(_barrier),
    ("c10d", "monitored_barrier_"): _c10d(_barrier),
}
