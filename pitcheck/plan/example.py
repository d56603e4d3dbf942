"""The smallest plans, for examples in docstrings.

>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> [operator.kind for operator in plan.operators], [output.tensor for output in plan.outputs]
(['exp'], ['y'])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pitcheck.plan.model import Axis, Operator, Output, Plan, Tensor


def one_operator(
    kind: str, operands: Sequence[tuple[int, ...]], result: tuple[int, ...], **attributes: Any
) -> Plan:
    """Return a plan of one device that runs one operator on the inputs x0, x1, ... and gives y.

    ``operands`` and ``result`` are shapes; all numbers are float32.
    """
    inputs = tuple(Tensor(f"x{n}", shape, "float32") for n, shape in enumerate(operands))
    operator = Operator(kind, kind, tuple(x.name for x in inputs), ("y",), attributes)
    tensors = (*inputs, Tensor("y", result, "float32"))
    return Plan((Axis("device", 1),), tensors, (operator,), (Output("y"),))
