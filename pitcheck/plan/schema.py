"""The JSON Schema of the plan format, published as ``docs/plan.schema.json``."""

from __future__ import annotations

from typing import Any

from pitcheck.base.schemas import schema_of
from pitcheck.plan.model import FORMAT, Plan


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a ``.plan.json`` file.

    ``format`` is required and must be ``pitcheck.plan/1``.
    """
    schema = schema_of(Plan, "pitcheck plan")
    plan = schema["$defs"]["Plan"]
    plan["required"] = [*plan["required"], "format"]
    plan["properties"]["format"] = {"const": FORMAT}
    return schema
