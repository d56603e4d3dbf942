"""Repairs of how a tensor is viewed: the parts of a group lie along another dimension."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from pitcheck.explain.diagnosis import Kind
from pitcheck.explain.families import MOVES, PASSES_ON
from pitcheck.explain.rerun.changes import Override, Read, held_at
from pitcheck.explain.rerun.site import Candidate, Site, groups_of_mesh, reads_itself
from pitcheck.graph.graph import Source
from pitcheck.graph.grids import Codes
from pitcheck.ops.registry import kinds_with, operator_kind
from pitcheck.ops.traits import Trait

VIEWED = kinds_with(Trait.KEEPS_ORDER) - PASSES_ON
"""Operators that give the same elements in the same order in another shape."""
MIXED = Kind(
    "PIT107",
    "operator {operator!r} ({kind}) reads {called} as it lies, which mixes the {count} parts of "
    "{over}: the dimension of {count} in {split} should be at place {place}",
    "view {called} as {split}, permute it by {permutation}, and reshape it then",
    ("over", "place"),
    edits=(
        "- {operator!r} ({kind}) of {called}",
        "+ {operator!r} ({kind}) of {called} viewed as {split}, permuted by {permutation}",
    ),
)

JOINED_APART = Kind(
    "PIT107",
    "operator {operator!r} ({kind}) views {called} on every rank as {shape}: each rank has a part "
    "of dimension {dim} over {over}, and what lies side by side there does not in the whole",
    "gather {called} over {over} along dimension {dim}, view it then, and take the rank's part of "
    "dimension {to}",
    ("over", "dim", "to"),
    edits=(
        "- {operator!r} ({kind}) of {called}",
        "+ {operator!r} ({kind}) of {called} gathered over {over} along dimension {dim}",
    ),
)


def gathered_before(site: Site) -> Iterator[Candidate]:
    """View what the ranks of a group have together, and take the rank's part of the view."""
    source = site.nodes[0].inputs[0] if site.nodes[0].inputs else None
    if site.kind not in VIEWED or not isinstance(source, Source) or not reads_itself(site, 0):
        return
    read, shape = site.rerun.shape(source.value), site.rerun.shape(site.value)
    if read is None or shape is None or _from_ranks(site, source.value):
        return
    for over, groups in groups_of_mesh(site):
        for dim, to in product(range(len(read)), range(len(shape))):
            overrides = _of_whole(site, source.value, groups, dim, to) if dim or to else None
            if overrides is not None and site.changes(overrides):
                facts = {
                    "over": over,
                    "dim": dim,
                    "to": to,
                    "shape": list(_of_program(site, site.value)),
                }
                called = site.evidence.called(source.value)
                yield site.diagnosis(JOINED_APART, called=called, **facts), overrides


def _from_ranks(site: Site, value: int) -> bool:
    """Return True if a value is what ranks exchanged: that, and no view of it, may be at fault."""
    writers = site.evidence.writers.get(value, [])
    return any(operator_kind(step.kind).collective for step in writers)


def _of_whole(site: Site, value: int, groups: Codes, dim: int, to: int) -> list[Override] | None:
    """Return by rank the part along ``to`` of a view of what its group has along ``dim``.

    ``groups``: by coordinate the members of its group in order, shape (codes, members).
    """
    rerun, codes, count = site.rerun, site.codes, groups.shape[1]
    sizes = [n * count if axis == to else n for axis, n in enumerate(rerun.shape(site.value) or ())]
    whole = rerun.one("all_gather", {"axis": dim}, [Read(value, groups[codes])], len(codes))
    if whole is None:
        return None
    known = {value: held_at(whole, codes, rerun.graph.codes)}
    views = rerun.evaluate(
        "reshape", {"sizes": tuple(sizes)}, [Read(value, codes)], len(codes), known
    )
    if views is None or views[0] is None:
        return None
    known = {value: held_at(views[0], codes, rerun.graph.codes)}
    place = (groups == np.arange(len(groups))[:, None]).argmax(axis=1)
    found = []
    for own in np.unique(place[codes]).tolist():
        at = codes[place[codes] == own]
        attributes = {"axis": to, "count": count, "position": own}
        parts = rerun.evaluate("chunk", attributes, [Read(value, at)], len(at), known)
        if parts is None or parts[0] is None:
            return None
        found.append(Override(site.value, at, parts[0]))
    return found


