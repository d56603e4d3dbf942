"""A few more draws before conjectures are proven: what is right in the first draw by chance is
found in another, and a right plan is left alone.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.verdicts import proven
from zoo.builder import Builder, lineage

from pitcheck.base.options import Options
from pitcheck.claims.problem import Problem
from pitcheck.claims.specification import specify
from pitcheck.engine.check import check
from pitcheck.graph.lowering import lower
from pitcheck.plan.model import Number, Plan
from pitcheck.plan.schedule.matching import match
from pitcheck.prove.prover import Prover
from pitcheck.refute.counted_differences import SecondLook, early_look
from pitcheck.refute.whole_run import run_whole

SEEDS = 24


def _chosen(ranks: int, kind: str) -> Plan:
    """The sum over all ranks says what becomes of x: with "gt" x or its double; "eq" is always true
    of the sum and itself, and so right where the sum is above 0, which it is in half of all draws.
    """
    b = Builder("chooses", {"dp": ranks})
    x = b.input("x", (4 // ranks, 6), {0: "dp"} if ranks > 1 else None)
    total = (
        b.op("all_reduce", b.op("sum", x, axes=(0, 1)), group="dp")
        if ranks > 1
        else b.op("sum", x, axes=(0, 1))
    )
    chosen = b.op(kind, total, Number(0) if kind == "gt" else total)
    b.op("sum", b.op("where", chosen, x, b.op("mul", x, Number(2))), axes=(1,), out="y")
    b.output("y", spec=lineage("y", {0: "dp"}) if ranks > 1 else None)
    return b.plan()


def _looks(parallel: Plan) -> list[tuple[bool, SecondLook | None]]:
    """Return for each seed True if the run shows a difference, and the early look's result."""
    plans = _chosen(1, "gt"), parallel
    graphs: list[Any] = [lower(plan, match(plan)[0]) for plan in plans]
    specification = specify(*plans, *graphs)
    found = []
    for seed in range(SEEDS):
        problem = Problem(*graphs, specification, seed=seed)
        found.append((bool(run_whole(problem).suspects()), early_look(problem)))
    return found


def test_a_difference_in_half_of_all_draws() -> None:
    looks = _looks(_chosen(2, "eq"))
    assert {shown for shown, _ in looks} == {True, False}
    # Found but where both further draws are right as well, a quarter of all.
    assert sum(look is not None for _, look in looks) >= SEEDS // 2
    assert all(look.real == [0] for _, look in looks if look is not None)


def test_a_right_plan_is_left_alone() -> None:
    assert not any(shown or look for shown, look in _looks(_chosen(2, "gt")))
    proven(_chosen(1, "gt"), _chosen(2, "gt"))


def test_what_an_early_look_finds_needs_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = _looks(_chosen(2, "eq"))
    seed = next(seed for seed, (shown, look) in enumerate(looks) if not shown and look is not None)
    tried: list[bool] = []
    run = Prover.run

    def counted(prover: Prover, cuts: Any) -> Any:
        tried.append(prover._hoping)
        return run(prover, cuts)

    monkeypatch.setattr(Prover, "run", counted)
    report = check(_chosen(1, "gt"), _chosen(2, "eq"), Options(seed=seed))
    assert report.verdict == "mismatch"
    assert all(tried)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_seed(seed: int) -> None:
    assert check(_chosen(1, "gt"), _chosen(2, "eq"), Options(seed=seed)).verdict == "mismatch"
