"""Pairs of plans about time, memory, groups, buffers and outputs, each with the verdicts that are
right.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from attacks.folder import ATTACKS, EXISTS, EXIT_CODES

from pitcheck.base.options import Options
from pitcheck.commands.checking.pair import checked
from pitcheck.commands.reading import read
from pitcheck.report.report import Report

FOLDER = ATTACKS / "plans"
ROWS: list[dict[str, str]] = json.loads((FOLDER / "manifest.json").read_text()) if EXISTS else []


def named(row: dict[str, str]) -> str:
    return row["parallel"].removesuffix(".parallel.plan.json")


def report(reference: str, parallel: str) -> Report:
    return checked(
        [lambda: [read(str(FOLDER / reference))], lambda: [read(str(FOLDER / parallel))]],
        Options(seed=1, jobs=1),
    )


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mismatch writes its counterexample where it is run."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.skipif(not EXISTS, reason="the folder of attacks is not there")
def test_the_folder_is_whole() -> None:
    assert len(ROWS) == 39
    assert {name for row in ROWS for name in (row["reference"], row["parallel"])} == {
        file.name for file in FOLDER.glob("*.plan.json")
    }


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_a_pair_gets_a_verdict_that_is_right(row: dict[str, str]) -> None:
    found = report(row["reference"], row["parallel"])
    assert found.exit_code in {EXIT_CODES[verdict] for verdict in row["expect"].split("|")}, (
        found.findings
    )


@pytest.mark.parametrize("row", [row for row in ROWS if row["expect"] == "invalid"], ids=named)
def test_a_plan_that_cannot_run_is_not_even_itself(row: dict[str, str]) -> None:
    """Outputs of the plan say where they are in the reference, so that it cannot be the reference
    of itself as it stands; it is invalid all the same.
    """
    found = report(row["parallel"], row["parallel"])
    assert found.verdict == "invalid", found.findings
