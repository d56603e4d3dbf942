"""The operators that read or write at indices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pitcheck.frontends.xla.lowering.arrays import Array
from pitcheck.frontends.xla.lowering.building import Building
from pitcheck.frontends.xla.lowering.indexed.dynamic_slices import DYNAMIC_SLICES, LowerIndexed
from pitcheck.frontends.xla.lowering.indexed.gathers import gather
from pitcheck.frontends.xla.lowering.indexed.scatters import scatter
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape

_LOWER: Mapping[str, LowerIndexed] = MappingProxyType(
    {**DYNAMIC_SLICES, "gather": gather, "scatter": scatter}
)


def indexed(b: Building, instruction: Instruction, given: Sequence[Array]) -> Array | None:
    """Return what is read or written at indices; None if the opcode is another.

    Raises:
        UnsupportedError: for what has no meaning in a plan.
        PlanError: for operands that do not fit together.
    """
    lower = _LOWER.get(instruction.opcode)
    if lower is None or not isinstance(instruction.shape, ArrayShape):
        return None
    return lower(b, instruction, given)
