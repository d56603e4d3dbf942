"""Pairs of files that cannot be meant are refused in tests as on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from pitcheck.base.options import Options
from pitcheck.errors import UsageError
from pitcheck.pytest_plugin.subjects import Subject, report_on

DEMO = Path(__file__).resolve().parents[2] / "plans" / "demo"
REFERENCE = str(DEMO / "mlp-L4.reference.plan.json")
PARALLEL = str(DEMO / "mlp-L4.megatron.plan.json")


def report_of(reference: str, parallel: str) -> str:
    return report_on(Subject(reference, parallel, (), None), Options(seed=1)).verdict


def test_one_file_in_both_places_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "link.plan.json"
    link.symlink_to(REFERENCE)
    for other in (REFERENCE, str(link)):
        with pytest.raises(UsageError, match="are one file"):
            report_of(REFERENCE, other)


def test_plans_in_the_wrong_places_are_refused() -> None:
    with pytest.raises(UsageError, match="the plans are swapped"):
        report_of(PARALLEL, REFERENCE)
    assert report_of(REFERENCE, PARALLEL) == "equivalent"
