"""The errors of all obligations attempted add up to at most the accepted one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from zoo.pairs import pair

from pitcheck.claims.problem import Problem
from pitcheck.claims.specification import specify
from pitcheck.graph.lowering import lower
from pitcheck.plan.schedule.matching import match
from pitcheck.prove.proof import Settings
from pitcheck.prove.prover import Prover


@pytest.mark.parametrize("accepted", [-20.0, -60.0, -110.0])
def test_all_are_proven_again_until_the_sum_is_small_enough(accepted: float) -> None:
    plans = pair("row_parallel")
    graphs: list[Any] = [lower(plan, match(plan)[0]) for plan in plans]
    specification = specify(*plans, *graphs)
    settings = Settings(np, 5, -1.0, 1, False, 1 << 30)
    ledger = Prover(Problem(*graphs, specification), settings, accepted_log2=accepted).run({})
    assert all(o.proof.outcome == "proven" for o in ledger.obligations)
    assert ledger.budget.spent_log2 <= accepted


def test_an_unreachable_sum_leaves_outputs_unproven() -> None:
    plans = pair("row_parallel")
    graphs: list[Any] = [lower(plan, match(plan)[0]) for plan in plans]
    settings = Settings(np, 5, -1.0, 1, False, 1 << 30)
    ledger = Prover(Problem(*graphs, specify(*plans, *graphs)), settings, accepted_log2=-1e6).run(
        {}
    )
    assert {o.proof.outcome for o in ledger.obligations if o.output} == {"inconclusive"}
