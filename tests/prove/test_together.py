"""What choices decide: theorems where one of them does, or few in each term, and estimates that
name the operator otherwise.

The wrong plans that no draw tells apart are folders of ``tests/attacks/data/choices``.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from zoo.builder import Builder

from pitcheck.base.options import Options
from pitcheck.commands.reading import read_pair
from pitcheck.engine.check import check
from pitcheck.plan.model import Number, Plan, Tensor
from pitcheck.report.report import Report

TOKENS, EXPERTS = 6, 4
Formula = Callable[[Builder, str, str], str]
"""A result of the expert that each token chose, (tokens,) integers, and of y, (tokens, 3)."""


def _plan(name: str, formula: Formula) -> Plan:
    b = Builder(name, {} if name == "reference" else {"dp": 1})
    given = () if name == "reference" else ({},)
    x, y = b.input("x", (TOKENS, EXPERTS), *given), b.input("y", (TOKENS, 3), *given)
    chosen = b.op("argmax", x, out="chosen", axis=1)
    b.output(b.op("identity", formula(b, chosen, y), out="result"), *given)
    return b.plan()


def _report(reference: Formula, parallel: Formula, estimates: str = "accept") -> Report:
    plans = _plan("reference", reference), _plan("parallel", parallel)
    return check(*plans, Options(seed=1, jobs=1, estimates=estimates))


def _load(b: Builder, chosen: str) -> str:
    """The tokens of every expert, (experts,)."""
    return b.op("sum", b.op("one_hot", chosen, classes=EXPERTS), axes=(0,))


def _of_first(b: Builder, load: str) -> str:
    return b.op("select", load, axis=0, index=0)


def _where(b: Builder, condition: str, y: str) -> str:
    return b.op("mul", y, b.op("cast", condition, dtype="float32"))


def by_sum(b: Builder, chosen: str, y: str) -> str:
    return _where(b, b.op("ge", _of_first(b, _load(b, chosen)), Number(2)), y)


def by_running_sum(b: Builder, chosen: str, y: str) -> str:
    counted = b.op("cumsum", b.op("one_hot", chosen, classes=EXPERTS), axis=0)
    last = b.op("select", counted, axis=0, index=TOKENS - 1)
    return _where(b, b.op("ge", _of_first(b, last), Number(2)), y)


def by_quotient(b: Builder, chosen: str, y: str) -> str:
    first = _of_first(b, _load(b, chosen))
    b.op("floor_divide", first, Number(2), out="half")
    b.tensors["half"] = Tensor("half", (), "int64")  # the builder takes a literal for a float
    return _where(b, b.op("ge", "half", Number(1)), y)


def of_its_expert(b: Builder, chosen: str, y: str) -> str:
    return _where(b, b.op("unsqueeze", b.op("eq", chosen, Number(1)), axis=1), y)


def at_slots(b: Builder, chosen: str, y: str) -> str:
    """Tokens at places that they count together."""
    hot = b.op("one_hot", chosen, classes=EXPERTS)
    before = b.op("sub", b.op("cumsum", hot, axis=0), hot)
    place = b.op("sum", b.op("mul", before, hot), axes=(1,))
    return b.op("index_select", y, place, axis=0)


def squared(b: Builder, chosen: str, y: str) -> str:
    first = _of_first(b, _load(b, chosen))
    return _where(b, b.op("mul", first, first), y)


def cubed(b: Builder, chosen: str, y: str) -> str:
    first = _of_first(b, _load(b, chosen))
    return _where(b, b.op("mul", b.op("mul", first, first), first), y)


def cubed_otherwise(b: Builder, chosen: str, y: str) -> str:
    first = _of_first(b, _load(b, chosen))
    return _where(b, b.op("mul", first, b.op("mul", first, first)), y)


def test_what_one_choice_decides_is_a_theorem() -> None:
    report = _report(of_its_expert, of_its_expert)
    assert (report.verdict, report.heuristic) == ("equivalent", ())


@pytest.mark.parametrize(
    ("reference", "parallel", "named"),
    [
        (by_sum, by_sum, "ge"),
        (by_sum, by_running_sum, "ge"),
        (by_sum, by_quotient, "floor_divide"),
        (by_quotient, by_sum, "ge"),
        (at_slots, at_slots, "index"),
        (squared, squared, "rare ones at once"),
        (cubed, cubed, "mul"),
        (cubed, cubed_otherwise, "mul"),
    ],
)
def test_what_several_choices_decide_is_an_estimate_that_names_it(
    reference: Formula, parallel: Formula, named: str
) -> None:
    report = _report(reference, parallel)
    assert report.verdict == "equivalent"
    (said,) = report.heuristic
    assert "what integers of several choices decide together" in said
    assert named in said


def test_what_one_side_alone_decides_and_no_draw_shows_is_open() -> None:
    """All six tokens choose one expert in one draw of 1,024: nothing of it was tried."""

    def of_all(b: Builder, chosen: str, y: str) -> str:
        full = b.op("ge", _of_first(b, _load(b, chosen)), Number(7))
        return b.op("add", _where(b, full, y), y)

    def of_none(b: Builder, chosen: str, y: str) -> str:
        b.op("identity", chosen, out="unused")
        return y

    report = _report(of_none, of_all)
    assert report.verdict == "inconclusive"
    assert [finding.code for finding in report.findings] == ["PIT204"]


def test_an_estimate_is_refused_if_a_theorem_is_asked_for() -> None:
    report = _report(by_sum, by_quotient, "refuse")
    assert (report.verdict, report.exit_code) == ("inconclusive", 3)
    assert [finding.code for finding in report.findings] == ["PIT208"]
    assert report.findings[0].title == report.heuristic[0]
    assert report.outputs.proven == report.outputs.total
    assert _report(of_its_expert, of_its_expert, "refuse").verdict == "equivalent"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "layout", "estimates"),
    [("llama3-tiny", (), 0), ("llama3-tiny", ("tp=4", "dp=1"), 0), ("mixtral-tiny", (), 1)],
)
def test_a_dense_model_is_a_theorem_and_a_mixture_names_its_routed_stages(
    file: str, layout: tuple[str, ...], estimates: int
) -> None:
    report = check(*read_pair(f"plans/{file}.toml", layout), Options(seed=1))
    assert report.verdict == "equivalent"
    assert len(report.heuristic) == estimates
    assert all("of several choices" in said for said in report.heuristic)


def six_of_seven(b: Builder, chosen: str, y: str) -> str:
    """All tokens choose expert 1, among places of which a seventh depends on all the others."""
    total = b.op("cast", b.op("sum", chosen, axes=(0,)), dtype="float32")
    last = b.op("mul", b.op("slice", "x", axis=0, start=0, stop=1), total)
    places = b.op("argmax", b.op("cat", "x", last, axis=0), axis=1)
    own = b.op("slice", places, axis=0, start=0, stop=TOKENS)
    hot = b.op("cast", b.op("eq", own, Number(1)), dtype="float32")
    all_of_them = b.op("select", hot, axis=0, index=0)
    for token in range(1, TOKENS):
        all_of_them = b.op("mul", all_of_them, b.op("select", hot, axis=0, index=token))
    return b.op("add", y, b.op("mul", y, all_of_them))


def nothing_of_them(b: Builder, chosen: str, y: str) -> str:
    b.op("identity", chosen, out="unused")
    return y


def test_choices_beside_one_of_several_are_counted() -> None:
    report = _report(nothing_of_them, six_of_seven)
    assert report.heuristic or report.verdict != "equivalent"
