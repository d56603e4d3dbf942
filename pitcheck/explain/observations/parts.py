"""Observations of parts: a value holds another part of a tensor than it should."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pitcheck.claims.conjecture import VIEWS
from pitcheck.claims.real_numbers import varies
from pitcheck.claims.reference_index import lookup
from pitcheck.explain.diagnosis import Diagnosis, Kind
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.families import ACCUMULATIONS, CUTS, JOINS, MOVES, REDUCTIONS
from pitcheck.explain.messages import spell
from pitcheck.explain.observations.observation import AtOperator, AtOutput, OnTheWay
from pitcheck.explain.observations.operators import reference_runs
from pitcheck.graph.cuts import Box, Cut, uncovered
from pitcheck.graph.grids import Codes
from pitcheck.ops.registry import operator_kind

COPY_OF_OTHER = Kind(
    "PIT103",
    "operator {operator!r} makes {result!r} a copy of {reads}, where it should be {box} of "
    "{right!r}",
    "read {holders}",
    edits=(
        "- {operator!r} reads {reads}",
        "+ {operator!r} reads {holders}",
    ),
)
PART_OF_OTHER = Kind(
    "PIT103",
    "operator {operator!r}, which reads {reads}, makes {result!r} a part of {held!r} where it "
    "should be {box} of {right!r}",
    "read {holders}",
    edits=(
        "- {operator!r} reads {reads}",
        "+ {operator!r} reads {holders}",
    ),
)
HOLDS_OTHER_PART = Kind(
    "PIT107",
    "{result!r} holds {held} of {right!r} where it should hold {box}",
    "take {box} there",
    edits=(
        "- {result!r}: {held} of {right!r}",
        "+ {result!r}: {box} of {right!r}",
    ),
)
RESULT_HOLDS_OTHER_PART = Kind(
    "PIT107",
    "the result {result!r} of operator {operator!r} holds {held} of {right!r} where it should "
    "hold {box}; it reads {parts}",
    "take {box} there",
    edits=HOLDS_OTHER_PART.edits,
)
PART_DOUBLED = Kind(
    "PIT107",
    "{box} of {right!r} is {used} nowhere, while {doubled}",
    "let one of them take {box}: its slice, weight shard or micro-batch is another's",
    edits=(
        "- {right!r}: {doubled}",
        "+ {right!r}: {box} in one of these places",
    ),
)
BATCH_DOUBLED = Kind("PIT108", PART_DOUBLED.said, PART_DOUBLED.repair, edits=PART_DOUBLED.edits)
JOINED_TWICE = Kind(
    "PIT107",
    "operator {operator!r} joins {boxes} of {right!r} on rank {rank}: one part more than once",
    "gather the parts of all ranks, and join each of them once",
    edits=(
        "- {operator!r} joins {boxes} of {right!r} on rank {rank}",
        "+ {operator!r} joins the part of each rank once",
    ),
)
WHOLE_FOR_PARTS = Kind(
    "PIT103",
    "operator {operator!r} ({kind}) runs on {called} as one tensor, where the reference runs it on "
    "each of {count} parts of {right!r}: {parts}",
    "cut {called} there, and do with each part what the reference does with it",
    edits=(
        "- {operator!r} ({kind}) of {called}",
        "+ ({kind}) of each of {parts} of {called}",
    ),
)
PARTS_APART = Kind(
    "PIT107",
    "operator {operator!r} reads parts that do not belong together: {parts}",
    "let all of them hold the parts that belong together: one's slice or shard is another's",
    edits=(
        "- {operator!r} reads {parts}",
        "+ {operator!r} reads parts that belong together",
    ),
)


# --- at the first wrong operator


def other_tensor(view: AtOperator) -> Diagnosis | None:
    """See that a result holds another part of the right tensor, or a part of another tensor."""
    evidence, due, pair = view.evidence, view.due, view.pair
    if due is None or pair is None:
        return None
    found = evidence.cuts.get(view.value)
    if found is not None and found.scale == 1:
        held: int | None = found.reference
    else:
        held, found = (lookup(pair[0], evidence.index) if varies(pair[0]) else None), None
    right = evidence.first.values[due.reference].name
    holders = view.expected.holders(view.root)
    facts: dict[str, object] = {
        "operator": evidence.operator(view.step),
        "result": evidence.name(view.value),
        "reads": " and ".join(evidence.called(v) for v in evidence.inputs(view.step)[:2]),
        "right": right,
        "box": _box_at(due, view.codes[0]),
        "holders": " or ".join(map(repr, holders)) if holders else f"what holds {right!r}",
    }
    if held is None:
        copies = view.step.kind in VIEWS
        return Diagnosis(COPY_OF_OTHER, facts) if copies else None
    if evidence.alike(held) == evidence.alike(due.reference):
        said = "other elements" if found is None else _box_at(found, view.codes[0])
        more = {"held": said, "parts": _parts_read(view)}
        return Diagnosis(RESULT_HOLDS_OTHER_PART, {**facts, **more})
    return Diagnosis(PART_OF_OTHER, {**facts, "held": evidence.first.values[held].name})


def joined_twice(view: AtOperator) -> Diagnosis | None:
    """See that one part stands several times in a join, as other ranks' were never fetched."""
    evidence, code = view.evidence, view.codes[:1]
    if view.step.kind not in JOINS:
        return None
    parts = []
    for value, read in view.expected.reads(view.step, code):
        cut = evidence.cuts.get(value) or view.expected.due(value)
        if cut is None or read.ndim != 1 or cut.part_of[read[0]] < 0:
            return None
        parts.append((evidence.alike(cut.reference), _box_at(cut, read[0])))
    twice = [part for part in parts if parts.count(part) > 1]
    if not twice or len({reference for reference, _ in parts}) > 1:
        return None
    facts = {
        "operator": evidence.operator(view.step),
        "boxes": " and ".join(box for _, box in parts),
        "right": evidence.first.values[twice[0][0]].name,
        "rank": evidence.ranks_of(code)[0],
    }
    return Diagnosis(JOINED_TWICE, facts)


