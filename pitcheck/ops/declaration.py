"""The declaration of an operator: once, by its meaning; everything else follows from it.

``meaning`` computes the outputs from the inputs in any
:class:`~pitcheck.algebra.interface.Algebra`. ``derivative`` computes the gradients of the inputs,
in the same language. Shape rule, axis signature and degree rule are read off by running the same
two functions in the abstract algebras (:mod:`pitcheck.algebra.dimensions.axes`,
:mod:`pitcheck.algebra.bound.degrees`), so they cannot disagree with the meaning.

>>> double = OperatorKind("double", lambda algebra, inputs, _: [algebra.add(inputs[0], inputs[0])])
>>> double.inputs, double.derivative is None
((1, 1), True)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from typing import Literal as OneOf

from pitcheck.algebra.interface import Algebra
from pitcheck.ops.traits import Communication, Condition, Trait

Attributes = Mapping[str, Any]
"""Attribute values, with every table resolved to its value at one coordinate."""

Meaning = Callable[[Algebra[Any], Sequence[Any], Attributes], list[Any]]
"""A function (algebra, inputs, attributes) -> outputs."""

Derivative = Callable[
    [Algebra[Any], Sequence[Any], Sequence[Any], Sequence[Any], Attributes], list[Any]
]
"""A function (algebra, inputs, outputs, gradients of outputs, attributes) -> gradient per input,
None for an input without one.
"""

Shapes = Sequence[tuple[int, ...] | None]
"""The shapes of operands or results, None for a result that is not wanted."""


@dataclass(frozen=True)
class Pair:
    """An input and an output of an operator, one of which is a part of the other.

    They have the numbers ``source`` and ``result``; ``axis`` is the dimension of the part.
    """

    attributes: Attributes
    inputs: Shapes
    outputs: Shapes
    source: int
    result: int
    axis: int


Offset = Callable[[Pair], object]
"""A function that gives the place of the input at which the output begins along the axis, negative
if before it. It gives no int if the output is not a single stretch, or attributes are not plain.
"""

AttributeRole = OneOf["value", "axis", "axes", "sizes", "position", "literal"]
"""The role of an attribute in shape reduction.

``value``: no size depends on it (a flag, a mode, a permutation, a name). ``axis``/``axes``:
dimension numbers. ``sizes``: sizes of output 0's dimensions (a view's shape), rewritten from the
reduced shape. ``position``: offsets along the dimension that attribute ``axis`` names (of input 0),
scaled with it. ``literal``: a number that enters the computation and keeps its value (a dimension
of that size stays whole).
"""


@dataclass(frozen=True)
class OperatorKind:
    """One operator.

    ``inputs``: (least, most) number of inputs. ``attributes``: the role of every attribute; an
    undeclared one raises ``UnsupportedError``, an absent ``required`` one ``PlanError``.
    ``collective``: the single input arrives stacked, with the group's members as an extra leading
    dimension; attribute ``position`` is then the place of the member in the group. ``permutes``:
    elements along an axis may change places (roll, flip, views that permute). ``traits``: facts for
    all attributes; ``conditional``: traits that the operator has with some attributes.
    """

    name: str
    meaning: Meaning
    derivative: Derivative | None = None
    inputs: tuple[int, int] = (1, 1)
    attributes: Mapping[str, AttributeRole] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    collective: bool = False
    permutes: bool = False
    random: bool = False
    in_place: bool = False
    """True if the result may take the place of an operand of its shape: an element of it is
    computed from elements in its own place alone.
    """
    reads_root: bool = False
    """For a collective: True if it reads only the operand of the member at place ``root``. The
    others' operands are only buffers.
    """
    gives_root: bool = False
    """For a collective: True if only the member at place ``root`` has the result. The others'
    results are not defined.
    """
    copies: bool = False
    """True if each result equals the only operand, on the same rank."""
    order_only: bool = False
    """True if, without an output, it computes nothing and only orders other operators."""
    traits: frozenset[Trait] = frozenset()
    conditional: Mapping[Trait, Condition] = field(default_factory=dict)
    conditions: tuple[int, ...] = ()
    """The operands of which only the truth of every element matters."""
    shared: tuple[int, ...] = ()
    """The operands that all leading places of operand 0 share: in the derivative their gradients
    are sums over each dimension of these places.
    """
    inner: int | str = 1
    """The number of last dimensions of operand 0 that are not leading ones; or the attribute with
    that number, 1 by default.
    """
    offset: Offset | None = None
    """The place along attribute ``axis`` at which an output lies in an input, or an input in the
    output.
    """
    communication: Communication = Communication.NONE
    divided_axis: str = ""
    """The attribute that names the dimension which a collective cuts into one part per member."""
    mistaken_for: str = ""
    """The operator of as many operands that is most easily written in its place; "" if none is.
    Mutation writes it there.
    """
    masked: int | None = None
    """The operand that is the result unless the condition masks it; None if there is none."""
    derives_from_inputs: bool = False
    """True if the derivative depends on the values of the inputs, and is not read off the result.
    Mutation gives such a derivative other inputs.
    """
    doc: str = ""
