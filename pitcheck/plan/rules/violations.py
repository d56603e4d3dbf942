"""Faults of a plan: one :class:`Violation` a finding, each with a code and a place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal as OneOf

Severity = OneOf["error", "warning"]

TITLES: dict[str, str] = {
    "PIT001": "the plan cannot be read or is malformed",
    "PIT002": "a tensor is written twice, or read where nothing writes it",
    "PIT003": "shapes, dtypes or kinds do not fit the operator",
    "PIT004": "a group is wrong",
    "PIT005": "a send and a receive do not meet",
    "PIT006": "the members of a group meet in different collectives",
    "PIT007": "ranks wait for each other for ever",
    "PIT008": "a lineage contradicts the shapes",
    "PIT009": "blocks, programs or steps are wrong",
    "PIT010": "a buffer is overwritten or read too early",
    "PIT011": "an output is wrong",
    "PIT012": "ranks wait for each other because sends are not buffered",
}
"""Every code with its meaning in a line. PIT008 of a hint that does not fit the reference is a
warning; all others make a plan invalid.
"""


@dataclass(frozen=True)
class Violation:
    """One finding.

    ``place`` is the path in the plan, e.g. ``operators[3].inputs[0]``. ``ranks`` and
    ``microbatches`` name a few coordinates at most.
    """

    code: str
    place: str
    message: str
    operator: str = ""
    tensor: str = ""
    ranks: tuple[int, ...] = ()
    microbatches: tuple[int, ...] = ()
    severity: Severity = "error"

    def __str__(self) -> str:
        return f"{self.severity}[{self.code}]: {self.place}: {self.message}"


def capped(violations: Iterable[Violation], limit: int = 50) -> list[Violation]:
    """Return at most ``limit`` findings per code, in the order they were found.

    The last one kept says how many were left out.
    """
    kept: list[Violation] = []
    counts: Counter[str] = Counter()
    last: dict[str, int] = {}
    for violation in violations:
        counts[violation.code] += 1
        if counts[violation.code] <= limit:
            last[violation.code] = len(kept)
            kept.append(violation)
    for code, count in counts.items():
        if count > limit:
            old = kept[last[code]]
            kept[last[code]] = Violation(
                code,
                old.place,
                f"{old.message} (and {count - limit} more of {code})",
                old.operator,
                old.tensor,
                old.ranks,
                old.microbatches,
                old.severity,
            )
    return kept
