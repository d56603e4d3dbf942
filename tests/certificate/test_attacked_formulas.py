"""Formulas that differ where an arithmetic is easily fooled, and equal ones beside them.

Two ranks compute the second formula each, the reference the first. The certificate is forged.
"""

from __future__ import annotations

from typing import Any

import pytest
from attacks.pairs import given
from certificate.forgeries import Step, formulas, step, told

from pitcheck.plan.model import Number, Tensor

X = given("x")
LONG: Any = "int64"
MANY = 1 << 22
Case = tuple[list[Tensor], list[Step], list[Step]]


def fixed(value: Any, dtype: Any = "float32") -> Tensor:
    return Tensor("c", (4,), dtype, "constant", value=value)


def integers(dtype: Any = LONG, bounds: Any = (0, 100)) -> Tensor:
    return Tensor("j", (4,), dtype, "input", bounds=bounds)


def real(name: str, to: str = "y", shape: tuple[int, ...] = (4,)) -> Step:
    """Return the conversion of integers or truths to numbers."""
    return step(to, "cast", name, shape=shape, dtype="float32")


def times(factor: Any, name: str = "x", to: str = "y") -> Step:
    return step(to, "mul", name, Number(factor))


def over_itself(truth: str) -> list[Step]:
    """Return a truth as a number, divided by itself: 1, or no number."""
    quotient = f"{truth}/{truth}"
    division = step(quotient, "div", f"{truth}.", f"{truth}.", shape=(1,))
    return [real(truth, f"{truth}.", (1,)), division]


def alone(*names: str) -> list[Tensor]:
    """Return truths, and a number, of one element each: all are often true together."""
    return [given("x", 1), *(Tensor(name, (1,), "bool", "input") for name in names)]


def product(name: str, *inputs: str) -> Step:
    return step(name, "mul", *inputs, shape=(1,))