def unrelated_parts(view: AtOperator) -> Diagnosis | None:
    """See that the reference runs the same operator on the same tensors, on other parts."""
    if view.due is None or view.pair is None:
        return None
    if not reference_runs(view.evidence, view.step, view.expected.held_reference, view.due):
        return None
    facts = {"operator": view.evidence.operator(view.step), "parts": _parts_read(view)}
    return Diagnosis(PARTS_APART, facts)


def whole_for_parts(view: AtOperator) -> Diagnosis | None:
    """See that the reference runs the same operator on parts of what is read as one tensor."""
    evidence = view.evidence
    for value in evidence.inputs(view.step):
        held = evidence.holds(value)
        cuts = [] if held is None else _parts_of_reference(evidence, held, view.step.kind)
        if held is not None and len(cuts) > 1:
            facts = {
                "operator": evidence.operator(view.step),
                "kind": view.step.kind,
                "called": evidence.called(value),
                "count": len(cuts),
                "right": evidence.first.values[held].name,
                "parts": ", ".join(repr(evidence.first.values[part].name) for part in cuts),
            }
            return Diagnosis(WHOLE_FOR_PARTS, facts)
    return None


def _parts_of_reference(evidence: Evidence, reference: int, kind: str) -> list[int]:
    """Return the parts of a tensor that the reference gives to operators of a kind.

    Empty if it gives the whole tensor to one of them, too.
    """
    whole, steps = evidence.alike(reference), evidence.run.stage.reference.steps
    read = {a.value for step in steps if step.kind == kind for a in step.arguments}
    if whole in {evidence.alike(value) for value in read}:
        return []
    return [
        output
        for step in steps
        if step.kind in CUTS and any(evidence.alike(a.value) == whole for a in step.arguments)
        for output in step.outputs
        if output in read
    ]


