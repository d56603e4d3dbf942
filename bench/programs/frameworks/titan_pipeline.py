"""torchtitan's Llama 3 as a pipeline, as its ``pipeline_llm`` cuts it into stages."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import torch
from frontends.torch.frameworks import titan
from small import Batch, named
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.distributed.pipeline_parallel import pipeline_llm
from torchtitan.models.llama3 import parallelize_llama

from pitcheck.torch import Part, Program, Rank, Spec

LAYERS, MICRO = 2, 2
MISTAKES = ("gradients divided as of a mean", "a micro-batch taken twice")


def spec(mesh: Mapping[str, int], mistake: str = "", schedule: str = "1F1B") -> Spec:
    """Return two layers on one device, and in stages over "pp", each with FSDP2 over "dp"."""
    named(MISTAKES, mistake)

    def reference() -> Program:
        model = titan.configured(LAYERS).build()
        model.init_states()

        def step(batch: Batch) -> torch.Tensor:
            loss = titan.summed(model(batch["tokens"]), batch["labels"])
            loss.backward()
            return loss

        return Program(model, step)

    def parallel(rank: Rank) -> Program:
        titan.parallel_dims.device_type = "cpu"
        titan.set_spmd_backend("partial_dtensor")
        rows = titan.BATCH // mesh.get("dp", 1)
        parallelism = titan.ParallelismConfig(
            data_parallel_shard_degree=mesh.get("dp", 1),
            pipeline_parallel_degree=mesh["pp"],
            pipeline_parallel_schedule=schedule,
            pipeline_parallel_microbatch_size=rows // MICRO,
            spmd_backend="partial_dtensor",
        )
        dims = titan.ParallelDims.from_config(parallelism, prod(mesh.values()))
        dims.build_mesh()
        config = titan.configured(LAYERS)
        running, parts, _, last = pipeline_llm(
            config.build(),
            parallel_dims=dims,
            training=titan.TrainingConfig(local_batch_size=rows, mixed_precision_param="float32"),
            parallelism=parallelism,
            compile_config=titan.CompileConfig(enable=False),
            ac_config=None,
            dump_folder="",
            device=torch.device("cpu"),
            model_config=config,
            parallelize_fn=parallelize_llama,
            loss_fn=CrossEntropyLoss.Config().build(),
        )
        for part in parts:
            part.init_states()
        running.scale_grads = mistake == "gradients divided as of a mean"

        def step(batch: Batch) -> torch.Tensor | None:
            tokens, labels = batch["tokens"], batch["labels"]
            if mistake == "a micro-batch taken twice":
                tokens, labels = (
                    torch.cat([each[: rows // MICRO]] * MICRO) for each in (tokens, labels)
                )
            losses: list[torch.Tensor] = []
            given = (tokens,) if rank.coordinate["pp"] == 0 else ()
            running.step(*given, target=labels if last else None, losses=losses if last else None)
            return torch.stack(losses).sum() if last else None

        return Program(parts, step)

    split = "dp" in mesh
    whole = {
        name: titan.Input(each.shape, each.dtype, each.bounds)
        for name, each in titan.TOKENS.items()
    }
    terms = {"loss": Part(sum="dp")} if split else {}
    return Spec(reference, parallel, mesh, titan.TOKENS if split else whole, terms)
