"""Tests marked ``gpu``: they are skipped without a GPU, and how many were is said at the end."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pitcheck.algebra.backend import array_module
from pitcheck.errors import UsageError

MARK = "gpu"
NEEDED = "needs a GPU"


def leave(items: Iterable[pytest.Item]) -> None:
    """Skip the tests that need a GPU if there is none. CuPy is imported only if there are such."""
    marked = [item for item in items if item.get_closest_marker(MARK) is not None]
    reason = missing() if marked else None
    for item in marked if reason else ():
        item.add_marker(pytest.mark.skip(reason=f"{NEEDED}: {reason}"))


def missing() -> str | None:
    """Return why no GPU can be used, or None."""
    try:
        array_module("cupy")
    except UsageError as error:
        return str(error)
    return None


def told(skipped: Iterable[pytest.TestReport | pytest.CollectReport]) -> str | None:
    """Return how many tests were skipped for want of a GPU, in words; None if there are none.

    A module that was skipped whole has a report without keywords, and is no test.
    """
    count = sum(
        MARK in getattr(each, "keywords", ()) and NEEDED in str(each.longrepr) for each in skipped
    )
    if not count:
        return None
    need, were = ("test needs", "was") if count == 1 else ("tests need", "were")
    return f"{count} {need} a GPU and {were} skipped"
