"""Computing small events on real tensors while they are recorded.

Only events that depend on constants alone are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from pitcheck.frontends.torch.recording.arguments import DTYPES
from pitcheck.frontends.torch.trace import Argument, Event, Ref

KNOWN_ELEMENTS = 1 << 16
"""The greatest number of elements of a value that is computed while recording."""
UNDEFINED = frozenset(
    {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"}
)
"""The operators whose results are memory that nobody has written to."""


def evaluate(
    event: Event, known: Mapping[int, torch.Tensor]
) -> tuple[torch.Tensor | None, ...] | None:
    """Return the outputs of an event, given the numbers of its operands by value.

    An output that is no tensor is None. Returns None for an event that is no ATen operator, and for
    one whose operands do not determine its outputs.
    """
    name, _, overload = event.operator.partition(".")
    packet = getattr(torch.ops.aten, name, None)
    func = getattr(packet, overload, None) if packet is not None else None
    if func is None or name in UNDEFINED or torch.Tag.nondeterministic_seeded in func.tags:
        return None
    names = {a.name: a for a in func._schema.arguments}
    if len(names) != len(event.arguments):
        return None
    args, kwargs = [], {}
    for schema, argument in zip(names.values(), event.arguments, strict=True):
        value = _real(argument, known, "dtype" in schema.name)
        if schema.kwarg_only:
            kwargs[schema.name] = value
        else:
            args.append(value)
    with _disable_current_modes(), torch.no_grad():
        result = ON_NUMBERS.get(event.operator, func)(*args, **kwargs)
        results = result if isinstance(result, tuple | list) else (result,)
        # A view would change with its base. Values have no strides, so that any view can be taken.
        return tuple(
            item.clone(memory_format=torch.contiguous_format)
            if isinstance(item, torch.Tensor)
            else None
            for item in results
        )


def _greatest(
    x: torch.Tensor, k: int, dim: int, largest: bool, _sorted: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the greatest or least elements and their places; of equal ones the first."""
    order = x.argsort(stable=True, dim=dim, descending=largest).narrow(dim, 0, k)
    return x.gather(dim, order), order


def _counts(x: torch.Tensor, bins: int, least: float, greatest: float) -> torch.Tensor:
    """Return how many elements lie in each of the bins; PyTorch has it for integers on GPUs."""
    return torch.histc(x.double(), bins, least, greatest).to(x.dtype)


ON_NUMBERS: dict[str, Callable[..., Any]] = {"topk.default": _greatest, "histc.default": _counts}
"""The operators of which a CPU leaves something open, or lacks a dtype."""


def _real(argument: Argument, known: Mapping[int, torch.Tensor], is_dtype: bool) -> Any:
    if isinstance(argument, Ref):
        return known[argument.value]
    if isinstance(argument, tuple):
        return [_real(item, known, is_dtype) for item in argument]
    if is_dtype and isinstance(argument, str):
        return DTYPES[argument]
    return argument
