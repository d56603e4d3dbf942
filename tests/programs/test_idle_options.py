"""Options that cut over an axis of one rank change nothing and are named; others are refused."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from programs.program_cases import case, llama

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.errors import PlanError
from pitcheck.models.presets import preset
from pitcheck.plan.validate import validate
from pitcheck.report.json import decode, encode

IDLE: list[tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]] = [
    ({"zero": 1}, {}, ("zero = 1",)),
    ({"zero": 2, "tp": 2}, {"tp": 2}, ("zero = 2",)),
    ({"zero": 3}, {}, ("zero = 3",)),
    ({"zero": 1, "flat_buckets": True}, {}, ("zero = 1", "flat_buckets = true")),
    ({"sequence_parallel": True, "dp": 2}, {"dp": 2}, ("sequence_parallel = true",)),
    ({"zigzag": True}, {}, ("zigzag = true",)),
    ({"bucket": 300}, {}, ("bucket = 300",)),
    ({"zero": 2, "bucket": 300}, {}, ("zero = 2", "bucket = 300")),
    ({"dp": 2, "zero": 3, "bucket": 300}, {"dp": 2, "zero": 3}, ("bucket = 300",)),
    ({"context": "ulysses"}, {}, ("context = ulysses",)),
    (
        {"zero": 1, "sequence_parallel": True, "pp": 2},
        {"pp": 2},
        ("zero = 1", "sequence_parallel = true"),
    ),
]


@pytest.mark.parametrize(("given", "built", "named"), IDLE)
def test_an_idle_option_is_named_and_left_out(
    given: dict[str, Any], built: dict[str, Any], named: tuple[str, ...]
) -> None:
    reference, parallel = case(llama(), **given).plans()
    plain_reference, plain = case(llama(), **built).plans()
    assert reference == plain_reference
    assert replace(parallel, assumptions=()) == plain
    assert [note.partition(" has no effect")[0] for note in parallel.assumptions] == [
        f"layout.{name}" for name in named
    ]


@pytest.mark.parametrize(
    "layout",
    [
        {"dp": 2, "zero": 1},
        {"dp": 2, "zero": 2, "bucket": 300},
        {"tp": 2, "sequence_parallel": True},
        {"cp": 2, "zigzag": True, "context": "allgather"},
        {"zigzag": False},
        {"schedule": "gpipe", "microbatches": 2},
    ],
)
def test_an_option_that_works_has_no_note(layout: dict[str, Any]) -> None:
    assert case(llama(), **layout).plans()[1].assumptions == ()


def test_an_idle_option_of_experts() -> None:
    mixture = replace(preset("mixtral-8x7b-tiny"), layers=2)
    reference, parallel = case(mixture, zero=1, ep=1).plans()
    assert validate(parallel, reference) == []
    assert len(parallel.assumptions) == 1


def test_the_note_is_in_the_report_and_its_json() -> None:
    reference, parallel = case(llama(1), zero=1).plans()
    report = check(reference, parallel, Options(seed=1))
    assert report.verdict == "equivalent"
    note = parallel.assumptions[0]
    assert note in report.assumptions
    assert note in decode(encode(report)).assumptions


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ({"zero": 4}, r"the stages of ZeRO are 0, 1, 2, 3, not 4"),
        ({"zero": 3, "replicas": 2}, "dp 1 cannot form 2 equal parts"),
        ({"flat_buckets": True}, r"are those of zero 1 and 2, not of zero 0"),
        ({"zero": 3, "flat_buckets": True}, r"are those of zero 1 and 2, not of zero 3"),
        ({"ep": 2}, "has no experts"),
        ({"ep": 0}, "must be at least 1, not 0"),
        ({"schedule": "interleaved", "virtual": 2}, "needs pp of at least 2, not 1"),
        ({"virtual": 2}, "2 stages per rank need the schedule interleaved"),
        ({"sequence_parallel": True, "tp": 4, "cp": 4}, "2 tokens of a sequence on a rank"),
    ],
)
def test_what_contradicts_itself_stays_refused(layout: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        case(llama(), **layout).plans()
