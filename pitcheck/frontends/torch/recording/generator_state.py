"""The state of PyTorch's random generator while a program is recorded.

Nobody draws random numbers then, but the state of the generator tells which draws are the same.
Each operator that draws moves the state on, to one that depends on the state before, the operator,
its shapes and dtypes, and the order in which elements lie in memory: PyTorch draws in that order.
So seeds, and states that are saved and restored, mean what they mean to PyTorch. Two draws are the
same if all these are; nothing is assumed about any others.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import _disable_current_modes

from pitcheck.frontends.torch.recording.arguments import Parameter, dtype_name

DRAWING = frozenset(
    {
        "bernoulli",
        "uniform",
        "rand",
        "rand_like",
        "normal",
        "normal_functional",
        "randn",
        "randn_like",
        "randperm",
    }
)
"""The operators whose draws have a meaning."""

UNSEEDED = "unseeded "
"""The beginning of the names of streams of generators that the program has not seeded."""
FRESH = 1 << 62
"""The least seed of a generator that the program has not seeded."""


def begin(process: str) -> None:
    """Set the generator to the state with which a process begins.

    PyTorch seeds it differently in every process, until the program seeds it.
    """
    torch.default_generator.manual_seed(FRESH + _number(f"process {process}"))


def is_seeded(generator: torch.Generator | None = None) -> bool:
    """Return True if the program has seeded a generator, by default that of the process."""
    return (generator or torch.default_generator).initial_seed() < FRESH


def drawn(
    func: OpOverload, operator: str, bound: Sequence[tuple[Parameter, Any]]
) -> tuple[str, ...]:
    """Move the state on for a call; return the name of its stream as a further argument.

    Returns () for a call that draws nothing, or whose draws have no meaning.
    """
    said = {parameter.name: value for parameter, value in bound}
    if torch.Tag.nondeterministic_seeded not in func.tags or said.get("dropout_p") == 0:
        return ()
    generator = said.get("generator") or torch.default_generator
    shapes = [
        f"{name} {_spelt(value)}"
        for name, value in said.items()
        if isinstance(value, torch.Tensor | list | tuple) or name == "n"
    ]
    if "dtype" in said and (dtype := said["dtype"] or torch.get_default_dtype()) != torch.float32:
        shapes.append(dtype_name(dtype))
    name = operator.partition(".")[0]
    with _disable_current_modes():
        state = sha256(generator.get_state().numpy().tobytes()).hexdigest()[:16]
        fresh = generator.initial_seed() >= FRESH
        stream = " ".join([*([UNSEEDED.strip()] if fresh else []), name, *shapes, "after", state])
        generator.manual_seed(_number(stream) + (FRESH if fresh else 0))
    return (stream,) if name in DRAWING else ()


def _number(text: str) -> int:
    return int(sha256(text.encode()).hexdigest()[:15], 16)


def _spelt(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        order = _order(value)
        lies = f" in order {order}" if order != sorted(order) else ""
        return f"{dtype_name(value.dtype)} {tuple(value.shape)}{lies}"
    if isinstance(value, int):
        return str(value)
    return str(tuple(_spelt(item) if isinstance(item, torch.Tensor) else item for item in value))


def _order(tensor: torch.Tensor) -> list[int]:
    """Return the dimensions in the order in which elements lie in memory, the outermost first."""
    long = [dim for dim, size in enumerate(tensor.shape) if size > 1]
    return sorted(long, key=lambda dim: -tensor.stride()[dim])
