"""Plans whose report must say more than its verdict, and decisions that draws seldom make: none of
these may be called equivalent at any seed. Pairs that need no more than a verdict are plan files.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.verdicts import not_proven, proven, reports
from zoo.builder import Builder, lineage

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Number, Plan


def _linear() -> Plan:
    b = Builder("linear")
    x, w, g = b.input("x", (4, 6)), b.parameter("w", (6, 6)), b.input("g", (4, 6))
    y = b.op("linear", x, w, out="y")
    b.output(y)
    b.back("linear", [x, w], y, g, ["", "dw"])
    b.gradient("dw", w)
    return b.plan()


def _spread(reduce: Any = None, outputs: bool = True, **options: Any) -> Builder:
    """Two ranks with half of the rows each; ``reduce`` appends what makes dw from dw_own."""
    b = Builder("linear", {"dp": 2})
    x, w, g = (
        b.input("x", (2, 6), {0: "dp"}),
        b.parameter("w", (6, 6), {}),
        b.input("g", (2, 6), {0: "dp"}),
    )
    y = b.op("linear", x, w)
    b.op("all_gather", y, out="y", group="dp", axis=0)
    b.back("linear", [x, w], y, g, ["", "dw_own"], **options)
    (reduce or (lambda b: b.op("all_reduce", "dw_own", out="dw", group="dp")))(b)
    if outputs:
        b.output("y")
        b.gradient("dw", "w")
    return b


def test_exceptions_are_said() -> None:
    b = _spread(lambda b: b.op("identity", "dw_own", out="dw"), outputs=False)
    b.output("y")
    b._mark("dw", role="gradient", gradient_of="w")
    b.output("dw", spec=lineage("dw", partial=("dp",)))
    for report in reports(_linear(), b.plan()):
        assert report.verdict == "equivalent"
        assert any("dw" in line and "dp" in line for line in report.exceptions)


def test_output_that_claims_to_be_a_gradient() -> None:
    """A result of the forward pass must be whole on every rank; calling it the gradient of a
    sharded parameter does not make it sharded.
    """
    r = Builder("claim")
    x, w = r.input("x", (6, 4)), r.parameter("w", (6, 4))
    r.output(r.op("mul", x, w, out="y"))
    b = Builder("claim", {"tp": 2})
    x, w = b.input("x", (3, 4), {0: "tp"}), b.parameter("w", (3, 4), {0: "tp"})
    b.op("mul", x, w, out="y")
    b.gradient("y", w)
    for report in reports(r.plan(), b.plan()):
        assert report.verdict != "equivalent" or report.exceptions


def test_parameter_without_lineage_is_whole() -> None:
    b = Builder("whole", {"dp": 2})
    b.output(b.op("square", b.parameter("w", (6, 6)), out="y"))
    r = Builder("whole")
    r.output(r.op("square", r.parameter("w", (6, 6)), out="y"))
    assert any("w has no lineage" in line for line in proven(r.plan(), b.plan()).assumptions)
    small = Builder("whole", {"dp": 2})
    part = small.parameter("w", (3, 6))
    small.output(small.op("all_gather", small.op("square", part), out="y", group="dp", axis=0))
    assert not_proven(r.plan(), small.plan()).verdict == "invalid"


def test_operators_that_reach_nothing_are_listed() -> None:
    b = _spread()
    b.op("exp", "x", out="unused")
    report = proven(_linear(), b.plan())
    assert any("exp" in name for name in report.dead_operators)


# --- discrete cases that are rare


def test_rank_without_tokens_among_many() -> None:
    """A rank without a token that counts is one draw in 2^32: the case is tried on purpose, or
    nothing is said.
    """

    def mean(weighted: bool, ranks: int) -> Plan:
        b = Builder("tokens", {"dp": ranks})
        size = 16 // ranks
        spec = {0: "dp"} if ranks > 1 else None
        losses, ids = (
            b.input("losses", (size,), spec),
            b.input("ids", (size,), spec, dtype="int64", bounds=(0, 16)),
        )
        counts = b.op("cast", b.op("ne", ids, Number(0)), dtype="float32")
        own, number = b.op("sum", b.op("mul", losses, counts)), b.op("sum", counts)
        if weighted:
            own = b.op("mul", b.op("div", own, number), number)
        if ranks > 1:
            own, number = (
                b.op("all_reduce", own, group="dp"),
                b.op("all_reduce", number, group="dp"),
            )
        b.output(b.op("div", own, number, out="y"))
        return b.plan()

    assert reports(mean(False, 1), mean(False, 2))[0].verdict in ("equivalent", "inconclusive")
    not_proven(mean(False, 1), mean(True, 2))


@pytest.mark.parametrize("size", [32, 128])
@pytest.mark.parametrize("kind", ["amax", "amin"])
def test_maximum_that_leaves_one_element_out(kind: str, size: int) -> None:
    """One of many elements decides seldom: draws that never chose it say nothing."""

    def most(stop: int) -> Plan:
        b = Builder("most")
        x = b.input("x", (4, size))
        b.output(b.op(kind, b.op("slice", x, axis=1, start=0, stop=stop), axes=(1,), out="y"))
        return b.plan()

    proven(most(size), most(size))
    for seed in range(8):
        report = check(most(size), most(size - 1), Options(seed=seed))
        assert report.verdict != "equivalent"


def _when_all(size: int, how: str) -> Plan:
    """Every element doubled where all are positive."""
    b = Builder("when-all")
    x = b.input("x", (2, size))
    if how == "chain":
        parts = [
            b.op("gt", b.op("slice", x, axis=1, start=i, stop=i + 1), Number(0))
            for i in range(size)
        ]
        every = parts[0]
        for part in parts[1:]:
            every = b.op("logical_and", every, part)
    else:
        every = b.op("all", b.op("gt", x, Number(0)), axes=(1,), keepdim=True)
    b.output(b.op("where", every, b.op("mul", x, Number(2)), x, out="y"))
    return b.plan()


@pytest.mark.parametrize("how", ["chain", "all"])
def test_condition_that_seldom_holds(how: str) -> None:
    b = Builder("never")
    b.output(b.op("mul", b.input("x", (2, 30)), Number(1), out="y"))
    proven(_when_all(30, how), _when_all(30, how))
    for seed in range(4):
        assert check(b.plan(), _when_all(30, how), Options(seed=seed)).verdict != "equivalent"


def test_product_of_decisions_that_seldom_all_hold() -> None:
    r, b = Builder("product"), Builder("product")
    r.output(r.op("mul", r.input("x", (2, 30)), Number(1), out="y"))
    x = b.input("x", (2, 30))
    every = b.op("relu", b.op("slice", x, axis=1, start=0, stop=1))
    for i in range(1, 30):
        every = b.op("mul", every, b.op("relu", b.op("slice", x, axis=1, start=i, stop=i + 1)))
    b.output(b.op("add", x, every, out="y"))
    for seed in range(4):
        assert check(r.plan(), b.plan(), Options(seed=seed)).verdict != "equivalent"


def test_place_of_a_maximum_that_leaves_one_out() -> None:
    def place(stop: int) -> Plan:
        b = Builder("place")
        x = b.op("slice", b.input("x", (4, 32)), axis=1, start=0, stop=stop)
        b.output(b.op("argmax", x, axis=1, out="y"))
        return b.plan()

    proven(place(32), place(32))
    for seed in range(6):
        assert check(place(32), place(31), Options(seed=seed)).verdict != "equivalent"
