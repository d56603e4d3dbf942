"""The processes in which ranks are recorded, a few of them running at a time.

A rank that waits for others gives its turn away, so that all ranks can be alive at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import IO

import msgspec

from pitcheck.errors import HangError, PlanError, UnsupportedError
from pitcheck.forks import Forks
from pitcheck.frontends.torch.recording.printed import output_file, output_of
from pitcheck.frontends.torch.together.answers import Failure, Recorded
from pitcheck.frontends.torch.together.coordinator import Coordinator

Work = Callable[[int, int | None, Connection, Sequence[Connection]], bytes | None]
"""The recording of a rank in its process.

It is given the number, the file for what the rank prints (None for standard error), the line to the
process that records all ranks, and the lines of others, which it must close.
"""
PATIENCE = 600.0
"""Seconds in which a rank that others wait for must do anything that they can see."""


class RankProcesses:
    """The processes that record ranks, and their answers by rank."""

    def __init__(self, work: Work, jobs: int, patience: float = PATIENCE) -> None:
        self._work = work
        self._jobs = jobs
        self._patience = patience
        self._forks: Forks[int] = Forks()
        self._coordinator = Coordinator()
        self._lines: dict[int, Connection] = {}
        self._unstarted: list[int] = []
        self._answers: dict[int, Recorded | Failure] = {}
        self._files: dict[int, IO[bytes]] = {}
        self._outputs: dict[int, str] = {}
        self._given_up = False

    def run(self, numbers: Sequence[int]) -> dict[int, Recorded | Failure]:
        """Return the answers of all ranks by number.

        Once a rank has failed, only those before it are followed to their end. If all that have not
        ended wait for what never comes, the first of them is said to have failed.
        """
        self._unstarted = list(reversed(numbers))
        try:
            while self._goes_on():
                self._resume()
                if self._busy():
                    self._listen()
                elif self._coordinator.serve_stores():
                    continue
                elif not self._failed():
                    message = self._coordinator.hang(set(self._answers))
                    self._answers[min(self._forks.running)] = Failure(message, HangError.code)
                else:
                    break
        finally:
            self._forks.stop()
            for line in self._lines.values():
                line.close()
        return self._answers

    def outputs(self) -> dict[int, str]:
        """Return what the ranks have printed, by rank, the stopped ones included."""
        for number in tuple(self._files):
            self._read(number)
        return self._outputs

    def _goes_on(self) -> bool:
        failed, running = self._failed(), self._forks.running
        if self._given_up:
            return False
        if failed:
            return bool(running) and min(running) < min(failed)
        return bool(running or self._unstarted)

    def _failed(self) -> list[int]:
        return [number for number, answer in self._answers.items() if isinstance(answer, Failure)]

    def _busy(self) -> list[int]:
        return [number for number in self._forks.running if not self._coordinator.waits(number)]

    def _resume(self) -> None:
        """Let ranks go on whose answers are there, and start others, as far as there are jobs."""
        free = self._jobs - len(self._busy())
        for number in self._coordinator.ready()[: max(free, 0)]:
            self._lines[number].send_bytes(self._coordinator.answer(number))
            free -= 1
        # After a failure no more ranks are started, unless one before it waits for them.
        while (
            self._unstarted
            and free > 0
            and (not self._failed() or self._coordinator.wants(self._unstarted))
        ):
            self._start(self._unstarted.pop())
            free -= 1

    def _start(self, number: int) -> None:
        file = output_file()
        if file is not None:
            self._files[number] = file
        into = None if file is None else file.fileno()
        mine, theirs = Pipe()
        others = [*self._lines.values(), mine]
        self._forks.start(number, self._work, number, into, theirs, others)
        theirs.close()
        self._lines[number] = mine

    def _listen(self) -> None:
        heard = wait(
            [*self._lines.values(), *self._forks.pipes],
            self._patience if self._someone_waits() else None,
        )
        if not heard:
            self._give_up()
        for number, line in tuple(self._lines.items()):
            if line in heard:
                self._hear(number, line)
        for ended in self._forks.ended(0):
            self._read(ended.key)
            self._close(ended.key)
            self._answers[ended.key] = (
                Failure(_death(ended.code), PlanError.code)
                if ended.answer is None
                else msgspec.msgpack.decode(ended.answer, type=Recorded | Failure)
            )

    def _hear(self, number: int, line: Connection) -> None:
        try:
            self._coordinator.receive(number, line.recv_bytes())
        except EOFError:
            self._lines.pop(number).close()

    def _close(self, number: int) -> None:
        """Take in what a rank that has ended has sent before."""
        line = self._lines.get(number)
        while line is not None and number in self._lines and line.poll():
            self._hear(number, line)
        if number in self._lines:
            self._lines.pop(number).close()
        self._coordinator.forget(number)

    def _someone_waits(self) -> bool:
        return any(self._coordinator.waits(number) for number in self._forks.running)

    def _give_up(self) -> None:
        self._given_up = True
        number = min(self._busy())
        self._answers[number] = Failure(
            f"it has run for {self._patience:.0f} s, while others wait for it, and come to nothing "
            f"that they could see; is it in a loop without end?",
            UnsupportedError.code,
        )

    def _read(self, number: int) -> None:
        # Files of ranks that have ended are closed: a process may have only so many.
        file = self._files.pop(number, None)
        if file is not None:
            self._outputs[number] = output_of(file)


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        return f"its process was killed by signal {-code}"
    return (
        f"its process ended without an answer (exit code {code}), as by os._exit; a step has "
        f"to return"
    )
