"""From a PyTorch or nnScaler function and its arguments to an operator of the plan.

An unknown function or argument is carried over as it is, as an operator or attribute that has no
meaning. So nothing is taken for something else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from pitcheck.errors import PlanError
from pitcheck.frontends.nnscaler.objects import dtype_of, number, plain
from pitcheck.frontends.nnscaler.pickles import Stub
from pitcheck.frontends.nnscaler.tensors import is_tensor
from pitcheck.plan.model import Number

UNKNOWN = "nnscaler:"
"""The start of the kind of an operator whose function is not known."""


class Meaning(NamedTuple):
    """An operator: kind, operands (sub-tensors of the pickle, or numbers) and attributes."""

    kind: str
    operands: tuple[Any, ...]
    attributes: dict[str, Any]


@dataclass(frozen=True)
class Function:
    """A function and its arguments.

    - ``parameters``: the names of its positional arguments, in order.
    - ``tensors``: those that are operands; a number there is a literal operand.
    - ``attributes``: the attribute that an argument becomes.
    - ``neutral``: values of arguments that change nothing.
    - ``ignored``: arguments without effect.
    - ``needed``: arguments that must be given, because without them the function does something
      else.
    - ``sequence``: the argument that takes all remaining positional ones, as in ``view(2, 3)``.
    - ``many``: all positional arguments are operands.
    - ``optional``: the number of last operands that may be missing or None.
    """

    kind: str
    parameters: tuple[str, ...] = ("input",)
    tensors: tuple[str, ...] = ("input",)
    attributes: tuple[tuple[str, str], ...] = ()
    neutral: tuple[tuple[str, Any], ...] = ()
    ignored: tuple[str, ...] = ("out",)
    needed: tuple[str, ...] = ()
    sequence: str = ""
    many: bool = False
    optional: int = 0


_BINARY = ("input", "other")
_ALPHA = (("alpha", "alpha"),)
_AXES = (("dim", "axes"), ("keepdim", "keepdim"))
_WHOLE = (("dim", None), ("keepdim", False))
_AXIS = (("dim", "axis"),)
_BOUNDS = (("min", "min"), ("max", "max"))
_UNBOUND = (("min", None), ("max", None))
_LAYER = (("normalized_shape", "dims"), ("eps", "eps"))
_LOSS = (("reduction", "reduction"), ("ignore_index", "ignore_index"))
_NO_LOSS_OPTIONS = (
    ("weight", None),
    ("label_smoothing", 0),
    ("size_average", None),
    ("reduce", None),
)


def _unary(kind: str, *names: str, ignored: tuple[str, ...] = ("out",)) -> dict[str, Function]:
    return {name: Function(kind, ignored=ignored) for name in names}


def _arithmetic() -> dict[str, Function]:
    table = {
        f"torch.{name}": Function(name, _BINARY, _BINARY)
        for name in ("matmul", "mul", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge")
    }
    for name in (
        "rsqrt",
        "sqrt",
        "exp",
        "log",
        "neg",
        "abs",
        "tanh",
        "sigmoid",
        "square",
        "reciprocal",
        "sign",
        "erf",
        "relu",
    ):
        table |= _unary(name, f"torch.{name}")
    for name in ("tanh", "sigmoid", "softplus"):
        table |= _unary(name, f"torch.nn.functional.{name}")
    return table | {
        "torch.add": Function("add", (*_BINARY, "alpha"), _BINARY, _ALPHA, (("alpha", 1),)),
        "torch.sub": Function("sub", (*_BINARY, "alpha"), _BINARY, _ALPHA, (("alpha", 1),)),
        "torch.div": Function(
            "div", (*_BINARY, "rounding_mode"), _BINARY, neutral=(("rounding_mode", None),)
        ),
        "torch.pow": Function("pow", ("input", "exponent"), attributes=(("exponent", "exponent"),)),
        "torch.clamp": Function(
            "clamp", ("input", "min", "max"), attributes=_BOUNDS, neutral=_UNBOUND
        ),
        "torch.bmm": Function("bmm", ("input", "mat2"), ("input", "mat2")),
        "torch.where": Function("where", ("condition", *_BINARY), ("condition", *_BINARY)),
        "torch.sum": Function("sum", ("input", "dim", "keepdim"), attributes=_AXES, neutral=_WHOLE),
        "torch.mean": Function(
            "mean", ("input", "dim", "keepdim"), attributes=_AXES, neutral=_WHOLE
        ),
        "torch.cumsum": Function("cumsum", ("input", "dim"), attributes=_AXIS),
    }


def _layers() -> dict[str, Function]:
    weighted = ("input", "weight", "bias")
    table = {
        "torch.nn.functional.linear": Function("linear", weighted, weighted, optional=1),
        "torch.nn.functional.softmax": Function(
            "softmax", ("input", "dim"), attributes=_AXIS, ignored=("_stacklevel",), needed=("dim",)
        ),
        "torch.softmax": Function("softmax", ("input", "dim"), attributes=_AXIS, needed=("dim",)),
        "torch.nn.functional.log_softmax": Function(
            "log_softmax",
            ("input", "dim"),
            attributes=_AXIS,
            ignored=("_stacklevel",),
            needed=("dim",),
        ),
        "torch.log_softmax": Function(
            "log_softmax", ("input", "dim"), attributes=_AXIS, needed=("dim",)
        ),
        "torch.nn.functional.gelu": Function(
            "gelu", attributes=(("approximate", "approximate"),), neutral=(("approximate", "none"),)
        ),
        "torch.nn.functional.dropout": Function(
            "identity", neutral=(("p", 0),), ignored=("training", "inplace"), needed=("p",)
        ),
        "nnscaler.runtime.function.layer_norm": Function(
            "layer_norm", weighted, weighted, _LAYER, needed=("normalized_shape", "eps"), optional=2
        ),
        "torch.nn.functional.cross_entropy": Function(
            "cross_entropy", ("input", "target"), ("input", "target"), _LOSS, _NO_LOSS_OPTIONS
        ),
        "torch.nn.functional.mse_loss": Function(
            "mse_loss", ("input", "target"), ("input", "target"), _LOSS[:1], _NO_LOSS_OPTIONS
        ),
    }
    return (
        table
        | _unary("silu", "torch.nn.functional.silu", ignored=("inplace",))
        | _unary("relu", "torch.nn.functional.relu", ignored=("inplace",))
    )


def _structure() -> dict[str, Function]:
    return {
        "torch.Tensor.view": Function("view", attributes=(("size", "sizes"),), sequence="size"),
        "torch.Tensor.reshape": Function(
            "view", attributes=(("shape", "sizes"),), sequence="shape"
        ),
        "torch.reshape": Function("view", ("input", "shape"), attributes=(("shape", "sizes"),)),
        "torch.transpose": Function(
            "transpose", ("input", "dim0", "dim1"), attributes=(("dim0", "dim0"), ("dim1", "dim1"))
        ),
        "torch.permute": Function(
            "permute", ("input", "dims"), attributes=(("dims", "permutation"),)
        ),
        "torch.unsqueeze": Function("unsqueeze", ("input", "dim"), attributes=_AXIS),
        "torch.squeeze": Function("squeeze", ("input", "dim"), attributes=_AXIS, needed=("dim",)),
        "torch.Tensor.contiguous": Function("contiguous", ignored=("memory_format",)),
        "torch.tril": Function(
            "tril", ("input", "diagonal"), attributes=(("diagonal", "diagonal"),)
        ),
        "torch.triu": Function(
            "triu", ("input", "diagonal"), attributes=(("diagonal", "diagonal"),)
        ),
        "nnscaler.runtime.function.identity": Function("identity"),
        "nnscaler.runtime.function.multiref": Function(
            "multiref", ("input", "times"), attributes=(("times", "count"),)
        ),
        "nnscaler.runtime.function.cat": Function("cat", (), (), _AXIS, needed=("dim",), many=True),
        "nnscaler.runtime.function.stack": Function(
            "stack", (), (), _AXIS, needed=("dim",), many=True
        ),
    }


_FUNCTIONS: Mapping[str, Function] = MappingProxyType(_arithmetic() | _layers() | _structure())
_TUPLES = frozenset({"axes", "sizes", "permutation"})
"""The attributes that are a tuple of integers even if one integer is given."""


def meaning_of(
    signature: str, arguments: Sequence[Any], keywords: Mapping[Any, Any], results: Sequence[str]
) -> Meaning:
    """Return the operator that a call of ``signature`` is; ``results`` are its outputs' dtypes.

    Raises PlanError for a keyword that is no string.
    """
    if keywords and any(
        not isinstance(key, str) or not key.isprintable() or len(key) > 100 for key in keywords
    ):
        raise PlanError("a keyword is no name", "._kwargs")
    function = _FUNCTIONS.get(signature)
    if function is None:
        return _unknown(signature, arguments, keywords)
    bound = _bound(function, arguments, keywords)
    operands = None if bound is None else _operands(function, bound, arguments)
    attributes = None if bound is None else _attributes(function, bound, results)
    if operands is None or attributes is None:
        return _unknown(signature, arguments, keywords)
    return Meaning(function.kind, operands, attributes)


def _bound(
    function: Function, arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return arguments by name; None if they do not fit the function."""
    if function.many:
        return dict(keywords)
    count = len(function.parameters)
    bound = dict(zip(function.parameters, arguments, strict=False))
    if len(arguments) > count:
        if not function.sequence:
            return None
        rest = list(arguments[count:])
        bound[function.sequence] = (
            rest[0] if len(rest) == 1 and isinstance(rest[0], list | tuple) else tuple(rest)
        )
    if set(bound) & set(keywords):
        return None
    return {**bound, **keywords}


