"""Engines, which check configurations side by side, and the one for this machine.

A process for each configuration is what lets a limit of time or memory, a crash or a kill end one
of them and nothing else. It starts in a fraction of a second, which is little beside a check.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pitcheck.algebra.devices import GPUS
from pitcheck.sweep.child.process import Processes
from pitcheck.sweep.child.task import Terms
from pitcheck.sweep.planned import Planned
from pitcheck.sweep.result import Result

_Left = queue.SimpleQueue[Planned]
_Told = queue.SimpleQueue[Planned | Result | BaseException]


class Engine(Protocol):
    """A place where the configurations of a sweep are checked."""

    def run(self, planned: Sequence[Planned]) -> Iterator[Planned | Result]:
        """Yield every configuration when it is begun, and its one result when it has ended.

        They are begun in their order. If the caller stops early, all their processes are killed.
        """


@dataclass
class LocalEngine:
    """Processes on this machine, ``jobs`` of them at a time.

    ``gpus`` are the GPUs that it has, one for each process: ``jobs`` at least. () for none.
    """

    terms: Terms
    jobs: int
    gpus: Sequence[str] = ()
    _processes: Processes = field(default_factory=Processes)

    def run(self, planned: Sequence[Planned]) -> Iterator[Planned | Result]:
        """Yield every configuration when its process starts, and its result when that ends."""
        left: _Left = queue.SimpleQueue()
        told: _Told = queue.SimpleQueue()
        for each in planned:
            left.put(each)
        threads = [
            threading.Thread(target=self._work, args=(left, told, number), daemon=True)
            for number in range(min(self.jobs, len(planned)))
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
            self._processes.stop()
            for thread in threads:
                thread.join()

    def _work(self, left: _Left, told: _Told, number: int) -> None:
        """Check configurations until none is left, on the GPU of this number if there are GPUs."""
        environment = {GPUS: self.gpus[number]} if self.gpus else {}
        while not self._processes.stopped:
            try:
                planned = left.get_nowait()
            except queue.Empty:
                return
            told.put(planned)
            try:
                told.put(self._processes.checked(self.terms.task(planned), environment))
            except BaseException as error:
                told.put(error)
                return
