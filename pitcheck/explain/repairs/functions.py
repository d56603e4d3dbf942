"""Repairs of functions: the operands exchanged, or another function of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pitcheck.explain.diagnosis import Kind
from pitcheck.explain.rerun.changes import Draft
from pitcheck.explain.rerun.site import Candidate, Site
from pitcheck.graph.graph import Node
from pitcheck.graph.grids import Codes
from pitcheck.ops.declaration import OperatorKind
from pitcheck.ops.registry import (
    BACKWARD,
    kinds_in_order,
    kinds_with,
    operator_kind,
    operator_themes,
)
from pitcheck.ops.traits import Trait
from pitcheck.stage.batch import Argument

FUNCTION = Kind(
    "PIT102",
    "operator {operator!r} is {kind!r} where it should be {right!r}",
    "let {operator!r} be {right!r}",
    edits=(
        "- {operator!r} ({kind})",
        "+ {operator!r} ({right})",
    ),
)
EXCHANGED = Kind(
    "PIT103",
    "operator {operator!r} ({kind}) has its operands exchanged: {first} stands where {second} "
    "should",
    "exchange the first two operands of {operator!r}",
    edits=(
        "- {operator!r} ({kind}) of {first}, {second}",
        "+ {operator!r} ({kind}) of {second}, {first}",
    ),
)


STEPS = kinds_with(Trait.STEPS)
"""Functions that say so little of their operand that they make much right by accident."""


def exchanged_operands(site: Site) -> Iterator[Candidate]:
    """Exchange the first two operands."""
    if site.kind.removesuffix(BACKWARD) not in kinds_in_order() or len(site.step.inputs) < 2:
        return

    def exchanged(node: Node, codes: Codes) -> Draft:
        given = site.rerun.reads(node, codes)
        return node.kind, site.rerun.attributes_of(node), [given[1], given[0], *given[2:]]

    overrides = site.redone(exchanged)
    if overrides is not None:
        yield (
            site.diagnosis(EXCHANGED, first=called(site, 0), second=called(site, 1)),
            overrides,
        )


def called(site: Site, place: int) -> str:
    """Return the name of an operand."""
    operand = site.step.inputs[place]
    return site.evidence.called(operand.value) if isinstance(operand, Argument) else str(operand)


def other_function(site: Site) -> Iterator[Candidate]:
    """Compute another function of the same operands, those of the reference first."""
    plain = site.kind.removesuffix(BACKWARD)
    suffix = site.kind[len(plain) :]
    kind = operator_kind(site.kind)
    if site.collective or kind.permutes or kind.random:
        return
    for other in _others(site, plain):
        overrides = site.redone(partial(_of_kind, site, other.name + suffix))
        if overrides is not None:
            yield site.diagnosis(FUNCTION, right=other.name + suffix), overrides


def _others(site: Site, plain: str) -> list[OperatorKind]:
    """Return related operators with as many operands, those of the reference first."""
    kind, own = operator_kind(plain), set(site.attributes)
    theirs = {step.kind.removesuffix(BACKWARD) for step in site.evidence.run.stage.reference.steps}
    theme = next(kinds for kinds in operator_themes().values() if kind in kinds)
    fitting = [
        k
        for k in theme
        if k.name != plain
        and (k.name not in STEPS or plain in STEPS)
        and k.inputs == kind.inputs
        and set(k.required) <= own <= {*k.attributes, *kind.attributes}
    ]
    return sorted(fitting, key=lambda k: k.name not in theirs)


def _of_kind(site: Site, kind: str, node: Node, codes: Codes) -> Draft:
    known = operator_kind(kind).attributes
    return (
        kind,
        {k: v for k, v in site.rerun.attributes_of(node).items() if k in known},
        site.rerun.reads(node, codes),
    )
