"""``pitcheck check --watch``: check again whenever anything that the check has read changes.

Every check runs in a new process: a module that is imported already would not be read again.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISREG
from tempfile import TemporaryDirectory
from time import sleep

from pitcheck.base.streams import say
from pitcheck.commands.watching.answers import Signature, signature
from pitcheck.commands.watching.files_read import Reads, read_log
from pitcheck.commands.watching.inputs import Inputs
from pitcheck.errors import UsageError
from pitcheck.report.destinations import STDOUT, parse_destination
from pitcheck.report.fingerprint import fingerprints
from pitcheck.report.json import decode
from pitcheck.report.lines import printable
from pitcheck.report.report import Finding, Report
from pitcheck.report.text import count
from pitcheck.report.write import FORMATS

POLL = 0.5
"""The seconds between two looks at the files."""
SETTLED = 0.2
"""The seconds for which files must stay as they are: an editor writes them in several steps."""
GRACE = 10.0
"""The seconds that an interrupted check has to end by itself."""
INTERRUPTED = 130
MANY = 3
"""The most files, and the most findings of a kind, that a line names."""
ONE_AFTER_ANOTHER = ("text", "jsonl", "github")
"""The formats of which standard output can hold several reports."""


@dataclass(frozen=True)
class Ended:
    """A check that ended: its exit code, its report if it wrote one, and what it read."""

    code: int
    report: Report | None
    read: Reads


@dataclass
class _Last:
    """The exit code and the report that were reached last.

    ``written`` are the files of ``--output``, as the check of that report left them.
    """

    code: int = INTERRUPTED
    report: Report | None = None
    written: Mapping[str, Signature] = field(default_factory=dict)


def run(
    named: Sequence[str],
    arguments: Sequence[str],
    output: Sequence[str],
    write_baseline: str | None,
) -> int:
    """Check until an interrupt; return the exit code of the last check.

    ``named`` are the files of the command line, ``arguments`` all of its words. The code is 130 if
    the files have changed since the last check, or none ended. A first check without a report (a
    wrong option) ends it, with its exit code. Raises UsageError for options that exclude each other
    and files that cannot be read twice.
    """
    _refuse(named, output, write_baseline)
    inputs, last = Inputs(tuple(str(Path(name).absolute()) for name in named)), _Last()
    files = _files(output)
    try:
        ended = _check_once(inputs, arguments, files, last)
        if ended.report is None:
            return ended.code
        while True:
            say(f"pitcheck: watching {count(inputs.files, 'file')}; Ctrl-C ends")
            _rule(_wait(inputs))
            _check_once(inputs, arguments, files, last)
    except KeyboardInterrupt:
        return INTERRUPTED if inputs.changed() else last.code


def _files(output: Sequence[str]) -> list[str]:
    """Return the absolute names of the files of some outputs."""
    found = [parse_destination(text, FORMATS).file for text in output]
    return [os.path.realpath(file) for file in found if file != STDOUT]


def _refuse(named: Sequence[str], output: Sequence[str], write_baseline: str | None) -> None:
    """Raise UsageError for what cannot be done again and again."""
    if write_baseline is not None:
        raise UsageError(
            "--watch and --write-baseline exclude each other: a run that accepts what it finds is "
            "asked for each time; leave one of them out"
        )
    for text in output:
        to = parse_destination(text, FORMATS)
        if to.file == STDOUT and to.format not in ONE_AFTER_ANOTHER:
            raise UsageError(
                f"--watch and --output {text} exclude each other: standard output gets a report "
                f"after every check, and {to.format} is one document; write {to.format}:FILE"
            )
    for name in named:
        path = Path(name)
        if path.exists() and not S_ISREG(path.stat().st_mode):
            raise UsageError(
                f"--watch needs files that can be read again, and {name} is none; name a file, or "
                f"leave --watch out"
            )


def _check_once(
    inputs: Inputs, arguments: Sequence[str], files: Sequence[str], last: _Last
) -> Ended:
    """Run a check, say what has changed since the last report, and keep its outcome.

    ``files`` are those of ``--output``. Without a report those of the last check are removed: they
    are about another state of the inputs.
    """
    before, last.code = last.report, INTERRUPTED
    inputs.look()
    there = {file: signature(file) for file in files}
    try:
        ended = check_in_new_process(arguments)
    except KeyboardInterrupt:
        _remove(last)
        raise
    for line in inputs.take(ended.read):
        say(line)
    last.code = ended.code
    if ended.report is None:
        _remove(last)
        say("pitcheck: no verdict; the check runs again when a file changes")
        return ended
    last.report = ended.report
    last.written = {file: now for file in files if (now := signature(file)) != there[file]}
    if before is not None:
        for line in compared(before, ended.report):
            say(line)
    return ended


def _remove(last: _Last) -> None:
    """Remove the files of the last report, unless somebody else has written to them since."""
    for file, state in last.written.items():
        if state is not None and S_ISREG(state[0]) and signature(file) == state:
            Path(file).unlink(missing_ok=True)
            say(f"pitcheck: removed {printable(os.path.relpath(file))}: it is of an earlier check")
    last.written = {}


def check_in_new_process(arguments: Sequence[str]) -> Ended:
    """Run ``pitcheck`` with the arguments in a new process; its output is that of this one.

    An interrupt ends that process and those that it started.
    """
    with TemporaryDirectory(prefix="pitcheck-") as scratch:
        reads, report = Path(scratch, "reads"), Path(scratch, "report.json")
        # Bytecode is told from its source by whole seconds, so none is written. The session is a
        # new one: an interrupt from the keyboard comes once, and from here.
        command = [sys.executable, "-B", "-P", "-m", "pitcheck.watched_check"]
        child = subprocess.Popen(
            [*command, str(reads), str(report), *arguments],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
        try:
            code = child.wait()
        except KeyboardInterrupt:
            _end(child)
            raise
        found = decode(report.read_bytes()) if report.exists() else None
        return Ended(code if code >= 0 else 128 - code, found, read_log(reads))


def _end(child: subprocess.Popen[bytes]) -> None:
    """Interrupt a process and its forks, and kill those that do not end."""
    for number, seconds in ((signal.SIGINT, GRACE), (signal.SIGKILL, None)):
        try:
            os.killpg(child.pid, number)
            child.wait(seconds)
            return
        except ProcessLookupError:
            return
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            continue


def _wait(inputs: Inputs) -> list[str]:
    """Return the files that changed, once some have and all stay as they are."""
    while not (found := inputs.changed()):
        sleep(POLL)
    before = None
    while (now := inputs.now()) != before:
        before = now
        sleep(SETTLED)
    return inputs.changed() or found


def _rule(changed: Collection[str]) -> None:
    """Name what changed, below a line across a terminal."""
    if sys.stderr.isatty():
        say("\n" + "-" * shutil.get_terminal_size().columns)
    names = [printable(os.path.relpath(name)) for name in changed]
    more = f" and {len(names) - MANY} more" if len(names) > MANY else ""
    say(f"pitcheck: changed: {', '.join(names[:MANY])}{more}")


def compared(before: Report, after: Report) -> list[str]:
    """Return what differs between two reports, in lines: verdicts, and findings by fingerprint."""
    old = dict(zip(fingerprints(before), before.findings, strict=True))
    new = dict(zip(fingerprints(after), after.findings, strict=True))
    appeared = [finding for fault, finding in new.items() if fault not in old]
    gone = [finding for fault, finding in old.items() if fault not in new]
    verdict = (
        f"still {after.verdict}"
        if before.verdict == after.verdict
        else f"was {before.verdict}, is {after.verdict}"
    )
    said = (
        f"pitcheck: {verdict}; {count(len(appeared), 'new finding')}, "
        f"{len(new) - len(appeared)} the same, {len(gone)} gone"
    )
    return [said, *_listed("new ", appeared), *_listed("gone", gone)]


def _listed(word: str, findings: Sequence[Finding]) -> list[str]:
    more = [f"  {word} and {len(findings) - MANY} more"] if len(findings) > MANY else []
    return [
        *(f"  {word} [{each.code}] {printable(each.title)}" for each in findings[:MANY]),
        *more,
    ]
