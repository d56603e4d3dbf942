"""Fields of nnScaler's objects, read with distrust: each may be missing or hold anything.

Functions raise PlanError, with the place of the field, for a value that they cannot use.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, get_args

from pitcheck.base.dtypes import DType
from pitcheck.errors import PlanError
from pitcheck.frontends.nnscaler.pickles import Stub

LARGEST_INTEGER = 2**53
SLICE = "<slice>"
"""The first entry of the tuple that stands for a slice."""
_SEQUENCES = (list, tuple)
_NUMBERS = (bool, int, float)
_LONGEST_TEXT = 1000
_LONGEST_NAME = 300
_DEEPEST_VALUE = 8
_LONGEST_VALUE = 1000

_DTYPES: Mapping[str, str] = MappingProxyType(
    {
        "torch.float": "float32",
        "torch.double": "float64",
        "torch.half": "float16",
        "torch.long": "int64",
        "torch.int": "int32",
        "torch.short": "int16",
        "torch.float8_e4m3fn": "float8_e4m3",
    }
)
_KNOWN: tuple[str, ...] = get_args(DType)
_SCALARS: Mapping[str, str] = MappingProxyType(
    dict(
        zip(
            ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "b1"],
            "bhiqBHIQefd?",
            strict=True,
        )
    )
)
"""The codes of NumPy's dtypes, with those of ``struct`` for the same bytes."""


@contextmanager
def within(place: str) -> Iterator[None]:
    """Put ``place`` in front of the place of a PlanError that is raised in this context."""
    try:
        yield
    except PlanError as error:
        raise placed(error, place) from None


def placed(error: PlanError, place: str) -> PlanError:
    """Return an error with ``place`` in front of its place."""
    joiner = "" if error.place.startswith(("[", ".")) or not error.place else "."
    return PlanError(error.message, f"{place}{joiner}{error.place}")


def class_of(thing: object) -> str:
    """Return the name of the class that an object of the pickle has, or of its Python type."""
    return type(thing).origin[1] if isinstance(thing, Stub) else type(thing).__name__


def has(thing: object, name: str) -> bool:
    """Return True if an object of the pickle has a field."""
    return isinstance(thing, Stub) and name in thing.__dict__


def field(thing: object, name: str) -> Any:
    """Return a field of an object of the pickle.

    Raises PlanError if it has none of that name.
    """
    if not isinstance(thing, Stub):
        raise PlanError(
            f"there is a {type(thing).__name__} where an object with the field {name!r} is needed"
        )
    try:
        return thing.__dict__[name]
    except KeyError:
        raise PlanError(f"{class_of(thing)} has no field {name!r}", f".{name}") from None


def items(thing: object, name: str) -> list[Any] | tuple[Any, ...]:
    """Return a field that is a list or a tuple. Raises PlanError for anything else."""
    value = field(thing, name)
    if not isinstance(value, _SEQUENCES):
        raise PlanError(f"{class_of(value)} where a list is needed", f".{name}")
    return value


def table(thing: object, name: str) -> dict[Any, Any]:
    """Return a field that is a dictionary. Raises PlanError for anything else."""
    value = field(thing, name)
    if not isinstance(value, dict):
        raise PlanError(f"{class_of(value)} where a dictionary is needed", f".{name}")
    return value


def number(value: object) -> int | float | bool | None:
    """Return a plain number, or a NumPy scalar decoded from its bytes; None for anything else."""
    if isinstance(value, _NUMBERS):
        return value
    if (
        isinstance(value, Stub)
        and type(value).origin[1] == "scalar"
        and type(value).origin[0].startswith("numpy")
    ):
        return _scalar(value)
    return None


def _scalar(value: Stub) -> int | float | bool | None:
    arguments = value.__dict__.get("__arguments__")
    if not (
        isinstance(arguments, tuple)
        and len(arguments) == 2
        and isinstance(arguments[0], Stub)
        and isinstance(arguments[1], bytes)
    ):
        return None
    dtype, data = arguments
    codes = dtype.__dict__.get("__arguments__")
    code = codes[0] if isinstance(codes, tuple) and codes else None
    state = dtype.__dict__.get("__state__")
    order = state[1] if isinstance(state, tuple) and len(state) > 1 else "|"
    if not isinstance(code, str) or code not in _SCALARS or not isinstance(order, str):
        return None
    layout = (">" if order == ">" else "<") + _SCALARS[code]
    if struct.calcsize(layout) != len(data):
        raise PlanError(f"a NumPy scalar of type {code!r} has {len(data)} bytes")
    decoded: int | float | bool = struct.unpack(layout, data)[0]
    return decoded


