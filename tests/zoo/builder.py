"""A thin helper that appends records to a plan; shapes follow from the oracle's own operators run
on zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pitcheck.base.dtypes import DType
from pitcheck.execution.executor import collective
from pitcheck.execution.meanings import backward, forward
from pitcheck.plan.model import (
    Attribute,
    Axis,
    Box,
    Group,
    Lineage,
    Number,
    Operand,
    Operator,
    Output,
    Plan,
    Program,
    Role,
    Shard,
    Step,
    Table,
    Tensor,
    Use,
)

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "scan")
Spec = Lineage | dict[int, Any] | None
"""A lineage, or per dimension of the reference of the same name: an axis, several axes, or a table
of intervals.
"""


def intervals(over: str | tuple[str, ...], *values: Sequence[tuple[int, int]]) -> Table:
    """A table of intervals, one entry per place of the axes ``over``."""
    return Table(
        (over,) if isinstance(over, str) else over,
        tuple(tuple(tuple(pair) for pair in entry) for entry in values),
    )


def table(over: str | tuple[str, ...], *values: Any) -> Table:
    """A table of attribute values."""
    return Table((over,) if isinstance(over, str) else over, tuple(values))


def lineage(reference: str, shards: dict[int, Any] | None = None, **more: Any) -> Lineage:
    """``shards``: dimension -> an axis, several axes, or a table of intervals."""
    found = []
    for dim, how in (shards or {}).items():
        if isinstance(how, Table):
            found.append(Shard(dim, intervals=how))
        else:
            found.append(Shard(dim, by=(how,) if isinstance(how, str) else tuple(how)))
    return Lineage(reference, tuple(found), **more)


_WHOLE = {"add", "sub", "maximum", "minimum"}
"""Operators of two tensors of one type: a literal beside integers is an integer."""


class Builder:
    """Appends tensors and operators; ``plan()`` gives the plan."""

    def __init__(
        self, name: str, mesh: dict[str, int] | None = None, microbatches: int = 1
    ) -> None:
        self.name = name
        self.mesh = tuple(Axis(axis, size) for axis, size in (mesh or {"device": 1}).items())
        self.sizes = {axis.name: axis.size for axis in self.mesh}
        self.microbatches = microbatches
        self.tensors: dict[str, Tensor] = {}
        self.operators: list[Operator] = []
        self.outputs: list[Output] = []
        self.blocks: dict[str, tuple[str, ...]] = {}
        self.programs: list[Program] = []

    # --- tensors

    def add(self, tensor: Tensor) -> str:
        if tensor.name in self.tensors:
            raise ValueError(f"{tensor.name} stands twice")
        self.tensors[tensor.name] = tensor
        return tensor.name

    def _given(
        self,
        name: str,
        shape: Sequence[int],
        role: Role,
        spec: Spec,
        dtype: DType,
        more: dict[str, Any],
    ) -> str:
        held = lineage(name, spec) if isinstance(spec, dict) else spec
        return self.add(Tensor(name, tuple(shape), dtype, role, lineage=held, **more))

    def input(
        self,
        name: str,
        shape: Sequence[int],
        spec: Spec = None,
        dtype: DType = "float32",
        **more: Any,
    ) -> str:
        return self._given(name, shape, "input", spec, dtype, more)

    def parameter(self, name: str, shape: Sequence[int], spec: Spec = None, **more: Any) -> str:
        return self._given(name, shape, "parameter", spec, "float32", more)

    def state(self, name: str, shape: Sequence[int], spec: Spec = None, **more: Any) -> str:
        return self._given(name, shape, "optimizer_state", spec, "float32", more)

    def constant(self, name: str, value: float, shape: Sequence[int] = ()) -> str:
        return self.add(Tensor(name, tuple(shape), role="constant", value=value))

    # --- operators

    def op(
        self,
        kind: str,
        *inputs: Operand,
        out: str | Sequence[str] = "",
        where: Any = (),
        group: Any = None,
        hint: Spec = None,
        **attributes: Any,
    ) -> Any:
        """Append a record; returns the name of its output (names, where ``out`` is a list).

        ``out``: names of the outputs; ``where``: a box or boxes; ``group``: an axis, axes or rank
        lists; ``hint``: lineage of the output.
        """
        number = len(self.operators)
        several = not isinstance(out, str)
        names = list(out) if several else [out or f"{kind.replace('.', '_')}_{number}"]
        microbatched = self._microbatched(kind, inputs)
        shapes = self._shapes(
            kind, inputs, attributes, [bool(n) for n in names], self._group(group)
        )
        for name, (shape, dtype) in zip(names, shapes, strict=True):
            if name and name not in self.tensors:
                self.add(
                    Tensor(
                        name,
                        shape,
                        dtype,
                        microbatched=microbatched,
                        lineage=lineage(name, hint) if isinstance(hint, dict) else hint,
                    )
                )
        self._append(kind, inputs, names, attributes, where, self._group(group))
        return names if several else names[0]

    def _append(
        self,
        kind: str,
        inputs: Sequence[Operand],
        names: Sequence[str],
        attributes: dict[str, Attribute],
        where: Any,
        group: Group | None,
    ) -> None:
        boxes: tuple[Box, ...] = (where,) if isinstance(where, dict) else tuple(where)
        number = len(self.operators)
        self.operators.append(
            Operator(
                f"{number}:{kind}",
                kind,
                tuple(inputs),
                tuple(names),
                attributes,
                group,
                boxes,
                source=f"{self.name}.py:{number + 1}",
            )
        )

    def back(
        self,
        kind: str,
        inputs: Sequence[Operand],
        y: Operand,
        dy: Operand,
        out: Sequence[str],
        where: Any = (),
        **attributes: Any,
    ) -> list[str]:
        """``kind.backward``; ``out`` names the gradients, "" where not wanted."""
        found: list[str] = self.op(
            f"{kind}.backward", *inputs, y, dy, out=out, where=where, **attributes
        )
        return found

    def send(self, tensor: Operand, peer: Any, where: Any, **attributes: Attribute) -> None:
        self._append("send", (tensor,), (), {"peer": peer, **attributes}, where, None)

    def receive(self, like: str, out: str, peer: Any, where: Any, **attributes: Attribute) -> str:
        tensor = self.tensors[like]
        if out not in self.tensors:
            self.add(Tensor(out, tensor.shape, tensor.dtype, microbatched=tensor.microbatched))
        self._append("receive", (), (out,), {"peer": peer, **attributes}, where, None)
        return out

    def _group(self, group: Any) -> Group | None:
        if group is None or isinstance(group, Group):
            return group
        if isinstance(group, str):
            return Group(axes=(group,))
        if all(isinstance(g, str) for g in group):
            return Group(axes=tuple(group))
        return Group(ranks=tuple(tuple(g) for g in group))

    def _microbatched(self, kind: str, inputs: Sequence[Operand]) -> bool:
        return kind != "accumulate" and any(
            isinstance(o, str) and self.tensors[o].microbatched for o in inputs
        )

    def _zeros(self, operand: Operand) -> torch.Tensor:
        if isinstance(operand, Number):
            return torch.ones((), dtype=torch.float64)
        tensor = self.tensors[operand.tensor if isinstance(operand, Use) else operand]
        kinds = {"bool": torch.bool} | dict.fromkeys(
            ("int64", "int32", "int16", "int8", "uint8"), torch.int64
        )
        least = tensor.bounds[0] if tensor.bounds else 0
        return torch.full(tensor.shape, least, dtype=kinds.get(tensor.dtype, torch.float64))

    def _shapes(
        self,
        kind: str,
        inputs: Sequence[Operand],
        attributes: dict[str, Any],
        wanted: list[bool],
        group: Group | None,
    ) -> list[tuple[tuple[int, ...], DType]]:
        plain = {k: v.values[0] if isinstance(v, Table) else v for k, v in attributes.items()}
        given = [self._zeros(o) for o in inputs]
        if kind in _WHOLE and any(x.dtype == torch.int64 for x in given):
            given = [x.to(torch.int64) for x in given]
        if kind == "accumulate":
            results: list[torch.Tensor | None] = [given[0]]
        elif group is not None:
            size = len(group.ranks[0]) if group.ranks else 1
            for axis in group.axes:
                size *= self.sizes[axis]
            results = [collective(kind, given * size, plain, 0)]
        elif kind.endswith(".backward"):
            results = backward(kind.removesuffix(".backward"), given, plain, wanted)
        else:
            results = forward(kind, given, plain)
        return [((), "float32") if r is None else (tuple(r.shape), _dtype(r)) for r in results]

    # --- outputs

    def gradient(self, tensor: str, of: str, reference: str = "") -> None:
        """Mark a tensor as the gradient of a parameter, and as an output."""
        self._mark(tensor, role="gradient", gradient_of=of)
        self.output(tensor, reference)

    def update(self, tensor: str, of: str, reference: str = "") -> None:
        """Mark a tensor as the new value of a parameter or state, and as an output."""
        self._mark(tensor, updated=of)
        self.output(tensor, reference)

    def output(self, tensor: str, reference: str = "", spec: Lineage | None = None) -> None:
        self.outputs.append(Output(tensor, reference, spec))

    def _mark(self, name: str, **changes: Any) -> None:
        old = self.tensors[name]
        values = {field: getattr(old, field) for field in old.__struct_fields__}
        self.tensors[name] = Tensor(**{**values, **changes})

    def program(self, steps: Sequence[tuple[str, int | None]], where: Any = ()) -> None:
        boxes: tuple[Box, ...] = (where,) if isinstance(where, dict) else tuple(where)
        self.programs.append(Program(tuple(Step(block, mb) for block, mb in steps), boxes))

    def block(self, name: str, since: int) -> int:
        """A block of the operators appended since number ``since``; returns where the
        next begins.
        """
        self.blocks[name] = tuple(op.id for op in self.operators[since:])
        return len(self.operators)

    def plan(self) -> Plan:
        return Plan(
            self.mesh,
            tuple(self.tensors.values()),
            tuple(self.operators),
            tuple(self.outputs),
            self.microbatches,
            self.blocks,
            tuple(self.programs),
            self.name,
        )


def _dtype(x: torch.Tensor) -> DType:
    return "bool" if x.dtype == torch.bool else "int64" if x.dtype == torch.int64 else "float32"
