"""A stage with the coordinates alone that must be evaluated: along one dimension after the other, alike segments are represented by a few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.axis_classes import AxisSystem
from pitcheck.algebra.size_choice import LEAST, Sizes
from pitcheck.errors import UnsupportedError
from pitcheck.ops.axis_templates import Templates
from pitcheck.stages.cuts import Cut, present_parts
from pitcheck.stages.grids import Codes
from pitcheck.stages.pair import Stage, compared_rows
from pitcheck.stages.prune import pruned_to
from pitcheck.stages.shapes import SymbolicPair, symbolic_pair
from pitcheck.stages.reductions.sums import find_sum, with_fewer_terms
from pitcheck.stages.reductions.symmetry import Symmetry, find_symmetry


def reduced(stage: Stage, symbolic: SymbolicPair, templates: Templates | None, variant: int, least: int = LEAST) -> tuple[Stage, SymbolicPair, Sizes]:
    """The stage with one coordinate, along one dimension 1 + ``variant``, of every class of alike ones, and its sizes, of at least ``least`` elements a unit.

    Raises UnsupportedError where a stage that shows a few coordinates does not stand for all.
    """
    found: list[Symmetry] = []
    while True:
        # More than one are kept along one dimension alone: what is kept along several would be multiplied.
        fewer, symmetry = _once(stage, symbolic, templates, 1 if found else 1 + variant, [own.carrier for own in found])
        if symmetry is None:
            break
        stage, symbolic = fewer, symbolic_pair(fewer.reference, fewer.parallel, fewer.all_cuts(), templates)
        found.append(symmetry)
    sampling = stage.sampling
    if sampling is not None and (sampling.differing(cut.grid for cut in stage.all_cuts()) or sampling.crossed(stage.parallel)):
        raise UnsupportedError("a few coordinates do not stand for all")
    # Where places within a segment meet, as tokens do that are counted, few of them leave decisions one-sided for many draws.
    carriers = [symbolic.reference.values[value].dims[dim] for value, dim in (symmetry.carrier for symmetry in found)]
    sizes = symbolic.system.solve(variant, [node for node in carriers if not symbolic.system.is_batch(node)], least)
    for symmetry in found:
        sizes = RestrictedSizes(sizes, symbolic.system, symmetry, stage, symbolic)
    return stage, symbolic, sizes


def _once(stage: Stage, symbolic: SymbolicPair, templates: Templates | None, keep: int, before: Sequence[tuple[int, int]]) -> tuple[Stage, Symmetry | None]:
    """The stage with fewer coordinates along one dimension, other than those of ``before``; (the stage itself, None) where there is none left that is
    worthwhile.
    """
    done = {symbolic.system.number_of(symbolic.reference.values[value].dims[dim]) for value, dim in before}
    symmetry = find_symmetry(stage, symbolic, keep, templates, done)
    if symmetry is not None:
        return _restricted(stage, symmetry), symmetry
    added = find_sum(stage, symbolic, templates, keep, done)
    return (stage, None) if added is None else (with_fewer_terms(stage, added), added.symmetry)


def _restricted(stage: Stage, symmetry: Symmetry) -> Stage:
    """The stage for the kept coordinates alone. What is proven of them holds for those that a stage of a few coordinates does not show, too."""
    target = replace(stage.targets[0], where=symmetry.where)
    rows = compared_rows(target, stage.parallel)[0][0]
    parallel = pruned_to(stage.parallel, {target.cut.value: rows})
    return replace(stage, parallel=parallel, cuts={own: cut for own, cut in stage.cuts.items() if own in parallel.inputs}, targets=(target,), sampling=None)


class RestrictedSizes(Sizes):
    """Sizes in which the batch dimension keeps only the segments that the kept coordinates use."""

    def __init__(self, base: Sizes, system: AxisSystem, symmetry: Symmetry, stage: Stage, symbolic: SymbolicPair) -> None:
        super().__init__(system, {})
        self._base = base
        self._symmetry = symmetry
        value, dim = symmetry.carrier
        self._root = system.number_of(symbolic.reference.values[value].dims[dim])
        self._kept = _used_segments(stage, symbolic, symmetry, self._root)

    def size(self, node: Any) -> int:
        """Reduced size of a dimension."""
        if self._system.number_of(node) == self._root and node.size == self._symmetry.total:
            return len(self._kept) * (self._base.size(node) // (self._symmetry.total // self._symmetry.segment))
        return self._base.size(node)

    def position(self, node: Any, offset: int) -> int:
        """Reduced position of an offset along a dimension."""
        if self._system.number_of(node) != self._root:
            return self._base.position(node, offset)
        below = int(np.searchsorted(self._kept, offset // self._symmetry.segment))
        return below * (self._base.position(node, self._symmetry.segment))

    def unit(self, number: int) -> int | None:
        """The elements of a unit of a class."""
        return self._base.unit(number)

    @property
    def identity(self) -> bool:
        """Never: some coordinates are left out."""
        return False

    def full_position(self, node: Any, offset: int) -> int | None:
        """Places along the batch dimension are not those of the whole plan; others are as they were."""
        return None if self._system.number_of(node) == self._root else self._base.full_position(node, offset)

    def below(self, node: Any, bound: int) -> int:
        """How many places below a bound are left; a batch dimension is not indexed by values."""
        return self._base.below(node, bound)

    def describe(self) -> list[str]:
        """What was reduced, in sentences."""
        own = self._symmetry
        told = f"{own.members} {own.what} in {own.classes} classes of equal cones, {own.kept} kept ({own.rule})"
        return [*self._base.describe(), told]


def _used_segments(stage: Stage, symbolic: SymbolicPair, symmetry: Symmetry, root: int) -> NDArray[np.int64]:
    used: set[int] = set()
    chosen: list[tuple[Cut, Codes]] = [(cut, stage.parallel.inputs[value]) for value, cut in stage.cuts.items()]
    chosen += [(t.cut, present_parts(t.cut, t.where, t.home)) for t in stage.targets]
    for cut, numbers in chosen:
        for dim, node in enumerate(symbolic.reference.values[cut.reference].dims):
            begins = cut.parts.begins(dim)
            if symbolic.system.number_of(node) == root and begins is not None:
                used.update((begins[numbers] // symmetry.segment).tolist())
    return np.array(sorted(used), dtype=np.int64)
