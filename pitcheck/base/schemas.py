"""JSON Schemas of structs."""

from __future__ import annotations

from typing import Any

import msgspec


def schema_of(struct: type[msgspec.Struct], title: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a struct, as JSON data.

    Docstrings become descriptions, each as one line: the lines of the source have no meaning.
    """
    schema = msgspec.json.schema(struct)
    # Defaults are tuples here and lists in JSON.
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(schema))
    for definition in plain["$defs"].values():
        definition["description"] = " ".join(definition.get("description", "").split())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **plain}
