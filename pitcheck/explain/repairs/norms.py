"""Repairs of norms: tensors that are left out of a sum of squares, or counted in it twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from pitcheck.algebra.value import Value
from pitcheck.claims.real_numbers import Floats
from pitcheck.explain.diagnosis import Kind
from pitcheck.explain.evidence import SAME, Evidence
from pitcheck.explain.families import JOINS, PRODUCTS, ROOTS, SUMS_ALONG
from pitcheck.explain.repairs.missing_collective import of_norm
from pitcheck.explain.rerun.changes import Override, Read, held_at
from pitcheck.explain.rerun.site import Candidate, Site
from pitcheck.graph.graph import Source, sources_of
from pitcheck.graph.grids import Codes
from pitcheck.graph.parts import Part
from pitcheck.ops.registry import has_trait, operator_kind
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

COUNTED_ON_EACH = Kind(
    "PIT108",
    "the norm in {result!r} counts the squares of {names} {times} times: every rank over {over} "
    "has them as a whole, and adds them",
    "add them on one rank over {over} alone, or after the sum over {over}",
    ("over",),
    edits=("- the squares of {names} on all but one rank over {over}",),
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
    """Take a sum of squares, or its root, over what the reference takes it of, each once."""
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
        for of, facts, total, step in (*_left_out(site), *_on_each(site)):
            # A draw in which no token counts gives NaN.
            told = np.isfinite(total) & np.isfinite(missing).all(axis=1)
            apart = np.abs(missing - total[:, None]) > SAME * np.abs(total[:, None]) + rounded
            if told.any() and not apart[told].any() and (np.abs(missing) > rounded)[told].any():
                data = Value(held.value.kind, due[None])
                found = replace(site.diagnosis(of, **facts), step=step or site.step)
                yield found, [Override(site.value, codes, data)]


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


Missing = tuple[Kind, dict[str, object], Floats, Step | None]
"""A mistake, its facts, what a sum of squares lacks by it in every trial, shape (trials,), and the
step that adds what it may not; None if something is left out.
"""


def _left_out(site: Site) -> Iterator[Missing]:
    """Yield the reference's sums of squares of tensors that the plan squares nowhere."""
    evidence = site.evidence
    squared = [step.arguments[0].value for step in evidence.batch.steps if _squares(step)]
    held = {
        evidence.alike(cut.reference)
        for value in squared
        if (cut := evidence.cuts.get(value)) is not None
    }
    sums = _sums_of_squares(evidence)
    found = {
        repr(evidence.first.values[value].name): total
        for value, total in sums.items()
        if evidence.alike(value) not in held
    }
    for names, total in _together_and_each(found):
        yield NORM_WITHOUT, {"names": names}, total, None


def _on_each(site: Site) -> Iterator[Missing]:
    """Yield the squares that all ranks of a group have as a whole, and add up over the group."""
    evidence = site.evidence
    sums = {evidence.alike(v): total for v, total in _sums_of_squares(evidence).items()}
    squared = {s.arguments[0].value: s for s in evidence.batch.steps if _squares(s)}
    for table in _added_over(evidence, site.value):
        over = next((g.name for g in evidence.groupings if _rows(g.table) == _rows(table)), None)
        found, steps, times = dict[str, Floats](), list[Step](), table.shape[1]
        for value, step in squared.items():
            cut = evidence.cuts.get(value)
            if cut is None or cut.scale != 1 or cut.group_of is not None or len(cut.parts) > 1:
                continue
            reference = evidence.alike(cut.reference)
            if reference in sums and not cut.part_of[table].any():
                found[evidence.called(value)] = sums[reference]
                steps.append(step)
        for names, total in _together_and_each(found) if over is not None else ():
            facts = {"names": names, "times": times, "over": over}
            yield COUNTED_ON_EACH, facts, (1 - times) * total, steps[0]


def _added_over(evidence: Evidence, value: int) -> Iterator[Codes]:
    """Yield the groups over which the sums of squares behind a norm are added up."""
    stack, seen = [value], {value}
    while stack:
        for step in evidence.writers.get(stack.pop(), []):
            node = evidence.second.nodes[step.node]
            for source in (s for operand in node.inputs for s in sources_of(operand)):
                small = evidence.array(source.value)[0, 0].size == 1
                if small and source.members and operator_kind(step.kind).collective:
                    yield np.unique(source.at(np.flatnonzero(node.mask)), axis=0)
                if small and source.value not in seen:
                    seen.add(source.value)
                    stack.append(source.value)


def _rows(table: Codes) -> set[tuple[int, ...]]:
    return {tuple(sorted(row)) for row in table.tolist()}


def _together_and_each(found: Mapping[str, Floats]) -> Iterator[tuple[str, Floats]]:
    """Yield the names of tensors with the sum of their squares: of all, then of each one."""
    if len(found) > 1:
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        yield ", ".join([*found][:3]) + more, np.sum(list(found.values()), axis=0)
    yield from found.items()


def _sums_of_squares(evidence: Evidence) -> dict[int, Floats]:
    """Return by tensor the sum of its squares that the reference takes, shape (trials,)."""
    found, sums = dict[int, Floats](), dict[int, list[Step]]()
    steps = evidence.run.stage.reference.steps
    for step in steps:
        if step.kind in SUMS_ALONG and step.arguments:
            sums.setdefault(step.arguments[0].value, []).append(step)
    for square in filter(_squares, steps):
        for total in (s for o in square.outputs if o is not None for s in sums.get(o, [])):
            value = total.outputs[0]
            if value is None or value not in evidence.run.evaluated.reference:
                continue
            held = evidence.run.evaluated.reference[value].data
            data = np.asarray(held, dtype=np.float64)[0]
            if data[0].size == 1:
                found[square.arguments[0].value] = data.reshape(len(data))
    return found


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
