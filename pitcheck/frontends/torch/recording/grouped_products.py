"""Products of matrices in groups of rows, whose ends are known while a program is recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pitcheck.errors import UnsupportedError

Known = Callable[[torch.Tensor], torch.Tensor | None]
"""A function that returns the numbers of a tensor, or None if they are not known."""


def grouped_product(known: Known, where: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Compute ``torch._grouped_mm`` group by group.

    Rows after the end of the last group are memory that nobody has written to. Raises
    UnsupportedError if the ends are not known, and for what PyTorch itself does not have.
    """
    given = dict(zip(("self", "mat2", "offs", "bias", "out_dtype"), args, strict=False))
    given.update(kwargs)
    left, right, offs = given["self"], given["mat2"], given.get("offs")
    if given.get("bias") is not None:
        raise UnsupportedError(f"{where}: _grouped_mm with a bias is not known; add it afterwards")
    if offs is None:
        return _cast(torch.bmm(left, right), given)
    numbers = known(offs)
    if numbers is None:
        raise UnsupportedError(
            f"{where}: the ends of the groups of _grouped_mm are not known; say in Spec.routings "
            f"how tokens choose experts"
        )
    ends = [int(end) for end in numbers.tolist()]
    rows = right.shape[-1] if left.dim() == 3 else left.shape[-1 if right.dim() == 2 else -2]
    _check_ends(ends, rows, where)
    groups = [slice(start, stop) for start, stop in zip([0, *ends], ends, strict=False)]
    return _cast(_by_group(left, right, groups), given)


def _check_ends(ends: Sequence[int], rows: int, where: str) -> None:
    if sorted(ends) != list(ends) or ends[0] < 0 or ends[-1] > rows:
        raise UnsupportedError(
            f"{where}: the ends {list(ends)} of the groups of _grouped_mm do not rise from 0 to "
            f"{rows}, its number of rows"
        )


def _by_group(left: torch.Tensor, right: torch.Tensor, groups: Sequence[slice]) -> torch.Tensor:
    if left.dim() == 2 and right.dim() == 2:
        return torch.stack([left[:, group] @ right[group] for group in groups])
    if left.dim() == 3:
        parts = [left[number] @ right[:, group] for number, group in enumerate(groups)]
        return _filled(parts, right.shape[1] - groups[-1].stop, 1)
    parts = [left[group] @ right[number] for number, group in enumerate(groups)]
    return _filled(parts, left.shape[0] - groups[-1].stop, 0)


def _filled(parts: Sequence[torch.Tensor], missing: int, dim: int) -> torch.Tensor:
    """Return parts joined along a dimension, with unwritten memory for what is missing behind."""
    if not missing:
        return torch.cat(list(parts), dim)
    shape = list(parts[0].shape)
    shape[dim] = missing
    return torch.cat([*parts, parts[0].new_empty(shape)], dim)


def _cast(result: torch.Tensor, given: dict[str, Any]) -> torch.Tensor:
    dtype = given.get("out_dtype")
    return result if dtype is None else result.to(dtype)
