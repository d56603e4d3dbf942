"""The repair of a mask: the reference's part for the elements that are masked."""

from __future__ import annotations

from collections.abc import Iterator

from pitcheck.algebra.value import Value
from pitcheck.explain.diagnosis import Kind
from pitcheck.explain.messages import spell
from pitcheck.explain.rerun.changes import Override, held_at
from pitcheck.explain.rerun.site import Candidate, Site, reads_itself, reference_steps
from pitcheck.graph.cuts import Cut
from pitcheck.graph.parts import Box
from pitcheck.stage.batch import Argument, Step

OTHER_MASK = Kind(
    "PIT102",
    "operator {operator!r} ({kind}) reads {called}, which is not {box} of {right!r}, what the "
    "reference reads for these elements",
    "read {box} of {right!r} there",
    edits=(
        "- {operator!r} ({kind}) reads {called}",
        "+ {operator!r} ({kind}) reads {box} of {right!r}",
    ),
)


def mask_of_reference(site: Site) -> Iterator[Candidate]:
    """Read the reference's mask for the elements of another operand.

    Masks are operands that are no floating-point numbers. They are changed for all operators that
    read them, then for this one alone.
    """
    for place, operand in enumerate(site.step.inputs):
        if (
            not isinstance(operand, Argument)
            or site.rerun.graph.values[operand.value].kind == "field"
            or not reads_itself(site, place)
        ):
            continue
        for step in reference_steps(site):
            for reference, box, data in _parts(site, step, place, operand.value):
                facts = {
                    "called": site.evidence.called(operand.value),
                    "box": spell(box),
                    "right": site.evidence.first.values[reference].name,
                }
                diagnosis, every = (
                    site.diagnosis(OTHER_MASK, **facts),
                    [Override(operand.value, site.codes, data)],
                )
                if not site.changes(every):
                    continue
                yield diagnosis, every
                overrides = site.redone(
                    site.as_given,
                    known={operand.value: held_at(data, site.codes, site.rerun.graph.codes)},
                )
                if overrides is not None:
                    yield diagnosis, overrides


def _parts(site: Site, step: Step, place: int, value: int) -> Iterator[tuple[int, Box, Value]]:
    """Yield the reference tensor at an operand's place, cut for the elements of each other operand.

    Yields:
        The tensor, its part at the first coordinate, and the parts at all coordinates.
    """
    evidence, theirs = site.evidence, step.inputs[place]
    if not isinstance(theirs, Argument):
        return
    whole = evidence.first.values[theirs.value].shape
    yield from _of_rows_and_columns(site, step, place, value)
    for other in range(len(step.inputs)):
        cut = _cut(site, step, other) if other != place else None
        if cut is None or not _broadcasts(whole, evidence.first.values[cut.reference].shape):
            continue
        boxes = [_trailing(whole, cut.parts[int(part)].box) for part in cut.part_of[site.codes]]
        data = site.rerun.boxes(theirs.value, boxes)
        if data is not None and tuple(data.data.shape[3:]) == site.rerun.shape(value):
            yield theirs.value, boxes[0], data


def _of_rows_and_columns(
    site: Site, step: Step, place: int, value: int
) -> Iterator[tuple[int, Box, Value]]:
    """Yield the part of a mask whose rows are those of the first operand, and columns the second's.

    Attention has masks of queries and keys, of the shape of no operand.
    """
    theirs = step.inputs[place]
    cuts = [_cut(site, step, other) for other in (0, 1)] if place > 1 else []
    if not isinstance(theirs, Argument) or None in cuts or not cuts:
        return
    whole = site.evidence.first.values[theirs.value].shape
    rows, columns = (cut for cut in cuts if cut is not None)
    shapes = [site.evidence.first.values[cut.reference].shape for cut in (rows, columns)]
    if [*whole[-2:]] != [shape[-2] for shape in shapes if len(shape) > 1]:
        return
    before: Box = tuple(((0, size),) for size in whole[:-2])
    boxes: list[Box] = [
        (*before, *(cut.parts[int(cut.part_of[code])].box[-2] for cut in (rows, columns)))
        for code in site.codes
    ]
    data = site.rerun.boxes(theirs.value, boxes)
    if data is not None and tuple(data.data.shape[3:]) == site.rerun.shape(value):
        yield theirs.value, boxes[0], data


def _cut(site: Site, step: Step, place: int) -> Cut | None:
    """Return the unscaled parts that a site reads of what the reference's step reads; else None."""
    mine, operand = site.step.inputs[place], step.inputs[place]
    if not isinstance(mine, Argument) or not isinstance(operand, Argument):
        return None
    cut = site.evidence.cuts.get(mine.value)
    if (
        cut is None
        or cut.scale != 1
        or cut.group_of is not None
        or (cut.part_of[site.codes] < 0).any()
        or site.evidence.alike(cut.reference) != site.evidence.alike(operand.value)
    ):
        return None
    return cut


def _broadcasts(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    return len(shape) <= len(whole) and all(
        size in (1, other) for size, other in zip(reversed(shape), reversed(whole), strict=False)
    )


def _trailing(whole: tuple[int, ...], box: Box) -> Box:
    """Return the part of a tensor of shape ``whole`` that is broadcast to a box."""
    return tuple(
        ((0, 1),) if size == 1 else part
        for size, part in zip(whole, box[len(box) - len(whole) :], strict=True)
    )
