"""Observations of single operators that the reference runs otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from pitcheck.explain.diagnosis import Diagnosis, Kind
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.families import ACCUMULATIONS
from pitcheck.explain.observations.observation import AtOperator, numbers_of
from pitcheck.explain.term_groups import same_numbers
from pitcheck.graph.cuts import Cut
from pitcheck.graph.graph import Graph, sources_of
from pitcheck.ops.registry import operator_kind
from pitcheck.stage.batch import Argument, Step, StepOperand

REFERENCE_LITERAL = Kind(
    "PIT102",
    "operator {operator!r} has the literal {literal} where the reference has {right}",
    "use {right}",
    ("right",),
    edits=(
        "- {operator!r} ({kind}): {literal}",
        "+ {operator!r} ({kind}): {right}",
    ),
)
REFERENCE_READS = Kind(
    "PIT102",
    "operator {operator!r} reads {read} where the reference reads {right}",
    "use {right}",
    edits=(
        "- {operator!r} reads {read}",
        "+ {operator!r} reads {right}",
    ),
)
REFERENCE_ATTRIBUTE = Kind(
    "PIT102",
    "operator {operator!r} has {different}",
    "use the reference's attribute",
    edits=(
        "- {operator!r} ({kind}): {own}",
        "+ {operator!r} ({kind}): {right}",
    ),
)
OTHER_DRAW = Kind(
    "PIT114",
    "operator {operator!r} ({kind}) draws {drawn}; they are not those that the reference draws "
    "for these elements",
    "draw {right}",
    edits=(
        "- {operator!r} ({kind}) draws {drawn}",
        "+ {operator!r} ({kind}) draws {right}",
    ),
)
READS_OTHER_THAN_REFERENCE = Kind(
    "PIT103",
    "operator {operator!r} reads {read}{origin} where the reference reads {right!r}",
    "read {right!r}",
    edits=(
        "- {operator!r} reads {read}",
        "+ {operator!r} reads {right!r}",
    ),
)
NOT_COMPUTED = Kind(
    "PIT103",
    "operator {operator!r} reads {read}{origin} where the reference reads {right!r}, which no rank "
    "computes",
    "compute {right!r} by {function}, as {left_out!r} of the reference, and read that",
    ("function",),
    edits=(
        "- {operator!r} reads {read}",
        "+ {operator!r} reads {right!r}, computed by {function} as {left_out!r} of the reference",
    ),
)
LAYERS_NOT_RUN = Kind(
    "PIT115",
    "operator {operator!r} reads {read}{origin} where the reference reads {right!r}, which no "
    "rank computes: {lost} of the reference are passed over",
    "run what computes {right!r}",
    edits=(
        "- {operator!r} reads {read}",
        "+ {operator!r} reads {right!r}, computed by {lost} of the reference",
    ),
)
MICROBATCH_LEFT_OUT = Kind(
    "PIT108",
    "operator {operator!r} leaves out micro-batch {batches} of {called}",
    "add up all micro-batches",
    edits=("+ {operator!r} adds up micro-batch {batches} of {called}, too",),
)
READS_ONE_MICROBATCH = Kind(
    "PIT108",
    "operator {operator!r} reads {called} of micro-batch {batch} in other micro-batches too",
    "let each micro-batch read what belongs to it",
    edits=(
        "- {operator!r} reads {called} of micro-batch {batch} in others, too",
        "+ {operator!r} reads {called} of the same micro-batch",
    ),
)


SIZES = frozenset({"sizes", "position", "count", "start", "stop"})
"""Attributes that differ between both plans because ranks hold parts."""
UNUSED = "unused"
"""Stands for an operand on which the result does not depend."""
Held = Callable[[int], int | None]
"""The reference value that a parallel value holds parts of; None if that is unknown."""


def other_microbatches(view: AtOperator) -> Diagnosis | None:
    """See that an operator reads another micro-batch than its own, or sums only some of them."""
    evidence, values = view.evidence, view.evidence.second.values
    count = evidence.second.coordinates.microbatches
    node = evidence.second.nodes[view.step.node]
    for source in (s for operand in node.inputs for s in sources_of(operand)):
        if not values[source.value].tensor.microbatched or source.table is None:
            continue
        read = source.at(view.codes) % count
        facts: dict[str, object] = {
            "operator": evidence.operator(view.step),
            "called": evidence.called(source.value),
        }
        if view.step.kind in ACCUMULATIONS:
            absent = sorted(set(range(count)) - set(read.reshape(-1).tolist()))
            if absent:
                facts["batches"] = ", ".join(map(str, absent))
                return Diagnosis(MICROBATCH_LEFT_OUT, facts)
        elif read.ndim == 1 and values[view.value].tensor.microbatched:
            others = read[read != view.codes % count]
            if len(others):
                return Diagnosis(READS_ONE_MICROBATCH, {**facts, "batch": int(others[0])})
    return None


def unlike_reference(view: AtOperator) -> Diagnosis | None:
    """See that the reference's operator has another attribute, literal or operand."""
    return other_operator(view.evidence, view.step, view.expected.held_reference, view.due)


