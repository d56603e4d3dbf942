"""Tokens that programs send: what is counted in the buffers is what the programs count
themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from programs.program_cases import said
from programs.test_programs_experts import deepseek, mixtral, spread

from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.prove import coverage as outcomes
from pitcheck.prove.routing import LEAST_CARRIED, LEAST_TOKENS, Routing, routing_of
from pitcheck.stage.evaluate import Evaluated

CASES = {
    "two ranks": (spread(mixtral(), dp=2, ep=2), "layers.0.mlp"),
    "four ranks, groups of experts": (spread(deepseek(), 8, dp=4, ep=4), "layers.1.mlp"),
}


class Counted:
    """Routing of a stage, and of its draws over residues alone, beside the numbers of tokens that
    the program says it sends in these.
    """

    def __init__(self, shaped: Any, routing: Routing, counts: int) -> None:
        self.routing = routing
        self.exact = routing_of(shaped)
        self.counts = counts
        self.sent: Any = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.routing, name)

    @property
    def values(self) -> frozenset[int]:
        return self.routing.values | {self.counts}

    def take(self, evaluated: Evaluated, good: Any) -> None:
        self.routing.take(evaluated, good)
        if isinstance(evaluated.algebra, ResidueAlgebra) and self.exact is not None:
            self.exact.take(evaluated, good)
            numbers = evaluated.parallel[self.counts].data[0]
            assert numbers.ndim == 4  # draws, ranks, sequences, receivers
            self.sent = self.sent + numbers[np.asarray(good)].sum(axis=(0, 2))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow, pytest.mark.nightly] if place else [])
        for place, name in enumerate(CASES)
    ],
)
def test_buffers_carry_the_tokens_that_their_numbers_say(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, stem = CASES[name]
    found: list[Counted] = []

    def recorded(shaped: Any) -> Any:
        routing, values = routing_of(shaped), shaped.stage.parallel.graph.values
        counts = [
            v
            for step in shaped.stage.parallel.steps
            for v in step.outputs
            if v is not None and values[v].name == f"{stem}.counts"
        ]
        if routing is None or not counts:
            return routing
        found.append(Counted(shaped, routing, counts[0]))
        return found[-1]

    monkeypatch.setattr(outcomes, "routing_of", recorded)
    report = check(*case.plans(), Options(seed=1, coordinates="full"))
    assert report.verdict == "equivalent", said(report)
    seen = [counted for counted in found if np.ndim(counted.sent)]  # others were refused
    assert seen
    for counted in seen:
        assert counted.exact is not None
        coverage = counted.exact.coverage()
        assert coverage is None or (coverage.pairs, coverage.carried) == (
            counted.sent.size,
            counted.sent.min(),
        )
    moved = [routed for routed in report.routing if routed.sender_receiver_pairs]
    assert any(routed.tensor.startswith(stem) for routed in moved)
    for routed in report.routing:
        assert routed.tokens >= LEAST_TOKENS
        assert routed.tokens_per_expert >= 1
        assert routed.empty_experts >= 1
        assert routed.largest_share > 1
    for routed in moved:
        assert routed.sender_receiver_pairs == counted.sent.size
        assert routed.tokens_per_pair >= LEAST_CARRIED
