"""Small random HLO programs with inputs: their outputs by XLA are kept in ``texts``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

DTYPES = {
    "pred": np.bool_,
    "s8": np.int8,
    "s16": np.int16,
    "s32": np.int32,
    "s64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "f32": np.float32,
    "f64": np.float64,
}


def shape(kind: str, sizes: Sequence[int]) -> str:
    """Return a shape as HLO prints it."""
    return f"{kind}[{','.join(map(str, sizes))}]"


def braces(numbers: Sequence[int]) -> str:
    """Return numbers as HLO prints them."""
    return f"{{{','.join(map(str, numbers))}}}"


def literal(values: Any) -> str:
    """Return an array as HLO prints a constant."""
    if isinstance(values, list):
        return f"{{{', '.join(map(literal, values))}}}"
    return str(values).lower()


class Program:
    """A program in the making.

    Attributes:
        rng: random numbers for it.
        devices: the number of partitions.
        named: the names of computations that are there already.
    """

    def __init__(self, name: str, devices: int = 1) -> None:
        self.name = name
        self.devices = devices
        self.rng = np.random.default_rng(sum(name.encode()) + 1000 * len(name))
        self.inputs: list[list[Any]] = [[] for _ in range(devices)]
        self._lines: list[str] = []
        self._shapes: dict[str, tuple[str, tuple[int, ...]]] = {}
        self._outputs: list[str] = []
        self._before: list[str] = []
        self.named: set[str] = set()

    def sizes(self, name: str) -> tuple[int, ...]:
        """Return the sizes of a value."""
        return self._shapes[name][1]

    def given(self, kind: str, sizes: Sequence[int], low: int = -4, high: int = 5) -> str:
        """Add a parameter of random numbers below ``high``; floating-point ones are halves."""
        number = len(self.inputs[0])
        for device in range(self.devices):
            values = self.rng.integers(low, high, tuple(sizes))
            if kind in {"f32", "f64"}:
                values = values / 2 + 0.25
            elif kind == "pred":
                values = values > 0
            self.inputs[device].append([kind, np.asarray(values).tolist()])
        return self.op(kind, sizes, f"parameter({number})")

    def constant(self, kind: str, values: Any) -> str:
        """Add a constant."""
        array = np.asarray(values, DTYPES[kind])
        return self.op(kind, array.shape, f"constant({literal(array.tolist())})")

    def drawn(self, kind: str, sizes: Sequence[int], low: int = -4, high: int = 5) -> str:
        """Add a constant of random integers."""
        return self.constant(kind, self.rng.integers(low, high, tuple(sizes)))

    def op(self, kind: str, sizes: Sequence[int], text: str) -> str:
        """Add an instruction."""
        name = f"%v{len(self._lines)}"
        self._lines.append(f"  {name} = {shape(kind, sizes)} {text}")
        self._shapes[name] = kind, tuple(sizes)
        return name

    def call(
        self, kind: str, sizes: Sequence[int], opcode: str, *given: str, more: str = ""
    ) -> str:
        """Add an operator of operands."""
        return self.op(kind, sizes, f"{opcode}({', '.join(given)}){more}")

    def region(self, opcode: str, kind: str) -> str:
        """Return the computation of two numbers that is an operator, or the last of them."""
        name = f"{opcode}.{kind}"
        if name not in self.named:
            self.named.add(name)
            last = f"  %b = {kind}[] parameter(1)\n  ROOT %c = {kind}[] {opcode}(%a, %b)\n"
            if opcode == "replace":
                last = f"  ROOT %b = {kind}[] parameter(1)\n"
            self._before.append(
                f"%{name} (a: {kind}[], b: {kind}[]) -> {kind}[] {{\n"
                f"  %a = {kind}[] parameter(0)\n{last}}}\n"
            )
        return f"%{name}"

    def before(self, text: str) -> None:
        """Add a computation."""
        self._before.append(text)

    def out(self, name: str) -> None:
        """Make a value an output."""
        self._outputs.append(name)

    def case(self) -> dict[str, Any]:
        """Return the program with its inputs."""
        head = f"HloModule m, num_partitions={self.devices}" if self.devices > 1 else "HloModule m"
        given = [shape(*self._shapes[name]) for name in self._outputs]
        root = f"  ROOT %result = ({', '.join(given)}) tuple({', '.join(self._outputs)})"
        text = "\n".join([head, "", *self._before, "ENTRY %main {", *self._lines, root, "}", ""])
        return {
            "name": self.name,
            "devices": self.devices,
            "text": text,
            "inputs": self.inputs,
        }


def random_sizes(p: Program, rank: int, low: int = 1, high: int = 5) -> list[int]:
    """Return random sizes."""
    return [int(n) for n in p.rng.integers(low, high, rank)]


def order(p: Program, count: int) -> list[int]:
    """Return 0, 1, ... in a random order."""
    return [int(n) for n in p.rng.permutation(count)]


def subset(p: Program, items: Sequence[int], count: int) -> list[int]:
    """Return some items in a random order."""
    return [items[n] for n in order(p, len(items))[:count]]
