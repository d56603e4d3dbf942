"""Fingerprints tell stages apart that differ in anything, and find those that repeat."""

from __future__ import annotations

import pytest

from pitcheck.claims.specification import specify
from pitcheck.graph.lowering import lower
from pitcheck.plan.model import Axis, Lineage, Number, Operator, Output, Plan, Tensor, Use
from pitcheck.plan.schedule.matching import match
from pitcheck.stage.fingerprint import Fingerprints
from pitcheck.stage.stage import Target

SPLIT = Operator("split", "split", ("x",), ("a", "b"), {"sizes": (2, 2), "axis": 0})


def _keys(
    first: Operator,
    second: Operator,
    ranks: int = 2,
    microbatches: int = 1,
    split: Operator = SPLIT,
) -> list[object]:
    """Fingerprints of ``y`` and ``z``, two computations side by side of a plan that is checked
    against itself.
    """
    tensors = (
        Tensor("x", (4, 3), role="input", microbatched=microbatches > 1, lineage=Lineage("x")),
        *(Tensor(n, (2, 3), microbatched=microbatches > 1) for n in "abyz"),
    )
    plan = Plan(
        mesh=(Axis("dp", ranks),),
        microbatches=microbatches,
        tensors=tensors,
        operators=(split, first, second),
        outputs=(Output("y", "y", Lineage("y")), Output("z", "z", Lineage("z"))),
    )
    reference = Plan(
        mesh=(Axis("one", 1),),
        tensors=(Tensor("x", (4, 3), role="input"), *(Tensor(n, (2, 3)) for n in "abyz")),
        operators=(
            SPLIT,
            Operator("y", "sub", ("a", "b"), ("y",)),
            Operator("z", "sub", ("a", "b"), ("z",)),
        ),
        outputs=(Output("y"), Output("z")),
    )
    graphs = [lower(p, match(p)[0]) for p in (reference, plan)]
    specification = specify(reference, plan, *graphs)
    fingerprints = Fingerprints(*graphs, specification.initial)
    return [
        fingerprints.of(Target.at(e.cut, e.where, graphs[1], e.name), specification.initial.get)[0]
        for e in specification.expected
    ]


RIGHT = Operator("y", "sub", ("a", "b"), ("y",))


def test_the_same_computation_has_the_same_fingerprint() -> None:
    first, second = _keys(RIGHT, Operator("z", "sub", ("a", "b"), ("z",)))
    assert first == second


@pytest.mark.parametrize(
    "other",
    [
        Operator("z", "sub", ("b", "a"), ("z",)),
        Operator("z", "sub", ("a", "a"), ("z",)),
        Operator("z", "add", ("a", "b"), ("z",)),
        Operator("z", "sub", ("a", "b"), ("z",), {"alpha": 2}),
        Operator("z", "sub", ("a", Number(2)), ("z",)),
    ],
    ids=["operands exchanged", "one operand twice", "kind", "attribute", "literal"],
)
def test_another_computation_has_another_one(other: Operator) -> None:
    first, second = _keys(RIGHT, other)
    assert first != second


def test_another_microbatch_is_another_one() -> None:
    first, second = _keys(RIGHT, Operator("z", "sub", ("a", Use("b", 0)), ("z",)), microbatches=2)
    assert first != second
