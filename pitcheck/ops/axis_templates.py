"""Recordings of what an operator does to dimensions, made once per attributes and shapes.

A meaning run on axes only makes dimensions and ties them. The calls that it makes depend on its
attributes and on the sizes of its operands, never on earlier ties. So the calls are recorded in a
scratch system and made again on other dimensions.

>>> from pitcheck.ops.registry import evaluate
>>> algebra, templates = AxisAlgebra(AxisSystem()), Templates(evaluate)
>>> x, y = algebra.tensor((4, 6)), algebra.tensor((4, 6))
>>> run = lambda v: templates.run(algebra, "transpose", [v], {"dim0": 0, "dim1": 1}, None)
>>> run(x)[0].shape, run(y)[0].shape
((6, 4), (6, 4))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pitcheck.algebra.dimensions.axes import AxisAlgebra
from pitcheck.algebra.dimensions.axis_classes import AxisSystem
from pitcheck.algebra.dimensions.axis_values import AxisValue, Counting, Tally
from pitcheck.algebra.dimensions.axis_views import view
from pitcheck.algebra.dimensions.scaling_class import Dimension, Use
from pitcheck.algebra.interface import Kind
from pitcheck.ops.axis_attributes import symbolic_attributes

Evaluate = Callable[[Any, str, Sequence[Any], Mapping[str, Any], Sequence[bool] | None], list[Any]]


@dataclass(frozen=True)
class _Call:
    """One call on a system.

    ``nodes`` are numbers of dimensions in the order in which the recording met them; ``rest`` has
    the other arguments.
    """

    name: str
    nodes: tuple[int, ...]
    rest: tuple[Any, ...]


@dataclass(frozen=True)
class _Output:
    """An output, with its dimensions by their numbers in the recording."""

    kind: Kind
    dims: tuple[int, ...]
    counts: int | None
    literal: Any
    places: int | None
    boundary: bool
    discrete: bool
    added: tuple[int, ...]
    asked: tuple[int, ...]
    occurs: bool
    tally: tuple[int, ...] | None
    tallies_all: bool
    positional: bool


@dataclass(frozen=True)
class _Template:
    """The calls and the outputs of one recording."""

    calls: tuple[_Call, ...]
    outputs: tuple[_Output | None, ...]


class _Recorder(AxisSystem):
    """A scratch system that records the calls made on it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[_Call] = []
        self.known: dict[int, int] = {}
        self.silent = False

    def meet(self, node: Dimension) -> int:
        """Return the number of a dimension in the recording."""
        return self.known.setdefault(node.number, len(self.known))

    def _note(self, name: str, nodes: Sequence[Dimension], *rest: Any) -> None:
        if not self.silent:
            self.calls.append(_Call(name, tuple(self.meet(n) for n in nodes), rest))

    def dimension(self, size: int, fixed: str = "", copies: bool = False) -> Dimension:
        node = super().dimension(size, fixed, copies)
        if not self.silent:
            self._note("dimension", (), int(size), fixed, copies)
            self.meet(node)
        return node

    def tie(self, node: Dimension, whole: Dimension, offset: int = 0) -> None:
        self._record("tie", (node, whole), int(offset))

    def position(self, node: Dimension, offset: int) -> None:
        self._record("position", (node,), int(offset))

    def fix(self, node: Dimension, reason: str = "its size is given") -> None:
        self._record("fix", (node,), reason)

    def decide(self, node: Dimension) -> None:
        self._record("decide", (node,))

    def mark_permuted(self, node: Dimension) -> None:
        self._record("mark_permuted", (node,))

    def index(self, node: Dimension) -> None:
        self._note("index", (node,))

    def mix(self, node: Dimension) -> None:
        self._note("mix", (node,))

    def use(self, node: Dimension, use: Use) -> None:
        self._note("use", (node,), use)

    def add_literal(self, number: Any) -> None:
        self._note("add_literal", (), number)

    def repeat(self, node: Dimension) -> None:
        self._note("repeat", (node,))

    def add_extent(self, nodes: Sequence[Dimension]) -> None:
        self._note("add_extent", tuple(nodes))

    def _record(self, name: str, nodes: tuple[Dimension, ...], *rest: Any) -> None:
        """Note a call and make it here, too; the calls that it makes in turn are not noted."""
        self._note(name, nodes, *rest)
        with self._silently():
            getattr(AxisSystem, name)(self, *nodes, *rest)

    @contextmanager
    def _silently(self) -> Iterator[None]:
        before, self.silent = self.silent, True
        try:
            yield
        finally:
            self.silent = before

    def viewed(self, dims: Sequence[Dimension], shape: Sequence[int]) -> tuple[Dimension, ...]:
        """Record a reshape as one call.

        Its refinement depends on the ties of the system in which it is made again.
        """
        self._note("view", tuple(dims), tuple(int(n) for n in shape))
        with self._silently():
            made = view(self, dims, shape)
            # Every place of the result is a new number: made again, it may be another dimension
            # than here.
            fresh = tuple(AxisSystem.dimension(self, d.size, "", d.copies) for d in made)
            for old, new in zip(made, fresh, strict=True):
                AxisSystem.tie(self, old, new)
                self.meet(new)
        return fresh


