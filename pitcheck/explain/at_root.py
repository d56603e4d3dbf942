"""Why an operator that reads what it should computes something else: the causes that can be seen at
that operator alone, cheapest first.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from pitcheck.claims.conjecture import VIEWS, Floats, lookup, varies
from pitcheck.explain import messages
from pitcheck.explain.diagnosis import Diagnosis
from pitcheck.explain.evidence import Evidence, Grouping
from pitcheck.explain.expected_values import Root, Standing, far
from pitcheck.explain.hypotheses import (
    REDUCTIONS,
    constant_ratio,
    distinct_groups,
    factor,
    groups_present,
    members_of,
    missing_term,
    other_operator,
    otherwise_reduced,
    possible_times,
    ratio_cause,
    reduced_anyway,
    repeated_reduction,
    same_operator,
    spell,
    unreduced,
)
from pitcheck.graph.cuts import Cut
from pitcheck.graph.graph import Source, sources_of
from pitcheck.graph.grids import Codes
from pitcheck.stage.batch import Step

ACCUMULATE = "accumulate"
_COPIES = VIEWS | {"cast"}


def cause_at(standing: Standing, root: Root) -> Diagnosis:
    """The cause of a wrong result at the operator that it begins at; PIT100 where none is seen."""
    evidence = standing.evidence
    cause = _other_microbatches(evidence, root) or other_operator(
        evidence, root.step, standing.held_reference, root.due
    )
    if cause is None:
        cause = _term_for_sum(standing, root, False)
    if cause is None:
        pair = standing.expected(root.value, root.codes)
        cause = (
            _of_values(standing, root, *pair)
            if pair is not None
            else _otherwise_reduced(standing, root) or _scaled(evidence, root)
        )
    cause = cause or _joined_twice(standing, root)
    if cause is None:
        cause = _term_for_sum(standing, root, True) or _missing_extremum(evidence, root)
    if cause is None:
        of = (
            messages.READS_RIGHT
            if standing.compares(root.step, root.codes)
            else messages.READS_UNKNOWN
        )
        cause = Diagnosis(
            of, {"operator": evidence.operator(root.step), "called": evidence.called(root.value)}
        )
    return cause if cause.codes is not None else replace(cause, codes=root.codes)


def _of_values(standing: Standing, root: Root, actual: Floats, wanted: Floats) -> Diagnosis | None:
    evidence, due = standing.evidence, root.due
    if due is None:
        return None
    grouping = (
        _group_of_operand(standing, root)
        if root.step.attributes.get("reduction", "sum") == "sum"
        else None
    )
    if grouping is not None:
        # What was summed over part of the group lacks the rest of it; anything else was summed over
        # the wrong one.
        return _missing_sum(standing, root) or _other_group(evidence, root, grouping)
    ratio = constant_ratio(evidence, actual, wanted)
    if ratio is not None and not _averaged(evidence, root, ratio[0]):
        return _reduced_again(evidence, root, ratio[0]) or ratio_cause(
            evidence, root.value, ratio[1], root.codes
        )
    if root.step.attributes.get("reduction", "sum") != "sum" and root.step.kind in REDUCTIONS:
        reduction = root.step.attributes["reduction"]
        return Diagnosis(
            messages.REDUCES_NOT_BY_SUM,
            {"operator": evidence.operator(root.step), "reduction": reduction},
        )
    return (
        _missing_sum(standing, root)
        or _other_tensor(standing, root, due, actual)
        or _on_some(standing, root, due)
        or missing_term(evidence, actual, wanted)
        or _parts_apart(standing, root, due)
    )


def _averaged(evidence: Evidence, root: Root, ratio: Fraction) -> bool:
    """Whether a factor is that of a mean in the place of a sum."""
    return (
        root.step.attributes.get("reduction") == "avg"
        and ratio * members_of(evidence, root.step) == 1
    )


def _reduced_again(evidence: Evidence, root: Root, ratio: Fraction) -> Diagnosis | None:
    """Whether what is reduced already is summed again, which brings a factor: before it shows or
    behind, among values that no right output is computed from.
    """
    for towards in (evidence.inputs, evidence.outputs):
        stack, seen = [root.value], {root.value}
        while stack:
            value = stack.pop()
            for step in evidence.writers.get(value, []):
                if members_of(evidence, step) == ratio and repeated_reduction(evidence, value):
                    return replace(
                        ratio_cause(
                            evidence, value, factor(evidence, ratio), evidence.codes(value)
                        ),
                        step=step,
                        value=value,
                    )
            steps = evidence.writers if towards == evidence.inputs else evidence.readers
            new = (
                {v for step in steps.get(value, []) for v in towards(step)}
                - seen
                - evidence.behind_right.keys()
            )
            seen |= new
            stack.extend(sorted(new))
    return None


def _other_microbatches(evidence: Evidence, root: Root) -> Diagnosis | None:
    """Whether the operator reads another micro-batch than its own, or sums over some of
    them only.
    """
    node = evidence.second.nodes[root.step.node]
    count = evidence.second.coordinates.microbatches
    values = evidence.second.values
    name = evidence.operator(root.step)
    for source in (s for operand in node.inputs for s in sources_of(operand)):
        if not values[source.value].tensor.microbatched or source.table is None:
            continue
        read = source.at(root.codes) % count
        if root.step.kind == ACCUMULATE:
            absent = sorted(set(range(count)) - set(read.reshape(-1).tolist()))
            if absent:
                facts = {
                    "operator": name,
                    "batches": ", ".join(map(str, absent)),
                    "called": evidence.called(source.value),
                }
                return Diagnosis(messages.MICROBATCH_LEFT_OUT, facts)
        elif (
            read.ndim == 1
            and values[root.value].tensor.microbatched
            and (read != root.codes % count).any()
        ):
            other = int(read[read != root.codes % count][0])
            return Diagnosis(
                messages.READS_ONE_MICROBATCH,
                {"operator": name, "called": evidence.called(source.value), "batch": other},
            )
    return None


def _term_for_sum(standing: Standing, root: Root, in_rounds: bool) -> Diagnosis | None:
    """Whether an operand is a term of a sum, over ranks alone or over the rounds of a loop as well,
    and the operator uses it as if it were the sum.
    """
    evidence = standing.evidence
    if root.step.kind in (*REDUCTIONS, ACCUMULATE):
        return None
    result = standing.sums(root.value)
    for source, read in standing.reads(root.step, root.codes):
        sums = standing.sums(source)
        if (
            sums is None
            or read.ndim != 1
            or source in evidence.unused(root.step)
            or _still_terms(sums[read], result, root.codes)
        ):
            continue
        rounds = _in_rounds(standing, source)
        if (rounds is not None) != in_rounds or _summed_behind(evidence, root, sums[read]):
            continue
        term, found = _uncast(evidence, source), standing.grouping(source)
        what = "sum" if found is None else found.what
        if rounds is not None:
            of, over = messages.TERM_OF_ROUNDS_USED, rounds.name
        else:
            of = messages.TERM_USED
            over = next(
                (
                    g.name
                    for g in evidence.groupings
                    if _same_groups(g, sums, evidence.codes(source))
                ),
                "other ranks",
            )
        facts = {
            "called": evidence.called(term),
            "result": evidence.name(term),
            "what": what,
            "over": over,
            "reader": evidence.operator(root.step),
            "reduction": "sum" if what == "sum" else "avg",
        }
        return Diagnosis(
            of,
            facts,
            np.unique(read),
            evidence.writers[term][-1] if term in evidence.writers else None,
            term,
        )
    return None


def _summed_behind(evidence: Evidence, root: Root, sums: Codes) -> bool:
    """Return True if the results at a root are added up over the groups whose terms it reads
    (``sums``: the group of each): what it reads is summed, too.
    """
    _, which = np.unique(sums, return_inverse=True)
    groups = [
        root.codes[which.reshape(-1) == number] for number in range(int(which.max(initial=-1)) + 1)
    ]
    sizes = {len(group) for group in groups}
    return (
        len(sizes) == 1
        and min(sizes) > 1
        and reduced_anyway(evidence, root.value, np.stack(groups))
    )


def _uncast(evidence: Evidence, value: int) -> int:
    """The value of which this is but a view, or the same numbers as another dtype."""
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
    """The codes at which a step reads its only operand, where each reads its own."""
    codes: Codes = np.flatnonzero(evidence.second.nodes[step.node].mask)
    (source,) = (
        s for operand in evidence.second.nodes[step.node].inputs for s in sources_of(operand)
    )
    return source.at(codes).reshape(-1)


def _in_rounds(standing: Standing, value: int) -> Grouping | None:
    """Of a value that is a term of a sum over the rounds of a loop, too: over what."""
    grouping = standing.grouping(value) if standing.due(value) is None else None
    return grouping if grouping is not None and grouping.beside else None


def _still_terms(operand: Codes, result: Codes | None, codes: Codes) -> bool:
    """Whether terms of one sum become terms of one sum."""
    if result is None:
        return False
    pairs = set(zip(operand.tolist(), result[codes].tolist(), strict=True))
    return len(pairs) == len({a for a, _ in pairs})


def _same_groups(grouping: Grouping, sums: Codes, codes: Codes) -> bool:
    of = np.full(len(sums), -1, dtype=np.int64)
    for number, row in enumerate(grouping.table):
        of[row] = number
    pairs = set(zip(of[codes].tolist(), sums[codes].tolist(), strict=True))
    return len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


def _otherwise_reduced(standing: Standing, root: Root) -> Diagnosis | None:
    """Whether a reduction, of which it is not known what is due, adds up over another group than
    the one that gives a part of a reference tensor.
    """
    evidence = standing.evidence
    if root.step.kind not in (*REDUCTIONS, ACCUMULATE):
        return None
    grouping = standing.grouping(evidence.inputs(root.step)[0])
    return (
        _other_group(evidence, root, grouping)
        if grouping is not None and not grouping.beside
        else None
    )


def _missing_sum(standing: Standing, root: Root) -> Diagnosis | None:
    """Whether the sum of the results over a group is what is due."""
    evidence = standing.evidence
    grouping = _group_of(
        evidence, root.value, standing, root.codes, summed=_summed_already(evidence, root)
    )
    if grouping is None:
        return None
    return replace(unreduced(evidence, root.value, grouping), codes=None)


def _missing_extremum(evidence: Evidence, root: Root) -> Diagnosis | None:
    """Whether the largest, or the smallest, of the results over a group is a part of a reference
    tensor, which the result itself is not.
    """
    name = evidence.name(root.value)
    tables = (
        (
            (grouping, groups_present(evidence, root.value, grouping))
            for grouping in evidence.groupings
        )
        if root.step.kind not in REDUCTIONS
        else ()
    )
    for grouping, table in tables:
        values = (
            None
            if table is None
            else evidence.array(root.value)[:, distinct_groups(evidence, root.value, table)]
        )
        for kind, word, combined in (
            ()
            if values is None
            else (("max", "largest", values.max(axis=2)), ("min", "smallest", values.min(axis=2)))
        ):
            if varies(combined) and evidence.part_of(combined) is not None:
                facts = {
                    "result": name,
                    "what": f"the {word} of one rank's elements",
                    "whole": f"the {word}",
                    "over": grouping.name,
                    "reduction": kind,
                }
                return Diagnosis(messages.NOT_REDUCED, facts)
    return None


def _scaled(evidence: Evidence, root: Root) -> Diagnosis | None:
    """Whether the result, of which it is not known what is due, is a multiple of a part of a
    reference tensor.
    """
    cut = evidence.cuts.get(root.value)
    return (
        ratio_cause(evidence, root.value, factor(evidence, cut.scale), root.codes)
        if cut is not None and cut.scale != 1
        else None
    )


def _group_of_operand(standing: Standing, root: Root) -> Grouping | None:
    """Over what the operand of a reduction would have to be summed to give what is due, where that
    is another group than the operator's.
    """
    evidence = standing.evidence
    node = evidence.second.nodes[root.step.node]
    source = node.inputs[0] if node.inputs else None
    if (
        not isinstance(source, Source)
        or source.table is None
        or source.table.ndim != 2
        or root.step.kind not in (*REDUCTIONS, ACCUMULATE)
    ):
        return None
    grouping = _group_of(evidence, source.value, standing, root.codes, root.value)
    if grouping is None:
        return None
    own = {tuple(sorted(row)) for row in source.at(root.codes).tolist()}
    return grouping if own - {tuple(sorted(row)) for row in grouping.table.tolist()} else None


def _summed_already(evidence: Evidence, root: Root) -> Codes | None:
    """For every code the group that a reduction adds up over there (-1: none); None of other
    operators.
    """
    source = next(iter(evidence.second.nodes[root.step.node].inputs), None)
    if root.step.kind not in REDUCTIONS or not isinstance(source, Source) or source.members == 0:
        return None
    groups: Codes = np.full(evidence.second.codes, -1, dtype=np.int64)
    for number, members in enumerate(np.unique(np.sort(source.at(root.codes), axis=1), axis=0)):
        groups[members] = number
    return groups


def _twice(grouping: Grouping, summed: Codes) -> bool:
    """Whether a sum over a group would count some terms twice, because the results of some members
    are one and the same sum.
    """
    own = np.sort(summed[grouping.table], axis=1)
    return bool(((own[:, 1:] == own[:, :-1]) & (own[:, 1:] >= 0)).any())


def _group_of(
    evidence: Evidence,
    value: int,
    standing: Standing,
    codes: Codes,
    result: int | None = None,
    summed: Codes | None = None,
) -> Grouping | None:
    """A group over which the terms of ``value`` add up to what is due at ``codes`` of ``result``
    (default: of itself).

    ``summed``: for every code the group whose sum it has already.
    """
    pair = standing.expected(value if result is None else result, codes)
    if pair is None:
        return None
    place = {int(c): i for i, c in enumerate(codes)}
    for grouping in evidence.groupings:
        table = (
            None
            if summed is not None and _twice(grouping, summed)
            else groups_present(evidence, value, grouping)
        )
        if table is None or evidence.array(value).shape[2:] != pair[1].shape[2:]:
            continue
        total = evidence.array(value)[:, evidence.batch.rows[value][table]].sum(axis=2)
        known = [
            (g, place[code])
            for g, row in enumerate(table.tolist())
            for code in row
            if code in place
        ]
        # What a reduction adds up is no mean.
        for times in possible_times(evidence, value, table) if result is None else (1,):
            if (
                known
                and not far(
                    total[:, [g for g, _ in known]] / times, pair[1][:, [i for _, i in known]]
                ).any()
            ):
                return replace(grouping, times=times)
    return None


def _other_group(evidence: Evidence, root: Root, grouping: Grouping) -> Diagnosis:
    return otherwise_reduced(evidence, evidence.inputs(root.step)[0], grouping, root.step)


def _other_tensor(standing: Standing, root: Root, due: Cut, actual: Floats) -> Diagnosis | None:
    """Whether the result holds another part of the tensor that is due, or a part of
    another tensor.
    """
    evidence = standing.evidence
    wanted = evidence.first.values[due.reference].name
    box = spell(due.parts[int(due.part_of[root.codes[0]])].box)
    found = evidence.cuts.get(root.value)
    name = evidence.operator(root.step)
    held = (
        found.reference
        if found is not None and found.scale == 1
        else lookup(actual, evidence.index)
        if varies(actual)
        else None
    )
    reads = " and ".join(evidence.called(value) for value in evidence.inputs(root.step)[:2])
    holders = standing.holders(root)
    facts = {
        "operator": name,
        "result": evidence.name(root.value),
        "reads": reads,
        "right": wanted,
        "box": box,
        "holders": " or ".join(map(repr, holders)) if holders else f"what holds {wanted!r}",
    }
    if held is None:
        if root.step.kind not in VIEWS:
            return None
        return Diagnosis(messages.COPY_OF_OTHER, facts)
    if evidence.alike(held) == evidence.alike(due.reference):
        said = (
            "other elements"
            if found is None or found.scale != 1
            else spell(found.parts[int(found.part_of[root.codes[0]])].box)
        )
        return Diagnosis(
            messages.RESULT_HOLDS_OTHER_PART,
            {**facts, "held": said, "parts": parts_read(standing, root)},
        )
    return Diagnosis(messages.PART_OF_OTHER, {**facts, "held": evidence.first.values[held].name})


def _joined_twice(standing: Standing, root: Root) -> Diagnosis | None:
    """Whether what joins parts of one reference tensor has one of them more than once: those of
    other ranks were never fetched.
    """
    evidence, code = standing.evidence, root.codes[:1]
    if root.step.kind != "cat":
        return None
    parts = []
    for value, read in standing.reads(root.step, code):
        cut = evidence.cuts.get(value) or standing.due(value)
        if cut is None or read.ndim != 1 or cut.part_of[read[0]] < 0:
            return None
        parts.append(
            (evidence.alike(cut.reference), spell(cut.parts[int(cut.part_of[read[0]])].box))
        )
    twice = [part for part in parts if parts.count(part) > 1]
    if not twice or len({reference for reference, _ in parts}) > 1:
        return None
    boxes, right = " and ".join(box for _, box in parts), evidence.first.values[twice[0][0]].name
    facts = {
        "operator": evidence.operator(root.step),
        "boxes": boxes,
        "right": right,
        "rank": evidence.ranks_of(code)[0],
    }
    return Diagnosis(messages.JOINED_TWICE, facts)


def _parts_apart(standing: Standing, root: Root, due: Cut) -> Diagnosis | None:
    """Whether the reference runs the same operator on the same tensors, so that what does not fit
    are the parts that are read of them.
    """
    if not same_operator(standing.evidence, root.step, standing.held_reference, due):
        return None
    return Diagnosis(
        messages.PARTS_APART,
        {"operator": standing.evidence.operator(root.step), "parts": parts_read(standing, root)},
    )


def parts_read(standing: Standing, root: Root) -> str:
    """The parts of reference tensors that an operator reads on the first of the ranks where it is
    wrong.
    """
    evidence, code = standing.evidence, root.codes[:1]
    said = []
    for value, read in standing.reads(root.step, code):
        cut = evidence.cuts.get(value) or standing.due(value)
        if (
            cut is None
            or read.ndim != 1
            or cut.part_of[read[0]] < 0
            or value in evidence.unused(root.step)
        ):
            said.append(evidence.called(value))
        else:
            said.append(
                f"{spell(cut.parts[int(cut.part_of[read[0]])].box)} of "
                f"{evidence.first.values[cut.reference].name!r} as {evidence.called(value)}"
            )
    return f"on rank {evidence.ranks_of(code)[0]} {' and '.join(dict.fromkeys(said))}"


def _on_some(standing: Standing, root: Root, due: Cut) -> Diagnosis | None:
    """Whether the value is right where the same part is due on other ranks."""
    evidence = standing.evidence
    present = np.flatnonzero((evidence.batch.rows[root.value] >= 0) & (due.part_of >= 0))
    wrong = standing.wrong(root.value)
    right = present[~wrong[present]]
    if due.group_of is not None or not np.isin(due.part_of[root.codes], due.part_of[right]).all():
        return None
    return Diagnosis(messages.REPLICAS_DIFFER, {"result": evidence.name(root.value)})
