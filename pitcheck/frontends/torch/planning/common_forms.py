"""One form for every tensor with which a step begins or ends, on all ranks and in the reference.

A plan says of a tensor which intervals of each dimension a rank holds, and all ranks hold equally
many elements. Two rewritings bring others into this form. They only view, cut and join.

- Of some tensors a rank holds a stretch of the flattened elements, which may begin in the middle of
  a row: parts of a flat parameter. Such a tensor has one dimension in both programs.
- Parts of different sizes are padded to the largest one by free elements. These may be any number,
  and no output may depend on them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import prod

from msgspec.structs import replace

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.recording.parameter_lineage import flattened
from pitcheck.frontends.torch.trace import (
    LEFT,
    Argument,
    Event,
    Given,
    Intervals,
    Ref,
    Result,
    Trace,
    Value,
)

Key = tuple[str, str]
"""The kind and name of a result, or "given" and the name of a value with which a step begins."""
Shape = tuple[int, ...]
FREE = -1
"""The beginning of an interval of free elements."""


def in_one_form(reference: Trace, traces: Sequence[Trace]) -> tuple[Trace, list[Trace]]:
    """Return both programs with one form for each tensor that they begin or end with.

    Raises UnsupportedError for elements of a flat result that no rank has.
    """
    shapes = {key: reference.values[value].shape for key, value, _ in _ends(reference)}
    flat = {
        _plain(key)
        for trace in traces
        for key, _, whole in _ends(trace)
        if key in shapes and _is_flat(whole, shapes[key])
    }
    wanted = {key: (prod(shape),) for key, shape in shapes.items() if _plain(key) in flat}
    if wanted:
        reference = _Forms(reference, shapes).flattened(wanted)
        traces = [_Forms(trace, shapes).flattened(wanted) for trace in traces]
        _check_covered(traces, wanted)
    sizes = _largest(traces)
    return reference, [_Forms(trace, shapes).padded(sizes) for trace in traces]


def _check_covered(traces: Sequence[Trace], wanted: Mapping[Key, Shape]) -> None:
    """Raise UnsupportedError if ranks together lack elements of a flat result.

    These would not be compared.
    """
    held: dict[Key, list[tuple[int, int]]] = defaultdict(list)
    for trace in traces:
        for result in trace.results:
            key = result.kind, result.name
            if key in wanted:
                held[key].extend(result.box[0] if result.box else ((0, prod(wanted[key])),))
    for (kind, name), intervals in held.items():
        (size,), end = wanted[kind, name], 0
        for start, stop in sorted(intervals):
            if start > end:
                break
            end = max(end, stop)
        if end < size:
            raise UnsupportedError(
                f"no rank has element {end} of the {size} elements of {name!r} ({kind}), so that "
                f"it is not compared; Program.scattered must give every element to a rank"
            )


def _ends(trace: Trace) -> Iterator[tuple[Key, int, Shape]]:
    """Yield the key, the value and the shape of the whole of all that a step begins or ends with.

    The batch, constants and outputs are left out.
    """
    for given in trace.given:
        if given.role not in ("input", "constant"):
            yield ("given", given.name), given.value, given.whole
    for result in trace.results:
        if result.kind != "output":
            yield (result.kind, result.name), result.value, result.whole


def _plain(key: Key) -> str:
    """Return the name of the parameter or state that a key is about."""
    return key[1].removeprefix(LEFT)


def _is_flat(whole: Shape, shape: Shape) -> bool:
    return len(whole) == 1 and len(shape) != 1 and whole[0] == prod(shape)


def _largest(traces: Sequence[Trace]) -> dict[Key, Shape]:
    """Return the largest size of each dimension, of tensors that have several sizes."""
    found: dict[Key, set[Shape]] = defaultdict(set)
    for trace in traces:
        for key, value, _ in _ends(trace):
            found[key].add(trace.values[value].shape)
    return {
        key: tuple(map(max, zip(*shapes, strict=True)))
        for key, shapes in found.items()
        if len(shapes) > 1 and len({len(shape) for shape in shapes}) == 1
    }


class _Forms:
    """The rewriting of one trace. ``shapes`` are those of the reference."""

    def __init__(self, trace: Trace, shapes: Mapping[Key, Shape]) -> None:
        self._trace = trace
        self._shapes = shapes
        self._values = list(trace.values)
        self._before: list[Event] = []
        self._after: list[Event] = []
        self._zeros: list[Given] = []

    def flattened(self, wanted: Mapping[Key, Shape]) -> Trace:
        """Return the trace; tensors that are wanted flat have one dimension."""
        return self._rewritten(
            [
                self._flat_given(given) if ("given", given.name) in wanted else given
                for given in self._trace.given
            ],
            [
                self._flat_result(result) if (result.kind, result.name) in wanted else result
                for result in self._trace.results
            ],
        )

    def padded(self, sizes: Mapping[Key, Shape]) -> Trace:
        """Return the trace; tensors have the given sizes, with free elements behind their own."""
        return self._rewritten(
            [
                self._padded_given(given, sizes.get(("given", given.name), ()))
                for given in self._trace.given
            ],
            [
                self._padded_result(result, sizes.get((result.kind, result.name), ()))
                for result in self._trace.results
            ],
        )

    def _rewritten(self, given: Sequence[Given], results: Sequence[Result]) -> Trace:
        if tuple(given) == self._trace.given and tuple(results) == self._trace.results:
            return self._trace
        return replace(
            self._trace,
            values=tuple(self._values),
            events=(*self._before, *self._trace.events, *self._after),
            given=(*given, *self._zeros),
            results=tuple(results),
        )

    # --- flat tensors

    def _flat_given(self, given: Given) -> Given:
        value = self._values[given.value]
        form = self._flat_form(("given", given.name), given)
        if form is None:
            return given
        flat = self._new((prod(value.shape),), given.value)
        # A plan leaves out what nothing reads, and then nothing may be made of it.
        if not given.idle or any(result.value == given.value for result in self._trace.results):
            self._before.append(_event("view.default", (Ref(flat), value.shape), given.value))
        return replace(given, value=flat, **form)

    def _flat_result(self, result: Result) -> Result:
        value = self._values[result.value]
        form = self._flat_form((result.kind, result.name), result)
        if form is None:
            return result
        flat = self._new((prod(value.shape),), result.value)
        self._after.append(_event("view.default", (Ref(result.value), (prod(value.shape),)), flat))
        return replace(result, value=flat, **form)

    def _flat_form(
        self, key: Key, held: Given | Result
    ) -> dict[str, tuple[int, ...] | tuple[Intervals, ...]] | None:
        """Return whole and box of a part as one of the flattened tensor, None if it is one."""
        shape = self._shapes[key]
        if _is_flat(held.whole, shape):
            return None
        if not held.box:
            return {"whole": (prod(shape),) if held.whole else (), "box": ()}
        return {"whole": (prod(shape),), "box": (flattened(held.box, shape),)}

    # --- parts of different sizes

    def _padded_given(self, given: Given, sizes: Shape) -> Given:
        shape = self._values[given.value].shape
        if sizes in ((), shape) or not given.box:
            return given
        whole = last = self._new(sizes, given.value)
        for dim, size in enumerate(shape):
            if size != sizes[dim]:
                cut = (*shape[: dim + 1], *sizes[dim + 1 :])
                part = given.value if cut == shape else self._new(cut, given.value)
                self._before.append(_event("slice.Tensor", (Ref(last), dim, 0, size, 1), part))
                last = part
        # A part without elements on this rank is read by nothing, and is a part like any other.
        return replace(given, value=whole, box=_widened(given.box, shape, sizes), idle=False)

    def _padded_result(self, result: Result, sizes: Shape) -> Result:
        shape, last = self._values[result.value].shape, result.value
        if sizes in ((), shape) or not result.box:
            return result
        for dim, size in reversed(list(enumerate(shape))):
            if size != sizes[dim]:
                held = (*shape[:dim], size, *sizes[dim + 1 :])
                last = self._joined(last, held, dim, sizes[dim] - size)
        return replace(result, value=last, box=_widened(result.box, shape, sizes))

    def _joined(self, value: int, shape: Shape, dim: int, missing: int) -> int:
        """Return a value with zeros behind its elements along a dimension."""
        filling = (*shape[:dim], missing, *shape[dim + 1 :])
        zeros = self._new(filling, value)
        if prod(filling):
            self._zeros.append(Given(zeros, "constant", "", number=0.0))
        if not prod(shape):
            return zeros
        joined = self._new((*shape[:dim], shape[dim] + missing, *shape[dim + 1 :]), value)
        self._after.append(_event("cat.default", ((Ref(value), Ref(zeros)), dim), joined))
        return joined

    def _new(self, shape: Shape, like: int) -> int:
        """Return a new value of the dtype of another one."""
        self._values.append(Value(shape, self._values[like].dtype))
        return len(self._values) - 1


def _event(operator: str, arguments: tuple[Argument, ...], output: int) -> Event:
    return Event(operator, arguments, (output,))


def _widened(box: Sequence[Intervals], shape: Shape, sizes: Shape) -> tuple[Intervals, ...]:
    """Return a box with free elements behind those that a rank holds."""
    return tuple(
        (*held, (FREE, size - own)) if size > own else held
        for held, own, size in zip(box, shape, sizes, strict=True)
    )
