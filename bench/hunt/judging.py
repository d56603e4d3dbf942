"""The verdict of a check on the texts of a program, and its classification by an execution."""

from __future__ import annotations

import re
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pitcheck.base.options import Options
from pitcheck.commands.checking.attempts import checked_in_turn
from pitcheck.errors import PitcheckError
from pitcheck.execution.judge import judge
from pitcheck.frontends.protocol import Attempt
from pitcheck.frontends.xla.lowering.pair import attempts_on, plans_of
from pitcheck.frontends.xla.running.dumping import texts_in
from pitcheck.frontends.xla.text.parser import parse_hlo

AGREES, FOUND = "both right", "fault found"
FALSE_ALARM, WRONG, RAISED = "FALSE ALARM", "WRONG EQUIVALENT", "CHECK RAISES"
OPEN, MISSED = "not decided", "fault not decided"
LATER = "fault of a later pass"
ABORTED, FAILED, UNUSABLE = "XLA aborts", "XLA fails", "no program"
BAD = (FALSE_ALARM, WRONG, RAISED)
"""Classes that are faults of pitcheck, or of a pass behind the partitioner that is not known."""
FAULTS = (FOUND, MISSED, WRONG, LATER)
"""Classes in which XLA gives other numbers than on one device."""
_FRAME = re.compile(r" ?stack_frame_id=[0-9]+")
_NUMBERS = re.compile(r"(%[\w.-]+|'[^']*'|\[[\d, ]*\]|[\w./]*hlo:\d+|\b\d+\b)")


@dataclass(frozen=True)
class Verdict:
    """A verdict, ``refused``, ``timeout`` and ``raised`` among them, and its first finding."""

    verdict: str
    reason: str

    @property
    def short_reason(self) -> str:
        """Return the reason without names and numbers, by which reasons are counted."""
        return _NUMBERS.sub("_", self.reason)[:120]


class TooLongError(BaseException):
    """A check took longer than it may. It is no Exception, of which a check makes findings."""


def verdict_of(before: str, after: str, seconds: float) -> Verdict:
    """Return the verdict of a check on two texts, within a number of seconds."""
    errors: list[Exception] = []
    try:
        with _limited(seconds):
            report = checked_in_turn(
                partial(_attempts, before, after),
                Options(seed=1, jobs=1, explain=False),
                stopped=errors.append,
            )
    except TooLongError:
        return Verdict("timeout", f"more than {seconds:g} s")
    for error in errors:
        if isinstance(error, PitcheckError):
            return Verdict("refused", str(error))
        place = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
        return Verdict("raised", said)
    findings = [f"{each.code} {each.title}" for each in report.findings if each.code]
    return Verdict(report.verdict, findings[0] if findings else "")


def _attempts(before: str, after: str) -> Iterator[Attempt]:
    yield from attempts_on(parse_hlo(before), parse_hlo(after))


def executor_sees(before: str, after: str, seconds: float) -> str:
    """Return the judgement of the executor, which shares no code with the check.

    It tells a wrong text after the partitioner from a fault of a later pass.
    """
    try:
        with _limited(seconds):
            pair = plans_of(parse_hlo(before), parse_hlo(after))
            found = [judge(*pair, seed) for seed in (1, 2, 3)]
    except PitcheckError as error:
        return f"refused: {error}"
    except TooLongError:
        return "timeout"
    errors = [each.error for each in found if each.error]
    if errors:
        return f"error: {errors[0]}"
    return "same" if all(each.same for each in found) else "different"


def classified(verdict: Verdict, *, differs: bool) -> str:
    """Return the class of a program.

    >>> classified(Verdict("mismatch", ""), differs=False)
    'FALSE ALARM'
    """
    if verdict.verdict == "raised":
        return RAISED
    if verdict.verdict == "equivalent":
        return WRONG if differs else AGREES
    if verdict.verdict == "mismatch":
        return FOUND if differs else FALSE_ALARM
    return MISSED if differs else OPEN


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def late(*_: object) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def computations_of(text: str) -> str:
    """Return the computations of a text, without the places in Python files that they come from.

    >>> computations_of("StackFrames\\n1 {...}\\n\\n\\nENTRY {metadata={stack_frame_id=4}}")
    'ENTRY {metadata={}}'
    """
    return _FRAME.sub("", text.partition("StackFrames")[2].partition("\n\n")[2].strip())


def texts_of(folder: Path) -> tuple[str, str]:
    """Return the texts before and after the partitioner in a folder that XLA has filled."""
    texts = texts_in(folder)
    return texts.before.read_text(), texts.after.read_text()
