"""Recording every rank of a program in a separate process.

A framework keeps state per process, which a second rank would find.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from math import prod
from typing import IO, Literal

import msgspec

from pitcheck.errors import PitcheckError, PlanError, UnsupportedError
from pitcheck.forks import Forks, can_fork
from pitcheck.frontends.torch.patches.program_output import flush_all, to_file, to_stderr
from pitcheck.frontends.torch.program import Spec
from pitcheck.frontends.torch.recording.printed import Printed, output_file, output_of
from pitcheck.frontends.torch.trace import Trace

Side = Literal["reference", "parallel"]


class Failure(msgspec.Struct, frozen=True, tag="failure"):
    """The reason why a rank has no trace.

    ``invalid`` says that the program is at fault. ``traceback`` is that of an exception of the
    program, as Python shows it. ``out_of_memory``: that exception is a MemoryError.
    """

    message: str
    invalid: bool
    traceback: str = ""
    out_of_memory: bool = False


class Recorded(msgspec.Struct, frozen=True, tag="recorded"):
    """The trace of a rank."""

    trace: Trace


def record(spec: Spec, side: Side, jobs: int, printed: Printed | None = None) -> list[Trace]:
    """Return one trace per rank; of the reference there is one rank.

    ``jobs`` ranks are recorded at a time. What they print is told once for all ranks, unless it is
    in ``printed``. Raises UnsupportedError or PlanError, which name the rank, for the first rank
    that cannot be recorded.
    """
    if not can_fork():
        raise UnsupportedError("recording a PyTorch program needs a system that can fork processes")
    count = prod(spec.mesh.values()) if side == "parallel" else 1
    ranks = _Ranks(spec, side, max(jobs, 1))
    try:
        answers = ranks.run(range(count))
    finally:
        (Printed() if printed is None else printed).tell(side, ranks.outputs())
    traces = []
    for number, answer in enumerate(answers):
        if isinstance(answer, Failure):
            who = (
                f"rank {number} of the parallel program"
                if side == "parallel"
                else "the reference program"
            )
            error = (PlanError if answer.invalid else UnsupportedError)(f"{who}: {answer.message}")
            if answer.traceback:
                error.add_note(f"{who} raised\n{answer.traceback}")
            raise error from (MemoryError() if answer.out_of_memory else None)
        traces.append(answer.trace)
    return traces


class _Ranks:
    """The processes that record ranks, and their answers by rank."""

    def __init__(self, spec: Spec, side: Side, jobs: int) -> None:
        # Each child would else import it again.
        import pitcheck.frontends.torch.recording.session  # noqa: F401, PLC0415

        self._spec = spec
        self._side: Side = side
        self._jobs = jobs
        self._forks: Forks[int] = Forks()
        self._answers: dict[int, Recorded | Failure] = {}
        self._files: dict[int, IO[bytes]] = {}
        self._outputs: dict[int, str] = {}

    def run(self, numbers: Sequence[int]) -> list[Recorded | Failure]:
        """Return the answers of all ranks up to the first that failed."""
        waiting = list(reversed(numbers))
        try:
            while (waiting or self._forks.running) and not self._failures():
                while waiting and len(self._forks.running) < self._jobs:
                    number = waiting.pop()
                    self._start(number)
                self._receive()
            while self._forks.running and min(self._failures()) > min(self._forks.running):
                self._receive()
        finally:
            self._forks.stop()
        return [self._answers[number] for number in sorted(self._answers)]

    def outputs(self) -> dict[int, str]:
        """Return what the ranks have printed, by rank, the stopped ones included."""
        for number in tuple(self._files):
            self._read(number)
        return self._outputs

    def _read(self, number: int) -> None:
        # Files of ranks that have ended are closed: a process may have only so many.
        file = self._files.pop(number, None)
        if file is not None:
            self._outputs[number] = output_of(file)

    def _start(self, number: int) -> None:
        file = output_file()
        if file is not None:
            self._files[number] = file
        into = None if file is None else file.fileno()
        self._forks.start(number, _answer, self._spec, self._side, number, into)

    def _failures(self) -> list[int]:
        return [number for number, answer in self._answers.items() if isinstance(answer, Failure)]

    def _receive(self) -> None:
        for ended in self._forks.ended():
            self._read(ended.key)
            died = Failure(_death(ended.code), True)
            self._answers[ended.key] = (
                died
                if ended.answer is None
                else msgspec.msgpack.decode(ended.answer, type=Recorded | Failure)
            )


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        return f"its process was killed by signal {-code}"
    return (
        f"its process ended without an answer (exit code {code}), as by os._exit; a step has "
        f"to return"
    )


def _answer(spec: Spec, side: Side, number: int, into: int | None) -> bytes | None:
    from pitcheck.frontends.torch.recording.session import record_rank  # noqa: PLC0415

    if into is None:
        to_stderr()
    else:
        to_file(into)
    process = os.getpid()
    answer: Recorded | Failure
    try:
        answer = Recorded(record_rank(spec, side, number))
    except PitcheckError as error:
        answer = Failure(str(error), isinstance(error, PlanError))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # Whatever a program raises ends its step, and so does SystemExit.
        answer = _raised(error)
    flush_all()
    # A process that the program itself has forked must not answer in its place.
    return msgspec.msgpack.encode(answer) if os.getpid() == process else None


def _raised(error: BaseException) -> Failure:
    """Return the failure of a rank that raised.

    An exception of the recorder itself, or of a framework that does not know tensors without
    numbers, says nothing about the program. Nor does one of who does not know what stands in the
    place of a number.
    """
    from pitcheck.frontends.torch.reads.unknown_numbers import stands_in  # noqa: PLC0415
    from pitcheck.frontends.torch.recording.blame import PITCHECK  # noqa: PLC0415

    frames = traceback.extract_tb(error.__traceback__)
    own = (
        isinstance(error, NotImplementedError)
        or bool(frames and frames[-1].filename.startswith(PITCHECK))
        or stands_in(str(error))
    )
    return Failure(
        f"{_line(error)}{type(error).__name__}: {error}",
        not own,
        _shown(error, PITCHECK),
        isinstance(error, MemoryError),
    )


def _shown(error: BaseException, hidden: str) -> str:
    """Return the traceback without the recorder's frames."""
    described: traceback.TracebackException | None = traceback.TracebackException.from_exception(
        error
    )
    first = described
    while described is not None:
        described.stack = traceback.StackSummary.from_list(
            [frame for frame in described.stack if not frame.filename.startswith(hidden)]
        )
        described = described.__cause__ or described.__context__
    return "".join(first.format()) if first is not None else ""


def _line(error: BaseException) -> str:
    """Return the innermost line of the user's code that an error came through, as "file:line: "."""
    from pitcheck.frontends.torch.recording.blame import OWN, short  # noqa: PLC0415

    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((*OWN, "<"))
    ]
    return f"{short(frames[-1].filename)}:{frames[-1].lineno}: " if frames else ""
