"""The report as JSON (``docs/report-format.md``): one object, indented, UTF-8, with a newline."""

from __future__ import annotations

from typing import Any

import msgspec

from pitcheck.base.schemas import schema_of
from pitcheck.report.report import SCHEMA, Report


def encode(report: Report) -> bytes:
    """Return the report's bytes: equal reports give equal bytes."""
    return indented(report)


def indented(content: Any) -> bytes:
    """Return structs or plain data as JSON, indented and with a final newline."""
    return msgspec.json.format(on_one_line(content), indent=2) + b"\n"


def on_one_line(content: Any) -> bytes:
    """Return structs or plain data as JSON without any newline.

    UTF-8 cannot hold lone surrogates (names of undecodable files); they become backslash escapes.
    """
    try:
        return msgspec.json.encode(content)
    except UnicodeEncodeError:
        return msgspec.json.encode(_encodable(msgspec.to_builtins(content)))


def decode(data: bytes) -> Report:
    """Return the report from its bytes.

    Raises msgspec.DecodeError for anything else.
    """
    return msgspec.json.decode(data, type=Report)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the report, published as ``docs/report.schema.json``.

    Every field is always written.
    """
    schema = schema_of(Report, "pitcheck report")
    for definition in schema["$defs"].values():
        definition["required"] = list(definition["properties"])
        for described in definition["properties"].values():
            described.pop("default", None)
    schema["$defs"]["Report"]["properties"]["schema"] = {"const": SCHEMA}
    return schema


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encodable(item) for item in value]
    return value
