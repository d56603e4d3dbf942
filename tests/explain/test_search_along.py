"""Repairs that are found along the program: each mistake is named, several of one kind are one
finding, and what was not done is not blamed.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from explain.along_plans import (
    activated,
    biased,
    buffered,
    gathered,
    norms,
    one_operator,
    reshaped,
    scaled,
    scores,
    updated,
)
from explain.repair_plans import gradients
from msgspec.structs import replace
from support.explain_plans import Pair, run, said

Change = Callable[[], Pair]
RIGHT: dict[str, Change] = {
    "bias": lambda: biased(False),
    "buffer": lambda: buffered(False),
    "norm": lambda: norms(()),
    "scores": lambda: scores(False),
    "operators": lambda: one_operator(""),
    "columns": lambda: reshaped(False),
    "update": lambda: updated(False),
    "gradient": lambda: scaled(False),
    "activation": lambda: activated(""),
    "axes": gathered,
}
NAMED: dict[str, tuple[Change, str, str, str]] = {
    "a bias on every rank": (
        lambda: biased(True, 1),
        "PIT108",
        "linear",
        "'b0' on every rank over tp",
    ),
    "a bias on every rank, in two layers": (
        lambda: biased(True),
        "PIT108",
        "linear",
        "'b0' on every rank over tp",
    ),
    "a buffer added to itself": (
        lambda: buffered(True),
        "PIT108",
        "add",
        "times 8, 4, 2, where each should count once",
    ),
    "two tensors left out of a norm": (
        lambda: norms((1, 2)),
        "PIT113",
        "sqrt",
        "without 'g1', 'g2'",
    ),
    "one tensor left out of a norm": (lambda: norms((1,)), "PIT113", "sqrt", "without 'g1'"),
    "added up instead of side by side": (
        lambda: scores(True),
        "PIT111",
        "all_reduce",
        "side by side",
    ),
    "another function": (
        lambda: one_operator("function"),
        "PIT102",
        "sigmoid",
        "'sigmoid' where it should be 'gelu'",
    ),
    "operands exchanged": (lambda: one_operator("exchanged"), "PIT103", "sub", "exchanged"),
    "rows of both ranks in turn": (lambda: reshaped(True), "PIT107", "", "should be 1"),
    "an update that is lost": (lambda: updated(True), "PIT108", "", "without the term 'step'"),
    "an activation that is left out": (
        lambda: activated("all"),
        "PIT115",
        "linear",
        "(gelu) makes of it, which no rank computes",
    ),
    "an activation that one rank leaves out": (
        lambda: activated("one rank"),
        "PIT102",
        "identity",
        "which other ranks or micro-batches run",
    ),
    "axes in the other order": (
        lambda: gathered("w", "v"),
        "PIT107",
        "all_gather",
        "'w' and 1 more are cut over dp first, and each part over tp",
    ),
    "a factor in an operator and its derivative": (lambda: scaled(True), "PIT101", "mul", "1/2"),
}


OF_GIVEN = ("axes in the other order",)
"""Mistakes in what is given, not in what the plan does.

No run of the plan has the mistake, so other outputs are not compared with it.
"""


@pytest.mark.parametrize("name", RIGHT)
def test_right_plan_is_equivalent(name: str) -> None:
    report = run(RIGHT[name]())
    assert report.verdict == "equivalent", said(report)


@pytest.mark.parametrize("name", NAMED)
def test_the_mistake_is_named_once_however_often_it_was_made(name: str) -> None:
    pair, code, operator, words = NAMED[name]
    report = run(pair())
    assert report.verdict == "mismatch", said(report)
    (found,) = report.findings
    assert found.code == code, said(report)
    assert operator in (found.operator or ""), said(report)
    assert words in (found.cause or ""), said(report)
    compared = "every output that differs" if name in OF_GIVEN else "every output"
    assert f"(tested: with it, {compared} is right)" in (found.repair or ""), said(report)
    assert found.tried is not None
    assert (found.tried.wrong, found.tried.together) == ((), False)


def test_mistakes_of_two_kinds_are_two_findings_whatever_their_number() -> None:
    report = run(gradients({0: "missing", 1: "avg", 2: "avg"}))
    assert sorted(found.code for found in report.findings) == ["PIT104", "PIT111"], said(report)


@pytest.mark.parametrize("weight", ["w", "v"])
def test_the_one_weight_that_is_cut_in_the_other_order_is_named(weight: str) -> None:
    report = run(gathered(weight))
    assert report.verdict == "mismatch", said(report)
    assert f"{weight!r} is cut over dp first" in (report.findings[0].cause or ""), said(report)


def test_a_norm_that_has_a_tensor_twice_leaves_nothing_out() -> None:
    reference, parallel = norms(())
    twice = (
        replace(operator, inputs=("squared0",)) if operator.outputs == ("own1",) else operator
        for operator in parallel.operators
    )
    report = run((reference, replace(parallel, operators=tuple(twice))))
    assert report.verdict == "mismatch"
    assert report.findings[0].code != "PIT113", said(report)
