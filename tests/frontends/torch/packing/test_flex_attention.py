"""FlexAttention, which is recorded as what its kernel computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from frontends.torch.packing.packed_programs import Batch, Inner, packed, spec
from frontends.torch.packing.test_masks import ONE
from frontends.torch.proving import caught, proven
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from pitcheck.torch import Input, Spec


def by_mask_mod(causal: bool = True, documents: bool = True, block: int = 128) -> Inner:
    def attend(q: Any, k: Any, v: Any, batch: Batch) -> Any:
        ids = batch["ids"][0]

        def seen(_: Any, __: Any, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
            same = ids[query] == ids[key] if documents else query == query
            return same & (query >= key) if causal else same

        blocks = create_block_mask(
            seen, None, None, q.shape[2], k.shape[2], device="cpu", BLOCK_SIZE=block
        )
        return flex_attention(q, k, v, block_mask=blocks)

    return attend


def by_flex(inner: Inner) -> Spec:
    return spec(lambda _: packed(inner), ONE, more={"ids": Input(packed="document_ids")})


@pytest.mark.slow
@pytest.mark.parametrize("block", [128, 4])
def test_documents_by_a_mask(block: int) -> None:
    proven(by_flex(by_mask_mod(block=block)))


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [{"documents": False}, {"causal": False}])
def test_wrong_masks(wrong: dict[str, bool]) -> None:
    caught(by_flex(by_mask_mod(**wrong)), "flex_attention(q", "PIT100")
