"""Patches of torch.distributed for the time of a recording.

They cover effects that a recorder of operators does not see. They also replace decisions by
numbers, which nobody has while a program is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only

from pitcheck.frontends.torch.communication.backward_pass import in_backward
from pitcheck.frontends.torch.communication.calls import PREMULTIPLIED, kind_number
from pitcheck.frontends.torch.patches.patching import Patch
from pitcheck.frontends.torch.recording.recorder import Recorder

REDUCING = frozenset(
    {
        "allreduce",
        "allreduce_coalesced",
        "reduce",
        "reduce_scatter",
        "reduce_scatter_single",
        "_reduce_scatter_base",
        "reduce_scatter_single_coalesced",
        "reduce_scatter_tensor_coalesced",
    }
)
"""The methods of a process group that take a kind of reduction."""


def distributed_patches(recorder: Recorder) -> Iterator[Patch]:
    """Yield the patches that let a recorder see all of torch.distributed."""
    yield DeviceMesh, "__init__", _real_mesh(recorder, DeviceMesh.__init__)
    for kind in (Work, *Work.__subclasses__()):
        for name in {"wait", "synchronize", "block_current_stream"} & vars(kind).keys():
            yield kind, name, _seen(recorder, getattr(kind, name))
        if "get_future" in vars(kind):
            yield kind, "get_future", _future(recorder)
        if "is_completed" in vars(kind):
            yield kind, "is_completed", _asked(recorder)
    yield torch.nn.parallel.distributed, "_verify_param_shape_across_processes", lambda *_: None
    # After the first step the buckets would be cut anew, in the order in which gradients came;
    # the ranks agree on that order by numbers, which nobody has here.
    yield torch._C._distributed_c10d.Reducer, "_rebuild_buckets", lambda _: False
    yield dist, "_broadcast_coalesced", _broadcast
    yield DistributedDataParallel, "_pre_forward", _reduced(DistributedDataParallel._pre_forward)
    yield torch.UntypedStorage, "resize_", _resized(recorder, torch.UntypedStorage.resize_)
    for name in REDUCING & vars(dist.ProcessGroup).keys():
        yield dist.ProcessGroup, name, _told(recorder, getattr(dist.ProcessGroup, name))
    for name in ("empty", "empty_like"):
        yield np, name, _unwritten(getattr(np, name))


def _real_mesh(recorder: Recorder, original: Callable[..., None]) -> Callable[..., None]:
    """Give a mesh the numbers of its tensor of ranks, at which it looks."""

    def init(mesh: DeviceMesh, *args: Any, **kwargs: Any) -> None:
        real_args, real_kwargs = tree_map_only(torch.Tensor, recorder.known, (args, kwargs))
        with _disable_current_modes():
            original(mesh, *real_args, **real_kwargs)

    return init


def _seen(recorder: Recorder, original: Callable[..., Any]) -> Callable[..., Any]:
    """Tell the recorder of a wait for a work, which is no operator."""

    def wait(work: Work, *args: Any, **kwargs: Any) -> Any:
        recorder.communication.waited(work)
        return original(work, *args, **kwargs)

    return wait


def _told(recorder: Recorder, original: Callable[..., Any]) -> Callable[..., Any]:
    """Tell the recorder the factor of a premultiplied sum.

    The caller of a reduction knows it; the operator that is recorded does not.
    """

    def reduce(group: dist.ProcessGroup, *args: Any, **kwargs: Any) -> Any:
        given = [getattr(argument, "reduceOp", argument) for argument in (*args, *kwargs.values())]
        factors = [
            reduction.factor
            for reduction in given
            if isinstance(reduction, dist.ReduceOp) and kind_number(reduction) == PREMULTIPLIED
        ]
        recorder.communication.factor = (
            float(factors[0]) if len(factors) == 1 and isinstance(factors[0], float | int) else None
        )
        try:
            return original(group, *args, **kwargs)
        finally:
            recorder.communication.factor = None

    return reduce


def _resized(recorder: Recorder, original: Callable[..., Any]) -> Callable[..., Any]:
    """Tell the recorder when a storage gives its memory back, which is no operator."""

    def resize(storage: torch.UntypedStorage, size: int) -> Any:
        if size == 0:
            recorder.storages.freed(storage)
        return original(storage, size)

    return resize


def _asked(recorder: Recorder) -> Callable[[Work], bool]:
    """Refuse to say if communication is over: the answer is another one in every run."""

    def is_completed(_: Work) -> bool:
        raise recorder.tape.unsupported("Work.is_completed() depends on time; call wait()")

    return is_completed


class Future(torch.futures.Future[list[torch.Tensor]]):
    """The future of a work.

    Whoever waits for it, looks at its value or goes on from it has waited for the work.
    """

    def __init__(self, recorder: Recorder, work: Work) -> None:
        super().__init__()
        self._wait_for: Callable[[], None] = partial(recorder.communication.waited, work)
        self.set_result(recorder.communication.targets(work))

    def wait(self) -> Any:
        """Wait for the work; return the tensors that it writes to."""
        self._wait_for()
        return super().wait()

    def value(self) -> Any:
        """Return the tensors that the work writes to, once it is over."""
        self._wait_for()
        return super().value()

    def then(self, callback: Callable[[Any], Any]) -> Any:
        """Return the future of a callback that runs when the work is over."""
        self._wait_for()
        return super().then(callback)


def _future(recorder: Recorder) -> Callable[[Work], Any]:
    """Return the method that makes the future of a work.

    In a backward pass the future goes to the reducer of DistributedDataParallel, which waits where
    nobody sees it. So the work is taken as waited for.
    """

    def get_future(work: Work) -> Any:
        future = Future(recorder, work)
        if in_backward():
            recorder.communication.waited(work)
        return future

    return get_future


def _broadcast(
    group: dist.ProcessGroup, tensors: Sequence[torch.Tensor], _: int, source: int = 0
) -> None:
    """Broadcast tensors one by one. The original packs them, and waits where nobody sees it."""
    for tensor in tensors:
        dist.broadcast(tensor, group=group, group_src=source)


def _reduced(original: Callable[..., Any]) -> Callable[..., Any]:
    """Register the hook that averages buckets as the reducer of DistributedDataParallel would.

    The reducer is C++ and is not seen, but for the hook that it calls.
    """

    def pre_forward(module: DistributedDataParallel, *args: Any, **kwargs: Any) -> Any:
        if not module._comm_hooks:
            # Without a group the hook would reduce over all ranks; the reducer reduces over the
            # ranks of the user's group.
            module.register_comm_hook(module.process_group, allreduce_hook)
        return original(module, *args, **kwargs)

    return pre_forward


def _unwritten(original: Callable[..., Any]) -> Callable[..., Any]:
    """Fill an array that nobody has written to with numbers that have no meaning.

    A program that reads such an array takes it for a constant. What happens to lie there is often
    zeros, which must not look like its meaning.
    """

    def empty(*args: Any, **kwargs: Any) -> Any:
        array = original(*args, **kwargs)
        if array.dtype.kind in "fc":
            array.fill(np.nan)
        elif array.dtype.kind in "iu":
            array.fill(np.iinfo(array.dtype).max // 3)
        return array

    return empty
