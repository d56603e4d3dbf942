"""The repair of a mask: the part of the reference's mask that belongs to the elements that are masked."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pitcheck.explain import messages
from pitcheck.explain.hypotheses import spell
from pitcheck.explain.rerun import held_at
from pitcheck.explain.site import Candidate, Site, reference_steps
from pitcheck.stages.batch import Argument, Step
from pitcheck.stages.graph import Source
from pitcheck.stages.parts import Box


def mask_of_reference(site: Site) -> Iterator[Candidate]:
    """Read, in the place of an operand that is no floating-point number, the reference's part for the elements of another operand."""
    for place, operand in enumerate(site.step.inputs):
        if not isinstance(operand, Argument) or site.rerun.graph.values[operand.value].kind == "field" or not _read_where_it_runs(site, place):
            continue
        shape = site.rerun.shape(operand.value)
        for step in reference_steps(site):
            theirs = step.inputs[place]
            boxes = _boxes(site, step, place) if isinstance(theirs, Argument) else None
            if not isinstance(theirs, Argument) or boxes is None or shape is None:
                continue
            whole = site.evidence.first.values[theirs.value].shape
            parts = [tuple(((0, 1),) if size == 1 else part for size, part in zip(whole, box[len(box) - len(whole) :], strict=True)) for box in boxes]
            data = site.rerun.boxes(theirs.value, parts) if all(len(box) >= len(whole) for box in boxes) else None
            if data is None or tuple(data.data.shape[3:]) != shape or data.kind != site.rerun.graph.values[operand.value].kind:
                continue
            overrides = site.redone(site.as_given, known={operand.value: held_at(data, site.codes, site.rerun.graph.codes)})
            if overrides is not None:
                facts = {"called": site.evidence.called(operand.value), "box": spell(parts[0]), "right": site.evidence.first.values[theirs.value].name}
                yield site.diagnosis(messages.OTHER_MASK, **facts), overrides


def _read_where_it_runs(site: Site, place: int) -> bool:
    """Return True if every coordinate reads what it has itself of an operand."""
    for node in site.nodes:
        source, codes = node.inputs[place], np.flatnonzero(node.mask)
        if not isinstance(source, Source) or source.members or not np.array_equal(source.at(codes), codes):
            return False
    return True


def _boxes(site: Site, step: Step, place: int) -> list[Box] | None:
    """Return by coordinate the box of a reference tensor that another operand holds, which the reference's step reads there; None if there is no such."""
    evidence = site.evidence
    for other, (mine, theirs) in enumerate(zip(site.step.inputs, step.inputs, strict=True)):
        cut = evidence.cuts.get(mine.value) if isinstance(mine, Argument) and other != place else None
        if cut is None or not isinstance(theirs, Argument) or cut.scale != 1 or cut.group_of is not None or (cut.part_of[site.codes] < 0).any():
            continue
        if evidence.alike(cut.reference) == evidence.alike(theirs.value):
            return [cut.parts[int(part)].box for part in cut.part_of[site.codes]]
    return None
