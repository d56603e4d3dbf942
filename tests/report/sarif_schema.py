"""The demands of SARIF 2.1.0 (OASIS) on the objects that pitcheck writes.

They are the fields, which of them are required, their types and ranges. Fields that the standard
knows and pitcheck does not write are left out, so that a misspelt one is refused.
"""

from __future__ import annotations

from typing import Any

TEXT = {"type": "string", "minLength": 1}
BAG = {"type": "object"}


def closed(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
        **more,
    }


def several(item: dict[str, Any], least: int = 0, unique: bool = False) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": least, "uniqueItems": unique}


LEVEL = {"enum": ["none", "note", "warning", "error"]}
MESSAGE = closed({"text": TEXT, "markdown": TEXT}, "text")
LOGICAL = closed({"name": TEXT, "fullyQualifiedName": TEXT, "kind": TEXT})
PHYSICAL = closed(
    {
        "artifactLocation": closed(
            {"uri": {"type": "string", "format": "uri-reference", "minLength": 1}}
        ),
        "region": closed({"startLine": {"type": "integer", "minimum": 1}}),
    },
    "artifactLocation",
)
LOCATION = closed(
    {
        "id": {"type": "integer", "minimum": 0},
        "physicalLocation": PHYSICAL,
        "logicalLocations": several(LOGICAL, unique=True),
        "message": MESSAGE,
    }
)
RULE = closed(
    {
        "id": TEXT,
        "shortDescription": MESSAGE,
        "fullDescription": MESSAGE,
        "help": MESSAGE,
        "defaultConfiguration": closed({"level": LEVEL}),
    },
    "id",
)
SUPPRESSION = closed(
    {
        "kind": {"enum": ["inSource", "external"]},
        "status": {"enum": ["accepted", "underReview", "rejected"]},
        "justification": TEXT,
    },
    "kind",
)
RESULT = closed(
    {
        "suppressions": several(SUPPRESSION, unique=True),
        "ruleId": TEXT,
        "ruleIndex": {"type": "integer", "minimum": 0},
        "level": LEVEL,
        "message": MESSAGE,
        "locations": several(LOCATION, 1),
        "relatedLocations": several(LOCATION, unique=True),
        "partialFingerprints": {"type": "object", "additionalProperties": TEXT},
        "properties": BAG,
    },
    "message",
)
INVOCATION = closed(
    {
        "executionSuccessful": {"type": "boolean"},
        "exitCode": {"type": "integer"},
        "exitCodeDescription": TEXT,
    },
    "executionSuccessful",
)
DRIVER = closed(
    {
        "name": TEXT,
        "version": TEXT,
        "semanticVersion": TEXT,
        "informationUri": {"type": "string", "format": "uri", "pattern": "^https://"},
        "rules": several(RULE, unique=True),
    },
    "name",
)
RUN = closed(
    {
        "tool": closed({"driver": DRIVER}, "driver"),
        "invocations": several(INVOCATION),
        "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
        "results": several(RESULT),
        "properties": BAG,
    },
    "tool",
)
LOG = closed(
    {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": several(RUN),
    },
    "version",
    "runs",
)
