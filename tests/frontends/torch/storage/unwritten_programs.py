"""Programs on two ranks with memory that nobody has written to: a gradient of each is brought to
all ranks in another way, through a buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from pitcheck.torch import Input, Part, Program, Spec

ROWS, WIDTH, RANKS = 4, 3, 2
TAIL = 2
Exchange = Callable[[torch.Tensor, int], torch.Tensor]
"""From a rank's term of a gradient, and its number, to the sum of all terms."""


def reduced_to_the_root(term: torch.Tensor, rank: int) -> torch.Tensor:
    """Reduce to rank 0, and use no result on the other rank."""
    dist.reduce(term, 0)
    held = term if rank == 0 else torch.empty_like(term)
    dist.broadcast(held, 0)
    return held


def reduced_and_used_elsewhere(term: torch.Tensor, rank: int) -> torch.Tensor:
    """Reduce to rank 0, and send the other rank's undefined result on."""
    dist.reduce(term, 0)
    dist.broadcast(term, 1)
    return term


def broadcast_of_nothing(term: torch.Tensor, rank: int) -> torch.Tensor:
    """The buffer that nobody has filled is the root's."""
    dist.all_reduce(term)
    held = term if rank == 0 else torch.empty_like(term)
    dist.broadcast(held, 1)
    return held


def gathered_with_tails(term: torch.Tensor, rank: int, begin: int = 0) -> torch.Tensor:
    """Terms padded to one size, as shards of different sizes are."""
    own = torch.empty(WIDTH + TAIL, WIDTH)
    own[:WIDTH] = term
    whole = torch.empty(RANKS * (WIDTH + TAIL), WIDTH)
    dist.all_gather_into_tensor(whole, own)
    second = WIDTH + TAIL - begin
    return whole[:WIDTH] + whole[second : second + WIDTH]


def summed_with_tails(term: torch.Tensor, rank: int, used: bool = False) -> torch.Tensor:
    """A sum over a buffer of which only a part is written."""
    own = torch.empty(WIDTH * WIDTH + TAIL)
    own[: WIDTH * WIDTH] = term.reshape(-1)
    dist.all_reduce(own)
    result = own[: WIDTH * WIDTH].view(WIDTH, WIDTH)
    return result + own[WIDTH * WIDTH :].sum() * 0 if used else result


def received_into_a_part(term: torch.Tensor, rank: int, rows: int = WIDTH) -> torch.Tensor:
    """The other's term, received between rows of a buffer that nobody writes to."""
    buffer = torch.empty(WIDTH + TAIL, WIDTH)
    place = buffer[1 : 1 + WIDTH]
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, term, 1 - rank), dist.P2POp(dist.irecv, place, 1 - rank)]
    ):
        work.wait()
    return term + buffer[1 - WIDTH + rows : 1 + rows]


def gathered_by_the_root(term: torch.Tensor, rank: int, lost: bool = False) -> torch.Tensor:
    """The root alone has terms to add, and scatters the sum."""
    parts = [torch.empty_like(term) for _ in range(RANKS)] if rank == 0 else None
    dist.gather(term, parts, 0)
    total = torch.empty_like(term)
    if parts is not None:
        total[: WIDTH - lost] = (parts[0] + parts[1])[: WIDTH - lost]
    mine = torch.empty_like(term)
    dist.scatter(mine, [total, total] if rank == 0 else None, 0)
    return mine


def chosen_by_mask(term: torch.Tensor, rank: int, off: int = 0) -> torch.Tensor:
    """A mask chooses rows of a buffer that is half written."""
    buffer = torch.empty(WIDTH + TAIL, WIDTH)
    buffer[:WIDTH] = term
    mask = torch.arange(WIDTH + TAIL) < WIDTH + off
    rows = torch.where(mask[:, None], buffer, torch.zeros(()))
    dist.all_reduce(rows)
    return rows[:WIDTH] + rows[WIDTH:].sum() if off >= 0 else rows[:WIDTH]


def array_of_numpy(term: torch.Tensor, rank: int) -> torch.Tensor:
    """An array of NumPy that nobody has written to, whose numbers would otherwise be taken for
    constants of the program.
    """
    dist.all_reduce(term)
    return term + torch.from_numpy(np.empty((WIDTH, WIDTH), dtype=np.float32)) * 0


EXCHANGES: dict[str, tuple[Exchange, bool]] = {
    "reduced to the root": (reduced_to_the_root, True),
    "gathered with tails": (gathered_with_tails, True),
    "summed with tails": (summed_with_tails, True),
    "received into a part": (received_into_a_part, True),
    "gathered by the root": (gathered_by_the_root, True),
    "chosen by mask": (chosen_by_mask, True),
    "reduced and used elsewhere": (reduced_and_used_elsewhere, False),
    "broadcast of nothing": (broadcast_of_nothing, False),
    "gathered with tails, the tail read": (partial(gathered_with_tails, begin=1), False),
    "summed with tails, the tail times 0": (partial(summed_with_tails, used=True), False),
    "received into a part, another read": (partial(received_into_a_part, rows=WIDTH + 1), False),
    "gathered by the root, a row lost": (partial(gathered_by_the_root, lost=True), False),
    "chosen by mask, off by one": (partial(chosen_by_mask, off=1), False),
    "an array of numpy": (array_of_numpy, False),
}


def spec(*names: str) -> Spec:
    """A layer per exchange."""

    def built(rank: int | None) -> Program:
        model = nn.ModuleDict(
            {str(place): nn.Linear(WIDTH, WIDTH, bias=False) for place, _ in enumerate(names)}
        )

        def step(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            x = batch["x"]
            for layer in model.values():
                layer.weight.grad = None
            sum((layer(x) ** 2).sum() for layer in model.values()).backward()
            if rank is not None:
                for name, layer in zip(names, model.values(), strict=True):
                    layer.weight.grad = EXCHANGES[name][0](layer.weight.grad, rank)
            return {}

        return Program(model, step)

    return Spec(
        lambda: built(None),
        lambda rank: built(rank.number),
        {"dp": RANKS},
        {"x": Input((ROWS, WIDTH), split={0: "dp"})},
    )


def masked(values: tuple[int, ...]) -> Spec:
    """Rows of a half-written buffer, chosen by a mask of the batch whose values are known."""

    def built(rank: int | None) -> Program:
        def step(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            x = batch["x"]
            if rank is None:
                return {"y": x * 2}
            buffer = torch.empty(ROWS, WIDTH)
            buffer[: ROWS // RANKS] = x * 2
            return {
                "y": torch.where(batch["mask"][:, None], buffer, torch.zeros(()))[: ROWS // RANKS]
                + buffer[batch["mask"]][:1] * 0
            }

        return Program(nn.Linear(WIDTH, WIDTH), step)

    inputs = {
        "x": Input((ROWS, WIDTH), split={0: "dp"}),
        "mask": Input((ROWS,), "bool", values=values),
    }
    return Spec(
        lambda: built(None),
        lambda rank: built(rank.number),
        {"dp": RANKS},
        inputs,
        {"y": Part(split={0: "dp"})},
    )
