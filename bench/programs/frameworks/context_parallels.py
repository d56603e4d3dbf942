"""PyTorch's ``context_parallel``: sequences over ranks, attention around a ring."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from small import Batch, named
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import _cp_options, set_rotate_method

from pitcheck.torch import Input, Part, Program, Rank, Spec

ROWS, LENGTH, HEADS, SIZE = 2, 4, 2, 2
WIDTH = HEADS * SIZE
MISTAKES = (
    "gradients not averaged",
    "positions not divided",
    "targets in the order of the batch",
)


class Attention(nn.Module):
    """A layer of attention with rotary positions, whose table is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        angles = torch.outer(torch.arange(LENGTH), 100.0 ** -torch.arange(0, 1, 2 / SIZE))
        self.register_buffer("angles", torch.cat([angles, angles], -1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the next features, of the shape of x: (batch, sequence, features)."""
        q, k, v = (
            part.unflatten(-1, (HEADS, SIZE)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)
        )
        q, k = self.turned(q), self.turned(k)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(attended.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        """Return queries or keys turned by the angles of their positions."""
        angles, (first, second) = self.angles[: x.shape[2]], x.chunk(2, -1)
        return x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()


def spec(
    mesh: Mapping[str, int], mistake: str = "", balanced: bool = True, rotation: str = "allgather"
) -> Spec:
    """Return the layer on one device, and with its sequences over ranks."""
    named(MISTAKES, mistake)

    def loss_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (model(x) - y).square().mean()

    def reference() -> Program:
        model = Attention()

        def step(batch: Batch) -> torch.Tensor:
            loss = loss_of(model, batch["x"], batch["y"])
            loss.backward()
            return loss

        return Program(model, step)

    def parallel(rank: Rank) -> Program:
        _cp_options.enable_load_balance = balanced
        set_rotate_method(rotation)
        model, devices = Attention(), init_device_mesh("cpu", tuple(mesh.values()))

        def step(batch: Batch) -> torch.Tensor:
            buffers, y = {"x": (batch["x"], 1), "angles": (model.angles, 0)}, batch["y"]
            if mistake == "targets in the order of the batch":
                y = y.chunk(mesh["cp"], 1)[rank.number]
            else:
                buffers["y"] = (y, 1)
            if mistake == "positions not divided":
                del buffers["angles"]
            tensors, dims = map(list, zip(*buffers.values(), strict=True))
            with context_parallel(devices, buffers=tensors, buffer_seq_dims=dims):
                loss = loss_of(model, batch["x"], y)
                loss.backward()
            if mistake != "gradients not averaged":
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
            return loss

        return Program(model, step)

    features = Input((ROWS, LENGTH, WIDTH))
    return Spec(
        reference, parallel, mesh, {"x": features, "y": features}, {"loss": Part(mean="cp")}
    )
