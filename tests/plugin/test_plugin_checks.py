"""The fixture of the plugin: what it is given is equivalent, or the test fails with the finding."""

from __future__ import annotations

from pathlib import Path

import pytest
from plugin.plugin_projects import (
    FITS_EVERY_SIZE,
    FITS_TWO,
    run,
    write_plans,
    write_program,
)

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def plans(pytester: pytest.Pytester) -> None:
    write_plans(pytester.path)


def test_right_plans_pass_and_a_wrong_one_fails_with_its_finding(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        from pathlib import Path

        def test_right(pitcheck_check):
            report = pitcheck_check("r.plan.json", Path("p.plan.json"))
            assert (report.verdict, report.seed, report.outputs.proven) == ("equivalent", 0, 1)

        def test_wrong(pitcheck_check):
            pitcheck_check("r.plan.json", "w.plan.json", error_bound="2^-80")
        """,
    )
    result.assert_outcomes(passed=1, failed=1)
    text = result.stdout.str()
    assert " and an input shows it" in text
    assert "error[PIT" in text
    assert "= cause: " in text
    assert "model.py:9" in text
    assert "pitcheck check r.plan.json w.plan.json --seed=0 '--error-bound=2^-80'" in text
    assert "pitcheck/pytest_plugin" not in text, "frames of pitcheck are of no use to the reader"
    result.stdout.fnmatch_lines(["FAILED test_plans.py::test_wrong - *mismatch: *"])


def test_plans_in_memory_are_taken_and_held_to_the_format(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import msgspec
        from pitcheck.plan.files import read_plan

        R, P, W = (read_plan(f"{name}.plan.json") for name in "rpw")

        def test_right(pitcheck_check):
            pitcheck_check(R, P)
            pitcheck_check(R, "p.plan.json")

        def test_wrong(pitcheck_check):
            pitcheck_check(R, W)

        def test_malformed(pitcheck_check):
            pitcheck_check(R, msgspec.structs.replace(P, microbatches="two"))

        def test_alone(pitcheck_check):
            pitcheck_check(R)

        def test_no_plan(pitcheck_check):
            pitcheck_check(R, 3)
        """,
    )
    result.assert_outcomes(passed=1, failed=4)
    result.stdout.fnmatch_lines(
        [
            "mismatch: *",
            "invalid: a plan is malformed*",
            "*the second plan is missing*",
            "*the parallel is of type int*",
        ]
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("verdict='inconclusive'", "inconclusive: 0 of 0 outputs proven"),
        ("verdict='nothing-checked'", "nothing-checked: no output was compared"),
        ("verdict='invalid'", "invalid: a plan is malformed or cannot run"),
        ("verdict='equivalent'", "equivalent: 0 of 0 outputs proven"),
        (
            "verdict='equivalent', outputs=OutputCounts(total=2, proven=1)",
            "equivalent: 1 of 2 outputs proven",
        ),
        (
            "verdict='equivalent', outputs=OutputCounts(total=1, proven=1), "
            "findings=(Finding(code='PIT301', verdict='imprecise', title='t'),)",
            "a precision rule is broken (exit code 4)",
        ),
    ],
)
def test_no_other_outcome_passes(pytester: pytest.Pytester, fields: str, said: str) -> None:
    result = run(
        pytester,
        f"""
        from pitcheck.pytest_plugin import subjects
        from pitcheck.report.report import Finding, OutputCounts, Report

        def test_it(pitcheck_check, monkeypatch):
            monkeypatch.setattr(subjects, "checked_sources", lambda *_, **__: Report({fields}))
            pitcheck_check("r.plan.json", "p.plan.json")
        """,
    )
    result.assert_outcomes(failed=1)
    assert said in result.stdout.str()


