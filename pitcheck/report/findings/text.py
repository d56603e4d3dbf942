"""A finding as text: title, place, source line, values, cause, repair as changed lines, witness."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pitcheck.report.coordinate_names import describe_microbatches, describe_ranks
from pitcheck.report.findings.excerpts import excerpt
from pitcheck.report.findings.value_table import table_lines
from pitcheck.report.findings.values import told_apart
from pitcheck.report.lines import Line, Style, cut_short, filled, rows_of, wrapped
from pitcheck.report.report import Finding, Report

PART_LINES = 8
"""The most lines of a part of a finding, such as its cause, that is not shown whole."""

_NOTE = "   = "
_CUT = "     … (--verbose shows it whole)"

_HEAD = {
    "mismatch": "error",
    "invalid": "error",
    "inconclusive": "unproven",
    "nothing-checked": "unproven",
    "warning": "warning",
    "imprecise": "error",
}
_HEAD_STYLE: dict[str, Style] = {"error": "bad", "unproven": "unsure", "warning": "unsure"}


def coordinates(finding: Finding, report: Report) -> tuple[str, str]:
    """Return the ranks and the micro-batches of a finding, "" for none in particular."""
    return describe_ranks(finding.ranks, report.mesh), describe_microbatches(
        finding.microbatches, report.microbatches
    )


def details(finding: Finding) -> Iterable[tuple[str, str]]:
    """Yield (label, text) for what is known of a finding."""
    if finding.stage:
        yield "stage", finding.stage
    if finding.output:
        yield "output", _element(finding)
    if finding.reference_value is not None or finding.parallel_value is not None:
        yield "reference", _values(finding)
    if finding.cause:
        yield "cause", finding.cause
    if finding.variants:
        yield "variants", "; ".join(finding.variants)


def endings(finding: Finding) -> Iterable[tuple[str, str]]:
    """Yield (label, text) for what to do about a finding."""
    if finding.repair:
        yield _advice(finding), finding.repair
    yield from _endings(finding)


def finding_lines(
    finding: Finding, report: Report, width: int, *, complete: bool = False
) -> list[Line]:
    """Return a finding in ``width`` columns. Unless it is ``complete``, long parts are cut short.

    What is cut short says so, and each part is by itself: help and witness stay.
    """
    page = _Part(width, complete)
    return [
        *page.short(_headline(finding, width)),
        *page.short(filled("  --> ", _place(finding, report), width, "strong")),
        *page.short(_source(finding.source, width)),
        *page.described(finding, report),
        *page.repaired(finding),
        *page.noted(_endings(finding)),
    ]


def _headline(finding: Finding, width: int) -> list[Line]:
    head = _HEAD[finding.verdict]
    style: Style = "faint" if finding.known else _HEAD_STYLE[head]
    first, *others = rows_of(
        f"{'known ' if finding.known else ''}{head}[{finding.code}]: {finding.title}", width - 2
    )
    return [Line(first, style), *(Line(f"  {row}", style) for row in others)]


def _place(finding: Finding, report: Report) -> list[str]:
    operator = finding.operator or ""
    named = f"({operator})" if finding.source and operator else operator
    parts = (finding.source or "", named, *coordinates(finding, report))
    return [part for part in parts if part]


def _source(source: str | None, width: int) -> list[Line]:
    """Return the line of the source file with a mark below, in several rows if it is long."""
    marked = excerpt(source)
    if not marked:
        return []
    number, bar, code = marked[0].partition(" | ")
    margin, lines = " " * len(number), list[Line]()
    for row in rows_of(code, width - len(f"   {number}{bar}")):
        lines.append(Line(f"   {margin if lines else number}{bar}{row}"))
        lines.append(Line(f"   {margin}{bar}{'^' * len(row)}", "bad"))
    return lines


class _Part(NamedTuple):
    """The parts of a finding in ``width`` columns; each is whole if ``complete``."""

    width: int
    complete: bool

    def short(self, lines: list[Line]) -> list[Line]:
        """Return the lines of a part, at most PART_LINES of them unless all are shown."""
        return lines if self.complete else cut_short(lines, PART_LINES, _CUT)

    def noted(self, notes: Iterable[tuple[str, str]]) -> list[Line]:
        """Return notes, each with its label."""
        return [
            line
            for label, text in notes
            for line in self.short(wrapped(_NOTE, f"{label}: {text}", self.width))
        ]

    def described(self, finding: Finding, report: Report) -> list[Line]:
        """Return what is known of a finding: the output, the values over ranks, and the cause."""
        lines = []
        for label, text in details(finding):
            if label == "output":
                lines += self.noted([(label, f"{text}{_differing(finding, report)}")])
            elif label != "reference" or finding.held is None:
                lines += self.noted([(label, text)])
            elif finding.reference_value != finding.held.reference_value:
                # The values over ranks are of another input.
                on = "the witness" if finding.witness else "a small input"
                lines += self.noted([(label, f"{text}     (on {on})")])
            if label == ("reference" if _values(finding) else "output"):
                lines += self.table(finding, report)
        return lines

    def table(self, finding: Finding, report: Report) -> list[Line]:
        """Return the values over ranks of a finding that has them."""
        held = finding.held
        if held is None:
            return []
        where = f"{held.output} at {list(held.element)}"
        same = where == _element(finding)
        what = f"{'this element' if same else where} on random inputs"
        terms = "; the sum of the shares is compared" if held.terms else ""
        return [
            *self.noted([("values", f"{what}{terms}")]),
            *table_lines(held, report.microbatches, self.width, complete=self.complete),
        ]

    def repaired(self, finding: Finding) -> list[Line]:
        """Return the repair as lines that go and come, or in words, and whether it was tried."""
        if not finding.repair:
            return []
        if not finding.edits:
            return self.noted([(_advice(finding), finding.repair)])
        tested = "not tested" if finding.tried is None else finding.tried.said
        head = f"fix: {finding.repair}" if self.complete else f"fix ({tested})"
        lines = self.short(wrapped(_NOTE, head, self.width))
        edits = [
            line
            for edit in finding.edits
            for line in wrapped(
                f"       {edit.sign} ",
                edit.text,
                self.width,
                "added" if edit.sign == "+" else "removed",
            )
        ]
        return [*lines, *self.short(edits)]


def _advice(finding: Finding) -> str:
    """Return what a repair is called: a fix of a difference, else help."""
    return "fix" if finding.verdict == "mismatch" else "help"


def _element(finding: Finding) -> str:
    at = "" if finding.element is None else f" at {list(finding.element)}"
    return f"{finding.output}{at}"


def _values(finding: Finding) -> str:
    """Return both values of a finding; "" if it has none."""
    if finding.reference_value is None and finding.parallel_value is None:
        return ""
    reference, parallel = told_apart(finding.reference_value or "-", finding.parallel_value or "-")
    return f"{reference}     parallel: {parallel}"


def _differing(finding: Finding, report: Report) -> str:
    """Return the number of outputs that differ, of all; those alone that a tried repair mends."""
    if finding.verdict != "mismatch" or finding.output not in report.differing:
        return ""
    mended = set() if finding.tried is None else {*finding.tried.right} & {*report.differing}
    number = len(mended or set(report.differing))
    because = " because of it" if mended else ""
    total = report.outputs.total
    outputs = f"{total} output{'s' * (total != 1)}"
    return f"; {number} of {outputs} differ{'s' * (number == 1)}{because}"


def _endings(finding: Finding) -> Iterable[tuple[str, str]]:
    if finding.witness:
        yield "witness", f"pitcheck replay {finding.witness}"
    if finding.unsaved:
        yield "note", f"the witness could not be written: {finding.unsaved}"
    yield "more", f"pitcheck explain {finding.code}"