def _operands(
    function: Function, bound: Mapping[str, Any], arguments: Sequence[Any]
) -> tuple[Any, ...] | None:
    """Return tensors and numbers in order; None if one is missing or something else."""
    if function.many:
        given = (
            arguments[0]
            if len(arguments) == 1 and isinstance(arguments[0], list | tuple)
            else arguments
        )
        return tuple(given) if given and all(is_tensor(value) for value in given) else None
    names = list(function.tensors)
    for name in reversed(function.tensors[len(function.tensors) - function.optional :]):
        if bound.get(name) is not None:
            break
        names.pop()
    operands = tuple([_operand(bound.get(name)) for name in names])
    if any(operand is None for operand in operands) or all(
        isinstance(operand, Number) for operand in operands
    ):
        return None
    return operands


def _attributes(
    function: Function, bound: Mapping[str, Any], results: Sequence[str]
) -> dict[str, Any] | None:
    """Return the attributes; None if an argument is missing or has no meaning as an attribute."""
    if any(name not in bound for name in function.needed):
        return None
    attributes: dict[str, Any] = {}
    others = [
        item
        for item in bound.items()
        if item[0] not in function.tensors and item[0] not in function.ignored
    ]
    if not others:
        return attributes
    renamed, neutral = dict(function.attributes), dict(function.neutral)
    for name, value in others:
        simple = plain(value)
        if (name in neutral and _equal(simple, neutral[name])) or (
            name == "dtype" and (value is None or _same_dtype(value, results))
        ):
            continue
        if is_tensor(value):
            return None
        # An unknown argument gets a name that no operator has, so that it is refused.
        attribute = renamed.get(name, f"torch.{name}")
        attributes[attribute] = (
            len(simple)
            if attribute == "dims" and isinstance(simple, tuple)
            else _attribute(attribute, simple)
        )
        if attribute in _TUPLES and not _integers(attributes[attribute]):
            return None
    return attributes


