"""A small GPT trained for one step: on one device, and by hand with tensor and data parallelism.

The step is what people write first: sequence parallelism, gradients summed over tensor-parallel
ranks where each saw a part of the sequence, a mean over data-parallel ranks, clipping by the norm,
an optimizer. ``make(Variant(...))`` gives the specification of one of its ordinary forms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from pitcheck.torch import Input, Part, Program, Spec

VOCABULARY, HIDDEN, HEADS, LENGTH, ROWS = 32, 16, 4, 8, 12


@dataclass(frozen=True)
class Variant:
    """The form of a step.

    ``clip``: "utility" (``clip_grad_norm_``), "foreach", "flat" (the norm of all gradients in one
    tensor), "each" (every parameter by itself) or "" for none. ``qkv``: "pieces", "interleaved" by
    head, or "separate". ``optimizer``: "sgd", "adamw" or "adafactor". ``norm``: "layer" or "rms".
    ``whole_reference``: one device takes the batch as a whole, whatever ``microbatches`` is.
    """

    layers: int = 2
    clip: str = "utility"
    qkv: str = "pieces"
    optimizer: str = "adamw"
    tied: bool = False
    norm: str = "layer"
    bias: bool = False
    microbatches: int = 1
    whole_reference: bool = False
    sequence_parallel: bool = True


def _gathered(x: Tensor, group: Any) -> Tensor:
    """Return the slices of dimension 0 of all ranks of a group."""
    out = x.new_empty(dist.get_world_size(group) * x.shape[0], *x.shape[1:])
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out


def _scattered(x: Tensor, group: Any) -> Tensor:
    """Return this rank's slice of dimension 0 of the sum over a group."""
    out = x.new_empty(x.shape[0] // dist.get_world_size(group), *x.shape[1:])
    dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
    return out


def _summed(x: Tensor, group: Any) -> Tensor:
    """Return the sum over a group."""
    out = x.clone()
    dist.all_reduce(out, group=group)
    return out


class _Pair(torch.autograd.Function):
    """A communication, and its transpose in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any, forth: Callable, back: Callable) -> Tensor:
        ctx.group, ctx.back = group, back
        return forth(x, group)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.back(g, ctx.group), None, None, None


def _same(x: Tensor, group: Any) -> Tensor:  # noqa: ARG001 (one signature for all)
    return x.clone()


class Tensors:
    """The ranks that share every layer; without a group, one device that has it whole."""

    def __init__(self, size: int, group: Any, sequence: bool) -> None:
        self.size, self.group, self.sequence = size, group, sequence

    def enter(self, x: Tensor) -> Tensor:
        """Return what the column-parallel layers of a block read."""
        if self.group is None:
            return x
        pair = (_gathered, _scattered) if self.sequence else (_same, _summed)
        return _Pair.apply(x, self.group, *pair)

    def leave(self, x: Tensor) -> Tensor:
        """Return the sum of what the row-parallel layers compute."""
        if self.group is None:
            return x
        pair = (_scattered, _gathered) if self.sequence else (_summed, _same)
        return _Pair.apply(x, self.group, *pair)


class RMSNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)


class Block(nn.Module):
    def __init__(self, variant: Variant, tensors: Tensors) -> None:
        super().__init__()
        self.variant, self.tensors = variant, tensors
        self.heads, width = HEADS // tensors.size, HIDDEN // tensors.size
        norm = nn.LayerNorm if variant.norm == "layer" else lambda _: RMSNorm()
        self.ln1, self.ln2 = norm(HIDDEN), norm(HIDDEN)
        if variant.qkv == "separate":
            self.q, self.k, self.v = (nn.Linear(HIDDEN, width, variant.bias) for _ in range(3))
        else:
            self.qkv = nn.Linear(HIDDEN, 3 * width, variant.bias)
        self.proj = nn.Linear(width, HIDDEN, bias=False)
        self.up = nn.Linear(HIDDEN, 4 * width, variant.bias)
        self.down = nn.Linear(4 * width, HIDDEN, bias=False)

    def attention(self, x: Tensor) -> Tensor:
        """Return causal attention over x of shape (length, rows, hidden)."""
        length, rows, _ = x.shape
        split = length, rows, self.heads
        if self.variant.qkv == "separate":
            q, k, v = (f(x).view(*split, -1).permute(1, 2, 0, 3) for f in (self.q, self.k, self.v))
        elif self.variant.qkv == "pieces":
            q, k, v = self.qkv(x).view(length, rows, 3, self.heads, -1).permute(2, 1, 3, 0, 4)
        else:
            q, k, v = self.qkv(x).view(*split, 3, -1).permute(3, 1, 2, 0, 4)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(mask, float("-inf")).softmax(-1)
        return self.proj((weights @ v).permute(2, 0, 1, 3).reshape(length, rows, -1))

    def forward(self, x: Tensor) -> Tensor:
        enter, leave = self.tensors.enter, self.tensors.leave
        x = x + leave(self.attention(enter(self.ln1(x))))
        return x + leave(self.down(functional.gelu(self.up(enter(self.ln2(x))))))


class GPT(nn.Module):
    def __init__(self, variant: Variant, tensors: Tensors) -> None:
        super().__init__()
        self.tensors = tensors
        self.embed = nn.Embedding(VOCABULARY, HIDDEN)
        self.blocks = nn.ModuleList(Block(variant, tensors) for _ in range(variant.layers))
        self.norm = nn.LayerNorm(HIDDEN) if variant.norm == "layer" else RMSNorm()
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)
        if variant.tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Return this rank's share of the mean loss over tokens of shape (rows, length)."""
        tokens, labels, total = tokens.t(), labels.t(), tokens.numel()
        if self.tensors.group is not None and self.tensors.sequence:
            rank = dist.get_rank(self.tensors.group)
            tokens = tokens.chunk(self.tensors.size)[rank]
            labels = labels.chunk(self.tensors.size)[rank]
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
        return loss / total


def is_sharded(name: str) -> bool:
    """Return True if tensor-parallel ranks hold parts of a parameter."""
    return any(f".{part}." in name for part in ("qkv", "q", "k", "v", "proj", "up", "down"))


def _optimizer(variant: Variant, parameters: Any) -> torch.optim.Optimizer:
    if variant.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    if variant.optimizer == "adafactor":
        return Adafactor(parameters)
    return torch.optim.AdamW(parameters, lr=1e-3)


class Adafactor(torch.optim.Optimizer):
    """Adafactor without factored moments, which need no communication over shards."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 1e-2, "decay": 0.8, "eps": 1e-30})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # noqa: ARG002
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["square"] = torch.zeros_like(p)
                state["square"].mul_(group["decay"])
                state["square"].add_((p.grad.square() + group["eps"]) * (1 - group["decay"]))
                p.sub_(group["lr"] * p.grad * (state["square"] + group["eps"]).rsqrt())


def _clip_whole(variant: Variant, model: nn.Module) -> None:
    """Clip the gradients of one device."""
    parameters = list(model.parameters())
    if variant.clip == "utility":
        nn.utils.clip_grad_norm_(parameters, 1.0)
    elif variant.clip == "foreach":
        norms = torch._foreach_norm([p.grad for p in parameters])
        _scale(parameters, torch.linalg.vector_norm(torch.stack(norms)))
    elif variant.clip == "flat":
        _scale(parameters, torch.cat([p.grad.flatten() for p in parameters]).norm())
    elif variant.clip == "each":
        for p in parameters:
            nn.utils.clip_grad_norm_([p], 1.0)


def _scale(parameters: list[Tensor], norm: Tensor) -> None:
    factor = (1.0 / (norm + 1e-6)).clamp(max=1.0)
    for p in parameters:
        p.grad.mul_(factor)


def _clip_sharded(variant: Variant, model: nn.Module, group: Any) -> None:
    """Clip the gradients of tensor-parallel ranks."""
    named = list(model.named_parameters())
    if variant.clip == "each":
        for name, p in named:
            square = p.grad.square().sum()
            if is_sharded(name):
                dist.all_reduce(square, group=group)
            _scale([p], square.sqrt())
    elif variant.clip:
        local = sum(p.grad.square().sum() for name, p in named if is_sharded(name))
        dist.all_reduce(local, group=group)
        whole = sum(p.grad.square().sum() for name, p in named if not is_sharded(name))
        _scale([p for _, p in named], (local + whole).sqrt())


def _backward(count: int, model: GPT, batch: Mapping[str, Tensor]) -> Tensor:
    """Return the mean loss over ``count`` micro-batches, after their backward passes."""
    parts = zip(batch["tokens"].chunk(count), batch["labels"].chunk(count), strict=True)
    losses = []
    for tokens, labels in parts:
        loss = model(tokens, labels) / count
        loss.backward()
        losses.append(loss.detach())
    return sum(losses[1:], losses[0])


def make(variant: Variant) -> Spec:
    """Return the specification of a form of the step at dp=2, tp=2."""

    def reference() -> Program:
        model = GPT(variant, Tensors(1, None, sequence=False))
        optimizer = _optimizer(variant, model.parameters())

        def step(batch: Mapping[str, Tensor]) -> Tensor:
            optimizer.zero_grad()
            loss = _backward(1 if variant.whole_reference else variant.microbatches, model, batch)
            _clip_whole(variant, model)
            optimizer.step()
            return loss

        return Program(model, step, optimizer)

    def parallel(rank: Any) -> Program:
        dp, tp = rank.mesh["dp"], rank.mesh["tp"]
        mesh = dist.init_device_mesh("cpu", (dp, tp), mesh_dim_names=("dp", "tp"))
        over_dp, over_tp = mesh["dp"].get_group(), mesh["tp"].get_group()
        model = GPT(variant, Tensors(tp, over_tp, variant.sequence_parallel))
        optimizer = _optimizer(variant, model.parameters())

        def step(batch: Mapping[str, Tensor]) -> Tensor:
            optimizer.zero_grad()
            loss = _backward(variant.microbatches, model, batch)
            for name, p in model.named_parameters():
                if variant.sequence_parallel and not is_sharded(name):
                    dist.all_reduce(p.grad, group=over_tp)
                dist.all_reduce(p.grad, group=over_dp)
                p.grad /= dp
            _clip_sharded(variant, model, over_tp)
            optimizer.step()
            return loss

        return Program(model, step, optimizer, parts=_parts(variant, tp, rank.coordinate["tp"]))

    loss = Part(mean="dp", sum="tp") if variant.sequence_parallel else Part(mean="dp")
    tokens = Input((ROWS, LENGTH), "int64", bounds=(0, VOCABULARY), split={0: "dp"})
    return Spec(
        reference,
        parallel,
        mesh={"dp": 2, "tp": 2},
        batch={"tokens": tokens, "labels": tokens},
        outputs={"loss": loss},
    )


def _parts(variant: Variant, tp: int, rank: int) -> dict[str, Any]:
    """Return the rows and columns that a tensor-parallel rank holds of each parameter."""

    def slice_of(size: int, start: int = 0) -> tuple[int, int]:
        return start + rank * size // tp, start + (rank + 1) * size // tp

    pieces = [slice_of(HIDDEN, part * HIDDEN) for part in range(3)]
    fused = pieces if variant.qkv == "pieces" else [slice_of(3 * HIDDEN)]
    rows = {"*.up": [slice_of(4 * HIDDEN)]}
    if variant.qkv == "separate":
        rows |= {f"*.{name}": [slice_of(HIDDEN)] for name in "qkv"}
    else:
        rows["*.qkv"] = fused
    kinds = ("weight", "bias") if variant.bias else ("weight",)
    return {
        **{f"{name}.{kind}": {0: places} for name, places in rows.items() for kind in kinds},
        "*.proj.weight": {1: [slice_of(HIDDEN)]},
        "*.down.weight": {1: [slice_of(4 * HIDDEN)]},
    }


base = make(Variant())
no_clipping = make(Variant(clip=""))
eight_layers = make(Variant(layers=8))
foreach = make(Variant(clip="foreach"))
flat_norm = make(Variant(clip="flat"))
norm_each = make(Variant(clip="each"))
interleaved = make(Variant(qkv="interleaved"))
separate = make(Variant(qkv="separate"))
sgd = make(Variant(optimizer="sgd"))
adafactor = make(Variant(optimizer="adafactor"))
tied = make(Variant(tied=True))
rms_norm = make(Variant(norm="rms"))
bias = make(Variant(bias=True))
three_microbatches = make(Variant(microbatches=3, whole_reference=True))
three_microbatches_each = make(Variant(microbatches=3))
no_sequence_parallelism = make(Variant(sequence_parallel=False))
