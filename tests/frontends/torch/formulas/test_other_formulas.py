"""Convolutions, group norms and losses against PyTorch, and as parts of programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from frontends.torch.formulas.test_batch_norms import drawn
from frontends.torch.proving import check_at_one_mesh, proven
from support.by_day import some_by_day
from torch import nn

from pitcheck.frontends.torch.formulas import (
    convolutions,
    embeddings,
    group_norms,
    losses,
    triangles,
)
from pitcheck.frontends.torch.recording.decompositions import DECOMPOSED
from pitcheck.torch import Input, Part, Program, Spec

KERNELS = [
    # input, weight, stride, padding, dilation, groups
    ((2, 4, 7), (6, 4, 3), [1], [0], [1], 1),
    ((2, 4, 7), (6, 2, 3), [2], [1], [1], 2),
    ((2, 4, 9), (6, 4, 3), [2], [2], [2], 1),
    ((2, 4, 5, 6), (6, 4, 3, 2), [1, 1], [1, 1], [1, 1], 1),
    ((2, 4, 6, 5), (4, 1, 3, 3), [2, 1], [1, 0], [1, 1], 4),
    ((1, 2, 7, 8), (2, 2, 2, 3), [3, 2], [0, 2], [2, 1], 1),
    ((1, 2, 4, 3, 3), (2, 2, 2, 2, 2), [1, 2, 1], [1, 0, 0], [1, 1, 1], 1),
    ((2, 3, 4, 4), (5, 3, 1, 1), [1, 1], [0, 0], [1, 1], 1),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("biased", [False, True])
def test_a_convolution_is_that_of_pytorch(kernel: Any, biased: bool) -> None:
    shape, of_weight, stride, padding, dilation, groups = kernel
    x, weight = drawn(*shape), drawn(*of_weight, seed=1)
    bias = drawn(of_weight[0], seed=2) if biased else None
    more = (stride, padding, dilation, False, [0] * len(stride), groups)
    expected = torch.ops.aten.convolution(x, weight, bias, *more)
    assert torch.allclose(convolutions.convolution(x, weight, bias, *more), expected)
    gradient = drawn(*expected.shape, seed=3)
    sizes = [of_weight[0]] if biased else None
    said = (gradient, x, weight, sizes, *more, [True, True, biased])
    ours = convolutions.convolution_backward(*said)
    theirs = torch.ops.aten.convolution_backward(*said)
    for own, other in zip(ours, theirs, strict=True):
        assert (own is None and not biased) or torch.allclose(own, other)


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize(("shape", "group"), [((3, 4), 2), ((2, 6, 3), 3), ((2, 4, 3, 2), 1)])
def test_a_group_norm_is_that_of_pytorch(shape: tuple[int, ...], group: int, affine: bool) -> None:
    x, gradient = drawn(*shape), drawn(*shape, seed=1)
    weight, bias = (drawn(shape[1], seed=2 + i) if affine else None for i in range(2))
    sizes = (shape[0], shape[1], x.numel() // shape[0] // shape[1], group)
    ours = group_norms.group_norm(x, weight, bias, *sizes, 1e-3)
    theirs = torch.ops.aten.native_group_norm(x, weight, bias, *sizes, 1e-3)
    assert all(map(torch.allclose, ours, theirs))
    said = (gradient, x, *theirs[1:], weight, *sizes, [True, affine, affine])
    back = group_norms.group_norm_backward(*said)
    true = torch.ops.aten.native_group_norm_backward(*said)
    for own, other in zip(back, true, strict=True):
        assert (own is None and not affine) or torch.allclose(own, other)


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("name", ["smooth_l1_loss", "huber_loss"])
@pytest.mark.parametrize("bound", [1.0, 0.3])
def test_a_loss_is_that_of_pytorch(name: str, reduction: int, bound: float) -> None:
    x, target = drawn(4, 5), drawn(4, 5, seed=1)
    theirs = getattr(torch.ops.aten, name)(x, target, reduction, bound)
    assert torch.allclose(getattr(losses, name)(x, target, reduction, bound), theirs)
    said = (drawn(*theirs.shape, seed=2), x, target, reduction, bound)
    back = getattr(torch.ops.aten, f"{name}_backward")(*said)
    assert torch.allclose(getattr(losses, f"{name}_backward")(*said), back)


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_loss_of_probabilities_is_that_of_pytorch(reduction: int, weighted: bool) -> None:
    x, target = drawn(4, 5).sigmoid(), drawn(4, 5, seed=1).sigmoid()
    x[0, 0], x[0, 1] = 0.0, 1.0
    weight = drawn(4, 5, seed=2) if weighted else None
    theirs = torch.ops.aten.binary_cross_entropy(x, target, weight, reduction)
    assert torch.allclose(losses.binary_cross_entropy(x, target, weight, reduction), theirs)
    said = (drawn(*theirs.shape, seed=2), x, target, weight, reduction)
    back = torch.ops.aten.binary_cross_entropy_backward(*said)
    assert torch.allclose(losses.binary_cross_entropy_backward(*said), back)


ACTIVATIONS: list[tuple[str, tuple[float, ...]]] = [
    ("leaky_relu", (0.1,)),
    ("elu", (0.5, 1.2, 0.7)),
    ("celu", (0.7,)),
    ("hardtanh", (-0.5, 0.75)),
    ("hardswish", ()),
    ("mish", ()),
]
PLACES = torch.tensor([-4.0, -3.0, -1.0, -0.5, -0.1, 0.0, 0.3, 0.75, 2.0, 3.0, 5.0]).double()


@pytest.mark.parametrize(("name", "options"), ACTIVATIONS)
def test_an_activation_is_that_of_pytorch(name: str, options: tuple[float, ...]) -> None:
    """With its derivatives, and in place."""
    ours, theirs = DECOMPOSED["aten", name], getattr(torch.ops.aten, name)
    expected = theirs(PLACES, *options)
    assert torch.allclose(ours(PLACES, *options), expected)
    written = PLACES.clone()
    assert DECOMPOSED["aten", f"{name}_"](written, *options) is written
    assert torch.allclose(written, expected)
    if name != "celu":
        gradient = drawn(len(PLACES))
        for said in slopes(name, gradient, expected, options):
            true = getattr(torch.ops.aten, f"{name}_backward")(*said)
            assert torch.allclose(DECOMPOSED["aten", f"{name}_backward"](*said), true)


def slopes(
    name: str, gradient: torch.Tensor, result: torch.Tensor, options: tuple[float, ...]
) -> list[tuple[Any, ...]]:
    """The arguments of a derivative."""
    if name == "elu":
        return [(gradient, *options, False, PLACES), (gradient, *options, True, result)]
    if name == "leaky_relu":
        return [(gradient, PLACES, *options, False), (gradient, result, *options, True)]
    return [(gradient, PLACES, *options)]


def test_a_product_with_a_logarithm_is_that_of_pytorch() -> None:
    """A target of 0 counts as 0 in a divergence, also where the logarithm is of 0."""
    x, y = torch.tensor([0.0, 0.0, 0.5, 2.0]).double(), torch.tensor([0.0, 3.0, 0.25, 1.5]).double()
    assert torch.equal(DECOMPOSED["aten", "xlogy"](x, y), torch.xlogy(x, y))


def test_an_activation_with_weights_is_that_of_pytorch() -> None:
    x, weight = torch.stack([PLACES, -PLACES]), drawn(len(PLACES)).expand(2, -1)
    gradient = drawn(*x.shape, seed=1)
    theirs = torch.ops.aten._prelu_kernel(x, weight)
    assert torch.allclose(DECOMPOSED["aten", "_prelu_kernel"](x, weight), theirs)
    ours = DECOMPOSED["aten", "_prelu_kernel_backward"](gradient, x, weight)
    true = torch.ops.aten._prelu_kernel_backward(gradient, x, weight)
    assert all(map(torch.allclose, ours, true))


@pytest.mark.parametrize("norm", [1.0, 2.0])
def test_rows_of_a_table_are_shortened_as_by_pytorch(norm: float) -> None:
    ours, theirs = drawn(6, 3), drawn(6, 3)
    indices = torch.tensor([[0, 2], [2, 5]])
    assert embeddings.embedding_renorm(ours, indices, 0.9, norm) is ours
    torch.ops.aten.embedding_renorm_(theirs, indices, 0.9, norm)
    assert torch.allclose(ours, theirs) and not torch.allclose(ours, drawn(6, 3))


@pytest.mark.parametrize("n", [1, 2, 5, 8])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_a_triangle_is_solved_as_by_pytorch(n: int, upper: bool, left: bool) -> None:
    """The diagonal is not read, nor are the elements on its other side."""
    matrix, given = drawn(2, 1, n, n), drawn(3, *((n, 4) if left else (4, n)), seed=1)
    said = {"upper": upper, "left": left, "unitriangular": True}
    ours = triangles.solve_triangular(matrix, given, **said)
    theirs = torch.linalg.solve_triangular(matrix, given, **said)
    assert ours.shape == theirs.shape and torch.allclose(ours, theirs)


@pytest.mark.parametrize("dim", [0, -1])
def test_of_one_element_the_first_is_the_greatest(dim: int) -> None:
    ours = DECOMPOSED["aten", "topk"]
    x = drawn(1, 3, 1)
    assert all(map(torch.equal, ours(x, 1, dim), x.topk(1, dim)))
    assert ours(x, 1, 1) is NotImplemented


# --- programs

IMAGES = Input((4, 2, 4, 4), split={0: "dp"})
ROWS = Input((4, 6), split={0: "dp"})


def convolved() -> nn.Module:
    layers = nn.Conv2d(2, 4, 3, 2, 1), nn.GELU(), nn.Conv2d(4, 4, 2, groups=2)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4, 3))


def grouped() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 4), nn.GroupNorm(2, 4), nn.Linear(4, 3))


def bent() -> nn.Module:
    """A network with every activation."""
    kinds = [nn.LeakyReLU(), nn.ELU(inplace=True), nn.CELU(), nn.ReLU6(), nn.Hardswish()]
    kinds += [nn.Mish(), nn.PReLU(), nn.SELU()]
    return nn.Sequential(nn.Linear(6, 4), *kinds, nn.Linear(4, 3))


def spectral() -> nn.Module:
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(6, 4))
    return nn.Sequential(layer, nn.Linear(4, 3))


class Delta(nn.Module):
    """A delta rule within a chunk: each value without what the keys before it say."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.value = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.flatten(1, 2)
        keys, values = self.key(rows), self.value(rows)
        system = keys @ keys.transpose(1, 2)
        return torch.linalg.solve_triangular(system, values, upper=False, unitriangular=True)


