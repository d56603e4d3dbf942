"""The frontends of this package.

The code that reads a format is imported when a source of that format is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from pitcheck.errors import UsageError
from pitcheck.frontends.protocol import Attempt, Frontend, Pair, Request, deciding
from pitcheck.plan.model import PairAt, Plan

PLAN_SUFFIXES = (".plan.json", ".plan.zst")
XLA_SUFFIXES = (".hlo.txt", ".hlo")
_DUMPED = re.compile(
    r".*\b(before|after)_(spmd-partitioning|shardy|sharding)[\w.-]*\.txt", re.DOTALL
)
_PROGRAM = re.compile(r".+\.py:[A-Za-z_]\w*", re.ASCII)
_JAX_PROGRAM = re.compile(rf"{_PROGRAM.pattern}@\d{{1,6}}", re.ASCII)


def _read_plan_file(request: Request) -> list[Plan]:
    from pitcheck.plan.files import read_plan  # noqa: PLC0415

    return [read_plan(Path(request.source))]


def _read_planner_file(request: Request) -> list[Plan]:
    """Read a planner's pickle. Nothing in the file is executed."""
    from pitcheck.frontends.nnscaler import read_nnscaler  # noqa: PLC0415

    return [read_nnscaler(Path(request.source))]


def _attempts_on_texts(requests: Sequence[Request]) -> Iterator[Attempt]:
    """Read the texts before and after XLA's partitioner. Nothing in them is run."""
    from pitcheck.frontends.xla.lowering.pair import read_partitioned  # noqa: PLC0415

    before, after = requests
    return read_partitioned(Path(before.source), Path(after.source))


def _attempts_on_jax_program(requests: Sequence[Request]) -> Iterator[Attempt]:
    """Compile a program. The file is the user's own program, and runs."""
    from pitcheck.frontends.xla.running.source import read_jax_program  # noqa: PLC0415

    (request,) = requests
    return read_jax_program(request.source, request.assignments)


def _read_jax_program(request: Request) -> Sequence[Plan]:
    return deciding(_attempts_on_jax_program([request]))


def _is_jax_program(source: str) -> bool:
    return _JAX_PROGRAM.fullmatch(source) is not None


def _refuse_alone(request: Request) -> list[Plan]:
    raise UsageError(
        f"{request.source} is one of two texts of XLA; `pitcheck check BEFORE AFTER` reads the one "
        f"before the partitioner with the one after it"
    )


def _is_xla_text(source: str) -> bool:
    return source.endswith(XLA_SUFFIXES) or _DUMPED.fullmatch(source) is not None


def _read_programs(request: Request) -> tuple[Plan, Plan]:
    """Record both programs of a specification. The file is the user's own program, and runs."""
    from pitcheck.frontends.torch.capture import capture  # noqa: PLC0415
    from pitcheck.frontends.torch.load import load_spec  # noqa: PLC0415

    file, _, name = request.source.rpartition(":")
    return capture(load_spec(file, name), jobs=request.jobs)


def _programs_again(request: Request) -> PairAt:
    """Return what records both programs at another mesh. The file runs once more."""
    from pitcheck.frontends.torch.capture import capture_at  # noqa: PLC0415
    from pitcheck.frontends.torch.load import load_spec  # noqa: PLC0415
    from pitcheck.frontends.torch.recording.printed import Printed  # noqa: PLC0415

    file, _, name = request.source.rpartition(":")
    return partial(capture_at, load_spec(file, name), jobs=request.jobs, printed=Printed())


def _pairs_of_programs(request: Request) -> list[Pair]:
    """Return a pair for every variant of a specification. The file runs once."""
    from pitcheck.frontends.torch.capture import captured_pairs  # noqa: PLC0415
    from pitcheck.frontends.torch.load import load_spec  # noqa: PLC0415

    file, _, name = request.source.rpartition(":")
    return captured_pairs(load_spec(file, name), jobs=request.jobs)


def _is_program(source: str) -> bool:
    return _PROGRAM.fullmatch(source) is not None


PLAN_FILES = Frontend(
    "plan",
    f"a plan file ({', '.join(PLAN_SUFFIXES)})",
    lambda source: source.endswith(PLAN_SUFFIXES),
    _read_plan_file,
    in_one_file=True,
)
PLANNER_FILES = Frontend(
    "nnscaler",
    "an nnScaler execution plan (.pkl)",
    lambda source: source.endswith(".pkl"),
    _read_planner_file,
    in_one_file=True,
)
XLA_TEXTS = Frontend(
    "xla",
    f"a text that XLA dumps before or after its partitioner ({', '.join(XLA_SUFFIXES)})",
    _is_xla_text,
    _refuse_alone,
    in_one_file=True,
    attempts=_attempts_on_texts,
)
PROGRAMS = Frontend(
    "torch",
    "a specification (FILE.py:NAME)",
    _is_program,
    _read_programs,
    gives_pair=True,
    again=_programs_again,
    pairs=_pairs_of_programs,
)
JAX_PROGRAMS = Frontend(
    "jax",
    "a program of JAX (FILE.py:NAME@DEVICES)",
    _is_jax_program,
    _read_jax_program,
    gives_pair=True,
    takes_settings=True,
    attempts=_attempts_on_jax_program,
)
