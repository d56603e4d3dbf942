"""The shipped plans: one proof, one caught bug, from a checkout and from an installation."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Call

from pitcheck.commands.demo import EXPECTED, REFERENCE
from pitcheck.report.report import VOLATILE
from pitcheck.resources import shipped

DEMO = Path(__file__).parents[2] / "plans" / "demo"


def test_demo_proves_one_pair_and_catches_the_other(call: Call) -> None:
    result = call("demo")
    assert (result.code, result.err) == (0, "")
    assert "equivalent: 5 of 5 outputs proven (8 ranks, " in result.out
    assert "\nerror[PIT104]" in result.out
    assert "mismatch: " in result.out


def test_demo_fails_where_a_verdict_is_not_the_expected_one(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pitcheck.commands.demo.EXPECTED", ((EXPECTED[0][0], "mismatch", "wrong"),))
    result = call("demo")
    assert result.code == 2
    assert "is equivalent, not mismatch" in result.err


def test_check_of_the_shipped_plans(call: Call) -> None:
    for file, verdict, _ in EXPECTED:
        result = call(
            "check", str(DEMO / REFERENCE), str(DEMO / file), "--output", "json:-", "--seed", "3"
        )
        report = json.loads(result.out)
        assert (report["verdict"], report["exit_code"]) == (verdict, result.code)
        assert report["mesh"] == {"dp": 2, "pp": 2, "tp": 2}
        again = json.loads(
            call(
                "check",
                str(DEMO / REFERENCE),
                str(DEMO / file),
                "--output",
                "json:-",
                "--seed",
                "3",
            ).out
        )
        assert {key: report[key] for key in report if key not in VOLATILE} == {
            key: again[key] for key in again if key not in VOLATILE
        }
        if verdict == "equivalent":
            assert report["error_bound_log2"] <= -64
            assert report["outputs"] == {"total": 5, "proven": 5}


def test_the_shipped_plans_are_valid(call: Call) -> None:
    for file, _, _ in EXPECTED:
        result = call("plan", "validate", str(DEMO / file), "--reference", str(DEMO / REFERENCE))
        assert (result.code, result.err) == (0, "")


def test_shipped_folders_are_found() -> None:
    assert (shipped("plans", "plans") / "demo" / REFERENCE).is_file()
    assert (shipped("causes", "docs/causes") / "PIT104.md").is_file()


@pytest.mark.slow
def test_a_wheel_holds_all_that_the_commands_need(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "-w",
        str(tmp_path),
        str(root),
    ]
    subprocess.run(build, check=True, timeout=300, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--target",
            str(site),
            str(wheel),
        ],
        check=True,
        timeout=300,
        capture_output=True,
    )
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r}); import pitcheck, pitcheck.cli; "
        f"print(pitcheck.__file__); sys.exit(pitcheck.cli.main(sys.argv[1:]))"
    )
    for arguments in (["demo"], ["explain", "PIT104"]):
        result = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            check=False,
            timeout=120,
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        assert result.returncode == 0, result.stderr
        assert str(site) in result.stdout.splitlines()[0]
