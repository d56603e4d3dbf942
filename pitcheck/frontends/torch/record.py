"""Recording every rank of a program, each in a process of its own: a framework keeps state per process that a second rank would find."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Sequence
from math import prod
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Literal

import msgspec

from pitcheck.errors import PitcheckError, PlanError, UnsupportedError
from pitcheck.frontends.torch.program import Spec
from pitcheck.frontends.torch.trace import Trace

Side = Literal["reference", "parallel"]


class Failure(msgspec.Struct, frozen=True, tag="failure"):
    """Why a rank has no trace; ``invalid``: the program is at fault."""

    message: str
    invalid: bool


class Recorded(msgspec.Struct, frozen=True, tag="recorded"):
    """A rank's trace."""

    trace: Trace


def record(spec: Spec, side: Side, jobs: int) -> list[Trace]:
    """One trace per rank, of the reference one alone; ``jobs`` ranks at a time.

    Raises UnsupportedError or PlanError, which name the rank, for a rank that cannot be recorded: of several the first.
    """
    if "fork" not in multiprocessing.get_all_start_methods():
        raise UnsupportedError("recording a PyTorch program needs a system that can fork processes")
    count = prod(spec.mesh.values()) if side == "parallel" else 1
    answers = _Ranks(spec, side, max(jobs, 1)).run(range(count))
    traces = []
    for number, answer in enumerate(answers):
        if isinstance(answer, Failure):
            error = PlanError if answer.invalid else UnsupportedError
            raise error(f"rank {number} of the {side} program: {answer.message}" if side == "parallel" else f"the reference program: {answer.message}")
        traces.append(answer.trace)
    return traces


class _Ranks:
    def __init__(self, spec: Spec, side: Side, jobs: int) -> None:
        # The children inherit what they would else all import.
        import pitcheck.frontends.torch.session  # noqa: F401, PLC0415

        self._spec = spec
        self._side: Side = side
        self._jobs = jobs
        self._context = multiprocessing.get_context("fork")
        self._running: dict[Connection, tuple[int, BaseProcess]] = {}
        self._answers: dict[int, Recorded | Failure] = {}

    def run(self, numbers: Sequence[int]) -> list[Recorded | Failure]:
        """What came of every rank up to the first that failed."""
        waiting = list(reversed(numbers))
        try:
            while (waiting or self._running) and not self._failed():
                while waiting and len(self._running) < self._jobs:
                    self._start(waiting.pop())
                self._receive()
            while self._running and min(self._failures()) > min(number for number, _ in self._running.values()):
                self._receive()
        finally:
            self._stop()
        return [self._answers[number] for number in sorted(self._answers)]

    def _failures(self) -> list[int]:
        return [number for number, answer in self._answers.items() if isinstance(answer, Failure)]

    def _failed(self) -> bool:
        return bool(self._failures())

    def _start(self, number: int) -> None:
        mine, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_answer, args=(self._spec, self._side, number, theirs), daemon=True)
        process.start()
        theirs.close()
        self._running[mine] = (number, process)

    def _receive(self) -> None:
        for pipe in wait(list(self._running)):
            if isinstance(pipe, Connection):
                number, process = self._running.pop(pipe)
                try:
                    self._answers[number] = msgspec.msgpack.decode(pipe.recv_bytes(), type=Recorded | Failure)
                except EOFError:
                    process.join()
                    self._answers[number] = Failure(f"its process ended without an answer (exit code {process.exitcode})", False)
                pipe.close()
                process.join()

    def _stop(self) -> None:
        for pipe, (_, process) in self._running.items():
            process.terminate()
            process.join()
            pipe.close()
        self._running.clear()


def _answer(spec: Spec, side: Side, number: int, pipe: Connection) -> None:
    from pitcheck.frontends.torch.session import record_rank  # noqa: PLC0415

    answer: Recorded | Failure
    try:
        answer = Recorded(record_rank(spec, side, number))
    except PitcheckError as error:
        answer = Failure(str(error), isinstance(error, PlanError))
    except Exception as error:
        # Whatever a program raises tells the user why it cannot be recorded.
        answer = Failure(f"{_line(error)}{type(error).__name__}: {error}", False)
    pipe.send_bytes(msgspec.msgpack.encode(answer))
    pipe.close()


def _line(error: BaseException) -> str:
    """The last line of the user's code that an error came through."""
    from pitcheck.frontends.torch.blame import OWN, short  # noqa: PLC0415

    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith((*OWN, "<"))]
    return f"{short(frames[-1].filename)}:{frames[-1].lineno}: " if frames else ""
