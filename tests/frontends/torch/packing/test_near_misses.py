"""Programs next to right ones: masks, losses and gradients that are wrong in one place."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from frontends.torch.packing.packed_programs import LENGTH, Attention, Batch, losses, packed, spec
from frontends.torch.packing.test_masks import ONE
from frontends.torch.proving import check_at_one_mesh, proven
from torch.nn import functional

from pitcheck.torch import Input, Packing, Program, Rank, Spec

Mask = Callable[[Batch], torch.Tensor]
GIVEN = {
    name: Input(packed=name)
    for name in ("document_ids", "position_ids", "cu_seqlens", "lengths", "max_seqlen")
}


def earlier() -> torch.Tensor:
    return torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()


def of_ids(ids: torch.Tensor) -> torch.Tensor:
    return (ids[:, None] == ids[None, :]) & earlier()


def right(batch: Batch) -> torch.Tensor:
    return of_ids(batch["document_ids"][0])


def attending(mask: Mask) -> Any:
    def attend(q: Any, k: Any, v: Any, batch: Batch) -> Any:
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask(batch))

    return attend


def pair(inner: Any, lengths: list[int], loss: Any = None) -> Spec:
    def by_loss(_: Rank) -> Program:
        model = Attention(inner)

        def step(batch: Batch) -> torch.Tensor:
            found: torch.Tensor = loss(model, batch)
            found.backward()
            return found

        return Program(model, step)

    parallel = (lambda _: packed(inner)) if loss is None else by_loss
    return spec(parallel, ONE, [Packing(lengths)], more=GIVEN)


# --- masks


def by_bucketize(batch: Batch) -> torch.Tensor:
    places = torch.arange(LENGTH)
    return of_ids(torch.bucketize(places, batch["cu_seqlens"][1:-1], right=True))


def a_boundary_too_late(batch: Batch) -> torch.Tensor:
    return of_ids(torch.bucketize(torch.arange(LENGTH), batch["cu_seqlens"][1:-1]))


def by_repeat_interleave(batch: Batch) -> torch.Tensor:
    lengths = batch["lengths"]
    return of_ids(torch.repeat_interleave(torch.arange(len(lengths)), lengths))


def ids_of_the_token_before(batch: Batch) -> torch.Tensor:
    return of_ids(batch["document_ids"][0].roll(1))


def one_head_without_mask(batch: Batch) -> torch.Tensor:
    return torch.stack([right(batch), earlier()])


def first_token_missed(batch: Batch) -> torch.Tensor:
    mask, start = right(batch).clone(), int(batch["cu_seqlens"][1])
    mask[start + 1 :, start] = False
    return mask


def not_if_one_is_long(batch: Batch) -> torch.Tensor:
    return earlier() if int(batch["max_seqlen"]) > LENGTH // 2 else right(batch)


def documents_of_one_token_joined(batch: Batch) -> torch.Tensor:
    ids, number = list[int](), 0
    for length in batch["lengths"].tolist():
        number += length > 1
        ids += [number] * length
    return of_ids(torch.tensor(ids))


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(
    ("mask", "lengths"),
    [
        (by_bucketize, [3, 5]),
        (by_repeat_interleave, [3, 5]),
        (documents_of_one_token_joined, [3, 5]),
        (not_if_one_is_long, [4, 4]),
    ],
)
def test_right_for_its_packing(mask: Mask, lengths: list[int]) -> None:
    """The last two are wrong for packings that are not among these."""
    proven(pair(attending(mask), lengths))


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(
    ("mask", "lengths"),
    [
        (a_boundary_too_late, [3, 5]),
        (ids_of_the_token_before, [3, 5]),
        (one_head_without_mask, [3, 5]),
        (first_token_missed, [3, 5]),
        (not_if_one_is_long, [3, 5]),
        (documents_of_one_token_joined, [1, 1, 6]),
    ],
)
def test_wrong_mask(mask: Mask, lengths: list[int]) -> None:
    assert check_at_one_mesh(pair(attending(mask), lengths)).verdict == "mismatch"


# --- slices of documents, as kernels for sequences of various lengths take them


def by_slices(early: int = 0, left_out: int = 0) -> Any:
    """``early``: keys begin so many tokens before a document. ``left_out``: documents at the end
    that are not computed.
    """

    def attend(q: Any, k: Any, v: Any, batch: Batch) -> Any:
        ends = batch["cu_seqlens"].tolist()
        out = torch.zeros_like(q)
        for start, stop in list(pairwise(ends))[: len(ends) - 1 - left_out]:
            first = max(start - early, 0)
            out[:, :, start:stop] = functional.scaled_dot_product_attention(
                q[:, :, start:stop],
                k[:, :, first:stop],
                v[:, :, first:stop],
                attn_mask=earlier()[start:stop, first:stop],
            )
        return out

    return attend


@pytest.mark.nightly
@pytest.mark.slow
def test_slices_of_documents() -> None:
    proven(pair(by_slices(), [3, 5]))


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("wrong", [{"early": 1}, {"left_out": 1}])
def test_wrong_slices(wrong: dict[str, int]) -> None:
    assert check_at_one_mesh(pair(by_slices(**wrong), [3, 5])).verdict == "mismatch"


# --- losses and gradients


def without_documents_of_one_token(model: Any, batch: Batch) -> Any:
    each, ends = losses(model, batch)[0], batch["cu_seqlens"].tolist()
    return sum(each[start:stop].sum() for start, stop in pairwise(ends) if stop - start > 1)


def targets_of_the_next_token(model: Any, batch: Batch) -> Any:
    return losses(model, {**batch, "y": batch["y"].roll(-1, 1)}).sum()


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("loss", [without_documents_of_one_token, targets_of_the_next_token])
def test_wrong_loss(loss: Any) -> None:
    assert check_at_one_mesh(pair(attending(right), [1, 6, 1], loss)).verdict == "mismatch"


@pytest.mark.slow
def test_no_gradient_of_one_document() -> None:
    """The loss is right."""

    def attend(q: Any, k: Any, v: Any, batch: Batch) -> Any:
        end = int(batch["cu_seqlens"][1])
        k = torch.cat([k[:, :, :end].detach(), k[:, :, end:]], 2)
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=right(batch))

    report = check_at_one_mesh(pair(attend, [3, 5]))
    assert report.verdict == "mismatch"
    assert "loss" not in report.differing
