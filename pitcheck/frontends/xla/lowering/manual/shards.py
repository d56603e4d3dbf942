"""The borders of a manual region: the shards of a full array, and a full array of shards.

A sharding says which tile of the array each device holds. A region may be manual along some axes of
the mesh alone. Then devices that differ in the other axes form a group, which holds one array of
the region, cut into tiles in turn; the array of a region is a block of the full one.

Several groups may hold replicas of one block. XLA takes it that they are the same, and goes on with
one of them, not saying which. So a program has a meaning only if its replicas are the same. They
are if the region computes them by the same steps from the same tensors; others are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.arrays import Array, Copies
from pitcheck.frontends.xla.lowering.building import Building, unsupported
from pitcheck.frontends.xla.lowering.structure import joined, sliced
from pitcheck.frontends.xla.text.sharding import AnySharding, Form, Placement, Sharding, Use

Block = tuple[int, ...]
Groups = tuple[int, ...]
"""The number of the group that each device is in."""


def manual_groups(sharding: Sharding | None, devices: int) -> Groups | None:
    """Return the groups of devices that hold one array of a manual region; None outside of one."""
    if sharding is None or not devices:
        return None
    if sharding.form is Form.MANUAL:
        return tuple(range(devices))
    if sharding.form is not Form.TILED or sharding.count(Use.MANUAL) == 1:
        return None
    rank = len(sharding.cuts or ())
    numbers = [_placement(sharding, device, rank).numbers[Use.MANUAL] for device in range(devices)]
    first = list(dict.fromkeys(numbers))
    return tuple(first.index(number) for number in numbers)


def _placement(sharding: Sharding, device: int, rank: int) -> Placement:
    found = sharding.placement(device, rank)
    if found is None:
        raise PlanError(f"a sharding of a manual region gives device {device} nothing")
    return found


def shards_of(
    b: Building,
    x: Array | Copies,
    full: AnySharding | None,
    sharding: AnySharding | None,
    sizes: tuple[int, ...],
    devices: int,
) -> Copies:
    """Return the block of each device.

    Args:
        b: the plan.
        x: the full array.
        full: its sharding.
        sharding: that of the blocks.
        sizes: their sizes.
        devices: the number of devices.

    Raises:
        UnsupportedError: the shardings say less than which block each device holds.
        PlanError: they do not fit the array.
    """
    rank = len(sizes)
    held = x.arrays if isinstance(x, Copies) else (x,) * devices
    blocks = _blocks(b, full, sharding, held[0].sizes, sizes, devices)
    groups = manual_groups(sharding if isinstance(sharding, Sharding) else None, devices)
    if groups is None:
        raise unsupported(b, "the shards of an array that is not stated to be manual")
    around = x.groups if isinstance(x, Copies) else (0,) * devices
    first = _first_of_each(b, groups, list(zip(around, blocks, strict=True)))
    made = {
        group: _cut(b, held[device], blocks[device], sizes, rank) for group, device in first.items()
    }
    return Copies(tuple(made[group] for group in groups), groups)


def _first_of_each(
    b: Building, groups: Groups, places: Sequence[tuple[int, Block]]
) -> dict[int, int]:
    """Return the first device of each group.

    Raises UnsupportedError unless all devices of a group have one place.
    """
    first: dict[int, int] = {}
    for device, group in enumerate(groups):
        if places[first.setdefault(group, device)] != places[device]:
            raise unsupported(b, "a manual region whose groups of devices hold several blocks")
    return first


def _cut(b: Building, x: Array, block: Block, sizes: Sequence[int], rank: int) -> Array:
    for axis in range(rank):
        start = block[axis] * sizes[axis]
        x = sliced(b, x, axis, start, start + sizes[axis])
    return x


def full_of(
    b: Building,
    shards: Copies,
    sharding: AnySharding | None,
    full: AnySharding | None,
    sizes: tuple[int, ...],
) -> Array | Copies:
    """Return the array that devices hold blocks of; in a region around this one, several.

    Args:
        b: the plan.
        shards: the blocks.
        sharding: their sharding.
        full: that of the full array.
        sizes: its sizes.

    Raises:
        UnsupportedError: the shardings say less than which block each device holds, or replicas of
            a block are not computed by the same steps.
        PlanError: they do not fit the array.
    """
    devices = len(shards.arrays)
    local = shards.arrays[0].sizes
    blocks = _blocks(b, full, sharding, sizes, local, devices)
    around = manual_groups(full if isinstance(full, Sharding) else None, devices)
    places = list(zip(around or (0,) * devices, blocks, strict=True))
    _first_of_each(b, shards.groups, places)
    first: dict[tuple[int, Block], int] = {}
    for device, place in enumerate(places):
        kept = first.setdefault(place, device)
        if not _same(shards.arrays[kept], shards.arrays[device]):
            raise unsupported(
                b,
                f"a full array of replicas that devices {kept} and {device} compute by different "
                f"steps (shard_map with out_specs that leave out a mesh axis: reduce or gather the "
                f"result over that axis, or name it in out_specs)",
            )
    wholes: dict[int, dict[Block, Array]] = {}
    for (group, block), device in first.items():
        wholes.setdefault(group, {})[block] = shards.arrays[device]
    made = {group: _joined(b, held, len(sizes)) for group, held in wholes.items()}
    if around is None:
        return made[0]
    return Copies(tuple(made[group] for group in around), around)


def _joined(b: Building, blocks: Mapping[Block, Array], rank: int) -> Array:
    """Return the array of all blocks, joined along the last dimension first."""
    for axis in reversed(range(rank)):
        rows: dict[Block, list[Array]] = {}
        for block in sorted(blocks):
            rows.setdefault(block[:axis], []).append(blocks[block])
        blocks = {row: joined(b, parts, axis) for row, parts in rows.items()}
    return blocks[()]


def _blocks(
    b: Building,
    full: AnySharding | None,
    local: AnySharding | None,
    sizes: Sequence[int],
    block: Sequence[int],
    devices: int,
) -> list[Block]:
    """Return which block of a full array each device holds a tile of.

    ``sizes`` and ``block``: the sizes of the array and of a block. The tiles of the full array are
    those of its blocks, block by block.
    """
    whole, part = _tiled(b, full, devices), _tiled(b, local, devices)
    cuts, inner = whole.tiles(len(sizes)), part.tiles(len(sizes))
    for size, width, count, within in zip(sizes, block, cuts, inner, strict=True):
        if size % count or count % within or width * count != size * within:
            raise unsupported(
                b,
                f"a manual region of blocks of {list(block)} elements, in {list(inner)} tiles, of "
                f"{list(sizes)} elements in {list(cuts)} tiles,",
            )
    found = []
    for device in range(devices):
        outside, inside = (_placement(s, device, len(sizes)).tile for s in (whole, part))
        if any(o % n != i for o, n, i in zip(outside, inner, inside, strict=True)):
            raise unsupported(b, "a manual region whose blocks are laid out otherwise than before")
        found.append(tuple(o // n for o, n in zip(outside, inner, strict=True)))
    return found


def _tiled(b: Building, sharding: AnySharding | None, devices: int) -> Sharding:
    """Return a sharding that says which tile each device holds, and of which array."""
    if sharding is None or isinstance(sharding, tuple):
        raise unsupported(b, "the border of a manual region without a sharding of the array")
    if sharding.form is Form.TILED and len(sharding.devices) != devices:
        raise PlanError(
            f"the sharding is of {len(sharding.devices)} devices; the program has {devices}",
            b.place,
        )
    if sharding.form not in {Form.TILED, Form.REPLICATED, Form.MANUAL}:
        raise unsupported(b, f"a manual region of an array that is {sharding.form.value}")
    if sharding.count(Use.UNREDUCED) != 1:
        raise unsupported(b, "a manual region of an array that is unreduced")
    return sharding


def _same(a: Array, b: Array) -> bool:
    """Return True if two arrays are computed by the same steps, or are known to be the same."""
    if a is b:
        return True
    if a.shape != b.shape:
        return False
    if a.known is not None and b.known is not None:
        return bool(np.array_equal(a.known, b.known))
    return a.name == b.name
