"""Repairs that are tried: each names the mistake that it is about, is silent on the nearest other
one, and independent mistakes are told apart.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from explain.repair_plans import chain, gated, gradients, masked_mean, norm, sliced, stacked
from support.explain_plans import Pair, run, said

from pitcheck.report.report import Finding


def first(pair: Pair) -> Finding:
    report = run(pair)
    assert report.verdict == "mismatch", said(report)
    return report.findings[0]


Change = Callable[[], Pair]
RIGHT: dict[str, Change] = {
    "mean": masked_mean,
    "norm": norm,
    "norm of powers": lambda: norm(by_powers=True),
    "layers": stacked,
    "gradients": lambda: gradients({}),
    "chain": lambda: chain(False),
    "slices": sliced,
    "gate and up": gated,
}
NAMED: dict[str, tuple[Change, str, str, str]] = {
    "a mean of means": (
        lambda: masked_mean("means"),
        "PIT112",
        "sum",
        "mean of such means over dp",
    ),
    "a mean of sums": (
        lambda: masked_mean("kind"),
        "PIT111",
        "all_reduce",
        "takes the mean of terms over dp where it should take their sum",
    ),
    "squares of one rank": (lambda: norm("part"), "PIT113", "sum", "part of the parameters"),
    "squares of one rank as powers": (
        lambda: norm("part", by_powers=True),
        "PIT113",
        "sum",
        "part of the parameters",
    ),
    "the largest square": (
        lambda: norm("kind"),
        "PIT111",
        "all_reduce",
        "takes the largest of terms over tp",
    ),
    "a layer is passed over": (lambda: stacked("lost"), "PIT115", "square", "passed over"),
    "another tensor is read": (lambda: stacked("other"), "PIT103", "square", "'y2'"),
    "shards the other way round": (lambda: sliced("swapped"), "PIT107", "", ""),
    "one shard begins too early": (lambda: sliced("late"), "PIT107", "slice", ""),
    "gate and up as one stretch": (lambda: gated("stretch"), "PIT117", "linear", "2 fused tensors"),
    "a sum is missing": (lambda: gradients({1: "missing"}), "PIT104", "linear.backward", "over dp"),
    "a sum is a mean": (lambda: gradients({1: "avg"}), "PIT111", "all_reduce", "mean of terms"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_plan_is_equivalent(name: str) -> None:
    report = run(RIGHT[name]())
    assert report.verdict == "equivalent", said(report)


@pytest.mark.parametrize("name", NAMED)
def test_the_mistake_is_named_and_its_nearest_neighbour_is_not(name: str) -> None:
    pair, code, operator, words = NAMED[name]
    found = first(pair())
    assert found.code == code, found
    assert operator in (found.operator or ""), found
    assert words in (found.cause or ""), found
    assert "tested" in (found.repair or ""), found


def test_gate_and_up_in_turn_are_not_interleaved_otherwise() -> None:
    assert first(gated("swapped")).code != "PIT117"


def test_one_mistake_is_one_finding_whatever_lies_behind_it() -> None:
    report = run(chain(True))
    (found,) = report.findings
    assert found.code == "PIT101" and "tripled" in (found.cause or ""), said(report)
    assert "every output is right" in (found.repair or "")


def test_independent_mistakes_are_told_apart() -> None:
    report = run(gradients({0: "missing", 2: "avg"}))
    assert report.verdict == "mismatch"
    assert sorted(f.code for f in report.findings) == ["PIT104", "PIT111"], said(report)


def test_the_same_seed_gives_the_same_findings() -> None:
    assert (
        run(gradients({0: "missing", 2: "avg"})).findings
        == run(gradients({0: "missing", 2: "avg"})).findings
    )
