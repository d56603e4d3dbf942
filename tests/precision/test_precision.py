"""Precision rules: each is broken by the plan that is meant to, at the operator that does it, by
none of the nearest right ones; no verdict depends on them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from zoo import linear, training
from zoo.pairs import pair

from pitcheck.base.options import Options
from pitcheck.commands.reading import read_pair
from pitcheck.engine.check import check
from pitcheck.graph.graph import Node
from pitcheck.graph.grids import Lattice
from pitcheck.plan.model import Operator, Plan, Tensor
from pitcheck.precision.side import BITS, is_reduction
from pitcheck.report.report import Finding, Report
from precision.mixed import NARROW, WIDE, Mixed, narrow_products
from precision.narrow_plans import CASES

UNLIKE = {"gated_mlp", "shared_parameter"}
"""Pairs in which terms that the reference adds up are one product: narrow here, wide there."""


def checked(reference: Plan, parallel: Plan, precision: str = "warn") -> Report:
    return check(reference, parallel, Options(seed=3, precision=precision))


def broken(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.code.startswith("PIT3")]


@pytest.mark.parametrize("name", CASES)
def test_a_rule_is_broken_by_the_narrow_plan_alone(name: str) -> None:
    case = CASES[name]
    right = checked(case.reference(), case.parallel(WIDE))
    assert (right.verdict, right.findings) == ("equivalent", ())
    wrong = checked(case.reference(), case.parallel(NARROW))
    assert wrong.verdict == "equivalent"
    assert (
        wrong.error_bound_log2
        == checked(case.reference(), case.parallel(NARROW), "off").error_bound_log2
        <= -64
    )
    [finding] = wrong.findings
    assert (finding.code, finding.verdict) == (case.code, "warning"), finding
    assert f"({case.kind})" in (finding.operator or ""), finding
    assert (finding.source or "").startswith("train.py:")
    assert "bfloat16" in finding.title
    assert "float32" in finding.title


@pytest.mark.parametrize("name", CASES)
def test_a_reference_that_is_as_narrow_allows_it(name: str) -> None:
    case = CASES[name]
    assert broken(checked(case.parallel(NARROW), case.parallel(NARROW))) == []


def test_right_plans_with_narrow_products_break_no_rule() -> None:
    """Every dtype is where the reference has it, through all kinds of parallelism."""
    found = {}
    for name in (linear.PAIRS.keys() | training.PAIRS.keys()) - UNLIKE:
        report = checked(*(narrow_products(plan) for plan in pair(name)))
        assert report.verdict == "equivalent", (name, report.findings[:2])
        found[name] = [f"{finding.title} ({finding.operator})" for finding in broken(report)]
    assert len(found) > 15
    assert {name: said for name, said in found.items() if said} == {}


@pytest.mark.parametrize("file", ["llama3-tiny", "mixtral-tiny"])
@pytest.mark.slow
def test_training_steps_with_narrow_products_break_no_rule(file: str) -> None:
    plans = read_pair(str(Path(__file__).parents[2] / "plans" / f"{file}.toml"), ())
    assert broken(checked(*(narrow_products(plan) for plan in plans))) == []


def test_plans_in_one_dtype_break_no_rule_and_another_one_throughout_is_what_the_user_gives() -> (
    None
):
    case = CASES["gradient reduced"]

    def throughout(plan: Plan, dtype: str) -> Plan:
        return msgspec.structs.replace(
            plan,
            tensors=tuple(msgspec.structs.replace(tensor, dtype=dtype) for tensor in plan.tensors),
        )

    for dtype in (WIDE, NARROW):
        assert (
            checked(
                throughout(case.reference(), WIDE), throughout(case.parallel(WIDE), dtype)
            ).findings
            == ()
        )


def test_the_user_says_what_a_broken_rule_leads_to() -> None:
    case = CASES["gradient reduced"]
    plans = case.reference(), case.parallel(NARROW)
    assert checked(*plans, "off").findings == ()
    assert [checked(*plans, how).exit_code for how in ("off", "warn", "error")] == [0, 0, 4]
    report = checked(*plans, "error")
    assert (report.verdict, report.findings[0].verdict) == ("equivalent", "imprecise")
    assert report.findings[0].ranks == (0, 1)
    assert checked(case.reference(), case.parallel(WIDE), "error").exit_code == 0


def test_operators_at_one_line_are_one_finding() -> None:
    """A line that a loop runs for every layer gives one finding."""
    report = checked(*layers(WIDE), "warn")
    assert broken(report) == []
    [finding] = broken(checked(*layers(NARROW), "warn"))
    assert "2 more operators at this place likewise" in (finding.cause or "")


def layers(dtype: str) -> tuple[Plan, Plan]:
    plans = []
    for mesh, own in ((None, WIDE), ({"dp": 2}, dtype)):
        b = Mixed("train", mesh)
        x = b.input("x", (4 if mesh else 8, 6), {0: "dp"} if mesh else None)
        for _ in range(3):
            x = b.cast(b.cast(b.op("sigmoid", x), own), WIDE)
        b.output(
            b.op("all_gather", x, out="y", group="dp", axis=0)
            if mesh
            else b.op("contiguous", x, out="y"),
            "y",
        )
        b.operators = [msgspec.structs.replace(each, source="model.py:7") for each in b.operators]
        plans.append(b.plan())
    return plans[0], plans[1]


def narrowed(plan: Plan, kind: str) -> Plan:
    """The plan in which every operator of a kind gives narrow tensors; they are cast back, and what
    ranks send to each other is cast first.
    """
    tensors = {tensor.name: tensor for tensor in plan.tensors}
    around: dict[str, list[Operator]] = {operator.id: [operator] for operator in plan.operators}
    for operator in plan.operators:
        if operator.kind == kind:
            around[operator.id] = between_casts(operator, tensors, sends=operator.group is not None)
    blocks = {
        block: tuple(each.id for one in members for each in around[one])
        for block, members in plan.blocks.items()
    }
    operators = tuple(each for operator in plan.operators for each in around[operator.id])
    return msgspec.structs.replace(
        plan, tensors=tuple(tensors.values()), operators=operators, blocks=blocks
    )


def between_casts(operator: Operator, tensors: dict[str, Tensor], *, sends: bool) -> list[Operator]:
    """The operator with narrow results, which are added to ``tensors``, and with narrow operands if
    it ``sends`` them, and the casts of both.
    """
    names: list[dict[str, str]] = []
    for side in (operator.inputs if sends else (), operator.outputs):
        names.append(
            {
                name: f"{name}:narrow.{operator.id}"
                for name in side
                if isinstance(name, str) and name and tensors[name].dtype in BITS
            }
        )
    inputs, outputs = names
    for name, narrow in {**inputs, **outputs}.items():
        tensors[narrow] = msgspec.structs.replace(
            tensors[name],
            name=narrow,
            dtype=NARROW,
            role="activation",
            lineage=None,
            storage=None,
            gradient_of=None,
            updated=None,
        )
    replaced: dict[str, Any] = {
        "inputs": tuple(
            inputs.get(name, name) if isinstance(name, str) else name for name in operator.inputs
        )
    }
    replaced["outputs"] = tuple(outputs.get(name, name) for name in operator.outputs)
    before = [
        Operator(
            f"{narrow}:to", "cast", (name,), (narrow,), {"dtype": NARROW}, where=operator.where
        )
        for name, narrow in inputs.items()
    ]
    behind = [
        Operator(
            f"{narrow}:from",
            "cast",
            (narrow,),
            (name,),
            {"dtype": tensors[name].dtype},
            where=operator.where,
        )
        for name, narrow in outputs.items()
    ]
    return [*before, msgspec.structs.replace(operator, **replaced), *behind]


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("reduce_scatter", "PIT301"),
        ("accumulate", "PIT301"),
        ("silu", "PIT302"),
        ("all_gather", "PIT302"),
    ],
)
@pytest.mark.slow
def test_each_place_of_a_training_step_that_is_narrow_alone_is_found(kind: str, code: str) -> None:
    reference, parallel = read_pair(
        str(Path(__file__).parents[2] / "plans" / "llama3-tiny.toml"), ()
    )
    report = checked(reference, narrowed(parallel, kind))
    assert report.verdict == "equivalent"
    assert {finding.code for finding in broken(report)} == {code}
    at = "cast" if kind == "all_gather" else kind
    assert all(f"({at})" in (finding.operator or "") for finding in broken(report))


@pytest.mark.parametrize(
    ("kind", "attributes", "adds"),
    [
        ("add", {}, True),
        ("add", {"alpha": "1/2"}, True),
        ("add", {"alpha": -1}, False),
        ("sub", {}, False),
        ("sum", {"axes": (0,)}, True),
        ("accumulate", {}, True),
        ("all_reduce", {"reduction": "avg"}, True),
        ("all_reduce", {"reduction": "max"}, False),
        ("reduce", {"root": 0}, True),
        ("reduce_scatter", {"axis": 0, "position": 0}, True),
        ("all_gather", {"axis": 0}, False),
        ("softmax", {"axis": 0}, True),
        ("softmax.backward", {"axis": 0}, True),
        ("mul", {}, False),
    ],
)
def test_what_a_reduction_is(kind: str, attributes: dict[str, Any], adds: bool) -> None:
    lattice = Lattice((1,), False)
    node = Node(kind, attributes, (), (), np.ones((1,), dtype=bool), lattice, kind, 0)
    assert is_reduction(node) == adds
