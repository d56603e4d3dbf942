"""Signs of the reference's values, followed from the inputs of the plan.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> problem = Problem.of(plan, plan)
>>> signs = Signs(problem.reference, Fingerprints(problem.reference, problem.parallel, {}))
>>> [Sign.NEVER_ZERO in signs.of(value) for value in (0, 1)]
[False, True]
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

import numpy as np

from pitcheck.algebra.bound.degree_values import ABOVE_ZERO, UNKNOWN, DegreeValue, Sign
from pitcheck.algebra.bound.signs import SignAlgebra
from pitcheck.base.numbers import parse_number
from pitcheck.errors import PitcheckError
from pitcheck.graph.cuts import Cut
from pitcheck.graph.graph import Graph, sources_of
from pitcheck.graph.grids import Grid
from pitcheck.ops.registry import BACKWARD, has_trait
from pitcheck.ops.traits import Trait
from pitcheck.prove.domains.upper_bounds import is_less_its_bound
from pitcheck.stage.batch import Batch, extract
from pitcheck.stage.evaluate import constant_value
from pitcheck.stage.fingerprint import Fingerprints
from pitcheck.stage.run_batch import run_batch
from pitcheck.stage.stage import Stage, constant_mask


class Signs:
    """The signs of all elements of a graph's values, for all real inputs.

    The inputs of the plan are finite. Each value is looked at once, from the signs of what its
    operator reads. ``fingerprints``, whose first graph it is, tell which values are computed in the
    same way, as those of layers are: of these one is looked at.
    """

    def __init__(self, graph: Graph, fingerprints: Fingerprints) -> None:
        self._graph = graph
        self._fingerprints = fingerprints
        self._known: dict[int, Sign] = {}
        self._of: dict[Hashable, Sign] = {}

    def of_stage(self, stage: Stage) -> Stage:
        """Return a stage that knows which of the numbers at its cuts are positive or not negative.

        That is of no use where all operators have values for all numbers.
        """
        if _is_total(stage.reference) and _is_total(stage.parallel):
            return stage
        given = {cut.reference for cut in stage.cuts.values()}
        return replace(
            stage,
            positive=frozenset(v for v in given if ABOVE_ZERO in self.of(v)),
            nonnegative=frozenset(v for v in given if Sign.NONNEGATIVE in self.of(v)),
        )

    def facts(self, cut_of: Callable[[int], Cut | None], cuts: Sequence[int]) -> list[Sign]:
        """Return what a stage may know of the reference's values at its cuts, by parallel value."""
        return [self.of(cut.reference) & ABOVE_ZERO for cut in map(cut_of, cuts) if cut is not None]

    def may_be_infinite(self, value: int) -> bool:
        """Return True if a value may be infinite, or if nothing is known of it.

        Infinity comes from constants alone: a number over 0 has no value.
        """
        return Sign.FINITE not in self.of(value)

    def of(self, value: int) -> Sign:
        """Return what is known of a value's sign."""
        pending = [value]
        while pending:
            last = pending[-1]
            missing = [each for each in self._read(last) if each not in self._known]
            if missing:
                pending += missing
                continue
            pending.pop()
            if last not in self._known:
                said = self._said(last)
                if said not in self._of:
                    self._of[said] = self._sign(last)
                self._known[last] = self._of[said]
        return self._known[value]

    def _read(self, value: int) -> list[int]:
        """Return what the operator of a value reads; nothing if it has none, or several."""
        writers = self._graph.values[value].writers
        if len(writers) != 1:
            return []
        return [
            source.value
            for node in writers
            for operand in self._graph.nodes[node].inputs
            for source in sources_of(operand)
            if source.value != value
        ]

    def _said(self, value: int) -> Hashable:
        """Return all that the sign of a value follows from."""
        read = self._read(value)
        nodes = [
            (
                tuple(output == value for output in self._graph.nodes[node].outputs),
                self._fingerprints.node(0, node),
            )
            for node in self._graph.values[value].writers
        ]
        operands = [
            (read.index(each), self._fingerprints.info(0, each), self._known[each]) for each in read
        ]
        below = self._is_less_its_bound(value)
        return self._fingerprints.info(0, value), tuple(nodes), tuple(operands), below

    def _sign(self, value: int) -> Sign:
        """Return the sign of a value from those of what its operator reads."""
        algebra = SignAlgebra()
        writers = self._graph.values[value].writers
        if not writers:
            return self._given(algebra, value, 1).sign
        everywhere: Grid = np.zeros(self._graph.anywhere, dtype=np.int64)

        def boundary(other: int) -> Grid | None:
            return None if other == value else everywhere

        try:
            batch = extract(self._graph, {value: everywhere == 0}, boundary)
            if batch.missing or len(writers) > 1:
                return UNKNOWN
            given = {each: self._given(algebra, each, batch.count(each)) for each in batch.inputs}
            sign: Sign = run_batch(batch, algebra, given)[value].sign
        except PitcheckError:
            return UNKNOWN
        return sign | Sign.BELOW_INFINITY if self._is_less_its_bound(value) else sign

    def _is_less_its_bound(self, value: int) -> bool:
        return is_less_its_bound(self._graph, self._fingerprints, value)

    def _given(self, algebra: SignAlgebra, value: int, instances: int) -> DegreeValue:
        """Return a number that the plan states, an input of the plan, or what was computed."""
        info = self._graph.values[value]
        if constant_mask(self._graph, value) is not None and info.tensor.value is not None:
            number = parse_number(info.tensor.value, f"tensors[{info.name}].value")
            stated: DegreeValue = constant_value(algebra, number, info.shape, info.kind)
            return stated
        fresh = algebra.fresh(info.name, info.shape, instances, "any", info.kind)
        return replace(fresh, sign=self._known[value]) if info.writers else fresh


def _is_total(batch: Batch) -> bool:
    """Return True if every step of a batch has a value for all numbers.

    The derivative of an operator takes no quotient or root that the operator does not take.
    """
    kinds = ((step.kind.removesuffix(BACKWARD), step.attributes) for step in batch.steps)
    return all(has_trait(kind, Trait.TOTAL, attributes) for kind, attributes in kinds)
