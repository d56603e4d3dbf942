"""What a pair of plans must get: proven, or caught, at reduced and full shapes and coordinates
alike.
"""

from __future__ import annotations

import itertools

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.execution.judge import judge_often
from pitcheck.plan.model import Plan
from pitcheck.report.report import Report

CHOICES = tuple(itertools.product(("reduced", "full"), ("reduced", "full")))
SEEDS = tuple(range(6))


def said(report: Report) -> str:
    """The verdict and the first findings."""
    return f"{report.verdict}: " + "; ".join(
        f"{f.code} {f.title} ({f.operator})" for f in report.findings[:3]
    )


def reports(reference: Plan, parallel: Plan) -> list[Report]:
    """The reports at reduced and full shapes and coordinates, which give one verdict."""
    found = [
        check(reference, parallel, Options(seed=7, shapes=shapes, coordinates=coordinates))
        for shapes, coordinates in CHOICES
    ]
    assert len({report.verdict for report in found}) == 1, [said(r) for r in found]
    return found


def proven(reference: Plan, parallel: Plan) -> Report:
    """The plan is right by the independent executor, and every choice proves it."""
    judgement = judge_often(reference, parallel, SEEDS)
    assert judgement.same, judgement
    report = reports(reference, parallel)[0]
    assert report.verdict == "equivalent", said(report)
    return report


def caught(reference: Plan, parallel: Plan) -> Report:
    """The plan is wrong by the independent executor, and every choice finds a real difference, or
    that it cannot run.
    """
    judgement = judge_often(reference, parallel, SEEDS)
    assert not judgement.same
    report = reports(reference, parallel)[0]
    assert report.verdict in ("mismatch", "invalid"), said(report)
    return report


def not_proven(reference: Plan, parallel: Plan) -> Report:
    """Nothing calls the plan equivalent."""
    report = reports(reference, parallel)[0]
    assert report.verdict != "equivalent", said(report)
    return report
