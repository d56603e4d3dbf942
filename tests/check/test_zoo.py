"""The checker against the zoo: right pairs are equivalent, near misses get the verdict that an independent executor calls for."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from itertools import islice

import pytest
from oracle.judge import judge_often
from zoo.mutations import mutants
from zoo.pairs import builders, pair, without_hints

from pitcheck.check.options import Options
from pitcheck.check.run import check
from pitcheck.plan.model import Plan
from pitcheck.report.model import Report

SEEDS = tuple(range(6))
FAST_MUTANTS = ("row_parallel", "microbatches", "cross_entropy_vocabulary_parallel")
SLOW_SHARE = 1 if os.environ.get("PITCHECK_ALL_MUTANTS") else 16
"""Of all near misses every sixteenth is tried in the slow run, and all where the environment asks for them (which takes most of an hour)."""

FAST_SHARE = 4
"""Of the near misses of ``FAST_MUTANTS`` every fourth is tried in the fast run."""

NOT_DECIDED = {"PIT202": "the plans agree on the reals by the sign of what was computed (a maximum with 0 of a sum of squares), which residues do not know"}
"""Codes with which a near miss that changes nothing may be inconclusive, and why."""

NOT_DEFINED = {"PIT200": "an operator without a meaning for these operands"}
"""Codes with which a near miss that changes an output may be inconclusive, and why."""


def _check(reference: Plan, parallel: Plan, shapes: str = "reduced", coordinates: str = "reduced") -> Report:
    return check(reference, parallel, Options(seed=11, shapes=shapes, coordinates=coordinates))


def _said(report: Report) -> str:
    return f"{report.verdict}: " + "; ".join(f"{f.code} {f.title} ({f.operator})" for f in report.findings[:3])


def _all_equivalent(reference: Plan, parallel: Plan, shapes: str = "reduced", coordinates: str = "reduced") -> None:
    report = _check(reference, parallel, shapes, coordinates)
    assert report.verdict == "equivalent", _said(report)
    assert report.error_bound_log2 <= -64
    assert report.outputs.total == report.outputs.proven == len(reference.outputs)


@pytest.mark.parametrize("name", builders())
def test_right_pair_is_equivalent(name: str) -> None:
    reference, parallel = pair(name)
    _all_equivalent(reference, parallel)


@pytest.mark.slow
@pytest.mark.parametrize("name", builders())
def test_right_pair_without_hints_is_equivalent(name: str) -> None:
    reference, parallel = pair(name)
    _all_equivalent(reference, without_hints(parallel))


@pytest.mark.slow
@pytest.mark.parametrize("name", builders())
def test_reference_is_equivalent_to_itself(name: str) -> None:
    reference, _ = pair(name)
    _all_equivalent(reference, reference)


@pytest.mark.slow
@pytest.mark.parametrize(("shapes", "coordinates"), [("full", "reduced"), ("reduced", "full"), ("full", "full")])
@pytest.mark.parametrize("name", builders())
def test_right_pair_is_equivalent_unreduced(name: str, shapes: str, coordinates: str) -> None:
    reference, parallel = pair(name)
    _all_equivalent(reference, parallel, shapes, coordinates)


def _wrong_verdicts(name: str, every: int = 1) -> Iterator[str]:
    """What is wrong with the verdicts on the near misses of a pair."""
    reference, parallel = pair(name)
    for number, (mutation, mutant) in enumerate(mutants(parallel)):
        if number % every == 0:
            wrong = _wrong_verdict(reference, mutant)
            if wrong:
                yield f"{name} | {mutation} | {wrong}"


def _undecided(report: Report, why: dict[str, str]) -> bool:
    return report.verdict == "inconclusive" and {f.code for f in report.findings if f.verdict == "inconclusive"} <= set(why)


def _wrong_verdict(reference: Plan, mutant: Plan) -> str:
    judgement = judge_often(reference, mutant, SEEDS)
    report = _check(reference, mutant)
    if judgement.same:
        return "" if report.verdict == "equivalent" or _undecided(report, NOT_DECIDED) else f"nothing changed, but {_said(report)}"
    if judgement.missing and not judgement.different and not judgement.error:
        return "" if report.verdict != "equivalent" else f"{judgement.missing} are missing, but {_said(report)}"
    what = f"{judgement.different} differ" if judgement.different else judgement.error
    return "" if report.verdict in ("mismatch", "invalid") or _undecided(report, NOT_DEFINED) else f"{what}, but {_said(report)}"


@pytest.mark.parametrize("name", FAST_MUTANTS)
def test_near_misses_of_some(name: str) -> None:
    wrong = list(_wrong_verdicts(name, FAST_SHARE))
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", builders())
def test_near_misses(name: str) -> None:
    wrong = list(_wrong_verdicts(name, SLOW_SHARE))
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", builders())
def test_damaged_references(name: str) -> None:
    """The reference against a damaged copy of itself."""
    reference, _ = pair(name)
    some = islice(mutants(reference), 0, None, SLOW_SHARE)
    wrong = [f"{name} | {mutation} | {said}" for mutation, mutant in some if (said := _wrong_verdict(reference, mutant))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_few_unchanged_mutants_stay_undecided() -> None:
    """Of the mutants that change nothing, most are proven."""
    verdicts: Counter[str] = Counter()
    for name in builders():
        reference, parallel = pair(name)
        for _, mutant in islice(mutants(parallel), 1, None, SLOW_SHARE):
            if judge_often(reference, mutant, SEEDS).same:
                verdicts[_check(reference, mutant).verdict] += 1
    # An index that leaves its table for some integers is invalid, though the judge's draws may not have met them.
    assert set(verdicts) <= {"equivalent", "inconclusive", "invalid"}
    few = 1 + sum(verdicts.values()) / 50
    assert max(verdicts["inconclusive"], verdicts["invalid"]) <= few, verdicts
