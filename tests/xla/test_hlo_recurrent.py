"""Recurrent cells in flax, whose losses take logarithms of sums: proven by induction on a step.

``recurrent_programs.py`` has made the texts.
"""

from __future__ import annotations

from functools import partial

import pytest
from xla.hlo_pairs import cases_in, edits, is_right, plans_in

from pitcheck.base.options import Options
from pitcheck.commands.checking.attempts import checked_in_turn
from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.pair import attempts_on
from pitcheck.frontends.xla.text.parser import parse_hlo
from pitcheck.report.report import Report

CELLS = ("lstm", "gru")
WRONG = (
    (r"all-reduce\((%\S+)\).*", r"copy(\1)"),
    (r"(all-gather.*)T\(1,0\)", r"\1T(0,1)"),
    (r"logistic\(", "tanh("),
    (r"tanh\(", "logistic("),
    (r"subtract\((%[\w.-]+), (%[\w.-]+)\)", r"add(\1, \2)"),
)
EACH = 9
"""The mistakes from one that is tried to the next."""
MOST = 2
"""The mistakes that are looked for by day."""


def _report(before: str, after: str) -> Report:
    attempts = partial(attempts_on, parse_hlo(before), parse_hlo(after))
    return checked_in_turn(attempts, Options(seed=1, explain=False))


@pytest.mark.parametrize("name", CELLS)
def test_a_step_of_training_is_proven_by_induction(name: str) -> None:
    case = cases_in("recurrent.jsonl.gz")[name]
    report = _report(case["before"], case["after"])
    assert report.verdict == "equivalent"
    assert len([said for said in report.reductions if "by induction" in said]) == 2


@pytest.mark.parametrize("name", CELLS)
def test_a_mistake_in_it_is_not_proven(name: str) -> None:
    case = cases_in("recurrent.jsonl.gz")[name]
    found = edits(case["after"], WRONG)
    assert len(found) > 2 * EACH
    judged = 0
    for what, text in found[::EACH]:
        try:
            wrong = not is_right(*plans_in(case, after=text))
        except PlanError:
            continue
        if wrong and judged < MOST:
            judged += 1
            assert _report(case["before"], text).verdict != "equivalent", what
    assert judged == MOST
