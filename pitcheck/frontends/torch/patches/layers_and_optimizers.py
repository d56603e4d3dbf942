"""Patches of layers and optimizers of PyTorch that a program cannot run as they are while recorded.

What they compute stays the same.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional, init
from torch.optim import _adafactor

from pitcheck.frontends.torch.formulas.adafactor import adafactor
from pitcheck.frontends.torch.formulas.batch_norms import of_all_ranks, variances
from pitcheck.frontends.torch.patches.patching import Patch, patched
from pitcheck.frontends.torch.recording.recorder import Recorder

Forward = Callable[[torch.nn.SyncBatchNorm, torch.Tensor], torch.Tensor]


def library_patches(recorder: Recorder) -> Iterator[Patch]:
    """Yield the patches."""
    for name in ("_single_tensor_adafactor", "_multi_tensor_adafactor"):
        yield _adafactor, name, adafactor
    yield init, "_no_grad_trunc_normal_", _within_bounds(recorder, init._no_grad_trunc_normal_)
    yield functional, "embedding_bag", _in_bags(functional.embedding_bag)
    synchronised = torch.nn.SyncBatchNorm
    yield synchronised, "forward", _on_cpus(recorder, synchronised.forward)


def _within_bounds(recorder: Recorder, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that fills a tensor with drawn numbers within bounds.

    The original draws again until all numbers lie within them, which it asks the numbers. While a
    program is built, one draw that is cut off at the bounds stands for it: a step begins with any
    parameters.
    """

    def fill(
        tensor: torch.Tensor,
        mean: float,
        std: float,
        a: float,
        b: float,
        generator: torch.Generator | None = None,
    ) -> torch.Tensor:
        if not recorder.building:
            filled: torch.Tensor = original(tensor, mean, std, a, b, generator)
            return filled
        with torch.no_grad():
            return tensor.normal_(mean, std, generator=generator).clamp_(a, b)

    return fill


def _in_bags(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a function that adds up or averages the rows of a table in each row of indices.

    Bags of one length are looked up first and added up then. Others are left to the original.
    """

    @functools.wraps(original)
    def embedding_bag(*arguments: Any, **named: Any) -> torch.Tensor:
        bound = inspect.signature(original).bind(*arguments, **named)
        bound.apply_defaults()
        given = bound.arguments
        indices, mode, weights = given["input"], given["mode"], given["per_sample_weights"]
        unused: dict[str, bool | None] = {"offsets": None, "max_norm": None, "padding_idx": None}
        unused |= {"scale_grad_by_freq": False, "sparse": False}
        plain = all(given[name] is value for name, value in unused.items())
        if indices.dim() != 2 or not plain or mode == "max":
            return original(*arguments, **named)
        rows = functional.embedding(indices, given["weight"])
        if weights is not None:
            if mode != "sum":
                return original(*arguments, **named)
            rows = rows * weights.unsqueeze(-1)
        return rows.sum(1) if mode == "sum" else rows.mean(1)

    return embedding_bag


def _on_cpus(recorder: Recorder, original: Forward) -> Forward:
    """Return a method that synchronises statistics of tensors on CPUs, too.

    The original asks for a device by name. It leaves out ranks without elements by numbers, unless
    a graph of CUDA is being captured. So a rank without elements is refused here.
    """

    def forward(module: torch.nn.SyncBatchNorm, given: torch.Tensor) -> torch.Tensor:
        if given.numel() == 0:
            raise recorder.tape.unsupported(
                "SyncBatchNorm is given a tensor without elements; give every rank some"
            )
        with patched(
            [
                (torch._C, "_get_privateuse1_backend_name", lambda: "cpu"),
                (torch, "batch_norm_stats", variances),
                (torch, "batch_norm_gather_stats_with_counts", of_all_ranks),
                (torch.cuda, "is_available", lambda: True),
                (torch.cuda, "is_current_stream_capturing", lambda: True),
            ]
        ):
            return original(module, given)

    return forward
