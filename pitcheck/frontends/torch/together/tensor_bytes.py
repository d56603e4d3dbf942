"""Known tensors as bytes."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.utils._python_dispatch import _disable_current_modes

from pitcheck.frontends.torch.recording.arguments import DTYPES, dtype_name
from pitcheck.frontends.torch.together.messages import Numbers


def numbers_of(tensor: torch.Tensor, tests: Iterable[str] = ()) -> Numbers:
    """Return a tensor with numbers as bytes; they are an outcome of ``tests``, if there are any."""
    with _disable_current_modes():
        flat = tensor.detach().contiguous().reshape(-1)
        # Bytes are compared, as -0.0 is another number than 0.0, and NaN no number at all.
        raw = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    size = tensor.element_size()
    if raw == raw[:size] * tensor.numel():
        raw = raw[:size]
    return Numbers(dtype_name(tensor.dtype), tuple(tensor.shape), raw, tuple(sorted(tests)))


def tensor_of(numbers: Numbers) -> torch.Tensor:
    """Return the tensor of numbers that were sent as bytes."""
    dtype, count = DTYPES[numbers.dtype], torch.Size(numbers.shape).numel()
    with _disable_current_modes():
        if not count:
            return torch.empty(numbers.shape, dtype=dtype)
        data = numbers.data
        if len(data) == dtype.itemsize:
            data *= count
        return torch.frombuffer(bytearray(data), dtype=dtype).reshape(numbers.shape)
