"""The reference side of a stage run on axes by itself.

It shows which dimensions its operators alone tie, and along which they compute every place
separately.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("sum", [(64, 3)], (3,), axes=(0,))
>>> alone = ReferenceAlone.of(Problem.of(plan, plan).whole_stage().reference, None, {1})
>>> [alone.is_batch(node, []) for node in alone.values[0].dims]
[False, True]
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from pitcheck.algebra.dimensions.axes import AxisAlgebra
from pitcheck.algebra.dimensions.axis_classes import AxisSystem
from pitcheck.algebra.dimensions.axis_values import AxisValue
from pitcheck.algebra.dimensions.scaling_class import Dimension
from pitcheck.ops.axis_templates import Templates
from pitcheck.ops.registry import evaluate
from pitcheck.stage.batch import Batch
from pitcheck.stage.run_batch import run_batch
from pitcheck.stage.shape_only import describing


@dataclass(frozen=True)
class ReferenceAlone:
    """The dimensions of the values of a reference; ``read`` are those that its steps look into."""

    values: Mapping[int, AxisValue]
    read: frozenset[int]
    system: AxisSystem

    @classmethod
    def of(
        cls,
        batch: Batch,
        templates: Templates | None,
        kept: Collection[int],
        without: Collection[int] = (),
    ) -> ReferenceAlone:
        """Return the reference on axes, without the steps numbered ``without``.

        The values ``kept`` are compared.
        """
        system = AxisSystem()
        algebra = AxisAlgebra(system)
        inputs = {
            value: algebra.tensor(batch.graph.values[value].shape, batch.graph.values[value].kind)
            for value in batch.inputs
        }
        before = replace(
            batch, steps=[step for n, step in enumerate(batch.steps) if n not in without]
        )
        left = {argument.value for n in without for argument in batch.steps[n].looked_into}
        values = run_batch(
            before,
            algebra,
            inputs,
            evaluator=describing(templates or Templates(evaluate), before, {*kept, *left}),
        )
        return cls(
            values, frozenset(a.value for step in before.steps for a in step.looked_into), system
        )

    def is_batch(self, node: Dimension, carriers: Iterable[tuple[int, int]]) -> bool:
        """Return True if ``carriers`` and ``node`` are one batch dimension.

        Each carrier is a pair (value, dimension).
        """
        root = self.system.number_of(node)
        return self.system.is_batch(node) and all(
            self.system.number_of(self.values[value].dims[dim]) == root for value, dim in carriers
        )
