"""Numbers that PyTorch knows while it records, and the views and draws of ordinary model classes.

Each class is a small module, once right and once with a mistake beside it.
"""

from __future__ import annotations

import math

import pytest
import torch
from frontends.torch.proving import proven, verdict
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from pitcheck.torch import Input, Part, Program, Spec


class Positions(nn.Module):
    """Embeddings of positions in a buffer that is expanded to its own size, as BERT has them."""

    def __init__(self, shift: int = 0) -> None:
        super().__init__()
        self.shift = shift
        self.register_buffer("places", torch.arange(6).expand((1, -1)))
        self.register_buffer("kinds", torch.zeros((1, 6), dtype=torch.int64))
        self.embedding, self.kind = nn.Embedding(8, 4), nn.Embedding(2, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kinds = self.kinds.expand(1, -1)
        places = self.places[:, :4] + self.shift
        kinds = torch.gather(kinds, 1, places).expand(x.shape[0], 4)
        return x * (self.embedding(places) + self.kind(kinds))


class Buckets(nn.Module):
    """Distances in buckets, the far ones by a logarithm, as T5 has them."""

    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.scale, self.bias = scale, nn.Embedding(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(4)
        away = (places[None] - places[:, None]).abs()
        far = 2 + (torch.log(away.float() / 2) / math.log(4) * self.scale).to(torch.long)
        far = torch.min(far, torch.full_like(far, 7))
        return x * self.bias(torch.where(away < 2, away, far)).sum(1)


class Slopes(nn.Module):
    """Slopes that are powers of a known base, as ALiBi has them."""

    def __init__(self, base: float = 0.5) -> None:
        super().__init__()
        self.base, self.weight = base, nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        slopes = torch.pow(torch.tensor(self.base), torch.arange(1, 5))
        return x * self.weight * slopes


class Truncated(nn.Module):
    """A layer whose parameters are drawn until they lie within bounds, as ViT has them."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor, self.layer = factor, nn.Linear(4, 4)
        nn.init.trunc_normal_(self.layer.weight, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * self.layer(x)


class FromTheEnd(nn.Module):
    """Columns that an index counts from the end, read and written, as Falcon's heads are."""

    def __init__(self, last: int = -1) -> None:
        super().__init__()
        self.last, self.layer = last, nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        y[:, :, [self.last, 0]] = 0.5
        return y[..., [-2, -3]]


class Marked(nn.Module):
    """Truths and integers that are written where scores are greatest, as sparse attention does."""

    def __init__(self, count: float = 2) -> None:
        super().__init__()
        self.count, self.layer = int(count), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        best = y.topk(self.count, -1).indices
        masked = torch.ones(y.shape, dtype=torch.bool).scatter(-1, best, False)
        counts = torch.zeros(y.shape, dtype=torch.int64).scatter(-1, best, 3)
        return y.masked_fill(masked, 0.5) + counts


class Counted(nn.Module):
    """Lengths of rows by what is no padding, at which the program looks, as XLM does."""

    def __init__(self, shift: int = 0) -> None:
        super().__init__()
        self.shift, self.embedding = shift, nn.Embedding(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        lengths = (x[:, :3] != 0).sum(1)
        length = int(lengths.max().item()) - self.shift
        return self.embedding(x[:, :length])


REALS = Input((4, 4, 4), split={0: "dp"})


def pair(
    one: type[nn.Module],
    other: type[nn.Module],
    value: float | None = None,
    given: Input = REALS,
) -> Spec:
    """A module alone, and the other one under data parallelism with an argument of its own."""

    def program(module: nn.Module) -> Program:
        def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
            loss = module(batch["x"]).square().mean()
            loss.backward()
            return loss

        return Program(module, step)

    def parallel(_: object) -> Program:
        module = other() if value is None else other(value)
        return program(DistributedDataParallel(module))

    return Spec(
        lambda: program(one()),
        parallel,
        {"dp": 2},
        {"x": given},
        {"loss": Part(mean="dp")},
    )


@pytest.mark.parametrize("module", [Positions, Buckets, Slopes, Truncated, FromTheEnd, Marked])
def test_a_class_of_models_is_proven(module: type[nn.Module]) -> None:
    proven(pair(module, module))


@pytest.mark.parametrize(
    ("module", "wrong"),
    [
        (Positions, 1),
        (Buckets, 4.0),
        (Slopes, 0.25),
        (Truncated, 2.0),
        (FromTheEnd, -3),
        (Marked, 1),
    ],
)
def test_another_number_is_a_mismatch(module: type[nn.Module], wrong: float) -> None:
    assert verdict(pair(module, module, wrong)) == "mismatch"


def test_a_comparison_beyond_the_bounds_of_integers_is_known() -> None:
    """With padding among the bounds nothing tells the lengths."""
    tokens = Input((4, 4), "int64", (1, 8), split={0: "dp"})
    proven(pair(Counted, Counted, given=tokens))
    assert verdict(pair(Counted, Counted, 1, tokens)) == "mismatch"
    padded = Input((4, 4), "int64", (0, 8), split={0: "dp"})
    assert verdict(pair(Counted, Counted, given=padded)) == "inconclusive"
