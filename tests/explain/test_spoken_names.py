"""Gradients and states are called by the parameter that they belong to."""

from __future__ import annotations

import pytest
from support.explain_plans import Pair, first_finding, run, said
from zoo.builder import Builder

from pitcheck.explain import messages
from pitcheck.explain.diagnosis import Diagnosis, Kind
from pitcheck.graph.spoken_names import Spoken
from pitcheck.plan.model import Number


def of(parameter: str) -> Spoken:
    return Spoken(f"div#{len(parameter)}", f"the gradient of {parameter}")


def test_a_name_in_words_is_still_the_name() -> None:
    name = of("a.ln.bias")
    assert name == "div#9"
    assert f"{name}: {name!r}" == "div#9: the gradient of a.ln.bias"


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ([], ""),
        ([of("a.ln.weight")], " (also ln.weight)"),
        ([of("a.ln.weight"), of("b.ln.bias")], " (also a.ln.weight, b.ln.bias)"),
        ([of("a.ln.bias")], ""),
        ([of("a.w"), "hidden"], ""),
        (
            [of(f"a.w{'x' * n}") for n in range(8)],
            " (also w, wx, wxx, wxxx, wxxxx, wxxxxx and 2 more)",
        ),
    ],
)
def test_further_gradients_are_in_the_title(others: list[str], told: str) -> None:
    diagnosis = Diagnosis(
        Kind("PIT104", "", title="{result!r} is never {done}"), {"done": "summed"}
    )
    title = messages.title(diagnosis, "loss", of("a.ln.bias"), others)
    assert title == f"the gradient of a.ln.bias is never summed{told}"


def clipped(forgotten: str = "") -> Pair:
    """Three gradients divided by their common norm, each a sum over the ranks' rows."""
    r, b = Builder("reference"), Builder("dp", {"dp": 2})
    for plan, rows, parts in ((r, 8, None), (b, 4, {0: "dp"})):
        x, gradients = plan.input("x", (rows, 3), parts), {}
        for name in ("net.a", "net.b", "net.c"):
            product = plan.op("mul", plan.op("exp", x), plan.parameter(name, (3,)))
            x = plan.op("exp", product)
            own = plan.op("sum", x, axes=(0,), out=f"sum#{name}")
            if plan is b and name.removeprefix("net.") not in forgotten:
                own = plan.op("all_reduce", own, group="dp", out=f"all_reduce#{name}")
            gradients[name] = plan.op("div", own, Number("3"), out=f"div#{name}")
        squares = [plan.op("sum", plan.op("square", g)) for g in gradients.values()]
        norm = plan.op("sqrt", plan.op("add", plan.op("add", *squares[:2]), squares[2]))
        for name, g in gradients.items():
            plan.gradient(plan.op("div", g, norm, out=f"grad:{name}"), name)
    return r.plan(), b.plan()


def test_gradients_that_are_not_summed_are_one_finding() -> None:
    found = first_finding(clipped("ab"))
    assert found.title == "the gradient of net.a is never summed over dp (also net.b)"
    assert found.tried is not None
    assert [edit.text for edit in found.edits] == [
        f"all-reduce(sum) over dp of the gradient of net.{name}" for name in "ab"
    ]


def test_the_right_plan_sums_all_of_them() -> None:
    report = run(clipped())
    assert report.verdict == "equivalent", said(report)
