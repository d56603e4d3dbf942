"""Exit code 1 needs a real difference: what float64 rounds, loses, overflows or saturates is none,
and what it hides is found.
"""

from __future__ import annotations

import pytest
from support.explain_plans import Pair, run, said
from zoo.builder import Builder

from pitcheck.plan.model import Number, Plan


def chain(*steps: tuple[str, object], shape: tuple[int, ...] = (3, 4)) -> Plan:
    """x, then one operator with one literal after another."""
    b = Builder("chain")
    y = b.input("x", shape)
    for n, (kind, literal) in enumerate(steps):
        operands = (y,) if literal is None else (y, Number(literal))  # type: ignore[arg-type]
        y = b.op(kind, *operands, out="y" if n == len(steps) - 1 else "")
    b.output(y)
    return b.plan()


def softmax_naive() -> Plan:
    """exp(x) / sum(exp(x)), which overflows."""
    b = Builder("naive")
    e = b.op("exp", b.op("mul", b.input("x", (3, 4)), Number(100000)))
    b.output(b.op("div", e, b.op("sum", e, axes=(1,), keepdim=True), out="y"))
    return b.plan()


def softmax_stable() -> Plan:
    b = Builder("stable")
    b.output(b.op("softmax", b.op("mul", b.input("x", (3, 4)), Number(100000)), axis=1, out="y"))
    return b.plan()


def log_sum_exp(shifted: bool) -> Plan:
    """log(sum(exp(s x))), plain or with 1000 taken out of the exponent and put back."""
    b = Builder("lse")
    x = b.op("mul", b.input("x", (3, 4)), Number(1000))
    s = b.op("sub", x, Number(1000)) if shifted else x
    e = b.op("log", b.op("sum", b.op("exp", s), axes=(1,)), out="" if shifted else "y")
    b.output(b.op("add", e, Number(1000), out="y") if shifted else e)
    return b.plan()


def squares(expanded: bool) -> Plan:
    """(x + c)^2 - c^2 - 2cx with c = 1e9 is x^2: all digits cancel in float64."""
    b = Builder("squares")
    x = b.input("x", (3, 4))
    if not expanded:
        b.output(b.op("square", x, out="y"))
        return b.plan()
    q = b.op("square", b.op("add", x, Number(10**9)))
    b.output(
        b.op("sub", b.op("sub", q, Number(10**18)), b.op("mul", x, Number(2 * 10**9)), out="y")
    )
    return b.plan()


def deep(pieces: bool) -> Plan:
    """Forty layers; the parallel plan takes every product in two halves, last one first."""
    b = Builder("deep")
    y = b.input("x", (3, 6))
    for n in range(40):
        w = b.parameter(f"w{n}", (6, 6))
        name = "y" if n == 39 else ""
        if pieces:
            low, high = (
                b.op("linear", *(b.op("slice", t, axis=1, start=s, stop=s + 3) for t in (y, w)))
                for s in (0, 3)
            )
            y = b.op("add", high, low, out=name)
        else:
            y = b.op("linear", y, w, out=name)
    b.output(y)
    return b.plan()


SAME: dict[str, Pair] = {
    "sum with 1e20": (chain(("mul", 1)), chain(("add", 10**20), ("sub", 10**20))),
    "sum with 1e150": (chain(("mul", 1)), chain(("add", "1e150"), ("sub", "1e150"))),
    "product with 1e150 twice and back": (
        chain(("mul", "1e150"), ("mul", "1e-150")),
        chain(("mul", 1)),
    ),
    "overflow and back": (
        chain(("mul", "1e200"), ("mul", "1e200"), ("mul", "1e-200"), ("mul", "1e-200")),
        chain(("mul", 1)),
    ),
    "underflow and back": (
        chain(("mul", "1e-200"), ("mul", "1e-200"), ("mul", "1e200"), ("mul", "1e200")),
        chain(("mul", 1)),
    ),
    "thirds": (chain(("div", 3), ("div", 7)), chain(("mul", "1/21"))),
    "cancelling squares": (squares(expanded=False), squares(expanded=True)),
    "softmax that overflows": (softmax_stable(), softmax_naive()),
    "log of overflowing sum": (log_sum_exp(shifted=True), log_sum_exp(shifted=False)),
    "saturated sigmoid": (
        chain(("mul", 10**5), ("sigmoid", None)),
        chain(("mul", -(10**5)), ("sigmoid", None), ("neg", None), ("add", 1)),
    ),
    "deep chain": (deep(pieces=False), deep(pieces=True)),
}


@pytest.mark.parametrize("name", SAME)
def test_rounding_is_no_mismatch(name: str) -> None:
    for pair in (SAME[name], SAME[name][::-1]):
        report = run(pair)
        assert report.verdict in {"equivalent", "inconclusive"}, said(report)


@pytest.mark.parametrize(
    "name",
    [
        "product with 1e150 twice and back",
        "thirds",
        "deep chain",
        "sum with 1e20",
        "overflow and back",
        "cancelling squares",
    ],
)
def test_what_float64_loses_is_proven(name: str) -> None:
    report = run(SAME[name])
    assert report.verdict == "equivalent", said(report)


REAL: dict[str, Pair] = {
    "a millionth part": (chain(("mul", 1)), chain(("mul", "1000001/1000000"))),
    "1e-10 of it": (chain(("mul", 1)), chain(("mul", "10000000001/10000000000"))),
    "1e-13 of it": (chain(("mul", 1)), chain(("mul", "10000000000001/10000000000000"))),
    "1e-18 of it": (chain(("mul", 1)), chain(("mul", "1000000000000000001/1000000000000000000"))),
    "behind a large sum": (chain(("mul", 1)), chain(("add", 10**20), ("sub", 10**20), ("mul", 2))),
    "in tiny values": (chain(("mul", "1e-150")), chain(("mul", "2e-150"))),
    "in huge values": (chain(("mul", "1e150")), chain(("mul", "2e150"))),
    "under saturation": (
        chain(("mul", 10**3), ("sigmoid", None)),
        chain(("mul", 1001), ("sigmoid", None)),
    ),
    "where only small inputs show it": (
        chain(("mul", 200), ("tanh", None)),
        chain(("mul", 300), ("tanh", None)),
    ),
}


@pytest.mark.parametrize("name", REAL)
def test_small_differences_are_found(name: str) -> None:
    for pair in (REAL[name], REAL[name][::-1]):
        report = run(pair)
        assert report.verdict == "mismatch", said(report)
        assert report.findings[0].reference_value != report.findings[0].parallel_value, said(report)
