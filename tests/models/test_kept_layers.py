"""A model with one layer of each kind stands for the model with all of them."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import msgspec
import pytest

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.errors import ConfigurationError
from pitcheck.models.config import Attention, Model
from pitcheck.models.kept_layers import said_of, shallower
from pitcheck.models.presets import preset
from pitcheck.programs.configuration import Configuration, read_configuration

TINY = Path("plans/llama3-tiny.toml")
ONE = "keep_layers=one-of-each"


def _smallest(model: Model) -> Model | None:
    return next(shallower(model), None)


@pytest.mark.parametrize(
    ("name", "layers", "dense"),
    [("llama3-8b", 2, 0), ("llama3-405b", 2, 0), ("deepseek-v3-671b", 2, 1), ("gpt3-175b", 2, 0)],
)
def test_the_least_model_has_a_first_and_a_last_layer_of_each_kind(
    name: str, layers: int, dense: int
) -> None:
    found = _smallest(preset(name))
    assert found is not None
    assert (found.layers, found.dense_layers) == (layers, dense)


def test_every_kind_of_layer_is_kept() -> None:
    model = preset("llama3-8b")
    assert isinstance(model.attention, Attention)
    local = msgspec.structs.replace(model.attention, window=64, global_every=4)
    mixed = msgspec.structs.replace(model, attention=local, layers=16)
    found = _smallest(mixed)
    assert found is not None
    assert [found.is_local(layer) for layer in range(found.layers)] == [True, True, True, False]
    assert "layer 0 for 12 layers" in said_of(mixed, found)
    assert "layer 3 for 4 layers" in said_of(mixed, found)


def test_models_of_more_layers_follow_for_layouts_that_need_them() -> None:
    assert [each.layers for each in islice(shallower(preset("llama3-8b")), 4)] == [2, 3, 4, 5]


def _read(*assignments: str) -> Configuration:
    return read_configuration(TINY, assignments)


def test_a_configuration_is_built_with_the_layers_that_its_stages_need() -> None:
    full, kept = _read("layers=8"), _read("layers=8", ONE)
    assert (full.model.layers, kept.model.layers) == (8, 2)
    assert full.parallel().left_out is msgspec.UNSET
    (said,) = kept.parallel().left_out
    assert said.startswith("one layer of each kind: 2 of 8 layers are compared")
    assert "the others are not looked at" in said


def test_a_configuration_that_has_no_layer_to_spare_says_so() -> None:
    kept = _read("layers=2", ONE)
    assert kept.model.layers == 2
    assert kept.parallel().left_out == (
        "one layer of each kind: all 2 layers are compared, since the model and its layout need "
        "each of them",
    )


def test_another_choice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'some', and must be 'all' or 'one-of-each'"):
        _read("keep_layers=some")


def test_the_report_says_which_layers_stand_for_which() -> None:
    kept = _read("layers=4", ONE)
    report = check(kept.reference(), kept.parallel(), Options(seed=1))
    assert report.verdict == "equivalent"
    assert any("2 of 4 layers are compared" in line for line in report.exceptions)


def test_a_wrong_layer_is_caught() -> None:
    kept = _read("layers=4", ONE)
    parallel = kept.parallel()
    wrong = [
        msgspec.structs.replace(operator, kind="relu") if operator.kind == "silu" else operator
        for operator in parallel.operators
    ]
    report = check(
        kept.reference(),
        msgspec.structs.replace(parallel, operators=tuple(wrong)),
        Options(seed=1, explain=False),
    )
    assert report.verdict == "mismatch"
