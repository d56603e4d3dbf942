"""The tape of a forward segment: what autograd will differentiate, in the order in which it ran."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from pitcheck.frontends.nnscaler.context import Value
from pitcheck.frontends.nnscaler.execution_plan import Adapter, Compute, Primitive
from pitcheck.plan.model import Number


class Computed(msgspec.Struct, frozen=True, gc=False):
    """An operator as it ran."""

    node: Compute
    operands: tuple[Value | Number, ...]
    results: tuple[Value, ...]


class Communicated(msgspec.Struct, frozen=True, gc=False):
    """A primitive of ``adapter`` that has a backward half, as it ran."""

    adapter: Adapter
    primitive: Primitive
    operand: Value
    results: tuple[Value, ...]


class Customized(msgspec.Struct, frozen=True, gc=False):
    """An adapter whose backward pass is another adapter, as it ran."""

    adapter: Adapter
    operands: tuple[Value, ...]
    results: tuple[Value, ...]


Entry = Computed | Communicated | Customized


@dataclass(eq=False)
class Forward:
    """A forward call: its micro-batch, its inputs, and its tape.

    Values are known by their identity; there is one for each time a tensor is written.
    """

    microbatch: int
    inputs: tuple[Value | None, ...] = ()
    entries: list[Entry] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)

    def gives(self, value: Value) -> bool:
        """Return True if a value is an output of this call."""
        return any(value is output for output in self.outputs)
