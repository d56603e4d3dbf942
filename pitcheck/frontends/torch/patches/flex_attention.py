"""FlexAttention as plain operators: what its kernel computes, by its mask and its blocks.

The kernel is compiled for a GPU and is no operator that a mode sees. It attends where its blocks
say so, and in blocks that are not full where ``mask_mod`` says so, too.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import _disable_current_modes

from pitcheck.frontends.torch.patches.patching import Patch
from pitcheck.frontends.torch.recording.recorder import Recorder

MODULE = "torch.nn.attention.flex_attention"
BY_KEYS, FULL_BY_KEYS, BY_QUERIES, FULL_BY_QUERIES = 2, 4, 6, 8
"""The places of numbers of blocks in a block mask as a tuple; their indices stand behind them."""


def flex_attention_patches(recorder: Recorder) -> Iterator[Patch]:
    """Yield the patches by which ``flex_attention`` is recorded, if the program has imported it."""
    module = sys.modules.get(MODULE)
    if module is not None:
        yield module, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True
        yield module, "setup_compilation_env", _eager
        # A CPU has no kernel of its backward pass.
        yield module, "_validate_device", lambda *_: None
        yield module, "flex_attention_hop", _recorded(recorder, module)


def _eager() -> AbstractContextManager[str]:
    return nullcontext("eager")


def _recorded(recorder: Recorder, module: Any) -> Callable[..., Any]:
    """Return the attention in plain operators.

    It returns the results, and the logarithms of sums and the maxima, both divided by log 2.
    """

    def attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        score_mod: Callable[..., Any],
        block_mask: tuple[Any, ...],
        scale: float,
        *_: Any,
    ) -> tuple[torch.Tensor, ...]:
        key, value = (_for_queries(each, query) for each in (key, value))
        size = query.shape[-1]
        # The root of a size that is no square is no number: PyTorch's default has its meaning.
        default = None if scale == 1.0 / math.sqrt(size) else scale
        scores = query @ key.transpose(-2, -1) * scale
        places = [torch.arange(length) for length in scores.shape]
        mask = module._vmap_for_bhqkv(block_mask[-1], prefix=())(*places)
        seen = _by_blocks(recorder, mask, block_mask)
        unseen = ~seen.any(-1, keepdim=True)
        plain = score_mod is module._identity
        if not plain:
            scores = module._vmap_for_bhqkv(score_mod, prefix=(0,))(scores, *places)
        # A query that sees nothing has the result 0, and its scores have no part in it.
        scores = scores.masked_fill(~(seen | unseen), -math.inf)
        out = (
            scaled_dot_product_attention(query, key, value, seen | unseen, scale=default)
            if plain
            else scores.softmax(-1) @ value
        ).masked_fill(unseen, 0.0)
        sums = scores.logsumexp(-1).masked_fill(unseen.squeeze(-1), -math.inf)
        return out, sums / math.log(2), scores.amax(-1) / math.log(2)

    return attention


def _for_queries(x: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """Return keys or values for every query head, if several of these share one, and batch."""
    batch, heads = query.shape[:2]
    shared = x[:, :, None].expand(x.shape[0], x.shape[1], heads // x.shape[1], *x.shape[2:])
    return shared.flatten(1, 2).expand(batch, heads, *x.shape[2:])


def _by_blocks(recorder: Recorder, mask: torch.Tensor, block_mask: tuple[Any, ...]) -> torch.Tensor:
    """Return the mask that the blocks leave of ``mask_mod``'s.

    Raises UnsupportedError if blocks are not known, or are others in the backward pass.
    """
    size = mask.shape[-2], mask.shape[-1]
    partial, full, backward, full_backward = (
        _seen(recorder, block_mask, place, size)
        for place in (BY_KEYS, FULL_BY_KEYS, BY_QUERIES, FULL_BY_QUERIES)
    )
    with _disable_current_modes():
        if not (_agree(partial, backward) and _agree(full, full_backward)):
            raise recorder.tape.unsupported(
                "the blocks of a BlockMask by queries are others than those by keys, so that the "
                "backward pass of flex_attention is not that of its forward pass; make it by "
                "create_block_mask"
            )
        known = recorder.known(mask)
        if torch.equal(
            (known & partial) | full,
            known.expand(torch.broadcast_shapes(known.shape, partial.shape)),
        ):
            return mask
    return (mask & recorder.constant(partial)) | recorder.constant(full)


def _agree(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return True if blocks are the same, or if a mask has none by queries."""
    return not bool(other.any()) or torch.equal(*torch.broadcast_tensors(one, other))


def _seen(
    recorder: Recorder, block_mask: tuple[Any, ...], place: int, size: tuple[int, int]
) -> torch.Tensor:
    """Return which queries and keys of ``size`` lie in the blocks at a place of a block mask."""
    count, indices = block_mask[place : place + 2]
    with _disable_current_modes():
        if count is None:
            return torch.zeros((1, 1, *size), dtype=torch.bool)
        count, indices = recorder.known(count), recorder.known(indices)
        listed = torch.arange(indices.shape[-1]) < count[..., None]
        blocks = torch.zeros(indices.shape, dtype=torch.int64)
        blocks.scatter_add_(-1, indices.long(), listed.long())
        if place in (BY_QUERIES, FULL_BY_QUERIES):
            blocks = blocks.transpose(-2, -1)
        rows, columns = (
            torch.arange(length) // block
            for length, block in zip(size, block_mask[-3:-1], strict=True)
        )
        return blocks[..., rows[:, None], columns] > 0
