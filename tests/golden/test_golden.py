"""Every check of the golden file says what it said when the file was written."""

from __future__ import annotations

import pytest
from bugs.record import Built
from bugs.table import BUGS
from support.planner_plans import SHIPPED, SLOW_OF_PLANNER
from support.planner_plans import rows as rows_of_planner
from zoo.pairs import builders

from golden.account import Account, changes
from golden.compare import HINT, assert_as_golden
from golden.file import differences, read
from golden.rows import Row, rows
from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.report.report import EXIT_CODES

PARTS = 4
"""The rows of CI are compared in so many tests, which run side by side; each takes every fourth
row.
"""
NIGHTLY_PARTS = 8
SHOWN = 12
"""Lines of differences that a failure shows."""


def _compared(some: list[Row]) -> None:
    golden = read()
    told = [
        line for row in some for line in differences(row.name, golden.get(row.name), row.account())
    ]
    more = f"\nand {len(told) - SHOWN} more" if len(told) > SHOWN else ""
    assert not told, "\n".join(told[:SHOWN]) + f"{more}\n{HINT}"


def _left(nightly: bool) -> list[Row]:
    """Return the rows of the night, or those of CI that no other test compares."""
    return [row for row in rows().values() if row.nightly == nightly and not row.by_test]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_checks_say_what_the_golden_file_says(part: int) -> None:
    _compared(_left(nightly=False)[part::PARTS])


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("part", range(NIGHTLY_PARTS))
def test_more_checks_say_what_the_golden_file_says(part: int) -> None:
    _compared(_left(nightly=True)[part::NIGHTLY_PARTS])


def test_what_is_left_to_other_tests_is_what_they_check() -> None:
    """``assert_as_golden`` is called in ``bugs/test_bugs.py``, ``engine/test_zoo.py`` and
    ``frontends/nnscaler/test_planner.py``.
    """
    of_bugs = ((name, *next(iter(bug.shows.items()))) for name, bug in BUGS.items())
    of_planner = (row.name for row in rows_of_planner() if row.folder == SHIPPED)
    assert {row.name for row in rows().values() if row.by_test} == {
        *(f"bug {name}, {where}" for name, where, bug in of_bugs if not isinstance(bug, Built)),
        *(f"zoo {name}{stated}" for name in builders() for stated in ("", ", no lineage")),
        *(f"planner {name}" for name in of_planner if name not in SLOW_OF_PLANNER),
    }


def test_a_report_is_compared_with_its_row() -> None:
    reference, parallel = rows()["zoo row_parallel"].plans()
    assert_as_golden("zoo row_parallel", check(reference, parallel, Options(seed=1)))
    with pytest.raises(AssertionError, match="zoo gated_mlp: stages"):
        assert_as_golden("zoo gated_mlp", check(reference, parallel, Options(seed=1)))
    with pytest.raises(AssertionError, match="nothing: not in the file"):
        assert_as_golden("nothing", check(reference, parallel, Options(seed=1)))


def test_the_file_has_every_row_and_no_other() -> None:
    """A row that nobody compares would be believed."""
    assert list(read()) == list(rows()), HINT


def test_the_file_has_every_verdict_many_codes_and_all_kinds_of_stages() -> None:
    """A file of equivalent pairs alone would not notice a checker that says nothing."""
    golden = read()
    ours = [golden[row.name] for row in rows().values() if not row.nightly]
    assert {account.exit_code for account in ours} >= set(EXIT_CODES.values())
    assert {account.verdict for account in ours} == set(EXIT_CODES)
    assert len({finding.split()[0] for account in ours for finding in account.findings}) >= 35
    counts = [account.stages.split() for account in ours]
    assert all(any(int(count[place]) for count in counts) for place in range(6)), (
        "no stage is proven, failed, inconclusive or widened"
    )


def test_every_field_is_compared() -> None:
    right = Account(
        verdict="equivalent", exit_code=0, bound=-64.0, outputs="1/1", findings=("PIT301 a b",)
    )
    wrong = Account(
        verdict="mismatch",
        exit_code=1,
        bound=-63.9,
        outputs="0/1",
        stages="1",
        trials=1,
        primes=2,
        reductions=("4 3",),
    )
    assert not list(changes(right, right))
    told = list(changes(right, wrong))
    assert [line.partition(":")[0] for line in told] == list(Account.__struct_fields__)
    assert "findings: PIT301 a b -> none" in told
    assert list(differences("new", None, right)) == ["new: not in the file; add it with --write"]


def test_an_account_is_the_same_every_time() -> None:
    table = rows()
    for name in ("zoo row_parallel", "zoo gated_mlp, no lineage"):
        assert table[name].account() == table[name].account()
