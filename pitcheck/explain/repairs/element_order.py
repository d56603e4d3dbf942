"""Repairs of where elements lie: side by side, exchanged, or in another order."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import combinations, pairwise

import numpy as np

from pitcheck.algebra.value import Value
from pitcheck.claims.real_numbers import Floats
from pitcheck.explain.diagnosis import Kind
from pitcheck.explain.evidence import SAME
from pitcheck.explain.families import JOINS, WHOLE_REDUCTIONS
from pitcheck.explain.observations.parts import holds_other_part
from pitcheck.explain.repairs.functions import called
from pitcheck.explain.rerun.changes import Draft, Override, Read
from pitcheck.explain.rerun.site import Candidate, Site
from pitcheck.graph.cuts import Cut
from pitcheck.graph.graph import Node, Source
from pitcheck.graph.grids import Codes

ADDED_SIDE_BY_SIDE = Kind(
    "PIT111",
    "operator {operator!r} reduces what its ranks have, element by element, where all of it "
    "should stand side by side",
    "an all-gather along dimension {axis} in its place",
    ("axis",),
    edits=(
        "- {operator!r} ({kind})",
        "+ all-gather along dimension {axis} in its place",
    ),
)
PARTS_EXCHANGED = Kind(
    "PIT107",
    "operator {operator!r} ({kind}) joins its parts in another order: {parts} are exchanged",
    "exchange parts {first} and {second} of {operator!r}",
    ("first", "second"),
    edits=(
        "- {operator!r} ({kind}) joins {parts}",
        "+ {operator!r} ({kind}) joins {exchanged}",
    ),
)
REORDERED = Kind(
    "PIT107",
    "{result!r}, of operator {operator!r}, has the right elements in another order{over}{element}",
    "put the elements of {result!r} in the right order",
    edits=(
        "- {result!r}: elements in another order",
        "+ {result!r}: elements in the right order",
    ),
)


FEW_PARTS = 4
"""Number of parts up to which any two may be exchanged."""


def side_by_side(site: Site) -> Iterator[Candidate]:
    """Put side by side what the ranks hold, in place of reducing it."""
    if site.kind not in WHOLE_REDUCTIONS:
        return
    source, shape = site.nodes[0].inputs[0], site.rerun.shape(site.value)
    if shape is None or len(site.nodes) != 1 or not isinstance(source, Source):
        return
    for axis in range(len(shape)):
        result = site.rerun.one(
            "all_gather",
            {"axis": axis},
            [Read(source.value, source.at(site.codes))],
            len(site.codes),
        )
        if result is not None:
            yield (
                site.diagnosis(ADDED_SIDE_BY_SIDE, axis=axis),
                [Override(site.value, site.codes, result)],
            )


def exchanged_parts(site: Site) -> Iterator[Candidate]:
    """Exchange two parts of a join: any two of few, else neighbours."""
    count = len(site.step.inputs)
    if site.kind not in JOINS:
        return
    for first, second in (
        combinations(range(count), 2) if count <= FEW_PARTS else pairwise(range(count))
    ):
        overrides = site.redone(partial(_exchanged, site, first, second))
        if overrides is not None:
            names = [called(site, place) for place in (first, second)]
            facts = {
                "parts": " and ".join(names),
                "exchanged": " and ".join(reversed(names)),
                "first": first,
                "second": second,
            }
            yield site.diagnosis(PARTS_EXCHANGED, **facts), overrides


def _exchanged(site: Site, first: int, second: int, node: Node, codes: Codes) -> Draft | None:
    given = site.rerun.reads(node, codes)
    if len(given) <= second:
        return None
    given[first], given[second] = given[second], given[first]
    return node.kind, site.rerun.attributes_of(node), given


def reordered(site: Site) -> Iterator[Candidate]:
    """Put the right elements in order, on each rank or among the ranks of a group."""
    known = site.rerun.due.get(site.value)
    actual = site.rerun.data(site.value)
    if (
        known is None
        or known.sums is not None
        or actual is None
        or len(site.rerun.codes(site.value)) != len(known.codes)
        or actual.shape != known.data.shape
    ):
        return
    over = _moved(site, known.codes, actual, known.data)
    if over is None:
        return
    overrides = [Override(site.value, known.codes, Value("field", known.data[None]))]
    if site.changes(overrides):
        element = _other_part(site, known.cut) or _first_elsewhere(known.data, actual)
        yield site.diagnosis(REORDERED, over=over, element=element), overrides


def _moved(site: Site, codes: Codes, actual: Floats, due: Floats) -> str | None:
    """Return where the elements moved; None if they are not the same ones."""
    if _same_elements(actual, due, np.arange(len(codes))[:, None]):
        return ""
    place = {int(code): n for n, code in enumerate(codes)}
    for grouping in site.evidence.groupings:
        rows = [
            [place[int(code)] for code in row]
            for row in grouping.table
            if all(int(code) in place for code in row)
        ]
        if (
            rows
            and len(rows) * len(rows[0]) == len(codes)
            and _same_elements(actual, due, np.array(rows))
        ):
            return f" over {grouping.name}"
    return None


def _same_elements(actual: Floats, due: Floats, rows: Codes) -> bool:
    """Return True if every group of rows has the same elements in all trials, in any order.

    Elements that are equal in one trial are told apart by the others.
    """
    for row in rows:
        pair = [array[:, row].reshape(len(array), -1) for array in (actual, due)]
        one, other = (elements[:, np.lexsort(np.round(elements, 9)[::-1])] for elements in pair)
        if not np.allclose(one, other, rtol=SAME, atol=SAME):
            return False
    return True


def _other_part(site: Site, due: Cut) -> str:
    """Return as text the part that a rank holds and the one it should hold; "" if unknown."""
    found = holds_other_part(site.evidence, site.value, due)
    said = ": it holds {held} of {right!r} where it should hold {box}"
    return "" if found is None else said.format(**found.facts)


def _first_elsewhere(due: Floats, actual: Floats) -> str:
    """Return as text an element that lies elsewhere on its own rank; "" if there is none."""
    wrong = np.argwhere(~np.isclose(actual[0], due[0], rtol=SAME, atol=0.0))
    for place in wrong[:1]:
        code, element = int(place[0]), tuple(int(i) for i in place[1:])
        wanted = (
            due[:, code].reshape(len(due), -1)[:, np.ravel_multi_index(element, due.shape[2:])]
            if element
            else due[:, code]
        )
        there = np.argwhere(
            np.isclose(actual[:, code], wanted.reshape(-1, *[1] * (due.ndim - 2)), rtol=SAME).all(
                axis=0
            )
        )
        if len(there) == 1:
            return f": what should be at {list(element)} is at {there[0].tolist()}"
    return ""
