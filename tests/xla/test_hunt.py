"""Tests of ``bench/xla_hunt.py``: programs are repeatable, and classes follow from verdicts."""

from __future__ import annotations

import ast
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from hunt.generating import program_of
from hunt.judging import (
    AGREES,
    FALSE_ALARM,
    FOUND,
    MISSED,
    OPEN,
    RAISED,
    WRONG,
    classified,
    computations_of,
    verdict_of,
)
from hunt.programs import Program, from_json, function_source
from hunt.scripts import script_of
from hunt.shrinking import smallest
from xla.hlo_pairs import cases_in, edits

SEEDS = range(200)


@pytest.mark.parametrize("keyed", [False, True])
def test_a_seed_gives_one_program(keyed: bool) -> None:
    programs = [program_of(seed, keyed=keyed) for seed in SEEDS]
    for seed, program in zip(SEEDS, programs, strict=True):
        assert program == program_of(seed, keyed=keyed)
        assert program == from_json(json.loads(json.dumps(program.as_json())))
        assert keyed == any("jax.random" in step.source for step in program.steps)
    assert len(set(programs)) == len(SEEDS)


def test_programs_are_python_and_their_values_are_defined_before_they_are_used() -> None:
    for seed in SEEDS:
        program = program_of(seed // 2, keyed=seed % 2 == 0)
        ast.parse("\n".join(function_source(program)))
        ast.parse(script_of(program))
        defined = {argument.name for argument in program.arguments}
        for step in program.steps:
            assert defined.issuperset(step.inputs)
            defined.add(step.name)
        assert defined.issuperset(output.name for output in program.outputs)


def test_shardings_of_arguments_and_results_divide() -> None:
    for seed in SEEDS:
        program = program_of(seed // 2, keyed=seed % 2 == 0)
        sizes = dict(program.mesh)
        shapes = program.shapes()
        held = [(a.shape, a.spec) for a in program.arguments]
        held += [(shapes[o.name], o.spec) for o in program.outputs]
        for shape, spec in held:
            for size, axes in zip(shape, spec, strict=True):
                for axis in axes:
                    assert size % sizes[axis] == 0


def test_data_is_small_integers_within_bounds() -> None:
    for seed in SEEDS:
        program = program_of(seed)
        for argument, value in zip(program.arguments, program.data(), strict=True):
            assert value.shape == argument.shape
            assert (value == value.round()).all()
            if argument.bound:
                assert value.min() >= 0
                assert value.max() < argument.bound


def test_a_planted_fault_is_found_and_the_right_text_agrees() -> None:
    case = cases_in("pairs.jsonl")["mlp"]
    right = verdict_of(case["before"], case["after"], 60)
    assert classified(right, differs=False) == AGREES
    assert classified(right, differs=True) == WRONG
    wrong = next(text for line, text in edits(case["after"]) if "all-reduce" in line)
    found = verdict_of(case["before"], wrong, 60)
    assert classified(found, differs=True) == FOUND
    assert classified(found, differs=False) == FALSE_ALARM


def test_a_text_that_is_refused_is_not_decided() -> None:
    case = cases_in("pairs.jsonl")["mlp"]
    refused = verdict_of(case["before"], case["after"].replace(" dot(", " fft("), 60)
    assert refused.verdict == "refused"
    assert classified(refused, differs=False) == OPEN
    assert classified(refused, differs=True) == MISSED


def test_a_check_that_raises_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise IndexError("index 3")

    monkeypatch.setattr("pitcheck.engine.check.check", broken)
    case = cases_in("pairs.jsonl")["mlp"]
    raised = verdict_of(case["before"], case["after"], 60)
    assert raised.reason.startswith("IndexError: index 3 (test_hunt.py:")
    assert classified(raised, differs=False) == RAISED


def test_texts_are_compared_without_their_places_in_files() -> None:
    """A text that is made again comes from other lines of the hunt."""
    text = 'H\n\nStackFrames\n1 {a}\n\n\n%f {\n x, metadata={op_name="y" stack_frame_id=7}\n}\n'
    other = text.replace("1 {a}", "1 {b}\n2 {c}").replace("id=7", "id=12")
    assert computations_of(text) == computations_of(other)
    assert computations_of(text) == '%f {\n x, metadata={op_name="y"}\n}'
    assert computations_of(text) != computations_of(text.replace(" x", " z"))


def test_a_check_that_takes_too_long_is_stopped() -> None:
    case = cases_in("pairs.jsonl")["words"]
    assert verdict_of(case["before"], case["after"], 0.01).verdict == "timeout"


@pytest.mark.parametrize("operator", ["pad", "take", "convolution"])
def test_programs_shrink_to_the_operator_that_matters(operator: str) -> None:
    def holds(program: Program) -> bool:
        return operator in program.operators and program.devices > 1

    large = next(
        program
        for program in map(program_of, range(2000))
        if holds(program) and len(program.steps) > 2
    )
    found = smallest(large, holds)
    assert found.operators == [operator]
    assert found.devices == 2
    assert not any(step.spec and any(step.spec) for step in found.steps)
    assert found == smallest(replace(found, shardy=True), holds)
