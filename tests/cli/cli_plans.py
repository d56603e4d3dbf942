"""Two tiny plans, written by hand: y = x w on one device, and with w cut by columns over tp and the
pieces gathered.
"""

from __future__ import annotations

from pitcheck.plan.model import Axis, Group, Lineage, Operator, Output, Plan, Shard, Tensor


def reference() -> Plan:
    return Plan(
        mesh=(),
        tensors=(
            Tensor("x", (8, 6), role="input"),
            Tensor("w", (10, 6), role="parameter"),
            Tensor("y", (8, 10), role="output"),
        ),
        operators=(Operator("linear", "linear", ("x", "w"), ("y",), source="model.py:3"),),
        outputs=(Output("y"),),
        name="one linear layer",
    )


def parallel() -> Plan:
    tensors = (
        Tensor("x", (8, 6), role="input", lineage=Lineage("x")),
        Tensor("w", (5, 6), role="parameter", lineage=Lineage("w", (Shard(0, by=("tp",)),))),
        Tensor("h", (8, 5)),
        Tensor("y", (8, 10), role="output"),
    )
    operators = (
        Operator("linear", "linear", ("x", "w"), ("h",), source="model.py:3"),
        Operator(
            "gather",
            "all_gather",
            ("h",),
            ("y",),
            {"axis": 1},
            Group(axes=("tp",)),
            source="model.py:4",
        ),
    )
    return Plan(
        mesh=(Axis("tp", 2),), tensors=tensors, operators=operators, outputs=(Output("y", "y"),)
    )
