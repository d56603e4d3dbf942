"""Work in forked processes, which need not import the library again.

The time is that of the processors, that of the processes that the work itself starts included.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toys.classes import model_class
from toys.results import Row

GRACE = 30
"""Seconds beyond its limit after which a check is ended from outside."""


@dataclass(frozen=True)
class Done:
    """The answer of a process, or None, and its processor seconds."""

    answer: Any
    seconds: float


def answered(work: Callable[[], Any], limit: float) -> Done:
    """Return what ``work`` returns in a process of its own, as JSON carries it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "answer.json"
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            answer_into(file, work)
        seconds = waited(child, limit)
        return Done(json.loads(file.read_text()) if file.is_file() else None, seconds)


def answer_into(file: Path, work: Callable[[], Any]) -> None:
    """Write what ``work`` returns, without output to the terminal, and end the process."""
    code = 1
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        written = file.with_suffix(".part")
        written.write_text(json.dumps(work()))
        written.rename(file)
        code = 0
    finally:
        os._exit(code)


def waited(child: int, limit: float) -> float:
    """Wait for a process, end it and what it started at its limit, and return its seconds."""
    end = time.monotonic() + limit
    while True:
        ended, _, used = os.wait4(child, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > end:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            end = float("inf")
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    return used.ru_utime + used.ru_stime


def checked(plain: Row, target: str, wrapper: str, mistake: str, seconds: int) -> Row:
    """Check a specification, and return its row."""
    model_class(plain.name)  # imports its module before the fork
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        done = answered(lambda: run(target, report, seconds), seconds + GRACE)
        told = json.loads(report.read_text()) if report.is_file() else {}
    finding = next(iter(told.get("findings", ())), {})
    place, reason = placed(finding)
    if not told:
        reason = f"no report within {seconds + GRACE} s"
    outputs = told.get("outputs") or {}
    return Row(
        name=plain.name,
        head=plain.head,
        wrapper=wrapper,
        mistake=mistake,
        verdict=told.get("verdict", "inconclusive"),
        code=finding.get("code", ""),
        place=place,
        reason=reason,
        proven=f"{outputs['proven']}/{outputs['total']}" if outputs else "",
        seconds=round(done.seconds, 1),
    )


def placed(finding: dict[str, Any]) -> tuple[str, str]:
    """Return the line that a finding names, below the library's folder, and what it says."""
    title = re.sub(r"\S*/site-packages/", "", finding.get("title") or "")
    named = re.match(r"(?:[\w ]+: )?(\S+\.py:\d+): ", title)
    place = named[1] if named else finding.get("source") or finding.get("operator") or ""
    reason = title[named.end() :] if named else title
    return place.rsplit("/site-packages/", 1)[-1], reason.splitlines()[0] if reason else ""


def run(target: str, report: Path, seconds: int) -> int:
    """Run the command ``pitcheck check`` in this process, and return its exit code."""
    from pitcheck.cli import main  # noqa: PLC0415  # after the fork: it sets the streams up

    options = ["--jobs", "1", "--no-cache", "--seed", "1", "--seconds", str(seconds)]
    try:
        main(["check", target, *options, "--no-explain", "--output", f"json:{report}"])
    except SystemExit as end:
        return int(end.code or 0)
    return 0
