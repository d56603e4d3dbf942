"""Gradients of one micro-batch that meet what another one has computed."""

from __future__ import annotations

from support.explain_plans import Pair, first_finding, run, said
from zoo.builder import Builder

from pitcheck.plan.model import Number

PASSES = 3


def weight_gradient(shift: int, factor: int = 1) -> Pair:
    """The sum over micro-batches of h^T g; h is computed, and g comes ``shift`` micro-batches late.

    Both plans run micro-batch by micro-batch, as a program does that loops over them.
    """
    plans = []
    for late, scale in ((0, 1), (shift, factor)):
        b = Builder("reference" if not plans else "pp", None if not plans else {"pp": 2})
        given = {} if plans else None
        xs, gs = (
            [b.input(f"{name}{n}", (4, 3), given) for n in range(PASSES)] for name in ("x", "g")
        )
        hidden = [b.op("exp", x, out=f"h#{n}") for n, x in enumerate(xs)]
        back = [b.op("sin", g, out=f"d#{n}") for n, g in enumerate(gs)]
        terms = [
            b.op("matmul", b.op("transpose", h, dim0=0, dim1=1), back[n - late])
            for n, h in enumerate(hidden)
        ]
        total = b.op("add", b.op("add", *terms[:2]), terms[2])
        b.output(b.op("mul", total, Number(scale), out="grad"))
        plans.append(b.plan())
    return plans[0], plans[1]


def test_gradients_of_the_micro_batch_before() -> None:
    finding = first_finding(weight_gradient(1))
    assert finding.code == "PIT103", finding
    assert finding.title.endswith("mixes micro-batches"), finding
    assert "of pass 1 over this line together with 'd#2' of pass 3" in (finding.cause or "")


def test_each_gradient_with_its_micro_batch() -> None:
    report = run(weight_gradient(0))
    assert report.verdict == "equivalent", said(report)


def test_a_factor_mixes_nothing() -> None:
    assert "mixes" not in first_finding(weight_gradient(0, factor=2)).title
