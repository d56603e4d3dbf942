"""torchtitan's own training step over its Llama 3, as its own functions spread it.

The step counts the tokens of all ranks, accumulates, clips by the norm of all gradients, and steps
AdamW and a schedule of its rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from types import SimpleNamespace
from typing import Any

import torch
from frontends.torch.frameworks import titan
from small import Batch, named
from torch import nn
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.components.optimizer import (
    LRSchedulersContainer,
    OptimizersContainer,
    ParamGroupConfig,
)
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed import ParallelDims
from torchtitan.distributed import utils as dist_utils
from torchtitan.models.llama3 import parallelize_llama
from torchtitan.models.llama3.sharding import set_llama3_sharding_config
from torchtitan.trainer import Trainer

from pitcheck.torch import Input, Part, Program, Rank, Spec

RATE, NORM, IGNORED, WARM = 0.1, 1.0, -100, 4
LENGTH, VOCABULARY = titan.LENGTH, titan.VOCABULARY
OWN_TOKENS, OTHER_RATE = "tokens of one rank", "another learning rate on one rank"
MISTAKES = (OWN_TOKENS, OTHER_RATE)
DATA = ("rep", "dp")


class Training(Trainer):
    """torchtitan's trainer, with what its ``__init__`` makes for a model that exists already.

    Nothing is logged, loaded or saved. ``losses`` are those of the last step.
    """

    def __init__(self, micro: int, dims: ParallelDims, config: Trainer.Config, own: bool) -> None:
        self.config, self.parallel_dims, self.own = config, dims, own
        self.device = torch.device("cpu")
        self.loss_fn = config.loss.build(compile_config=config.compile)
        self.train_context = dist_utils.get_spmd_context(parallel_dims=dims)
        self.fwd_bwd_fn = self._forward_backward_body
        self.gradient_accumulation_steps = micro
        self.num_pipeline_parallel_microbatches = 1
        self.step = self.ntokens_seen = 0
        self.metrics_processor = SimpleNamespace(should_log=lambda _: False)
        self.checkpointer = SimpleNamespace(maybe_wait_for_staging=lambda: None)
        self.losses: list[torch.Tensor] = []

    def forward_backward_step(self, **given: Any) -> torch.Tensor:
        """Keep the loss, which the trainer only logs."""
        if self.own:
            given["global_valid_tokens"] = (given["labels"] != IGNORED).sum()
        loss = super().forward_backward_step(**given)
        self.losses.append(loss.detach())
        return loss


def places(tokens: torch.Tensor) -> torch.Tensor:
    """Return the positions of tokens in their sequences."""
    return torch.arange(LENGTH).expand(len(tokens), LENGTH)


def batches(batch: Batch, steps: int) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
    """Yield what a data loader yields, from the rows of a rank."""
    for tokens, labels in zip(
        batch["tokens"].chunk(steps), batch["labels"].chunk(steps), strict=True
    ):
        yield {"input": tokens, "positions": places(tokens)}, labels


def on_one_device() -> Program:
    """Return a plain training loop over the model."""
    model = titan.configured(1).build()
    model.init_states()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda number: min((number + 1) / WARM, 1.0)
    )

    def step(batch: Batch) -> torch.Tensor:
        optimizer.zero_grad()
        logits = model(batch["tokens"], places(batch["tokens"])).flatten(0, 1)
        loss = nn.functional.cross_entropy(logits, batch["labels"].flatten(), ignore_index=IGNORED)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), NORM)
        optimizer.step()
        schedule.step()
        return loss

    return Program(model, step, optimizer)


def configuration(size: Mapping[str, int], local: int, rate: float) -> Trainer.Config:
    """Return torchtitan's configuration; ``local`` is the number of rows of a rank at a time."""
    return Trainer.Config(
        training=TrainingConfig(
            local_batch_size=local,
            max_norm=NORM,
            mixed_precision_param="float32",
            disable_cuda_graphs=True,
        ),
        parallelism=ParallelismConfig(
            data_parallel_replicate_degree=size["rep"],
            data_parallel_shard_degree=size["dp"],
            spmd_backend="partial_dtensor",
        ),
        loss=CrossEntropyLoss.Config(global_vocab_size=VOCABULARY),
        optimizer=OptimizersContainer.Config(
            param_groups=[
                ParamGroupConfig(
                    pattern=".*", optimizer_name="AdamW", optimizer_kwargs={"lr": rate}
                )
            ],
            implementation="foreach",
        ),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=WARM, decay_ratio=0.0),
    )


def spread(rank: Rank, micro: int, mistake: str) -> Program:
    """Return torchtitan's trainer over a model that torchtitan has spread."""
    titan.parallel_dims.device_type = "cpu"
    dist_utils.set_spmd_backend("partial_dtensor")
    size = {axis: rank.mesh.get(axis, 1) for axis in DATA}
    local = titan.BATCH // size["rep"] // size["dp"] // micro
    rate = RATE * 2 if mistake == OTHER_RATE and rank.number == 1 else RATE
    config = configuration(size, local, rate)
    dims = ParallelDims.from_config(config.parallelism, prod(rank.mesh.values()))
    dims.build_mesh()
    model = titan.configured(1)
    set_llama3_sharding_config(model, enable_sp=True)
    training = Training(micro, dims, config, mistake == OWN_TOKENS)
    training.model_config = model
    built = parallelize_llama(
        model.build(),
        parallel_dims=dims,
        training=config.training,
        parallelism=config.parallelism,
        compile_config=CompileConfig(enable=False),
        ac_config=None,
        dump_folder="",
    )
    built.init_states()
    built.train()
    training.model_parts = [built]
    training.optimizers = config.optimizer.build(model_parts=training.model_parts)
    training.lr_schedulers = config.lr_scheduler.build(
        optimizers=training.optimizers, training_steps=100
    )

    def step(batch: Batch) -> torch.Tensor:
        training.losses = []
        training.train_step(batches(batch, micro))
        return torch.stack(training.losses).sum()

    return Program(training.model_parts, step, training.optimizers.optimizers)


def spec(mesh: Mapping[str, int], mistake: str = "", micro: int = 1) -> Spec:
    """Return a plain training loop on one device, and torchtitan's trainer on the mesh.

    The batch has tokens that do not count, more of them for some ranks than for others.
    """
    named(MISTAKES, mistake)
    data = tuple(axis for axis in DATA if axis in mesh)
    count = titan.BATCH * LENGTH
    labels = [
        IGNORED if place % 7 < place // (count // 4) else place * 5 % VOCABULARY
        for place in range(count)
    ]
    shape, split = (titan.BATCH, LENGTH), {0: data} if data else {}
    batch = {
        "tokens": Input(shape, "int64", (0, VOCABULARY), split=split),
        "labels": Input(shape, "int64", values=labels, split=split),
    }
    return Spec(
        on_one_device,
        lambda rank: spread(rank, micro, mistake),
        mesh,
        batch,
        {"loss": Part(sum=data)} if data else {},
    )
