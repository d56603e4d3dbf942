"""Names of the tensors of a plan: a value of one rank and the values that other ranks compute at the same place are one family."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.emitter import stored
from pitcheck.frontends.torch.trace import Event, Given, Result, Trace, Value
from pitcheck.plan.model import DType, Scalar, Tensor

GRADIENT, UPDATED, OUTPUT = "grad:", "new:", "output:"


class Families:
    """The tensors of a plan by name. Ranks that hold other shapes under one name get families of their own."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}

    def claim(self, name: str, value: Value) -> str:
        """The name of the family of that name, shape and dtype."""
        number, chosen = 1, name
        shape, dtype = real_form(value)
        while (known := self.tensors.get(chosen)) is not None and (known.shape, known.dtype) != (shape, dtype):
            number += 1
            chosen = f"{name}~{number}"
        self.tensors.setdefault(chosen, Tensor(chosen, shape, dtype))
        return chosen

    def given(self, tensor: Tensor) -> str:
        """Enter a tensor that the step begins with. Raises UnsupportedError where ranks hold parts of different shapes."""
        known = self.tensors.setdefault(tensor.name, tensor)
        if (known.shape, known.dtype) != (tensor.shape, tensor.dtype):
            raise UnsupportedError(
                f"{tensor.name!r} has shape {known.shape} on some ranks and {tensor.shape} on others; parts of different sizes have no form here"
            )
        return tensor.name


class RankNames:
    """The names of the values of one rank."""

    def __init__(self, trace: Trace, families: Families) -> None:
        self._values = trace.values
        self._families = families
        self._names: dict[int, str] = {}
        self._used: Counter[str] = Counter()
        self._place = "given"
        self._results = self._wanted(trace)

    @staticmethod
    def _wanted(trace: Trace) -> dict[int, str]:
        """The name of every value that is a result, of the first where it is several, and no given one."""
        given, taken = {own.value for own in trace.given}, {own.name for own in trace.given}
        found: dict[int, str] = {}
        for result in trace.results:
            if result.value not in given:
                found.setdefault(result.value, result_name(result, taken))
        return found

    def enter(self, value: int, name: str) -> None:
        """Name a value that is given."""
        self._names[value] = name

    def of(self, value: int) -> str:
        """The name of a value that is given or computed. Raises UnsupportedError for one that nothing has computed."""
        name = self._names.get(value)
        if name is None:
            raise UnsupportedError(f"a tensor of shape {self._values[value].shape} is read that nothing has written (an empty buffer)")
        return name

    def enter_outputs(self, event: Event) -> None:
        """Name what an event computes."""
        self._place = base_name(event)
        for value in event.outputs:
            if value is not None:
                name = self._results.get(value) or self.next("")
                # Of what has no elements no operator makes anything.
                self._names[value] = name if 0 in self._values[value].shape else self._families.claim(name, self._values[value])

    def new(self, hint: str, value: Value) -> str:
        """A name for a tensor in between."""
        return self._families.claim(self.next(hint), value)

    def next(self, hint: str) -> str:
        """A name that no other value of the rank has, of the event that is looked at."""
        base = f"{self._place}.{hint}" if hint else self._place
        self._used[base] += 1
        count = self._used[base]
        return base if count == 1 else f"{base}#{count}"


def real_form(value: Value) -> tuple[tuple[int, ...], DType]:
    """Shape and dtype of a value as a plan has it: complex numbers are pairs of real ones."""
    plain = stored(value)
    if plain.dtype == "complex64" or plain.dtype == "complex128":  # noqa: PLR1714  a type checker follows these
        raise UnsupportedError(f"a tensor of shape {value.shape} has dtype {value.dtype}, which has no form here")
    return plain.shape, plain.dtype


def base_name(event: Event) -> str:
    """What an event's results are called, before they are counted: the module, and the operator's name."""
    operator = event.operator.partition(".")[0].strip("_")
    place = f"{event.module}.{operator}" if event.module else operator
    return f"{place}.backward" if event.backward else place


def result_name(result: Result, taken: Collection[str]) -> str:
    """The name of a result in a plan; ``taken`` are the names of what the step begins with."""
    if result.kind == "output":
        return f"{OUTPUT}{result.name}" if result.name in taken else result.name
    return {"gradient": GRADIENT, "updated": UPDATED}[result.kind] + result.name


def given_tensor(given: Given, value: Value, bounds: Mapping[str, tuple[int, int]]) -> Tensor:
    """The tensor of a given value, without lineage."""
    shape, dtype = real_form(value)
    if given.role == "constant":
        number: Scalar = given.number if given.number is not None else 0.0
        if dtype == "bool":
            number = bool(number)
        elif dtype.startswith(("int", "uint")):
            number = int(number)
        return Tensor(f"constant:{number}:{dtype}:{'x'.join(map(str, shape))}", shape, dtype, "constant", value=number)
    return Tensor(given.name, shape, dtype, "input" if given.role == "buffer" else given.role, bounds=bounds.get(given.name))
