"""Plans of sources of any format that a frontend reads."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from pitcheck.base.formats import known_file
from pitcheck.base.nearest import nearest_file, shown
from pitcheck.errors import PitcheckError, PlanError, UsageError
from pitcheck.frontends.builtin import (
    JAX_PROGRAMS,
    PLAN_FILES,
    PLAN_SUFFIXES,
    PLANNER_FILES,
    PROGRAMS,
    XLA_TEXTS,
)
from pitcheck.frontends.protocol import Attempt, Frontend, Pair, Request, deciding, installed
from pitcheck.plan.model import PairAt, Plan
from pitcheck.programs.frontend import CONFIGURATIONS

PROGRAM_HINT = "write {}:NAME, where NAME is a pitcheck.torch.Spec in it, and no second plan"
FRONTENDS = (PLAN_FILES, PLANNER_FILES, CONFIGURATIONS, PROGRAMS, XLA_TEXTS, JAX_PROGRAMS)
"""The frontends of this package, which no other package can replace."""


def frontend_of(source: str) -> Frontend | None:
    """Return the frontend that recognises a source, or None.

    Raises UsageError for a source that two frontends of other packages recognise, and for one of
    these that cannot be loaded.
    """
    known = next((frontend for frontend in FRONTENDS if frontend.recognises(source)), None)
    if known is not None:
        return known
    others = [frontend for frontend in installed() if frontend.recognises(source)]
    if len(others) > 1:
        raise UsageError(
            f"{source} is recognised by the frontends "
            f"{' and '.join(frontend.name for frontend in others)}; uninstall one of their packages"
        )
    return others[0] if others else None


def read_pair(source: str, assignments: Sequence[str] = (), jobs: int | None = None) -> list[Plan]:
    """Return the reference and the parallel plan of a source that stands for both.

    Raises UsageError for a source that does not and for wrong assignments, and what its frontend
    raises.
    """
    frontend = frontend_of(source)
    if frontend is None or not frontend.gives_pair:
        raise UsageError(f"{source} does not stand for two plans; only {pairs()} does")
    return _plans(frontend, Request(source, tuple(assignments), jobs))


def pair_at(source: str, assignments: Sequence[str] = (), jobs: int | None = None) -> PairAt | None:
    """Return what makes the pair of a source at another mesh; None if its frontend cannot.

    The source is read once more, at the first mesh that is asked for.
    """
    frontend = frontend_of(source)
    of = None if frontend is None or not frontend.gives_pair else frontend.again
    if frontend is None or of is None:
        return None
    again = cache(partial(of, Request(source, tuple(assignments), jobs)))
    return lambda mesh: _formed(frontend, source, again()(mesh))


def pairs_of(source: str, jobs: int | None = None) -> Callable[[], list[Pair]] | None:
    """Return what makes all pairs of a source that may have variants; None for any other source."""
    frontend = frontend_of(source)
    if frontend is None or frontend.pairs is None:
        return None
    return partial(_formed_pairs, frontend, frontend.pairs, Request(source, jobs=jobs))


def _formed_pairs(
    frontend: Frontend, made: Callable[[Request], Sequence[Pair]], request: Request
) -> list[Pair]:
    return [
        replace(pair, read=partial(_read_formed, frontend, request.source, pair.read))
        for pair in made(request)
    ]


def _read_formed(frontend: Frontend, source: str, read: Callable[[], Sequence[Plan]]) -> list[Plan]:
    return _formed(frontend, source, read())


def pairs() -> str:
    """Return the names of sources that stand for two plans, for messages."""
    return " or ".join(frontend.accepts for frontend in FRONTENDS if frontend.gives_pair)


def read(file: str) -> Plan:
    """Return the plan in a file; the file's name says its format.

    Raises PlanError for a file that does not exist, has an unknown format or cannot be read, and
    what its frontend raises.
    """
    _refuse_no_file(file)
    frontend = frontend_of(file)
    if frontend is None:
        raise PlanError(_unknown_format(file), file)
    if frontend.gives_pair:
        raise PlanError(
            f"this is {frontend.accepts}, which stands for two plans; check it alone (`pitcheck "
            f"check {file}`), or let `pitcheck plan make` or `pitcheck capture` write both to "
            f"files",
            file,
        )
    try:
        return _plans(frontend, Request(file))[0]
    except UsageError as error:
        raise PlanError(str(error)) from None
    except OSError as error:
        raise PlanError(f"cannot read it: {error.strerror or error}", file) from None


def readers_of(reference: str, parallel: str) -> list[Callable[[], list[Plan]]]:
    """Return what reads two files: a reader for each, or one if neither can be read alone.

    Raises UsageError if one of them is only read with another of its format, and the other file is
    none.
    """
    attempts = attempts_of(reference, parallel)
    if attempts is None:
        return [lambda: [read(reference)], lambda: [read(parallel)]]
    return [lambda: list(deciding(attempts()))]


def attempts_of(
    reference: str, parallel: str | None, assignments: Sequence[str] = ()
) -> Callable[[], Iterator[Attempt]] | None:
    """Return what yields the pairs of plans that are tried; None if there is one pair alone.

    Raises UsageError as :func:`readers_of` does.
    """
    if parallel is not None:
        return _attempts_on_two(reference, parallel)
    frontend = frontend_of(reference)
    made = None if frontend is None or not frontend.gives_pair else frontend.attempts
    return None if made is None else partial(made, [Request(reference, tuple(assignments))])


def _attempts_on_two(reference: str, parallel: str) -> Callable[[], Iterator[Attempt]] | None:
    frontends = [frontend_of(file) for file in (reference, parallel)]
    paired = next((f for f in frontends if f is not None and f.attempts and not f.gives_pair), None)
    made = None if paired is None else paired.attempts
    if paired is None or made is None:
        return None
    if frontends[0] is not frontends[1]:
        other = parallel if frontends[0] is paired else reference
        raise UsageError(
            f"{other} is of another format than the file beside it, which is {paired.accepts}; "
            f"name two of these, the reference first"
        )
    return partial(_read_two, paired, made, reference, parallel)


def _read_two(
    frontend: Frontend,
    made: Callable[[Sequence[Request]], Iterator[Attempt]],
    reference: str,
    parallel: str,
) -> Iterator[Attempt]:
    """Yield the plans of two files that are read together. Raises what :func:`read` raises."""
    faults = []
    for file in (reference, parallel):
        try:
            _refuse_no_file(file)
        except PlanError as error:
            faults.append(str(error))
    if faults:
        raise PlanError("; ".join(faults))
    try:
        for attempt in made([Request(reference), Request(parallel)]):
            yield replace(attempt, plans=_formed(frontend, reference, attempt.plans))
    except UsageError as error:
        raise PlanError(str(error)) from None
    except OSError as error:
        raise PlanError(f"cannot read it: {error.strerror or error}", error.filename) from None


def _unknown_format(file: str) -> str:
    """Return what a file is that no frontend recognises by its name, and what to name instead."""
    if file.endswith(".py"):
        return f"this is a Python file; {PROGRAM_HINT.format(file)}"
    known = known_file(Path(file)) if file.endswith(".json") else ""
    if known:
        return f"this is {known}; a plan file is named NAME{' or NAME'.join(PLAN_SUFFIXES)}"
    formats = ", ".join(frontend.accepts for frontend in FRONTENDS)
    return f"unknown format; name {formats}, or install a frontend for it"


def read_all(files: Sequence[str]) -> list[Plan]:
    """Return the plans in files.

    Raises PlanError, which names every file that cannot be read, and what else :func:`read` raises.
    """
    plans: list[Plan] = []
    faults: list[str] = []
    for file in files:
        try:
            plans.append(read(file))
        except PlanError as error:
            faults.append(str(error))
    if faults:
        raise PlanError("; ".join(faults))
    return plans


def file_of(source: str) -> str:
    """Return the file that a source names: that of a program is followed by a name in it."""
    is_program = PROGRAMS.recognises(source) or JAX_PROGRAMS.recognises(source)
    return source.rpartition(":")[0] if is_program else source


def with_devices(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a check's options, with ``--jax --devices N`` as a part of the source.

    Raises UsageError for one without the other, and beside anything but FILE.py:NAME.
    """
    given = dict(values)
    is_jax, devices = given.pop("jax"), given.pop("devices")
    source = given["reference"]
    if not is_jax:
        if devices is not None:
            raise UsageError(f"--devices {devices} is of a program of JAX; add --jax")
        return given
    if given["parallel"] is not None or not PROGRAMS.recognises(source):
        hint = "leave --jax out" if JAX_PROGRAMS.recognises(source) else "and no second plan"
        raise UsageError(f"--jax takes one program, FILE.py:NAME, and not {source}; {hint}")
    if devices is None:
        raise UsageError("--jax needs the number of devices; add --devices N")
    return {**given, "reference": f"{source}@{devices}"}


