"""Queries that grow along the sequence (Llama 4): all layouts multiply by the factors of places in
the whole sequence, and near mistakes are mismatches with their cause.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace
from programs.faults import at_place
from programs.near_misses import Change, changed, first_only, with_attributes
from programs.program_cases import SLOWLY, Case, assert_right, case, layouts, llama, said

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.errors import ImpossibleError
from pitcheck.execution.judge import judge_often
from pitcheck.models.config import Attention, Batch, Model
from pitcheck.models.layers import QUERY_SCALES, prepare
from pitcheck.models.presets import preset
from pitcheck.models.tape import Tape
from pitcheck.plan.model import Plan, Table
from pitcheck.programs.layers.context_attention import attend, query_scales
from pitcheck.programs.layout import Layout
from pitcheck.programs.parallel_plan import parallel_plan
from pitcheck.programs.rank import Axes, Rank
from pitcheck.report.report import Report

GROWN = llama(
    attention=Attention(
        4,
        2,
        4,
        rotary_pairs="interleaved",
        chunk=4,
        global_every=2,
        global_rotary=False,
        query_floor=3,
    )
)
EVERYWHERE = llama(attention=Attention(4, 2, 4, rotary=False, query_floor=3, query_scale="1/2"))
SCOUT = preset("llama4-scout-tiny")
GATHER = {"cp": 2, "context": "allgather"}

FAST = {"tensor": case(GROWN, tp=2), "gathered": case(GROWN, 2, **GATHER)}
SLOW = {
    "ring": case(GROWN, 2, cp=2),
    "ring without halves": case(GROWN, 2, cp=2, zigzag=False, recompute=True),
    "heads": case(GROWN, 2, cp=2, context="ulysses"),
    "heads in halves": case(GROWN, 2, cp=2, tp=2, context="ulysses", zigzag=True),
    "gathered in halves": case(GROWN, 2, 12, zigzag=True, **GATHER),
    "sequence": case(GROWN, 2, tp=2, cp=2, sequence_parallel=True),
    "shared heads": case(GROWN, tp=4, sequence_parallel=True),
    "pipeline": case(GROWN, pp=2, tp=2, microbatches=2),
    "parameter shards": case(GROWN, dp=2, zero=3, recompute=True),
    "all layers": case(EVERYWHERE, 2, cp=2, pp=2, microbatches=2),
    "scout": case(SCOUT, tp=2, sequence_parallel=True),
}


@pytest.mark.parametrize("found", layouts(FAST, SLOW))
def test_a_layout_is_right(found: Case) -> None:
    assert_right(found)


# --- mistakes


def _caught(reference: Plan, wrong: Plan) -> Report:
    assert not judge_often(reference, wrong, range(6)).same
    report = check(reference, wrong, Options(seed=1))
    assert report.verdict == "mismatch", said(report)
    return report


def _named(report: Report, code: str, operator: str) -> None:
    assert [f.code for f in report.findings[:1]] == [code], said(report)
    assert operator in (report.findings[0].operator or ""), said(report)


def _at(identity: str, change: Change, **place: int) -> Callable[[Plan], Plan]:
    return lambda plan: (
        at_place(plan, identity, place, change) if place else changed(plan, identity, change)
    )


def _begun(*offsets: int) -> Change:
    return with_attributes(offset=Table(("cp",), offsets))


COUNTED, FLOOR, FACTOR = (f"query_scales.0.{part}" for part in ("counted", "floor", "grown"))
BY_PLACE = "layers.1.attention.q.by_place"
MISTAKES: dict[str, tuple[dict[str, Any], Callable[[Plan], Plan], str, str]] = {
    "places begin at 0 on every context rank": (
        GATHER,
        _at(COUNTED, _begun(1, 1)),
        "PIT103",
        "query_scales.0",
    ),
    "places are counted from 0": (GATHER, _at(COUNTED, _begun(0, 4)), "PIT107", COUNTED),
    "one rank has another floor": (
        GATHER,
        _at(FLOOR, with_attributes(value=4), cp=1),
        "PIT102",
        FLOOR,
    ),
    "all ranks have another floor": (GATHER, _at(FLOOR, with_attributes(value=2)), "PIT102", FLOOR),
    "one rank has no factor": ({"tp": 2}, _at(FACTOR, first_only, tp=1), "PIT102", FACTOR),
    "one rank does not scale": ({"tp": 2}, _at(BY_PLACE, first_only, tp=0), "PIT102", BY_PLACE),
}
QUICK = ("places begin at 0 on every context rank", "one rank has another floor")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else SLOWLY[place % 3 > 0])
        for place, name in enumerate(MISTAKES)
    ],
)
def test_a_near_mistake_is_named(name: str) -> None:
    layout, wrong, code, operator = MISTAKES[name]
    reference, parallel = case(GROWN, 2, **layout).plans()
    _named(_caught(reference, wrong(parallel)), code, operator)


@pytest.mark.slow
def test_layers_with_rotary_embedding_do_not_scale() -> None:
    found = case(GROWN, 2, tp=2)
    reference, _ = found.plans()
    with patch.object(Model, "scales_queries", lambda *_: True):
        wrong = parallel_plan(found.model, found.batch, found.layout)
    _named(_caught(reference, wrong), "PIT103", "layers.0.attention.q.scaled")


@pytest.mark.slow
def test_keys_do_not_grow() -> None:
    found = case(GROWN, 2, tp=2)
    reference, _ = found.plans()

    def other(rank: Rank, q: str, k: str, v: str, name: str, visible: str, sinks: str) -> str:
        if q.endswith(".by_place"):
            hint = rank.heads(rank.axes.heads)
            k = rank.tape.op("mul", k, "query_scales.0", name=f"{name}.k.by_place", hint=hint)
            q = f"{name}.q.heads"
        return attend(rank, q, k, v, name, visible, sinks)

    with patch("pitcheck.programs.layers.layers.attend", other):
        wrong = parallel_plan(found.model, found.batch, found.layout)
    _named(_caught(reference, wrong), "PIT102", "layers.1.attention.k.by_place")


@pytest.mark.parametrize(
    ("length", "verdict"),
    [(4096, "mismatch"), (1024, "equivalent")],
    ids=["beyond the floor", "short of it"],
)
def test_a_sequence_keeps_a_length_beyond_the_floor(length: int, verdict: str) -> None:
    """Some of 4,096 places differ by the floor, so none are left out. Up to the floor all factors
    are 1, whatever the places: a wrong place is then no mistake.
    """
    reference, parallel = _factors(length)
    assert check(reference, parallel, Options(seed=1)).verdict == "equivalent"
    for change in (_begun(1, 1), _begun(0, length // 2)):
        wrong = changed(parallel, COUNTED, change)
        assert check(reference, wrong, Options(seed=1, explain=False)).verdict == verdict


def _factors(length: int) -> tuple[Plan, Plan]:
    """The factors alone, of the places of two context-parallel ranks."""
    model = replace(GROWN, attention=replace(GROWN.attention, query_floor=2000))
    batch, layout = Batch(2, length), Layout(cp=2, zigzag=False)
    one = Tape("one device")
    tokens = one.input("tokens", (2, length), "int64", bounds=(0, 40))
    one.output(prepare(one, model, batch, tokens).scales)
    axes = Axes.of(model, layout)
    rank = Rank(Tape("ranks", axes.sizes, 1), model, batch, layout, axes)
    tokens = rank.tape.input(
        "tokens", (2, length // 2), "int64", {1: ("cp",)}, microbatched=True, bounds=(0, 40)
    )
    sizes = model.attention
    assert isinstance(sizes, Attention)
    factors = query_scales(rank, tokens, "query_scales.0", sizes)
    rank.tape.output(factors, QUERY_SCALES, rank.tape.tensors[factors].lineage)
    return one.plan(), rank.tape.plan()


# --- rules


@pytest.mark.parametrize(
    ("attention", "said"),
    [
        (Attention(4, 2, 4, query_floor=-1, rotary=False), "query_floor: must be at least 0"),
        (Attention(4, 2, 4, query_floor=3), "query_floor: 3 scales queries of layers without"),
        (Attention(4, 2, 4, query_scale="1/5"), "query_scale: 1/5 needs query_floor"),
        (Attention(4, 2, 4, rotary=False, query_floor=3, query_scale="0"), "above 0, not 0"),
        (Attention(4, 2, 4, rotary=False, query_floor=3, query_scale="x"), "must be a rational"),
        (Attention(4, 2, 4, rotary=False, rotary_pairs="interleaved"), "rotary_pairs: interleaved"),
    ],
)
def test_a_combination_without_meaning_is_refused(attention: Attention, said: str) -> None:
    with pytest.raises(ImpossibleError, match=said):
        case(llama(attention=attention)).plans()
