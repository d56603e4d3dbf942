"""Each of eight mistakes, at one rank, one layer or one micro-batch of Llama-3 405B and DeepSeek-V3
671B, is caught there and for what it is.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from programs.frontier_faults import Fault, dense, not_rescaled, wrong_expert
from programs.program_cases import said

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import MICROBATCH_AXIS, Plan
from pitcheck.programs.configuration import read_configuration

PLANS = Path(__file__).parents[2] / "plans"
SMALL = ("dp=16", "microbatches=4", "sequences=64")
LLAMA = ("llama3-405b", ("model=llama3-405b-tiny", "layers=4", "length=8", "tp=2", "pp=2", *SMALL))
RING = (
    "llama3-405b",
    ("model=llama3-405b-tiny", "layers=2", "length=16", "tp=2", "cp=2", "pp=2", *SMALL),
)
DEEPSEEK = ("deepseek-v3-tiny", SMALL)
LLAMA_405B = ("llama3-405b", ())
RING_405B = ("llama3-405b", ("cp=2", "dp=32"))
DEEPSEEK_671B = ("deepseek-v3", ())
Layout = tuple[str, tuple[str, ...]]


def _cases() -> dict[str, tuple[Layout, Fault]]:
    found: dict[str, tuple[Layout, Fault]] = {}
    for name, layout, faults in (
        ("llama", LLAMA, dense(1, {"dp": 11}, 2)),
        (
            "deepseek",
            DEEPSEEK,
            dense(1, {"dp": 3, "dp_inner": 1}, 2, "loss.tokens")
            | {"wrong expert": wrong_expert(2, {"pp": 1, "dp": 3}, 2)},
        ),
        ("llama-405b", LLAMA_405B, dense(20, {"dp": 37}, 11)),
        (
            "deepseek-671b",
            DEEPSEEK_671B,
            dense(20, {"dp": 3, "dp_inner": 6}, 11, "loss.tokens")
            | {"wrong expert": wrong_expert(20, {"pp": 2, "dp": 3}, 11)},
        ),
    ):
        found |= {f"{name}: {what}": (layout, fault) for what, fault in faults.items()}
    found["llama: missing rescale"] = (RING, not_rescaled(0, {"dp": 6}))
    found["llama-405b: missing rescale"] = (RING_405B, not_rescaled(20, {"dp": 7}))
    return found


CASES = _cases()
FAST = ("llama: dropped all-reduce", "llama: stale buffer")


def _at_night(name: str) -> bool:
    """Mistakes in models at full scale take half a minute and more each."""
    return CASES[name][0] in (LLAMA_405B, RING_405B, DEEPSEEK_671B)


def _marks(name: str) -> list[pytest.MarkDecorator]:
    if name in FAST:
        return []
    small = [other for other in CASES if other not in FAST and not _at_night(other)]
    in_ci = name in small[::2]
    return [pytest.mark.slow] if in_ci else [pytest.mark.slow, pytest.mark.nightly]


@cache
def _plans(layout: Layout) -> tuple[Plan, Plan]:
    file, changes = layout
    configuration = read_configuration(PLANS / f"{file}.toml", changes)
    return configuration.reference(), configuration.parallel()


@pytest.mark.parametrize("name", [pytest.param(name, marks=_marks(name)) for name in CASES])
def test_a_fault_is_caught_at_its_place(name: str) -> None:
    layout, fault = CASES[name]
    reference, parallel = _plans(layout)
    wrong, identity = fault.put(parallel)
    report = check(reference, wrong, Options(seed=1))
    assert report.verdict == "mismatch", said(report)
    finding = report.findings[0]
    assert finding.code in fault.codes, said(report)
    assert identity in f"{finding.operator} {finding.cause}", said(report)
    ranks = fault.ranks(parallel, identity)
    assert finding.ranks and set(finding.ranks) <= ranks, (finding.ranks, sorted(ranks))
    if MICROBATCH_AXIS in fault.place:
        assert finding.microbatches == (fault.place[MICROBATCH_AXIS],)
    assert finding.output is not None and finding.reference_value != finding.parallel_value
