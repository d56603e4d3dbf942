"""The report as JUnit XML (``docs/ci.md``), which CI services show as the tests of a job.

A check is one test suite. Its first test case is the verdict, and each finding is another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal as OneOf
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from pitcheck import __version__
from pitcheck.report.findings.text import coordinates, details, endings
from pitcheck.report.lines import printable, told_apart
from pitcheck.report.report import Finding, FindingVerdict, Report
from pitcheck.report.text import bound, sentence

Outcome = OneOf["failure", "error"]

OUTCOMES: Mapping[FindingVerdict, Outcome] = {
    "mismatch": "failure",
    "imprecise": "failure",
    "invalid": "error",
    "inconclusive": "error",
    "nothing-checked": "error",
}
"""Verdict -> what the test case ends with.

A failure is a plan that computes something else, an error a plan of which that is not known. A
warning has none.
"""


def encode(report: Report, plans: Sequence[str] = ()) -> bytes:
    """Return the report's XML, in UTF-8: equal reports give equal bytes.

    A test case fails exactly if the exit code is not 0. ``plans``: the checked files. Control
    characters and lone surrogates, which XML cannot hold, are shown escaped as in the text report.
    """
    cases = [_verdict(report), *_findings(report)]
    counts = {
        "tests": str(len(cases)),
        "failures": str(_ended(cases, "failure")),
        "errors": str(_ended(cases, "error")),
        "time": _time(report),
    }
    root = Element("testsuites", {"name": "pitcheck", **counts})
    name = printable(" ".join(["pitcheck check", *plans]))
    suite = SubElement(root, "testsuite", {"name": name, **counts, "skipped": "0"})
    suite.append(_properties(report, plans))
    suite.extend(cases)
    ElementTree.indent(root)
    xml: bytes = ElementTree.tostring(root, "utf-8", xml_declaration=True)
    return xml + b"\n"


def _time(report: Report) -> str:
    return f"{report.seconds.total:.3f}"


def _ended(cases: Iterable[Element], outcome: Outcome) -> int:
    return sum(case.find(outcome) is not None for case in cases)


def _properties(report: Report, plans: Sequence[str]) -> Element:
    """Return what led to the verdict, a property each."""
    known = {
        "pitcheck": __version__,
        **_files(plans),
        "verdict": report.verdict,
        "exit_code": report.exit_code,
        "seed": report.seed,
        "error_bound_log2": report.error_bound_log2,
        "trials": report.trials,
        "backend": report.backend,
        **{f"mesh.{axis}": size for axis, size in report.mesh.items()},
        "ranks": report.ranks,
        "microbatches": report.microbatches,
        "outputs.total": report.outputs.total,
        "outputs.proven": report.outputs.proven,
    }
    properties = Element("properties")
    for name, value in known.items():
        SubElement(
            properties, "property", {"name": printable(name), "value": printable(str(value))}
        )
    return properties


def _files(plans: Sequence[str]) -> dict[str, str]:
    names = ("reference", "parallel") if len(plans) == 2 else ("plans",) * len(plans)
    return dict(zip(names, plans, strict=True))


def _verdict(report: Report) -> Element:
    """Return the case of the verdict: what is said of the whole check, and the time it took."""
    case = Element("testcase", {"classname": "pitcheck", "name": "verdict", "time": _time(report)})
    said = sentence(report)
    if report.verdict != "equivalent":
        _end(case, OUTCOMES[report.verdict], report.verdict, said, [said, *_shown(report)])
    elif report.exit_code:
        _end(case, OUTCOMES["imprecise"], "imprecise", said, [said])
    SubElement(case, "system-out").text = _lines([said, *_claimed(report)])
    return case


def _shown(report: Report) -> Iterator[str]:
    """Yield the element that shows a mismatch; nothing for another verdict."""
    shown = report.shown
    if shown is not None:
        yield f"output: {shown.output} at {list(shown.element)}"
        yield f"reference: {shown.reference_value}     parallel: {shown.parallel_value}"
        yield f"computed in: {shown.arithmetic}"


def _claimed(report: Report) -> Iterator[str]:
    """Yield the bound and what it rests on."""
    if report.verdict == "equivalent" or report.error_bound_log2:
        yield bound(report)
    for label, sentences in (
        ("exception", report.exceptions),
        ("heuristic", report.heuristic),
        ("assuming", report.assumptions),
        ("not covered", report.not_covered),
    ):
        yield from (f"{label}: {each}" for each in sentences)


def _findings(report: Report) -> Iterator[Element]:
    """Yield a case for each finding; equal titles are numbered, since readers tell cases by name.

    Findings of a report with exit code 0 are output alone, like warnings.
    """
    for finding, name in zip(report.findings, _names(report.findings), strict=True):
        case = Element(
            "testcase", {"classname": f"pitcheck.{finding.code}", "name": name, "time": "0.000"}
        )
        outcome = OUTCOMES.get(finding.verdict)
        if outcome is not None and report.exit_code:
            _end(case, outcome, finding.code, finding.title, _message(finding, report))
        else:
            SubElement(case, "system-out").text = _lines(_message(finding, report))
        yield case


def _names(findings: Sequence[Finding]) -> list[str]:
    """Return the name of each finding's case, which no other case of its code has."""
    by_code: dict[str, list[str]] = {}
    for finding in findings:
        by_code.setdefault(finding.code, []).append(finding.title)
    names = {code: iter(told_apart(titles)) for code, titles in by_code.items()}
    return [next(names[finding.code]) for finding in findings]


def _message(finding: Finding, report: Report) -> Iterator[str]:
    """Yield everything that is known of a finding."""
    yield f"{finding.verdict}[{finding.code}]: {finding.title}"
    ranks, microbatches = coordinates(finding, report)
    for label, text in (
        ("operator", finding.operator),
        ("source", finding.source),
        ("ranks", ranks),
        ("micro-batches", microbatches),
        *details(finding),
        *endings(finding),
    ):
        if text:
            yield f"{label}: {text}"


def _end(case: Element, outcome: Outcome, type_: str, message: str, text: Iterable[str]) -> None:
    """Make a case end with a failure or an error."""
    ended = SubElement(case, outcome, {"type": type_, "message": printable(message)})
    ended.text = _lines(text)


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(printable(line) for line in lines)
