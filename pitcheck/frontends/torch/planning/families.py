"""The names of the tensors of a plan.

A value of one rank, and the values that other ranks compute at the same place, are one family and
have one name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from pitcheck.base.dtypes import DType
from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.torch.aten.emitter import kind_of, literal, stored
from pitcheck.frontends.torch.trace import Event, Given, Result, Trace, Value
from pitcheck.plan.model import Role, Scalar, Tensor

GRADIENT, UPDATED, OUTPUT, SCORES = "grad:", "new:", "output:", "scores:"
Origin = tuple[str, int, int]
"""The line at which a value is computed, the call of the module that it belongs to, and how often
the rank computes one there.
"""
_RENAME = "give one of them another name (Program.names, the key in Spec.batch, or the output's)"


class Families:
    """The tensors of a plan by name.

    Intermediate values that have different shapes on different ranks become different families,
    with different names. ``reserved`` are the names of the tensors with which steps begin and end.
    No other tensor has such a name on any rank.
    """

    def __init__(self, reserved: Collection[str]) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.reserved = frozenset(reserved)
        self._numbers: dict[tuple[str, Origin, int], int] = {}
        self._counts: Counter[str] = Counter()

    def number(self, base: str, origin: Origin, count: int) -> int:
        """Return the number of the ``count``-th value of a name that a rank makes at one place.

        Ranks run different branches, and some run a loop more often. What they compute as often at
        one line, in one call of a module, has one name. Counted over the whole program, the
        gradient of one rank's keys would be paired with that of another's queries. And where some
        ranks add up fewer terms, their first sum is whole and that of the others is not.
        """
        key = base, origin, count
        if key not in self._numbers:
            self._counts[base] += 1
            self._numbers[key] = self._counts[base]
        return self._numbers[key]

    def claim(self, name: str, value: Value, used: Collection[str] = ()) -> str:
        """Return the name of the family for a name, shape and dtype.

        It is none of ``used``, the names that the rank has given to other values.
        """
        number, chosen = 1, name
        form = real_form(value)
        while (
            chosen in used
            or (number > 1 and chosen in self.reserved)
            or self._form(chosen) not in (None, form)
        ):
            number += 1
            chosen = f"{name}~{number}"
        self.tensors.setdefault(chosen, Tensor(chosen, *form))
        return chosen

    def compared(self, name: str, value: Value, rank: int) -> str:
        """Enter a result that is compared, which has the same name on every rank; return the name.

        Raises UnsupportedError if its shape or dtype differs between ranks.
        """
        form = real_form(value)
        known = self.tensors.setdefault(name, Tensor(name, *form))
        if (known.shape, known.dtype) != form:
            raise UnsupportedError(
                f"{name!r} is a {form[1]} tensor of shape {form[0]} on rank {rank} and a "
                f"{known.dtype} tensor of shape {known.shape} on a rank before; "
                "only what has one shape and dtype on all ranks can be compared"
            )
        return name

    def given(self, tensor: Tensor) -> str:
        """Enter a tensor that the step begins with; return its name.

        Raises UnsupportedError if its shape or dtype differs between ranks, PlanError if its role
        does.
        """
        known = self.tensors.setdefault(tensor.name, tensor)
        if known.role != tensor.role:
            raise PlanError(
                f"{tensor.name!r} is a tensor of role {known.role} on one rank and of role "
                f"{tensor.role} on another; {_RENAME}"
            )
        if (known.shape, known.dtype) != (tensor.shape, tensor.dtype):
            raise UnsupportedError(
                f"{tensor.name!r} has shape {known.shape} on some ranks and {tensor.shape} on "
                f"others; parts of different sizes have no form here"
            )
        return tensor.name

    def _form(self, name: str) -> tuple[tuple[int, ...], DType] | None:
        known = self.tensors.get(name)
        return None if known is None else (known.shape, known.dtype)


class RankNames:
    """The names of the values of one rank.

    Those of computed values end with ``label``, and with what ``labels`` has for them. ``results``
    are the names of the values that the step ends with, by number. ``compared`` are the names of
    results that are compared.
    """

    def __init__(
        self,
        trace: Trace,
        families: Families,
        results: Mapping[int, str],
        compared: Collection[str],
        label: str = "",
        labels: Mapping[int, str] | None = None,
    ) -> None:
        self._trace = trace
        self._label = label
        self._labels = labels or {}
        self._families = families
        self._results = results
        self._compared = compared
        self._names: dict[int, str] = {}
        self._used: Counter[tuple[str, Origin]] = Counter()
        self._taken: set[str] = set()
        self._place = "given"
        self._origin: Origin = ("", 0, 0)
        self._times = Counter(map(_called, trace.events))

    def enter(self, value: int, name: str) -> None:
        """Name a value that is given."""
        self._names[value] = name

    def of(self, value: int) -> str:
        """Return the name of a value that is given or computed.

        Raises UnsupportedError for a value that nothing has computed.
        """
        name = self._names.get(value)
        if name is None:
            raise UnsupportedError(
                f"a tensor of shape {self._trace.values[value].shape} is read that nothing has "
                f"written (an empty buffer)"
            )
        return name

    def enter_outputs(self, event: Event) -> None:
        """Name the values that an event computes."""
        called = _called(event)
        label = next((self._labels[value] for value in event.tensors if value in self._labels), "")
        self._place = f"{called[0]}{self._label}{label}"
        # Ranks that meet may call the collective at different lines.
        self._origin = ("", 0, 0) if event.meets else (*called[1:], self._times[called])
        for number in event.tensors:
            value = self._trace.values[number]
            result = self._results.get(number)
            if 0 in value.shape:
                # No operator makes a tensor without elements.
                self._names[number] = result or self._place
            else:
                self._names[number] = (
                    self.new("", value) if result is None else self.result(result, value)
                )

    def known(self, given: Given) -> str:
        """Name a value whose elements are known; return the name."""
        value = self._trace.values[given.value]
        self._names[given.value] = (
            self._claim(given.name, value) if given.name else self.new("constant", value)
        )
        return self._names[given.value]

    def result(self, name: str, value: Value) -> str:
        """Return the name of a result. One that is not compared may have a number appended."""
        if name not in self._compared:
            return self._claim(name, value)
        self._taken.add(name)
        return self._families.compared(name, value, self._trace.rank)

    def new(self, hint: str, value: Value) -> str:
        """Return a name for an intermediate tensor of the present event."""
        base = f"{self._place}.{hint}" if hint else self._place
        while True:
            key = base, self._origin
            self._used[key] += 1
            number = self._families.number(*key, self._used[key])
            name = base if number == 1 else f"{base}#{number}"
            if name not in self._families.reserved:
                return self._claim(name, value)

    def _claim(self, name: str, value: Value) -> str:
        chosen = self._families.claim(name, value, self._taken)
        self._taken.add(chosen)
        return chosen


def real_form(value: Value) -> tuple[tuple[int, ...], DType]:
    """Return shape and dtype of a value in a plan, where complex numbers are pairs of real ones.

    Raises UnsupportedError for a dtype that has no form there.
    """
    plain = stored(value)
    if plain.dtype == "complex64" or plain.dtype == "complex128":  # noqa: PLR1714  a type checker follows these
        raise UnsupportedError(
            f"a tensor of shape {value.shape} has dtype {value.dtype}, which has no form here"
        )
    return plain.shape, plain.dtype


def base_name(event: Event) -> str:
    """Return the name of an event's results before they are numbered: module and operator."""
    operator = event.operator.partition(".")[0].strip("_")
    place = f"{event.module}.{operator}" if event.module else operator
    return f"{place}.backward" if event.backward else place


