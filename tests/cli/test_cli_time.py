"""The time of a check is the user's: a limit, Ctrl-C and SIGTERM give what is known by then."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from cli.cli_plans import parallel, reference
from msgspec.structs import replace

from pitcheck.base.options import Options
from pitcheck.commands.checking.pair import checked
from pitcheck.commands.progress import watched
from pitcheck.errors import Interrupted
from pitcheck.plan.files import write_plan
from pitcheck.plan.model import Operator, Output, Tensor
from pitcheck.report.report import Report

SCRIPT = """
    import sys, time
    import numpy as np
    from pitcheck.cli import cli
    from pitcheck.engine import check as engine
    from pitcheck.prove import stage_proof

    def sleeps(*_):
        while True:
            try:
                time.sleep(0.05)
            except Exception:
                pass

    def swallows(*_):
        try:
            sleeps()
        except BaseException:
            sleeps()

    def one_call(*_):
        many = np.ones((4000, 4000), dtype=np.int64)
        many @ many

    def forks(*_):
        from pitcheck.forks import Forks
        children = Forks()
        try:
            children.start("child", time.sleep, 600)
            print("child", list(children._running.values())[0][1].pid, file=sys.stderr, flush=True)
            children.ended(None)
        finally:
            children.stop()

    def begun(strategy):
        def proof(*given):
            print("begun", file=sys.stderr, flush=True)
            return strategy(*given)
        return proof

    stage_proof.Attempts = begun({how})
    cli(["check", *sys.argv[1:]])
"""
"""A check whose first proof goes on for ever, in the way ``how``."""


def begin(how: str, folder: Path, *options: str) -> subprocess.Popen[str]:
    """Return a process that checks two tiny plans, and never comes to an end by itself."""
    for name, plan in (("reference", reference()), ("parallel", parallel())):
        write_plan(plan, folder / f"{name}.plan.json")
    script = folder / "script.py"
    script.write_text(textwrap.dedent(SCRIPT).replace("{how}", how))
    files = [str(folder / f"{name}.plan.json") for name in ("reference", "parallel")]
    return subprocess.Popen(
        [sys.executable, str(script), *files, "--jobs=1", "--no-cache", "--output=json", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def begun(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    while process.stderr.readline().strip() != "begun":
        assert process.poll() is None


@pytest.mark.parametrize("how", ["swallows", "one_call"])
def test_a_limit_ends_a_stage_whatever_it_does(how: str, tmp_path: Path) -> None:
    process = begin(how, tmp_path, "--seconds=0.6")
    begun(process)
    start = time.monotonic()
    report = json.loads(process.communicate(timeout=60)[0])
    assert time.monotonic() - start < 6
    assert (process.returncode, report["verdict"]) == (3, "inconclusive")
    (finding,) = report["findings"]
    assert finding["code"] == "PIT203"
    assert "--seconds 0.6 are over" in finding["title"]
    assert "'y', which ends in" in finding["title"]
    assert "(all_gather)" in finding["operator"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_gives_the_same_report_and_ends_children(
    number: int, code: int, tmp_path: Path
) -> None:
    process = begin("forks", tmp_path)
    begun(process)
    assert process.stderr is not None
    child = int(process.stderr.readline().split()[1])
    process.send_signal(number)
    report = json.loads(process.communicate(timeout=60)[0])
    assert (process.returncode, report["verdict"]) == (code, "inconclusive")
    assert "at work: 'y'" in report["findings"][0]["title"]
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_a_difference_that_is_shown_stays_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is met while the cause is looked for: the mismatch is known by then."""

    def endless(*_: object) -> object:
        while True:
            time.sleep(0.01)

    monkeypatch.setattr("pitcheck.explain.difference.explain_difference", endless)
    double = Operator("double", "mul", ("y", "y"), ("z",))
    tensors = (*parallel().tensors, Tensor("z", (8, 10), role="output"))
    operators = (*parallel().operators, double)
    wrong = replace(parallel(), tensors=tensors, operators=operators, outputs=(Output("z", "y"),))
    report = checked([lambda: [reference(), wrong]], Options(seed=1, seconds=3))
    assert (report.verdict, report.exit_code) == ("mismatch", 1)
    assert "--seconds 3 are over before the cause was found" in str(report.findings[0].cause)


def test_a_program_that_takes_too_long_to_read_is_inconclusive() -> None:
    def endless() -> list[object]:
        while True:
            time.sleep(0.01)

    report = checked([endless], Options(seconds=0.2))  # type: ignore[list-item]
    assert report.verdict == "inconclusive"
    assert "at work: read the plans" in report.findings[0].title


def test_a_limit_that_is_not_met_changes_nothing() -> None:
    plans = [reference(), parallel()]

    def told(seconds: float | None) -> Report:
        return checked([lambda: plans], Options(seed=1, seconds=seconds))

    assert told(60).verdict == told(None).verdict == "equivalent"
    assert told(60).findings == told(None).findings
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_progress_lines_say_what_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pitcheck.commands.progress.EVERY", 0.1)
    with pytest.raises(Interrupted), watched(shown=True, seconds=0.35) as work:
        work.begins("prove all outputs")
        work("stages", 3, 7)
        work.at("loss", "sum#4 (sum)", "model.py:12")
        time.sleep(5)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(
        "3 of 7 stages known so far; now: 'loss', which ends in sum#4 (sum) at model.py:12" in line
        for line in lines
    )
