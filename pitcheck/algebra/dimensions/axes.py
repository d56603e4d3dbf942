"""The algebra of dimensions: an operator's meaning run on shapes at full size.

It gives the shape rule of every operator (ShapeError where operands do not fit) and, as it ties
dimensions on the way, what shape reduction needs to know. Sizes that the meaning computes from
shapes are :class:`~pitcheck.algebra.dimensions.axis_values.Size` and follow the dimensions; plain
ints are literals, and a dimension of such a size, or cut at such an offset, is rigid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.dimensions.axis_classes import AxisSystem, Dimension
from pitcheck.algebra.dimensions.axis_values import AxisValue, Size
from pitcheck.algebra.dimensions.axis_views import view
from pitcheck.algebra.dimensions.size_choice import Sizes
from pitcheck.algebra.interface import Comparison, Kind
from pitcheck.errors import ShapeError

__all__ = ["AxisAlgebra", "AxisSystem", "AxisValue", "Dimension", "Size", "Sizes"]

Index = NDArray[np.int64]

_AS_VALUES = "its positions are used as values"
_AS_NUMBERS = "places along it are used as numbers"
_AS_INDEX = "it is indexed by values"
_DECIDING = frozenset({"floor_divide", "remainder", "maximum", "minimum", "compare"})
"""Operations whose result is not the same formula for every number that was counted."""


class AxisAlgebra:
    """Every operation of :class:`~pitcheck.algebra.interface.Algebra` on dimensions, tied in
    ``system``.
    """

    def __init__(self, system: AxisSystem) -> None:
        self.system = system
        self.site = ""

    # --- what a value looks like
    def shape(self, a: AxisValue) -> tuple[int, ...]:
        """Full sizes, each bound to its dimension."""
        return a.shape

    def kind(self, a: AxisValue) -> Kind:
        """Field, int or bool."""
        return a.kind

    # --- making values
    def tensor(self, shape: Sequence[int], kind: Kind = "field") -> AxisValue:
        """A value of new dimensions. Raises ShapeError for a negative size."""
        if any(n < 0 for n in shape):
            raise ShapeError(f"a size is at least 0, not {min(shape)} as in {tuple(shape)}")
        return AxisValue(kind, tuple(self.system.dimension(n) for n in shape))

    def constant(self, number: Fraction | float, kind: Kind = "field") -> AxisValue:
        """A 0-d constant; a dimension that it may mean stays whole."""
        self.system.add_literal(number)
        return AxisValue(kind, (), literal=number, derived=())

    def extent(self, a: AxisValue, axes: Sequence[int]) -> AxisValue:
        """The number of elements along ``axes``: no literal, it follows the dimensions."""
        counted = [a.dims[i] for i in _checked(a, axes)]
        self.system.add_extent(counted)
        self._mix(counted)
        return AxisValue("field", (), derived=tuple(counted))

    def arange(self, like: AxisValue, axis: int) -> AxisValue:
        """Positions along an axis. They may be compared with positions along an equal dimension;
        any other use makes the dimension rigid.
        """
        (node,) = (like.dims[i] for i in _checked(like, (axis,)))
        self._mix([node])
        return AxisValue("int", (node,), counts=node)

    def boundary(self, like: AxisValue, axis: int, offset: int) -> AxisValue:
        """A place along a dimension, which its segments begin or end at; a literal one makes the
        dimension rigid.
        """
        (node,) = (like.dims[i] for i in _checked(like, (axis,)))
        self._offset(node, offset)
        self.system.position(node, int(offset))
        self.system.index(node)
        return AxisValue("int", (), places=node, boundary=True)

    def _mix(self, nodes: Sequence[Dimension]) -> None:
        for node in nodes:
            self.system.mix(node)

    def viewed(self, dims: Sequence[Dimension], shape: Sequence[int]) -> tuple[Dimension, ...]:
        """The dimensions of a reshape; how they are refined depends on what is already tied."""
        return view(self.system, dims, shape)

    # --- elementwise
    def _used(self, *values: AxisValue) -> None:
        for value in values:
            if value.counts is not None:
                self.system.fix(value.counts, _AS_VALUES)
            if value.places is not None:
                self.system.fix(value.places, _AS_NUMBERS)

    def _decide(self, *values: AxisValue) -> None:
        """Something is decided by ``values``: what was counted to make them is counted at full
        size, as fewer elements never count so far.
        """
        for value in values:
            for node in value.counted:
                self.system.decide(node)

    def _places(self, *values: AxisValue) -> Dimension | None:
        """The dimension along which all these integers are places, 0 among them; None where there
        is none known.
        """
        known = [
            node
            for node in (value.counts if value.places is None else value.places for value in values)
            if node is not None
        ]
        others = any(
            v.places is None and v.counts is None and not (v.kind == "int" and v.literal == 0)
            for v in values
        )
        if others or all(value.places is None for value in values):
            return None
        for node in known:
            self.system.share(node, known[0])
        return known[0]

    def _broadcast(self, *values: AxisValue) -> tuple[Dimension, ...]:
        """The dimensions of a broadcast result; equal sizes are tied, a size 1 ties nothing."""
        result: list[Dimension] = []
        for place in range(1, max(len(v.dims) for v in values) + 1):
            nodes = [v.dims[-place] for v in values if len(v.dims) >= place]
            wide = [n for n in nodes if n.size != 1]
            if any(n.size != wide[0].size for n in wide):
                shapes = " and ".join(str(_plain(v)) for v in values)
                raise ShapeError(
                    f"shapes {shapes} do not broadcast: dimension -{place} has sizes "
                    f"{', '.join(str(n.size) for n in nodes)}"
                )
            for node in wide[1:]:
                self.system.tie(node, wide[0])
            result.append(wide[0] if wide else self.system.dimension(1))
        return tuple(reversed(result))

    def _binary(
        self,
        name: str,
        a: AxisValue,
        b: AxisValue,
        kinds: tuple[Kind, ...],
        result: Kind | None = None,
    ) -> AxisValue:
        _same_kind(name, a, b)
        _one_of(name, a, kinds)
        self._used(a, b)
        if name in _DECIDING and not (name == "compare" and _whether_any(a, b)):
            self._decide(a, b)
        occurs = name == "multiply" and a.occurs and b.occurs
        return AxisValue(
            result or a.kind, self._broadcast(a, b), derived=_counted(a, b), occurs=occurs
        )

    def _unary(self, name: str, a: AxisValue, kinds: tuple[Kind, ...] = ("field",)) -> AxisValue:
        _one_of(name, a, kinds)
        self._used(a)
        return AxisValue(a.kind, a.dims, derived=a.derived)

    def add(self, a: AxisValue, b: AxisValue) -> AxisValue:
        """Elementwise; positions with 0 added remain positions."""
        for counted, other in ((a, b), (b, a)):
            if (
                counted.counts is not None
                and other.literal == 0
                and other.kind == "int"
                and all(node.size == 1 for node in other.dims)
            ):
                return counted
        return self._moved("add", a, b, movable=a.boundary or b.boundary)

    def _moved(self, name: str, a: AxisValue, b: AxisValue, movable: bool) -> AxisValue:
        """Places moved by whole segments are places along the same dimension; anything else makes
        them numbers.
        """
        node = self._places(a, b) if movable else None
        if node is None:
            return self._binary(name, a, b, ("field", "int"))
        return AxisValue(
            "int", self._broadcast(a, b), places=node, boundary=_at_boundary(a) and _at_boundary(b)
        )

    def subtract(self, a: AxisValue, b: AxisValue) -> AxisValue:
        """Elementwise; a boundary may be subtracted from places."""
        return self._moved("subtract", a, b, movable=b.boundary)

    def multiply(self, a: AxisValue, b: AxisValue) -> AxisValue:
        """Elementwise."""
        return self._binary("multiply", a, b, ("field", "int"))

    def divide(self, a: AxisValue, b: AxisValue) -> AxisValue:
        """Elementwise."""
        return self._binary("divide", a, b, ("field",))

    def floor_divide(self, a: AxisValue, b: AxisValue) -> AxisValue:
        """Elementwise, of integers."""
        return self._binary("floor_divide", a, b, ("int",))

    def remainder(self, a: AxisValue, b: AxisValue) -> AxisValue:
        """Elementwise, of integers."""
        return self._binary("remainder", a, b, ("int",))

    def maximum(self, a: AxisValue, b: AxisValue) -> AxisValue:
        """Elementwise."""
        return self._binary("maximum", a, b, ("field", "int"))

    def minimum(self, a: AxisValue, b: AxisValue) -> AxisValue:
        """Elementwise."""
        return self._binary("minimum", a, b, ("field", "int"))

    def logical_and(self, a: AxisValue, b: AxisValue) -> AxisValue:
        """Elementwise, of bools."""
        return self._binary("logical_and", a, b, ("bool",))

    def logical_or(self, a: AxisValue, b: AxisValue) -> AxisValue:
        """Elementwise, of bools."""
        return self._binary("logical_or", a, b, ("bool",))

    def logical_not(self, a: AxisValue) -> AxisValue:
        """Elementwise, of a bool."""
        return self._unary("logical_not", a, ("bool",))

    def negate(self, a: AxisValue) -> AxisValue:
        """Elementwise."""
        return self._unary("negate", a, ("field", "int"))

    def power(self, a: AxisValue, exponent: int) -> AxisValue:  # noqa: ARG002
        """Elementwise."""
        return self._unary("power", a)

    def exp(self, a: AxisValue) -> AxisValue:
        """Elementwise."""
        return self._unary("exp", a)

    def log(self, a: AxisValue) -> AxisValue:
        """Elementwise."""
        return self._unary("log", a)

    def sqrt(self, a: AxisValue) -> AxisValue:
        """Elementwise."""
        return self._unary("sqrt", a)

    def function(self, name: str, *arguments: AxisValue) -> AxisValue:
        """Elementwise; arguments broadcast."""
        for argument in arguments:
            _one_of(name, argument, ("field",))
        return AxisValue("field", self._broadcast(*arguments), derived=_counted(*arguments))

    def draw(self, stream: str, index: AxisValue) -> AxisValue:  # noqa: ARG002
        """Field values in the shape of the index, whose dimensions are rigid: their numbers say
        what is drawn.
        """
        _one_of("draw", index, ("int",))
        self._used(index)
        self._decide(index)
        for node in index.dims:
            self.system.fix(node, "its elements number random draws")
        return AxisValue("field", index.dims)

    def compare(self, comparison: Comparison, a: AxisValue, b: AxisValue) -> AxisValue:  # noqa: ARG002
        """A bool value. Positions may be compared with positions along a dimension of the same
        size, and places with places along the same: their order does not depend on the size."""
        _same_kind("compare", a, b)
        if a.counts is not None and b.counts is not None and a.counts.size == b.counts.size:
            self.system.tie(a.counts, b.counts)
            return AxisValue("bool", self._broadcast(a, b))
        if self._places(a, b) is not None:
            return AxisValue("bool", self._broadcast(a, b))
        return self._binary("compare", a, b, (a.kind,), "bool")

    def where(self, condition: AxisValue, a: AxisValue, b: AxisValue) -> AxisValue:
        """Elementwise; all three broadcast."""
        _one_of("where", condition, ("bool",))
        _same_kind("where", a, b)
        node = self._places(a, b)
        if node is None:
            self._used(a, b)
        dims, boundary = (
            self._broadcast(condition, a, b),
            node is not None and _at_boundary(a) and _at_boundary(b),
        )
        return AxisValue(a.kind, dims, places=node, boundary=boundary, derived=_counted(a, b))

    def cast(self, a: AxisValue, kind: Kind) -> AxisValue:
        """The same dimensions in another kind."""
        if kind == a.kind:
            return a
        self._used(a)
        if kind == "bool" and not a.occurs:
            self._decide(a)
        occurs = a.kind == "bool" or (a.occurs and kind != "bool")
        return AxisValue(
            kind, a.dims, a.literal, derived=a.counted if a.is_discrete else None, occurs=occurs
        )

    # --- sums and products
    def sum(self, a: AxisValue, axes: Sequence[int]) -> AxisValue:
        """The summed dimensions disappear."""
        _one_of("sum", a, ("field", "int"))
        self._used(a)
        over = _checked(a, axes)
        self.system.add_extent([a.dims[i] for i in over])
        self._mix([a.dims[i] for i in over])
        derived = (*a.counted, *(a.dims[i] for i in over)) if a.is_discrete else None
        return AxisValue(
            a.kind,
            tuple(d for i, d in enumerate(a.dims) if i not in over),
            derived=derived,
            occurs=a.occurs,
        )

    def matmul(self, a: AxisValue, b: AxisValue) -> AxisValue:
        """Ties the contracted and the batch dimensions."""
        _same_kind("matmul", a, b)
        _one_of("matmul", a, ("field", "int"))
        self._used(a, b)
        if len(a.dims) < 2 or len(b.dims) < 2 or a.dims[-1].size != b.dims[-2].size:
            raise ShapeError(
                f"matmul takes (..., m, k) and (..., k, n), not {_plain(a)} and {_plain(b)}"
            )
        self.system.tie(a.dims[-1], b.dims[-2])
        self._mix([a.dims[-1]])
        batch = [AxisValue(v.kind, v.dims[:-2]) for v in (a, b)]
        dims = self._broadcast(*batch) if any(v.dims for v in batch) else ()
        derived = _counted(a, b)
        return AxisValue(
            a.kind,
            (*dims, a.dims[-2], b.dims[-1]),
            derived=None if derived is None else (*derived, a.dims[-1]),
        )

    def reduce_max(self, a: AxisValue, axis: int) -> AxisValue:
        """The dimension disappears."""
        return self._reduced("reduce_max", a, axis)

    def reduce_min(self, a: AxisValue, axis: int) -> AxisValue:
        """The dimension disappears."""
        return self._reduced("reduce_min", a, axis)

    def shift(self, a: AxisValue, axis: int) -> AxisValue:
        """The dimension disappears."""
        return self._reduced("shift", a, axis)

    def _reduced(self, name: str, a: AxisValue, axis: int) -> AxisValue:
        _one_of(name, a, ("field", "int"))
        self._used(a)
        (over,) = _checked(a, (axis,))
        if a.dims[over].size == 0:
            raise ShapeError(f"{name} over dimension {over} of {_plain(a)}, which is empty")
        self._mix([a.dims[over]])
        self._decide(a)
        return AxisValue(
            a.kind, tuple(d for i, d in enumerate(a.dims) if i != over), derived=a.derived
        )

    # --- structure
    def reshape(self, a: AxisValue, shape: Sequence[int]) -> AxisValue:
        """The common refinement of both factorisations; a size bound to a dimension is tied to it,
        a literal size stays.
        """
        if prod(shape) != prod(d.size for d in a.dims) or any(n < 0 for n in shape):
            raise ShapeError(
                f"a tensor of shape {_plain(a)} cannot be viewed as {tuple(map(int, shape))}: the "
                f"number of elements differs"
            )
        dims = self.viewed(a.dims, shape)
        for node, size in zip(dims, shape, strict=True):
            self._bound(node, size)
        return replace(a, dims=dims)

    def _bound(self, node: Dimension, size: int) -> None:
        """Tie a dimension to where its size comes from."""
        if not isinstance(size, Size):
            if size != 1:
                self.system.fix(node, f"its size {size} is a literal")
        elif size.dimension is not None:
            self.system.tie(node, size.dimension)

    def transpose(self, a: AxisValue, permutation: Sequence[int]) -> AxisValue:
        """Dimensions in another order."""
        if sorted(permutation) != list(range(len(a.dims))):
            raise ShapeError(
                f"the permutation {tuple(permutation)} does not name each of the {len(a.dims)} "
                f"dimensions once"
            )
        return replace(a, dims=tuple(a.dims[i] for i in permutation))

    def expand(self, a: AxisValue, shape: Sequence[int]) -> AxisValue:
        """New dimensions where a size 1 is repeated, or in front."""
        extra = len(shape) - len(a.dims)
        if extra < 0 or any(
            d.size not in (1, n) for d, n in zip(a.dims, shape[extra:], strict=True)
        ):
            raise ShapeError(
                f"a tensor of shape {_plain(a)} cannot be expanded to {tuple(map(int, shape))}"
            )
        dims = []
        for place, size in enumerate(shape):
            old = a.dims[place - extra] if place >= extra else None
            node = old if old is not None and old.size == size else self._repeated(size)
            if old is node and isinstance(size, Size):
                self._bound(node, size)
            dims.append(node)
        return replace(a, dims=tuple(dims))

    def _repeated(self, size: int) -> Dimension:
        if isinstance(size, Size) and size.dimension is not None:
            return size.dimension
        fixed = "" if isinstance(size, Size) else f"its size {size} is a literal"
        return self.system.dimension(size, fixed=fixed)

    def slice(self, a: AxisValue, axis: int, start: int, stop: int, step: int = 1) -> AxisValue:
        """A part of the dimension's class, with both ends as positions; a literal offset or a step
        makes the class rigid.
        """
        (place,) = _checked(a, (axis,))
        node = a.dims[place]
        if not 0 <= start <= stop <= node.size or step < 1:
            raise ShapeError(
                f"the slice [{start}:{stop}:{step}] does not lie within dimension {place} of "
                f"{_plain(a)}"
            )
        if step == 1 and (start, stop) == (0, node.size):
            self._offset(node, stop)
            return a
        if a.places is None:
            self._used(a)
        return replace(
            a,
            dims=(*a.dims[:place], self._part(node, start, stop, step), *a.dims[place + 1 :]),
            counts=None,
        )

    def _part(self, node: Dimension, start: int, stop: int, step: int) -> Dimension:
        self._offset(node, start)
        self._offset(node, stop)
        if step != 1:
            self.system.fix(node, f"it is sliced with step {step}")
            return self.system.dimension(
                len(range(start, stop, step)), fixed=f"it is a slice with step {step}"
            )
        part = self.system.dimension(stop - start)
        self._mix([node, part])
        self.system.tie(part, node, start)
        return part

    def _offset(self, node: Dimension, offset: int) -> None:
        if offset and not isinstance(offset, Size):
            self.system.fix(node, f"it is cut at the literal offset {offset}")

    def concatenate(self, values: Sequence[AxisValue], axis: int) -> AxisValue:
        """The joined dimension is in one class with all its parts; a join of single elements is a
        stack, whose size stays. Places remain places.
        """
        if not values:
            raise ShapeError("concatenate takes at least one value")
        first = values[0]
        (place,) = _checked(first, (axis,))
        along = self._places(*values)
        if along is None:
            self._used(*values)
        for value in values[1:]:
            _same_kind("concatenate", first, value)
            if len(value.dims) != len(first.dims):
                raise ShapeError(
                    f"shapes {_plain(first)} and {_plain(value)} cannot be joined: the number of "
                    f"dimensions differs"
                )
            for i, (node, other) in enumerate(zip(first.dims, value.dims, strict=True)):
                if i != place and node.size != other.size:
                    raise ShapeError(
                        f"shapes {_plain(first)} and {_plain(value)} cannot be joined along "
                        f"{place}: dimension {i} differs"
                    )
                if i != place:
                    self.system.tie(other, node)
        joined = self._joined([v.dims[place] for v in values])
        boundary = along is not None and all(_at_boundary(value) for value in values)
        dims = (*first.dims[:place], joined, *first.dims[place + 1 :])
        return AxisValue(
            first.kind, dims, places=along, boundary=boundary, derived=_counted(*values)
        )

    def _joined(self, parts: Sequence[Dimension]) -> Dimension:
        if len(parts) == 1:
            return parts[0]
        total = sum(part.size for part in parts)
        if all(part.size == 1 for part in parts):
            return self.system.dimension(total, fixed="it stacks single elements", copies=True)
        joined = self.system.dimension(total)
        self._mix([joined, *parts])
        offset = 0
        for part in parts:
            self.system.tie(part, joined, offset)
            offset += part.size
        return joined

    def flip(self, a: AxisValue, axis: int) -> AxisValue:
        """The dimension is marked permuted."""
        (place,) = _checked(a, (axis,))
        self._used(a)
        self.system.mark_permuted(a.dims[place])
        return AxisValue(a.kind, a.dims, derived=a.derived)

    # --- indexing
    def _indexed(self, a: AxisValue, axis: int, indices: AxisValue) -> int:
        (place,) = _checked(a, (axis,))
        _one_of("an index", indices, ("int",))
        self._used(a)
        self._decide(indices)
        if indices.places is None:
            self._used(indices)
            self.system.fix(a.dims[place], _AS_INDEX)
        else:
            self.system.share(a.dims[place], indices.places)
        return place

    def take(self, a: AxisValue, axis: int, indices: AxisValue) -> AxisValue:
        """The indexed dimension becomes rigid and is replaced by the dimensions of the indices."""
        place = self._indexed(a, axis, indices)
        return AxisValue(
            a.kind, (*a.dims[:place], *indices.dims, *a.dims[place + 1 :]), derived=a.derived
        )

    def add_at(
        self, base: AxisValue, axis: int, indices: AxisValue, source: AxisValue
    ) -> AxisValue:
        """The indexed dimension becomes rigid; the source is tied to what ``take`` would give."""
        taken = self.take(base, axis, indices)
        self._equal("add_at", taken, source)
        self._mix(indices.dims)
        derived = _counted(base, source)
        return AxisValue(
            base.kind, base.dims, derived=None if derived is None else (*derived, *indices.dims)
        )

    def take_along(self, a: AxisValue, axis: int, indices: AxisValue) -> AxisValue:
        """The indexed dimension becomes rigid; all others are tied to those of the indices."""
        place = self._indexed(a, axis, indices)
        if len(a.dims) != len(indices.dims) or any(
            d.size != e.size
            for i, (d, e) in enumerate(zip(a.dims, indices.dims, strict=True))
            if i != place
        ):
            raise ShapeError(
                f"indices of shape {_plain(indices)} do not index {_plain(a)} along axis {place}"
            )
        for i, (node, other) in enumerate(zip(a.dims, indices.dims, strict=True)):
            if i != place:
                self.system.tie(other, node)
        return AxisValue(a.kind, indices.dims, derived=a.derived)

    def add_along(
        self, base: AxisValue, axis: int, indices: AxisValue, source: AxisValue
    ) -> AxisValue:
        """As ``take_along``; the source has the shape of the indices."""
        self._equal(
            "add_along", AxisValue(base.kind, self.take_along(base, axis, indices).dims), source
        )
        derived = _counted(base, source)
        return AxisValue(
            base.kind,
            base.dims,
            derived=None if derived is None else (*derived, indices.dims[axis]),
        )

    def _equal(self, name: str, expected: AxisValue, given: AxisValue) -> None:
        self._used(given)
        self._alike(name, expected, given)

    def _alike(self, name: str, expected: AxisValue, given: AxisValue) -> None:
        _same_kind(name, expected, given)
        if _plain(expected) != _plain(given):
            raise ShapeError(
                f"{name} takes a source of shape {_plain(expected)} here, not {_plain(given)}"
            )
        for node, other in zip(given.dims, expected.dims, strict=True):
            self.system.tie(node, other)

    def order(self, a: AxisValue, axis: int, descending: bool) -> AxisValue:  # noqa: ARG002
        """The ordered dimension becomes rigid: the result's elements are positions along it."""
        (place,) = _checked(a, (axis,))
        _one_of("order", a, ("field", "int"))
        self._used(a)
        self._decide(a)
        self.system.fix(a.dims[place], "it is sorted")
        return AxisValue("int", a.dims)

    # --- batches: all instances have one shape
    def gather(self, a: AxisValue, index: Index) -> AxisValue:  # noqa: ARG002
        """Chosen instances look as all do."""
        return a

    def stack(self, a: AxisValue, index: Index) -> AxisValue:
        """Instances stacked by an index of shape (instances, members): a leading dimension of the
        members, which stays.
        """
        members = self.system.dimension(
            int(index.shape[1]), fixed="it numbers the members of a group", copies=True
        )
        if a.places is None:
            self._used(a)
        return AxisValue(
            a.kind, (members, *a.dims), places=a.places, boundary=a.boundary, derived=a.derived
        )

    def join(self, parts: Sequence[AxisValue], counts: Sequence[int] | None = None) -> AxisValue:  # noqa: ARG002  rows do not matter to axes
        """Instances beside each other: all have one shape, and equal dimensions are tied."""
        first = parts[0]
        node = self._places(*parts)
        for part in parts[1:]:
            self._alike("join", first, part)
        if node is None:
            self._used(*parts)
        boundary = node is not None and all(_at_boundary(part) for part in parts)
        return AxisValue(
            first.kind, first.dims, places=node, boundary=boundary, derived=_counted(*parts)
        )


