"""The whole pair of plans as one stage, run from its inputs on the reals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pitcheck.algebra.dimensions.size_choice import LEAST, Sizes
from pitcheck.algebra.reals.real import RealAlgebra
from pitcheck.claims.conjecture import find_cuts, telling_trials
from pitcheck.claims.problem import Problem
from pitcheck.claims.real_numbers import real_differences
from pitcheck.errors import BudgetError
from pitcheck.graph.cuts import Cut
from pitcheck.graph.graph import Graph, Source
from pitcheck.prove.reals.trial_inputs import (
    FIRST_ALIKE,
    SmallIntegers,
    TrialInputs,
    points_of,
)
from pitcheck.refute.constant_factors import constant_factors
from pitcheck.stage.building import build_stage
from pitcheck.stage.drawn_inputs import draw
from pitcheck.stage.equal_blocks import Blocks
from pitcheck.stage.evaluate import (
    Comparison,
    Evaluated,
    check_memory,
    compare_target,
    discrete_cases,
    evaluate_stage,
)
from pitcheck.stage.shaped_stage import ShapedStage, shape_stage
from pitcheck.stage.shapes import SymbolicPair, symbolic_pair
from pitcheck.stage.stage import CutOf, Stage, Target

MOST_TRIALS = 24
"""The most trials of one run."""
FEW_TRIALS = 0, 4, 8
"""The trials of a run that only looks for cuts, and for what differs everywhere. Integers differ
from each other there: if all tokens are equal, whole gradients are what rounding leaves of zero.
"""
ALIKE_TRIALS = 4
"""The number of draws in which all tokens are nearly equal."""
ZEROS_TRIALS = 16
"""The number of draws of small integers with few zeros."""
ROOMY = 1 << 23
"""The number of elements of all values up to which every dimension gets a different size. With more
elements, the smallest sizes are used.
"""
SAME = 1e-9
"""The relative difference below which two float64 results of a whole step count as rounding."""


@dataclass
class WholeRun:
    """One run of the pair on float64, with the comparison of every output.

    ``largest`` has the largest relative difference of each of the ``comparisons``.
    """

    stage: Stage
    symbolic: SymbolicPair
    shaped: ShapedStage
    evaluated: Evaluated
    comparisons: list[Comparison]
    largest: list[float]
    blocks: Blocks | None = None
    """The blocks of the batch that hold equal data, if any do."""
    targets_only: bool = False
    """True if values other than those compared were given up."""
    ways: tuple[int, ...] = ()
    """The trials whose inputs were added to show further outcomes of decisions."""
    sought: int = 0
    """The inputs that were tried for such outcomes."""

    def suspects(self) -> list[int]:
        """Return the numbers of the outputs that differ by more than float64 usually rounds.

        Only more digits can tell if they really differ.
        """
        return [number for number, difference in enumerate(self.largest) if difference > SAME]


def run_whole(
    problem: Problem, *, scale: float | None = None, alike: bool = False, must_fit: bool = False
) -> WholeRun:
    """Run both plans from their inputs.

    ``scale``: the standard deviation of the inputs, None for one that suits their shapes.
    ``alike``: draw tokens that are nearly equal. ``must_fit``: where full shapes are asked for and
    do not fit, raise BudgetError; else reduced ones stand in, at which a difference counts, too.

    Raises:
        StepError, PlanError, UnsupportedError: an operator or a cut cannot be evaluated.
        BudgetError: one draw, or the inputs of all draws, need more than the options' memory.
    """
    stage = problem.whole_stage()
    full = problem.full_shapes and (must_fit or _fits(problem, stage))
    shaped, symbolic = _shaped(problem, stage, full_shapes=full)
    evaluated = _alike(problem, shaped) if alike else _evaluated(problem, shaped, scale)
    return compared_run(shaped, symbolic, evaluated)


def run_few(problem: Problem) -> WholeRun | None:
    """Run both plans in a few trials; return None if ``run_whole`` needs about as few.

    Large plans run at sizes at which a count that is held against a literal differs from it. So a
    difference there says nothing, and they run again without.

    Raises:
        BudgetError: as ``run_whole`` does; it names what differs without regard to literals.
        StepError, PlanError, UnsupportedError: as ``run_whole`` does.
    """
    stage = problem.whole_stage()
    full = problem.full_shapes and _fits(problem, stage)
    loose = None if full else _loosely_shaped(problem, stage)
    run = None if loose is None else _in_draws(problem, *loose, FEW_TRIALS)
    suspects = [] if run is None else run.suspects()
    if run is not None and not suspects:
        return run
    try:
        shaped, symbolic = _shaped(problem, stage, full_shapes=full)
    except BudgetError as error:
        if run is None:
            raise
        name = run.comparisons[suspects[0]].target.name
        raise BudgetError(
            f"{error}; at smaller sizes {name!r} differs first, which is no proof: a literal that "
            f"is a number of elements would be another number there"
        ) from None
    if _enough_trials(shaped, problem.seed) <= 2 * len(FEW_TRIALS):
        return None
    return _in_draws(problem, shaped, symbolic, FEW_TRIALS)


def run_full(problem: Problem, trials: Sequence[int]) -> WholeRun:
    """Run both plans at full shapes, in some draws of their inputs.

    Raises what ``run_whole`` raises.
    """
    shaped, symbolic = _shaped(problem, problem.whole_stage(), full_shapes=True)
    return _in_draws(problem, shaped, symbolic, trials)


def _in_draws(
    problem: Problem, shaped: ShapedStage, symbolic: SymbolicPair, trials: Sequence[int]
) -> WholeRun:
    """Run both plans at some sizes in some draws."""
    check_memory(shaped, len(trials), problem.options.max_memory)
    with np.errstate(all="ignore"):
        evaluated = evaluate_stage(shaped, RealAlgebra(np, problem.seed, trials))
    return compared_run(shaped, symbolic, evaluated)


def run_stage(problem: Problem, cut_of: CutOf, target: Target) -> WholeRun:
    """Run one stage as if it were the whole pair, from the cuts that it reads to its target.

    ``cut_of`` maps a parallel value to the cut at which it is given, or None. Raises what
    ``run_whole`` raises.
    """
    stage = build_stage(problem.reference, problem.parallel, cut_of, [target])
    shaped, symbolic = _shaped(problem, stage, full_shapes=False)
    return compared_run(shaped, symbolic, _evaluated(problem, shaped, None))


def _shaped(
    problem: Problem, stage: Stage, *, full_shapes: bool
) -> tuple[ShapedStage, SymbolicPair]:
    """Return a stage at the sizes of a run, and its dimensions."""
    symbolic = _symbolic(problem, stage)
    sizes = symbolic.system.full() if full_shapes else _small_sizes(symbolic)
    return _at_sizes(problem, stage, symbolic, sizes), symbolic


def _loosely_shaped(problem: Problem, stage: Stage) -> tuple[ShapedStage, SymbolicPair] | None:
    """Return a large stage at the least sizes, with its dimensions; None for a small one.

    Dimensions shrink, too, that a literal may mean.
    """
    symbolic = _symbolic(problem, stage)
    if _held(symbolic, _small_sizes(symbolic)) <= ROOMY:
        return None
    symbolic = _symbolic(problem, stage)
    sizes = symbolic.system.shrink(LEAST, loose=True)
    return _at_sizes(problem, stage, symbolic, sizes), symbolic


def _symbolic(problem: Problem, stage: Stage) -> SymbolicPair:
    """Return a stage on its dimensions."""
    return symbolic_pair(stage.reference, stage.parallel, stage.all_cuts(), problem.templates)


def _at_sizes(problem: Problem, stage: Stage, symbolic: SymbolicPair, sizes: Sizes) -> ShapedStage:
    """Return a stage at some sizes. Raises BudgetError if a draw does not fit into memory."""
    _check_values(symbolic, sizes, problem.options.max_memory)
    keys = {value: f"whole/{info.name}" for value, info in enumerate(problem.reference.values)}
    return shape_stage(stage, symbolic, sizes, keys)


def _held(symbolic: SymbolicPair, sizes: Sizes) -> int:
    """Return the number of elements of all values of both plans."""
    return symbolic.reference.held(sizes) + symbolic.parallel.held(sizes)


def compared_run(shaped: ShapedStage, symbolic: SymbolicPair, evaluated: Evaluated) -> WholeRun:
    """Return the run of a stage that was evaluated."""
    with np.errstate(all="ignore"):
        comparisons = [
            compare_target(shaped, evaluated, n) for n in range(len(shaped.stage.targets))
        ]
    return WholeRun(
        shaped.stage, symbolic, shaped, evaluated, comparisons, _largest_differences(comparisons)
    )


def _check_values(symbolic: SymbolicPair, sizes: Sizes, most: int) -> None:
    """Check that the values of one draw need at most ``most`` bytes. Raises BudgetError."""
    needed = 8 * _held(symbolic, sizes)
    if needed > most:
        whole = sizes.largest_whole()
        raise BudgetError(
            f"a draw of both plans together needs about {needed >> 20} MiB, more than "
            f"--max-memory allows ({most >> 20} MiB)"
            + (f"; the largest size that cannot be reduced: {whole}" if whole else "")
        )


def _fits(problem: Problem, stage: Stage) -> bool:
    """Return True if all values of the draws of a run fit into memory at full shapes."""
    symbolic = _symbolic(problem, stage)
    try:
        _check_values(symbolic, symbolic.system.full(), problem.options.max_memory // MOST_TRIALS)
    except BudgetError:
        return False
    return True


def _small_sizes(symbolic: SymbolicPair) -> Sizes:
    """Return reduced sizes at which a run fits into memory.

    Dimensions may share a size here: if the run shows no difference, the proofs distinguish them.
    """
    sizes = symbolic.system.solve(0)
    return sizes if _held(symbolic, sizes) <= ROOMY else symbolic.system.shrink(LEAST)


def _largest_differences(comparisons: Sequence[Comparison]) -> list[float]:
    """Return the largest relative difference of every comparison on the reals."""
    return [
        float(np.max(real_differences(c.actual, c.expected), where=c.judged[:1], initial=0.0))
        for c in comparisons
    ]


def _evaluated(problem: Problem, shaped: ShapedStage, scale: float | None) -> Evaluated:
    """Evaluate both sides in as many trials as are enough.

    There are more if fewer than two are finite: a draw in which no token counts is NaN from the
    loss on.
    """
    trials = _enough_trials(shaped, problem.seed)
    while True:
        check_memory(shaped, trials, problem.options.max_memory)
        with np.errstate(all="ignore"):
            algebra = RealAlgebra(np, problem.seed, range(trials), scale=scale)
            evaluated = evaluate_stage(shaped, algebra)
        if trials >= MOST_TRIALS or telling_trials(shaped.stage.reference, evaluated) >= 2:
            return evaluated
        trials += 2


def _alike(problem: Problem, shaped: ShapedStage) -> Evaluated:
    """Evaluate both sides on nearly equal tokens, so that nearly all of them choose the same."""
    check_memory(shaped, ALIKE_TRIALS, problem.options.max_memory)
    draws = range(FIRST_ALIKE, FIRST_ALIKE + ALIKE_TRIALS)
    inputs = TrialInputs(problem.seed, draws, points_of(()))
    algebra = RealAlgebra(np, problem.seed, range(ALIKE_TRIALS))
    with np.errstate(all="ignore"):
        return evaluate_stage(
            shaped, algebra, {value: draw(inputs, fresh) for value, fresh in shaped.fresh.items()}
        )


def run_at_zeros(problem: Problem) -> WholeRun | None:
    """Run both plans on small integers with few zeros among them, at which quotients have no value.

    Return a run of one draw in which the parallel plan alone has no finite value for some element,
    and the reference has one wherever the parallel plan has; None if no draw is like that.

    Raises what ``run_whole`` raises.
    """
    stage = problem.whole_stage()
    full = problem.full_shapes and _fits(problem, stage)
    shaped, symbolic = _shaped(problem, stage, full_shapes=full)
    check_memory(shaped, ZEROS_TRIALS, problem.options.max_memory)
    for trial in range(ZEROS_TRIALS):
        inputs = SmallIntegers(problem.seed, [trial], points_of(()))
        with np.errstate(all="ignore"):
            drawn = {value: draw(inputs, fresh) for value, fresh in shaped.fresh.items()}
            evaluated = evaluate_stage(shaped, RealAlgebra(np, problem.seed, [trial]), drawn)
        run = compared_run(shaped, symbolic, evaluated)
        if _lacks_more(run):
            return run
    return None


def _lacks_more(run: WholeRun) -> bool:
    """Return True if the parallel plan lacks numbers that the reference has, and no other way."""
    found = False
    for comparison in run.comparisons:
        if comparison.actual.kind != "field":
            continue
        actual, expected, judged = np.broadcast_arrays(
            comparison.actual.data[0], comparison.expected.data[0], comparison.judged[:1]
        )
        missing = ~np.isfinite(actual) & judged
        if (~np.isfinite(expected) & judged & (actual != expected) & ~np.isnan(expected)).any() or (
            np.isnan(expected) & judged & ~np.isnan(actual)
        ).any():
            return False
        found = found or bool((missing & np.isfinite(expected)).any())
    return found


def _enough_trials(shaped: ShapedStage, seed: int) -> int:
    """Return two, or as many draws as bring every discrete case to every shard."""
    cases = discrete_cases(shaped, seed, MOST_TRIALS)
    return min(MOST_TRIALS, max((case.trials for case in cases), default=2))


def conjecture(problem: Problem, run: WholeRun) -> dict[int, Cut]:
    """Return a cut for every computed value that holds parts of a reference value in a run."""
    scales = [*plausible_scales(problem.parallel), *constant_factors(run.evaluated)]
    known = problem.specification.initial
    return find_cuts(run.shaped, run.symbolic, run.evaluated, list(dict.fromkeys(scales)), known)


def further_conjecture(problem: Problem, run: WholeRun, cuts: Mapping[int, Cut]) -> dict[int, Cut]:
    """Return cuts that also may hold with the size of a mesh axis as a factor.

    No group of the plan has such a size: a wrong plan may have forgotten the group.
    """
    used = plausible_scales(problem.parallel)
    axes = set(problem.parallel.coordinates.sizes.values()) - {1}
    sizes = [Fraction(size) for size in sorted(axes) if size not in used]
    if not sizes:
        return dict(cuts)
    return find_cuts(
        run.shaped,
        run.symbolic,
        run.evaluated,
        [*used, *sizes, *(1 / size for size in sizes)],
        {**cuts, **problem.specification.initial},
    )


def plausible_scales(graph: Graph) -> Sequence[Fraction]:
    """Return the factors by which a right plan may scale what it holds for a while.

    They are the sizes of its groups, its number of micro-batches, and their inverses.
    """
    sizes = {graph.coordinates.microbatches}
    for node in graph.nodes:
        for operand in node.inputs:
            if isinstance(operand, Source):
                sizes.add(operand.members)
    sizes -= {0, 1}
    return [Fraction(n) for n in sorted(sizes)] + [Fraction(1, n) for n in sorted(sizes)]
