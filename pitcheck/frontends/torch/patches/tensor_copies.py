"""Copies and conversions of tensors without numbers, made by operators.

PyTorch copies the memory of a tensor through its storage, without an operator, and converts the
parameters of a module by swapping fake tensors. Here operators do both, so that they are recorded
and mean what they mean for tensors with numbers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from pitcheck.frontends.torch.patches.nondeterminism import HASH
from pitcheck.frontends.torch.patches.patching import Patch
from pitcheck.frontends.torch.recording.recorder import Recorder
from pitcheck.frontends.torch.recording.writes import SEEN

MOST_LOADED = 1 << 24
"""The bytes of a file up to which its tensors have their numbers; larger ones have shapes alone."""
Apply = Callable[..., torch.nn.Module]


def copy_patches(recorder: Recorder) -> Iterator[Patch]:
    """Yield the patches that copy tensors, and convert modules, by operators."""
    yield torch.Tensor, "__deepcopy__", _deepcopy(recorder, torch.Tensor.__deepcopy__)
    yield torch.nn.Module, "_apply", _apply(torch.nn.Module._apply)
    yield torch.utils, "swap_tensors", _swap(recorder, torch.utils.swap_tensors)
    yield torch, "load", _load(torch.load)


def _load(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that loads a small file with its numbers, such as counts of steps."""

    def load(f: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(f, str | Path) or not _is_small(Path(f)):
            return original(f, *args, **kwargs)
        with _disable_current_modes():
            return original(f, *args, **kwargs)

    return load


def _is_small(file: Path) -> bool:
    """Return True for a file whose numbers every rank may hold."""
    return file.is_file() and file.stat().st_size <= MOST_LOADED


def _deepcopy(
    recorder: Recorder, original: Callable[..., torch.Tensor]
) -> Callable[..., torch.Tensor]:
    def deepcopy(tensor: torch.Tensor, memo: dict[Any, Any]) -> torch.Tensor:
        if type(tensor) is not FakeTensor or not tensor.is_leaf:
            return original(tensor, memo)
        found: torch.Tensor | None = memo.get(id(tensor))
        if found is not None:
            return found
        recorder.writes.check(tensor)
        with torch.no_grad():
            copied = _copied(tensor, memo)
        copied.requires_grad_(tensor.requires_grad)
        memo[id(tensor)] = copied
        own = {
            name: value
            for name, value in vars(tensor).items()
            if name not in vars(copied) and name not in (SEEN, HASH)
        }
        vars(copied).update(copy.deepcopy(own, memo))
        if tensor.grad is not None:
            copied.grad = copy.deepcopy(tensor.grad, memo)
        return copied

    return deepcopy


def _copied(tensor: torch.Tensor, memo: dict[Any, Any]) -> torch.Tensor:
    """Return a copy of a tensor in new memory.

    Tensors that share memory get copies that share memory. ``memo`` maps the address of a storage
    to the copy of all its elements and the storage, which is held so that no other gets its
    address.
    """
    held = tensor.untyped_storage()
    if (
        tensor.is_contiguous()
        and tensor.numel() * tensor.element_size() == held.nbytes()
        and held._cdata not in memo
    ):
        copied = tensor.detach().clone()
        # The storage is held while copies are made, so that no other gets its address.
        memo[held._cdata] = copied, held
        return copied
    if held._cdata not in memo:
        whole = tensor.detach().as_strided((held.nbytes() // tensor.element_size(),), (1,), 0)
        memo[held._cdata] = whole.clone(), held
    known, _ = memo[held._cdata]
    row = known.view(-1).view(tensor.dtype)
    view: torch.Tensor = row.as_strided(
        tensor.shape, tensor.stride(), tensor.storage_offset()
    ).detach()
    return view


def _apply(original: Apply) -> Apply:
    """Return a method that converts the tensors of a module.

    Parameters keep their identity and get other data. Those that leave the device "meta", where
    tensors have no memory, become new parameters, as in PyTorch.
    """

    def apply(
        module: torch.nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True
    ) -> torch.nn.Module:
        own = [*module._parameters.values(), *module._buffers.values()]
        future: Any = torch.__future__
        chosen = (
            future.get_swap_module_params_on_conversion()
            or future.get_overwrite_module_params_on_conversion()
        )
        if chosen or any(type(tensor) is not FakeTensor for tensor in own if tensor is not None):
            return original(module, fn, recurse)
        for child in module.children() if recurse else ():
            child._apply(fn)
        for name, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[name] = _converted(parameter, fn)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = fn(buffer)
        return module

    return apply


def _converted(
    parameter: torch.nn.Parameter, fn: Callable[[torch.Tensor], torch.Tensor]
) -> torch.nn.Parameter:
    with torch.no_grad():
        changed = fn(parameter)
        gradient = None if parameter.grad is None else fn(parameter.grad)
    if (changed.device.type == "meta") != (parameter.device.type == "meta"):
        new = torch.nn.Parameter(changed, parameter.requires_grad)
        new.grad = gradient
        return new
    _set_data(parameter, changed)
    if gradient is not None and parameter.grad is not None:
        _set_data(parameter.grad, gradient)
    return parameter


def _set_data(tensor: torch.Tensor, data: torch.Tensor) -> None:
    tensor.data = data
    if isinstance(tensor, FakeTensor) and isinstance(data, FakeTensor):
        tensor.fake_device = data.fake_device


def _swap(recorder: Recorder, original: Callable[..., None]) -> Callable[..., None]:
    """Refuse a swap of tensors that PyTorch forbids.

    It may forbid it only because the recorder refers to the tensors, too.
    """

    def swap(first: torch.Tensor, second: torch.Tensor) -> None:
        try:
            original(first, second)
        except RuntimeError as error:
            raise recorder.tape.unsupported(
                f"torch.utils.swap_tensors does not work while recording: {error}"
            ) from error

    return swap
