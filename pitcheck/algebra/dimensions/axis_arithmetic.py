"""Dimensions through arithmetic: the ties that elementwise operations, sums and products make.

Sizes that the meaning computes from shapes are
:class:`~pitcheck.algebra.dimensions.axis_values.Size` and follow the dimensions. Plain ints are
literals: a dimension of such a size, or cut at such an offset, is rigid.

>>> algebra = AxisArithmetic(AxisSystem())
>>> rows, bias = algebra.tensor((6, 8)), algebra.tensor((8,))
>>> algebra.add(rows, bias).dims == rows.dims
True
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from pitcheck.algebra.dimensions.axis_classes import AxisSystem
from pitcheck.algebra.dimensions.axis_values import AxisValue, Counting, Size, Tally
from pitcheck.algebra.dimensions.axis_views import view
from pitcheck.algebra.dimensions.scaling_class import Dimension, Use
from pitcheck.algebra.interface import Comparison, Kind
from pitcheck.algebra.shape_checks import check_matmul
from pitcheck.errors import ShapeError

_AS_VALUES = "its positions are used as values"
_AS_NUMBERS = "places along it are used as numbers"
_DECIDING = frozenset({"floor_divide", "remainder", "maximum", "minimum", "compare"})
"""Operations whose result may be another formula if a number was counted at another size."""


class AxisArithmetic:
    """Arithmetic on dimensions, which are tied in ``system``."""

    def __init__(self, system: AxisSystem) -> None:
        self.system = system
        self.site = ""

    # --- properties
    def shape(self, a: AxisValue) -> tuple[int, ...]:
        """Return the full sizes, each bound to its dimension."""
        return a.shape

    def kind(self, a: AxisValue) -> Kind:
        """Return "field", "int" or "bool"."""
        return a.kind

    # --- making values
    def tensor(self, shape: Sequence[int], kind: Kind = "field") -> AxisValue:
        """Return a value of new dimensions.

        Raises:
            ShapeError: if a size is negative.
        """
        if any(n < 0 for n in shape):
            raise ShapeError(f"a size is at least 0, not {min(shape)} as in {tuple(shape)}")
        return AxisValue(kind, tuple(self.system.dimension(n) for n in shape))

    def constant(self, number: Fraction | float, kind: Kind = "field") -> AxisValue:
        """Return a 0-d constant; a dimension that it may mean stays whole."""
        self.system.add_literal(number)
        tally = Tally((), number == 1) if number in (0, 1) else None
        return AxisValue(kind, (), literal=number, counting=Counting(discrete=True), tally=tally)

    def extent(self, a: AxisValue, axes: Sequence[int]) -> AxisValue:
        """Return the number of elements along ``axes``.

        It is no literal, but follows the dimensions.
        """
        counted = [a.dims[i] for i in checked(a, axes)]
        self.system.add_extent(counted)
        self._mix(counted)
        return AxisValue("field", (), counting=Counting(True, tuple(counted)))

    def arange(self, like: AxisValue, axis: int) -> AxisValue:
        """Return the positions along an axis.

        They may be compared with positions along an equal dimension; any other use makes the
        dimension rigid.
        """
        (node,) = (like.dims[i] for i in checked(like, (axis,)))
        self._mix([node])
        return AxisValue("int", (node,), counts=node)

    def boundary(self, like: AxisValue, axis: int, offset: int) -> AxisValue:
        """Return a place along a dimension at which segments begin or end.

        A literal ``offset`` makes the dimension rigid.
        """
        (node,) = (like.dims[i] for i in checked(like, (axis,)))
        self._offset(node, offset)
        self.system.position(node, int(offset))
        self.system.index(node)
        return AxisValue("int", (), places=node, boundary=True)

    def _mix(self, nodes: Sequence[Dimension]) -> None:
        for node in nodes:
            self.system.mix(node)

    def _add_up(self, kind: Kind, nodes: Sequence[Dimension]) -> None:
        """Note that numbers of a kind are added up along dimensions; integers have no weights."""
        self._mix(nodes)
        if kind != "field":
            self._use(nodes, Use.UNWEIGHTED)

    def _use(self, nodes: Sequence[Dimension], use: Use) -> None:
        for node in nodes:
            self.system.use(node, use)

    def viewed(self, dims: Sequence[Dimension], shape: Sequence[int]) -> tuple[Dimension, ...]:
        """Return the dimensions of a reshape; their refinement depends on the ties made so far."""
        return view(self.system, dims, shape)

    # --- elementwise
    def _used(self, *values: AxisValue) -> None:
        for value in values:
            if value.counts is not None:
                self.system.fix(value.counts, _AS_VALUES)
            if value.places is not None:
                self.system.fix(value.places, _AS_NUMBERS)

    def _decide(self, *values: AxisValue) -> None:
        """Note that ``values`` decide something: elements counted in them are counted at full size.

        Fewer elements might not count as far.
        """
        for value in values:
            asked = value.counting.asked if self._is_nested(value) else ()
            for node in (*value.counting.added, *asked):
                self.system.decide(node)

    def _places(self, *values: AxisValue) -> Dimension | None:
        """Return the dimension along which all these integers are places, 0 among them.

        Return None if no such dimension is known.
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
        """Return the dimensions of a broadcast result.

        Equal sizes are tied, a size 1 ties nothing.
        """
        result: list[Dimension] = []
        for place in range(1, max(len(v.dims) for v in values) + 1):
            nodes = [v.dims[-place] for v in values if len(v.dims) >= place]
            wide = [n for n in nodes if n.size != 1]
            if any(n.size != wide[0].size for n in wide):
                shapes = " and ".join(str(plain(v)) for v in values)
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
        same_kind(name, a, b)
        one_of(name, a, kinds)
        self._used(a, b)
        if name in _DECIDING and not (name == "compare" and self._compares_freely(a, b)):
            self._decide(a, b)
        multiplied = name == "multiply"
        return AxisValue(
            result or a.kind,
            self._broadcast(a, b),
            counting=counted_along(a, b),
            occurs=multiplied and a.occurs and b.occurs,
            tally=_product(a.tally, b.tally) if multiplied else None,
        )

    def _compares_freely(self, a: AxisValue, b: AxisValue) -> bool:
        """Return True if a comparison says of few places what it says of many.

        It asks for one place, or compares the number of some places with that of all of them along
        the same dimensions, or up to a place.
        """
        if self._is_nested(a) or self._is_nested(b):
            return False
        if _whether_any(a, b):
            return True
        if a.tally is None or b.tally is None or not (a.tally.all or b.tally.all):
            return False
        first, second = (self._classes(value.tally.dims) for value in (a, b) if value.tally)
        if not first or first != second:
            return False
        self._use((*a.tally.dims, *b.tally.dims), Use.TALLIED)
        self.system.decides = True
        return True

    def _is_nested(self, value: AxisValue) -> bool:
        """Return True if what is counted along an axis has been counted along that axis before.

        Whether a place between two others exists, asked k times over, tells 2^k places apart.
        """
        classes = self._classes((*value.counting.added, *value.counting.asked))
        return len(set(classes)) < len(classes)

    def _classes(self, nodes: Sequence[Dimension]) -> list[int]:
        return sorted(self.system.number_of(node) for node in nodes)

    def _unary(self, name: str, a: AxisValue, kinds: tuple[Kind, ...] = ("field",)) -> AxisValue:
        one_of(name, a, kinds)
        self._used(a)
        return AxisValue(a.kind, a.dims, counting=a.counting)

    def add(self, a: AxisValue, b: AxisValue) -> AxisValue:
        """Return an elementwise sum; positions with 0 added remain positions."""
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
        """Return places moved by whole segments, which are places along the same dimension.

        Any other sum makes them numbers.
        """
        node = self._places(a, b) if movable else None
        if node is None:
            return self._binary(name, a, b, ("field", "int"))
        return self._place(node, a, b)

    def subtract(self, a: AxisValue, b: AxisValue) -> AxisValue:
        """Return an elementwise difference.

        A boundary may be subtracted from places, and 1 from a boundary: that gives the last place
        of the segment that ends there.
        """
        if a.boundary and not b.dims and b.kind == "int" and b.literal == 1:
            return AxisValue("int", a.dims, places=a.places, counting=counted_along(a))
        return self._moved("subtract", a, b, movable=b.boundary)

    def multiply(self, a: AxisValue, b: AxisValue) -> AxisValue:
        """Return an elementwise product."""
        return self._binary("multiply", a, b, ("field", "int"))

    def divide(self, a: AxisValue, b: AxisValue) -> AxisValue:
        """Return an elementwise quotient."""
        return self._binary("divide", a, b, ("field",))

    def floor_divide(self, a: AxisValue, b: AxisValue) -> AxisValue:
        """Return an elementwise quotient of integers."""
        return self._binary("floor_divide", a, b, ("int",))

    def remainder(self, a: AxisValue, b: AxisValue) -> AxisValue:
        """Return an elementwise remainder of integers."""
        return self._binary("remainder", a, b, ("int",))

    def maximum(self, a: AxisValue, b: AxisValue) -> AxisValue:
        """Return an elementwise maximum; that of places is one of them at every size."""
        return self._further("maximum", a, b)

    def minimum(self, a: AxisValue, b: AxisValue) -> AxisValue:
        """Return an elementwise minimum; that of places is one of them at every size."""
        return self._further("minimum", a, b)

    def _further(self, name: str, a: AxisValue, b: AxisValue) -> AxisValue:
        """Return the place that comes last, or first; of other numbers that is a number."""
        same_kind(name, a, b)
        node = self._places(a, b)
        return (
            self._binary(name, a, b, ("field", "int")) if node is None else self._place(node, a, b)
        )

    def _place(self, node: Dimension, a: AxisValue, b: AxisValue) -> AxisValue:
        """Return places along a dimension that are made of two, and are boundaries if both are."""
        return AxisValue(
            "int",
            self._broadcast(a, b),
            places=node,
            boundary=at_boundary(a) and at_boundary(b),
            counting=counted_along(a, b),
        )

    def logical_and(self, a: AxisValue, b: AxisValue) -> AxisValue:
        """Return an elementwise conjunction of bools."""
        return self._binary("logical_and", a, b, ("bool",))

    def logical_or(self, a: AxisValue, b: AxisValue) -> AxisValue:
        """Return an elementwise disjunction of bools."""
        return self._binary("logical_or", a, b, ("bool",))

    def logical_not(self, a: AxisValue) -> AxisValue:
        """Return an elementwise negation of a bool."""
        return self._unary("logical_not", a, ("bool",))

    def negate(self, a: AxisValue) -> AxisValue:
        """Return the elementwise opposite."""
        return self._unary("negate", a, ("field", "int"))

    def power(self, a: AxisValue, exponent: int) -> AxisValue:  # noqa: ARG002
        """Return an elementwise power."""
        return self._unary("power", a)

    def exp(self, a: AxisValue) -> AxisValue:
        """Return an elementwise exponential."""
        return self._unary("exp", a)

    def log(self, a: AxisValue) -> AxisValue:
        """Return an elementwise logarithm."""
        return self._unary("log", a)

    def sqrt(self, a: AxisValue) -> AxisValue:
        """Return an elementwise square root."""
        return self._unary("sqrt", a)

    def function(self, name: str, *arguments: AxisValue) -> AxisValue:
        """Return an elementwise function; arguments broadcast."""
        for argument in arguments:
            one_of(name, argument, ("field",))
        return AxisValue("field", self._broadcast(*arguments), counting=counted_along(*arguments))

    def draw(self, stream: str, index: AxisValue) -> AxisValue:  # noqa: ARG002
        """Return draws in the shape of the index.

        Its dimensions become rigid: the numbers of their elements say what is drawn.
        """
        one_of("draw", index, ("int",))
        self._used(index)
        self._decide(index)
        for node in index.dims:
            self.system.fix(node, "its elements number random draws")
        return AxisValue("field", index.dims)

    def compare(self, comparison: Comparison, a: AxisValue, b: AxisValue) -> AxisValue:
        """Return a bool value.

        Positions may be compared with positions along a dimension of the same size, and places with
        places along the same dimension: their order does not depend on the size.
        """
        same_kind("compare", a, b)
        if a.counts is not None and b.counts is not None and a.counts.size == b.counts.size:
            self.system.tie(a.counts, b.counts)
            if comparison not in ("eq", "ne"):
                self.system.use(a.counts, Use.ORDERED)
            return AxisValue("bool", self._broadcast(a, b), positional=True)
        if self._places(a, b) is not None:
            return AxisValue("bool", self._broadcast(a, b), counting=counted_along(a, b))
        return self._binary("compare", a, b, (a.kind,), "bool")

    def where(self, condition: AxisValue, a: AxisValue, b: AxisValue) -> AxisValue:
        """Return an elementwise choice; all three operands broadcast."""
        one_of("where", condition, ("bool",))
        same_kind("where", a, b)
        node = self._places(a, b)
        if node is None:
            self._used(a, b)
        dims, boundary = (
            self._broadcast(condition, a, b),
            node is not None and at_boundary(a) and at_boundary(b),
        )
        return AxisValue(
            a.kind,
            dims,
            places=node,
            boundary=boundary,
            counting=counted_along(condition, a, b),
            tally=_either(condition, a, b),
        )

    def cast(self, a: AxisValue, kind: Kind) -> AxisValue:
        """Return the same dimensions in another kind."""
        if kind == a.kind:
            return a
        self._used(a)
        if kind == "bool" and (not a.occurs or self._is_nested(a)):
            self._decide(a)
        occurs = a.kind == "bool" or (a.occurs and kind != "bool")
        return AxisValue(
            kind,
            a.dims,
            a.literal,
            counting=counted_along(a),
            occurs=occurs,
            tally=Tally((), False) if a.kind == "bool" else a.tally,
        )

    # --- sums and products
    def sum(self, a: AxisValue, axes: Sequence[int]) -> AxisValue:
        """Return a sum over ``axes``, which disappear."""
        one_of("sum", a, ("field", "int"))
        self._used(a)
        over = checked(a, axes)
        self.system.add_extent([a.dims[i] for i in over])
        self._add_up(a.kind, [a.dims[i] for i in over])
        summed = tuple(a.dims[i] for i in over)
        return AxisValue(
            a.kind,
            tuple(d for i, d in enumerate(a.dims) if i not in over),
            counting=counted_along(a).add(summed),
            occurs=a.occurs,
            tally=None if a.tally is None else Tally((*a.tally.dims, *summed), a.tally.all),
        )

    def matmul(self, a: AxisValue, b: AxisValue) -> AxisValue:
        """Return a product of matrices; the contracted and the batch dimensions are tied.

        Raises:
            ShapeError: if the operands are not (..., m, k) and (..., k, n).
        """
        same_kind("matmul", a, b)
        one_of("matmul", a, ("field", "int"))
        self._used(a, b)
        check_matmul(plain(a), plain(b))
        self.system.tie(a.dims[-1], b.dims[-2])
        self._add_up(a.kind, [a.dims[-1]])
        batch = [AxisValue(v.kind, v.dims[:-2]) for v in (a, b)]
        dims = self._broadcast(*batch) if any(v.dims for v in batch) else ()
        return AxisValue(
            a.kind,
            (*dims, a.dims[-2], b.dims[-1]),
            counting=counted_along(a, b).add((a.dims[-1],)),
        )

    def reduce_max(self, a: AxisValue, axis: int) -> AxisValue:
        """Return a maximum along ``axis``, which disappears."""
        return self._extreme("reduce_max", a, axis)

    def reduce_min(self, a: AxisValue, axis: int) -> AxisValue:
        """Return a minimum along ``axis``, which disappears."""
        return self._extreme("reduce_min", a, axis)

    def shift(self, a: AxisValue, axis: int) -> AxisValue:
        """Return a shift along ``axis``, which disappears."""
        return self._reduced("shift", a, axis)

    def _extreme(self, name: str, a: AxisValue, axis: int) -> AxisValue:
        result = self._reduced(name, a, axis)
        over = a.dims[axis]
        self._use([over], Use.EXTREMAL)
        found = replace(result, counting=result.counting.ask(over))
        if self._is_nested(found):
            self._decide(found)
        return found

    def _reduced(self, name: str, a: AxisValue, axis: int) -> AxisValue:
        one_of(name, a, ("field", "int"))
        self._used(a)
        (over,) = checked(a, (axis,))
        if a.dims[over].size == 0:
            raise ShapeError(f"{name} over dimension {over} of {plain(a)}, which is empty")
        self._mix([a.dims[over]])
        self._decide(a)
        return AxisValue(
            a.kind,
            tuple(d for i, d in enumerate(a.dims) if i != over),
            counting=counted_along(a),
        )

    def _offset(self, node: Dimension, offset: int) -> None:
        if offset and not isinstance(offset, Size):
            self.system.fix(node, f"it is cut at the literal offset {offset}")


