"""The verdict that a pair of plans must get: proven, or caught, at reduced and at full shapes and
coordinates.

``PITCHECK_CHOICES=all``, which a nightly job sets, tries each of both with each of the other, and
explains every difference that is found.
"""

from __future__ import annotations

import itertools
import os

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.execution.judge import judge_often
from pitcheck.plan.model import Plan
from pitcheck.report.report import Report

_EVERY = tuple(itertools.product(("reduced", "full"), repeat=2))
AT_NIGHT = os.environ.get("PITCHECK_CHOICES") == "all"
"""True if differences are explained where a test asks for the verdict alone."""
CHOICES = _EVERY if AT_NIGHT else (_EVERY[0], _EVERY[-1])
"""Shapes and coordinates of the checks of a pair."""
SEEDS = tuple(range(6))


def said(report: Report) -> str:
    """Return the verdict and the first findings as text."""
    return f"{report.verdict}: " + "; ".join(
        f"{f.code} {f.title} ({f.operator})" for f in report.findings[:3]
    )


def reports(reference: Plan, parallel: Plan, *, explain: bool = True) -> list[Report]:
    """Return one report for each of ``CHOICES``, the first explained; all give one verdict.

    An explanation takes longer than the verdict.
    """
    found = [
        check(
            reference,
            parallel,
            Options(seed=7, shapes=shapes, coordinates=coordinates, explain=explain and place == 0),
        )
        for place, (shapes, coordinates) in enumerate(CHOICES)
    ]
    assert len({report.verdict for report in found}) == 1, [said(r) for r in found]
    return found


def proven(reference: Plan, parallel: Plan) -> Report:
    """Assert that the independent executor finds the plan right, and every choice proves it."""
    judgement = judge_often(reference, parallel, SEEDS)
    assert judgement.same, judgement
    report = reports(reference, parallel)[0]
    assert report.verdict == "equivalent", said(report)
    return report


def caught(reference: Plan, parallel: Plan) -> Report:
    """Assert that the independent executor finds the plan wrong, and every choice finds a real
    difference, or that it cannot run.
    """
    judgement = judge_often(reference, parallel, SEEDS)
    assert not judgement.same
    report = reports(reference, parallel, explain=AT_NIGHT)[0]
    assert report.verdict in ("mismatch", "invalid"), said(report)
    return report


def not_proven(reference: Plan, parallel: Plan) -> Report:
    """Assert that nothing calls the plan equivalent."""
    report = reports(reference, parallel)[0]
    assert report.verdict != "equivalent", said(report)
    return report
