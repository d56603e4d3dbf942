"""The differences that count: those that more digits confirm, or that rounding cannot explain.

What the rounding of literals to their dtype explains counts as little, however many digits confirm
it. Outputs that draw other random numbers than the reference are not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pitcheck.algebra.keyed import key_of
from pitcheck.claims.problem import Problem
from pitcheck.claims.specification import Expected
from pitcheck.errors import PitcheckError
from pitcheck.graph.cuts import Cut
from pitcheck.ops.registry import operator_kind
from pitcheck.refute.block_run import TRIALS, run_on_blocks
from pitcheck.refute.both_ways import run_both_ways
from pitcheck.refute.confirm import Told, confirmed, costs, replicas_differ
from pitcheck.refute.literal_rounding import explained
from pitcheck.refute.random_streams import Unlike, unlike_draws
from pitcheck.refute.rounding_noise import (
    finite_difference,
    finite_on_one_side,
    largest_input,
    magnitude,
    standing_out,
)
from pitcheck.refute.shown import shown_by_noise
from pitcheck.refute.whole_run import WholeRun, conjecture, run_at_zeros, run_whole
from pitcheck.report.report import Shown
from pitcheck.stage.equal_blocks import Blocks

PLAIN = 1e-6
"""The relative difference from which on float64 decides by itself if more digits cost too much."""
SMALL = 1e-9
"""The share of the largest input below which an output may be what rounding leaves of 0."""
MOST_CONFIRMATIONS = 6
"""The number of outputs that are confirmed with more digits."""
PATIENCE = 8
"""The factor by which an output that is finite on one side alone may cost more."""
MAGNITUDES = (8.0, 1 / 64)
"""The standard deviations of inputs that are tried if a stage fails although ordinary inputs show
no difference: functions saturate, or are nearly linear.
"""
NEAR_DRAWS = (3, 4, 8, 5, 6, 12)
"""The draws of the looks at the nearest outputs, one each.

