"""How far along a reference dimension lies what the rows of the parallel side are computed from."""

from __future__ import annotations

import numpy as np

from pitcheck.graph.grids import Codes
from pitcheck.stage.shapes import SymbolicPair
from pitcheck.stage.stage import Stage

NOWHERE = np.iinfo(np.int64).max


def spans(
    stage: Stage, symbolic: SymbolicPair, root: int
) -> tuple[dict[int, Codes], dict[int, Codes]]:
    """Per value and row of the parallel side the first and the last offset along the dimension at
    which an input of its cone begins; (NOWHERE, -1) for none.

    ``root``: the number of the dimension's class.
    """
    return symbolic.remembered(("spans", root), lambda: _spans(stage, symbolic, root))


def _spans(
    stage: Stage, symbolic: SymbolicPair, root: int
) -> tuple[dict[int, Codes], dict[int, Codes]]:
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
    """The (reference input, dimension) that belong to a class."""
    inputs = dict.fromkeys(
        [*stage.reference.inputs, *(cut.reference for cut in stage.cuts.values())]
    )
    dims = (
        (value, dim, node)
        for value in inputs
        for dim, node in enumerate(symbolic.reference.values[value].dims)
    )
    return [(value, dim) for value, dim, node in dims if symbolic.system.number_of(node) == root]
