"""The places where values of the parallel plan begin to be wrong.

These are operators whose inputs hold what they should, and whose results do not. Where a plan's
hints fail at many operators, they are left aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy

import numpy as np

from pitcheck.claims.conjecture import VIEWS, of_numbers
from pitcheck.claims.real_numbers import real_differences
from pitcheck.errors import BudgetError
from pitcheck.explain.evidence import SAME, Evidence
from pitcheck.explain.expected_values import ExpectedValues, Mask, Root, far, stated
from pitcheck.explain.families import MOVES, SUMS
from pitcheck.explain.inferred_lineage import inferred
from pitcheck.graph.cuts import Cut
from pitcheck.graph.grids import Codes
from pitcheck.stage.batch import Step

FEW = 3
SHARE = 0.1
"""Hints are followed if they fail at no more than ``FEW`` operators, or at this share of them."""
MOST_DEEP = 600
"""Nested calls, of the 1000 that Python allows, in which values are judged."""
OF_MOVED, OF_ADDED = 8, 6
"""Nested calls for each operator that only moves, or adds up, what is judged."""


class WrongValues(ExpectedValues):
    """By parallel value the coordinates at which it does not hold what it should.

    ``unscaled``: take every factor that was only seen for a mistake.
    """

    def __init__(self, evidence: Evidence, unscaled: bool = False) -> None:
        super().__init__(evidence)
        self._wrong: dict[int, Mask] = {}
        self._depth = 0
        self._from_wrong: dict[int, Mask] = {}
        self._terms: dict[int, tuple[frozenset[int], frozenset[int]]] = {}
        # Other values come of discrete data alone: nothing says what they should be, and what
        # reads them shows whether they are right.
        self._numbers = of_numbers(evidence.batch)
        self.hinted = self._follow(stated(evidence, evidence.writers))
        if not self.hinted and not self._follow(inferred(evidence, unscaled)):
            self._follow({})

    def copy(self) -> WrongValues:
        """Return all that was judged so far; what either of both judges next is its own."""
        other = copy(self)
        other._sums, other._wrong = dict(self._sums), dict(self._wrong)
        other._from_wrong, other._terms = dict(self._from_wrong), dict(self._terms)
        return other

    def _follow(self, hints: dict[int, Cut]) -> bool:
        """Take hints as true; return False if they fail at many operators that read rightly."""
        self.hints = hints
        self._wrong, self._from_wrong, self._depth = {}, {}, 0
        return bool(hints) and self._trusted()

    def wrong(self, value: int) -> Mask:
        """Return a mask of the coordinates at which a value is wrong, shape (codes,)."""
        if value not in self._wrong:
            self._enter(OF_MOVED)
            # Ranks may hand a tensor round in a circle: until it is judged, it counts as right.
            self._wrong[value] = np.zeros(self.evidence.second.codes, dtype=np.bool_)
            for source in reversed(self._moved_from(value)):
                self.wrong(source)
            self._wrong[value] = self._find_wrong(value)
            self._depth -= OF_MOVED
        return self._wrong[value]

    def _moved_from(self, value: int) -> list[int]:
        """Return the values that this one only moves and that are not judged, the nearest first.

        Judged in reverse order, long chains need no deep calls.
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
        """Count nested calls. Raises BudgetError before they are too many."""
        self._depth += calls
        if self._depth > MOST_DEEP:
            raise BudgetError(
                f"more than {MOST_DEEP // OF_MOVED} operators one behind the other only move or "
                f"add up what is asked about"
            )

    def roots(self, outputs: Iterable[int]) -> list[Root]:
        """Return where the values ``outputs`` begin to be wrong, in the order of the program."""
        chain = self._chain(outputs)
        return [
            root
            for step in self.evidence.batch.steps
            for value in step.outputs
            if value in chain and (root := self._root(step, value)) is not None
        ]

    def compares(self, step: Step, codes: Codes) -> bool:
        """Return True if all that a step reads was compared with what it should be."""
        return all(
            self.evidence.is_constant(value)
            or self._is_found(value)
            or self._was_compared(value, read)
            for value, read in self.reads(step, codes)
        )

    def _is_found(self, value: int) -> bool:
        """Return True if a value is given, or its parts were found in the reference.

        A view of a right value in another form may join what lies apart in the whole.
        """
        return self.evidence.is_true(value) and (
            value in self.evidence.cuts or not self.evidence.writers.get(value)
        )

    def _was_compared(self, value: int, read: Codes) -> bool:
        due, codes = self.due(value), np.unique(read)
        known = (
            due is not None
            and bool((due.part_of[codes] >= 0).all())
            and not self.unseen(value, due)[codes].any()
        )
        return known and self.compared(value, codes) is not None

    def held_reference(self, value: int) -> int | None:
        """Return the reference value that a value holds parts of; None if unknown.

        A value that is not wrong holds parts or addends of what it should hold.
        """
        due = self.due(value)
        if due is not None and due.scale == 1 and not self.wrong(value).any():
            return due.reference
        return self.evidence.holds(value)

    def _find_wrong(self, value: int) -> Mask:
        evidence = self.evidence
        present: Mask = evidence.batch.rows[value] >= 0
        due = self.due(value)
        if due is not None:
            found = self._apart(value, due)
            if found is None and self.is_output(value):
                found = compared_wrong(evidence, value)
            if found is not None:
                return found
        # Nothing tells which constant of the reference a constant should be.
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
        # A view is as right as what it views.
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
        """Return True if a value has the elements of right values in another form.

        The reference may never have that form: what reads it shows if they lie right.
        """
        steps = self.evidence.writers.get(value, [])
        return bool(steps) and all(
            step.kind in MOVES
            and not any(self.wrong(source).any() for source in self.evidence.inputs(step))
            for step in steps
        )

    def _accumulating(self, value: int) -> bool:
        """Return True if a value is the sum of what several rounds of a loop have computed."""
        sums = [self._added(step) for step in self.evidence.writers.get(value, [])]
        return bool(sums) and all(len(terms) > 1 for terms, _ in sums)

    def _added(self, step: Step) -> tuple[frozenset[int], frozenset[int]]:
        """Return the values of a loop that a step adds up.

        Returns:
            The values that are in its sum, and those of all rounds; both empty if it adds up none.
        """
        if id(step) not in self._terms:
            self._enter(OF_ADDED)
            parts = (
                [self._terms_of(source, step) for source in self.evidence.inputs(step)]
                if step.kind in SUMS
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
        # A sum over one row is that row, so right values are asked, too.
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
        """Return True if a view of a value holds parts of a reference value.

        While dimensions are joined, parts of one of them are no box.
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
            (self.evidence.batch.rows[value] >= 0) & (due.part_of >= 0) & ~self.unseen(value, due)
        )
        if not len(codes):
            return result
        pair = self.compared(value, codes)
        if pair is None:
            return None
        apart = far(*pair)
        result[codes] = apart
        return result

    def _trusted(self) -> bool:
        """Return True if the hints hold at nearly all operators that read what they should."""
        failing = hinted = 0
        for step in self.evidence.batch.steps:
            values = [v for v in step.outputs if v in self.hints]
            hinted += bool(values)
            failing += any(self._root(step, v) is not None for v in values if v is not None)
        return failing <= max(FEW, SHARE * hinted)

    def _chain(self, outputs: Iterable[int]) -> set[int]:
        """Return the values through which outputs go wrong."""
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
        """Return a mask of the coordinates at which a value is computed from something wrong.

        If one addend of a sum is wrong, all coordinates of the sum are in it.
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
        """Return the coordinates at which a step writes a value wrongly, shape (codes,)."""
        codes: Codes = np.flatnonzero(
            self.wrong(value)
            & self.evidence.second.nodes[step.node].mask
            & (self.evidence.batch.rows[value] >= 0)
        )
        return codes

    def _wrong_reads(self, step: Step, value: int) -> Iterator[tuple[int, Codes, Mask]]:
        """Yield the operands through which a step makes a value wrong.

        Yields:
            The operand, the coordinates at which the value is wrong, and a mask of those at which
            the operand is.
        """
        codes = self._wrong_at(step, value)
        for source, read in self.reads(step, codes) if len(codes) else ():
            wrong = self.wrong(source)[read]
            if wrong.any() and source not in self.evidence.unused(step):
                spoiled: Mask = np.asarray(wrong.reshape(len(codes), -1).any(axis=1))
                yield source, codes, spoiled


def compared_wrong(evidence: Evidence, value: int) -> Mask:
    """Return a mask of the coordinates at which an output was compared and differs.

    The shape is (codes,).
    """
    comparison = next(c for c in evidence.run.comparisons if c.target.cut.value == value)
    differences = np.where(
        comparison.judged[:1], real_differences(comparison.actual, comparison.expected), 0.0
    )
    axes = tuple(i for i in range(differences.ndim) if i != 1)
    wrong = comparison.codes[(differences > SAME).any(axis=axes)]
    cut, codes, rows = comparison.target.cut, comparison.target.codes, evidence.batch.rows[value]
    of = cut.group_of
    if of is None:
        of = rows * len(cut.parts) + cut.part_of
    result = np.zeros(len(rows), dtype=np.bool_)
    result[codes] = np.isin(of[codes], of[wrong])
    return result
