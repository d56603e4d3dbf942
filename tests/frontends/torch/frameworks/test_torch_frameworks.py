"""Programs on PyTorch's own parallelism, recorded and checked: DTensor, FSDP2,
DistributedDataParallel, pipelines.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from frontends.torch.parallelism import test_data_parallel as data
from frontends.torch.parallelism import test_pipeline as pipeline
from frontends.torch.parallelism import test_tensor_parallel as tensor
from frontends.torch.proving import proven
from support.by_day import some_by_day

from pitcheck.frontends.torch.program import Part, Spec

MEAN = {"loss": Part(mean="dp")}


def sharded(**mesh: int) -> Spec:
    """FSDP2, with tensor and sequence parallelism where the mesh has ``tp``."""
    return Spec(tensor.llama, data.fsdp, mesh, tensor.TOKENS, MEAN)


def optimized() -> Spec:
    """FSDP2 with AdamW."""
    build = data.optimized(
        lambda parameters: data.torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.5)
    )
    return Spec(
        lambda: build(tensor.Llama()),
        lambda rank: build(*data.sharded(rank, ("dp",))),
        {"dp": 2},
        tensor.TOKENS,
        MEAN,
    )


PROGRAMS: dict[str, Callable[[], Spec]] = {
    "DTensor, sequence parallel": lambda: tensor.tensor_parallel(True),
    "DTensor": lambda: tensor.tensor_parallel(False),
    "FSDP2 and DTensor": lambda: sharded(dp=2, tp=2),
    "FSDP2": lambda: sharded(dp=2),
    "FSDP2 and AdamW": optimized,
    "send and receive": lambda: Spec(
        pipeline.reference, pipeline.blocking, {"pp": 2}, pipeline.BATCH
    ),
    "batches of sends and receives": lambda: Spec(
        pipeline.reference, pipeline.batched, {"pp": 2}, pipeline.BATCH
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", some_by_day(PROGRAMS, 2))
def test_frameworks_are_proven(name: str) -> None:
    proven(PROGRAMS[name]())