def _integers(value: Any) -> bool:
    """Return True if a value is a tuple of at least one integer."""
    return isinstance(value, tuple) and bool(value) and all(type(entry) is int for entry in value)


def _equal(value: Any, neutral: Any) -> bool:
    """Return True if an argument has its neutral value; True is not 1."""
    return bool(value == neutral) and isinstance(value, bool) == isinstance(neutral, bool)


def _operand(value: Any) -> Any:
    if is_tensor(value):
        return value
    simple = number(value)
    if isinstance(simple, bool) or simple is None:
        return None
    return Number(simple if isinstance(simple, int) or simple - simple == 0 else str(simple))


def _same_dtype(value: Any, results: Sequence[str]) -> bool:
    """Return True if a conversion to ``value`` changes nothing.

    That is known of float32 alone: narrower results are computed wider inside.
    """
    try:
        return (
            isinstance(value, Stub | type)
            and all(result == "float32" for result in results)
            and dtype_of(value, "dtype") == "float32"
        )
    except PlanError:
        return False


def _attribute(name: str, value: Any) -> Any:
    """Return a value of the plan's type: a scalar, a tuple of integers, or of tuples of integers.

    Anything else becomes its description.
    """
    if name in _TUPLES and isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple) and (
        all(type(entry) is int for entry in value) or all(type(entry) is str for entry in value)
    ):
        return value
    if isinstance(value, tuple) and all(
        isinstance(entry, tuple) and all(type(e) is int for e in entry) for entry in value
    ):
        return value
    return repr(value)[:1000]