def test_what_cannot_be_read_and_wrong_options_fail(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest

        @pytest.mark.pitcheck(mesh=["tp=2"])
        def test_plans_have_one_mesh(pitcheck_check):
            pitcheck_check("r.plan.json", "p.plan.json")

        @pytest.mark.pitcheck(estimates="maybe")
        def test_estimates(pitcheck_check):
            pitcheck_check("r.plan.json", "p.plan.json")

        @pytest.mark.pitcheck(error_bound=2)
        def test_bound(pitcheck_check):
            pitcheck_check("r.plan.json", "p.plan.json")

        def test_none(pitcheck_check):
            pitcheck_check("r.plan.json", "none.plan.json")

        def test_half(pitcheck_check):
            pitcheck_check("r.plan.json")
        """,
    )
    result.assert_outcomes(failed=5)
    result.stdout.fnmatch_lines(
        [
            "*tp=2 changes a program or a configuration, and two plans are what they are*",
            "*'maybe' is not one of 'accept', 'refuse'*",
            "*--error-bound '2' is no probability*",
            "*none.plan.json: no such file*",
            "*PARALLEL is missing beside r.plan.json*",
        ]
    )


def test_settings_of_the_project_count(pytester: pytest.Pytester) -> None:
    pytester.makefile(".toml", pitcheck='error-bound = "2^-100"\nbaseline = "accepted.json"\n')
    text = """
        import pytest

        def test_settings(pitcheck_check):
            assert pitcheck_check("r.plan.json", "p.plan.json").error_bound_log2 <= -100

        def test_a_baseline_accepts_nothing(pitcheck_check):
            pitcheck_check("r.plan.json", "w.plan.json")
        """
    run(pytester, text).assert_outcomes(passed=1, failed=1)
    pytester.makefile(".toml", pitcheck="eror-bound = 3\n")
    result = run(pytester, text)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*unknown key 'eror-bound'; the nearest is 'error-bound'*"])


def test_a_configuration_is_checked_at_every_layout(pytester: pytest.Pytester) -> None:
    file = ROOT / "plans" / "llama3-tiny.toml"
    result = run(
        pytester,
        f"""
        import pytest

        MESH = [{{"dp": 1, "tp": 2}}, "tp=3", ["pp=1", "dp=1"]]

        @pytest.mark.pitcheck(mesh=MESH, precision="off")
        def test_layout(pitcheck_check):
            report = pitcheck_check({str(file)!r}, assignments=["microbatches=1", "length=4"])
            print("mesh is", report.mesh)
        """,
        "-vrP",
    )
    result.assert_outcomes(passed=2, failed=1)
    text = result.stdout.str()
    for name, outcome in (("dp1-tp2", "PASSED"), ("tp=3", "FAILED"), ("pp=1-dp=1", "PASSED")):
        assert f"test_layout[{name}] {outcome}" in text
    assert "'tp': 2" in text
    assert "invalid: a plan is malformed or cannot run" in text


def test_programs_of_files_are_checked_in_new_processes(pytester: pytest.Pytester) -> None:
    """Both folders have a module ``scale``; the right one must not stand in for the other."""
    write_program(pytester.path / "right", FITS_EVERY_SIZE)
    write_program(pytester.path / "wrong", FITS_TWO)
    result = run(
        pytester,
        """
        import sys
        import pytest

        sys.path.insert(0, "right")
        import scale

        @pytest.mark.pitcheck(mesh=[{"dp": 2}, {"dp": 4}])
        @pytest.mark.parametrize("folder", ["right", "wrong"])
        def test_it(pitcheck_check, folder):
            report = pitcheck_check(f"{folder}/program.py:spec")
            assert "torch" not in sys.modules
            print("mesh is", report.mesh)

        @pytest.mark.pitcheck(mesh=[{"tp": 2}])
        def test_axis(pitcheck_check):
            pitcheck_check("right/program.py:spec")

        def test_name(pitcheck_check):
            pitcheck_check("right/program.py:spek")

        @pytest.mark.pitcheck(mesh=["dp=2"])
        def test_assignment(pitcheck_check):
            pitcheck_check("right/program.py:spec")
        """,
        "-vrP",
    )
    result.assert_outcomes(passed=3, failed=4)
    text = result.stdout.str()
    outcomes = {"right-dp2": "PASSED", "right-dp4": "PASSED", "wrong-dp2": "PASSED"}
    for name, outcome in {**outcomes, "wrong-dp4": "FAILED"}.items():
        folder, size = name.split("-")
        assert any(f"test_it[{each}] {outcome}" in text for each in (name, f"{size}-{folder}")), (
            name
        )
    assert "mesh is {'dp': 4}" in text
    assert " and an input shows it" in text
    assert "the mesh of the specification has no axis 'tp'; its axes are dp" in text
    assert "'spek' of right/program.py is not there" in text
    assert "dp=2 are assignments, which change a configuration" in text


def test_a_specification_in_memory_is_checked(pytester: pytest.Pytester) -> None:
    write_program(pytester.path, FITS_TWO)
    result = run(
        pytester,
        """
        import pytest
        from program import spec

        @pytest.mark.pitcheck(mesh=[{"dp": 2}, {"dp": 4}], seeds=[7])
        def test_it(pitcheck_check):
            assert pitcheck_check(spec).seed == 7
        """,
        "-v",
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*test_it?dp2? PASSED*", "*test_it?dp4? FAILED*"])


def test_a_program_that_kills_its_process_fails(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(killed="import os\nos.kill(os.getpid(), 9)\n")
    result = run(
        pytester,
        """
        def test_it(pitcheck_check):
            pitcheck_check("killed.py:spec")
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*the process that checks killed.py:spec ended with exit code -9*"]
    )
