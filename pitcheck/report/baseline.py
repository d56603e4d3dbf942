"""Baselines: files of findings that are known and accepted (``docs/ci.md``).

A baseline changes the exit code and never the verdict. What it does not list fails as before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from pitcheck.errors import UsageError
from pitcheck.report.codes import CODES
from pitcheck.report.fingerprint import fingerprints
from pitcheck.report.json import indented
from pitcheck.report.report import Baseline, Finding, FindingVerdict, Report

SCHEMA = "pitcheck.baseline/1"
MOST_BYTES = 1 << 24
"""The size of a file up to which it is read."""

NEVER: Mapping[str, str] = {
    "PIT100": "without a cause one mistake cannot be told from another",
    "PIT118": "the check stops there, so other outputs are not looked at",
    "PIT200": "what an operator without a meaning computes is not known",
    "PIT203": "what lies beyond a budget is not known",
    "PIT207": "the check stops there, so other outputs are not looked at",
    "PIT208": "give --estimates accept in its place",
    "PIT900": "an internal error says nothing about the plans",
}
"""Codes that no baseline may list, and why."""
NEVER_OF_VERDICT: Mapping[FindingVerdict, str] = {
    "invalid": "nothing is computed if a plan is invalid",
    "nothing-checked": "nothing was compared",
    "warning": "a warning fails no check; leave it out with --ignore",
}
"""Verdicts of findings that no baseline may list, and why."""

_FINGERPRINT = re.compile("[0-9a-f]{32}:[1-9][0-9]{0,8}")


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One known finding; all but ``fingerprint`` and ``code`` is for people."""

    fingerprint: str
    code: str
    title: str
    operator: str | None = None
    output: str | None = None
    source: str | None = None

    def __str__(self) -> str:
        return " ".join(part for part in (self.code, self.operator, self.output) if part)


