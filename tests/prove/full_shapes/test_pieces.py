"""The pieces of a stage compare all that it compares, each once, and decide what it decides."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from zoo.builder import Builder, lineage
from zoo.mutations import mutants

from pitcheck.base.options import Options
from pitcheck.claims.problem import Problem
from pitcheck.commands.reading import read_pair
from pitcheck.engine.check import check
from pitcheck.errors import BudgetError
from pitcheck.plan.model import Number, Plan
from pitcheck.prove.full_shapes import pieces as pieces_module
from pitcheck.prove.full_shapes.pieces import Piece, number_of, pieces, told
from pitcheck.prove.proof import Proof, Settings
from pitcheck.prove.stage_proof import prove_stage
from pitcheck.report.report import Report
from pitcheck.stage.reductions.sizes import Measured
from pitcheck.stage.shapes import symbolic_pair
from pitcheck.stage.stage import compared_rows, drawn_reference

ROWS, WIDTH, RANKS = 48, 6, 4
LITTLE = 1 << 12
PLENTY = 1 << 30
SPLIT = {"dp": RANKS}


def _plan(ranks: int, wrong: str = "") -> Plan:
    """y = exp(x w) by row, over ``ranks``. ``wrong``: a rank, or "last element", that adds 1."""
    b = Builder("plan", SPLIT if ranks > 1 else None)
    spec: Any = {0: "dp"} if ranks > 1 else None
    x = b.input("x", (ROWS // ranks, WIDTH), spec)
    w = b.parameter("w", (WIDTH, WIDTH), {} if ranks > 1 else None)
    y = b.op("exp", b.op("matmul", x, w))
    if wrong == "last rank":
        last = b.op("add", y, Number(1), out="shifted", where={"dp": (RANKS - 1,)})
        y = b.op("identity", y, out="y", where={"dp": tuple(range(RANKS - 1))})
        b.op("identity", last, out="y", where={"dp": (RANKS - 1,)})
        y = "y"
    elif wrong == "last row":
        head = b.op("slice", y, axis=0, start=0, stop=ROWS // ranks - 1)
        tail = b.op("slice", y, axis=0, start=ROWS // ranks - 1, stop=ROWS // ranks)
        y = b.op("cat", head, b.op("add", tail, Number(1)), axis=0)
    b.output(b.op("identity", y, out="z"), spec=lineage("z", spec) if ranks > 1 else None)
    return b.plan()


def _settings(memory: int, seed: int = 1) -> Settings:
    return Settings(np, seed, -64.0, 1, full_shapes=True, max_memory=memory, full_coordinates=True)


def _measured(parallel: Plan, ranks: int = RANKS) -> Measured:
    problem = Problem.of(_plan(1), parallel)
    stage = problem.whole_stage()
    symbolic = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts())
    return Measured(stage, symbolic)


def _proof(parallel: Plan, memory: int, reference: Plan | None = None) -> Proof:
    stage = Problem.of(reference or _plan(1), parallel).whole_stage()
    keys = {value: str(value) for value in drawn_reference(stage)}
    return prove_stage(stage, keys, _settings(memory), "statement")


def _least(parallel: Plan) -> int:
    """Return the bytes that the whole stage takes."""
    return pieces(_measured(parallel), None, PLENTY)[0].demand.bytes(pieces_module.TOGETHER)


def _compared(part: Piece) -> int:
    """Return the elements of the reference that a piece compares."""
    target = part.found.stage.targets[0].cut.reference
    return prod(part.found.symbolic.reference.shape(target, part.found.sizes))


@pytest.mark.parametrize("memory", [PLENTY, 1 << 16, 1 << 15])
def test_slices_have_all_places_of_an_axis(memory: int) -> None:
    parts = pieces(_measured(_plan(RANKS)), None, memory)
    assert (number_of(parts) > 1) == (memory != PLENTY)
    assert sum(part.count * _compared(part) for part in parts) == ROWS * WIDTH
    assert all(part.demand.bytes(pieces_module.TOGETHER) <= memory for part in parts)


def _rowwise(rows: int, slope: str = "2") -> Plan:
    b = Builder("rows")
    b.output(b.op("mul", b.op("exp", b.input("x", (rows, WIDTH))), Number(slope), out="z"))
    return b.plan()


def _measured_rows(rows: int) -> Measured:
    stage = Problem.of(_rowwise(rows), _rowwise(rows)).whole_stage()
    return Measured(stage, symbolic_pair(stage.reference, stage.parallel, stage.all_cuts()))


@pytest.mark.parametrize(("rows", "counts"), [(48, [8]), (50, [4, 4]), (53, [2, 6])])
def test_slices_of_one_size_are_one_statement(rows: int, counts: list[int]) -> None:
    found = _measured_rows(rows)
    memory = pieces(found, None, PLENTY)[0].demand.bytes(pieces_module.TOGETHER) // 6
    parts = pieces(found, None, memory)
    assert [part.count for part in parts] == counts
    assert sum(part.count * _compared(part) for part in parts) == rows * WIDTH
    assert told(parts) == (f"compared in 8 pieces, {len(counts)} of them distinct, each once",)
    assert told(pieces(found, None, PLENTY)) == ()


@pytest.mark.parametrize("rows", [48, 50])
@pytest.mark.parametrize(("slope", "outcome"), [("2", "proven"), ("2000001/1000000", "failed")])
def test_one_slice_of_a_size_decides_for_all(rows: int, slope: str, outcome: str) -> None:
    memory = pieces(_measured_rows(rows), None, PLENTY)[0].demand.bytes(pieces_module.TOGETHER) // 6
    proof = _proof(_rowwise(rows, slope), memory, _rowwise(rows))
    assert proof.outcome == outcome
    if outcome == "proven":
        assert any("compared in 8 pieces" in line for line in proof.reductions)


def test_groups_of_rows_have_every_compared_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces_module, "_units", lambda _: {})
    found = _measured(_plan(RANKS))
    parts = pieces(found, None, _least(_plan(RANKS)) - 1)
    whole = compared_rows(found.stage.targets[0], found.stage.parallel)[2]
    codes = [
        code
        for part in parts
        for code in compared_rows(part.found.stage.targets[0], part.found.stage.parallel)[2]
    ]
    assert len(parts) > 1
    assert sorted(codes) == sorted(whole.tolist())
    assert len(set(codes)) == RANKS


@pytest.mark.parametrize("units", ["slices", "rows"])
@pytest.mark.parametrize("wrong", ["", "last rank", "last row"])
def test_pieces_decide_what_the_whole_decides(
    units: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = _proof(_plan(RANKS, wrong), PLENTY)
    assert whole.outcome == ("failed" if wrong else "proven")
    if units == "rows":
        monkeypatch.setattr(pieces_module, "_units", lambda _: {})
    memory = _least(_plan(RANKS, wrong)) - 1
    assert number_of(pieces(_measured(_plan(RANKS, wrong)), None, memory)) > 1
    proof = _proof(_plan(RANKS, wrong), memory)
    assert proof.outcome == whole.outcome
    if wrong == "last rank":
        assert proof.differing is not None
        assert proof.differing.tolist() == [RANKS - 1]


def test_the_error_is_that_of_one_piece() -> None:
    whole = _proof(_plan(RANKS), PLENTY)
    apart = _proof(_plan(RANKS), _least(_plan(RANKS)) // 4)
    assert any("compared in" in line for line in apart.reductions)
    assert apart.attempts == whole.attempts
    assert apart.error_log2 <= -64.0
    assert abs(apart.error_log2 - whole.error_log2) < 8


def test_what_mixes_an_axis_is_not_sliced_along_it() -> None:
    b = Builder("sum")
    b.output(b.op("sum", b.op("exp", b.input("x", (4096,), None)), axes=(0,)))
    stage = Problem.of(b.plan(), b.plan()).whole_stage()
    found = Measured(stage, symbolic_pair(stage.reference, stage.parallel, stage.all_cuts()))
    assert len(pieces(found, None, PLENTY)) == 1
    with pytest.raises(BudgetError, match=r"no axis that can be sliced.*--max-memory \d+MiB"):
        pieces(found, None, LITTLE)


def test_what_does_not_fit_is_left_open_with_what_it_needs() -> None:
    b = Builder("sum")
    b.output(b.op("sum", b.op("exp", b.input("x", (4096,), None)), axes=(0,), out="total"))
    report = _checked(b.plan(), b.plan(), 1 << 16)
    assert (report.verdict, report.findings[0].code) == ("inconclusive", "PIT203")
    assert "the stage of 'total' at full shapes" in report.findings[0].title


def _checked(reference: Plan, parallel: Plan, memory: int) -> Report:
    return check(reference, parallel, Options(seed=1, shapes="full", max_memory=memory))


TINY = "plans/llama3-tiny.toml"
APART = 700_000
"""The bytes in which some stages of that model do not fit whole."""


def test_a_right_model_is_proven_in_pieces() -> None:
    report = _checked(*read_pair(TINY, ()), APART)
    assert report.verdict == "equivalent", report.findings
    assert any("compared in" in line for line in report.reductions)


@pytest.mark.nightly
def test_wrong_models_are_caught_in_pieces_as_whole() -> None:
    reference, parallel = read_pair(TINY, ())
    made = list(mutants(parallel))
    for _, wrong in made[:: len(made) // 6]:
        whole, apart = (_checked(reference, wrong, memory) for memory in (PLENTY, APART))
        assert whole.verdict in ("mismatch", "invalid")
        # The run of both plans that shows a difference may not fit into so little memory.
        assert apart.verdict in (whole.verdict, "inconclusive")
