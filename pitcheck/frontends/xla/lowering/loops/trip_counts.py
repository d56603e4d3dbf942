"""The number of iterations that a loop states.

XLA goes by it in place of the condition where it makes code of a loop, so both must agree.
"""

from __future__ import annotations

import json

from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.building import Building, unsupported
from pitcheck.frontends.xla.text.module import Instruction

_LARGEST = 1 << 16
"""The characters of a configuration that is read."""


def check_trip_count(b: Building, instruction: Instruction, iterations: int) -> None:
    """Check that a loop states no other number of iterations than it has.

    Raises:
        PlanError: it states another.
        UnsupportedError: it states one in a way that is not read.
    """
    stated = instruction.get("backend_config", "")
    if "known_trip_count" not in stated:
        return
    count = _count(stated)
    if count is None:
        raise unsupported(b, "a loop with a known_trip_count that is no number")
    if count != iterations:
        raise PlanError(
            f"the loop states known_trip_count={count}; by its condition it has {iterations} "
            f"iterations",
            b.place,
        )


def _count(stated: str) -> int | None:
    """Return the number that a configuration states; None if there is none."""
    if len(stated) > _LARGEST:
        return None
    try:
        found = json.loads(stated)
        return int(found["known_trip_count"]["n"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
