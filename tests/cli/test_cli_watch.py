"""``pitcheck check --watch``: a check after every change, of what stands in the files then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic, sleep

import pytest
from cli.cli_plans import parallel, reference
from conftest import Call
from plugin.plugin_projects import PROGRAM, write_program, wrong_plan

from pitcheck.commands.watching import watch
from pitcheck.commands.watching.answers import signature
from pitcheck.commands.watching.files_read import Reads
from pitcheck.commands.watching.inputs import Inputs
from pitcheck.commands.watching.watch import Ended, compared
from pitcheck.plan.files import write_plan
from pitcheck.report.report import Finding, Report

FILES = ("r.plan.json", "p.plan.json")
PATIENCE = 240.0
"""Seconds: a check takes two, and the machine may be busy."""


@pytest.fixture(autouse=True)
def plans() -> None:
    write_plan(reference(), FILES[0])
    write_plan(parallel(), FILES[1])


def put(path: Path, data: bytes, at: os.stat_result | None = None) -> None:
    """Put a file in the place of another one in one step, so that nobody sees it half-written.

    ``at`` has the times that it gets.
    """
    beside = path.with_suffix(".new")
    beside.write_bytes(data)
    if at is not None:
        os.utime(beside, ns=(at.st_atime_ns, at.st_mtime_ns))
    beside.replace(path)


class Watch:
    """A watching process, with what it has printed."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pitcheck", "check", *arguments, "--watch"],
                stdout=out,
                stderr=err,
                # A shell makes its processes in the background ignore interrupts.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
            )

    def out(self) -> str:
        return (self.folder / "out").read_text()

    def err(self) -> str:
        return (self.folder / "err").read_text()

    def until(self, holds: Callable[[], bool]) -> None:
        end = monotonic() + PATIENCE
        while not holds():
            assert self.process.poll() is None, self.out() + self.err()
            assert monotonic() < end, self.out() + self.err()
            sleep(0.05)

    def reached(self, checks: int) -> None:
        """Wait until that many checks have ended."""
        self.until(lambda: self.err().count("pitcheck: watching ") == checks)

    def interrupted(self) -> int:
        """Interrupt the process alone, and return its exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Watch]]:
    started: list[Watch] = []

    def begin(*arguments: str) -> Watch:
        started.append(Watch(tmp_path, *arguments))
        return started[-1]

    yield begin
    for each in started:
        each.process.kill()
        each.process.wait()


def test_plans_are_checked_after_every_change(start: Callable[..., Watch]) -> None:
    watching = start(*FILES, "--seed", "1")
    watching.reached(1)
    right = Path(FILES[1]).read_bytes()
    assert watching.out().startswith("equivalent: 1 of 1 output proven")
    write_plan(wrong_plan(), FILES[1])
    watching.reached(2)
    assert "error[PIT108]" in watching.out()
    assert "pitcheck: changed: p.plan.json\n" in watching.err()
    assert "was equivalent, is mismatch; 1 new finding, 0 the same, 0 gone" in watching.err()
    put(Path(FILES[1]), right[: len(right) // 2])
    watching.reached(3)
    assert "was mismatch, is invalid; 1 new finding, 0 the same, 1 gone" in watching.err()
    put(Path(FILES[1]), right)
    watching.reached(4)
    assert "was invalid, is equivalent; 0 new findings, 0 the same, 1 gone" in watching.err()
    assert watching.interrupted() == 0
    assert "\x1b" not in watching.err() + watching.out()
    assert "---" not in watching.err()


def test_the_exit_code_is_that_of_the_last_verdict(start: Callable[..., Watch]) -> None:
    write_plan(wrong_plan(), FILES[1])
    watching = start(*FILES, "--quiet")
    watching.reached(1)
    assert watching.interrupted() == 1


def test_settings_that_appear_count_and_a_stale_output_goes(
    start: Callable[..., Watch], folder: Path
) -> None:
    """Without a verdict the report of the check before must not be taken for the new one."""
    (folder / "pyproject.toml").unlink()
    report = folder / "report.json"
    watching = start(*FILES, "--seed", "1", "--output", "json:report.json")
    watching.reached(1)
    assert b'"equivalent"' in report.read_bytes()
    put(folder / "pitcheck.toml", b"error-bound = 3\n")
    watching.reached(2)
    assert "pitcheck: changed: pitcheck.toml\n" in watching.err()
    assert "pitcheck: removed report.json: it is of an earlier check\n" in watching.err()
    assert not report.exists()
    put(folder / "pitcheck.toml", b'error-bound = "2^-70"\n')
    watching.reached(3)
    assert "still equivalent" in watching.err()
    assert b'"equivalent"' in report.read_bytes()
    assert watching.interrupted() == 0
    assert report.exists()


LAZY = PROGRAM.replace("from scale import factor\n", "").replace(
    "        for parameter", "        from scale import factor\n        for parameter"
)
"""The program, of which the ranks alone import the module."""
RIGHT = "def factor(rank):\n    return rank.mesh['dp']\n"
WRONG = "def factor(rank):\n    return 1             #\n"


@pytest.mark.slow
def test_a_changed_module_is_imported_anew(start: Callable[..., Watch], tmp_path: Path) -> None:
    """Its size and its time stay the same, as a tool that copies files may leave them."""
    assert len(RIGHT) == len(WRONG)
    write_program(tmp_path / "training", RIGHT)
    (tmp_path / "training" / "program.py").write_text(LAZY)
    module = tmp_path / "training" / "scale.py"
    before = module.stat()
    watching = start("training/program.py:spec", "--seed", "1")
    watching.reached(1)
    assert watching.out().startswith("equivalent: ")
    put(module, WRONG.encode(), before)
    watching.reached(2)
    assert "pitcheck: changed: training/scale.py\n" in watching.err()
    assert "was equivalent, is mismatch" in watching.err()
    put(module, b"def factor(rank:\n")
    watching.reached(3)
    assert "is invalid" in watching.err()
    assert "SyntaxError" in watching.out()
    put(module, RIGHT.encode())
    watching.reached(4)
    assert "was invalid, is equivalent" in watching.err()
    assert watching.interrupted() == 0


def test_an_interrupted_check_ends_with_what_it_started(
    start: Callable[..., Watch], tmp_path: Path
) -> None:
    (tmp_path / "slow.py").write_text(
        "import os, time\n"
        "with open('started', 'w') as file:\n    file.write(str(os.getpid()))\n"
        "time.sleep(3600)\n"
    )
    watching = start("slow.py:spec")
    marker = tmp_path / "started"
    watching.until(lambda: marker.exists() and marker.read_text() != "")
    assert watching.interrupted() == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int(marker.read_text()), 0)


# --- without a process

EQUIVALENT = Report(verdict="equivalent")
INVALID = Report(
    verdict="invalid", findings=(Finding(code="PIT001", verdict="invalid", title="t"),)
)


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[float]]:
    """Put outcomes in the place of checks; afterwards the files change, and at last an interrupt.

    The list gets the seconds of each sleep.
    """

    def install(*outcomes: Ended, changes: int = 0) -> list[float]:
        slept: list[float] = []
        left = list(outcomes)

        def rest(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) > 50:
                raise AssertionError("the files are never settled")
            if seconds == watch.POLL:
                if not left:
                    if changes:
                        Path(FILES[1]).write_text(f"{len(slept)}")
                    raise KeyboardInterrupt
                Path(FILES[1]).write_text(f"{len(slept)}")

        monkeypatch.setattr(watch, "sleep", rest)
        monkeypatch.setattr(watch, "check_in_new_process", lambda _: left.pop(0))
        return slept

    return install


def run(*, output: Sequence[str] = (), write_baseline: str | None = None) -> int:
    return watch.run(FILES, ("check", *FILES), output, write_baseline)


@pytest.mark.parametrize(
    ("codes", "changes", "code"),
    [((0,), 0, 0), ((0, 2), 0, 2), ((2, 0), 0, 0), ((0,), 1, 130), ((0, 1), 1, 130)],
)
def test_an_interrupt_gives_the_code_of_what_stands_there(
    ends: Callable[..., list[float]], codes: tuple[int, ...], changes: int, code: int
) -> None:
    """A verdict on files that have changed since is none."""
    slept = ends(*(Ended(each, EQUIVALENT, Reads()) for each in codes), changes=changes)
    assert run() == code
    assert set(slept) <= {watch.POLL, watch.SETTLED}


def test_what_is_not_checked_is_said_and_waited_for(
    ends: Callable[..., list[float]], capsys: pytest.CaptureFixture[str]
) -> None:
    ends(Ended(0, EQUIVALENT, Reads()), Ended(2, None, Reads()), Ended(2, INVALID, Reads()))
    assert run() == 2
    said = capsys.readouterr().err
    assert said.count("pitcheck: no verdict; the check runs again when a file changes") == 1
    assert "was equivalent, is invalid; 1 new finding" in said
    assert "  new  [PIT001] t" in said


@pytest.mark.parametrize("mine", [True, False])
def test_an_output_that_somebody_else_wrote_stays(
    monkeypatch: pytest.MonkeyPatch, folder: Path, mine: bool
) -> None:
    def check(_: Sequence[str]) -> Ended:
        (folder / "report.json").write_text("of a check")
        return Ended(0, EQUIVALENT, Reads())

    last, files = watch._Last(), [str(folder / "report.json")]
    monkeypatch.setattr(watch, "check_in_new_process", check)
    watch._check_once(Inputs(()), (), files, last)
    if mine:
        (folder / "report.json").write_text("of somebody else")
    monkeypatch.setattr(watch, "check_in_new_process", lambda _: Ended(2, None, Reads()))
    watch._check_once(Inputs(()), (), files, last)
    assert (folder / "report.json").exists() == mine


def test_an_output_goes_if_the_next_check_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    def stop(_: Sequence[str]) -> Ended:
        raise KeyboardInterrupt

    (folder / "report.json").write_text("of a check")
    file = str(folder / "report.json")
    last = watch._Last(written={file: signature(file)})
    monkeypatch.setattr(watch, "check_in_new_process", stop)
    with pytest.raises(KeyboardInterrupt):
        watch._check_once(Inputs(()), (), [file], last)
    assert not (folder / "report.json").exists()


def test_a_wrong_command_is_not_waited_for(ends: Callable[..., list[float]], call: Call) -> None:
    ends(Ended(2, None, Reads()))
    assert run() == 2


def test_a_wrong_option_ends_the_command(start: Callable[..., Watch]) -> None:
    watching = start(*FILES, "--error-bound", "3")
    assert watching.process.wait(PATIENCE) == 2
    assert "--error-bound '3' is no probability" in watching.err()


def test_a_terminal_shows_a_line_between_two_checks(
    ends: Callable[..., list[float]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    ends(Ended(0, EQUIVALENT, Reads()), Ended(0, EQUIVALENT, Reads()))
    assert run() == 0
    assert "-" * 60 in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--write-baseline", "b.json"), "--watch and --write-baseline exclude each other"),
        (("--output", "json"), "--watch and --output json exclude each other"),
        (("--output", "sarif:/dev/stdout"), "write sarif:FILE"),
    ],
)
def test_options_that_cannot_go_with_it_are_refused(
    call: Call, words: tuple[str, ...], said: str
) -> None:
    result = call("check", *FILES, *words, "--watch")
    assert (result.code, result.out) == (2, "")
    assert said in result.err


def test_what_cannot_be_read_twice_is_refused(call: Call, folder: Path) -> None:
    os.mkfifo(folder / "pipe.plan.json")
    result = call("check", FILES[0], "pipe.plan.json", "--watch")
    assert (result.code, "pipe.plan.json is none" in result.err) == (2, True)


def test_a_file_of_settings_does_not_watch(call: Call, folder: Path) -> None:
    (folder / "pyproject.toml").unlink()
    (folder / "pitcheck.toml").write_text("watch = true\n")
    result = call("check", *FILES)
    assert result.code == 2
    assert "--watch is given on the command line alone" in result.err


def test_findings_are_compared_by_their_fingerprints() -> None:
    def found(*titles: str) -> Report:
        findings = [Finding(code="PIT001", verdict="invalid", title=title) for title in titles]
        return Report(verdict="invalid", findings=tuple(findings))

    assert compared(found("a", "b"), found("b", "c", "\x1b[2J")) == [
        "pitcheck: still invalid; 2 new findings, 1 the same, 1 gone",
        "  new  [PIT001] c",
        "  new  [PIT001] \\x1b[2J",
        "  gone [PIT001] a",
    ]
    assert compared(found(), found("a", "b", "c", "d"))[-1] == "  new  and 1 more"
