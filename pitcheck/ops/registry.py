"""The operators by name, and the one entry through which they are evaluated.

>>> from pitcheck.algebra.dimensions.axes import AxisAlgebra, AxisSystem
>>> axes = AxisAlgebra(AxisSystem())
>>> evaluate(axes, "matmul", [axes.tensor((3, 4)), axes.tensor((4, 5))], {})[0].shape
(3, 5)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

from pitcheck.algebra.interface import Algebra
from pitcheck.base.nearest import nearest
from pitcheck.errors import PlanError, ShapeError, UnsupportedError
from pitcheck.ops.declaration import Attributes, Offset, OperatorKind
from pitcheck.ops.declare import WANTED
from pitcheck.ops.meanings import (
    activations,
    arithmetic,
    attention,
    cast,
    collectives,
    comparison,
    einsum,
    indexing,
    losses,
    matrix,
    normalization,
    parts,
    placement,
    random,
    reductions,
    views,
)
from pitcheck.ops.term import Term
from pitcheck.ops.traits import ALSO_OF_DERIVATIVES, Communication, Condition, Trait

BACKWARD = ".backward"
BACKWARD_ATTRIBUTES = ("forward_inputs", "forward_outputs", "gradients", WANTED)


_THEMES = (
    arithmetic,
    activations,
    matrix,
    einsum,
    normalization,
    attention,
    reductions,
    views,
    parts,
    placement,
    indexing,
    comparison,
    losses,
    cast,
    random,
    collectives,
)


def operator_themes() -> dict[str, tuple[OperatorKind, ...]]:
    """Return all operators by theme: the first line of their module's docstring."""
    return {
        (theme.__doc__ or theme.__name__).partition("\n")[0]: theme.OPERATORS for theme in _THEMES
    }


@cache
def _registry() -> Mapping[str, OperatorKind]:
    return MappingProxyType(
        {kind.name: kind for kinds in operator_themes().values() for kind in kinds}
    )


def operator_names() -> tuple[str, ...]:
    """Return the names of all operators, without the ``.backward`` ones."""
    return tuple(_registry())


def operator_kind(name: str) -> OperatorKind:
    """Return the operator called ``name``, with or without ``.backward``.

    Raises:
        UnsupportedError: if there is none.
    """
    kind = _registry().get(name.removesuffix(BACKWARD))
    if kind is None:
        near = nearest(name.removesuffix(BACKWARD), _registry())
        raise UnsupportedError(
            f"the operator {name!r} has no meaning here; the known ones are listed in "
            f"docs/operators.md{near}"
        )
    return kind


def declared(name: str) -> OperatorKind | None:
    """Return the operator called ``name``.

    Return None for an unknown one, and for a derivative, which has none of the traits of its
    operator.
    """
    return _registry().get(name)


def writes_in_place(name: str) -> bool:
    """Return True if the result of an operator may take the place of an operand of its shape.

    This holds for derivatives, too. Return False for an unknown operator.
    """
    try:
        return operator_kind(name.removesuffix(".backward")).in_place
    except UnsupportedError:
        return False


@cache
def kinds_with(*traits: Trait) -> frozenset[str]:
    """Return the names of the operators that have one of ``traits`` with all attributes.

    Names of derivatives that have one are among them. Operators that have a trait only with some
    attributes are left out; ask :func:`has_trait` if there are attributes.
    """
    found = {kind.name for kind in _registry().values() if not kind.traits.isdisjoint(traits)}
    derived = ALSO_OF_DERIVATIVES.intersection(traits)
    return frozenset(
        found
        | {
            kind.name + BACKWARD
            for kind in _registry().values()
            if not kind.traits.isdisjoint(derived)
        }
    )


@cache
def _conditional(trait: Trait) -> Mapping[str, Condition]:
    return MappingProxyType(
        {
            kind.name: kind.conditional[trait]
            for kind in _registry().values()
            if trait in kind.conditional
        }
    )


@cache
def kinds_that_may(trait: Trait) -> frozenset[str]:
    """Return the names of the operators that have ``trait``, with all attributes or with some."""
    return kinds_with(trait) | _conditional(trait).keys()


@cache
def kinds_in_order() -> frozenset[str]:
    """Return the operators whose first two operands must not change places.

    They compute an element from one of each, or are products of matrices.
    """
    free = kinds_that_may(Trait.COMMUTES)
    return frozenset(
        kind.name
        for kind in _registry().values()
        if kind.inputs[0] == 2 and kind.name not in free
        if kind.in_place or Trait.CONTRACTS in kind.traits
    )


