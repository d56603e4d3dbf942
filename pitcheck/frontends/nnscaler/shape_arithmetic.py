"""Numbers that a model's code computes from shapes, as ``B, S, D = x.shape`` does.

nnScaler writes every step of such code as an operator, whose results are objects and no tensors.
This module computes the few functions that are listed here. It never calls what the file names.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.nnscaler.objects import field as field_of
from pitcheck.frontends.nnscaler.objects import integer, integers, items, number, shown, table, text
from pitcheck.frontends.nnscaler.pickles import Stub
from pitcheck.frontends.nnscaler.tensors import is_tensor, tensor_id

_LARGEST = 2**53
_LONGEST = 1000
_DEEPEST = 8


class Iterator:
    """A Python iterator over plain values. Every ``next`` takes one of them."""

    def __init__(self, values: tuple[Any, ...]) -> None:
        self._values = values
        self._taken = 0

    def take(self) -> Any:
        """Return the next value. Raises PlanError after the last one, where the program stops."""
        if self._taken == len(self._values):
            raise PlanError(f"next takes more values than the {len(self._values)} that there are")
        self._taken += 1
        return self._values[self._taken - 1]


class Measured:
    """A tensor for whose shape a function asks."""

    def __init__(self, tensor: Stub) -> None:
        self.id = tensor_id(tensor)
        self.shape = integers(field_of(tensor, "_shape"), "_shape")


def _iterated(value: Any) -> Iterator:
    if isinstance(value, Iterator):
        return value
    if not isinstance(value, tuple):
        raise TypeError
    return Iterator(value)


def _next(value: Any) -> Any:
    if not isinstance(value, Iterator):
        raise TypeError
    return value.take()


def _shape(value: Any) -> tuple[int, ...]:
    if not isinstance(value, Measured):
        raise TypeError
    return value.shape


def _attribute(value: Any, name: Any) -> Any:
    if name != "shape":
        raise TypeError
    return _shape(value)


def _size(value: Any, dim: Any = None) -> Any:
    return _shape(value) if dim is None else _shape(value)[dim]


def _arithmetic(function: Callable[..., Any]) -> Callable[..., Any]:
    def compute(*values: Any) -> Any:
        if not all(
            isinstance(value, int | float) and not isinstance(value, bool) for value in values
        ):
            raise TypeError
        return function(*values)

    return compute


def _tuple(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, tuple):
        raise TypeError
    return value


_FUNCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "builtins.iter": _iterated,
        "builtins.next": _next,
        "builtins.tuple": _tuple,
        "builtins.list": _tuple,
        "builtins.len": lambda value: len(_tuple(value)),
        "builtins.getattr": _attribute,
        "torch.Tensor.size": _size,
        "torch.Tensor.dim": lambda value: len(_shape(value)),
        "_operator.getitem": lambda value, place: _tuple(value)[operator.index(place)],
        "builtins.int": _arithmetic(int),
        "builtins.float": _arithmetic(float),
        "math.sqrt": _arithmetic(math.sqrt),
        "_operator.neg": _arithmetic(operator.neg),
        "_operator.add": _arithmetic(operator.add),
        "_operator.sub": _arithmetic(operator.sub),
        "_operator.mul": _arithmetic(operator.mul),
        "_operator.floordiv": _arithmetic(operator.floordiv),
        "_operator.truediv": _arithmetic(operator.truediv),
        "_operator.mod": _arithmetic(operator.mod),
    }
)


def is_object(value: object) -> bool:
    """Return True if an operand is an object that some operator computes and that is no tensor."""
    return isinstance(value, Stub) and type(value).origin[1] == "IRObject"


class Scalars:
    """The objects of one segment, in the order in which its operators compute them."""

    def __init__(self) -> None:
        self._values: dict[int, Any] = {}

    def compute(self, node: object) -> list[Measured]:
        """Compute an operator whose results are objects alone; return the tensors that it measures.

        Raises UnsupportedError for a function or an argument without a meaning, PlanError if the
        program stops there.
        """
        signature = text(node, "signature")
        function = _FUNCTIONS.get(signature)
        results = items(node, "_outputs")
        if function is None or len(results) != 1 or not is_object(results[0]):
            raise UnsupportedError(
                f"the function {signature} computes no tensor, and has no meaning here"
            )
        arguments = [self._argument(value) for value in items(node, "_inputs")]
        keywords = {
            str(name): self._argument(value) for name, value in table(node, "_kwargs").items()
        }
        try:
            value = function(*arguments, **keywords)
        except (TypeError, ValueError, IndexError, ZeroDivisionError, OverflowError):
            raise UnsupportedError(
                f"the function {signature} has no meaning here for what it is given"
            ) from None
        if not _small(value):
            raise UnsupportedError(
                f"the function {signature} gives {shown(value)}, which is too large"
            )
        self._values[integer(results[0], "_id")] = value
        return [value for value in arguments if isinstance(value, Measured)]

    def resolved(self, value: Any, depth: int = 0) -> Any:
        """Return an argument with objects replaced by their values."""
        if is_object(value):
            known = self._values.get(integer(value, "_id"))
            return value if known is None or isinstance(known, Iterator) else known
        if isinstance(value, list | tuple) and depth < _DEEPEST and len(value) <= _LONGEST:
            return tuple(self.resolved(entry, depth + 1) for entry in value)
        return value

    def _argument(self, value: Any, depth: int = 0) -> Any:
        if is_object(value):
            known = self._values.get(integer(value, "_id"))
            if known is None:
                raise PlanError(
                    f"object {integer(value, '_id')} is read, but no operator of the segment has "
                    f"computed it before"
                )
            return known
        if is_tensor(value):
            return Measured(value)
        if isinstance(value, list | tuple) and depth < _DEEPEST and len(value) <= _LONGEST:
            return tuple(self._argument(entry, depth + 1) for entry in value)
        plain = number(value)
        if plain is None and not isinstance(value, str):
            raise UnsupportedError(
                f"{shown(value)} has no meaning here as an argument of a function of the model's "
                f"code"
            )
        return value if plain is None else plain


def _small(value: Any) -> bool:
    if isinstance(value, int):
        return abs(value) <= _LARGEST
    return math.isfinite(value) if isinstance(value, float) else True
