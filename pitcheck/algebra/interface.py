"""The interface in which every operator's meaning is written.

An algebra says what a value is. Concrete algebras compute (residues, galois, float64, many digits).
Abstract ones (axes, degrees, labels) describe every computation without doing it. Axes, shapes and
positions below are those of one tensor (its *logical* dimensions). An algebra decides itself how
many trials, ranks and levels it computes beside each other.

>>> import numpy as np
>>> from pitcheck.algebra.dimensions.axes import AxisAlgebra, AxisSystem
>>> from pitcheck.algebra.reals.real import RealAlgebra
>>> def mean(algebra, x):
...     return algebra.divide(algebra.sum(x, (0,)), algebra.extent(x, (0,)))
>>> abstract, reals = AxisAlgebra(AxisSystem()), RealAlgebra(np, seed=0, trials=(0,))
>>> mean(abstract, abstract.tensor((4, 3))).shape, mean(reals, reals.fresh("x", (4, 3))).data.shape
((3,), (1, 1, 1, 3))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Literal as OneOf
from typing import Protocol, TypeVar

Kind = OneOf["field", "int", "bool"]
Comparison = OneOf["eq", "ne", "lt", "le", "gt", "ge"]
MIRRORED: Mapping[str, Comparison] = MappingProxyType(
    {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
)
"""The comparison of both operands in each other's place."""

V = TypeVar("V")


class Algebra(Protocol[V]):
    """Operations on values ``V``.

    Binary operations broadcast as NumPy does; negative axes are not allowed. ``field`` values are
    numbers with ring operations and division; ``int`` and ``bool`` values are evaluated exactly.
    Binary operations need operands of one kind; ``cast`` converts.

    Raises:
        ShapeError: if operands do not fit.
        UnsupportedError: if an operation has no meaning for its operands.
    """

    # --- properties
    def shape(self, a: V) -> tuple[int, ...]: ...
    def kind(self, a: V) -> Kind: ...

    # --- making values
    def constant(self, number: Fraction | float, kind: Kind = "field") -> V:
        """Return a 0-d constant: an exact rational, or (field only) the float nan, inf or -inf."""
        ...

    def extent(self, a: V, axes: Sequence[int]) -> V:
        """Return the number of elements along ``axes``.

        This field constant is bound to dimensions.
        """
        ...

    def arange(self, like: V, axis: int) -> V:
        """Return the positions 0 .. n-1 along ``axis`` of ``like``, as a 1-d int value."""
        ...

    def boundary(self, like: V, axis: int, offset: int) -> V:
        """Return the place ``offset`` along ``axis`` of ``like``, a 0-d int bound to the dimension.

        ``like`` may be a part of the dimension along which the place is.
        """
        ...

    # --- ring and field (field values; add, subtract, multiply, negate also int)
    def add(self, a: V, b: V) -> V: ...
    def subtract(self, a: V, b: V) -> V: ...
    def multiply(self, a: V, b: V) -> V: ...
    def negate(self, a: V) -> V: ...
    def divide(self, a: V, b: V) -> V: ...
    def power(self, a: V, exponent: int) -> V:
        """Return an integer power; negative exponents are inverses."""
        ...

    def sum(self, a: V, axes: Sequence[int]) -> V:
        """Return the sum over ``axes``, which disappear. Cast bools first."""
        ...

    def matmul(self, a: V, b: V) -> V:
        """Return ``(..., m, k) @ (..., k, n)``.

        Batch dimensions broadcast, both are at least 2-d.
        """
        ...

    # --- structure (every kind)
    def reshape(self, a: V, shape: Sequence[int]) -> V: ...
    def transpose(self, a: V, permutation: Sequence[int]) -> V: ...
    def expand(self, a: V, shape: Sequence[int]) -> V:
        """Return ``a`` broadcast to ``shape``; dimensions may be added in front."""
        ...

    def slice(self, a: V, axis: int, start: int, stop: int, step: int = 1) -> V:
        """Return a half-open slice: ``0 <= start <= stop <= size``, ``step >= 1``."""
        ...

    def concatenate(self, values: Sequence[V], axis: int) -> V: ...
    def flip(self, a: V, axis: int) -> V: ...

    # --- indexing (indices are int values; an index out of range raises ShapeError)
    def take(self, a: V, axis: int, indices: V) -> V:
        """Return ``a`` with ``axis`` replaced by the dimensions of ``indices`` (NumPy's take)."""
        ...

    def add_at(self, base: V, axis: int, indices: V, source: V) -> V:
        """Return ``base`` with ``source`` added at ``indices``; repeats add up.

        This is the adjoint of take: ``source`` is shaped like ``take(base, axis, indices)``.
        """
        ...

    def take_along(self, a: V, axis: int, indices: V) -> V:
        """Return one element per index along ``axis`` (torch.gather, NumPy's take_along_axis).

        ``indices`` has the rank of ``a`` and, but for ``axis``, its shape.
        """
        ...

    def add_along(self, base: V, axis: int, indices: V, source: V) -> V:
        """Return torch.scatter_add; ``indices`` and ``source`` have one shape."""
        ...

    # --- beyond the ring
    def exp(self, a: V) -> V: ...
    def log(self, a: V) -> V: ...
    def sqrt(self, a: V) -> V: ...
    def function(self, name: str, *arguments: V) -> V:
        """Return an elementwise function without algebra ("erf", "normal_cdf", ...).

        The real algebras know it by name; elsewhere it is a keyed random function.
        """
        ...

    def draw(self, stream: str, index: V) -> V:
        """Return the uniform draws in [0, 1) number ``index`` (int) of random stream ``stream``.

        They are equal if stream and index are.
        """
        ...

    # --- order, decisions
    def compare(self, comparison: Comparison, a: V, b: V) -> V:
        """Return a bool value; field values compare in the algebra's order."""
        ...

    def where(self, condition: V, a: V, b: V) -> V: ...
    def logical_and(self, a: V, b: V) -> V: ...
    def logical_or(self, a: V, b: V) -> V: ...
    def logical_not(self, a: V) -> V: ...
    def maximum(self, a: V, b: V) -> V: ...
    def minimum(self, a: V, b: V) -> V: ...
    def reduce_max(self, a: V, axis: int) -> V:
        """Return the maximum along ``axis``, which disappears."""
        ...

    def reduce_min(self, a: V, axis: int) -> V: ...
    def shift(self, a: V, axis: int) -> V:
        """Return a number per row along ``axis``, which disappears, that cancels where it is used.

        It is the maximum if floats must stay in range, else 0.
        """
        ...

    def order(self, a: V, axis: int, descending: bool) -> V:
        """Return the stable sorting permutation along ``axis``, int.

        Ties keep their order, as in torch.sort(stable=True).
        """
        ...

    # --- integers
    def floor_divide(self, a: V, b: V) -> V: ...
    def remainder(self, a: V, b: V) -> V: ...

    def cast(self, a: V, kind: Kind) -> V:
        """Return ``a`` in another kind.

        bool -> int -> field embed. field -> int truncates toward zero (order algebras only).
        Anything -> bool is ``!= 0``.
        """
        ...
