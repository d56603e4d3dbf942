"""The report as workflow commands of GitHub Actions (``docs/ci.md``).

A step prints them, and they become annotations at the source lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal as OneOf

from pitcheck.report.codes import SEVERITIES
from pitcheck.report.findings.text import coordinates, details, endings
from pitcheck.report.lines import printable
from pitcheck.report.report import Finding, Report
from pitcheck.report.sources import place_of
from pitcheck.report.text import against, bound, sentence

Command = OneOf["error", "warning", "notice"]


def encode(report: Report, plans: Sequence[str] = ()) -> bytes:
    """Return a command per finding, and one for the verdict if no finding says it.

    ``plans``: the checked files, for findings without a source line.
    """
    lines = [_finding(finding, report, plans) for finding in report.findings]
    if report.verdict == "equivalent":
        lines.append(
            command(
                "notice",
                {"title": "pitcheck"},
                [sentence(report), bound(report), *report.exceptions],
            )
        )
    elif all(finding.known or finding.verdict != report.verdict for finding in report.findings):
        name: Command = "notice" if report.all_known else SEVERITIES[report.verdict]
        held = [] if report.baseline is None else against(report.baseline)
        lines.append(command(name, {"title": "pitcheck"}, [sentence(report), *held]))
    return "".join(f"{line}\n" for line in lines).encode("utf-8")


def _finding(finding: Finding, report: Report, plans: Sequence[str]) -> str:
    place = place_of(finding, plans)
    properties = {"file": place.file} if place is not None else {}
    if place is not None and place.line is not None:
        properties["line"] = str(place.line)
    properties["title"] = f"{'known ' if finding.known else ''}{finding.code}: {finding.title}"
    name: Command = "notice" if finding.known else SEVERITIES[finding.verdict]
    return command(name, properties, _message(finding, report))


def _message(finding: Finding, report: Report) -> Iterable[str]:
    yield (
        ", ".join(part for part in (finding.operator, *coordinates(finding, report)) if part)
        or finding.title
    )
    for label, text in (*details(finding), *endings(finding)):
        yield f"{label}: {text}"


def command(name: Command, properties: Mapping[str, str], message: Iterable[str]) -> str:
    """Return one workflow command: a single line, whatever the texts hold.

    Control characters and lone surrogates are shown escaped, as in the text report.
    """
    said = ",".join(f"{key}={_property(printable(value))}" for key, value in properties.items())
    text = _data("\n".join(printable(line) for line in message))
    return f"::{name}{' ' if said else ''}{said}::{text}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
