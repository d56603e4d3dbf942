"""Mistakes that are easily made when a model is spread over ranks: each is named, and the program
next to it without the mistake is proven.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from explain.spread_plans import (
    exchanged_heads,
    gated,
    gathered,
    halved,
    mean_loss,
    never_synchronised,
    over_axes,
    positions,
    scattered,
    updated,
    vocabulary,
)
from support.explain_plans import Pair, run, said

RIGHT: dict[str, Callable[[], Pair]] = {
    "heads": exchanged_heads,
    "columns": lambda: gathered(1),
    "mean": mean_loss,
    "rows": lambda: scattered(0),
    "update": lambda: updated(False),
    "vocabulary": lambda: vocabulary(0, 4),
    "positions": lambda: positions(0, 3),
    "axes": lambda: over_axes("dp"),
    "gate": lambda: gated(False),
    "constant": lambda: halved(False),
    "shards": lambda: never_synchronised(True),
}
WRONG: dict[str, tuple[Callable[[], Pair], tuple[str, ...], str, str]] = {
    "heads come back mixed": (
        lambda: exchanged_heads("back"),
        ("PIT107",),
        "all_to_all",
        "concat_axis = 0 where it should be 2",
    ),
    "tokens are mixed on their way": (
        lambda: exchanged_heads("there"),
        ("PIT107",),
        "reshape",
        "mixes the 2 parts of cp",
    ),
    "columns as if they were rows": (
        lambda: gathered(0),
        ("PIT107",),
        "all_gather",
        "axis = 0 where it should be 1",
    ),
    "no average": (lambda: mean_loss("sum"), ("PIT101", "PIT111"), "all_reduce", "mean"),
    "averaged twice": (lambda: mean_loss("twice"), ("PIT101",), "div", "1/4 (size of dp: 4)"),
    "scattered along columns": (lambda: scattered(1), ("PIT107",), "", "another order"),
    "weights of before the update": (
        lambda: updated(True),
        ("PIT116",),
        "all_gather",
        "read too early",
    ),
    "every rank has the first words": (
        lambda: vocabulary(0, 0),
        ("PIT107",),
        "positions",
        "offset = 0 on rank 1 where it should be 4",
    ),
    "ranks have each other's words": (
        lambda: vocabulary(4, 0),
        ("PIT107",),
        "positions",
        "where it should be",
    ),
    "words begin one too early": (
        lambda: vocabulary(0, 3),
        ("PIT107",),
        "positions",
        "offset = 3 on rank 1 where it should be 4",
    ),
    "every rank begins at position 0": (
        lambda: positions(0, 0),
        ("PIT107",),
        "slice",
        "start = 0 on rank 1 where it should be 3",
    ),
    "summed over the other axis": (lambda: over_axes("tp"), ("PIT106",), "all_reduce", "over dp"),
    "gate and up exchanged": (lambda: gated(True), ("PIT103",), "linear", "each other's place"),
    "half of a constant": (lambda: halved(True), ("PIT102",), "mul", "reference has 1/2"),
    "never synchronised": (
        lambda: never_synchronised(False),
        ("PIT104",),
        "linear.backward",
        "also|the same mistake is made at",
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_program_is_proven(name: str) -> None:
    report = run(RIGHT[name]())
    assert report.verdict == "equivalent", said(report)


@pytest.mark.parametrize("name", WRONG)
def test_the_mistake_is_named_and_its_repair_makes_every_output_right(name: str) -> None:
    pair, codes, operator, words = WRONG[name]
    report = run(pair())
    assert report.verdict == "mismatch", said(report)
    (found,) = report.findings
    assert found.code in codes and operator in (found.operator or ""), said(report)
    told = f"{found.cause} {found.repair}"
    assert any(word in told for word in words.split("|")), said(report)
    assert found.tried is not None and not found.tried.wrong, said(report)
