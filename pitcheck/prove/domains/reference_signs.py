"""Signs of the reference's values, followed from the inputs of the plan.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> signs = Signs(Problem.of(plan, plan).reference)
>>> [Sign.NEVER_ZERO in signs.of(value) for value in (0, 1)]
[False, True]
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pitcheck.algebra.bound.degree_values import UNKNOWN, DegreeValue, Sign
from pitcheck.algebra.bound.signs import SignAlgebra
from pitcheck.base.numbers import parse_number
from pitcheck.errors import PitcheckError
from pitcheck.graph.graph import Graph, sources_of
from pitcheck.graph.grids import Grid
from pitcheck.stage.batch import extract
from pitcheck.stage.evaluate import constant_value
from pitcheck.stage.run_batch import run_batch
from pitcheck.stage.stage import constant_mask


class Signs:
    """The signs of all elements of a graph's values, for all real inputs.

    The inputs of the plan are finite. Each value is looked at once, from the signs of what its
    operator reads.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: dict[int, Sign] = {}

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
                self._known[last] = self._sign(last)
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
        return sign

    def _given(self, algebra: SignAlgebra, value: int, instances: int) -> DegreeValue:
        """Return a number that the plan states, an input of the plan, or what was computed."""
        info = self._graph.values[value]
        if constant_mask(self._graph, value) is not None and info.tensor.value is not None:
            number = parse_number(info.tensor.value, f"tensors[{info.name}].value")
            stated: DegreeValue = constant_value(algebra, number, info.shape, info.kind)
            return stated
        fresh = algebra.fresh(info.name, info.shape, instances, "any", info.kind)
        return replace(fresh, sign=self._known[value]) if info.writers else fresh
