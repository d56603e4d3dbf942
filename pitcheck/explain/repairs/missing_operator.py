"""Repairs of operators that are left out: on some ranks, where others run them, or wholly, where
the reference does.
"""

from __future__ import annotations

from collections.abc import Iterator

from pitcheck.algebra.value import Value
from pitcheck.explain import messages
from pitcheck.explain.diagnosis import Kind
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.hypotheses import REDUCTIONS
from pitcheck.explain.repairs.functions import SIGNS
from pitcheck.explain.rerun import Draft, Given, Override, Read, Redo, Rerun, held_at
from pitcheck.explain.site import Candidate, Site
from pitcheck.graph.graph import Node, Source
from pitcheck.graph.grids import Codes
from pitcheck.ops.registry import BACKWARD, operator_kind, operator_themes
from pitcheck.stage.batch import Argument, Step, StepOperand

TERMS = frozenset({"add", "sub"})
ELEMENTWISE = frozenset({"exp", "silu"})
"""Of every table of functions of one operand, element by element, one."""
MOST_APPLIED = 12
"""Operators of the reference that are tried on one value."""


def operator_of_others(site: Site) -> Iterator[Candidate]:
    """What writes the same tensor on other ranks or in other micro-batches, run here, too."""
    graph = site.rerun.graph
    for number in graph.values[site.value].writers:
        other = graph.nodes[number]
        # An operator beside a copy is one too much, and said so.
        if (
            number in site.numbers
            or other.kind == "identity"
            or (other.kind, other.attributes) == (site.kind, site.nodes[0].attributes)
        ):
            continue

        def as_there(_: Node, codes: Codes, other: Node = other) -> Draft:
            return other.kind, site.rerun.attributes_of(other), site.rerun.reads(other, codes)

        overrides = site.redone(as_there)
        if overrides is not None:
            code, term = in_the_place_of(site.evidence, site.nodes[0], other)
            facts = {"other": other.operator, "other_kind": other.kind, "term": term}
            yield site.diagnosis(messages.IN_PLACE_OF[code], **facts), overrides


def in_the_place_of(evidence: Evidence, node: Node, other: Node) -> tuple[str, str | None]:
    """Return (code, missing term) of an operator that stands in the place of one of another kind,
    which other ranks run.
    """
    term = lost_term(evidence, node, other)
    if other.kind in REDUCTIONS and node.kind not in REDUCTIONS:
        return "PIT104", None
    if node.kind in REDUCTIONS and not operator_kind(other.kind).collective:
        return "PIT105", None
    if operator_kind(other.kind).collective and not operator_kind(node.kind).collective:
        return "PIT107", None
    return ("PIT102" if term is None else "PIT108"), term


def lost_term(evidence: Evidence, node: Node, other: Node) -> str | None:
    """What an operator adds to, or takes away from, the operand that another one but copies; None
    where these are other operators.
    """
    if node.kind != "identity" or other.kind not in TERMS:
        return None
    kept = [
        isinstance(o, Source)
        and isinstance(node.inputs[0], Source)
        and o.value == node.inputs[0].value
        for o in other.inputs
    ]
    lost = other.inputs[1 - kept.index(True)] if True in kept and len(kept) == 2 else None
    return (
        None
        if lost is None
        else evidence.called(lost.value)
        if isinstance(lost, Source)
        else str(lost)
    )


def operator_left_out(site: Site) -> Iterator[Candidate]:
    """What the reference computes of a result, for all operators that read it."""
    for step, changed in _applied_to_copy(site, site.value):
        overrides = (
            [Override(site.value, site.codes, changed)]
            if len(site.codes) == len(site.evidence.codes(site.value))
            else []
        )
        if overrides and site.changes(overrides):
            of, facts = left_out(site.evidence, site.value, step)
            yield site.diagnosis(of, **facts), overrides


def operator_left_out_of_operand(site: Site) -> Iterator[Candidate]:
    """What the reference computes of an operand: for this operator alone, and for all that read it
    but the derivative of what is left out.
    """
    for value in dict.fromkeys(o.value for o in site.step.inputs if isinstance(o, Argument)):
        codes = site.evidence.codes(value)
        for step, changed in _applied_to_copy(site, value):
            known = {value: held_at(changed, codes, site.rerun.graph.codes)}
            overrides = site.redone(site.as_given, known=known)
            of, facts = left_out(site.evidence, value, step)
            if overrides is not None:
                yield site.diagnosis(of, **facts), overrides
            readers = [
                reader
                for reader in site.evidence.readers.get(value, [])
                if reader.kind != step.kind + BACKWARD
            ]
            if len(readers) > 1 and site.step in readers:
                yield (
                    site.diagnosis(of, **facts),
                    [Redo(reader.node, site.as_given, known) for reader in readers],
                )