WRONG: dict[str, Case] = {
    "infinity for 0": ([X, fixed("inf")], [step("y", "identity", "c")], [times(0)]),
    "minus infinity for 0": ([X, fixed("-inf")], [step("y", "identity", "c")], [times(0)]),
    "NaN for 0": ([X, fixed("nan")], [step("y", "identity", "c")], [times(0)]),
    "0 for infinity": ([X, fixed("inf")], [times(0)], [step("y", "identity", "c")]),
    "0 for NaN": ([X, fixed("nan")], [times(0)], [step("y", "identity", "c")]),
    "infinity behind a sum with 0": (
        [X, fixed("inf")],
        [step("y", "add", "c", Number(0))],
        [times(0)],
    ),
    "a sum of bytes": (
        [integers("uint8", (0, 256))],
        [real("j", "f"), step("y", "add", "f", "f")],
        [step("s", "add", "j", "j", of="uint8"), real("s")],
    ),
    "the opposite of a byte": (
        [integers("int8", (-128, 128))],
        [real("j", "f"), step("y", "neg", "f")],
        [step("s", "neg", "j", of="int8"), real("s")],
    ),
    "a product beyond 64 bits": (
        [integers()],
        [step("a", "mul", "j", Number(0), of=LONG), real("a")],
        [
            step("a", "mul", "j", Number(1 << 40), of=LONG),
            step("b", "mul", "a", Number(1 << 40), of=LONG),
            real("b"),
        ],
    ),
    "a sum beyond 64 bits": (
        [integers()],
        [step("a", "mul", "j", Number(0), of=LONG), real("a")],
        [
            step("a", "mul", "j", Number(1 << 62), of=LONG),
            step("b", "add", "a", "a", of=LONG),
            step("c", "add", "b", "b", of=LONG),
            real("c"),
        ],
    ),
    "an integer that float64 does not have": (
        [integers()],
        [
            step("a", "add", "j", Number((1 << 53) + 1), of=LONG),
            step("b", "sub", "a", Number(1 << 53), of=LONG),
            real("b"),
        ],
        [real("j")],
    ),
    "one integer in a thousand": (
        [X, integers(bounds=None)],
        [times(1)],
        [step("m", "eq", "j", Number(777), of="bool"), step("y", "where", "m", Number(0), "x")],
    ),
    "a threshold beside another": (
        [X, integers(bounds=None)],
        [step("m", "gt", "j", Number(777), of="bool"), step("y", "where", "m", Number(0), "x")],
        [step("m", "ge", "j", Number(777), of="bool"), step("y", "where", "m", Number(0), "x")],
    ),
    "a truth of 2": (
        [X, fixed(2, "bool")],
        [real("c", "f"), step("y", "mul", "x", "f")],
        [times(2)],
    ),
    "a byte of 300": (
        [X, fixed(300, "uint8")],
        [real("c", "f"), step("y", "mul", "x", "f")],
        [times(300)],
    ),
    "a division that integers choose": (
        alone("m", "n"),
        [*over_itself("m"), product("y", "x", "m/m")],
        [*over_itself("m"), *over_itself("n"), product("t", "x", "n/n"), product("y", "t", "m/m")],
    ),
    "a division that other integers choose": (
        alone("m", "n"),
        [*over_itself("m"), product("y", "x", "m/m")],
        [*over_itself("n"), product("y", "x", "n/n")],
    ),
    "a logarithm of what may be negative": (
        [X],
        [step("y", "identity", "x")],
        [step("l", "log", "x"), step("y", "exp", "l")],
    ),
    "a quotient by what may be 0": (
        [X],
        [step("y", "identity", "x")],
        [step("s", "mul", "x", "x"), step("y", "div", "s", "x")],
    ),
    "a root of what may be negative": (
        [X],
        [step("y", "identity", "x")],
        [step("r", "sqrt", "x"), step("y", "square", "r")],
    ),
    "a literal nearly 0": ([X], [step("y", "add", "x", Number(f"1/{9**200}"))], [times(1)]),
    "literals nearly equal": (
        [X],
        [step("y", "add", "x", Number("9" * 300))],
        [step("y", "add", "x", Number("9" * 299 + "8"))],
    ),
    "an integer for a number": (
        [X],
        [step("a", "add", "x", Number("1/3")), step("y", "mul", "a", Number(3))],
        [step("a", "mul", "x", Number(3)), step("y", "add", "a", Number(0.9999999))],
    ),
}
RIGHT: dict[str, Case] = {
    "a truth of 1": (
        [X, fixed(1, "bool")],
        [real("c", "f"), step("y", "mul", "x", "f")],
        [times(1)],
    ),
    "a byte of 255": (
        [X, fixed(255, "uint8")],
        [real("c", "f"), step("y", "mul", "x", "f")],
        [times(255)],
    ),
    "bytes as numbers": (
        [integers("uint8", None)],
        [real("j", "f"), step("y", "add", "f", "f")],
        [real("j", "f"), times(2, "f")],
    ),
    "bytes copied": (
        [integers("uint8", None)],
        [real("j")],
        [step("s", "identity", "j", of="uint8"), real("s")],
    ),
    "integers within 64 bits": (
        [integers()],
        [
            step("a", "add", "j", Number((1 << 53) + 1), of=LONG),
            step("b", "sub", "a", Number(1 << 53), of=LONG),
            real("b"),
        ],
        [step("a", "add", "j", Number(1), of=LONG), real("a")],
    ),
    "the same division": (
        alone("m", "n"),
        [*over_itself("m"), product("y", "x", "m/m")],
        [*over_itself("m"), product("y", "m/m", "x")],
    ),
    "powers": (
        [X],
        [step("y", "pow", "x", exponent=7)],
        [
            step("a", "pow", "x", exponent=3),
            step("b", "pow", "x", exponent=4),
            step("y", "mul", "a", "b"),
        ],
    ),
    "powers below 0": (
        [X],
        [step("y", "pow", "x", exponent=-2)],
        [step("a", "square", "x"), step("y", "reciprocal", "a")],
    ),
}
TOO_LARGE: dict[str, tuple[list[Tensor], list[Step]]] = {
    "an exponent": ([X], [step("y", "pow", "x", exponent=10**9)]),
    "an exponent below 0": ([X], [step("y", "pow", "x", exponent=-(10**18))]),
    "bounds": ([integers(bounds=(0, 1 << 70))], [real("j")]),
    "bounds of a byte": ([integers("uint8", (0, 300))], [real("j")]),
    "given integers": (
        [Tensor("j", (1 << 40,), LONG, "input")],
        [real("j", "f", (1 << 40,)), step("y", "sum", "f", shape=())],
    ),
    "an outer product": (
        [given("a", MANY, 1), given("b", 1, MANY)],
        [step("z", "matmul", "a", "b", shape=(MANY, MANY)), step("y", "sum", "z", shape=())],
    ),
    "tensors joined": (
        [given("a", MANY)],
        [
            step("z", "cat", *["a"] * 512, shape=(512 * MANY,), axis=0),
            step("y", "sum", "z", shape=()),
        ],
    ),
    "rows of a table": (
        [given("a", 2, MANY // 2), Tensor("j", (4096,), LONG, "input", bounds=(0, 2))],
        [
            step("z", "embedding", "j", "a", shape=(4096, MANY // 2)),
            step("y", "sum", "z", shape=()),
        ],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_formulas_that_differ_are_not_verified(name: str) -> None:
    assert told(formulas(*WRONG[name]))


@pytest.mark.parametrize("name", RIGHT)
def test_formulas_that_are_equal_are_verified(name: str) -> None:
    assert told(formulas(*RIGHT[name])) == ""


@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_is_too_large_is_refused_before_it_is_computed(name: str) -> None:
    """It is equal on both sides, and nothing says that it differs."""
    leaves, steps = TOO_LARGE[name]
    said = told(formulas(leaves, steps, steps))
    assert said
    assert "differ" not in said
