"""Sums over one group that are all missing, or should all be means, or the other way round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial

import numpy as np

from pitcheck.explain.diagnosis import Diagnosis, Kind
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.families import REDUCTIONS
from pitcheck.explain.ratios import factor
from pitcheck.explain.rerun.changes import Draft, Override, Redo
from pitcheck.explain.rerun.rerun import Rerun
from pitcheck.explain.rerun.site import Candidate, Site, reduced
from pitcheck.graph.graph import Node, Source
from pitcheck.graph.grids import Codes
from pitcheck.stage.batch import Step

FACTOR_OF_REDUCTION = Kind(
    "PIT101",
    "operator {operator!r} takes the sum over {over} where it should take the mean: it is "
    "{meaning} times what it should be",
    "divide by {ratio} once, or reduce with 'avg'",
    ("over", "ratio"),
    edits=(
        "- {operator!r} ({kind}) over {over}: sum",
        "+ {operator!r} ({kind}) over {over}: avg",
    ),
)
MEANS_FOR_SUMS = Kind(
    "PIT111",
    "operator {operator!r} takes the mean over {over} where it should take the sum",
    "reduce with 'sum'",
    ("over",),
    edits=(
        "- {operator!r} ({kind}) over {over}: avg",
        "+ {operator!r} ({kind}) over {over}: sum",
    ),
)


OTHER = {"sum": "avg", "avg": "sum"}
"""By reduction the one that differs from it by the number of members alone."""
FEWEST = 2
"""Reductions that are scaled together; of a single one a repair of its own tells more."""


def scaled_reductions(
    rerun: Rerun, left: Sequence[int]
) -> tuple[list[Diagnosis], list[Redo]] | None:
    """Find a group whose sums should all be means, or the other way round.

    Sums that a right output depends on are left as they are.

    Returns:
        The mistakes in the order of the program, and the repair; None if there is no such group.
    """
    behind = frozenset().union(*(rerun.behind(n) for n in left))
    for (over, own), steps in _by_group(rerun, behind).items():
        changes = [Redo(step.node, partial(_reducing, rerun, OTHER[own])) for step in steps]
        operators = dict.fromkeys(rerun.graph.nodes[step.node].operator for step in steps)
        if len(operators) >= FEWEST and rerun.all_right(changes, left):
            return [_diagnosis(rerun.evidence, step, over, own) for step in steps], changes
    return None


def forgotten_sums(
    rerun: Rerun, terms: Sequence[Diagnosis], left: Sequence[int]
) -> tuple[list[Diagnosis], list[Override]] | None:
    """Sum all addends over one group that are used as if they were their sums.

    ``terms``: the mistakes at each of them, in the order of the program. Where a norm joins all
    gradients, no output is right before the last of them is summed.

    Returns:
        The mistakes that make all outputs right together, and the repair; None without.
    """
    families: dict[object, list[Diagnosis]] = {}
    for each in terms:
        families.setdefault(each.family, []).append(each)
    for several in sorted(families.values(), key=len, reverse=True):
        sums = [_summed(rerun, each) for each in several]
        changes = [change for change in sums if change is not None]
        if len(changes) == len(several) >= FEWEST and rerun.all_right(changes, left):
            return several, changes
    return None


def _summed(rerun: Rerun, term: Diagnosis) -> Override | None:
    """Return the sum or the mean of an addend that is used as if it were that."""
    tables = (g.table for g in rerun.evidence.groupings if g.name == term.facts["over"])
    table = next(tables, None)
    if table is None or term.value is None:
        return None
    return reduced(rerun, term.value, table, str(term.facts["reduction"]))


def scaled_reduction(site: Site) -> Iterator[Candidate]:
    """Take a mean for a sum over mesh axes, or the other way round, at one operator.

    Of one operator ``other_reduction`` says as much; this repeats a mistake at another mesh.
    """
    over = axes_of(site.evidence, site.nodes[0]) if site.kind in REDUCTIONS else None
    own = site.attributes.get("reduction", "sum")
    if over is not None and own in OTHER:
        redo = partial(_reducing, site.rerun, OTHER[own])
        changes = [Redo(number, redo) for number in site.numbers]
        yield _diagnosis(site.evidence, site.step, over, own), changes


def _by_group(rerun: Rerun, behind: frozenset[int]) -> dict[tuple[str, str], list[Step]]:
    """Return the reductions that no right output depends on, in the order of the program.

    The keys are the name of the group and the reduction.
    """
    evidence, found = rerun.evidence, dict[tuple[str, str], list[Step]]()
    for step in evidence.batch.steps:
        over = (
            axes_of(evidence, rerun.graph.nodes[step.node])
            if step.kind in REDUCTIONS and step.node in behind
            else None
        )
        reduction = step.attributes.get("reduction", "sum")
        if (
            over is not None
            and reduction in OTHER
            and not evidence.behind_right.keys() & set(evidence.outputs(step))
        ):
            found.setdefault((over, reduction), []).append(step)
    return found


def axes_of(evidence: Evidence, node: Node) -> str | None:
    """Return the name of the mesh axes over which a collective runs; None for other groups."""
    source = node.inputs[0]
    if not isinstance(source, Source) or source.members < 2:
        return None
    rows = {tuple(row) for row in np.sort(source.at(np.flatnonzero(node.mask)), axis=1).tolist()}
    named = (
        grouping.name
        for grouping in evidence.groupings
        if grouping.axes
        and rows <= {tuple(row) for row in np.sort(grouping.table, axis=1).tolist()}
    )
    return next(named, None)


def _reducing(rerun: Rerun, reduction: str, node: Node, codes: Codes) -> Draft:
    return (
        node.kind,
        {**rerun.attributes_of(node), "reduction": reduction},
        rerun.reads(node, codes),
    )


def _diagnosis(evidence: Evidence, step: Step, over: str, own: str) -> Diagnosis:
    node = evidence.second.nodes[step.node]
    value = evidence.outputs(step)[0]
    members = next(iter(_sources(node))).members
    facts = {
        "operator": node.operator,
        "over": over,
        "ratio": members,
        "meaning": factor(evidence, Fraction(members)),
    }
    kind = FACTOR_OF_REDUCTION if own == "sum" else MEANS_FOR_SUMS
    codes = np.flatnonzero(node.mask & (evidence.batch.rows[value] >= 0))
    return Diagnosis(kind, facts, codes, step, value)


def _sources(node: Node) -> Iterator[Source]:
    return (operand for operand in node.inputs if isinstance(operand, Source))
