"""torchtitan's own training step over its Llama 3, as its own functions spread it.

The step counts the tokens of all ranks, accumulates, clips by the norm of all gradients, and steps
AdamW and a schedule of its rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
from torchtitan.distributed.pipeline_parallel import pipeline_llm
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


@dataclass(frozen=True)
class Joined:
    """A schedule of PyTorch 2.13, to which torchtitan 0.3 gives micro-batches one by one."""

    schedule: Any

    def step(
        self,
        *,
        arg_mbs: list[tuple[torch.Tensor, ...]] | None,
        kwarg_mbs: list[dict[str, torch.Tensor]],
        target_mbs: list[torch.Tensor] | None,
        **more: Any,
    ) -> None:
        """Run the schedule on the whole batch, which it divides again."""
        inputs = [torch.cat(parts) for parts in zip(*(arg_mbs or ()), strict=True)]
        by_name = {name: torch.cat([each[name] for each in kwarg_mbs]) for name in kwarg_mbs[0]}
        target = torch.cat(target_mbs) if target_mbs else None
        self.schedule.step(*inputs, target=target, **by_name, **more)


def places(tokens: torch.Tensor) -> torch.Tensor:
    """Return the positions of tokens in their sequences."""
    return torch.arange(LENGTH).expand(len(tokens), LENGTH)


def batches(batch: Batch, steps: int) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
    """Yield what a data loader yields, from the rows of a rank."""
    for tokens, labels in zip(
        batch["tokens"].chunk(steps), batch["labels"].chunk(steps), strict=True
    ):
        yield {"input": tokens, "positions": places(tokens)}, labels


def on_one_device(layers: int) -> Program:
    """Return a plain training loop over the model."""
    model = titan.configured(layers).build()
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


def configuration(
    size: Mapping[str, int], local: int, rate: float, schedule: str
) -> Trainer.Config:
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
            tensor_parallel_degree=size["tp"],
            pipeline_parallel_degree=size["pp"],
            pipeline_parallel_schedule=schedule,
            pipeline_parallel_microbatch_size=1,
            enable_sequence_parallel=True,
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


def spread(rank: Rank, layers: int, micro: int, schedule: str, mistake: str) -> Program:
    """Return torchtitan's trainer over a model that torchtitan has spread."""
    titan.parallel_dims.device_type = "cpu"
    dist_utils.set_spmd_backend("partial_dtensor")
    size = {axis: rank.mesh.get(axis, 1) for axis in ("pp", "rep", "dp", "tp")}
    local = titan.BATCH // size["rep"] // size["dp"] // micro
    rate = RATE * 2 if mistake == OTHER_RATE and rank.number == 1 else RATE
    config = configuration(size, local, rate, schedule)
    dims = ParallelDims.from_config(config.parallelism, prod(rank.mesh.values()))
    dims.build_mesh()
    model = titan.configured(layers)
    set_llama3_sharding_config(model, enable_sp=True)
    training = Training(micro, dims, config, mistake == OWN_TOKENS)
    training.model_config = model
    shared: dict[str, Any] = {
        "parallel_dims": dims,
        "training": config.training,
        "parallelism": config.parallelism,
        "compile_config": CompileConfig(enable=False),
        "ac_config": None,
        "dump_folder": "",
    }
    if dims.pp_enabled:
        training.num_pipeline_parallel_microbatches = local
        stages, training.model_parts, training.pp_has_first_stage, training.pp_has_last_stage = (
            pipeline_llm(
                model.build(),
                device=training.device,
                model_config=model,
                parallelize_fn=parallelize_llama,
                loss_fn=training.loss_fn,
                **shared,
            )
        )
        training.pp_schedule = Joined(stages)
    else:
        training.model_parts = [parallelize_llama(model.build(), **shared)]
    for part in training.model_parts:
        part.init_states()
        part.train()
    training.optimizers = config.optimizer.build(model_parts=training.model_parts)
    training.lr_schedulers = config.lr_scheduler.build(
        optimizers=training.optimizers, training_steps=100
    )

    def step(batch: Batch) -> torch.Tensor | None:
        training.losses = []
        training.train_step(batches(batch, micro * training.num_pipeline_parallel_microbatches))
        if dims.pp_enabled and not training.pp_has_last_stage:
            return None
        return torch.stack(training.losses).sum()

    return Program(training.model_parts, step, training.optimizers.optimizers)


def spec(
    mesh: Mapping[str, int],
    mistake: str = "",
    layers: int = 1,
    micro: int = 1,
    schedule: str = "1F1B",
) -> Spec:
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
        lambda: on_one_device(layers),
        lambda rank: spread(rank, layers, micro, schedule, mistake),
        mesh,
        batch,
        {"loss": Part(sum=data)} if data else {},
    )
