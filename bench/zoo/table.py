"""The page of results."""

from __future__ import annotations

from collections.abc import Sequence

from zoo.results import Row


def page(found: Sequence[Row]) -> str:
    """Return the page as Markdown."""
    return "\n".join(row.line() for row in found)
