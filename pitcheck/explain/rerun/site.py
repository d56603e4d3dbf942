"""The operators of a plan as places for repairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from pitcheck.explain.diagnosis import Diagnosis, Kind
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.expected_values import same_numbers
from pitcheck.explain.families import ACCUMULATIONS
from pitcheck.explain.rerun.changes import Change, Draft, Held, Override, Read
from pitcheck.explain.rerun.rerun import Rerun
from pitcheck.graph.graph import Node, Source
from pitcheck.graph.grids import Codes
from pitcheck.ops.registry import BACKWARD, operator_kind
from pitcheck.stage.batch import Argument, Step

Candidate = tuple[Diagnosis, Sequence[Change]]
"""A mistake, and the changes that mend it."""


@dataclass(frozen=True, eq=False)
class Site:
    """An operator of the plan: nodes that write ``value`` and do the same at different coordinates.

    ``value`` is one of its results.
    """

    rerun: Rerun
    numbers: tuple[int, ...]
    value: int

    @property
    def evidence(self) -> Evidence:
        """The values of the run."""
        return self.rerun.evidence

    @cached_property
    def nodes(self) -> list[Node]:
        """Its nodes."""
        return [self.rerun.graph.nodes[number] for number in self.numbers]

    @property
    def step(self) -> Step:
        """The step of its first node."""
        return self.rerun.steps[self.numbers[0]]

    @property
    def kind(self) -> str:
        """Its kind."""
        return self.nodes[0].kind

    @property
    def name(self) -> str:
        """Its name in the plan."""
        return self.nodes[0].operator

    @property
    def leads(self) -> bool:
        """True if ``value`` is its first result.

        What an operator does is tried once, not once per result.
        """
        return self.value == next(output for output in self.step.outputs if output is not None)

    @property
    def called(self) -> str:
        """The name of ``value``."""
        return self.evidence.name(self.value)

    @cached_property
    def codes(self) -> Codes:
        """The coordinates at which it runs and ``value`` is needed, shape (codes,)."""
        return np.flatnonzero(
            np.logical_or.reduce([node.mask for node in self.nodes])
            & (self.evidence.batch.rows[self.value] >= 0)
        )

    @cached_property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes of its first node, at the sizes of the run."""
        return self.rerun.attributes[self.numbers[0]]

    @property
    def collective(self) -> bool:
        """True if it reads what several ranks have."""
        return operator_kind(self.kind).collective and self.kind not in ACCUMULATIONS

    @property
    def is_output(self) -> bool:
        """True if ``value`` is an output that is compared."""
        return self.value in {c.target.cut.value for c in self.evidence.run.comparisons}

    def diagnosis(self, of: Kind, /, **facts: object) -> Diagnosis:
        """Return a mistake of this operator.

        Its name and kind, and the name of its result, are facts of it.
        """
        own = {"operator": self.name, "kind": self.kind, "result": self.called}
        return Diagnosis(of, {**own, **facts}, self.codes, self.step, self.value)

    def redone(
        self,
        draft: Callable[[Node, Codes], Draft | None],
        apart: Codes | None = None,
        known: Mapping[int, Held] | None = None,
    ) -> list[Override] | None:
        """Return its results if all its nodes run something else.

        Args:
            draft: gives what runs in the place of a node at coordinates; None if nothing can.
            apart: by coordinate a number, shape (codes,); coordinates of different numbers run
                separately.
            known: values that it sees in place of the plan's.

        Returns:
            The results; None if they have no value, or are what they were.
        """
        found: list[Override] = []
        for node, codes in self._parts(apart):
            drafted = draft(node, codes)
            if drafted is None:
                return None
            kind, attributes, given = drafted
            results = self.rerun.evaluate(kind, attributes, given, len(codes), known, node.outputs)
            if results is None:
                return None
            for output, result in zip(node.outputs, results, strict=False):
                if output is not None and result is not None:
                    found.append(Override(output, codes, result))
        return found if self.changes(found) else None

    def _parts(self, apart: Codes | None) -> Iterator[tuple[Node, Codes]]:
        for node in self.nodes:
            codes = np.flatnonzero(node.mask & (self.evidence.batch.rows[self.value] >= 0))
            entries = np.zeros(len(codes), dtype=np.int64) if apart is None else apart[codes]
            for entry in np.unique(entries):
                yield node, codes[entries == entry]

    @cached_property
    def derivatives(self) -> list[int]:
        """The nodes of its derivative.

        They read what it reads, its result and the gradient of that.
        """
        own = _values(self.step)
        return [
            number
            for number, step in self.rerun.steps.items()
            if step.kind == self.kind + BACKWARD
            and _values(step)[: len(own) + 1] == [*own, self.value]
            and len(step.inputs) == len(own) + 2
        ]

    def changes(self, overrides: Sequence[Override]) -> bool:
        """Return True if results have the same shapes and kinds as before and some other number."""
        changed = False
        for override in overrides:
            held = self.rerun.held(override.value)
            if (
                held is None
                or tuple(override.data.data.shape[3:]) != tuple(held.value.data.shape[3:])
                or override.data.kind != held.value.kind
            ):
                return False
            before = self.rerun.algebra.gather(held.value, held.rows[override.codes])
            changed = changed or not same_numbers(
                self.rerun.numbers(before), self.rerun.numbers(override.data)
            )
        return changed

    def as_given(self, node: Node, codes: Codes, **attributes: Any) -> Draft:
        """Return what a node does, with other attributes."""
        return (
            node.kind,
            {**self.rerun.attributes_of(node), **attributes},
            self.rerun.reads(node, codes),
        )


