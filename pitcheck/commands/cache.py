"""``pitcheck cache``: show, check and clear what is remembered between runs."""

from __future__ import annotations

from pathlib import Path

from pitcheck.cache.store import FILE, MOST_BYTES, Contents, Store
from pitcheck.errors import UsageError


def info(directory: str) -> int:
    """Print what is remembered, and return 0."""
    store = Store(Path(directory) / FILE)
    contents = store.contents()
    print(f"{store.path}: {_described(contents)}; at most {MOST_BYTES >> 20} MiB are kept")
    return 0


def verify(directory: str) -> int:
    """Remove damaged entries. Return 1 if there were some, else 0."""
    store = Store(Path(directory) / FILE)
    contents = store.verified()
    print(f"{store.path}: {_described(contents)}; {contents.damaged} damaged ones were removed")
    return 1 if contents.damaged or store.trouble else 0


def clear(directory: str) -> int:
    """Remove all that is remembered, and return 0.

    Raises UsageError if the file cannot be removed.
    """
    store = Store(Path(directory) / FILE)
    try:
        store.clear()
    except OSError as error:
        raise UsageError(f"cannot remove {store.path}: {error.strerror or error}") from None
    print(f"{store.path}: nothing is remembered any more")
    return 0


def _described(contents: Contents) -> str:
    counts = ", ".join(f"{count} {kind}s" for kind, count in contents.entries.items())
    return f"{counts or 'nothing'} remembered, {contents.size / 1024:.0f} KiB"
