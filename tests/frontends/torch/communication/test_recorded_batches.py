"""Several sends in one batch, of memory that lies in pieces or in another order."""

from __future__ import annotations

import torch
from frontends.torch.proving import proven, verdict
from torch import distributed as dist

from pitcheck.torch import Input, Part, Program, Rank, Spec

AXIS = {0: "cp"}


def written(x: torch.Tensor, factor: float) -> torch.Tensor:
    """A tensor that is written through a slice, and whose dimensions lie in another order."""
    result = (x * factor).transpose(1, 2)
    result[:, :2] += factor
    return result


def exchanged(mistake: str) -> Spec:
    """Two tensors that ranks exchange in one batch."""

    def reference() -> Program:
        def step(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return {name: written(batch["x"], at).flip(0) for at, name in ((2, "a"), (3, "b"))}

        return Program({}, step)

    def parallel(rank: Rank) -> Program:
        other = 1 - rank.number

        def step(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            a, b = written(batch["x"], 2), written(batch["x"], 3)
            c, d = torch.empty_like(a), torch.empty_like(b)
            sent = (b, a) if mistake == "crossed" else (a, b)
            works = dist.batch_isend_irecv(
                [
                    dist.P2POp(dist.isend, sent[0], other),
                    dist.P2POp(dist.irecv, c, other),
                    dist.P2POp(dist.isend, sent[1], other),
                    dist.P2POp(dist.irecv, d, other),
                ]
            )
            if mistake == "late":
                b[:, :1] += 1
            for work in works:
                work.wait()
            return {"a": c, "b": d}

        return Program({}, step)

    return Spec(
        reference,
        parallel,
        {"cp": 2},
        {"x": Input((2, 3, 4), split=AXIS)},
        {"a": Part(split=AXIS), "b": Part(split=AXIS)},
    )


def test_a_batch_of_views_begins_when_they_are_written() -> None:
    proven(exchanged(""))
    assert verdict(exchanged("crossed")) == "mismatch"
    assert verdict(exchanged("late")) == "invalid"
