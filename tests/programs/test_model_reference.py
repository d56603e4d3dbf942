"""The page of all fields is what the structures say."""

from __future__ import annotations

from pathlib import Path
from typing import get_type_hints

import msgspec
import pytest

from pitcheck.models.config import Attention, Batch, Experts, LatentAttention, Model, Optimizer
from pitcheck.programs.layout import Layout
from pitcheck.programs.model_reference import model_reference

PAGE = Path(__file__).parents[2] / "docs" / "model-reference.md"
STRUCTURES = (Model, Attention, LatentAttention, Experts, Batch, Layout, Optimizer)


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == model_reference(), (
        "write docs/model-reference.md anew with pitcheck.programs.model_reference.model_reference"
    )


@pytest.mark.parametrize("kind", STRUCTURES, ids=lambda kind: kind.__name__)
def test_every_field_is_described_beside_it(kind: type[msgspec.Struct]) -> None:
    hints = get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        (meta,) = hints[field.name].__metadata__
        assert meta.description, field.name
        assert f"| `{field.name}` | " in model_reference()


def test_types_defaults_and_choices_are_those_of_toml() -> None:
    page = model_reference()
    assert '| `qk_norm` | `"none"`, `"rms"`, `"l2"` | `"none"` |' in page
    assert "| `zigzag` | boolean | left out |" in page
    assert "| `heads` | integer | required |" in page
    assert "| `experts` | table | left out |" in page
