"""The numbers of places of whole stages, and why a proof may not hold at every size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from zoo.builder import Builder

from pitcheck.algebra.dimensions.scaling_class import Use
from pitcheck.claims.problem import Problem
from pitcheck.plan.model import Number, Plan
from pitcheck.prove import place_counts as counts
from pitcheck.prove.error_budget import Attempts
from pitcheck.prove.proof import Proof, Settings
from pitcheck.prove.stage_proof import prove_stage
from pitcheck.prove.stage_sizes import Places, Statement, with_enough_places
from pitcheck.stage.shapes import symbolic_pair
from pitcheck.stage.stage import drawn_reference

Formula = Callable[[Builder, str, str], str]


def plan_of(formula: Formula, columns: int = 4096) -> Plan:
    """A plan of x and z, 1,024 rows."""
    b = Builder("places")
    x, z = (b.input(name, (1024, columns)) for name in ("x", "z"))
    b.op("identity", formula(b, x, z), out="out")
    b.output("out")
    return b.plan()


def proof_of(formula: Formula, columns: int = 4096) -> Proof:
    """The proof that a plan of x and z is itself, as one stage."""
    stage = Problem.of(*(plan_of(formula, columns) for _ in range(2))).whole_stage()
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


def _places(formula: Formula) -> Places:
    """Return the sizes of the second evaluation of a plan that is compared with itself."""
    stage = Problem.of(*(plan_of(formula) for _ in range(2))).whole_stage()
    settings = Settings(np, 1, -64.0, 1, False, 1 << 30)
    statement = Statement(stage, {}, settings, Attempts("", -64.0))
    keyed = replace(statement, keys={value: str(value) for value in drawn_reference(stage)})
    symbolic = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts())
    return with_enough_places(keyed, symbolic)


def counted_slots(b: Builder, x: str, _: str) -> str:
    """Rows at which the running number of chosen ones is that of all, four times over."""
    chosen = b.op("cast", b.input("m", (1024,), dtype="bool"), dtype="int64")
    ones = b.op("full_like", chosen, value=1, dtype="int64")
    slots, rows = (b.op("cumsum", each, axis=0) for each in (chosen, ones))
    here = b.op("eq", b.op("unsqueeze", rows, axis=1), b.op("unsqueeze", slots, axis=0))
    mask = b.op("cast", here, dtype="float32")
    for _ in range(4):
        x = b.op("matmul", mask, x)
    return x


def test_places_of_every_axis_are_counted_however_they_are_used() -> None:
    for formula, use in ((counted_slots, Use.TALLIED), (counted, Use.UNWEIGHTED)):
        places = _places(formula)
        number = next(n for n, own in places.symbols.system.classes() if use in own.uses)
        assert places.counts.needed[number] >= (5 if use == Use.TALLIED else 1)
        assert number not in places.counts.settled


def between_ids(b: Builder, x: str, z: str) -> str:
    """Products of sums of rows of a table, of which the ids are two integers."""
    ids = b.input("i", (2,), dtype="int64", bounds=(0, 1024))
    sums = b.op("sum", b.op("mul", b.op("matmul", product(b, x, z), x), z), axes=(0,))
    powers = b.op("mul", sums, b.op("mul", sums, b.op("mul", sums, sums)))
    return str(b.op("add", b.op("embedding", ids, x), powers))


def test_an_axis_of_ids_has_the_places_of_its_degree_as_well() -> None:
    """The two ids alone need four places; the formula along the axis needs more."""
    places = _places(between_ids)
    number = next(n for n, own in places.symbols.system.classes() if own.indexed)
    degree = places.counts.needed[number]
    assert degree > 4
    assert (places.sizes.unit(number) or 0) >= degree


def test_integers_along_an_axis_may_all_differ() -> None:
    places = _places(looked_up)
    classes = places.symbols.system.classes()
    number = next(number for number, own in classes if own.indexed)
    drawn = next(f for f in places.shaped.fresh.values() if f.kind == "int")
    few = min(2 * int(np.prod(drawn.shape)), counts.MOST_PLACES)
    assert few <= (places.sizes.unit(number) or 0) <= few + 2


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
