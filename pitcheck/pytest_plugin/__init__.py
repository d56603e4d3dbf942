"""The plugin of pytest: ``@pytest.mark.pitcheck`` and the fixture ``pitcheck_check``.

pytest imports this module when it starts, in every project where pitcheck is installed. So it
imports nothing heavy, and does nothing for tests without the mark and the fixture.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
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


@pytest.fixture(name=FIXTURE)
def _pitcheck_check(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Checker]:
    """Yield a function that checks plans, and fails the test unless they are equivalent."""
    from pitcheck.pytest_plugin.checker import Checker  # noqa: PLC0415  only a test that checks pays for it

    node = request.node
    case: Case = getattr(request, "param", None) or _cases(node)[0]
    node.stash[_TALLY] = Tally()
    yield Checker(case, node.stash[_TALLY], tmp_path)
    del node.stash[_TALLY]


def _cases(node: pytest.Item) -> list[Case]:
    """Return the checks that the marks of a test ask for; fail with the rule that one breaks."""
    __tracebackhide__ = True
    try:
        return cases_of([(mark.args, mark.kwargs) for mark in node.iter_markers(MARK)])
    except UsageError as error:
        pytest.fail(f"{node.nodeid}: {error}", pytrace=False)


def _fixtures(item: pytest.Item) -> list[str]:
    """Return the fixtures of a test; items of other plugins may have none."""
    return getattr(item, "fixturenames", [])


def _tally(item: pytest.Item) -> Tally:
    """Return what the checks of a test came to; one that asks for none has nothing to answer."""
    return item.stash.get(_TALLY, Tally(asked=False))


def _fail_if(wrong: str) -> None:
    if wrong:
        pytest.fail(wrong, pytrace=False)
