"""Reading shardings, in the notation of tiles and in that of a mesh with axes."""

from __future__ import annotations

from pitcheck.frontends.xla.text.lexer import Lexer
from pitcheck.frontends.xla.text.limits import MOST_DEVICES
from pitcheck.frontends.xla.text.mesh import (
    Axis,
    Count,
    DeviceLists,
    Mesh,
    arranged,
    counted,
    device_count,
    permutation,
    read_axes,
    read_count,
    read_mesh,
    split_axes,
)
from pitcheck.frontends.xla.text.sharding import AnySharding, Form, Sharding, Use

_WORDS = {
    "replicated": Form.REPLICATED,
    "unreduced": Form.UNREDUCED,
    "manual": Form.MANUAL,
    "unknown": Form.UNKNOWN,
}
_USES = {use.value: use for use in Use}


def read_sharding(lexer: Lexer, lists: DeviceLists) -> AnySharding:
    """Return the sharding that is next, of an array or of a tuple."""
    lexer.expect("{", "before a sharding")
    if not (lexer.at("{") or lexer.at("}")):
        return _single(lexer, lists)
    shardings: list[Sharding] = []
    while not lexer.take("}"):
        if shardings:
            lexer.expect(",", "between the shardings of a tuple")
        lexer.expect("{", "before a sharding")
        shardings.append(_single(lexer, lists))
    return tuple(shardings)


def _single(lexer: Lexer, lists: DeviceLists) -> Sharding:
    """Return the sharding behind a brace that was passed, and pass the brace that closes it."""
    if lexer.at("mesh"):
        return _of_mesh(lexer, lists)
    if lexer.take("maximal_mesh"):
        for mark in ("[", "device_id", "="):
            lexer.expect(mark, "before the device of a mesh")
        device = lexer.integer("a device", 0, MOST_DEVICES - 1)
        lexer.expect("]", "behind the device of a mesh")
        sharding = Sharding(Form.MAXIMAL, device=device)
    elif lexer.take("maximal"):
        lexer.expect("device", "in a maximal sharding")
        lexer.expect("=", "in a maximal sharding")
        sharding = Sharding(Form.MAXIMAL, device=lexer.integer("a device", 0, MOST_DEVICES - 1))
    elif lexer.text in _WORDS:
        sharding = Sharding(_WORDS[lexer.advance()])
    else:
        sharding = _tiled(lexer, lists)
    _metadata(lexer)
    return _closed(lexer, sharding)


def _closed(lexer: Lexer, sharding: Sharding) -> Sharding:
    """Return a sharding and pass its brace."""
    if lexer.at("shard_as") or lexer.at("shard_like"):
        raise lexer.unsupported(
            f"{lexer.text} ties a sharding to others and leaves it open; dump the program that "
            "goes into the partitioner"
        )
    lexer.expect("}", "behind a sharding")
    return sharding


def _metadata(lexer: Lexer) -> None:
    """Pass the metadata of a sharding, which say where it was written."""
    if lexer.at("metadata") or (lexer.at(",") and lexer.followed_by("metadata")):
        lexer.take(",")
        lexer.advance()
        lexer.expect("=", "behind metadata")
        lexer.balanced("metadata")


def _tiled(lexer: Lexer, lists: DeviceLists) -> Sharding:
    """Return a sharding such as ``devices=[2,1,2]<=[4] last_tile_dim_replicate``."""
    lexer.expect("devices", "in a sharding")
    lexer.expect("=", "in a sharding")
    sizes = lexer.integers("[", "]", "numbers of tiles", 1)
    count = device_count(lexer, sizes, "a sharding")
    order = _devices(lexer, count)
    uses = _last_uses(lexer)
    if len(uses) > len(sizes):
        raise lexer.damaged(f"last_tile_dims has {len(uses)} uses for {len(sizes)} dimensions")
    rank = len(sizes) - len(uses)
    groups = tuple(zip(sizes[rank:], uses, strict=True))

    def made() -> Sharding:
        devices = counted(order) if isinstance(order, Count) else order
        return Sharding(Form.TILED, sizes[:rank], groups, devices)

    return lists.once(lexer, (sizes, uses, order), count, made)


