"""Groups of coordinates over which what a value holds are addends of one sum or mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pitcheck.claims.real_numbers import Floats
from pitcheck.explain.diagnosis import Diagnosis, Kind
from pitcheck.explain.evidence import Evidence, Grouping
from pitcheck.explain.families import ADDITIONS, MOVES, REDUCTIONS, SCALES
from pitcheck.graph.graph import Source
from pitcheck.graph.grids import Codes
from pitcheck.ops.registry import operator_kind
from pitcheck.stage.batch import Step

NOT_REDUCED = Kind(
    "PIT104",
    "{result!r} is {what} over {over}, and is used as if it were {whole}",
    "an all-reduce({reduction}) over {over} of {result!r} before it is used makes it right",
    ("reduction", "over"),
    edits=("+ all-reduce({reduction}) over {over} of {result!r}",),
)
TOO_NARROW = Kind(
    "PIT106",
    "{result!r} is a term of a {what} over {over}, but {operator!r} reduces it over part of that "
    "group",
    "let {operator!r} run over {over}",
    ("over",),
    edits=(
        "- {operator!r} over part of {over}",
        "+ {operator!r} over {over}",
    ),
)
REDUCED_BY_OTHER_MEANS = Kind(
    "PIT111",
    "{term!r} is a term of a sum over {over}, but {operator!r} takes their {reduction}",
    "let the reduction of {operator!r} be 'sum'",
    edits=("- {operator!r}: {reduction}", "+ {operator!r}: sum"),
)
REDUCED_OVER_OTHERS = Kind(
    "PIT106",
    "{term!r} is a term of a sum over {over}, but {operator!r} does not take that sum",
    "let {operator!r} run over {over}",
    ("over",),
    edits=("- {operator!r} over other ranks", "+ {operator!r} over {over}"),
)


MOST_MOVED = 32
"""Values made of one by moving its elements that are looked at."""
CLOSE = 1e-8
"""Relative difference up to which two arrays count as equal."""


def groups_present(evidence: Evidence, value: int, grouping: Grouping) -> Codes | None:
    """Return the groups of ``grouping`` that hold the value, shape (groups, members).

    None if some coordinate that holds the value is in no such group, or if the value is a constant,
    which is an addend of nothing.
    """
    if evidence.is_constant(value):
        return None
    rows = evidence.batch.rows[value]
    table = grouping.table[(rows[grouping.table] >= 0).all(axis=1)]
    codes = evidence.codes(value)
    if not len(table) or table.shape[1] < 2 or len(np.unique(table)) != len(codes):
        return None
    return table


def possible_times(evidence: Evidence, value: int, table: Codes) -> Iterator[int]:
    """Yield the factors by which a sum over groups may be larger than the wanted value.

    That is 1 for a sum, and the number of members for a mean. Equal replicas have no mean, and what
    was reduced over another group before is no addend of one.

    Args:
        table: the coordinates of the groups, shape (groups, members).
    """
    yield 1
    if any(operator_kind(step.kind).collective for step in evidence.writers.get(value, [])):
        return
    array, rows = evidence.array(value), evidence.batch.rows[value][table]
    # Even where groups are many, few pairs of rows are different; one that differs is enough.
    pairs = np.unique(
        np.stack([np.broadcast_to(rows[:, :1], rows.shape), rows], axis=-1).reshape(-1, 2), axis=0
    )
    if np.isfinite(array).all() and not all(
        same_numbers(array[:, first], array[:, other]) for first, other in pairs if other != first
    ):
        yield table.shape[1]


def same_numbers(a: Floats, b: Floats) -> bool:
    """Return True if two arrays are equal, or equal up to rounding and not all zero."""
    return np.array_equal(a, b) or close(a, b)


def close(a: Floats, b: Floats) -> bool:
    """Return True if two arrays of one shape are equal up to rounding, finite and not all zero."""
    scale = max(float(np.abs(a).max(initial=0.0)), float(np.abs(b).max(initial=0.0)))
    if a.shape != b.shape or not 0 < scale < np.inf:
        return False
    return bool((np.abs(a - b) <= CLOSE * scale).all())


def distinct_groups(evidence: Evidence, value: int, table: Codes) -> Codes:
    """Return the rows of a value that the members of each group hold, shape (groups, members).

    Groups of thousands of ranks often hold the same rows: such groups are one.
    """
    return np.unique(np.sort(evidence.batch.rows[value][table], axis=1), axis=0)


def unreduced(evidence: Evidence, value: int, grouping: Grouping) -> Diagnosis:
    """Return the diagnosis of an addend that should have been reduced over ``grouping``."""
    narrow = too_narrow(evidence, value, grouping)
    if narrow is not None:
        return narrow
    facts = {
        "result": evidence.name(value),
        "what": f"a term of a {grouping.what}",
        "whole": f"the {grouping.what}",
        "over": grouping.name,
        "reduction": grouping.reduction,
    }
    return Diagnosis(NOT_REDUCED, facts, grouping.table.reshape(-1))


def too_narrow(evidence: Evidence, value: int, grouping: Grouping) -> Diagnosis | None:
    """Return the diagnosis of a reduction over part of the group that it should run over.

    It is blamed if no mesh axis has its group, or if at least as many reductions of values with as
    many dimensions run over the whole group. Otherwise the next reduction is missing: None.
    """
    for step in evidence.writers.get(value, []):
        part = groups_of(evidence, step, value) if step.kind in REDUCTIONS else set()
        whole = _joined(part, grouping.table) if part else set()
        if not whole or whole == part or max(map(len, part)) < 2:
            continue
        # A value of some ranks alone is in some of an axis' groups.
        groups_by = [
            ({tuple(sorted(row)) for row in g.table.tolist()}, g) for g in evidence.groupings
        ]
        named = any(part <= groups for groups, g in groups_by if g.axes)
        over_whole, over_part = (_runs_over(evidence, step, value, g) for g in (whole, part))
        if not named or over_whole >= max(over_part, 1):
            ranks = [code // evidence.second.coordinates.microbatches for code in min(whole)]
            facts = {
                "result": evidence.name(value),
                "what": grouping.what,
                "over": next((g.name for groups, g in groups_by if whole <= groups), None)
                or f"ranks {ranks}",
                "operator": evidence.operator(step),
            }
            codes = grouping.table.reshape(-1)
            return Diagnosis(TOO_NARROW, facts, codes, step, value, reduced=True)
    return None


def _runs_over(evidence: Evidence, step: Step, value: int, groups: set[tuple[int, ...]]) -> int:
    """Return how many other reductions run over one of the groups.

    Counted are results with as many dimensions as ``value``.
    """
    dimensions = len(evidence.second.values[value].shape)
    return sum(
        bool(groups_of(evidence, other, output) & groups)
        for other in evidence.batch.steps
        if other.kind in REDUCTIONS and other.node != step.node
        for output in evidence.outputs(other)
        if len(evidence.second.values[output].shape) == dimensions
    )


def _joined(groups: set[tuple[int, ...]], table: Codes) -> set[tuple[int, ...]]:
    """Return the groups that a second reduction, over the rows of ``table``, makes of the first's.

    Empty if some member would be in two of them.
    """
    group_of = {code: group for group in groups for code in group}
    found = {
        tuple(sorted({c for code in row for c in group_of.get(code, (code,))}))
        for row in table.tolist()
    }
    return found if sum(map(len, found)) == len({c for group in found for c in group}) else set()


def groups_of(evidence: Evidence, step: Step, value: int) -> set[tuple[int, ...]]:
    """Return the groups of coordinates that a reduction writes ``value`` for, each in order."""
    node = evidence.second.nodes[step.node]
    source = node.inputs[0] if node.inputs else None
    if not isinstance(source, Source) or source.table is None or source.table.ndim != 2:
        return set()
    return {tuple(sorted(row)) for row in source.at(evidence.codes(value)).tolist()}


def reduced_anyway(evidence: Evidence, value: int, table: Codes) -> bool:
    """Return True if a value, or a sum with it, is reduced within these groups already.

    One reduction more would count addends several times.

    Args:
        table: the coordinates of the groups, shape (groups, members).
    """
    group_of = {code: number for number, row in enumerate(table.tolist()) for code in row}
    sums = {
        output
        for step in evidence.readers.get(value, [])
        if step.kind in ADDITIONS
        for output in evidence.outputs(step)
    }
    moved = _moved_on(evidence, [value, *sorted(sums)])
    for step in (step for each in moved for step in evidence.reductions_of(each)):
        node = evidence.second.nodes[step.node]
        source = node.inputs[0]
        if step.kind not in REDUCTIONS or not isinstance(source, Source):
            continue
        members = source.at(np.flatnonzero(node.mask)).reshape(-1, max(source.members, 1))
        rows = np.unique(members, axis=0).tolist()
        if any(len({group_of.get(code, -1) for code in row}) == 1 for row in rows if len(row) > 1):
            return True
    return False


def _moved_on(evidence: Evidence, values: Sequence[int]) -> list[int]:
    """Return the values and what moving elements and scaling by numbers makes of them.

    These are the buckets of gradients, and averages.
    """
    found = list(dict.fromkeys(values))
    for value in found:
        moved = [
            output
            for step in evidence.readers.get(value, [])
            if step.kind in MOVES or (step.kind in SCALES and len(step.arguments) == 1)
            for output in evidence.outputs(step)
        ]
        found += [o for o in dict.fromkeys(moved) if o not in found][: MOST_MOVED - len(found)]
    return found


def otherwise_reduced(
    evidence: Evidence, value: int, grouping: Grouping, step: Step, codes: Codes | None = None
) -> Diagnosis:
    """Return the diagnosis of a reduction that should add up ``value`` over ``grouping``.

    It runs over another group, or does something other than a sum over this one.
    """
    reduction = step.attributes.get("reduction", "sum")
    facts = {
        "term": evidence.name(value),
        "over": grouping.name,
        "operator": evidence.operator(step),
        "reduction": reduction,
    }
    groups = {tuple(sorted(row)) for row in grouping.table.tolist()}
    of_these = reduction != "sum" and groups_of(evidence, step, value) == groups
    kind = REDUCED_BY_OTHER_MEANS if of_these else REDUCED_OVER_OTHERS
    return Diagnosis(kind, facts, codes, step, reduced=True)
