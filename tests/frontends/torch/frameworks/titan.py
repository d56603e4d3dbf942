"""torchtitan's Llama 3 and its own function that spreads it over ranks, as recorded programs. To be
imported only where torchtitan is installed.

What stands in for what a CPU lacks: the Triton kernels of its expert parallelism, which no dense
model runs, are names without a value where Triton is not installed; its meshes are made for the
CPU; and attention is its `ScaledDotProductAttention`, for flex attention is compiled for a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import count
from math import prod
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed._functional_collectives as funcol
from torch import nn
from torch.distributed.tensor import DTensor, Shard

from pitcheck.torch import Input, Part, Program, Rank, Spec


class _Kernels(ModuleType):
    """Names of kernels that nobody calls."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


_KERNELS = "torchtitan.distributed.minimal_async_ep.kernels"
if find_spec("triton") is None:
    sys.modules.setdefault(_KERNELS, _Kernels(_KERNELS))

from torchtitan.components.loss import cross_entropy_loss  # noqa: E402
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig  # noqa: E402
from torchtitan.distributed import ParallelDims, parallel_dims  # noqa: E402
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC  # noqa: E402
from torchtitan.distributed.full_dtensor import parallelize_inputs  # noqa: E402
from torchtitan.distributed.utils import clip_grad_norm_, set_spmd_backend  # noqa: E402
from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm  # noqa: E402
from torchtitan.models.common.attention import ScaledDotProductAttention  # noqa: E402
from torchtitan.models.common.config_utils import make_ffn_config, make_gqa_config  # noqa: E402
from torchtitan.models.llama3 import Llama3Model, Llama3TransformerBlock, parallelize_llama  # noqa: E402
from torchtitan.models.llama3.sharding import set_llama3_sharding_config  # noqa: E402

WIDTH, HEADS, KEYS, HIDDEN, VOCABULARY, LENGTH, BATCH = 16, 4, 2, 12, 24, 4, 4
TOKENS = {
    name: Input((BATCH, LENGTH), "int64", (0, VOCABULARY), split={0: "dp"})
    for name in ("tokens", "labels")
}
TERM = Part(sum="dp")
REPLICATED = {name: replace(each, split={0: ("rep", "dp")}) for name, each in TOKENS.items()}
RECOMPUTED = {"": None, "full": FullAC.Config(), "selective": SelectiveAC.Config()}
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Change = Callable[[Llama3Model], None]


@dataclass(frozen=True)
class Setup:
    """Degrees of data (FSDP2) and tensor parallelism; ``replicas``: of sharded parameters;
    ``recomputed``: activation checkpointing; ``clipped``: AdamW after clipping.
    """

    data: int = 1
    replicas: int = 1
    tensor: int = 1
    sequence: bool = True
    recomputed: str = ""
    backend: str = "partial_dtensor"
    clipped: bool = False

    def __str__(self) -> str:
        said = [
            f"rep{self.replicas}" if self.replicas > 1 else "",
            f"dp{self.data}",
            f"tp{self.tensor}",
            "sp" if self.sequence else "",
            self.recomputed,
            self.backend,
            "clipped" if self.clipped else "",
        ]
        return " ".join(filter(None, said))


def model(sequence: bool | None = None) -> Llama3Model:
    """One layer with grouped queries and a fused projection; ``sequence``: declared for tensor
    parallelism, with sequence parallelism or without.
    """
    config = configured(1)
    if sequence is not None:
        set_llama3_sharding_config(config, enable_sp=sequence)
    return config.build()


