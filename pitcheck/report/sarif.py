"""The report as SARIF 2.1.0, the OASIS format of code scanners and editors (``docs/ci.md``).

It is one run with one result per finding.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from pitcheck import __version__
from pitcheck.report import fingerprint
from pitcheck.report.codes import CODES, SEVERITIES, Code
from pitcheck.report.findings.text import coordinates, details
from pitcheck.report.json import indented
from pitcheck.report.report import Finding, Report
from pitcheck.report.sources import Source, place_of, side_of

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
PAGE = "https://pypi.org/project/pitcheck/"
"""The page of the package that users install. The pages of the codes are part of the log."""

_MEANING = re.compile(r"^## What it means\n(.*?)^## ", re.MULTILINE | re.DOTALL)


def encode(report: Report, plans: Sequence[str] = ()) -> bytes:
    """Return the report's SARIF log: equal reports give equal bytes.

    ``plans``: the checked files, for findings without a source line. Raises UsageError if the
    installation lacks the pages of the codes.
    """
    return indented({"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(report, plans)]})


def _run(report: Report, plans: Sequence[str]) -> dict[str, Any]:
    driver = {
        "name": "pitcheck",
        "version": __version__,
        "semanticVersion": __version__,
        "informationUri": PAGE,
        "rules": [_rule(code) for code in CODES],
    }
    successful = all(finding.code != "PIT900" for finding in report.findings)
    return {
        "tool": {"driver": driver},
        "invocations": [
            {
                "executionSuccessful": successful,
                "exitCode": report.exit_code,
                "exitCodeDescription": report.verdict,
            }
        ],
        "columnKind": "unicodeCodePoints",
        "results": _results(report, plans),
        "properties": _properties(report),
    }


def _properties(report: Report) -> dict[str, Any]:
    """Return what a reader of the results must know, the same for all runs of one seed."""
    return {
        "verdict": report.verdict,
        "seed": report.seed,
        "errorBoundLog2": report.error_bound_log2,
        "trials": report.trials,
        "mesh": report.mesh,
        "outputs": {"total": report.outputs.total, "proven": report.outputs.proven},
        "exceptions": report.exceptions,
        "assumptions": report.assumptions,
        "heuristic": report.heuristic,
        "notCovered": report.not_covered,
        "ignored": report.ignored,
        "allKnown": report.all_known,
    }


def _rule(code: Code) -> dict[str, Any]:
    page = code.page()
    meaning = _MEANING.search(page)
    return {
        "id": code.code,
        "shortDescription": {"text": code.title},
        "fullDescription": {"text": " ".join(meaning.group(1).split()) if meaning else code.title},
        "help": {"text": page, "markdown": page},
        "defaultConfiguration": {"level": SEVERITIES[code.verdict]},
    }


def _results(report: Report, plans: Sequence[str]) -> list[dict[str, Any]]:
    numbers = {code.code: number for number, code in enumerate(CODES)}
    results = []
    for finding, fault in zip(report.findings, fingerprint.fingerprints(report), strict=True):
        related = _related(finding)
        results.append(
            {
                "ruleId": finding.code,
                "ruleIndex": numbers[finding.code],
                "level": SEVERITIES[finding.verdict],
                "message": {"text": "\n".join(_message(finding, report))},
                "locations": [_location(finding, place_of(finding, plans))],
                **({"relatedLocations": related} if related else {}),
                **_suppressed(finding, report),
                "partialFingerprints": {fingerprint.NAME: fault},
                "properties": {
                    "verdict": finding.verdict,
                    "ranks": finding.ranks,
                    "microbatches": finding.microbatches,
                },
            }
        )
    return results


def _suppressed(finding: Finding, report: Report) -> dict[str, Any]:
    """Return that a finding is accepted by the baseline, or nothing."""
    if report.baseline is None or not finding.known:
        return {}
    why = f"known: baseline {report.baseline.file}"
    return {"suppressions": [{"kind": "external", "status": "accepted", "justification": why}]}


def _message(finding: Finding, report: Report) -> Iterable[str]:
    # Viewers that are short of room show only the first sentence.
    yield finding.title if finding.title.endswith((".", "!", "?")) else f"{finding.title}."
    at = ", ".join(part for part in coordinates(finding, report) if part)
    if at:
        yield f"at: {at}"
    for label, text in details(finding):
        yield f"{label}: {text}"
    if finding.repair:
        yield f"help: {finding.repair}"


def _location(finding: Finding, place: Source | None) -> dict[str, Any]:
    """Return the source line, or the plan's file, and beside it the operator and its plan."""
    plan = f"{side_of(finding)} plan"
    logical = [{"name": plan, "kind": "plan"}]
    if finding.operator:
        logical.insert(
            0,
            {
                "name": finding.operator,
                "fullyQualifiedName": f"{plan}/{finding.operator}",
                "kind": "operator",
            },
        )
    return {
        **({"physicalLocation": _physical(place)} if place is not None else {}),
        "logicalLocations": logical,
    }


def _physical(place: Source) -> dict[str, Any]:
    artifact = {"artifactLocation": {"uri": place.uri}}
    return artifact if place.line is None else {**artifact, "region": {"startLine": place.line}}


def _related(finding: Finding) -> list[dict[str, Any]]:
    """Return the output that differs, and the witness that shows it."""
    related: list[dict[str, Any]] = []
    if finding.output:
        related.append(
            {
                "logicalLocations": [{"name": finding.output, "kind": "tensor"}],
                "message": {"text": f"the tensor that is wrong: {finding.output}"},
            }
        )
    if finding.witness:
        physical = _physical(Source(finding.witness))
        related.append(
            {
                "physicalLocation": physical,
                "message": {"text": f"the input that shows it: pitcheck replay {finding.witness}"},
            }
        )
    return [{"id": number, **each} for number, each in enumerate(related)]