def _whether_any(a: AxisValue, b: AxisValue) -> bool:
    """Return True if a number of occurrences is compared with 0.

    That asks for one place, not for the number of places.
    """
    return (a.occurs and b.literal == 0) or (b.occurs and a.literal == 0)


def _product(a: Tally | None, b: Tally | None) -> Tally | None:
    """Return the tally of a product of which one factor is 0 or 1; None of any other product."""
    if a is None or b is None or (a.dims and b.dims):
        return None
    return Tally(a.dims or b.dims, a.all and b.all)


def _either(condition: AxisValue, a: AxisValue, b: AxisValue) -> Tally | None:
    """Return the tally of a choice between a number of places and 0; None of any other choice."""
    chosen = b.tally if a.literal == 0 else a.tally if b.literal == 0 else None
    return None if chosen is None else Tally(chosen.dims, chosen.all and condition.positional)


def counted_along(*values: AxisValue) -> Counting:
    """Return how a number made of ``values`` was counted, along each dimension as often as they."""
    discrete = all(value.is_discrete for value in values)
    return Counting(
        discrete,
        _as_often(value.counting.added for value in values) if discrete else (),
        _as_often(value.counting.asked for value in values),
    )


def _as_often(dims: Iterable[Sequence[Dimension]]) -> tuple[Dimension, ...]:
    most: Counter[Dimension] = Counter()
    for each in dims:
        most |= Counter(each)
    return tuple(most.elements())


