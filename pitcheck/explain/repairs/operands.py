"""Repairs of operands: another tensor is read."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pitcheck.explain.diagnosis import Diagnosis, Kind
from pitcheck.explain.evidence import SAME, Evidence
from pitcheck.explain.families import (
    ACCUMULATIONS,
    ADDITIONS,
    COPIES,
    KEEPS_SUMS,
    MOVES,
    REDUCTIONS,
    SCALES,
)
from pitcheck.explain.rerun.changes import Draft, Override, Read
from pitcheck.explain.rerun.rerun import Rerun
from pitcheck.explain.rerun.site import Candidate, Site, reduced, reference_steps
from pitcheck.explain.term_groups import groups_present
from pitcheck.graph.graph import Node, Source, sources_of
from pitcheck.graph.grids import Codes
from pitcheck.ops.registry import BACKWARD
from pitcheck.stage.batch import Argument

READS_OTHER = Kind(
    "PIT103",
    "operator {operator!r} reads {read} where it should read {right}",
    "read {right}",
    edits=(
        "- {operator!r} ({kind}) reads {read}",
        "+ {operator!r} ({kind}) reads {right}",
    ),
)
TERM_TWICE = Kind(
    "PIT108",
    "operator {operator!r} has the term {read} twice, where {right} should be one of them",
    "read {right}",
    edits=READS_OTHER.edits,
)
READS_TERM = Kind(
    "PIT104",
    "operator {operator!r} reads {read} where it should read {right}: it is a term that is not "
    "reduced yet",
    "read {right}{after}",
    edits=(
        "- {operator!r} ({kind}) reads {read}",
        "+ {operator!r} ({kind}) reads {right}{after}",
    ),
)
READS_TERM_OVER = Kind(
    "PIT104",
    "operator {operator!r} reads {read} where it should read {right}: it is a term of that, of a "
    "sum over {over}",
    "an all-reduce(sum) over {over} of {read} before it is used makes it right",
    ("over",),
    edits=("+ all-reduce(sum) over {over} of {read}",),
)
READS_TERMS_IN_PART = Kind(
    "PIT104",
    "operator {operator!r} reads {read} where it should read {right}: parts of it are terms that "
    "are not reduced yet",
    "read {right}",
    edits=READS_OTHER.edits,
)
READ_TOO_EARLY = Kind(
    "PIT116",
    "operator {operator!r} reads {read} where it should read {right}, a later version of it: it "
    "is read too early",
    "read {right}{after}",
    edits=READS_TERM.edits,
)
OTHER_VERSION = Kind(
    "PIT116",
    "operator {operator!r} reads {read} where it should read {right}, another version of the same "
    "buffer",
    "read {right}",
    edits=READS_OTHER.edits,
)
PASSED_OVER = Kind(
    "PIT115",
    "operator {operator!r} reads {read} where it should read {right}: {lost} are passed over",
    "read {right}",
    edits=READS_OTHER.edits,
)


EXCHANGED_TENSORS = Kind(
    "PIT103",
    "{first} and {second} stand in each other's place in the operators that read them",
    "read {second} where {first} is read, and the other way round",
    edits=(
        "- {first} and {second}, as they are read",
        "+ {second} and {first}, each in the other's place",
    ),
)
MOST_EXCHANGED = 4
"""Results that are exchanged with one, the nearest in the program."""
MOST_OPERANDS = 24
"""Other tensors of an operand's form that are tried in its place."""
MOST_BETWEEN = 2000
"""Values that are searched between two of them."""


def due_operand(site: Site) -> Iterator[Candidate]:
    """Read the tensor that the reference's operator reads in that place.

    The other operands are those of the plan.
    """
    evidence = site.evidence
    if site.kind in MOVES:  # the reference views and moves much, which says little
        return
    held = [_reference_of(evidence, operand) for operand in site.step.inputs]
    for place in range(len(held)):
        tried: set[int] = set()
        for step in reference_steps(site):
            theirs = [
                evidence.alike(o.value) if isinstance(o, Argument) else o for o in step.inputs
            ]
            others = all(
                mine is None or mine == other
                for n, (mine, other) in enumerate(zip(held, theirs, strict=True))
                if n != place
            )
            wanted = step.inputs[place]
            if (
                others
                and isinstance(wanted, Argument)
                and theirs[place] != held[place]
                and theirs[place] not in tried
            ):
                tried.add(theirs[place])  # type: ignore[arg-type]
                for value in evidence.holding(theirs[place]):  # type: ignore[arg-type]
                    yield from _reading(site, place, value)


