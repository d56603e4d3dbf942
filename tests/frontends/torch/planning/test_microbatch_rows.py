"""Both programs take their batch in pieces; those of a rank need not lie as the reference's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from frontends.torch.proving import proven
from torch import nn

from pitcheck.frontends.torch.planning.microbatch_rows import microbatch_labels
from pitcheck.frontends.torch.trace import Event, Given, Ref, Trace, Value
from pitcheck.torch import Input, Part, Program, Rank, Spec, check

ROWS, WIDTH, PIECES = 12, 4, 3
Batch = dict[str, torch.Tensor]


def accumulated(
    model: nn.Module,
    pieces: list[torch.Tensor],
    count: int,
    last: int | None = None,
    synchronised: bool = False,
) -> torch.Tensor:
    """Return the sum of the pieces' losses, divided by ``count``, that of the last by ``last``."""
    total = torch.zeros(())
    for number, piece in enumerate(pieces):
        divisor = last if last and number == len(pieces) - 1 else count
        loss = model(piece).tanh().square().mean() / divisor
        loss.backward()
        loss = loss.detach().clone()
        if synchronised:
            dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        total = total + loss
    return total


def spec(
    pieces_of: Callable[[torch.Tensor], list[torch.Tensor]],
    last: int | None = None,
    synchronised: bool = False,
) -> Spec:
    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(WIDTH, 3), nn.GELU(), nn.Linear(3, 2))

    def reference() -> Program:
        model = network()

        def step(batch: Batch) -> torch.Tensor:
            model.zero_grad()
            return accumulated(model, list(batch["x"].chunk(PIECES)), PIECES)

        return Program(model, step)

    def parallel(rank: Rank) -> Program:
        model = network()

        def step(batch: Batch) -> torch.Tensor:
            model.zero_grad()
            loss = accumulated(model, pieces_of(batch["x"]), PIECES, last, synchronised)
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
            return loss

        return Program(model, step)

    batch = {"x": Input((ROWS, WIDTH), split={0: "dp"})}
    return Spec(
        reference, parallel, {"dp": 2}, batch, {"loss": Part() if synchronised else Part(mean="dp")}
    )


def test_pieces_of_each_rank_s_rows() -> None:
    """The first pieces of the two ranks belong to the first and the second of the reference."""
    proven(spec(lambda x: list(x.chunk(PIECES))))


@pytest.mark.slow
def test_ranks_meet_after_every_piece() -> None:
    """Members of one collective have tensors of other pieces, with other names."""
    proven(spec(lambda x: list(x.chunk(PIECES)), synchronised=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pieces_of", "last"),
    [
        (lambda x: [x[:2], x[2:4], x[2:4]], None),
        (lambda x: list(x.chunk(PIECES)), PIECES - 1),
    ],
    ids=["one piece twice and one never", "another divisor for the last piece"],
)
def test_wrong_pieces(
    pieces_of: Callable[[torch.Tensor], list[torch.Tensor]], last: int | None
) -> None:
    assert check(spec(pieces_of, last)).verdict == "mismatch"


def pieces(rank: int, box: tuple[int, int], sizes: tuple[int, ...]) -> Trace:
    """A program that squares pieces of its rows of a batch of 12, and adds up the squares."""
    rows = box[1] - box[0]
    count = len(sizes)
    values = (
        Value((rows,), "float32"),
        *(Value((size,), "float32") for size in (*sizes, *sizes)),
        *(Value((), "float32"),) * (count + 1),
    )
    cut = tuple(range(1, count + 1))
    squares = tuple(range(count + 1, 2 * count + 1))
    sums = tuple(range(2 * count + 1, 3 * count + 1))
    events = (
        Event("split_with_sizes.default", (Ref(0), sizes, 0), cut, source="a.py:1"),
        *(
            Event("pow.Tensor_Scalar", (Ref(x), 2), (y,), source="a.py:2")
            for x, y in zip(cut, squares, strict=True)
        ),
        *(
            Event("sum.default", (Ref(x), None), (y,), source="a.py:3")
            for x, y in zip(squares, sums, strict=True)
        ),
        Event("add.Tensor", (Ref(sums[0]), Ref(sums[-1]), 1), (3 * count + 1,), source="a.py:4"),
    )
    given = (Given(0, "input", "x", (12,), (((box),),)),)
    return Trace(rank, values, events, given, ())


def test_values_are_named_after_the_piece_of_their_rows() -> None:
    reference = pieces(0, (0, 12), (4, 4, 4))
    ranks = [pieces(0, (0, 6), (2, 2, 2)), pieces(1, (6, 12), (2, 2, 2))]
    labels = microbatch_labels(reference, ranks)
    assert [labels[0][square] for square in (4, 5, 6)] == [f"@microbatch={n}" for n in (0, 0, 1)]
    assert [labels[1][square] for square in (4, 5, 6)] == [f"@microbatch={n}" for n in (1, 2, 2)]
    # The sum of the first and the last square is of rows of two pieces.
    assert all(10 not in labels[rank] for rank in (0, 1))


@pytest.mark.parametrize(
    ("reference", "sizes"),
    [((12,), (3, 3)), ((6, 6), (6,))],
    ids=["a reference that takes the batch whole", "ranks whose pieces lie alike"],
)
def test_nothing_is_named_after_pieces(reference: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    ranks = [pieces(0, (0, 6), sizes), pieces(1, (0, 6), sizes)]
    assert microbatch_labels(pieces(0, (0, 12), reference), ranks) == {}
