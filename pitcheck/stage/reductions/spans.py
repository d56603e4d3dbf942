"""The spans of rows along a reference dimension: where the inputs of their cones lie.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> from pitcheck.stage.shapes import symbolic_pair
>>> plan = one_operator("exp", [(64, 3)], (64, 3))
>>> stage = Problem.of(plan, plan).whole_stage()
>>> symbolic = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts())
>>> carriers(stage, symbolic, symbolic.system.number_of(symbolic.reference.values[1].dims[0]))
[(0, 0)]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np

from pitcheck.graph.grids import Codes
from pitcheck.stage.shapes import SymbolicPair
from pitcheck.stage.stage import Stage

P = ParamSpec("P")
T = TypeVar("T")
NOWHERE = np.iinfo(np.int64).max
"""The first offset of a row whose cone has no input along the dimension."""


def once_per_class(
    find: Callable[Concatenate[Stage, SymbolicPair, int, P], T],
) -> Callable[Concatenate[Stage, SymbolicPair, int, P], T]:
    """Return a function of a class of dimensions that is computed once for equal arguments.

    Its third argument is the number of the class. The results are kept with ``symbolic``, which
    belongs to one stage.
    """

    @wraps(find)
    def known(
        stage: Stage, symbolic: SymbolicPair, root: int, /, *more: P.args, **named: P.kwargs
    ) -> T:
        key = find, root, more, tuple(named.items())
        return symbolic.remembered(key, lambda: find(stage, symbolic, root, *more, **named))

    return known


@once_per_class
def spans(
    stage: Stage, symbolic: SymbolicPair, root: int
) -> tuple[dict[int, Codes], dict[int, Codes]]:
    """Return the first and the last offset at which an input of each row's cone begins.

    ``root``: the number of the dimension's class. Both are per value of the parallel side, shape
    (rows,); (NOWHERE, -1) for none.
    """
    low: dict[int, list[Codes]] = {}
    high: dict[int, list[Codes]] = {}
    for value, parts in stage.parallel.inputs.items():
        cut = stage.cuts.get(value)
        own_low, own_high = (
            np.full(len(parts), NOWHERE, dtype=np.int64),
            np.full(len(parts), -1, dtype=np.int64),
        )
        if cut is not None:
            for dim, node in enumerate(symbolic.reference.values[cut.reference].dims):
                begins = cut.parts.begins(dim)
                if symbolic.system.number_of(node) == root and begins is not None:
                    own_low = np.minimum(own_low, begins[parts])
                    own_high = np.maximum(own_high, begins[parts])
        low[value], high[value] = [own_low], [own_high]
    for step in stage.parallel.steps:
        least, most = (
            np.full(step.count, NOWHERE, dtype=np.int64),
            np.full(step.count, -1, dtype=np.int64),
        )
        for argument in step.looked_into:
            table = argument.rows.reshape(step.count, -1)
            least = np.minimum(
                least, np.concatenate(low[argument.value])[table].min(axis=1, initial=NOWHERE)
            )
            most = np.maximum(
                most, np.concatenate(high[argument.value])[table].max(axis=1, initial=-1)
            )
        for output in step.outputs:
            if output is not None:
                low.setdefault(output, []).append(least)
                high.setdefault(output, []).append(most)
    return {v: np.concatenate(a) for v, a in low.items()}, {
        v: np.concatenate(a) for v, a in high.items()
    }


def carriers(stage: Stage, symbolic: SymbolicPair, root: int) -> list[tuple[int, int]]:
    """Return the (reference input, dimension) pairs that belong to a class."""
    inputs = dict.fromkeys(
        [*stage.reference.inputs, *(cut.reference for cut in stage.cuts.values())]
    )
    dims = (
        (value, dim, node)
        for value in inputs
        for dim, node in enumerate(symbolic.reference.values[value].dims)
    )
    return [(value, dim) for value, dim, node in dims if symbolic.system.number_of(node) == root]
