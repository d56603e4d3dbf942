"""Declarations written in terms: from formulas to operators.

>>> cube = elementwise("cube", lambda x: x * x * x, lambda d: 3 * d.x * d.x)
>>> cube.in_place, cube.derivative is None
(True, False)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from pitcheck.algebra.interface import Algebra
from pitcheck.ops.declaration import (
    AttributeRole,
    Attributes,
    Derivative,
    Meaning,
    Offset,
    OperatorKind,
)
from pitcheck.ops.term import Term, promote, sum_to
from pitcheck.ops.traits import Communication, Condition, Trait

Formula = Callable[[list[Term], Attributes], list[Term]]
"""A function (inputs, attributes) -> outputs."""

Lazy = Callable[[], Term]


@dataclass(frozen=True)
class Local:
    """The operands of a derivative: inputs, outputs, and the outputs' gradients."""

    inputs: list[Term]
    outputs: list[Term]
    gradients: list[Term]
    attributes: Attributes

    @property
    def x(self) -> Term:
        """The first input."""
        return self.inputs[0]

    @property
    def a(self) -> Term:
        """The first of two inputs."""
        return self.inputs[0]

    @property
    def b(self) -> Term:
        """The second input."""
        return self.inputs[1]

    @property
    def y(self) -> Term:
        """The first output."""
        return self.outputs[0]

    @property
    def dy(self) -> Term:
        """The gradient of the first output."""
        return self.gradients[0]


Slope = Callable[[Local], Term]
Backward = Callable[[Local], Sequence[Lazy | None]]
"""A function that gives the gradient of every input, computed when called; None for an input
without one.
"""

MANY = 2**31
"""The upper bound of the number of inputs of an operator that takes any number."""

WANTED = "wanted"
"""The attribute of a derivative with a flag per forward input. Gradients that are not wanted are
not computed.
"""


def declare(
    name: str,
    formula: Formula,
    backward: Backward | None = None,
    *,
    inputs: tuple[int, int] = (1, 1),
    attributes: Mapping[str, AttributeRole] | None = None,
    required: tuple[str, ...] = (),
    collective: bool = False,
    permutes: bool = False,
    random: bool = False,
    in_place: bool = False,
    reads_root: bool = False,
    gives_root: bool = False,
    copies: bool = False,
    order_only: bool = False,
    traits: Iterable[Trait] = (),
    conditional: Mapping[Trait, Condition] | None = None,
    conditions: tuple[int, ...] = (),
    shared: tuple[int, ...] = (),
    inner: int | str = 1,
    offset: Offset | None = None,
    communication: Communication = Communication.NONE,
    divided_axis: str = "",
    mistaken_for: str = "",
    masked: int | None = None,
    derives_from_inputs: bool = False,
    doc: str = "",
) -> OperatorKind:
    """Return the operator whose meaning is ``formula`` and whose derivative is ``backward``."""
    return OperatorKind(
        name=name,
        meaning=_meaning(formula),
        derivative=None if backward is None else _derivative(backward),
        inputs=inputs,
        attributes=MappingProxyType(dict(attributes or {})),
        required=required,
        collective=collective,
        permutes=permutes,
        random=random,
        in_place=in_place,
        reads_root=reads_root,
        gives_root=gives_root,
        copies=copies,
        order_only=order_only,
        traits=frozenset(traits),
        conditional=MappingProxyType(dict(conditional or {})),
        conditions=conditions,
        shared=shared,
        inner=inner,
        offset=offset,
        communication=communication,
        divided_axis=divided_axis,
        mistaken_for=mistaken_for,
        masked=masked,
        derives_from_inputs=derives_from_inputs,
        doc=doc,
    )


def _meaning(formula: Formula) -> Meaning:
    def meaning(algebra: Algebra[Any], inputs: Sequence[Any], attributes: Attributes) -> list[Any]:
        return [term.value for term in formula([Term(algebra, v) for v in inputs], attributes)]

    return meaning


def _derivative(backward: Backward) -> Derivative:
    def derivative(
        algebra: Algebra[Any],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        gradients: Sequence[Any],
        attributes: Attributes,
    ) -> list[Any]:
        forward, results, given = (
            [Term(algebra, v) for v in values] for values in (inputs, outputs, gradients)
        )
        lazy = backward(Local(forward, results, given, attributes))
        wanted = attributes.get(WANTED) or (True,) * len(inputs)
        differentiable = [
            flag and algebra.kind(v) == "field" for flag, v in zip(wanted, inputs, strict=True)
        ]
        return [
            gradient().value if gradient is not None and chosen else None
            for gradient, chosen in zip(lazy, differentiable, strict=True)
        ]

    return derivative


def elementwise(
    name: str,
    function: Callable[..., Term],
    *slopes: Slope,
    traits: Iterable[Trait] = (),
    mistaken_for: str = "",
    derives_from_inputs: bool = False,
    doc: str = "",
) -> OperatorKind:
    """Return an operator of one or more operands that broadcast, ``function(*operands)``.

    ``slopes[i]`` is the partial derivative by operand i. Its product with the gradient of the
    result is summed back to the operand's shape. Without slopes there is no derivative.
    """
    count = function.__code__.co_argcount

    def formula(inputs: list[Term], _: Attributes) -> list[Term]:
        return [function(*promote(inputs))]

    def backward(local: Local) -> Sequence[Lazy | None]:
        promoted = replace(local, inputs=promote(local.inputs))
        return [
            _product(promoted, slope, operand.shape)
            for slope, operand in zip(slopes, local.inputs, strict=True)
        ]

    return declare(
        name,
        formula,
        backward if slopes else None,
        inputs=(count, count),
        in_place=True,
        traits=(Trait.PLACE_BY_PLACE, *traits),
        mistaken_for=mistaken_for,
        derives_from_inputs=derives_from_inputs,
        doc=doc,
    )


def _product(local: Local, slope: Slope, shape: tuple[int, ...]) -> Lazy:
    return lambda: sum_to(local.dy * slope(local), shape)
