"""The parallel plan run again on the same numbers, with one thing changed.

Only what depends on the change is computed anew, coordinate by coordinate, and compared with what
the outputs should be.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pitcheck.algebra.value import Value
from pitcheck.claims.real_numbers import seen_differences
from pitcheck.explain.evidence import SAME
from pitcheck.explain.expected_values import far
from pitcheck.explain.rerun.changes import (
    Change,
    Draft,
    Due,
    Held,
    Mask,
    Override,
    Read,
    Redo,
    held_at,
)
from pitcheck.explain.rerun.values import PlanValues
from pitcheck.graph.graph import Node, sources_of
from pitcheck.graph.grids import Codes
from pitcheck.stage.evaluate import expected_parts, judged_elements
from pitcheck.stage.stage import Target

MOST_IDLE = 8
"""Values that no output depends on, which are tried before nearer ones."""
MOST_SUMS = 12
"""Values reduced over groups that are kept."""
MOST_FOLLOWING = 32
"""Changed values of which it is kept what is computed anew with them."""


@dataclass
class _Wanted:
    """An output that is compared: where (a row of coordinates for a sum), and with what."""

    target: Target
    codes: Codes
    expected: Value
    judged: Mask


class Rerun(PlanValues):
    """The values of a run, and what becomes of them and of the outputs under changes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.steps = {step.node: step for step in self.evidence.run.stage.parallel.steps}
        self._wanted: dict[int, _Wanted] = {}
        self._sums: dict[tuple[int, str, bytes], tuple[Held, Value]] = {}
        self._follow: dict[tuple[tuple[int, ...], ...], tuple[list[int], dict[int, int]]] = {}
        self._readers: dict[int, list[int]] = {}
        for number in self.steps:
            for operand in self.graph.nodes[number].inputs:
                for source in sources_of(operand):
                    self._readers.setdefault(source.value, []).append(number)
        self._behind: dict[int, frozenset[int]] = {}

    @cached_property
    def idle(self) -> frozenset[int]:
        """The values that are computed and that no output depends on.

        What should have read them may read something else.
        """
        needed = self.evidence.run.evaluated.parallel
        return frozenset(
            v for v, held in enumerate(self.graph.values) if held.writers and v not in needed
        )

    def nearest(self, values: Iterable[int], rank: int, most: int) -> list[int]:
        """Return the values that are nearest to a place in the program.

        Those come first that no output depends on. ``rank`` is the place, ``most`` how many are
        wanted.
        """
        near = sorted(values, key=lambda v: abs(self.graph.depth(v) - rank))
        return list(dict.fromkeys([*[v for v in near if v in self.idle][:MOST_IDLE], *near[:most]]))

    def wanted(self, number: int) -> _Wanted:
        """Return what output ``number`` of the run must be."""
        if number not in self._wanted:
            run = self.evidence.run
            target = run.comparisons[number].target
            codes, parts = target.codes, target.cut.part_of[target.codes]
            groups = target.cut.group_of
            if groups is not None:
                order = np.argsort(groups[codes], kind="stable")
                terms = int(np.unique(groups[codes], return_counts=True)[1].max())
                codes, parts = (
                    codes[order].reshape(-1, terms),
                    parts[order].reshape(-1, terms)[:, 0],
                )
            reference = run.evaluated.reference[target.cut.reference]
            with np.errstate(all="ignore"):
                expected = expected_parts(self.algebra, run.shaped, number, reference, parts)
            judged = judged_elements(
                run.shaped.boxes[number], parts, tuple(expected.data.shape[3:])
            )
            self._wanted[number] = _Wanted(target, codes, expected, judged)
        return self._wanted[number]

    def reduced(self, value: int, codes: Codes, groups: Codes, reduction: str) -> Value | None:
        """Return a value reduced over groups, one row for each of ``codes``; None if it cannot be.

        The latest results are kept: several repairs ask for the same one. Each counts as one
        operator all the same.

        Args:
            value: the value.
            codes: the coordinates, shape (n,).
            groups: the members of the group of each of them, shape (n, members).
            reduction: "sum", "avg", "max" or "min".

        Raises:
            BudgetError: too many operators were evaluated.
        """
        key = (value, reduction, groups.tobytes())
        held, result = self._sums.get(key, (None, None))
        if result is not None and held is self.held(value):
            self.spend()
            return result
        result = self.one("all_reduce", {"reduction": reduction}, [Read(value, groups)], len(codes))
        held = self.held(value)
        if result is not None and held is not None:
            self._sums.pop(key, None)
            self._sums[key] = (held, result)
            if len(self._sums) > MOST_SUMS:
                del self._sums[next(iter(self._sums))]
        return result

    def behind(self, number: int) -> frozenset[int]:
        """Return the nodes that output ``number`` is computed by."""
        if number not in self._behind:
            stack, nodes, seen = (
                [self.evidence.run.comparisons[number].target.cut.value],
                set(),
                set(),
            )
            while stack:
                value = stack.pop()
                if value in seen:
                    continue
                seen.add(value)
                for step in self.evidence.writers.get(value, []):
                    nodes.add(step.node)
                    stack.extend(self.evidence.inputs(step))
            self._behind[number] = frozenset(nodes)
        return self._behind[number]

    def right(self, changes: Sequence[Change], numbers: Iterable[int]) -> list[int]:
        """Return the numbers of those outputs that are right with the changes.

        Raises BudgetError if too much was computed.
        """
        asked = list(numbers)
        changed = self.after(changes, asked)
        return [
            number for number in asked if changed is not None and self._is_right(number, changed)
        ]

    def all_right(self, changes: Sequence[Change], numbers: Sequence[int]) -> bool:
        """Return True if there are such outputs, and all of them are right with the changes.

        The first one is tried alone before the others, which saves most runs of wrong changes.
        Raises BudgetError if too much was computed.
        """
        return bool(self.right(changes, numbers[:1])) and len(self.right(changes, numbers)) == len(
            numbers
        )

    def _is_right(self, number: int, changed: Mapping[int, Held]) -> bool:
        wanted = self.wanted(number)
        held = changed.get(wanted.target.cut.value) or self.held(wanted.target.cut.value)
        if held is None:
            return False
        rows = held.rows[wanted.codes]
        if (rows < 0).any():
            return False
        actual = (
            self.algebra.sum(self.algebra.stack(held.value, rows), (0,))
            if rows.ndim == 2
            else self.algebra.gather(held.value, rows)
        )
        if actual.data.shape[3:] != wanted.expected.data.shape[3:]:
            return False
        differences = seen_differences(actual, wanted.expected)
        return not (np.where(wanted.judged, differences, 0.0) > SAME).any()

    def is_output(self, number: int, data: Value, codes: Codes) -> bool:
        """Return True if output ``number`` is right once its value is ``data`` at ``codes``."""
        return self._is_right(
            number, {self.wanted(number).target.cut.value: held_at(data, codes, self.graph.codes)}
        )

    def wrong_at(self, due: Due, held: Held) -> int:
        """Return at how many coordinates a value is not what it should be."""
        rows = held.rows[due.codes]
        if (rows < 0).any():
            return len(due.codes)
        actual = self.numbers(self.algebra.gather(held.value, rows))
        if actual.shape != due.data.shape:
            return len(due.codes)
        if due.sums is not None:
            _, which = np.unique(due.sums, return_inverse=True)
            totals = np.zeros((int(which.max()) + 1, len(actual), *actual.shape[2:]))
            np.add.at(totals, which.reshape(-1), np.moveaxis(actual, 1, 0))
            actual = np.moveaxis(totals[which.reshape(-1)], 0, 1)
        return int(far(actual, due.data).sum())

    def after(
        self,
        changes: Sequence[Change],
        numbers: Iterable[int],
        seen: Callable[[int, Held], bool] | None = None,
    ) -> dict[int, Held] | None:
        """Return by value what depends on the changes, as far as these outputs need it.

        Args:
            changes: what is done otherwise.
            numbers: the outputs.
            seen: called with every value that is another one then, in the order of the program;
                returns
                False to stop.

        Returns:
            The changed values; None if an operator has no value, or ``seen`` stopped.
        """
        changed: dict[int, Held] = {}
        dirty: dict[int, Mask] = {}
        redone = {change.node: change for change in changes if isinstance(change, Redo)}
        for override in (change for change in changes if isinstance(change, Override)):
            before = changed.get(override.value) or self.held(override.value)
            changed[override.value] = self._with(before, override.data, override.codes)
            dirty.setdefault(override.value, np.zeros(self.graph.codes, dtype=np.bool_))[
                override.codes
            ] = True
        fixed = {value: mask.copy() for value, mask in dirty.items()}
        again = [
            output
            for number in redone
            for output in self.graph.nodes[number].outputs
            if output is not None
        ]
        following, last = self._following((*fixed, *again), tuple(redone), tuple(numbers))
        if seen is not None and not all(
            seen(value, changed[value]) for value in fixed if value not in last
        ):
            return None
        for number in following:
            if not self._computed_after(number, changed, dirty, fixed, redone.get(number)):
                return None
            if seen is not None and not all(
                seen(value, changed[value])
                for value in self.graph.nodes[number].outputs
                if value in changed and last[value] == number
            ):
                return None
        return changed

    def _computed_after(
        self,
        number: int,
        changed: dict[int, Held],
        dirty: dict[int, Mask],
        fixed: Mapping[int, Mask],
        redo: Redo | None,
    ) -> bool:
        """Compute a node anew if its operands changed, or if something else runs in its place.

        Returns:
            False if it has no value.
        """
        node = self.graph.nodes[number]
        codes = np.flatnonzero(node.mask) if redo is not None else self._dirty_codes(node, dirty)
        codes = codes[self._there(node, codes)] if len(codes) else codes
        if not len(codes):
            return True
        as_it_is: Draft = (
            node.kind,
            self.attributes.get(number, node.attributes),
            self.reads(node, codes),
        )
        draft = as_it_is if redo is None else redo.draft(node, codes)
        known = {**changed, **redo.known} if redo is not None else changed
        self.stand_at(node)
        results = None if draft is None else self.evaluate(*draft, len(codes), known, node.outputs)
        if results is None:
            return False
        for output, result in zip(node.outputs, results, strict=False):
            if output is None or result is None:
                continue
            free = ~fixed[output][codes] if output in fixed else np.ones(len(codes), dtype=np.bool_)
            if free.any():
                changed[output] = self._with(
                    changed.get(output) or self.held(output),
                    self.algebra.gather(result, np.flatnonzero(free)),
                    codes[free],
                )
                dirty.setdefault(output, np.zeros(self.graph.codes, dtype=np.bool_))[
                    codes[free]
                ] = True
        return True

    def _there(self, node: Node, codes: Codes) -> Mask:
        """Return a mask of the coordinates at which a result of a node was needed.

        The shape is that of ``codes``, (n,).
        """
        found = np.zeros(len(codes), dtype=np.bool_)
        for output in node.outputs:
            held = self.held(output) if output is not None else None
            if held is not None:
                found |= held.rows[codes] >= 0
        return found

    def _following(
        self, values: tuple[int, ...], redone: tuple[int, ...], numbers: tuple[int, ...]
    ) -> tuple[list[int], dict[int, int]]:
        """Return the nodes that are computed anew, in the order of the program.

        The latest answers are kept: all repairs of one operator change the same values.

        Args:
            values: the values that are changed.
            redone: the nodes that something else runs in place of.
            numbers: the outputs that need what follows.

        Returns:
            The nodes; by value the last of them that writes it.
        """
        key = values, redone, numbers
        if key not in self._follow:
            needed = frozenset().union(*(self.behind(number) for number in numbers))
            following = sorted(
                {*self._downstream(values, needed), *redone}, key=self.graph.rank.__getitem__
            )
            last = {
                output: number
                for number in following
                for output in self.graph.nodes[number].outputs
                if output is not None
            }
            if len(self._follow) >= MOST_FOLLOWING:
                self._follow.clear()
            self._follow[key] = following, last
        return self._follow[key]

    def _downstream(self, values: Iterable[int], needed: Collection[int]) -> set[int]:
        """Return the nodes of ``needed`` that depend on values."""
        stack, found = list(values), set()
        while stack:
            for number in self._readers.get(stack.pop(), []):
                if number in needed and number not in found:
                    found.add(number)
                    stack.extend(
                        output for output in self.graph.nodes[number].outputs if output is not None
                    )
        return found

    def _dirty_codes(self, node: Node, dirty: Mapping[int, Mask]) -> Codes:
        codes = np.flatnonzero(node.mask)
        touched = np.zeros(len(codes), dtype=np.bool_)
        for source in (
            s for operand in node.inputs for s in sources_of(operand) if s.value in dirty
        ):
            read = source.at(codes)
            touched |= (dirty[source.value][read] & (read >= 0)).reshape(len(codes), -1).any(axis=1)
        found: Codes = codes[touched]
        return found
