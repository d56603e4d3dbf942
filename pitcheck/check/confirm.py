"""Whether a difference that float64 shows is one: the same run of the same numbers, to as many digits as no rounding survives.

float64 loses what cancels, overflows and saturates, so that two right plans may differ in it by anything. Exit code 1 needs the difference to stay when the
output is computed again from the same inputs with ``DIGITS``, with which every sum and difference of float64 numbers is exact. A run with fewer digits before
it would tell nothing more: what differs only because digits are few differs less with more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from pitcheck.algebra.precise import PreciseAlgebra
from pitcheck.algebra.value import Value
from pitcheck.check.conjecture import real_differences
from pitcheck.check.derive import derive, take_box
from pitcheck.check.evaluate import Comparison, Evaluated, compare_target, constant_value
from pitcheck.check.whole import WholeRun
from pitcheck.errors import PitcheckError
from pitcheck.stages.batch import Batch, Step
from pitcheck.stages.cuts import Cut
from pitcheck.stages.run import run_batch

DIGITS = 680
"""float64 numbers reach from 2^-1074 to 2^1024: 633 decimal digits hold the sum of any two."""
REAL = 1e-30
"""Relative difference from which on two results differ; far above what is rounded off even where 600 digits cancel."""
MOST_WORK = 1_000_000
"""Multiplications of many digits, about a microsecond and a half each, that one confirmation may cost."""
PRODUCTS = frozenset({"linear", "matmul", "bmm", "einsum", "scaled_dot_product_attention"})


def confirmed(run: WholeRun, number: int, cuts: Mapping[int, Cut], times: int = 1) -> bool | None:
    """Whether output ``number`` really differs on the run's inputs; None where that costs more than ``times`` the usual limit or cannot be computed.

    Computed from the plans' inputs, or if that is too much from the nearest tensors in which both plans agree (``cuts``), filled
    with the reference's own values.
    """
    starts: tuple[Mapping[int, Cut], ...] = ({}, _agreeing(run, cuts))
    for given in starts:
        cone = _cone(run, number, given)
        if cone.work <= times * MOST_WORK:
            return _differs(run, number, cone)
    return None


def replicas_differ(run: WholeRun, number: int) -> bool:
    """Whether ranks with the same part of output ``number`` really hold different numbers, from the plans' inputs on; False where it costs too much."""
    cone = _cone(run, number, {})
    return cone.work <= MOST_WORK and bool(_held_to(run, number, cone, _unlike_replicas))


def cost(run: WholeRun, number: int, cuts: Mapping[int, Cut]) -> float:
    """About how many multiplications it is to confirm output ``number``."""
    return min(_cone(run, number, {}).work, _cone(run, number, _agreeing(run, cuts)).work)


@dataclass
class _Cone:
    """The numbers of the steps of both sides that an output needs, the cuts they begin at, and what they cost."""

    reference: list[int]
    parallel: list[int]
    given: dict[int, Cut]
    work: float


def _agreeing(run: WholeRun, cuts: Mapping[int, Cut]) -> dict[int, Cut]:
    """Cuts that both plans may be given: whole parts of reference values that the run has."""
    targets = {c.target.cut.value for c in run.comparisons}
    usable = {}
    for value, cut in cuts.items():
        if cut.scale == 1 and cut.group_of is None and value in run.evaluated.parallel and cut.reference in run.evaluated.reference and value not in targets:
            usable[value] = cut
    return usable


def _cone(run: WholeRun, number: int, given: Mapping[int, Cut]) -> _Cone:
    target = run.comparisons[number].target.cut
    parallel, reached = _steps(run.stage.parallel, target.value, given)
    begun = {value: given[value] for value in reached if value in given}
    reference, _ = _steps(run.stage.reference, target.reference, {cut.reference for cut in begun.values()})
    work = sum(_work(run.stage.reference.steps[n], run.evaluated.reference) for n in reference)
    work += sum(_work(run.stage.parallel.steps[n], run.evaluated.parallel) for n in parallel)
    return _Cone(reference, parallel, begun, work)


def _steps(batch: Batch, target: int, given: Iterable[int]) -> tuple[list[int], set[int]]:
    """(numbers of the steps that compute ``target`` from ``given`` and the inputs, all values needed)."""
    stop = set(given) - {target}
    needed = {target}
    kept = []
    for number in reversed(range(len(batch.steps))):
        step = batch.steps[number]
        if any(output in needed and output not in stop for output in step.outputs if output is not None):
            kept.append(number)
            needed.update(a.value for a in step.arguments)
    return kept[::-1], needed


