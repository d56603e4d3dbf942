"""Recording every rank of a program in a separate process.

A framework keeps state per process, which a second rank would find.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from functools import partial
from math import prod
from multiprocessing.connection import Connection
from typing import Literal

import msgspec

from pitcheck.errors import PitcheckError, PlanError, UnsupportedError
from pitcheck.forks import can_fork
from pitcheck.frontends.torch.patches.program_output import flush_all, to_file, to_stderr
from pitcheck.frontends.torch.program import Spec
from pitcheck.frontends.torch.recording.printed import Printed
from pitcheck.frontends.torch.routing import Routed
from pitcheck.frontends.torch.together.answers import Failure, Recorded
from pitcheck.frontends.torch.together.passed_infinity import check_reliance
from pitcheck.frontends.torch.together.rank_processes import RankProcesses
from pitcheck.frontends.torch.trace import Trace

Side = Literal["reference", "parallel"]


def record(
    spec: Spec,
    side: Side,
    jobs: int,
    printed: Printed | None = None,
    routed: Routed | None = None,
) -> list[Trace]:
    """Return one trace per rank; of the reference there is one rank.

    Routers choose as ``routed`` says. ``jobs`` ranks are recorded at a time. What they print is
    told once for all ranks, unless it is in ``printed``. Raises UnsupportedError or PlanError,
    which name the rank, for the first rank that cannot be recorded.
    """
    if not can_fork():
        raise UnsupportedError("recording a PyTorch program needs a system that can fork processes")
    count = prod(spec.mesh.values()) if side == "parallel" else 1
    # Each child would else import these again: optimizers and DistributedDataParallel do.
    import torch._dynamo  # noqa: PLC0415
    import torch.distributed.tensor  # noqa: F401, PLC0415

    import pitcheck.frontends.torch.recording.session  # noqa: F401, PLC0415

    ranks = RankProcesses(partial(_answer, spec, side, routed), max(jobs, 1))
    try:
        answers = ranks.run(range(count))
    finally:
        (Printed() if printed is None else printed).tell(side, ranks.outputs())
    recorded = {}
    for number, answer in sorted(answers.items()):
        if isinstance(answer, Failure):
            raise _error(side, number, answer, routed) from (
                MemoryError() if answer.out_of_memory else None
            )
        recorded[number] = answer
    check_reliance({number: answer.looked_at for number, answer in recorded.items()})
    check_reliance({number: answer.chosen for number, answer in recorded.items()})
    return [answer.trace for answer in recorded.values()]


def _error(
    side: Side, number: int, failure: Failure, routed: Routed | None
) -> PlanError | UnsupportedError:
    who = (
        f"rank {number} of the parallel program" if side == "parallel" else "the reference program"
    )
    if routed is not None:
        who += f" under the routing {routed.routing.name!r}"
    error = failure.error(who)
    if failure.traceback:
        error.add_note(f"{who} raised\n{failure.traceback}")
    return error


def _answer(
    spec: Spec,
    side: Side,
    routed: Routed | None,
    number: int,
    into: int | None,
    line: Connection,
    others: Sequence[Connection],
) -> bytes | None:
    from pitcheck.frontends.torch.recording.session import record_rank  # noqa: PLC0415

    if into is None:
        to_stderr()
    else:
        to_file(into)
    # A line whose other end is closed tells a waiting rank that nobody records any more.
    for other in others:
        other.close()
    process = os.getpid()
    answer: Recorded | Failure
    try:
        answer = record_rank(spec, side, number, line, routed)
    except PitcheckError as error:
        answer = Failure(
            str(error), error.code if isinstance(error, PlanError) else UnsupportedError.code
        )
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
        UnsupportedError.code if own else PlanError.code,
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
