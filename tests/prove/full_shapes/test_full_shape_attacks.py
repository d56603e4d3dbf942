"""Wrong plans made to pass at full shapes: in slabs, in slices, over processes, and in comparisons.

Each stands beside a right one that differs from it as little as can be.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from zoo.builder import Builder, intervals, lineage
from zoo.pairs import pair

from pitcheck.algebra import keyed
from pitcheck.algebra.residues import array_forms
from pitcheck.base.options import Options
from pitcheck.claims.problem import Problem
from pitcheck.engine.check import check
from pitcheck.plan.model import Number, Plan
from pitcheck.prove import pool, stage_proof
from pitcheck.prove.draws.unshown import differs_in
from pitcheck.prove.full_shapes.pieces import TOGETHER, pieces
from pitcheck.prove.proof import Proof, Settings
from pitcheck.prove.stage_proof import prove_stage
from pitcheck.report.report import VOLATILE, Report
from pitcheck.stage.evaluate import Comparison
from pitcheck.stage.reductions.sizes import Measured
from pitcheck.stage.shapes import symbolic_pair
from pitcheck.stage.slabs import slab_sums, summed_inputs
from pitcheck.stage.stage import Stage, drawn_reference

Pair = tuple[Plan, Plan]
Part = Callable[[Builder, Any], Any]
PLENTY = 1 << 30


def _verdict(plans: Pair, **more: Any) -> str:
    options = Options(seed=3, shapes="full", coordinates="full", explain=False, **more)
    return check(*plans, options).verdict


def _blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take every stage for proven at reduced sizes, so that full shapes alone decide."""
    own = stage_proof.prove_whole
    monkeypatch.setattr(
        stage_proof, "prove_whole", lambda statement, _: own(statement, lambda _: Proof("proven"))
    )


# --- sums in slabs


def _sum(x: str = "1", square: bool = True, after: str = "1", **how: Any) -> Part:
    """Return a sum of an input times ``x``, squared, and that sum times ``after``."""

    def made(b: Builder, given: Any) -> Any:
        scaled = given if x == "1" else b.op("mul", given, Number(x))
        total = b.op("sum", b.op("square", scaled) if square else scaled, **how)
        return total if after == "1" else b.op("mul", total, Number(after))

    return made


def _both(first: str, second: str) -> Part:
    def made(b: Builder, x: Any) -> Any:
        return b.op("add", _sum(square=False, after=first)(b, x), _sum(after=second)(b, x))

    return made


def _mean(after: str) -> Part:
    def made(b: Builder, x: Any) -> Any:
        return b.op("mul", b.op("mean", b.op("square", x)), Number(after))

    return made


SQUARES = _sum()


def _slabs(
    ours: Part = SQUARES,
    theirs: Part = SQUARES,
    parts: Any = None,
    rows: int = 52,
    local: int = 13,
    spec: Any = None,
    reduced: bool = True,
    **given: Any,
) -> Pair:
    """Return a sum of all rows, and the same over the parts of four ranks."""
    r, b = Builder("reference"), Builder("parallel", {"dp": 4})
    r.output(r.op("identity", ours(r, r.input("x", (rows, 3), **given)), out="z"))
    held = spec if parts is None else {0: intervals("dp", *parts)}
    y = theirs(b, b.input("x", (local, 3), {0: "dp"} if held is None else held, **given))
    y = b.op("all_reduce", y, group="dp", reduction="sum") if reduced else y
    b.output(b.op("identity", y, out="z"))
    return r.plan(), b.plan()


def _parts(*last: tuple[int, int]) -> Any:
    return [[(0, 13)], [(13, 26)], [(26, 39)], list(last)]


