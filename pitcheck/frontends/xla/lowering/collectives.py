"""Collectives of partitioned programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import cast

import numpy as np

from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.arrays import NUMPY, Array, Tuple, Value, dtype_of
from pitcheck.frontends.xla.lowering.building import DEVICE, Building, unsupported
from pitcheck.frontends.xla.lowering.regions import reduction_of
from pitcheck.frontends.xla.lowering.structure import joined, reshaped, sliced
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType
from pitcheck.plan.model import Attribute, Group, Table

_REDUCTIONS = MappingProxyType(
    {"add": "sum", "maximum": "max", "minimum": "min", "multiply": "product"}
)
_OF_TRUTHS = MappingProxyType({"or": "max", "and": "min", "maximum": "max", "minimum": "min"})

Lower = Callable[[Building, Instruction, Sequence[Array]], list[Array]]


def collective(b: Building, instruction: Instruction, operands: Sequence[Array]) -> Value | None:
    """Return the result of a collective; None for other opcodes.

    Raises:
        UnsupportedError: for what has no meaning in a plan.
        PlanError: for groups that do not fit the program.
    """
    opcode = instruction.opcode
    lower = _LOWER.get(opcode)
    if lower is None:
        return None
    results = lower(b, instruction, operands)
    if isinstance(instruction.shape, ArrayShape):
        return results[0]
    return Tuple(tuple(results))


def group_of(b: Building, instruction: Instruction) -> Group:
    """Return the group of partitions of a collective.

    Raises:
        UnsupportedError: it runs over replicas, and not over partitions.
        PlanError: a partition is in no group, or groups differ in size.
    """
    groups = cast("tuple[tuple[int, ...], ...]", instruction.attributes["replica_groups"])
    every = tuple(range(b.devices))
    if "channel_id" not in instruction.attributes:
        raise unsupported(b, f"{instruction.opcode} without channel_id, which is over replicas,")
    by_device = instruction.get("use_global_device_ids", False)
    over_partitions = instruction.opcode in {"all-to-all", "collective-broadcast"}
    if not by_device and not over_partitions:
        # The ids are replicas, of which there is one: each group has all partitions of its own.
        if groups not in ((), ((0,),)):
            raise unsupported(b, "a collective over several replicas")
        groups = ()
    groups = groups or (every,)
    members = sorted(member for group in groups for member in group)
    if members != list(every):
        raise PlanError(
            f"the replica groups of {instruction.opcode} have the partitions {members}; each of "
            f"the {b.devices} partitions must be in one",
            b.place,
        )
    if len({len(group) for group in groups}) > 1:
        raise unsupported(b, "a collective whose groups differ in size")
    return Group(ranks=groups)


def _reduction(b: Building, instruction: Instruction, x: Array) -> str:
    operator = reduction_of(b.module, instruction)
    known = _OF_TRUTHS if x.shape.element is ElementType.PRED else _REDUCTIONS
    if operator not in known:
        raise unsupported(b, f"{instruction.opcode} of {x.shape.element} by {operator}")
    return known[operator]


def _all_reduce(b: Building, instruction: Instruction, given: Sequence[Array]) -> list[Array]:
    group = group_of(b, instruction)
    return [
        b.array(
            "all_reduce",
            (x.name,),
            x.shape,
            {"reduction": _reduction(b, instruction, x)},
            group=group,
        )
        for x in given
    ]


def _all_gather(b: Building, instruction: Instruction, given: Sequence[Array]) -> list[Array]:
    group = group_of(b, instruction)
    axis = instruction.get("dimensions", (0,))[0]
    results = []
    for x in given:
        shape = _scaled(x.shape, axis, len(group.ranks[0]))
        results.append(
            b.array("all_gather", (x.name,), shape, {"axis": axis}, group=group, span=x.span)
        )
    return results


def _scaled(shape: ArrayShape, axis: int, factor: int) -> ArrayShape:
    sizes = list(shape.dimensions)
    sizes[axis] *= factor
    return ArrayShape(shape.element, tuple(sizes))


def _reduce_scatter(b: Building, instruction: Instruction, given: Sequence[Array]) -> list[Array]:
    group = group_of(b, instruction)
    axis = instruction.get("dimensions", (0,))[0]
    members = len(group.ranks[0])
    results = []
    for x in given:
        sizes = list(x.sizes)
        sizes[axis] //= members
        attributes: Mapping[str, Attribute] = {
            "axis": axis,
            "reduction": _reduction(b, instruction, x),
        }
        shape = ArrayShape(x.shape.element, tuple(sizes))
        results.append(b.array("reduce_scatter", (x.name,), shape, attributes, group=group))
    return results


def _all_to_all(b: Building, instruction: Instruction, given: Sequence[Array]) -> list[Array]:
    """Return what each member gets: one array cut along a dimension, or an array of each member."""
    group = group_of(b, instruction)
    members = len(group.ranks[0])
    axes = instruction.get("dimensions", ())
    if axes:
        x = given[0]
        attributes = {"split_axis": axes[0], "concat_axis": axes[0]}
        if len(given) != 1 or x.sizes[axes[0]] % members:
            raise unsupported(b, "all-to-all of parts of different sizes")
        return [b.array("all_to_all", (x.name,), x.shape, attributes, group=group, span=x.span)]
    if len(given) != members:
        raise PlanError(
            f"all-to-all has {len(given)} operands in groups of {members}; each member sends one "
            f"to each",
            b.place,
        )
    rows = [reshaped(b, x, (1, *x.sizes)) for x in given]
    whole = joined(b, rows, 0)
    attributes = {"split_axis": 0, "concat_axis": 0}
    sent = b.array("all_to_all", (whole.name,), whole.shape, attributes, group=group)
    return [
        reshaped(b, sliced(b, sent, 0, number, number + 1), x.sizes)
        for number, x in enumerate(given)
    ]


def _permute(b: Building, instruction: Instruction, given: Sequence[Array]) -> list[Array]:
    """Return what each partition is sent; one that is sent nothing has zeros."""
    if "channel_id" not in instruction.attributes:
        raise unsupported(b, "collective-permute without channel_id, which is over replicas,")
    pairs = cast("tuple[tuple[int, int], ...]", instruction.attributes["source_target_pairs"])
    ids = [number for pair in pairs for number in pair]
    if any(not 0 <= number < b.devices for number in ids):
        raise PlanError(
            f"collective-permute names the partition {max(ids)} of {b.devices}", b.place
        )
    return [_sent(b, x, dict(pairs)) for x in given]


def _sent(b: Building, x: Array, targets: Mapping[int, int]) -> Array:
    """Return what each partition is sent, by a send and a receive for each pair."""
    sources = {target: source for source, target in targets.items()}
    stays = tuple(s for s, t in targets.items() if s == t)
    sends = tuple(s for s, t in targets.items() if s != t)
    receives = tuple(targets[s] for s in sends)
    nothing = tuple(d for d in range(b.devices) if d not in sources)
    name = b.unused(b.stem)
    if sends:
        batch = name
        peers = Table((DEVICE,), tuple(targets.get(d, 0) for d in range(b.devices)))
        b.perform("send", (x.name,), {"peer": peers, "batch": batch}, _at(sends))
        origins = Table((DEVICE,), tuple(sources.get(d, 0) for d in range(b.devices)))
        attributes: Mapping[str, Attribute] = {"peer": origins, "batch": batch}
        b.emit("receive", (), x.shape, attributes, where=_at(receives), into=name)
    if stays:
        b.emit("identity", (x.name,), x.shape, where=_at(stays), into=name)
    if nothing:
        attributes = {"sizes": x.sizes, "value": 0, "dtype": dtype_of(x.shape.element)}
        b.emit("full", (), x.shape, attributes, where=_at(nothing), into=name)
    return Array(x.shape, lambda: name)


def _at(devices: tuple[int, ...]) -> tuple[dict[str, tuple[int, ...]], ...]:
    return ({DEVICE: tuple(sorted(devices))},)


def _broadcast(b: Building, instruction: Instruction, given: Sequence[Array]) -> list[Array]:
    group = group_of(b, instruction)
    attributes = {"root": 0}
    return [b.array("broadcast", (x.name,), x.shape, attributes, group=group) for x in given]


def partition(b: Building, shape: ArrayShape) -> Array:
    """Return the number of each partition."""
    return b.known(shape, np.arange(b.devices, dtype=NUMPY[shape.element]))


_LOWER: Mapping[str, Lower] = MappingProxyType(
    {
        "all-reduce": _all_reduce,
        "all-gather": _all_gather,
        "reduce-scatter": _reduce_scatter,
        "all-to-all": _all_to_all,
        "collective-permute": _permute,
        "collective-broadcast": _broadcast,
    }
)
