"""Confirmation of differences that float64 shows, with so many digits that no rounding survives.

float64 loses what cancels, overflows and saturates, so that two right plans may differ in it by
anything. Exit code 1 needs the difference to stay when the output is computed again from the same
inputs with ``DIGITS``. With these every sum and difference of float64 numbers is exact. A run with
fewer digits before it would add nothing: a difference due to few digits shrinks with more.

A tensor that is 0 for every input (the gradient of a key bias, which softmax does not see) is
rounding alone with any number of digits. So a difference counts by the terms that it is left of,
not by the result. One that may be rounding has to stay the same with still more digits. If both
plans were given the numbers in which they agree, it has to stay with slightly different ones, too.

Where the reference has no value, as the logarithm of a negative number, nothing is demanded of the
parallel plan. A reference that names infinity or NaN has NaN as a value, which is compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import prod
from typing import Any

import numpy as np

from pitcheck.algebra.reals.precise import PreciseAlgebra
from pitcheck.algebra.reals.watched import WatchedAlgebra
from pitcheck.algebra.value import Value
from pitcheck.claims.real_numbers import Floats, real_differences
from pitcheck.errors import PitcheckError
from pitcheck.graph.cuts import Cut
from pitcheck.ops.registry import BACKWARD, kinds_with
from pitcheck.ops.traits import Trait
from pitcheck.refute.rounding_noise import disturbed_reference, largest_input
from pitcheck.refute.shown import shown_by_digits
from pitcheck.refute.whole_run import WholeRun
from pitcheck.report.report import Shown
from pitcheck.stage.batch import Batch, Step, needed_steps
from pitcheck.stage.drawn_inputs import derive, take_box
from pitcheck.stage.evaluate import Comparison, Evaluated, compare_target, constant_value
from pitcheck.stage.literals import names_infinity
from pitcheck.stage.run_batch import run_batch

DIGITS = 680
"""The decimal digits of a confirmation. float64 numbers reach from 2^-1074 to 2^1024: 633 digits
hold the sum of any two.
"""
REAL = 1e-30
"""The relative difference from which on two results differ. It is far above rounding even if 600
digits cancel.
"""
TOLD = 1e-300
"""The relative difference from which on still more digits are asked."""
MORE_DIGITS = 760
"""The digits with which a true difference stays the same. What rounding leaves is then 10^-80 of
it.
"""
SURE = 1e-100
"""The size from which on a difference is no rounding of ``DIGITS`` digits, whatever finite float64
numbers it was computed from.
"""
SURE_OF_GIVEN = 1e-9
"""The same size if numbers were given in which both plans agree to float64's digits, as a share of
the largest of them and of the inputs.
"""
STAYS = 0.01
"""The share of itself by which a difference may change at most."""
MOST_WORK = 1_000_000
"""The multiplications of many digits that one confirmation may cost, about 1.5 microseconds each.
"""


class Told(Enum):
    """The answer to whether an output really differs on a run's inputs.

    UNKNOWN: that costs too much, or cannot be computed.
    """

    DIFFERS = "differs"
    EQUAL = "equal"
    ROUNDING = "rounding"
    """Only what rounding leaves of cancelling terms differs, or something depends on that."""
    UNKNOWN = "unknown"


def confirmed(
    run: WholeRun, number: int, cuts: Mapping[int, Cut], times: int = 1
) -> tuple[Told, Shown | None]:
    """Return whether output ``number`` really differs on the run's inputs, and what shows it.

    The output is computed from the plans' inputs. If that costs too much, it is computed from the
    nearest tensors in which both plans agree (``cuts``), filled with the reference's values. The
    answer is UNKNOWN if even that costs more than ``times`` the usual limit.
    """
    starts: tuple[Mapping[int, Cut], ...] = ({}, _agreeing(run, cuts))
    for given in starts:
        cone = _cone(run, number, given)
        if cone.work <= times * MOST_WORK:
            return _told(run, number, cone, _as_demanded(run))
    return Told.UNKNOWN, None


def replicas_differ(run: WholeRun, number: int) -> bool:
    """Return True if ranks with the same part of output ``number`` really hold different numbers.

    Both plans run from their inputs. Return False if that costs too much.
    """
    cone = _cone(run, number, {})
    return cone.work <= MOST_WORK and _told(run, number, cone, _replicas)[0] is Told.DIFFERS


def costs(run: WholeRun, numbers: Collection[int], cuts: Mapping[int, Cut]) -> dict[int, float]:
    """Return about how many multiplications it takes to confirm each of some outputs."""
    agreeing, works = _agreeing(run, cuts), _works(run)
    return {n: min(_cone(run, n, given, works).work for given in ({}, agreeing)) for n in numbers}


@dataclass
class _Cone:
    """The steps of both sides that an output needs, the cuts they begin at, and their cost."""

    reference: list[int]
    parallel: list[int]
    given: dict[int, Cut]
    work: float


def _agreeing(run: WholeRun, cuts: Mapping[int, Cut]) -> dict[int, Cut]:
    """Return the cuts that both plans may be given: whole parts of reference values of the run."""
    targets = {c.target.cut.value for c in run.comparisons}
    usable = {}
    for value, cut in cuts.items():
        if (
            cut.scale == 1
            and cut.group_of is None
            and value in run.evaluated.parallel
            and cut.reference in run.evaluated.reference
            and value not in targets
        ):
            usable[value] = cut
    return usable


_Works = tuple[list[float], list[float]]
"""About how many multiplications each step of the reference and of the parallel side takes."""


def _works(run: WholeRun) -> _Works:
    stage, evaluated = run.stage, run.evaluated
    return (
        [_work(step, evaluated.reference) for step in stage.reference.steps],
        [_work(step, evaluated.parallel) for step in stage.parallel.steps],
    )


def _cone(
    run: WholeRun, number: int, given: Mapping[int, Cut], works: _Works | None = None
) -> _Cone:
    """Return the steps that output ``number`` needs from the cuts ``given`` on.

    ``works`` is what ``_works`` returns, if that is known.
    """
    target = run.comparisons[number].target.cut
    parallel, reached = needed_steps(run.stage.parallel, target.value, given)
    begun = {value: given[value] for value in reached if value in given}
    reference, _ = needed_steps(
        run.stage.reference, target.reference, {cut.reference for cut in begun.values()}
    )
    of_reference, of_parallel = works or _works(run)
    work = sum(of_reference[n] for n in reference) + sum(of_parallel[n] for n in parallel)
    return _Cone(reference, parallel, begun, work)


def _work(step: Step, values: Mapping[int, Any]) -> float:
    """Return about how many multiplications a step takes per trial.

    A product of matrices (m, k) and (k, n), of sizes a, b and c, takes sqrt(a b c) = m k n.
    """
    read = [len(a.rows.reshape(-1)) * prod(values[a.value].data.shape[3:]) for a in step.arguments]
    written = [step.count * prod(values[o].data.shape[3:]) for o in step.outputs if o is not None]
    if step.kind.removesuffix(BACKWARD) in kinds_with(Trait.MULTIPLIES_MATRICES) and len(read) > 1:
        largest = sorted([*read, *written])[-3:]
        return float(
            np.sqrt(float(prod(n // step.count for n in largest))) * step.count * (len(written) + 1)
        )
    return float(sum(read) + sum(written))


def _told(
    run: WholeRun, number: int, cone: _Cone, pair: Callable[[Comparison], Comparison]
) -> tuple[Told, Shown | None]:
    """Return whether the two sides of ``pair`` differ with many digits, and what shows it."""
    try:
        first, algebra = _compared_to(DIGITS, run, number, cone)
        found = _apart(pair(first))
        if not found.places:
            return Told.EQUAL, None
        if algebra.undecided:
            return Told.ROUNDING, None
        kept = _kept(run, number, cone, pair, found)
        if not kept:
            return Told.ROUNDING, None
        start = (
            f", from {len(cone.given)} tensors on in which both plans agree" if cone.given else ""
        )
        return Told.DIFFERS, shown_by_digits(
            run,
            pair(first),
            number,
            max(kept, key=lambda p: _size(found.places[p])),
            f"{DIGITS} digits{start}",
        )
    # mpmath has other errors for numbers that leave its range
    except (PitcheckError, ArithmeticError, ValueError):
        return Told.UNKNOWN, None


def _kept(
    run: WholeRun, number: int, cone: _Cone, pair: Callable[[Comparison], Comparison], found: _Apart
) -> list[int]:
    """Return the flat places of those differences that rounding does not explain."""
    limit = max(SURE, REAL * found.largest)
    if cone.given:
        # Tensors that agree to float64's digits need not be equal. A true difference is as large
        # in the run itself.
        seen = _in_run(run, number, pair)
        places = {
            place: d
            for place, d in found.places.items()
            if not math.isfinite(seen[place]) or _same(seen[place], d, 0.5)
        }
        limit = max(limit, SURE_OF_GIVEN * max(_largest_given(run, cone), largest_input(run)))
    else:
        places = found.places
    sure = [place for place, difference in places.items() if _size(difference) > limit]
    if sure or not places:
        return sure
    again, algebra = _compared_to(
        MORE_DIGITS, run, number, cone, disturbed_reference(run) if cone.given else None
    )
    if algebra.undecided:
        return []
    later = _apart(pair(again)).places
    return [
        place for place, difference in places.items() if _same(later.get(place), difference, STAYS)
    ]


def _same(found: Any, wanted: Any, share: float) -> bool:
    """Return True if two differences agree but for a share of them; all infinite ones agree."""
    if found is None:
        return False
    if math.isinf(_size(wanted)):
        return math.isinf(_size(found))
    return bool(abs(found - wanted) <= share * abs(wanted))


def _size(difference: Any) -> Any:
    """Return the magnitude of a difference; infinity if one side alone is finite."""
    return abs(difference) if difference - difference == 0 else math.inf


def _largest_given(run: WholeRun, cone: _Cone) -> float:
    """Return the largest finite magnitude of the values given at the cuts of a cone."""
    given = (
        np.asarray(run.evaluated.reference[cut.reference].data, dtype=np.float64)
        for cut in cone.given.values()
    )
    return max(
        (float(np.max(np.abs(data), where=np.isfinite(data), initial=0.0)) for data in given),
        default=0.0,
    )


def _in_run(run: WholeRun, number: int, pair: Callable[[Comparison], Comparison]) -> Floats:
    """Return the differences in the worst trial of the run itself, one per flat place."""
    comparison = pair(run.comparisons[number])
    actual, expected = np.broadcast_arrays(
        *(np.asarray(v.data, dtype=np.float64)[0] for v in (comparison.actual, comparison.expected))
    )
    trial = min(_worst_trial(run, number), len(actual) - 1)
    with np.errstate(all="ignore"):
        found: Floats = (actual[trial] - expected[trial]).reshape(-1)
    return found


def _compared_to(
    digits: int, run: WholeRun, number: int, cone: _Cone, values: Mapping[int, Value] | None = None
) -> tuple[Comparison, WatchedAlgebra]:
    """Compare an output of both sides to so many digits.

    ``values`` are those of the reference of which some are given; the run's own by default.

    Returns:
        The comparison in the worst trial, and the algebra that computed it.
    """
    trial = _worst_trial(run, number)
    algebra = WatchedAlgebra(
        digits, run.evaluated.algebra.seed, [run.evaluated.algebra.trials[trial]]
    )
    stage, shaped = run.stage, run.shaped
    drawn = {v: _exact(algebra, a, trial) for v, a in run.evaluated.drawn.items()}
    known = run.evaluated.reference if values is None else values
    begun = {c.reference: _exact(algebra, known[c.reference], trial) for c in cone.given.values()}
    with np.errstate(all="ignore"):
        reference = _run(
            stage.reference,
            algebra,
            {**_constants(algebra, shaped.constants[0]), **drawn, **begun},
            shaped.attributes[0],
            cone.reference,
        )
        derived = {
            v: derive(algebra, d, drawn[d.source])
            for v, d in shaped.derived.items()
            if v not in cone.given
        }
        held = {v: _held(run, algebra, cut, begun[cut.reference]) for v, cut in cone.given.items()}
        parallel = _run(
            stage.parallel,
            algebra,
            {**_constants(algebra, shaped.constants[1]), **derived, **held},
            shaped.attributes[1],
            cone.parallel,
        )
        return compare_target(
            shaped, Evaluated(algebra, drawn, reference, parallel), number
        ), algebra


def _as_demanded(run: WholeRun) -> Callable[[Comparison], Comparison]:
    """Return how a comparison is seen: the parallel plan has what the reference leaves undefined.

    No number of so many digits overflows, so NaN has no other reason than a named one.
    """
    if names_infinity(run.stage.reference):
        return lambda found: found

    def demanded(found: Comparison) -> Comparison:
        if found.expected.kind != "field":
            return found
        actual, expected = np.broadcast_arrays(found.actual.data, found.expected.data)
        lacking = expected != expected  # noqa: PLR0124  NaN is not equal to itself
        return replace(found, actual=Value("field", np.where(lacking, expected, actual)))

    return demanded


def _replicas(found: Comparison) -> Comparison:
    """Return the comparison of every row with the first row of the same part."""
    _, first, which = np.unique(found.parts, return_index=True, return_inverse=True)
    return replace(
        found,
        expected=replace(found.actual, data=found.actual.data[:, :, first[which.reshape(-1)]]),
    )


def _worst_trial(run: WholeRun, number: int) -> int:
    """Return the number of the trial with the largest difference of what is demanded."""
    comparison = _as_demanded(run)(run.comparisons[number])
    found = np.where(
        comparison.judged[:1], real_differences(comparison.actual, comparison.expected), -1.0
    )
    return int(found.reshape(len(found), -1).max(axis=1).argmax())


def _exact(algebra: PreciseAlgebra, value: Value, trial: int) -> Value:
    """Return a value of the run, in one of its trials, with the digits it has."""
    data = value.data[:, trial : trial + 1] if value.data.shape[1] > 1 else value.data
    return algebra.number(data[0]) if value.kind == "field" else Value(value.kind, data)


def _constants(
    algebra: PreciseAlgebra, known: Mapping[int, tuple[Any, tuple[int, ...], str]]
) -> dict[int, Value]:
    """Return the constants of one side, by value."""
    return {v: constant_value(algebra, *constant) for v, constant in known.items()}


def _held(run: WholeRun, algebra: PreciseAlgebra, cut: Cut, whole: Value) -> Value:
    """Return all rows of a parallel value at a cut.

    A row that no coordinate has (of a step that reads more than it runs at) may have any part:
    nobody reads it.
    """
    rows = run.stage.parallel.rows[cut.value]
    boxes = [run.symbolic.box(cut, part.box, run.shaped.sizes) for part in cut.parts]
    anywhere = int(np.argmax(rows >= 0))
    codes = [
        next(iter(np.flatnonzero(rows == row)), anywhere)
        for row in range(run.stage.parallel.count(cut.value))
    ]
    parts: list[Value] = [
        take_box(algebra, whole, boxes[int(cut.part_of[code])], "free") for code in codes
    ]
    return parts[0] if len(parts) == 1 else algebra.join(parts)


def _run(
    batch: Batch,
    algebra: PreciseAlgebra,
    given: dict[int, Value],
    attributes: Sequence[Mapping[str, Any]],
    steps: list[int],
) -> dict[int, Value]:
    """Run some of a batch's steps on values that are given with all their rows."""
    inputs = {
        value: np.arange(batch.count(value), dtype=np.int64)
        for value in given
        if value in batch.grids
    }
    part = replace(batch, inputs=inputs, steps=[batch.steps[n] for n in steps])
    return run_batch(part, algebra, given, [attributes[n] for n in steps])


