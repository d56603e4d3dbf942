"""The first operator that breaks a plan.

It breaks the lineage that its plan states, or the lineage that places let expect.
"""

from __future__ import annotations

from msgspec.structs import replace
from support.explain_plans import Pair, run, said
from zoo.builder import Builder, table
from zoo.pairs import without_hints

from pitcheck.plan.model import Lineage, Plan, Shard
from pitcheck.report.report import Finding

LAYERS = 3


def reference() -> Plan:
    """Linear layers of width 6 with an activation after each."""
    b = Builder("reference")
    y = b.input("x", (4, 6))
    for n in range(LAYERS):
        y = b.op("gelu", b.op("linear", y, b.parameter(f"w{n}", (6, 6)), out=f"h{n}"), out=f"a{n}")
    b.output(b.op("sum", y, out="loss"))
    return b.plan()


def parallel(change: str = "") -> Plan:
    """Every layer by columns over tp, its result gathered and halved again over the same axis."""
    b = Builder("parallel", {"dp": 2, "tp": 2})
    y = b.input("x", (4, 6), {})
    for n in range(LAYERS):
        h = b.op("linear", y, b.parameter(f"w{n}", (3, 6), {0: "tp"}), out=f"h{n}")
        if change == "factor" and n == 1:
            h = b.op("mul", h, b.constant("two", 2.0), out="h1_twice")
        whole = b.op("all_gather", h, out=f"h{n}_whole", group="tp", axis=1)
        first, second = (3, 0) if change == "rotated" and n == 1 else (0, 3)
        own = b.op(
            "slice",
            whole,
            axis=1,
            start=table("tp", first, second),
            stop=table("tp", first + 3, second + 3),
            out=f"h{n}_own",
        )
        y = b.op("all_gather", b.op("gelu", own, out=f"a{n}_own"), out=f"a{n}", group="tp", axis=1)
    b.output(b.op("sum", y, out="loss"))
    return b.plan()


def hinted(plan: Plan) -> Plan:
    """The plan with true lineage of ``h1_own`` and what is around it."""
    columns = (Shard(1, by=("tp",)),)
    known = {
        f"{kind}{n}{end}": Lineage(f"{kind}{n}", shards)
        for n in range(LAYERS)
        for kind in "ha"
        for end, shards in (("_own", columns), ("_whole", ()))
    }
    known |= {f"a{n}": Lineage(f"a{n}") for n in range(LAYERS)} | {
        f"h{n}": Lineage(f"h{n}", columns) for n in range(LAYERS)
    }
    return replace(
        plan, tensors=tuple(replace(t, lineage=known.get(t.name, t.lineage)) for t in plan.tensors)
    )


def finding(pair: Pair) -> Finding:
    report = run(pair)
    assert report.verdict == "mismatch", said(report)
    return report.findings[0]


def test_right_plan_is_equivalent() -> None:
    for plan in (parallel(), hinted(parallel())):
        assert run((reference(), plan)).verdict == "equivalent"


def test_slices_in_another_order_are_found_at_the_slice() -> None:
    """Every rank holds a right part of the right tensor: only its place is wrong."""
    for plan in (parallel("rotated"), hinted(parallel("rotated"))):
        found = finding((reference(), plan))
        assert found.code == "PIT107", found
        assert "slice" in (found.operator or ""), found
        assert "'h1_own'" in found.title
        assert "where" in (found.cause or "")


def test_factor_is_named_where_it_arises_with_all_axes_of_that_size() -> None:
    found = finding((reference(), hinted(parallel("factor"))))
    assert "h1" in found.title
    assert "2 (size of dp and size of tp: 2)" in (found.cause or ""), found


def test_false_hints_do_not_hide_a_cause() -> None:
    """Nearly all hints are false, so none is followed."""
    plan = without_hints(parallel("factor"))
    false = {
        t.name: Lineage("x") for t in plan.tensors if t.name.startswith("a") and t.shape == (4, 6)
    }
    plan = replace(
        plan, tensors=tuple(replace(t, lineage=false.get(t.name, t.lineage)) for t in plan.tensors)
    )
    report = run((reference(), plan))
    assert report.verdict == "mismatch", said(report)
