"""The pair of plans of a row: the operator alone, and the same over two ranks, as it should be or
with one fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from engine.operators.operator_rows import How, In, Row
from zoo.builder import Builder, intervals

from pitcheck.plan.model import Number, Plan

Fault = tuple[str, str]
"""(what is wrong, at which tensor)."""
RIGHT: Fault = ("", "")
REAL = ("float32", "bfloat16")


def pair(row: Row, fault: Fault = RIGHT) -> tuple[Plan, Plan]:
    """(reference, parallel)."""
    return _Reference(row).plan(), _Parallel(row, fault).plan()


def faults(row: Row) -> Iterator[Fault]:
    """Near misses: shards off by one or exchanged, replicas that differ in one element, a share or
    a reduction missing, parts joined along another axis.
    """
    for number, given in enumerate(row.inputs):
        if given.cut is not None:
            yield "off by one", f"x{number}"
            yield "exchanged", f"x{number}"
    for name, (shape, how) in _Parallel(row, RIGHT).put_together().items():
        yield "replicas differ", name
        if how in ("sum", "avg"):
            yield "share missing", name
            yield "not reduced", name
        elif isinstance(how, str):
            yield "not reduced", name
        elif how is not None and len(shape) > 1:
            yield "other axis", name


class _Reference:
    """The operator on one device; results are y0, y1, ...; gradients are dx0, dx1, ..."""

    def __init__(self, row: Row) -> None:
        b = self.b = Builder(row.name)
        names = [
            b.input(f"x{n}", i.shape, dtype=i.dtype, bounds=i.bounds)
            for n, i in enumerate(row.inputs)
        ]
        outputs = [f"y{n}" for n in range(len(row.outputs))]
        b.op(row.kind, *names, out=outputs, **row.attributes)
        for name in outputs:
            b.output(name)
        self.shapes = {name: b.tensors[name].shape for name in outputs}
        self.real = [n for n, name in enumerate(outputs) if b.tensors[name].dtype in REAL]
        if row.gradient:
            gradients = [b.input(f"g{n}", self.shapes[outputs[n]]) for n in self.real]
            found = [f"dx{n}" if i.dtype in REAL else "" for n, i in enumerate(row.inputs)]
            _derive(b, row.kind, names, outputs, gradients, self.real, found, row.attributes)
            for name in found:
                if name:
                    b.output(name)

    def plan(self) -> Plan:
        return self.b.plan()


def _derive(
    b: Builder,
    kind: str,
    names: list[str],
    outputs: list[str],
    gradients: list[str],
    real: list[int],
    found: list[str],
    attributes: Any,
) -> None:
    more = {} if len(outputs) == 1 else {"forward_outputs": len(outputs), "gradients": tuple(real)}
    b.op(f"{kind}.backward", *names, *outputs, *gradients, out=found, **attributes, **more)


@dataclass
class _Parallel:
    row: Row
    fault: Fault
    b: Builder = field(init=False)
    _found: dict[str, tuple[tuple[int, ...], How]] = field(default_factory=dict)

    def put_together(self) -> dict[str, tuple[tuple[int, ...], How]]:
        """Every output's shape, and how it is put together."""
        self.plan()
        return self._found

    def plan(self) -> Plan:
        row = self.row
        b = self.b = Builder(f"{row.name}-tp", {"tp": 2})
        names = [self._input(f"x{n}", i) for n, i in enumerate(row.inputs)]
        own = [f"y{n}_own" for n in range(len(row.outputs))]
        attributes = row.attributes | row.local
        b.op(row.kind, *names, out=own, **attributes)
        for number, how in enumerate(row.outputs):
            self._emit(own[number], f"y{number}", how)
        if row.gradient:
            self._gradients(names, own, attributes)
        return b.plan()

    def _gradients(self, names: list[str], own: list[str], attributes: dict[str, Any]) -> None:
        reference = _Reference(self.row)
        gradients = []
        for number in reference.real:
            how = self.row.outputs[number]
            gradient = self._input(
                f"g{number}",
                In(reference.shapes[f"y{number}"], how if isinstance(how, int) else None),
            )
            gradients.append(
                self.b.op("mul", gradient, Number(self.row.scaled)) if self.row.scaled else gradient
            )
        found = [f"dx{n}_own" if i.dtype in REAL else "" for n, i in enumerate(self.row.inputs)]
        _derive(self.b, self.row.kind, names, own, gradients, reference.real, found, attributes)
        for number, given in enumerate(self.row.inputs):
            if found[number]:
                self._emit(found[number], f"dx{number}", "sum" if given.cut is None else given.cut)

    def _input(self, name: str, given: In) -> str:
        shape = list(given.shape)
        spec: dict[int, Any] = {}
        if given.cut is not None:
            half = shape[given.cut] = given.shape[given.cut] // 2
            parts = [[(0, half)], [(half, 2 * half)]]
            if self.fault == ("off by one", name):
                parts[1] = [(half - 1, 2 * half - 1)]
            if self.fault == ("exchanged", name):
                parts.reverse()
            spec[given.cut] = "tp" if self.fault[1] != name else intervals("tp", *parts)
        return self.b.input(name, shape, spec, dtype=given.dtype, bounds=given.bounds)

    def _emit(self, own: str, name: str, how: How) -> None:
        """Put the ranks' parts together, with the fault that is asked for there."""
        b = self.b
        wrong = self.fault[0] if self.fault[1] == name else ""
        if wrong == "share missing":
            share = b.op("mul", own, Number(0), out=f"{name}_share", where={"tp": (1,)})
            own = b.op("identity", own, out=share, where={"tp": (0,)})
        whole = f"{name}_whole" if wrong in ("replicas differ", "other axis") else name
        if how is None or wrong == "not reduced":
            b.op("identity", own, out=whole)
        elif isinstance(how, str):
            b.op("all_reduce", own, out=whole, group="tp", reduction=how)
        else:
            rank = len(b.tensors[own].shape)
            b.op(
                "all_gather",
                own,
                out=whole,
                group="tp",
                axis=(how + 1) % rank if wrong == "other axis" else how,
            )
        shape = list(b.tensors[own].shape)
        if isinstance(how, int):
            shape[how] *= 2
        if wrong == "other axis":
            b.op("reshape", whole, out=name, sizes=tuple(shape))
        if wrong == "replicas differ":
            self._spoil(whole, name)
        self._found[name] = (tuple(shape), how)
        b.output(name)

    def _spoil(self, right: str, name: str) -> None:
        """Rank 1's first element is another."""
        b = self.b
        b.op("identity", right, out=name, where={"tp": (0,)})
        there = {"tp": (1,)}
        tensor = b.tensors[right]
        other = (
            b.op("logical_not", right, where=there)
            if tensor.dtype == "bool"
            else b.op("add", right, Number(1), where=there)
        )
        first: str | None = None
        for dim in range(len(tensor.shape)):
            here = b.op(
                "eq", b.op("positions", right, axis=dim, where=there), Number(0), where=there
            )
            for _ in range(len(tensor.shape) - 1 - dim):
                here = b.op("unsqueeze", here, axis=len(b.tensors[here].shape), where=there)
            first = here if first is None else b.op("logical_and", first, here, where=there)
        if first is None:
            b.op("identity", other, out=name, where=there)
        elif tensor.dtype == "bool":
            b.op("logical_xor", right, first, out=name, where=there)
        else:
            b.op("where", first, other, right, out=name, where=there)
