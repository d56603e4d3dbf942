"""Messages about unknown fields list those of the struct concerned, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from pitcheck.base.struct_faults import with_allowed
from pitcheck.errors import ConfigurationError, PlanError
from pitcheck.plan.example import one_operator
from pitcheck.plan.files import decode_plan, encode_json
from pitcheck.programs.configuration import read_configuration


class Round(msgspec.Struct, forbid_unknown_fields=True, tag="round"):
    radius: int = 0


class Square(msgspec.Struct, forbid_unknown_fields=True, tag="square"):
    side: int = 0


class Picture(msgspec.Struct, forbid_unknown_fields=True):
    shapes: list[Round | Square]


UNKNOWN = "Object contains unknown field `raduis`"


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ({"type": "round"}, "the fields are radius; the nearest is 'radius'"),
        ({"type": "square"}, "the fields are side"),
        ({}, "the fields are radius, side; the nearest is 'radius'"),
        ({"type": "oval"}, "the fields are radius, side; the nearest is 'radius'"),
    ],
)
def test_the_fields_are_those_of_the_struct_that_is_meant(shape: dict[str, Any], said: str) -> None:
    data = {"shapes": [{"type": "square"}, shape]}
    assert with_allowed(UNKNOWN, "shapes[1]", Picture, data) == f"{UNKNOWN}; {said}"


@pytest.mark.parametrize("data", [None, [], {"shapes": {}}, {"shapes": []}])
def test_data_that_do_not_have_the_place_tell_nothing(data: object) -> None:
    assert with_allowed(UNKNOWN, "shapes[1]", Picture, data).endswith("the nearest is 'radius'")


LATENT = """
[model]
preset = "deepseek-v3-671b-tiny"
attention.widow = 3
[batch]
sequences = 2
length = 4
"""


def test_latent_attention_has_no_window(tmp_path: Path) -> None:
    file = tmp_path / "latent.toml"
    file.write_text(LATENT, encoding="utf-8")
    with pytest.raises(ConfigurationError, match="unknown field `widow`; the fields are") as found:
        read_configuration(file)
    assert "kv_rank" in str(found.value) and "window" not in str(found.value)
    file.write_text(LATENT.replace("deepseek-v3-671b", "llama3-8b"), encoding="utf-8")
    with pytest.raises(ConfigurationError, match="nearest is 'window'") as found:
        read_configuration(file)
    assert "kv_rank" not in str(found.value)


def test_an_operand_of_a_plan_has_the_fields_of_its_kind() -> None:
    text = encode_json(one_operator("exp", [(2, 3)], (2, 3))).decode()
    assert '"inputs":["x0"]' in text
    wrong = text.replace('"inputs":["x0"]', '"inputs":[{"type":"number","vlaue":"2"}]')
    with pytest.raises(PlanError, match="the fields are value; the nearest is 'value'"):
        decode_plan(wrong.encode())
