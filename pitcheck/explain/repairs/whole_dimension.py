"""The repair of an operator that needs a whole dimension, and has the part of one rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from pitcheck.algebra.value import Value
from pitcheck.explain.diagnosis import Kind
from pitcheck.explain.rerun.changes import Held, Override, Read, held_at
from pitcheck.explain.rerun.site import Candidate, Site, groups_of_mesh, reads_itself
from pitcheck.graph.graph import Source
from pitcheck.graph.grids import Codes
from pitcheck.ops.registry import kinds_with
from pitcheck.ops.traits import Trait

PART_OF_DIMENSION = Kind(
    "PIT104",
    "operator {operator!r} ({kind}) takes what it computes along dimension {dim} of {called} over "
    "the part of one rank; over {over} each rank has another part",
    "take sums and maxima along dimension {dim} over {over}, too, or gather {called} before",
    ("kind", "over", "dim"),
    edits=(
        "- {operator!r} ({kind}) over a rank's part of dimension {dim}",
        "+ {operator!r} ({kind}) over the parts of all ranks over {over}",
    ),
)
ALONG = kinds_with(Trait.NORMALIZES)
"""Operators whose every result depends on all elements along a dimension, and that keep sizes."""


def whole_dimension(site: Site) -> Iterator[Candidate]:
    """Run an operator on what the ranks of a group have together, and take the rank's part."""
    if site.kind not in ALONG or not site.leads:
        return
    values = _operands(site)
    shape = site.rerun.shape(values[0]) if values else None
    if shape is None or shape != site.rerun.shape(site.value):
        return
    for over, groups in groups_of_mesh(site):
        for dim in range(len(shape)):
            overrides = _on_whole(site, values, groups, dim - len(shape))
            if overrides is not None and site.changes(overrides):
                facts = {"over": over, "dim": dim, "called": site.evidence.called(values[0])}
                yield site.diagnosis(PART_OF_DIMENSION, **facts), overrides


def _operands(site: Site) -> list[int]:
    """Return the values that a site reads; none if it reads what other ranks have."""
    found = []
    for place, source in enumerate(site.nodes[0].inputs):
        if isinstance(source, Source):
            if not reads_itself(site, place):
                return []
            found.append(source.value)
    return found


def _on_whole(site: Site, values: list[int], groups: Codes, dim: int) -> list[Override] | None:
    """Return by rank the part of what the operator gives for the operands of a whole group.

    ``groups``: by coordinate the members of its group in order, shape (codes, members). ``dim``:
    the dimension, counted from the last one, which is -1.
    """
    known = _gathered(site, values, groups, dim)
    node, codes = site.nodes[0], site.codes
    if known is None or len(site.nodes) > 1:
        return None
    given = site.rerun.reads(node, codes)
    results = site.rerun.evaluate(
        site.kind, site.rerun.attributes_of(node), given, len(codes), known
    )
    return None if not results or results[0] is None else _parts(site, results[0], groups, dim)


def _gathered(site: Site, values: list[int], groups: Codes, dim: int) -> Mapping[int, Held] | None:
    """Return the operands that have the dimension in the size of the first one, of all members."""
    rerun, codes, known = site.rerun, site.codes, dict[int, Held]()
    size = (rerun.shape(values[0]) or ())[dim]
    for value in values:
        shape = rerun.shape(value) or ()
        if len(shape) >= -dim and shape[dim] == size:
            reads = [Read(value, groups[codes])]
            whole = rerun.one("all_gather", {"axis": len(shape) + dim}, reads, len(codes))
            if whole is None:
                return None
            known[value] = held_at(whole, codes, rerun.graph.codes)
    return known


def _parts(site: Site, whole: Value, groups: Codes, dim: int) -> list[Override] | None:
    known = {site.value: held_at(whole, site.codes, site.rerun.graph.codes)}
    place = (groups == np.arange(len(groups))[:, None]).argmax(axis=1)
    found = []
    for own in np.unique(place[site.codes]).tolist():
        at = site.codes[place[site.codes] == own]
        attributes = {"axis": dim, "count": groups.shape[1], "position": own}
        parts = site.rerun.evaluate("chunk", attributes, [Read(site.value, at)], len(at), known)
        if parts is None or parts[0] is None:
            return None
        found.append(Override(site.value, at, parts[0]))
    return found
