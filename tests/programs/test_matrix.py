"""Random combinations of models and layouts, small and large, are equivalent: no false alarm,
nothing left open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from programs.program_cases import Case, said
from programs.random_layouts import LARGE, SMALL, random_case

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.execution.judge import judge
from pitcheck.models.config import Attention, LatentAttention, Model

FAST, AT_NIGHT = range(6), range(6, 10)
"""Seeds of combinations of few layers and ranks: those that every run tries, and the others."""
FEW_RANKS, FEW_LAYERS = (1, 6), 2
OTHERS = (*range(1000, 1220), 1239)
EVERYTHING = range(1220, 1239)
"""Seeds of small combinations that are checked in every way.

These are all coordinates, full shapes and the independent executor; 1239 is too large for that.
"""
MANY_RANKS = range(60)
"""Seeds of combinations on 64 to 512 ranks."""
IN_CI = 40
"""CI runs the first of so many slow ones; a nightly job runs all."""
LEAST = 5
"""In so many of the slow combinations every choice must occur."""


def _nightly(seeds: Sequence[int]) -> list[Any]:
    """Seeds as parameters, most of them for a nightly job."""
    return [
        pytest.param(seed, marks=[pytest.mark.nightly] if place % IN_CI else [])
        for place, seed in enumerate(seeds)
    ]


def _proven(case: Case, options: Options) -> None:
    reference, parallel = case.plans()
    report = check(reference, parallel, options)
    assert report.verdict == "equivalent", (said(report), case)
    assert report.outputs.proven == len(reference.outputs), case


@pytest.mark.parametrize(
    "seed",
    [*FAST, *(pytest.param(s, marks=[pytest.mark.slow, pytest.mark.nightly]) for s in AT_NIGHT)],
)
def test_a_small_combination(seed: int) -> None:
    _proven(random_case(seed, FEW_RANKS, FEW_LAYERS), Options(seed=seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", _nightly(OTHERS))
def test_another_small_combination(seed: int) -> None:
    _proven(random_case(seed), Options(seed=seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", _nightly(MANY_RANKS))
def test_a_combination_on_many_ranks(seed: int) -> None:
    _proven(random_case(seed, LARGE), Options(seed=seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", _nightly(EVERYTHING))
def test_a_small_combination_without_reductions(seed: int) -> None:
    """Reduced or not, the verdict is the same, and the independent executor agrees with it."""
    case = random_case(seed)
    _proven(case, Options(seed=seed))
    _proven(case, Options(seed=seed, coordinates="full"))
    _proven(case, Options(seed=seed, shapes="full"))
    judgement = judge(*case.plans(), seed)
    assert judgement.same, (judgement, case)


def test_every_choice_is_among_the_combinations() -> None:
    seen = Counter(choice for case in _all() for choice in _choices(case))
    missing = {choice: count for choice, count in sorted(seen.items()) if count < LEAST}
    assert not missing
    assert {
        "ring",
        "allgather",
        "ulysses",
        "gpipe",
        "1f1b",
        "interleaved",
        "zero-bubble",
        "zero 1",
        "zero 2",
        "zero 3",
    } <= seen.keys()
    assert {
        "replicas",
        "recompute",
        "sequence parallel",
        "tied ends",
        "copies of heads",
        "small buckets",
        "padded shards",
        "uneven stages",
    } <= seen.keys()
    assert {
        "fused qkv",
        "fused gate",
        "biases",
        "padded vocabulary",
        "everything at once",
    } <= seen.keys()
    assert {
        "zigzag",
        "ring in order",
        "experts",
        "experts over ranks",
        "cut experts",
        "latent attention",
        "multi-token prediction",
    } <= seen.keys()
    assert {
        "norms of heads",
        "windows",
        "chunks",
        "some layers global",
        "global layers without rotary",
        "growing queries",
        "sinks",
        "biases of experts",
        "router bias",
        "scaled inputs",
        "experts in some layers",
    } <= seen.keys()


def _all() -> Iterator[Case]:
    for seeds, ranks in ((OTHERS, SMALL), (EVERYTHING, SMALL), (MANY_RANKS, LARGE)):
        yield from (random_case(seed, ranks) for seed in seeds)


def _choices(case: Case) -> Iterator[str]:
    model, layout, attention = case.model, case.layout, case.model.attention
    if layout.pp > 1:
        yield layout.schedule
    if layout.cp > 1:
        yield layout.context
    yield f"zero {layout.zero}"
    heads = attention.kv_heads if isinstance(attention, Attention) else layout.tp
    found = {
        "replicas": layout.replicas > 1,
        "recompute": layout.recompute,
        "sequence parallel": layout.sequence_parallel,
        "tied ends": model.tied and layout.pp > 1,
        "copies of heads": layout.tp > heads,
        "small buckets": layout.zero in (1, 2) and layout.bucket < 2000,
        "padded shards": layout.zero > 0 and model.hidden % layout.dp > 0,
        "uneven stages": model.layers % layout.stages > 0,
        "fused qkv": isinstance(attention, Attention) and attention.fused,
        "fused gate": model.fused_gate,
        "biases": model.bias or (isinstance(attention, Attention) and attention.bias),
        "zigzag": layout.both_ends and layout.context != "ring",
        "ring in order": layout.context == "ring" and layout.cp > 1 and not layout.both_ends,
        "experts": model.experts is not None,
        "experts over ranks": layout.ep > 1,
        "cut experts": layout.etp > 1,
        "latent attention": isinstance(attention, LatentAttention),
        "multi-token prediction": model.predicted > 0,
        "padded vocabulary": model.embedding_rows > model.vocabulary,
        "everything at once": min(layout.dp, layout.tp, layout.pp, layout.cp) > 1,
        **_published(model),
    }
    yield from (choice for choice, holds in found.items() if holds)


def _published(model: Model) -> dict[str, bool]:
    """Choices of Qwen3, gpt-oss and Llama 4."""
    found: dict[str, bool] = {}
    attention, experts = model.attention, model.experts
    if isinstance(attention, Attention):
        found |= {
            "norms of heads": attention.qk_norm != "none",
            "windows": attention.window > 0,
            "chunks": attention.chunk > 0,
            "some layers global": attention.global_every > 0,
            "global layers without rotary": not attention.global_rotary,
            "growing queries": attention.query_floor > 0,
            "sinks": attention.sinks,
        }
    if experts is not None:
        found |= {
            "biases of experts": experts.bias,
            "router bias": experts.router_bias,
            "scaled inputs": experts.scaled_input,
            "experts in some layers": model.experts_every > 1,
        }
    return found
