"""Repairs of attributes: another dimension, mode or place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, permutations
from typing import Any

import numpy as np

from pitcheck.explain.diagnosis import Kind
from pitcheck.explain.observations.operators import SIZES
from pitcheck.explain.rerun.changes import Change, Draft, Redo
from pitcheck.explain.rerun.site import Candidate, Site
from pitcheck.graph.graph import Node
from pitcheck.graph.grids import Codes
from pitcheck.ops.registry import operator_kind

ATTRIBUTE = Kind(
    "PIT102",
    "operator {operator!r} has {different}",
    "use {right}",
    ("right",),
    edits=(
        "- {operator!r} ({kind}): {own}",
        "+ {operator!r} ({kind}): {right}",
    ),
)
OTHER_DIMENSION = Kind(
    "PIT107",
    ATTRIBUTE.said,
    ATTRIBUTE.repair,
    ("right",),
    edits=ATTRIBUTE.edits,
)
"""Elements go along another dimension, and the result has another shape."""
DRAW_ATTRIBUTE = Kind(
    "PIT114",
    "operator {operator!r} has {different}",
    "use {right}",
    ("right",),
    edits=ATTRIBUTE.edits,
)
OTHER_PLACE = Kind(
    "PIT107",
    "operator {operator!r} has {attribute} = {place} on rank {rank} where it should be {right} "
    "({why})",
    "use {attribute} = {right} there",
    ("attribute", "right"),
    edits=(
        "- {operator!r} ({kind}) on rank {rank}: {attribute} = {place}",
        "+ {operator!r} ({kind}) on rank {rank}: {attribute} = {right}",
    ),
)
AXES = frozenset({"axis", "dim0", "dim1", "split_axis", "concat_axis", "permutation"})
"""Attributes that are numbers of dimensions."""
MOST_STEPS = 8
"""Reference steps of one kind that an operator is compared with; four times as many are looked at.
"""
MOST_ORDERS = 24
"""Permutations of dimensions that are tried."""
MOST_LITERALS = 8
"""Sets of attributes that are tried."""


def other_attribute(site: Site) -> Iterator[Candidate]:
    """Use attributes of the reference's operators of that kind, and other dimensions."""
    run = site.evidence.run
    own = site.attributes
    tried: list[dict[str, Any]] = []
    shaped = run.shaped.attributes[0]
    numbers = [n for n, step in enumerate(run.stage.reference.steps) if step.kind == site.kind]
    for number in numbers[: 4 * MOST_STEPS]:
        different = {k: v for k, v in shaped[number].items() if k not in SIZES and own.get(k) != v}
        if different and different not in tried and len(tried) < MOST_LITERALS:
            tried.append(different)
    theirs = len(tried)
    tried.extend(
        {k: other}
        for k, v in own.items()
        if k in AXES and isinstance(v, int)
        for other in range(3)
        if other != v
    )
    tried.extend(
        {k: order}
        for k, v in own.items()
        if k == "permutation" and isinstance(v, tuple)
        for order in islice(permutations(v), MOST_ORDERS)
        if order != v
    )
    for place, different in enumerate(tried):
        draft = partial(site.as_given, **different)
        of = DRAW_ATTRIBUTE if operator_kind(site.kind).random else ATTRIBUTE
        changes: Sequence[Change] | None = site.redone(draft)
        if changes is None and not AXES.isdisjoint(different):
            of, changes = OTHER_DIMENSION, [Redo(number, draft) for number in site.numbers]
        if changes is not None:
            due = "the reference has" if place < theirs else "it should be"
            said = ", ".join(f"{k} = {own.get(k)} where {due} {v}" for k, v in different.items())
            right = ", ".join(f"{k} = {v}" for k, v in different.items())
            now = ", ".join(f"{k} = {own.get(k)}" for k in different)
            yield site.diagnosis(of, different=said, own=now, right=right), changes


def other_places(site: Site) -> Iterator[Candidate]:
    """Take parts that begin elsewhere: in the order of the ranks, or one element off."""
    for name in ("position", "offset", "index", "start"):
        if (
            not all(
                isinstance(site.rerun.attributes_of(node).get(name), int) for node in site.nodes
            )
            or site.collective
        ):
            continue
        for table, said in _place_tables(site, name):

            def at(
                node: Node, codes: Codes, table: Codes = table, name: str = name
            ) -> Draft | None:
                own, place = site.rerun.attributes_of(node), int(table[codes[0]])
                moved = {name: place}
                if name == "start" and isinstance(own.get("stop"), int):
                    moved["stop"] = int(own["stop"]) - int(own["start"]) + place
                return site.as_given(node, codes, **moved) if place >= 0 else None

            overrides = site.redone(at, table)
            if overrides is not None:
                first = next(
                    (c for c in site.codes.tolist() if _place_of(site, name, c) != table[c]),
                    int(site.codes[0]),
                )
                was, right = _in_full(site, name, first, int(table[first]))
                rank = first // site.rerun.graph.coordinates.microbatches
                facts = {"attribute": name, "place": was, "rank": rank, "right": right, "why": said}
                yield site.diagnosis(OTHER_PLACE, **facts), overrides


def _node_at(site: Site, code: int) -> Node:
    return next(node for node in site.nodes if node.mask[code])


def _place_of(site: Site, name: str, code: int) -> int:
    return int(site.rerun.attributes_of(_node_at(site, code))[name])


def _in_full(site: Site, name: str, code: int, place: int) -> tuple[int, int]:
    """Return the place that the plan states at a coordinate, and ``place``, both at full sizes."""
    node = _node_at(site, code)
    stated, reduced = int(node.attributes[name]), _place_of(site, name, code)
    length = _length(site.rerun.attributes_of(node), site.rerun.shape(site.value) or ())
    full = _length(node.attributes, site.rerun.graph.values[site.value].shape)
    if length and place % length == 0:
        return stated, place // length * full
    return stated, stated + place - reduced


def _length(attributes: Mapping[str, Any], shape: tuple[int, ...]) -> int:
    """Return the length of the part that a result with attributes is; 0 if that is unknown."""
    start, stop, axis = (attributes.get(name) for name in ("start", "stop", "axis"))
    if isinstance(start, int) and isinstance(stop, int):
        return stop - start
    return shape[axis] if isinstance(axis, int) and axis < len(shape) else 0


def _place_tables(site: Site, name: str) -> Iterator[tuple[Codes, str]]:
    """Yield by coordinate other places, with the reason as text."""
    own = np.full(site.rerun.graph.codes, -1, dtype=np.int64)
    for node in site.nodes:
        own[node.mask] = int(site.rerun.attributes_of(node)[name])
    step = int(np.diff(np.unique(own[site.codes])).min(initial=1 << 40))
    length = _length(site.attributes, site.rerun.shape(site.value) or ())
    widths = list(
        dict.fromkeys([*([length] if length else []), *([step] if step < 1 << 40 else []), 1])
    )
    for grouping in site.evidence.groupings:
        if grouping.axes:
            place = np.full(len(own), -1, dtype=np.int64)
            for row in np.sort(grouping.table, axis=1):
                place[row] = np.arange(len(row))
            for each in widths:
                yield (
                    np.where(place >= 0, place * each, -1),
                    f"the parts lie in the order of {grouping.name}",
                )
    for more in (-1, 1):
        yield np.where(own >= 0, own + more, -1), "one element off"
        yield np.where(own > 0, own + more, own), "one element off"
