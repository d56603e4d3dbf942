"""The numbers of places of whole stages, and why a proof may not hold at every size."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from zoo.builder import Builder

from pitcheck.algebra.dimensions.scaling_class import Use
from pitcheck.claims.problem import Problem
from pitcheck.plan.model import Number, Plan
from pitcheck.prove import place_counts as counts
from pitcheck.prove.proof import Proof, Settings
from pitcheck.prove.stage_proof import prove_stage
from pitcheck.stage.stage import drawn_reference

Formula = Callable[[Builder, str, str], str]


def proof_of(formula: Formula, columns: int = 4096) -> Proof:
    """The proof that a plan of x and z, 1,024 rows, is itself, as one stage."""

    def plan() -> Plan:
        b = Builder("places")
        x, z = (b.input(name, (1024, columns)) for name in ("x", "z"))
        b.op("identity", formula(b, x, z), out="out")
        b.output("out")
        return b.plan()

    stage = Problem.of(plan(), plan()).whole_stage()
    keys = {value: str(value) for value in drawn_reference(stage)}
    return prove_stage(stage, keys, Settings(np, 1, -64.0, 1, False, 1 << 30))


def product(b: Builder, x: str, z: str) -> str:
    return str(b.op("matmul", x, b.op("transpose", z, dim0=0, dim1=1)))


def variance(b: Builder, x: str, _: str) -> str:
    return str(b.op("var", x, axes=(1,), correction=0))


def norm(b: Builder, x: str, _: str) -> str:
    return str(b.op("rms_norm", x, b.parameter("w", (4096,)), eps="1/10"))


def softmax(b: Builder, x: str, _: str) -> str:
    return str(b.op("softmax", x, axis=-1))


def flipped(b: Builder, x: str, _: str) -> str:
    return str(b.op("flip", x, axes=(1,)))


def causal_exponential(b: Builder, x: str, _: str) -> str:
    return str(b.op("sum", b.op("exp", b.op("cumsum", x, axis=1)), axes=(1,)))


def looked_up(b: Builder, x: str, _: str) -> str:
    return str(b.op("embedding", b.input("i", (7,), dtype="int64", bounds=(0, 1024)), x))


def counted(b: Builder, x: str, _: str) -> str:
    mask = b.input("m", (4096,), dtype="bool")
    number = b.op("sum", b.op("cast", mask, dtype="int64"))
    return str(b.op("div", x, b.op("add", b.op("cast", number, dtype="float32"), Number(1))))


def largest(b: Builder, x: str, z: str) -> str:
    return str(b.op("add", b.op("amax", x, axes=(1,)), b.op("sum", z, axes=(1,))))


def labelled(b: Builder, x: str, _: str) -> str:
    """The exponential of what is added up where a label is 0."""
    here = b.op("eq", b.input("c", (4096,), dtype="int64", bounds=(0, 5)), Number(0))
    return str(b.op("exp", b.op("sum", b.op("where", here, x, Number(0)), axes=(1,))))


def quotients(b: Builder, x: str, z: str) -> str:
    """Sums over rows of quotients by sums over columns, and over columns of such by rows."""
    ones = b.op("div", x, b.op("sum", b.op("exp", z), axes=(1,), keepdim=True))
    others = b.op("div", z, b.op("sum", b.op("exp", x), axes=(0,), keepdim=True))
    return str(b.op("mul", b.op("sum", ones), b.op("sum", others)))


@pytest.mark.parametrize("formula", [product, variance, norm, softmax])
def test_a_proof_for_every_size(formula: Formula) -> None:
    proof = proof_of(formula)
    assert (proof.outcome, proof.sizes) == ("proven", "")


@pytest.mark.parametrize(
    ("formula", "reason"),
    [
        (flipped, counts.PERMUTED),
        (causal_exponential, counts.BY_USE[Use.ORDERED]),
        (looked_up, counts.INDEXED),
        (quotients, counts.GROWS),
        (counted, counts.BY_USE[Use.UNWEIGHTED]),
        (largest, counts.BY_USE[Use.EXTREMAL]),
        (labelled, counts.BY_USE[Use.LABELLED]),
    ],
)
def test_why_a_proof_may_not_hold_at_every_size(formula: Formula, reason: str) -> None:
    proof = proof_of(formula)
    assert (proof.outcome, proof.sizes) == ("proven", reason)