def _parts_read(view: AtOperator) -> str:
    """Return as text the parts that an operator reads on the first rank where it is wrong."""
    evidence, code = view.evidence, view.codes[:1]
    said = []
    for value, read in view.expected.reads(view.step, code):
        cut = evidence.cuts.get(value) or view.expected.due(value)
        known = cut is not None and read.ndim == 1 and cut.part_of[read[0]] >= 0
        if cut is None or not known or value in evidence.unused(view.step):
            said.append(evidence.called(value))
        else:
            name = evidence.first.values[cut.reference].name
            said.append(f"{_box_at(cut, read[0])} of {name!r} as {evidence.called(value)}")
    return f"on rank {evidence.ranks_of(code)[0]} {' and '.join(dict.fromkeys(said))}"


def _box_at(cut: Cut, code: int | np.int64) -> str:
    return spell(cut.parts[int(cut.part_of[code])].box)


# --- at an output


def other_part(view: AtOutput) -> Diagnosis | None:
    """See that an output holds other parts of its reference tensor than it should."""
    return holds_other_part(view.evidence, view.value, view.comparison.target.cut)


def holds_other_part(evidence: Evidence, value: int, cut: Cut) -> Diagnosis | None:
    """Return the diagnosis of a value that holds other parts than those of the cut it should have.

    None if it holds no parts of that reference tensor, or the right ones.
    """
    found = evidence.cuts.get(value)
    if found is None or found.reference != cut.reference or found.scale != 1:
        return None
    wrong = [
        int(code)
        for code in evidence.codes(value)
        if cut.part_of[code] >= 0 and _box_at(found, code) != _box_at(cut, code)
    ]
    if not wrong:
        return None
    facts = {
        "result": evidence.name(value),
        "held": _box_at(found, wrong[0]),
        "right": evidence.first.values[cut.reference].name,
        "box": _box_at(cut, wrong[0]),
    }
    return Diagnosis(HOLDS_OTHER_PART, facts, np.array(wrong, dtype=np.int64))


# --- on the way to an output


def doubled_part(view: OnTheWay) -> Diagnosis | None:
    """See that a part of a tensor is held nowhere although every coordinate holds some part.

    Some coordinate computes the part of another one. Blocks beside those of a diagonal may be
    computed in another form, or not be needed, unless the others are joined.
    """
    evidence, value = view.evidence, view.value
    cut = evidence.cuts.get(value)
    if cut is None or cut.scale != 1:
        return None
    codes = evidence.codes(value)
    shape = evidence.first.values[cut.reference].shape
    box = uncovered(cut, shape, cut.lattice.mask(codes))
    if box is None or _held_by_others(evidence, value, box):
        return None
    if _only_beside(cut, codes, shape) and not _joined(evidence, value):
        return None
    if _on_some_ranks(evidence, cut, codes):
        return None
    doubled = _doubled(cut, codes)
    batches = evidence.microbatches_of(value, doubled)
    parts = list(dict.fromkeys(cut.part_of[doubled].tolist()))
    said = " and ".join(
        f"{_places(evidence, value, doubled[cut.part_of[doubled] == part])} "
        f"{spell(cut.parts[part].box)}"
        for part in parts[:2]
    )
    facts = {
        "box": spell(box),
        "right": evidence.first.values[cut.reference].name,
        "used": "used" if _computed_elsewhere(evidence, value) else "computed",
        "doubled": f"{said}{' and others more' if len(parts) > 2 else ''}",
    }
    kind = BATCH_DOUBLED if len(batches) > 1 else PART_DOUBLED
    return Diagnosis(kind, facts, doubled)


def _on_some_ranks(evidence: Evidence, cut: Cut, codes: Codes) -> bool:
    """Return True if some ranks lack a value, and those that have it hold different parts.

    Then nothing is doubled: the others may hold their parts in another form, or not need them.
    """
    ranks = evidence.second.codes // evidence.second.coordinates.microbatches
    parts = np.unique(cut.part_of[codes])
    return len(evidence.ranks_of(codes)) < ranks and len(parts) == len(codes)


