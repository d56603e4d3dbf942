"""How an operator is declared: once, by its meaning; everything else follows from it.

``meaning`` computes the outputs from the inputs in any
:class:`~pitcheck.algebra.interface.Algebra`. ``derivative`` computes the gradients of the inputs,
in the same language. Shape rule, axis signature and degree rule are read off by running the same
two functions in the abstract algebras (:mod:`pitcheck.algebra.dimensions.axes`,
:mod:`pitcheck.algebra.bound.degrees`), so they cannot disagree with the meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from typing import Literal as OneOf

from pitcheck.algebra.interface import Algebra
from pitcheck.ops.traits import Communication, Condition, Trait

Attributes = Mapping[str, Any]
"""Attribute values with every table already resolved to the value at one coordinate."""

Meaning = Callable[[Algebra[Any], Sequence[Any], Attributes], list[Any]]
"""(algebra, inputs, attributes) -> outputs."""

Derivative = Callable[
    [Algebra[Any], Sequence[Any], Sequence[Any], Sequence[Any], Attributes], list[Any]
]
"""(algebra, inputs, outputs, gradients of outputs, attributes) -> gradient per input, None where it
has none.
"""

Shapes = Sequence[tuple[int, ...] | None]
"""Shapes of operands or results, None for a result that is not wanted."""


@dataclass(frozen=True)
class Pair:
    """Input number ``source`` and output number ``result`` of an operator, and the dimension
    ``axis`` along which one is a part of the other.
    """

    attributes: Attributes
    inputs: Shapes
    outputs: Shapes
    source: int
    result: int
    axis: int


Offset = Callable[[Pair], object]
"""At which place of the input the output begins along the axis, negative if before it; no int if it
is no single stretch, or attributes are not plain.
"""

AttributeRole = OneOf["value", "axis", "axes", "sizes", "position", "literal"]
"""What an attribute is to shape reduction.

``value``: anything that no size depends on (a flag, a mode, a permutation, a name);
``axis``/``axes``: dimension numbers; ``sizes``: sizes of output 0's dimensions (a view's shape):
rewritten from the reduced shape; ``position``: offsets along the dimension that attribute ``axis``
names (of input 0): scaled with it; ``literal``: a number that enters the computation and keeps its
value (a dimension of that size stays whole).
"""


@dataclass(frozen=True)
class OperatorKind:
    """One operator.

    ``inputs``: (least, most) number of inputs. ``attributes``: role of every attribute; an
    attribute that is not declared is ``UnsupportedError``, one that is ``required`` and absent is
    ``PlanError``. ``collective``: the single input arrives stacked, with the group's members as an
    extra leading dimension; attribute ``position`` is then the member's own place in the group.
    ``permutes``: elements along an axis may change places (roll, flip, views that permute).
    ``traits``: what holds for all attributes; ``conditional``: traits that the operator has with
    some attributes.
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
    """Whether the result may take the place of an operand of its shape: an element of it is
    computed from elements in its own place alone.
    """
    reads_root: bool = False
    """Of a collective: whether it reads the operand of the member at place ``root`` alone; that of
    any other member is only a buffer.
    """
    gives_root: bool = False
    """Of a collective: whether the member at place ``root`` alone has the result; what any other
    member has then is not defined.
    """
    copies: bool = False
    """Whether its results are what its only operand is, on the same rank."""
    order_only: bool = False
    """Whether, without an output, it computes nothing and says only what waits for what."""
    traits: frozenset[Trait] = frozenset()
    conditional: Mapping[Trait, Condition] = field(default_factory=dict)
    conditions: tuple[int, ...] = ()
    """Operands of which only the truth of every element matters."""
    shared: tuple[int, ...] = ()
    """Operands that all leading places of operand 0 share: in the derivative their gradients are
    sums over each dimension of these places.
    """
    inner: int | str = 1
    """How many of the last dimensions of operand 0 are not leading ones; or the attribute that says
    so, 1 by default.
    """
    offset: Offset | None = None
    """Where along attribute ``axis`` an output and an input lie in each other, if one is a part of
    the other.
    """
    communication: Communication = Communication.NONE
    divided_axis: str = ""
    """The attribute that names the dimension which a collective cuts into one part per member."""
    doc: str = ""
