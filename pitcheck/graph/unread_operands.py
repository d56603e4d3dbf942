"""Operands of which an operator looks at the shape alone.

The operands of a sum in its derivative are an example. Nothing depends on which row of them it
reads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from pitcheck.algebra.dimensions.axes import AxisAlgebra, AxisSystem, AxisValue
from pitcheck.base.numbers import Literal
from pitcheck.errors import PitcheckError
from pitcheck.graph.graph import GraphValue, Operand, Source, Stacked
from pitcheck.ops.registry import BACKWARD, divided, evaluate, forward_attributes, kinds_with
from pitcheck.ops.term import exact
from pitcheck.ops.traits import Trait

BY_SHAPE = frozenset({"shape", "kind", "extent", "arange", "boundary"})
"""The methods by which an algebra describes a value without looking at its elements."""


class Unread:
    """A table of unread operands, found once for nodes of one kind, attributes and shapes."""

    def __init__(self, values: Sequence[GraphValue]) -> None:
        self._values = values
        self._known: dict[tuple[object, ...], frozenset[int]] = {}

    def places(
        self,
        kind: str,
        inputs: Sequence[Operand],
        outputs: Sequence[int | None],
        attributes: Mapping[str, Any],
    ) -> frozenset[int]:
        """Return the places of the operands of which an operator reads the shape alone.

        ``outputs``: the values that something may read (None: nothing does).
        """
        if not kind.endswith(BACKWARD) and kind not in kinds_with(Trait.READS_SHAPE):
            return frozenset()
        shapes = tuple(self._look(operand) for operand in inputs)
        named = frozenset(place for place, output in enumerate(outputs) if output is not None)
        key = (kind, repr(sorted(attributes.items())) if attributes else "", shapes, named)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = (
                unread(kind, shapes, attributes, named) if None not in shapes else frozenset()
            )
        return found

    def _look(self, operand: Operand) -> tuple[tuple[int, ...], Any] | Literal | None:
        """Return (shape, kind) of an operand, or a number; None for a stack."""
        if isinstance(operand, Stacked) or (isinstance(operand, Source) and operand.members):
            return None
        if not isinstance(operand, Source):
            return operand
        info = self._values[operand.value]
        return info.shape, info.kind


def unread(
    kind: str, operands: Sequence[Any], attributes: Mapping[str, Any], named: Collection[int] = ()
) -> frozenset[int]:
    """Return the places of the tensors into which ``kind`` does not look.

    ``operands`` are given as (shape, kind) or numbers. ``named`` are the places of those gradients
    of a derivative that are outputs. Return none if the operator cannot be run on shapes.
    """
    watched = _Watched(AxisAlgebra(AxisSystem()))
    values = [
        watched.inner.tensor(*operand)
        if isinstance(operand, tuple)
        else exact(watched.inner, operand).value
        for operand in operands
    ]
    try:
        anew, given, told = _with_outputs(watched.inner, kind, values, attributes)
        results = evaluate(watched, kind, given, told, _wanted(kind, operands, attributes, named))
    except PitcheckError:
        return frozenset()
    looked = watched.seen | {id(result) for result in results}
    if any(id(value) in looked for value in anew):
        return frozenset()
    return frozenset(
        n
        for n, value in enumerate(values)
        if id(value) not in looked and isinstance(operands[n], tuple)
    )


def _wanted(
    kind: str, operands: Sequence[Any], attributes: Mapping[str, Any], named: Collection[int]
) -> tuple[bool, ...] | None:
    """Return which gradients a derivative may be asked for.

    They are those that are outputs, and of tensors also those that its attributes do not leave out.
    """
    if not kind.endswith(BACKWARD):
        return None
    count, _, _ = divided(attributes, len(operands))
    asked = attributes.get("wanted") or [isinstance(operand, tuple) for operand in operands[:count]]
    return tuple(bool(flag) or place in named for place, flag in enumerate(asked))


def _with_outputs(
    algebra: AxisAlgebra, kind: str, values: list[AxisValue], attributes: Mapping[str, Any]
) -> tuple[list[Any], list[AxisValue], dict[str, Any]]:
    """Return the operands of a derivative with the outputs that it computes anew.

    An operand that it needs for these alone counts as read if one of them is.

    Returns:
        The outputs, all operands, and the attributes that go with them.
    """
    told = dict(attributes)
    if not kind.endswith(BACKWARD) or told.get("forward_outputs", 1):
        return [], values, told
    count, _, gradients = divided(told, len(values))
    outputs = evaluate(
        algebra, kind.removesuffix(BACKWARD), values[:count], forward_attributes(told)
    )
    told.update(forward_inputs=count, forward_outputs=len(outputs), gradients=gradients)
    return outputs, [*values[:count], *outputs, *values[count:]], told


class _Watched:
    """An algebra of dimensions that notes the values of which anything but the shape is asked."""

    def __init__(self, inner: AxisAlgebra) -> None:
        self.inner = inner
        self.site = ""
        self.seen: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        member = getattr(self.inner, name)
        return member if name in BY_SHAPE or not callable(member) else self._noting(member)

    def _noting(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            for argument in (*arguments, *named.values()):
                values = argument if isinstance(argument, (list, tuple)) else (argument,)
                self.seen.update(id(value) for value in values if isinstance(value, AxisValue))
            return operation(*arguments, **named)

        return run
