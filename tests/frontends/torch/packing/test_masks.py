"""Packed attention by a mask in one process, against documents alone."""

from __future__ import annotations

from typing import Any

import torch
from frontends.torch.packing.packed_programs import Batch, Inner, causal, packed, spec
from frontends.torch.proving import caught, proven
from torch.nn import functional

from pitcheck.torch import Input, Spec

ONE = {"dp": 1}


def masked(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, batch: Batch) -> torch.Tensor:
    ids = batch["ids"]
    seen = (ids[:, :, None] == ids[:, None, :]).tril()
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None])


def by_ids(inner: Inner = masked, **more: Any) -> Spec:
    return spec(lambda _: packed(inner), ONE, ids=Input(packed="document_ids"), **more)


def test_block_diagonal() -> None:
    proven(by_ids())


def test_dropped() -> None:
    caught(by_ids(causal), "scaled_dot", "PIT100")
