"""Results that contradict their configuration, or themselves: they are not believed."""

from __future__ import annotations

from pitcheck.report.report import Report
from pitcheck.sweep.planned import Planned
from pitcheck.sweep.result import WITHOUT_REPORT, Result, is_right, number_of, of_report


def contradiction(planned: Planned, result: Result, *, has_report: bool) -> str:
    """Return in words how a result contradicts its configuration or itself, or "".

    ``has_report``: it was made from a report. The report is looked into if the result has it.
    """
    if result.configuration and result.configuration != number_of(planned):
        return "its configuration is another one than was checked"
    if result.expect != planned.expect:
        return f"it expects {result.expect!r}, and its configuration {planned.expect!r}"
    if not has_report:
        return _of_none(planned, result)
    if not _follows(planned, result):
        return f"its status is {result.status!r}, and its verdict {result.verdict!r}"
    return "" if result.report is None else _of_report(planned, result, result.report)


def _of_none(planned: Planned, result: Result) -> str:
    if result.status == "unchanged" and is_right(planned, result.verdict):
        return ""  # its report stays in the results that it is taken from
    if result.status not in WITHOUT_REPORT or result.verdict:
        return f"its status is {result.status!r} with verdict {result.verdict!r}, without a report"
    if (result.status == "skipped") != bool(planned.impossible):
        possible = "cannot" if planned.impossible else "can"
        return f"its status is {result.status!r}, and its configuration {possible} run"
    return ""


def _of_report(planned: Planned, result: Result, report: Report) -> str:
    if (report.verdict, report.seed) != (result.verdict, result.seed):
        return (
            f"its verdict is {result.verdict!r} of seed {result.seed}, and that of its report "
            f"{report.verdict!r} of seed {report.seed}"
        )
    due = of_report(planned, report, "", out_of_memory=result.status == "out of memory").status
    status = "as expected" if result.status == "unchanged" else result.status
    return "" if status == due else f"its status is {result.status!r}, and by its report {due!r}"


def _follows(planned: Planned, result: Result) -> bool:
    """Return True if a status may have the verdict that stands beside it."""
    if result.status in ("as expected", "unchanged"):
        return is_right(planned, result.verdict)
    return result.status in ("unexpected", "crashed", "out of memory") and bool(result.verdict)