class Grouped(nn.Module):
    """Scores of which those outside the best groups are hidden, and there is one group."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.scores(x)
        total = scores.sum(1, keepdim=True)
        chosen = torch.zeros_like(total).scatter(1, total.topk(1)[1], 1)
        return scores.masked_fill(~chosen.bool(), float("-inf")).softmax(1)


def square(y: torch.Tensor) -> torch.Tensor:
    return y.square().mean()


def smooth(y: torch.Tensor) -> torch.Tensor:
    return nn.functional.smooth_l1_loss(y, torch.zeros_like(y))


def smoothed(y: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(y, labels, label_smoothing=0.1)


def averaged(model: nn.Module) -> None:
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= 2


def spec(
    make: Callable[[], nn.Module],
    batch: Input = ROWS,
    loss: Callable[..., torch.Tensor] = square,
    synchronise: Callable[[nn.Module], None] = averaged,
) -> Spec:
    def training(synchronise: Callable[[nn.Module], None]) -> Program:
        torch.manual_seed(0)
        model = make()

        def step(given):
            value = loss(model(given["x"]), *([given["labels"]] if loss is smoothed else []))
            value.backward()
            synchronise(model)
            return value

        return Program(model, step)

    return Spec(
        lambda: training(lambda _: None),
        lambda _: training(synchronise),
        {"dp": 2},
        {"x": batch, "labels": Input((4,), "int64", bounds=(0, 3), split={0: "dp"})},
        {"loss": Part(mean="dp")},
    )


def all_but_the_first(model: nn.Module) -> None:
    for place, parameter in enumerate(model.parameters()):
        if place:
            dist.all_reduce(parameter.grad)
            parameter.grad /= 2


PROGRAMS: dict[str, Any] = {
    "convolutions": (convolved, IMAGES, square),
    "a group norm": (grouped, ROWS, square),
    "a smooth loss": (lambda: nn.Linear(6, 4), ROWS, smooth),
    "smoothed labels": (lambda: nn.Linear(6, 3), ROWS, smoothed),
    "activations": (bent, ROWS, square),
    "a spectral norm": (spectral, ROWS, square),
    "a delta rule": (Delta, IMAGES, square),
    "one group of scores": (Grouped, ROWS, square),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", some_by_day(PROGRAMS, 2))
def test_it_is_proven_and_a_mistake_is_caught(name: str) -> None:
    proven(spec(*PROGRAMS[name]))
    report = check_at_one_mesh(spec(*PROGRAMS[name], all_but_the_first))
    assert report.verdict == "mismatch", report.findings
