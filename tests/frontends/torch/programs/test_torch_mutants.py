"""Mutants of every program that is proven.

Each communication is dropped, doubled, re-grouped, re-scaled and more, in turn. A change of a
result is caught.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from frontends.torch.frameworks.megatron_gpt import Setup, forgotten
from frontends.torch.frameworks.megatron_gpt import spec as megatron
from frontends.torch.frameworks.test_torch_frameworks import PROGRAMS as FRAMEWORKS
from frontends.torch.parallelism import test_accumulation as accumulation
from frontends.torch.parallelism import test_clipping as clipping
from frontends.torch.parallelism import test_experts as experts
from frontends.torch.parallelism import test_fused_attention as fused
from frontends.torch.parallelism import test_replicated as replicated
from frontends.torch.parallelism import test_ring_attention as ring
from frontends.torch.parallelism import test_schedules as schedules
from frontends.torch.parallelism import test_sharded_optimizer as sharded
from frontends.torch.programs.test_more_programs import scheduled
from frontends.torch.programs.trying import Trial
from torch.distributed.pipelining import ScheduleGPipe

from pitcheck.frontends.torch.load import load_spec
from pitcheck.torch import Spec

EXAMPLES = Path(__file__).parents[4] / "docs" / "examples"


def example(name: str) -> Callable[[], Spec]:
    """A program of the documentation."""
    return lambda: load_spec(str(EXAMPLES / f"{name}.py"), "spec")


def titan(**degrees: object) -> Callable[[], Spec]:
    """torchtitan's Llama; it takes seconds to import."""

    def build() -> Spec:
        module = import_module("frontends.torch.frameworks.titan")
        spec: Spec = module.spec(module.Setup(**degrees))
        return spec

    return build


PROGRAMS: dict[str, Callable[[], Spec]] = {
    **{path.stem: example(path.stem) for path in sorted(EXAMPLES.glob("*.py"))},
    **FRAMEWORKS,
    "1F1B": scheduled,
    "GPipe": lambda: schedules.spec(ScheduleGPipe, scale_grads=False),
    "accumulation": lambda: accumulation.spec(
        accumulation.accumulating(accumulation.of_whole_batch)
    ),
    "DistributedDataParallel": lambda: replicated.spec(
        replicated.replicated(replicated.until_the_last)
    ),
    "fused attention": lambda: fused.spec(True),
    "optimizer state by rows": lambda: sharded.spec(sharded.by_hand(sharded.Sharded)),
    "optimizer state by owner": lambda: sharded.spec(sharded.by_owner),
    "ring attention": lambda: ring.spec(2),
    "experts": lambda: experts.spec(experts.in_place),
    **{f"clipping, {name}": build for name, build in clipping.PROGRAMS.items()},
    "megatron-core": lambda: megatron(Setup(sequence=True)),
    "megatron-core, its DistributedDataParallel": lambda: megatron(Setup(sequence=True, data=2)),
    "torchtitan": titan(data=2, tensor=2),
    "torchtitan, full DTensor": titan(data=2, tensor=2, backend="full_dtensor"),
    "torchtitan, clipping": titan(data=2, tensor=2, clipped=True),
}
"""A program that is proven is entered here, and all is done that can be done to its
communication.
"""
NEEDED = {"megatron-core": "megatron", "torchtitan": "torchtitan"}
"""By the first word of a name what has to be installed."""
SHARES = {
    "FSDP2 and DTensor": 4,
    "clipping, FSDP2 and DTensor": 8,
    "megatron-core": 8,
    "torchtitan": 8,
}
"""Programs of hundreds of mutants, by name or by its first word: these are tried in so many tests,
to run next to each other.
"""
SAMPLE = {
    "tensor_parallel": (4, 1),
    "send and receive": (5, 1),
    "1F1B": (9, 1),
    "megatron-core": (117, 54),
}
"""Programs of which CI tries one mutant of so many, and the number of the first; all of all of them
are left to the night.
"""


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    yield
    forgotten()


def shares() -> list[tuple[str, int, int]]:
    """Return each share of every program's mutants, as (program, number of shares, share)."""
    count = {name: SHARES.get(name, SHARES.get(name.partition(",")[0], 1)) for name in PROGRAMS}
    return [(name, count[name], share) for name in PROGRAMS for share in range(count[name])]


def settled(name: str, every: int = 1, first: int = 0) -> None:
    """Every mutant that changes a result is caught, and every other one proven."""
    package = NEEDED.get(name.partition(",")[0])
    if package is not None and find_spec(package) is None:
        pytest.skip(f"{package} is not installed; pip install '.[{package}]' does")
    changing = 0
    for tried in Trial(PROGRAMS[name]()).tried(every, first):
        assert tried.settled, (
            tried.mutant.name,
            tried.change,
            tried.report.verdict,
            tried.report.findings,
        )
        changing += tried.changing
    assert changing


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_some_wrong_communication_is_caught(name: str) -> None:
    settled(name, *SAMPLE[name])


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(("name", "count", "share"), shares())
def test_no_wrong_communication_survives(name: str, count: int, share: int) -> None:
    settled(name, count, share)
