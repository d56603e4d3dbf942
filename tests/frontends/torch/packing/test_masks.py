"""Packed attention by a mask in one process, against documents alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from frontends.torch.packing.packed_programs import Batch, Inner, causal, packed, spec
from frontends.torch.proving import caught, check_at_one_mesh, proven
from torch.nn import functional

from pitcheck.torch import Input, Spec

ONE = {"dp": 1}


def masked(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, batch: Batch) -> torch.Tensor:
    ids = batch["ids"]
    seen = (ids[:, :, None] == ids[:, None, :]).tril()
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None])


def by_ids(inner: Inner = masked, **more: Any) -> Spec:
    return spec(lambda _: packed(inner), ONE, more={"ids": Input(packed="document_ids")}, **more)


def test_block_diagonal() -> None:
    proven(by_ids())


@pytest.mark.slow
def test_dropped() -> None:
    caught(by_ids(causal), "scaled_dot", "PIT100")


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [True, False], ids=["numbers", "tensors"])
def test_mask_of_an_earlier_batch(numbers: bool) -> None:
    """A mask that is made once is that of another packing, also if Python keeps its numbers."""
    kept: list[Any] = []

    def once(q: Any, k: Any, v: Any, batch: Batch) -> Any:
        if not kept:
            kept.append(batch["ids"].tolist() if numbers else batch["ids"].clone())
        ids = torch.tensor(kept[0]) if numbers else kept[0]
        return masked(q, k, v, {"ids": ids})

    assert check_at_one_mesh(by_ids(once)).verdict == "mismatch"
