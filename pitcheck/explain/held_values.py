"""One element of an output that differs, as every rank holds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from pitcheck.claims.real_numbers import Floats, real_differences
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.observations.observation import numbers_of
from pitcheck.graph.grids import Codes
from pitcheck.refute.shown import global_place
from pitcheck.refute.whole_run import WholeRun
from pitcheck.report.coordinate_names import describe_ranks
from pitcheck.report.pictures import HeldValue, HeldValues

MOST_VALUES = 64
"""The most values of an element that are listed, equal ones once."""
Place = tuple[int, ...]
"""An element of a comparison: the trial, the compared row, and the place in the local tensor."""


def worst_place(run: WholeRun, number: int) -> Place:
    """Return the element of an output that differs most."""
    comparison = run.comparisons[number]
    differences = real_differences(comparison.actual, comparison.expected)
    place = np.unravel_index(
        int(np.argmax(np.where(comparison.judged[:1], differences, -1))), differences.shape
    )
    return tuple(int(i) for i in place)


def whole_place(run: WholeRun, number: int, place: Place) -> tuple[int, ...]:
    """Return the place in the whole tensor of an element of a comparison."""
    box = run.shaped.boxes[number][int(run.comparisons[number].parts[place[1]])]
    return tuple(global_place(i, intervals) for i, intervals in zip(place[2:], box, strict=True))


def element_at(value: object, place: Place) -> float:
    """Return an element of compared values, whose dimensions of size 1 stand for all places."""
    data = numbers_of(value)
    return float(data[tuple(min(i, n - 1) for i, n in zip(place, data.shape, strict=True))])


def held_values(evidence: Evidence, number: int) -> HeldValues:
    """Return the most wrong element of output ``number`` as every rank holds it."""
    run = evidence.run
    comparison, place = run.comparisons[number], worst_place(run, number)
    cut, expected = comparison.target.cut, element_at(comparison.expected, place)
    codes = _holders(evidence, number, int(comparison.parts[place[1]]))
    held = evidence.array(cut.value)[place[0]][(slice(None), *place[2:])]
    own = held[evidence.batch.rows[cut.value][codes]]
    groups = None if cut.group_of is None else cut.group_of[codes]
    sums = own if groups is None else _sums(own, groups)
    written = _written(expected, np.unique(sums).tolist())
    values = _together(evidence, cut.value, codes, [written(x) for x in own.tolist()])
    return HeldValues(
        output=comparison.target.name or evidence.name(cut.value),
        element=whole_place(run, number, place),
        reference_value=written(expected),
        values=tuple(values[:MOST_VALUES]),
        terms=groups is not None,
        sums=()
        if groups is None
        else _on_ranks(evidence, codes, map(written, sums.tolist()))[:MOST_VALUES],
        left_out=max(0, len(values) - MOST_VALUES),
    )


def _holders(evidence: Evidence, number: int, part: int) -> Codes:
    """Return the coordinates at which an output holds the box of a part, or a term of it."""
    target = evidence.run.comparisons[number].target
    cut, codes = target.cut, target.codes
    codes = codes[(evidence.batch.rows[cut.value][codes] >= 0) & (cut.part_of[codes] >= 0)]
    boxes = cut.parts.which
    chosen: Codes = codes[(boxes[cut.part_of[codes]] == boxes[part]).all(axis=1)]
    return chosen


def _sums(terms: Floats, groups: Codes) -> Floats:
    """Return by coordinate the sum that its term belongs to, shape (codes,)."""
    _, which = np.unique(groups, return_inverse=True)
    return np.asarray(np.bincount(which, weights=terms)[which], dtype=np.float64)


def _on_ranks(evidence: Evidence, codes: Codes, held: Iterable[str]) -> tuple[HeldValue, ...]:
    """Return values at coordinates, equal ones once, whatever the micro-batch."""
    coordinates = evidence.second.coordinates
    ranks: dict[str, list[int]] = {}
    for code, value in zip(codes.tolist(), held, strict=True):
        ranks.setdefault(value, []).append(code // coordinates.microbatches)
    return tuple(
        HeldValue(value=value, ranks=describe_ranks(of, coordinates.sizes))
        for value, of in ranks.items()
    )


def _written(expected: float, held: Sequence[float]) -> Callable[[float], str]:
    """Return what writes values with as many digits as tell some of them from ``expected``."""
    few = {f"{x:.9g}" for x in (expected, *held)}
    digits = 9 if len(few) > 1 else 17
    return lambda x: f"{x + 0.0:.{digits}g}"  # -0.0 + 0.0 is 0.0


def _together(evidence: Evidence, value: int, codes: Codes, held: Sequence[str]) -> list[HeldValue]:
    """Return the values at coordinates, those of one micro-batch that are equal once."""
    coordinates = evidence.second.coordinates
    batched = evidence.second.values[value].tensor.microbatched
    ranks: dict[tuple[int | None, str], list[int]] = {}
    for code, own in zip(codes.tolist(), held, strict=True):
        rank, microbatch = divmod(code, coordinates.microbatches)
        ranks.setdefault((microbatch if batched else None, own), []).append(rank)
    return [
        HeldValue(value=own, ranks=describe_ranks(of, coordinates.sizes), microbatch=microbatch)
        for (microbatch, own), of in list(ranks.items())
    ]
