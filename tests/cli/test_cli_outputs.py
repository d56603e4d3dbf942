"""Outputs of whole processes: descriptors, pipes, and streams that are closed or full."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli.cli_plans import parallel, reference

from pitcheck.plan.files import write_plan

PROGRAM = """
import sys
from types import ModuleType
from pitcheck.cli import main
from pitcheck.report.report import Finding, Report, Shown

verdict, *options = sys.argv[1:]
finding = Finding(code="PIT100", verdict="mismatch", title="y differs")
shown = Shown("y", (0,), "1", "2", "by hand")
engine = ModuleType("pitcheck.engine.check")
engine.check = lambda *_: (
    Report(verdict="equivalent")
    if verdict == "equivalent"
    else Report(verdict="mismatch", shown=shown, findings=(finding,))
)
sys.modules[engine.__name__] = engine
sys.exit(main(["check", "r.plan.json", "p.plan.zst", *options]))
"""
"""A command line whose check takes no time and gives the verdict that is asked for."""

CODES = {"equivalent": 0, "mismatch": 1}
FAILED = {"equivalent": 2, "mismatch": 1}
"""Exit codes if an output could not be written."""

pytestmark = [
    pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash"),
    pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full and /dev/fd"),
]


@pytest.fixture(autouse=True)
def plans(folder: Path) -> None:
    write_plan(reference(), "r.plan.json")
    write_plan(parallel(), "p.plan.zst")
    (folder / "program.py").write_text(PROGRAM)


def shell(
    verdict: str, words: str, before: str = "", after: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the check by a shell, with options and redirections, between two commands."""
    return run_shell(f'{before} "$0" program.py {verdict} {words}; code=$?; {after} exit $code')


def run_shell(code: str) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell, in which ``$0`` is Python."""
    return subprocess.run(
        ["bash", "-c", code, sys.executable],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def verdict_in(text: str) -> str:
    found: str = json.loads(text)["verdict"]
    return found


@pytest.mark.parametrize("verdict", list(CODES))
@pytest.mark.parametrize(
    ("before", "words", "after"),
    [
        ("", "--output json:/dev/fd/3 3>file", ""),
        ("", "--output json:/dev/stderr 2>file", ""),
        ("", "--output json:>(cat >file)", "until grep -qs '^}' file; do sleep 0.05; done;"),
        ("mkfifo fifo; cat fifo >file &", "--output json:fifo", "wait;"),
    ],
)
def test_a_report_goes_to_whatever_is_open(
    verdict: str, before: str, words: str, after: str
) -> None:
    result = shell(verdict, words, before, after)
    assert (result.returncode, result.stderr) == (CODES[verdict], "")
    assert result.stdout.startswith(f"{verdict}:")
    assert verdict_in(Path("file").read_text()) == verdict


@pytest.mark.parametrize("verdict", list(CODES))
@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "-"])
def test_names_of_standard_output_print_that_format_alone(verdict: str, name: str) -> None:
    result = shell(verdict, f"--output json:{name}")
    assert (result.returncode, result.stderr) == (CODES[verdict], "")
    assert verdict_in(result.stdout) == verdict


def test_a_redirected_standard_output_is_added_to() -> None:
    Path("log").write_text("before\n")
    assert shell("mismatch", "--output json:/dev/stdout >>log").returncode == 1
    before, _, report = Path("log").read_text().partition("\n")
    assert (before, verdict_in(report)) == ("before", "mismatch")


@pytest.mark.parametrize("verdict", list(CODES))
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (">&-", "standard output: it is closed"),
        (">/dev/full", "standard output: No space left on device"),
        (">/dev/full --output json:/dev/full", "/dev/full: No space left on device"),
        ("--output json:/dev/stdout >&-", "standard output: it is closed"),
    ],
)
def test_a_verdict_that_nothing_takes_is_said_on_stderr(
    verdict: str, words: str, reason: str
) -> None:
    result = shell(verdict, words)
    assert result.returncode == FAILED[verdict]
    assert result.stderr.startswith(f"{verdict}:")
    assert ("error[PIT100]: y differs" in result.stderr) == (verdict == "mismatch")
    assert f"pitcheck: cannot write to {reason}" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("verdict", list(CODES))
@pytest.mark.parametrize("words", [">&- 2>&-", ">&- 2>&- <&-", ">/dev/full 2>/dev/full"])
def test_without_any_stream_the_exit_code_is_left(verdict: str, words: str) -> None:
    result = shell(verdict, words)
    assert (result.returncode, result.stdout, result.stderr) == (FAILED[verdict], "", "")


@pytest.mark.parametrize("verdict", list(CODES))
def test_a_file_does_not_take_the_place_of_a_closed_stream(verdict: str) -> None:
    result = shell(verdict, "--output json:file --output sarif:other >&- 2>&- <&-")
    assert result.returncode == FAILED[verdict]
    assert verdict_in(Path("file").read_text()) == verdict
    assert len(json.loads(Path("other").read_text())["runs"]) == 1


@pytest.mark.parametrize("verdict", list(CODES))
def test_a_full_device_changes_the_exit_code_of_a_success_alone(verdict: str) -> None:
    result = shell(verdict, "--output json:/dev/full --output json:file")
    assert result.returncode == FAILED[verdict]
    assert result.stderr == "pitcheck: cannot write to /dev/full: No space left on device\n"
    assert result.stdout.startswith(f"{verdict}:")
    assert verdict_in(Path("file").read_text()) == verdict


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--output json:/dev/fd/7", "descriptor 7 is not open for writing"),
        ("--output json:/dev/stdin </dev/null", "descriptor 0 is not open for writing"),
        ("--output json:/dev/stdout --output text:-", "two outputs go to standard output"),
        ("--output json:out >out", "two outputs go to out, which is standard output"),
        ("--output json:/dev/fd/3 --output sarif:out 3>out", "which is out"),
        ("--output json:/dev/stderr 2>&1", "two outputs go to /dev/stderr, which is"),
    ],
)
def test_outputs_that_cannot_be_written_are_refused_before_any_work(words: str, said: str) -> None:
    result = shell("mismatch", words)
    assert result.returncode == 2
    assert said in result.stderr + result.stdout
    assert "mismatch:" not in result.stderr + result.stdout


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_or_a_file_that_may_not_be_written_is_refused(folder: Path) -> None:
    (folder / "file").write_text("old")
    (folder / "file").chmod(0o400)
    (folder / "shut").mkdir(mode=0o500)
    for name in ("file", "shut/file"):
        result = shell("mismatch", f"--output json:{name}")
        assert result.returncode == 2
        assert "no permission to write" in result.stderr
    assert (folder / "file").read_text() == "old"


@pytest.mark.parametrize("words", ["--help", "--version", "explain", "chekc", "check a b"])
@pytest.mark.parametrize("streams", [">&-", ">/dev/full", ">/dev/full 2>/dev/full", ">&- 2>&-"])
def test_no_stream_makes_an_exit_code_1_or_a_traceback(words: str, streams: str) -> None:
    result = run_shell(f'"$0" -m pitcheck {words} {streams}')
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert bool(result.stderr) == ("2>" not in streams)
