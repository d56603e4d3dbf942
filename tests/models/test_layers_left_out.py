"""One layer of each kind stands for the others: kinds tell all that differs, and reports say it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from pitcheck.engine.reporting import left_out
from pitcheck.errors import ConfigurationError
from pitcheck.models.config import Batch, Model
from pitcheck.models.kept_layers import said_of, shallower
from pitcheck.models.presets import PRESETS, preset
from pitcheck.models.reference import reference_plan
from pitcheck.plan.files import decode_plan, encode_json
from pitcheck.programs.configuration import read_configuration
from pitcheck.report.report import Report
from pitcheck.report.text import render

TINY = "plans/llama3-tiny.toml"
KEPT = "keep_layers=one-of-each"


def _kind(model: Model, layer: int) -> tuple[bool, ...]:
    return (
        model.is_mixture(layer),
        model.is_local(layer),
        model.is_rotary(layer),
        model.scales_queries(layer),
    )


@pytest.mark.parametrize("name", PRESETS)
def test_every_kind_is_kept_and_every_layer_stands_in_the_sentence(name: str) -> None:
    model = preset(name)
    kept = next(shallower(model))
    assert {_kind(kept, n) for n in range(kept.layers)} == {
        _kind(model, n) for n in range(model.layers)
    }
    for ends in ((0, 0), (kept.layers - 1, model.layers - 1)):
        assert _kind(kept, ends[0]) == _kind(model, ends[1])
    said = said_of(model, kept)
    assert sum(map(int, re.findall(r"for (\d+) layers", said))) == model.layers
    assert f"{kept.layers} of {model.layers} layers are compared" in said


@pytest.mark.parametrize(
    "name", ["llama3-8b", "deepseek-v3-671b", "gpt-oss-20b", "llama4-maverick"]
)
def test_layers_of_one_kind_have_the_same_operators(name: str) -> None:
    """The parts of a layer depend on its number by its kind alone."""
    model = msgspec.structs.replace(preset(f"{name}-tiny"), layers=8)
    plan = reference_plan(model, Batch(sequences=2, length=8))
    shapes = {tensor.name: tensor.shape for tensor in plan.tensors}
    made: dict[int, Counter[str]] = {}
    for operator in plan.operators:
        found = [re.match(r"layers\.(\d+)\.", name) for name in operator.outputs]
        for number in {int(each[1]) for each in found if each}:
            said = repr(
                (
                    operator.kind,
                    sorted(operator.attributes.items(), key=str),
                    [
                        shapes.get(one, one) if isinstance(one, str) else one
                        for one in operator.inputs
                    ],
                    [shapes.get(one) for one in operator.outputs],
                )
            )
            made.setdefault(number, Counter())[re.sub(r"layers\.\d+", "layers.N", said)] += 1
    assert len(made) == 8
    of_kind: dict[tuple[bool, ...], list[Counter[str]]] = {}
    # A gradient that a neighbour adds belongs to no kind: the first and the last layer have others.
    for number in range(1, 7):
        of_kind.setdefault(_kind(model, number), []).append(made[number])
    assert sum(map(len, of_kind.values())) == 6
    for same in of_kind.values():
        assert all(each == same[0] for each in same)


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="must be 'all' or 'one-of-each'"):
        read_configuration(Path(TINY), ["keep_layers=two"])


def _rendered(*assignments: str) -> str:
    configuration = read_configuration(Path(TINY), ["model.layers=6", KEPT, *assignments])
    assert configuration.model.layers == 2
    plan = configuration.parallel()
    report = Report(
        verdict="equivalent",
        error_bound_log2=-64.0,
        assumptions=(*plan.assumptions, "a second sentence"),
        exceptions=left_out(plan),
    )
    return " ".join(" ".join(line.text for line in render(report)).split())


def test_a_report_says_which_layers_are_left_out() -> None:
    assert "2 of 6 layers are compared" in _rendered()


def test_a_report_says_which_layers_are_left_out_beside_other_assumptions() -> None:
    said = _rendered("layout.tp=1")
    assert "2 of 6 layers are compared" in said


def test_a_written_plan_says_what_was_left_out() -> None:
    kept, whole = (
        read_configuration(Path(TINY), ["model.layers=6", *more]).parallel()
        for more in ([KEPT], [])
    )
    assert len(left_out(kept)) == 1
    assert decode_plan(encode_json(kept), "kept") == kept
    assert left_out(whole) == ()
    assert b"left_out" not in encode_json(whole)
