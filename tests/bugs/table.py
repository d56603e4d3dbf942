"""All bugs that are recorded, and how what is found of one is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from bugs.record import Bug

from pitcheck.report.report import Finding, Report

BUGS: dict[str, Bug] = {
    path.stem: import_module(f"bugs.records.{path.stem}").BUG
    for path in sorted((Path(__file__).parent / "records").glob("*.py"))
}
"""Every module of the folder ``records`` by its name."""
PAGE = Path(__file__).parents[2] / "docs" / "bugs.md"
TODAY = Path(__file__).parent / "today.json"


def named_today() -> Mapping[str, Mapping[str, str]]:
    """bug -> configuration -> the code that is named first today, where it is not what the record
    wants. ``python -m bugs --write`` writes it anew.
    """
    found: Mapping[str, Mapping[str, str]] = json.loads(TODAY.read_text(encoding="utf-8"))
    return found


def first_of(report: Report) -> Finding | None:
    """Return the first finding, None if there is none."""
    return report.findings[0] if report.findings else None


def said(finding: Finding) -> str:
    """All that a finding tells."""
    return " | ".join(
        str(part)
        for part in (
            finding.code,
            finding.operator,
            finding.output,
            finding.cause,
            finding.repair,
            finding.title,
        )
        if part
    )


def is_named(bug: Bug, finding: Finding) -> bool:
    """Return True if a finding has a code of the record, and all the words that it must have."""
    return finding.code in bug.codes and all(word in said(finding) for word in bug.says)


def page() -> str:
    """The page of all bugs, as ``docs/bugs.md`` has it."""
    return (
        PAGE.read_text(encoding="utf-8").partition(HEADER)[0]
        + "\n".join([HEADER, "|---|---|---|---|---|", *_lines()])
        + "\n"
    )


HEADER = "| bug | should be → was | cause | shows on | right on |"


def _lines() -> list[str]:
    return [
        f"| {_linked(bug)} | {bug.should} → {bug.was} | {' or '.join(bug.codes)} | "
        f"{'; '.join(bug.shows)} | {'; '.join(bug.silent)} |"
        for bug in BUGS.values()
    ]


def _linked(bug: Bug) -> str:
    """The place where the bug was told, as a link if the address is known."""
    return f"[{bug.where}]({bug.thread})" if bug.thread else bug.where