def has_trait(kind_name: str, trait: Trait, attributes: Attributes) -> bool:
    """Return True if an operator has a trait with these attributes.

    A derivative has the traits in ``ALSO_OF_DERIVATIVES`` alone, an unknown operator none.

    Raises:
        PlanError: if a trait depends on an attribute that must be a number and is not.
    """
    if kind_name in kinds_with(trait):
        return True
    condition = _conditional(trait).get(kind_name)
    return condition is not None and condition(attributes)


@cache
def communication_of(kind_name: str) -> Communication:
    """Return who meets in an operator; nobody meets in a derivative or in an unknown one."""
    kind = _registry().get(kind_name)
    return Communication.NONE if kind is None else kind.communication


def shared_operands(kind_name: str) -> tuple[int, ...]:
    """Return the operands whose gradients are sums over leading places of operand 0.

    There are none unless ``kind_name`` is a derivative.
    """
    kind = (
        _registry().get(kind_name.removesuffix(BACKWARD)) if kind_name.endswith(BACKWARD) else None
    )
    return () if kind is None else kind.shared


def inner_dimensions(kind: OperatorKind, attributes: Attributes) -> int:
    """Return the number of last dimensions of operand 0 that are not leading ones."""
    return int(attributes.get(kind.inner, 1)) if isinstance(kind.inner, str) else kind.inner


def offset_of(kind_name: str) -> Offset | None:
    """Return the function that gives where outputs of an operator lie in its inputs.

    It may also give where inputs lie in the output. Return None if they are computed, or the
    operator is unknown.
    """
    kind = _registry().get(kind_name)
    return None if kind is None else kind.offset


def divided_axis(kind_name: str) -> str:
    """Return the attribute that names the dimension which a collective cuts, a part per member.

    Return "" for any other operator.
    """
    kind = _registry().get(kind_name)
    return "" if kind is None else kind.divided_axis


@cache
def kinds_meeting(*ways: Communication) -> frozenset[str]:
    """Return the names of the operators in which ranks meet in one of these ways."""
    return frozenset(kind.name for kind in _registry().values() if kind.communication in ways)


@cache
def random_kinds() -> frozenset[str]:
    """Return the names of the operators that draw random numbers."""
    return frozenset(kind.name for kind in _registry().values() if kind.random)


@cache
def collective_kinds() -> frozenset[str]:
    """Return the names of the operators whose input arrives stacked.

    They are collectives, and the sum over micro-batches.
    """
    return frozenset(kind.name for kind in _registry().values() if kind.collective)


def check_attributes(kind: OperatorKind, attributes: Attributes, backward: bool = False) -> None:
    """Check that an operator has all of ``attributes``, and that no required one is absent.

    With ``backward`` the attributes of the derivative (``forward_inputs``, ``forward_outputs``,
    ``gradients``, ``wanted``) are allowed too.

    Raises:
        UnsupportedError: if the operator does not have an attribute.
        PlanError: if a required one is absent.
    """
    for name in attributes:
        if name not in kind.attributes and not (backward and name in BACKWARD_ATTRIBUTES):
            names = [*kind.attributes, *(BACKWARD_ATTRIBUTES if backward else ())]
            known = ", ".join(names) or "none"
            raise UnsupportedError(
                f"the operator {kind.name!r} has no attribute {name!r} (it has: {known})"
                f"{nearest(name, names)}"
            )
    for name in kind.required:
        if name not in attributes:
            raise PlanError(
                f"the operator {kind.name!r} needs the attribute {name!r}", f"attributes.{name}"
            )
    wanted = attributes.get(WANTED)
    if backward and not isinstance(wanted, (tuple, list, type(None))):
        raise PlanError(
            f"{WANTED} of {kind.name}.backward has a flag for each forward input, and is not "
            f"{wanted!r}",
            f"attributes.{WANTED}",
        )