def _called(event: Event) -> tuple[str, str, int]:
    """Return the name of an event's results, its line, and the call of its module."""
    return base_name(event), event.source, event.call


def result_name(result: Result, taken: Collection[str]) -> str:
    """Return the name of a result in a plan; ``taken`` are the names with which steps begin."""
    if result.kind == "output":
        return f"{OUTPUT}{result.name}" if result.name in taken else result.name
    prefixes = {"gradient": GRADIENT, "updated": UPDATED, "scores": SCORES}
    return prefixes[result.kind] + result.name


def result_names(traces: Sequence[Trace], taken: Collection[str]) -> dict[str, Result]:
    """Return the results of all ranks by name, each as of the first rank that has it.

    Raises PlanError if two results of one rank have one name.
    """
    found: dict[str, Result] = {}
    for trace in traces:
        own: set[str] = set()
        for result in trace.results:
            name = result_name(result, taken)
            other = found.setdefault(name, result)
            if (
                name in taken
                or name in own
                or (other.kind, other.name) != (result.kind, result.name)
            ):
                raise PlanError(
                    f"rank {trace.rank} ends with two tensors called {name!r}, or begins and ends "
                    f"with one; {_RENAME}"
                )
            own.add(name)
    return found


def check_given(trace: Trace, batch: Collection[str]) -> None:
    """Raise PlanError if two tensors that a rank begins with have one name.

    A tensor of the model must not have the name of one of the batch.
    """
    seen: set[str] = set()
    for given in trace.given:
        if given.role == "constant":
            continue
        if given.name in seen or (given.role != "input" and given.name in batch):
            raise PlanError(
                f"rank {trace.rank} begins with two tensors called {given.name!r}; {_RENAME}"
            )
        seen.add(given.name)


def given_tensor(given: Given, value: Value, bounds: Mapping[str, tuple[int, int]]) -> Tensor:
    """Return the tensor of a given value, without lineage.

    Raises UnsupportedError for a constant that is not filled with one number.
    """
    shape, dtype = real_form(value)
    if given.role == "constant":
        number = _filling(given, value)
        return Tensor(
            f"constant:{number}:{dtype}:{'x'.join(map(str, shape))}",
            shape,
            dtype,
            "constant",
            value=number,
        )
    role: Role = given.role if given.role in ("parameter", "optimizer_state") else "input"
    return Tensor(given.name, shape, dtype, role, bounds=bounds.get(given.name))


def _filling(given: Given, value: Value) -> Scalar:
    """Return the number that fills a constant, as a plan has it."""
    number = given.number
    if number is None:
        raise UnsupportedError(
            f"a constant {value.dtype} tensor of shape {value.shape} has elements that are "
            f"neither all equal nor few; let the program compute it in the step, "
            "or make it a buffer of the model or a tensor of the batch"
        )
    kind = kind_of(value.dtype)
    if kind == "complex" and number != 0:
        raise UnsupportedError(
            f"a constant {value.dtype} tensor of shape {value.shape} is filled with {number}; "
            f"complex constants other than 0 are not known"
        )
    if kind == "field":
        return literal(number)
    if kind == "complex":
        return 0.0
    if not float(number).is_integer():
        raise PlanError(
            f"a constant {value.dtype} tensor of shape {value.shape} is filled with {number}, "
            f"which is no {value.dtype}"
        )
    return bool(number) if kind == "bool" else int(number)
