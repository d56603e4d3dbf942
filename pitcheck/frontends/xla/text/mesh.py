"""Lists of devices in short notations: a count reshaped and transposed, and a mesh with axes.

``[2,4]T(1,0)`` stands for the devices 0 to 7 as a 2 by 4 array, transposed, and read row by row:
0 4 1 5 2 6 3 7. A mesh ``mesh['a'=2,'b'=4]`` arranges the devices in a row-major array with named
axes; ``device_ids=`` behind it says that they stand in it in another order. ``'b':(2)2`` is a part
of an axis: with its four devices as a 2 by 2 array, (2) says how many blocks stand before it, and 2
is its size.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeVar, cast

from pitcheck.frontends.xla.text.lexer import Kind, Lexer
from pitcheck.frontends.xla.text.limits import MOST_DEVICES, MOST_LISTED

T = TypeVar("T")


@dataclass(frozen=True)
class Count:
    """The devices from 0 as an array of sizes ``reshape``, transposed, and read row by row."""

    reshape: tuple[int, ...]
    transpose: tuple[int, ...]

    @property
    def size(self) -> int:
        """Return the number of devices."""
        return prod(self.reshape)


@dataclass(frozen=True)
class Mesh:
    """A row-major array of devices with named axes. ``devices`` is their order in it."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    devices: Count | tuple[int, ...]

    @property
    def size(self) -> int:
        """Return the number of devices."""
        return prod(self.sizes)


@dataclass(frozen=True)
class Axis:
    """An axis of a mesh by its number, or a part of it.

    A part has ``size`` devices along the axis, and ``before`` blocks stand before it.
    """

    number: int
    before: int
    size: int


class DeviceLists:
    """The lists of devices of one text. A notation is worked out once, however often it stands."""

    def __init__(self) -> None:
        self._known: dict[Hashable, object] = {}
        self._listed = 0

    def once(self, lexer: Lexer, key: Hashable, size: int, make: Callable[[], T]) -> T:
        """Return what ``make`` gives for the first text with this ``key``.

        Raises BudgetError if all lists together name too many devices.
        """
        if key not in self._known:
            self._listed += size
            if self._listed > MOST_LISTED:
                raise lexer.too_large(
                    f"shardings and replica groups name {self._listed} devices in all; "
                    f"{MOST_LISTED} are read"
                )
            self._known[key] = make()
        return cast("T", self._known[key])


