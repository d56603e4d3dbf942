"""torchtitan's Qwen3-MoE and DeepSeek-V3, spread by their own functions: FSDP2 with expert
parallelism, and with tensor and sequence parallelism beside it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from frontends.torch.proving import check_at_one_mesh, proven

pytest.importorskip("torchtitan", minversion="0.3")
# It draws numbers when it is imported, which a recorded program must not do without a seed.
pytest.importorskip("rich.style")

pytestmark = [pytest.mark.nightly, pytest.mark.slow]


@pytest.fixture(scope="module")
def titan() -> Any:
    """Imported when a test runs: it takes seconds."""
    return import_module("frontends.torch.frameworks.titan_experts")


@pytest.mark.parametrize(
    "setup",
    [
        {},
        {"tensor": 2, "sequence": True},
        {"balanced": True},
        {"model": "DeepSeek-V3"},
        {"model": "DeepSeek-V3", "tensor": 2, "sequence": True},
    ],
    ids=str,
)
def test_experts_are_proven(titan: Any, setup: dict[str, Any]) -> None:
    proven(titan.spec(titan.Setup(**setup)))


@pytest.mark.parametrize("setup", [{}, {"model": "DeepSeek-V3"}], ids=str)
@pytest.mark.parametrize(
    ("planted", "code"),
    [({"after": "halved"}, "PIT101"), ({"change": "neighbours"}, "PIT107")],
    ids=str,
)
def test_experts_of_other_tokens_and_gradients(
    titan: Any, setup: dict[str, Any], planted: dict[str, str], code: str
) -> None:
    wrong = {place: getattr(titan, name) for place, name in planted.items()}
    refuted(titan.spec(titan.Setup(**setup), **wrong), code)


def test_the_mean_of_own_tokens(titan: Any) -> None:
    averaged = import_module("frontends.torch.frameworks.titan").averaged
    refuted(titan.spec(titan.Setup(), averaged), "PIT102")


def test_biases_by_the_tokens_of_a_rank(titan: Any) -> None:
    """Each rank moves the biases of experts by the tokens that it has sent."""
    refuted(titan.spec(titan.Setup(balanced=True), counted=titan.ALONE), "PIT104")


def refuted(spec: Any, code: str) -> None:
    """A mismatch, whose first finding has a cause and a line."""
    report = check_at_one_mesh(spec)
    assert report.verdict == "mismatch", (report.verdict, report.findings)
    assert report.findings[0].code == code and report.findings[0].source, report.findings