def near_operand(site: Site) -> Iterator[Candidate]:
    """Read any other tensor of the operand's form, the nearest in the program first.

    Those come first that no output depends on.
    """
    rank = site.rerun.graph.rank
    for place, operand in enumerate(site.step.inputs):
        if not isinstance(operand, Argument) or site.evidence.is_constant(operand.value):
            continue
        form = site.rerun.graph.values[operand.value]
        alike = [
            value
            for value in range(len(site.rerun.graph.values))
            if value != operand.value
            and (v := site.rerun.graph.values[value]).shape == form.shape
            and v.kind == form.kind
            and v.tensor.microbatched == form.tensor.microbatched
        ]
        here = rank[site.numbers[0]]
        for value in site.rerun.nearest(alike, here, MOST_OPERANDS):
            yield from _reading(site, place, value)


def exchanged_tensors(site: Site) -> Iterator[Candidate]:
    """Let two results of operators of one kind stand in each other's place wherever they are read.

    The other one stands behind this one in the program.
    """
    rerun, graph = site.rerun, site.rerun.graph
    mine, codes = rerun.held(site.value), site.evidence.codes(site.value)
    alike = (
        other
        for step in site.evidence.batch.steps
        for other in site.evidence.outputs(step)
        if step.kind == site.kind
        and graph.rank[step.node] > graph.rank[site.numbers[-1]]
        and graph.values[other].shape == graph.values[site.value].shape
        and np.array_equal(site.evidence.codes(other), codes)
    )
    for other in rerun.nearest(alike, graph.rank[site.numbers[0]], MOST_EXCHANGED):
        theirs = rerun.held(other)
        if mine is None or theirs is None or other in site.evidence.downstream(site.value):
            continue
        overrides = [
            Override(site.value, codes, rerun.algebra.gather(theirs.value, theirs.rows[codes])),
            Override(other, codes, rerun.algebra.gather(mine.value, mine.rows[codes])),
        ]
        if site.changes(overrides):
            facts = {
                "first": site.evidence.called(site.value),
                "second": site.evidence.called(other),
            }
            yield site.diagnosis(EXCHANGED_TENSORS, **facts), overrides


def _reference_of(evidence: Evidence, operand: object) -> object:
    """Return what an operand holds: a reference value, a literal, or None if it is unknown."""
    if not isinstance(operand, Argument):
        return operand
    held = evidence.holds(operand.value)
    return None if held is None else evidence.alike(held)


def _reading(site: Site, place: int, value: int) -> Iterator[Candidate]:
    """Read another tensor in one place."""
    if value in site.evidence.downstream(site.value):
        return

    def with_it(node: Node, codes: Codes) -> Draft | None:
        given = site.rerun.reads(node, codes)
        read = given[place]
        if not isinstance(read, Read):
            return None
        return (
            node.kind,
            site.rerun.attributes_of(node),
            [*given[:place], Read(value, read.codes), *given[place + 1 :]],
        )

    overrides = site.redone(with_it)
    operand = site.step.inputs[place]
    if overrides is not None and isinstance(operand, Argument):
        yield other_tensor(site, operand.value, value), overrides


def other_tensor(site: Site, read: int, due: int) -> Diagnosis:
    """Return the diagnosis of reading one tensor where another should be read.

    It is an earlier version, an addend, something before a layer, or just another tensor.
    """
    return next(_other_tensor(site, read, due))


def _other_tensor(site: Site, read: int, due: int) -> Iterator[Diagnosis]:
    """Yield the diagnoses that fit, the most telling first."""
    evidence = site.evidence
    facts = {"read": evidence.called(read), "right": evidence.called(due)}
    between = _between(site.rerun, read, due) or []
    kinds = [kind for kind, _ in between]
    after = f", after {between[-1][1]!r}" if between else ""
    if (
        site.kind in ADDITIONS
        and sum(isinstance(o, Argument) and o.value == read for o in site.step.inputs) > 1
    ):
        yield site.diagnosis(TERM_TWICE, **facts)
    if all(kind in COPIES or kind in REDUCTIONS for kind in kinds) and any(
        kind in REDUCTIONS for kind in kinds
    ):
        yield site.diagnosis(READS_TERM, after=after, **facts)
    over = _summed_over(site.rerun, read, due)
    if over:
        yield site.diagnosis(READS_TERM_OVER, over=over, **facts)
    if _partly_reduced(site.rerun, read, due):
        yield site.diagnosis(READS_TERMS_IN_PART, **facts)
    if between and all(kind in KEEPS_SUMS for kind in kinds) and _of_gradients(site.rerun, read):
        yield site.diagnosis(READ_TOO_EARLY, after=after, **facts)
    if _versions(evidence, read, due):
        yield site.diagnosis(OTHER_VERSION, **facts)
    if between and _is_updated(site.rerun, read, due):
        yield site.diagnosis(READ_TOO_EARLY, after=after, **facts)
    if any(_has_parameter(site.rerun, operator) for _, operator in between):
        yield site.diagnosis(PASSED_OVER, lost=", ".join(repr(o) for _, o in between[:3]), **facts)
    yield site.diagnosis(READS_OTHER, **facts)


