"""Configurations checked side by side, each in a process of its own.

A process for each is what lets a limit of time or memory, a crash or a kill end one configuration
and nothing else. It starts in a fraction of a second, which is little beside a check. The processes
share nothing but the folder of remembered proofs.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter

import msgspec

from pitcheck.base.import_path import import_path
from pitcheck.cache.meaning import meaning
from pitcheck.sweep.affected import Inputs
from pitcheck.sweep.matrix import Planned
from pitcheck.sweep.result import Result, Status, of_report, seed_of, without_report
from pitcheck.sweep.worker import OUT_OF_MEMORY, Task

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""The environment variables by which a process has one thread: there are many processes."""
MOST_SAID = 300
"""The characters of a process's last words that are kept."""
LAST_WORDS = 5.0
"""The seconds that are waited for the outputs of a process that was killed."""
WITHOUT_REPORT: frozenset[Status] = frozenset({"unexpected", "not probed"})
"""The statuses that a process may answer without a report."""


@dataclass
class Engine:
    """Processes for configurations, ``jobs`` of them at a time.

    ``seed`` is that of the sweep; ``fixed``: every check draws by it. Each has ``seconds`` of wall
    time and ``memory`` in bytes.
    """

    jobs: int
    seed: int
    fixed: bool
    seconds: float
    memory: int
    cache_directory: str | None = None
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, planned: Sequence[Planned]) -> Iterator[Planned | Result]:
        """Yield every configuration when its process starts, and its result when that ends.

        They are started in their order. If the caller stops early, all processes are killed.
        """
        left: queue.SimpleQueue[Planned] = queue.SimpleQueue()
        told: queue.SimpleQueue[Planned | Result | BaseException] = queue.SimpleQueue()
        for each in planned:
            left.put(each)
        threads = [
            threading.Thread(target=self._work, args=(left, told), daemon=True)
            for _ in range(min(self.jobs, len(planned)))
        ]
        for thread in threads:
            thread.start()
        try:
            ended = 0
            while ended < len(planned):
                found = told.get()
                if isinstance(found, BaseException):
                    raise found
                ended += isinstance(found, Result)
                yield found
        finally:
            self._stop()
            for thread in threads:
                thread.join()

    def _stop(self) -> None:
        self._stopped.set()
        with self._lock:
            for process in self._running.values():
                _kill(process)

    def _work(
        self,
        left: queue.SimpleQueue[Planned],
        told: queue.SimpleQueue[Planned | Result | BaseException],
    ) -> None:
        """Check configurations until none is left."""
        while not self._stopped.is_set():
            try:
                planned = left.get_nowait()
            except queue.Empty:
                return
            told.put(planned)
            try:
                told.put(self._recognised(planned))
            except BaseException as error:
                told.put(error)
                return

    def _recognised(self, planned: Planned) -> Result:
        """Return the result, with what it was made from if that stayed the same meanwhile."""
        before = Inputs().of(planned)
        result = self._result(planned)
        same = before == Inputs().of(planned)
        return msgspec.structs.replace(result, inputs=before if same else "")

    def _result(self, planned: Planned) -> Result:
        """Return the result of a configuration, whatever becomes of its process."""
        seed = seed_of(self.seed, planned.name)
        if planned.impossible:
            return without_report(planned, seed, "skipped", planned.impossible)
        task = Task(
            planned=planned,
            seed=seed,
            fixed=self.fixed,
            memory=self.memory,
            cache_directory=self.cache_directory,
        )
        start = perf_counter()
        process = self._started(planned)
        try:
            answer, said = process.communicate(msgspec.json.encode(task), timeout=self.seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            late = f"stopped after {self.seconds:g} s; seconds in the sweep's file is the limit"
            result = without_report(planned, seed, "out of time", late)
        else:
            result = self._ended(planned, seed, process.returncode, answer, said)
        finally:
            with self._lock:
                del self._running[planned.name]
        return msgspec.structs.replace(result, seconds=round(perf_counter() - start, 3))

    def _started(self, planned: Planned) -> subprocess.Popen[bytes]:
        with self._lock:
            process = subprocess.Popen(
                # Nothing is imported from the working directory, which may hold other code.
                [sys.executable, "-P", "-m", "pitcheck.sweep.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(),
                start_new_session=True,
            )
            self._running[planned.name] = process
        if self._stopped.is_set():
            _kill(process)
        return process

    def _ended(self, planned: Planned, seed: int, code: int, answer: bytes, said: bytes) -> Result:
        """Return the result of a process that has ended."""
        if code == OUT_OF_MEMORY:
            short = f"more than {self.memory} bytes; memory in the sweep's file is the limit"
            return without_report(planned, seed, "out of memory", short)
        if code == 0:
            with suppress(msgspec.MsgspecError):
                result = msgspec.json.decode(answer, type=Result)
                if result.code != meaning():
                    changed = "pitcheck's code changed while the sweep ran; begin anew"
                    return without_report(planned, seed, "crashed", changed)
                if _is_sound(planned, result):
                    return result
        return without_report(planned, seed, "crashed", _last_words(code, said))


def _is_sound(planned: Planned, result: Result) -> bool:
    """Return True if an answer is about a configuration, and its status follows from its report."""
    if result.name != planned.name or result.expect != planned.expect:
        return False
    if result.report is None:
        return result.status in WITHOUT_REPORT
    short = result.status == "out of memory"
    return of_report(planned, result.report, "", out_of_memory=short).status == result.status


def _environment() -> Mapping[str, str]:
    """Return the environment of a process, which finds modules where this one does."""
    return {**os.environ, **dict.fromkeys(ONE_THREAD, "1"), "PYTHONPATH": import_path()}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, and wait for its last words if nobody else holds its outputs open."""
    _kill(process)
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=LAST_WORDS)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it has started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _last_words(code: int, said: bytes) -> str:
    """Return how a process ended, and the last line that it wrote."""
    how = f"exit code {code}"
    if code < 0:
        with suppress(ValueError):
            how = f"killed by {signal.Signals(-code).name}"
    lines = said.decode("utf-8", "backslashreplace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    return f"{how}: {last[:MOST_SAID]}" if last else how
