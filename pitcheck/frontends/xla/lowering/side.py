"""One of both plans: parameters and results of a program, with the parts that partitions hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.xla.lowering.arrays import Array, Value, arrays_of, dtype_of
from pitcheck.frontends.xla.lowering.building import Building, unsupported
from pitcheck.frontends.xla.lowering.index_ranges import widest
from pitcheck.frontends.xla.lowering.placement import lineage_of
from pitcheck.frontends.xla.lowering.program import Run
from pitcheck.frontends.xla.text.module import Module
from pitcheck.frontends.xla.text.shapes import ArrayShape
from pitcheck.frontends.xla.text.sharding import Sharding
from pitcheck.plan.model import Output, Plan, Tensor


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

    def bounds(self, stated: Mapping[int, tuple[int, int]]) -> tuple[int, int]:
        """Return the half-open range of its integers; ``stated``: those of some parameters."""
        return stated.get(self.number) or widest(self.shape.element)


def parameters_of(module: Module) -> Iterator[Parameter]:
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


class Side:
    """One of both plans in the making.

    Attributes:
        module: the program.
        results: the arrays of its result, from left to right.
    """

    def __init__(
        self,
        module: Module,
        devices: int,
        given: Sequence[Parameter],
        bounds: Mapping[int, tuple[int, int]],
    ) -> None:
        self.module = module
        self._given = given
        self._bounds = bounds
        self._b = Building(module, devices)
        entry = module.computations[module.entry]
        values = [self._given_array(p) for p in given]
        result = Run(self._b).computation(entry, values, "")
        self._b.at(entry.result, "")
        self.results = [*self._full(result)]

    def _full(self, result: Value) -> Iterator[Array]:
        """Yield the arrays of the result."""
        for array in arrays_of(result):
            if not isinstance(array, Array):
                raise unsupported(self._b, "a result that lies in a manual region")
            yield array

    def _given_array(self, parameter: Parameter) -> Array:
        """Return a parameter, as a tensor that is given."""
        shape = ArrayShape(parameter.shape.element, parameter.sizes)
        name = self._b.unused(parameter.name)
        bounds = parameter.bounds(self._bounds) if shape.element.is_integer else None
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
        return Plan(
            mesh=self._b.mesh,
            tensors=tuple(self._b.tensors.values()),
            operators=tuple(self._b.operators),
            outputs=tuple(outputs),
            name=self.module.name,
            assumptions=assumptions,
        )
