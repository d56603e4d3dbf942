"""The sizes of a stage's dimensions.

They are reduced; a batch dimension has only the segments that the kept coordinates use.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("exp", [(64, 512)], (64, 512))
>>> stage = Problem.of(plan, plan).whole_stage()
>>> full = Measured(stage, symbolic_pair(stage.reference, stage.parallel, stage.all_cuts()))
>>> full.sizes.identity, ReduceSizes().apply(full, Context()).sizes.identity
(True, False)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.dimensions.axis_classes import AxisSystem
from pitcheck.algebra.dimensions.size_choice import Sizes
from pitcheck.graph.cuts import Cut, present_parts
from pitcheck.graph.grids import Codes
from pitcheck.ops.axis_templates import Templates
from pitcheck.stage.reductions.protocol import Context, Phase
from pitcheck.stage.reductions.symmetry import Symmetry
from pitcheck.stage.shapes import SymbolicPair, symbolic_pair
from pitcheck.stage.stage import Stage


@dataclass(frozen=True)
class Measured:
    """A stage whose dimensions are known.

    ``kept``: the dimensions along which it has a few coordinates or terms. ``base``: the sizes
    without regard to that.
    """

    stage: Stage
    symbolic: SymbolicPair
    kept: tuple[Symmetry, ...] = ()
    base: Sizes | None = None
    """None for full sizes."""

    @cached_property
    def sizes(self) -> Sizes:
        """Return the size of every dimension."""
        sizes = self.symbolic.system.full() if self.base is None else self.base
        for symmetry in self.kept:
            sizes = RestrictedSizes(
                sizes, self.symbolic.system, symmetry, self.stage, self.symbolic
            )
        return sizes

    def done(self) -> set[int]:
        """Return the classes of dimensions of which a few coordinates are left."""
        nodes = (
            self.symbolic.reference.values[value].dims[dim]
            for value, dim in (symmetry.carrier for symmetry in self.kept)
        )
        return {self.symbolic.system.number_of(node) for node in nodes}

    def left(self, stage: Stage, symmetry: Symmetry, templates: Templates | None) -> Measured:
        """Return what a reduction leaves: ``stage``, with the coordinates of ``symmetry``."""
        return Measured(
            stage,
            symbolic_pair(stage.reference, stage.parallel, stage.all_cuts(), templates),
            (*self.kept, symmetry),
        )


class ReduceSizes:
    """The reduction of every dimension that no operator measures to a few elements per segment.

    Why it decides: operators are functions of the dimensions that they mix, and of no number of
    elements but those that keep their size, so both sides are the same expressions at every size.
    Of a value with several axes of one class an element has a place on each, and all may differ.
    That a sum has few places is dealt with by weights, and by larger sizes
    (:mod:`pitcheck.algebra.residues.weights`). It assumes that no coordinate is left out after it:
    the segments of its dimensions would be others.
    """

    name = "reduce sizes"
    phase = Phase.SIZES
    refutes = True

    def apply(self, subject: Measured, context: Context) -> Measured:
        """Return the stage at the ``variant``-th set of reduced sizes."""
        symbolic = subject.symbolic
        # If places within a segment meet, as tokens that are counted do, a few of them leave
        # decisions one-sided for many draws.
        carriers = [
            symbolic.reference.values[value].dims[dim]
            for value, dim in (symmetry.carrier for symmetry in subject.kept)
        ]
        roomy = [node for node in carriers if not symbolic.system.is_batch(node)]
        needed = {
            number: max(few, context.needed.get(number, 0))
            for number, few in symbolic.axes_together().items()
        }
        base = symbolic.system.solve(
            context.variant, roomy, context.least, {**context.needed, **needed}, context.avoided
        )
        return replace(subject, base=base)


class RestrictedSizes(Sizes):
    """Sizes in which the batch dimension keeps only the segments that kept coordinates use."""

    def __init__(
        self,
        base: Sizes,
        system: AxisSystem,
        symmetry: Symmetry,
        stage: Stage,
        symbolic: SymbolicPair,
    ) -> None:
        super().__init__(system, {})
        self._base = base
        self._symmetry = symmetry
        value, dim = symmetry.carrier
        self._root = system.number_of(symbolic.reference.values[value].dims[dim])
        self._kept = _used_segments(stage, symbolic, symmetry, self._root)

    def size(self, node: Any) -> int:
        """Return the reduced size of a dimension."""
        if self._system.number_of(node) == self._root and node.size == self._symmetry.total:
            return len(self._kept) * (
                self._base.size(node) // (self._symmetry.total // self._symmetry.segment)
            )
        own = self._system.class_of(node)
        if own.inner is not None:
            return self.size(own.outer[node]) * self.size(own.inner)
        return self._base.size(node)

    def position(self, node: Any, offset: int) -> int:
        """Return the reduced position of an offset along a dimension."""
        if self._system.number_of(node) != self._root:
            return self._base.position(node, offset)
        below = int(np.searchsorted(self._kept, offset // self._symmetry.segment))
        return below * (self._base.position(node, self._symmetry.segment))

    def unit(self, number: int) -> int | None:
        """Return the elements of a unit of a class."""
        return self._base.unit(number)

    @property
    def identity(self) -> bool:
        """Return False: some coordinates are left out."""
        return False

    def full_position(self, node: Any, offset: int) -> int | None:
        """Return the full place of a reduced one; None along the batch dimension."""
        return (
            None
            if self._system.number_of(node) == self._root
            else self._base.full_position(node, offset)
        )

    def below(self, node: Any, bound: int) -> int:
        """Return how many places below a bound are left; values do not index a batch dimension."""
        return self._base.below(node, bound)

    def describe(self) -> list[str]:
        """Return what was reduced, in sentences."""
        own = self._symmetry
        told = (
            f"{own.members} {own.what} in {own.classes} classes of equal cones, {own.kept} "
            f"kept ({own.rule})"
        )
        return [*self._base.describe(), told]


def _used_segments(
    stage: Stage, symbolic: SymbolicPair, symmetry: Symmetry, root: int
) -> NDArray[np.int64]:
    """Return the segments of the dimension that cuts and targets use, ascending."""
    used: set[int] = set()
    chosen: list[tuple[Cut, Codes]] = [
        (cut, stage.parallel.inputs[value]) for value, cut in stage.cuts.items()
    ]
    chosen += [(t.cut, present_parts(t.cut, t.where, t.home)) for t in stage.targets]
    for cut, numbers in chosen:
        for dim, node in enumerate(symbolic.reference.values[cut.reference].dims):
            begins = cut.parts.begins(dim)
            if symbolic.system.number_of(node) == root and begins is not None:
                used.update((begins[numbers] // symmetry.segment).tolist())
    return np.array(sorted(used), dtype=np.int64)
