"""A stage: parts of the reference and of the parallel plan between the same cuts.

A target says what must hold at its end. The whole pair of plans is one such stage too, cut at the
plans' initial tensors.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> stage = Problem.of(plan, plan).whole_stage()
>>> [target.name for target in stage.targets], len(stage.all_cuts())
(['y'], 2)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from pitcheck.errors import UnsupportedError
from pitcheck.graph.cuts import Cut
from pitcheck.graph.distinct import distinct
from pitcheck.graph.graph import Graph
from pitcheck.graph.grids import Codes, Grid, Home, Mask, far, focus, near
from pitcheck.stage.batch import Batch
from pitcheck.stage.run_batch import operator_at
from pitcheck.stage.sample_conditions import Sampling

CutOf = Callable[[int], Cut | None]
"""A function from a parallel value to the cut at which it is given, or None."""


@dataclass(frozen=True)
class Target:
    """A claim: ``cut`` holds at the coordinates ``where``, near the home of the parallel value.

    The terms of a partial cut are added over every group.
    """

    cut: Cut
    where: Mask
    home: Home
    name: str = ""

    @classmethod
    def at(cls, cut: Cut, where: Mask, graph: Graph, name: str = "") -> Target:
        """Return a target at the coordinates ``where`` of all, of a value of ``graph``."""
        home = graph.values[cut.value].home
        return cls(cut, near(where, home), home, name)

    @cached_property
    def codes(self) -> Codes:
        """Return the coordinate codes of ``where``."""
        return self.cut.lattice.codes(far(self.where, self.home, self.cut.lattice.shape, False))


@dataclass
class Stage:
    """Both sides of a stage.

    ``cuts`` maps every drawn parallel input to its cut; ``met`` also has those that only reach
    other parts of a buffer. ``sampling``: the axes of which it shows a few coordinates only.
    ``positive`` and ``nonnegative`` are the reference values at which it is cut that are known to
    be so for all inputs.
    """

    reference: Batch
    parallel: Batch
    cuts: dict[int, Cut]
    targets: tuple[Target, ...]
    met: Mapping[int, Cut]
    sampling: Sampling | None = None
    positive: frozenset[int] = frozenset()
    nonnegative: frozenset[int] = frozenset()

    def all_cuts(self) -> list[Cut]:
        """Return the cuts of inputs and targets, by which the two sides' dimensions are tied."""
        return [*self.cuts.values(), *(target.cut for target in self.targets)]

    @property
    def name(self) -> str:
        """Return the name of the first value that a stage compares."""
        target = self.targets[0]
        return target.name or self.parallel.graph.values[target.cut.value].name

    @property
    def ends_in(self) -> tuple[str, str]:
        """Return the parallel operator that makes this value, in words, and its line."""
        return self.parallel.graph.last_operator(self.targets[0].cut.value)

    def operator_at(self, site: str) -> str:
        """Return the operator of either side that a site names, in words."""
        side, batch = (
            ("reference ", self.reference)
            if site.startswith("reference ")
            else ("parallel ", self.parallel)
        )
        return operator_at(site, side, batch)

    def with_parallel(self, parallel: Batch, **changes: Any) -> Stage:
        """Return the stage with another parallel side and the cuts of its inputs.

        ``changes`` are other fields.
        """
        cuts = {value: cut for value, cut in self.cuts.items() if value in parallel.inputs}
        return replace(self, parallel=parallel, cuts=cuts, **changes)


def constant_mask(graph: Graph, value: int) -> Grid | None:
    """Return a boundary of one part for a tensor of known constant value, which is never drawn.

    Return None for any other value.
    """
    if graph.values[value].tensor.value is None or graph.values[value].writers:
        return None
    return np.zeros(graph.anywhere, dtype=np.int64)


def drawn_reference(stage: Stage) -> list[int]:
    """Return the reference values to draw: its own inputs, and those of parallel inputs."""
    given = [
        value
        for value in stage.reference.inputs
        if constant_mask(stage.reference.graph, value) is None
    ]
    return list(dict.fromkeys([*given, *(cut.reference for cut in stage.cuts.values())]))


def compared_rows(target: Target, parallel: Batch) -> tuple[Codes, Codes, Codes]:
    """Return the distinct rows of a target and the parts they must hold.

    Returns:
        The pairs (row, part), shape (2, n); no rows; a code of each. For a partial cut: the part of
        every sum, shape (1, n); the rows of its terms, shape (n, terms); a code of its first term.

    Raises:
        UnsupportedError: a group lacks a term. Nothing may be compared then.
    """
    cut = target.cut
    grids = [parallel.grids[cut.value], cut.grid, *([] if cut.groups is None else [cut.groups])]
    places = focus(target.where)
    where, *found = np.broadcast_arrays(
        near(target.where, places), *(near(near(grid, target.home), places) for grid in grids)
    )
    rows, parts = found[0][where], found[1][where]
    if cut.groups is None:
        pairs, _ = distinct(rows * len(cut.parts) + parts)
        return (
            np.stack([rows[pairs], parts[pairs]]),
            np.zeros((0, 0), dtype=np.int64),
            _codes_at(target, places, where, pairs),
        )
    order = by_group(target, parts, found[2][where])
    sums = rows[order]
    _, firsts = np.unique(sums, axis=0, return_index=True)
    firsts = np.sort(firsts)
    leading = order[firsts, 0]
    return parts[leading][None, :], sums[firsts], _codes_at(target, places, where, leading)


def by_group(target: Target, parts: Codes, groups: Codes) -> Codes:
    """Return the places of the terms of every sum, shape (sums, terms), ordered by group.

    ``parts`` and ``groups`` are by place, shape (places,).

    Raises:
        UnsupportedError: a group lacks a term.
    """
    terms, expected = target.cut.parts.term[parts], int(target.cut.parts.terms.max(initial=1))
    order = np.lexsort((terms, groups))
    counts = np.unique(groups, return_counts=True)[1]
    whole = counts == expected
    if not whole.all() or (terms[order].reshape(-1, expected) != np.arange(expected)).any():
        raise UnsupportedError(
            f"{target.name}: a sum has "
            f"{int(counts[~whole][0]) if not whole.all() else 'some twice'} of its {expected} terms"
        )
    return order.reshape(-1, expected)


def _codes_at(target: Target, places: Home, where: Mask, chosen: Codes) -> Codes:
    """Return the coordinate codes of some of the coordinates of a mask.

    The mask is near ``places`` and the target's home.
    """
    coordinates = [column[chosen] for column in np.nonzero(where)]
    for axis, place in (*target.home, *places):
        coordinates[axis] = np.full(len(chosen), place, dtype=np.int64)
    codes: Codes = np.ravel_multi_index(tuple(coordinates), target.cut.lattice.shape).astype(
        np.int64
    )
    return codes
