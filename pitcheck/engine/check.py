"""A whole check: two plans in, a report out.

``check`` runs one ordered list of strategies until one of them decides:

>>> from pitcheck.engine.strategies import STRATEGIES
>>> [strategy.__name__ for strategy in STRATEGIES[:4]]
['validate', 'place_draws', 'state_problem', 'expose_unwritten_memory']
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any

from pitcheck.algebra.backend import array_module
from pitcheck.algebra.devices import OtherProcesses, several_gpus
from pitcheck.base.options import Options
from pitcheck.base.work import Work
from pitcheck.engine.decisions import interrupted, stopped
from pitcheck.engine.state import Check, Progress
from pitcheck.engine.strategies import STRATEGIES, Strategy
from pitcheck.errors import BudgetError, Interrupted, PlanError, UnsupportedError
from pitcheck.forks import usable_jobs
from pitcheck.plan.model import PairAt, Plan
from pitcheck.report.report import Finding, Report
from pitcheck.stage.run_batch import StepError


def check(
    reference: Plan,
    parallel: Plan,
    options: Options,
    progress: Progress | None = None,
    load_seconds: float = 0.0,
    again: PairAt | None = None,
    decided: Callable[[Check], None] | None = None,
    causes: Sequence[Finding] = (),
) -> Report:
    """Decide whether ``parallel`` computes what ``reference`` computes.

    ``progress`` is told how far the proofs are; ``load_seconds``: the seconds that reading both
    plans took. ``again`` makes the pair at another mesh, to try repairs there; None: it cannot be
    made again. ``decided`` is given the check at its end. ``causes`` are findings of another pair,
    whose repairs are known to make this one right: they explain a mismatch. Bad plans give a report
    with verdict ``invalid``.

    Raises:
        UsageError: the options contradict each other. Nothing else is raised on purpose.
    """
    seed = secrets.randbits(128) if options.seed is None else options.seed
    xp, jobs = _arrays_and_jobs(options)
    work = progress if isinstance(progress, Work) else Work(progress)
    state = Check(reference, parallel, options, seed, xp, work, load_seconds, jobs, again, causes)
    work.check = state
    try:
        report = _decided(state)
    except (PlanError, StepError, UnsupportedError, BudgetError) as error:
        return stopped(state, error)
    except Interrupted as error:
        work.noticed = True
        return interrupted(state, str(error))
    if decided is not None:
        decided(state)
    return report


def _decided(check: Check) -> Report:
    """Return the report of the first strategy that decides."""
    for strategy in STRATEGIES:
        check.work.begins(said_of(strategy))
        report = strategy(check)
        if report is not None:
            return report
    raise UnsupportedError("no strategy decides the check")


def said_of(strategy: Strategy) -> str:
    """Return what a strategy does, as its docstring says first."""
    first = (strategy.__doc__ or strategy.__name__).partition(".")[0].partition("\n")[0]
    return first[0].lower() + first[1:]


def _arrays_and_jobs(options: Options) -> tuple[Any, int]:
    """Return the array module, and the number of processes that prove stages.

    Raises:
        UsageError: the backend cannot be used, or not by so many processes.
    """
    several = several_gpus(options.backend, options.shapes, options.jobs)
    if several is not None:
        return OtherProcesses(several.names), len(several.names)
    xp = array_module(options.backend)
    return xp, options.jobs or (usable_jobs() if xp.__name__ == "numpy" else 1)
