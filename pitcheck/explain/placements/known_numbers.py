"""Numbers that the program makes itself, of which ranks use those that belong to other ranks.

Positions and slopes of heads are such: no rank is given them, and each makes those of its part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from pitcheck.errors import BudgetError
from pitcheck.explain.diagnosis import Diagnosis, Kind
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.expected_values import same_numbers
from pitcheck.explain.messages import spell
from pitcheck.explain.rerun.changes import Override
from pitcheck.explain.rerun.rerun import Rerun
from pitcheck.graph.grids import Codes
from pitcheck.graph.parts import Box
from pitcheck.stage.batch import Batch

NUMBERS_OF_OTHERS = Kind(
    "PIT107",
    "rank {rank} makes {result!r} as {held} of {right!r} in the reference, and its part is {box}",
    "let every rank over {over} begin at its part",
    ("over",),
    edits=(
        "- rank {rank}: {result!r} is {held} of {right!r} in the reference",
        "+ rank {rank}: {result!r} is {box} of {right!r} in the reference",
    ),
    title="{result!r} has the numbers that belong to another rank",
)
MOST_TRIED = 24
"""The sets of tensors and orders that are tried."""


@dataclass(frozen=True)
class _Numbers:
    """A tensor of known numbers, each rank's a stretch of a reference tensor along ``dim``.

    ``starts`` are where they begin, one for each of ``codes``.
    """

    value: int
    reference: int
    dim: int
    codes: Codes
    starts: Codes

    def box(self, evidence: Evidence, start: int) -> Box:
        """Return the part of the reference tensor that begins there."""
        size = evidence.second.values[self.value].shape[self.dim]
        whole = evidence.first.values[self.reference].shape
        return tuple(
            ((start, start + size),) if dim == self.dim else ((0, full),)
            for dim, full in enumerate(whole)
        )


def numbers_of_others(
    rerun: Rerun, left: Sequence[int]
) -> tuple[Diagnosis, list[Override], list[int]] | None:
    """Find known numbers with which all outputs are right if each rank has those of its place.

    All that are parts of one tensor are changed, as in every layer, then each by itself.

    Returns:
        The cause, the repair, the outputs that it makes right; None if there are no such numbers.
    """
    evidence, tried = rerun.evidence, 0
    for several in _of_one_tensor(_found(rerun)):
        for grouping in evidence.groupings:
            moved = [
                (each, starts)
                for each in several
                if (starts := _in_order(evidence, each, grouping.table)) is not None
            ]
            overrides = [_moved(rerun, each, starts) for each, starts in moved]
            if not moved or None in overrides:
                continue
            tried += 1
            if tried > MOST_TRIED:
                raise BudgetError(f"more than {MOST_TRIED} places of known numbers")
            changes = [override for override in overrides if override is not None]
            if rerun.all_right(changes, left):
                return _cause(evidence, *moved[0], grouping.name), changes, list(left)
    return None


def _found(rerun: Rerun) -> Iterator[_Numbers]:
    """Yield the known numbers of the plan of which the reference has more, the first ones made."""
    evidence = rerun.evidence
    theirs, mine = _made_of_numbers(evidence.run.stage.reference), _made_of_numbers(evidence.batch)
    wholes = dict.fromkeys(evidence.alike(value) for value in theirs)
    for step in evidence.batch.steps:
        for value in evidence.outputs(step):
            if value in mine:
                yield from islice(_stretches(rerun, value, wholes), 1)


def _made_of_numbers(batch: Batch) -> set[int]:
    """Return the values that are made of nothing but numbers of the program."""
    found: set[int] = set()
    for step in batch.steps:
        if all(argument.value in found for argument in step.arguments):
            found.update(output for output in step.outputs if output is not None)
    return found


def _stretches(rerun: Rerun, value: int, wholes: Iterable[int]) -> Iterator[_Numbers]:
    """Yield the reference tensors of which a value is one of several different stretches."""
    evidence = rerun.evidence
    mine, codes = evidence.second.values[value], evidence.codes(value)
    held = evidence.at(value, codes)
    for reference in wholes:
        whole = evidence.first.values[reference]
        dims = [d for d, (a, b) in enumerate(zip(mine.shape, whole.shape, strict=False)) if a != b]
        if whole.kind != mine.kind or len(whole.shape) != len(mine.shape) or len(dims) != 1:
            continue
        (dim,) = dims
        size, full = mine.shape[dim], whole.shape[dim]
        if held is None or not size or full % size or full < size:
            continue
        parts = _Numbers(value, reference, dim, codes, np.full(len(codes), -1, dtype=np.int64))
        rows = []
        for start in range(0, full, size):
            data = rerun.boxes(reference, [parts.box(evidence, start)])
            row = None if data is None else rerun.numbers(data)
            if row is None or row.shape[2:] != held.shape[2:]:
                break
            rows.append(row)
            for at in np.flatnonzero(parts.starts < 0).tolist():
                if same_numbers(held[:, at : at + 1], row):
                    parts.starts[at] = start
        different = len({row.tobytes() for row in rows}) == len(rows) > 1
        if different and (parts.starts >= 0).all():
            yield parts


def _of_one_tensor(found: Iterable[_Numbers]) -> list[list[_Numbers]]:
    """Return the numbers that are parts of one reference tensor together, then each by itself."""
    several: dict[int, list[_Numbers]] = {}
    for each in found:
        several.setdefault(each.reference, []).append(each)
    single = [[each] for together in several.values() if len(together) > 1 for each in together]
    return [*several.values(), *single]


def _in_order(evidence: Evidence, numbers: _Numbers, table: Codes) -> Codes | None:
    """Return where the numbers begin if they lie in the order of groups; None if they cannot."""
    size = evidence.second.values[numbers.value].shape[numbers.dim]
    full = evidence.first.values[numbers.reference].shape[numbers.dim]
    place = np.full(evidence.second.codes, -1, dtype=np.int64)
    for row in np.sort(table, axis=1):
        place[row] = np.arange(len(row))
    starts: Codes = place[numbers.codes] * size
    fits = table.shape[1] == full // size and (starts >= 0).all()
    return starts if fits and not np.array_equal(starts, numbers.starts) else None


def _moved(rerun: Rerun, numbers: _Numbers, starts: Codes) -> Override | None:
    """Return the numbers that begin elsewhere."""
    boxes = [numbers.box(rerun.evidence, start) for start in starts.tolist()]
    data = rerun.boxes(numbers.reference, boxes)
    return None if data is None else Override(numbers.value, numbers.codes, data)


def _cause(evidence: Evidence, numbers: _Numbers, starts: Codes, over: str) -> Diagnosis:
    """Return the diagnosis at the operator that makes the numbers."""
    moved = np.flatnonzero(numbers.starts != starts)
    first = int(moved[0])
    (rank,) = evidence.ranks_of(numbers.codes[[first]])
    facts = {
        "result": evidence.name(numbers.value),
        "right": evidence.first.values[numbers.reference].name,
        "rank": rank,
        "held": spell(numbers.box(evidence, int(numbers.starts[first]))),
        "box": spell(numbers.box(evidence, int(starts[first]))),
        "over": over,
    }
    step = evidence.writers[numbers.value][-1]
    return Diagnosis(NUMBERS_OF_OTHERS, facts, numbers.codes[moved], step, numbers.value)
