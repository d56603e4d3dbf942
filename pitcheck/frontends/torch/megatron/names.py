"""The names that parameters of Megatron's models have on a single rank.

A pipeline stage counts its own layers from 0, and an expert parallel rank its own experts. Both
know the number that each has in the whole model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from megatron.core.distributed.data_parallel_base import _BaseDataParallel
from megatron.core.transformer.module import Float16Module
from torch import nn

LAYER = re.compile(r"(?:^|\.)layers\.\d+$")
TIED, EMBEDDING = "output_layer.weight", "embedding.word_embeddings.weight"


def unwrapped(model: Any) -> list[Any]:
    """Return the chunks of a model without Megatron's wrappers for data parallelism and dtypes."""
    return [_inner(chunk) for chunk in (model if isinstance(model, Sequence) else [model])]


def reference_names(chunks: Sequence[Any]) -> Callable[[str], str]:
    """Return the function from the name of a tensor here to its name on a single rank.

    Tensors of several chunks are called "0.NAME", too, after the place of their chunk.
    """
    found: dict[str, str] = {}
    for place, chunk in enumerate(chunks):
        if isinstance(chunk, nn.Module):
            numbered = _numbered(chunk)
            for name in (*_names(chunk),):
                whole = _whole_name(name, chunk, numbered)
                found.setdefault(name, whole)
                found[f"{place}.{name}"] = whole
    return lambda name: found.get(name, name)


def _inner(chunk: Any) -> Any:
    while isinstance(chunk, _BaseDataParallel | Float16Module):
        chunk = chunk.module
    return chunk


def _names(chunk: nn.Module) -> Iterator[str]:
    yield from (name for name, _ in chunk.named_parameters())
    yield from (name for name, _ in chunk.named_buffers())


def _numbered(chunk: nn.Module) -> dict[str, int]:
    """Return the number, from 0, that a layer or expert has in the whole model, by its path."""
    found = {}
    for path, module in chunk.named_modules():
        number = getattr(module, "layer_number", None)
        if isinstance(number, int) and LAYER.search(path):
            found[path] = number - 1
        indices = getattr(module, "local_expert_indices", None)
        if indices is not None:
            found |= {
                f"{path}.experts.local_experts.{place}": int(index)
                for place, index in enumerate(indices)
            }
    return found


def _whole_name(name: str, chunk: nn.Module, numbered: dict[str, int]) -> str:
    tied = getattr(chunk, "share_embeddings_and_output_weights", False)
    if name == TIED and tied and not getattr(chunk, "pre_process", True):
        return EMBEDDING
    parts = name.split(".")
    renamed = list(parts)
    for end in range(1, len(parts)):
        number = numbered.get(".".join(parts[:end]))
        if number is not None:
            renamed[end - 1] = str(number)
    return ".".join(renamed)
