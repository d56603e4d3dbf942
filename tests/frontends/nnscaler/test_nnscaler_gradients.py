"""Names of gradients: one for each that means something else, and the same in the reference as in
every parallel plan of a model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from pitcheck.frontends.nnscaler import read_nnscaler
from pitcheck.frontends.nnscaler.execution_plan import (
    Argument,
    Call,
    Cell,
    Compute,
    Derive,
    ExecutionPlan,
    Node,
    Result,
)
from pitcheck.frontends.nnscaler.gradient_names import gradient_names
from pitcheck.frontends.nnscaler.reader import read_program
from pitcheck.frontends.nnscaler.tensors import SubTensor
from pitcheck.plan.model import Plan

PAIRS = Path(__file__).parents[2] / "data" / "nnscaler" / "pairs"
X, Y, Z, U = 1, 2, 3, 4
"""Full tensors; their gradients have ten times the number, further ones count on from there."""


def tensor(full: int, name: str) -> SubTensor:
    return SubTensor(
        full,
        full,
        name,
        (4,),
        (4,),
        "float32",
        ((0, 4),),
        (0, 1),
        False,
        name.startswith("g"),
        False,
        False,
    )


def compute(
    number: int, kind: str, read: int, full: int, name: str, gradient: int | None = None
) -> Compute:
    """An operator that reads one tensor and writes another."""
    own = 10 * full if gradient is None else gradient
    return Compute(
        number,
        kind,
        (Argument(read, read, None, 10 * read),),
        {},
        (Result(tensor(full, name), own, own),),
        "",
        "",
    )


def derive(operator: int, given: int, *results: SubTensor) -> Derive:
    return Derive(operator, (given,), results)


def plan(*cells: Sequence[Node]) -> ExecutionPlan:
    """Every cell is run by every one of two devices."""
    calls = [
        Call(n, Cell(n, "forward", (), (), tuple(nodes)), (), (), None, "")
        for n, nodes in enumerate(cells)
    ]
    return ExecutionPlan(2, {0: calls, 1: calls})


def test_a_gradient_that_is_alone_has_its_own_name() -> None:
    forward = [compute(1, "mul", X, Y, "mul_5"), compute(2, "neg", Y, Z, "neg_1")]
    backward = [derive(2, 30, tensor(20, "gmul_5")), derive(1, 20, tensor(10, "gx"))]
    assert gradient_names(plan(forward, backward)) == {20: "gmul_5", 10: "gx"}


def test_gradients_of_one_name_are_named_after_the_operators_they_come_through() -> None:
    forward = [compute(1, "mul", X, Y, "mul_5"), compute(2, "add", X, Z, "add_2")]
    backward = [derive(2, 30, tensor(11, "gx")), derive(1, 20, tensor(10, "gx"))]
    assert gradient_names(plan(forward, backward)) == {10: "gx.mul_5", 11: "gx.add_2"}


def test_one_gradient_that_comes_through_several_operators_keeps_its_name() -> None:
    forward = [
        compute(1, "mul", X, Y, "mul_5"),
        compute(2, "add", X, Z, "add_2"),
        compute(3, "neg", X, U, "neg_1"),
    ]
    backward = [
        derive(3, 40, tensor(11, "gx")),
        derive(2, 30, tensor(10, "gx")),
        derive(1, 20, tensor(10, "gx")),
    ]
    assert gradient_names(plan(forward, backward)) == {10: "gx", 11: "gx.neg_1"}


def test_the_gradient_of_a_copy_is_that_of_the_original() -> None:
    """A tensor that goes to another stage is copied.

    The copy and its gradient have the names of the original.
    """
    forward = [
        compute(1, "mul", X, Y, "mul_5"),
        compute(2, "identity", Y, Z, "mul_5", 21),
        compute(3, "neg", Z, U, "neg_1"),
    ]
    backward = [
        derive(3, 40, tensor(21, "gmul_5")),
        derive(2, 21, tensor(20, "gmul_5")),
        derive(1, 20, tensor(10, "gx")),
    ]
    assert gradient_names(plan(forward, backward)) == {21: "gmul_5", 20: "gmul_5", 10: "gx"}


def test_copies_of_copies_end() -> None:
    forward = [compute(1, "identity", X, Y, "x", 11), compute(2, "identity", Y, Z, "x", 10)]
    backward = [derive(1, 11, tensor(10, "gx")), derive(2, 10, tensor(11, "gx"))]
    assert set(gradient_names(plan(forward, backward)).values()) == {"gx"}


def test_a_derivative_of_what_never_ran_has_the_name_it_has() -> None:
    assert gradient_names(
        plan([derive(7, 20, tensor(10, "gx")), derive(8, 20, tensor(11, "gx"))])
    ) == {10: "gx", 11: "gx"}


# --- a real planner's plans


def parallel_plans() -> list[str]:
    return sorted(file.name for file in PAIRS.glob("*.pkl") if ".reference." not in file.name)


def reference_of(name: str) -> Path:
    return PAIRS / f"{name.partition('.')[0]}.reference.pkl"


def test_there_are_plans() -> None:
    assert len(parallel_plans()) >= 8


@pytest.mark.parametrize("name", parallel_plans())
def test_gradients_are_called_alike_in_reference_and_parallel_plan(name: str) -> None:
    assert set(gradient_names(read_program(PAIRS / name)).values()) == set(
        gradient_names(read_program(reference_of(name))).values()
    )


@pytest.mark.parametrize("name", parallel_plans())
def test_of_a_reference_no_name_means_two_gradients(name: str) -> None:
    names = list(gradient_names(read_program(reference_of(name))).values())
    assert len(set(names)) == len(names)


def reads(plan: Plan, reader: str, tensor: str) -> bool:
    """Return True if the operator that writes ``reader`` reads ``tensor`` or a copy of it.

    A copy has a number after its name.
    """
    versions = re.compile(rf"{tensor}(\.\d+)?")
    return any(
        reader in o.outputs and any(isinstance(i, str) and versions.fullmatch(i) for i in o.inputs)
        for o in plan.operators
    )


def test_a_name_tells_an_operator_that_reads_the_tensor() -> None:
    """``gX.Y``: the operator of result Y reads X."""
    plan = read_nnscaler(reference_of("llama-L2-gbs32"))
    named = [found for t in plan.tensors if (found := re.fullmatch(r"g(\w+)\.([a-z]\w*)", t.name))]
    assert len(named) >= 10
    for found in named:
        assert reads(plan, found[2], found[1]), found[0]
