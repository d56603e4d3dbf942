"""Tensors that two mesh axes cut in the other order than the program assumes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import permutations

import numpy as np

from pitcheck.algebra.value import Value
from pitcheck.explain.diagnosis import Diagnosis, Kind
from pitcheck.explain.placements.fused_parameter import behind_what_is_right, right_where_it_lies
from pitcheck.explain.rerun.changes import Override
from pitcheck.explain.rerun.rerun import Rerun
from pitcheck.graph.cuts import Cut
from pitcheck.graph.grids import Codes
from pitcheck.stage.stage import Target

AXES_EXCHANGED = Kind(
    "PIT107",
    "{names} cut over {outer} first, and each part over {inner}; the program puts them together "
    "as if they were cut over {inner} first",
    "cut {cut} over {inner} first, and each part over {outer}",
    edits=(
        "- {cut}: cut over {outer} first, and each part over {inner}",
        "+ {cut}: cut over {inner} first, and each part over {outer}",
    ),
)


def exchanged_axes(
    rerun: Rerun, left: Sequence[int]
) -> tuple[Diagnosis, list[Override], list[int]] | None:
    """Find two mesh axes that cut given tensors in the other order.

    Outputs that are cut so are compared as they then lie.

    Returns:
        The cause, the repair, the outputs that it makes right; None if there are no such axes.
    """
    evidence = rerun.evidence
    for outer, inner in permutations(
        (name for name, size in evidence.second.coordinates.extents.items() if size > 1), 2
    ):
        lie = partial(_in_other_order, rerun, outer, inner)
        overrides = []
        for value, cut in (
            (v, cut)
            for v, cut in evidence.specification.initial.items()
            if v in evidence.batch.inputs
        ):
            data = lie(cut, evidence.codes(value))
            right = data is None or behind_what_is_right(rerun, value, left, partial(_cut_so, lie))
            if data is not None and not right and tuple(data.data.shape[3:]) == rerun.shape(value):
                overrides.append(Override(value, evidence.codes(value), data))
        targets = {n: evidence.run.comparisons[n].target for n in left}
        own = [
            n
            for n, target in targets.items()
            if overrides and lie(target.cut, target.codes) is not None
        ]
        others = [n for n in left if n not in own]
        # The nearest output is tried first, as few plans cut tensors so.
        if not overrides or not rerun.all_right(overrides, others):
            continue
        if all(right_where_it_lies(rerun, n, overrides, lie) for n in own):
            return (
                _cause(rerun, [override.value for override in overrides], outer, inner),
                overrides,
                list(left),
            )
    return None


def _cut_so(lie: Callable[[Cut, Codes], Value | None], target: Target) -> bool:
    return lie(target.cut, target.codes) is not None


def _in_other_order(rerun: Rerun, outer: str, inner: str, cut: Cut, codes: Codes) -> Value | None:
    """Return what ranks hold if the part that ``outer`` cuts first is cut by ``inner`` first.

    None if these axes do not cut it in stretches of equal size along one dimension.
    """
    evidence, coordinates = rerun.evidence, rerun.evidence.second.coordinates
    whole = evidence.run.evaluated.reference.get(cut.reference)
    shape = evidence.first.values[cut.reference].shape
    parted = [
        dim
        for dim, size in enumerate(shape)
        if any(part.box[dim] != ((0, size),) for part in cut.parts)
    ]
    if (
        whole is None
        or len(parted) != 1
        or cut.group_of is not None
        or cut.scale != 1
        or not len(codes)
        or (cut.part_of[codes] < 0).any()
    ):
        return None
    (dim,) = parted
    sizes = coordinates.extents
    names, places = list(sizes), np.unravel_index(codes, coordinates.shape)
    first, second = (places[names.index(axis)] for axis in (outer, inner))
    counts = sizes[outer], sizes[inner]
    size, parts = whole.data.shape[3 + dim], counts[0] * counts[1]
    begins = [cut.parts[int(part)].box[dim] for part in cut.part_of[codes]]
    starts = sorted({begin[0][0] for begin in begins})
    if (
        len(starts) != parts
        or size % parts
        or any(len(begin) != 1 or begin[0][0] < 0 for begin in begins)
    ):
        return None
    if [starts.index(begin[0][0]) for begin in begins] != (first * counts[1] + second).tolist():
        return None
    width = size // parts
    rows = [
        np.take(np.asarray(whole.data), np.arange(place * width, (place + 1) * width), axis=3 + dim)
        for place in second * counts[0] + first
    ]
    return Value(whole.kind, np.concatenate(rows, axis=2))


def _cause(rerun: Rerun, values: Sequence[int], outer: str, inner: str) -> Diagnosis:
    evidence = rerun.evidence
    value = evidence.read_first(values)
    name, more = evidence.name(value), f" and {len(values) - 1} more" if len(values) > 1 else ""
    verb = "are" if more else "is"
    facts = {
        "names": f"{name!r}{more} {verb}",
        "cut": f"{name!r}{more}",
        "outer": outer,
        "inner": inner,
    }
    return Diagnosis(
        AXES_EXCHANGED, facts, evidence.codes(value), evidence.first_reader(value), value
    )
