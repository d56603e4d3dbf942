"""Repairs of norms: tensors that are left out of a sum of squares, or counted in it twice."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pitcheck.algebra.value import Value
from pitcheck.claims.real_numbers import Floats
from pitcheck.explain.diagnosis import Kind
from pitcheck.explain.evidence import SAME, Evidence
from pitcheck.explain.families import JOINS, PRODUCTS, ROOTS, SUMS_ALONG
from pitcheck.explain.repairs.missing_collective import of_norm
from pitcheck.explain.rerun.changes import Override, Read, held_at
from pitcheck.explain.rerun.site import Candidate, Site
from pitcheck.graph.graph import Source
from pitcheck.graph.parts import Part
from pitcheck.ops.registry import has_trait
from pitcheck.ops.traits import Trait
from pitcheck.stage.batch import Argument, Step, StepOperand

CANCELLED = 1e-13
"""The share of a sum of squares that rounding may leave of the difference of two such sums."""
NORM_WITHOUT = Kind(
    "PIT113",
    "the norm in {result!r} is taken over part of the parameters: without {names}",
    "add their squares to it",
    edits=("+ add the squares of {names} to {result!r}",),
)

COUNTED_TWICE = Kind(
    "PIT108",
    "operators {operator!r} and {other!r} ({kind}) both put {called} into the norm: it counts "
    "twice",
    "leave {called} out of one of them",
    ("called",),
    edits=("- {operator!r} ({kind}) joins {called}",),
)


def counted_twice(site: Site) -> Iterator[Candidate]:
    """Leave a tensor out of a join whose squares are added up, if another join has it as well."""
    if site.kind not in JOINS or not _in_norm(site.evidence, site.value):
        return
    places = _joined(site.evidence)
    here = int(site.codes[0])
    for value in dict.fromkeys(o.value for o in site.step.inputs if isinstance(o, Argument)):
        part = _part(site.evidence, value, here)
        others = [] if part is None else [o for o in places.get(part, []) if o not in site.numbers]
        zeros = site.rerun.one("mul", {}, [Read(value, site.codes), 0], len(site.codes))
        if not others or zeros is None:
            continue
        known = {value: held_at(zeros, site.codes, site.rerun.graph.codes)}
        overrides = site.redone(site.as_given, known=known)
        if overrides is not None:
            facts = {
                "called": site.evidence.called(value),
                "other": site.rerun.graph.nodes[others[0]].operator,
            }
            yield site.diagnosis(COUNTED_TWICE, **facts), overrides


def _in_norm(evidence: Evidence, value: int) -> bool:
    """Return True if the squares of a value are added up, and a root is taken of that."""
    squares = (step for step in evidence.readers.get(value, []) if _squares(step))
    return any(of_norm(evidence, o) for step in squares for o in evidence.outputs(step))


def _joined(evidence: Evidence) -> dict[tuple[int, Part], list[int]]:
    """Return by part of a reference tensor the nodes that join it into a norm."""
    found: dict[tuple[int, Part], list[int]] = {}
    for step in evidence.batch.steps:
        if step.kind not in JOINS or not any(_in_norm(evidence, v) for v in evidence.outputs(step)):
            continue
        node = evidence.second.nodes[step.node]
        for code in np.flatnonzero(node.mask).tolist():
            for source in (o for o in node.inputs if isinstance(o, Source) and not o.members):
                part = _part(evidence, source.value, int(source.at(np.array([code]))[0]))
                if part is not None:
                    found.setdefault(part, []).append(step.node)
    return found


def _part(evidence: Evidence, value: int, code: int) -> tuple[int, Part] | None:
    """Return the part of a reference tensor that a value holds at a coordinate; None if unknown."""
    cut = evidence.cuts.get(value)
    if cut is None or cut.scale != 1 or cut.group_of is not None or cut.part_of[code] < 0:
        return None
    return evidence.alike(cut.reference), cut.parts[int(cut.part_of[code])]


def norm_of_all(site: Site) -> Iterator[Candidate]:
    """Take a sum of squares, or its root, over all tensors of which the reference takes it."""
    if not (site.kind in ROOTS or of_norm(site.evidence, site.value)):
        return
    held, codes = site.rerun.held(site.value), site.rerun.codes(site.value)
    if held is None or held.value.data.shape[3:] not in ((), (1,)):
        return
    actual = site.rerun.numbers(site.rerun.algebra.gather(held.value, held.rows[codes]))
    power = 2 if site.kind in ROOTS else 1
    for due in _norms(site, actual):
        missing = (due**power - actual**power).reshape(len(actual), len(codes))
        rounded = CANCELLED * (due**power).reshape(missing.shape)
        for names, total in _left_out(site):
            # A draw in which no token counts gives NaN.
            told = np.isfinite(total) & np.isfinite(missing).all(axis=1)
            apart = np.abs(missing - total[:, None]) > SAME * np.abs(total[:, None]) + rounded
            if told.any() and not apart[told].any() and (np.abs(missing) > rounded)[told].any():
                more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                diagnosis = site.diagnosis(
                    NORM_WITHOUT, names=", ".join(map(repr, names[:3])) + more
                )
                yield diagnosis, [Override(site.value, codes, Value(held.value.kind, due[None]))]


def _norms(site: Site, actual: Floats) -> Iterator[Floats]:
    """Yield what a norm may have to be, shape (trials, codes, *shape).

    That is what is known of it, else each root of the reference.
    """
    known = site.rerun.due.get(site.value)
    if known is not None:
        if known.sums is None and known.data.shape == actual.shape:
            yield known.data
        return
    run = site.evidence.run
    for step in (
        s for s in run.stage.reference.steps if s.kind == site.kind and s.outputs[0] is not None
    ):
        data = np.asarray(run.evaluated.reference[step.outputs[0]].data, dtype=np.float64)[0]  # type: ignore[index]
        if data[0].size == 1:
            yield np.broadcast_to(data.reshape(-1, *[1] * (actual.ndim - 1)), actual.shape).copy()


def _left_out(site: Site) -> Iterator[tuple[list[str], Floats]]:
    """Yield the reference's sums of squares of tensors that the plan squares nowhere.

    All of them together, then each one.

    Yields:
        The names of the tensors, and the sum for every trial, shape (trials,).
    """
    evidence = site.evidence
    squared = [step.arguments[0].value for step in evidence.batch.steps if _squares(step)]
    held = {
        evidence.alike(cut.reference)
        for value in squared
        if (cut := evidence.cuts.get(value)) is not None
    }
    steps, found = evidence.run.stage.reference.steps, dict[str, Floats]()
    for square in (
        step
        for step in steps
        if _squares(step) and evidence.alike(step.arguments[0].value) not in held
    ):
        for total in (
            s
            for s in steps
            if s.kind in SUMS_ALONG and s.arguments and s.arguments[0].value in square.outputs
        ):
            data = (
                None
                if total.outputs[0] is None
                else np.asarray(
                    evidence.run.evaluated.reference[total.outputs[0]].data, dtype=np.float64
                )[0]
            )
            if data is not None and data[0].size == 1:
                found[evidence.first.values[square.arguments[0].value].name] = data.reshape(
                    len(data)
                )
    if len(found) > 1:
        yield list(found), np.sum(list(found.values()), axis=0)
    yield from (([name], total) for name, total in found.items())


def _squares(step: Step) -> bool:
    """Return True if a step multiplies a tensor by itself."""
    first = step.inputs[0] if step.inputs else None
    if not isinstance(first, Argument):
        return False
    return has_trait(step.kind, Trait.SQUARES, step.attributes) or (
        step.kind in PRODUCTS and len(step.inputs) == 2 and _same(first, step.inputs[1])
    )


def _same(one: Argument, other: StepOperand) -> bool:
    """Return True if an operand is the same rows of the same value."""
    return (
        isinstance(other, Argument)
        and one.value == other.value
        and np.array_equal(one.rows, other.rows)
    )
