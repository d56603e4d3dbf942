"""Integers that wrap around, ranges that are narrower than said, and numbers that hardly any draw
meets.
"""

from __future__ import annotations

from typing import Any

import pytest
from attacks.pairs import alone, found, spread

from pitcheck.plan.model import Number, Operator, Plan, Tensor

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
