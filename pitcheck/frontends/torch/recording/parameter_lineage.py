"""The part of a whole tensor that a rank holds, as frameworks note it on parameters."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.placement_types import Partial, Replicate, Shard, _StridedShard
from torch.utils._python_dispatch import _disable_current_modes

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.trace import Intervals


class Part(NamedTuple):
    """A part of a whole tensor.

    Its fields are those of :class:`~pitcheck.frontends.torch.trace.Result`.
    """

    whole: tuple[int, ...] = ()
    box: tuple[Intervals, ...] = ()
    partial: tuple[int, ...] = ()


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor that this rank holds, without its wrapper."""
    if isinstance(tensor, DTensor):
        return local(tensor._local_tensor)
    if isinstance(tensor, AsyncCollectiveTensor):
        waited: torch.Tensor = tensor.trigger_wait()
        return waited
    return tensor


def part_of(tensor: torch.Tensor) -> Part:
    """Return the part that a tensor is by its own account; an empty one if it does not say."""
    if isinstance(tensor, DTensor):
        return _of_dtensor(tensor)
    if getattr(tensor, "tensor_model_parallel", False):
        return _of_megatron(tensor)
    return Part()


def _of_dtensor(tensor: DTensor) -> Part:
    mesh = tensor.device_mesh
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise UnsupportedError(f"a tensor of the mesh {mesh} lies on a rank that is not in it")
    box: list[Intervals] = [((0, size),) for size in tensor.shape]
    summed = []
    for axis, placement in enumerate(tensor.placements):
        members, place = mesh.size(axis), coordinate[axis]
        if isinstance(placement, Partial):
            if placement.reduce_op != "sum":
                raise UnsupportedError(
                    f"an output is partial with {placement.reduce_op!r}; only sums are known, "
                    f"redistribute it before"
                )
            summed.append(axis)
        elif isinstance(placement, _StridedShard):
            chunks = chunked(box[placement.dim], members * int(placement.split_factor))
            box[placement.dim] = joined(chunks[place::members])
        elif isinstance(placement, Shard):
            box[placement.dim] = joined([chunked(box[placement.dim], members)[place]])
        elif not isinstance(placement, Replicate):
            raise UnsupportedError(f"a tensor has the placement {placement}, which is not known")
    partial: tuple[int, ...] = ()
    if summed:
        index = tuple(
            slice(None) if axis in summed else coordinate[axis] for axis in range(mesh.ndim)
        )
        with _disable_current_modes():
            partial = tuple(sorted(int(rank) for rank in mesh.mesh[index].flatten().tolist()))
    return Part(tuple(tensor.shape), tuple(box), partial)


def _of_megatron(tensor: torch.Tensor) -> Part:
    state = sys.modules.get("megatron.core.parallel_state")
    if state is None:
        return Part()
    expert = not getattr(tensor, "allreduce", True)
    group = (
        state.get_expert_tensor_parallel_group()
        if expert
        else state.get_tensor_model_parallel_group()
    )
    members, place = dist.get_world_size(group), dist.get_rank(group)
    dim, stride = (
        int(getattr(tensor, "partition_dim", -1)),
        int(getattr(tensor, "partition_stride", 1)),
    )
    # Shards that an optimizer makes of flattened parameters have the attributes of these.
    if not 0 <= dim < tensor.dim():
        return Part()
    whole = list(tensor.shape)
    whole[dim] *= members
    box: list[Intervals] = [((0, size),) for size in whole]
    box[dim] = joined(chunked(box[dim], members * stride)[place::members])
    return Part(tuple(whole), tuple(box))


def chunked(intervals: Intervals, chunks: int) -> list[Intervals]:
    """Return joined intervals cut into ``chunks`` as torch.chunk cuts.

    All chunks have one size, rounded up, except for the last ones.
    """
    total = sum(stop - start for start, stop in intervals)
    size = -(-total // chunks)
    return [
        cut(intervals, min(size * index, total), min(size * (index + 1), total))
        for index in range(chunks)
    ]


def joined(parts: Sequence[Intervals]) -> Intervals:
    """Return the intervals of several parts in a row, with neighbours merged."""
    found: list[tuple[int, int]] = []
    for start, stop in (interval for part in parts for interval in part):
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        elif start < stop:
            found.append((start, stop))
    return tuple(found)


def cut(intervals: Intervals, first: int, last: int) -> Intervals:
    """Return the elements ``first`` to ``last`` (exclusive) of joined intervals, as intervals."""
    found, at = [], 0
    for start, stop in intervals:
        begin, end = max(first - at, 0), min(last - at, stop - start)
        if begin < end:
            found.append((start + begin, start + end))
        at += stop - start
    return tuple(found)


def flattened(box: Sequence[Intervals], whole: Sequence[int]) -> Intervals:
    """Return the intervals of the flattened whole that a part with intervals of each dimension has.

    >>> flattened((((0, 2),), ((1, 2),)), (2, 3))
    ((1, 2), (4, 5))
    """
    found: Intervals = ((0, 1),)
    row = 1
    for held, size in zip(reversed(box), reversed(whole), strict=True):
        if found == ((0, row),):
            found = tuple((start * row, stop * row) for start, stop in held)
        else:
            found = joined(
                [
                    tuple((index * row + first, index * row + last) for first, last in found)
                    for start, stop in held
                    for index in range(start, stop)
                ]
            )
        row *= size
    return found


def stretch_of(part: Part, shape: Sequence[int], first: int, stop: int) -> Part:
    """Return some neighbouring elements of a flattened tensor, as a part of the flattened whole.

    ``part`` is that of the tensor, ``shape`` its shape here.
    """
    whole = part.whole or tuple(shape)
    box = part.box or tuple(((0, size),) for size in shape)
    return Part((prod(whole),), (cut(flattened(box, whole), first, stop),))