def moved_parts(site: Site) -> Iterator[Candidate]:
    """Move the dimension that has the parts of a mesh axis to another place before a reshape."""
    source = site.nodes[0].inputs[0] if site.nodes[0].inputs else None
    if site.kind not in VIEWED or not isinstance(source, Source) or not reads_itself(site, 0):
        return
    shape = site.rerun.shape(source.value)
    if shape is None or _mixed_before(site, source.value):
        return
    for over, count in _counts(site):
        for place, first in _places(shape, count):
            split = _split(shape, place, count, first)
            for to in range(len(split)):
                overrides = _permuted(site, source.value, split, _moved(len(split), place, to))
                if to != place and overrides is not None:
                    facts = {
                        "called": site.evidence.called(source.value),
                        "over": over,
                        "count": count,
                        "split": list(_split(_of_program(site, source.value), place, count, first)),
                        "permutation": list(_moved(len(split), place, to)),
                        "place": to,
                    }
                    yield site.diagnosis(MIXED, **facts), overrides


def _mixed_before(site: Site, value: int) -> bool:
    """Return True if a value, or what it only moves, is known to be wrong."""
    rerun, evidence = site.rerun, site.evidence
    while value not in rerun.due:
        step = next(iter(evidence.writers.get(value, [])), None)
        if step is None or step.kind not in MOVES or len(evidence.inputs(step)) != 1:
            return False
        (value,) = evidence.inputs(step)
    held = rerun.held(value)
    return held is not None and rerun.wrong_at(rerun.due[value], held) > 0


def _counts(site: Site) -> list[tuple[str, int]]:
    """Return the mesh axes and micro-batches with their sizes, one for each size above 1."""
    coordinates = site.rerun.graph.coordinates
    sizes = {**coordinates.sizes, "micro-batches": coordinates.microbatches}
    found: dict[int, str] = {}
    for name, size in sizes.items():
        if size > 1:
            found.setdefault(size, name)
    return [(name, size) for size, name in found.items()]


def _places(shape: tuple[int, ...], count: int) -> Iterator[tuple[int, bool]]:
    """Yield where a dimension of ``count`` may stand once another one is split by it.

    With it comes True if it stands before the rest of the one that is split.
    """
    for dim, size in enumerate(shape):
        if size % count == 0:
            yield dim, True
            if size > count:
                yield dim + 1, False


def _split(shape: tuple[int, ...], place: int, count: int, first: bool) -> tuple[int, ...]:
    """Return the shape of the same elements with a dimension of ``count`` at a place."""
    dim = place if first else place - 1
    rest = shape[dim] // count
    return (*shape[:dim], *((count, rest) if first else (rest, count)), *shape[dim + 1 :])


def _of_program(site: Site, value: int) -> tuple[int, ...]:
    """Return the shape of a value in the user's program, which no run has made smaller."""
    return site.rerun.graph.values[value].shape


def _moved(count: int, place: int, to: int) -> tuple[int, ...]:
    """Return the permutation of ``count`` dimensions that moves one of them."""
    order = [dim for dim in range(count) if dim != place]
    return (*order[:to], place, *order[to:])


def _permuted(
    site: Site, value: int, split: tuple[int, ...], permutation: tuple[int, ...]
) -> list[Override] | None:
    """Return the results of a site that reads a value permuted; None if they do not change."""
    rerun, codes = site.rerun, site.evidence.codes(value)
    result = rerun.one("reshape", {"sizes": split}, [Read(value, codes)], len(codes))
    for kind, attributes in (
        ("permute", {"permutation": permutation}),
        ("reshape", {"sizes": rerun.shape(value)}),
    ):
        if result is None:
            return None
        known = {value: held_at(result, codes, rerun.graph.codes)}
        results = rerun.evaluate(kind, attributes, [Read(value, codes)], len(codes), known)
        result = None if results is None else results[0]
    if result is None:
        return None
    return site.redone(site.as_given, known={value: held_at(result, codes, rerun.graph.codes)})