def configured(layers: int) -> Llama3Model.Config:
    """The configuration of a model with equal layers."""

    def norm() -> RMSNorm.Config:
        return RMSNorm.Config(normalized_shape=WIDTH, param_init={"weight": nn.init.ones_})

    normal = {"weight": nn.init.normal_}

    def layer() -> Llama3TransformerBlock.Config:
        return Llama3TransformerBlock.Config(
            attention_norm=norm(),
            ffn_norm=norm(),
            attention=make_gqa_config(
                dim=WIDTH,
                n_heads=HEADS,
                n_kv_heads=KEYS,
                wqkv_param_init=normal,
                wo_param_init=normal,
                inner_attention=ScaledDotProductAttention.Config(),
                fuse_qkv=True,
                rope=ComplexRoPE.Config(dim=WIDTH // HEADS, max_seq_len=LENGTH, theta=10000),
            ),
            feed_forward=make_ffn_config(
                dim=WIDTH, hidden_dim=HIDDEN, w1_param_init=normal, w2w3_param_init=normal
            ),
        )

    return Llama3Model.Config(
        dim=WIDTH,
        vocab_size=VOCABULARY,
        tok_embeddings=Embedding.Config(
            num_embeddings=VOCABULARY, embedding_dim=WIDTH, param_init=normal
        ),
        norm=norm(),
        lm_head=Linear.Config(in_features=WIDTH, out_features=VOCABULARY, param_init=normal),
        layers=[layer() for _ in range(layers)],
    )


def summed(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """torchtitan's own loss, a sum over tokens."""
    return cross_entropy_loss(logits, labels, global_vocab_size=VOCABULARY)


def training(
    built: Llama3Model, setup: Setup, dims: ParallelDims | None = None, loss_of: Loss = summed
) -> Program:
    optimizer = torch.optim.AdamW(built.parameters(), lr=0.1) if setup.clipped else None

    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        tokens, labels = batch["tokens"], batch["labels"]
        if dims is not None and setup.backend == "full_dtensor":
            tokens, labels, _ = parallelize_inputs(dims, tokens, labels, {})
        loss = loss_of(built(tokens), labels)
        loss.backward()
        if optimizer is not None:
            clip_grad_norm_(list(built.parameters()), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        return loss.to_local() if isinstance(loss, DTensor) else loss

    return Program(built, step, optimizer) if optimizer is not None else Program(built, step)


def spec(
    setup: Setup,
    loss_of: Loss = summed,
    change: Change = lambda _: None,
    loss: Part | None = None,
    dims_of: Callable[[ParallelDims], ParallelDims] = lambda dims: dims,
) -> Spec:
    """Its model on one device, and the same model after ``parallelize_llama``. Both take
    ``loss_of``; ``change`` and ``dims_of`` plant a mistake in the latter. ``loss``: by default a
    term of a sum over all data.
    """
    replicated = setup.replicas > 1

    def reference() -> Program:
        built = model()
        built.init_states()
        return training(built, setup, loss_of=loss_of)

    def parallel(rank: Rank) -> Program:
        parallel_dims.device_type = "cpu"
        set_spmd_backend(setup.backend)
        parallelism = ParallelismConfig(
            data_parallel_replicate_degree=setup.replicas,
            data_parallel_shard_degree=setup.data,
            tensor_parallel_degree=setup.tensor,
            enable_sequence_parallel=setup.sequence,
            spmd_backend=setup.backend,
        )
        dims = ParallelDims.from_config(parallelism, prod(rank.mesh.values()))
        dims.build_mesh()
        built = model(setup.sequence)
        parallelize_llama(
            built,
            parallel_dims=dims_of(dims),
            training=TrainingConfig(mixed_precision_param="float32"),
            parallelism=parallelism,
            compile_config=CompileConfig(enable=False),
            ac_config=RECOMPUTED[setup.recomputed],
            dump_folder="",
        )
        built.init_states()
        change(built)
        return training(built, setup, dims, loss_of)

    mesh = {"dp": setup.data, "tp": setup.tensor}
    if not replicated:
        return Spec(reference, parallel, mesh, TOKENS, {"loss": loss or TERM})
    term = loss or Part(sum=("rep", "dp"))
    return Spec(reference, parallel, {"rep": setup.replicas, **mesh}, REPLICATED, {"loss": term})


# --- mistakes


def averaged(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The mean over all tokens that a process has, which over ranks is a mistake: gradients are
    summed there and not averaged.
    """
    return summed(logits, labels) / labels.numel()


def of_own_columns(place: int) -> Loss:
    """The loss over columns, one of whose reductions a rank leaves out: 0 is that of the largest
    score, 1 that of the exponentials.
    """

    def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        calls, whole = count(), funcol.all_reduce

        def all_reduce(x: torch.Tensor, **how: Any) -> torch.Tensor:
            return x if next(calls) == place else whole(x, **how)

        with patch.object(funcol, "all_reduce", all_reduce):
            return summed(logits, labels)

    return loss


def of_one_replica(dims: ParallelDims) -> ParallelDims:
    """The dimensions without replicas: gradients are summed over the shards of one, and never over
    replicas.
    """
    one = copy(dims)
    one.dp_replicate = 1
    return one


def local_norm(built: Llama3Model) -> None:
    """A layer's norm on local tensors: nobody says that the gradient of its weight is a term of a
    sum over the parts of the sequence.
    """
    norm: Any = built.layers["0"].ffn_norm

    def forward(x: DTensor) -> DTensor:
        weight = norm.weight.to_local()
        y = nn.functional.rms_norm(x.to_local(), (WIDTH,), weight, norm.eps)
        return DTensor.from_local(y, x.device_mesh, (Shard(1),))

    norm.forward = forward