def _refuse_no_file(file: str) -> None:
    """Raise PlanError for a name that is neither a file nor a pipe, or a file of a folder."""
    if not file:
        raise PlanError("the name of the file is empty; name a plan file")
    path = Path(file_of(file))
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise PlanError(f"no such file{nearest_file(path)}", file) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PlanError(f"cannot read it: {reason}; name a plan file", shown(file)) from None
    if stat.S_ISDIR(mode):
        raise PlanError("this is a directory; name a plan file", file)
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
        raise PlanError("this is a device or a socket; name a plan file", file)


def _plans(frontend: Frontend, request: Request) -> list[Plan]:
    """Return the plans that a frontend makes.

    Those of other packages must hold what a plan file may hold. Raises PitcheckError for a frontend
    that breaks its protocol, and PlanError for values that no plan file holds.
    """
    due = 2 if frontend.gives_pair else 1
    return _formed(frontend, request.source, frontend.read(request), due)


def _formed(frontend: Frontend, source: str, made: Sequence[Plan], due: int = 2) -> list[Plan]:
    plans = list(made)
    if len(plans) != due or not all(isinstance(plan, Plan) for plan in plans):
        raise PitcheckError(
            f"the frontend {frontend.name!r} gave {[type(plan).__name__ for plan in plans]} for "
            f"{source}; it must give {due} Plan"
        )
    if frontend in FRONTENDS:
        return plans
    from pitcheck.plan.files import well_formed  # noqa: PLC0415  heavy

    return [well_formed(plan, source) for plan in plans]