def at_boundary(value: AxisValue) -> bool:
    """Return True if ``value`` is a place between segments, or 0."""
    return value.boundary or value.literal == 0


def plain(value: AxisValue) -> tuple[int, ...]:
    """Return the full sizes as plain integers, for messages."""
    return tuple(d.size for d in value.dims)


def checked(value: AxisValue, axes: Sequence[int]) -> tuple[int, ...]:
    """Return ``axes``.

    Raises:
        ShapeError: if one is outside the dimensions of ``value``, or stands twice.
    """
    for axis in axes:
        if not 0 <= axis < len(value.dims):
            raise ShapeError(f"axis {axis} is outside a tensor of {len(value.dims)} dimensions")
    if len(set(axes)) != len(axes):
        raise ShapeError(f"an axis stands twice in {tuple(axes)}")
    return tuple(axes)


def same_kind(name: str, a: AxisValue, b: AxisValue) -> None:
    """Raise ShapeError unless both operands are of one kind."""
    if a.kind != b.kind:
        raise ShapeError(
            f"{name} takes operands of one kind, not {a.kind} and {b.kind}; cast one first"
        )


def one_of(name: str, value: AxisValue, kinds: tuple[Kind, ...]) -> None:
    """Raise ShapeError unless ``value`` is of one of ``kinds``."""
    if value.kind not in kinds:
        raise ShapeError(f"{name} takes {' or '.join(kinds)} values, not {value.kind}")
