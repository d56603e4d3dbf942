"""Operators with operands and attributes, on which laws are tried.

Laws ask for their numbers, for the calls of a formula, and for dependences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from ops.ops_hand_rows import HAND_ROWS
from ops.ops_numpy_algebra import NumpyAlgebra
from ops.ops_rows import reals
from ops.ops_torch_rows import ROWS

from pitcheck.ops.declaration import OperatorKind
from pitcheck.ops.registry import operator_kind

Array = np.ndarray[Any, Any]
DIGITS = 8
"""Binary digits of the numbers with which rounding is looked for."""


@dataclass(frozen=True)
class Case:
    """An operator with operands and attributes."""

    operator: OperatorKind
    inputs: tuple[Array, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fields(self) -> list[int]:
        """The places of the operands of real numbers."""
        return [place for place, operand in enumerate(self.inputs) if operand.dtype == np.float64]

    @property
    def is_single(self) -> bool:
        """True if the only operand holds real numbers."""
        return self.fields == [0] and len(self.inputs) == 1

    def of(self, make: Callable[[tuple[int, ...], int], Array], only: int | None = None) -> Case:
        """Return the case with other real operands, ``make(shape, place)``."""
        chosen = self.fields if only is None else [only]
        return replace(
            self,
            inputs=tuple(
                np.asarray(make(x.shape, i), np.float64) if i in chosen else x
                for i, x in enumerate(self.inputs)
            ),
        )

    def run(self, algebra: Any = None) -> list[Array]:
        """Return the outputs."""
        with np.errstate(all="ignore"):
            return [
                np.asarray(y)
                for y in self.operator.meaning(
                    algebra or NumpyAlgebra(), self.inputs, self.attributes
                )
            ]

    def real_outputs(self) -> list[Array]:
        """Return the outputs of real numbers."""
        return [y for y in self.run() if y.dtype == np.float64]


def all_cases(operator: OperatorKind) -> list[Case]:
    """Return the rows of an operator, and some that only laws need."""
    found = [
        Case(operator, row.inputs, row.attributes) for row in ROWS if row.kind == operator.name
    ]
    found += [
        Case(operator, tuple(row.inputs()), row.attributes)
        for row in HAND_ROWS
        if row.kind == operator.name
    ]
    return found + [
        Case(operator, inputs, attributes)
        for name, inputs, attributes in MORE
        if name == operator.name
    ]


def cases_of(name: str) -> list[Case]:
    """Return the rows of a registered operator."""
    return all_cases(operator_kind(name))


MORE: list[tuple[str, tuple[Array, ...], dict[str, Any]]] = [
    ("add", (reals(3), reals(3, seed=1)), {"alpha": -1}),
    ("add", (reals(3), reals(3, seed=1)), {"alpha": "-sqrt(2)"}),
    ("add", (reals(3), reals(3, seed=1)), {"alpha": "sqrt(2)"}),
    ("matmul", (reals(3, 3), reals(3, 3, seed=1)), {}),
    ("uniform", (reals(3),), {"stream": "s"}),
    ("normal", (reals(3),), {"stream": "s"}),
    ("dropout_mask", (reals(3),), {"stream": "s", "probability": 0.5}),
    ("gather_to", (reals(2, 2, 3),), {"axis": 1, "root": 0}),
    ("reduce", (reals(2, 3),), {"root": 1, "reduction": "max"}),
    ("all_to_all", (reals(2, 4, 2),), {"split_axis": 0, "concat_axis": 0, "position": 0}),
]


# --- operands


def distinct(shape: tuple[int, ...], place: int) -> Array:
    """Numbers of both signs, every element of every operand another one."""
    size = int(np.prod(shape))
    generator = np.random.default_rng([1, place, size])
    return (100.0 * place + 0.5 + generator.permutation(size).reshape(shape)) * generator.choice(
        [-1.0, 1.0], shape
    )


def whole(seed: int) -> Callable[[tuple[int, ...], int], Array]:
    """Small integers of both signs, none of them 0: sums and products of them are exact."""

    def make(shape: tuple[int, ...], place: int) -> Array:
        generator = np.random.default_rng([2, seed, place, *shape])
        return generator.integers(1, 30, shape) * generator.choice([-1.0, 1.0], shape)

    return make


def few_digits(seed: int) -> Callable[[tuple[int, ...], int], Array]:
    """Numbers of ``DIGITS`` binary digits and many sizes."""

    def make(shape: tuple[int, ...], place: int) -> Array:
        generator = np.random.default_rng([3, seed, place, *shape])
        return shortened(
            generator.uniform(1, 2, shape)
            * 2.0 ** generator.integers(-5, 3, shape)
            * generator.choice([-1.0, 1.0], shape)
        )

    return make


def shortened(x: Array) -> Array:
    """Numbers rounded to ``DIGITS`` binary digits."""
    mantissa, exponent = np.frexp(x)
    return np.asarray(np.ldexp(np.round(mantissa * 2**DIGITS) / 2**DIGITS, exponent))


def hostile(seed: int) -> Callable[[tuple[int, ...], int], Array]:
    """Numbers near 0 and large ones of both signs, and zeros; ``seed`` 0: zeros alone."""

    def make(shape: tuple[int, ...], place: int) -> Array:
        generator = np.random.default_rng([4, seed, place, *shape])
        return bool(seed) * generator.choice(
            [0.0, 1.0, -1.0, 2.0, -2.0, 30.0, -30.0, 1e-3, -1e-3], shape
        )

    return make


def positive(shape: tuple[int, ...], place: int) -> Array:
    """Numbers above 0, less and greater than 1."""
    return 2.0 ** np.random.default_rng([5, place, *shape]).uniform(-6, 6, shape)


def zeros(shape: tuple[int, ...], _: int) -> Array:
    return np.zeros(shape)


# --- what a formula does on the way


class Watching(NumpyAlgebra):
    """Keeps what is asked of numbers: (operation, operands that it depends on)."""

    WATCHED = frozenset(
        {
            "log",
            "sqrt",
            "function",
            "compare",
            "maximum",
            "minimum",
            "reduce_max",
            "reduce_min",
            "shift",
            "order",
            "floor_divide",
            "remainder",
            "draw",
        }
    )

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[Array]]] = []

    def __getattribute__(self, name: str) -> Any:
        member = super().__getattribute__(name)
        if name not in Watching.WATCHED and name not in ("divide", "power", "cast", "matmul"):
            return member

        def noting(*arguments: Any) -> Any:
            arrays = [a for a in arguments if isinstance(a, np.ndarray)]
            if name == "divide":
                self.calls.append((name, arrays[1:]))
            elif (
                name in Watching.WATCHED
                or name == "matmul"
                or (name == "power" and arguments[1] < 0)
                or (name == "cast" and arguments[1] != "field")
            ):
                self.calls.append((name, arrays))
            return member(*arguments)

        return noting


def watched(case: Case) -> list[tuple[str, list[Array]]]:
    """Return the calls of a formula."""
    algebra = Watching()
    case.run(algebra)
    return algebra.calls


def is_same(first: Sequence[Array], second: Sequence[Array]) -> bool:
    """Return True if arrays are equal, NaN to NaN."""
    return len(first) == len(second) and all(
        a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype == b.dtype == np.float64)
        for a, b in zip(first, second, strict=True)
    )


def is_close(first: Sequence[Array], second: Sequence[Array]) -> bool:
    """Return True if arrays are equal up to rounding of float64."""
    return len(first) == len(second) and all(
        a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=1e-9)
        for a, b in zip(first, second, strict=True)
    )


def dependence(case: Case, place: int) -> list[Array]:
    """Return which elements of each real output change with which element of operand ``place``.

    The result is bool, (elements of output, elements of operand).
    """
    base = case.of(whole(1))
    before = base.real_outputs()
    columns: list[list[Array]] = []
    for number in range(base.inputs[place].size):
        moved = base.inputs[place].copy()
        moved.reshape(-1)[number] += 0.125
        after = replace(
            base, inputs=(*base.inputs[:place], moved, *base.inputs[place + 1 :])
        ).real_outputs()
        columns.append(
            [
                ~np.isclose(a, b, rtol=1e-12, atol=1e-12, equal_nan=True).reshape(-1)
                for a, b in zip(after, before, strict=True)
            ]
        )
    return [np.stack(column, axis=1) for column in zip(*columns, strict=True)]


def mixes(case: Case, places: Sequence[int] | None = None) -> bool:
    """Return True if an element of a real output is made of several elements of the operands.

    Those at ``places`` count together, and all real ones by default.
    """
    chosen = case.fields if places is None else places
    if not chosen or not case.of(whole(1)).real_outputs():
        return False
    by_place = [dependence(case, place) for place in chosen if case.inputs[place].size]
    together = [np.concatenate(parts, axis=1) for parts in zip(*by_place, strict=True)]
    return any(bool((matrix.sum(axis=1) > 1).any()) for matrix in together)


def _added(first: Case, second: Case, only: int | None = None) -> Case:
    places = first.fields if only is None else [only]
    return replace(
        first,
        inputs=tuple(
            a + b if i in places else a
            for i, (a, b) in enumerate(zip(first.inputs, second.inputs, strict=True))
        ),
    )


def is_additive(case: Case, only: int | None = None) -> bool:
    """Return True if the outputs of a sum of operands are the sums of the outputs.

    All outputs must be real. The sum is of all operands together, or of one.
    """
    first = case.of(whole(1))
    second = first.of(whole(2), only)
    results = [c.run() for c in (first, second, _added(first, second, only))]
    if any(y.dtype != np.float64 or not np.isfinite(y).all() for y in results[0]):
        return False
    return is_close([a + b for a, b in zip(results[0], results[1], strict=True)], results[2])


def is_affine(case: Case, only: int | None = None) -> bool:
    """Return True if f(x + y) = f(x) + f(y) - f(0), in all operands together or in one."""
    first = case.of(whole(1))
    second, none = first.of(whole(2), only), first.of(zeros, only)
    a, b, both, at_zero = (c.run() for c in (first, second, _added(first, second, only), none))
    if any(y.dtype != np.float64 or not np.isfinite(y).all() for y in (*a, *at_zero)):
        return False
    return is_close([x + y - z for x, y, z in zip(a, b, at_zero, strict=True)], both)
