"""What torch.distributed does by ways that a recorder of operators does not see, or by numbers that
nobody has while a program is recorded.
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
from torch.distributed.pipelining._utils import InferenceMode
from torch.distributed.pipelining.schedules import _PipelineSchedule
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.communication.calls import PREMULTIPLIED, kind_number
from pitcheck.frontends.torch.recording.patching import Patch
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
    yield _PipelineSchedule, "_warmup_p2p", _no_vote
    for name in ("empty", "empty_like"):
        yield np, name, _unwritten(getattr(np, name))


def _real_mesh(recorder: Recorder, original: Callable[..., None]) -> Callable[..., None]:
    """A mesh looks at the numbers of its tensor of ranks, so that tensor must have some."""

    def init(mesh: DeviceMesh, *args: Any, **kwargs: Any) -> None:
        real_args, real_kwargs = tree_map_only(torch.Tensor, recorder.known, (args, kwargs))
        with _disable_current_modes():
            original(mesh, *real_args, **real_kwargs)

    return init


def _seen(recorder: Recorder, original: Callable[..., Any]) -> Callable[..., Any]:
    """Waiting for a work is no operator."""

    def wait(work: Work, *args: Any, **kwargs: Any) -> Any:
        recorder.communication.waited(work)
        return original(work, *args, **kwargs)

    return wait


def _told(recorder: Recorder, original: Callable[..., Any]) -> Callable[..., Any]:
    """The factor of a premultiplied sum is known to whoever calls for it, and not to the operator
    that is seen.
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
    """Memory is given back by the storage, not by an operator."""

    def resize(storage: torch.UntypedStorage, size: int) -> Any:
        if size == 0:
            recorder.storages.freed(storage)
        return original(storage, size)

    return resize


def _asked(recorder: Recorder) -> Callable[[Work], bool]:
    """Whether communication is over at some moment is another thing in every run."""

    def is_completed(_: Work) -> bool:
        raise recorder.tape.unsupported("Work.is_completed() depends on time; call wait()")

    return is_completed


class Future(torch.futures.Future[list[torch.Tensor]]):
    """What comes of a work. Who waits for it, looks at it or goes on from it has waited for the
    work.
    """

    def __init__(self, recorder: Recorder, work: Work) -> None:
        super().__init__()
        self._wait_for: Callable[[], None] = partial(recorder.communication.waited, work)
        self.set_result(recorder.communication.targets(work))

    def wait(self) -> Any:
        """As of a future."""
        self._wait_for()
        return super().wait()

    def value(self) -> Any:
        """As of a future."""
        self._wait_for()
        return super().value()

    def then(self, callback: Callable[[Any], Any]) -> Any:
        """As of a future; the callback runs when the communication is over."""
        self._wait_for()
        return super().then(callback)


def _future(recorder: Recorder) -> Callable[[Work], Any]:
    """The future of a work. In a backward pass it is given to the reducer of
    DistributedDataParallel, which waits where it is not seen.
    """

    def get_future(work: Work) -> Any:
        future = Future(recorder, work)
        if torch._C._current_autograd_node() is not None:
            recorder.communication.waited(work)
        return future

    return get_future


def _broadcast(
    group: dist.ProcessGroup, tensors: Sequence[torch.Tensor], _: int, source: int = 0
) -> None:
    """The original packs the tensors, and waits where it is not seen."""
    for tensor in tensors:
        dist.broadcast(tensor, group=group, group_src=source)


def _reduced(original: Callable[..., Any]) -> Callable[..., Any]:
    """The reducer of DistributedDataParallel is not seen, but for what it calls in Python: the hook
    that does what it would do itself.
    """

    def pre_forward(module: DistributedDataParallel, *args: Any, **kwargs: Any) -> Any:
        if not module._comm_hooks:
            # Without its group the hook would reduce over all ranks, and the reducer reduces over
            # those that the user says.
            module.register_comm_hook(module.process_group, allreduce_hook)
        return original(module, *args, **kwargs)

    return pre_forward


def _unwritten(original: Callable[..., Any]) -> Callable[..., Any]:
    """An array that nobody has written to is a constant of a program that reads it; what happens to
    lie there, often zeros, must not look like its meaning.
    """

    def empty(*args: Any, **kwargs: Any) -> Any:
        array = original(*args, **kwargs)
        if array.dtype.kind in "fc":
            array.fill(np.nan)
        elif array.dtype.kind in "iu":
            array.fill(np.iinfo(array.dtype).max // 3)
        return array

    return empty


def _no_vote(_: _PipelineSchedule, stages: Sequence[Any], has_backward: bool, __: bool) -> None:
    """The stages of a pipeline vote, by numbers, whether all know their shapes; those that do not
    would send these as objects.
    """
    for stage in stages:
        if InferenceMode.needs_dynamic(stage._user_meta, has_backward):
            raise UnsupportedError(
                f"stage {stage.stage_index} of the pipeline does not know the shapes of what it "
                f"receives; give PipelineStage input_args and output_args"
            )
        stage._inference_mode = InferenceMode.STATIC
