"""Known bugs: each is caught where it shows, by its cause; where the same code is right, nothing is
said.
"""

from __future__ import annotations

from typing import Any

import pytest
from bugs.record import Bug, Built, Pair, Written
from bugs.surgery import without_hints
from bugs.table import BUGS, PAGE, first_of, is_named, named_today, page, said
from golden.compare import SEED, assert_as_golden

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.report.codes import CODES

SLOW = [pytest.mark.slow]
NIGHTLY = [pytest.mark.slow, pytest.mark.nightly]


def settings(kind: str, first: list[Any], others: list[Any]) -> list[Any]:
    """Return every configuration of every bug; ``first``: the marks of the first one of each, of
    which one in three is fast.
    """
    found = []
    for number, (name, bug) in enumerate(BUGS.items()):
        marks = SLOW if (bug.slow or number % 3) and not first else first
        found += [
            pytest.param(name, where, id=f"{name}: {where}", marks=others if place else marks)
            for place, where in enumerate(getattr(bug, kind))
        ]
    return found


def programs() -> list[Any]:
    """Every configuration; what the builders build is proven elsewhere, too.

    Of plans written by hand the first one of each bug is proven by day.
    """
    return [
        pytest.param(name, where, id=f"{name}: {where}", marks=NIGHTLY if left else [])
        for name, bug in BUGS.items()
        for place, (where, setting) in enumerate({**bug.shows, **bug.silent}.items())
        for left in [isinstance(setting, Built) or (isinstance(setting, Written) and place > 0)]
    ]


def assert_proven(plans: Pair) -> None:
    """Equivalent in every output."""
    report = check(*plans, Options(seed=1))
    assert report.verdict == "equivalent", [said(finding) for finding in report.findings[:3]]
    assert report.outputs.proven == report.outputs.total == len(plans[0].outputs)


@pytest.mark.parametrize(("name", "where"), settings("shows", [], NIGHTLY))
def test_a_bug_is_caught_where_it_shows(name: str, where: str) -> None:
    bug: Bug = BUGS[name]
    setting = bug.shows[where]
    assert setting.changes(), "the buggy program computes the same"
    report = check(*setting.wrong(), Options(seed=SEED))
    if where == next(iter(bug.shows)) and not isinstance(setting, Built):
        assert_as_golden(f"bug {name}, {where}", report)
    first = first_of(report)
    assert first is not None
    today = named_today().get(name, {}).get(where)
    assert first.code == today if today else is_named(bug, first), said(first)
    assert report.verdict == next(code.verdict for code in CODES if code.code == first.code)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(
    "name",
    [name for name, bug in BUGS.items() if isinstance(next(iter(bug.shows.values())), Built)],
)
def test_a_bug_is_caught_without_a_word_on_what_lies_between(name: str) -> None:
    reference, wrong = next(iter(BUGS[name].shows.values())).wrong()
    assert check(reference, without_hints(wrong), Options(seed=1)).verdict == "mismatch"


@pytest.mark.parametrize(("name", "where"), settings("silent", NIGHTLY, NIGHTLY))
def test_the_same_code_is_right_elsewhere(name: str, where: str) -> None:
    setting = BUGS[name].silent[where]
    assert not setting.changes(), BUGS[name].was
    wrong = setting.wrong()
    if wrong != setting.right():
        assert_proven(wrong)


@pytest.mark.parametrize(("name", "where"), programs())
def test_the_right_program_is_proven(name: str, where: str) -> None:
    assert_proven({**BUGS[name].shows, **BUGS[name].silent}[where].right())


def test_what_is_named_today_is_of_bugs_that_are_recorded() -> None:
    """And is none of the codes that they want, but where words are wanted, too, which a finding at
    another place lacks.
    """
    for name, codes in named_today().items():
        assert codes.keys() <= BUGS[name].shows.keys()
        assert BUGS[name].says or not set(codes.values()) & set(BUGS[name].codes)


def test_the_page_has_all_bugs() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "write it anew: PYTHONPATH=.:tests python -m bugs --page"
    )
