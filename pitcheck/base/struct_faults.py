"""Faults of data that does not fit a struct, said with what the struct allows."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
from msgspec import inspect

from pitcheck.base.nearest import cut, nearest

_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`", re.DOTALL)
_CHOICE = re.compile(r"Invalid enum value '(.*?)'", re.DOTALL)
_STEP = re.compile(r"\[[^\]]*\]|[^.\[\]]+")


def with_allowed(text: str, place: str, struct: type[msgspec.Struct], data: object = None) -> str:
    """Return the text of a decoder's error, with the fields or values that are allowed there.

    ``place`` is the path of the error in data of the type ``struct``, such as
    ``tensors[0].lineage``. ``data``, if it is at hand, tells which of several structs is meant.
    """
    types = _meant(list(_types_at(struct, place)), _at(data, place))
    unknown, choice = _UNKNOWN.match(text), _CHOICE.match(text)
    if unknown:
        text = f"Object contains unknown field `{cut(unknown[1])}`"
        fields = _names(f.encode_name for t in types for f in getattr(t, "fields", ()))
        return _listed(text, "the fields are", unknown[1], fields)
    if choice:
        values = _names(
            str(v) for t in types if isinstance(t, inspect.LiteralType) for v in t.values
        )
        return _listed(text, "it must be one of", choice[1], values)
    return text


def _at(data: object, place: str) -> object:
    """Return what data have at a path; None if a step leads nowhere."""
    for step in _STEP.findall(place):
        inner = step.strip("[]")
        if isinstance(data, dict):
            data = data.get(inner)
        elif isinstance(data, list) and inner.isdecimal() and int(inner) < len(data):
            data = data[int(inner)]
        else:
            return None
    return data


def _meant(types: list[inspect.Type], data: object) -> list[inspect.Type]:
    """Return the struct whose tag data have, or all types if no tag says."""
    if not isinstance(data, dict):
        return types
    found: list[inspect.Type] = [
        each
        for each in types
        if isinstance(each, inspect.StructType)
        and each.tag_field is not None
        and data.get(each.tag_field) == each.tag
    ]
    return found or types


def _listed(text: str, lead: str, name: str, known: list[str]) -> str:
    return f"{text}; {lead} {', '.join(known)}{nearest(name, known)}" if known else text


def _names(names: Iterator[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _types_at(struct: type[msgspec.Struct], place: str) -> Iterator[inspect.Type]:
    """Yield the types that data at ``place`` may have."""
    types = list(_single(inspect.type_info(struct)))
    for step in _STEP.findall(place):
        types = [each for kind in types for inner in _inside(kind, step) for each in _single(inner)]
    yield from types


def _single(kind: inspect.Type) -> Iterator[inspect.Type]:
    """Yield the members of a union, or the type itself, without what describes it."""
    if isinstance(kind, inspect.Metadata):
        yield from _single(kind.type)
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from _single(each)
    else:
        yield kind


def _inside(kind: inspect.Type, step: str) -> Iterator[inspect.Type]:
    """Yield the types of what a step of a path leads to."""
    if isinstance(kind, inspect.StructType):
        yield from (field.type for field in kind.fields if field.encode_name == step)
    elif isinstance(kind, inspect.DictType):
        yield kind.value_type
    elif isinstance(kind, (inspect.ListType, inspect.VarTupleType)):
        yield kind.item_type
