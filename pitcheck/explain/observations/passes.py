"""Operators that take together what belongs to different passes over a line of the program.

A program runs a line once for each micro-batch. If it loses track of them, the gradient of one
meets what another one has computed.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pitcheck.explain.diagnosis import Diagnosis, Kind
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.families import MOVES
from pitcheck.explain.observations.observation import AtOperator
from pitcheck.graph.cuts import Cut
from pitcheck.graph.graph import sources_of
from pitcheck.stage.batch import Argument, Step

MIXED = Kind(
    "PIT103",
    "operator {operator!r} takes {first} of pass {one} over this line together with {second} of "
    "pass {other}; the reference, which passes {count} times, as for {count} micro-batches, never "
    "takes two passes together",
    "take both from one pass: what is kept of a micro-batch may be given back in another order",
    edits=(
        "- {operator!r} takes {first} of pass {one} and {second} of pass {other}",
        "+ {operator!r} takes both of one pass",
    ),
    title="operator {operator!r} mixes micro-batches",
)


def mixed_passes(view: AtOperator) -> Diagnosis | None:
    """See that no pass of the reference has these operands, and that each is one of some pass."""
    evidence, step = view.evidence, view.step
    values = [operand.value for operand in step.inputs if isinstance(operand, Argument)]
    if len(values) != 2 or len(step.inputs) != 2:
        return None
    writers = _writers(evidence.run.stage.reference.steps)
    mine = [_origin(evidence, writers, value, int(view.codes[0])) for value in values]
    for passes in _passes(evidence, writers, step):
        places = [
            [number for number, pair in enumerate(passes) if pair[place] == own]
            for place, own in enumerate(mine)
        ]
        if any(len(found) != 1 for found in places) or places[0] == places[1]:
            continue
        facts = {
            "operator": evidence.operator(step),
            "first": evidence.called(values[0]),
            "second": evidence.called(values[1]),
            "one": places[0][0] + 1,
            "other": places[1][0] + 1,
            "count": len(passes),
        }
        return Diagnosis(MIXED, facts)
    return None


def _writers(steps: list[Step]) -> dict[int, Step]:
    """Return the step of the reference that writes each value."""
    return {output: step for step in steps for output in step.outputs if output is not None}


def _passes(
    evidence: Evidence, writers: Mapping[int, Step], step: Step
) -> list[list[tuple[int, int]]]:
    """Return what the reference's operators of a kind take, in order, for each line of several."""
    lines: dict[object, list[tuple[int, int]]] = {}
    for other in evidence.run.stage.reference.steps:
        values = [operand.value for operand in other.inputs if isinstance(operand, Argument)]
        if other.kind != step.kind or len(values) != 2 or len(other.inputs) != 2:
            continue
        pair = (_root(evidence, writers, values[0]), _root(evidence, writers, values[1]))
        # The values that a line computes again and again have one name, with numbers behind it.
        names = tuple(evidence.first.values[value].name.partition("#")[0] for value in pair)
        lines.setdefault(names, []).append(pair)
    return [passes for passes in lines.values() if len(passes) > 1]


def _root(evidence: Evidence, writers: Mapping[int, Step], value: int) -> int:
    """Return what a value of the reference only shows in another form."""
    while (step := writers.get(value)) is not None and step.kind in MOVES:
        if len(step.arguments) != 1:
            break
        value = step.arguments[0].value
    return evidence.alike(value)


def _origin(evidence: Evidence, writers: Mapping[int, Step], value: int, code: int) -> int | None:
    """Return the reference value that an operand shows in some form; None if none is known."""
    while True:
        cut = _cut(evidence, value)
        if cut is not None:
            return _root(evidence, writers, cut.reference)
        steps = [
            step
            for step in evidence.writers.get(value, [])
            if evidence.second.nodes[step.node].mask[code]
        ]
        if len(steps) != 1 or steps[0].kind not in MOVES or len(steps[0].arguments) != 1:
            return None
        node = evidence.second.nodes[steps[0].node]
        (source,) = (s for operand in node.inputs for s in sources_of(operand))
        if source.members:
            return None
        value, code = source.value, int(source.at(np.array([code]))[0])


def _cut(evidence: Evidence, value: int) -> Cut | None:
    """Return the unscaled parts of a reference value that a value holds; None if unknown."""
    cut = evidence.cuts.get(value) or evidence.specification.initial.get(value)
    return cut if cut is not None and cut.scale == 1 and cut.group_of is None else None
