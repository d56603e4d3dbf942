"""Sums that are evaluated in slabs have the residues of the whole, and hide nothing."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernels.device_samples import XP
from zoo.builder import Builder, intervals

from kernels import host_kernels
from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.algebra.residues.drawn_primes import Family
from pitcheck.algebra.residues.free_functions import FreeAlgebra
from pitcheck.claims.problem import Problem
from pitcheck.errors import BudgetError
from pitcheck.plan.model import Number, Plan
from pitcheck.prove.full_shapes.demand import demand_of
from pitcheck.prove.full_shapes.pieces import TOGETHER, pieces
from pitcheck.prove.proof import Proof, Settings
from pitcheck.prove.stage_proof import prove_stage
from pitcheck.prove.stage_trials import StageTrials
from pitcheck.stage.evaluate import Keeping, compare_target, evaluate_stage
from pitcheck.stage.reductions.sizes import Measured
from pitcheck.stage.shaped_stage import ShapedStage, shape_stage
from pitcheck.stage.shapes import symbolic_pair
from pitcheck.stage.slabs import summed_inputs
from pitcheck.stage.stage import Stage, drawn_reference

RANKS, ROWS, COLUMNS = 4, 200, 132
PLENTY = 1 << 30
Pair = tuple[Plan, Plan]


@pytest.fixture(autouse=True)
def _small_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take slabs of 28 rows: none is a rank's part, and the last one is shorter."""
    monkeypatch.setattr(summed_inputs, "SLAB", 31 * COLUMNS)


def _squares(b: Builder, x: Any) -> Any:
    return b.op("sum", b.op("square", x))


def _norm(
    dimensions: tuple[int, ...] = (0, 1),
    reduced: tuple[bool, ...] = (True, True),
    scale: str = "1",
    squares: Callable[[Builder, Any], Any] = _squares,
    parts: Any = None,
) -> Pair:
    """Return the norm of some gradients, and the same of parts along their ``dimensions``.

    ``reduced``: which of the sums are added up over the ranks. ``scale`` is that of the last one.
    """
    r, b = Builder("reference"), Builder("parallel", {"dp": RANKS})
    sums: list[list[Any]] = [[], []]
    for number, dimension in enumerate(dimensions):
        name, shape = f"g{number}", [ROWS, COLUMNS]
        sums[0].append(squares(r, r.input(name, tuple(shape))))
        shape[dimension] //= RANKS
        cut = intervals("dp", *([part] for part in parts)) if parts else "dp"
        own = squares(b, b.input(name, tuple(shape), {dimension: cut}))
        if number == len(dimensions) - 1 and scale != "1":
            own = b.op("mul", own, Number(scale))
        if reduced[number]:
            own = b.op("all_reduce", own, group="dp", reduction="sum")
        sums[1].append(own)
    for builder, own in zip((r, b), sums, strict=True):
        total = builder.op("sum", builder.op("stack", *own, axis=0)) if len(own) > 1 else own[0]
        builder.output(builder.op("sqrt", total, out="norm"))
    return r.plan(), b.plan()


def _stage(plans: Pair) -> Stage:
    return Problem.of(*plans).whole_stage()


def _whole(stage: Stage) -> ShapedStage:
    symbolic = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts())
    keys = {value: str(value) for value in drawn_reference(stage)}
    return shape_stage(stage, symbolic, symbolic.system.full(), keys)


def _settings(memory: int = PLENTY) -> Settings:
    return Settings(np, 1, -64.0, 1, full_shapes=True, max_memory=memory, full_coordinates=True)


def _proof(plans: Pair, memory: int = PLENTY) -> Proof:
    stage = _stage(plans)
    keys = {value: str(value) for value in drawn_reference(stage)}
    return prove_stage(stage, keys, _settings(memory), "statement")


def _twice(b: Builder, x: Any) -> Any:
    return b.op("sum", b.op("mul", b.op("mul", x, x), Number("1/3")), axes=(0, 1))


def _plain(b: Builder, x: Any) -> Any:
    return b.op("sum", x)


