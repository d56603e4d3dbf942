"""The JSON Schema of the plan format, derived from the structs (published as ``docs/plan.schema.json``)."""

from __future__ import annotations

from typing import Any

import msgspec

from pitcheck.plan.model import FORMAT, Plan


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a ``.plan.json`` file. ``format`` is required and must be ``pitcheck.plan/1``."""
    schema = msgspec.json.schema(Plan)
    plan = schema["$defs"]["Plan"]
    plan["required"] = [*plan["required"], "format"]
    plan["properties"]["format"] = {"const": FORMAT}
    # Defaults are tuples here and lists in JSON.
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(schema))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "pitcheck plan", **plain}
