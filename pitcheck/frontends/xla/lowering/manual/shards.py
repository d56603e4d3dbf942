"""The borders of a manual region: the shards of a full array, and a full array of shards.

A sharding says which tile of the array each device holds. Several devices may hold replicas of one
tile. XLA takes it that they are the same, and goes on with one of them, not saying which. So a
program has a meaning only if its replicas are the same. They are where the region computes them by
the same steps from the same tensors; others are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.arrays import Array, Copies
from pitcheck.frontends.xla.lowering.building import Building, unsupported
from pitcheck.frontends.xla.lowering.structure import joined, sliced
from pitcheck.frontends.xla.text.sharding import AnySharding, Form, Sharding, Use

Tile = tuple[int, ...]


def is_manual(sharding: Sharding | None) -> bool:
    """Return True for the sharding of an array that each device holds as it likes."""
    return sharding is not None and sharding.form is Form.MANUAL


def shards_of(b: Building, x: Array, sharding: AnySharding | None, devices: int) -> Copies:
    """Return the shard of each device.

    Raises:
        UnsupportedError: the sharding says less than which tile each device holds.
        PlanError: it does not fit the array.
    """
    tiled = _tiled(b, sharding, devices)
    cuts = tiled.tiles(x.rank)
    widths = []
    for size, count in zip(x.sizes, cuts, strict=True):
        if size % count:
            raise unsupported(b, f"a manual region of {x.shape}, which {count} tiles do not divide")
        widths.append(size // count)
    made: dict[Tile, Array] = {}
    tiles = _tiles(b, tiled, x.rank, devices)
    for tile in tiles:
        if tile not in made:
            shard = x
            for axis, (place, width) in enumerate(zip(tile, widths, strict=True)):
                shard = sliced(b, shard, axis, place * width, (place + 1) * width)
            made[tile] = shard
    return Copies(tuple(made[tile] for tile in tiles))


def full_of(b: Building, shards: Copies, sharding: AnySharding | None) -> Array:
    """Return the array that devices hold the shards of.

    Raises:
        UnsupportedError: the sharding says less than which tile each device holds, or replicas of
            a tile are not computed by the same steps.
        PlanError: it does not fit the array.
    """
    devices = len(shards.arrays)
    tiled = _tiled(b, sharding, devices)
    rank = shards.arrays[0].rank
    cuts = tiled.tiles(rank)
    first: dict[Tile, int] = {}
    for device, tile in enumerate(_tiles(b, tiled, rank, devices)):
        kept = first.setdefault(tile, device)
        if not _same(shards.arrays[kept], shards.arrays[device]):
            raise unsupported(
                b,
                f"a full array of replicas that devices {kept} and {device} compute by different "
                f"steps (shard_map with out_specs that leave out a mesh axis: reduce or gather the "
                f"result over that axis, or name it in out_specs)",
            )
    return _joined(b, {tile: shards.arrays[device] for tile, device in first.items()}, cuts)


def _joined(b: Building, tiles: Mapping[Tile, Array], cuts: Sequence[int]) -> Array:
    """Return the array of all tiles, joined along the last dimension first."""
    for axis in reversed(range(len(cuts))):
        rows: dict[Tile, list[Array]] = {}
        for tile in sorted(tiles):
            rows.setdefault(tile[:axis], []).append(tiles[tile])
        tiles = {row: joined(b, parts, axis) for row, parts in rows.items()}
    return tiles[()]


def _tiled(b: Building, sharding: AnySharding | None, devices: int) -> Sharding:
    """Return a sharding that says which tile each device holds, and nothing more."""
    if sharding is None or isinstance(sharding, tuple):
        raise unsupported(b, "the border of a manual region without a sharding of the full array")
    if sharding.form is Form.TILED and len(sharding.devices) != devices:
        raise PlanError(
            f"the sharding is of {len(sharding.devices)} devices; the program has {devices}",
            b.place,
        )
    uses = {use for size, use in sharding.groups if size > 1}
    if Use.MANUAL in uses:
        raise unsupported(b, "a region that is manual along some axes of the mesh and not others")
    if sharding.form not in {Form.TILED, Form.REPLICATED} or Use.UNREDUCED in uses:
        raise unsupported(b, f"a manual region of an array that is {_word(sharding)}")
    return sharding


def _word(sharding: Sharding) -> str:
    return "unreduced" if sharding.form is Form.TILED else sharding.form.value


def _tiles(b: Building, sharding: Sharding, rank: int, devices: int) -> list[Tile]:
    """Return the tile of each device."""
    found = []
    for device in range(devices):
        placement = sharding.placement(device, rank)
        if placement is None:
            raise PlanError(f"the sharding gives device {device} nothing", b.place)
        found.append(placement.tile)
    return found


def _same(a: Array, b: Array) -> bool:
    """Return True if two arrays are computed by the same steps, or are known to be the same."""
    if a is b:
        return True
    if a.shape != b.shape:
        return False
    if a.known is not None and b.known is not None:
        return bool(np.array_equal(a.known, b.known))
    return a.name == b.name