class Accepted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a baseline.

    ``outputs`` are those that differed when it was written: one finding may explain many of them,
    and it names one. ``unrepaired`` are those that stayed wrong when the repairs were tried.
    """

    schema: str = SCHEMA
    outputs: tuple[str, ...] = ()
    unrepaired: tuple[str, ...] = ()
    findings: tuple[Entry, ...] = ()


class _Tagged(msgspec.Struct):
    """Any object with a schema."""

    schema: str = ""


def refusal(code: str, verdict: FindingVerdict) -> str | None:
    """Return why no baseline may list a finding of ``code`` and ``verdict``, or None if one may."""
    return NEVER.get(code) or NEVER_OF_VERDICT.get(verdict)


def encode(report: Report) -> bytes:
    """Return the baseline that lists every finding of a report that fails.

    Raises UsageError for findings that no baseline may list.
    """
    failing = [
        (finding, fingerprint)
        for finding, fingerprint in zip(report.findings, fingerprints(report), strict=True)
        if finding.verdict != "warning"
    ]
    for finding, _ in failing:
        why = refusal(finding.code, finding.verdict)
        if why is not None:
            raise UsageError(
                f"no baseline is written: {finding.code} ({finding.title}) may not be in one, "
                f"because {why}"
            )
    entries = [_entry(finding, fingerprint) for finding, fingerprint in failing]
    entries.sort(key=lambda e: (e.code, e.operator or "", e.output or "", e.fingerprint))
    content = Accepted(
        outputs=tuple(sorted(report.differing)),
        unrepaired=tuple(sorted(_unrepaired(finding for finding, _ in failing))),
        findings=tuple(entries),
    )
    return indented(content)


def _unrepaired(findings: Iterable[Finding]) -> set[str]:
    """Return the outputs that stayed wrong when the repairs of findings were tried."""
    return {name for each in findings if each.tried is not None for name in each.tried.wrong}


def _entry(finding: Finding, fingerprint: str) -> Entry:
    return Entry(
        fingerprint=fingerprint,
        code=finding.code,
        title=finding.title,
        operator=finding.operator,
        output=finding.output,
        source=finding.source,
    )


def read_baseline(file: str) -> Accepted:
    """Return the content of a baseline.

    Raises UsageError, with the file and the place in it, if it is damaged, foreign or newer.
    """
    data = _bytes(file)
    try:
        schema = msgspec.json.decode(data, type=_Tagged).schema
        if schema != SCHEMA:
            raise UsageError(f"baseline {file}: {_other(schema)}")
        content = msgspec.json.decode(data, type=Accepted)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"baseline {file} is damaged: {error}; write it anew") from None
    _check_entries(file, content.findings)
    return content


def _bytes(file: str) -> bytes:
    try:
        with Path(file).open("rb") as opened:
            data = opened.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(
            f"cannot read baseline {file}: {why}; --write-baseline {file} writes it"
        ) from None
    if len(data) > MOST_BYTES:
        raise UsageError(f"baseline {file} has more than {MOST_BYTES} bytes; it is none of ours")
    return data


def _other(schema: str) -> str:
    """Return as text why a file of this schema cannot be read."""
    if schema.startswith("pitcheck.baseline/"):
        return f"schema is {schema!r}, and this version reads {SCHEMA!r}; use a newer pitcheck"
    return f"schema is {schema!r}, so it is no baseline, which has {SCHEMA!r}"


def _check_entries(file: str, entries: tuple[Entry, ...]) -> None:
    verdicts = {code.code: code.verdict for code in CODES}
    seen: set[str] = set()
    for number, entry in enumerate(entries):
        place = f"baseline {file}: findings[{number}]"
        if _FINGERPRINT.fullmatch(entry.fingerprint) is None or entry.fingerprint in seen:
            raise UsageError(
                f"{place}.fingerprint is {entry.fingerprint!r}; it must be 32 hexadecimal digits, "
                f"a colon and a number, and stand once"
            )
        seen.add(entry.fingerprint)
        if entry.code not in verdicts:
            raise UsageError(f"{place}.code is {entry.code!r}, which is no code of this version")
        verdict = verdicts[entry.code]
        # A precision rule is a warning in the table, and fails under --precision error.
        why = refusal(entry.code, "imprecise" if verdict == "warning" else verdict)
        if why is not None:
            raise UsageError(f"{place}.code is {entry.code}, which may not stand there: {why}")


def held_against(report: Report, accepted: Accepted, file: str) -> Report:
    """Return the report with its known findings marked, and the exit code that follows.

    ``accepted`` is the content of ``file``.
    """
    codes = {entry.fingerprint: entry.code for entry in accepted.findings}
    found = fingerprints(report)
    findings = tuple(
        replace(
            finding,
            known=codes.get(fingerprint) == finding.code
            and refusal(finding.code, finding.verdict) is None,
        )
        for finding, fingerprint in zip(report.findings, found, strict=True)
    )
    gone = [entry for entry in accepted.findings if entry.fingerprint not in found]
    return replace(
        report,
        findings=findings,
        baseline=Baseline(
            file=file,
            known=sum(finding.known for finding in findings),
            gone=tuple(map(str, gone)),
            new_outputs=tuple(_new_outputs(report, findings, accepted, gone)),
        ),
    )


def _new_outputs(
    report: Report, findings: tuple[Finding, ...], accepted: Accepted, gone: list[Entry]
) -> Iterator[str]:
    """Yield the outputs that are not proven for a reason that is not known.

    An output that only entries name that are gone may differ for another reason now. So may one
    that stays wrong although what is known is repaired, if it did not before.
    """
    known = [finding for finding in findings if finding.known]
    named = {finding.output for finding in known}
    listed = {*accepted.outputs} - {entry.output for entry in gone} | named
    open_ones = {finding.output for finding in known if finding.verdict == "inconclusive"}
    stays_wrong = _unrepaired(known) - {*accepted.unrepaired}
    for name in dict.fromkeys([*report.differing, *report.unproven]):
        known_reason = name in (listed if name in report.differing else open_ones)
        if not known_reason or name in stays_wrong:
            yield name
