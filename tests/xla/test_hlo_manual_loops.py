"""Loops within a ``shard_map`` are proven by induction, and wrong ones never are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from xla.hlo_pairs import cases_in, is_right, plans_in
from xla.shard_map_faults import faults

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.xla.lowering.pair import attempts_on
from pitcheck.frontends.xla.text.parser import parse_hlo
from pitcheck.plan.validate import validate

if TYPE_CHECKING:
    from pitcheck.frontends.protocol import Attempt

CASES = cases_in("shard_maps.jsonl")
OPTIONS = Options(seed=1, jobs=1, explain=False)
LOOPS = ("ring_product", "ring_loss", "pipeline")


def _attempts(before: str, after: str) -> Iterator[Attempt]:
    return attempts_on(parse_hlo(before), parse_hlo(after))


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_of_a_region_is_proven_by_induction(name: str) -> None:
    folded = next(_attempts(CASES[name]["before"], CASES[name]["after"]))
    assert not folded.decides
    assert check(*folded.plans, OPTIONS).verdict == "equivalent"
    given = [tensor for tensor in folded.plans[0].tensors if tensor.name.startswith("while")]
    rows = {tensor.shape[0] for tensor in given if tensor.role == "input" and tensor.shape}
    assert rows == {4}  # one for each device


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("name", ["ring_product", "pipeline"])
def test_no_mistake_is_proven_by_induction(name: str, side: str) -> None:
    """Those that the executor shows to be wrong: it follows the loop iteration by iteration."""
    case, folds = CASES[name], 0
    for mistake, line, text in faults(case[side], side == "before"):
        texts = case | {side: text}
        try:
            first = next(_attempts(texts["before"], texts["after"]))
            followed = plans_in(case, **{side: text})
        except (PlanError, UnsupportedError):
            continue
        if first.decides or [*validate(followed[1], reference=followed[0])]:
            continue
        folds += 1
        if not is_right(*followed, (1, 2)):
            assert check(*first.plans, OPTIONS).verdict != "equivalent", (mistake, line)
    assert folds >= 10
