"""Pooling, resampling, padding, columns of windows and alignments against PyTorch.

Every operator that PyTorch's own functions and their derivatives run is compared with its formula.
As parts of programs they are proven, and a near miss is a mismatch.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from frontends.torch.proving import proven, verdict
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from pitcheck.frontends.torch.recording.decompositions import DECOMPOSED, PICTURES
from pitcheck.torch import Input, Part, Program, Spec

Tensor = torch.Tensor
COMPARED = {*PICTURES, "_ctc_loss", "_ctc_loss_backward", "convolution", "convolution_backward"}


class Compared(TorchDispatchMode):
    """A mode that compares formulas with the operators of PyTorch, whose results go on."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(
        self, called: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        results = called(*args, **(kwargs or {}))
        name = called._schema.name.partition("::")[2]
        if name in COMPARED:
            self.seen.add(name)
            ours = DECOMPOSED["aten", name](*args, **(kwargs or {}))
            pairs = zip(listed(results), listed(ours), strict=True)
            for number, (theirs, own) in enumerate(pairs):
                if theirs is not None and (name, number) != ("_ctc_loss", 1):
                    assert own.dtype == theirs.dtype
                    assert own.shape == theirs.shape
                    assert torch.allclose(own, theirs), (name, number)
        return results


def listed(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


def real(*shape: int) -> Tensor:
    """Drawn numbers that have a derivative."""
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def compared(function: Callable[..., Tensor], *tensors: Tensor) -> set[str]:
    """Run a function and its derivative, and return the operators that were compared."""
    mode = Compared()
    with mode:
        out = function(*tensors)
        (out * torch.randn_like(out)).sum().backward()
    return mode.seen


@pytest.mark.parametrize(("kernel", "ceil"), [*product((2, 3), (False, True))])
def test_pooling_is_that_of_pytorch(kernel: int, ceil: bool) -> None:
    torch.manual_seed(0)
    for stride, pad, step in product((1, 2), (0, 1), (1, 2)):
        greatest = (kernel, stride, pad, step, ceil)
        compared(lambda x, said=greatest: F.max_pool2d(x, *said), real(2, 3, 7, 8))
        compared(lambda x, said=greatest: F.max_pool3d(x, *said), real(1, 2, 5, 6, 7))
        for with_padding, divisor in product((True, False), (None, 3)):
            mean = ((kernel, 2), stride, (pad, 0), ceil, with_padding, divisor)
            compared(lambda x, said=mean: F.avg_pool2d(x, *said), real(2, 3, 7, 8))
            mean = (kernel, stride, pad, ceil, with_padding, divisor)
            compared(lambda x, said=mean: F.avg_pool3d(x, *said), real(1, 2, 5, 6, 7))


@pytest.mark.parametrize("size", range(1, 9))
def test_resampling_is_that_of_pytorch(size: int) -> None:
    torch.manual_seed(0)
    for count in range(1, 9):
        compared(lambda x, n=count: F.adaptive_avg_pool2d(x, (n, 3)), real(2, 3, size, 7))
        compared(lambda x, n=count: F.interpolate(x, size=(n, 5)), real(2, 3, size, 4))
        for corners in (True, False):
            said = {"mode": "bilinear", "align_corners": corners}
            compared(
                lambda x, n=count, said=said: F.interpolate(x, size=(n, 5), **said),
                real(2, 3, size, 4),
            )
    for scale, again in product((0.5, 1.5, 2, 3), (True, False)):
        if size * scale >= 1:
            said = {"scale_factor": scale, "recompute_scale_factor": again}
            compared(lambda x, said=said: F.interpolate(x, **said), real(1, 2, size, 4))
            compared(
                lambda x, said=said: F.interpolate(x, mode="bilinear", **said), real(1, 2, size, 4)
            )


def test_a_scale_of_many_digits_has_no_formula() -> None:
    x = torch.randn(1, 1, 4, 4)
    assert PICTURES["upsample_nearest2d"](x, [5, 5], 1.2345678, None) is NotImplemented


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_padding_is_that_of_pytorch(mode: str) -> None:
    for pads, shape in (
        ((1, 2), (2, 3, 5)),
        ((-1, 2), (3, 5)),
        ((1, 2, 3, 0), (2, 3, 5, 4)),
        ((1, 2, 3, 0, 1, 1), (1, 2, 3, 5, 4)),
    ):
        seen = compared(lambda x, pads=pads: F.pad(x, pads, mode=mode), real(*shape))
        assert len(seen) == 2


@pytest.mark.parametrize(
    ("kernel", "stride", "pad", "step"), [*product((2, 3), (1, 2), (0, 1), (1, 2))]
)
def test_columns_are_those_of_pytorch(kernel: int, stride: int, pad: int, step: int) -> None:
    said = (kernel, step, pad, stride)
    columns = F.unfold(real(2, 3, 7, 8), *said)
    assert compared(lambda x: F.unfold(x, *said), real(2, 3, 7, 8)) == {"im2col", "col2im"}
    compared(lambda x: F.fold(x, (7, 8), *said), real(*columns.shape))


@pytest.mark.parametrize("groups", [1, 2])
def test_a_transposed_convolution_is_that_of_pytorch(groups: int) -> None:
    for stride, pad, more, step in product((1, 2, 3), (0, 1), (0, 1), (1, 2)):
        if more < max(stride, step):
            weight, bias = real(4, 3, 3, 2), real(3 * groups)
            said = (stride, pad, more, groups, step)
            compared(
                lambda x, w, b, said=said: F.conv_transpose2d(x, w, b, *said),
                real(2, 4, 5, 4),
                weight,
                bias,
            )


@pytest.mark.parametrize("lengths", [[2, 3], [3, 1], [4, 4]])
@pytest.mark.parametrize("joined", [False, True])
def test_alignments_are_those_of_pytorch(lengths: list[int], joined: bool) -> None:
    """With labels twice in a row, and rows of other lengths."""
    torch.manual_seed(0)
    frames = torch.tensor([8, 7])
    labels = torch.randint(1, 5, (2, max(lengths)))
    labels[0, :2] = 3
    if joined:
        labels = torch.cat([row[:length] for row, length in zip(labels, lengths, strict=True)])
    said = (labels, frames, torch.tensor(lengths))
    seen = compared(lambda x: F.ctc_loss(x.log_softmax(-1), *said, reduction="none"), real(8, 2, 5))
    assert seen == {"_ctc_loss", "_ctc_loss_backward"}


# --- as parts of programs


class Pooled(nn.Module):
    """A picture's windows, of which each has its greatest element."""

    def __init__(self, stride: int = 2) -> None:
        super().__init__()
        self.stride, self.layer = stride, nn.Conv2d(1, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool2d(self.layer(x), 2, self.stride, padding=self.stride - 1)[..., :2, :2]


class Between(nn.Module):
    """A picture at another resolution, with its margin mirrored."""

    def __init__(self, corners: bool = False) -> None:
        super().__init__()
        self.corners, self.layer = corners, nn.Conv2d(1, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        wide = F.pad(self.layer(x), (1, 1, 0, 0), mode="reflect")
        return F.interpolate(wide, size=(5, 4), mode="bilinear", align_corners=self.corners)


class Mean(nn.Module):
    """Means of windows, some of them beyond the margin."""

    def __init__(self, with_padding: bool = False) -> None:
        super().__init__()
        self.with_padding, self.layer = with_padding, nn.ConvTranspose2d(1, 2, 2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(self.layer(x), 3, 2, 1, count_include_pad=self.with_padding)


class Aligned(nn.Module):
    """Frames whose labels are known, in every order that reads them."""

    def __init__(self, labels: tuple[int, ...] = (1, 1, 2)) -> None:
        super().__init__()
        self.labels, self.layer = labels, nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.layer(x[:, 0]).log_softmax(-1).transpose(0, 1)
        heard = torch.ones_like(x[:, 0, :, 0], dtype=torch.long).sum(-1)
        said = torch.tensor([self.labels] * len(x))
        return F.ctc_loss(scores, said, heard, torch.full((len(x),), 3), reduction="none")


def pair(kind: type[nn.Module], sizes: tuple[int, ...], *wrong: Any) -> Spec:
    """A module alone, and under data parallelism with other arguments."""

    def program(module: nn.Module) -> Program:
        def step(batch: dict[str, Tensor]) -> Tensor:
            loss = module(batch["x"]).square().mean()
            loss.backward()
            return loss

        return Program(module, step)

    return Spec(
        lambda: program(kind()),
        lambda _: program(DistributedDataParallel(kind(*wrong))),
        {"dp": 2},
        {"x": Input((4, 1, *sizes), split={0: "dp"})},
        {"loss": Part(mean="dp")},
    )


KINDS: list[tuple[type[nn.Module], tuple[int, ...], Any]] = [
    (Pooled, (3, 3), 1),
    (Between, (3, 4), True),
    (Mean, (2, 2), True),
    (Aligned, (5, 3), (1, 2, 2)),
]


@pytest.mark.parametrize(("kind", "sizes", "wrong"), KINDS)
def test_a_right_program_is_proven_and_a_near_miss_is_not(
    kind: type[nn.Module], sizes: tuple[int, ...], wrong: Any
) -> None:
    proven(pair(kind, sizes))
    assert verdict(pair(kind, sizes, wrong)) == "mismatch"


@pytest.mark.parametrize(
    ("name", "size", "count", "scale"),
    [("linear1d", 3, 3, 1.25), ("nearest1d", 3, 3, 1.25), ("nearest1d", 2, 4, 2.25)],
)
def test_a_scale_that_kernels_may_ignore_has_no_meaning(name, size, count, scale) -> None:
    """If the size stays or doubles, some kernels copy elements whatever the scale is."""
    corners = () if "nearest" in name else (False,)
    resampled = DECOMPOSED["aten", f"upsample_{name}"]
    x = torch.ones(1, 1, size)
    assert resampled(x, (count,), *corners, scale) is NotImplemented
    assert resampled(x, (count,), *corners, count / size).shape == (1, 1, count)


@pytest.mark.parametrize(
    ("labels", "frames"), [([1, 1], 2), ([1, 2], 1), ([0, 1], 4)], ids=["equal", "short", "blank"]
)
def test_labels_without_an_alignment_have_no_meaning(labels: list[int], frames: int) -> None:
    """Their loss is infinite, or 0 if asked for, and its gradient is no number or 0."""
    probabilities = torch.zeros(4, 1, 3).log_softmax(-1)
    loss = DECOMPOSED["aten", "_ctc_loss"]
    assert loss(probabilities, torch.tensor([labels]), [frames], [2]) is NotImplemented
