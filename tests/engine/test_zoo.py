"""The checker against the zoo: right pairs are equivalent, near misses get the verdict that an
independent executor calls for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice

import pytest
from golden.compare import SEED, assert_as_golden
from support.by_day import some_by_day
from zoo.mutations import mutants
from zoo.pairs import builders, pair, without_hints

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.execution.judge import judge_often
from pitcheck.plan.model import Plan
from pitcheck.report.report import Report

SEEDS = tuple(range(6))
MORE_SEEDS = tuple(range(6, 120))
"""Draws of the executor where the checker found something that fewer did not show, such as an index
that leaves its table for some integers.
"""

FAST_MUTANTS = ("row_parallel", "microbatches", "cross_entropy_vocabulary_parallel")
SLOW_SHARE = 1 if os.environ.get("PITCHECK_ALL_MUTANTS") else 16
"""The slow run tries every sixteenth near miss.

It tries all if the environment asks for them, which takes most of an hour.
"""

FAST_SHARE = 4
"""The fast run tries every fourth near miss of ``FAST_MUTANTS``."""

BY_SIGN = (": reduction max", ": reduction min")
"""Ends of the names of near misses that may change nothing by the sign of what is reduced (a
maximum with 0 of squares), which residues do not know.
"""


def _check(
    reference: Plan, parallel: Plan, shapes: str = "reduced", coordinates: str = "reduced"
) -> Report:
    options = Options(seed=11, shapes=shapes, coordinates=coordinates, explain=False)
    return check(reference, parallel, options)


def _said(report: Report) -> str:
    return f"{report.verdict}: " + "; ".join(
        f"{f.code} {f.title} ({f.operator})" for f in report.findings[:3]
    )


def _all_equivalent(
    reference: Plan, parallel: Plan, shapes: str = "reduced", coordinates: str = "reduced"
) -> None:
    _assert_all_equivalent(reference, _check(reference, parallel, shapes, coordinates))


def _assert_all_equivalent(reference: Plan, report: Report) -> None:
    assert report.verdict == "equivalent", _said(report)
    assert report.error_bound_log2 <= -64
    assert report.outputs.total == report.outputs.proven == len(reference.outputs)


@pytest.mark.parametrize("name", builders())
def test_right_pair_is_equivalent(name: str) -> None:
    reference, parallel = pair(name)
    report = check(reference, parallel, Options(seed=SEED))
    _assert_all_equivalent(reference, report)
    assert_as_golden(f"zoo {name}", report)


@pytest.mark.slow
@pytest.mark.parametrize("name", builders())
def test_right_pair_without_hints_is_equivalent(name: str) -> None:
    reference, parallel = pair(name)
    report = check(reference, without_hints(parallel), Options(seed=SEED))
    _assert_all_equivalent(reference, report)
    assert_as_golden(f"zoo {name}, no lineage", report)


@pytest.mark.slow
@pytest.mark.parametrize("name", some_by_day(builders(), 6))
def test_reference_is_equivalent_to_itself(name: str) -> None:
    reference, _ = pair(name)
    _all_equivalent(reference, reference)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shapes", "coordinates"), [("full", "reduced"), ("reduced", "full"), ("full", "full")]
)
@pytest.mark.parametrize("name", some_by_day(builders(), 6))
def test_right_pair_is_equivalent_unreduced(name: str, shapes: str, coordinates: str) -> None:
    reference, parallel = pair(name)
    _all_equivalent(reference, parallel, shapes, coordinates)


def _wrong_verdicts(name: str, every: int = 1) -> Iterator[str]:
    """Yield a text for every wrong verdict on the near misses of a pair."""
    reference, parallel = pair(name)
    for number, (mutation, mutant) in enumerate(mutants(parallel)):
        if number % every == 0:
            wrong = _wrong_verdict(reference, mutation, mutant)
            if wrong:
                yield f"{name} | {mutation} | {wrong}"


def _open_by_sign(mutation: str, report: Report) -> bool:
    codes = {f.code for f in report.findings if f.verdict == "inconclusive"}
    return report.verdict == "inconclusive" and codes == {"PIT202"} and mutation.endswith(BY_SIGN)


def _wrong_verdict(reference: Plan, mutation: str, mutant: Plan) -> str:
    judgement = judge_often(reference, mutant, SEEDS)
    report = _check(reference, mutant)
    if judgement.same and report.verdict != "equivalent":
        judgement = judge_often(reference, mutant, MORE_SEEDS)
    if judgement.same:
        return (
            ""
            if report.verdict == "equivalent" or _open_by_sign(mutation, report)
            else f"nothing changed, but {_said(report)}"
        )
    if judgement.missing and not judgement.different and not judgement.error:
        return (
            ""
            if report.verdict != "equivalent"
            else f"{judgement.missing} are missing, but {_said(report)}"
        )
    what = f"{judgement.different} differ" if judgement.different else judgement.error
    return "" if report.verdict in ("mismatch", "invalid") else f"{what}, but {_said(report)}"


@pytest.mark.parametrize("name", FAST_MUTANTS)
def test_near_misses_of_some(name: str) -> None:
    wrong = list(_wrong_verdicts(name, FAST_SHARE))
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", some_by_day(builders(), 4))
def test_near_misses(name: str) -> None:
    wrong = list(_wrong_verdicts(name, SLOW_SHARE))
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", some_by_day(builders(), 6))
def test_damaged_references(name: str) -> None:
    """The reference against a damaged copy of itself."""
    reference, _ = pair(name)
    some = islice(mutants(reference), 0, None, SLOW_SHARE)
    wrong = [
        f"{name} | {mutation} | {said}"
        for mutation, mutant in some
        if (said := _wrong_verdict(reference, mutation, mutant))
    ]
    assert not wrong, "\n".join(wrong)
