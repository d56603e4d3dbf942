"""The interface in which every operator's meaning is written.

An algebra says what a value is. Concrete algebras compute (residues, galois, float64, 60 digits);
abstract ones (axes, degrees) say something of every computation without doing it. Axes, shapes and
positions below are those of one tensor (its *logical* dimensions); how many trials, ranks and
levels are computed beside each other is the algebra's own business.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Literal as OneOf
from typing import Protocol, TypeVar

Kind = OneOf["field", "int", "bool"]
Comparison = OneOf["eq", "ne", "lt", "le", "gt", "ge"]

V = TypeVar("V")


class Algebra(Protocol[V]):
    """Operations on values ``V``. Binary operations broadcast as NumPy does; negative axes are not
    allowed here.

    ``field`` values are numbers with ring operations and division; ``int`` and ``bool`` values are
    evaluated as what they are. Binary operations need operands of one kind; ``cast`` converts.
    Operations raise ``ShapeError`` for operands that do not fit and ``UnsupportedError`` for what
    has no meaning.
    """

    # --- what a value looks like
    def shape(self, a: V) -> tuple[int, ...]: ...
    def kind(self, a: V) -> Kind: ...

    # --- making values
    def constant(self, number: Fraction | float, kind: Kind = "field") -> V:
        """A 0-d constant: an exact rational, or a float that is nan, inf or -inf (field only)."""
        ...

    def extent(self, a: V, axes: Sequence[int]) -> V:
        """The number of elements along ``axes`` as a field value: a constant that stays bound to
        the dimension.
        """
        ...

    def arange(self, like: V, axis: int) -> V:
        """Positions 0 .. n-1 along ``axis`` of ``like``, as a 1-d int value."""
        ...

    def boundary(self, like: V, axis: int, offset: int) -> V:
        """The place ``offset`` along ``axis`` of ``like``, or of what that is a part of, as a 0-d
        int value that stays bound to the dimension.
        """
        ...

    # --- ring and field (field values; add, subtract, multiply, negate also int)
    def add(self, a: V, b: V) -> V: ...
    def subtract(self, a: V, b: V) -> V: ...
    def multiply(self, a: V, b: V) -> V: ...
    def negate(self, a: V) -> V: ...
    def divide(self, a: V, b: V) -> V: ...
    def power(self, a: V, exponent: int) -> V:
        """Integer power; negative exponents are inverses."""
        ...

    def sum(self, a: V, axes: Sequence[int]) -> V:
        """Sum over ``axes``, which disappear. Sums of bool are not defined: cast first."""
        ...

    def matmul(self, a: V, b: V) -> V:
        """``(..., m, k) @ (..., k, n)``, batch dimensions broadcast; both operands at least 2-d."""
        ...

    # --- structure (every kind)
    def reshape(self, a: V, shape: Sequence[int]) -> V: ...
    def transpose(self, a: V, permutation: Sequence[int]) -> V: ...
    def expand(self, a: V, shape: Sequence[int]) -> V:
        """Broadcast to ``shape`` (dimensions may be added in front)."""
        ...

    def slice(self, a: V, axis: int, start: int, stop: int, step: int = 1) -> V:
        """Half-open, ``0 <= start <= stop <= size``, ``step >= 1``."""
        ...

    def concatenate(self, values: Sequence[V], axis: int) -> V: ...
    def flip(self, a: V, axis: int) -> V: ...

    # --- indexing (indices are int values; an index out of range raises ShapeError)
    def take(self, a: V, axis: int, indices: V) -> V:
        """``out.shape = a.shape[:axis] + indices.shape + a.shape[axis+1:]`` (NumPy's take)."""
        ...

    def add_at(self, base: V, axis: int, indices: V, source: V) -> V:
        """The adjoint of take: ``base`` with ``source`` (shaped like ``take(base, axis, indices)``)
        added at ``indices``; repeats add up.
        """
        ...

    def take_along(self, a: V, axis: int, indices: V) -> V:
        """torch.gather / NumPy's take_along_axis; ``indices`` has the rank of ``a`` and, but for
        ``axis``, its shape.
        """
        ...

    def add_along(self, base: V, axis: int, indices: V, source: V) -> V:
        """torch.scatter_add; ``indices`` and ``source`` have one shape."""
        ...

    # --- beyond the ring
    def exp(self, a: V) -> V: ...
    def log(self, a: V) -> V: ...
    def sqrt(self, a: V) -> V: ...
    def function(self, name: str, *arguments: V) -> V:
        """An elementwise function without algebra ("erf", "normal_cdf", ...), known to the real
        algebras by name; elsewhere a keyed random function.
        """
        ...

    def draw(self, stream: str, index: V) -> V:
        """The uniform draws in [0, 1) number ``index`` (int) of random stream ``stream``: equal
        where stream and index are.
        """
        ...

    # --- order, decisions
    def compare(self, comparison: Comparison, a: V, b: V) -> V:
        """A bool value. Field values compare in the algebra's order."""
        ...

    def where(self, condition: V, a: V, b: V) -> V: ...
    def logical_and(self, a: V, b: V) -> V: ...
    def logical_or(self, a: V, b: V) -> V: ...
    def logical_not(self, a: V) -> V: ...
    def maximum(self, a: V, b: V) -> V: ...
    def minimum(self, a: V, b: V) -> V: ...
    def reduce_max(self, a: V, axis: int) -> V:
        """Maximum along ``axis``, which disappears."""
        ...

    def reduce_min(self, a: V, axis: int) -> V: ...
    def shift(self, a: V, axis: int) -> V:
        """A number per row along ``axis``, which disappears, that cancels in what it is used for:
        the maximum where floats must stay in range, else 0.
        """
        ...

    def order(self, a: V, axis: int, descending: bool) -> V:
        """The stable sorting permutation along ``axis``, int (ties keep their order, as
        torch.sort(stable=True)).
        """
        ...

    # --- integers
    def floor_divide(self, a: V, b: V) -> V: ...
    def remainder(self, a: V, b: V) -> V: ...

    def cast(self, a: V, kind: Kind) -> V:
        """bool -> int -> field embed; field -> int truncates toward zero (order algebras only);
        anything -> bool is ``!= 0``.
        """
        ...
