"""Communication of recorded programs, each with its derivative, as Megatron-LM has it."""

from __future__ import annotations

import torch
import torch.distributed as dist
from frontends.torch.parallelism.regions import FromRanks, ToRanks


def enter(x: torch.Tensor, ranks: int) -> torch.Tensor:
    """The same input for all ranks; what they send back is added up."""
    return ToRanks.apply(x) if ranks > 1 else x


def leave(x: torch.Tensor, ranks: int) -> torch.Tensor:
    """The sum of what all ranks have; each gets the same gradient."""
    return FromRanks.apply(x.clone()) if ranks > 1 else x


def gathered(x: torch.Tensor) -> torch.Tensor:
    """The parts of all ranks one after the other."""
    whole = x.new_empty((x.shape[0] * dist.get_world_size(), *x.shape[1:]))
    dist.all_gather_into_tensor(whole, x.contiguous())
    return whole


def scattered(x: torch.Tensor) -> torch.Tensor:
    """A rank's part of the sum of all ranks' terms."""
    own = x.new_empty((x.shape[0] // dist.get_world_size(), *x.shape[1:]))
    dist.reduce_scatter_tensor(own, x.contiguous())
    return own
