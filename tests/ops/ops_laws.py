"""The laws of traits: for every trait what must hold of an operator that claims it, on the operands and attributes of one row.

A law has two parts. ``holds`` is asked of every row: True, False, or None where the row says nothing. ``shows`` must be true of one row at least: a view,
say, keeps a sum a sum, but adds nothing. An operator refutes a law by one row of which it does not hold, or because no row shows it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from ops_hand_rows import HAND_ROWS
from ops_numpy_algebra import NumpyAlgebra
from ops_rows import reals
from ops_torch_rows import ROWS

from pitcheck.errors import PitcheckError
from pitcheck.ops.declaration import OperatorKind
from pitcheck.ops.registry import evaluate, inner_dimensions, operator_kind
from pitcheck.ops.traits import Communication, Trait

Array = np.ndarray[Any, Any]
DIGITS = 8
"""Binary digits of the numbers with which rounding is looked for."""


@dataclass(frozen=True)
class Case:
    """An operator with operands and attributes."""

    operator: OperatorKind
    inputs: tuple[Array, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fields(self) -> list[int]:
        """The places of the operands of real numbers."""
        return [place for place, operand in enumerate(self.inputs) if operand.dtype == np.float64]

    @property
    def is_single(self) -> bool:
        """Whether the only operand is of real numbers."""
        return self.fields == [0] and len(self.inputs) == 1

    def of(self, make: Callable[[tuple[int, ...], int], Array], only: int | None = None) -> Case:
        """The case with other real operands, ``make(shape, place)``."""
        chosen = self.fields if only is None else [only]
        return replace(self, inputs=tuple(np.asarray(make(x.shape, i), np.float64) if i in chosen else x for i, x in enumerate(self.inputs)))

    def run(self, algebra: Any = None) -> list[Array]:
        """The outputs."""
        with np.errstate(all="ignore"):
            return [np.asarray(y) for y in self.operator.meaning(algebra or NumpyAlgebra(), self.inputs, self.attributes)]

    def real_outputs(self) -> list[Array]:
        """The outputs of real numbers."""
        return [y for y in self.run() if y.dtype == np.float64]


def all_cases(operator: OperatorKind) -> list[Case]:
    """The rows of an operator, and some that only laws need."""
    found = [Case(operator, row.inputs, row.attributes) for row in ROWS if row.kind == operator.name]
    found += [Case(operator, tuple(row.inputs()), row.attributes) for row in HAND_ROWS if row.kind == operator.name]
    return found + [Case(operator, inputs, attributes) for name, inputs, attributes in MORE if name == operator.name]


MORE: list[tuple[str, tuple[Array, ...], dict[str, Any]]] = [
    ("add", (reals(3), reals(3, seed=1)), {"alpha": -1}),
    ("add", (reals(3), reals(3, seed=1)), {"alpha": "-sqrt(2)"}),
    ("add", (reals(3), reals(3, seed=1)), {"alpha": "sqrt(2)"}),
    ("uniform", (reals(3),), {"stream": "s"}),
    ("normal", (reals(3),), {"stream": "s"}),
    ("dropout_mask", (reals(3),), {"stream": "s", "probability": 0.5}),
    ("gather_to", (reals(2, 2, 3),), {"axis": 1, "root": 0}),
    ("reduce", (reals(2, 3),), {"root": 1, "reduction": "max"}),
    ("all_to_all", (reals(2, 4, 2),), {"split_axis": 0, "concat_axis": 0, "position": 0}),
]


# --- operands


def distinct(shape: tuple[int, ...], place: int) -> Array:
    """Numbers of both signs, every element of every operand another one."""
    size = int(np.prod(shape))
    generator = np.random.default_rng([1, place, size])
    return (100.0 * place + 0.5 + generator.permutation(size).reshape(shape)) * generator.choice([-1.0, 1.0], shape)


def whole(seed: int) -> Callable[[tuple[int, ...], int], Array]:
    """Small integers of both signs, none of them 0: sums and products of them are exact."""

    def make(shape: tuple[int, ...], place: int) -> Array:
        generator = np.random.default_rng([2, seed, place, *shape])
        return generator.integers(1, 30, shape) * generator.choice([-1.0, 1.0], shape)

    return make


def few_digits(seed: int) -> Callable[[tuple[int, ...], int], Array]:
    """Numbers of ``DIGITS`` binary digits and many sizes."""

    def make(shape: tuple[int, ...], place: int) -> Array:
        generator = np.random.default_rng([3, seed, place, *shape])
        return shortened(generator.uniform(1, 2, shape) * 2.0 ** generator.integers(-5, 3, shape) * generator.choice([-1.0, 1.0], shape))

    return make


def shortened(x: Array) -> Array:
    """Numbers rounded to ``DIGITS`` binary digits."""
    mantissa, exponent = np.frexp(x)
    return np.asarray(np.ldexp(np.round(mantissa * 2**DIGITS) / 2**DIGITS, exponent))


def hostile(seed: int) -> Callable[[tuple[int, ...], int], Array]:
    """Numbers near 0 and large ones of both signs, and zeros; ``seed`` 0: zeros alone."""

    def make(shape: tuple[int, ...], place: int) -> Array:
        generator = np.random.default_rng([4, seed, place, *shape])
        return bool(seed) * generator.choice([0.0, 1.0, -1.0, 2.0, -2.0, 30.0, -30.0, 1e-3, -1e-3], shape)

    return make


def positive(shape: tuple[int, ...], place: int) -> Array:
    """Numbers above 0, less and greater than 1."""
    return 2.0 ** np.random.default_rng([5, place, *shape]).uniform(-6, 6, shape)


def zeros(shape: tuple[int, ...], _: int) -> Array:
    return np.zeros(shape)


# --- what a formula does on the way


class Watching(NumpyAlgebra):
    """Keeps what is asked of numbers: (operation, operands that it depends on)."""

    WATCHED = frozenset(
        {"log", "sqrt", "function", "compare", "maximum", "minimum", "reduce_max", "reduce_min", "shift", "order", "floor_divide", "remainder", "draw"}
    )

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[Array]]] = []

    def __getattribute__(self, name: str) -> Any:
        member = super().__getattribute__(name)
        if name not in Watching.WATCHED and name not in ("divide", "power", "cast", "matmul"):
            return member

        def noting(*arguments: Any) -> Any:
            arrays = [a for a in arguments if isinstance(a, np.ndarray)]
            if name == "divide":
                self.calls.append((name, arrays[1:]))
            elif name in Watching.WATCHED or name == "matmul" or (name == "power" and arguments[1] < 0) or (name == "cast" and arguments[1] != "field"):
                self.calls.append((name, arrays))
            return member(*arguments)

        return noting


def watched(case: Case) -> list[tuple[str, list[Array]]]:
    """The calls of a formula."""
    algebra = Watching()
    case.run(algebra)
    return algebra.calls


def is_same(first: Sequence[Array], second: Sequence[Array]) -> bool:
    """Whether arrays are equal, NaN to NaN."""
    return len(first) == len(second) and all(
        a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype == b.dtype == np.float64) for a, b in zip(first, second, strict=True)
    )


def is_close(first: Sequence[Array], second: Sequence[Array]) -> bool:
    """Whether arrays are equal but for what float64 rounds."""
    return len(first) == len(second) and all(a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=1e-9) for a, b in zip(first, second, strict=True))


def dependence(case: Case, place: int) -> list[Array]:
    """For every real output which of its elements change with which element of operand ``place``: bool (elements of output, elements of operand)."""
    base = case.of(whole(1))
    before = base.real_outputs()
    columns: list[list[Array]] = []
    for number in range(base.inputs[place].size):
        moved = base.inputs[place].copy()
        moved.reshape(-1)[number] += 0.125
        after = replace(base, inputs=(*base.inputs[:place], moved, *base.inputs[place + 1 :])).real_outputs()
        columns.append([~np.isclose(a, b, rtol=1e-12, atol=1e-12, equal_nan=True).reshape(-1) for a, b in zip(after, before, strict=True)])
    return [np.stack(column, axis=1) for column in zip(*columns, strict=True)]


def mixes(case: Case, places: Sequence[int] | None = None) -> bool:
    """Whether an element of a real output is made of several elements of the operands at ``places`` together (all real ones)."""
    chosen = case.fields if places is None else places
    if not chosen or not case.of(whole(1)).real_outputs():
        return False
    by_place = [dependence(case, place) for place in chosen if case.inputs[place].size]
    together = [np.concatenate(parts, axis=1) for parts in zip(*by_place, strict=True)]
    return any(bool((matrix.sum(axis=1) > 1).any()) for matrix in together)


def _sum(first: Case, second: Case, only: int | None = None) -> Case:
    places = first.fields if only is None else [only]
    return replace(first, inputs=tuple(a + b if i in places else a for i, (a, b) in enumerate(zip(first.inputs, second.inputs, strict=True))))


def is_additive(case: Case, only: int | None = None) -> bool:
    """Whether the outputs, all real, of a sum of operands are the sums of the outputs: of all operands together, or of one."""
    first = case.of(whole(1))
    second = first.of(whole(2), only)
    results = [c.run() for c in (first, second, _sum(first, second, only))]
    if any(y.dtype != np.float64 or not np.isfinite(y).all() for y in results[0]):
        return False
    return is_close([a + b for a, b in zip(results[0], results[1], strict=True)], results[2])


def is_affine(case: Case, only: int | None = None) -> bool:
    """Whether f(x + y) = f(x) + f(y) - f(0), in all operands together or in one."""
    first = case.of(whole(1))
    second, none = first.of(whole(2), only), first.of(zeros, only)
    a, b, both, at_zero = (c.run() for c in (first, second, _sum(first, second, only), none))
    if any(y.dtype != np.float64 or not np.isfinite(y).all() for y in (*a, *at_zero)):
        return False
    return is_close([x + y - z for x, y, z in zip(a, b, at_zero, strict=True)], both)


# --- where elements go


def _keeps_order(case: Case) -> bool | None:
    if not case.fields:
        return None
    given = case.of(distinct)
    return case.is_single and all(np.array_equal(y.reshape(-1), given.inputs[0].reshape(-1)) for y in given.run())


def _shows_all(case: Case) -> bool | None:
    if not case.fields:
        return None
    given = case.of(distinct)
    outputs, x = given.run(), given.inputs[0]
    if not case.is_single or len(outputs) != 1:
        return False
    (y,) = outputs
    return bool(np.shares_memory(x, y) and all(step >= 0 for step in y.strides) and set(y.reshape(-1).tolist()) == set(x.reshape(-1).tolist()))


def _elements(arrays: Sequence[Array]) -> Counter[float]:
    return Counter(number for array in arrays for number in array.reshape(-1).tolist())


def _rearranges(case: Case) -> bool | None:
    if not case.fields:
        return None
    given = case.of(distinct)
    outputs, x = given.run(), given.inputs[0]
    if not case.is_single or len(outputs) != 1 or _elements(outputs) != _elements([x]) or case.operator.derivative is None:
        return False
    gradient = distinct(outputs[0].shape, 5)
    (back,) = evaluate(NumpyAlgebra(), f"{case.operator.name}.backward", (x, outputs[0], gradient), case.attributes)
    if back is None or back.shape != x.shape or _elements([back]) != _elements([gradient]):
        return False
    return bool(np.isclose((outputs[0] * gradient).sum(), (x * back).sum()))


def _runs(x: Array) -> Iterator[Array]:
    for axis, size in enumerate(x.shape):
        for start, stop, step in itertools.product(range(size + 1), range(size + 1), range(1, max(size, 2))):
            yield x[(slice(None),) * axis + (slice(start, stop, step),)]


def _cuts(case: Case) -> bool | None:
    if not case.fields:
        return None
    given = case.of(distinct)
    return case.is_single and all(any(np.array_equal(y, run) for run in _runs(given.inputs[0])) for y in given.run())


def _selects(case: Case) -> bool | None:
    if not case.fields:
        return None
    given = case.of(distinct)
    x = given.inputs[0]
    places = [x.take(place, axis) for axis, size in enumerate(x.shape) for place in range(size)]
    return case.is_single and all(any(np.array_equal(y, place) for place in places) for y in given.run())


def _has_fewer(case: Case) -> bool:
    return any(y.size < x.size for y in case.run() for x in case.inputs)


def _joins(case: Case) -> bool | None:
    if not case.fields:
        return None
    given = case.of(distinct)
    outputs = given.run()
    return len(case.fields) == len(case.inputs) and len(outputs) == 1 and _elements(outputs) == _elements(given.inputs)


def _extends(case: Case) -> bool | None:
    if not case.fields:
        return None
    given = case.of(distinct)
    outputs, axis = given.run(), case.attributes.get("axis")
    if len(case.fields) != len(case.inputs) or len(outputs) != 1 or not isinstance(axis, int):
        return False
    (y,) = outputs
    return all(x.ndim == y.ndim and any(np.array_equal(x, run) for run in _runs_along(y, axis % y.ndim, x.shape[axis])) for x in given.inputs)


def _runs_along(y: Array, axis: int, size: int) -> Iterator[Array]:
    for start in range(y.shape[axis] - size + 1):
        yield y[(slice(None),) * axis + (slice(start, start + size),)]


def _is_longer(case: Case) -> bool:
    return all(y.size > max(x.size for x in case.inputs) for y in case.run())


def _of_collective(law: Callable[[Case], bool | None]) -> Callable[[Case], bool | None]:
    return lambda case: law(case) if case.operator.collective else None


def _carries(case: Case) -> bool | None:
    if case.operator.communication is not Communication.COLLECTIVE:
        return None
    given = case.of(distinct)
    return set(_elements(given.run())) <= set(_elements(given.inputs))


def _rounds_nothing(case: Case) -> bool | None:
    results = [case.of(few_digits(seed)).real_outputs() for seed in (1, 2)]
    if not results[0] or (case.inputs and not case.fields):
        return None
    return all(bool(((shortened(a) == a) | (a == b) | ~np.isfinite(a)).all()) for a, b in zip(*results, strict=True))


# --- sums


def _adds_terms(case: Case) -> bool | None:
    return is_additive(case) if case.fields else None


def _adds_within(case: Case) -> bool | None:
    return is_additive(case) and [y.shape for y in case.run()] == [case.inputs[0].shape] if case.fields else None


def _adds_members(case: Case) -> bool | None:
    given = case.of(distinct)
    stack, count = given.inputs[0], len(given.inputs[0])
    copies = given.of(lambda shape, _: np.broadcast_to(stack[:1], shape))
    turned = given.of(lambda *_: stack[::-1])
    parts = {round(number / count, 6) for number in _elements(copies.run())}
    return is_additive(case) and is_close(given.run(), turned.run()) and parts <= set(_elements([stack[0]]))


def _adds_plainly(case: Case) -> bool | None:
    if len(case.fields) != len(case.inputs) or not case.inputs:
        return None if not case.fields else False
    given = case.of(whole(1))
    terms = list(given.inputs[0]) if case.operator.collective else list(given.inputs)
    return _broadcast(terms) and is_same(given.run(), [np.asarray(sum(terms))])


def _broadcast(arrays: Sequence[Array]) -> bool:
    try:
        np.broadcast_shapes(*(a.shape for a in arrays))
    except ValueError:
        return False
    return True


def _has_terms(case: Case) -> bool:
    return (len(case.inputs[0]) if case.operator.collective else len(case.inputs)) > 1


def _adds_along(case: Case) -> bool | None:
    if not case.is_single:
        return False if case.fields else None
    given = case.of(whole(1))
    axes = case.attributes.get("axes")
    x, over = given.inputs[0], axes if axes is None or isinstance(axes, int) else tuple(axes)
    total = np.asarray(x.sum(axis=over, keepdims=bool(case.attributes.get("keepdim", False))))
    return is_close(given.run(), [total]) or is_close(given.run(), [total * (total.size / x.size)])


def _averages(case: Case) -> bool | None:
    if not case.fields:
        return None
    same = case.of(lambda shape, _: np.full(shape, 3.5))
    return is_additive(case) and all(np.allclose(y, 3.5) for y in same.run())


def _keeps_sizes(case: Case) -> bool | None:
    return [y.shape for y in case.run()] == [case.inputs[0].shape[1:]]


def _leaves_other_axes(case: Case) -> bool | None:
    given = case.of(distinct)
    (stack,) = given.inputs
    (whole_result,) = given.run()
    own = case.attributes.get("axis")
    for axis in range(stack.ndim - 1):
        if own is not None and own % (stack.ndim - 1) == axis:
            continue
        for place in range(stack.shape[axis + 1]):
            part = replace(given, inputs=(stack.take([place], axis + 1),))
            try:
                (result,) = part.run()
            except PitcheckError:
                return False
            if axis >= whole_result.ndim or place >= whole_result.shape[axis] or not np.allclose(result, whole_result.take([place], axis)):
                return False
    return True


# --- formulas


def _multilinear(case: Case) -> bool | None:
    return all(is_additive(case, place) for place in case.fields) if case.fields else None


def _scales(case: Case) -> bool | None:
    if 0 not in case.fields:
        return None
    return len(case.run()) == 1 and is_additive(case, 0) and not mixes(case, [0])


def _is_scaled(case: Case) -> bool:
    given = case.of(whole(1))
    return not set(_elements(given.run())) <= {*_elements(given.inputs), 0.0}


def _contracts(case: Case) -> bool | None:
    return all(is_affine(case, place) for place in case.fields) if case.fields else None


def _is_contraction(case: Case) -> bool:
    return len(case.fields) > 1 and mixes(case, [0]) and not is_affine(case)


def _multiplies_matrices(case: Case) -> bool:
    return any(name == "matmul" for name, _ in watched(case))


def _takes_root(case: Case) -> bool | None:
    if not case.fields:
        return None
    given = case.of(positive)
    return any(name == "sqrt" and np.array_equal(operands[0], given.inputs[0]) for name, operands in watched(given))


def _divides(case: Case) -> bool | None:
    if not case.fields:
        return None
    given = case.of(positive)
    if len(case.inputs) != 2 or len(case.fields) != 2 or not _broadcast(given.inputs):
        return False
    (quotient, *_), (a, b) = given.run(), given.inputs
    return _broadcast((quotient, b)) and is_close([quotient * b], [a + 0 * b])


# --- where there is a value


def _total(case: Case) -> bool | None:
    if not case.fields:
        return None
    first, second = (watched(case.of(make)) for make in (whole(1), whole(2)))
    dependent = [a[0] for a, b in zip(first, second, strict=False) if a[0] != "matmul" and not is_same(a[1], b[1])]
    if dependent or len(first) != len(second):
        return False
    other = case.of(hostile(2)).run()
    fixed = [bool(np.array_equal(y, z)) for y, z in zip(case.of(hostile(1)).run(), other, strict=True)]
    results = [case.of(hostile(seed)).run() for seed in (0, 1, 2)]
    return all(same or bool(np.isfinite(y).all()) for result in results for same, y in zip(fixed, result, strict=True))


def _defined_for_positive(case: Case) -> bool | None:
    if not case.fields:
        return None
    given, *others = (case.of(make).run() for make in (positive, zeros, lambda shape, _: np.full(shape, -1.0)))
    return all(np.isfinite(y).all() for y in given) and not all(np.isfinite(y).any() for other in others for y in other)


def _gives_positive(case: Case) -> bool | None:
    if not case.fields or not case.real_outputs():
        return None
    return all(bool((y > 0).all()) for seed in (0, 1, 2) for y in case.of(hostile(seed)).real_outputs())


def _keeps_positive(case: Case) -> bool | None:
    outputs = case.of(positive).real_outputs() if len(case.fields) == len(case.inputs) else []
    return all(bool((y > 0).all()) for y in outputs) if outputs else None


# --- decisions


def _picks_places(case: Case) -> bool | None:
    if not case.fields:
        return None
    given = case.of(distinct)
    *_, places = given.run()
    axis = case.attributes.get("axis", -1 if "k" in case.attributes else None)
    if not case.is_single or places.dtype != np.int64 or (axis is None) != (places.size == 1):
        return False
    x = given.inputs[0].reshape(-1) if axis is None else given.inputs[0]
    along = 0 if axis is None else axis % x.ndim
    named = places.reshape(-1) if axis is None else places if places.ndim == x.ndim else np.expand_dims(places, along)
    beside = [(a, b) for i, (a, b) in enumerate(zip(named.shape, x.shape, strict=False)) if i != along]
    if named.ndim != x.ndim or any(a != b for a, b in beside) or named.min() < 0 or named.max() >= x.shape[along]:
        return False
    chosen = np.zeros(x.shape, dtype=bool)
    np.put_along_axis(chosen, named, True, along)
    most, least = (np.where(chosen, x, fill) for fill in (-np.inf, np.inf))
    others_most, others_least = (np.where(chosen, fill, x) for fill in (-np.inf, np.inf))
    if chosen.all():
        return True
    return bool((least.min(along) > others_most.max(along)).all() or (most.max(along) < others_least.min(along)).all())


def _chooses(case: Case) -> bool:
    *_, places = case.run()
    return places.size < case.inputs[0].size


def _changes(at: int) -> Callable[[Case], bool | None]:
    def law(case: Case) -> bool | None:
        if len(case.inputs) != 2 or case.run()[0].dtype != np.bool_:
            return None
        numbers = np.array([5, 0, -3])
        return all(bool((a != b).all()) for a, b in zip(*(replace(case, inputs=(numbers + by, numbers)).run() for by in (at, at + 1)), strict=True))

    return law


def _reads_shape(case: Case) -> bool | None:
    if not case.inputs:
        return None
    first, second = (replace(case, inputs=tuple(np.full_like(x, number) for x in case.inputs)) for number in (0, 1))
    return len(case.inputs) == 1 and is_same(first.run(), second.run()) and is_same(case.run(), second.run())


def gradients_are_sums(case: Case) -> bool | None:
    """Whether the gradient of every shared operand is the sum of those of two parts of a leading dimension, one that the other operands lack."""
    x, *others = case.inputs
    leading = x.ndim - inner_dimensions(case.operator, case.attributes)
    if case.operator.derivative is None or not others or max(case.operator.shared) > len(others) or not case.real_outputs():
        return None
    given = case.of(positive)
    (y,) = given.run()
    dy, found = whole(4)(y.shape, 0), []
    for axis in [a for a in range(leading) if x.shape[a] > 1 and a < y.ndim and y.shape[a] == x.shape[a]]:
        places = [np.arange(1), np.arange(1, x.shape[axis])]
        parts = [replace(given, inputs=(given.inputs[0].take(p, axis), *given.inputs[1:])) for p in places]
        if [_size(part, axis) for part in parts] != [1, x.shape[axis] - 1]:
            continue  # another operand has this dimension, too
        of_parts = [_gradients(part, dy.take(p, axis)) for part, p in zip(parts, places, strict=True)]
        of_all = _gradients(given, dy)
        pairs = [(of_all[i], of_parts[0][i], of_parts[1][i]) for i in case.operator.shared if i < len(case.inputs)]
        found.append(all(a.shape == b.shape == c.shape and np.allclose(a, b + c) for a, b, c in pairs))
    return all(found) if found else None


def _size(case: Case, axis: int) -> int:
    """The size of the result along ``axis``; 0 where there is none."""
    try:
        (y,) = case.run()
    except (PitcheckError, ValueError):
        return 0
    return int(y.shape[axis])


def _gradients(case: Case, dy: Array) -> list[Any]:
    (y,) = case.run()
    return evaluate(NumpyAlgebra(), f"{case.operator.name}.backward", (*case.inputs, y, dy), case.attributes)


@dataclass(frozen=True)
class Law:
    """``holds`` of every row; ``shows`` of one at least."""

    holds: Callable[[Case], bool | None]
    shows: Callable[[Case], bool] = lambda _: True


LAWS: Mapping[Trait, Law] = {
    Trait.KEEPS_ORDER: Law(_keeps_order),
    Trait.SHOWS_ALL: Law(_shows_all),
    Trait.REARRANGES: Law(_rearranges),
    Trait.CUTS: Law(_cuts, _has_fewer),
    Trait.SELECTS: Law(_selects),
    Trait.JOINS: Law(_joins, lambda case: len(case.inputs) > 1),
    Trait.EXTENDS: Law(_extends, _is_longer),
    Trait.CARRIES: Law(_carries),
    Trait.ROUNDS_NOTHING: Law(_rounds_nothing),
    Trait.ADDS_TERMS: Law(_adds_terms, mixes),
    Trait.ADDS_WITHIN: Law(_adds_within, mixes),
    Trait.NORMALIZES: Law(lambda case: True if case.fields else None, lambda case: mixes(case, case.fields[:1]) and _rounds_nothing(case) is False),
    Trait.ADDS_MEMBERS: Law(_of_collective(_adds_members), _has_terms),
    Trait.ADDS_PLAINLY: Law(_adds_plainly, _has_terms),
    Trait.ADDS_ALONG: Law(_adds_along, mixes),
    Trait.AVERAGES: Law(_averages, mixes),
    Trait.KEEPS_SIZES: Law(_of_collective(_keeps_sizes), _has_terms),
    Trait.LEAVES_OTHER_AXES: Law(_of_collective(_leaves_other_axes), _has_terms),
    Trait.MULTILINEAR: Law(_multilinear, lambda case: len(case.fields) > 1),
    Trait.SCALES: Law(_scales, _is_scaled),
    Trait.CONTRACTS: Law(_contracts, _is_contraction),
    Trait.MULTIPLIES_MATRICES: Law(lambda case: True if case.fields else None, _multiplies_matrices),
    Trait.TAKES_ROOT: Law(_takes_root),
    Trait.DIVIDES: Law(_divides),
    Trait.TOTAL: Law(_total),
    Trait.DEFINED_FOR_POSITIVE: Law(_defined_for_positive),
    Trait.GIVES_POSITIVE: Law(_gives_positive),
    Trait.KEEPS_POSITIVE: Law(_keeps_positive),
    Trait.PICKS_PLACES: Law(_picks_places, _chooses),
    Trait.CHANGES_BELOW: Law(_changes(-1)),
    Trait.CHANGES_ABOVE: Law(_changes(0)),
    Trait.READS_SHAPE: Law(_reads_shape),
}


def claims(operator: OperatorKind, trait: Trait, attributes: Mapping[str, Any]) -> bool:
    """Whether an operator, perhaps one that is not registered, claims a trait with these attributes."""
    return trait in operator.traits or (trait in operator.conditional and operator.conditional[trait](attributes))


def broken_by(operator: OperatorKind, trait: Trait, cases: Sequence[Case]) -> str:
    """Why an operator that claims a trait, on these rows, does not have it; "" where it has."""
    law = LAWS[trait]
    asked = [(case, law.holds(case)) for case in cases]
    for case, held in asked:
        if held is False:
            shapes = ", ".join(str(x.shape) for x in case.inputs)
            return f"{operator.name} with {dict(case.attributes)} on operands of shapes {shapes} is not {trait}"
    if not any(held and law.shows(case) for case, held in asked):
        return f"no row of {operator.name} shows that it is {trait}"
    return ""


def cases_of(name: str) -> list[Case]:
    """The rows of a registered operator."""
    return all_cases(operator_kind(name))