def _whether_any(a: AxisValue, b: AxisValue) -> bool:
    """Return True if a number of occurrences is compared with 0: that asks for one place, and not
    how many there are.
    """
    return (a.occurs and b.literal == 0) or (b.occurs and a.literal == 0)


def _counted(*values: AxisValue) -> tuple[Dimension, ...] | None:
    """The dimensions along which numbers made of ``values`` were counted; None where one of them is
    not made of discrete data alone.
    """
    if not all(value.is_discrete for value in values):
        return None
    return tuple(dict.fromkeys(node for value in values for node in value.counted))


def _at_boundary(value: AxisValue) -> bool:
    return value.boundary or value.literal == 0


def _plain(value: AxisValue) -> tuple[int, ...]:
    return tuple(d.size for d in value.dims)


def _checked(value: AxisValue, axes: Sequence[int]) -> tuple[int, ...]:
    for axis in axes:
        if not 0 <= axis < len(value.dims):
            raise ShapeError(f"axis {axis} is outside a tensor of {len(value.dims)} dimensions")
    if len(set(axes)) != len(axes):
        raise ShapeError(f"an axis stands twice in {tuple(axes)}")
    return tuple(axes)


def _same_kind(name: str, a: AxisValue, b: AxisValue) -> None:
    if a.kind != b.kind:
        raise ShapeError(
            f"{name} takes operands of one kind, not {a.kind} and {b.kind}; cast one first"
        )


def _one_of(name: str, value: AxisValue, kinds: tuple[Kind, ...]) -> None:
    if value.kind not in kinds:
        raise ShapeError(f"{name} takes {' or '.join(kinds)} values, not {value.kind}")
