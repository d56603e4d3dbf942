"""Weights decay, biases do not. An optimizer that tells them by their number of dimensions finds
one in a shard that was made flat.
"""

from __future__ import annotations

from functools import partial

from bugs.record import Bug, Written
from bugs.sketch import Sketch

from pitcheck.plan.model import Number, Plan

ROWS, WIDTH = 4, 3
SHAPES: dict[str, tuple[int, ...]] = {"weight": (ROWS, WIDTH), "bias": (ROWS,)}


def reference(decay: bool) -> Plan:
    plan = Sketch("decay")
    for name, shape in SHAPES.items():
        _step(plan, name, shape, {}, decay and len(shape) > 1)
    return plan.plan()


def _step(
    plan: Sketch, name: str, shape: tuple[int, ...], cut: dict[int, str], decays: bool
) -> None:
    """A step by the gradient, and a hundredth of the parameter if it decays."""
    old, gradient = plan.parameter(name, shape, cut), plan.input(f"g:{name}", shape, cut)
    step = plan.op("mul", gradient, Number("1/10"), out=f"step:{name}")
    kept = plan.op("mul", old, Number("99/100"), out=f"kept:{name}") if decays else old
    plan.update(plan.op("sub", kept, step, out=f"{name}:new"), old, f"{name}:new")


def parallel(ranks: int, decay: bool, wrong: bool) -> Plan:
    plan = Sketch("decay-fsdp", {"fsdp": ranks})
    for name, shape in SHAPES.items():
        dimensions = 1 if wrong else len(shape)
        own = (shape[0] // ranks, *shape[1:])
        _step(plan, name, own, {0: "fsdp"}, decay and dimensions > 1)
    return plan.plan()


def setting(ranks: int, decay: bool) -> Written:
    return Written(partial(reference, decay), partial(parallel, ranks, decay))


BUG = Bug(
    where="open_clip PR 358",
    thread="https://github.com/mlfoundations/open_clip/pull/358",
    should="parameters of two and more dimensions decay",
    was="shards that were made flat have one dimension: none decays",
    codes=("PIT102", "PIT115", "PIT101", "PIT103"),
    says=("weight:new",),
    shows={"two ranks": setting(2, True), "four ranks": setting(4, True)},
    silent={"no decay": setting(2, False)},
)
