"""Patches of torch.distributed for the time of a recording.

They cover effects that a recorder of operators does not see. They also replace decisions by
numbers, which nobody has while a program is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only

from pitcheck.frontends.torch.communication.calls import PREMULTIPLIED, kind_number
from pitcheck.frontends.torch.communication.works import collected
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
    shapes = "_propagate_tensor_meta_non_cached"
    yield ShardingPropagator, shapes, _unrecorded(recorder, getattr(ShardingPropagator, shapes))
    yield torch._C, "_collect_all", collected(recorder.communication, torch._C._collect_all)
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


def _unrecorded(recorder: Recorder, original: Callable[..., Any]) -> Callable[..., Any]:
    """Run operators by which DTensor only learns shapes without recording them.

    Their operands are memory that nobody has written to, which has no numbers to look at.
    """

    def propagate(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes(), recorder.fake:
            return original(*args, **kwargs)

    return propagate


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
