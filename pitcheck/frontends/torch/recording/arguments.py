"""The arguments of ATen calls: by parameter of their schema, and as a trace has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast, get_args

import torch
from torch._ops import OpOverload

from pitcheck.base.dtypes import DType
from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.trace import Argument, Item, Ref

NAMES = {torch.float8_e4m3fn: "float8_e4m3", torch.float8_e5m2: "float8_e5m2"}
_FLOAT8 = {name: dtype for dtype, name in NAMES.items()}
DTYPES: dict[str, torch.dtype] = {
    name: _FLOAT8.get(name) or getattr(torch, name) for name in get_args(DType)
}


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype in traces and plans; torch's own name if plans do not know it."""
    return NAMES.get(dtype, str(dtype).removeprefix("torch."))


@dataclass(frozen=True)
class Parameter:
    """A parameter of a schema.

    ``by_name`` is True if it is given by keyword only, ``stores`` if it only says where the result
    goes, ``written`` if the call writes to it.
    """

    name: str
    default: Any
    by_name: bool
    stores: bool
    written: bool


@dataclass(frozen=True)
class Signature:
    """The facts of a schema.

    ``operator`` is the overload without its namespace and without the mark of writing in place; it
    is that of ``functional``, the overload that writes nothing, if there is one.
    """

    operator: str
    parameters: tuple[Parameter, ...]
    functional: OpOverload | None

    @property
    def writes(self) -> bool:
        """Return True if a call writes to some argument."""
        return any(parameter.written for parameter in self.parameters)

    def bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[Parameter, Any]]:
        """Return every parameter with its argument in a call, or with its default."""
        positional = iter(args)
        found = []
        for parameter in self.parameters:
            if not parameter.by_name:
                value = next(positional, _MISSING)
                if value is not _MISSING:
                    found.append((parameter, value))
                    continue
            found.append((parameter, kwargs.get(parameter.name, parameter.default)))
        return found


_MISSING = object()


@cache
def signature(func: OpOverload) -> Signature:
    """Return the signature of an overload."""
    parameters = tuple(
        Parameter(
            a.name,
            a.default_value if a.has_default_value() else None,
            a.kwarg_only,
            a.is_out,
            a.alias_info is not None and a.alias_info.is_write,
        )
        for a in func._schema.arguments
    )
    functional = (
        _functional(func, parameters)
        if any(parameter.written for parameter in parameters)
        else func
    )
    name = func._schema.name.split("::")[1]
    overload = func._overloadname
    if functional is not None:
        name, overload = functional._schema.name.split("::")[1], functional._overloadname
    elif name.endswith("_"):
        name = name.removesuffix("_")
    return Signature(f"{name}.{overload}", parameters, functional)


def _functional(func: OpOverload, parameters: tuple[Parameter, ...]) -> OpOverload | None:
    """Return the overload that computes the same and writes nothing; None if there is none."""
    namespace, name = func._schema.name.split("::")
    kept = [parameter.name for parameter in parameters if not parameter.stores]
    # "__iand__" writes what "__and__" computes.
    plain = (
        f"__{name[3:]}"
        if name.startswith("__i") and name.endswith("__")
        else name.removesuffix("_")
    )
    for candidate in dict.fromkeys((name, plain, f"{name}_functional", f"{plain}_functional")):
        packet = getattr(getattr(torch.ops, namespace), candidate, None)
        if packet is None:
            continue
        overloads = [getattr(packet, overload) for overload in packet.overloads()]
        fitting = [
            overload
            for overload in overloads
            if [a.name for a in overload._schema.arguments] == kept
            and not any(
                a.alias_info is not None and a.alias_info.is_write
                for a in overload._schema.arguments
            )
            and _types(overload, kept) == _types(func, kept)
        ]
        if fitting:
            found: OpOverload = fitting[0]
            return found
    return None


def _types(func: OpOverload, names: list[str]) -> list[str]:
    return [str(a.type) for a in func._schema.arguments if a.name in names]


def flat(value: Any) -> list[Any]:
    """Return the leaves of nested lists and tuples in order, or a list of the one given leaf."""
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in flat(item)]
    return [value]


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors in nested lists and tuples, in order."""
    return [leaf for leaf in flat(value) if isinstance(leaf, torch.Tensor)]


Read = Callable[[torch.Tensor], int]
"""A function that returns the number of the value that a tensor has."""


def literal(value: Any, read: Read) -> Argument:
    """Return an argument as a trace has it, with tensors read by ``read``.

    Raises UnsupportedError for an argument of a type that a trace does not have.
    """
    if isinstance(value, torch.Tensor):
        return Ref(read(value))
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return tuple(cast(Item, literal(item, read)) for item in value)
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if isinstance(value, torch.device | torch.layout | torch.memory_format | torch.Generator):
        return None
    raise UnsupportedError(
        f"an operator has an argument of type {type(value).__name__}, which has no place in a trace"
    )
