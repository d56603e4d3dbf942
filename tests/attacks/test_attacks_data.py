"""The attacks in ``data``: every plan file gets a verdict that is right, by the check, by the
validator of plans, and by an executor that shares no code with the check.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from attacks.plan_files import DATA, Expected, Pair, file_of, folders, pairs, read_attack, values_at
from support.verdicts import CHOICES, SEEDS

from pitcheck.base.options import Options
from pitcheck.commands.checking.pair import checked
from pitcheck.errors import PlanError
from pitcheck.execution.judge import Judge, Judgement
from pitcheck.plan.files import JSON_SUFFIX, read_plan
from pitcheck.plan.validate import validate
from pitcheck.report.report import EXIT_CODES, Report

PAIRS = list(pairs())
LATER = {"PIT003", "PIT008"}
"""Rules that the check may find broken after validation: ids beyond a table, what is given."""


def named(case: Pair) -> str:
    return case.id


def folder_named(folder: Path) -> str:
    return str(folder.relative_to(DATA))


def reports(case: Pair) -> Iterator[Report]:
    """Yield the reports of ``pitcheck check`` on both files, at reduced shapes and coordinates, and
    at full ones if the folder asks for that. Causes are looked for if codes are expected.
    """
    expected = case.expected
    reference, parallel = case.files
    for shapes, coordinates in CHOICES if case.full else CHOICES[:1]:
        yield checked(
            [lambda: [read_plan(reference)], lambda: [read_plan(parallel)]],
            Options(
                seed=expected.seed,
                jobs=1,
                shapes=shapes,
                coordinates=coordinates,
                explain=bool(expected.codes),
            ),
        )


def rules_broken(case: Pair) -> list[str]:
    """Return the codes of the rules that either plan breaks, PIT001 for a file that is no plan."""
    try:
        reference, parallel = case.plans()
    except PlanError:
        return ["PIT001"]
    violations = (*validate(reference), *validate(parallel, reference))
    return [violation.code for violation in violations if violation.severity == "error"]


def as_expected(found: Report, expected: Expected, broken: list[str]) -> None:
    """Assert that a report is right. ``broken``: the codes of the rules that the plans break."""
    if expected.verdict == "estimate":
        assert found.heuristic or found.verdict in ("mismatch", "inconclusive"), expected.reason
        return
    assert found.verdict in expected.verdicts, (expected.reason, found.findings)
    assert found.exit_code == EXIT_CODES[found.verdict]
    codes = tuple(finding.code for finding in found.findings)
    right = found.verdict == "equivalent"
    assert right or codes
    wanted = codes if right else codes[: len(expected.codes)]
    assert wanted == expected.codes, found.findings
    assert "PIT900" not in codes, found.findings
    if found.verdict == "invalid":
        assert set(codes) & {*broken, *LATER}
    else:
        assert not broken


@pytest.mark.parametrize("case", PAIRS, ids=named)
def test_a_plan_gets_its_verdict(case: Pair) -> None:
    broken = rules_broken(case)
    for found in reports(case):
        as_expected(found, case.expected, broken)


def judgements(case: Pair) -> Iterator[Judgement]:
    """Yield what the executor finds: at the point for padding and terms drawn in other ways, or on
    other inputs.
    """
    reference, parallel = case.plans()
    point = values_at(reference, case.expected.point)
    judge = Judge(reference)
    for seed in SEEDS:
        yield judge.at(parallel, point, seed) if point else judge.once(parallel, seed)


@pytest.mark.parametrize(
    "case",
    [case for case in PAIRS if case.expected.point or case.expected.verdict == "equivalent"],
    ids=named,
)
def test_an_independent_executor_agrees(case: Pair) -> None:
    same = all(judgement.same for judgement in judgements(case))
    right = case.expected.verdict == "equivalent"
    assert same == (right != bool(case.expected.executor)), case.expected.reason


@pytest.mark.parametrize("folder", list(folders()), ids=folder_named)
def test_a_folder_is_whole(folder: Path) -> None:
    """All plans of a folder are used, a right one stands beside the wrong ones, and every mismatch
    has a point.
    """
    attack = read_attack(folder)
    used = {file_of(folder, name) for name in attack.plans}
    used |= {file_of(folder, expected.reference) for expected in attack.plans.values()}
    assert used == set(folder.glob(f"*{JSON_SUFFIX}"))
    assert attack.attack
    assert any(expected.verdict == "equivalent" for expected in attack.plans.values())
    for name, expected in attack.plans.items():
        assert expected.reason, name
        assert expected.verdicts == ["equivalent"] or "equivalent" not in expected.verdicts, name
        assert expected.point or not {"mismatch", "estimate"}.intersection(expected.verdicts), name


def test_no_plan_lies_beside_a_folder_that_is_read() -> None:
    assert {file.parent for file in DATA.rglob("*.*")} == set(folders())
