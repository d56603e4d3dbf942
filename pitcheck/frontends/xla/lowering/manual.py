"""Regions that are written for each device (``shard_map``), in a program that is not partitioned.

Such a region begins where a whole array becomes the tiles of the devices, and ends where the
devices' arrays become a whole one. The reference has one device, so that it computes what each
device of the region computes, one after the other. A collective reads the arrays of other devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import cast

import numpy as np

from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.arrays import NUMPY, Array, Numbers, Shards, Tuple, Value
from pitcheck.frontends.xla.lowering.building import Building, unsupported
from pitcheck.frontends.xla.lowering.collectives import check_channel, groups_of, split_axis
from pitcheck.frontends.xla.lowering.reductions import over
from pitcheck.frontends.xla.lowering.regions import reduction_of
from pitcheck.frontends.xla.lowering.structure import joined, reshaped, sliced
from pitcheck.frontends.xla.text.groups import Groups
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape
from pitcheck.frontends.xla.text.sharding import Form, Placement, Sharding, Use

_OPERATORS = frozenset({"add", "maximum", "minimum", "and", "or"})

Given = Sequence[Array]
"""The array of each device."""


def is_manual(instruction: Instruction) -> bool:
    """Return True if an instruction is written for each device."""
    stated = instruction.sharding
    shardings = stated if isinstance(stated, tuple) else (stated,)
    return all(each is not None and each.form is Form.MANUAL for each in shardings)


def begins(b: Building, instruction: Instruction, x: Array, sharding: Sharding | None) -> Shards:
    """Return the tile of a whole array that each device has (``SPMDFullToShardShape``).

    Raises:
        UnsupportedError: the sharding is not stated, or the array is not cut evenly.
        PlanError: the tiles are not of the shape that is stated.
    """
    tiles = _tiles(b, x, sharding)
    found = [_tile(b, x, instruction.shape, tile) for tile in tiles]
    return Shards(tuple(found))


def ends(b: Building, instruction: Instruction, x: Value) -> Array:
    """Return the whole array of the devices' tiles (``SPMDShardToFullShape``).

    Devices that hold one tile hold the same, or the program says nothing certain: the first one's
    is taken, which ``Building.assume`` tells.

    Raises:
        UnsupportedError: the sharding is not stated, or the array is not cut evenly.
        PlanError: the tiles do not make the shape that is stated.
    """
    shape, sharding = instruction.shape, instruction.sharding
    if not isinstance(shape, ArrayShape) or isinstance(sharding, tuple):
        raise unsupported(b, "a region of a shard_map that ends with a tuple")
    parts = _arrays(b, x)
    cuts = _cuts(b, shape, sharding)
    tiles = [each.tile for each in _placements(b, sharding, len(shape.dimensions), len(parts))]
    held: dict[tuple[int, ...], Array] = {}
    for tile, part in zip(tiles, parts, strict=True):
        held.setdefault(tile, part)
    if len(held) < len(parts):
        b.assume("where devices hold copies of a result of a shard_map, the first one's is taken")
    return _whole(b, held, cuts, ())


def _whole(
    b: Building, held: Mapping[tuple[int, ...], Array], cuts: Sequence[int], tile: tuple[int, ...]
) -> Array:
    """Return the tiles that begin with ``tile``, joined along the dimensions behind."""
    if len(tile) == len(cuts):
        return held[tile]
    parts = [_whole(b, held, cuts, (*tile, number)) for number in range(cuts[len(tile)])]
    return joined(b, parts, len(tile))


def _tiles(b: Building, x: Array, sharding: Sharding | None) -> list[tuple[tuple[int, int], ...]]:
    """Return the places along each dimension that each device has of an array."""
    cuts = _cuts(b, x.shape, sharding)
    widths = [size // cut for size, cut in zip(x.sizes, cuts, strict=True)]
    devices = b.module.header.partitions
    return [
        tuple((n * width, (n + 1) * width) for n, width in zip(each.tile, widths, strict=True))
        for each in _placements(b, sharding, x.rank, devices)
    ]


def _cuts(b: Building, shape: ArrayShape, sharding: Sharding | None) -> tuple[int, ...]:
    """Return the number of tiles along each dimension. Raises UnsupportedError for uneven ones."""
    if sharding is None or sharding.form in {Form.MANUAL, Form.MAXIMAL, Form.UNREDUCED}:
        raise unsupported(b, "a shard_map of an array whose tiles are not stated")
    cuts = sharding.tiles(len(shape.dimensions))
    if any(size % cut for size, cut in zip(shape.dimensions, cuts, strict=True)):
        raise unsupported(b, f"a shard_map of {shape} in tiles of different sizes")
    return cuts


def _placements(b: Building, sharding: Sharding | None, rank: int, devices: int) -> list[Placement]:
    found = [sharding.placement(d, rank) for d in range(devices)] if sharding else []
    held = [each for each in found if each is not None]
    if len(held) < devices or any(
        each.numbers.get(use) for each in held for use in (Use.MANUAL, Use.UNREDUCED)
    ):
        raise unsupported(b, "a shard_map over some of the axes of the mesh")
    return held


def _tile(b: Building, x: Array, shape: object, tile: Sequence[tuple[int, int]]) -> Array:
    for axis, (start, stop) in enumerate(tile):
        x = sliced(b, x, axis, start, stop)
    if x.shape != shape:
        raise PlanError(f"a tile is {x.shape}; it is stated to be {shape}", b.place)
    return x


def _arrays(b: Building, x: Value) -> list[Array]:
    """Return the array of each device; a value that no device computes is that of all."""
    if isinstance(x, Array):
        return [x] * b.module.header.partitions
    found = [each for each in x.devices if isinstance(each, Array)] if isinstance(x, Shards) else []
    if len(found) < b.module.header.partitions:
        raise unsupported(b, "a tuple of the devices of a shard_map")
    return found


def numbered(b: Building, shape: ArrayShape) -> Shards:
    """Return the number of each device."""
    numbers: Numbers = np.arange(b.module.header.partitions, dtype=NUMPY[shape.element])
    return Shards(tuple(b.known(shape, numbers[d : d + 1]) for d in range(len(numbers))))


def one_of_all(value: Value) -> Value:
    """Return a known number that all devices have; the value itself if there is none."""
    if not isinstance(value, Shards):
        return value
    found = [each.uniform if isinstance(each, Array) else None for each in value.devices]
    same = found[0] is not None and all(each == found[0] for each in found)
    return value.devices[0] if same else value


def met(b: Building, instruction: Instruction, given: Sequence[Value]) -> Value | None:
    """Return what each device has after a collective; None for other opcodes.

    Raises:
        UnsupportedError: for what has no meaning in a plan.
        PlanError: for groups that do not fit the program.
    """
    lower = _MEETINGS.get(instruction.opcode)
    if lower is None:
        return None
    if not is_manual(instruction):
        raise unsupported(b, f"{instruction.opcode} outside of a shard_map")
    devices = [_arrays(b, x) for x in given]
    results = lower(b, instruction, devices)
    if isinstance(instruction.shape, ArrayShape):
        return Shards(tuple(results[0]))
    return Tuple(tuple(Shards(tuple(each)) for each in results))


Meeting = Callable[[Building, Instruction, Sequence[Given]], Sequence[Given]]


def _in_groups(
    groups: Groups, x: Given, of_group: Callable[[Sequence[Array]], Sequence[Array]]
) -> list[Array]:
    """Return the array of each device, of those that ``of_group`` gives the members of a group."""
    found: dict[int, Array] = {}
    for group in groups:
        found.update(zip(group, of_group([x[member] for member in group]), strict=True))
    return [found[device] for device in range(len(x))]


def _reduction(b: Building, instruction: Instruction, members: Sequence[Array]) -> Array:
    """Return the reduction over members, as one over a dimension along which they are stacked."""
    operator = reduction_of(b.module, instruction)
    first = members[0]
    if operator not in _OPERATORS:
        raise unsupported(b, f"{instruction.opcode} by {operator} in a shard_map")
    if (first.shape.element.value == "pred") != (operator in {"and", "or"}):
        raise unsupported(b, f"{instruction.opcode} of {first.shape.element} by {operator}")
    stacked = joined(b, [reshaped(b, x, (1, *x.sizes)) for x in members], 0)
    return over(b, stacked, first.shape, operator, (0,))


def _all_reduce(b: Building, instruction: Instruction, given: Sequence[Given]) -> list[list[Array]]:
    groups = groups_of(b, instruction, b.module.header.partitions)

    def of_group(members: Sequence[Array]) -> list[Array]:
        return [_reduction(b, instruction, members)] * len(members)

    return [_in_groups(groups, x, of_group) for x in given]


def _all_gather(b: Building, instruction: Instruction, given: Sequence[Given]) -> list[list[Array]]:
    groups = groups_of(b, instruction, b.module.header.partitions)
    axis = split_axis(b, instruction)

    def of_group(members: Sequence[Array]) -> list[Array]:
        return [joined(b, members, axis)] * len(members)

    return [_in_groups(groups, x, of_group) for x in given]


def _reduce_scatter(
    b: Building, instruction: Instruction, given: Sequence[Given]
) -> list[list[Array]]:
    groups = groups_of(b, instruction, b.module.header.partitions)
    axis = split_axis(b, instruction)

    def of_group(members: Sequence[Array]) -> list[Array]:
        return _cut(b, _reduction(b, instruction, members), axis, len(members))

    return [_in_groups(groups, x, of_group) for x in given]


def _cut(b: Building, x: Array, axis: int, count: int) -> list[Array]:
    """Return equal parts of an array. Raises PlanError if there are none."""
    if x.sizes[axis] % count:
        raise PlanError(f"{x.shape} is cut along {axis} for {count} members", b.place)
    width = x.sizes[axis] // count
    return [sliced(b, x, axis, n * width, (n + 1) * width) for n in range(count)]


def _all_to_all(b: Building, instruction: Instruction, given: Sequence[Given]) -> list[list[Array]]:
    groups = groups_of(b, instruction, b.module.header.partitions)
    if "dimensions" not in instruction.attributes:
        return _of_several(b, groups, given)
    axis = split_axis(b, instruction)
    if len(given) != 1:
        raise unsupported(b, "all-to-all of several arrays that are cut")

    def of_group(members: Sequence[Array]) -> list[Array]:
        parts = [_cut(b, x, axis, len(members)) for x in members]
        return [joined(b, received, axis) for received in zip(*parts, strict=True)]

    return [_in_groups(groups, given[0], of_group)]


def _of_several(b: Building, groups: Groups, given: Sequence[Given]) -> list[list[Array]]:
    """Return what each device gets where each sends its operand n to member n of its group."""
    found: list[dict[int, Array]] = [{} for _ in given]
    for group in groups:
        if len(group) != len(given):
            raise PlanError(
                f"all-to-all has {len(given)} operands in groups of {len(group)}; each member "
                f"sends one to each",
                b.place,
            )
        for place, member in enumerate(group):
            for number, sender in enumerate(group):
                found[number][member] = given[place][sender]
    return [[each[device] for device in range(len(given[0]))] for each in found]


def _permute(b: Building, instruction: Instruction, given: Sequence[Given]) -> list[list[Array]]:
    check_channel(b, instruction)
    pairs = cast("tuple[tuple[int, int], ...]", instruction.attributes["source_target_pairs"])
    count = b.module.header.partitions
    if any(not 0 <= number < count for pair in pairs for number in pair):
        raise PlanError(f"collective-permute names a partition that is none of {count}", b.place)
    sources = {target: source for source, target in pairs}
    return [
        [x[sources[d]] if d in sources else _zeros(b, x[d].shape) for d in range(count)]
        for x in given
    ]


def _zeros(b: Building, shape: ArrayShape) -> Array:
    if shape.element in NUMPY:
        return b.known(shape, np.zeros((1, *shape.dimensions), NUMPY[shape.element]))
    return b.filled(shape, Fraction(0))


def _broadcast(b: Building, instruction: Instruction, given: Sequence[Given]) -> list[list[Array]]:
    groups = groups_of(b, instruction, b.module.header.partitions)
    return [_in_groups(groups, x, lambda members: [members[0]] * len(members)) for x in given]


_MEETINGS: Mapping[str, Meeting] = MappingProxyType(
    {
        "all-reduce": _all_reduce,
        "all-gather": _all_gather,
        "reduce-scatter": _reduce_scatter,
        "all-to-all": _all_to_all,
        "collective-permute": _permute,
        "collective-broadcast": _broadcast,
    }
)
