"""The order in which a sweep checks: what failed last first, then what takes long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pitcheck.sweep.planned import Planned
from pitcheck.sweep.result import GOOD

LONG = float("inf")
"""The seconds of a configuration that was never run: it may be the longest one."""


def ordered(planned: Sequence[Planned], before: Mapping[str, tuple[str, float]]) -> list[Planned]:
    """Return configurations in the order in which they are checked.

    ``before`` has status and seconds of an earlier sweep by name. Equal ones keep their order.
    """

    def key(each: Planned) -> tuple[bool, float]:
        status, seconds = before.get(each.name, ("as expected", LONG))
        return status in GOOD, -seconds

    return sorted(planned, key=key)
