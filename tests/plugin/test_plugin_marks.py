"""The mark of the plugin, and tests that would pass though nothing was checked or all is wrong."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from plugin.plugin_projects import PLUGIN, run, write_plans

from pitcheck.errors import UsageError
from pitcheck.pytest_plugin.marks import Case, cases_of
from pitcheck.pytest_plugin.tally import Tally

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def plans(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    write_plans(pytester.path)


# --- the mark as data


def cases(**keywords: Any) -> list[Case]:
    return cases_of([((), keywords)])


def test_a_mark_asks_for_a_check_of_each_mesh_and_seed() -> None:
    found = cases(mesh=[{"dp": 2, "tp": 2}, {"tp": 4}, "tp=4", ["a=1", "b.c=2"]], seeds=2)
    assert [case.name for case in found[:3]] == ["dp2-tp2-seed0", "dp2-tp2-seed1", "tp4-seed0"]
    assert [case.mesh for case in found[::2]] == [
        {"dp": 2, "tp": 2},
        {"tp": 4},
        ("tp=4",),
        ("a=1", "b.c=2"),
    ]
    assert [case.seed for case in found[:2]] == [0, 1]
    assert cases() == cases_of([]) == [Case()]
    assert cases(seeds=[5]) == [Case(seed=5)]
    assert cases(error_bound=1e-30)[0].options == {"error_bound": "1e-30"}


def test_the_nearest_mark_decides_about_its_keywords() -> None:
    near, far = ((), {"seeds": [3]}), ((), {"seeds": [4], "precision": "off"})
    assert cases_of([near, far]) == [Case(None, 3, {"precision": "off"})]
    with pytest.raises(UsageError, match="'sedes'"):
        cases_of([near, ((), {"sedes": 1})])


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        (
            {"meshes": []},
            "unknown keyword 'meshes'; the nearest is 'mesh'; the keywords are mesh, ",
        ),
        ({"mesh": []}, "an empty list, over which nothing is checked"),
        ({"mesh": {"dp": 2}}, "write a list such as mesh="),
        ({"mesh": None}, "mesh is None"),
        ({"mesh": [{}]}, "names no axis"),
        ({"mesh": [{"dp": 0}]}, "'dp': 0"),
        ({"mesh": [{"dp": True}]}, "'dp': True"),
        ({"mesh": [{"": 2}]}, "'': 2"),
        ({"mesh": ["tp"]}, "'tp'; write KEY=VALUE"),
        ({"mesh": [["=4"]]}, "'=4'; write KEY=VALUE"),
        ({"mesh": [[]]}, r"mesh has \[\]"),
        ({"mesh": [3]}, "mesh has 3"),
        ({"mesh": [{"tp": 2}, {"tp": 2}]}, "twice"),
        ({"seeds": 0}, "seeds=0 is a number of seeds, from 1 to 100"),
        ({"seeds": 12345}, r"as in seeds=\[12345\]"),
        ({"seeds": []}, r"seeds is \[\]"),
        ({"seeds": True}, "seeds is True"),
        ({"seeds": [-1]}, "seeds has -1"),
        ({"seeds": [2**128]}, "from 0 to 2"),
        ({"seeds": [1, 1]}, "seeds has 1 twice"),
    ],
)
def test_a_wrong_mark_is_refused(keywords: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        cases(**keywords)


def test_an_argument_without_a_keyword_is_refused() -> None:
    with pytest.raises(UsageError, match="without a keyword"):
        cases_of([(([{"dp": 2}],), {})])


def test_a_tally_answers_for_every_check() -> None:
    assert Tally(begun=1, passed=1).missing() == Tally(asked=False).missing() == ""
    assert "never called it" in Tally().missing()
    assert "1 of 2 checks ended without a verdict" in Tally(begun=2, passed=1).missing()
    assert Tally().failed() == ""
    assert "what it said was:\n\nmismatch" in Tally(begun=1, failures=["mismatch"]).failed()


# --- the mark in a project

WRONG_MARKS = """
import pytest

@pytest.mark.pitcheck({mark})
def test_it({arguments}):
    pass
"""


@pytest.mark.parametrize(
    ("mark", "arguments", "said"),
    [
        ("seed=3", "pitcheck_check", "*unknown keyword 'seed'; the nearest is 'seeds'*"),
        ("mesh=[]", "pitcheck_check", "*mesh is an empty list, over which nothing is checked*"),
        ("mesh=[{'tp': 2}]", "", "*is on a test without the fixture 'pitcheck_check'*"),
        ("", "", "*is on a test without the fixture 'pitcheck_check'*"),
    ],
)
def test_a_wrong_mark_fails_the_collection(
    pytester: pytest.Pytester, mark: str, arguments: str, said: str
) -> None:
    result = run(pytester, WRONG_MARKS.format(mark=mark, arguments=arguments))
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([said])
    assert "pitcheck/pytest_plugin" not in result.stdout.str()


def test_the_mark_counts_for_modules_and_classes(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest

        pytestmark = pytest.mark.pitcheck(seeds=2, error_bound="2^-90")

        class TestPlans:
            @pytest.mark.pitcheck(seeds=[8])
            def test_near(self, pitcheck_check):
                report = pitcheck_check("r.plan.json", "p.plan.json")
                assert report.seed == 8 and report.error_bound_log2 <= -90

            def test_far(self, pitcheck_check):
                assert pitcheck_check("r.plan.json", "p.plan.json").seed in (0, 1)
        """,
        "-v",
    )
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*::test_near PASSED*", "*::test_far?seed0? PASSED*"])


