"""Names: which tensors of which ranks and micro-batches are one family of the plan.

A family is named after nnScaler's full tensor, followed by a version where a rank writes it more
than once: ``linear_1``, then ``linear_1.1`` after an all-reduce. Versions count on from stage to
stage, so that the ranks of one stage share their names and other stages do not. Equal programs get
equal names.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pitcheck.base.dtypes import DType
from pitcheck.frontends.nnscaler.tensors import SubTensor
from pitcheck.plan.model import Role

LOSS = "loss"
GRADIENT = "grad:"
"""What the loss and the gradient of a parameter are called, in a reference and in a parallel plan
alike.
"""
_RESERVED = ("grad:", "partial:", "zero:")


@dataclass(eq=False)
class Family:
    """One tensor of the plan in the making. ``parts``: per device the part of the full tensor that
    it holds there, as the planner says.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    role: Role
    microbatched: bool
    gradient_of: str | None = None
    value: int | None = None
    parts: dict[int, SubTensor] = field(default_factory=dict)
    stated: str = ""
    """Name of the reference tensor that it is said to be a part of."""
    reduced: bool = False
    """Whether it is the sum over micro-batches already."""


class Families:
    """All families of a plan by name."""

    def __init__(self) -> None:
        self.by_name: dict[str, Family] = {}
        self._names: dict[tuple[object, ...], str] = {}

    def named(
        self,
        base: str,
        version: int,
        shape: tuple[int, ...],
        dtype: DType,
        role: Role,
        *,
        microbatched: bool,
        gradient_of: str | None = None,
    ) -> Family:
        """The family with this base and version. Where ranks disagree about shape, dtype or role,
        each opinion is a family of its own.
        """
        key = (base, version, shape, dtype, role, microbatched, gradient_of)
        name = self._names.get(key)
        if name is None:
            candidate = f"{base}.{version}" if version else base
            name = candidate
            number = 1
            while name in self.by_name:
                number += 1
                name = f"{candidate}~{number}"
            self._names[key] = name
            self.by_name[name] = Family(name, shape, dtype, role, microbatched, gradient_of)
        return self.by_name[name]


def base_of(tensor: SubTensor) -> str:
    """The name that a tensor's families begin with; names with a meaning of their own are kept for
    it.
    """
    return (
        f"{tensor.name}_"
        if tensor.name == LOSS or tensor.name.startswith(_RESERVED)
        else tensor.name
    )
