"""The reference and the parallel plan of a program before and after it was partitioned."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.xla.lowering.arrays import Array, Tuple, Value, dtype_of
from pitcheck.frontends.xla.lowering.building import Building
from pitcheck.frontends.xla.lowering.index_ranges import index_ranges, widest
from pitcheck.frontends.xla.lowering.placement import lineage_of
from pitcheck.frontends.xla.lowering.program import Run
from pitcheck.frontends.xla.text.module import Instruction, Module
from pitcheck.frontends.xla.text.parser import read_hlo
from pitcheck.frontends.xla.text.shapes import ArrayShape, Shape, leaves
from pitcheck.frontends.xla.text.sharding import Sharding
from pitcheck.plan.model import Axis, Output, Plan, Tensor


def read_partitioned(before: Path, after: Path) -> tuple[Plan, Plan]:
    """Return the plans of a program before and after the partitioner.

    Raises:
        PlanError: a text is damaged, or both are not of one program.
        UnsupportedError: something has no meaning in a plan.
        BudgetError: a text, or what it unfolds to, is too large.
        OSError: a file cannot be read.
    """
    return plans_of(read_hlo(before), read_hlo(after))


def plans_of(before: Module, after: Module) -> tuple[Plan, Plan]:
    """Return the plans of the modules before and after the partitioner.

    Raises:
        PlanError: they are not of one program.
        UnsupportedError: something has no meaning in a plan.
        BudgetError: what they unfold to is too large.
    """
    devices = after.header.partitions
    if after.header.replicas != 1 or before.header.replicas != 1:
        raise UnsupportedError(f"{after.file}: a program of several replicas has no meaning here")
    bounds = index_ranges(before)
    given = list(_parameters(before))
    reference = _Plan(before, 1, given, bounds)
    parallel = _Plan(after, devices, _local(given, after, devices), bounds)
    outputs = reference.named_results()
    if len(outputs) != len(parallel.results):
        raise PlanError(
            f"{after.file}: the program has {len(parallel.results)} results; before it was "
            f"partitioned it has {len(outputs)}"
        )
    shardings = list(_shardings(before))
    return (
        reference.plan([Output(name) for name in outputs], ()),
        parallel.plan(
            [
                parallel.output(name, number, reference.results[number], shardings[number])
                for number, name in enumerate(outputs)
            ],
            tuple(_assumed(given, bounds)),
        ),
    )


@dataclass(frozen=True)
class Parameter:
    """A parameter of the program: its name, its whole shape, and the sharding that it is given."""

    name: str
    number: int
    shape: ArrayShape
    sharding: Sharding | None
    line: int
    sizes: tuple[int, ...]
    """The sizes of what each partition holds."""


def _parameters(module: Module) -> Iterator[Parameter]:
    """Yield the parameters of the program, with unique names."""
    entry = module.computations[module.entry]
    seen: set[str] = set()
    for number, name in enumerate(entry.parameters):
        instruction = entry.instructions[name]
        shape, sharding = instruction.shape, instruction.sharding
        if not isinstance(shape, ArrayShape) or isinstance(sharding, tuple):
            raise UnsupportedError(
                f"{module.file}:{instruction.line}: a parameter that is a tuple has no meaning here"
            )
        called = instruction.metadata.name or name
        called = called if called not in seen else f"{called} ({name})"
        seen.add(called)
        yield Parameter(called, number, shape, sharding, instruction.line, shape.dimensions)


def _local(given: Sequence[Parameter], after: Module, devices: int) -> list[Parameter]:
    """Return the parameters as the partitioned program has them, by the shardings stated there."""
    entry = after.computations[after.entry]
    if len(entry.parameters) != len(given):
        raise PlanError(
            f"{after.file}: the program has {len(entry.parameters)} parameters; before it was "
            f"partitioned it has {len(given)}"
        )
    found = []
    for parameter, name in zip(given, entry.parameters, strict=True):
        instruction = entry.instructions[name]
        place = f"{after.file}:{instruction.line}"
        sharding = instruction.sharding
        if isinstance(sharding, tuple) or not isinstance(instruction.shape, ArrayShape):
            raise UnsupportedError(f"{place}: a parameter that is a tuple has no meaning here")
        if parameter.sharding is not None and sharding is not None:
            _check_same(parameter, sharding, devices, place)
        stated = sharding or parameter.sharding
        sizes = lineage_of("", parameter.shape.dimensions, stated, devices, place)[1]
        if instruction.shape != ArrayShape(parameter.shape.element, sizes):
            raise PlanError(
                f"parameter {parameter.number} ({parameter.name}) is {instruction.shape}; its "
                f"sharding makes it {ArrayShape(parameter.shape.element, sizes)}",
                place,
            )
        found.append(
            Parameter(
                parameter.name, parameter.number, parameter.shape, stated, instruction.line, sizes
            )
        )
    return found


def _check_same(parameter: Parameter, sharding: Sharding, devices: int, place: str) -> None:
    """Check that both programs state one sharding of a parameter. Raises PlanError."""
    rank = len(parameter.shape.dimensions)
    if parameter.sharding is None:
        return
    for device in range(devices):
        mine, theirs = (s.placement(device, rank) for s in (parameter.sharding, sharding))
        if mine is None or theirs is None or mine.tile != theirs.tile:
            raise PlanError(
                f"parameter {parameter.number} ({parameter.name}) has another sharding than "
                f"before the program was partitioned",
                place,
            )


def _assumed(given: Sequence[Parameter], bounds: dict[int, tuple[int, int]]) -> Iterator[str]:
    """Yield what is assumed of integers that are given."""
    for parameter in given:
        if parameter.number in bounds:
            low, high = bounds[parameter.number]
            yield f"the integers in {parameter.name} lie in [{low}, {high}), which they index"


class _Plan:
    """One side in the making."""

    def __init__(
        self,
        module: Module,
        devices: int,
        given: Sequence[Parameter],
        bounds: dict[int, tuple[int, int]],
    ) -> None:
        self.module = module
        self._given = given
        self._bounds = bounds
        self._b = Building(module, devices)
        entry = module.computations[module.entry]
        values = [self._parameter(p) for p in given]
        result = Run(self._b).computation(entry, values, "")
        self.results = [*_arrays(result)]
        self._b.at(entry.result, "")

    def _parameter(self, parameter: Parameter) -> Array:
        """Return a parameter, as a tensor that is given."""
        shape = ArrayShape(parameter.shape.element, parameter.sizes)
        name = self._b.unused(parameter.name)
        bounds = self._bounds.get(parameter.number)
        if bounds is None and shape.element.is_integer:
            bounds = widest(shape.element)
        lineage = None
        if self._b.devices > 1:
            place = f"{self.module.file}:{parameter.line}"
            sizes = parameter.shape.dimensions
            lineage, _ = lineage_of(name, sizes, parameter.sharding, self._b.devices, place)
        self._b.tensors[name] = Tensor(
            name,
            self._b.stated(shape),
            dtype_of(shape.element),
            "input",
            lineage=lineage,
            bounds=bounds,
        )
        return Array(shape, lambda: name, span=bounds)

    def named_results(self) -> list[str]:
        """Return a tensor of its own for each result."""
        several = len(self.results) > 1
        return [
            self._b.emit(
                "identity",
                (result.name,),
                result.shape,
                into=self._b.unused(f"result[{number}]" if several else "result"),
            )
            for number, result in enumerate(self.results)
        ]

    def output(self, name: str, number: int, whole: Array, sharding: Sharding | None) -> Output:
        """Return a result with the part of the reference's that it must hold.

        Raises PlanError for a result of another shape.
        """
        result = self.results[number]
        place = f"{self.module.file}: result {number}"
        lineage, sizes = lineage_of(name, whole.sizes, sharding, self._b.devices, place)
        if sharding is None and result.sizes != whole.sizes:
            raise UnsupportedError(
                f"{place} is {result.shape}, and {whole.shape} before; the program does not say "
                f"how it is sharded: give out_shardings"
            )
        if result.shape != ArrayShape(whole.shape.element, sizes):
            raise PlanError(
                f"it is {result.shape}; its sharding makes it "
                f"{ArrayShape(whole.shape.element, sizes)}",
                place,
            )
        tensor = self._b.emit("identity", (result.name,), result.shape, into=self._b.unused(name))
        return Output(tensor, name, lineage)

    def plan(self, outputs: Sequence[Output], assumptions: tuple[str, ...]) -> Plan:
        """Return the plan with some outputs."""
        mesh = self._b.mesh if self._b.devices > 1 else (Axis("device", 1),)
        return Plan(
            mesh=mesh,
            tensors=tuple(self._b.tensors.values()),
            operators=tuple(self._b.operators),
            outputs=tuple(outputs),
            name=self.module.name,
            assumptions=assumptions,
        )


def _arrays(value: Value) -> Iterator[Array]:
    """Yield the arrays of a value from left to right."""
    if isinstance(value, Tuple):
        for element in value.elements:
            yield from _arrays(element)
    else:
        yield value


def _shardings(module: Module) -> Iterator[Sharding | None]:
    """Yield the sharding that is stated of each result of the program."""
    root = module.computations[module.entry].result
    count = sum(1 for _ in leaves(root.shape))
    stated = root.sharding
    if isinstance(stated, tuple):
        yield from stated
    else:
        yield from [stated] * count