def whole(value: object, what: str) -> int:
    """Return an integer of at most ``LARGEST_INTEGER``. Raises PlanError for anything else."""
    found = number(value)
    if isinstance(found, float) or found is None or isinstance(found, bool):
        raise PlanError(f"{what} is {shown(value)}, not an integer")
    if abs(found) > LARGEST_INTEGER:
        raise PlanError(f"{what} is too large")
    return found


def integer(thing: object, name: str) -> int:
    """Return a field that is an integer. Raises PlanError for anything else."""
    found = thing.__dict__.get(name) if isinstance(thing, Stub) else None
    if type(found) is int and -LARGEST_INTEGER < found < LARGEST_INTEGER:
        return found
    return whole(field(thing, name), f"{class_of(thing)}.{name}")


def integers(value: object, what: str) -> tuple[int, ...]:
    """Return a list or tuple of integers as a tuple. Raises PlanError for anything else."""
    if not isinstance(value, _SEQUENCES):
        raise PlanError(f"{what} is {shown(value)}, not a list of integers")
    for entry in value:
        if type(entry) is not int or not -LARGEST_INTEGER < entry < LARGEST_INTEGER:
            return tuple([whole(entry, what) for entry in value])
    return tuple(value)


def text(thing: object, name: str) -> str:
    """Return a field that is a name of printable characters. Raises PlanError for anything else."""
    value = field(thing, name)
    if not isinstance(value, str) or len(value) > _LONGEST_NAME or not value.isprintable():
        raise PlanError(f"{class_of(thing)}.{name} is {shown(value)}, not a name", f".{name}")
    return value


def shown(value: object) -> str:
    """Return a short, printable description of a value for a message, without asking the value."""
    if isinstance(value, Stub):
        return f"a {'.'.join(type(value).origin)}"
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 10**18 else "a huge integer"
    if isinstance(value, str):
        return ascii(value[:60])
    return f"a {type(value).__name__}"


def plain(value: object, depth: int = 0) -> Any:
    """Return the value of a keyword as plain Python: numbers, strings, None and tuples.

    Anything else becomes a description in angle brackets.
    """
    found = number(value)
    if found is not None:
        return (
            found
            if not (isinstance(found, int) and abs(found) > LARGEST_INTEGER)
            else "<a huge integer>"
        )
    if value is None:
        return None
    if isinstance(value, str):
        return value[:_LONGEST_TEXT] if value.isprintable() else ascii(value[:_LONGEST_TEXT])
    if isinstance(value, _SEQUENCES) and depth < _DEEPEST_VALUE and len(value) <= _LONGEST_VALUE:
        return tuple(plain(entry, depth + 1) for entry in value)
    if (
        isinstance(value, Stub)
        and type(value).origin == ("builtins", "slice")
        and depth < _DEEPEST_VALUE
    ):
        return (
            SLICE,
            *(plain(entry, depth + 1) for entry in value.__dict__.get("__arguments__", ())[:3]),
        )
    return _described(value)


def _described(value: object) -> str:
    if isinstance(value, Stub | type):
        origin = (
            value.origin
            if isinstance(value, type) and issubclass(value, Stub)
            else type(value).origin
            if isinstance(value, Stub)
            else ("", "")
        )
        return f"<{'.'.join(origin)}>"
    return f"<{type(value).__name__}>"


def dtype_of(value: object, name: str) -> DType:
    """Return a dtype from ``torch.float32`` and the like, given as a stub or as its name.

    Raises PlanError for a dtype that plans do not know.
    """
    said = "<class>"
    if isinstance(value, type) and issubclass(value, Stub):
        said = ".".join(value.origin)
    elif isinstance(value, Stub):
        said = ".".join(type(value).origin)
    elif isinstance(value, str):
        said = value[:60]
    found = _DTYPES.get(said, said.removeprefix("torch."))
    if found not in _KNOWN:
        raise PlanError(
            f"{name!r} has dtype {said!a}, which is none of {', '.join(_KNOWN)}", "._dtype"
        )
    known: DType = found  # type: ignore[assignment]
    return known
