"""Warnings that are left out of a report: by code, by file, and by a comment on their line.

They are counted. Nothing else than a warning can be left out.

>>> sorted(warning_codes("PIT30", "--ignore"))
['PIT301', 'PIT302', 'PIT303']
>>> comments("y = f(x)  # pitcheck: ignore[PIT301, pit302]")
['PIT301, pit302']
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import lru_cache

from msgspec.structs import replace

from pitcheck.errors import UsageError
from pitcheck.report.codes import CODES
from pitcheck.report.findings.excerpts import line_at
from pitcheck.report.report import Finding, Report
from pitcheck.report.sources import Source, source_line

_PREFIX = re.compile("PIT[0-9]{0,3}")
_COMMENT = re.compile(r"#\s*pitcheck\s*:\s*ignore\b\s*(?:\[([^\]]*)\])?")
_WARNINGS = frozenset(code.code for code in CODES if code.verdict == "warning")
"""Codes that are never more than a warning, or a broken rule under ``--precision error``."""
MOST_LINES = 1024
"""Lines of source files that are kept while one report is filtered."""


@dataclass(frozen=True)
class Ignoring:
    """The choice of a user: which warnings a report shows.

    ``select`` are the codes of warnings that are shown, None for all; ``ignore`` those that are
    not, although selected. ``per_file`` are ignored codes by a glob over source files.
    """

    select: frozenset[str] | None = None
    ignore: frozenset[str] = frozenset()
    per_file: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def leaves_out(self, code: str, place: Source | None) -> bool:
        """Return True if a warning of that code, at a place in a file, is left out."""
        selected = self.select is None or code in self.select
        return (
            not selected
            or code in self.ignore
            or (
                place is not None
                and any(
                    code in codes and fnmatchcase(place.file, glob)
                    for glob, codes in self.per_file.items()
                )
            )
        )


def ignoring(
    select: Sequence[str], ignore: Sequence[str], per_file: Mapping[str, Sequence[str]]
) -> Ignoring:
    """Return the choice that options and settings make: texts of codes or prefixes, with commas.

    Nothing selected is everything. Raises UsageError for a code that is unknown or more than a
    warning.
    """
    return Ignoring(
        _all_codes(select, "select") or None,
        _all_codes(ignore, "ignore"),
        {glob: _all_codes(codes, f"per-file-ignores {glob!r}") for glob, codes in per_file.items()},
    )


def _all_codes(texts: Iterable[str], place: str) -> frozenset[str]:
    return frozenset(
        code for text in texts for part in text.split(",") for code in warning_codes(part, place)
    )


def warning_codes(text: str, place: str) -> frozenset[str]:
    """Return the codes of warnings that a code or a prefix names, in upper or lower case.

    ``place`` says where it stands. Raises UsageError if it names none, or one that is more than a
    warning.
    """
    prefix = text.strip().upper()
    named = [code for code in CODES if code.code.startswith(prefix)]
    if _PREFIX.fullmatch(prefix) is None or not named:
        near = get_close_matches(prefix, [code.code for code in CODES], n=1)
        raise UsageError(
            f"{place}: {text.strip()!r} is no code and no prefix of one"
            f"{f'; the nearest is {near[0]}' if near else ''} (pitcheck explain lists them)"
        )
    more = next((code for code in named if code.verdict != "warning"), None)
    if more is not None:
        raise UsageError(
            f"{place}: {text.strip()!r} names {more.code}, which can be {more.verdict}; only "
            f"warnings are selected and ignored ({', '.join(sorted(_WARNINGS))}), because a plan "
            f"that is not proven must not pass unseen; --baseline FILE accepts findings one by one"
        )
    return frozenset(code.code for code in named)


def comments(line: str) -> list[str]:
    """Return what stands in the brackets of every comment for pitcheck on a line, "" without any.

    Strings of the program are not told from comments.
    """
    return [match.group(1) or "" for match in _COMMENT.finditer(line)]


def without_ignored(report: Report, choice: Ignoring) -> Report:
    """Return the report without the warnings that are left out, and with their numbers by code.

    A comment that cannot be used becomes a warning at its line, once. Findings of any other verdict
    stay as they are.
    """
    line = lru_cache(MOST_LINES)(line_at)
    kept: list[Finding] = []
    faults: dict[tuple[str | None, str], Finding] = {}
    left_out: Counter[str] = Counter()

    def sort(finding: Finding, named: frozenset[str] = frozenset()) -> None:
        if _is_ignored(finding, choice, named):
            left_out[finding.code] += 1
        else:
            kept.append(finding)

    for finding in report.findings:
        named, wrong = (
            _said_at(finding, line) if finding.verdict == "warning" else (frozenset(), ())
        )
        faults.update({(finding.source, why): _fault(finding, why) for why in wrong})
        sort(finding, named)
    for fault in faults.values():
        sort(fault)
    return replace(report, findings=tuple(kept), ignored=dict(sorted(left_out.items())))


def _is_ignored(finding: Finding, choice: Ignoring, named: frozenset[str]) -> bool:
    """Return True if a finding is a warning, its code is never more, and it is left out.

    ``named`` are the codes in comments on its line.
    """
    return (
        finding.verdict == "warning"
        and finding.code in _WARNINGS
        and (finding.code in named or choice.leaves_out(finding.code, source_line(finding.source)))
    )


def _said_at(
    finding: Finding, line: Callable[[str, int], str | None]
) -> tuple[frozenset[str], Sequence[str]]:
    """Return the codes that comments on the line of a finding name, and what is wrong with them."""
    place = source_line(finding.source)
    if place is None or place.line is None:
        return frozenset(), ()
    codes: frozenset[str] = frozenset()
    wrong: list[str] = []
    for text in comments(line(place.file, place.line) or ""):
        if not text.strip():
            wrong.append("it names no code; write the codes of the warnings in brackets")
            continue
        for part in text.split(","):
            try:
                codes |= warning_codes(part, "ignore")
            except UsageError as error:
                wrong.append(str(error))
    return codes, wrong


def _fault(finding: Finding, why: str) -> Finding:
    return Finding(
        code="PIT401",
        verdict="warning",
        title=f"a comment '# pitcheck: ignore' cannot be used: {why}",
        source=finding.source,
        repair="name the codes of the warnings, as in # pitcheck: ignore[PIT301]",
    )
