"""Repairs of where elements lie: side by side where they are added up, or all of them in another
order.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import combinations, pairwise

import numpy as np

from pitcheck.algebra.value import Value
from pitcheck.claims.conjecture import Floats
from pitcheck.explain import messages
from pitcheck.explain.evidence import SAME
from pitcheck.explain.repairs.functions import called
from pitcheck.explain.rerun import Draft, Override, Read
from pitcheck.explain.site import Candidate, Site
from pitcheck.graph.graph import Node, Source
from pitcheck.graph.grids import Codes

JOINED = frozenset({"cat", "stack"})
FEW_PARTS = 4
"""Of so many parts any two may be exchanged."""


def side_by_side(site: Site) -> Iterator[Candidate]:
    """What ranks have, put side by side where it is reduced."""
    if site.kind != "all_reduce":
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
                site.diagnosis(messages.ADDED_SIDE_BY_SIDE, axis=axis),
                [Override(site.value, site.codes, result)],
            )


def exchanged_parts(site: Site) -> Iterator[Candidate]:
    """Two parts of what is joined, the other way round: any two of few, else neighbours."""
    count = len(site.step.inputs)
    if site.kind not in JOINED:
        return
    for first, second in (
        combinations(range(count), 2) if count <= FEW_PARTS else pairwise(range(count))
    ):
        overrides = site.redone(partial(_exchanged, site, first, second))
        if overrides is not None:
            parts = " and ".join(called(site, place) for place in (first, second))
            yield (
                site.diagnosis(messages.PARTS_EXCHANGED, parts=parts, first=first, second=second),
                overrides,
            )


def _exchanged(site: Site, first: int, second: int, node: Node, codes: Codes) -> Draft | None:
    given = site.rerun.reads(node, codes)
    if len(given) <= second:
        return None
    given[first], given[second] = given[second], given[first]
    return node.kind, site.rerun.attributes_of(node), given


def reordered(site: Site) -> Iterator[Candidate]:
    """The elements that are due, in another order: on each rank, or among the ranks of a group."""
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
    data = Value("field", known.data[None])
    element = _first_elsewhere(known.data, actual)
    overrides = [Override(site.value, known.codes, data)]
    if site.changes(overrides):
        yield site.diagnosis(messages.REORDERED, over=over, element=element), overrides


def _moved(site: Site, codes: Codes, actual: Floats, due: Floats) -> str | None:
    """Where the elements moved; None where they are not the same ones."""
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
    """Whether every group of rows has the same elements, in any order, in all trials; elements that
    are alike in a trial are told apart by the others.
    """
    for row in rows:
        pair = [array[:, row].reshape(len(array), -1) for array in (actual, due)]
        one, other = (elements[:, np.lexsort(np.round(elements, 9)[::-1])] for elements in pair)
        if not np.allclose(one, other, rtol=SAME, atol=SAME):
            return False
    return True


def _first_elsewhere(due: Floats, actual: Floats) -> str:
    """An element that lies elsewhere on its own rank."""
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
