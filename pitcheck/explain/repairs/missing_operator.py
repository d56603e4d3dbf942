"""Repairs of operators that are left out.

Other ranks run them, or the reference does.
"""

from __future__ import annotations

from collections.abc import Iterator

from pitcheck.algebra.value import Value
from pitcheck.explain.diagnosis import Kind
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.families import ADDITIONS, PASSES_ON, REDUCTIONS
from pitcheck.explain.repairs.functions import STEPS
from pitcheck.explain.rerun.changes import Draft, Given, Override, Read, Redo, held_at
from pitcheck.explain.rerun.rerun import Rerun
from pitcheck.explain.rerun.site import Candidate, Site
from pitcheck.graph.graph import Node, Source
from pitcheck.graph.grids import Codes
from pitcheck.ops.registry import BACKWARD, operator_kind, operator_themes
from pitcheck.stage.batch import Argument, Step, StepOperand

FUNCTION_LEFT_OUT = Kind(
    "PIT102",
    "{called} is passed on where {function} of it should be",
    "run {function} on {called}",
    ("function",),
    edits=("+ {function} of {called}",),
)
TERM_LEFT_OUT = Kind(
    "PIT108",
    "{called} is used without the term {term}, which {left_out!r} ({function}) of the reference "
    "joins to it",
    "run {function} on {called} and {term}",
    ("function",),
    edits=("+ {function} of {called} and {term}",),
)
OPERATOR_LEFT_OUT = Kind(
    "PIT115",
    "{called} is used where the reference uses what {left_out!r} ({function}) makes of it, which "
    "no rank computes",
    "run {function} on {called}",
    ("function",),
    edits=("+ {function} of {called}, as {left_out!r} of the reference",),
)
_STANDS = (
    "operator {operator!r} ({kind}) stands in the place of {other!r} ({other_kind}), which "
    "other ranks or micro-batches run"
)
_RUN = "run {other!r} everywhere"
_OTHER = ("- {operator!r} ({kind})", "+ {other!r} ({other_kind})")
IN_PLACE_OF = {
    "PIT102": Kind("PIT102", _STANDS, _RUN, edits=_OTHER),
    "PIT104": Kind("PIT104", f"{_STANDS}: what it gives is not reduced", _RUN, edits=_OTHER),
    "PIT105": Kind("PIT105", f"{_STANDS}: what it gives is reduced once more", _RUN, edits=_OTHER),
    "PIT107": Kind("PIT107", f"{_STANDS}: it has the rank's part alone", _RUN, edits=_OTHER),
    "PIT108": Kind("PIT108", f"{_STANDS}: the term {{term}} is missing", _RUN, edits=_OTHER),
}
"""By code what stands in the place of an operator that other ranks or micro-batches run."""


MOST_APPLIED = 12
"""Operators of the reference that are tried on one value."""


def operator_of_others(site: Site) -> Iterator[Candidate]:
    """Run what writes the same tensor on other ranks or in other micro-batches."""
    graph = site.rerun.graph
    for number in graph.values[site.value].writers:
        other = graph.nodes[number]
        # Beside a copy, this operator is one too many: another repair drops it.
        if (
            number in site.numbers
            or other.kind in PASSES_ON
            or (other.kind, other.attributes) == (site.kind, site.nodes[0].attributes)
        ):
            continue

        def as_there(_: Node, codes: Codes, other: Node = other) -> Draft:
            return other.kind, site.rerun.attributes_of(other), site.rerun.reads(other, codes)

        overrides = site.redone(as_there)
        if overrides is not None:
            code, term = in_the_place_of(site.evidence, site.nodes[0], other)
            facts = {"other": other.operator, "other_kind": other.kind, "term": term}
            yield site.diagnosis(IN_PLACE_OF[code], **facts), overrides


def in_the_place_of(evidence: Evidence, node: Node, other: Node) -> tuple[str, str | None]:
    """Return what it means that an operator stands where other ranks run one of another kind.

    Returns:
        The code, and the missing addend as text; None if none is missing.
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
    """Return as text the addend that ``other`` joins to the operand that ``node`` only copies.

    None if these are other operators.
    """
    if node.kind not in PASSES_ON or other.kind not in ADDITIONS:
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
    """Run on a result what the reference computes of it, for all operators that read it."""
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
    """Run on an operand what the reference computes of it.

    For this operator alone, and for all that read it but the derivative of what is left out.
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
    """Apply a function, element by element, to what is only passed on.

    The reference has such functions within other operators.
    """
    if site.kind in PASSES_ON or copied(site, site.value):
        for kind in _functions():
            result = site.rerun.one(kind, {}, [Read(site.value, site.codes)], len(site.codes))
            overrides = [] if result is None else [Override(site.value, site.codes, result)]
            if overrides and site.changes(overrides):
                yield (
                    site.diagnosis(
                        FUNCTION_LEFT_OUT,
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
                        FUNCTION_LEFT_OUT,
                        called=site.evidence.called(value),
                        function=kind,
                    ),
                    changed,
                )


def _functions() -> list[str]:
    """Return the functions of one operand, element by element."""
    known = (k for kinds in operator_themes().values() for k in kinds if k.in_place)
    return [
        k.name
        for k in known
        if k.inputs == (1, 1) and not (k.required or k.collective) and k.name not in STEPS
    ]


def left_out(evidence: Evidence, value: int, step: Step) -> tuple[Kind, dict[str, object]]:
    """Return the kind of mistake, and its facts, of a step that the plan lacks on a value."""
    facts: dict[str, object] = {
        "left_out": evidence.first.nodes[step.node].operator,
        "called": evidence.called(value),
        "function": step.kind,
    }
    own = evidence.alike(evidence.cuts[value].reference)
    others = [
        o for o in step.inputs if not (isinstance(o, Argument) and evidence.alike(o.value) == own)
    ]
    if step.kind in ADDITIONS and len(others) == 1 and not isinstance(others[0], tuple):
        term = (
            repr(evidence.first.values[others[0].value].name)
            if isinstance(others[0], Argument)
            else str(others[0])
        )
        return TERM_LEFT_OUT, {**facts, "term": term}
    return OPERATOR_LEFT_OUT, facts


def copied(site: Site, value: int) -> bool:
    """Return True if a value has several names: somewhere it is only passed on."""
    return sum(number == value for number in site.rerun.graph.number.values()) > 1


def _applied_to_copy(site: Site, value: int) -> Iterator[tuple[Step, Value]]:
    if copied(site, value) or site.kind in PASSES_ON:
        yield from applied(site.rerun, value)


def applied(rerun: Rerun, value: int) -> Iterator[tuple[Step, Value]]:
    """Yield what the reference computes from what a value holds, and the plan does not.

    Yields:
        The step of the reference, and its result at the coordinates of the value.
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
    """Return an operand of the reference as the plan holds it at coordinates, if it does."""
    if isinstance(operand, tuple):
        return None
    if not isinstance(operand, Argument):
        return operand
    reference = evidence.alike(operand.value)
    if reference == own:
        return Read(value, codes)
    return next((Read(v, codes) for v in evidence.holding(reference)), None)
