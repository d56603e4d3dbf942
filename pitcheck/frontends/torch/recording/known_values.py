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


def _sorted(
    x: torch.Tensor, dim: int = -1, descending: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the elements in order and their places; equal ones keep their order."""
    values, places = x.sort(stable=True, dim=dim, descending=descending)
    return values, places


def _greatest(
    x: torch.Tensor, k: int, dim: int, largest: bool, _sorted: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the greatest or least elements and their places; of equal ones the first."""
    order = x.argsort(stable=True, dim=dim, descending=largest).narrow(dim, 0, k)
    return x.gather(dim, order), order


def _written(
    x: torch.Tensor,
    indices: list[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool,
) -> torch.Tensor | None:
    """Return the elements after a write at indices.

    Returns None if an element is written twice, with different numbers: nothing says which remains.
    Behind a whole dimension, no element may be written twice.
    """
    result: torch.Tensor = torch.ops.aten.index_put.default(x, indices, values, accumulate)
    given = [index for index in indices if index is not None]
    if accumulate or values.numel() == 1:
        return result
    places = torch.broadcast_tensors(*given)
    if len(given) != len(indices):
        written = torch.stack([place.reshape(-1) for place in places])
        return result if written.unique(dim=1).shape == written.shape else None
    shape = (*places[0].shape, *x.shape[len(given) :])
    source = values.expand(shape).reshape(-1, *x.shape[len(given) :])
    backwards = tuple(place.reshape(-1).flip(0) for place in places)
    return result if torch.equal(result, x.index_put(backwards, source.flip(0))) else None


def _scattered(
    x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor
) -> torch.Tensor | None:
    """Return the elements after a write along a dimension; None as of :func:`_written`."""
    result = x.scatter(dim, index, source)
    read = source[tuple(slice(size) for size in index.shape)]
    backwards = x.scatter(dim, index.flip(dim), read.flip(dim))
    return result if torch.equal(result, backwards) else None


def _counts(x: torch.Tensor, bins: int, least: float, greatest: float) -> torch.Tensor:
    """Return how many elements lie in each of the bins; PyTorch has it for integers on GPUs."""
    return torch.histc(x.double(), bins, least, greatest).to(x.dtype)


ON_NUMBERS: dict[str, Callable[..., Any]] = {
    "topk.default": _greatest,
    "sort.default": _sorted,
    "histc.default": _counts,
    "index_put.default": _written,
    "scatter.src": _scattered,
}
"""The operators of which PyTorch leaves something open, or which a CPU lacks for some dtype."""
WRITES = frozenset({"index_put.default", "scatter.src", "scatter.value"})
"""The operators that write some elements of a tensor and leave the others as they are."""


def evaluate_write(
    event: Event,
    known: Mapping[int, torch.Tensor],
    base: int,
    shape: tuple[int, ...],
    dtype: torch.dtype,
) -> tuple[torch.Tensor | None, ...] | None:
    """Return the output of one of ``WRITES`` into a value that is not known.

    ``base`` is that value, of this shape and dtype. Returns None unless every element is written,
    so that what was there before does not matter.
    """
    with _disable_current_modes():
        stand_ins = [torch.full(shape, fill, dtype=dtype) for fill in (0, 1)]
    first, second = (evaluate(event, {**known, base: one}) for one in stand_ins)
    with _disable_current_modes():
        if first is None or second is None or first[0] is None or second[0] is None:
            return None
        return (first[0],) if torch.equal(first[0], second[0]) else None


def _real(argument: Argument, known: Mapping[int, torch.Tensor], is_dtype: bool) -> Any:
    if isinstance(argument, Ref):
        return known[argument.value]
    if isinstance(argument, tuple):
        return [_real(item, known, is_dtype) for item in argument]
    if is_dtype and isinstance(argument, str):
        return DTYPES[argument]
    return argument