def transposed(
    devices: Sequence[int], sizes: tuple[int, ...], order: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the elements of a row-major array of ``sizes``, transposed by ``order``."""
    places = [0]
    for number in order:
        stride = prod(sizes[number + 1 :])
        steps = range(0, sizes[number] * stride, stride)
        places = [place + step for place in places for step in steps]
    return tuple(devices[place] for place in places)


def counted(count: Count) -> tuple[int, ...]:
    """Return the devices of a reshaped and transposed count."""
    return transposed(range(count.size), count.reshape, count.transpose)


def arranged(mesh: Mesh, sizes: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """Return the devices of a mesh whose axes are split into ``sizes`` and transposed."""
    devices = counted(mesh.devices) if isinstance(mesh.devices, Count) else mesh.devices
    return transposed(devices, sizes, order)


def split_axes(
    lexer: Lexer, mesh: Mesh, axes: Sequence[Axis]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split the axes of a mesh so that each of ``axes`` is one.

    Returns:
        the sizes of all axes after it, and for each of ``axes`` its number among them.

    Raises:
        PlanError: if two of them overlap, or one does not divide its axis.
    """
    if len(set(axes)) < len(axes):
        raise lexer.damaged("an axis of the mesh, or a part of one, is used twice")
    asked: dict[int, list[tuple[Axis, int]]] = {}
    for place, axis in enumerate(axes):
        asked.setdefault(axis.number, []).append((axis, place))
    sizes: list[int] = []
    numbers = [0] * len(axes)
    for number, full in enumerate(mesh.sizes):
        passed = 1
        for axis, place in sorted(asked.get(number, ()), key=lambda item: item[0].before):
            if axis.before % passed:
                raise lexer.damaged(f"parts of axis {mesh.names[number]!r} overlap")
            sizes.append(axis.before // passed)
            numbers[place] = len(sizes)
            sizes.append(axis.size)
            passed = axis.before * axis.size
        if full % passed:
            raise lexer.damaged(
                f"a part of axis {mesh.names[number]!r} does not divide its {full} devices"
            )
        sizes.append(full // passed)
    return tuple(sizes), tuple(numbers)


def device_count(lexer: Lexer, sizes: Sequence[int], meaning: str) -> int:
    """Return the product of sizes. Raises PlanError if there is none, BudgetError if too many."""
    lexer.counted(len(sizes), meaning)
    count = 1
    for size in sizes:
        count *= size
        if count > MOST_DEVICES:
            raise lexer.too_large(f"{meaning} has more than {MOST_DEVICES} devices")
    if not sizes or count < 1:
        raise lexer.damaged(f"{meaning} has no device")
    return count


def read_count(lexer: Lexer) -> Count:
    """Return the count that is next, such as ``[2,4]T(1,0)``."""
    reshape = lexer.integers("[", "]", "sizes of devices", 1)
    device_count(lexer, reshape, "a count")
    if not lexer.take("T"):
        if len(reshape) > 1:
            raise lexer.damaged(f"'T(' is expected behind several sizes, not {lexer.shown()}")
        return Count(reshape, (0,))
    transpose = lexer.integers("(", ")", "transposed dimensions")
    if sorted(transpose) != list(range(len(reshape))):
        raise lexer.damaged(
            f"T({','.join(map(str, transpose[:20]))}) does not name each of {len(reshape)} "
            "dimensions once"
        )
    return Count(reshape, transpose)


def permutation(lexer: Lexer, devices: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return a list of devices. Raises PlanError unless it has each from 0 below ``count`` once."""
    if len(devices) != count:
        raise lexer.damaged(f"{len(devices)} devices are listed where {count} have a place")
    if len(set(devices)) != count or max(devices) != count - 1:
        raise lexer.damaged(f"the list of devices does not have each from 0 to {count - 1} once")
    return devices


def read_mesh(lexer: Lexer) -> Mesh:
    """Return the mesh that is next, with the order of its devices."""
    lexer.expect("mesh", "before the axes of a mesh")
    lexer.expect("[", "before the axes of a mesh")
    sizes: dict[str, int] = {}
    while not lexer.take("]"):
        if sizes:
            lexer.expect(",", "between the axes of a mesh")
        name = _axis_name(lexer)
        if name in sizes:
            raise lexer.damaged(f"the mesh has two axes {name!r}")
        lexer.expect("=", "behind the name of an axis")
        sizes[name] = lexer.integer("the size of an axis", 1)
        lexer.counted(len(sizes), "a mesh")
    if not sizes:
        return Mesh((), (), ())
    extents = tuple(sizes.values())
    count = device_count(lexer, extents, "a mesh")
    return Mesh(tuple(sizes), extents, _device_order(lexer, count))


def _device_order(lexer: Lexer, count: int) -> Count | tuple[int, ...]:
    """Return the order of a mesh's devices, which is stated or that of their numbers."""
    if not (lexer.at(",") and lexer.followed_by("device_ids")):
        return Count((count,), (0,))
    for mark in (",", "device_ids", "="):
        lexer.expect(mark, "before the devices of a mesh")
    lexer.expect("(", "before the devices of a mesh")
    if not lexer.at("["):
        devices = [lexer.integer("a device")]
        while lexer.take(","):
            devices.append(lexer.integer("a device"))
        lexer.expect(")", "behind the devices of a mesh")
        return permutation(lexer, tuple(devices), count)
    order = read_count(lexer)
    lexer.expect(")", "behind the devices of a mesh")
    if order.size != count:
        raise lexer.damaged(f"device_ids has {order.size} devices; the mesh has {count}")
    return order


def _axis_name(lexer: Lexer) -> str:
    if lexer.kind is Kind.STRING:
        return lexer.string("the name of an axis")
    return lexer.word("the name of an axis")


def read_axis(lexer: Lexer, mesh: Mesh) -> Axis:
    """Return the axis, or part of one, that is next."""
    name = _axis_name(lexer)
    if name not in mesh.names:
        raise lexer.damaged(f"the mesh has no axis {name[:60]!r}; it has {', '.join(mesh.names)}")
    number = mesh.names.index(name)
    full = mesh.sizes[number]
    if not lexer.take(":"):
        return Axis(number, 1, full)
    lexer.expect("(", "before the blocks of a part of an axis")
    before = lexer.integer("the number of blocks before a part of an axis", 1, full)
    lexer.expect(")", "behind the blocks of a part of an axis")
    return Axis(number, before, lexer.integer("the size of a part of an axis", 2, full - 1))


def read_axes(lexer: Lexer, mesh: Mesh) -> tuple[Axis, ...]:
    """Return the axes between braces that are next."""
    lexer.expect("{", "before axes of a mesh")
    axes: list[Axis] = []
    while not lexer.take("}"):
        if axes:
            lexer.expect(",", "between axes of a mesh")
        if lexer.at("?"):
            raise lexer.unsupported(
                "a dimension is open to more axes ('?'), so its sharding is not final; dump the "
                "program that goes into the partitioner"
            )
        axes.append(read_axis(lexer, mesh))
        lexer.counted(len(axes), "a list of axes")
    return tuple(axes)
