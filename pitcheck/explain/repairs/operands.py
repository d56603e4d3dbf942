"""Repairs of what is read: another tensor as an operand, and what it is to read the wrong one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pitcheck.explain import messages
from pitcheck.explain.diagnosis import Diagnosis
from pitcheck.explain.evidence import MOVES, SAME, Evidence
from pitcheck.explain.hypotheses import REDUCTIONS, groups_present
from pitcheck.explain.repairs.missing_collective import COPIES, SUMS
from pitcheck.explain.rerun import Draft, Read, Rerun
from pitcheck.explain.site import Candidate, Site, by_code, reference_steps
from pitcheck.graph.graph import Node, Source, sources_of
from pitcheck.graph.grids import Codes
from pitcheck.ops.registry import BACKWARD
from pitcheck.stage.batch import Argument

MOST_OPERANDS = 24
"""Other tensors of an operand's form that are tried in its place."""
MOST_BETWEEN = 2000
"""Values among which what lies between two of them is looked for."""


def due_operand(site: Site) -> Iterator[Candidate]:
    """The tensor that the reference's operator of that kind reads in an operand's place, where its
    other operands are those of the plan's.
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
    """Any other tensor of the operand's form: first those that are computed for nothing, of these
    and of others the nearest in the program.
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


def _reference_of(evidence: Evidence, operand: object) -> object:
    if not isinstance(operand, Argument):
        return operand
    held = evidence.holds(operand.value)
    return None if held is None else evidence.alike(held)


def _reading(site: Site, place: int, value: int) -> Iterator[Candidate]:
    """The operator with another operand."""
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
    """What it is to read one tensor where another is due: its version before, what a layer was to
    be applied to, or just another tensor.
    """
    return next(_other_tensor(site, read, due))


def _other_tensor(site: Site, read: int, due: int) -> Iterator[Diagnosis]:
    """What it is, the most telling first."""
    evidence = site.evidence
    facts = {"read": evidence.called(read), "right": evidence.called(due)}
    between = _between(site.rerun, read, due) or []
    kinds = [kind for kind, _ in between]
    after = f", after {between[-1][1]!r}" if between else ""
    if (
        site.kind in ("add", "sub")
        and sum(isinstance(o, Argument) and o.value == read for o in site.step.inputs) > 1
    ):
        yield site.diagnosis(messages.TERM_TWICE, **facts)
    if all(kind in COPIES or kind in REDUCTIONS for kind in kinds) and any(
        kind in REDUCTIONS for kind in kinds
    ):
        yield site.diagnosis(messages.READS_TERM, after=after, **facts)
    over = _summed_over(site.rerun, read, due)
    if over:
        yield site.diagnosis(messages.READS_TERM_OVER, over=over, **facts)
    if _partly_reduced(site.rerun, read, due):
        yield site.diagnosis(messages.READS_TERMS_IN_PART, **facts)
    if between and all(kind in SUMS for kind in kinds) and _of_gradients(site.rerun, read):
        yield site.diagnosis(messages.READ_TOO_EARLY, after=after, **facts)
    if _versions(evidence, read, due):
        yield site.diagnosis(messages.OTHER_VERSION, **facts)
    if any(_has_parameter(site.rerun, operator) for _, operator in between):
        yield site.diagnosis(
            messages.PASSED_OVER, lost=", ".join(repr(o) for _, o in between[:3]), **facts
        )
    yield site.diagnosis(messages.READS_OTHER, **facts)


def _summed_over(rerun: Rerun, read: int, due: int) -> str:
    """The name of the group over which one value adds up to the other; "" where it does not."""
    wanted, codes = rerun.held(due), rerun.codes(read)
    for grouping in (
        rerun.evidence.groupings if wanted is not None and (wanted.rows[codes] >= 0).all() else ()
    ):
        table = groups_present(rerun.evidence, read, grouping)
        groups = None if table is None else by_code(np.sort(table, axis=1), rerun.graph.codes)
        total = (
            None
            if groups is None
            else rerun.one("all_reduce", {}, [Read(read, groups[codes])], len(codes))
        )
        if total is not None and wanted is not None:
            one, other = (
                rerun.numbers(value)
                for value in (total, rerun.algebra.gather(wanted.value, wanted.rows[codes]))
            )
            if one.shape == other.shape and np.allclose(
                one, other, rtol=SAME, atol=SAME, equal_nan=True
            ):
                return grouping.name
    return ""


def _partly_reduced(rerun: Rerun, read: int, due: int) -> bool:
    """Whether one value is put together of parts of the other, a sum of ranks, and of parts of its
    terms.
    """
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
    """Whether a value is what a backward pass adds up, or a sum over micro-batches of it."""
    graph = rerun.graph
    kinds = [graph.nodes[writer].kind for writer in graph.values[value].writers]
    if kinds and all(kind in SUMS for kind in kinds):
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
    return any(kind.endswith(BACKWARD) or kind == "accumulate" for kind in kinds)


def _versions(evidence: Evidence, one: int, other: int) -> bool:
    """Whether two values are computed in one place of a loop, or stand in the user's program under
    one name with another number.
    """
    names = [evidence.name(value) for value in (one, other)]
    stems = {name.partition("#")[0] for name in names}
    return (len(stems) == 1 and all("#" in name for name in names)) or any(
        other in rounds for rounds in evidence.rounds(one) if one in evidence.writers
    )


def _between(rerun: Rerun, read: int, due: int) -> list[tuple[str, str]] | None:
    """(kind, operator) of the operators through which one value becomes the other, in the order of
    the program; None where it does not.
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


def _has_parameter(rerun: Rerun, operator: str) -> bool:
    graph = rerun.graph
    nodes = (node for node in graph.nodes if node.operator == operator)
    return any(
        graph.values[o.value].tensor.role == "parameter"
        for node in nodes
        for o in node.inputs
        if isinstance(o, Source)
    )
