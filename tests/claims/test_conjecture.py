"""Cuts that are found by looking values up do not depend on an unlucky draw."""

from __future__ import annotations

import numpy as np
import pytest
from zoo.training import masked_mean

from pitcheck.base.options import Options
from pitcheck.claims.problem import Problem
from pitcheck.claims.reference_index import Index, lookup
from pitcheck.claims.specification import specify
from pitcheck.engine.check import check
from pitcheck.graph.graph import Graph
from pitcheck.graph.lowering import lower
from pitcheck.plan.model import Plan
from pitcheck.plan.schedule.matching import match
from pitcheck.refute.whole_run import WholeRun, conjecture, run_whole


def _graph(plan: Plan) -> Graph:
    matching, _ = match(plan)
    assert matching is not None
    return lower(plan, matching)


def _names(run: WholeRun, found: dict[int, object]) -> set[str]:
    return {run.stage.parallel.graph.values[value].name for value in found}


def _emptiest(run: WholeRun) -> int:
    """The least number of tokens that count in a trial."""
    number = run.stage.reference.graph.number["mask"]
    masks = np.asarray(run.evaluated.reference[number].data)[0]
    return int(masks.reshape(len(masks), -1).sum(axis=1).min())


def test_a_draw_in_which_no_token_counts_hides_nothing() -> None:
    reference = masked_mean()[0]
    graph = _graph(reference)
    specification = specify(reference, reference, graph, graph)
    found: dict[bool, set[frozenset[str]]] = {True: set(), False: set()}
    for seed in range(40):
        problem = Problem(graph, graph, specification, seed=seed)
        run = run_whole(problem)
        names = _names(run, dict(conjecture(problem, run)))
        found[_emptiest(run) == 0].add(frozenset(names))
    assert found[True], "no draw was empty: nothing was tried"
    assert found[True] == found[False]


@pytest.mark.parametrize("seed", range(6))
def test_masked_losses_are_proven_with_every_seed(seed: int) -> None:
    reference, parallel = masked_mean()
    assert check(reference, parallel, Options(seed=seed)).verdict == "equivalent"


def test_what_fills_a_mask_does_not_make_other_elements_equal() -> None:
    drawn = np.random.default_rng(1).normal(size=(2, 2, 4, 4))
    masked = np.where(np.tril(np.ones((4, 4), dtype=bool)), drawn, -1e30)
    layers = {0: masked[0][None].repeat(2, axis=0), 1: masked[1][None].repeat(2, axis=0)}
    first = np.stack([layer[0].reshape(-1)[0] for layer in layers.values()])
    order = np.argsort(first)
    index = Index(first[order], np.array([0, 1])[order], layers)
    for number, layer in layers.items():
        assert lookup(layer[:, None], index) == number
    # It begins as the first one does, and differs from it elsewhere.
    other = np.where(layers[0] > -1e29, layers[1], -1e30)
    other[:, 0, 0] = layers[0][:, 0, 0]
    assert lookup(other[:, None], index) is None
