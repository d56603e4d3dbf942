"""Plans of sources of any format that a frontend reads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path

from pitcheck.errors import PitcheckError, PlanError, UsageError
from pitcheck.frontends.builtin import PLAN_FILES, PLANNER_FILES, PROGRAMS
from pitcheck.frontends.protocol import Frontend, Request, installed
from pitcheck.plan.model import PairAt, Plan
from pitcheck.programs.frontend import CONFIGURATIONS

FRONTENDS = (PLAN_FILES, PLANNER_FILES, CONFIGURATIONS, PROGRAMS)
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


def pairs() -> str:
    """Return the names of sources that stand for two plans, for messages."""
    return " or ".join(frontend.accepts for frontend in FRONTENDS if frontend.gives_pair)


def read(file: str) -> Plan:
    """Return the plan in a file; the file's name says its format.

    Raises PlanError for a file that does not exist, has an unknown format or cannot be read, and
    what its frontend raises.
    """
    path = Path(file)
    if not path.exists():
        raise PlanError("no such file", file)
    if path.is_dir():
        raise PlanError("this is a directory; name a plan file", file)
    frontend = frontend_of(file)
    if frontend is None:
        raise PlanError(
            f"unknown format; name {', '.join(known.accepts for known in FRONTENDS)}, or install "
            f"a frontend for it",
            file,
        )
    if frontend.gives_pair:
        raise PlanError(
            f"this is {frontend.accepts}, which stands for two plans; `pitcheck plan make` or "
            f"`pitcheck capture` writes them to files",
            file,
        )
    try:
        return _plans(frontend, Request(file))[0]
    except UsageError as error:
        raise PlanError(str(error)) from None
    except OSError as error:
        raise PlanError(f"cannot read it: {error.strerror or error}", file) from None


def _plans(frontend: Frontend, request: Request) -> list[Plan]:
    """Return the plans that a frontend makes.

    Those of other packages must hold what a plan file may hold. Raises PitcheckError for a frontend
    that breaks its protocol, and PlanError for values that no plan file holds.
    """
    return _formed(frontend, request.source, frontend.read(request))


def _formed(frontend: Frontend, source: str, made: Sequence[Plan]) -> list[Plan]:
    plans = list(made)
    due = 2 if frontend.gives_pair else 1
    if len(plans) != due or not all(isinstance(plan, Plan) for plan in plans):
        raise PitcheckError(
            f"the frontend {frontend.name!r} gave {[type(plan).__name__ for plan in plans]} for "
            f"{source}; it must give {due} Plan"
        )
    if frontend in FRONTENDS:
        return plans
    from pitcheck.plan.files import well_formed  # noqa: PLC0415  heavy

    return [well_formed(plan, source) for plan in plans]
