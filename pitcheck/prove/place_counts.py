"""How many places along each reduced axis show a stage for every number of them.

Both sides are polynomials in the weights of places (:mod:`pitcheck.algebra.residues.weights`). Let
their difference have the degree *d* in the weights of one class, and let *k* places be singled out
by an element that is compared. If it vanishes at *d* + *k* places, it vanishes at every larger
number of them. ``docs/mathematics.md`` has the proof, and what it asks for.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> from pitcheck.stage.reductions.protocol import Context
>>> from pitcheck.stage.reductions.weigh_places import WeighPlaces
>>> from pitcheck.stage.shaped_stage import shape_reduced
>>> plan = one_operator("rms_norm", [(64, 512), (512,)], (64, 512), eps="1/10")
>>> shaped = WeighPlaces().apply(shape_reduced(Problem.of(plan, plan).whole_stage()), Context())
>>> sorted(PlaceCounts.of(shaped).needed.values())
[2, 3]
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pitcheck.algebra.bound.place_degrees import PlaceDegreeAlgebra
from pitcheck.algebra.dimensions.scaling_class import ScalingClass
from pitcheck.algebra.residues.weights import ONES
from pitcheck.prove.stage_degrees import drawn_degrees
from pitcheck.stage.evaluate import evaluate_stage
from pitcheck.stage.shaped_stage import ShapedStage

MOST_PLACES = 24
"""The places of a unit up to which they are taken for a proof that holds at every size."""
GROWS = "quotients are added up, and the number of their divisors grows with the sizes"
UNWEIGHTED = "integers, or terms at indices, are added up along an axis without weights"
PERMUTED = "places along an axis change their order"
INDEXED = "integers are places along an axis"
CLASHING = "axes of one reduced size cannot be told apart"
ORDERED = "what functions are taken of depends on the order of places along an axis"
FEW = "more places would be needed than are tried"


@dataclass(frozen=True)
class PlaceCounts:
    """The numbers of places of a stage with weights.

    ``needed``: the least number of elements of a unit, by the number of its class. ``settled``: the
    classes for which so many show every larger number.
    """

    needed: Mapping[int, int]
    settled: frozenset[int]

    @classmethod
    def of(cls, shaped: ShapedStage) -> PlaceCounts:
        """Return the numbers of places of a stage whose axes have weights. Raises StepError.

        All classes are looked at together first. A class whose degrees grow with the size of
        another is settled after that one, at whose reduced size they are counted.
        """
        numbers = {number for pattern in shaped.weights.values() for number, _, _ in pattern} - {
            ONES
        }
        ordered = {number: own.ordered for number, own in shaped.sizes.system.classes()}
        fewest = min((shaped.sizes.unit(number) or 0 for number in numbers), default=0)
        together = _degrees(shaped, numbers)
        if (
            together.needed <= fewest
            and not together.grows
            and not (together.in_functions and any(ordered[number] for number in numbers))
        ):
            return cls(dict.fromkeys(numbers, together.needed), frozenset(numbers))
        exact = {number: _degrees(shaped, {number}) for number in sorted(numbers)}
        bounded = {
            number
            for number, degrees in exact.items()
            if degrees.needed <= MOST_PLACES and not (degrees.in_functions and ordered[number])
        }
        settled: set[int] = set()
        while more := {n for n in bounded - settled if exact[n].grows <= settled}:
            settled |= more
        needed = {
            number: degrees.needed
            if number in settled
            else _likely(_degrees(shaped, {number}, apart=True), ordered=ordered[number])
            for number, degrees in exact.items()
        }
        return cls(needed, frozenset(settled))

    def lacking(self, shaped: ShapedStage) -> dict[int, int]:
        """Return the classes with fewer places than are needed, each with the needed number."""
        return {
            number: few
            for number, few in self.needed.items()
            if (shaped.sizes.unit(number) or few) < few
        }

    def limit(self, shaped: ShapedStage) -> str:
        """Return why a proof of the stage does not hold at every size; "" if it does."""
        return next(
            (
                reason
                for number, own in shaped.sizes.system.classes()
                if shaped.sizes.unit(number) is not None
                and (own.mixed or own.factor or own.permuted)
                and (reason := self._limit_of(number, own, shaped))
            ),
            "",
        )

    def _limit_of(self, number: int, own: ScalingClass, shaped: ShapedStage) -> str:
        if own.permuted:
            return PERMUTED
        if own.indexed:
            return INDEXED
        if own.unweighted:
            return UNWEIGHTED
        if number not in self.needed:
            return CLASHING
        if number not in self.settled:
            return ORDERED if own.ordered else GROWS
        return FEW if number in self.lacking(shaped) else ""


def _likely(degrees: PlaceDegreeAlgebra, *, ordered: bool) -> int:
    """Return a number of places that leaves no simple mistake unseen, where none is known to do.

    If their order matters, two arguments of a function may differ by a place before, between or
    behind those that are compared.
    """
    needed = degrees.needed
    if ordered:
        needed += (needed + 1) * degrees.in_functions
    return min(needed, MOST_PLACES)


def _degrees(
    shaped: ShapedStage, numbers: Collection[int], *, apart: bool = False
) -> PlaceDegreeAlgebra:
    """Return the degrees of a stage in the weights of classes."""
    algebra = PlaceDegreeAlgebra(numbers, shaped.weights, apart=apart)
    values = evaluate_stage(shaped, algebra, drawn_degrees(algebra, shaped))
    for target in shaped.stage.targets:
        algebra.compare_targets(
            values.parallel[target.cut.value], values.reference[target.cut.reference]
        )
    return algebra
