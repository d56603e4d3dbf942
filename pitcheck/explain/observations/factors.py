"""Observations of constant factors."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from pitcheck.explain.diagnosis import Diagnosis
from pitcheck.explain.observations.observation import AtOperator, AtOutput
from pitcheck.explain.ratios import (
    constant_ratio,
    members_of,
    ratio_cause,
    ratio_of_output,
    repeated_reduction,
)


def factor_of_result(view: AtOperator) -> Diagnosis | None:
    """See that a result is a constant multiple of what it should be.

    A mean over ranks that is still to come divides by their number: a rank's share of a gradient is
    a multiple of the whole one also in a right plan. So the factor is that of the next output.
    """
    ratio = None if view.pair is None else constant_ratio(*view.pair)
    if ratio is None or _is_of_mean(view, ratio):
        return None
    again = _reduced_again(view, ratio)
    if again is not None:
        return again
    final = _ratio_of_next_output(view)
    return None if final is None else ratio_cause(view.evidence, view.value, final, view.codes)


def _ratio_of_next_output(view: AtOperator) -> Fraction | None:
    """Return the factor of the first output, of those that read a result and are off by a factor.

    Return None if no such output is.
    """
    evidence = view.evidence
    steps = evidence.read_behind([view.value], lambda _: True)
    behind = {view.value, *(value for step in steps for value in evidence.outputs(step))}
    found = (
        (evidence.second.depth(comparison.target.cut.value), ratio)
        for number, comparison in enumerate(evidence.run.comparisons)
        if comparison.target.cut.value in behind
        and (ratio := ratio_of_output(evidence, number)) is not None
    )
    return min(found, default=(0, None), key=lambda each: each[0])[1]


def _is_of_mean(view: AtOperator, ratio: Fraction) -> bool:
    """Return True if a factor is that of a mean that should be a sum."""
    averages = view.step.attributes.get("reduction") == "avg"
    return averages and ratio * members_of(view.evidence, view.step) == 1


def _reduced_again(view: AtOperator, ratio: Fraction) -> Diagnosis | None:
    """Return the diagnosis of a repeated reduction that brings the factor ``ratio``.

    It is looked for before the operator and behind it, among values that no right output is
    computed from.
    """
    evidence = view.evidence
    for steps_of, further in (
        (evidence.writers, evidence.inputs),
        (evidence.readers, evidence.outputs),
    ):
        stack, seen = [view.value], {view.value}
        while stack:
            value = stack.pop()
            for step in evidence.writers.get(value, []):
                if members_of(evidence, step) == ratio and repeated_reduction(evidence, value):
                    found = ratio_cause(evidence, value, ratio, evidence.codes(value))
                    return replace(found, step=step, value=value)
            new = {v for step in steps_of.get(value, []) for v in further(step)}
            new -= seen | evidence.behind_right.keys()
            seen |= new
            stack.extend(sorted(new))
    return None


def factor_of_output(view: AtOutput) -> Diagnosis | None:
    """See that an output is a constant multiple of what it should be."""
    ratio = constant_ratio(view.actual, view.wanted)
    if ratio is None:
        return None
    return ratio_cause(view.evidence, view.value, ratio, view.at(view.comparison.codes))