def function_left_out(site: Site) -> Iterator[Candidate]:
    """A function of one operand, element by element, of a result or an operand that is but passed
    on, where the reference has it within another operator.
    """
    if site.kind == "identity" or copied(site, site.value):
        for kind in _functions():
            result = site.rerun.one(kind, {}, [Read(site.value, site.codes)], len(site.codes))
            overrides = [] if result is None else [Override(site.value, site.codes, result)]
            if overrides and site.changes(overrides):
                yield (
                    site.diagnosis(
                        messages.FUNCTION_LEFT_OUT,
                        called=site.evidence.called(site.value),
                        function=kind,
                    ),
                    overrides,
                )
    for value in dict.fromkeys(
        o.value for o in site.step.inputs if isinstance(o, Argument) and copied(site, o.value)
    ):
        codes = site.evidence.codes(value)
        for kind in _functions():
            result = site.rerun.one(kind, {}, [Read(value, codes)], len(codes))
            changed = (
                None
                if result is None
                else site.redone(
                    site.as_given, known={value: held_at(result, codes, site.rerun.graph.codes)}
                )
            )
            if changed is not None:
                yield (
                    site.diagnosis(
                        messages.FUNCTION_LEFT_OUT,
                        called=site.evidence.called(value),
                        function=kind,
                    ),
                    changed,
                )


def _functions() -> list[str]:
    known = (
        k
        for kinds in operator_themes().values()
        if any(k.name in ELEMENTWISE for k in kinds)
        for k in kinds
    )
    return [k.name for k in known if k.inputs == (1, 1) and not k.required and k.name not in SIGNS]


def left_out(evidence: Evidence, value: int, step: Step) -> tuple[Kind, dict[str, object]]:
    """Return (kind of mistake, facts) where the plan lacks what a step of the reference makes of a
    value.
    """
    facts: dict[str, object] = {
        "left_out": evidence.first.nodes[step.node].operator,
        "called": evidence.called(value),
        "function": step.kind,
    }
    own = evidence.alike(evidence.cuts[value].reference)
    others = [
        o for o in step.inputs if not (isinstance(o, Argument) and evidence.alike(o.value) == own)
    ]
    if step.kind in TERMS and len(others) == 1 and not isinstance(others[0], tuple):
        term = (
            repr(evidence.first.values[others[0].value].name)
            if isinstance(others[0], Argument)
            else str(others[0])
        )
        return messages.TERM_LEFT_OUT, {**facts, "term": term}
    return messages.OPERATOR_LEFT_OUT, facts


def copied(site: Site, value: int) -> bool:
    """Whether a value has several names: it is but passed on somewhere."""
    return sum(number == value for number in site.rerun.graph.number.values()) > 1


def _applied_to_copy(site: Site, value: int) -> Iterator[tuple[Step, Value]]:
    if copied(site, value) or site.kind == "identity":
        yield from applied(site.rerun, value)


def applied(rerun: Rerun, value: int) -> Iterator[tuple[Step, Value]]:
    """(step of the reference, its result) of what the reference computes from what a value holds,
    and the plan does not.
    """
    evidence = rerun.evidence
    held = evidence.holds(value)
    if held is None:
        return
    own, codes, tried = evidence.alike(held), evidence.codes(value), 0
    for step, attributes in zip(
        evidence.run.stage.reference.steps, evidence.run.shaped.attributes[0], strict=True
    ):
        places = [
            n
            for n, o in enumerate(step.inputs)
            if isinstance(o, Argument) and evidence.alike(o.value) == own
        ]
        known = any(
            evidence.holding(evidence.alike(output))
            for output in step.outputs
            if output is not None
        )
        if not places or known or len(step.outputs) != 1 or tried >= MOST_APPLIED:
            continue
        tried += 1
        given = [_given(evidence, operand, own, value, codes) for operand in step.inputs]
        found = [each for each in given if each is not None]
        result = (
            rerun.one(step.kind, attributes, found, len(codes))
            if len(found) == len(given)
            else None
        )
        if result is not None:
            yield step, result


def _given(
    evidence: Evidence, operand: StepOperand, own: int, value: int, codes: Codes
) -> Given | None:
    """An operand of the reference's, as the plan has it at codes; None where it has not."""
    if isinstance(operand, tuple):
        return None
    if not isinstance(operand, Argument):
        return operand
    reference = evidence.alike(operand.value)
    if reference == own:
        return Read(value, codes)
    return next((Read(v, codes) for v in evidence.holding(reference)), None)
