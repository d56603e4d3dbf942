"""Stand-ins for CUDA on a machine that has none.

Nothing that they leave out computes: streams and events say when kernels run, and pinned memory how
fast copies are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

IS_CUDA = torch.Tensor.is_cuda
"""The property of tensors; a mode is called with its getter."""


class Stream:
    """A stream of CUDA. Operators run in the order of the program, whatever their stream."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.cuda_stream = 0

    def wait_stream(self, _: Stream) -> None:
        """Do nothing."""

    def wait_event(self, _: Event) -> None:
        """Do nothing."""

    def record_event(self, event: Event | None = None) -> Event:
        """Return the event, or a new one."""
        return Event() if event is None else event

    def synchronize(self) -> None:
        """Do nothing."""

    def query(self) -> bool:
        """Return True."""
        return True


class Event:
    """An event of CUDA, which has happened."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.cuda_event = 0

    def record(self, _: Stream | None = None) -> None:
        """Do nothing."""

    def wait(self, _: Stream | None = None) -> None:
        """Do nothing."""

    def synchronize(self) -> None:
        """Do nothing."""

    def query(self) -> bool:
        """Return True."""
        return True


def entered(_: Stream | None) -> AbstractContextManager[None]:
    """Return the context in which operators run on a stream."""
    return nullcontext()


class CpuForCuda(TorchFunctionMode):
    """Run on the CPU what a program asks PyTorch to run on CUDA.

    Tensors say that they lie on CUDA and are of its types: Megatron's optimizers ask for it, and
    its dispatchers of tokens copy counts to the CPU only then.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function of PyTorch with the CPU in place of CUDA."""
        given = {name: _here(value) for name, value in (kwargs or {}).items()}
        given.pop("pin_memory", None)
        if getattr(func, "__self__", None) is IS_CUDA:
            return True
        if func is torch.Tensor.pin_memory:
            return args[0].clone()
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.type and len(args) == 1 and not given:
            return func(*args).replace("torch.", "torch.cuda.", 1)
        return func(*map(_here, args), **given)


def _here(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    return "cpu" if isinstance(value, str) and value.partition(":")[0] == "cuda" else value
