"""The plans of ``bench/detection.py``: configurations of the tiny models, and random layouts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from pathlib import Path

from programs.random_layouts import random_case
from zoo.pairs import builders

from pitcheck.plan.model import Plan
from pitcheck.programs.configuration import read_configuration

ROOT = Path(__file__).resolve().parent.parent
SMALL = "sequences=4 length=4"
PLAIN = "dp=1 tp=1 pp=1 microbatches=1 sequence_parallel=false"
ALONE = "layers=1 pp=1 tp=1 sequence_parallel=false"

MUTATED: Mapping[str, str] = {
    "llama3-tiny: data, tensor, sequence": f"layers=1 pp=1 {SMALL}",
    "llama3-tiny: data, pipeline 1F1B": f"layers=2 tp=1 sequence_parallel=false {SMALL}",
    "llama3-tiny: tensor, pipeline GPipe": f"layers=2 dp=1 schedule=gpipe {SMALL}",
    "llama3-tiny: interleaved": "layers=4 dp=1 tp=1 sequence_parallel=false virtual=2 "
    "schedule=interleaved sequences=2 length=2",
    "llama3-tiny: zero-bubble": f"layers=2 dp=1 tp=1 sequence_parallel=false schedule=zero-bubble "
    f"{SMALL}",
    "llama3-tiny: ring": f"{ALONE} dp=1 cp=2 {SMALL}",
    "llama3-tiny: context by all-gather": f"{ALONE} dp=1 cp=2 context=allgather {SMALL}",
    "llama3-tiny: Ulysses": f"{ALONE} dp=1 cp=2 context=ulysses {SMALL}",
    "llama3-tiny: recomputed": f"layers=1 pp=1 dp=1 recompute=true {SMALL}",
    "llama3-tiny: ZeRO 1": f"{ALONE} zero=1 bucket=300 {SMALL}",
    "llama3-tiny: ZeRO 2": f"{ALONE} zero=2 bucket=150 {SMALL}",
    "llama3-tiny: ZeRO 3": f"{ALONE} zero=3 {SMALL}",
    "llama3-tiny: hybrid shards": f"{ALONE} dp=4 zero=3 replicas=2 microbatches=1 {SMALL}",
    "llama3-tiny: flat buckets": f"{ALONE} zero=1 flat_buckets=true bucket=500 {SMALL}",
    "gpt3-tiny: data, tensor": f"layers=1 {SMALL}",
    "gpt3-tiny: tied ends of a pipeline": f"layers=2 dp=1 pp=2 {SMALL}",
    "gpt3-tiny: ZeRO 1": f"layers=1 tp=1 zero=1 bucket=500 {SMALL}",
    "mixtral-tiny: experts": f"{ALONE} ep=2 {SMALL}",
    "mixtral-tiny: experts, tensor, sequence": f"layers=1 pp=1 ep=4 {SMALL}",
    "mixtral-tiny: experts cut": f"{ALONE} ep=1 etp=2 {SMALL}",
    "deepseek-v3-tiny: latent, experts": f"{ALONE} model.dense_layers=0 ep=2 {SMALL}",
    "deepseek-v3-tiny: latent, tensor": f"layers=1 model.dense_layers=0 pp=1 dp=1 ep=2 {SMALL}",
}
"""Case -> what is changed in the configuration of the model before the colon."""

RANDOM_MUTATED = 6
"""The number of random layouts beside them for every seed."""
SMALL_PLAN = "small plan: "
SMALL_PLANS = tuple(f"{SMALL_PLAN}{name}" for name in builders())
"""Plans of a few operators; each has one way to spread a computation."""


def _degenerate() -> dict[str, str]:
    """Return right configurations at the ends of what is allowed."""
    dense = [
        f"layers={layers} dp={dp} tp={tp} pp={pp} microbatches={m}"
        for layers, dp, tp, pp, m in product((1, 2, 3), (1, 2), (1, 2), (1, 2, 3), (1, 2))
        if pp <= layers
    ]
    found = {
        f"{name}: {what}": f"{what} sequence_parallel=false sequences=4 length=4"
        for name in ("llama3-tiny", "gpt3-tiny")
        for what in dense
    }
    found |= {
        f"llama3-tiny: more ranks than heads, {m}": f"model.attention.kv_heads=1 tp=4 layers=1 "
        f"pp=1 {m} {SMALL}"
        for m in ("dp=1", "dp=2", "sequence_parallel=false")
    }
    found |= {
        f"{name}: one sequence, {what}": f"{PLAIN} sequences=1 length=4 layers=1 {what}"
        for name in ("llama3-tiny", "gpt3-tiny")
        for what in ("tp=1", "tp=2", "tp=4")
    }
    found |= {
        f"llama3-tiny: one token, {what}": f"{PLAIN} sequences=2 length=1 layers=1 {what}"
        for what in ("dp=1", "dp=2", "tp=2")
    }
    found |= {
        f"{name}: uneven shards, dp={dp} zero={zero}": f"{PLAIN} layers=1 dp={dp} zero={zero} "
        f"bucket={bucket} sequences={dp} length=4"
        for name in ("llama3-tiny", "gpt3-tiny")
        for dp in (3, 5, 7)
        for zero, bucket in ((1, 1), (1, 300), (2, 300), (3, 1))
    }
    found |= {
        f"llama3-tiny: uneven buckets, dp={dp}": f"{PLAIN} layers=1 dp={dp} zero=1 "
        f"flat_buckets=true bucket=500 sequences={dp} length=4"
        for dp in (2, 3, 5)
    }
    found |= {
        f"{name}: few tokens, {what}": f"{PLAIN} layers={layers} {what} sequences=2 length=2 "
        f"ep={ep}"
        for name, layers in (("mixtral-tiny", 1), ("deepseek-v3-tiny", 3))
        for what, ep in (("dp=1", 1), ("dp=2", 1), ("dp=2", 2))
    }
    return found


RIGHT: Mapping[str, str] = _degenerate()


def random_mutated(number: int) -> str:
    """Return the name of a small random layout."""
    return f"random layout {number}, 2 to 4 ranks, 2 layers"


def random_right(number: int) -> str:
    """Return the name of a random layout."""
    return f"random layout {number}, 1 to 8 ranks, 2 layers"


def plans_of(case: str) -> tuple[Plan, Plan]:
    """Return the reference and the parallel plan of a case.

    Raises PlanError for a configuration that cannot run.
    """
    if case.startswith(SMALL_PLAN):
        return builders()[case.removeprefix(SMALL_PLAN)]()
    if case.startswith("random layout"):
        number, least, most, layers = map(int, re.findall(r"\d+", case))
        return random_case(number, (least, most), layers).plans()
    settings = {**MUTATED, **RIGHT}[case]
    configuration = read_configuration(
        ROOT / "plans" / f"{case.partition(':')[0]}.toml", settings.split()
    )
    return configuration.reference(), configuration.parallel()
