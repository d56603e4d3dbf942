"""The question of one check: two graphs, and how they must agree.

>>> from pitcheck.plan.example import one_operator
>>> problem = Problem.of(*[one_operator("exp", [(2, 3)], (2, 3))] * 2)
>>> [target.name for target in problem.targets()]
['y']
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from pitcheck.base.options import Options
from pitcheck.claims.specification import Specification, specify
from pitcheck.errors import PlanError
from pitcheck.graph.graph import Graph
from pitcheck.graph.lowering import lower
from pitcheck.ops.axis_templates import Templates
from pitcheck.ops.registry import evaluate
from pitcheck.plan.model import Plan
from pitcheck.plan.schedule.matching import match
from pitcheck.stage.building import build_stage
from pitcheck.stage.stage import Stage, Target


@dataclass(frozen=True)
class Problem:
    """Two graphs, the specification between them, and the choices that every step shares.

    ``seed`` is definite, also if the options leave it open. ``templates`` are shape rules that were
    run once, shared by all stages.
    """

    reference: Graph
    parallel: Graph
    specification: Specification
    options: Options = field(default_factory=Options)
    seed: int = 0
    templates: Templates = field(default_factory=lambda: Templates(evaluate))

    @classmethod
    def of(cls, reference: Plan, parallel: Plan, **choices: Any) -> Problem:
        """Return the problem of two plans that are right by themselves.

        ``choices`` are fields of the class.

        Raises:
            PlanError: communication that does not match, or lineage that does not fit.
            UnsupportedError: an operator or a lineage that has no meaning here.
        """
        first, second = _lowered(reference), _lowered(parallel)
        return cls(first, second, specify(reference, parallel, first, second), **choices)

    @property
    def full_shapes(self) -> bool:
        """Return True if sizes may not be reduced."""
        return self.options.shapes == "full"

    @property
    def nodes(self) -> int:
        """Return the number of nodes of both graphs together."""
        return len(self.reference.nodes) + len(self.parallel.nodes)

    def targets(self) -> list[Target]:
        """Return one target for every expected output, in the order of the specification."""
        return [
            Target.at(e.cut, e.where, self.parallel, e.name) for e in self.specification.expected
        ]

    def whole_stage(self) -> Stage:
        """Return both graphs as one stage, from their inputs to all expected outputs."""
        given = self.specification.initial.get
        return build_stage(self.reference, self.parallel, given, self.targets())

    def specified(self, specification: Specification) -> Problem:
        """Return the problem of the same graphs with another specification."""
        return replace(self, specification=specification)


def _lowered(plan: Plan) -> Graph:
    """Return the graph of a plan. Raises PlanError if its communication does not match."""
    matching, violations = match(plan)
    if matching is None:
        raise PlanError("; ".join(violation.message for violation in violations))
    return lower(plan, matching)
