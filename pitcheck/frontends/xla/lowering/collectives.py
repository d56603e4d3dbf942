"""Collectives of partitioned programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import cast

import numpy as np

from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.arrays import (
    NUMPY,
    Array,
    Numbers,
    Span,
    Tuple,
    Value,
    dtype_of,
)
from pitcheck.frontends.xla.lowering.building import DEVICE, Building, unsupported
from pitcheck.frontends.xla.lowering.random.codes import Exchange, exchanged, swapped
from pitcheck.frontends.xla.lowering.reductions import added_span
from pitcheck.frontends.xla.lowering.regions.of_two import reduction_of
from pitcheck.frontends.xla.lowering.spans import joined_span
from pitcheck.frontends.xla.lowering.structure import joined, reshaped, sliced
from pitcheck.frontends.xla.text.groups import Groups, device_groups, meaning_of_ids
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType
from pitcheck.plan.model import Attribute, Group, Table

_REDUCTIONS = MappingProxyType(
    {"add": "sum", "maximum": "max", "minimum": "min", "multiply": "product"}
)
_OF_TRUTHS = MappingProxyType({"or": "max", "and": "min", "maximum": "max", "minimum": "min"})

_WITHOUT_GLOBAL_IDS = frozenset({"all-to-all", "collective-broadcast"})
"""The operators that have no ``use_global_device_ids``."""

Lower = Callable[[Building, Instruction, Sequence[Array]], list[Array]]


def collective(b: Building, instruction: Instruction, operands: Sequence[Array]) -> Value | None:
    """Return the result of a collective; None for other opcodes.

    Raises:
        UnsupportedError: for what has no meaning in a plan.
        PlanError: for groups that do not fit the program.
    """
    if instruction.opcode not in _LOWER:
        return None
    results = collective_of(b, instruction.opcode, instruction, operands)
    if isinstance(instruction.shape, ArrayShape):
        check_one_result(b, instruction, len(results))
        return results[0]
    return Tuple(tuple(results))


def check_one_result(b: Building, instruction: Instruction, results: int) -> None:
    """Raise UnsupportedError if several arrays give one.

    A collective-permute of four operands writes parts of the first into the second.
    """
    if results != 1:
        raise unsupported(b, f"{instruction.opcode} of {results} operands that gives one array")


def collective_of(
    b: Building, opcode: str, instruction: Instruction, operands: Sequence[Array]
) -> list[Array]:
    """Return the results of a collective that an instruction does, or starts.

    Raises UnsupportedError and PlanError as :func:`collective` does.
    """
    return _LOWER[opcode](b, instruction, operands)


def _group(b: Building, instruction: Instruction) -> Group:
    """Return the group of partitions of a collective. Raises as :func:`groups_of` does."""
    _check_partitioned(b, instruction)
    return Group(ranks=groups_of(b, instruction, b.devices))


def groups_of(b: Building, instruction: Instruction, devices: int) -> Groups:
    """Return the groups of partitions of a collective, which are of one size.

    Raises:
        UnsupportedError: it runs over replicas, and not over partitions, or groups differ in size.
        PlanError: a partition is in no group.
    """
    attributes = instruction.attributes
    _check_channel(b, instruction)
    by_device = None
    if instruction.opcode not in _WITHOUT_GLOBAL_IDS:
        by_device = instruction.get("use_global_device_ids", False)
    ids = meaning_of_ids("channel_id" in attributes, by_device)
    stated = cast("Groups", attributes.get("replica_groups", ()))
    try:
        groups = device_groups(stated, ids, 1, devices)
    except PlanError as error:
        raise PlanError(f"{instruction.opcode}: {error.message}", b.place) from error
    if len({len(group) for group in groups}) > 1:
        raise unsupported(b, "a collective whose groups differ in size")
    return groups


def _check_partitioned(b: Building, instruction: Instruction) -> None:
    """Raise UnsupportedError in a program that is not partitioned yet."""
    if b.devices < b.module.header.partitions:
        raise unsupported(b, f"{instruction.opcode} in a program that is not partitioned yet")


def _check_channel(b: Building, instruction: Instruction) -> None:
    """Raise UnsupportedError unless a collective runs over partitions."""
    if "channel_id" not in instruction.attributes:
        raise unsupported(b, f"{instruction.opcode} without channel_id, which is over replicas,")


def _reduction(b: Building, instruction: Instruction, x: Array) -> str:
    operator = reduction_of(b.module, instruction)
    known = _OF_TRUTHS if x.shape.element is ElementType.PRED else _REDUCTIONS
    if operator not in known:
        raise unsupported(b, f"{instruction.opcode} of {x.shape.element} by {operator}")
    if x.is_integer and operator == "multiply":
        raise unsupported(b, "a product of integers, which may wrap around,")
    return known[operator]


def _combined(
    b: Building, instruction: Instruction, x: Array, members: int
) -> tuple[str, Span | None]:
    """Return the reduction of a collective, and the span of its result."""
    reduction = _reduction(b, instruction, x)
    return reduction, added_span(b, x, members) if reduction == "sum" else x.span


def _all_reduce(b: Building, instruction: Instruction, given: Sequence[Array]) -> list[Array]:
    group = _group(b, instruction)
    results = []
    for x in given:
        reduction, span = _combined(b, instruction, x, len(group.ranks[0]))
        attributes = {"reduction": reduction}
        results.append(
            b.array("all_reduce", (x.name,), x.shape, attributes, group=group, span=span)
        )
    return results


def _all_gather(b: Building, instruction: Instruction, given: Sequence[Array]) -> list[Array]:
    group = _group(b, instruction)
    axis = axis_of(b, instruction)

    def gathered(held: Sequence[Numbers], _: Numbers) -> list[Numbers]:
        parts = {d: [held[other] for other in ranks] for ranks in group.ranks for d in ranks}
        return [np.concatenate(parts[d], axis=axis) for d in range(b.devices)]

    def exchange(x: Array) -> Array:
        shape = _scaled(x.shape, axis, len(group.ranks[0]))
        if x.number is not None:
            return b.filled(shape, x.number)
        return _swapped(b, "all_gather", x, shape, {"axis": axis}, group, gathered)

    return [_with_difference(b, x, group, exchange) for x in given]


def _with_difference(
    b: Building, x: Array, group: Group, exchange: Callable[[Array], Array]
) -> Array:
    """Return what ``exchange`` makes of an array, which remembers what was subtracted from what.

    If the devices of a group subtracted the same number from integers, what they exchange are the
    differences of the exchanged integers and this number.
    """
    found, origin = exchange(x), x.shown or x
    if origin.moved is None or found.known is not None:
        return found
    source, numbers = origin.moved
    if len(numbers) > 1 and any(len({numbers[d] for d in ranks}) > 1 for ranks in group.ranks):
        return found
    integers = exchange(reshaped(b, source, x.sizes))
    integers.gathered = source
    found.moved = integers, numbers
    return found


def _swapped(
    b: Building,
    kind: str,
    x: Array,
    shape: ArrayShape,
    attributes: Mapping[str, Attribute],
    group: Group,
    exchange: Exchange,
) -> Array:
    """Return what each member of a group gets. ``exchange`` hands on what is known of elements."""

    def made() -> str:
        return b.emit(kind, (x.name,), shape, attributes, group=group)

    return _handed_on(b, x, shape, x.span, made, exchange)


def _handed_on(
    b: Building,
    x: Array,
    shape: ArrayShape,
    span: Span | None,
    make: Callable[[], str],
    exchange: Exchange,
) -> Array:
    """Return what each device gets of what the devices hold; ``make`` makes its tensor."""
    if x.known is not None and b.computes(shape, x):
        return b.known(shape, swapped(x.known, b.devices, exchange), make)
    codes = x.codes and exchanged(x.codes, shape, b.devices, exchange)
    if x.drawn:
        return Array(shape, b.later(make), span=span, codes=codes, drawn=True)
    name = make()
    return Array(shape, lambda: name, span=span, codes=codes)


def _scaled(shape: ArrayShape, axis: int, factor: int) -> ArrayShape:
    sizes = list(shape.dimensions)
    sizes[axis] *= factor
    return ArrayShape(shape.element, tuple(sizes))


def _reduce_scatter(b: Building, instruction: Instruction, given: Sequence[Array]) -> list[Array]:
    group = _group(b, instruction)
    axis = axis_of(b, instruction)
    members = len(group.ranks[0])
    results = []
    for x in given:
        reduction, span = _combined(b, instruction, x, members)
        shape = part_of(b, x, axis, members)
        attributes: Mapping[str, Attribute] = {"axis": axis, "reduction": reduction}
        results.append(
            b.array("reduce_scatter", (x.name,), shape, attributes, group=group, span=span)
        )
    return results


def part_of(b: Building, x: Array, axis: int, members: int) -> ArrayShape:
    """Return the shape of one of equal parts. Raises PlanError if there are none."""
    if x.sizes[axis] % members:
        raise PlanError(f"{x.shape} is cut along {axis} for {members} members", b.place)
    sizes = list(x.sizes)
    sizes[axis] //= members
    return ArrayShape(x.shape.element, tuple(sizes))


def axis_of(b: Building, instruction: Instruction) -> int:
    """Return the dimension of a collective. Raises PlanError unless there is one."""
    axes = instruction.integers("dimensions")
    if len(axes) != 1:
        raise PlanError(f"{instruction.opcode} has {len(axes)} dimensions; it needs one", b.place)
    return axes[0]


def _all_to_all(b: Building, instruction: Instruction, given: Sequence[Array]) -> list[Array]:
    """Return what each member gets: one array cut along a dimension, or an array of each member."""
    group = _group(b, instruction)
    members = len(group.ranks[0])
    if "dimensions" in instruction.attributes:
        axis, x = axis_of(b, instruction), given[0]
        if len(given) != 1:
            raise unsupported(b, "all-to-all of several arrays that are cut")
        part_of(b, x, axis, members)
        return [_exchanged(b, x, axis, group)]
    if len(given) != members:
        raise PlanError(
            f"all-to-all has {len(given)} operands in groups of {members}; each member sends one "
            f"to each",
            b.place,
        )
    rows = [reshaped(b, x, (1, *x.sizes)) for x in given]
    whole = joined(b, rows, 0)
    sent = _exchanged(b, whole, 0, group)
    return [
        reshaped(b, sliced(b, sent, 0, number, number + 1), x.sizes)
        for number, x in enumerate(given)
    ]


def _exchanged(b: Building, x: Array, axis: int, group: Group) -> Array:
    attributes = {"split_axis": axis, "concat_axis": axis}

    def exchange(held: Sequence[Numbers], _: Numbers) -> list[Numbers]:
        found = dict(enumerate(held))
        for ranks in group.ranks:
            parts = [np.split(held[other], len(ranks), axis=axis) for other in ranks]
            for place, device in enumerate(ranks):
                found[device] = np.concatenate([part[place] for part in parts], axis=axis)
        return [found[device] for device in range(b.devices)]

    return _swapped(b, "all_to_all", x, x.shape, attributes, group, exchange)


def _permute(b: Building, instruction: Instruction, given: Sequence[Array]) -> list[Array]:
    """Return what each partition is sent; one that is sent nothing has zeros."""
    _check_partitioned(b, instruction)
    targets = targets_of(b, instruction, b.devices)
    return [_sent(b, x, targets) for x in given]


def targets_of(b: Building, instruction: Instruction, devices: int) -> dict[int, int]:
    """Return the partition that each partition sends to, if there is one.

    Raises:
        UnsupportedError: it runs over replicas, and not over partitions.
        PlanError: there is no such partition.
    """
    _check_channel(b, instruction)
    pairs = cast("tuple[tuple[int, int], ...]", instruction.attributes["source_target_pairs"])
    most = max((number for pair in pairs for number in pair), default=0)
    if most >= devices:
        raise PlanError(f"collective-permute names the partition {most} of {devices}", b.place)
    return dict(pairs)


def _sent(b: Building, x: Array, targets: Mapping[int, int]) -> Array:
    """Return what each partition is sent."""
    sources = {target: source for source, target in targets.items()}

    def exchange(held: Sequence[Numbers], zeros: Numbers) -> list[Numbers]:
        return [held[sources[d]] if d in sources else zeros for d in range(b.devices)]

    span = joined_span((x.span, (0, 1))) if x.is_integer else None
    return _handed_on(b, x, x.shape, span, lambda: _transferred(b, x, targets, sources), exchange)


def _transferred(
    b: Building, x: Array, targets: Mapping[int, int], sources: Mapping[int, int]
) -> str:
    """Return the tensor that each partition is sent, by a send and a receive for each pair."""
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
    return name


def _at(devices: tuple[int, ...]) -> tuple[dict[str, tuple[int, ...]], ...]:
    return ({DEVICE: tuple(sorted(devices))},)


def _broadcast(b: Building, instruction: Instruction, given: Sequence[Array]) -> list[Array]:
    group = _group(b, instruction)

    def exchange(held: Sequence[Numbers], _: Numbers) -> list[Numbers]:
        roots = {device: ranks[0] for ranks in group.ranks for device in ranks}
        return [held[roots[device]] for device in range(b.devices)]

    return [_swapped(b, "broadcast", x, x.shape, {"root": 0}, group, exchange) for x in given]


def partition(b: Building, shape: ArrayShape) -> Array:
    """Return the number of each partition.

    Raises UnsupportedError in a program that is not partitioned yet.
    """
    if b.devices < b.module.header.partitions:
        raise unsupported(b, "partition-id in a program that is not partitioned yet")
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
