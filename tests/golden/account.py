"""A report in a few words: all that must stay the same while the code is rearranged, and none of
its sentences.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import msgspec

from pitcheck.report.report import Finding, Report

_NUMBERS = re.compile(r"\d+")


class Account(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts of a report that the golden file keeps.

    ``bound`` is the base-2 logarithm of the error bound, rounded up to tenths as the console prints
    it. ``outputs`` is "proven/total". ``stages`` is "total distinct proven failed inconclusive
    widened". ``findings`` are "code operator output", in order. ``reductions`` are the numbers in
    the lines of the report's list (sizes before and after, classes of coordinates), because the
    words of these lines may change. ``trials`` are complete redraws and ``primes`` the number of
    primes.
    """

    verdict: str
    exit_code: int
    bound: float = 0.0
    outputs: str = ""
    stages: str = ""
    trials: int = 0
    primes: int = 0
    findings: tuple[str, ...] = ()
    reductions: tuple[str, ...] = ()


def account(report: Report) -> Account:
    """Return what the golden file keeps of ``report``."""
    stages = report.stages
    counts = (
        stages.total,
        stages.distinct,
        stages.proven,
        stages.failed,
        stages.inconclusive,
        stages.widened,
    )
    return Account(
        verdict=report.verdict,
        exit_code=report.exit_code,
        bound=math.ceil(report.error_bound_log2 * 10) / 10,
        outputs=f"{report.outputs.proven}/{report.outputs.total}",
        stages=" ".join(map(str, counts)),
        trials=report.trials,
        primes=len(report.primes),
        findings=tuple(map(_finding, report.findings)),
        reductions=tuple(" ".join(_NUMBERS.findall(line)) for line in report.reductions),
    )


def _finding(finding: Finding) -> str:
    return " ".join((finding.code, finding.operator or "-", finding.output or "-"))


def changes(old: Account, new: Account) -> Iterator[str]:
    """Yield every field in which two accounts differ, with both values."""
    for field in Account.__struct_fields__:
        before, after = getattr(old, field), getattr(new, field)
        if before != after:
            yield f"{field}: {_said(before)} -> {_said(after)}"


def _said(value: object) -> str:
    return "; ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)
