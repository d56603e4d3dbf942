"""A process for each configuration, with limits that end it and nothing else.

The processes share nothing but the folder of remembered proofs. Every engine checks by this code,
on this machine or on another one, so that limits and crashes become the same results everywhere.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter

import msgspec

from pitcheck.base.import_path import import_path
from pitcheck.base.process_tree import Watcher, kill
from pitcheck.cache.meaning import meaning
from pitcheck.sweep.affected import Inputs
from pitcheck.sweep.child.outputs import Outputs
from pitcheck.sweep.child.task import Task
from pitcheck.sweep.child.worker import OUT_OF_MEMORY
from pitcheck.sweep.consistency import contradiction
from pitcheck.sweep.result import Result, Status, without_report

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""The environment variables by which a process has one thread: there are many processes."""
MOST_SAID = 300
"""The characters of a process's last words that are kept."""
LAST_WORDS = 5.0
"""The seconds that are waited for the outputs of a process that has ended or was killed."""
LOOK = 0.25
"""The seconds between two looks at the memory of a process."""
ANSWERED: frozenset[Status] = frozenset({"unexpected", "not probed"})
"""The statuses that a process may answer without a report."""


@dataclass
class Processes:
    """The processes that are at work, which another thread may end all at once."""

    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _watcher: Watcher = field(default_factory=Watcher)

    def stop(self) -> None:
        """Kill all processes, and those that are started from now on."""
        self._stopped.set()
        with self._lock:
            for process in self._running.values():
                kill(process.pid)

    @property
    def stopped(self) -> bool:
        """True if all processes were killed."""
        return self._stopped.is_set()

    def checked(self, task: Task, environment: Mapping[str, str]) -> Result:
        """Return the result of a task, with what it was made from if that stayed the same.

        Its process has the variables of ``environment`` in addition to those of this one.
        """
        before = Inputs().of(task.planned)
        result = self._result(task, environment)
        same = before == Inputs().of(task.planned)
        return msgspec.structs.replace(result, inputs=before if same else "")

    def _result(self, task: Task, environment: Mapping[str, str]) -> Result:
        """Return the result of a task, whatever becomes of its process."""
        planned = task.planned
        if planned.impossible:
            return without_report(planned, task.seed, "skipped", planned.impossible)
        start = perf_counter()
        read, lifeline = os.pipe()
        try:
            process = self._started(planned.name, environment, read)
        except BaseException:
            os.close(lifeline)
            raise
        finally:
            os.close(read)
        try:
            result = self._waited(task, process, start + task.terms.seconds)
        finally:
            with self._lock:
                del self._running[planned.name]
            os.close(lifeline)
        return msgspec.structs.replace(result, seconds=round(perf_counter() - start, 3))

    def _started(
        self, name: str, environment: Mapping[str, str], lifeline: int
    ) -> subprocess.Popen[bytes]:
        """Start a process, which ends with all it has started when nobody holds the lifeline."""
        with self._lock:
            process = subprocess.Popen(
                # Nothing is imported from the working directory, which may hold other code.
                [sys.executable, "-P", "-m", "pitcheck.sweep.child.worker", str(lifeline)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**_environment(), **environment},
                start_new_session=True,
                pass_fds=(lifeline,),
            )
            self._running[name] = process
        if self._stopped.is_set():
            kill(process.pid)
        return process

    def _waited(self, task: Task, process: subprocess.Popen[bytes], end: float) -> Result:
        """Return the result of a process that has ended, or has reached a limit and is killed."""
        outputs = Outputs.of(process, msgspec.json.encode(task))
        most, silent = 0, 0.0
        while not outputs.ended(LOOK):
            most = max(most, self._watcher.of(process.pid))
            silent += LOOK if process.poll() is not None else 0.0
            if most > task.terms.memory * task.terms.jobs:
                _end(outputs)
                return _with_peak(_too_large(task), most)
            if perf_counter() > end:
                _end(outputs)
                return _with_peak(_too_late(task), most)
            if silent > LAST_WORDS:  # something that it has left behind holds its outputs open
                kill(process.pid)
        answer, said = bytes(outputs.answer), bytes(outputs.said)
        return _with_peak(_ended(task, process.returncode, answer, said), most)


def is_sound(task: Task, result: Result) -> bool:
    """Return True if a result is of a task, drawn by its seed, and follows from its report."""
    has_report = result.report is not None
    if result.name != task.planned.name:
        return False
    if result.seed != task.seed and (task.draws_by_seed or not has_report):
        return False
    return not contradiction(task.planned, result, has_report=has_report)


def _ended(task: Task, code: int, answer: bytes, said: bytes) -> Result:
    """Return the result of a task whose process has ended."""
    planned, seed = task.planned, task.seed
    if code == OUT_OF_MEMORY:
        return _too_large(task)
    if code == 0:
        with suppress(msgspec.MsgspecError):
            result = msgspec.json.decode(answer, type=Result)
            if result.code != meaning():
                changed = "pitcheck's code changed while the sweep ran; begin anew"
                return without_report(planned, seed, "crashed", changed)
            checked = result.report is not None or result.status in ANSWERED
            if checked and is_sound(task, result):
                return result
    return without_report(planned, seed, "crashed", _last_words(code, said))


def _too_large(task: Task) -> Result:
    said = (
        f"it and all that it started held more than {task.terms.memory * task.terms.jobs} bytes; "
        f"memory in the sweep's file is the limit"
    )
    return without_report(task.planned, task.seed, "out of memory", said)


def _too_late(task: Task) -> Result:
    said = f"stopped after {task.terms.seconds:g} s; seconds in the sweep's file is the limit"
    return without_report(task.planned, task.seed, "out of time", said)


def _environment() -> Mapping[str, str]:
    """Return the environment of a process, which finds modules where this one does."""
    return {**os.environ, **dict.fromkeys(ONE_THREAD, "1"), "PYTHONPATH": import_path()}


def _end(outputs: Outputs) -> None:
    """Kill a process, and wait for its end if nobody else holds its outputs open."""
    kill(outputs.process.pid)
    outputs.ended(LAST_WORDS)


def _with_peak(result: Result, most: int) -> Result:
    """Return a result with the most memory that was seen, if that is more than it says."""
    return msgspec.structs.replace(result, memory_mb=max(result.memory_mb, round(most / 2**20, 1)))


def _last_words(code: int, said: bytes) -> str:
    """Return how a process ended, and the last line that it wrote."""
    how = f"exit code {code}"
    if code < 0:
        with suppress(ValueError):
            how = f"killed by {signal.Signals(-code).name}"
    lines = said.decode("utf-8", "backslashreplace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    return f"{how}: {last[:MOST_SAID]}" if last else how
