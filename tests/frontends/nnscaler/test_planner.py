"""Plans of a real planner: every one gets the verdict it is due, and a wrong one a finding that
names what was changed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from golden.compare import SEED, assert_as_golden
from support.by_day import some_at_once
from support.planner_plans import (
    CONTRADICTIONS,
    LLAMA,
    MLP,
    SHIPPED,
    SLOW_OF_PLANNER,
    Row,
    all_rows,
    plans,
    read,
    row_of,
    rows,
    run,
    said,
    text_of,
)
from zoo.pairs import without_hints

from pitcheck.errors import PlanError
from pitcheck.plan.model import Plan
from pitcheck.report.report import VOLATILE, Report

NAMED = {
    "m04_allreduce_wrong_ranks": ("PIT004", "the group [0, 2]"),
    "m08_weight_wrong_slice": ("PIT110", "[64:128, 0:128] of 'layers.0.weight'"),
    "m11_drop_reducer_all": ("PIT104", "over dp of 'grad:layers."),
    "m16_recv_before_send_deadlock": ("PIT007", "receive:glinear_2"),
    "m19_reducer_group_wrong_devices": ("PIT004", "the group [0, 2, 4, 6]"),
    "m20_reducer_run_twice": ("PIT105", "all_reduce:grad:layers."),
    "n14_wrong_microbatch_inputs_only": ("PIT110", "[32:64, 0:128] of 'data'"),
    "n30_weight_slice_off_by_one_rank0": ("PIT110", "[0:1, 0:128] of 'layers.0.weight'"),
    "p01_div_scale": ("PIT102", "div:truediv' has the literal 8 where the reference has 4"),
    "p03_softmax_dim": ("PIT102", "softmax:softmax' has axis = -2 where the reference has -1"),
    "mlp-L8-d64.dp2-pp2-tp4-mb2.hybrid": (
        "PIT107",
        "[0:24, 16:32] of 'linear_4' where it should hold [0:24, 32:48]",
    ),
}
"""The code of a finding, and the words that it must have, by wrong plan."""

SMALL = tuple(row for row in rows() if row.folder == SHIPPED and "llama" not in row.reference)
RIGHT = tuple(row for row in rows() if row.right)
SMALLEST = (
    "mlp-L2-gbs128.dp2-pp2-tp2-mb2.demo",
    "mlp-L4-gbs128.dp1-pp2-tp1-mb2.megatron",
    "bias-mlp-L2-gbs128.dp2-pp1-tp1-mb1",
)
REFERENCES = tuple(dict.fromkeys(row.reference for row in rows() if row.folder == SHIPPED))


def params(chosen: Sequence[Row], large: bool = True, dear: bool = True) -> list[Any]:
    """Return rows as parameters.

    Without ``large`` CI leaves the large ones to the night, and without ``dear`` those whose
    explanation takes seconds: they are caught in CI by tests that have them.
    """
    at_night = [] if large else [row for row in chosen if row.large]
    if not dear:
        at_night += [row for row in chosen if row.name in SLOW_OF_PLANNER]
    night = [pytest.mark.slow, pytest.mark.nightly]
    return [
        pytest.param(
            row,
            id=row.name,
            marks=night if row in at_night else [pytest.mark.slow] if row.large else [],
        )
        for row in chosen
    ]


def pair(row: Row) -> tuple[Plan, Plan]:
    if row.folder is None:
        pytest.skip("the plan is not beside the repository")
    return plans(row)


def expected(row: Row, report: Report) -> bool:
    return (
        report.verdict == "equivalent" if row.right else report.verdict in ("mismatch", "invalid")
    )


def check_proof(reference: Plan, report: Report) -> None:
    """An equivalence covers every output and stays below the accepted error."""
    assert report.verdict == "equivalent", said(report)
    assert report.exit_code == 0
    assert report.outputs.total == report.outputs.proven == len(reference.outputs)
    assert report.stages.distinct > 0
    assert report.error_bound_log2 <= -64


@pytest.mark.parametrize("row", params(rows()))
def test_plan_gets_the_verdict_that_it_is_due(row: Row) -> None:
    reference, parallel = pair(row)
    report = run(reference, parallel, seed=SEED)
    if row.folder == SHIPPED and row.name not in SLOW_OF_PLANNER:
        assert_as_golden(f"planner {row.name}", report)
    if row.right:
        check_proof(reference, report)
        return
    assert expected(row, report), said(report)
    code, words = NAMED[row.name]
    assert any(
        f.code == code and f.verdict == report.verdict and words in text_of(f)
        for f in report.findings
    ), said(report)


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_plan_that_contradicts_itself_is_refused(name: str) -> None:
    row = next(row for row in all_rows() if row.name == name)
    with pytest.raises(PlanError, match=re.escape(CONTRADICTIONS[name])):
        pair(row)


def test_every_wrong_plan_has_its_words() -> None:
    assert {row.name for row in rows() if not row.right} == set(NAMED)


@pytest.mark.parametrize("name", REFERENCES)
def test_reference_is_equivalent_to_itself(name: str) -> None:
    reference = read(SHIPPED, name)
    check_proof(reference, run(reference, reference))


@pytest.mark.parametrize("row", params(RIGHT, large=False))
def test_right_plan_is_equivalent_without_hints(row: Row) -> None:
    reference, parallel = pair(row)
    bare = without_hints(parallel)
    assert bare != parallel
    check_proof(reference, run(reference, bare))


@pytest.mark.parametrize("row", params(SMALL))
def test_full_coordinates_say_the_same(row: Row) -> None:
    report = run(*pair(row), coordinates="full")
    assert expected(row, report), said(report)


@pytest.mark.parametrize("name", SMALLEST)
def test_full_shapes_say_the_same(name: str) -> None:
    reference, parallel = pair(row_of(name))
    check_proof(reference, run(reference, parallel, shapes="full"))


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", ["reduced", "full"])
@pytest.mark.parametrize("row", params(SMALL, dear=False))
def test_full_shapes_say_the_same_of_all(row: Row, coordinates: str) -> None:
    report = run(*pair(row), shapes="full", coordinates=coordinates)
    assert expected(row, report), said(report)


def settled(report: Report) -> bytes:
    """The report without the block of times and memory."""
    fields = {
        name: value
        for name, value in msgspec.structs.asdict(report).items()
        if name not in VOLATILE
    }
    return msgspec.json.encode(fields)


@pytest.mark.parametrize("row", params(SMALL, dear=False))
def test_same_seed_gives_the_same_report(row: Row) -> None:
    reference, parallel = pair(row)
    assert settled(run(reference, parallel, seed=5)) == settled(run(reference, parallel, seed=5))


@pytest.mark.parametrize("seed", some_at_once([2**62 + 1, 0, 2, 3], 4, 3))
@pytest.mark.parametrize("row", params(SMALL, dear=False))
def test_another_seed_gives_the_same_verdict(row: Row, seed: int) -> None:
    report = run(*pair(row), seed=seed)
    assert expected(row, report), said(report)
    if not row.right:
        code, words = NAMED[row.name]
        assert any(f.code == code and words in text_of(f) for f in report.findings), said(report)


def test_reading_twice_gives_one_plan() -> None:
    """Two readings of one file are equal, and so are their reports."""
    for name in (MLP, LLAMA):
        assert read(SHIPPED, name) == read.__wrapped__(SHIPPED, name)