def _work(step: Step, values: Mapping[int, Any]) -> float:
    """About how many multiplications a step is, per trial: of a product of matrices (m, k) and (k, n), of sizes a, b and c, there are sqrt(a b c) = m k n."""
    read = [len(a.rows.reshape(-1)) * prod(values[a.value].data.shape[3:]) for a in step.arguments]
    written = [step.count * prod(values[o].data.shape[3:]) for o in step.outputs if o is not None]
    if step.kind.removesuffix(".backward") in PRODUCTS and len(read) > 1:
        largest = sorted([*read, *written])[-3:]
        return float(np.sqrt(float(prod(n // step.count for n in largest))) * step.count * (len(written) + 1))
    return float(sum(read) + sum(written))


def _differs(run: WholeRun, number: int, cone: _Cone) -> bool | None:
    """Whether both sides differ."""
    return _held_to(run, number, cone, lambda found: _apart(found.actual, found.expected, found.judged))


def _held_to(run: WholeRun, number: int, cone: _Cone, differs: Callable[[Comparison], bool]) -> bool | None:
    """Whether ``differs`` holds of the output with many digits; None where it cannot be computed."""
    try:
        return differs(_compared_to(DIGITS, run, number, cone))
    except (PitcheckError, ArithmeticError, ValueError):  # mpmath has its own errors where numbers leave its range
        return None


def _compared_to(digits: int, run: WholeRun, number: int, cone: _Cone) -> Comparison:
    """An output of both sides, to so many digits."""
    trial = _worst_trial(run.comparisons[number])
    algebra = PreciseAlgebra(digits, run.evaluated.algebra.seed, [run.evaluated.algebra.trials[trial]])
    stage, shaped = run.stage, run.shaped
    drawn = {v: _exact(algebra, a, trial) for v, a in run.evaluated.drawn.items()}
    begun = {c.reference: _exact(algebra, run.evaluated.reference[c.reference], trial) for c in cone.given.values()}
    with np.errstate(all="ignore"):
        reference = _run(stage.reference, algebra, {**_constants(algebra, shaped.constants[0]), **drawn, **begun}, shaped.attributes[0], cone.reference)
        derived = {v: derive(algebra, d, drawn[d.source]) for v, d in shaped.derived.items() if v not in cone.given}
        held = {v: _held(run, algebra, cut, begun[cut.reference]) for v, cut in cone.given.items()}
        parallel = _run(stage.parallel, algebra, {**_constants(algebra, shaped.constants[1]), **derived, **held}, shaped.attributes[1], cone.parallel)
        return compare_target(shaped, Evaluated(algebra, drawn, reference, parallel), number)


def _unlike_replicas(found: Comparison) -> bool:
    """Whether a row differs from the first one of the same part."""
    _, first, which = np.unique(found.parts, return_index=True, return_inverse=True)
    others = replace(found.actual, data=found.actual.data[:, :, first[which.reshape(-1)]])
    return _apart(found.actual, others, found.judged)


def _worst_trial(comparison: Comparison) -> int:
    """The trial that shows the largest difference."""
    found = np.where(comparison.judged[:1], real_differences(comparison.actual, comparison.expected), -1.0)
    return int(found.reshape(len(found), -1).max(axis=1).argmax())


def _exact(algebra: PreciseAlgebra, value: Value, trial: int) -> Value:
    """A value of the run, in one of its trials, with the digits it has."""
    data = value.data[:, trial : trial + 1] if value.data.shape[1] > 1 else value.data
    return algebra.number(data[0]) if value.kind == "field" else Value(value.kind, data)


def _constants(algebra: PreciseAlgebra, known: Mapping[int, tuple[Any, tuple[int, ...], str]]) -> dict[int, Value]:
    return {v: constant_value(algebra, *constant) for v, constant in known.items()}


def _held(run: WholeRun, algebra: PreciseAlgebra, cut: Cut, whole: Value) -> Value:
    """All rows of a parallel value at a cut. A row that no coordinate has (of a step that reads more than it runs at) is read by none: any part does."""
    rows = run.stage.parallel.rows[cut.value]
    boxes = [run.symbolic.box(cut, part.box, run.shaped.sizes) for part in cut.parts]
    anywhere = int(np.argmax(rows >= 0))
    codes = [next(iter(np.flatnonzero(rows == row)), anywhere) for row in range(run.stage.parallel.count(cut.value))]
    parts: list[Value] = [take_box(algebra, whole, boxes[int(cut.part_of[code])], "free") for code in codes]
    return parts[0] if len(parts) == 1 else algebra.join(parts)


def _run(batch: Batch, algebra: PreciseAlgebra, given: dict[int, Value], attributes: Sequence[Mapping[str, Any]], steps: list[int]) -> dict[int, Value]:
    """Run some of a batch's steps; what is given stands first among a value's rows, and holds all of them."""
    inputs = {value: np.arange(batch.count(value), dtype=np.int64) for value in given if value in batch.grids}
    part = replace(batch, inputs=inputs, steps=[batch.steps[n] for n in steps])
    return run_batch(part, algebra, given, [attributes[n] for n in steps])


def _apart(actual: Value, expected: Value, judged: Any) -> bool:
    """Whether two values differ in an element by more than ``REAL`` of the largest element, or one alone is NaN.

    No number of so many digits overflows: a NaN on one side alone is a root of a negative number or 0/0, and not what float64 makes of a large one.
    """
    a, b, mask = np.broadcast_arrays(actual.data[0], expected.data[0], judged[:1])
    a, b = a[mask], b[mask]
    if actual.kind != "field":
        return bool((a != b).any())
    limit = max((abs(x) for x in (*a, *b) if x - x == 0), default=0) * REAL
    return any(_element_apart(x, y, limit) for x, y in zip(a, b, strict=True))


def _element_apart(x: Any, y: Any, limit: Any) -> bool:
    if x == y or (_is_nan(x) and _is_nan(y)):
        return False
    finite = x - x == 0 and y - y == 0
    return not finite or bool(abs(x - y) > limit)


def _is_nan(x: Any) -> bool:
    return bool(x != x)  # noqa: PLR0124  a NaN is not equal to itself