def _values(step: Step) -> list[object]:
    """Return the values that a step reads, and its literals."""
    return [operand.value if isinstance(operand, Argument) else operand for operand in step.inputs]


def sites_of(rerun: Rerun, numbers: Iterable[int]) -> list[Site]:
    """Return the operators among some nodes, one site per result, in the order of the program."""
    found: dict[tuple[str, int], list[int]] = {}
    for number in sorted(numbers, key=rerun.graph.rank.__getitem__):
        for output in rerun.steps[number].outputs:
            if output is not None:
                found.setdefault((rerun.graph.nodes[number].operator, output), []).append(number)
    return [Site(rerun, tuple(members), value) for (_, value), members in found.items()]


def where_it_changes(rerun: Rerun, candidate: Candidate) -> Diagnosis:
    """Return the mistake of a candidate at the coordinates at which it changes a number."""
    diagnosis, changes = candidate
    found: list[Codes] = []
    for change in changes:
        held = rerun.held(change.value) if isinstance(change, Override) else None
        if (
            not isinstance(change, Override)
            or held is None
            or change.value != diagnosis.value
            or (held.rows[change.codes] < 0).any()
        ):
            return diagnosis
        before, after = (
            rerun.numbers(value)
            for value in (rerun.algebra.gather(held.value, held.rows[change.codes]), change.data)
        )
        if before.shape != after.shape:
            return diagnosis
        same = (before == after) | (np.isnan(before) & np.isnan(after))
        found.append(change.codes[~same.all(axis=tuple(n for n in range(same.ndim) if n != 1))])
    codes = np.unique(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)
    return replace(diagnosis, codes=codes) if len(codes) else diagnosis


def by_code(table: Codes, codes: int) -> Codes:
    """Return by coordinate the members of its group, shape (codes, members); -1 if it is in none.

    Args:
        table: the groups, shape (groups, members).
        codes: the number of all coordinates.
    """
    groups = np.full((codes, table.shape[1]), -1, dtype=np.int64)
    groups[table] = table[:, None, :]
    return groups


def groups_of_mesh(site: Site) -> Iterator[tuple[str, Codes]]:
    """Yield the groups in which all coordinates of a site are: name, and members by coordinate.

    The members are in order, shape (codes, members).
    """
    for grouping in site.evidence.groupings:
        groups = by_code(np.sort(grouping.table, axis=1), site.rerun.graph.codes)
        if groups.shape[1] > 1 and (groups[site.codes] >= 0).all():
            yield grouping.name, groups


def collected(
    site: Site, kind: str, attributes: Mapping[str, Any], value: int, groups: Codes
) -> list[Override] | None:
    """Return the results of a collective over groups in place of those of a site.

    Args:
        kind: the collective.
        attributes: its attributes; the place of a coordinate in its group is added.
        value: the value that it reads.
        groups: by coordinate the members of its group in order, shape (codes, members).

    Returns:
        The results; None if they have no value, or are what they were.
    """
    if (groups[site.codes] < 0).any():
        return None
    place = (groups == np.arange(len(groups))[:, None]).argmax(axis=1)[site.codes]
    positioned = "position" in operator_kind(kind).attributes
    found: list[Override] = []
    for own in np.unique(place).tolist() if positioned else (None,):
        codes = site.codes if own is None else site.codes[place == own]
        more = {} if own is None else {"position": own}
        reads = [Read(value, groups[codes])]
        result = site.rerun.one(kind, {**attributes, **more}, reads, len(codes))
        if result is None:
            return None
        found.append(Override(site.value, codes, result))
    return found if site.changes(found) else None


def reduced(rerun: Rerun, value: int, table: Codes, reduction: str) -> Override | None:
    """Return a value reduced over groups, at all its coordinates; None if it cannot be.

    Args:
        table: the groups, shape (groups, members).
        reduction: "sum", "avg", "max" or "min".
    """
    codes = rerun.evidence.codes(value)
    groups = by_code(np.sort(table, axis=1), rerun.graph.codes)[codes]
    result = rerun.reduced(value, codes, groups, reduction)
    return None if result is None else Override(value, codes, result)


def reference_steps(site: Site) -> list[Step]:
    """Return the reference's steps of the same kind with as many operands."""
    count = len(site.step.inputs)
    return [
        step
        for step in site.evidence.run.stage.reference.steps
        if step.kind == site.kind and len(step.inputs) == count
    ]


def reads_itself(site: Site, place: int) -> bool:
    """Return True if every coordinate reads of an operand what it has itself."""
    for node in site.nodes:
        source, codes = node.inputs[place], np.flatnonzero(node.mask)
        if (
            not isinstance(source, Source)
            or source.members
            or not np.array_equal(source.at(codes), codes)
        ):
            return False
    return True
