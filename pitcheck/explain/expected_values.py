"""The values that every tensor of the parallel plan should hold.

For inputs and outputs that is the specification. In between it is what the plan says of its
tensors, or what can be told from where shards of inputs and outputs lie. Those are hints: they
decide no verdict, only which operator is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pitcheck.claims.real_numbers import Floats
from pitcheck.errors import PitcheckError
from pitcheck.explain.evidence import SAME, Evidence, Grouping
from pitcheck.explain.inferred_lineage import summed_in_rounds, summed_over
from pitcheck.explain.rerun.changes import Due
from pitcheck.graph.cuts import FREE, Cut, resolve
from pitcheck.graph.graph import sources_of
from pitcheck.graph.grids import Codes
from pitcheck.stage.batch import Step
from pitcheck.stage.drawn_inputs import take_box

Mask = NDArray[np.bool_]
MOST_HOLDERS = 3
"""Tensors that are named as holding a part."""


@dataclass(frozen=True)
class Root:
    """An operator that reads what it should and computes something else.

    Its output ``value`` is wrong at ``codes``, where it should hold ``due`` (None if unknown).
    """

    step: Step
    value: int
    codes: Codes
    due: Cut | None


class ExpectedValues:
    """By parallel value the numbers that it should hold, as far as they are known.

    ``hints``: cuts of values that are neither given nor compared. ``hinted``: True if these are the
    plan's own words, and hold as far as can be seen.
    """

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.hints: Mapping[int, Cut] = {}
        self.hinted = False
        self._outputs = {c.target.cut.value: c.target for c in evidence.run.comparisons}
        self._sums: dict[int, Grouping | None] = {}

    def is_output(self, value: int) -> bool:
        """Return True if a value is an output that is compared."""
        return value in self._outputs

    def due(self, value: int) -> Cut | None:
        """Return the cut that a value should have: specified, else hinted; None if unknown."""
        target = self._outputs.get(value)
        if target is not None:
            where = target.cut.lattice.mask(target.codes)
            return replace(target.cut, grid=np.where(where, target.cut.grid, -1))
        return self.evidence.specification.initial.get(value) or self.hints.get(value)

    def sums(self, value: int) -> Codes | None:
        """Return by coordinate the number of the sum that a value holds an addend of.

        The shape is (codes,), -1 where there is none. None if the value holds no addends.
        """
        due = self.due(value)
        if due is not None:
            return due.group_of
        grouping = self.grouping(value)
        if grouping is None:
            return None
        group_of: Codes = np.full(self.evidence.second.codes, -1, dtype=np.int64)
        group_of[grouping.table] = np.arange(len(grouping.table), dtype=np.int64)[:, None]
        return group_of

    def grouping(self, value: int) -> Grouping | None:
        """Return the groups over which a value adds up to parts of one reference value."""
        if value not in self._sums:
            self._sums[value] = summed_over(self.evidence, value) or summed_in_rounds(
                self.evidence, value
            )
        return self._sums[value]

    def compared(self, value: int, codes: Codes) -> tuple[Floats, Floats] | None:
        """Return the numbers that a value holds and should hold at coordinates.

        Args:
            codes: the coordinates, shape (codes,); those of which nothing is known are left out.

        Returns:
            Two arrays of shape (trials, codes, *shape), addends of a sum added up; None if it is
            unknown what the value should hold.
        """
        due = self.due(value)
        if (
            due is None
            or due.reference not in self.evidence.run.evaluated.reference
            or value not in self.evidence.run.evaluated.parallel
        ):
            return None
        codes = codes[due.part_of[codes] >= 0]
        boxes = self._boxes(due, codes)
        if boxes is None or not len(codes):
            return None
        actual = self._held(value, due, codes)
        return (actual, boxes) if actual is not None and actual.shape == boxes.shape else None

    def watched(self, value: int) -> Due | None:
        """Return the numbers that a value should hold, and where; None if that is unknown.

        A factor that was only seen counts as unknown: it may be the mistake.
        """
        due = self.due(value)
        if (
            due is None
            or (due.scale != 1 and not self.hinted and value not in self._outputs)
            or due.reference not in self.evidence.run.evaluated.reference
            or value not in self.evidence.run.evaluated.parallel
        ):
            return None
        codes = np.flatnonzero(
            (self.evidence.batch.rows[value] >= 0) & (due.part_of >= 0) & ~self.unseen(value, due)
        )
        boxes = self._boxes(due, codes) if len(codes) else None
        return (
            None
            if boxes is None
            else Due(codes, boxes, None if due.group_of is None else due.group_of[codes], due)
        )

    def holders(self, root: Root) -> list[str]:
        """Return the names of other tensors that hold, where a root reads, what it should hold."""
        if root.due is None:
            return []
        places = [read[:1] for _, read in self.reads(root.step, root.codes[:1]) if read.ndim == 1]
        part = root.due.parts[int(root.due.part_of[root.codes[0]])]
        found = []
        for value, cut in stated(self.evidence, range(len(self.evidence.second.values))).items():
            alike = (
                cut.reference == root.due.reference
                and cut.scale == root.due.scale
                and value != root.value
            )
            if alike and any(
                cut.part_of[read[0]] >= 0 and cut.parts[int(cut.part_of[read[0]])] == part
                for read in places
            ):
                found.append(self.evidence.name(value))
        return found[:MOST_HOLDERS]

    def reads(self, step: Step, codes: Codes) -> list[tuple[int, Codes]]:
        """Return every operand of a step at coordinates: its value, and where it is read."""
        return [
            (s.value, s.at(codes))
            for operand in self.evidence.second.nodes[step.node].inputs
            for s in sources_of(operand)
        ]

    def _held(self, value: int, due: Cut, codes: Codes) -> Floats | None:
        if due.group_of is None:
            return self.evidence.at(value, codes)
        present = np.flatnonzero((self.evidence.batch.rows[value] >= 0) & (due.part_of >= 0))
        terms = self.evidence.at(value, present)
        if terms is None:
            return None
        groups, which = np.unique(due.group_of[present], return_inverse=True)
        sums = np.zeros((len(groups), len(terms), *terms.shape[2:]))
        np.add.at(sums, which.reshape(-1), np.moveaxis(terms, 1, 0))
        place = np.searchsorted(groups, due.group_of[codes])
        held: Floats = np.moveaxis(sums[place], 0, 1)
        return held

    def unseen(self, value: int, due: Cut) -> Mask:
        """Return a mask of the coordinates whose sum was not computed in full, shape (codes,).

        Addends that no output needs are not computed, so the others cannot be judged.
        """
        result = np.zeros(len(due.part_of), dtype=np.bool_)
        if due.group_of is not None:
            present = np.flatnonzero((self.evidence.batch.rows[value] >= 0) & (due.part_of >= 0))
            groups, counts = np.unique(due.group_of[present], return_counts=True)
            short = groups[counts < max(part.terms for part in due.parts)]
            result[present] = np.isin(due.group_of[present], short)
        return result

    def _boxes(self, due: Cut, codes: Codes) -> Floats | None:
        run = self.evidence.run
        whole = run.evaluated.reference[due.reference]
        numbers, which = np.unique(due.part_of[codes], return_inverse=True)
        parts = []
        for number in numbers:
            box = due.parts[int(number)].box
            if any(start == FREE for intervals in box for start, _ in intervals):
                return None
            try:
                value = take_box(
                    run.evaluated.algebra,
                    whole,
                    run.symbolic.box(due, box, run.shaped.sizes),
                    "free",
                )
            except PitcheckError:  # a part that ends where the reduced shapes have no boundary
                return None
            parts.append(np.asarray(value.data, dtype=np.float64)[0][:, 0])
        if len({p.shape for p in parts}) != 1:
            return None
        trials = len(run.evaluated.algebra.trials)
        stacked = np.stack(
            [np.broadcast_to(p, (trials, *p.shape[1:])) for p in parts], axis=1
        ) * float(due.scale)
        chosen: Floats = stacked[:, which.reshape(-1)]
        return chosen


def far(actual: Floats, wanted: Floats) -> Mask:
    """Return a mask of the rows that differ by more than rounding, shape (rows,).

    Args:
        actual: the numbers held, shape (trials, rows, *shape).
        wanted: the numbers that should be held, of the same shape.
    """
    axes = tuple(i for i in range(actual.ndim) if i != 1)
    largest = float(np.abs(wanted).max(initial=0.0))
    if not np.isfinite(largest):
        largest = float(np.abs(wanted).max(initial=0.0, where=np.isfinite(wanted)))
    with np.errstate(invalid="ignore"):
        differences = np.abs(actual - wanted)
        same = differences <= SAME * max(largest, 1e-300)
        # Infinities of one sign have no difference, nor has what is no number.
        if np.isnan(differences).any():
            same |= (actual == wanted) | (np.isnan(actual) & np.isnan(wanted))
    result: Mask = np.asarray(~same.all(axis=axes))
    return result


def same_numbers(one: Floats, other: Floats) -> bool:
    """Return True if two arrays have one shape and the same numbers, NaN being equal to NaN."""
    if one.shape != other.shape:
        return False
    unlike = one != other
    place = int(unlike.argmax()) if unlike.size else 0
    if not unlike.size or not unlike.flat[place]:
        return True
    if not (np.isnan(one.flat[place]) and np.isnan(other.flat[place])):
        return False
    return bool((np.isnan(one) & np.isnan(other))[unlike].all())


def stated(evidence: Evidence, values: Iterable[int]) -> dict[int, Cut]:
    """Return by value the cut that the plan states, if that fits the reference."""
    found: dict[int, Cut] = {}
    first, second = evidence.first, evidence.second
    for value in values:
        info = second.values[value]
        lineage = info.tensor.lineage
        reference = first.number.get(lineage.reference) if lineage is not None else None
        if lineage is None or reference is None or first.values[reference].kind != info.kind:
            continue
        shape = first.values[reference].shape
        try:
            cut = resolve(lineage, value, second, reference, shape, info.name)
            found[value] = cut if evidence.run.blocks is None else evidence.run.blocks.of(cut)
        except PitcheckError:  # a hint that does not fit is none
            continue
    return found