def _by_column(b: Builder, x: Any) -> Any:
    return b.op("sum", b.op("square", b.op("sum", b.op("square", x), axes=(-2,), keepdim=True)))


IN_ORDER = [(50 * rank, 50 * rank + 50) for rank in range(RANKS)]
EVALUATED = {
    "squares": (_norm(), 2),
    "rows alone": (_norm((0,)), 1),
    "columns alone": (_norm((1,)), 1),
    "products and numbers": (_norm(squares=_twice), 2),
    "nothing but a sum": (_norm(squares=_plain), 2),
    "sums of rows": (_norm((1, 1), squares=_by_column), 2),
    "parts in another order": (_norm((0,), parts=IN_ORDER[::-1]), 1),
    "a part that begins late": (_norm((0,), parts=[*IN_ORDER[:3], (149, 199)]), 1),
}


@pytest.mark.parametrize("algebra", [ResidueAlgebra, FreeAlgebra])
@pytest.mark.parametrize("name", EVALUATED)
def test_slabs_have_the_residues_of_the_whole(
    name: str, algebra: type[ResidueAlgebra], monkeypatch: pytest.MonkeyPatch
) -> None:
    plans, inputs = EVALUATED[name]
    shaped = _whole(_stage(plans))
    chain = _settings().primes.chain(Family(3), 0)
    kept = Keeping.targets(shaped)
    slabs: list[tuple[int, int]] = []
    own = ResidueAlgebra.fresh_rows

    def counted(self: Any, key: str, shape: Any, rows: tuple[int, int], domain: Any) -> Any:
        slabs.append(rows)
        return own(self, key, shape, rows, domain)

    monkeypatch.setattr(ResidueAlgebra, "fresh_rows", counted)
    seen = []
    for in_slabs in (False, True):
        keep = Keeping(kept.reference, kept.parallel, draws_anew=True, in_slabs=in_slabs)
        made = algebra(np, chain, 7, range(3))
        evaluated = evaluate_stage(shaped, made, keep=keep)
        compared = compare_target(shaped, evaluated, 0)
        values = compared.expected, compared.actual
        seen.append([(v.data.tolist(), v.lowest, v.nonnegative) for v in values])
    assert seen[0] == seen[1]
    # Eight slabs on either side of each input, and none of them when nothing was asked for.
    assert len(slabs) == 2 * 8 * inputs
    assert max(stop - start for start, stop in slabs) == 28


@pytest.mark.skipif(host_kernels.COMPILER is None, reason=host_kernels.MISSING)
@pytest.mark.parametrize("name", ["squares", "sums of rows", "a part that begins late"])
def test_slabs_have_the_same_residues_on_kernels(name: str) -> None:
    shaped = _whole(_stage(EVALUATED[name][0]))
    kept = Keeping.targets(shaped)
    keep = Keeping(kept.reference, kept.parallel, draws_anew=True, in_slabs=True)
    seen = []
    for xp in (np, XP):
        algebra = ResidueAlgebra(xp, _settings().primes.chain(Family(3), 0), 7, range(2))
        compared = compare_target(shaped, evaluate_stage(shaped, algebra, keep=keep), 0)
        seen.append([np.asarray(v.data).tolist() for v in (compared.expected, compared.actual)])
    assert seen[0] == seen[1]


def _read_twice(b: Builder, x: Any) -> Any:
    return b.op("mul", _squares(b, x), b.op("sum", x))


def _exponentials(b: Builder, x: Any) -> Any:
    return b.op("sum", b.op("exp", x))


def _means(b: Builder, x: Any) -> Any:
    return b.op("mean", b.op("square", x))


def _along_columns(b: Builder, x: Any) -> Any:
    return b.op("sum", b.op("sum", b.op("square", x), axes=(1,)))


