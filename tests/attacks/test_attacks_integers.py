"""Integers that wrap around, ranges that are narrower than said, and numbers that hardly any draw
meets.
"""

from __future__ import annotations

from typing import Any

import pytest
from attacks.pairs import ALL, alone, found, spread

from pitcheck.plan.model import Number, Operator, Output, Plan, Tensor

FLOAT = Operator("float", "cast", ("q",), ("y",), {"dtype": "float32"})


def plan(
    *operators: Operator,
    dtypes: dict[str, Any] | None = None,
    dtype: Any = "int64",
    bounds: tuple[int, int] = (0, 50),
    ranks: int = 1,
) -> Plan:
    """Four integers i, of which the operators make q; the output is q as floating-point numbers.
    Integers have 64 bits unless ``dtypes`` says otherwise.
    """
    made = dict.fromkeys((name for operator in operators for name in operator.outputs), "int64")
    tensors = [
        Tensor("i", (4,), dtype, role="input", bounds=bounds),
        *(Tensor(name, (4,), (dtypes or {}).get(name, made[name])) for name in made),
    ]
    tensors.append(Tensor("y", (4,)))
    return (
        spread(tensors, [*operators, FLOAT]) if ranks > 1 else alone(tensors, [*operators, FLOAT])
    )


def op(kind: str, output: str, *inputs: Any, **attributes: Any) -> Operator:
    return Operator(
        output,
        kind,
        tuple(Number(i) if isinstance(i, int) else i for i in inputs),
        (output,),
        attributes,
    )


def same(reference: Plan, parallel: Plan) -> bool:
    return found(reference, parallel)[0] == "equivalent"


COMPUTED = {
    "products": op("mul", "q", "i", "i"),
    "differences": op("sub", "q", "i", 60),
    "opposites": op("neg", "q", "i"),
    "magnitudes": op("abs", "q", "i"),
    "running sums": op("cumsum", "q", "i", axis=0),
    "a literal that does not fit": op("full", "q", sizes=(4,), value=70000, dtype="int64"),
}
MOVED = {
    "flipped": op("flip", "q", "i", axes=(0,)),
    "the greater": op("maximum", "q", "i", 7),
    "signs": op("sign", "q", "i"),
    "a literal that fits": op("full", "q", sizes=(4,), value=100, dtype="int64"),
}


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("name", COMPUTED)
def test_narrow_integers_are_not_computed_with(name: str, dtype: str) -> None:
    reference = plan(COMPUTED[name], dtype=dtype)
    assert found(reference, plan(COMPUTED[name], dtype=dtype, dtypes={"q": dtype}, ranks=2)) == (
        "inconclusive",
        "PIT200",
    )
    assert same(reference, plan(COMPUTED[name], dtype=dtype, ranks=2))


@pytest.mark.parametrize("name", MOVED)
def test_narrow_integers_may_be_moved_and_chosen(name: str) -> None:
    assert same(
        plan(MOVED[name], dtype="int8"),
        plan(MOVED[name], dtype="int8", dtypes={"q": "int8"}, ranks=2),
    )


@pytest.mark.parametrize(("reduction", "verdict"), [("sum", "inconclusive"), ("max", "equivalent")])
def test_narrow_integers_are_reduced_only_by_choosing(reduction: str, verdict: str) -> None:
    total = Operator("q", "all_reduce", ("i",), ("q",), {"reduction": reduction}, ALL)
    alone_ = op("mul", "q", "i", 2) if reduction == "sum" else op("identity", "q", "i")
    assert (
        found(plan(alone_, dtype="int8"), plan(total, dtype="int8", dtypes={"q": "int8"}, ranks=2))[
            0
        ]
        == verdict
    )


def test_narrow_integers_that_no_output_needs_are_no_matter() -> None:
    beside = [op("identity", "q", "i"), op("mul", "unused", "i", "i")]
    assert same(
        plan(beside[0], dtype="int8"),
        plan(*beside, dtype="int8", dtypes={"unused": "int8"}, ranks=2),
    )


def test_a_mismatch_stays_one_beside_narrow_integers() -> None:
    narrow = [op("mul", "p", "i", 2), op("floor_divide", "q", "p", 2)]
    wrong = [op("mul", "p", "i", 2), op("floor_divide", "q", "p", 3)]
    assert (
        found(
            plan(*narrow, dtype="int8"), plan(*wrong, dtype="int8", dtypes={"p": "int8"}, ranks=2)
        )[0]
        == "mismatch"
    )


def test_integers_of_64_bits_wrap_around_too() -> None:
    there = [op("mul", "p", "i", 1 << 40), op("mul", "o", "p", 1 << 40)]
    back = [op("floor_divide", "n", "o", 1 << 40), op("floor_divide", "q", "n", 1 << 40)]
    assert not same(plan(op("identity", "q", "i")), plan(*there, *back, ranks=2))


NEARLY = {
    "equal to the greatest": (op("ge", "q", "i", 50), op("eq", "q", "i", 49), (0, 50), False),
    "equal to one of a million": (
        op("ge", "q", "i", 10**6),
        op("eq", "q", "i", 123457),
        (0, 10**6),
        False,
    ),
    "modulo more than the greatest": (
        op("identity", "q", "i"),
        op("remainder", "q", "i", 50),
        (0, 50),
        True,
    ),
    "modulo the greatest": (
        op("identity", "q", "i"),
        op("remainder", "q", "i", 49),
        (0, 50),
        False,
    ),
    "divided by itself, never 0": (
        op("full", "q", sizes=(4,), value=1, dtype="int64"),
        op("floor_divide", "q", "i", "i"),
        (1, 50),
        True,
    ),
    "divided by itself, also 0": (
        op("full", "q", sizes=(4,), value=1, dtype="int64"),
        op("floor_divide", "q", "i", "i"),
        (0, 50),
        False,
    ),
}


@pytest.mark.parametrize("name", NEARLY)
def test_integers_are_tried_where_it_matters(name: str) -> None:
    one, two, bounds, right = NEARLY[name]
    dtypes = {"q": "bool"} if one.kind in ("ge", "eq") else {}
    assert (
        same(
            plan(one, bounds=bounds, dtypes=dtypes),
            plan(two, bounds=bounds, dtypes=dtypes, ranks=2),
        )
        == right
    )


def test_bounds_are_those_of_the_reference() -> None:
    above = op("gt", "q", "i", 1)
    always = op("ge", "q", "i", 0)
    assert not same(
        plan(above, dtypes={"q": "bool"}),
        plan(always, dtypes={"q": "bool"}, bounds=(2, 50), ranks=2),
    )
    assert same(plan(above, dtypes={"q": "bool"}), plan(above, dtypes={"q": "bool"}, ranks=2))


def test_outputs_of_integers_are_compared() -> None:
    both = [plan(op("mul", "q", "i", factor)) for factor in (2, 3)]
    assert (
        found(both[0], spread(both[1].tensors, both[1].operators, Output("y", "y")))[0]
        == "mismatch"
    )
