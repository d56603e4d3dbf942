"""From a PyTorch or nnScaler function and its arguments to an operator of the plan.

A function that is not listed, and an argument that is not understood, are carried over as they are: as an operator or an attribute that has no meaning,
so that nothing is taken to be what it is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pitcheck.errors import PlanError
from pitcheck.frontends.nnscaler.objects import dtype_of, is_tensor, number, plain
from pitcheck.frontends.nnscaler.pickles import Stub
from pitcheck.plan.model import Number

UNKNOWN = "nnscaler:"
"""Start of the kind of an operator whose function is not known here."""


class Meaning(NamedTuple):
    """An operator: its kind, its operands (sub-tensors of the pickle, or numbers), its attributes."""

    kind: str
    operands: tuple[Any, ...]
    attributes: dict[str, Any]


@dataclass(frozen=True)
class Function:
    """How a function is called.

    ``parameters``: names of its positional arguments, in order. ``tensors``: those that are operands (a number there is a literal operand).
    ``attributes``: the attribute that an argument becomes. ``neutral``: values of arguments that change nothing. ``ignored``: arguments without effect.
    """

    kind: str
    parameters: tuple[str, ...]
    tensors: tuple[str, ...] = ("input",)
    attributes: tuple[tuple[str, str], ...] = ()
    neutral: tuple[tuple[str, Any], ...] = ()
    ignored: tuple[str, ...] = ()
    sequence: str = ""
    """An argument that takes all remaining positional ones (``view(2, 3)``)."""


_BINARY = ("input", "other")
_REDUCTION = (("dim", "axes"), ("keepdim", "keepdim"))


def _unary(kind: str, *names: str, ignored: tuple[str, ...] = ()) -> dict[str, Function]:
    return {name: Function(kind, ("input", *ignored), ignored=(*ignored, "out")) for name in names}


def _functions() -> dict[str, Function]:
    binary = {"tensors": _BINARY, "ignored": ("out",)}
    table = {
        "torch.nn.functional.linear": Function("linear", ("input", "weight", "bias"), ("input", "weight", "bias")),
        "torch.matmul": Function("matmul", _BINARY, **binary),  # type: ignore[arg-type]
        "torch.bmm": Function("bmm", ("input", "mat2"), ("input", "mat2"), ignored=("out",)),
        "torch.add": Function("add", (*_BINARY, "alpha"), _BINARY, (("alpha", "alpha"),), (("alpha", 1),), ("out",)),
        "torch.sub": Function("sub", (*_BINARY, "alpha"), _BINARY, (("alpha", "alpha"),), (("alpha", 1),), ("out",)),
        "torch.mul": Function("mul", _BINARY, **binary),  # type: ignore[arg-type]
        "torch.div": Function("div", (*_BINARY, "rounding_mode"), _BINARY, neutral=(("rounding_mode", None),), ignored=("out",)),
        "torch.pow": Function("pow", ("input", "exponent"), attributes=(("exponent", "exponent"),), ignored=("out",)),
        "torch.sum": Function("sum", ("input", "dim", "keepdim"), attributes=_REDUCTION, neutral=(("dim", None), ("keepdim", False)), ignored=("out",)),
        "torch.mean": Function("mean", ("input", "dim", "keepdim"), attributes=_REDUCTION, neutral=(("dim", None), ("keepdim", False)), ignored=("out",)),
        "torch.nn.functional.softmax": Function("softmax", ("input", "dim"), attributes=(("dim", "axis"),), ignored=("_stacklevel",)),
        "torch.softmax": Function("softmax", ("input", "dim"), attributes=(("dim", "axis"),)),
        "torch.nn.functional.gelu": Function("gelu", ("input",), attributes=(("approximate", "approximate"),), neutral=(("approximate", "none"),)),
        "torch.clamp": Function(
            "clamp", ("input", "min", "max"), attributes=(("min", "min"), ("max", "max")), neutral=(("min", None), ("max", None)), ignored=("out",)
        ),
        "torch.Tensor.view": Function("view", ("input",), attributes=(("size", "sizes"),), sequence="size"),
        "torch.Tensor.reshape": Function("view", ("input",), attributes=(("shape", "sizes"),), sequence="shape"),
        "torch.reshape": Function("view", ("input", "shape"), attributes=(("shape", "sizes"),)),
        "torch.transpose": Function("transpose", ("input", "dim0", "dim1"), attributes=(("dim0", "dim0"), ("dim1", "dim1"))),
        "torch.Tensor.contiguous": Function("contiguous", ("input",), ignored=("memory_format",)),
        "nnscaler.runtime.function.identity": Function("identity", ("input",)),
        "nnscaler.runtime.function.multiref": Function("multiref", ("input", "times"), attributes=(("times", "count"),)),
        "torch.nn.functional.dropout": Function("identity", ("input",), neutral=(("p", 0),), ignored=("training", "inplace")),
    }
    table |= _unary("silu", "torch.nn.functional.silu", ignored=("inplace",))
    table |= _unary("relu", "torch.nn.functional.relu", ignored=("inplace",)) | _unary("relu", "torch.relu")
    for name in ("rsqrt", "sqrt", "exp", "log", "neg", "abs", "tanh", "sigmoid", "square", "reciprocal", "sign", "erf"):
        table |= _unary(name, f"torch.{name}")
    return (
        table
        | _unary("softplus", "torch.nn.functional.softplus")
        | _unary("tanh", "torch.nn.functional.tanh")
        | _unary("sigmoid", "torch.nn.functional.sigmoid")
    )


_FUNCTIONS: Mapping[str, Function] = _functions()
_TUPLES = frozenset({"axes", "sizes"})
"""Attributes that are a tuple of integers even where one integer is given."""


def meaning_of(signature: str, arguments: Sequence[Any], keywords: Mapping[Any, Any], results: Sequence[str]) -> Meaning:
    """The operator that a call of ``signature`` is; ``results`` are the dtypes of its outputs.

    Raises PlanError for a keyword that is no string.
    """
    if any(not isinstance(key, str) or not key.isprintable() or len(key) > 100 for key in keywords):
        raise PlanError("a keyword is no name", "._kwargs")
    function = _FUNCTIONS.get(signature)
    bound = None if function is None else _bound(function, arguments, keywords)
    found = None if function is None or bound is None else _known(function, bound, results)
    return found or _unknown(signature, arguments, keywords)


def _bound(function: Function, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any] | None:
    """Arguments by name, None where they do not fit the function."""
    count = len(function.parameters)
    bound = dict(zip(function.parameters, arguments, strict=False))
    if len(arguments) > count:
        if not function.sequence:
            return None
        rest = list(arguments[count:])
        bound[function.sequence] = rest[0] if len(rest) == 1 and isinstance(rest[0], list | tuple) else tuple(rest)
    if set(bound) & set(keywords):
        return None
    return {**bound, **keywords}


def _known(function: Function, bound: dict[str, Any], results: Sequence[str]) -> Meaning | None:
    """The operator, or None where an operand is missing or is neither tensor nor number."""
    operands: list[Any] = []
    names = list(function.tensors)
    while names and bound.get(names[-1]) is None:
        names.pop()
    for name in names:
        operand = _operand(bound.get(name))
        if operand is None:
            return None
        operands.append(operand)
    if not any(not isinstance(operand, Number) for operand in operands):
        return None
    attributes: dict[str, Any] = {}
    renamed, neutral = dict(function.attributes), dict(function.neutral)
    for name, value in bound.items():
        if name in function.tensors or name in function.ignored:
            continue
        simple = plain(value)
        if name in neutral and type(simple) is type(neutral[name]) and simple == neutral[name]:
            continue
        if name == "dtype" and (value is None or _same_dtype(value, results)):
            continue
        if is_tensor(value):
            return None
        # An argument that is not understood gets a name that no operator has, so that it is refused.
        attribute = renamed.get(name, f"torch.{name}")
        attributes[attribute] = _attribute(attribute, simple)
        if attribute in _TUPLES and not isinstance(attributes[attribute], tuple):
            return None
    return Meaning(function.kind, tuple(operands), attributes)


def _operand(value: Any) -> Any:
    if is_tensor(value):
        return value
    simple = number(value)
    if isinstance(simple, bool) or simple is None:
        return None
    return Number(simple if isinstance(simple, int) or simple - simple == 0 else str(simple))


def _same_dtype(value: Any, results: Sequence[str]) -> bool:
    """Whether a conversion to ``value`` changes nothing, which is said here of float32 alone: narrower results are computed wider inside."""
    try:
        return isinstance(value, Stub | type) and all(result == "float32" for result in results) and dtype_of(value, "dtype") == "float32"
    except PlanError:
        return False


def _attribute(name: str, value: Any) -> Any:
    """A value of the plan's type: a scalar, a tuple of integers, or of tuples of integers; anything else becomes its description."""
    if name in _TUPLES and isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple) and (all(type(entry) is int for entry in value) or all(type(entry) is str for entry in value)):
        return value
    if isinstance(value, tuple) and all(isinstance(entry, tuple) and all(type(e) is int for e in entry) for entry in value):
        return value
    return repr(value)[:1000]


def _unknown(signature: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Meaning:
    """The call as it stands: its tensors and numbers as operands, everything else as attributes."""
    operands: list[Any] = []
    attributes: dict[str, Any] = {}
    for position, value in enumerate(arguments):
        operand = _operand(value)
        if operand is not None:
            operands.append(operand)
            continue
        attributes[f"argument{position}"] = _attribute("", plain(value))
        operands.extend(_inside(value))
    for name, value in keywords.items():
        attributes[name] = _attribute("", plain(value))
        operands.extend([value] if is_tensor(value) else _inside(value))
    return Meaning(f"{UNKNOWN}{signature}", tuple(operands), attributes)


def _inside(value: Any) -> list[Any]:
    return [entry for entry in value[:1000] if is_tensor(entry)] if isinstance(value, list | tuple) else []
