"""A check of the names that a user gives: a name of nothing would be ignored."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches

from pitcheck.errors import PlanError

MOST = 12
"""The greatest number of known names that a message lists."""


def check_known(given: Iterable[str], known: Collection[str], place: str) -> None:
    """Raise PlanError for a name in ``place`` that is none of the known ones.

    The message lists the known names, or the nearest ones if there are many.
    """
    for name in given:
        if name not in known:
            listed = (
                sorted(known)
                if len(known) <= MOST
                else get_close_matches(name, sorted(known), MOST, 0)
            )
            more = f" and {len(known) - len(listed)} more" if len(listed) < len(known) else ""
            raise PlanError(
                f"{place} names {name!r}, which is not there; the known names are "
                f"{', '.join(listed) or 'none'}{more}"
            )
