"""Patches against ways around the recorder, for the time of a recording.

Such ways are operators on other threads or beneath the recorder's mode, memory that is reached
without operators, and versions that go up without a write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import get_ident
from typing import Any, cast

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.function import FunctionCtx
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.patches.patching import Patch
from pitcheck.frontends.torch.recording.recorder import Recorder

FAKE = torch._C._TorchDispatchModeKey.FAKE


def bypass_patches(recorder: Recorder) -> Iterator[Patch]:
    """Yield the patches that refuse, or record, what would bypass a recorder."""
    dispatch = cast(Any, FakeTensor.__torch_dispatch__).__func__
    yield FakeTensor, "__torch_dispatch__", classmethod(_beneath(recorder, dispatch))
    for name in ("numpy", "__array__"):
        yield torch.Tensor, name, _array(recorder, getattr(torch.Tensor, name))
    for name in ("copy_", "fill_", "__setitem__", "byteswap"):
        original = getattr(torch.UntypedStorage, name)
        yield torch.UntypedStorage, name, _memory(recorder, name, original)
    yield torch._C, "_increment_version", _counted(recorder, torch._C._increment_version)
    yield FunctionCtx, "mark_dirty", _marked(recorder, FunctionCtx.mark_dirty)


def _beneath(recorder: Recorder, original: Callable[..., Any]) -> Callable[..., Any]:
    """Record an operator that reaches a fake tensor without having passed the recorder's mode.

    The mode was set aside then. On another thread it is not active: such an operator is refused.
    """

    def dispatch(
        kind: type,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        if get_ident() != recorder.thread:
            raise recorder.tape.unsupported(
                f"{func} runs on another thread, whose operators have no order among those that "
                f"are recorded; run it on the main thread",
            )
        mine = any(
            isinstance(leaf, FakeTensor) and leaf.fake_mode is recorder.fake
            for leaf in tree_leaves((args, given))
        )
        if torch._C._get_dispatch_mode(FAKE) is not None or not mine or func.namespace == "prim":
            return original(kind, func, types, args, given)
        with recorder.fake, recorder:
            return func(*args, **given)

    return dispatch


def _array(recorder: Recorder, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the array of a tensor, whose numbers must be known.

    It cannot be written to, for nobody would see that.
    """

    def array(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(tensor, FakeTensor):
            return original(tensor, *args, **kwargs)
        try:
            known = recorder.known(tensor)
            with _disable_current_modes():
                numbers = original(known.clone(), *args, **kwargs)
        except UnsupportedError as error:
            raise recorder.tape.refuse(error) from None
        numbers.setflags(write=False)
        return numbers

    return array


def _memory(recorder: Recorder, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse a write to recorded memory that is no operator."""

    def write(storage: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        if recorder.storages.holds(storage):
            raise recorder.tape.unsupported(
                f"UntypedStorage.{name} writes to memory without an operator; write to a tensor",
            )
        return original(storage, *args, **kwargs)

    return write


def _counted(recorder: Recorder, original: Callable[..., None]) -> Callable[..., None]:
    """Count a version that goes up by itself as a recorded write."""

    def increment(tensors: Any) -> None:
        recorder.writes.count(
            leaf for leaf in tree_leaves(tensors) if isinstance(leaf, torch.Tensor)
        )
        original(tensors)

    return increment


def _marked(recorder: Recorder, original: Callable[..., None]) -> Callable[..., None]:
    """Count what an autograd function marks as written, whose versions go up once more."""

    def mark(ctx: FunctionCtx, *tensors: torch.Tensor) -> None:
        recorder.writes.count(tensors)
        original(ctx, *tensors)

    return mark
