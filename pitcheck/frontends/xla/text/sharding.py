"""The shardings of HLO: which tile of a tensor each device holds.

A tensor is cut into equal tiles along each dimension; the last tile is padded if the size is no
multiple. Devices that hold one tile differ in how they hold it: as copies of it (replicated), as
addends of it (unreduced), or each as it likes (manual).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import TypeAlias

from pitcheck.errors import PlanError, UnsupportedError


class Use(Enum):
    """The relation between devices that hold one tile."""

    REPLICATED = "replicated"
    UNREDUCED = "unreduced"
    MANUAL = "manual"


class Form(Enum):
    """The form of a sharding."""

    TILED = "tiled"
    REPLICATED = "replicated"
    UNREDUCED = "unreduced"
    MANUAL = "manual"
    MAXIMAL = "maximal"
    UNKNOWN = "unknown"


_WHOLE = {
    Form.REPLICATED: Use.REPLICATED,
    Form.UNREDUCED: Use.UNREDUCED,
    Form.MANUAL: Use.MANUAL,
}


@dataclass(frozen=True, slots=True)
class Placement:
    """The part of a tensor that a device holds.

    Attributes:
        tile: the number of its tile along each dimension.
        numbers: its number among the devices of each use. Two devices that differ in the number
            of REPLICATED alone hold the same.
    """

    tile: tuple[int, ...]
    numbers: Mapping[Use, int]


@dataclass(frozen=True)
class Sharding:
    """The sharding of one array.

    Attributes:
        form: TILED, or a form without tiles, which fits a tensor of any rank.
        cuts: the number of tiles along each dimension of the tensor, for TILED. None if the
            tensor is not cut and its rank is not stated.
        groups: the sizes of further dimensions of the array of devices, with their uses.
        devices: the devices in the row-major array of sizes ``cuts`` and ``groups``, for TILED.
        device: the one device that holds the tensor, for MAXIMAL.
    """

    form: Form
    cuts: tuple[int, ...] | None = None
    groups: tuple[tuple[int, Use], ...] = ()
    devices: tuple[int, ...] = field(default=(), repr=False)
    device: int | None = None

    def tiles(self, rank: int) -> tuple[int, ...]:
        """Return the number of tiles along each dimension of a tensor of ``rank`` dimensions.

        Raises PlanError if the sharding is of another rank, UnsupportedError if it is unknown.
        """
        if self.form is Form.UNKNOWN:
            raise UnsupportedError("a tensor with the sharding {unknown} may lie anywhere")
        if self.cuts is None:
            return (1,) * rank
        if len(self.cuts) != rank:
            raise PlanError(
                f"a sharding cuts {len(self.cuts)} dimensions of a tensor that has {rank}"
            )
        return self.cuts

    def placement(self, device: int, rank: int) -> Placement | None:
        """Return the part of a tensor that ``device`` holds; None if it holds nothing.

        Raises PlanError and UnsupportedError as :meth:`tiles` does, and PlanError for a device
        that the sharding does not name.
        """
        cuts = self.tiles(rank)
        if self.form is Form.MAXIMAL:
            return Placement((0,) * rank, _NO_NUMBERS) if device == self.device else None
        if self.form is not Form.TILED:
            return Placement((0,) * rank, MappingProxyType({_WHOLE[self.form]: device}))
        if device not in self._places:
            raise PlanError(f"a sharding of {len(self.devices)} devices has no device {device}")
        place = self._places[device]
        numbers: dict[Use, int] = {}
        strides: dict[Use, int] = {}
        for size, use in reversed(self.groups):
            place, number = divmod(place, size)
            numbers[use] = numbers.get(use, 0) + number * strides.get(use, 1)
            strides[use] = strides.get(use, 1) * size
        tile: list[int] = []
        for size in reversed(cuts):
            place, number = divmod(place, size)
            tile.append(number)
        return Placement(tuple(reversed(tile)), MappingProxyType(numbers))

    def count(self, use: Use) -> int | None:
        """Return the number of devices of one tile that differ in this use.

        None stands for all devices of the program.
        """
        if self.form is not Form.TILED:
            return None if _WHOLE.get(self.form) is use else 1
        return prod(size for size, kind in self.groups if kind is use)

    @cached_property
    def _places(self) -> dict[int, int]:
        return {device: place for place, device in enumerate(self.devices)}


_NO_NUMBERS: Mapping[Use, int] = MappingProxyType({})

AnySharding: TypeAlias = Sharding | tuple[Sharding, ...]
"""The sharding of an array, or those of the arrays of a tuple from left to right."""
