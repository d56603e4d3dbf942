"""The plan of one module in the making: tensors and operators, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from math import prod
from typing import Any, Protocol, TypeAlias

import numpy as np

from pitcheck.base.numbers import Root
from pitcheck.errors import BudgetError, PlanError, UnsupportedError
from pitcheck.frontends.xla.lowering.arrays import (
    MOST_KNOWN,
    NUMPY,
    Array,
    Counted,
    Numbers,
    Real,
    Span,
    dtype_of,
)
from pitcheck.frontends.xla.lowering.random.codes import Codes
from pitcheck.frontends.xla.text.literals import Special
from pitcheck.frontends.xla.text.module import Instruction, Module
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType
from pitcheck.plan.model import (
    Attribute,
    Axis,
    Box,
    Group,
    Number,
    Operand,
    Operator,
    Table,
    Tensor,
)

DEVICE = "device"
"""The one mesh axis: a device is a partition of the program."""
MOST_OPERATORS = 1 << 18
"""The operators of a plan that are made at most."""
MOST_DRAWN = 1 << 17
"""The operators that only codes tell, of which a plan has none, that are followed at most."""
_COMMUTATIVE = frozenset({"add", "mul"})
MOST_LISTED = 256
"""The elements of a constant that are written one by one."""


Elements: TypeAlias = tuple[Real, ...] | Numbers
"""The elements of a constant: floating-point numbers, or an array of integers or truths."""


class Drawing(Protocol):
    """The tensors of random numbers, which a plan is given.

    Attributes:
        late: True if what depends on random numbers alone is one of them, too.
    """

    late: bool

    def tensor(self, b: Building, x: Array) -> str:
        """Return the tensor that holds an array of which codes tell the elements.

        Raises:
            NotDrawnError: the plan is not given these numbers.
            UnsupportedError: nothing may be said of them.
            BudgetError: to tell takes too many steps.
        """
        ...


class Keeping(Protocol):
    """The constants of too many numbers to be written, which a plan is given."""

    def tensor(self, b: Building, shape: ArrayShape, elements: Elements) -> str:
        """Return the tensor that holds on each device a constant with some elements, row by row.

        Raises UnsupportedError if the plan is not given it.
        """
        ...


class Counting(Protocol):
    """The scalars that counters of loops decide, which a plan is given."""

    def scalar(self, b: Building, shape: ArrayShape, counted: Counted) -> Array | None:
        """Return the scalar that has some numbers; None if the plan is not given it."""
        ...


class NotDrawnError(UnsupportedError):
    """Random numbers that a plan is not given."""


class Building:
    """The tensors and operators of a plan so far.

    Attributes:
        module: the program that is read.
        devices: the number of partitions.
        drawing: the tensors of random numbers; None if they have no meaning.
        keeping: the constants that are not written; None if all are.
        counting: the scalars that counters decide; None if operators make them.
    """

    def __init__(
        self,
        module: Module,
        devices: int,
        drawing: Drawing | None = None,
        keeping: Keeping | None = None,
        counting: Counting | None = None,
    ) -> None:
        self.module = module
        self.devices = devices
        self.drawing = drawing
        self.keeping = keeping
        self.counting = counting
        self.mesh = (Axis(DEVICE, devices),)
        self.operators: list[Operator] = []
        self.tensors: dict[str, Tensor] = {}
        self._here: tuple[str, str, str] = ("", "", "")
        self._names: dict[str, int] = {}
        self._operator_names: dict[str, int] = {}
        self._drawn = 0
        self._computed: dict[str, tuple[str, ...]] = {}
        """The tensors that hold the results of each operator that only computes."""

    # --- places
    def at(self, instruction: Instruction, path: str) -> None:
        """Make what follows for an instruction; ``path`` names the loop iterations around it."""
        place = self.module.source(instruction)
        source = f"{place.file}:{place.line}" if place else f"{self.module.file}:{instruction.line}"
        self._here = (instruction.name + path, source, instruction.metadata.name)

    # --- tensors
    def emit(
        self,
        kind: str,
        inputs: Sequence[Operand],
        shape: ArrayShape,
        attributes: Mapping[str, Attribute] | None = None,
        *,
        group: Group | None = None,
        where: tuple[Box, ...] = (),
        into: str | None = None,
    ) -> str:
        """Return the tensor that an operator writes; append it unless the same stands before it.

        What is computed twice from the same tensors (a forward pass again, a derivative of x * x)
        would be equal tensors, and a cut at one of them is none at the other. The partitioner
        merges them, too. Operators that communicate, or do not act on all devices, all stay.
        ``into``: a tensor that operators elsewhere write, too.
        """
        names = (into,) if into is not None else ()
        return self._written_by(
            kind, inputs, (shape,), attributes or {}, group=group, where=where, into=names
        )[0]

    def several(
        self,
        kind: str,
        inputs: Sequence[Operand],
        shapes: Sequence[ArrayShape],
        attributes: Mapping[str, Attribute],
        spans: Sequence[Span | None],
    ) -> list[Array]:
        """Return the arrays that an operator with several results makes, as ``emit`` does."""
        names = self._written_by(kind, inputs, shapes, attributes)
        return [
            Array(shape, partial(str, name), span=span)
            for shape, name, span in zip(shapes, names, spans, strict=True)
        ]

    def _written_by(
        self,
        kind: str,
        inputs: Sequence[Operand],
        shapes: Sequence[ArrayShape],
        attributes: Mapping[str, Attribute],
        *,
        group: Group | None = None,
        where: tuple[Box, ...] = (),
        into: tuple[str, ...] = (),
    ) -> tuple[str, ...]:
        """Return the tensors that an operator writes; append it unless the same stands before."""
        key = _same_result(kind, inputs, shapes, attributes)
        computes = not into and group is None and not where
        if computes and key in self._computed:
            return self._computed[key]
        if len(self.operators) >= MOST_OPERATORS:
            raise BudgetError(
                f"{self.module.file}: a plan of it has more than {MOST_OPERATORS} operators"
            )
        stem, source, module = self._here
        names = into or tuple(self.unused(stem) for _ in shapes)
        if computes:
            self._computed[key] = names
        for name, shape in zip(names, shapes, strict=True):
            if name not in self.tensors:
                self.tensors[name] = Tensor(name, self.stated(shape), dtype_of(shape.element))
        identity = self.unused(f"{names[0]}, {kind}" if into else names[0], operators=True)
        self.operators.append(
            Operator(
                identity,
                kind,
                tuple(inputs),
                names,
                dict(attributes),
                group,
                where,
                source,
                module,
            )
        )
        return names

    def perform(
        self,
        kind: str,
        inputs: Sequence[Operand],
        attributes: Mapping[str, Attribute],
        where: tuple[Box, ...],
    ) -> None:
        """Append an operator that writes nothing."""
        stem, source, module = self._here
        identity = self.unused(f"{stem}, {kind}", operators=True)
        self.operators.append(
            Operator(
                identity, kind, tuple(inputs), (), dict(attributes), None, where, source, module
            )
        )

    def stated(self, shape: ArrayShape) -> tuple[int, ...]:
        """Return the sizes of a shape. Raises UnsupportedError for an array without elements."""
        if 0 in shape.dimensions:
            raise UnsupportedError(
                f"{self.place}: an array {shape} without elements has no meaning"
            )
        return shape.dimensions

    @property
    def place(self) -> str:
        """The instruction that is read, and its line, for messages."""
        return f"{self._here[0]} ({self._here[1]})"

    @property
    def stem(self) -> str:
        """The name of the instruction that is read, with the loop iterations around it."""
        return self._here[0]

    def unused(self, stem: str, *, operators: bool = False) -> str:
        """Return a name for a tensor or an operator that no other has."""
        taken = self._operator_names if operators else self._names
        number = taken.get(stem, 0)
        while (name := f"{stem}#{number}" if number else stem) in taken and number:
            number += 1
        taken[stem] = number + 1
        if name != stem:
            taken[name] = 1
        return name

    # --- arrays
    def array(
        self,
        kind: str,
        inputs: Sequence[Operand],
        shape: ArrayShape,
        attributes: Mapping[str, Attribute] | None = None,
        *,
        span: Span | None = None,
        group: Group | None = None,
    ) -> Array:
        """Return the array that an operator makes, which is appended at once."""
        name = self.emit(kind, inputs, shape, attributes, group=group)
        return Array(shape, lambda: name, span=span)

    def drawn(
        self,
        shape: ArrayShape,
        codes: Codes,
        span: Span | None,
        otherwise: Callable[[], Array] | None = None,
    ) -> Array:
        """Return an array of random numbers, or of others that only their codes tell.

        ``otherwise`` makes it by its operator, if the plan is not given the numbers themselves.

        Raises BudgetError if these are too many: the time that each takes grows with their number.
        """
        self._drawn += 1
        if self._drawn > MOST_DRAWN:
            raise BudgetError(
                f"{self.module.file}: more than {MOST_DRAWN} operators on random numbers, or on "
                f"integers that wrap around, with those of loops and calls counted each time"
            )
        make = self.later(lambda: self._given(found, otherwise))
        found = Array(shape, make, span=span, codes=codes)
        found.drawn = True
        return found

    def _given(self, x: Array, otherwise: Callable[[], Array] | None) -> str:
        if self.drawing is None:
            raise unsupported(self, "an array of random numbers")
        try:
            return self.drawing.tensor(self, x)
        except NotDrawnError:
            if otherwise is None:
                raise
        return otherwise().name

    def moved(
        self,
        kind: str,
        x: Array,
        shape: ArrayShape,
        attributes: Mapping[str, Attribute],
        codes: Codes | None,
        span: Span | None,
    ) -> Array:
        """Return an array that an operator makes, if of random numbers, when it is asked for.

        ``codes``: those of the result, if there are any.
        """
        if not x.drawn:
            made = self.array(kind, (x.name,), shape, attributes, span=span)
            made.codes = codes
            return made
        make = self.later(lambda: self.emit(kind, (x.name,), shape, attributes))
        return Array(shape, make, span=span, codes=codes, drawn=True)

    def known(
        self, shape: ArrayShape, numbers: Numbers, make: Callable[[], str] | None = None
    ) -> Array:
        """Return an array of known integers or truths, shape (devices or 1, *sizes).

        ``make`` makes its tensor where elements differ: a count stays one, and its axis may be
        reduced. None: the elements are listed.

        Raises PlanError if the numbers are not of the shape, as where a slice ends outside.
        """
        if numbers.shape[1:] != shape.dimensions:
            raise PlanError(
                f"the result has the sizes {list(numbers.shape[1:])}; {shape} is stated",
                self.place,
            )
        return Array(shape, self.later(lambda: self._written(shape, numbers, make)), known=numbers)

    def later(self, make: Callable[[], str]) -> Callable[[], str]:
        """Return a function that makes a tensor for the instruction that is read now."""
        here = self._here

        def made() -> str:
            before, self._here = self._here, here
            try:
                return make()
            finally:
                self._here = before

        return made

    def filled(self, shape: ArrayShape, number: Real) -> Array:
        """Return an array of one floating-point number."""
        return Array(shape, lambda: self._full(shape, literal(number)), number=number)

    def numbers(self, shape: ArrayShape, keys: Numbers, values: Mapping[int, Real]) -> Array:
        """Return an array of floating-point numbers on each device, by a key of each.

        ``keys``: shape (devices or 1, *sizes).
        """
        first = int(keys.reshape(-1)[0])
        if bool((keys == first).all()):
            return self.filled(shape, values[first])
        flat = keys.reshape(len(keys), -1).T[: MOST_LISTED + 1]
        columns = [self.table([literal(values[int(key)]) for key in column]) for column in flat]
        return Array(shape, self.later(lambda: self._joined(shape, columns)))

    def constant(self, shape: ArrayShape, elements: Sequence[Any]) -> Array:
        """Return a constant with its elements row by row."""
        if shape.element in NUMPY:
            numbers: Numbers = np.array(elements, dtype=NUMPY[shape.element])
            return self.known(shape, numbers.reshape(1, *shape.dimensions))
        dtype_of(shape.element)
        if len(set(elements)) == 1:
            return self.filled(shape, elements[0])
        return Array(shape, self.later(lambda: self._of_reals(shape, tuple(elements))))

    def _of_reals(self, shape: ArrayShape, elements: tuple[Real, ...]) -> str:
        """Return a tensor of floating-point numbers, which are finite if they are too many."""
        if len(elements) > MOST_LISTED and self.keeping is not None and all(map(_finite, elements)):
            return self.keeping.tensor(self, shape, elements)
        return self._joined(shape, [literal(e) for e in elements])

    def scalar(self, element: ElementType, number: int) -> Array:
        """Return a single number of a type."""
        return self.constant(
            ArrayShape(element, ()), [number if element in NUMPY else Fraction(number)]
        )

    def operand(self, a: Array) -> Operand:
        """Return an operand of an elementwise operator: a literal if all elements are one."""
        number = a.uniform
        return a.name if number is None else Number(literal(number))

    def _written(self, shape: ArrayShape, numbers: Numbers, make: Callable[[], str] | None) -> str:
        """Return a tensor of known numbers."""
        flat = numbers.reshape(len(numbers), -1)
        if bool((flat == flat[:, :1]).all()):
            return self._full(shape, self.table([int(n) for n in flat[:, 0]]))
        return make() if make is not None else self.listed(shape, numbers)

    def listed(self, shape: ArrayShape, numbers: Numbers) -> str:
        """Return a tensor of known numbers, written one by one unless they are too many."""
        flat = numbers.reshape(len(numbers), -1)
        many, same = flat.shape[1] > MOST_LISTED, bool((flat == flat[:1]).all())
        if many and same and self.keeping is not None:
            return self.keeping.tensor(self, shape, flat[0])
        columns = [self.table([int(n) for n in column]) for column in flat.T[: MOST_LISTED + 1]]
        return self._joined(shape, columns)

    def table(self, values: Sequence[int | float | str]) -> int | float | str | Table:
        """Return an attribute with a number for each device, or the one for all."""
        if len(set(values)) == 1:
            return values[0]
        return Table((DEVICE,), tuple(values))

    def _full(self, shape: ArrayShape, value: Attribute) -> str:
        attributes = {
            "sizes": self.stated(shape),
            "value": value,
            "dtype": dtype_of(shape.element),
        }
        return self.emit("full", (), shape, attributes)

    def _joined(self, shape: ArrayShape, values: Sequence[Attribute]) -> str:
        """Return a tensor of numbers, written one by one."""
        if prod(shape.dimensions) > MOST_LISTED or len(values) > MOST_LISTED:
            raise UnsupportedError(
                f"{self.place}: a constant of {prod(shape.dimensions)} different numbers; up to "
                f"{MOST_LISTED} are followed"
            )
        one = ArrayShape(shape.element, (1,))
        parts = [self._full(one, value) for value in values]
        line = ArrayShape(shape.element, (len(parts),))
        joined = self.emit("cat", parts, line, {"axis": 0})
        return (
            joined
            if shape == line
            else self.emit("view", (joined,), shape, {"sizes": self.stated(shape)})
        )

    def computes(self, shape: ArrayShape, *arrays: Array) -> bool:
        """Return True if numbers of a shape are computed: all operands are known, and few."""
        return (
            all(a.known is not None for a in arrays)
            and shape.element in NUMPY
            and self.devices * prod(shape.dimensions) <= MOST_KNOWN
        )


def _same_result(
    kind: str,
    inputs: Sequence[Operand],
    shapes: Sequence[ArrayShape],
    attributes: Mapping[str, Attribute],
) -> str:
    """Return a key that two operators share only if they compute the same.

    Factors and addends may be given in either order.
    """
    given = [repr(operand) for operand in inputs]
    if kind in _COMMUTATIVE:
        given.sort()
    return repr((kind, given, tuple(shapes), sorted(attributes.items())))


def _finite(number: Real) -> bool:
    return isinstance(number, Fraction | Root) or number is Special.MINUS_ZERO


def literal(number: bool | int | Real) -> int | float | str:
    """Return a number as a plan writes it."""
    if isinstance(number, Special):
        return 0 if number is Special.MINUS_ZERO else number.value
    if isinstance(number, Fraction) and number.denominator != 1:
        return f"{number.numerator}/{number.denominator}"
    if isinstance(number, Root):
        return str(number)
    whole = int(number)
    return whole if -(2**63) <= whole < 2**63 else str(whole)  # the widest of a plan file


def unsupported(b: Building, what: str) -> UnsupportedError:
    """Return the error of something at the instruction that is read."""
    return UnsupportedError(f"{b.place}: {what} has no meaning in a plan")
