"""An attention over the parts of a sequence that ranks have in Megatron's zigzag order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest
import torch
from frontends.torch.frameworks import megatron_bugs as bugs
from frontends.torch.frameworks.megatron_context import GatheredAttention
from frontends.torch.frameworks.megatron_gpt import (
    HEADS,
    INSTALLED,
    LENGTH,
    Batch,
    Bug,
    Setup,
    configuration,
    forgotten,
    groups,
)
from frontends.torch.proving import check_at_one_mesh, proven

from pitcheck.torch import Input, Part, Program, Spec
from pitcheck.torch.megatron import on_cpu

pytestmark = [
    pytest.mark.skipif(not INSTALLED, reason="megatron-core is not installed"),
    pytest.mark.slow,
    pytest.mark.nightly,
]


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    yield
    forgotten()


def attended(context: int, attention: Callable[[Any], torch.nn.Module], bug: Bug) -> Program:
    setup = Setup(tensor=1, context=context, layers=1)
    groups(setup)
    inner = attention(configuration(setup))

    def step(batch: Batch) -> torch.Tensor:
        later = torch.tril(torch.ones(1, 1, LENGTH, LENGTH, device="cuda")) < 0.5
        cut = import_module("megatron.core.utils").get_batch_on_this_cp_rank(
            {**batch, "attention_mask": later}
        )
        query, key, value = (cut[name].transpose(0, 1).contiguous() for name in "qkv")
        with bug(inner):
            mixed: torch.Tensor = inner(
                query=query, key=key, value=value, attention_mask=cut["attention_mask"]
            )
        return mixed.square().sum()

    return Program(inner, step)


def spec(bug: Bug) -> Spec:
    def plain(config: Any) -> torch.nn.Module:
        kind = import_module("megatron.core.transformer.dot_product_attention").DotProductAttention
        mask = import_module("megatron.core.transformer.enums").AttnMaskType.causal
        made: torch.nn.Module = kind(config, 1, mask, "self")
        return made

    one = Input((2, LENGTH, HEADS, 8))
    return Spec(
        on_cpu(lambda: attended(1, plain, bugs.nothing)),
        on_cpu(lambda _: attended(2, GatheredAttention, bug)),
        {"cp": 2},
        {"q": one, "k": one, "v": one},
        {"loss": Part(sum="cp")},
    )


def test_keys_of_all_ranks_give_the_attention_of_one() -> None:
    proven(spec(bugs.nothing))


@pytest.mark.parametrize("bug", [bugs.zigzag_forgotten, bugs.mask_of_first_part])
def test_keys_or_masks_in_another_order_are_a_mismatch(bug: Bug) -> None:
    report = check_at_one_mesh(spec(bug))
    assert report.verdict == "mismatch", report.findings
