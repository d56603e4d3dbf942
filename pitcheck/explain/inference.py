"""What the tensors of a plan that says nothing of them should hold, as far as can be told from where the shards of its inputs and outputs lie."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from pitcheck.check.conjecture import Floats, Places
from pitcheck.errors import PitcheckError
from pitcheck.explain.evidence import Evidence, Grouping
from pitcheck.explain.hypotheses import constant_ratio, groups_present
from pitcheck.stages.cuts import Cut, Part, Parts


def inferred(evidence: Evidence) -> dict[int, Cut]:
    """For every computed value that holds parts of a reference value: the parts that lie where shards of that size of that axis lie elsewhere.

    A factor that an output is off by is taken for wrong wherever a value has it.
    """
    known = {**evidence.specification.initial, **{c.target.cut.value: c.target.cut for c in evidence.run.comparisons}}
    places = Places(evidence.run.symbolic, evidence.run.shaped, known)
    ratios = [constant_ratio(evidence, _real(c.actual), _real(c.expected)) for c in evidence.run.comparisons]
    factors = {ratio[0] for ratio in ratios if ratio is not None}
    found: dict[int, Cut] = {}
    for value in evidence.writers:
        cut = evidence.cuts.get(value)
        if cut is None or value in known:
            continue
        found[value] = _placed(evidence, cut, places, Fraction(1) if cut.scale in factors else cut.scale)
    return found


def summed_over(evidence: Evidence, value: int) -> Grouping | None:
    """The group over which the rows of a value add up to parts of one reference value, None where there is none."""
    for grouping in evidence.groupings:
        table = groups_present(evidence, value, grouping)
        if table is not None and evidence.is_part(evidence.array(value)[:, evidence.batch.rows[value][table]].sum(axis=2)):
            return grouping
    return None


def _real(value: object) -> Floats:
    data: Floats = np.asarray(getattr(value, "data"), dtype=np.float64)[0]  # noqa: B009
    return data


def _placed(evidence: Evidence, cut: Cut, places: Places, scale: Fraction) -> Cut:
    codes = evidence.codes(cut.value)
    try:
        columns = places.expected(cut.value, cut.reference)
    except PitcheckError:
        columns = [None]
    local = evidence.second.values[cut.value].shape
    if any(column is None for column in columns):
        return replace(cut, scale=scale)
    parts: dict[Part, int] = {}
    part_of = np.full(len(cut.part_of), -1, dtype=np.int64)
    for number, code in enumerate(codes):
        box = tuple(((int(column[number]), int(column[number]) + size),) for column, size in zip(columns, local, strict=True) if column is not None)
        part_of[code] = parts.setdefault(Part(box), len(parts))
    return replace(cut, parts=Parts(parts), grid=cut.lattice.grid(part_of), scale=scale)
