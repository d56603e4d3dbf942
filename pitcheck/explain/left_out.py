"""Repairs of operators that are left out: on some ranks, where others run them, or wholly, where the reference does."""

from __future__ import annotations

from collections.abc import Iterator

from pitcheck.algebra.value import Value
from pitcheck.explain.hypotheses import Cause
from pitcheck.explain.rerun import Draft, Given, Override, Read, held_at
from pitcheck.explain.sites import Repair, Site
from pitcheck.stages.batch import Argument, Step, StepOperand
from pitcheck.stages.graph import Node
from pitcheck.stages.grids import Codes

MOST_APPLIED = 12
"""Operators of the reference that are tried on one value."""


def operator_of_others(site: Site) -> Iterator[Repair]:
    """What writes the same tensor on other ranks or in other micro-batches, run here, too."""
    graph = site.rerun.graph
    for number in graph.values[site.value].writers:
        other = graph.nodes[number]
        # An operator beside a copy is one too much, and said so.
        if number in site.numbers or other.kind == "identity" or (other.kind, other.attributes) == (site.kind, site.nodes[0].attributes):
            continue

        def as_there(_: Node, codes: Codes, other: Node = other) -> Draft:
            return other.kind, site.rerun.attributes_of(other), site.rerun.reads(other, codes)

        overrides = site.redone(as_there)
        if overrides is not None:
            said = f"operator {site.name!r} ({site.kind}) stands in the place of {other.operator!r} ({other.kind}), which other ranks or micro-batches run"
            yield site.cause("PIT102", said, f"run {other.operator!r} everywhere"), overrides


def operator_left_out(site: Site) -> Iterator[Repair]:
    """What the reference computes of a result, for all operators that read it."""
    for step, changed in _applied(site, site.value):
        overrides = [Override(site.value, site.codes, changed)] if len(site.codes) == len(site.evidence.codes(site.value)) else []
        if overrides and site.changes(overrides):
            yield _left_out(site, site.value, step), overrides


def operator_left_out_of_operand(site: Site) -> Iterator[Repair]:
    """What the reference computes of an operand, for this operator alone."""
    for value in dict.fromkeys(o.value for o in site.step.inputs if isinstance(o, Argument)):
        codes = site.evidence.codes(value)
        for step, changed in _applied(site, value):
            overrides = site.redone(site.as_given, known={value: held_at(changed, codes, site.rerun.graph.codes)})
            if overrides is not None:
                yield _left_out(site, value, step), overrides


def _left_out(site: Site, value: int, step: Step) -> Cause:
    operator = site.evidence.first.nodes[step.node].operator
    said = f"{site.evidence.called(value)} is used where the reference uses what {operator!r} ({step.kind}) makes of it, which no rank computes"
    return site.cause("PIT115", said, f"run {step.kind} on {site.evidence.called(value)}")


def _applied(site: Site, value: int) -> Iterator[tuple[Step, Value]]:
    """(step of the reference, its result) of what the reference computes from what a value holds, and the plan does not."""
    evidence = site.evidence
    held = evidence.holds(value)
    copied = list(site.rerun.graph.number.values()).count(value) > 1 or site.kind == "identity"
    if held is None or not copied:
        return
    own, codes, tried = evidence.alike(held), evidence.codes(value), 0
    for step, attributes in zip(evidence.run.stage.reference.steps, evidence.run.shaped.attributes[0], strict=True):
        places = [n for n, o in enumerate(step.inputs) if isinstance(o, Argument) and evidence.alike(o.value) == own]
        known = any(evidence.holding(evidence.alike(output)) for output in step.outputs if output is not None)
        if not places or known or len(step.outputs) != 1 or tried >= MOST_APPLIED:
            continue
        tried += 1
        given = [_given(site, operand, own, value, codes) for operand in step.inputs]
        found = [each for each in given if each is not None]
        result = site.rerun.one(step.kind, attributes, found, len(codes)) if len(found) == len(given) else None
        if result is not None:
            yield step, result


def _given(site: Site, operand: StepOperand, own: int, value: int, codes: Codes) -> Given | None:
    """An operand of the reference's, as the plan has it at codes; None where it has not."""
    if isinstance(operand, tuple):
        return None
    if not isinstance(operand, Argument):
        return operand
    reference = site.evidence.alike(operand.value)
    if reference == own:
        return Read(value, codes)
    return next((Read(v, codes) for v in site.evidence.holding(reference)), None)