class _RecordingAlgebra(AxisAlgebra):
    """The algebra of dimensions, with reshapes recorded as one call."""

    system: _Recorder

    def viewed(self, dims: Sequence[Dimension], shape: Sequence[int]) -> tuple[Dimension, ...]:
        return self.system.viewed(dims, shape)


class Templates:
    """Recordings by operator, attributes and operands; used for one run."""

    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate = evaluate
        self._found: dict[tuple[Any, ...], _Template] = {}

    def run(
        self,
        algebra: AxisAlgebra,
        kind: str,
        inputs: Sequence[AxisValue],
        attributes: Mapping[str, Any],
        wanted: Sequence[bool] | None,
    ) -> list[Any]:
        """Return what ``evaluate`` would with ``attributes`` at full size, in the algebra's system.

        It raises what ``evaluate`` raises.
        """
        if any(
            value.counts is not None
            or value.places is not None
            or value.counting.added
            or value.counting.asked
            for value in inputs
        ):
            return self._evaluate(
                algebra, kind, inputs, symbolic_attributes(kind, attributes), wanted
            )
        signature = tuple(
            (
                v.kind,
                v.literal,
                v.is_discrete,
                v.occurs,
                None if v.tally is None else v.tally.all,
                v.positional,
                tuple((d.size, d.copies) for d in v.dims),
                _repeats(v.dims),
            )
            for v in inputs
        )
        key = (
            kind,
            repr(sorted(attributes.items())),
            signature,
            None if wanted is None else tuple(wanted),
        )
        template = self._found.get(key)
        if template is None:
            template = self._found[key] = self._record(kind, inputs, attributes, wanted)
        return _replay(template, algebra.system, [d for v in inputs for d in v.dims])

    def _record(
        self,
        kind: str,
        inputs: Sequence[AxisValue],
        attributes: Mapping[str, Any],
        wanted: Sequence[bool] | None,
    ) -> _Template:
        recorder = _Recorder()
        recorder.silent = True
        given = [
            AxisValue(
                v.kind,
                tuple(recorder.dimension(d.size, "", d.copies) for d in v.dims),
                v.literal,
                counting=v.counting,
                occurs=v.occurs,
                tally=v.tally,
                positional=v.positional,
            )
            for v in inputs
        ]
        for value in given:
            for node in value.dims:
                recorder.meet(node)
        recorder.silent = False
        results = self._evaluate(
            _RecordingAlgebra(recorder), kind, given, symbolic_attributes(kind, attributes), wanted
        )
        outputs = tuple(None if r is None else _output(recorder, r) for r in results)
        return _Template(tuple(recorder.calls), outputs)


def _output(recorder: _Recorder, value: AxisValue) -> _Output:
    counts, places = (
        None if node is None else recorder.meet(node) for node in (value.counts, value.places)
    )

    def numbers(dims: Iterable[Dimension]) -> tuple[int, ...]:
        return tuple(recorder.meet(d) for d in dims)

    return _Output(
        value.kind,
        numbers(value.dims),
        counts,
        value.literal,
        places,
        value.boundary,
        value.counting.discrete,
        numbers(value.counting.added),
        numbers(value.counting.asked),
        value.occurs,
        None if value.tally is None else numbers(value.tally.dims),
        value.tally is not None and value.tally.all,
        value.positional,
    )


def _repeats(dims: Sequence[Dimension]) -> tuple[int, ...]:
    """Return for each dimension of a tensor the place of the first one that is the same."""
    first: dict[int, int] = {}
    return tuple(first.setdefault(d.number, i) for i, d in enumerate(dims))


def _replay(template: _Template, system: AxisSystem, nodes: list[Dimension]) -> list[Any]:
    for call in template.calls:
        given = [nodes[n] for n in call.nodes]
        if call.name == "dimension":
            nodes.append(system.dimension(*call.rest))
        elif call.name == "view":
            nodes.extend(view(system, given, call.rest[0]))
        elif call.name == "add_extent":
            system.add_extent(given)
        else:
            getattr(system, call.name)(*given, *call.rest)
    return [None if o is None else _made(o, nodes) for o in template.outputs]


def _made(output: _Output, nodes: Sequence[Dimension]) -> AxisValue:
    counts, places = (None if n is None else nodes[n] for n in (output.counts, output.places))

    def dims(numbers: Iterable[int]) -> tuple[Dimension, ...]:
        return tuple(nodes[n] for n in numbers)

    return AxisValue(
        output.kind,
        dims(output.dims),
        output.literal,
        counts,
        places,
        output.boundary,
        Counting(output.discrete, dims(output.added), dims(output.asked)),
        output.occurs,
        None if output.tally is None else Tally(dims(output.tally), output.tallies_all),
        output.positional,
    )
