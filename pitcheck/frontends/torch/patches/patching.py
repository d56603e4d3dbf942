"""Attributes of modules and classes that have another value for a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

Patch = tuple[Any, str, Any]
"""An owner, the name of its attribute, and the value that the attribute is to have."""


@contextmanager
def patched(patches: Iterable[Patch]) -> Iterator[None]:
    """Apply patches in their order, and undo them in the opposite order.

    The patches are taken one by one, so that a generator sees the effect of those before.
    """
    with ExitStack() as stack:
        for owner, name, value in patches:
            stack.enter_context(replaced(owner, name, value))
        yield


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Give an attribute another value; the owner may have inherited the attribute."""
    missing = object()
    own = vars(owner).get(name, missing)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own is missing:
            delattr(owner, name)
        else:
            setattr(owner, name, own)
