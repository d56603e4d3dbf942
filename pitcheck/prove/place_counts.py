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
[2, 4]
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pitcheck.algebra.bound.place_degrees import LikelyPlaceAlgebra, PlaceDegreeAlgebra
from pitcheck.algebra.dimensions.scaling_class import ScalingClass, Use
from pitcheck.algebra.residues.weights import ONES
from pitcheck.prove.bounds.stage_degrees import drawn_degrees
from pitcheck.stage.evaluate import evaluate_stage
from pitcheck.stage.shaped_stage import ShapedStage

MOST_PLACES = 24
"""The places of a unit up to which they are taken for a proof that holds at every size."""
SPREAD = 3
"""The times more places than are needed, if integers or booleans say which place is which: three
places for each of them leave few labels without one.
"""
GROWS = "quotients are added up, and the number of their divisors grows with the sizes"
PERMUTED = "places along an axis change their order"
INDEXED = "integers are places along an axis"
CLASHING = "axes of one reduced size cannot be told apart"
FEW = "more places would be needed than are tried"
BY_USE = {
    Use.UNWEIGHTED: "integers, or terms at indices, are added up along an axis without weights",
    Use.TALLIED: "a number of places along an axis is compared with that of all",
    Use.EXTREMAL: "a largest or least number along an axis is taken",
    Use.ORDERED: "what functions are taken of depends on the order of places along an axis",
    Use.LABELLED: "what functions are taken of depends on integers or booleans along an axis",
}
"""The reasons why a proof may not hold at every size. The last two are some only with functions of
sums along the axis.
"""
Degrees = TypeVar("Degrees", bound=PlaceDegreeAlgebra)
NEVER = Use.UNWEIGHTED | Use.EXTREMAL | Use.TALLIED
"""The uses of which no number of places shows all."""
TOLD_APART = Use.ORDERED | Use.LABELLED
"""The uses that tell places apart."""


@dataclass(frozen=True)
class PlaceCounts:
    """The numbers of places of a stage with weights.

    ``needed``: a number of elements of a unit that is enough, by the number of its class.
    ``settled``: the classes for which so many show every larger number. ``beyond``: those that are
    known to need more places than are tried.
    """

    needed: Mapping[int, int]
    settled: frozenset[int]
    beyond: frozenset[int] = frozenset()

    @classmethod
    def of(cls, shaped: ShapedStage) -> PlaceCounts:
        """Return the numbers of places of a stage whose axes have weights. Raises StepError.

        The degree in the weights of several classes bounds that of each. Classes with enough places
        for it are settled. This is repeated with the other classes until no more are settled; those
        that are left are looked at one by one. A class whose degrees grow with the size of another
        is settled after that one, at whose reduced size they are counted.
        """
        uses = {number: own.uses for number, own in shaped.sizes.system.classes()}
        needed: dict[int, int] = {}
        rest = weighed_classes(shaped)
        while rest:
            together = _degrees(PlaceDegreeAlgebra(rest, shaped.weights), shaped)
            enough = {
                number
                for number in rest
                if not together.grows
                and _may_settle(together, uses[number])
                and _spread(together.needed, uses[number]) <= (shaped.sizes.unit(number) or 0)
            }
            if not enough:
                break
            needed |= dict.fromkeys(enough, together.needed)
            rest -= enough
        return cls._one_by_one(shaped, rest, uses, needed)

    @classmethod
    def _one_by_one(
        cls,
        shaped: ShapedStage,
        rest: Collection[int],
        uses: Mapping[int, Use],
        needed: Mapping[int, int],
    ) -> PlaceCounts:
        """Return the numbers of places, where those of all classes but the ``rest`` are known.

        ``needed`` has the known ones, of classes that are settled.
        """
        exact = {
            number: _degrees(PlaceDegreeAlgebra({number}, shaped.weights), shaped)
            for number in sorted(rest)
        }
        bounded = {
            number
            for number, degrees in exact.items()
            if degrees.needed <= MOST_PLACES and _may_settle(degrees, uses[number])
        }
        settled = set(needed)
        while more := {n for n in bounded - settled if exact[n].grows <= settled}:
            settled |= more
        likely = {
            number: _degrees(LikelyPlaceAlgebra({number}, shaped.weights), shaped)
            for number in exact.keys() - settled
        }
        others = {
            number: _spread(likely.get(number, degrees).needed, uses[number])
            for number, degrees in exact.items()
        }
        beyond = {n for n, own in exact.items() if own.needed > MOST_PLACES and not own.varies}
        beyond |= {
            number
            for number, own in likely.items()
            if Use.ORDERED in uses[number] and own.in_decisions > MOST_PLACES
        }
        return cls({**needed, **others}, frozenset(settled), frozenset(beyond))

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
        for use, reason in BY_USE.items():
            if use in own.uses and (use in NEVER or number not in self.settled):
                return reason
        if number not in self.needed:
            return CLASHING
        if number in self.beyond or number in self.lacking(shaped):
            return FEW
        return "" if number in self.settled else GROWS


def weighed_classes(shaped: ShapedStage) -> frozenset[int]:
    """Return the classes whose places have weights."""
    return frozenset(number for pattern in shaped.weights.values() for number, _, _ in pattern) - {
        ONES
    }


def _may_settle(degrees: PlaceDegreeAlgebra, uses: Use) -> bool:
    """Return True if a number of places may show every larger one, as places meet along a class.

    Arguments of functions may differ by places that are not compared, if these are told apart.
    """
    return not (uses & NEVER or (degrees.in_functions and uses & TOLD_APART))


def _spread(needed: int, uses: Use) -> int:
    """Return enough places for draws of integers or booleans to hold what they are to show."""
    often = SPREAD if Use.LABELLED in uses and needed > 2 else 1
    return min(often * needed, MOST_PLACES)


def _degrees(algebra: Degrees, shaped: ShapedStage) -> Degrees:
    """Return an algebra that has seen a stage."""
    values = evaluate_stage(shaped, algebra, drawn_degrees(algebra, shaped))
    for target in shaped.stage.targets:
        algebra.compare_targets(
            values.parallel[target.cut.value], values.reference[target.cut.reference]
        )
    return algebra
