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
from pitcheck.sweep.consistency import contradiction
from pitcheck.sweep.matrix import Planned
from pitcheck.sweep.processes import Watcher, kill
from pitcheck.sweep.result import Result, Status, seed_of, without_report
from pitcheck.sweep.worker import OUT_OF_MEMORY, Task

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""The environment variables by which a process has one thread: there are many processes."""
MOST_SAID = 300
"""The characters of a process's last words that are kept."""
LAST_WORDS = 5.0
"""The seconds that are waited for the outputs of a process that has ended or was killed."""
LOOK = 0.25
"""The seconds between two looks at the memory of a process."""
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
    _watcher: Watcher = field(default_factory=Watcher)

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
                kill(process.pid)

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
        read, lifeline = os.pipe()
        try:
            process = self._started(planned, read)
        except BaseException:
            os.close(lifeline)
            raise
        finally:
            os.close(read)
        try:
            result = self._waited(planned, task, process, start + self.seconds)
        finally:
            with self._lock:
                del self._running[planned.name]
            os.close(lifeline)
        return msgspec.structs.replace(result, seconds=round(perf_counter() - start, 3))

    def _started(self, planned: Planned, lifeline: int) -> subprocess.Popen[bytes]:
        """Start a process, which ends with all it has started when nobody holds the lifeline."""
        with self._lock:
            process = subprocess.Popen(
                # Nothing is imported from the working directory, which may hold other code.
                [sys.executable, "-P", "-m", "pitcheck.sweep.worker", str(lifeline)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(),
                start_new_session=True,
                pass_fds=(lifeline,),
            )
            self._running[planned.name] = process
        if self._stopped.is_set():
            kill(process.pid)
        return process

    def _waited(
        self, planned: Planned, task: Task, process: subprocess.Popen[bytes], end: float
    ) -> Result:
        """Return the result of a process that has ended, or has reached a limit and is killed."""
        given: bytes | None = msgspec.json.encode(task)
        most, silent = 0, 0.0
        while True:
            try:
                answer, said = process.communicate(given, timeout=LOOK)
            except subprocess.TimeoutExpired:
                given = None
            else:
                result = self._ended(planned, task.seed, process.returncode, answer, said)
                return _with_peak(result, most)
            most = max(most, self._watcher.of(process.pid))
            silent += LOOK if process.poll() is not None else 0.0
            if most > self.memory:
                _end(process)
                return _with_peak(self._too_large(planned, task.seed), most)
            if perf_counter() > end:
                _end(process)
                late = f"stopped after {self.seconds:g} s; seconds in the sweep's file is the limit"
                return _with_peak(without_report(planned, task.seed, "out of time", late), most)
            if silent > LAST_WORDS:  # something that it has left behind holds its outputs open
                kill(process.pid)

    def _too_large(self, planned: Planned, seed: int) -> Result:
        short = (
            f"it and all that it started held more than {self.memory} bytes; memory in the "
            f"sweep's file is the limit"
        )
        return without_report(planned, seed, "out of memory", short)

    def _ended(self, planned: Planned, seed: int, code: int, answer: bytes, said: bytes) -> Result:
        """Return the result of a process that has ended."""
        if code == OUT_OF_MEMORY:
            return self._too_large(planned, seed)
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
    has_report = result.report is not None
    if result.name != planned.name or (not has_report and result.status not in WITHOUT_REPORT):
        return False
    return not contradiction(planned, result, has_report=has_report)


def _environment() -> Mapping[str, str]:
    """Return the environment of a process, which finds modules where this one does."""
    return {**os.environ, **dict.fromkeys(ONE_THREAD, "1"), "PYTHONPATH": import_path()}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, and wait for its last words if nobody else holds its outputs open."""
    kill(process.pid)
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=LAST_WORDS)


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
