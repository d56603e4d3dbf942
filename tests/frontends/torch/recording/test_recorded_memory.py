"""Programs that are recorded and proven, run under every timing.

Their results are the reference's. Unusual and legal programs are proven.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import cache

import pytest
from frontends.torch.recording.timing import judged
from frontends.torch.recording.written_drafts import right_program
from frontends.torch.recording.written_mistakes import MISTAKES, mistakes
from frontends.torch.recording.written_programs import Task, Written, spec_of

from pitcheck.commands.checking.pair import checked
from pitcheck.frontends.torch.planning.build import parallel_plan, reference_plan
from pitcheck.frontends.torch.planning.compared_state import matched
from pitcheck.frontends.torch.recording.record import record
from pitcheck.frontends.torch.trace import Trace
from pitcheck.plan.model import Plan
from pitcheck.report.report import Report
from pitcheck.torch import Options

SAME = "same"


@cache
def alone(task: Task) -> Trace:
    """The reference of all programs of a task, recorded once."""
    return record(spec_of(Written(task, ())), "reference", 1)[0]


def report_on(program: Written) -> Report:
    """Return pitcheck's report on a program."""

    def plans() -> list[Plan]:
        spec = spec_of(program)
        trace, traces = matched(alone(program.task), record(spec, "parallel", 1), spec)
        reference = reference_plan(trace, spec)
        return [reference, parallel_plan(traces, spec, reference)]

    return checked([plans], Options(seed=1, jobs=1))


def found_in(report: Report) -> tuple[str, str]:
    """Code and title of the first finding."""
    return next(
        (
            (finding.code, finding.title)
            for finding in report.findings
            if finding.verdict != "warning"
        ),
        ("", ""),
    )


def right(seeds: range) -> None:
    """The programs of these seeds are right, and proven."""
    for seed in seeds:
        program = right_program(seed)
        report = report_on(program)
        assert (judged(program), report.verdict) == (SAME, "equivalent"), (seed, found_in(report))


def campaign(seeds: range, each: int) -> Counter[str]:
    """Put mistakes into the programs of some seeds. Fails on one that is proven although some
    timing shows it, or that is called different although none does.

    Returns how many there were by what they are, and by their kind.
    """
    counts: Counter[str] = Counter()
    for seed in seeds:
        choose = random.Random(seed)
        for kind, program in mistakes(right_program(seed), choose, each):
            said, report = judged(program), report_on(program)
            what = (seed, kind, said, report.verdict, *found_in(report))
            assert what[-2] != "PIT900", what
            assert report.verdict != ("mismatch" if said == SAME else "equivalent"), what
            counts["right" if said == SAME else "wrong"] += 1
            counts[f"{kind}: {'right' if said == SAME else 'wrong'}"] += 1
    return counts


def test_the_judge_knows_right_and_wrong_programs() -> None:
    """Every kind of mistake is one somewhere; to keep a buffer that was made anew never is."""
    assert {judged(right_program(seed)) for seed in range(8)} == {SAME}
    for kind, mistake in MISTAKES.items():
        choose = random.Random(0)
        changed = (
            mistake(right_program(seed), choose)
            for seed in range(8 if kind == "keep a buffer" else 60)
        )
        said = (judged(program) for program in changed if program is not None)
        assert any(text != SAME for text in said) == (kind != "keep a buffer"), kind


def test_unusual_programs_that_are_right_are_proven() -> None:
    right(range(3))


def test_no_mistake_of_time_and_memory_is_proven() -> None:
    counts = campaign(range(1000, 1003), 4)
    assert counts["wrong"] >= 3, counts


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("part", range(4))
def test_many_unusual_programs_that_are_right_are_proven(part: int) -> None:
    right(range(100 + part * 50, 150 + part * 50))


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("part", range(4))
def test_no_mistake_of_time_and_memory_is_proven_of_many(part: int) -> None:
    counts = campaign(range(2000 + part * 40, 2040 + part * 40), 10)
    assert counts["wrong"] > 150, counts