def other_operator(
    evidence: Evidence, step: Step, held: Held, due: Cut | None = None
) -> Diagnosis | None:
    """Return the diagnosis of an operator that the reference runs with one thing different.

    That is an attribute, a literal or one operand. None if the reference also runs it as it is.

    Args:
        due: the cut that the result should have. If given, only operators of the reference count
            that compute its tensor.
    """
    similar = list(_similar(evidence, step, held, due))
    if any(not different and not attributes for _, different, attributes in similar):
        return None
    others: list[tuple[tuple[bool, bool], Diagnosis]] = []
    for other, different, attributes in similar:
        if not different and attributes:
            if operator_kind(step.kind).random:
                return _other_draw(evidence, step)
            said = ", ".join(
                f"{k} = {step.attributes.get(k)} where the reference has {other.attributes.get(k)}"
                for k in attributes
            )
            facts = {
                "operator": evidence.operator(step),
                "different": said,
                "own": ", ".join(f"{k} = {step.attributes.get(k)}" for k in attributes),
                "right": ", ".join(f"{k} = {other.attributes.get(k)}" for k in attributes),
            }
            return Diagnosis(REFERENCE_ATTRIBUTE, facts)
        if len(different) == 1 and not attributes and len(step.inputs) > 1:
            # A tensor that is computed is more often the wrong one than a given one, and a number
            # is seldom in the place of a tensor.
            operand, right = step.inputs[different[0]], other.inputs[different[0]]
            if _called_alike(evidence, operand, right):
                continue
            unlike = isinstance(operand, Argument) != isinstance(right, Argument)
            given = (
                isinstance(operand, Argument) and not evidence.second.values[operand.value].writers
            )
            others.append(((unlike, given), _other_operand(evidence, step, other, different[0])))
    return min(others, key=lambda o: o[0])[1] if others else None


def _called_alike(evidence: Evidence, mine: StepOperand, theirs: StepOperand) -> bool:
    """Return True if both operands have one name: then the tensor is meant, and its numbers wrong.

    To read it is no mistake.
    """
    if not isinstance(mine, Argument) or not isinstance(theirs, Argument):
        return False
    return evidence.name(mine.value) == evidence.first.values[theirs.value].name


def reference_runs(evidence: Evidence, step: Step, held: Held, due: Cut) -> bool:
    """Return True if the reference computes ``due`` by the same operator from the same tensors."""
    return any(
        not different and not attributes
        for _, different, attributes in _similar(evidence, step, held, due)
    )


def _similar(
    evidence: Evidence, step: Step, held: Held, due: Cut | None
) -> Iterator[tuple[Step, list[int], list[str]]]:
    """Yield the reference's steps of the same kind with what is different there.

    Yields:
        The step, the numbers of the operands that differ, the names of the attributes that differ.
    """
    unused = evidence.unused(step)
    mine = [_reads(evidence, operand, held, unused) for operand in step.inputs]
    if None in mine:
        return
    for other in evidence.run.stage.reference.steps:
        if other.kind != step.kind or len(other.inputs) != len(step.inputs):
            continue
        outputs = {evidence.alike(output) for output in other.outputs if output is not None}
        if due is not None and evidence.alike(due.reference) not in outputs:
            continue
        theirs = [
            evidence.alike(operand.value) if isinstance(operand, Argument) else operand
            for operand in other.inputs
        ]
        different = [
            i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a not in (b, UNUSED)
        ]
        attributes = sorted(
            k
            for k in {*step.attributes, *other.attributes} - SIZES
            if step.attributes.get(k) != other.attributes.get(k)
        )
        # An attribute that is left out may have the value that the other one states.
        same = not different and _same_results(evidence, step, other)
        yield other, different, [] if same else attributes


def _reads(evidence: Evidence, operand: StepOperand, held: Held, unused: frozenset[int]) -> object:
    """Return the reference value that an operand holds parts of, or a literal; None if unknown."""
    if isinstance(operand, tuple):
        return None
    if not isinstance(operand, Argument):
        return operand
    if operand.value in unused:
        return UNUSED
    reference = held(operand.value)
    return None if reference is None else evidence.alike(reference)


def _same_results(evidence: Evidence, step: Step, other: Step) -> bool:
    """Return True if a step of the plan and one of the reference give the same numbers."""
    codes = np.flatnonzero(evidence.second.nodes[step.node].mask)
    reference = evidence.run.evaluated.reference
    for mine, theirs in zip(step.outputs, other.outputs, strict=False):
        if mine is None or theirs is None or theirs not in reference:
            return False
        wanted, found = numbers_of(reference[theirs]), evidence.at(mine, codes)
        if found is None or found.shape[2:] != wanted.shape[2:]:
            return False
        if not same_numbers(found, np.broadcast_to(wanted, found.shape)):
            return False
    return True


