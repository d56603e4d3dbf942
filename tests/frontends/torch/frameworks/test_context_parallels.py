"""PyTorch's ``context_parallel``, and the attention kernels of GPUs of which it consists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from frontends.torch.proving import caught, check_at_one_mesh, proven
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import _cp_options, set_rotate_method

from pitcheck.torch import Input, Part, Program, Rank, Spec

LENGTH, SIZE, RANKS = 4, 2, 2
FLASH = torch.ops.aten._scaled_dot_product_flash_attention
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def by_pytorch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class Attention(nn.Module):
    def __init__(self, attend: Attend = by_pytorch) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(SIZE, SIZE, bias=False) for _ in range(3))
        self.attend = attend

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.attend(self.q(x), self.k(x), self.v(x))
        return out


def loss_of(model: nn.Module, batch: Any) -> torch.Tensor:
    x, slopes = (batch[name].unsqueeze(1) for name in ("x", "slopes"))
    return (model(x) * slopes).sum()


def training(model: nn.Module) -> Program:
    def step(batch: Any) -> torch.Tensor:
        loss = loss_of(model, batch)
        loss.backward()
        return loss

    return Program(model, step)


def ring(
    balanced: bool,
    rotation: str = "allgather",
    names: tuple[str, ...] = ("x", "slopes"),
    summed: bool = True,
) -> Spec:
    """The attention of whole sequences, and of those that are divided around a ring."""

    def parallel(_: Rank) -> Program:
        _cp_options.enable_load_balance = balanced
        set_rotate_method(rotation)
        model, devices = Attention(), init_device_mesh("cpu", (RANKS,))

        def step(batch: Any) -> torch.Tensor:
            first = batch["slopes"][:, : LENGTH // RANKS]
            buffers = [batch[name] for name in names]
            with context_parallel(devices, buffers=buffers, buffer_seq_dims=[1] * len(names)):
                slopes = batch["slopes"] if "slopes" in names else first
                loss = loss_of(model, {"x": batch["x"], "slopes": slopes})
                loss.backward()
            for parameter in model.parameters() if summed else ():
                dist.all_reduce(parameter.grad)
            return loss

        return Program(model, step)

    return Spec(
        lambda: training(Attention()),
        parallel,
        {"cp": RANKS},
        {name: Input((1, LENGTH, SIZE)) for name in ("x", "slopes")},
        {"loss": Part(sum="cp")},
    )


@pytest.mark.slow
def test_around_a_ring() -> None:
    proven(ring(balanced=False))


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("rotation", ["allgather", "alltoall"])
def test_balanced(rotation: str) -> None:
    """Scores are so large in some trials that a sum of exponentials is no float."""
    proven(ring(balanced=True, rotation=rotation))


@pytest.mark.slow
@pytest.mark.nightly
def test_gradients_not_summed() -> None:
    caught(ring(balanced=False, summed=False), "self.attend(self.q(x)", "PIT104", "PIT107")


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("balanced", [False, True])
def test_what_is_not_divided_with_the_sequence(balanced: bool) -> None:
    """Each rank takes the first half of what its own places are multiplied by."""
    assert check_at_one_mesh(ring(balanced, names=("x",))).verdict == "mismatch"


# --- kernels


def flash(is_causal: bool = True, keys: int | None = None, **more: Any) -> Attend:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = FLASH(q, k[:, :, :keys], v[:, :, :keys], 0.0, is_causal, **more)[0]
        return out

    return attend


def heads(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The attention of parts of a batch, by DTensor."""
    devices = init_device_mesh("cpu", (RANKS,))
    spread = [DTensor.from_local(each, devices, [Shard(0)], run_check=False) for each in (q, k, v)]
    return by_pytorch(*spread).to_local()  # type: ignore[attr-defined, no-any-return]


def of_sequences(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The attention of a rank's rows, taken for its part of longer sequences."""
    devices = init_device_mesh("cpu", (RANKS,))
    spread = [DTensor.from_local(each, devices, [Shard(2)], run_check=False) for each in (q, k, v)]
    whole = by_pytorch(*spread)
    return whole.redistribute(placements=[Shard(2)]).to_local()  # type: ignore[attr-defined, no-any-return]


def rows(attend: Attend) -> Spec:
    """The attention of all rows by PyTorch, and of a rank's by a kernel."""

    def parallel(_: Rank) -> Program:
        model = Attention(attend)

        def step(batch: Any) -> torch.Tensor:
            loss = loss_of(model, batch)
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            return loss

        return Program(model, step)

    return Spec(
        lambda: training(Attention()),
        parallel,
        {"dp": RANKS},
        {name: Input((2, LENGTH, SIZE), split={0: "dp"}) for name in ("x", "slopes")},
        {"loss": Part(sum="dp")},
    )


@pytest.mark.slow
@pytest.mark.parametrize("attend", [flash(), heads], ids=["called", "by DTensor"])
def test_the_kernel_of_a_gpu(attend: Attend) -> None:
    proven(rows(attend))


@pytest.mark.slow
@pytest.mark.parametrize(
    "attend",
    [
        pytest.param(flash(is_causal=False), id="not causal", marks=pytest.mark.nightly),
        pytest.param(flash(scale=0.25), id="another scale"),
        pytest.param(of_sequences, id="rows in sequence", marks=pytest.mark.nightly),
    ],
)
def test_other_attention(attend: Attend) -> None:
    assert check_at_one_mesh(rows(attend)).verdict == "mismatch"


@pytest.mark.parametrize(
    ("attend", "said"),
    [
        (flash(keys=2), "4 queries and 2 keys is causal"),
        (flash(return_debug_mask=True), "asked for its mask"),
    ],
)
def test_what_kernels_do_differently_is_refused(attend: Attend, said: str) -> None:
    report = check_at_one_mesh(rows(attend))
    assert report.verdict == "inconclusive"
    assert said in report.findings[0].title
