"""Pairs of plans with tensors that are 0 for every input, and such that only look so: each once as
it should be, and once as near to it as can be.
"""

from __future__ import annotations

from collections.abc import Callable

from zoo.builder import Builder, lineage

from pitcheck.plan.model import Number, Plan

Pair = tuple[Plan, Plan]
Last = Callable[[Builder, str], str]
BATCH = 8


def _added_up(b: Builder, y: str) -> str:
    """The sum over all dimensions of a matrix, of shape (1,)."""
    summed: str = b.op("sum", b.op("sum", y, axes=(1,)), axes=(0,), keepdim=True)
    return summed


def _zero(b: Builder, x: str, t: str, kind: str) -> str:
    """Append a value that is 0 for every x and t, by terms that cancel."""
    if kind == "centred":  # a bias behind which the mean is taken out
        return _added_up(b, b.op("sub", x, b.op("mean", x, axes=(1,), keepdim=True)))
    if kind == "normed":  # what layer_norm does not see
        centred = b.op("sub", x, b.op("mean", x, axes=(1,), keepdim=True))
        spread = b.op("mean", b.op("square", centred), axes=(1,), keepdim=True)
        return _added_up(
            b, b.op("div", centred, b.op("sqrt", b.op("add", spread, Number("1/1000"))))
        )
    p = b.op("softmax", x, axis=1)
    if kind == "classes":  # the probabilities of all classes are 1
        return b.op(
            "sum", b.op("sub", b.op("sum", p, axes=(1,)), Number(1)), axes=(0,), keepdim=True
        )  # type: ignore[no-any-return]
    # The gradient of a key bias: softmax does not see what is added to all scores of a query.
    pt = b.op("mul", p, t)
    return _added_up(b, b.op("sub", pt, b.op("mul", p, b.op("sum", pt, axes=(1,), keepdim=True))))


KINDS = ("centred", "normed", "classes", "key bias")


def zeros(
    kind: str, own: Last = lambda b, z: z, last: Last = lambda b, z: z, seen: str = ""
) -> Pair:
    """Data parallel over two ranks: ``own`` is done with every rank's sum (of the parallel plan
    alone), ``last`` with the whole one, by both plans.

    ``seen``: what the parallel plan does with the output beside it.
    """
    made = []
    for ranks in (1, 2):
        b = Builder("zero", {"dp": ranks})
        shards = {0: "dp"} if ranks > 1 else None
        x, t = (b.input(name, (BATCH // ranks, 6), shards) for name in ("x", "t"))
        z, beside = (
            _zero(b, x, t, kind),
            b.op("sum", b.op("square", b.op("add", x, t)), axes=(0, 1)),
        )
        if ranks > 1:
            z, beside = (b.op("all_reduce", each, group="dp") for each in (own(b, z), beside))
            beside = b.op(seen, beside) if seen else beside
        b.output(b.op("identity", last(b, z), out="z"))
        b.output(b.op("identity", beside, out="seen"))
        made.append(b.plan())
    return made[0], made[1]


def plus(number: str) -> Last:
    return lambda b, z: b.op("add", z, Number(number))  # type: ignore[no-any-return]


def over_itself(b: Builder, z: str) -> str:
    """0 / 0, as of a step of Adam without epsilon."""
    found: str = b.op("div", z, b.op("sqrt", b.op("square", z)))
    return found


def sign(b: Builder, z: str) -> str:
    """Choose by the sign of z, as a step does that has the sign of the gradient."""
    found: str = b.op("where", b.op("gt", z, Number(0)), b.op("exp", z), b.op("add", z, Number(3)))
    return found


def logarithm(b: Builder, z: str) -> str:
    found: str = b.op("log", b.op("square", z))
    return found


def truncated(b: Builder, z: str) -> str:
    found: str = b.op(
        "cast", b.op("cast", b.op("add", z, Number(1)), dtype="int64"), dtype="float32"
    )
    return found


def huge(b: Builder, z: str) -> str:
    found: str = b.op("mul", b.op("mul", z, Number("1e200")), Number("1e200"))
    return found


AFTERWARDS: dict[str, Last] = {
    "": lambda b, z: z,
    "over itself": over_itself,
    "its sign": sign,
    "its logarithm": logarithm,
    "truncated": truncated,
    "huge": huge,
}


def gradient(factor: str = "1", ranks: tuple[int, int] = (1, 2)) -> Pair:
    """The gradient of a weight, summed over the batch; the parallel plan's times ``factor``."""
    made = []
    for count in ranks:
        b = Builder("gradient", {"dp": count})
        shards = {0: "dp"} if count > 1 else None
        x, g = b.input("x", (BATCH // count, 4), shards), b.input("g", (BATCH // count, 3), shards)
        w = b.op("matmul", b.op("permute", x, permutation=(1, 0)), g)
        if count > 1:
            w = b.op("mul", b.op("all_reduce", w, group="dp"), Number(factor))
        b.output(b.op("identity", w, out="w"))
        made.append(b.plan())
    return made[0], made[1]


def magnitudes(small: str = "1e-30") -> Pair:
    """A sum 1e30 times beside the same 1e-30 times, in one tensor; of the parallel plan ``small``
    times.
    """
    made = []
    for ranks, factor in ((1, "1e-30"), (2, small)):
        b = Builder("magnitudes", {"dp": ranks})
        s = b.op(
            "sum",
            b.input("x", (BATCH // ranks, 3), {0: "dp"} if ranks > 1 else None),
            axes=(0,),
            keepdim=True,
        )
        s = b.op("all_reduce", s, group="dp") if ranks > 1 else s
        b.output(
            b.op(
                "cat",
                b.op("mul", s, Number("1e30")),
                b.op("mul", s, Number(factor)),
                axis=0,
                out="y",
            )
        )
        made.append(b.plan())
    return made[0], made[1]


def on_one_rank(factor: str) -> Pair:
    """exp(x) over two shards, which one rank has ``factor`` times."""
    made = []
    for ranks in (1, 2):
        b = Builder("one rank", {"tp": ranks})
        x = b.input("x", (4, 6 // ranks), {1: "tp"} if ranks > 1 else None)
        y = b.op("exp", x)
        if ranks > 1:
            b.op("mul", y, Number(factor), out="y", where={"tp": (1,)})
            b.op("identity", y, out="y", where={"tp": (0,)})
        else:
            b.op("identity", y, out="y")
        b.output("y", spec=lineage("y", {1: "tp"}) if ranks > 1 else None)
        made.append(b.plan())
    return made[0], made[1]
