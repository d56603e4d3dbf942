"""Programs as data: a mesh, arguments with shardings, steps, and the shardings of results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any

import numpy as np

Shape = tuple[int, ...]
Axes = tuple[str, ...]
Spec = tuple[Axes, ...]
"""The axes of the mesh over which each dimension is split."""
FLOAT, INDEX, UNIQUE, PERMUTED, KEY = "float", "index", "unique", "permuted", "key"
"""Kinds of arguments: small integers as reals; indices below a bound, that may be equal; different
ones; reals that are all different; the words of keys of random numbers."""


@dataclass(frozen=True)
class Argument:
    """An argument; ``bound`` is what its indices lie below."""

    name: str
    shape: Shape
    kind: str
    bound: int
    spec: Spec

    def data(self, generator: np.random.Generator) -> np.ndarray[Any, Any]:
        """Return values that sums and products of a few keep exact."""
        size = prod(self.shape)
        if self.kind == KEY:
            return generator.integers(0, 2**32, self.shape).astype(np.uint32)
        if self.kind == INDEX:
            return generator.integers(0, self.bound, self.shape).astype(np.int32)
        if self.kind == UNIQUE:
            return generator.permutation(self.bound)[:size].reshape(self.shape).astype(np.int32)
        if self.kind == PERMUTED:
            return generator.permutation(size).reshape(self.shape).astype(np.float32)
        return generator.integers(-4, 5, self.shape).astype(np.float32)


@dataclass(frozen=True)
class Step:
    """A value and the expression that gives it; ``spec``: it is constrained to this sharding."""

    name: str
    source: str
    inputs: tuple[str, ...]
    shape: Shape
    operator: str
    spec: Spec | None = None


@dataclass(frozen=True)
class Output:
    """A value that is a result, and its sharding."""

    name: str
    spec: Spec


@dataclass(frozen=True)
class Program:
    """A program, the mesh it is sharded over, and the values of its arguments by ``seed``.

    ``order``: the devices in the order of the mesh. ``gradient``: the results are the gradients of
    the weighted sum of the outputs.
    """

    seed: int
    mesh: tuple[tuple[str, int], ...]
    order: tuple[int, ...]
    arguments: tuple[Argument, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Output, ...]
    gradient: bool
    shardy: bool

    @property
    def devices(self) -> int:
        """Return the number of devices."""
        return prod(size for _, size in self.mesh)

    @property
    def operators(self) -> list[str]:
        """Return the names of the operators, sorted, each once."""
        return sorted({step.operator for step in self.steps})

    def shapes(self) -> dict[str, Shape]:
        """Return the shape of each value."""
        given = {argument.name: argument.shape for argument in self.arguments}
        return given | {step.name: step.shape for step in self.steps}

    def data(self) -> list[np.ndarray[Any, Any]]:
        """Return the values of the arguments."""
        return [
            argument.data(np.random.default_rng([self.seed, *map(ord, argument.name)]))
            for argument in self.arguments
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the program as JSON has it."""
        return asdict(self)


def from_json(given: dict[str, Any]) -> Program:
    """Return the program that ``Program.as_json`` has written.

    >>> one = Program(1, (("a", 2),), (0, 1), (), (), (), False, True)
    >>> from_json(one.as_json()) == one
    True
    """

    def spec(found: Sequence[Sequence[str]]) -> Spec:
        return tuple(map(tuple, found))

    return Program(
        given["seed"],
        tuple((name, size) for name, size in given["mesh"]),
        tuple(given["order"]),
        tuple(
            Argument(a["name"], tuple(a["shape"]), a["kind"], a["bound"], spec(a["spec"]))
            for a in given["arguments"]
        ),
        tuple(
            Step(
                s["name"],
                s["source"],
                tuple(s["inputs"]),
                tuple(s["shape"]),
                s["operator"],
                None if s["spec"] is None else spec(s["spec"]),
            )
            for s in given["steps"]
        ),
        tuple(Output(o["name"], spec(o["spec"])) for o in given["outputs"]),
        given["gradient"],
        given["shardy"],
    )


def spec_source(spec: Spec) -> str:
    """Return a ``PartitionSpec`` as Python has it.

    >>> spec_source((("a",), (), ("b", "c"), ()))
    "P('a', None, ('b', 'c'))"
    """
    while spec and not spec[-1]:
        spec = spec[:-1]
    parts = [repr(axes[0]) if len(axes) == 1 else repr(axes or None) for axes in spec]
    return f"P({', '.join(parts)})"


def function_source(program: Program) -> Iterator[str]:
    """Yield the lines of ``f``, and of ``g`` if the program is a gradient.

    ``shard`` constrains a value to a sharding, or returns it as it is on one device.
    """
    names = [argument.name for argument in program.arguments]
    yield f"def f({', '.join(names)}):"
    for step in program.steps:
        value = step.source
        if step.spec is not None:
            value = f"shard({value}, {spec_source(step.spec)})"
        yield f"    {step.name} = {value}"
    yield f"    return {', '.join(output.name for output in program.outputs)},"
    if not program.gradient:
        return
    moved = ", ".join(str(n) for n, a in enumerate(program.arguments) if a.kind in MOVED)
    yield ""
    yield ""
    yield "def weighted(*args):"
    yield "    weights = lambda y: jnp.arange(y.size).reshape(y.shape) % 5 - 2"
    yield "    return sum((y * weights(y)).sum() for y in f(*args))"
    yield ""
    yield ""
    yield f"g = jax.grad(weighted, ({moved},))"


MOVED = frozenset({FLOAT, PERMUTED})
"""Kinds of arguments that gradients are taken of."""


def result_specs(program: Program) -> list[Spec]:
    """Return the shardings of the results: of the outputs, or of the gradients."""
    if program.gradient:
        return [argument.spec for argument in program.arguments if argument.kind in MOVED]
    return [output.spec for output in program.outputs]


def with_used(program: Program) -> Program:
    """Return a program without steps and arguments that no output needs."""
    needed = {output.name for output in program.outputs}
    steps: list[Step] = []
    for step in reversed(program.steps):
        if step.name in needed:
            needed.update(step.inputs)
            steps.append(step)
    return replace(
        program,
        steps=tuple(reversed(steps)),
        arguments=tuple(a for a in program.arguments if a.name in needed),
    )