def _unknown(signature: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Meaning:
    """Return a call as it stands: tensors and numbers as operands, all else as attributes."""
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
    return (
        [entry for entry in value[:1000] if is_tensor(entry)]
        if isinstance(value, list | tuple)
        else []
    )


# --- calls of one form

_SIMPLE = frozenset({int, bool, str, type(None)})
"""The types whose equal values are the same value. Floats are not: 0.0 equals -0.0."""


class _Place(Stub):
    """A stand-in for the tensor at a place of a call.

    All that a meaning asks about a tensor is if it is one.
    """

    origin = ("", "IRSubTensor")

    def __init__(self, place: int) -> None:
        super().__init__()
        self.place = place


class Meanings:
    """The meanings of the calls of one pickle, found once for all calls of one form.

    The layers of a model repeat the same calls on other tensors. The attributes of calls of one
    form are one object, which nobody changes.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Meaning] = {}

    def of(
        self,
        signature: str,
        arguments: Sequence[Any],
        keywords: Mapping[Any, Any],
        results: Sequence[str],
    ) -> Meaning:
        """Return the meaning of a call.

        Arguments and errors are those of
        :func:`meaning_of`.
        """
        form: list[Any] = [signature, len(arguments), *results]
        for value in arguments:
            kind = value.__class__
            if kind in _SIMPLE:
                form.append((kind, value))
            elif is_tensor(value):
                form.append(_Place)
            else:
                return meaning_of(signature, arguments, keywords, results)
        for name, value in keywords.items():
            # A tensor as a keyword is rare, and the meaning of an unknown call may name its class.
            if name.__class__ is not str or value.__class__ not in _SIMPLE:
                return meaning_of(signature, arguments, keywords, results)
            form.append((name, value.__class__, value))
        key = tuple(form)
        known = self._known.get(key)
        if known is None:
            places = [
                _Place(place) if is_tensor(value) else value
                for place, value in enumerate(arguments)
            ]
            known = self._known[key] = meaning_of(signature, places, keywords, results)
        operands = tuple(
            [
                arguments[operand.place] if isinstance(operand, _Place) else operand
                for operand in known.operands
            ]
        )
        return Meaning(known.kind, operands, known.attributes)
