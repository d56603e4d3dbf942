"""Observations of single addends and of replicas that differ."""

from __future__ import annotations

import numpy as np

from pitcheck.claims.real_numbers import Floats, real_differences, varies
from pitcheck.claims.reference_index import lookup
from pitcheck.explain.diagnosis import Diagnosis, Kind
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.families import COPIES
from pitcheck.explain.observations.observation import AtOperator, AtOutput
from pitcheck.explain.ratios import constant_ratio, ratio_cause
from pitcheck.explain.term_groups import close
from pitcheck.stage.batch import Step

MISSES_TERM = Kind(
    "PIT108",
    "it misses the term {term!r} (of operator {writer!r})",
    "add that term once",
    edits=("+ add {term!r} to {result!r}",),
)
HAS_TERM_TOO_MUCH = Kind(
    "PIT108",
    "it has too much of the term {term!r} (of operator {writer!r})",
    "drop that term once",
    edits=("- term {term!r} of {result!r}",),
)
MISSES_REFERENCE_TERM = Kind(
    "PIT108",
    "it misses the reference's term {term!r}",
    "add that term once",
    edits=("+ add {term!r} to {result!r}",),
)
HAS_REFERENCE_TERM_TOO_MUCH = Kind(
    "PIT108",
    "it has too much of the reference's term {term!r}",
    "drop that term once",
    edits=("- term {term!r} of {result!r}",),
)
REPLICAS_DIFFER = Kind(
    "PIT109",
    "{result!r} is right on some ranks and wrong on others",
    "let all replicas run the same operators",
    edits=(
        "- {result!r}, computed otherwise on some ranks",
        "+ {result!r}, computed by the same operators on every rank",
    ),
)
LEFT_AS_GIVEN_THERE = Kind(
    "PIT108",
    "{result!r} is {given!r} as it was given on {ranks}, where operator {operator!r} ({kind}) "
    "computes it on other ranks",
    "run {operator!r} there, too: is {given!r} among what the optimizer of these ranks updates?",
    ("ranks", "kind"),
    edits=("+ {operator!r} ({kind}) on {ranks}",),
)


UPDATED = ("parameter", "optimizer_state")
"""The roles of tensors that a step gives new values."""
ROUNDING = 1e-9
"""Relative difference up to which rows of an output count as right."""


def term_of_result(view: AtOperator) -> Diagnosis | None:
    """See that a result lacks an addend, or has it twice."""
    return None if view.pair is None else _missing_term(view.evidence, *view.pair)


def term_of_output(view: AtOutput) -> Diagnosis | None:
    """See that an output lacks an addend, or has it twice."""
    return _missing_term(view.evidence, view.actual, view.wanted)


def _missing_term(evidence: Evidence, actual: Floats, wanted: Floats) -> Diagnosis | None:
    """Return the diagnosis of an addend that is the difference of two arrays.

    Args:
        actual: the numbers held, shape (trials, rows, *shape).
        wanted: the numbers that should be held, of the same shape.
    """
    for sign, of_plan, of_reference in (
        (1.0, MISSES_TERM, MISSES_REFERENCE_TERM),
        (-1.0, HAS_TERM_TOO_MUCH, HAS_REFERENCE_TERM_TOO_MUCH),
    ):
        with np.errstate(invalid="ignore"):  # what is infinite on both sides
            difference = sign * (wanted - actual)
        for step in evidence.batch.steps:
            for value in evidence.outputs(step):
                if _is_row_of(evidence, value, difference):
                    facts = {"term": evidence.name(value), "writer": evidence.operator(step)}
                    return Diagnosis(of_plan, facts)
        known = lookup(difference, evidence.index) if varies(difference) else None
        if known is not None:
            return Diagnosis(of_reference, {"term": evidence.first.values[known].name})
    return None


def _is_row_of(evidence: Evidence, value: int, numbers: Floats) -> bool:
    """Return True if all rows of ``numbers`` are one row of a floating-point value."""
    data = evidence.array(value)
    if data.shape[2:] != numbers.shape[2:] or evidence.second.values[value].kind != "field":
        return False
    return varies(data) and any(
        all(close(numbers[:, i], data[:, row]) for i in range(numbers.shape[1]))
        for row in range(data.shape[1])
    )


def right_on_others(view: AtOperator) -> Diagnosis | None:
    """See that a result is right on other ranks that should hold the same part."""
    due, evidence = view.due, view.evidence
    if due is None or view.pair is None or due.group_of is not None:
        return None
    present = np.flatnonzero((evidence.batch.rows[view.value] >= 0) & (due.part_of >= 0))
    right = present[~view.expected.wrong(view.value)[present]]
    if not np.isin(due.part_of[view.codes], due.part_of[right]).all():
        return None
    return Diagnosis(REPLICAS_DIFFER, {"result": evidence.name(view.value)})


def right_in_part(view: AtOutput) -> Diagnosis | None:
    """See that an output is right at some coordinates and wrong at others."""
    comparison = view.comparison
    differences = real_differences(comparison.actual, comparison.expected)
    axes = tuple(i for i in range(view.actual.ndim) if i != 1)
    wrong = np.flatnonzero((differences > ROUNDING).any(axis=axes))
    if not 0 < len(wrong) < view.actual.shape[1]:
        return None
    codes = view.at(comparison.codes[wrong])
    ratio = constant_ratio(view.actual[:, wrong], view.wanted[:, wrong])
    if ratio is not None:
        return ratio_cause(view.evidence, view.value, ratio, codes)
    facts = {"result": view.evidence.name(view.value)}
    return Diagnosis(REPLICAS_DIFFER, facts, codes)


def left_as_given_there(view: AtOutput) -> Diagnosis | None:
    """See that an output is a given parameter or state on some ranks, and computed on others."""
    evidence, graph, value = view.evidence, view.evidence.second, view.value
    steps = evidence.writers.get(value, [])
    given = {id(step): _given(evidence, step) for step in steps}
    left = [step for step in steps if given[id(step)] is not None]
    doing = next((step for step in steps if given[id(step)] is None), None)
    if doing is None or not left:
        return None
    where = np.logical_or.reduce([graph.nodes[step.node].mask for step in left])
    differences = real_differences(view.comparison.actual, view.comparison.expected)
    axes = tuple(i for i in range(view.actual.ndim) if i != 1)
    wrong = np.flatnonzero((differences > ROUNDING).any(axis=axes))
    codes = view.at(view.comparison.codes[wrong])
    if not len(codes) or not where[codes].all():
        return None
    ranks = evidence.ranks_of(codes)
    facts = {
        "result": evidence.name(value),
        "given": given[id(left[0])],
        "ranks": f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}",
        "operator": evidence.operator(doing),
        "kind": doing.kind,
    }
    return Diagnosis(LEFT_AS_GIVEN_THERE, facts, codes, doing)


def _given(evidence: Evidence, step: Step) -> str | None:
    """Return the parameter or state that a step passes on as it is; None for other steps."""
    while step.kind in COPIES and len(inputs := evidence.inputs(step)) == 1:
        writers = evidence.writers.get(inputs[0], [])
        if not writers:
            tensor = evidence.second.values[inputs[0]].tensor
            return tensor.name if tensor.role in UPDATED else None
        if len(writers) > 1:
            return None
        step = writers[0]
    return None
