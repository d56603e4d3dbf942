"""The reference of all fields of a configuration, for ``docs/model-reference.md``.

>>> "| `window` | integer | `0` |" in model_reference()
True
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from pitcheck.models.config import Attention, Batch, Experts, LatentAttention, Model, Optimizer
from pitcheck.programs.layout import Layout

_HEAD = """# Fields of a configuration

This page has every field of a [configuration](configuration.md), by table. The function
`pitcheck.programs.model_reference.model_reference` writes it from the structures that are
read. A rational is text such as "1/1000". A value that breaks a rule is refused with exit code 2.
"""

_TABLES: Mapping[str, type[msgspec.Struct]] = MappingProxyType(
    {
        "[model]": Model,
        '[model.attention], kind = "heads"': Attention,
        '[model.attention], kind = "latent"': LatentAttention,
        "[model.experts]": Experts,
        "[batch]": Batch,
        "[layout]": Layout,
        "[optimizer]": Optimizer,
    }
)
_NAMES: Mapping[object, str] = MappingProxyType(
    {int: "integer", str: "text", bool: "boolean", NoneType: "left out"}
)


def model_reference() -> str:
    """Return the page as Markdown, a table for each structure."""
    sections = [_HEAD]
    for title, kind in _TABLES.items():
        hints = get_type_hints(kind, include_extras=True)
        lines = [f"## {title}", "", inspect.cleandoc(kind.__doc__ or "").replace("``", "`"), ""]
        lines += ["| field | type | default | meaning | rule |", "|---|---|---|---|---|"]
        lines += [_row(field, hints[field.name]) for field in msgspec.structs.fields(kind)]
        sections.append("\n".join(lines) + "\n")
    return "\n".join(sections)


def _row(field: msgspec.structs.FieldInfo, hint: object) -> str:
    kind, meta = get_args(hint) if get_origin(hint) is Annotated else (hint, msgspec.Meta())
    required = field.default is msgspec.NODEFAULT
    default = "required" if required else f"`{_value(field.default)}`"
    cells = (
        f"`{field.name}`",
        _kind(kind),
        "left out" if not required and field.default is None else default,
        meta.description or "",
        (meta.extra or {}).get("rule", ""),
    )
    return f"| {' | '.join(cells)} |"


def _kind(kind: Any) -> str:
    """Return a type as a reader of TOML knows it; the values of a choice."""
    if get_origin(kind) is Literal:
        return ", ".join(f"`{_value(value)}`" for value in get_args(kind))
    if get_origin(kind) in (UnionType, Union):
        parts = [part for part in get_args(kind) if part is not NoneType]
        return " or ".join(dict.fromkeys(_kind(part) for part in parts))
    return _NAMES.get(kind, "table")


def _value(value: object) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)
