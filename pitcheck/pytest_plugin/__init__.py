"""The plugin of pytest: ``@pytest.mark.pitcheck`` and the fixture ``pitcheck_check``.

pytest imports this module when it starts, in every project where pitcheck is installed. So it
imports nothing heavy, and does nothing for tests without the mark and the fixture.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pitcheck.errors import UsageError
from pitcheck.pytest_plugin.marks import FIXTURE, KEYWORDS, MARK, Case, cases_of
from pitcheck.pytest_plugin.tally import Tally

if TYPE_CHECKING:
    from pitcheck.pytest_plugin.checker import Checker

_TALLY = pytest.StashKey[Tally]()
_NO_FIXTURE = (
    f"@pytest.mark.{MARK} is on a test without the fixture {FIXTURE!r}, so nothing is checked; add "
    f"{FIXTURE} to the arguments of the test and call it, or take the mark away"
)
_HIDDEN = (
    f"another fixture or parameter is called {FIXTURE!r} and hides that of pitcheck, so nothing is "
    f"checked; give it another name"
)
_TOO_LATE = (
    f"its marks list several meshes or seeds, or others than it runs with, and only one would be "
    f"checked; write @pytest.mark.{MARK} on the function, and not on a parameter or a TestCase"
)


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, for ``--strict-markers`` and ``pytest --markers``."""
    config.addinivalue_line(
        "markers",
        f"{MARK}({', '.join(KEYWORDS)}): the meshes, seeds and options of the checks that a test "
        f"makes with the fixture {FIXTURE}",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test of each mesh and seed that the mark lists.

    A wrong mark, and a mark on a test without the fixture, fail the collection.
    """
    if metafunc.definition.get_closest_marker(MARK) is None:
        return
    if FIXTURE not in metafunc.fixturenames:
        pytest.fail(f"{metafunc.definition.nodeid}: {_NO_FIXTURE}", pytrace=False)
    cases = _cases(metafunc.definition)
    if any(case.name for case in cases):
        metafunc.parametrize(FIXTURE, cases, indirect=True, ids=[case.name for case in cases])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that passes or skips although a check of it failed, or none was made."""
    if item.get_closest_marker(MARK) is not None and FIXTURE not in _fixtures(item):
        pytest.fail(_NO_FIXTURE, pytrace=False)
    if FIXTURE in _fixtures(item) and _TALLY not in item.stash:
        pytest.fail(_HIDDEN, pytrace=False)
    skipped = None
    try:
        result = yield
    except pytest.skip.Exception as error:
        skipped = error
    if skipped is not None:
        _fail_if(_tally(item).failed())
        raise skipped
    _fail_if(_tally(item).missing())
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
    call: pytest.CallInfo[None],  # noqa: ARG001  the hook's signature
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report a failure where a test or a fixture passed over a check that failed."""
    report = yield
    tally = _tally(item)
    if report.outcome == "failed" or _may_fail(item, report):
        tally.told = True
    elif not tally.told and (wrong := tally.failed()):
        tally.told = True
        report.outcome, report.longrepr = "failed", wrong
        if hasattr(report, "wasxfail"):
            del report.wasxfail
    return report


@pytest.fixture(name=FIXTURE)
def _pitcheck_check(request: pytest.FixtureRequest, tmp_path: Path) -> Checker:
    """Return a function that checks plans, and fails the test unless they are equivalent."""
    from pitcheck.pytest_plugin.checker import Checker  # noqa: PLC0415  only a test that checks pays for it

    node = request.node
    node.stash[_TALLY] = Tally()
    return Checker(_case(request), node.stash[_TALLY], tmp_path)


def _case(request: pytest.FixtureRequest) -> Case:
    """Return the case of a test. Fail if its marks ask for others, which nothing would check."""
    cases: list[Case] = _cases(request.node)
    case: Case = getattr(request, "param", cases[0])
    if case not in cases or (len(cases) > 1 and not hasattr(request, "param")):
        pytest.fail(f"{request.node.nodeid}: {_TOO_LATE}", pytrace=False)
    return case


def _cases(node: pytest.Item) -> list[Case]:
    """Return the checks that the marks of a test ask for; fail with the rule that one breaks."""
    __tracebackhide__ = True
    try:
        _check_stacked(node)
        return cases_of([(mark.args, mark.kwargs) for mark in node.iter_markers(MARK)])
    except UsageError as error:
        pytest.fail(f"{node.nodeid}: {error}", pytrace=False)


def _check_stacked(node: pytest.Item) -> None:
    """Raise UsageError if two marks at one place have a keyword: one of them would be lost."""
    seen: set[tuple[int, str]] = set()
    for place, mark in node.iter_markers_with_node(MARK):
        for keyword in mark.kwargs:
            if (id(place), keyword) in seen:
                raise UsageError(
                    f"two marks {MARK} on {place.name} have {keyword}; write one list of all"
                )
            seen.add((id(place), keyword))


def _may_fail(item: pytest.Item, report: pytest.TestReport) -> bool:
    """Return True if a test is marked as one that is expected to fail, and it was to."""
    return hasattr(report, "wasxfail") and item.get_closest_marker("xfail") is not None


def _fixtures(item: pytest.Item) -> list[str]:
    """Return the fixtures of a test; items of other plugins may have none."""
    return getattr(item, "fixturenames", [])


def _tally(item: pytest.Item) -> Tally:
    """Return what the checks of a test came to; one that asks for none has nothing to answer."""
    return item.stash.get(_TALLY, Tally(asked=False))


def _fail_if(wrong: str) -> None:
    if wrong:
        pytest.fail(wrong, pytrace=False)
