"""A budget that is reached decides nothing."""

from __future__ import annotations

from zoo.pairs import pair

from pitcheck.base.options import Options
from pitcheck.engine.check import check


def test_too_little_memory_is_inconclusive() -> None:
    report = check(*pair("megatron_mlp_silu"), Options(seed=1, max_memory=64))
    assert (report.verdict, report.exit_code) == ("inconclusive", 3)
    assert [f.code for f in report.findings] == ["PIT203"]
    assert "--max-memory" in report.findings[0].title


def test_enough_memory_is_not() -> None:
    assert (
        check(*pair("megatron_mlp_silu"), Options(seed=1, max_memory=1 << 24)).verdict
        == "equivalent"
    )
