"""The question of one check: two graphs, and how they must agree."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pitcheck.base.options import Options
from pitcheck.claims.specification import Specification
from pitcheck.graph.graph import Graph
from pitcheck.ops.axis_templates import Templates
from pitcheck.ops.registry import evaluate
from pitcheck.stage.stage import Target


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

    def specified(self, specification: Specification) -> Problem:
        """Return the problem of the same graphs with another specification."""
        return replace(self, specification=specification)
