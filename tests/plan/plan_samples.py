"""Small plans for the tests, written by hand."""

from __future__ import annotations

from typing import Any

import msgspec

from pitcheck.plan.model import (
    Axis,
    Group,
    Lineage,
    Operator,
    Output,
    Plan,
    Program,
    Shard,
    Step,
    Table,
    Tensor,
)

TP2 = (Axis("tp", 2),)
PP2 = (Axis("pp", 2),)
FIRST = ({"pp": (0,)},)
LAST = ({"pp": (1,)},)


def change(struct: Any, **fields: Any) -> Any:
    """Return a copy with other fields."""
    return msgspec.structs.replace(struct, **fields)


def with_operator(plan: Plan, number: int, **fields: Any) -> Plan:
    operators = list(plan.operators)
    operators[number] = change(operators[number], **fields)
    return change(plan, operators=tuple(operators))


def with_tensor(plan: Plan, number: int, **fields: Any) -> Plan:
    tensors = list(plan.tensors)
    tensors[number] = change(tensors[number], **fields)
    return change(plan, tensors=tuple(tensors))


def linear_reference() -> Plan:
    """y = x w on a single device."""
    return Plan(
        mesh=(),
        tensors=(
            Tensor("x", (4, 6), role="input"),
            Tensor("w", (6, 8), role="parameter"),
            Tensor("y", (4, 8)),
        ),
        operators=(Operator("y", "matmul", ("x", "w"), ("y",)),),
        outputs=(Output("y"),),
    )


def linear_parallel() -> Plan:
    """Return the linear layer with w cut by rows over tp and an all-reduce."""
    return Plan(
        mesh=TP2,
        tensors=(
            Tensor("x", (4, 3), role="input", lineage=Lineage("x", (Shard(1, by=("tp",)),))),
            Tensor(
                "w",
                (3, 8),
                role="parameter",
                lineage=Lineage("w", (Shard(0, intervals=Table(("tp",), (((0, 3),), ((3, 6),)))),)),
            ),
            Tensor("p", (4, 8), lineage=Lineage("y", partial=("tp",))),
            Tensor("y", (4, 8)),
        ),
        operators=(
            Operator("product", "matmul", ("x", "w"), ("p",), source="model.py:3"),
            Operator(
                "sum", "all_reduce", ("p",), ("y",), {"reduction": "sum"}, Group(axes=("tp",))
            ),
        ),
        outputs=(Output("y", reference="y", lineage=Lineage("y")),),
    )


def pipeline(
    order: tuple[str, ...] = ("f0", "f1", "b0", "b1"), microbatches: int = 2, **send: Any
) -> Plan:
    """Return two pipeline stages.

    ``order`` has the steps of the last stage; the first one always runs all forward, then all
    backward steps.
    """
    tensors = (
        Tensor("x", (4,), role="input", microbatched=True),
        Tensor("a", (4,), microbatched=True),
        Tensor("b", (4,), microbatched=True),
        Tensor("c", (4,), microbatched=True),
        Tensor("d", (4,), microbatched=True),
        Tensor("e", (4,), microbatched=True),
    )
    operators = (
        Operator("forward0", "neg", ("x",), ("a",), where=FIRST),
        Operator("send0", "send", ("a",), (), {"peer": 1, **send}, where=FIRST),
        Operator("receive1", "receive", (), ("b",), {"peer": 0}, where=LAST),
        Operator("forward1", "neg", ("b",), ("c",), where=LAST),
        Operator("backward1", "neg", ("c",), ("d",), where=LAST),
        Operator("send1", "send", ("d",), (), {"peer": 0, **send}, where=LAST),
        Operator("receive0", "receive", (), ("e",), {"peer": 1}, where=FIRST),
    )
    blocks = {
        "f0": ("forward0", "send0"),
        "b0": ("receive0",),
        "f1": ("receive1", "forward1"),
        "b1": ("backward1", "send1"),
    }
    first = tuple(Step(block, m) for block in ("f0", "b0") for m in range(microbatches))
    last = tuple(Step(name[0] + "1", int(name[1])) for name in order)
    programs = (Program(first, FIRST), Program(last, LAST))
    return Plan(PP2, tensors, operators, (), microbatches, blocks, programs)


def crossing(ranks: int, *, sends_first: bool = True, **attributes: Any) -> Plan:
    """Return a ring in which every rank sends to the next one and receives from the one before."""
    following = Table(("r",), tuple((rank + 1) % ranks for rank in range(ranks)))
    before = Table(("r",), tuple((rank - 1) % ranks for rank in range(ranks)))
    send = Operator("send", "send", ("x",), (), {"peer": following, **attributes})
    receive = Operator(
        "receive",
        "receive",
        (),
        ("y",),
        {"peer": before, **{k: v for k, v in attributes.items() if k == "batch"}},
    )
    tensors = (Tensor("x", (4,), role="input"), Tensor("y", (4,)))
    return Plan(
        (Axis("r", ranks),), tensors, (send, receive) if sends_first else (receive, send), ()
    )
