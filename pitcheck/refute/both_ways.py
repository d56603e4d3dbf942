"""Runs in which decisions fall both ways, so that a cause is looked for on either side of each.

Where a gradient's norm is clipped, the clipped gradient forgets by what factor it was wrong. Inputs
that all fall into that branch show only the 1e-6 beside the norm, and blame it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.reals.real import RealAlgebra
from pitcheck.algebra.value import Value
from pitcheck.errors import PitcheckError
from pitcheck.prove.reals.trial_inputs import FIRST_SCALED, SORTS, TrialInputs, points_of
from pitcheck.refute.whole_run import WholeRun, compared_run
from pitcheck.stage.batch import needed_steps
from pitcheck.stage.drawn_inputs import draw
from pitcheck.stage.evaluate import (
    Comparison,
    Keeping,
    check_memory,
    compare_target,
    evaluate_stage,
)
from pitcheck.stage.literals import numbers
from pitcheck.stage.run_batch import step_at

FACTORS = (1 / 64, 8.0, 1 / 8, 64.0, 1 / 1024, 1024.0)
"""The factors by which ordinary inputs are scaled all together."""
RESTARTS = 2 * len(SORTS)
"""The draws of inputs of other sorts: of one sign, small integers, at the numbers that the plans
name. In half of them each tensor has a sort of its own.
"""
WAYS = (*(FIRST_SCALED + n for n in range(len(FACTORS))), *range(1, RESTARTS))
"""The further inputs that are tried, by their trial, the most ordinary ones first."""
AT_ONCE = 8
"""The inputs that are evaluated together."""

Counts = NDArray[np.int64]
Outcome = tuple[str, int, bool]
"""A side, the number of a step of it, and what it decided for some element."""


def run_both_ways(run: WholeRun, differing: Sequence[int], memory: int) -> WholeRun:
    """Return the run with further inputs, for which steps decide otherwise than for all of its own.

    Its ``sought`` says how many inputs were tried for that: none if it shows both outcomes of every
    decision before the outputs ``differing``. ``memory``: the bytes that inputs may need.
    """
    if run.blocks is not None or run.targets_only:
        return run
    try:
        ways, sought = _ways(run, differing, memory)
        return replace(with_ways(run, ways, memory), sought=sought)
    except PitcheckError:  # an operator may refuse such inputs
        return run


def with_ways(run: WholeRun, ways: Sequence[int], memory: int) -> WholeRun:
    """Return a run on its own inputs and on those of further trials.

    Raises:
        StepError: an operator refuses them.
        BudgetError: the inputs need more than ``memory`` bytes.
    """
    if not ways:
        return run
    own = run.evaluated.algebra
    check_memory(run.shaped, len(own.trials) + len(ways), memory)
    drawn = {
        value: _joined(run.evaluated.drawn[value], more, len(own.trials))
        for value, more in _drawn(run, ways).items()
    }
    algebra = RealAlgebra(np, own.seed, (*own.trials, *ways))
    with np.errstate(all="ignore"):
        evaluated = evaluate_stage(run.shaped, algebra, drawn)
    return replace(compared_run(run.shaped, run.symbolic, evaluated), ways=tuple(ways))


def _ways(run: WholeRun, differing: Sequence[int], memory: int) -> tuple[list[int], int]:
    """Return the trials that show what no input of a run has decided, and how many were tried."""
    steps = _steps(run, differing)
    seen = set(_outcomes(run.evaluated.algebra, steps, slice(None)))
    chosen: list[int] = []
    tried = 0
    while tried < len(WAYS) and any((side, n, not told) not in seen for side, n, told in seen):
        ways = WAYS[tried : tried + AT_ONCE]
        tried += len(ways)
        algebra, finite = _tried(run, ways, memory)
        for number, way in enumerate(ways):
            new = set(_outcomes(algebra, steps, slice(number, number + 1))) - seen
            if new and finite[number]:
                seen |= new
                chosen.append(way)
    return chosen, tried


def _steps(run: WholeRun, differing: Sequence[int]) -> Mapping[str, frozenset[int]]:
    """Return the numbers of the steps that some outputs are computed by, of either side."""
    targets = [run.comparisons[n].target.cut for n in differing]
    stage = run.stage
    return {
        "reference": frozenset(
            n for t in targets for n in needed_steps(stage.reference, t.reference)[0]
        ),
        "parallel": frozenset(n for t in targets for n in needed_steps(stage.parallel, t.value)[0]),
    }


def _outcomes(
    algebra: RealAlgebra, steps: Mapping[str, frozenset[int]], trials: slice
) -> Iterator[Outcome]:
    """Yield what the steps have decided in some trials."""
    for each in algebra.decisions:
        side = each.site.partition(" ")[0]
        step = step_at(each.site, f"{side} ")
        if step is not None and step in steps[side]:
            for outcome, counts in ((True, each.true), (False, each.false)):
                if counts[trials].any():
                    yield side, step, outcome


def _tried(run: WholeRun, ways: Sequence[int], memory: int) -> tuple[RealAlgebra, list[bool]]:
    """Run both sides on the inputs of some trials.

    Returns:
        The algebra with what was decided; for each trial if about as much is finite as in the
        trials of the run.
    """
    check_memory(run.shaped, len(ways), memory)
    algebra = RealAlgebra(np, run.evaluated.algebra.seed, ways)
    with np.errstate(all="ignore"):
        evaluated = evaluate_stage(
            run.shaped, algebra, _drawn(run, ways), keep=Keeping.targets(run.shaped)
        )
        compared = [compare_target(run.shaped, evaluated, n) for n in range(len(run.comparisons))]
    found = _finite(compared, len(ways))
    least = int(_finite(run.comparisons, len(run.evaluated.algebra.trials)).min())
    return algebra, [10 * int(count) >= 9 * least for count in found]


def _finite(compared: Sequence[Comparison], trials: int) -> Counts:
    """Return for every trial how many elements of the outputs are finite on both sides."""
    counts = np.zeros(trials, dtype=np.int64)
    for each in compared:
        both = np.broadcast_arrays(
            *(np.asarray(side.data, dtype=np.float64)[0] for side in (each.actual, each.expected))
        )
        finite = np.isfinite(both[0]) & np.isfinite(both[1])
        counts += finite.reshape(len(finite), -1).sum(axis=1)
    return counts


def _drawn(run: WholeRun, ways: Sequence[int]) -> dict[int, Value]:
    """Return the inputs of some trials, by reference value."""
    stage = run.stage
    points = points_of(numbers(stage.reference) | numbers(stage.parallel))
    inputs = TrialInputs(run.evaluated.algebra.seed, ways, points, factors=FACTORS)
    with np.errstate(all="ignore"):
        return {value: draw(inputs, fresh) for value, fresh in run.shaped.fresh.items()}


def _joined(first: Value, second: Value, trials: int) -> Value:
    """Return the inputs of ``trials`` trials with those of further ones behind them."""
    data = np.asarray(first.data)
    whole = np.broadcast_to(data, (data.shape[0], trials, *data.shape[2:]))
    return replace(first, data=np.concatenate([whole, np.asarray(second.data)], axis=1))