def _other_draw(evidence: Evidence, step: Step) -> Diagnosis:
    """Return the diagnosis of random numbers that are not the reference's.

    It says over which axes ranks draw the same numbers, and over which others.
    """
    (value, *_) = evidence.outputs(step)
    drawn = np.full(evidence.second.codes, -1, dtype=np.int64)
    places: dict[str, int] = {}
    for writer in evidence.writers[value]:
        key = repr(sorted(writer.attributes.items()))
        drawn[evidence.second.nodes[writer.node].mask] = places.setdefault(key, len(places))
    single = [g for g in evidence.groupings if len(g.axes) == 1 and (drawn[g.table] >= 0).all()]
    alike = [g.name for g in single if (drawn[g.table] == drawn[g.table[:, :1]]).all()]
    other = [g.name for g in single if g.name not in alike]
    said = [
        f"{how} numbers on the ranks over {' and '.join(names)}"
        for how, names in (("the same", alike), ("other", other))
        if names
    ]
    mend = [f"other numbers over {' and '.join(alike)}"] if alike else []
    mend += [f"the same numbers over {' and '.join(other)}"] if other else []
    facts = {
        "operator": evidence.operator(step),
        "kind": step.kind,
        "drawn": ", ".join(said) or "numbers",
        "right": ", ".join(mend) + ", so that every element has the reference's"
        if mend
        else "the numbers that the reference draws",
    }
    return Diagnosis(OTHER_DRAW, facts)


def _other_operand(evidence: Evidence, step: Step, other: Step, place: int) -> Diagnosis:
    """Return the diagnosis of operand ``place``, which ``other`` of the reference has different."""
    operator = evidence.operator(step)
    mine, theirs = step.inputs[place], other.inputs[place]
    if isinstance(mine, Argument) and isinstance(theirs, Argument):
        facts = {
            "operator": operator,
            "read": evidence.called(mine.value),
            "origin": evidence.origin(mine.value),
            "right": evidence.first.values[theirs.value].name,
        }
        lost = _passed_over(evidence, mine.value, theirs.value)
        if lost:
            facts["lost"] = ", ".join(map(repr, lost[:3]))
            return Diagnosis(LAYERS_NOT_RUN, facts)
        writer = None if _is_held(evidence, theirs.value) else _writer(evidence, theirs.value)
        if writer is not None:
            node = evidence.first.nodes[writer.node]
            left_out = {"function": node.kind, "left_out": node.operator}
            return Diagnosis(NOT_COMPUTED, {**facts, **left_out})
        return Diagnosis(READS_OTHER_THAN_REFERENCE, facts)
    if isinstance(mine, Argument) or isinstance(theirs, Argument):
        read, right = _spelt(evidence.second, mine), _spelt(evidence.first, theirs)
        facts = {"operator": operator, "read": read, "right": right}
        return Diagnosis(REFERENCE_READS, facts)
    literals = {"operator": operator, "literal": mine, "right": theirs}
    return Diagnosis(REFERENCE_LITERAL, literals)


def _is_held(evidence: Evidence, value: int) -> bool:
    """Return True if the plan has anything of a reference value."""
    wanted = evidence.alike(value)
    return any(evidence.alike(cut.reference) == wanted for cut in evidence.cuts.values())


def _writer(evidence: Evidence, value: int) -> Step | None:
    """Return the reference's step that computes a value; None if it is given."""
    steps = evidence.run.stage.reference.steps
    return next((step for step in steps if value in step.outputs), None)


def _passed_over(evidence: Evidence, read: int, due: int) -> list[str]:
    """Return the reference's operators with parameters between two values.

    Empty if the plan computes anything of the second one.

    Args:
        read: the parallel value that is read.
        due: the reference value that should be read.
    """
    reference = evidence.run.stage.reference
    values = evidence.first.values
    parameters = {v for v in reference.inputs if values[v].tensor.role == "parameter"}
    start = evidence.holds(read)
    if start is None or _is_held(evidence, due):
        return []
    behind: dict[int, list[str]] = {start: []}
    for step in reference.steps:
        sources = [argument.value for argument in step.arguments]
        known = max((behind[v] for v in sources if v in behind), key=len, default=None)
        if known is not None:
            name = evidence.first.nodes[step.node].operator
            passed = [*known, name] if parameters & set(sources) else known
            behind.update({output: passed for output in step.outputs if output is not None})
    return behind.get(due, [])


def _spelt(graph: Graph, operand: StepOperand) -> str:
    """Return an operand as text: a tensor's name, or a number."""
    if isinstance(operand, Argument):
        return repr(graph.values[operand.value].name)
    return f"the number {operand}"
