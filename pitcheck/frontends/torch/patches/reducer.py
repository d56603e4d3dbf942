"""Patches of the reducer of DistributedDataParallel for the time of a recording.

The reducer is C++. It is not seen, except for the hook that it calls for each bucket of gradients,
and for the works for which it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from inspect import signature
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Reducer
from torch.autograd.variable import Variable
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    allreduce_hook,
    fp16_compress_hook,
)
from torch.nn.parallel import DistributedDataParallel

from pitcheck.frontends.torch.communication.works import Future
from pitcheck.frontends.torch.patches.patching import Patch

Hook = Callable[[Any, dist.GradBucket], Any]
BUILTIN = {
    dist.BuiltinCommHookType.ALLREDUCE: allreduce_hook,
    dist.BuiltinCommHookType.FP16_COMPRESS: fp16_compress_hook,
}
"""The hooks of Python that do what a hook of C++ does."""


def reducer_patches() -> Iterator[Patch]:
    """Yield the patches that let a recorder see what the reducer does."""
    yield torch.nn.parallel.distributed, "_verify_param_shape_across_processes", lambda *_: None
    # After the first step the buckets would be cut anew, in the order in which gradients came;
    # the ranks agree on that order by numbers, which nobody has here.
    yield Reducer, "_rebuild_buckets", lambda _: False
    yield dist, "_broadcast_coalesced", _broadcast
    yield DistributedDataParallel, "_pre_forward", _reduced(DistributedDataParallel._pre_forward)
    # It only asks if layers of SyncBatchNorm lie on a GPU.
    yield DistributedDataParallel, "_passing_sync_batchnorm_handle", lambda *_: None
    yield DistributedDataParallel, "_register_builtin_comm_hook", _register_builtin
    checked = DistributedDataParallel._check_comm_hook
    yield DistributedDataParallel, "_check_comm_hook", _checked_by_signature(checked)
    delayed, late = _Delayed(), "_delay_all_reduce"
    yield Reducer, late, delayed.around(getattr(Reducer, late))
    yield dist, "_register_comm_hook", delayed.waiting(dist._register_comm_hook)


def _broadcast(
    group: dist.ProcessGroup, tensors: Sequence[torch.Tensor], _: int, source: int = 0
) -> None:
    """Broadcast tensors one by one. The original packs them, and waits where nobody sees it."""
    for tensor in tensors:
        dist.broadcast(tensor, group=group, group_src=source)


def _reduced(original: Callable[..., Any]) -> Callable[..., Any]:
    """Register the hook that averages buckets as the reducer of DistributedDataParallel would."""

    def pre_forward(module: DistributedDataParallel, *args: Any, **kwargs: Any) -> Any:
        if not module._comm_hooks:
            # Without a group the hook would reduce over all ranks; the reducer reduces over the
            # ranks of the user's group.
            module.register_comm_hook(module.process_group, allreduce_hook)
        return original(module, *args, **kwargs)

    return pre_forward


def _register_builtin(module: DistributedDataParallel, kind: dist.BuiltinCommHookType) -> None:
    """Register the hook of Python that does what a hook of C++ does."""
    module.register_comm_hook(module.process_group, BUILTIN[kind])


def _checked_by_signature(original: Callable[..., None]) -> Callable[..., None]:
    """Check a hook by its signature alone.

    The original also asks which devices and libraries this machine has, which is not the one that
    trains.
    """

    def check(module: DistributedDataParallel, hook: Hook) -> None:
        def stand_in(state: Any, bucket: dist.GradBucket) -> Any:
            raise NotImplementedError

        if callable(hook):
            stand_in.__signature__ = signature(hook)  # type: ignore[attr-defined]
        original(module, stand_in if callable(hook) else hook)

    return check


class _Delayed:
    """The wait of a reducer for the futures of its hook.

    A reducer waits for the futures of all buckets when the backward pass has ended, or, if it
    delays its reductions, at the end of the call that makes them.
    """

    def __init__(self) -> None:
        self._is_delayed = False

    def around(self, original: Callable[[Reducer], None]) -> Callable[[Reducer], None]:
        """Return the call that makes all reductions at once, after the backward pass."""

        def delay(reducer: Reducer) -> None:
            self._is_delayed = True
            try:
                original(reducer)
            finally:
                self._is_delayed = False

        return delay

    def waiting(self, original: Callable[..., None]) -> Callable[..., None]:
        """Return the function that registers a hook for whose futures the reducer waits."""

        def register(reducer: Reducer, state: Any, hook: Hook) -> None:
            def called(state: Any, bucket: dist.GradBucket) -> Any:
                future = hook(state, bucket)
                if isinstance(future, Future):
                    self._wait(future)
                return future

            original(reducer, state, called)

        return register

    def _wait(self, future: Future) -> None:
        if self._is_delayed:
            future.wait()
        else:
            # The reducer's callback, in which it waits, comes after those of its hooks.
            Variable._execution_engine.queue_callback(future.wait)