HALF = lineage("x", {0: "dp"}, scale="1/2")
TERMS = lineage("x", {}, partial=("dp",))
INTEGERS: Any = {"dtype": "int64", "bounds": (-5, 9)}
IN_SLABS: dict[str, tuple[Pair, str]] = {
    "parts": (_slabs(), "equivalent"),
    "a part one row early": (_slabs(parts=_parts((38, 51))), "mismatch"),
    "the last row is zero": (_slabs(parts=_parts((39, 51), (-2, 1))), "mismatch"),
    "the last row is anything": (_slabs(parts=_parts((39, 51), (-1, 1))), "mismatch"),
    "padding of zeros": (_slabs(parts=_parts((39, 51), (-2, 1)), rows=51), "equivalent"),
    "padding of anything": (_slabs(parts=_parts((39, 51), (-1, 1)), rows=51), "mismatch"),
    "a rank of zeros": (_slabs(parts=_parts((-2, 13)), rows=39), "equivalent"),
    "rows exchanged at a border": (
        _slabs(parts=[[(0, 12), (13, 14)], [(12, 13), (14, 26)], [(26, 39)], [(39, 52)]]),
        "equivalent",
    ),
    "a row twice at a border": (
        _slabs(parts=[[(0, 12), (12, 13)], [(12, 13), (14, 26)], [(26, 39)], [(39, 52)]]),
        "mismatch",
    ),
    "a scale squared": (_slabs(_sum(after="4/9"), _sum("-2/3")), "equivalent"),
    "a scale not squared": (_slabs(_sum(after="2/3"), _sum("2/3")), "mismatch"),
    "a root squared": (_slabs(_sum(after="2"), _sum("sqrt(2)")), "equivalent"),
    "a lineage with a scale": (_slabs(_sum(after="1/4"), spec=HALF), "equivalent"),
    "a lineage with another scale": (_slabs(_sum(after="1/2"), spec=HALF), "mismatch"),
    "terms summed": (
        _slabs(_sum(square=False), _sum(square=False), local=52, spec=TERMS),
        "equivalent",
    ),
    "squares of terms summed": (_slabs(local=52, spec=TERMS), "mismatch"),
    "replicas": (_slabs(theirs=_sum(after="1/4"), local=52, spec={}), "equivalent"),
    "replicas added up": (_slabs(local=52, spec={}), "mismatch"),
    "two sums": (_slabs(_both("2", "3"), _both("2", "3")), "equivalent"),
    "two sums with exchanged factors": (_slabs(_both("2", "3"), _both("3", "2")), "mismatch"),
    "by column": (_slabs(_sum(axes=(0,)), _sum(axes=(-2,))), "equivalent"),
    "a mean of means": (_slabs(_mean("1"), _mean("1/4")), "equivalent"),
    "a sum for a mean": (_slabs(_mean("1"), _sum(after="1/155")), "mismatch"),
    "not a number": (_slabs(_sum("nan"), _sum(after="nan")), "equivalent"),
    "infinite": (_slabs(_sum("nan"), _sum("inf")), "mismatch"),
    "integers": (_slabs(_sum(square=False), _sum(square=False), **INTEGERS), "equivalent"),
    "an integer twice": (
        _slabs(_sum(square=False), _sum(square=False), _parts((38, 51)), **INTEGERS),
        "mismatch",
    ),
}


