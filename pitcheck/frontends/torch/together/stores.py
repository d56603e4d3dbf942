"""The stores of torch.distributed, as the recording process keeps them for all ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import count
from typing import Any

import torch.distributed as dist

from pitcheck.frontends.torch.patches.patching import Patch
from pitcheck.frontends.torch.recording.tape import Tape
from pitcheck.frontends.torch.together.meetings import Meetings
from pitcheck.frontends.torch.together.messages import Operation, StoreCall

TIMED = frozenset({"add", "append", "compare_set", "check", "delete", "count"})
"""The operations whose result, or that of later ones, depends on who comes first."""


class SharedStore(dist.Store):
    """A store that ranks share if theirs has the same name.

    Every operation waits until all ranks that go on wait, and they are served in the order of their
    numbers. So what a rank finds does not depend on how fast others are recorded.
    """

    def __init__(self, name: str, tape: Tape, meetings: Meetings) -> None:
        super().__init__()
        self.name = name
        self._tape = tape
        self._meetings = meetings
        # A C++ object that wraps a store does not hold the Python part of it.
        meetings.stores.append(self)

    def set(self, key: str, value: str | bytes) -> None:
        """Give a key a value."""
        self._call("set", [key], [value])

    def get(self, key: str) -> bytes:
        """Return the value of a key, once it has one."""
        return self._call("get", [key])[0]

    def add(self, key: str, amount: int) -> int:
        """Add to the number of a key, and return it."""
        return int(self._call("add", [key], [str(amount)])[0])

    def append(self, key: str, value: str | bytes) -> None:
        """Add bytes to the value of a key."""
        self._call("append", [key], [value])

    def compare_set(
        self, key: str, expected_value: str | bytes, desired_value: str | bytes
    ) -> bytes:
        """Give a key a value if it has the expected one, and return its value."""
        return self._call("compare_set", [key], [expected_value, desired_value])[0]

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:  # noqa: ARG002  nobody waits longer than others go on
        """Wait until all keys have values."""
        self._call("wait", keys)

    def check(self, keys: Sequence[str]) -> bool:
        """Return True if all keys have values now."""
        return self._call("check", keys)[0] == b"1"

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Return the values of keys, once all have one."""
        return self._call("get", keys)

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Give keys values."""
        self._call("set", keys, values)

    def delete_key(self, key: str) -> bool:
        """Take a key away; return True if it was there."""
        return self._call("delete", [key])[0] == b"1"

    def num_keys(self) -> int:
        """Return the number of keys."""
        return int(self._call("count", [])[0])

    def clone(self) -> SharedStore:
        """Return a store of the same contents."""
        return SharedStore(self.name, self._tape, self._meetings)

    def has_extended_api(self) -> bool:
        """Return True: there are append, multi_get and multi_set."""
        return True

    # Stores with a prefix are C++, and call these by other names.
    deleteKey = delete_key  # noqa: N815
    getNumKeys = num_keys  # noqa: N815

    def _call(
        self, operation: Operation, keys: Sequence[str], values: Sequence[str | bytes] = ()
    ) -> list[bytes]:
        where = self._tape.where()
        named = ", ".join(map(repr, keys))
        packed = tuple(value.encode() if isinstance(value, str) else value for value in values)
        what = f"{operation} of {named} in a store at {where}"
        after = self._meetings.completed()
        answer = self._meetings.line.store(
            StoreCall(self.name, operation, tuple(keys), packed, after, what)
        )
        if operation in TIMED or (operation == "set" and answer == [b"1"]):
            self._meetings.timed.setdefault(f"{operation} of a store at {where}")
        return answer


class _TCPStore(SharedStore):
    """A TCPStore, with the attributes that say where it is."""

    host: str
    port: int


def store_patches(tape: Tape, meetings: Meetings) -> Iterator[Patch]:
    """Yield the patches by which the stores that a program makes are shared through the recording.

    A HashStore is that of its rank alone. It is served in the same way, so that a wait for a key
    that nobody can set is found.
    """
    serial = count()

    def tcp(
        _: type,
        host_name: str,
        port: int,
        world_size: int | None = None,  # noqa: ARG001
        is_master: bool = False,
        *args: Any,  # noqa: ARG001
        **kwargs: Any,  # noqa: ARG001
    ) -> SharedStore:
        store = _TCPStore(f"tcp {host_name}:{port}", tape, meetings)
        store.host, store.port = host_name, port
        if is_master:
            store.set(SERVING, b"1")
        else:
            store.wait([SERVING])
        return store

    def file(_: type, file_name: str, *args: Any, **kwargs: Any) -> SharedStore:  # noqa: ARG001
        return SharedStore(f"file {file_name}", tape, meetings)

    def hashed(_: type) -> SharedStore:
        return SharedStore(f"rank {meetings.rank}'s store {next(serial)}", tape, meetings)

    for kind, made in ((dist.TCPStore, tcp), (dist.FileStore, file), (dist.HashStore, hashed)):
        yield kind, "__new__", made


SERVING = "the process that serves the store"
"""The key that the master of a TCPStore sets; others wait for it."""
