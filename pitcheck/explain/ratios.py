"""Constant factors between what a value holds and what it should hold, and where they come from."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np

from pitcheck.claims.real_numbers import Floats
from pitcheck.explain.diagnosis import Diagnosis, Kind
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.families import REDUCTIONS
from pitcheck.graph.graph import Source
from pitcheck.graph.grids import Codes
from pitcheck.stage.batch import Step

FACTOR = Kind(
    "PIT101",
    "every element is {meaning} times what it should be",
    "divide by that factor once, or drop the reduction that brought it",
    ("ratio",),
    edits=("+ divide {result!r} by {ratio}",),
)
REDUCED_AGAIN = Kind(
    "PIT105",
    "it is {meaning} times what it should be, and was already reduced before its last reduction",
    "drop one of the reductions",
    edits=("- one of the reductions of {result!r}",),
)


SOLID = 1e-6
"""Elements below this share of the largest one say nothing about a ratio; the ratios of the others
may differ by as much.
"""
RATIO_TOLERANCE = 1e-7
"""Relative distance of a measured ratio from a fraction up to which it counts as that fraction."""
RATIO_DENOMINATOR = 4096
"""The largest denominator of a ratio."""


def constant_ratio(actual: Floats, wanted: Floats) -> Fraction | None:
    """Return the factor by which every element is off.

    Args:
        actual: the numbers that are held, of any shape.
        wanted: the numbers that should be held, of a shape that broadcasts with it.

    Returns:
        The ratio of ``actual`` to ``wanted``; None if it is 1, is not constant, or is no fraction
        with a small denominator.
    """
    actual, wanted = np.broadcast_arrays(actual, wanted)
    scale = np.abs(wanted).max(initial=0.0)
    solid = np.abs(wanted) > SOLID * scale
    if not solid.any() or scale == 0:
        return None
    ratios = actual[solid] / wanted[solid]
    middle = float(np.median(ratios))
    if middle == 0 or not np.isfinite(ratios).all():
        return None
    if (np.abs(ratios - middle) > SOLID * abs(middle)).any():
        return None
    ratio = Fraction(middle).limit_denominator(RATIO_DENOMINATOR)
    far = abs(float(ratio) - middle) > RATIO_TOLERANCE * abs(middle)
    return None if ratio == 1 or far else ratio


def ratio_of_output(evidence: Evidence, number: int) -> Fraction | None:
    """Return the factor by which an output is off; None if it is right, or off otherwise."""
    comparison = evidence.run.comparisons[number]
    sides = (np.asarray(side.data)[0] for side in (comparison.actual, comparison.expected))
    return constant_ratio(*sides)


@dataclass(frozen=True)
class Factor:
    """A constant factor, and what has its size in the plan, or the inverse of it.

    ``names``: for example "size of dp", or "size of dp x size of tp". ``follows``: True if the
    factor is another one where these have another size; else they may have its size by chance.
    """

    ratio: Fraction
    names: tuple[str, ...] = ()
    follows: bool = False

    def __str__(self) -> str:
        if self.follows:
            named = (name if self.ratio > 1 else f"1 / {name}" for name in self.names)
            return " = ".join([str(self.ratio), *named])
        alike = f" ({' and '.join(self.names)}: {max(self.ratio, 1 / self.ratio)})"
        return f"{self.ratio}{alike if self.names else ''}"

    def narrowed(self, other: Factor) -> Factor:
        """Return the factor with only those names that it has at another mesh as well."""
        names = tuple(name for name in self.names if name in other.names)
        return Factor(self.ratio, names, self.follows or self.ratio != other.ratio)


def factor(evidence: Evidence, ratio: Fraction) -> Factor:
    """Return a factor with everything in the plan of that size.

    Mesh axes and micro-batches are named; if none of them fits, all products of two.
    """
    coordinates = evidence.second.coordinates
    sizes = {
        **{f"size of {name}": size for name, size in coordinates.sizes.items()},
        "number of micro-batches": coordinates.microbatches,
    }
    large = {name: size for name, size in sizes.items() if size > 1}
    names = [name for name, size in large.items() if ratio in (size, Fraction(1, size))]
    if not names:
        names = [
            f"{a} x {b}"
            for a, b in combinations(large, 2)
            if ratio in (large[a] * large[b], Fraction(1, large[a] * large[b]))
        ]
    return Factor(ratio, tuple(names))


def members_of(evidence: Evidence, step: Step) -> int:
    """Return the number of members in the groups of a collective; 0 for other operators."""
    source = next(iter(evidence.second.nodes[step.node].inputs), None)
    return source.members if isinstance(source, Source) else 0


def repeated_reduction(evidence: Evidence, value: int) -> bool:
    """Return True if a reduction whose members all hold the same writes the value."""
    for step in evidence.writers.get(value, []):
        for operand in step.inputs if step.kind in REDUCTIONS else ():
            rows = getattr(operand, "rows", None)
            if rows is not None and rows.ndim == 2 and (rows == rows[:, :1]).all():
                return True
    return False


def ratio_cause(evidence: Evidence, value: int, ratio: Fraction, codes: Codes) -> Diagnosis:
    """Return the diagnosis of a constant factor: one reduction too many, or any other factor."""
    kind = REDUCED_AGAIN if repeated_reduction(evidence, value) else FACTOR
    return Diagnosis(kind, {"meaning": factor(evidence, ratio), "ratio": ratio}, codes)
