"""``pitcheck explain``: the page of a code."""

from __future__ import annotations

from pitcheck.report.codes import find, listing
from pitcheck.report.destinations import print_bytes


def run(code: str | None) -> int:
    """Print the page of ``code``, or the list of codes.

    Raises UsageError for an unknown code.
    """
    text = listing() + "\n" if code is None else find(code).page()
    print_bytes(text.encode("utf-8"))
    return 0
