"""The stores that ranks share, in the process that records them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from pitcheck.frontends.torch.together.messages import Operation, StoreCall

Store = dict[str, bytes]
Keys = tuple[str, ...]
Values = tuple[bytes, ...]
READING = frozenset({"get", "wait", "check", "count"})
"""The operations that change nothing."""


class SharedStores:
    """The contents of stores, by the name of the store and the key."""

    def __init__(self) -> None:
        self._stores: defaultdict[str, Store] = defaultdict(dict)

    def served(self, call: StoreCall) -> list[bytes] | None:
        """Return the answer to an operation; None if it waits for keys that nobody has set."""
        if self.absent(call):
            return None
        return _OPERATIONS[call.operation](self._stores[call.store], call.keys, call.values)

    def absent(self, call: StoreCall) -> list[str]:
        """Return the keys for which an operation waits."""
        if call.operation not in ("get", "wait"):
            return []
        return [key for key in call.keys if key not in self._stores[call.store]]


def _set(store: Store, keys: Keys, values: Values) -> list[bytes]:
    """Set keys; return if one of them had another value."""
    new = dict(zip(keys, values, strict=True))
    replaced = any(store.get(key, value) != value for key, value in new.items())
    store.update(new)
    return [b"%d" % replaced]


def _get(store: Store, keys: Keys, _: Values) -> list[bytes]:
    return [store[key] for key in keys]


def _wait(_: Store, __: Keys, ___: Values) -> list[bytes]:
    return []


def _add(store: Store, keys: Keys, values: Values) -> list[bytes]:
    store[keys[0]] = b"%d" % (int(store.get(keys[0], b"0")) + int(values[0]))
    return _get(store, keys, values)


def _append(store: Store, keys: Keys, values: Values) -> list[bytes]:
    store[keys[0]] = store.get(keys[0], b"") + values[0]
    return []


def _compare_set(store: Store, keys: Keys, values: Values) -> list[bytes]:
    """Set a key that has the expected value, or is absent if none is expected."""
    expected, wanted = values
    if store.get(keys[0], b"") == expected:
        store[keys[0]] = wanted
    return [store.get(keys[0], expected)]


def _check(store: Store, keys: Keys, _: Values) -> list[bytes]:
    return [b"%d" % all(key in store for key in keys)]


def _delete(store: Store, keys: Keys, _: Values) -> list[bytes]:
    return [b"%d" % (store.pop(keys[0], None) is not None)]


def _count(store: Store, _: Keys, __: Values) -> list[bytes]:
    return [b"%d" % len(store)]


_OPERATIONS: dict[Operation, Callable[[Store, Keys, Values], list[bytes]]] = {
    "set": _set,
    "get": _get,
    "wait": _wait,
    "add": _add,
    "append": _append,
    "compare_set": _compare_set,
    "check": _check,
    "delete": _delete,
    "count": _count,
}
