"""The cuts of tensors of which a plan says nothing, told from where shards lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from pitcheck.claims.real_numbers import Floats
from pitcheck.claims.shard_places import Places
from pitcheck.errors import PitcheckError
from pitcheck.explain.evidence import Evidence, Grouping
from pitcheck.explain.families import PASSES_ON
from pitcheck.explain.ratios import constant_ratio
from pitcheck.explain.term_groups import groups_present, possible_times
from pitcheck.graph.cuts import Cut, Part, Parts, cut_by_code
from pitcheck.graph.graph import sources_of
from pitcheck.graph.grids import Codes
from pitcheck.stage.batch import Step

FEW = 4
"""Groups that are added up first: nearly all that are no addends show it there."""


def inferred(evidence: Evidence, unscaled: bool = False) -> dict[int, Cut]:
    """Return the cut of every computed value that holds parts of a reference value.

    The parts lie where shards of that size of that axis lie elsewhere. A factor that an output is
    off by is taken for a mistake wherever a value has it, and with ``unscaled`` every factor; but
    not for values that a right output is computed from.
    """
    known = {
        **evidence.specification.initial,
        **{c.target.cut.value: c.target.cut for c in evidence.run.comparisons},
    }
    places = Places(
        evidence.run.symbolic,
        evidence.run.shaped,
        {value: _in_all_microbatches(evidence, cut) for value, cut in known.items()},
    )
    ratios = [constant_ratio(_real(c.actual), _real(c.expected)) for c in evidence.run.comparisons]
    factors = {ratio for ratio in ratios if ratio is not None}
    found: dict[int, Cut] = {}
    for value in evidence.writers:
        cut = (
            evidence.cuts.get(value)
            if value in evidence.cuts
            else _copy(evidence, value) or _term(evidence, value)
        )
        scale = (
            Fraction(1)
            if cut is not None
            and value not in evidence.behind_right
            and (unscaled or cut.scale in factors)
            else None
        )
        placed = (
            None
            if cut is None or value in known or _fetched(evidence, value)
            else _placed(evidence, cut, places, cut.scale if scale is None else scale)
        )
        if placed is not None:
            found[value] = placed
    return found


def _fetched(evidence: Evidence, value: int) -> bool:
    """Return True if a value is what another rank has of a tensor of which this one has a part.

    It is fetched because it is another part, as in a ring, so it need not lie as the rank's part.
    """
    steps = evidence.writers[value]
    return bool(steps) and all(
        step.kind in PASSES_ON and _has_it_too(evidence, value, step) for step in steps
    )


def _has_it_too(evidence: Evidence, value: int, step: Step) -> bool:
    """Return True if a step copies of other ranks a value that its rank has, too."""
    node = evidence.second.nodes[step.node]
    codes = np.flatnonzero(node.mask & (evidence.batch.rows[value] >= 0))
    sources = [source for operand in node.inputs for source in sources_of(operand)]
    return bool(sources and len(codes)) and all(
        bool((source.at(codes) != codes).all())
        and bool((evidence.batch.rows[source.value][codes] >= 0).all())
        for source in sources
    )


def _copy(evidence: Evidence, value: int) -> Cut | None:
    """Return the cut of what a copy holds; None if it is no copy.

    Where the parts lie is left open.
    """
    if any(step.kind not in PASSES_ON for step in evidence.writers[value]):
        return None
    reference = evidence.part_of(evidence.array(value))
    part_of = np.where(evidence.batch.rows[value] >= 0, 0, -1)
    return (
        None
        if reference is None
        else cut_by_code(evidence.second, value, reference, (Part(()),), part_of)
    )


def _term(evidence: Evidence, value: int) -> Cut | None:
    """Return the cut of a value that holds addends; None if it does not.

    Where the parts lie is left open.
    """
    grouping = None if evidence.is_true(value) else summed_over(evidence, value)
    if grouping is None or grouping.reference is None:
        return None
    group_of = np.full(evidence.second.codes, -1, dtype=np.int64)
    term = np.zeros(evidence.second.codes, dtype=np.int64)
    for number, row in enumerate(grouping.table):
        group_of[row], term[row] = number, np.arange(len(row))
    codes = evidence.codes(value)
    part_of = np.full(evidence.second.codes, -1, dtype=np.int64)
    part_of[codes] = term[codes]
    parts = tuple(Part((), int(n), grouping.table.shape[1]) for n in range(grouping.table.shape[1]))
    cut = cut_by_code(evidence.second, value, grouping.reference, parts, part_of)
    return replace(cut, groups=cut.lattice.grid(group_of), scale=Fraction(grouping.times))


def summed_over(evidence: Evidence, value: int) -> Grouping | None:
    """Return the groups over which a value adds up to parts of a reference value; else None."""
    for grouping in evidence.groupings:
        table = groups_present(evidence, value, grouping)
        if table is not None:
            found = _adds_up(evidence, grouping, table, (value,))
            if found is not None:
                return found
    return None


def _adds_up(
    evidence: Evidence, grouping: Grouping, table: Codes, values: Sequence[int]
) -> Grouping | None:
    """Return the grouping if values together add up over it to parts of one reference value.

    Their mean over ranks may be these parts, too.
    """
    # Some dimensions are equal only at full sizes.
    if len({evidence.array(value).shape[2:] for value in values}) > 1:
        return None
    few = _distinct_sums(evidence, table[:FEW], values)
    fitting = [times for times in (1, table.shape[1]) if evidence.part_of(few / times) is not None]
    if not fitting:
        return None
    total = _distinct_sums(evidence, table, values)
    for times in possible_times(evidence, values[0], table):
        reference = evidence.part_of(total / times) if times in fitting else None
        if reference is not None:
            return replace(grouping, table=table, reference=reference, times=times)
    return None


def _distinct_sums(evidence: Evidence, table: Codes, values: Sequence[int]) -> Floats:
    """Return the sums of the values over every group, shape (trials, groups, *shape).

    Groups of the same rows, of which thousands of ranks have many, are added up once.
    """
    rows = np.concatenate(
        [np.sort(evidence.batch.rows[value][table], axis=1) for value in values], axis=1
    )
    total: Floats = np.zeros(())
    groups = np.unique(rows, axis=0)
    for value, of_value in zip(values, np.split(groups, len(values), axis=1), strict=True):
        array = evidence.array(value)
        times = np.zeros((len(groups), array.shape[1]))
        np.add.at(times, (np.arange(len(groups))[:, None], of_value), 1)
        with np.errstate(all="ignore"):  # values may be infinite
            total = total + np.moveaxis(np.tensordot(times, array, (1, 1)), 0, 1)
    return total


def summed_in_rounds(evidence: Evidence, value: int) -> Grouping | None:
    """Return the groups over which a value and those of other rounds of a loop add up to parts.

    The parts are of one reference value. None if there are no such groups.
    """
    codes = evidence.codes(value)
    for rounds in evidence.rounds(value):
        if any(not np.array_equal(evidence.codes(other), codes) for other in rounds):
            continue
        for grouping in (Grouping("", codes[:, None]), *evidence.groupings):
            table = (
                codes[:, None] if not grouping.name else groups_present(evidence, value, grouping)
            )
            if table is None:
                continue
            found = _adds_up(evidence, grouping, table, rounds)
            if found is not None:
                name = " and ".join(
                    filter(None, (grouping.name, f"the {len(rounds)} rounds of a loop"))
                )
                return replace(
                    found, name=name, beside=tuple(other for other in rounds if other != value)
                )
    return None


def _in_all_microbatches(evidence: Evidence, cut: Cut) -> Cut:
    """Return a cut at all coordinates of each rank.

    Shards of a tensor that exists once lie at the same place in every micro-batch.
    """
    if evidence.second.values[cut.value].tensor.microbatched:
        return cut
    return replace(cut, lattice=cut.lattice._replace(microbatched=True))


def _real(value: object) -> Floats:
    data: Floats = np.asarray(getattr(value, "data"), dtype=np.float64)[0]  # noqa: B009
    return data


def _placed(evidence: Evidence, cut: Cut, places: Places, scale: Fraction) -> Cut | None:
    codes = evidence.codes(cut.value)
    try:
        columns = places.expected(cut.value, cut.reference)
    except PitcheckError:
        columns = [None]
    local = evidence.second.values[cut.value].shape
    if any(column is None for column in columns):
        return replace(cut, scale=scale) if cut.value in evidence.cuts else None
    parts: dict[Part, int] = {}
    part_of = np.full(len(cut.part_of), -1, dtype=np.int64)
    for number, code in enumerate(codes):
        box = tuple(
            ((int(column[number]), int(column[number]) + size),)
            for column, size in zip(columns, local, strict=True)
            if column is not None
        )
        part_of[code] = parts.setdefault(
            replace(cut.parts[int(cut.part_of[code])], box=box), len(parts)
        )
    return replace(cut, parts=Parts(parts), grid=cut.lattice.grid(part_of), scale=scale)
