"""The choices of a stage that depend on decisions between floating-point numbers.

All others follow the discrete data, which has cases of its own.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> from pitcheck.stage.shaped_stage import shape_reduced
>>> plan = one_operator("abs", [(2, 3)], (2, 3))
>>> stage = Problem.of(plan, plan).whole_stage()
>>> sorted(depending_on_order(shape_reduced(stage)))[:2]
['parallel 0 abs&0', 'parallel 0 abs?0']
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import isinf

from pitcheck.algebra.bound.degrees import DegreeValue
from pitcheck.algebra.interface import Comparison, Kind
from pitcheck.prove.known_ranges import RangedDegrees
from pitcheck.stage.evaluate import evaluate_stage
from pitcheck.stage.shaped_stage import ShapedStage

ORDER = "order"
"""The mark of degrees that depend on an order of floating-point numbers."""


class _Dependence(RangedDegrees):
    """An algebra that notes the sites whose condition or operand depends on an order.

    What only known ranges decide does not count. Sites are numbered as in the algebra of real
    trials.
    """

    def __init__(self, shaped: ShapedStage) -> None:
        super().__init__(shaped)
        self.found: set[str] = set()
        self._counts: dict[str, int] = {}
        self._infinite: set[int] = set()
        self._inside = False

    def _note(self, mark: str, *values: DegreeValue) -> None:
        """Note a site if one of its operands depends on an order."""
        if self._inside:
            return
        number = self._counts.get(self.site + mark, 0)
        self._counts[self.site + mark] = number + 1
        if any(ORDER in v.uses for v in values):
            self.found.add(f"{self.site}{mark}{number}")

    def constant(self, number: Fraction | float, kind: Kind = "field") -> DegreeValue:
        value = super().constant(number, kind)
        if isinstance(number, float) and isinf(number):
            self._infinite.add(value.identity)
        return value

    def compare(self, comparison: Comparison, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        """Return the outcome; a comparison with infinity depends on no order.

        Only infinite numbers, which come of discrete data, give another outcome than all others.
        """
        result = super().compare(comparison, a, b)
        return (
            self._value("bool", result.shape, result.instances)
            if {a.identity, b.identity} & self._infinite
            else result
        )

    def where(self, condition: DegreeValue, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        self._note("?", condition)
        self._note("&", condition, a, b)
        return super().where(condition, a, b)

    def cast(self, a: DegreeValue, kind: Kind) -> DegreeValue:
        if a.kind == "bool" and kind != "bool":
            self._note("!", a)
        return super().cast(a, kind)

    def multiply(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        self._note("*", a, b)
        return super().multiply(a, b)

    def maximum(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        self._note("<", a, b)
        return super().maximum(a, b)

    def minimum(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        self._note("<", a, b)
        return super().minimum(a, b)

    def matmul(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        self._inside = True
        try:
            return super().matmul(a, b)
        finally:
            self._inside = False


def depending_on_order(shaped: ShapedStage) -> set[str]:
    """Return the sites that depend on an order of floating-point numbers.

    They are those of conditions, casts, products and extrema, and the targets that do.
    """
    algebra = _Dependence(shaped)
    drawn = {
        value: algebra.fresh(fresh.key, fresh.shape, 1, fresh.domain, fresh.kind)
        for value, fresh in shaped.fresh.items()
    }
    evaluated = evaluate_stage(shaped, algebra, drawn)
    targets: Sequence[DegreeValue] = [
        evaluated.reference[target.cut.reference] for target in shaped.stage.targets
    ]
    return algebra.found | {
        f"target {number}?0" for number, value in enumerate(targets) if ORDER in value.uses
    }
