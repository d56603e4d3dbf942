"""The tensors that a program holds, by the way that leads to them.

Ways go through attributes of objects, elements of containers, variables that functions close over,
and globals that functions name.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch

from pitcheck.frontends.torch.recording.blame import OWN

MOST = 200_000
"""The greatest number of objects that are looked at. Tensors that are farther away are not found.
"""
TRANSPARENT = frozenset({"_parameters", "_buffers", "_modules"})
"""The dicts of a module whose keys are its attributes."""
CLOSED = (
    str,
    bytes,
    int,
    float,
    complex,
    bool,
    type(None),
    types.ModuleType,
    types.CodeType,
    types.FrameType,
    torch.dtype,
    torch.device,
    torch.Size,
)


def reachable(roots: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return every tensor that can be reached from ``roots``, by its shortest path.

    A path is such as "step.momentum.0". A tensor in a list that can be reached in several ways is
    listed under each.
    """
    found: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    waiting = deque((name, root) for name, root in roots.items())
    while waiting and len(seen) < MOST:
        path, item = waiting.popleft()
        if isinstance(item, torch.Tensor):
            found.setdefault(path, item)
        if id(item) not in seen:
            seen.add(id(item))
            waiting.extend(
                (_joined(path, name), inner)
                for name, inner in _inside(item)
                if not isinstance(inner, CLOSED)
            )
        elif isinstance(item, dict | list | tuple):
            for name, inner in _inside(item):
                if isinstance(inner, torch.Tensor):
                    found.setdefault(_joined(path, name), inner)
    return found


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if name else path


def _inside(item: Any) -> Iterator[tuple[str, Any]]:
    """Yield the objects that an object holds, each with its name; "" for a transparent step."""
    if isinstance(item, torch.Tensor):
        yield from _attributes(item)
    elif isinstance(item, dict):
        # The dict's own items: ``items`` of another class may make things that nobody has yet.
        yield from (
            (_key(key, place), value) for place, (key, value) in enumerate(list(dict.items(item)))
        )
    elif isinstance(item, list | tuple | deque | set | frozenset):
        yield from ((str(place), value) for place, value in enumerate(list(item)))
    elif isinstance(item, types.MethodType):
        yield from (("", item.__self__), ("", item.__func__))
    elif isinstance(item, partial):
        yield from (("", item.func), ("", item.args), ("", item.keywords))
    elif isinstance(item, types.FunctionType):
        yield from _of_function(item)
    elif isinstance(item, types.GeneratorType):
        yield from item.gi_frame.f_locals.items() if item.gi_frame is not None else ()
    elif isinstance(item, type):
        yield from (
            (name, value) for name, value in vars(item).items() if not name.startswith("__")
        )
    else:
        yield from _attributes(item)
        yield from (
            (name, getattr(item, name, None))
            for kind in type(item).__mro__
            for name in _slots(kind)
        )
        if _is_users(type(item)):
            # A program may keep tensors as attributes of its own classes, too.
            yield "", type(item)
            yield "", type(item).__dict__.get("__call__")


def _attributes(item: Any) -> Iterator[tuple[str, Any]]:
    for name, value in list(getattr(item, "__dict__", {}).items()):
        yield "" if name in TRANSPARENT else name, value


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if not name.startswith("__"))


def _of_function(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            # The variable has no value yet.
            continue
    yield from (("", value) for value in (function.__defaults__ or ()))
    yield from (function.__kwdefaults__ or {}).items()
    yield from vars(function).items()
    if not _is_own(function.__code__):
        yield from (
            (name, function.__globals__[name])
            for name in sorted(_names(function.__code__))
            if name in function.__globals__
        )


def _names(code: types.CodeType) -> set[str]:
    """Return the names that a function, and those within it, look up outside."""
    return {
        *code.co_names,
        *(
            name
            for inner in code.co_consts
            if isinstance(inner, types.CodeType)
            for name in _names(inner)
        ),
    }


def _is_own(code: types.CodeType) -> bool:
    return code.co_filename.startswith((*OWN, "<"))


def _is_users(kind: type) -> bool:
    """Return True if a class belongs to neither Python, PyTorch nor pitcheck."""
    return kind.__module__.partition(".")[0] not in (
        "builtins",
        "torch",
        "pitcheck",
        "collections",
        "functools",
        "typing",
        "abc",
        "enum",
    )


def _key(key: Any, place: int) -> str:
    """Return the name of a key of a dict.

    A key that has no name, such as a parameter, is named after its place.
    """
    return str(key) if isinstance(key, str | int | bool) else str(place)
