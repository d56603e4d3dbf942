"""Observations of addends: they are not reduced, or over another group than they should be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pitcheck.claims.conjecture import VIEWS
from pitcheck.claims.real_numbers import Floats, varies
from pitcheck.explain.diagnosis import Diagnosis, Kind
from pitcheck.explain.evidence import Evidence, Grouping
from pitcheck.explain.expected_values import far
from pitcheck.explain.families import ACCUMULATIONS, CASTS, REDUCTIONS
from pitcheck.explain.observations.observation import AtOperator, AtOutput, OnTheWay
from pitcheck.explain.term_groups import (
    close,
    groups_present,
    otherwise_reduced,
    possible_times,
    reduced_anyway,
    unreduced,
)
from pitcheck.graph.graph import Source, sources_of
from pitcheck.graph.grids import Codes
from pitcheck.stage.batch import Step

TERM_USED = Kind(
    "PIT104",
    "{called} is a term of a {what} over {over}, and operator {reader!r} uses it as if it were "
    "the {what}",
    "an all-reduce({reduction}) over {over} of {result!r} before it is used makes it right",
    ("reduction", "over"),
    edits=("+ all-reduce({reduction}) over {over} of {result!r}",),
    title="{result!r} is never {done} over {over}",
)
TERM_OF_ROUNDS_USED = Kind(
    "PIT104",
    "{called} is a term of a {what} over {over}, and operator {reader!r} uses it as if it were "
    "the {what}",
    "let {reader!r} do what is right for a term of a {what} over all of these, or use the {what}",
    edits=(
        "- {reader!r} uses {called}",
        "+ {reader!r} uses the {what} over {over} of {called}",
    ),
)
REDUCES_NOT_BY_SUM = Kind(
    "PIT111",
    "operator {operator!r} reduces with {reduction!r} where it should take the sum",
    "reduce with 'sum'",
    edits=(
        "- {operator!r}: {reduction}",
        "+ {operator!r}: sum",
    ),
)


SUMMED = REDUCTIONS | ACCUMULATIONS
_COPIES = VIEWS | CASTS


def term_for_sum(view: AtOperator) -> Diagnosis | None:
    """See that an operand is an addend of a sum over ranks and is used as if it were the sum."""
    return _term_used(view, in_rounds=False)


def term_of_rounds(view: AtOperator) -> Diagnosis | None:
    """See that an operand is an addend of a sum over the rounds of a loop, used as if summed."""
    return _term_used(view, in_rounds=True)


def _term_used(view: AtOperator, *, in_rounds: bool) -> Diagnosis | None:
    evidence, expected = view.evidence, view.expected
    if view.step.kind in SUMMED:
        return None
    result = expected.sums(view.value)
    for source, read in expected.reads(view.step, view.codes):
        sums = expected.sums(source)
        if sums is None or read.ndim != 1 or source in evidence.unused(view.step):
            continue
        if _still_terms(sums[read], result, view.codes):
            continue
        rounds = expected.grouping(source) if expected.due(source) is None else None
        looped = rounds is not None and bool(rounds.beside)
        if looped != in_rounds or _summed_behind(view, sums[read]):
            continue
        term, found = _uncast(evidence, source), expected.grouping(source)
        what = "sum" if found is None else found.what
        facts = {
            "called": evidence.called(term),
            "result": evidence.name(term),
            "what": what,
            "over": rounds.name
            if looped and rounds is not None
            else _name_of(evidence, sums, evidence.codes(source)),
            "reader": evidence.operator(view.step),
            "reduction": "sum" if what == "sum" else "avg",
            "done": "summed" if what == "sum" else "averaged",
        }
        kind = TERM_OF_ROUNDS_USED if looped else TERM_USED
        writer = evidence.writers[term][-1] if term in evidence.writers else None
        return Diagnosis(kind, facts, np.unique(read), writer, term)
    return None


def _still_terms(operand: Codes, result: Codes | None, codes: Codes) -> bool:
    """Return True if addends of one sum become addends of one sum.

    Args:
        operand: the number of the sum of each operand, shape (codes,).
        result: the number of the sum at every coordinate; None if the result is no addend.
        codes: the coordinates of the operator, shape (codes,).
    """
    if result is None:
        return False
    pairs = set(zip(operand.tolist(), result[codes].tolist(), strict=True))
    return len(pairs) == len({a for a, _ in pairs})


def _name_of(evidence: Evidence, sums: Codes, codes: Codes) -> str:
    """Return the name of the groups whose members belong to one sum each."""
    return next((g.name for g in evidence.groupings if _same_groups(g, sums, codes)), "other ranks")


def _same_groups(grouping: Grouping, sums: Codes, codes: Codes) -> bool:
    group_of = np.full(len(sums), -1, dtype=np.int64)
    for number, row in enumerate(grouping.table):
        group_of[row] = number
    pairs = set(zip(group_of[codes].tolist(), sums[codes].tolist(), strict=True))
    return len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


def _summed_behind(view: AtOperator, sums: Codes) -> bool:
    """Return True if the results are added up over the groups whose addends are read.

    Args:
        sums: the number of the sum that each operand is an addend of, shape (codes,).
    """
    _, which = np.unique(sums, return_inverse=True)
    which = which.reshape(-1)
    groups = [view.codes[which == number] for number in range(int(which.max(initial=-1)) + 1)]
    sizes = {len(group) for group in groups}
    if len(sizes) != 1 or min(sizes) < 2:
        return False
    return reduced_anyway(view.evidence, view.value, np.stack(groups))


def _uncast(evidence: Evidence, value: int) -> int:
    """Return the value that this one only views, or has in another dtype."""
    step = next(iter(evidence.writers.get(value, [])), None)
    while (
        step is not None
        and step.kind in _COPIES
        and len(evidence.inputs(step)) == 1
        and np.array_equal(_codes_read(evidence, step), evidence.codes(value))
    ):
        value = evidence.inputs(step)[0]
        step = next(iter(evidence.writers.get(value, [])), None)
    return value


def _codes_read(evidence: Evidence, step: Step) -> Codes:
    """Return the coordinates at which a step reads its only operand, shape (codes,)."""
    node = evidence.second.nodes[step.node]
    codes: Codes = np.flatnonzero(node.mask)
    (source,) = (s for operand in node.inputs for s in sources_of(operand))
    return source.at(codes).reshape(-1)


def summed_over_others(view: AtOperator) -> Diagnosis | None:
    """See that the operand of a sum has to be added up over another group to be right.

    A sum over part of that group lacks the rest of it: then the next reduction is missing.
    """
    if view.pair is None or view.step.attributes.get("reduction", "sum") != "sum":
        return None
    grouping = _group_of_operand(view)
    if grouping is None:
        return None
    operand = view.evidence.inputs(view.step)[0]
    return missing_sum(view) or otherwise_reduced(view.evidence, operand, grouping, view.step)


def _group_of_operand(view: AtOperator) -> Grouping | None:
    """Return the group over which a sum would be right; None if it is that of the operator."""
    node = view.evidence.second.nodes[view.step.node]
    source = node.inputs[0] if node.inputs else None
    if not isinstance(source, Source) or source.table is None or source.table.ndim != 2:
        return None
    if view.step.kind not in SUMMED:
        return None
    grouping = _group_of(view, source.value)
    if grouping is None:
        return None
    members = {tuple(sorted(row)) for row in source.at(view.codes).tolist()}
    return grouping if members - {tuple(sorted(row)) for row in grouping.table.tolist()} else None


def not_by_sum(view: AtOperator) -> Diagnosis | None:
    """See that a reduction by something other than a sum gives a wrong result."""
    reduction = view.step.attributes.get("reduction", "sum")
    if view.pair is None or view.step.kind not in REDUCTIONS or reduction == "sum":
        return None
    facts = {"operator": view.evidence.operator(view.step), "reduction": reduction}
    return Diagnosis(REDUCES_NOT_BY_SUM, facts)


def missing_sum(view: AtOperator) -> Diagnosis | None:
    """See that the results add up over a group to what each of them should be."""
    grouping = None if view.pair is None else _group_of(view, view.value)
    if grouping is None:
        return None
    return replace(unreduced(view.evidence, view.value, grouping), codes=None)


def _group_of(view: AtOperator, value: int) -> Grouping | None:
    """Return the group over which addends in ``value`` give what the result should be."""
    evidence, pair = view.evidence, view.pair
    if pair is None or evidence.array(value).shape[2:] != pair[1].shape[2:]:
        return None
    of_result = value == view.value
    summed = _summed_already(view) if of_result else None
    place = {int(c): i for i, c in enumerate(view.codes)}
    for grouping in evidence.groupings:
        twice = summed is not None and _counts_twice(grouping, summed)
        table = None if twice else groups_present(evidence, value, grouping)
        if table is None:
            continue
        total = evidence.array(value)[:, evidence.batch.rows[value][table]].sum(axis=2)
        known = [
            (g, place[code])
            for g, row in enumerate(table.tolist())
            for code in row
            if code in place
        ]
        # The operand of a reduction is an addend of its sum, and not of a mean.
        for times in possible_times(evidence, value, table) if of_result else (1,):
            sums, wanted = (
                total[:, [g for g, _ in known]] / times,
                pair[1][:, [i for _, i in known]],
            )
            if known and not far(sums, wanted).any():
                return replace(grouping, times=times)
    return None


def _summed_already(view: AtOperator) -> Codes | None:
    """Return by coordinate the group that a reduction adds up (-1: none), shape (codes,).

    None for other operators.
    """
    source = next(iter(view.evidence.second.nodes[view.step.node].inputs), None)
    if view.step.kind not in REDUCTIONS or not isinstance(source, Source) or not source.members:
        return None
    groups: Codes = np.full(view.evidence.second.codes, -1, dtype=np.int64)
    for number, members in enumerate(np.unique(np.sort(source.at(view.codes), axis=1), axis=0)):
        groups[members] = number
    return groups


def _counts_twice(grouping: Grouping, summed: Codes) -> bool:
    """Return True if members of a group hold one and the same sum already."""
    sums = np.sort(summed[grouping.table], axis=1)
    return bool(((sums[:, 1:] == sums[:, :-1]) & (sums[:, 1:] >= 0)).any())


def reduced_over_others(view: AtOperator) -> Diagnosis | None:
    """See that the operand of a reduction adds up over another group to a reference tensor.

    This is for results of which it is not known what they should be.
    """
    if view.pair is not None or view.step.kind not in SUMMED:
        return None
    operand = view.evidence.inputs(view.step)[0]
    grouping = view.expected.grouping(operand)
    if grouping is None or grouping.beside:
        return None
    return otherwise_reduced(view.evidence, operand, grouping, view.step)


def forgotten_sum_inside(view: OnTheWay) -> Diagnosis | None:
    """See that a value becomes part of a reference tensor once it is summed over a group."""
    if view.value in view.evidence.cuts:
        return None
    return _forgotten_sum(view.evidence, view.value, None)


def forgotten_sum_of_output(view: AtOutput) -> Diagnosis | None:
    """See that an output becomes right once it is summed over a group."""
    target = view.comparison.target
    if target.cut.group_of is not None:
        return None
    rows = view.evidence.batch.rows[view.value]
    place = {int(row): i for i, row in enumerate(rows[view.comparison.codes])}
    wanted = view.wanted[:, [place.get(int(rows[code]), 0) for code in target.codes]]
    return _forgotten_sum(view.evidence, view.value, (wanted, target.codes))


def _forgotten_sum(
    evidence: Evidence, value: int, wanted: tuple[Floats, Codes] | None
) -> Diagnosis | None:
    """Return the diagnosis of a missing reduction, or of one over another group.

    Args:
        wanted: numbers that the value should hold, shape (trials, codes, *shape), and their
            coordinates; None if the sum only has to be a part of some reference tensor.
    """
    reductions = evidence.reductions_of(value)
    if any(evidence.is_true(o) for step in reductions for o in evidence.outputs(step)):
        return None
    for grouping in evidence.groupings:
        table = groups_present(evidence, value, grouping)
        if table is None or (not reductions and reduced_anyway(evidence, value, table)):
            continue
        total = evidence.array(value)[:, evidence.batch.rows[value][table]].sum(axis=2)
        for times in possible_times(evidence, value, table):
            if not _adds_up(evidence, total / times, table, wanted):
                continue
            if not reductions:
                return unreduced(evidence, value, replace(grouping, table=table, times=times))
            if times == 1:
                codes = table.reshape(-1)
                return otherwise_reduced(evidence, value, grouping, reductions[0], codes)
    return None


def _adds_up(
    evidence: Evidence, sums: Floats, table: Codes, wanted: tuple[Floats, Codes] | None
) -> bool:
    """Return True if the sums over the groups of ``table`` are what is wanted of them."""
    if wanted is None:
        # A value that is equal in every trial is a part of many tensors by accident.
        return varies(sums) and evidence.part_of(sums) is not None
    numbers, codes = wanted
    place = {int(c): i for i, c in enumerate(codes)}
    known = [(g, place[int(row[0])]) for g, row in enumerate(table) if int(row[0]) in place]
    return bool(known) and all(close(sums[:, g], numbers[:, i]) for g, i in known)
