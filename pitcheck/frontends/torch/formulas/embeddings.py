"""Tables of embeddings whose rows are kept short."""

from __future__ import annotations

import torch


def embedding_renorm(
    self: torch.Tensor, indices: torch.Tensor, max_norm: float, norm_type: float
) -> torch.Tensor:
    """Shorten those rows of a table that are looked up and are longer than ``max_norm``."""
    places = torch.arange(self.shape[0], device=indices.device)
    used = (indices.reshape(-1, 1) == places).any(0)
    length = torch.linalg.vector_norm(self, norm_type, 1)
    shorter = max_norm / (length + 1e-7)
    factor = torch.where(used & (length > max_norm), shorter, torch.ones_like(shorter))
    return self.mul_(factor.unsqueeze(1))
