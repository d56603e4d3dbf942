"""The judge of a pair of formulas: float64 at full size, on inputs drawn to show mistakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pitcheck.execution.executor import execute
from pitcheck.execution.places import ExecutionError, number
from random_formulas.term import FLOAT, INT, Number, Term, op, plan_of, walk

DRAWS = 9
TOLERANCE = 1e-7
ROUNDING = 1e-12
"""The rounding of the largest numbers on the way."""
LARGEST = 1e100
"""The magnitude from which on float64 is not believed."""
LARGEST_EXPONENT = 700.0
"""The number of which the exponential is no float64 any more."""

COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
NEARLY = 1e-9
"""The difference of numbers between which rounding may decide."""

Arrays = dict[str, NDArray[np.generic]]


def differ(
    reference: Term,
    other: Term,
    given: Sequence[Term],
    hints: Mapping[str, tuple[float, ...]],
    seed: int,
    *,
    ties: bool = True,
) -> bool:
    """Return True if some input shows that two formulas of ``given`` are unequal.

    A number over 0 is none: inputs with which the reference divides by 0 do not count. Where the
    reference's element is no number nothing is compared; the other's must be a number
    elsewhere. A formula that does not run, because an index is outside its table, is unequal.
    Without ``ties`` inputs do not count at which the reference compares nearly equal numbers, and
    it matters: rounding decides there.
    """
    literals = _literals(reference, other)
    for draw in range(DRAWS):
        generator = np.random.default_rng([seed, draw])
        inputs = _drawn(given, hints, literals, draw, generator)
        expected, largest = _run(reference, given, inputs)
        if _divides_by_zero(reference, given, inputs):
            continue
        try:
            found, of_other = _run(other, given, inputs)
        except ExecutionError:
            return True
        most = max(largest, of_other)
        if most > LARGEST or not _unequal(expected, found, most):
            continue
        if ties or not any(
            _unequal(expected, _run(_shifted(reference, by), given, inputs)[0], most)
            for by in (NEARLY, -NEARLY)
        ):
            return True
    return False


def _shifted(formula: Term, by: float) -> Term:
    """Return a formula in which the first of two floating-point numbers that are compared is
    larger.
    """
    made: dict[Term, Term] = {}
    for term in walk(formula):
        inputs = [made[each] if isinstance(each, Term) else each for each in term.inputs]
        first = inputs[0] if inputs else None
        if term.kind in COMPARISONS and isinstance(first, Term) and first.dtype == FLOAT:
            inputs[0] = op("add", first, Number(repr(by)))
        made[term] = replace(term, inputs=tuple(inputs))
    return made[formula]


def _literals(*formulas: Term) -> tuple[float, ...]:
    found = {0.0, 1.0, -1.0}
    for formula in formulas:
        for term in walk(formula):
            for each in term.inputs:
                if isinstance(each, Number) and np.isfinite(number(each.value)):
                    found.add(number(each.value))
    return tuple(sorted(found))


def _drawn(
    given: Sequence[Term],
    hints: Mapping[str, tuple[float, ...]],
    literals: tuple[float, ...],
    draw: int,
    generator: np.random.Generator,
) -> Arrays:
    magnitude = (1.0, 3.0, 0.3, 100.0)[draw % 4]
    share = (0.0, 0.3, 0.1, 0.02)[draw // 2 % 4]
    result: Arrays = {}
    for term in given:
        hinted = np.array(hints.get(term.name, ()), dtype=float)
        if term.dtype == INT and term.bounds is not None:
            low, high = term.bounds
            values: NDArray[np.generic] = generator.integers(low, high, size=term.shape)
            usable = hinted[(hinted >= low) & (hinted < high)].astype(np.int64)
        else:
            values = magnitude * generator.normal(size=term.shape)
            usable = np.concatenate([hinted, np.array(literals)])
            if hinted.size and draw % 2:
                usable = hinted
        if usable.size:
            chosen = generator.random(term.shape) < max(share, 0.2 if hinted.size else 0.0)
            values = np.where(chosen, generator.choice(usable, size=term.shape), values)
        result[term.name] = values
    return result


def _divides_by_zero(formula: Term, given: Sequence[Term], inputs: Arrays) -> bool:
    """Return True if a formula divides a number by 0."""
    plan = plan_of(formula, given)
    values = execute(plan, {(name, 0, 0): value for name, value in inputs.items()})
    divisors = (each.inputs[1] for each in plan.operators if each.kind == "div")
    return any(isinstance(d, str) and (values[d, 0, 0] == 0).any() for d in divisors)


def _run(formula: Term, given: Sequence[Term], inputs: Arrays) -> tuple[NDArray[np.float64], float]:
    """Return the result, and the largest number on the way.

    It is infinity if exponentials overflow, or if NaN is compared: what is decided by it has no
    value here, and a number on a computer.
    """
    initial = {(name, 0, 0): value for name, value in inputs.items()}
    plan = plan_of(formula, given)
    values = execute(plan, initial)
    largest = max(
        (
            np.abs(v[np.isfinite(v)]).max(initial=0.0)
            for v in values.values()
            if v.dtype.kind == "f"
        ),
        default=0.0,
    )
    exponents = (
        values[operator.inputs[0], 0, 0]
        for operator in plan.operators
        if operator.kind == "exp" and isinstance(operator.inputs[0], str)
    )
    overflows = any((v[np.isfinite(v)] > LARGEST_EXPONENT).any() for v in exponents)
    compared = (
        values[each, 0, 0]
        for operator in plan.operators
        if operator.kind in COMPARISONS
        for each in operator.inputs
        if isinstance(each, str)
    )
    unknown = overflows or any(v.dtype.kind == "f" and np.isnan(v).any() for v in compared)
    return np.asarray(values["result", 0, 0], dtype=float), np.inf if unknown else float(largest)


def _unequal(expected: NDArray[np.float64], found: NDArray[np.float64], largest: float) -> bool:
    """Return True if numbers differ by more than rounding does where ``largest`` ones cancel."""
    known = np.isfinite(expected)
    if not known.any():
        return False
    if not np.isfinite(found[known]).all():
        return True
    scale = max(float(np.abs(expected[known]).max()), 1e-3)
    least = max(TOLERANCE * scale, ROUNDING * largest)
    return bool(np.abs(expected[known] - found[known]).max() > least)