@dataclass
class _Apart:
    """The differences of elements by flat place, and the largest finite element of either side."""

    places: dict[int, Any]
    largest: Any


def _apart(comparison: Comparison) -> _Apart:
    """Return the elements that differ by more than ``TOLD`` of the largest, or are NaN on one side.

    No number of so many digits overflows. A NaN on one side alone is a root of a negative number or
    0/0, and not an overflow of float64.
    """
    a, b, mask = (
        each.reshape(-1)
        for each in np.broadcast_arrays(
            comparison.actual.data[0], comparison.expected.data[0], comparison.judged[:1]
        )
    )
    places = np.flatnonzero(mask)
    if comparison.actual.kind != "field":
        return _Apart({int(i): int(a[i]) - int(b[i]) for i in places if a[i] != b[i]}, 0)
    largest = max((abs(x) for x in (*a[places], *b[places]) if x - x == 0), default=0)
    return _Apart(
        {int(i): a[i] - b[i] for i in places if _element_apart(a[i], b[i], largest * TOLD)}, largest
    )


def _element_apart(x: Any, y: Any, limit: Any) -> bool:
    """Return True if two numbers differ by more than ``limit``, or only one is finite."""
    if x == y or (_is_nan(x) and _is_nan(y)):
        return False
    finite = x - x == 0 and y - y == 0
    return not finite or bool(abs(x - y) > limit)


def _is_nan(x: Any) -> bool:
    """Return True if a number is NaN."""
    return bool(x != x)  # noqa: PLR0124  a NaN is not equal to itself