def _devices(lexer: Lexer, count: int) -> Count | tuple[int, ...]:
    """Return the devices of a sharding, listed or counted."""
    if not lexer.take("<="):
        devices = [lexer.integer("a device")]
        while lexer.take(","):
            devices.append(lexer.integer("a device"))
        return permutation(lexer, tuple(devices), count)
    order = read_count(lexer)
    if order.size != count:
        raise lexer.damaged(f"a sharding of {count} tiles has {order.size} devices")
    return order


def _last_uses(lexer: Lexer) -> tuple[Use, ...]:
    """Return the uses of the last dimensions of tiles."""
    if lexer.take("last_tile_dim_replicate"):
        return (Use.REPLICATED,)
    if not lexer.take("last_tile_dims"):
        return ()
    lexer.expect("=", "behind last_tile_dims")
    lexer.expect("{", "before the uses of tiles")
    uses: list[Use] = []
    while not lexer.take("}"):
        if uses:
            lexer.expect(",", "between the uses of tiles")
        word = lexer.word("a use of tiles")
        if word not in _USES:
            raise lexer.unsupported(f"the use {word[:60]!r} of tiles has no meaning here")
        uses.append(_USES[word])
    return tuple(uses)


def _of_mesh(lexer: Lexer, lists: DeviceLists) -> Sharding:
    """Return a sharding such as ``mesh['a'=2,'b'=2], [{'a'},{}], unreduced={'b'}``."""
    mesh = read_mesh(lexer)
    lexer.expect(",", "behind the mesh of a sharding")
    if lexer.text in _WORDS:
        whole = Sharding(_WORDS[lexer.advance()])
        _metadata(lexer)
        return _closed(lexer, whole)
    dimensions = _dimensions(lexer, mesh)
    named: dict[str, tuple[Axis, ...]] = {}
    while lexer.at(",") and not lexer.followed_by("metadata"):
        lexer.advance()
        use = lexer.word("a use of axes")
        if use not in _USES or use in named:
            raise lexer.damaged(f"{use[:60]!r} is no use of axes, or stands twice")
        lexer.expect("=", "behind a use of axes")
        named[use] = read_axes(lexer, mesh)
    _metadata(lexer)
    sharding = _along_axes(lexer, lists, mesh, dimensions, named)
    return _closed(lexer, sharding)


def _dimensions(lexer: Lexer, mesh: Mesh) -> list[tuple[Axis, ...]]:
    """Return the axes that cut each dimension of a tensor."""
    lexer.expect("[", "before the axes of dimensions")
    dimensions: list[tuple[Axis, ...]] = []
    while not lexer.take("]"):
        if dimensions:
            lexer.expect(",", "between the axes of dimensions")
        dimensions.append(read_axes(lexer, mesh))
        lexer.counted(len(dimensions), "a sharding")
    return dimensions


def _along_axes(
    lexer: Lexer,
    lists: DeviceLists,
    mesh: Mesh,
    dimensions: list[tuple[Axis, ...]],
    named: dict[str, tuple[Axis, ...]],
) -> Sharding:
    """Return the sharding along axes of a mesh. Axes that it does not name replicate."""
    if not mesh.names:
        return Sharding(Form.REPLICATED)
    cutting = [axis for axes in dimensions for axis in axes]
    using = [(axis, Use(use)) for use, axes in named.items() for axis in axes]
    axes = (*cutting, *(axis for axis, _ in using))
    sizes, numbers = split_axes(lexer, mesh, axes)
    rest = tuple(number for number in range(len(sizes)) if number not in numbers)
    cuts = tuple(device_count(lexer, [1, *(a.size for a in on)], "a mesh") for on in dimensions)
    groups = (
        *((axis.size, use) for axis, use in using),
        *((sizes[number], Use.REPLICATED) for number in rest if sizes[number] > 1),
    )
    order = (*numbers, *rest)

    def made() -> Sharding:
        return Sharding(Form.TILED, cuts or None, groups, arranged(mesh, sizes, order))

    return lists.once(lexer, (mesh, sizes, order, cuts, groups), mesh.size, made)
