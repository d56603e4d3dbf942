"""The published schema is current, and the documented examples are valid plans."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from plan.plan_samples import crossing, linear_parallel, linear_reference, pipeline, with_operator
from zoo.pairs import builders, pair

from pitcheck.errors import PlanError
from pitcheck.plan.files import decode_plan, encode_json
from pitcheck.plan.model import Number, Plan, Use
from pitcheck.plan.schema import json_schema
from pitcheck.plan.validate import validate

ROOT = Path(__file__).parents[2]
EXAMPLES = dict(
    re.findall(
        r"```json (\w+)\n(.*?)```", (ROOT / "docs" / "plan-format.md").read_text(), re.DOTALL
    )
)
VALIDATOR = jsonschema.Draft202012Validator(json_schema())


def test_the_published_schema_is_current() -> None:
    assert json.loads((ROOT / "docs" / "plan.schema.json").read_text()) == json_schema()
    jsonschema.Draft202012Validator.check_schema(json_schema())


def test_the_examples_are_read_and_valid() -> None:
    assert set(EXAMPLES) == {"reference", "parallel", "pipeline"}
    plans = {name: decode_plan(text.encode(), name) for name, text in EXAMPLES.items()}
    assert validate(plans["reference"]) == []
    assert validate(plans["parallel"], plans["reference"]) == []
    assert validate(plans["pipeline"]) == []
    for text in EXAMPLES.values():
        VALIDATOR.validate(json.loads(text))


def test_every_field_is_documented() -> None:
    text = (ROOT / "docs" / "plan-format.md").read_text()
    for name, definition in json_schema()["$defs"].items():
        for field in definition.get("properties", {}):
            assert re.search(rf'[`"]{field}[`"]', text), f"{name}.{field} is not documented"


SAMPLES = [
    linear_reference(),
    linear_parallel(),
    pipeline(),
    crossing(3),
    with_operator(linear_reference(), 0, inputs=(Use("x", 0), Number("inf"))),
]


@pytest.mark.parametrize("plan", SAMPLES)
def test_written_plans_follow_the_schema(plan: Plan) -> None:
    VALIDATOR.validate(json.loads(encode_json(plan)))


@pytest.mark.parametrize("name", builders())
def test_the_zoo_follows_the_schema(name: str) -> None:
    for plan in pair(name):
        VALIDATOR.validate(json.loads(encode_json(plan)))


def test_the_shipped_plans_follow_the_schema_and_are_valid() -> None:
    for path in sorted((ROOT / "plans").rglob("*.plan.json")):
        VALIDATOR.validate(json.loads(path.read_text()))
        assert [
            v for v in validate(decode_plan(path.read_bytes(), str(path))) if v.severity == "error"
        ] == []


@pytest.mark.parametrize(
    "change",
    [
        {"format": "pitcheck.plan/2"},
        {"format": None},
        {"mesh": 3},
        {"more": 1},
        {"tensors": [{"name": "x"}]},
        {"tensors": [{"name": "x", "shape": [4], "dtype": "float31"}]},
        {"operators": [{"id": "a", "kind": "b", "inputs": [{"type": "other"}]}]},
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(change: dict[str, Any]) -> None:
    tree = {**json.loads(encode_json(linear_reference())), **change}
    assert not VALIDATOR.is_valid(tree)
    with pytest.raises(PlanError):
        decode_plan(json.dumps(tree).encode())
