"""The names of tensors.

The tensors of several ranks and micro-batches are one family of the plan. A family is named after
nnScaler's full tensor, with a version behind it if a rank writes it more than once: ``linear_1``,
then ``linear_1.1`` after an all-reduce. Versions count on from stage to stage, so that the ranks of
one stage share their names and other stages do not. Equal programs get equal names.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pitcheck.base.dtypes import DType
from pitcheck.frontends.nnscaler.tensors import SubTensor
from pitcheck.plan.model import Role

LOSS = "loss"
GRADIENT = "grad:"
"""The prefix of gradients of parameters; they and the loss have these names in every plan."""
_RESERVED = ("grad:", "partial:", "zero:")


@dataclass(eq=False)
class Family:
    """One tensor of the plan in the making.

    - ``parts``: for each device, the part of the full tensor that it holds, as the planner says.
    - ``stated``: the name of the reference tensor; the planner says that this is a part of it.
    - ``reduced``: it is already the sum over micro-batches.
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
    reduced: bool = False


class Families:
    """The families of a plan by name."""

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
        """Return the family with this base and version.

        If ranks disagree about shape, dtype or role, each opinion is a family of its own.
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
    """Return the name with which a tensor's families begin.

    Names that have a meaning in plans are changed.
    """
    return (
        f"{tensor.name}_"
        if tensor.name == LOSS or tensor.name.startswith(_RESERVED)
        else tensor.name
    )
