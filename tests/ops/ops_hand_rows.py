"""Rows computed by hand in integers: communication, copies and random draws.

PyTorch on one device is no oracle of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Nested = Any


@dataclass(frozen=True)
class HandRow:
    """One operator on integers.

    ``stack`` is the input (for a collective: the members' tensors), ``result`` the expected output.
    """

    kind: str
    stack: Nested
    result: Nested
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.kind}-" + ",".join(f"{k}={v}" for k, v in self.attributes.items())

    def inputs(self) -> list[np.ndarray[Any, Any]]:
        return [np.array(self.stack, dtype=np.float64)]


TWO = [[1, 2, 3, 4], [10, 20, 30, 40]]
MATRICES = [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
UNEQUAL = [[[1, 2, 3, 4]], [[5, 6, 7, 8]]]
THREE = [[4, -2], [-1, 5], [6, 0]]

HAND_ROWS = [
    HandRow("all_reduce", THREE, [9, 3]),
    HandRow("all_reduce", THREE, [9, 3], {"reduction": "sum", "async": True, "tag": 3}),
    HandRow("all_reduce", THREE, [3, 1], {"reduction": "avg"}),
    HandRow("all_reduce", THREE, [6, 5], {"reduction": "max"}),
    HandRow("all_reduce", THREE, [-1, -2], {"reduction": "min"}),
    HandRow("all_reduce", THREE, [-24, 0], {"reduction": "product"}),
    HandRow("all_reduce", [7], 7, {"reduction": "avg"}),
    HandRow("reduce", THREE, [9, 3], {"root": 2}),
    HandRow("reduce", THREE, [3, 1], {"root": 0, "reduction": "avg"}),
    HandRow("scan", THREE, [4, -2], {"position": 0}),
    HandRow("scan", THREE, [3, 3], {"position": 1}),
    HandRow("scan", THREE, [9, 3], {"position": 2, "reduction": "sum"}),
    HandRow("scan", THREE, [5, 5], {"position": 1, "reverse": True}),
    HandRow("scan", THREE, [4, 5], {"position": 1, "reduction": "max"}),
    HandRow("scan", THREE, [-4, -10], {"position": 1, "reduction": "product"}),
    HandRow("reduce_scatter", TWO, [11, 22], {"axis": 0, "position": 0}),
    HandRow("reduce_scatter", TWO, [33, 44], {"axis": -1, "position": 1}),
    HandRow("reduce_scatter", MATRICES, [[6, 8]], {"axis": 0, "position": 0}),
    HandRow("reduce_scatter", MATRICES, [[3], [5]], {"axis": 1, "position": 0, "reduction": "avg"}),
    HandRow(
        "reduce_scatter", MATRICES, [[6], [8]], {"axis": -1, "position": 1, "reduction": "max"}
    ),
    HandRow("all_gather", TWO, [1, 2, 3, 4, 10, 20, 30, 40], {"axis": 0}),
    HandRow("all_gather", MATRICES, [[1, 2], [3, 4], [5, 6], [7, 8]], {"axis": 0}),
    HandRow("all_gather", MATRICES, [[1, 2, 5, 6], [3, 4, 7, 8]], {"axis": 1}),
    HandRow("all_gather", MATRICES, [[1, 2, 5, 6], [3, 4, 7, 8]], {"axis": -1}),
    HandRow("gather_to", MATRICES, [[1, 2], [3, 4], [5, 6], [7, 8]], {"axis": -2, "root": 1}),
    HandRow("broadcast", THREE, [-1, 5], {"root": 1}),
    HandRow("broadcast", THREE, [4, -2], {"root": 0}),
    HandRow("scatter_from", TWO, [1, 2], {"axis": 0, "root": 0, "position": 0}),
    HandRow("scatter_from", TWO, [30, 40], {"axis": 0, "root": 1, "position": 1}),
    HandRow(
        "all_to_all", UNEQUAL, [[1, 2], [5, 6]], {"split_axis": 1, "concat_axis": 0, "position": 0}
    ),
    HandRow(
        "all_to_all", UNEQUAL, [[3, 4], [7, 8]], {"split_axis": -1, "concat_axis": 0, "position": 1}
    ),
    HandRow(
        "all_to_all", UNEQUAL, [[3, 4, 7, 8]], {"split_axis": 1, "concat_axis": 1, "position": 1}
    ),
    HandRow(
        "all_to_all", MATRICES, [[3, 4, 7, 8]], {"split_axis": 0, "concat_axis": -1, "position": 1}
    ),
    HandRow("accumulate", THREE, [9, 3]),
    HandRow("accumulate", THREE, [9, 3], {"microbatches": (0, 1, 2)}),
    HandRow("send", TWO, TWO, {"peer": 3}),
    HandRow("receive", TWO, TWO, {"peer": 0, "tag": 1}),
    HandRow("wait", TWO, TWO),
]
