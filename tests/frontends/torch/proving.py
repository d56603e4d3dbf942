"""Holding a pair of recorded programs to a verdict: proven as a whole, or caught at a line for a
reason.
"""

from __future__ import annotations

from pathlib import Path

from pitcheck.commands.checking.pair import checked
from pitcheck.report.report import Report
from pitcheck.torch import Options, Spec, assert_equivalent, capture


def proven(spec: Spec) -> Report:
    """Assert that every output is proven, and return the report."""
    report = assert_equivalent(spec, seed=1)
    assert report.outputs.proven == report.outputs.total > 0
    return report


def check_at_one_mesh(spec: Spec) -> Report:
    """Check a pair without recording it on other numbers of ranks, which costs seconds."""
    return checked([lambda: list(capture(spec))], Options(seed=1))


def verdict(spec: Spec) -> str:
    """Return the verdict alone: no cause is looked for, which takes longer."""
    return checked([lambda: list(capture(spec))], Options(explain=False)).verdict


def caught(spec: Spec, line: str, *codes: str) -> Report:
    """A mismatch, whose first finding is at a line of the program that has ``line`` in it, and has
    one of the codes.
    """
    report = check_at_one_mesh(spec)
    assert report.verdict == "mismatch", (report.verdict, report.findings)
    finding = report.findings[0]
    assert line in line_of(finding.source or ""), finding
    assert finding.code in codes, finding
    return report


def refuted(spec: Spec, output: str) -> Report:
    """A mismatch that is shown at an output, where nothing in between tells where it begins."""
    report = check_at_one_mesh(spec)
    assert report.verdict == "mismatch", (report.verdict, report.findings)
    assert report.findings[0].output == output, report.findings
    return report


def line_of(source: str) -> str:
    """The text of a line that is named as "file:number"."""
    file, _, number = source.rpartition(":")
    return Path(file).read_text(encoding="utf-8").splitlines()[int(number) - 1] if file else ""
