"""A whole check: two plans in, a report out.

``check`` runs one ordered list of strategies until one of them decides:

>>> from pitcheck.engine.strategies import STRATEGIES
>>> [strategy.__name__ for strategy in STRATEGIES[:4]]
['validate', 'state_problem', 'expose_unwritten_memory', 'prove_over_hints']
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any

from pitcheck.algebra.backend import array_module
from pitcheck.algebra.devices import OtherProcesses, several_gpus
from pitcheck.base.options import Options
from pitcheck.engine.decisions import stopped
from pitcheck.engine.state import Check, Progress
from pitcheck.engine.strategies import STRATEGIES
from pitcheck.errors import BudgetError, PlanError, UnsupportedError
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
    state = Check(
        reference, parallel, options, seed, xp, progress, load_seconds, jobs, again, causes
    )
    try:
        reports = (strategy(state) for strategy in STRATEGIES)
        report = next(report for report in reports if report is not None)
    except (PlanError, StepError, UnsupportedError, BudgetError) as error:
        return stopped(state, error)
    if decided is not None:
        decided(state)
    return report


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
