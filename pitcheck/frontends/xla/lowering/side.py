"""One of both plans: parameters and results of a program, with the parts that partitions hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.xla.lowering.arrays import Array, Value, arrays_of, limits
from pitcheck.frontends.xla.lowering.building import (
    Building,
    Counting,
    Drawing,
    Keeping,
    unsupported,
)
from pitcheck.frontends.xla.lowering.index_ranges import widest
from pitcheck.frontends.xla.lowering.inputs import PartitionedConstants, given
from pitcheck.frontends.xla.lowering.loops.common import Key, Loop
from pitcheck.frontends.xla.lowering.loops.counted import PartitionedCountedScalars
from pitcheck.frontends.xla.lowering.loops.induction import Claim, Induction
from pitcheck.frontends.xla.lowering.placement import lineage_of
from pitcheck.frontends.xla.lowering.program import Run
from pitcheck.frontends.xla.lowering.random.draws import PartitionedDraws
from pitcheck.frontends.xla.lowering.random.parameters import KEYS, parameter_codes
from pitcheck.frontends.xla.text.module import Module
from pitcheck.frontends.xla.text.shapes import ArrayShape
from pitcheck.frontends.xla.text.sharding import Sharding
from pitcheck.plan.model import Output, Plan


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
        low, high = limits(self.shape.element)
        first, behind = stated.get(self.number) or widest(self.shape.element)
        return max(low, first), min(high, behind)


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
        induction: the loops that are not followed, and what must be shown of them.
    """

    def __init__(
        self,
        module: Module,
        devices: int,
        parameters: Sequence[Parameter],
        bounds: Mapping[int, tuple[int, int]],
        loops: Mapping[Key, Loop] = MappingProxyType({}),
        drawing: Drawing | None = None,
        keeping: Keeping | None = None,
        counting: Counting | None = None,
    ) -> None:
        self.module = module
        self._bounds = bounds
        self._b = Building(module, devices, drawing, keeping, counting)
        self.induction = Induction(self._b, loops)
        entry = module.computations[module.entry]
        self._parameters = [self._given_array(p) for p in parameters]
        result = Run(self._b, self.induction).computation(entry, self._parameters, "")
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
        shape = parameter.shape
        bounds = parameter.bounds(self._bounds) if shape.element.is_integer else None
        place = f"{self.module.file}:{parameter.line}"
        b, sharding = self._b, parameter.sharding
        codes = parameter_codes(parameter.number, shape, sharding, b.devices, place)
        # Keys of random numbers may be any integers, and most are no tensor of a plan.
        bounded = shape.element not in KEYS or parameter.number in self._bounds
        array = given(b, parameter.name, shape, sharding, place, bounds, bounded=bounded)
        array.codes = codes
        return array

    def read(self) -> set[int]:
        """Return the numbers of the parameters of which the plan has a tensor."""
        return {n for n, each in enumerate(self._parameters) if each.is_made}

    def hold_rest(
        self, given: PartitionedDraws | PartitionedConstants | PartitionedCountedScalars
    ) -> None:
        """Give the plan the random numbers, constants, or scalars, that no device holds."""
        given.hold_rest(self._b)

    def make(self, numbers: set[int]) -> None:
        """Make the tensors of some parameters."""
        for number in sorted(numbers):
            self._parameters[number].made()

    def named_results(self) -> list[str]:
        """Return a tensor of its own for each result."""
        several = len(self.results) > 1
        return [
            self._named(f"result[{number}]" if several else "result", result)
            for number, result in enumerate(self.results)
        ]

    def named_claims(self) -> list[str]:
        """Return a tensor of its own for each array that an induction must show."""
        return [self._named(claim.name, claim.array) for claim in self.induction.claims]

    def _named(self, stem: str, array: Array) -> str:
        return self._b.emit("identity", (array.name,), array.shape, into=self._b.unused(stem))

    def output(self, name: str, number: int, whole: Array, sharding: Sharding | None) -> Output:
        """Return a result with the part of the reference's that it must hold.

        Raises PlanError for a result of another shape.
        """
        result = self.results[number]
        place = f"{self.module.file}: result {number}"
        if sharding is None and result.sizes != whole.sizes:
            raise UnsupportedError(
                f"{place} is {result.shape}, and {whole.shape} before; the program does not say "
                f"how it is sharded: give out_shardings"
            )
        return self._output(name, result, whole.shape, sharding, place)

    def claimed(self, name: str, claim: Claim) -> Output:
        """Return an array that an induction must show to be its part of the reference's.

        Raises PlanError for an array of another shape.
        """
        place = f"{self.module.file}: {claim.name}"
        return self._output(name, claim.array, claim.shape, claim.sharding, place)

    def _output(
        self, name: str, held: Array, whole: ArrayShape, sharding: Sharding | None, place: str
    ) -> Output:
        lineage, sizes = lineage_of(name, whole.dimensions, sharding, self._b.devices, place)
        stated = ArrayShape(whole.element, sizes)
        if held.shape != stated:
            raise PlanError(f"it is {held.shape}; its sharding makes it {stated}", place)
        return Output(self._named(name, held), name, lineage)

    def plan(self, outputs: Sequence[Output], assumptions: tuple[str, ...]) -> Plan:
        """Return the plan with some outputs."""
        return Plan(
            mesh=self._b.mesh,
            tensors=tuple(self._b.tensors.values()),
            operators=tuple(self._b.operators),
            outputs=tuple(outputs),
            name=self.module.name,
            assumptions=assumptions,
            rounded_literals=True,
        )