def evaluate(
    algebra: Algebra[Any],
    kind_name: str,
    inputs: Sequence[Any],
    attributes: Attributes,
    wanted: Sequence[bool] | None = None,
) -> list[Any]:
    """Return the outputs of an operator, or of its derivative if the name ends in ``.backward``.

    The inputs of a derivative are the forward inputs (attribute ``forward_inputs`` is their number;
    default: all that the rest leaves), the forward outputs (``forward_outputs``, default 1; with 0
    they are computed anew), and the gradients of the outputs numbered in attribute ``gradients``
    (default: all). A gradient that is not given is zero. The results are one gradient per forward
    input, None if there is none or ``wanted`` says that it is not wanted.

    Raises:
        UnsupportedError: if operator, attribute or derivative is unknown.
        PlanError: if the number of inputs is wrong or an attribute is missing.
        ShapeError: if operands do not fit.
    """
    kind = operator_kind(kind_name)
    backward = kind_name.endswith(BACKWARD)
    check_attributes(kind, attributes, backward)
    if backward:
        return _evaluate_backward(algebra, kind, inputs, attributes, wanted)
    _check_count(kind, len(inputs))
    return kind.meaning(algebra, inputs, attributes)


def _evaluate_backward(
    algebra: Algebra[Any],
    kind: OperatorKind,
    inputs: Sequence[Any],
    attributes: Attributes,
    wanted: Sequence[bool] | None,
) -> list[Any]:
    if kind.derivative is None:
        raise UnsupportedError(f"the operator {kind.name!r} has no derivative")
    operands, results, given = divided(attributes, len(inputs))
    if operands + results + len(given) != len(inputs):
        raise PlanError(
            f"{kind.name}.backward has {len(inputs)} inputs, which are not {operands} forward "
            f"inputs, {results} forward outputs "
            f"and the gradients of outputs {given}, in this order"
        )
    least, most = kind.inputs
    if not least <= operands <= most:
        raise PlanError(
            f"{kind.name}.backward has {len(inputs)} inputs; it takes, in this order, the "
            f"{_range(least, most)} inputs of {kind.name}, then {results} of its outputs, then "
            f"the gradients of outputs {given}; {', '.join(BACKWARD_ATTRIBUTES[:3])} "
            f"change these numbers"
        )
    plain = forward_attributes(attributes)
    forward, rest = inputs[:operands], inputs[operands + results :]
    outputs = (
        inputs[operands : operands + results] if results else kind.meaning(algebra, forward, plain)
    )
    flags = tuple(attributes.get(WANTED) or (True,) * operands) if wanted is None else tuple(wanted)
    if len(flags) != operands:
        raise PlanError(
            f"{kind.name}.backward has {operands} forward inputs but {len(flags)} flags say which "
            f"gradients are wanted"
        )
    return kind.derivative(
        algebra,
        forward,
        outputs,
        _all_gradients(algebra, kind, outputs, given, rest),
        {**plain, WANTED: flags},
    )


def divided(attributes: Attributes, count: int) -> tuple[int, int, tuple[int, ...]]:
    """Return the division of a derivative's operands.

    Returns:
        The number of forward inputs, the number of forward outputs, and the numbers of the outputs
            whose gradients stand behind them.
    """
    results = int(attributes.get("forward_outputs", 1))
    given = tuple(attributes.get("gradients", range(max(results, 1))))
    return int(attributes.get("forward_inputs", count - results - len(given))), results, given


def forward_attributes(attributes: Attributes) -> dict[str, Any]:
    """Return the attributes of the forward operator, out of those of its derivative."""
    return {name: value for name, value in attributes.items() if name not in BACKWARD_ATTRIBUTES}


def _all_gradients(
    algebra: Algebra[Any],
    kind: OperatorKind,
    outputs: Sequence[Any],
    given: tuple[int, ...],
    gradients: Sequence[Any],
) -> list[Any]:
    """Return a gradient per output, zeros for one that is not given.

    Raises:
        PlanError: if one is given twice, or belongs to no output.
        ShapeError: if one has another shape than its output.
    """
    of_output = dict(zip(given, gradients, strict=True))
    if len(of_output) != len(given) or not of_output.keys() <= set(range(len(outputs))):
        raise PlanError(
            f"{kind.name}.backward has the gradients of outputs {given}; the {len(outputs)} "
            f"outputs have one each",
            "attributes.gradients",
        )
    for number, gradient in of_output.items():
        if algebra.shape(gradient) != algebra.shape(outputs[number]):
            raise ShapeError(
                f"{kind.name}.backward: output {number} has shape "
                f"{algebra.shape(outputs[number])}, its gradient {algebra.shape(gradient)}"
            )
    return [
        of_output[i] if i in of_output else Term(algebra, output).like(0).value
        for i, output in enumerate(outputs)
    ]


def _check_count(kind: OperatorKind, count: int) -> None:
    least, most = kind.inputs
    if not least <= count <= most:
        expected = _range(least, most)
        raise PlanError(f"the operator {kind.name!r} takes {expected} inputs, not {count}")


def _range(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"
