"""A lowered program computes what XLA computes: on random programs whose outputs XLA has given.

``python tests/xla/write_texts.py`` makes the texts and their outputs anew, by XLA.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xla.hlo_random import THEMES, programs
from xla.lowered import outputs, spans_of

from pitcheck.frontends.xla.text.parser import parse_hlo

TEXTS = Path(__file__).parent / "texts"


def _cases() -> list[Any]:
    lines = [
        line for theme in THEMES for line in (TEXTS / f"{theme}.jsonl").read_text().splitlines()
    ]
    cases = [json.loads(line) for line in lines]
    return [pytest.param(case, id=case["name"]) for case in cases]


@pytest.mark.parametrize("case", _cases())
def test_a_program_computes_what_xla_computes(case: dict[str, Any]) -> None:
    """Compare each output on each device. Integers may be any of their range, not those given."""
    inputs = [[value for _, value in given] for given in case["inputs"]]
    bounds = {
        number: (0, 100) if kind[0] == "u" else (-100, 100)
        for number, (kind, _) in enumerate(case["inputs"][0])
    }
    for number, (kind, value) in enumerate(case["inputs"][0]):
        if kind[0] in "su" and np.min(value) > 0:
            bounds[number] = 1, 100
    found = outputs(case["text"], inputs, bounds)
    for mine, theirs in zip(found, case["outputs"], strict=True):
        assert len(mine) == len(theirs)
        for number, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            np.testing.assert_allclose(
                np.array(one, dtype=float),
                np.array(other, dtype=float),
                rtol=1e-9,
                atol=1e-12,
                err_msg=f"output {number}",
            )


@pytest.mark.parametrize("case", _cases())
def test_spans_hold_all_integers_that_xla_gives(case: dict[str, Any]) -> None:
    """Bound parameters by the integers that they are given: no output lies outside its span."""
    bounds = {
        number: (int(np.min(values)), int(np.max(values)) + 1)
        for number, (kind, _) in enumerate(case["inputs"][0])
        if kind[0] in "su" and (values := [given[number][1] for given in case["inputs"]])
    }
    spans = spans_of(parse_hlo(case["text"]), bounds)
    for number, span in enumerate(spans):
        if span is not None:
            found = [outputs[number] for outputs in case["outputs"]]
            assert span[0] <= np.min(found) and np.max(found) < span[1], f"output {number}"


@pytest.mark.parametrize("theme", THEMES)
def test_texts_are_those_of_the_random_programs(theme: str) -> None:
    kept = [json.loads(line) for line in (TEXTS / f"{theme}.jsonl").read_text().splitlines()]
    for case in kept:
        del case["outputs"]
    assert kept == [program.case() for program in programs(theme)]
