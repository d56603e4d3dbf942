"""torchtitan's Llama 3, as its own function spreads it over ranks, against its own model on one
device, on a CPU without launch.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from frontends.torch.proving import proven

from pitcheck.frontends.torch.recording.record import record
from pitcheck.torch import Part, check

pytestmark = [
    pytest.mark.skipif(
        find_spec("torchtitan") is None,
        reason="torchtitan is not installed; pip install '.[torchtitan]' does",
    ),
    pytest.mark.slow,
]

RIGHT: list[dict[str, Any]] = [
    {"data": 2},
    {"tensor": 2},
    {"tensor": 2, "sequence": False},
    {"data": 2, "tensor": 2},
    {"replicas": 2, "data": 2},
    {"data": 2, "tensor": 2, "recomputed": "full"},
    {"data": 2, "tensor": 2, "recomputed": "selective"},
    {"data": 2, "tensor": 2, "backend": "full_dtensor"},
    {"data": 2, "tensor": 2, "clipped": True},
]


@pytest.fixture(scope="module")
def titan() -> Any:
    """Imported when a test runs: it takes seconds."""
    return import_module("frontends.torch.frameworks.titan")


@pytest.mark.parametrize(
    "degrees", [RIGHT[0], *(pytest.param(d, marks=pytest.mark.nightly) for d in RIGHT[1:])], ids=str
)
def test_llama_is_proven(titan: Any, degrees: dict[str, Any]) -> None:
    assert proven(titan.spec(titan.Setup(**degrees))).outputs.total > 10


@pytest.mark.nightly
def test_what_is_recomputed_is_recorded_twice(titan: Any) -> None:
    count = []
    for recomputed in ("", "full"):
        trace = record(titan.spec(titan.Setup(data=2, recomputed=recomputed)), "parallel", 2)[0]
        count.append(sum(event.operator == "silu.default" for event in trace.events))
    assert count == [1, 2]


def test_a_gradient_that_nobody_sums_is_caught_at_its_line(titan: Any) -> None:
    finding = found(titan.spec(titan.Setup(tensor=2), change=titan.local_norm))
    assert finding.code == "PIT104" and "over tp" in finding.cause
    assert "nn.functional.rms_norm(" in line(finding)


@pytest.mark.nightly
def test_a_mean_over_own_tokens_is_caught(titan: Any) -> None:
    """FSDP's own division is off, so the loss must be a share of that of all tokens; its gradients
    are twice too large.
    """
    finding = found(titan.spec(titan.Setup(data=2), loss_of=titan.averaged, loss=Part(mean="dp")))
    assert finding.code == "PIT101" and "2 (size of dp: 2)" in finding.cause, finding


@pytest.mark.nightly
def test_replicas_that_nobody_sums_are_caught(titan: Any) -> None:
    setup = titan.Setup(replicas=2, data=2)
    finding = found(titan.spec(setup, dims_of=titan.of_one_replica))
    assert "rep" in finding.cause, finding


@pytest.mark.nightly
def test_the_largest_score_of_own_columns_is_caught_at_its_line(titan: Any) -> None:
    finding = found(titan.spec(titan.Setup(tensor=2), titan.of_own_columns(0)))
    assert finding.code == "PIT104" and "over tp" in finding.cause
    assert "torch.amax(" in line(finding)


@pytest.mark.nightly
def test_exponentials_of_own_columns_are_caught(titan: Any) -> None:
    found(titan.spec(titan.Setup(tensor=2, sequence=False), titan.of_own_columns(1)))


def found(spec: Any) -> Any:
    report = check(spec)
    assert report.verdict == "mismatch", report.findings
    return report.findings[0]


def line(finding: Any) -> str:
    source, _, number = finding.source.rpartition(":")
    return Path(source).read_text().splitlines()[int(number) - 1]
