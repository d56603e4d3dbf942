"""Several processes say what one says."""

from __future__ import annotations

import msgspec
import pytest
from zoo.mutations import mutants
from zoo.pairs import pair

from pitcheck.check.options import Options
from pitcheck.check.run import check
from pitcheck.report.model import VOLATILE


def _lasting(report: msgspec.Struct) -> dict[str, object]:
    return {name: value for name, value in msgspec.to_builtins(report).items() if name not in VOLATILE}


@pytest.mark.parametrize("name", ["megatron_mlp_silu", "sequence_parallel_mlp", "cross_entropy_vocabulary_parallel"])
def test_two_processes_give_the_report_of_one(name: str) -> None:
    first, second = (check(*pair(name), Options(seed=4, jobs=jobs)) for jobs in (1, 2))
    assert first.verdict == "equivalent"
    assert _lasting(first) == _lasting(second)


def test_a_wrong_plan_is_caught_by_two_processes() -> None:
    reference, parallel = pair("megatron_mlp_silu")
    name, wrong = next((n, m) for n, m in mutants(parallel) if "all_reduce" in n and "dropped" in n)
    assert check(reference, wrong, Options(seed=4, jobs=2)).verdict == "mismatch", name
