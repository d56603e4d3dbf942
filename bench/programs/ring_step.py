"""A small Llama trained for one step: on one device, and by hand over dp, pp, cp and tp.

Attention goes around a ring of context-parallel ranks and is merged by the log-sum-exp of each
block. Tensor-parallel ranks share heads, the MLP and the vocabulary. Activations and their
gradients are sent between two pipeline stages, all forward passes before all backward passes.
``make(Shape(...))`` gives the specification of a mesh.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from pitcheck.torch import Input, Part, Program, Spec

VOCABULARY, HIDDEN, HEADS, SIZE, INNER, LENGTH, ROWS = 16, 16, 4, 4, 32, 8, 4


@dataclass(frozen=True)
class Shape:
    """The sizes of a mesh, the number of layers and of micro-batches."""

    dp: int = 2
    pp: int = 2
    cp: int = 2
    tp: int = 2
    layers: int = 1
    microbatches: int = 2


@dataclass(frozen=True)
class Place:
    """The groups that a rank belongs to; one device has none."""

    shape: Shape
    groups: Mapping[str, Any]

    def size(self, axis: str) -> int:
        """Return the number of ranks along an axis."""
        return dist.get_world_size(self.groups[axis]) if axis in self.groups else 1

    def rank(self, axis: str) -> int:
        """Return the position along an axis."""
        return dist.get_rank(self.groups[axis]) if axis in self.groups else 0


class _Copied(torch.autograd.Function):
    """The input of column-parallel layers: its gradient is summed over tensor-parallel ranks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        out = g.clone()
        dist.all_reduce(out, group=ctx.group)
        return out, None


class _Reduced(torch.autograd.Function):
    """The output of row-parallel layers: a sum over tensor-parallel ranks."""

    @staticmethod
    def forward(_: Any, x: Tensor, group: Any) -> Tensor:
        out = x.clone()
        dist.all_reduce(out, group=group)
        return out

    @staticmethod
    def backward(_: Any, g: Tensor) -> tuple[Tensor, None]:
        return g, None


class _Gathered(torch.autograd.Function):
    """The parts of the last dimension of all tensor-parallel ranks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, -1)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        count = dist.get_world_size(ctx.group)
        return g.chunk(count, -1)[dist.get_rank(ctx.group)].contiguous(), None


def _scores(q: Tensor, k: Tensor, causal: bool) -> Tensor:
    scores = q @ k.transpose(-2, -1) * SIZE**-0.5
    if not causal:
        return scores
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(mask, -math.inf)


def _passed_on(tensors: list[Tensor], group: Any) -> list[Tensor]:
    """Send tensors to the next rank of a ring; return those of the previous one."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    ranks = dist.get_process_group_ranks(group)
    following, previous = ranks[(rank + 1) % size], ranks[(rank - 1) % size]
    received = [torch.empty_like(t) for t in tensors]
    calls = []
    for sent, place in zip(tensors, received, strict=True):
        calls.append(dist.P2POp(dist.isend, sent, following, group=group))
        calls.append(dist.P2POp(dist.irecv, place, previous, group=group))
    for request in dist.batch_isend_irecv(calls):
        request.wait()
    return received


