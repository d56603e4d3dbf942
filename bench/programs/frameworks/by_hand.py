"""Programs over plain ``torch.distributed``: those of the tests and of the documentation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from frontends.torch.parallelism import test_accumulation as accumulation
from frontends.torch.parallelism import test_clipping as clipping
from frontends.torch.parallelism import test_experts as experts
from frontends.torch.parallelism import test_fused_attention as fused
from frontends.torch.parallelism import test_ring_attention as ring
from frontends.torch.parallelism import test_sharded_optimizer as sharded
from frontends.torch.parallelism.regions import Averaged, Forgotten
from frontends.torch.programs.test_torch_causes import log_of_sum
from frontends.torch.recording import test_dropout as dropout

from pitcheck.frontends.torch.load import load_spec
from pitcheck.torch import Program, Rank, Spec

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
Build = Callable[[], Spec]


def spec(mesh: Mapping[str, int], name: str, mistake: str = "") -> Spec:
    """Return a program by its name."""
    found = PROGRAMS[name][mistake]()
    return found if dict(found.mesh) == dict(mesh) else replace(found, mesh=mesh)


def example(name: str) -> Spec:
    """Return a program of the documentation."""
    return load_spec(str(EXAMPLES / f"{name}.py"), "spec")


def entered(wrong: type) -> Spec:
    """Return tensor parallelism by hand whose gradients nobody adds up where they enter."""
    right = example("tensor_parallel")

    def parallel(rank: Rank) -> Program:
        program = right.parallel(rank)
        program.model.enter = wrong.apply
        return program

    return replace(right, parallel=parallel)


def left(wrong: type) -> Spec:
    """Return tensor parallelism by hand whose sum over ranks is another reduction."""
    right = example("tensor_parallel")

    def parallel(rank: Rank) -> Program:
        program = right.parallel(rank)
        program.model.leave = wrong.apply
        return program

    return replace(right, parallel=parallel)


def forgotten() -> Spec:
    """Return data parallelism by hand whose gradients nobody averages."""
    right = example("data_parallel")
    return replace(right, parallel=lambda _: right.reference())


def fully_sharded(clip: Callable[..., None]) -> Spec:
    """Return FSDP2 that clips."""
    return clipping.fully_sharded(clip, dp=2)


PROGRAMS: dict[str, dict[str, Build]] = {
    "data parallel": {
        "": lambda: example("data_parallel"),
        "gradients not averaged": forgotten,
    },
    "tensor parallel": {
        "": lambda: example("tensor_parallel"),
        "input gradient not summed": partial(entered, Forgotten),
        "a mean for a sum": partial(left, Averaged),
    },
    "accumulation": {
        "": lambda: accumulation.spec(accumulation.accumulating(accumulation.of_whole_batch)),
        "mean of means": lambda: accumulation.spec(
            accumulation.accumulating(accumulation.mean_of_means)
        ),
        "tokens of one rank": lambda: accumulation.spec(
            accumulation.accumulating(accumulation.of_whole_batch, everywhere=False)
        ),
    },
    "fused attention": {
        "": lambda: fused.spec(True),
        "gradients not added up": lambda: fused.spec(True, Forgotten),
    },
    "fused attention, rows by part": {
        "": lambda: fused.spec(False),
        "rows in another order": lambda: fused.spec(False, held=True),
    },
    "fused attention, functional": {
        "": lambda: fused.spec(True, fused.ToRanksFunctional, fused.FromRanksFunctional),
        "gradients not added up": lambda: fused.spec(True, Forgotten, fused.FromRanksFunctional),
    },
    "optimizer state by rows": {
        "": lambda: sharded.spec(sharded.by_hand(sharded.Sharded)),
        "parameters not gathered": lambda: sharded.spec(sharded.by_hand(sharded.Stale)),
        "gradients in another order": lambda: sharded.spec(sharded.by_hand(sharded.Misplaced)),
        "gradients not divided": lambda: sharded.spec(sharded.by_hand(sharded.Summed)),
    },
    "optimizer state by owner": {
        "": lambda: sharded.spec(sharded.by_owner),
        "parameters not gathered": lambda: sharded.spec(sharded.by_hand(sharded.Stale)),
    },
    "ring attention": {
        "": lambda: ring.spec(2),
        "sums not rescaled": lambda: ring.spec(2, rescaled=False),
    },
    "ring attention over three": {
        "": lambda: ring.spec(3),
        "gradients sent the other way": lambda: ring.spec(3, to=-1),
    },
    "experts by counts": {
        "": lambda: experts.spec(experts.in_place),
        "tokens combined in another order": lambda: experts.spec(experts.in_sorted_order),
        "weights of other tokens": lambda: experts.spec(experts.weights_of_others),
    },
    "experts in equal parts": {
        "": lambda: experts.spec(experts.in_place, experts.EVEN),
        "tokens combined in another order": lambda: experts.spec(
            experts.in_sorted_order, experts.EVEN
        ),
    },
    "clipping": {
        "": lambda: clipping.replicated(clipping.summed, clipping.clipped),
        "before gradients are summed": lambda: clipping.replicated(
            clipping.clipped, clipping.summed
        ),
        "by the matrices alone": lambda: clipping.replicated(
            clipping.summed, clipping.clipped_by_the_matrices_alone
        ),
    },
    "clipping of shards": {
        "": partial(fully_sharded, clipping.clipped),
        "by the shards of a rank": partial(fully_sharded, clipping.clipped_by_the_shards_of_a_rank),
    },
    "log of a sum over columns": {
        "": lambda: log_of_sum("max"),
        "largest of own columns": lambda: log_of_sum(None),
    },
    "dropout": {
        "": lambda: dropout.spec(
            lambda _: dropout.training(dropout.Network(dropout.dropped)), "tp"
        ),
        "another probability": lambda: dropout.spec(
            lambda _: dropout.training(
                dropout.Network(lambda x: dropout.nn.functional.dropout(x, 0.5))
            ),
            "tp",
        ),
    },
}
