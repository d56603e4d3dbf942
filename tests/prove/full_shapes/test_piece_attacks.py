"""Plans made to pass in pieces or at a few coordinates, and right ones made to look wrong there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from zoo.builder import Builder, intervals, lineage, table
from zoo.pairs import pair

from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.algebra.residues.drawn_primes import Family
from pitcheck.claims.problem import Problem
from pitcheck.plan.model import Number, Plan
from pitcheck.prove.full_shapes.pieces import TOGETHER, pieces
from pitcheck.prove.proof import Proof, Settings
from pitcheck.prove.stage_proof import prove_stage
from pitcheck.stage.evaluate import Keeping, compare_target, evaluate_stage
from pitcheck.stage.reductions.sizes import Measured
from pitcheck.stage.shaped_stage import shape_reduced
from pitcheck.stage.shapes import symbolic_pair
from pitcheck.stage.stage import Stage, drawn_reference

Pair = tuple[Plan, Plan]
RANKS, ROWS, WIDTH = 16, 64, 8
PLENTY = 1 << 30


def _settings(memory: int, *, every: bool) -> Settings:
    return Settings(np, 1, -64.0, 1, full_shapes=True, max_memory=memory, full_coordinates=every)


def _stage(plans: Pair) -> Stage:
    return Problem.of(*plans).whole_stage()


def _proof(stage: Stage, memory: int, *, every: bool) -> Proof:
    keys = {value: str(value) for value in drawn_reference(stage)}
    return prove_stage(stage, keys, _settings(memory, every=every), "statement")


def _least(stage: Stage) -> int:
    """Return the bytes that the whole stage takes."""
    symbolic = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts())
    return pieces(Measured(stage, symbolic), None, PLENTY)[0].demand.bytes(TOGETHER)


# --- one device, whose only pieces are slices


def _sliced(change: Callable[[Builder, str], str]) -> Pair:
    """y = exp(x w), of which ``change`` is made on the parallel side before exp."""
    plans = []
    for name in ("reference", "parallel"):
        b = Builder(name)
        x, w = b.input("x", (96, WIDTH)), b.parameter("w", (WIDTH, WIDTH))
        y = b.op("matmul", x, w)
        b.output(b.op("exp", y if name == "reference" else change(b, y), out="z"))
        plans.append(b.plan())
    return plans[0], plans[1]


def _at_row(row: int) -> Callable[[Builder, str], str]:
    def change(b: Builder, y: str) -> str:
        here = b.op("eq", b.op("positions", y, axis=0), Number(row))
        found: str = b.op("masked_fill", y, b.op("unsqueeze", here, axis=1), Number(0))
        return found

    return change


def _flipped(sizes: tuple[int, ...], axis: int) -> Callable[[Builder, str], str]:
    def change(b: Builder, y: str) -> str:
        turned = b.op("flip", b.op("view", y, sizes=sizes), axes=(axis,))
        found: str = b.op("view", turned, sizes=(96, WIDTH))
        return found

    return change


def _running(b: Builder, y: str) -> str:
    """Return the difference of two running sums, one of them two rows late and not one."""
    late = b.op("pad", b.op("slice", y, axis=0, start=0, stop=94), axis=0, before=2)
    found: str = b.op("sub", b.op("cumsum", y, axis=0), b.op("cumsum", late, axis=0))
    return found


def _scaled(literal: str) -> Callable[[Builder, str], str]:
    def change(b: Builder, y: str) -> str:
        scaled = b.op("scale_by_size", y, axis=0, exponent="1")
        found: str = b.op("mul", scaled, Number(literal))
        return found

    return change


SLICED = {
    "the last row": (_at_row(95), "failed"),
    "a row in the middle": (_at_row(5), "failed"),
    "a row behind the last": (_at_row(96), "proven"),
    "neighbours exchanged": (_flipped((48, 2, WIDTH), 1), "failed"),
    "halves exchanged": (_flipped((2, 48, WIDTH), 0), "failed"),
    "running sums": (_running, "failed"),
    "divided by the size of a slice": (_scaled("1/48"), "failed"),
    "divided by its own size": (_scaled("1/96"), "proven"),
}


@pytest.mark.parametrize("name", SLICED)
def test_no_slice_hides_a_wrong_row(name: str) -> None:
    change, expected = SLICED[name]
    stage = _stage(_sliced(change))
    assert _proof(stage, PLENTY, every=True).outcome == expected
    least = _least(stage)
    found = [_proof(stage, memory, every=True).outcome for memory in (least - 1, least // 4)]
    assert found[0] == expected
    assert found[1] in (expected, "inconclusive")


def test_a_batch_as_large_as_its_heads_is_not_taken_for_them() -> None:
    for axis, expected in ((2, "proven"), (0, "failed")):
        plans = []
        for b in (Builder("reference"), Builder("parallel")):
            x = b.input("x", (8, 8, 4))
            scores = b.op("matmul", x, b.op("transpose", x, dim0=1, dim1=2))
            own = 2 if b.name == "reference" else axis
            b.output(b.op("softmax", scores, axis=own, out="z"))
            plans.append(b.plan())
        stage = _stage((plans[0], plans[1]))
        whole, apart = (_proof(stage, memory, every=True) for memory in (PLENTY, _least(stage) - 1))
        assert whole.outcome == expected
        assert apart.outcome in (expected, "inconclusive")


# --- sums over ranks, of which one term is kept


def _summed(
    reference: str | None = None,
    parallel: str | None = None,
    local: str = "sum",
    reduction: str = "sum",
    parts: Any = None,
) -> Pair:
    r = Builder("reference")
    x, w = r.input("x", (ROWS, 4)), r.parameter("w", (4,))
    total = r.op("sum", r.op("exp", r.op("mul", x, w)), axes=(0,))
    if reference:
        total = r.op("mul", total, Number(reference))
    r.output(r.op("identity", total, out="z"))
    b = Builder("parallel", {"dp": RANKS})
    cut = intervals("dp", *([part] for part in parts)) if parts else "dp"
    x, w = b.input("x", (ROWS // RANKS, 4), {0: cut}), b.parameter("w", (4,), {})
    part = b.op(local, b.op("exp", b.op("mul", x, w)), axes=(0,))
    total = b.op("all_reduce", part, group="dp", reduction=reduction)
    if parallel:
        total = b.op("mul", total, Number(parallel))
    b.output(b.op("identity", total, out="z"))
    return r.plan(), b.plan()


PARTS = [(4 * rank, 4 * rank + 4) for rank in range(RANKS)]
SUMS = {
    "sums": (_summed(), "proven"),
    "parts in another order": (_summed(parts=PARTS[::-1]), "proven"),
    "means of means": (_summed("1/64", "1/16", "mean"), "proven"),
    "averages": (_summed("1/16", reduction="avg"), "proven"),
    "averages for sums": (_summed(reduction="avg"), "failed"),
    "sums for averages": (_summed("1/16"), "failed"),
    "averages of means for means of sums": (_summed("1/4", None, "mean", "avg"), "failed"),
    "a mean over one rank less": (_summed("1/64", "1/15", "mean"), "failed"),
    "a mean over half of the ranks": (_summed("1/64", "1/8", "mean"), "failed"),
    "a part taken twice": (_summed(parts=[*PARTS[:7], PARTS[6], *PARTS[8:]]), "failed"),
    "the first part for the last": (_summed(parts=[*PARTS[:-1], PARTS[0]]), "failed"),
    "a part that begins late": (_summed(parts=[*PARTS[:7], (29, 33), *PARTS[8:]]), "failed"),
}


@pytest.mark.parametrize("name", SUMS)
def test_one_term_stands_for_all_of_a_sum(name: str) -> None:
    plans, expected = SUMS[name]
    stage = _stage(plans)
    for every in (True, False):
        assert _proof(stage, PLENTY, every=every).outcome == expected


# --- rows on ranks, of which one is kept


def _rowwise(wrong: int | None = None, peers: list[int] | None = None) -> Pair:
    """z = exp(x): rank ``wrong`` negates it, or every rank sends its rows on to a peer."""
    r = Builder("reference")
    r.output(r.op("exp", r.input("x", (ROWS, 4)), out="z"))
    b = Builder("parallel", {"dp": RANKS})
    z = b.op("exp", b.input("x", (4, 4), {0: "dp"}))
    if wrong is not None:
        others = tuple(rank for rank in range(RANKS) if rank != wrong)
        b.op("neg", z, out="own", where={"dp": (wrong,)})
        z = b.op("identity", z, out="own", where={"dp": others})
    if peers:
        b.send(z, table("dp", *peers), (), batch="ring")
        sources = table("dp", *(peers.index(rank) for rank in range(RANKS)))
        z = b.receive(z, "came", sources, (), batch="ring")
    parts = [PARTS[rank - 1] for rank in range(RANKS)] if peers else PARTS
    held = lineage("z", {0: intervals("dp", *([part] for part in parts))})
    b.output(b.op("identity", z, out="z"), spec=held)
    return r.plan(), b.plan()


RING = [(rank + 1) % RANKS for rank in range(RANKS)]
CROSSED = [*RING[:6], RING[7], RING[6], *RING[8:]]
RANKWISE = {
    "rows": (_rowwise(), "proven"),
    "the last rank": (_rowwise(RANKS - 1), "failed"),
    "a rank in the middle": (_rowwise(7), "failed"),
    "a ring": (_rowwise(peers=RING), "proven"),
    "a ring with two exchanged": (_rowwise(peers=CROSSED), "failed"),
}


@pytest.mark.parametrize("name", RANKWISE)
def test_one_rank_stands_for_its_like_alone(name: str) -> None:
    plans, expected = RANKWISE[name]
    stage = _stage(plans)
    for every in (True, False):
        assert _proof(stage, PLENTY, every=every).outcome == expected


def _dropout(start: int) -> Pair:
    """Dropout over four ranks; the part of the last one begins at row ``start``."""
    r = Builder("reference")
    x = r.input("x", (ROWS, 4))
    kept = r.op("dropout_mask", x, stream="s", probability="1/4")
    r.output(r.op("dropout", r.op("exp", x), kept, probability="1/4", out="z"))
    b = Builder("parallel", {"dp": 4})
    x = b.input("x", (ROWS // 4, 4), {0: "dp"})
    starts = table("dp", (0, 0), (16, 0), (32, 0), (start, 0))
    kept = b.op("dropout_mask", x, stream="s", probability="1/4", start=starts, whole=(ROWS, 4))
    z = b.op("dropout", b.op("exp", x), kept, probability="1/4", out="z")
    b.output(z, spec=lineage("z", {0: "dp"}))
    return r.plan(), b.plan()


@pytest.mark.parametrize(("start", "expected"), [(48, "proven"), (47, "failed")])
def test_streams_that_count_along_the_batch_are_not_sliced(start: int, expected: str) -> None:
    stage = _stage(_dropout(start))
    assert _proof(stage, _least(stage) - 1, every=False).outcome == expected


# --- values that are dropped, and drawn again

HELD = (
    "embedding_padded",
    "cross_entropy_ranges",
    "zero_adamw",
    "masked_mean",
    "experts_all_to_all",
)


@pytest.mark.parametrize("name", HELD)
def test_what_is_dropped_and_drawn_again_is_the_same(name: str) -> None:
    """Holding values, and making inputs early or late, changes no number and no decision."""
    stage = _stage(pair(name))
    shaped = shape_reduced(stage)
    chain = _settings(PLENTY, every=False).primes.chain(Family(3), 0)
    kept = Keeping.targets(shaped)
    anew = Keeping(kept.reference, kept.parallel, frozenset(), draws_anew=True)
    seen = []
    for keep in (None, kept, anew):
        algebra = ResidueAlgebra(np, chain, 7, range(6))
        evaluated = evaluate_stage(shaped, algebra, keep=keep)
        compared = [compare_target(shaped, evaluated, n) for n in range(len(stage.targets))]
        numbers = [value.data.tolist() for c in compared for value in (c.expected, c.actual)]
        decided = [(d.site, d.true.tolist(), d.false.tolist()) for d in algebra.decisions]
        seen.append((numbers, decided, algebra.void.tolist()))
    assert seen[0] == seen[1] == seen[2]