def test_a_mark_on_what_has_no_fixtures_fails(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import unittest
        import pytest

        @pytest.mark.pitcheck
        class TestOld(unittest.TestCase):
            def test_it(self):
                pass
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*is on a test without the fixture*"])


# --- tests that must not pass


def test_a_test_that_checks_nothing_or_goes_on_after_a_failure_fails(
    pytester: pytest.Pytester,
) -> None:
    result = run(
        pytester,
        """
        import threading
        import pytest

        WRONG = ("r.plan.json", "w.plan.json")

        @pytest.mark.pitcheck
        def test_never_called(pitcheck_check):
            pass

        def test_never_called_without_mark(pitcheck_check):
            pass

        def test_swallowed(pitcheck_check):
            try:
                pitcheck_check(*WRONG)
            except BaseException:
                pass

        def test_expected(pitcheck_check):
            with pytest.raises(pytest.fail.Exception):
                pitcheck_check(*WRONG)

        def test_then_right(pitcheck_check):
            try:
                pitcheck_check("none.plan.json", "p.plan.json")
            except BaseException:
                pitcheck_check("r.plan.json", "p.plan.json")

        def test_then_skipped(pitcheck_check):
            try:
                pitcheck_check(*WRONG)
            except BaseException:
                pytest.skip("not today")

        def test_other_thread(pitcheck_check):
            def work():
                try:
                    pitcheck_check(*WRONG)
                except BaseException:
                    pass
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()

        def test_error_of_pitcheck(pitcheck_check, monkeypatch):
            pitcheck_check("r.plan.json", "p.plan.json")
            from pitcheck.pytest_plugin import subjects
            monkeypatch.setattr(subjects, "checked_sources", lambda *_, **__: 1 / 0)
            try:
                pitcheck_check("r.plan.json", "p.plan.json")
            except ZeroDivisionError:
                pass
        """,
        "-rA",
    )
    result.assert_outcomes(failed=8)
    result.stdout.fnmatch_lines(
        [
            "*test_never_called - Failed: nothing was checked*",
            "*test_never_called_without_mark - Failed: nothing was checked*",
            *(
                f"*test_{name} - Failed: *"
                for name in ("swallowed", "expected", "then_right", "then_skipped", "other_thread")
            ),
            "*test_error_of_pitcheck - Failed: 1 of 2 checks ended*",
        ]
    )
    text = result.stdout.str()
    assert text.count("a check failed, and the test went on") >= 4
    assert "traceback entries are hidden" not in text
    assert "During handling" not in text


def test_what_pytest_is_told_to_skip_or_expect_stays_so(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest

        @pytest.mark.xfail(strict=True)
        def test_known(pitcheck_check):
            pitcheck_check("r.plan.json", "w.plan.json")

        @pytest.mark.xfail(strict=True)
        def test_repaired(pitcheck_check):
            pitcheck_check("r.plan.json", "p.plan.json")

        def test_skipped(pitcheck_check):
            pytest.skip("no plan here")

        @pytest.mark.skip
        @pytest.mark.pitcheck
        def test_skipped_before(pitcheck_check):
            pass
        """,
    )
    result.assert_outcomes(xfailed=1, failed=1, skipped=2)


def test_a_fixture_of_the_project_may_make_the_check(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture
        def checked(pitcheck_check):
            return pitcheck_check("r.plan.json", "p.plan.json")
        """
    )
    result = run(
        pytester,
        """
        import pytest

        @pytest.mark.pitcheck(seeds=2)
        def test_it(checked):
            assert checked.verdict == "equivalent"

        def test_later(request):
            request.getfixturevalue("pitcheck_check")
        """,
    )
    result.assert_outcomes(passed=2, failed=1)


# --- the plugin among others


def test_workers_share_no_file(pytester: pytest.Pytester) -> None:
    before = {path.name for path in pytester.path.iterdir()}
    result = run(
        pytester,
        """
        import pytest

        @pytest.mark.pitcheck(seeds=3)
        @pytest.mark.parametrize("plan", "pw")
        def test_it(pitcheck_check, plan, tmp_path):
            try:
                pitcheck_check("r.plan.json", f"{plan}.plan.json")
            finally:
                witnesses = [path.name for path in tmp_path.iterdir()]
                assert len(witnesses) == (plan == "w"), witnesses
        """,
        "-n2",
    )
    result.assert_outcomes(passed=3, failed=3)
    # Where CI is set, the summary at the end repeats the failures.
    failures, _, _ = result.stdout.str().partition("short test summary info")
    assert failures.count("error[PIT108]") == 3
    written = {path.name for path in pytester.path.iterdir()} - before
    assert not {name for name in written if name.startswith(".pitcheck")}


HEAVY = {"numpy", "torch", "click", "rich", "msgspec", "jinja2", "networkx", "mpmath", "galois"}


def test_a_project_without_the_mark_pays_nothing(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        f"""
        import sys

        def test_it():
            assert "pitcheck.pytest_plugin" in sys.modules
            assert not {HEAVY} & sys.modules.keys()
        """,
    )
    result.assert_outcomes(passed=1)
    assert "pitcheck" not in result.stderr.str()
    markers = pytester.runpytest_subprocess(*PLUGIN, "--markers")
    markers.stdout.fnmatch_lines(["@pytest.mark.pitcheck(mesh, seeds, error_bound, *"])


def test_the_entry_point_loads_it_once(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installation of this checkout, which names the plugin as pyproject.toml does."""
    declared = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    entry = next(
        line.replace('"', "").partition("#")[0]
        for line in declared.split("[project.entry-points.pytest11]\n")[1].splitlines()
    )
    installed = pytester.mkdir("installed") / "pitcheck_here-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: pitcheck-here\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(f"[pytest11]\n{entry}\n")
    monkeypatch.setenv("PYTHONPATH", str(installed.parent), prepend=":")
    pytester.makepyfile(
        "def test_it(pitcheck_check):\n    pitcheck_check('r.plan.json', 'p.plan.json')\n"
    )
    for options in ((), PLUGIN):
        pytester.runpytest_subprocess(*options).assert_outcomes(passed=1)
    blocked = pytester.runpytest_subprocess("-p", "no:pitcheck.pytest_plugin")
    blocked.stdout.fnmatch_lines(["*fixture 'pitcheck_check' not found*"])


def test_importing_the_plugin_needs_pytest_alone() -> None:
    code = f"import sys, pitcheck.pytest_plugin; print(sorted({HEAVY} & sys.modules.keys()))"
    shown = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert shown.stdout == "[]\n"


SHADOWED = """
    import pytest

    @pytest.fixture
    def pitcheck_check():
        return lambda *_: None

    @pytest.mark.pitcheck(precision="error")
    def test_hidden(pitcheck_check):
        pitcheck_check(*WRONG)

    @pytest.mark.parametrize("pitcheck_check", [lambda *_: None])
    def test_replaced(pitcheck_check):
        pitcheck_check(*WRONG)
    """
STACKED = """
    import pytest

    @pytest.mark.pitcheck(seeds=[1])
    @pytest.mark.pitcheck(seeds=[2])
    def test_stacked(pitcheck_check):
        pitcheck_check(*RIGHT)
    """
TOO_LATE = """
    import pytest

    @pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.pitcheck(seeds=[1, 2]))])
    def test_of_a_parameter(pitcheck_check, n):
        pitcheck_check(*RIGHT)

    @pytest.mark.pitcheck(seeds=[1, 2])
    @pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.pitcheck(seeds=[3, 4]))])
    def test_of_both(pitcheck_check, n):
        pitcheck_check(*RIGHT)
    """
PASSED_OVER = """
    import unittest
    import pytest

    def swallowed(check):
        try:
            check(*WRONG)
        except BaseException:
            pass

    def test_unittest_skip(pitcheck_check):
        swallowed(pitcheck_check)
        raise unittest.SkipTest("no")

    def test_imperative_xfail(pitcheck_check):
        swallowed(pitcheck_check)
        pytest.xfail("known")

    @pytest.fixture
    def skipping(pitcheck_check):
        swallowed(pitcheck_check)
        pytest.skip("no")

    def test_skipped_by_a_fixture(skipping):
        pass
    """
NAMES = 'RIGHT = ("r.plan.json", "p.plan.json")\nWRONG = ("r.plan.json", "w.plan.json")\n'


@pytest.mark.parametrize(
    ("text", "said", "count"),
    [
        (SHADOWED, "hides that of pitcheck", 2),
        (STACKED, "two marks pitcheck on", 1),
        (TOO_LATE, "only one would be checked", 3),
        (PASSED_OVER, "a check failed, and the test went on", 3),
    ],
    ids=["shadowed", "stacked", "too late", "passed over"],
)
def test_what_would_hide_a_check_fails(
    pytester: pytest.Pytester, text: str, said: str, count: int
) -> None:
    write_plans(pytester.path)
    result = run(pytester, NAMES + textwrap.dedent(text))
    outcomes = result.parseoutcomes()
    assert not outcomes.keys() & {"passed", "skipped", "xfailed"}, outcomes
    assert sum(outcomes.get(each, 0) for each in ("failed", "errors", "error")) == count
    assert said in result.stdout.str()
