"""Proving large stages on other processes of the machine, while the caller cuts out more of them."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from pitcheck.check.prove import Proof, Settings, prove_stage
from pitcheck.errors import UsageError
from pitcheck.stages.pair import Stage

STEP = 20
"""How many rows a step costs beside its own."""
LARGE = 4000
"""Rows of stages (steps included) from which on a process of its own costs less than it saves: about 0.1 s."""

MOST_JOBS = 4
"""Processes where nobody says how many: each needs memory of its own."""

Keys = dict[int, str]


def usable_jobs() -> int:
    """As many processes as this one may use processors; one where forking a process that has run numerical libraries is not safe."""
    return min(len(os.sched_getaffinity(0)), MOST_JOBS) if sys.platform == "linux" else 1


class Workers:
    """At most ``jobs`` processes, this one among them until it waits, each of which proves one stage.

    Workers are forks, which inherit the stages; the numbers drawn do not depend on who draws them. Raises UsageError where the system cannot fork.
    """

    def __init__(self, jobs: int, settings: Settings) -> None:
        if "fork" not in multiprocessing.get_all_start_methods():
            raise UsageError("--jobs above 1 needs a system that can fork processes; leave it at 1")
        self._context = multiprocessing.get_context("fork")
        self._jobs = jobs
        self._settings = settings
        self._waiting: dict[str, tuple[Stage, Keys]] = {}
        self._running: dict[Connection, tuple[str, BaseProcess]] = {}
        self._proofs: dict[str, Proof] = {}
        self.refused = False
        """Whether some stage was not proven: the caller needs its values, and proves it again. So it does with what a worker that died left undone."""

    def give(self, key: str, stage: Stage, keys: Keys) -> None:
        """Prove a stage as soon as a process is free."""
        self._waiting[key] = (stage, keys)
        self.attend()

    def attend(self) -> None:
        """Take in what is done, and start what waits. Costs next to nothing."""
        self._receive(0)
        self._start(self._jobs - 1)

    def proofs(self) -> Mapping[str, Proof]:
        """The proofs of all stages that hold, once all are done, or some stage is not proven."""
        while (self._waiting or self._running) and not self.refused:
            self._start(self._jobs)
            self._receive(None)
        self.stop()
        return self._proofs

    def stop(self) -> None:
        """End what runs."""
        self._waiting.clear()
        for pipe, (_, process) in self._running.items():
            process.terminate()
            process.join()
            pipe.close()
        self._running.clear()

    def _start(self, most: int) -> None:
        while self._waiting and len(self._running) < most:
            key = max(self._waiting, key=lambda name: cost(self._waiting[name][0]))
            stage, keys = self._waiting.pop(key)
            mine, theirs = self._context.Pipe(duplex=False)
            process = self._context.Process(target=_prove, args=(stage, keys, self._settings, theirs), daemon=True)
            process.start()
            theirs.close()
            self._running[mine] = (key, process)

    def _receive(self, timeout: float | None) -> None:
        for pipe in wait(list(self._running), timeout) if self._running else ():
            if isinstance(pipe, Connection):
                key, process = self._running.pop(pipe)
                try:
                    self._proofs[key] = pipe.recv()
                except EOFError:
                    self.refused = True
                pipe.close()
                process.join()


def cost(stage: Stage) -> int:
    """What proving a stage costs, roughly: its rows, and the calls of its steps."""
    return sum(step.count + STEP for batch in (stage.parallel, stage.reference) for step in batch.steps)


def _prove(stage: Stage, keys: Keys, settings: Settings, pipe: Connection) -> None:
    proof = prove_stage(stage, keys, settings)
    if proof.outcome == "proven":
        pipe.send(replace(proof, comparison=None, evaluated=None, shaped=None))
    pipe.close()