The first has evenly drawn integers and booleans that are all true, in which most differences show.
Three have marked integers, because the one at the end of a shard must be in the right block. The
others are one of every other kind.
"""
FIRST_DRAW = 16
"""The first draw of a look at all outputs."""
MORE_DRAWS = 8
"""The number of further runs there on ordinary inputs. An element that only counts if it is the
largest is seen in few draws.
"""
EARLY_DRAWS = 2
"""The number of these runs that come before conjectures are proven, if a stage over hints fails."""
FULL_MEMORY = 1 << 26
"""The bytes that both plans may take in a further run at full shapes. A small size may happen to be
the number that a wrong count is.
"""


@dataclass
class Judged:
    """The outputs that differ, and the evidence.

    ``real``: their numbers. ``shown``: one element of one of them. ``draws``: for outputs that
    cannot be compared, by number, how their draws differ. ``rounded``: the outputs whose
    differences the rounding of literals explains.
    """

    real: list[int] = field(default_factory=list)
    shown: Shown | None = None
    draws: dict[int, Unlike] = field(default_factory=dict)
    rounded: set[int] = field(default_factory=set)


def count_differences(run: WholeRun, cuts: Mapping[int, Cut], numbers: Sequence[int]) -> Judged:
    """Return which of the outputs ``numbers`` differ on the run's inputs.

    One difference has to be confirmed with more digits, or to stand out from rounding if that costs
    too much. Beside it all outputs count that differ by more than ``PLAIN``.
    """
    result = Judged(draws={n: why for n in numbers if (why := incomparable(run, n))})
    comparable = [n for n in numbers if n not in result.draws]
    result.rounded = explained(run, comparable)
    comparable = [n for n in comparable if n not in result.rounded]
    cost = costs(run, comparable, cuts)
    left = sorted(comparable, key=lambda n: (cost[n], n))
    plain = [n for n in left if finite_difference(run.comparisons[n]) > PLAIN]
    refuted: set[int] = set()
    for n in left[:MOST_CONFIRMATIONS]:
        told, result.shown = confirmed(run, n, cuts)
        if told is Told.DIFFERS:
            result.real = sorted(
                {n, *_beside(run, [m for m in plain if m != n and m not in refuted])}
            )
            return result
        if told is not Told.UNKNOWN:
            refuted.add(n)
    result.real = sorted(standing_out(run, [n for n in plain if n not in refuted]))
    if result.real:
        result.shown = shown_by_noise(run, result.real[0])
    else:
        result.real, result.shown = _not_finite(run, cuts, [n for n in left if n not in refuted])
    return result


def _beside(run: WholeRun, plain: Sequence[int]) -> list[int]:
    """Return the outputs that differ plainly beside one that really does.

    Those much smaller than the inputs have to stand out from rounding.
    """
    small = [n for n in plain if magnitude(run.comparisons[n]) < SMALL * largest_input(run)]
    kept = {*plain} - {*small} | {*standing_out(run, small)}
    return [n for n in plain if n in kept]


def _not_finite(
    run: WholeRun, cuts: Mapping[int, Cut], numbers: Sequence[int]
) -> tuple[list[int], Shown | None]:
    """Return the outputs that are finite on one side alone, if more digits confirm the cheapest.

    Nothing less distinguishes overflow from infinity.
    """
    found = [n for n in numbers if finite_on_one_side(run.comparisons[n])]
    told, shown = confirmed(run, found[0], cuts, PATIENCE) if found else (Told.UNKNOWN, None)
    return (sorted(found), shown) if told is Told.DIFFERS else ([], None)


def incomparable(run: WholeRun, number: int) -> Unlike | None:
    """Return why an output cannot be compared because of its random draws, or None.

    Other draws are no mistake by themselves. But ranks that hold the same part of an output must
    have drawn the same, whatever that is.
    """
    unlike = unlike_draws(run, run.comparisons[number].target)
    if unlike is not None and unlike.same_streams and replicas_differ(run, number):
        return None
    return unlike


def look_on_blocks(
    problem: Problem, all_blocks: Iterable[Blocks], near: Sequence[Expected]
) -> SecondLook | None:
    """Return a run of both plans on few different blocks of data in which outputs differ, or None.

    ``all_blocks``: the equal blocks of each run. ``near``: the outputs to look at before all of
    them are. Raises what ``run_on_blocks`` raises.
    """
    specification = problem.specification
    for blocks, outputs, draws in _looks(all_blocks, near, specification.expected):
        some = problem.specified(replace(specification, expected=list(outputs)))
        run = run_on_blocks(some, blocks, draws)
        real = _judge_on_blocks(run)
        if real:
            return SecondLook(run, {}, real, shown_by_noise(run, real[0]))
        del run  # the next one needs the memory
    return None


def _looks(
    all_blocks: Iterable[Blocks], near: Sequence[Expected], expected: Sequence[Expected]
) -> Iterator[tuple[Blocks, Sequence[Expected], range]]:
    """Yield (blocks, outputs, draws) of every run, cheap ones first.

    One draw up to the nearest outputs shows most differences. No two runs draw the same: whether a
    wrong expert has a token at all is up to the draw. Each run begins with another kind of discrete
    draws, because memory may allow one draw only. If all tokens count, for example, a wrong mask
    does not show.
    """
    for number, blocks in enumerate(all_blocks):
        for draw in NEAR_DRAWS if near and number == 0 else ():
            yield blocks, near, range(draw, draw + 1)
        start = FIRST_DRAW + number * (TRIALS + 1)
        yield blocks, expected, range(start, start + TRIALS)


def _judge_on_blocks(run: WholeRun) -> list[int]:
    """Return the numbers of the outputs that differ in a run that kept only outputs.

    They differ by far more than rounding and draw the same numbers.
    """
    random = [
        side
        for side in (run.stage.reference, run.stage.parallel)
        if any(operator_kind(step.kind).random for step in side.steps)
    ]
    numbers = [
        n for n in run.suspects() if not (random and unlike_draws(run, run.comparisons[n].target))
    ]
    rounded = explained(run, numbers)
    return standing_out(run, [n for n in numbers if n not in rounded])


@dataclass
class SecondLook:
    """A run in which the outputs ``real`` differ, with one element as evidence.

    It is only made after another arithmetic than float64 has shown the difference.
    """

    run: WholeRun
    cuts: dict[int, Cut]
    real: list[int]
    shown: Shown


@dataclass(frozen=True)
class Inputs:
    """A way to draw the inputs of a further run."""

    seed: int
    scale: float | None = None
    alike: bool = False
    full_shapes: bool = False

    def of(self, problem: Problem) -> Problem:
        """Return the problem with this seed, and at full shapes if these ask for it."""
        options = problem.options
        if self.full_shapes:
            memory = min(options.max_memory, FULL_MEMORY)
            options = replace(options, shapes="full", max_memory=memory)
        return replace(problem, seed=self.seed, options=options)


def both_ways(problem: Problem, found: SecondLook) -> SecondLook:
    """Return a difference with inputs besides for which decisions behind it fall the other way.

    It is the same one if no such inputs are found, or if they hide it.
    """
    run = run_both_ways(found.run, found.real, problem.options.max_memory)
    if not run.ways:
        return replace(found, run=run)
    try:
        cuts = conjecture(problem, run)
    except PitcheckError:
        return found
    return _looked(run, cuts, run.suspects()) or found


def second_look(
    problem: Problem, run: WholeRun, cuts: dict[int, Cut], names: Sequence[str]
) -> SecondLook | None:
    """Look again at outputs that could not be proven, named in ``names``.

    Use more digits, inputs of other magnitudes, more draws, nearly equal tokens, full shapes, and
    zeros.
    Return None if nothing differs.
    """
    open_ones = [
        n for n, comparison in enumerate(run.comparisons) if comparison.target.name in names
    ]
    found = _looked(run, cuts, open_ones)
    if found is not None:
        return found
    seed = problem.seed
    magnitudes = [Inputs(seed, scale) for scale in MAGNITUDES]
    drawn = [Inputs(key_of(seed, number)) for number in range(1, MORE_DRAWS + 1)]
    inputs = (*magnitudes, *drawn, Inputs(seed, alike=True), Inputs(seed, full_shapes=True))
    return _look_at(problem, inputs, open_ones) or _look_at_zeros(problem, open_ones)


def _look_at_zeros(problem: Problem, numbers: Sequence[int]) -> SecondLook | None:
    """Look at some outputs where a divisor of the parallel plan alone is 0.

    Return None if nothing differs there.
    """
    try:
        run = run_at_zeros(problem)
    except PitcheckError:  # an operator may refuse such inputs
        return None
    return None if run is None else _looked(run, {}, numbers)


def early_look(problem: Problem) -> SecondLook | None:
    """Look at all outputs on the first of the further draws.

    A wrong mask, place or route may be right in one draw and is wrong in most others. This costs
    much less than proving the stages of a wrong plan. Return None if nothing differs.
    """
    drawn = [Inputs(key_of(problem.seed, number)) for number in range(1, EARLY_DRAWS + 1)]
    return _look_at(problem, drawn, range(len(problem.specification.expected)))


def _look_at(
    problem: Problem, tried: Sequence[Inputs], numbers: Sequence[int]
) -> SecondLook | None:
    """Return the first run on inputs ``tried`` in which an output of ``numbers`` differs."""
    for inputs in tried:
        try:
            other = run_whole(
                inputs.of(problem),
                scale=inputs.scale,
                alike=inputs.alike,
                must_fit=inputs.full_shapes,
            )
            suspects = [n for n in other.suspects() if n in numbers]
            other_cuts = conjecture(problem, other) if suspects else {}
        except PitcheckError:  # an operator may refuse such inputs
            continue
        found = _looked(other, other_cuts, suspects)
        if found is not None:
            return found
    return None


def _looked(run: WholeRun, cuts: dict[int, Cut], numbers: Sequence[int]) -> SecondLook | None:
    """Return the run with its evidence if one of the outputs ``numbers`` differs, else None."""
    judged = count_differences(run, cuts, numbers)
    return None if judged.shown is None else SecondLook(run, cuts, judged.real, judged.shown)