def _only_beside(cut: Cut, codes: Codes, shape: tuple[int, ...]) -> bool:
    """Return True if no part is held twice, and all places of each dimension are in some part."""
    numbers = np.unique(cut.part_of[codes])
    boxes = [cut.parts[int(number)].box for number in numbers]
    return len(numbers) == len(codes) and all(
        _spans([interval for box in boxes for interval in box[dim]], size)
        for dim, size in enumerate(shape)
    )


def _spans(intervals: Sequence[tuple[int, int]], size: int) -> bool:
    """Return True if intervals leave no place below ``size`` open."""
    end = 0
    for start, stop in sorted(intervals):
        if start > end:
            return False
        end = max(end, stop)
    return end >= size


def _joined(evidence: Evidence, value: int) -> bool:
    """Return True if what ranks hold of a value is joined, or is compared."""
    steps = evidence.read_behind([value], lambda step: step.kind in MOVES)
    return any(step.kind in JOINS or _joins_ranks(step.kind) for step in steps) or any(
        c.target.cut.value == value for c in evidence.run.comparisons
    )


def _joins_ranks(kind: str) -> bool:
    """Return True for a collective that puts what ranks hold side by side."""
    return operator_kind(kind).collective and kind not in REDUCTIONS | ACCUMULATIONS


def _held_by_others(evidence: Evidence, value: int, box: Box) -> bool:
    """Return True if values written by operators of the same kind hold a box of the same tensor.

    A program that unrolls its micro-batches runs one such operator for each.
    """
    cut, kinds = evidence.cuts[value], {step.kind for step in evidence.writers.get(value, [])}
    found: list[Box] = []
    for other, held in evidence.cuts.items():
        if other == value or held.scale != 1:
            continue
        if evidence.alike(held.reference) != evidence.alike(cut.reference):
            continue
        if kinds & {step.kind for step in evidence.writers.get(other, [])}:
            parts = np.unique(held.part_of[evidence.codes(other)])
            found += [held.parts[int(part)].box for part in parts]
    return _covered(box, found)


def _covered(box: Box, boxes: Sequence[Box]) -> bool:
    """Return True if boxes together cover a box of one interval per dimension."""
    edges = [
        sorted({a, b} | {e for other in boxes for i in other[dim] for e in i if a < e < b})
        for dim, ((a, b),) in enumerate(box)
    ]
    grid = np.zeros([len(each) - 1 for each in edges], dtype=np.bool_)
    for other in boxes:
        inside = (
            [any(a <= edge < b for a, b in intervals) for edge in each[:-1]]
            for each, intervals in zip(edges, other, strict=True)
        )
        grid[np.ix_(*inside)] = True
    return bool(grid.all())


def _doubled(cut: Cut, codes: Codes) -> Codes:
    """Return the coordinates that hold the parts held most often, grouped by part.

    All coordinates if every part is held as often.
    """
    held: dict[int, list[int]] = {}
    for code in codes.tolist():
        held.setdefault(int(cut.part_of[code]), []).append(code)
    most = max(len(each) for each in held.values())
    return np.array([c for each in held.values() if len(each) == most for c in each])


def _places(evidence: Evidence, value: int, codes: Codes) -> str:
    """Return ranks and micro-batches as text, followed by "holds" or "hold"."""
    batches, ranks = evidence.microbatches_of(value, codes), evidence.ranks_of(codes)
    said = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
    if batches:
        plural = "es" if len(batches) > 1 else ""
        said += f", micro-batch{plural} {', '.join(map(str, batches))}"
    return f"{said} hold" if len(ranks) * max(len(batches), 1) > 1 else f"{said} holds"


def _computed_elsewhere(evidence: Evidence, value: int) -> bool:
    """Return True if the value is computed at coordinates where no output uses it."""
    written = np.zeros(evidence.second.codes, dtype=np.bool_)
    for writer in evidence.second.values[value].writers:
        written |= evidence.second.nodes[writer].mask
    return bool((written & (evidence.batch.rows[value] < 0)).any())
