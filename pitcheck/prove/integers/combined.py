"""How many choices meet in one number: the degree of a product of choices, and how rare it is.

A product of five conditions shows what stands behind it only where all of them hold. Draws of which
one in 250,000 does so show nothing.

>>> rarity(np.array([[True, 1], [False, 1], [False, 1], [False, 1]])), rarity(np.ones((2, 1)))
(2.0, 0.0)
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.ops.registry import has_trait
from pitcheck.ops.traits import Trait
from pitcheck.prove.integers.cone import Side
from pitcheck.stage.batch import Batch, Step, values_of

MOST_FACTORS = 1
"""The most choices that a product of one side alone may have."""
MOST_SHARED_FACTORS = 2
"""The most choices of a product that both sides make by the same steps."""
MOST_BITS = 8.0
"""The bits of the rarest joint outcome that is believed to be among the draws of a stage."""
MANY_FACTORS = 1 << 10
"""The number of factors beyond which they are no longer counted."""
FEW = 16
"""The different numbers up to which the rarest one counts."""
LINEAR = (Trait.ADDS_TERMS, Trait.JOINS, Trait.EXTENDS)
"""The traits of operators whose results are sums of terms that have one operand each."""
POLYNOMIAL = (
    *LINEAR,
    Trait.ADDS_WITHIN,
    Trait.MULTILINEAR,
    Trait.ROUNDS_NOTHING,
    Trait.CONVERTS,
    Trait.KEEPS_ORDER,
)
"""The traits of operators whose results have one factor of every operand at most."""


def rarity(data: NDArray[Any]) -> float:
    """Return the bits of the rarest number of an element in draws, shape (draws, elements).

    They are log2 of the inverse of its share, for the element that changes least.
    """
    changing = data[:, (data != data[:1]).any(axis=0)]
    numbers = np.unique(changing)
    if not len(numbers):
        return 0.0
    if len(numbers) > FEW:
        return math.log2(len(numbers))
    counts = np.stack([(changing == number).mean(axis=0) for number in numbers])
    return -math.log2(float(np.where(counts > 0, counts, 1.0).min()))


def factors(side: Side, chosen: Collection[int], several: Collection[int]) -> dict[int, int]:
    """Return by number of a step of a side how many choices its results multiply, at most.

    ``chosen`` are the values that depend on choices, and ``several`` those of which elements depend
    on several ones. A decision is one choice again.
    """
    degree = {value: int(value in chosen) for value in (*side.given, *side.decided)}
    graph, found = side.batch.graph, {}
    for number, (step, attributes) in enumerate(
        zip(side.batch.steps, side.attributes, strict=True)
    ):
        read = [argument.value for argument in step.looked_into]
        own = _degree(step, attributes, degree)
        for output in (o for o in step.outputs if o is not None):
            kinds = {graph.values[value].kind for value in (*read, output)}
            decides = graph.values[output].kind == "bool" and kinds != {"bool"}
            degree[output] = (
                0
                if output not in chosen
                else 1
                if output not in several
                or decides
                or has_trait(step.kind, Trait.PICKS_PLACES, attributes)
                else own
            )
            found[number] = degree[output]
    return found


def _degree(step: Step, attributes: Mapping[str, Any], degree: Mapping[int, int]) -> int:
    """Return how many choices a step multiplies, from those of what it reads.

    Any function but a polynomial multiplies more than is believed to be seen.
    """
    degrees = [degree.get(argument.value, 0) for argument in step.looked_into]
    linear = any(has_trait(step.kind, trait, attributes) for trait in LINEAR)
    total = max(degrees, default=0) if linear else sum(degrees)
    polynomial = any(has_trait(step.kind, trait, attributes) for trait in POLYNOMIAL)
    return total if polynomial or len(degrees) > 1 else total * (MOST_FACTORS + 1)


@dataclass(frozen=True)
class Meeting:
    """The discrete values that meet on the way to each result of a side.

    ``bits`` are those of the rarest number of each such value, ``numbers`` how many different
    numbers draws showed of each that may have others than 0 and 1, and ``decided`` those that
    depend on what real numbers decide.
    """

    side: Side
    bits: Mapping[int, float]
    numbers: Mapping[int, int]
    decided: Collection[int]

    def unseen(
        self, batch: Batch, attributes: Sequence[Mapping[str, Any]], targets: Collection[int]
    ) -> bool:
        """Return True if draws may not show on what some targets depend.

        That is a joint outcome that is too rare, or a polynomial in one of the values which may
        vanish at all of its numbers that were drawn.
        """
        sets: dict[int, frozenset[int]] = {}
        powers: dict[int, Mapping[int, int]] = {}
        factors_of: dict[int, tuple[int, float]] = {}
        for step, own in zip(batch.steps, attributes, strict=True):
            read = [argument.value for argument in step.looked_into]
            discrete = self.side.makes(step)
            linear = any(has_trait(step.kind, trait, own) for trait in LINEAR)
            met = [self._met(sets, value, alone=not discrete) for value in read]
            together = (
                max(met, key=self._total, default=frozenset[int]())
                if linear
                else frozenset[int]().union(*met)
            )
            degrees = [self._power(powers, value, alone=not discrete) for value in read]
            joined = _joined(degrees, linear=linear, times=_times(step, own))
            factored = [self._factors(factors_of, value, alone=not discrete) for value in read]
            counts = [count for count, _ in factored]
            most = max((rarest for _, rarest in factored), default=0.0)
            count = (max(counts, default=0) if linear else sum(counts)) * _times(step, own)
            for output in (o for o in step.outputs if o is not None):
                sets[output], powers[output] = together, joined
                factors_of[output] = min(count, MANY_FACTORS), most
        return any(
            prod(self._factors(factors_of, value, alone=True)) > MOST_BITS
            or self._total(self._met(sets, value, alone=True)) > MOST_BITS
            or any(
                power >= self.numbers[each]
                for each, power in self._power(powers, value, alone=True).items()
            )
            for value in targets
        )

    def _total(self, values: frozenset[int]) -> float:
        return sum(self.bits[value] for value in values)

    def _met(
        self, sets: Mapping[int, frozenset[int]], value: int, *, alone: bool
    ) -> frozenset[int]:
        found = sets.get(value, frozenset())
        return found | {value} if alone and value in self.bits else found

    def _factors(
        self, found: Mapping[int, tuple[int, float]], value: int, *, alone: bool
    ) -> tuple[int, float]:
        """Return how many decided values a value multiplies, and the bits of the rarest of them."""
        count, most = found.get(value, (0, 0.0))
        if alone and value in self.bits and value in self.decided:
            return max(count, 1), max(most, self.bits[value])
        return count, most

    def _power(
        self, powers: Mapping[int, Mapping[int, int]], value: int, *, alone: bool
    ) -> Mapping[int, int]:
        found = powers.get(value, {})
        return {value: 1, **found} if alone and value in self.numbers else found


def numbers_of(data: NDArray[Any]) -> int:
    """Return how many numbers each changing element had at least, from (draws, elements).

    If none changes, it is 1.
    """
    counts = different(data)
    return int(counts[counts > 1].min()) if (counts > 1).any() else 1


def different(data: NDArray[Any]) -> NDArray[np.int64]:
    """Return how many different numbers each element had in draws, from (draws, elements)."""
    ordered = np.sort(data, axis=0)
    result: NDArray[np.int64] = 1 + (ordered[1:] != ordered[:-1]).sum(axis=0)
    return result


def partial_operands(
    batch: Batch,
    attributes: Sequence[Mapping[str, Any]],
    several: Collection[int],
) -> set[int]:
    """Return the divisors, and the arguments of logarithms and roots, that several choices make."""
    found: set[int] = set()
    for step, own in zip(batch.steps, attributes, strict=True):
        divides = has_trait(step.kind, Trait.DIVIDES, own)
        if divides or has_trait(step.kind, Trait.DEFINED_FOR_POSITIVE, own):
            operands = step.inputs[1:] if divides else step.inputs
            found.update(each.value for each in values_of(operands) if each.value in several)
    return found


def infinite(batch: Batch) -> set[int]:
    """Return the outcomes of comparisons with infinity.

    They depend on the conditions that fill it in, and not on the numbers that are drawn.
    """
    return {
        output
        for step in batch.steps
        if _has_infinity(step)
        for output in step.outputs
        if output is not None and batch.graph.values[output].kind == "bool"
    }


def filling(batch: Batch, chosen: Collection[int]) -> set[int]:
    """Return those of some values by which infinity is filled in.

    Of nothing but -inf there is no softmax.
    """
    return {
        argument.value
        for step in batch.steps
        if _has_infinity(step)
        for argument in step.looked_into
        if argument.value in chosen
    }


def _has_infinity(step: Step) -> bool:
    return any(isinstance(each, float) and math.isinf(each) for each in step.inputs)


def _joined(powers: Sequence[Mapping[int, int]], *, linear: bool, times: int) -> Mapping[int, int]:
    """Return the powers in a sum or a product of operands, or in a power of one."""
    found: dict[int, int] = {}
    for own in powers:
        for value, power in own.items():
            before = found.get(value, 0)
            found[value] = max(before, power) if linear else before + power
    return {value: power * times for value, power in found.items()}


def _times(step: Step, attributes: Mapping[str, Any]) -> int:
    """Return to which power a step takes its operand, as far as it says so."""
    if has_trait(step.kind, Trait.SQUARES, attributes):
        return 2
    exponent = attributes.get("exponent", 1)
    return exponent if isinstance(exponent, int) and exponent > 1 else 1
