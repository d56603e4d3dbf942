"""Where values begin to be wrong: what every parallel value should hold, and the first operators
whose inputs hold that and whose results do not.

What should be held is the specification of inputs and outputs, and in between what the plan says
itself. That is a hint: it decides no verdict, only which operator is looked at, and where a plan's
hints fail at many operators they are left aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pitcheck.claims.conjecture import VIEWS, Floats, of_numbers, real_differences
from pitcheck.errors import BudgetError, PitcheckError
from pitcheck.explain.evidence import MOVES, SAME, Evidence, Grouping
from pitcheck.explain.inferred_lineage import inferred, summed_in_rounds, summed_over
from pitcheck.graph.cuts import FREE, Cut, resolve
from pitcheck.graph.graph import sources_of
from pitcheck.graph.grids import Codes
from pitcheck.stage.batch import Step
from pitcheck.stage.drawn_inputs import take_box

Mask = NDArray[np.bool_]
FEW = 3
MOST_DEEP = 600
"""Calls within one another, of the 1000 that Python allows, in which it is asked whether something
is wrong.
"""
OF_MOVED, OF_ADDED = 8, 6
"""Calls that each operator costs which only moves, or adds up, what is asked about."""
MOST_HOLDERS = 3
SHARE = 0.1
"""Hints are followed where they fail at no more than ``FEW`` operators, or at this share
of them.
"""


@dataclass(frozen=True)
class Root:
    """An operator that reads what it should and computes something else: its output ``value`` is
    wrong at ``codes``, where ``due`` (if known) should be.
    """

    step: Step
    value: int
    codes: Codes
    due: Cut | None


class Standing:
    """For every parallel value the codes at which it does not hold what it should. ``unscaled``: as
    of ``inferred``.
    """

    def __init__(self, evidence: Evidence, unscaled: bool = False) -> None:
        self.evidence = evidence
        self._wrong: dict[int, Mask] = {}
        self._depth = 0
        self._from_wrong: dict[int, Mask] = {}
        self._outputs = {c.target.cut.value: c.target for c in evidence.run.comparisons}
        self._sums: dict[int, Grouping | None] = {}
        self._terms: dict[int, tuple[frozenset[int], frozenset[int]]] = {}
        self._numbers = of_numbers(evidence.batch)
        """Others come of discrete data alone. What they should be, or other discrete values, is
        said nowhere; what reads them shows whether they are.
        """
        self._hints: dict[int, Cut] = {}
        self.hinted = self._follow(_hints(evidence, evidence.writers))
        """Whether the plan says, and rightly as far as can be seen, what its tensors in between
        hold.
        """
        if not self.hinted and not self._follow(inferred(evidence, unscaled)):
            self._follow({})

    def _follow(self, hints: dict[int, Cut]) -> bool:
        """Take hints for what is due; False where they fail at many operators that read what they
        should.
        """
        self._hints = hints
        self._wrong, self._from_wrong, self._depth = {}, {}, 0
        return bool(hints) and self._trusted()

    def due(self, value: int) -> Cut | None:
        """What a value should hold, as far as it is said: by the specification, else by the plan's
        own hint.
        """
        target = self._outputs.get(value)
        if target is not None:
            where = target.cut.lattice.mask(target.codes)
            return replace(target.cut, grid=np.where(where, target.cut.grid, -1))
        return self.evidence.specification.initial.get(value) or self._hints.get(value)

    def sums(self, value: int) -> Codes | None:
        """Of a value whose rows are terms of sums: which sum every code belongs to."""
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
        """The group over which a value's rows add up to parts of one reference value."""
        if value not in self._sums:
            self._sums[value] = summed_over(self.evidence, value) or summed_in_rounds(
                self.evidence, value
            )
        return self._sums[value]

    def wrong(self, value: int) -> Mask:
        """The codes at which a value is there and does not hold what it should, shape (codes,)."""
        if value not in self._wrong:
            self._enter(OF_MOVED)
            # Ranks may hand a tensor round: what is asked about itself is not wrong by that.
            self._wrong[value] = np.zeros(self.evidence.second.codes, dtype=np.bool_)
            for source in reversed(self._moved_from(value)):
                self.wrong(source)
            self._wrong[value] = self._find_wrong(value)
            self._depth -= OF_MOVED
        return self._wrong[value]

    def _moved_from(self, value: int) -> list[int]:
        """Return the values, the nearest first, that this one only moves and that are not judged
        yet: judged in order, long chains need no deep calls.
        """
        found = {value: None}
        stack = [value]
        while stack:
            held = stack.pop(0)
            steps = self.evidence.writers.get(held, []) if self.due(held) is None else []
            if all(step.kind in MOVES for step in steps):
                new = [
                    v
                    for step in steps
                    for v in self.evidence.inputs(step)
                    if v not in found and v not in self._wrong
                ]
                found.update(dict.fromkeys(new))
                stack.extend(dict.fromkeys(new))
        return list(found)[1:]

    def _enter(self, calls: int) -> None:
        """Count calls within one another. Raises BudgetError before they are too many."""
        self._depth += calls
        if self._depth > MOST_DEEP:
            raise BudgetError(
                f"more than {MOST_DEEP // OF_MOVED} operators one behind the other only move or "
                f"add up what is asked about"
            )

    def roots(self, outputs: Iterable[int]) -> list[Root]:
        """The operators at which the wrong ``outputs`` begin to be wrong, in the order of the
        program.
        """
        chain = self._chain(outputs)
        return [
            root
            for step in self.evidence.batch.steps
            for value in step.outputs
            if value in chain and (root := self._root(step, value)) is not None
        ]

    def expected(self, value: int, codes: Codes) -> tuple[Floats, Floats] | None:
        """(what a value holds at codes, what it should hold there), shape (trials, codes, *shape);
        terms of a sum are added up. None where that is unknown.
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

    def compares(self, step: Step, codes: Codes) -> bool:
        """Whether everything that a step reads at codes was held against what it should be. Of what
        was not, nothing says that it is wrong, or right.
        """
        return all(
            self.evidence.is_constant(value)
            or self.evidence.is_true(value)
            or self._compared(value, read)
            for value, read in self.reads(step, codes)
        )

    def _compared(self, value: int, read: Codes) -> bool:
        due, codes = self.due(value), np.unique(read)
        known = (
            due is not None
            and bool((due.part_of[codes] >= 0).all())
            and not self._unseen(value, due)[codes].any()
        )
        return known and self.expected(value, codes) is not None

    def watched(self, value: int) -> tuple[Codes, Floats, Codes | None] | None:
        """(codes, what a value should hold there, which sum each code is a term of); None where it
        is not said what it should hold.

        A factor that was only seen says nothing: it may be the mistake.
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
            (self.evidence.batch.rows[value] >= 0) & (due.part_of >= 0) & ~self._unseen(value, due)
        )
        boxes = self._boxes(due, codes) if len(codes) else None
        return (
            None
            if boxes is None
            else (codes, boxes, None if due.group_of is None else due.group_of[codes])
        )

    def held_reference(self, value: int) -> int | None:
        """The reference value that a parallel value holds parts or terms of, where it holds what it
        should.
        """
        due = self.due(value)
        if due is not None and due.scale == 1 and not self.wrong(value).any():
            return due.reference
        return self.evidence.holds(value)

    def holders(self, root: Root) -> list[str]:
        """Other tensors that are said to hold, where the operator reads, what is due at
        ``root``.
        """
        if root.due is None:
            return []
        places = [read[:1] for _, read in self.reads(root.step, root.codes[:1]) if read.ndim == 1]
        part = root.due.parts[int(root.due.part_of[root.codes[0]])]
        found = []
        for value, cut in _hints(self.evidence, range(len(self.evidence.second.values))).items():
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

    def _find_wrong(self, value: int) -> Mask:
        evidence = self.evidence
        present: Mask = evidence.batch.rows[value] >= 0
        due = self.due(value)
        if due is not None:
            found = self._apart(value, due)
            if found is None and value in self._outputs:
                found = compared_wrong(evidence, value)
            if found is not None:
                return found
        # Of a constant nothing tells which of the reference's it should be.
        judged = (
            not evidence.is_constant(value)
            and value in self._numbers
            and evidence.second.values[value].kind == "field"
        )
        moved = self._only_moved(value) or self._viewed_right(value)
        if (
            not judged
            or evidence.is_true(value)
            or moved
            or self.grouping(value) is not None
            or self._accumulating(value)
        ):
            return np.zeros_like(present)
        steps = evidence.writers.get(value, [])
        # A view of something is as right as that is.
        wrong = (
            self._viewed(value, steps)
            if steps and all(step.kind in VIEWS for step in steps)
            else present
        )
        return wrong & ~evidence.behind_right.get(value, np.zeros_like(present))

    def _viewed(self, value: int, steps: Iterable[Step]) -> Mask:
        result = np.zeros(self.evidence.second.codes, dtype=np.bool_)
        for step in steps:
            codes = np.flatnonzero(
                self.evidence.second.nodes[step.node].mask & (self.evidence.batch.rows[value] >= 0)
            )
            for source, read in self.reads(step, codes):
                result[codes] |= self.wrong(source)[read].reshape(len(codes), -1).any(axis=1)
        return result

    def _only_moved(self, value: int) -> bool:
        """Whether a value has the elements of right ones, in a form that the reference never has.
        What reads it shows whether they lie right.
        """
        steps = self.evidence.writers.get(value, [])
        return bool(steps) and all(
            step.kind in MOVES
            and not any(self.wrong(source).any() for source in self.evidence.inputs(step))
            for step in steps
        )

    def _accumulating(self, value: int) -> bool:
        """Whether a value is the sum of what rounds of a loop have computed, some or all, on every
        rank.
        """
        sums = [self._added(step) for step in self.evidence.writers.get(value, [])]
        return bool(sums) and all(len(terms) > 1 for terms, _ in sums)

    def _added(self, step: Step) -> tuple[frozenset[int], frozenset[int]]:
        """(the values of a loop that a step adds up, those of all its rounds); empty where it does
        not.
        """
        if id(step) not in self._terms:
            self._enter(OF_ADDED)
            parts = (
                [self._terms_of(source, step) for source in self.evidence.inputs(step)]
                if step.kind == "add"
                else []
            )
            alike = len({rounds for _, rounds in parts}) == 1
            self._terms[id(step)] = (
                (frozenset().union(*(terms for terms, _ in parts)), parts[0][1])
                if alike
                else (frozenset(), frozenset())
            )
            self._depth -= OF_ADDED
        return self._terms[id(step)]

    def _terms_of(self, value: int, reader: Step) -> tuple[frozenset[int], frozenset[int]]:
        # A sum over one row is that row, too; so it is asked of what is right as well.
        grouping = self.grouping(value)
        if grouping is not None and grouping.beside:
            return frozenset([value]), frozenset([value, *grouping.beside])
        where = self.evidence.second.nodes[reader.node].mask
        steps = [
            step
            for step in self.evidence.writers.get(value, [])
            if (self.evidence.second.nodes[step.node].mask & where).any()
        ]
        return self._added(steps[0]) if len(steps) == 1 else (frozenset(), frozenset())

    def _viewed_right(self, value: int) -> bool:
        """Whether a view of a value has parts of a reference value: where dimensions are joined for
        a while, parts of one of them are no box.
        """
        views = [
            output
            for step in self.evidence.readers.get(value, [])
            if step.kind in VIEWS
            for output in self.evidence.outputs(step)
        ]
        return any(self.evidence.part_of(self.evidence.array(view)) is not None for view in views)

    def _apart(self, value: int, due: Cut) -> Mask | None:
        result = np.zeros(len(due.part_of), dtype=np.bool_)
        codes = np.flatnonzero(
            (self.evidence.batch.rows[value] >= 0) & (due.part_of >= 0) & ~self._unseen(value, due)
        )
        if not len(codes):
            return result
        pair = self.expected(value, codes)
        if pair is None:
            return None
        apart = far(*pair)
        result[codes] = apart
        return result

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

    def _unseen(self, value: int, due: Cut) -> Mask:
        """The codes that hold a term of a sum of which other terms were not needed, and so not
        computed: nobody can say that they are wrong.
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

    def _trusted(self) -> bool:
        """Whether the hints hold at nearly all operators that read what they should."""
        failing = hinted = 0
        for step in self.evidence.batch.steps:
            values = [v for v in step.outputs if v in self._hints]
            hinted += bool(values)
            failing += any(self._root(step, v) is not None for v in values if v is not None)
        return failing <= max(FEW, SHARE * hinted)

    def _chain(self, outputs: Iterable[int]) -> set[int]:
        """The values through which outputs go wrong."""
        stack = list(outputs)
        chain = set(stack)
        while stack:
            value = stack.pop()
            for step in self.evidence.writers.get(value, []):
                for source, _, _ in self._wrong_reads(step, value):
                    if source not in chain:
                        chain.add(source)
                        stack.append(source)
        return chain

    def _root(self, step: Step, value: int) -> Root | None:
        codes = self._wrong_at(step, value)
        codes = codes[~self._spoiled(value)[codes]]
        return Root(step, value, codes, self.due(value)) if len(codes) else None

    def _spoiled(self, value: int) -> Mask:
        """The codes at which a value is computed from something wrong; all codes of a sum of which
        one term is.
        """
        if value not in self._from_wrong:
            result = np.zeros(self.evidence.second.codes, dtype=np.bool_)
            for step in self.evidence.writers.get(value, []):
                for _, codes, wrong in self._wrong_reads(step, value):
                    result[codes] |= wrong
            due = self.due(value)
            if due is not None and due.group_of is not None:
                result |= np.isin(due.group_of, due.group_of[result])
            self._from_wrong[value] = result
        return self._from_wrong[value]

    def _wrong_at(self, step: Step, value: int) -> Codes:
        """The codes at which a step writes a value, and it is wrong."""
        codes: Codes = np.flatnonzero(
            self.wrong(value)
            & self.evidence.second.nodes[step.node].mask
            & (self.evidence.batch.rows[value] >= 0)
        )
        return codes

    def reads(self, step: Step, codes: Codes) -> list[tuple[int, Codes]]:
        """(value, the codes at which it is read) of every operand of a step."""
        return [
            (s.value, s.at(codes))
            for operand in self.evidence.second.nodes[step.node].inputs
            for s in sources_of(operand)
        ]

    def _wrong_reads(self, step: Step, value: int) -> Iterator[tuple[int, Codes, Mask]]:
        """(source, codes, at which of them something wrong is read) of the operands through which a
        step makes a value wrong.
        """
        codes = self._wrong_at(step, value)
        for source, read in self.reads(step, codes) if len(codes) else ():
            wrong = self.wrong(source)[read]
            if wrong.any() and source not in self.evidence.unused(step):
                spoiled: Mask = np.asarray(wrong.reshape(len(codes), -1).any(axis=1))
                yield source, codes, spoiled


def compared_wrong(evidence: Evidence, value: int) -> Mask:
    """The codes at which an output of a run was compared and differs."""
    comparison = next(c for c in evidence.run.comparisons if c.target.cut.value == value)
    differences = np.where(
        comparison.judged[:1], real_differences(comparison.actual, comparison.expected), 0.0
    )
    wrong = comparison.codes[
        (differences > SAME).any(axis=tuple(i for i in range(differences.ndim) if i != 1))
    ]
    target, rows = comparison.target, evidence.batch.rows[value]
    of = (
        rows * len(target.cut.parts) + target.cut.part_of
        if target.cut.group_of is None
        else target.cut.group_of
    )
    result = np.zeros(len(rows), dtype=np.bool_)
    result[target.codes] = np.isin(of[target.codes], of[wrong])
    return result


def far(actual: Floats, wanted: Floats) -> Mask:
    """Which rows (axis 1) of two arrays of shape (trials, rows, *shape) differ by more than
    rounding.
    """
    axes = tuple(i for i in range(actual.ndim) if i != 1)
    scale = max(float(np.abs(wanted).max(initial=0.0, where=np.isfinite(wanted))), 1e-300)
    with np.errstate(invalid="ignore"):
        same = (
            (np.abs(actual - wanted) <= SAME * scale)
            | (actual == wanted)
            | (np.isnan(actual) & np.isnan(wanted))
        )
    result: Mask = ~same.all(axis=axes)
    return result


def _hints(evidence: Evidence, values: Iterable[int]) -> dict[int, Cut]:
    """What the plan says of the tensors that it computes, where that fits the reference."""
    found: dict[int, Cut] = {}
    first, second = evidence.first, evidence.second
    for value in values:
        info = second.values[value]
        lineage = info.tensor.lineage
        reference = first.number.get(lineage.reference) if lineage is not None else None
        if lineage is None or reference is None or first.values[reference].kind != info.kind:
            continue
        try:
            cut = resolve(
                lineage, value, second, reference, first.values[reference].shape, info.name
            )
            found[value] = cut if evidence.run.blocks is None else evidence.run.blocks.of(cut)
        except PitcheckError:  # a hint that does not fit is none
            continue
    return found