class Ring(torch.autograd.Function):
    """Causal attention whose keys and values go around a ring."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, group: Any) -> Tensor:
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        out = total = None
        keys, values = k.contiguous(), v.contiguous()
        for step in range(size):
            if step <= rank:
                scores = _scores(q, keys, step == 0)
                block_total = torch.logsumexp(scores, -1, keepdim=True)
                block = torch.exp(scores - block_total) @ values
                if out is None:
                    out, total = block, block_total
                else:
                    out = out - torch.sigmoid(block_total - total) * (out - block)
                    total = total - functional.logsigmoid(total - block_total)
            if step + 1 < size:
                keys, values = _passed_on([keys, values], group)
        ctx.save_for_backward(q, k, v, out, total)
        ctx.group = group
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, out, total = ctx.saved_tensors
        rank, size = dist.get_rank(ctx.group), dist.get_world_size(ctx.group)
        dq = torch.zeros_like(q)
        keys, values = k.contiguous(), v.contiguous()
        dk, dv = torch.zeros_like(keys), torch.zeros_like(values)
        for step in range(size):
            if step <= rank:
                weights = torch.exp(_scores(q, keys, step == 0) - total)
                inner = g @ values.transpose(-2, -1) - (g * out).sum(-1, keepdim=True)
                ds = weights * inner * SIZE**-0.5
                dq = dq + ds @ keys
                dk = dk + ds.transpose(-2, -1) @ q
                dv = dv + weights.transpose(-2, -1) @ g
            keys, values, dk, dv = _passed_on([keys, values, dk, dv], ctx.group)
        return dq, dk, dv, None


class RMSNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


def _rotated(x: Tensor, first: int) -> Tensor:
    """Rotate pairs of x of shape (rows, heads, length, size) by their positions from ``first``."""
    frequencies = 1.0 / 10000 ** (torch.arange(0, SIZE, 2).float() / SIZE)
    angles = torch.outer(torch.arange(first, first + x.shape[-2]).float(), frequencies)
    cosine, sine = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
    left, right = x.chunk(2, -1)
    return x * cosine + torch.cat((-right, left), -1) * sine


class Layer(nn.Module):
    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place, tp = place, place.size("tp")
        self.norm1, self.norm2 = RMSNorm(), RMSNorm()
        self.q, self.k, self.v = (nn.Linear(HIDDEN, HIDDEN // tp, bias=False) for _ in range(3))
        self.o = nn.Linear(HIDDEN // tp, HIDDEN, bias=False)
        self.gate, self.up = (nn.Linear(HIDDEN, INNER // tp, bias=False) for _ in range(2))
        self.down = nn.Linear(INNER // tp, HIDDEN, bias=False)

    def enter(self, x: Tensor) -> Tensor:
        """Return what column-parallel layers read."""
        group = self.place.groups.get("tp")
        return x if group is None else _Copied.apply(x, group)

    def leave(self, x: Tensor) -> Tensor:
        """Return the sum of what row-parallel layers compute."""
        group = self.place.groups.get("tp")
        return x if group is None else _Reduced.apply(x, group)

    def attention(self, x: Tensor) -> Tensor:
        """Return causal attention over x of shape (rows, length, hidden)."""
        rows, length, _ = x.shape
        q, k, v = (
            f(x).view(rows, length, -1, SIZE).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        first = self.place.rank("cp") * length
        q, k = _rotated(q, first), _rotated(k, first)
        if "cp" in self.place.groups:
            out = Ring.apply(q, k, v, self.place.groups["cp"])
        else:
            out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(out.transpose(1, 2).reshape(rows, length, -1))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.leave(self.attention(self.enter(self.norm1(x))))
        h = self.enter(self.norm2(x))
        return x + self.leave(self.down(functional.silu(self.gate(h)) * self.up(h)))


class Embedding(nn.Module):
    """A table whose rows are split over tensor-parallel ranks."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place
        self.weight = nn.Parameter(torch.randn(VOCABULARY // place.size("tp"), HIDDEN))

    def forward(self, tokens: Tensor) -> Tensor:
        if "tp" not in self.place.groups:
            return functional.embedding(tokens, self.weight)
        first = self.place.rank("tp") * len(self.weight)
        outside = (tokens < first) | (tokens >= first + len(self.weight))
        found = functional.embedding((tokens - first).masked_fill(outside, 0), self.weight)
        found = found.masked_fill(outside.unsqueeze(-1), 0.0)
        return _Reduced.apply(found, self.place.groups["tp"])


class Llama(nn.Module):
    """The layers of a pipeline stage, with the embedding at the first and the head at the last."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place, stages, stage = place, place.size("pp"), place.rank("pp")
        count = math.ceil(place.shape.layers / stages)
        mine = range(stage * count, min((stage + 1) * count, place.shape.layers))
        self.first, self.last = stage == 0, stage + 1 == stages
        if self.first:
            self.embedding = Embedding(place)
        self.layers = nn.ModuleDict({str(layer): Layer(place) for layer in mine})
        if self.last:
            self.norm = RMSNorm()
            self.head = nn.Linear(HIDDEN, VOCABULARY // place.size("tp"), bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.first:
            x = self.embedding(x)
        for layer in self.layers.values():
            x = layer(x)
        if not self.last:
            return x
        x = self.norm(x)
        if "tp" not in self.place.groups:
            return self.head(x)
        group = self.place.groups["tp"]
        return _Gathered.apply(self.head(_Copied.apply(x, group)), group)


def _loss(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def _train_whole(model: Llama, tokens: list[Tensor], labels: list[Tensor]) -> Tensor:
    """Return the mean loss over micro-batches, after their backward passes."""
    total = torch.zeros(())
    for x, y in zip(tokens, labels, strict=True):
        loss = _loss(model(x), y) / len(tokens)
        loss.backward()
        total = total + loss.detach()
    return total


def _train_stage(
    model: Llama, pipeline: Any, tokens: list[Tensor], labels: list[Tensor]
) -> Tensor | None:
    """Run all forward passes of a stage, then all backward passes."""
    count, ranks = len(tokens), dist.get_process_group_ranks(pipeline)
    stage, total = dist.get_rank(pipeline), torch.zeros(())
    entered, left = [], []
    for given, y in zip(tokens, labels, strict=True):
        x = given
        if not model.first:
            x = torch.empty(*given.shape, HIDDEN)
            dist.recv(x, ranks[stage - 1])
            x.requires_grad_()
        out = model(x)
        if model.last:
            out = _loss(out, y) / count
            total = total + out.detach()
        else:
            dist.send(out.detach(), ranks[stage + 1])
        entered.append(x)
        left.append(out)
    for x, out in zip(entered, left, strict=True):
        if model.last:
            out.backward()
        else:
            gradient = torch.empty_like(out)
            dist.recv(gradient, ranks[stage + 1])
            out.backward(gradient)
        if not model.first:
            dist.send(x.grad, ranks[stage - 1])
    return total if model.last else None


def make(shape: Shape) -> Spec:
    """Return the specification of a step over a mesh of a shape."""
    sizes = {axis: getattr(shape, axis) for axis in ("dp", "pp", "cp", "tp")}
    sizes = {axis: size for axis, size in sizes.items() if size > 1}

    def reference() -> Program:
        model = Llama(Place(shape, {}))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

        def step(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
            optimizer.zero_grad()
            # The rows of a micro-batch are those that every data-parallel rank gives to it.
            rows = [batch[key].unflatten(0, (shape.dp, -1)) for key in ("tokens", "labels")]
            parts = ([p.flatten(0, 1) for p in x.chunk(shape.microbatches, 1)] for x in rows)
            loss = _train_whole(model, *parts)
            optimizer.step()
            return {"loss": loss}

        return Program(model, step, optimizer)

    def parallel(_: Any) -> Program:
        mesh = dist.init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        place = Place(shape, {axis: mesh[axis].get_group() for axis in sizes})
        model = Llama(place)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

        def step(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
            optimizer.zero_grad()
            parts = [batch[key].chunk(shape.microbatches) for key in ("tokens", "labels")]
            if "pp" in sizes:
                loss = _train_stage(model, place.groups["pp"], *parts)
            else:
                loss = _train_whole(model, *parts)
            for p in model.parameters():
                for axis in ("cp", "dp"):
                    if axis in sizes:
                        dist.all_reduce(p.grad, group=place.groups[axis])
                        p.grad /= sizes[axis]
            optimizer.step()
            return {} if loss is None else {"loss": loss}

        held = {name for name, _ in model.named_parameters()}
        parts = {name: part for name, part in _parts(place).items() if fnmatch.filter(held, name)}
        return Program(model, step, optimizer, parts=parts)

    tokens = Input(
        (ROWS, LENGTH),
        "int64",
        bounds=(0, VOCABULARY),
        split={d: a for d, a in ((0, "dp"), (1, "cp")) if a in sizes},
    )
    averaged = tuple(axis for axis in ("dp", "cp") if axis in sizes)
    return Spec(
        reference,
        parallel,
        mesh=sizes,
        batch={"tokens": tokens, "labels": tokens},
        outputs={"loss": Part(mean=averaged)},
    )


def _parts(place: Place) -> dict[str, Any]:
    """Return the rows and columns that a tensor-parallel rank holds of each parameter."""
    tp, rank = place.size("tp"), place.rank("tp")

    def slice_of(size: int) -> list[tuple[int, int]]:
        return [(rank * size // tp, (rank + 1) * size // tp)]

    rows = {"embedding": VOCABULARY, "head": VOCABULARY}
    rows |= {f"layers.*.{name}": HIDDEN for name in "qkv"}
    rows |= {f"layers.*.{name}": INNER for name in ("gate", "up")}
    return {
        **{f"{name}.weight": {0: slice_of(size)} for name, size in rows.items()},
        "layers.*.o.weight": {1: slice_of(HIDDEN)},
        "layers.*.down.weight": {1: slice_of(INNER)},
    }


ring = make(Shape(dp=1, pp=1, tp=1))
all_axes = make(Shape())
two_layers = make(Shape(layers=2))