@pytest.mark.parametrize("blind", [False, True])
def test_no_slab_hides_a_wrong_sum(blind: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slabs are 12 of 52 rows, and drawn in bulk from their first word on."""
    monkeypatch.setattr(summed_inputs, "SLAB", 40)
    for module in (keyed, array_forms):
        monkeypatch.setattr(module, "SHORT", 50)
    if blind:
        _blind(monkeypatch)
    sums: list[int] = []
    own = slab_sums._SlabSums.of

    def counted(self: Any, given: Any) -> Any:
        sums.append(given.value)
        return own(self, given)

    monkeypatch.setattr(slab_sums._SlabSums, "of", counted)
    assert {name: _verdict(plans) for name, (plans, _) in IN_SLABS.items()} == {
        name: expected for name, (_, expected) in IN_SLABS.items()
    }
    assert len(sums) >= (30 if blind else 15)


# --- slices, of which one of each width is proven


def _differences(axes: int, size: int, *, zero: bool) -> Plan:
    """Return the product of all differences of ``axes`` numbers, for any ``axes`` places.

    It is 0 unless all of the places differ. ``zero``: it is multiplied by 0.
    """
    b = Builder("differences")
    x = b.input("x", (size,))
    numbers = []
    for axis in range(axes):
        own = x
        for other in range(axes):
            own = own if other == axis else b.op("unsqueeze", own, axis=other)
        numbers.append(own)
    product: Any = Number("0") if zero else Number("1")
    for first in range(axes):
        for second in range(first):
            product = b.op("mul", b.op("sub", numbers[first], numbers[second]), product)
    b.output(b.op("identity", product, out="z"))
    return b.plan()


def _stage(plans: Pair) -> Stage:
    return Problem.of(*plans).whole_stage()


def _measured(stage: Stage) -> Measured:
    return Measured(stage, symbolic_pair(stage.reference, stage.parallel, stage.all_cuts()))


def _proof(stage: Stage, memory: int, *, full: bool = True) -> Proof:
    keys = {value: str(value) for value in drawn_reference(stage)}
    settings = Settings(np, 1, -64.0, 1, full_shapes=full, max_memory=memory)
    return prove_stage(stage, keys, settings, "statement")


@pytest.mark.parametrize(("axes", "size"), [(2, 64), (3, 16), (4, 8), (5, 6)])
def test_elements_of_several_places_have_as_many(
    axes: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slice of three or four places has no element with five different ones."""
    right, wrong = (_differences(axes, size, zero=zero) for zero in (True, False))
    stage = _stage((right, wrong))
    assert _proof(stage, PLENTY, full=False).outcome == "failed"
    assert _proof(_stage((wrong, wrong)), PLENTY, full=False).outcome == "proven"
    _blind(monkeypatch)
    (whole,) = pieces(_measured(stage), None, PLENTY)
    needed = whole.demand.bytes(TOGETHER)
    for part in (1, 2, 8, 64):
        outcome = _proof(stage, needed // part).outcome
        assert outcome in (("failed",) if part == 1 else ("failed", "inconclusive"))


# --- several processes


def _lasting(report: Report) -> dict[str, Any]:
    return {k: v for k, v in msgspec.to_builtins(report).items() if k not in VOLATILE}


@pytest.mark.parametrize("jobs", [2, 3])
def test_processes_that_die_change_no_report(
    jobs: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each stage's process dies once, or answers nothing, or is slow."""
    plans = pair("megatron_mlp_silu")
    first = check(*plans, Options(seed=1, shapes="full", explain=False))
    here, own = os.getpid(), pool.prove_stage

    def dying(stage: Any, keys: Any, settings: Any, statement: str) -> Any:
        mark = tmp_path / statement[:16].encode().hex()
        if os.getpid() == here or mark.exists():
            return own(stage, keys, settings, statement)
        mark.touch()
        if statement[0] in "01234567":
            os._exit(3)
        return None

    monkeypatch.setattr(pool, "prove_stage", dying)
    second = check(*plans, Options(seed=1, shapes="full", explain=False, jobs=jobs))
    assert list(tmp_path.iterdir())
    assert _lasting(first) == _lasting(second)


def test_a_process_that_dies_twice_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "prove_stage", lambda *_: os._exit(9))
    report = check(
        *pair("megatron_mlp_silu"), Options(seed=1, shapes="full", jobs=2, explain=False)
    )
    assert (report.verdict, report.findings[0].code) == ("inconclusive", "PIT203")
    assert "ended twice without an answer, at last with exit code 9" in report.findings[0].title


# --- the comparison of both sides


def _constants(ours: float, theirs: float, *parts: Any, local: int = 4) -> Pair:
    r, b = Builder("reference"), Builder("parallel", {"dp": 2})
    r.output(r.op("identity", r.constant("c", ours, (8, 3)), out="z"))
    held = lineage("z", {0: intervals("dp", *parts)})
    b.output(b.op("identity", b.constant("c", theirs, (local, 3)), out="z"), spec=held)
    return r.plan(), b.plan()


def _special(ours: str, *theirs: str) -> Pair:
    r, b = Builder("reference"), Builder("parallel", {"dp": 2})
    r.output(r.op("add", r.input("x", (8, 3)), Number(ours), out="z"))
    y = b.input("x", (4, 3), {0: "dp"})
    for number in theirs:
        y = b.op("add", y, Number(number))
    b.output(b.op("identity", y, out="z"), spec=lineage("z", {0: "dp"}))
    return r.plan(), b.plan()


HALVES = [(0, 4)], [(4, 8)]
PADDED = [(0, 4), (-1, 1)], [(4, 8), (-1, 1)]
ZEROED = [(0, 4), (-2, 1)], [(4, 8), (-2, 1)]
COMPARED = {
    "one constant": (_constants(1, 1, *HALVES), "equivalent"),
    "another constant": (_constants(1, 2, *HALVES), "mismatch"),
    "beside padding": (_constants(1, 1, *PADDED, local=5), "equivalent"),
    "another beside padding": (_constants(1, 2, *PADDED, local=5), "mismatch"),
    "padding of zeros is judged": (_constants(1, 1, *ZEROED, local=5), "mismatch"),
    "padding of zeros": (_constants(0, 0, *ZEROED, local=5), "equivalent"),
    "a rank of padding": (_constants(1, 1, [(0, 8)], [(-1, 8)], local=8), "equivalent"),
    "another and a rank of padding": (
        _constants(1, 2, [(0, 8)], [(-1, 8)], local=8),
        "mismatch",
    ),
    "infinity": (_special("inf", "inf"), "equivalent"),
    "infinity of another sign": (_special("inf", "-inf"), "mismatch"),
    "infinity and none": (_special("inf", "nan"), "mismatch"),
    "none of infinities": (_special("nan", "inf", "-inf"), "equivalent"),
    "a number for infinity": (_special("inf", "1"), "mismatch"),
    "infinity for a number": (_special("1", "inf"), "mismatch"),
}


@pytest.mark.parametrize("name", COMPARED)
def test_what_is_stored_once_is_compared_everywhere(name: str) -> None:
    plans, expected = COMPARED[name]
    assert _verdict(plans) == expected


@pytest.mark.parametrize("shape", [(4, 1), (4, 3, 2), (4, 1, 5), (1, 3, 2)])
def test_differences_are_seen_whatever_is_stored_once(shape: tuple[int, ...]) -> None:
    """Every axis is stored once or in full; the oracle looks at a copy."""
    generator = np.random.default_rng(1)
    good = np.array([True, False, True, True])
    for stored in np.ndindex(*(2 for _ in shape)):
        own = tuple(size if full else 1 for size, full in zip(shape, stored, strict=True))
        for share in (0.0, 0.1, 0.5):
            few = generator.random(own) < share
            differs = np.broadcast_to(few, (4, *shape[1:]))
            comparison: Any = Comparison.__new__(Comparison)
            comparison.differs = differs
            copied = np.array(differs)[good]
            assert differs_in(comparison, good) == copied.any()