@pytest.mark.parametrize("squares", [_read_twice, _exponentials, _means, _along_columns])
def test_other_inputs_are_evaluated_whole(
    squares: Callable[[Builder, Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shaped = _whole(_stage(_norm((0,), squares=squares)))
    kept = Keeping.targets(shaped)
    keep = Keeping(kept.reference, kept.parallel, draws_anew=True, in_slabs=True)
    monkeypatch.setattr(ResidueAlgebra, "fresh_rows", None, raising=False)
    evaluate_stage(
        shaped, ResidueAlgebra(np, _settings().primes.chain(Family(3), 0), 7, range(2)), keep=keep
    )


PROVEN = {
    "two parameters": (_norm(), "proven"),
    "products and numbers": (_norm(squares=_twice), "proven"),
    "parts in another order": (_norm((0,), parts=IN_ORDER[::-1]), "proven"),
    "a wrong scale of one": (_norm(scale="1000001/1000000"), "failed"),
    "the first is not reduced": (_norm(reduced=(False, True)), "failed"),
    "the second is not reduced": (_norm(reduced=(True, False)), "failed"),
    "a part twice": (_norm((0,), parts=[*IN_ORDER[:3], IN_ORDER[2]]), "failed"),
    "a row left out": (_norm((0,), parts=[*IN_ORDER[:3], (149, 199)]), "failed"),
}


@pytest.mark.parametrize("name", PROVEN)
def test_stages_are_decided_in_little_memory(name: str) -> None:
    plans, expected = PROVEN[name]
    assert _proof(plans).outcome == expected
    assert _proof(plans, _needed(plans)).outcome == expected


def _needed(plans: Pair) -> int:
    """Return the bytes of a stage in slabs, which do not suffice for it whole."""
    stage = _stage(plans)
    symbolic = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts())
    (piece,) = pieces(Measured(stage, symbolic), None, PLENTY, in_slabs=True)
    needed = piece.demand.bytes(TOGETHER)
    with pytest.raises(BudgetError, match="no axis that can be sliced"):
        pieces(Measured(stage, symbolic), None, needed)
    return needed


def test_only_full_shapes_are_compared_in_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[tuple[bool, bool]] = []
    own = StageTrials.evaluated

    def evaluated(self: Any, algebra: Any) -> Any:
        kept.append((self._explores, self._keep.in_slabs))
        return own(self, algebra)

    monkeypatch.setattr(StageTrials, "evaluated", evaluated)
    assert _proof(_norm()).outcome == "proven"
    assert set(kept) == {(True, False), (False, True)}


@pytest.mark.parametrize("dimensions", [(0,), (1,), (0, 1, 0)])
def test_the_memory_of_slabs_is_predicted(
    dimensions: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slabs are large enough for arrays to count, and Python's objects not to."""
    monkeypatch.setattr(summed_inputs, "SLAB", 1 << 18)
    monkeypatch.setitem(globals(), "ROWS", 2048)
    monkeypatch.setitem(globals(), "COLUMNS", 512)
    shaped = _whole(stage := _stage(_norm(dimensions, (True,) * len(dimensions))))
    symbolic = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts())
    predicted = demand_of(symbolic, symbolic.system.full(), in_slabs=True).bytes(TOGETHER)
    whole = demand_of(symbolic, symbolic.system.full()).bytes(TOGETHER)
    kept = Keeping.targets(shaped)
    keep = Keeping(kept.reference, kept.parallel, draws_anew=True, in_slabs=True)
    algebra = ResidueAlgebra(np, _settings().primes.chain(Family(3), 0), 7, range(TOGETHER))
    tracemalloc.start()
    try:
        evaluate_stage(shaped, algebra, keep=keep)
        measured = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.9 <= predicted / measured <= 2.0
    assert predicted < whole / 2


def test_more_parameters_need_no_more_memory() -> None:
    found = []
    for count in (1, 6):
        stage = _stage(_norm((0,) * count, (True,) * count))
        symbolic = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts())
        found.append(demand_of(symbolic, symbolic.system.full(), in_slabs=True).held_at_peak)
        assert found[-1] < 3 * 28 * COLUMNS * 8
    assert found[1] < 1.1 * found[0]
