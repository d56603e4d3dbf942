"""The golden file for tests that make one of its checks anyway."""

from __future__ import annotations

from golden.account import account
from golden.file import differences, read
from pitcheck.report.report import Report

SEED = 1
"""The seed of every check in the golden file."""
HINT = (
    "a change that is meant is written with: PYTHONPATH=.:tests python -m golden --write --nightly"
)


def assert_as_golden(name: str, report: Report) -> None:
    """Assert that a report is the golden file's row ``name``; its check has seed ``SEED``."""
    told = list(differences(name, read().get(name), account(report)))
    assert not told, "\n".join([*told, HINT])