def _summed_over(rerun: Rerun, read: int, due: int) -> str:
    """Return the name of the group over which one value adds up to the other; "" if none does."""
    wanted, codes = rerun.held(due), rerun.codes(read)
    for grouping in (
        rerun.evidence.groupings if wanted is not None and (wanted.rows[codes] >= 0).all() else ()
    ):
        table = groups_present(rerun.evidence, read, grouping)
        total = None if table is None else reduced(rerun, read, table, "sum")
        if total is not None and wanted is not None:
            one, other = (
                rerun.numbers(value)
                for value in (total.data, rerun.algebra.gather(wanted.value, wanted.rows[codes]))
            )
            if one.shape == other.shape and np.allclose(
                one, other, rtol=SAME, atol=SAME, equal_nan=True
            ):
                return grouping.name
    return ""


def _partly_reduced(rerun: Rerun, read: int, due: int) -> bool:
    """Return True if a value is joined from parts of a sum over ranks and parts of its addends."""
    graph = rerun.graph
    terms = {
        s.value
        for w in graph.values[due].writers
        if graph.nodes[w].kind in REDUCTIONS
        for o in graph.nodes[w].inputs
        for s in sources_of(o)
    }
    stack, seen = [read], {read}
    while stack and len(seen) < MOST_BETWEEN:
        for writer in graph.values[stack.pop()].writers:
            if graph.nodes[writer].kind in COPIES:
                new = [
                    s.value
                    for o in graph.nodes[writer].inputs
                    for s in sources_of(o)
                    if s.value not in seen
                ]
                seen.update(new)
                stack.extend(new)
    return due in seen and bool(terms & seen)


def _of_gradients(rerun: Rerun, value: int) -> bool:
    """Return True if a value is what a backward pass adds up, or a sum over micro-batches of it."""
    graph = rerun.graph
    kinds = [graph.nodes[writer].kind for writer in graph.values[value].writers]
    if kinds and all(kind in KEEPS_SUMS for kind in kinds):
        sources = [
            o.value
            for w in graph.values[value].writers
            for o in graph.nodes[w].inputs
            if isinstance(o, Source)
        ]
        kinds = [
            graph.nodes[writer].kind
            for source in sources
            for writer in graph.values[source].writers
        ]
    return any(kind.endswith(BACKWARD) or kind in ACCUMULATIONS for kind in kinds)


def _versions(evidence: Evidence, one: int, other: int) -> bool:
    """Return True if two values are versions of one buffer.

    They are computed in one place of a loop, or have one name in the user's program.
    """
    names = [evidence.name(value) for value in (one, other)]
    stems = {name.partition("#")[0] for name in names}
    return (len(stems) == 1 and all("#" in name for name in names)) or any(
        other in rounds for rounds in evidence.rounds(one) if one in evidence.writers
    )


def _between(rerun: Rerun, read: int, due: int) -> list[tuple[str, str]] | None:
    """Return the operators through which one value becomes the other, in the order of the program.

    Each is its kind and name. None if the second does not depend on the first.
    """
    graph = rerun.graph
    behind: dict[int, set[int]] = {}
    stack, seen = [due], {due}
    while stack and len(seen) < MOST_BETWEEN:
        value = stack.pop()
        for writer in graph.values[value].writers:
            for source in (
                s.value for operand in graph.nodes[writer].inputs for s in sources_of(operand)
            ):
                behind.setdefault(source, set()).add(writer)
                if source not in seen and source != read:
                    seen.add(source)
                    stack.append(source)
    if read not in behind:
        return None
    passed: set[int] = set()
    values = [read]
    while values:
        for number in behind.get(values.pop(), set()) - passed:
            passed.add(number)
            values.extend(output for output in graph.nodes[number].outputs if output is not None)
    found = (graph.nodes[number] for number in sorted(passed, key=graph.rank.__getitem__))
    return list(dict.fromkeys((node.kind, node.operator) for node in found))


def _is_updated(rerun: Rerun, value: int, new: int) -> bool:
    """Return True if a parameter or state becomes another value by sums, factors and copies."""
    info = rerun.graph.values[value]
    if info.writers or info.tensor.role not in ("parameter", "optimizer_state"):
        return False
    stack, seen = [new], {new}
    while stack and len(seen) < MOST_BETWEEN:
        for node in (rerun.graph.nodes[n] for n in rerun.graph.values[stack.pop()].writers):
            if node.kind in KEEPS_SUMS | COPIES | SCALES:
                sources = {s.value for operand in node.inputs for s in sources_of(operand)} - seen
                seen |= sources
                stack.extend(sorted(sources))
    return value in seen


def _has_parameter(rerun: Rerun, operator: str) -> bool:
    """Return True if an operator reads a parameter."""
    graph = rerun.graph
    nodes = (node for node in graph.nodes if node.operator == operator)
    return any(
        graph.values[o.value].tensor.role == "parameter"
        for node in nodes
        for o in node.inputs
        if isinstance(o, Source)
    )
