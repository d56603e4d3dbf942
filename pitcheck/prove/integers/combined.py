"""How many choices meet in one number: the degree of a product of choices, and how rare it is.

A product of five conditions shows what stands behind it only where all of them hold. Draws of which
one in 250,000 does so show nothing.

>>> rarity(np.array([[True, 1], [False, 1], [False, 1], [False, 1]])), rarity(np.ones((2, 1)))
(2.0, 0.0)
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.ops.registry import has_trait
from pitcheck.ops.traits import Trait
from pitcheck.prove.integers.cone import Side
from pitcheck.stage.batch import Batch, Step

MOST_FACTORS = 2
"""The choices of which a product is believed to be seen where all of them matter."""
MOST_BITS = 8.0
"""The bits of the rarest joint outcome that is believed to be among the draws of a stage."""
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

    They are log2 of the inverse of its share, averaged over the elements that change.
    """
    changing = data[:, (data != data[:1]).any(axis=0)]
    numbers = np.unique(changing)
    if not len(numbers):
        return 0.0
    if len(numbers) > FEW:
        return math.log2(len(numbers))
    counts = np.stack([(changing == number).mean(axis=0) for number in numbers])
    least = np.where(counts > 0, counts, 1.0).min(axis=0)
    return -math.log2(float(least.mean()))


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


def rarest(
    batch: Batch,
    attributes: Sequence[Mapping[str, Any]],
    side: Side,
    bits: Mapping[int, float],
    targets: Collection[int],
) -> float:
    """Return the bits of the rarest joint outcome on which some targets of a side depend.

    ``bits`` are those of the discrete values that others read.
    """
    inside = {output for step in side.batch.steps for output in step.outputs}
    carried: dict[int, frozenset[int]] = {}

    def total(values: frozenset[int]) -> float:
        return sum(bits[value] for value in values)

    def met(value: int) -> frozenset[int]:
        alone = frozenset({value}) if value in bits else frozenset[int]()
        return carried.get(value, frozenset()) | alone

    for step, own in zip(batch.steps, attributes, strict=True):
        discrete = bool(inside.intersection(o for o in step.outputs if o is not None))
        sets = [
            carried.get(argument.value, frozenset()) if discrete else met(argument.value)
            for argument in step.looked_into
        ]
        linear = any(has_trait(step.kind, trait, own) for trait in LINEAR)
        together = (
            max(sets, key=total, default=frozenset[int]())
            if linear
            else frozenset[int]().union(*sets)
        )
        carried.update((output, together) for output in step.outputs if output is not None)
    return max((total(met(value)) for value in targets), default=0.0)
