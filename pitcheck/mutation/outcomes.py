"""The outcome of a mutant: whether it changes an output, and what the check says of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal as OneOf

import msgspec

from pitcheck.report.report import Report

Effect = OneOf["changes", "same", "does not run"]
Status = OneOf[
    "caught", "invalid", "survivor", "open", "proven", "unproven", "refused", "alarm", "failed"
]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A mutant and what was found.

    ``codes`` name its mistake rightly; ``code``, ``at`` and ``cause`` are those of the first
    finding, and ``reason`` is its title. ``outputs`` are those that differ or are missing;
    ``error`` says why the mutant does not run.
    """

    kind: str
    operator: str
    label: str
    place: dict[str, int]
    codes: tuple[str, ...]
    effect: Effect
    outputs: tuple[str, ...] = ()
    error: str = ""
    verdict: str
    code: str = ""
    at: str = ""
    cause: str = ""
    reason: str = ""
    status: Status

    @property
    def cause_right(self) -> bool:
        """True if the first finding names the mistake rightly."""
        return self.status == "caught" and self.code in self.codes

    @property
    def place_right(self) -> bool:
        """True if the first finding names the changed record."""
        return self.status == "caught" and self.operator in f"{self.at} {self.cause}"

    @property
    def name(self) -> str:
        """One line that says which mutant it is."""
        return one_line(self.kind, self.operator, self.label, self.place)


def one_line(kind: str, operator: str, label: str, place: Mapping[str, int]) -> str:
    """Return one line that says which mutant of a plan it is."""
    where = ", ".join(f"{axis}={at}" for axis, at in place.items())
    return f"{kind}: {operator}: {label}" + (f" ({where})" if where else "")


def status_of(effect: Effect, report: Report) -> Status:
    """Return what a report says of a plan that has an effect."""
    if any(finding.code == "PIT900" for finding in report.findings):
        return "failed"
    same = effect == "same"
    if report.verdict == "equivalent":
        return "proven" if same else "survivor"
    if report.verdict == "mismatch":
        return "alarm" if same else "caught"
    if report.verdict == "invalid":
        return "refused" if same else "invalid"
    return "unproven" if same else "open"
