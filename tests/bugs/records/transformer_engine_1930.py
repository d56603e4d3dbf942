"""A packed sequence of odd length over context-parallel ranks: its length is rounded down to a
multiple of their number.
"""

from __future__ import annotations

from functools import partial

from bugs.documents import PARTS, WIDTH
from bugs.record import Bug, Written
from bugs.sketch import Sketch

from pitcheck.plan.model import Number, Plan

SLOTS = 6


def reference(length: int) -> Plan:
    """``length``: how many of the slots have a token."""
    plan = Sketch("odd-length")
    q, k, v = (plan.input(name, (SLOTS, WIDTH)) for name in PARTS)
    mask = _seen(plan, k, length)
    plan.output(plan.op("scaled_dot_product_attention", q, k, v, mask, out="y"))
    return plan.plan()


def _seen(plan: Sketch, k: str, length: int) -> str:
    """True if there is a token in a column's slot."""
    column = plan.op("unsqueeze", plan.op("positions", k, axis=0), axis=0)
    row = plan.op("unsqueeze", plan.op("positions", "q", axis=0), axis=1)
    return str(plan.op("lt", plan.op("add", column, plan.op("sub", row, row)), Number(length)))


def parallel(ranks: int, length: int, wrong: bool) -> Plan:
    plan = Sketch("odd-length-cp", {"cp": ranks})
    own, cut = SLOTS // ranks, {0: "cp"}
    q, k, v = (plan.input(name, (own, WIDTH), cut) for name in PARTS)
    k, v = (plan.op("all_gather", x, out=f"{x}:all", group="cp", axis=0) for x in (k, v))
    mask = _seen(plan, k, length // ranks * ranks if wrong else length)
    mixed = plan.op("scaled_dot_product_attention", q, k, v, mask, out="y:own")
    plan.output(plan.op("all_gather", mixed, out="y", group="cp", axis=0))
    return plan.plan()


def setting(ranks: int, length: int) -> Written:
    return Written(partial(reference, length), partial(parallel, ranks, length))


BUG = Bug(
    where="TransformerEngine #1930",
    thread="https://github.com/NVIDIA/TransformerEngine/issues/1930",
    should="all tokens of a packed sequence are seen",
    was="with context parallelism its length is rounded down: the last tokens are not",
    codes=("PIT102",),
    says=("lt",),
    shows={"two ranks": setting(2, 5), "three ranks": setting(3, 5)},
    silent={"an even length": setting(2, 4), "one rank": setting(1, 5)},
)
