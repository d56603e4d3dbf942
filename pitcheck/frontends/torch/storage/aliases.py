"""Several names of one piece of memory.

A recording cannot tell by which of its names memory was read. So names of one piece must still name
one piece after the step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import torch

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.storage.geometry import Geometry
from pitcheck.frontends.torch.storage.storages import Storages, view_of

Where = tuple[int, Geometry, torch.dtype]
"""The storage of a tensor, its view of the storage, and its dtype."""


def where_of(tensor: torch.Tensor) -> Where:
    """Return the place of a tensor."""
    return tensor.untyped_storage()._cdata, view_of(tensor), tensor.dtype


class Places:
    """The places of tensors, for asking if others share memory with them."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._by_storage: dict[int, list[Where]] = defaultdict(list)
        for tensor in tensors:
            where = where_of(tensor)
            self._by_storage[where[0]].append(where)

    def share(self, where: Where) -> bool:
        """Return True if one of the tensors overlaps a place."""
        first, last = where[1].extent
        return any(
            first < other[1].extent[1] and other[1].extent[0] < last
            for other in self._by_storage.get(where[0], ())
        )


class Aliases:
    """The names that share memory when the step begins.

    ``tensors`` are by role and name, as "kept:step.last". ``given`` are the places of tensors that
    are given values of their own.
    """

    def __init__(
        self, tensors: Mapping[str, torch.Tensor], given: Places, storages: Storages
    ) -> None:
        self._where = {name: where_of(tensor) for name, tensor in tensors.items()}
        self._of_given = {name for name, where in self._where.items() if given.share(where)}
        self._names: dict[int, list[str]] = defaultdict(list)
        for name, tensor in tensors.items():
            for root, *_ in storages.mark(tensor)[1]:
                if name not in self._names[root]:
                    self._names[root].append(name)

    def check(
        self, tensors: Mapping[str, torch.Tensor], given: Places, used: Collection[int]
    ) -> None:
        """Raise UnsupportedError if names of one piece of memory name different ones in the end.

        Only memory whose value at the beginning is among ``used`` matters.
        """
        after = {name: where_of(tensor) for name, tensor in tensors.items() if name in self._where}
        for root in sorted(used):
            names = [name for name in self._names.get(root, ()) if name in after]
            moved = [name for name in names if after[name] != self._where[name]]
            stayed = [name for name in names if after[name] == self._where[name]]
            others = stayed or [name for name in moved[1:] if after[name] != after[moved[0]]]
            if moved and others:
                raise UnsupportedError(
                    f"{_plain(moved[0])!r} and {_plain(others[0])!r} are the same memory before "
                    f"the step and not after it; keep a copy, not an alias"
                )
        for name in sorted(self._of_given & after.keys()):
            if not given.share(after[name]):
                raise UnsupportedError(
                    f"{_plain(name)!r} shares memory with a parameter, buffer or optimizer's "
                    f"state before the step and not after it; keep a copy"
                )


def _plain(name: str) -> str:
    """Return a name without the role in front of it."""
    return name.partition(":")[2]
