"""Observations of ways to the outputs: what the reference passes there, and the plan does not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pitcheck.explain.diagnosis import Diagnosis, Kind
from pitcheck.explain.observations.observation import AtOperator
from pitcheck.graph.graph import Graph
from pitcheck.stage.batch import Step

GIVEN_UNUSED = Kind(
    "PIT103",
    "no rank reads {unused} on the way to {output!r}, where the reference reads it, first in "
    "{reader!r} ({function}); {result!r} is the first result that this may change",
    "compute {result!r} from what {reader!r} of the reference makes of {unused}",
    ("unused",),
    edits=("+ {function} of {unused} on the way to {result!r}",),
)
UNMASKED = Kind(
    "PIT102",
    "{result!r} of operator {operator!r} ({kind}) reaches {output!r} without a mask, where all "
    "that the reference computes from {given} goes through {reader!r} ({function}), which reads "
    "the mask {mask!r}",
    "mask what is computed from {result!r} as {reader!r} of the reference does",
    ("reader",),
    edits=("+ mask {result!r}, as {reader!r} ({function}) of the reference",),
)


def given_unused(view: AtOperator) -> Diagnosis | None:
    """See that a given tensor of the reference is read nowhere on the way to any output."""
    evidence = view.evidence
    known = (evidence.specification.initial.get(v) for v in evidence.batch.inputs)
    read = {evidence.alike(cut.reference) for cut in known if cut is not None}
    steps = evidence.run.stage.reference.steps
    lost = [v for v in evidence.run.stage.reference.inputs if evidence.alike(v) not in read]
    readers = [step for step in steps if any(a.value in lost for a in step.arguments)]
    if not readers:
        return None
    node = evidence.first.nodes[readers[0].node]
    facts = {
        "unused": " and ".join(repr(evidence.first.values[v].name) for v in lost),
        "output": next(c.target.name for c in evidence.run.comparisons),
        "reader": node.operator,
        "function": node.kind,
        "result": evidence.name(view.value),
    }
    return Diagnosis(GIVEN_UNUSED, facts)


def unmasked(view: AtOperator) -> Diagnosis | None:
    """See that a result reaches an output unmasked, and that the reference masks all such ways."""
    evidence, run = view.evidence, view.evidence.run
    reached = _reached([view.value], evidence.batch.steps, evidence.second)
    wrong = (c.target for c in run.comparisons if c.target.cut.value in reached)
    output, steps = next(wrong, None), run.stage.reference.steps
    if output is None:
        return None
    held = (evidence.holds(v) for v in evidence.inputs(view.step))
    ways = {v: _reached([v], steps, evidence.first) for v in held if v is not None}
    given = [v for v, way in ways.items() if output.cut.reference not in way]
    behind = set().union(*(ways[v] for v in given))
    for step in steps:
        mask = _mask(step, evidence.first)
        if mask is not None and any(a.value in behind for a in step.arguments):
            node = evidence.first.nodes[step.node]
            facts = {
                "operator": evidence.operator(view.step),
                "kind": view.step.kind,
                "result": evidence.name(view.value),
                "output": output.name,
                "given": " and ".join(repr(evidence.first.values[v].name) for v in given),
                "reader": node.operator,
                "function": node.kind,
                "mask": evidence.first.values[mask].name,
            }
            return Diagnosis(UNMASKED, facts)
    return None


def _reached(values: Iterable[int], steps: Sequence[Step], graph: Graph) -> set[int]:
    """Return the values that others reach on ways without a mask, with those themselves."""
    found = set(values)
    for step in steps:
        if _mask(step, graph) is None and any(a.value in found for a in step.arguments):
            found.update(output for output in step.outputs if output is not None)
    return found


def _mask(step: Step, graph: Graph) -> int | None:
    """Return the Boolean tensor that a step of floating-point numbers reads; None without one."""
    numbers = any(o is not None and graph.values[o].kind == "field" for o in step.outputs)
    masks = (a.value for a in step.arguments if graph.values[a.value].tensor.dtype == "bool")
    return next(masks, None) if numbers else None
