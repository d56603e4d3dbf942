"""The laws of traits: the claims on an operator, on the operands and attributes of one row.

A law has two parts. ``holds`` is asked of every row: True, False, or None if the row says nothing.
``shows`` must be true of one row at least: a view, say, keeps a sum a sum, but adds nothing. An
operator refutes a law by one row of which it does not hold, or because no row shows it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from ops.ops_law_cases import (
    Array,
    Case,
    distinct,
    few_digits,
    hostile,
    is_additive,
    is_affine,
    is_close,
    is_same,
    mixes,
    positive,
    shortened,
    watched,
    whole,
    zeros,
)
from ops.ops_numpy_algebra import NumpyAlgebra

from pitcheck.errors import PitcheckError
from pitcheck.ops.declaration import OperatorKind
from pitcheck.ops.registry import evaluate, inner_dimensions
from pitcheck.ops.traits import Communication, Trait

# --- where elements go


def _keeps_order(case: Case) -> bool | None:
    if not case.fields:
        return None
    given = case.of(distinct)
    return case.is_single and all(
        np.array_equal(y.reshape(-1), given.inputs[0].reshape(-1)) for y in given.run()
    )


def _shows_all(case: Case) -> bool | None:
    if not case.fields:
        return None
    given = case.of(distinct)
    outputs, x = given.run(), given.inputs[0]
    if not case.is_single or len(outputs) != 1:
        return False
    (y,) = outputs
    return bool(
        np.shares_memory(x, y)
        and all(step >= 0 for step in y.strides)
        and set(y.reshape(-1).tolist()) == set(x.reshape(-1).tolist())
    )


def _elements(arrays: Sequence[Array]) -> Counter[float]:
    return Counter(number for array in arrays for number in array.reshape(-1).tolist())


def _rearranges(case: Case) -> bool | None:
    if not case.fields:
        return None
    given = case.of(distinct)
    outputs, x = given.run(), given.inputs[0]
    if (
        not case.is_single
        or len(outputs) != 1
        or _elements(outputs) != _elements([x])
        or case.operator.derivative is None
    ):
        return False
    gradient = distinct(outputs[0].shape, 5)
    (back,) = evaluate(
        NumpyAlgebra(), f"{case.operator.name}.backward", (x, outputs[0], gradient), case.attributes
    )
    if back is None or back.shape != x.shape or _elements([back]) != _elements([gradient]):
        return False
    return bool(np.isclose((outputs[0] * gradient).sum(), (x * back).sum()))


def _runs(x: Array) -> Iterator[Array]:
    for axis, size in enumerate(x.shape):
        for start, stop, step in itertools.product(
            range(size + 1), range(size + 1), range(1, max(size, 2))
        ):
            yield x[(slice(None),) * axis + (slice(start, stop, step),)]


def _cuts(case: Case) -> bool | None:
    if not case.fields:
        return None
    given = case.of(distinct)
    return case.is_single and all(
        any(np.array_equal(y, run) for run in _runs(given.inputs[0])) for y in given.run()
    )


def _selects(case: Case) -> bool | None:
    if not case.fields:
        return None
    given = case.of(distinct)
    x = given.inputs[0]
    places = [x.take(place, axis) for axis, size in enumerate(x.shape) for place in range(size)]
    return case.is_single and all(
        any(np.array_equal(y, place) for place in places) for y in given.run()
    )


def _has_fewer(case: Case) -> bool:
    return any(y.size < x.size for y in case.run() for x in case.inputs)


def _joins(case: Case) -> bool | None:
    if not case.fields:
        return None
    given = case.of(distinct)
    outputs = given.run()
    return (
        len(case.fields) == len(case.inputs)
        and len(outputs) == 1
        and _elements(outputs) == _elements(given.inputs)
    )


def _extends(case: Case) -> bool | None:
    if not case.fields:
        return None
    given = case.of(distinct)
    outputs, axis = given.run(), case.attributes.get("axis")
    if len(case.fields) != len(case.inputs) or len(outputs) != 1 or not isinstance(axis, int):
        return False
    (y,) = outputs
    return all(
        x.ndim == y.ndim
        and any(np.array_equal(x, run) for run in _runs_along(y, axis % y.ndim, x.shape[axis]))
        for x in given.inputs
    )


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


def _has_opposites(case: Case) -> bool:
    given = case.of(many_digits)
    held = {x for place in given.fields for x in given.inputs[place].reshape(-1).tolist()}
    results = {y for array in given.real_outputs() for y in array.reshape(-1).tolist()}
    return any(-y in held and y not in held for y in results if y)


def many_digits(shape: tuple[int, ...], place: int) -> Array:
    """Numbers of both signs of which no sum, difference or product is another one's opposite."""
    generator = np.random.default_rng([6, place, *shape])
    return generator.uniform(1, 2, shape) * generator.choice([-1.0, 1.0], shape)


def _gives_bits(case: Case) -> bool | None:
    outputs = case.run()
    if not all(y.dtype.kind == "i" for y in outputs):
        return False
    return all(bool(np.isin(y, (0, 1)).all()) for y in outputs)


def _rounds_nothing(case: Case) -> bool | None:
    results = [case.of(few_digits(seed)).real_outputs() for seed in (1, 2)]
    if not results[0] or (case.inputs and not case.fields):
        return None
    return all(
        bool(((shortened(a) == a) | (a == b) | ~np.isfinite(a)).all())
        for a, b in zip(*results, strict=True)
    )


# --- sums


def _adds_terms(case: Case) -> bool | None:
    return is_additive(case) if case.fields else None


def _adds_within(case: Case) -> bool | None:
    return (
        is_additive(case) and [y.shape for y in case.run()] == [case.inputs[0].shape]
        if case.fields
        else None
    )


def _adds_members(case: Case) -> bool | None:
    given = case.of(distinct)
    stack, count = given.inputs[0], len(given.inputs[0])
    copies = given.of(lambda shape, _: np.broadcast_to(stack[:1], shape))
    turned = given.of(lambda *_: stack[::-1])
    parts = {round(number / count, 6) for number in _elements(copies.run())}
    return (
        is_additive(case)
        and is_close(given.run(), turned.run())
        and parts <= set(_elements([stack[0]]))
    )


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
            if (
                axis >= whole_result.ndim
                or place >= whole_result.shape[axis]
                or not np.allclose(result, whole_result.take([place], axis))
            ):
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
    return any(
        name == "sqrt" and np.array_equal(operands[0], given.inputs[0])
        for name, operands in watched(given)
    )


def _divides(case: Case) -> bool | None:
    if not case.fields:
        return None
    given = case.of(positive)
    if len(case.inputs) != 2 or len(case.fields) != 2 or not _broadcast(given.inputs):
        return False
    (quotient, *_), (a, b) = given.run(), given.inputs
    return _broadcast((quotient, b)) and is_close([quotient * b], [a + 0 * b])


def _subtracts(case: Case) -> bool | None:
    if not case.fields:
        return None
    given = case.of(whole(1))
    if len(case.inputs) != 2 or len(case.fields) != 2 or not _broadcast(given.inputs):
        return False
    return is_same(given.run(), [np.asarray(given.inputs[0] - given.inputs[1])])


def _bounds_above(case: Case) -> bool | None:
    if not case.is_single:
        return False if case.fields else None
    axes = case.attributes.get("axes", case.attributes.get("axis"))
    return all(
        _covers(given.run()[0], given.inputs[0], axes)
        for given in (case.of(make) for make in (distinct, whole(1), positive, _twos))
    )


def _twos(shape: tuple[int, ...], _: int) -> Array:
    return np.full(shape, 2.0)


def _covers(y: Array, x: Array, axes: Any) -> bool:
    """Return True if no element is greater than the one over it; None stands for all axes."""
    over = axes if axes is None or isinstance(axes, int) else tuple(axes)
    try:
        kept = np.max(x, axis=over, keepdims=True).shape
    except ValueError:
        return False
    return bool(y.size == np.prod(kept) and (x <= y.reshape(kept)).all())


def _squares(case: Case) -> bool | None:
    if not case.is_single:
        return False if case.fields else None
    given = case.of(whole(1))
    return is_same(given.run(), [given.inputs[0] ** 2])


def _converts(case: Case) -> bool | None:
    if not case.is_single or "dtype" not in case.attributes:
        return False if case.fields else None
    given = case.of(whole(1))
    return is_same([y.astype(np.float64) for y in given.run()], given.inputs)


def _commutes(case: Case) -> bool | None:
    if len(case.inputs) != 2:
        return False
    a, b = case.inputs
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return None  # what is no operand in the other place says nothing
    given = case.of(distinct)
    return is_close(given.run(), replace(given, inputs=given.inputs[::-1]).run())


def _limits(case: Case) -> bool | None:
    if 0 not in case.fields:
        return None
    low, given, high = (
        case.of(lambda shape, _, by=by: by + _around(shape), only=0) for by in (-1e9, 0.0, 1e9)
    )
    (a, *_), (y, *_), (b, *_) = (each.run() for each in (low, given, high))
    if not a.shape == y.shape == b.shape or not _broadcast((y, given.inputs[0])):
        return False
    kept = [r == each.inputs[0] for r, each in ((a, low), (y, given), (b, high))]
    return bool(((a < b) & ~(kept[0] & kept[2]) & (kept[1] | (y == a) | (y == b))).all())


def _around(shape: tuple[int, ...]) -> Array:
    return np.random.default_rng([7, *shape]).normal(size=shape)


def _keeps_some(case: Case) -> bool:
    given = case.of(lambda shape, _: _around(shape), only=0)
    y, x = given.run()[0], given.inputs[0]
    return y.shape == x.shape and bool((y == x).any())


def _steps(case: Case) -> bool | None:
    if not case.fields:
        return None
    given = case.of(many_digits)
    near = case.of(lambda shape, place: many_digits(shape, place) * (1 + 1e-12))
    return is_same(given.run(), near.run())


# --- where there is a value


def _total(case: Case) -> bool | None:
    if not case.fields:
        return None
    first, second = (watched(case.of(make)) for make in (whole(1), whole(2)))
    dependent = [
        a[0]
        for a, b in zip(first, second, strict=False)
        if a[0] != "matmul" and not is_same(a[1], b[1])
    ]
    if dependent or len(first) != len(second):
        return False
    other = case.of(hostile(2)).run()
    fixed = [
        bool(np.array_equal(y, z)) for y, z in zip(case.of(hostile(1)).run(), other, strict=True)
    ]
    results = [case.of(hostile(seed)).run() for seed in (0, 1, 2)]
    return all(
        same or bool(np.isfinite(y).all())
        for result in results
        for same, y in zip(fixed, result, strict=True)
    )


def _defined_for_positive(case: Case) -> bool | None:
    if not case.fields:
        return None
    given, *others = (
        case.of(make).run() for make in (positive, zeros, lambda shape, _: np.full(shape, -1.0))
    )
    return all(np.isfinite(y).all() for y in given) and not all(
        np.isfinite(y).any() for other in others for y in other
    )


def _gives_positive(case: Case) -> bool | None:
    if not case.fields or not case.real_outputs():
        return None
    return all(
        bool((y > 0).all()) for seed in (0, 1, 2) for y in case.of(hostile(seed)).real_outputs()
    )


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
    named = (
        places.reshape(-1)
        if axis is None
        else places
        if places.ndim == x.ndim
        else np.expand_dims(places, along)
    )
    beside = [
        (a, b) for i, (a, b) in enumerate(zip(named.shape, x.shape, strict=False)) if i != along
    ]
    if (
        named.ndim != x.ndim
        or any(a != b for a, b in beside)
        or named.min() < 0
        or named.max() >= x.shape[along]
    ):
        return False
    chosen = np.zeros(x.shape, dtype=bool)
    np.put_along_axis(chosen, named, True, along)
    most, least = (np.where(chosen, x, fill) for fill in (-np.inf, np.inf))
    others_most, others_least = (np.where(chosen, fill, x) for fill in (-np.inf, np.inf))
    if chosen.all():
        return True
    return bool(
        (least.min(along) > others_most.max(along)).all()
        or (most.max(along) < others_least.min(along)).all()
    )


def _chooses(case: Case) -> bool:
    *_, places = case.run()
    return places.size < case.inputs[0].size


def _changes(at: int) -> Callable[[Case], bool | None]:
    def law(case: Case) -> bool | None:
        if len(case.inputs) != 2 or case.run()[0].dtype != np.bool_:
            return None
        numbers = np.array([5, 0, -3])
        return all(
            bool((a != b).all())
            for a, b in zip(
                *(replace(case, inputs=(numbers + by, numbers)).run() for by in (at, at + 1)),
                strict=True,
            )
        )

    return law


def _reads_shape(case: Case) -> bool | None:
    if not case.inputs:
        return None
    first, second = (
        replace(case, inputs=tuple(np.full_like(x, number) for x in case.inputs))
        for number in (0, 1)
    )
    return (
        len(case.inputs) == 1
        and is_same(first.run(), second.run())
        and is_same(case.run(), second.run())
    )


def gradients_are_sums(case: Case) -> bool | None:
    """Return True if the gradient of every shared operand is a sum over two parts of a dimension.

    It is a leading dimension that the other operands lack.
    """
    x, *others = case.inputs
    leading = x.ndim - inner_dimensions(case.operator, case.attributes)
    if (
        case.operator.derivative is None
        or not others
        or max(case.operator.shared) > len(others)
        or not case.real_outputs()
    ):
        return None
    given = case.of(positive)
    (y,) = given.run()
    dy, found = whole(4)(y.shape, 0), []
    for axis in [
        a for a in range(leading) if x.shape[a] > 1 and a < y.ndim and y.shape[a] == x.shape[a]
    ]:
        places = [np.arange(1), np.arange(1, x.shape[axis])]
        parts = [
            replace(given, inputs=(given.inputs[0].take(p, axis), *given.inputs[1:]))
            for p in places
        ]
        if [_size(part, axis) for part in parts] != [1, x.shape[axis] - 1]:
            continue  # another operand has this dimension, too
        of_parts = [
            _gradients(part, dy.take(p, axis)) for part, p in zip(parts, places, strict=True)
        ]
        of_all = _gradients(given, dy)
        pairs = [
            (of_all[i], of_parts[0][i], of_parts[1][i])
            for i in case.operator.shared
            if i < len(case.inputs)
        ]
        found.append(
            all(a.shape == b.shape == c.shape and np.allclose(a, b + c) for a, b, c in pairs)
        )
    return all(found) if found else None


def _size(case: Case, axis: int) -> int:
    """Return the size of the result along ``axis``, 0 if there is none."""
    try:
        (y,) = case.run()
    except (PitcheckError, ValueError):
        return 0
    return int(y.shape[axis])


def _gradients(case: Case, dy: Array) -> list[Any]:
    (y,) = case.run()
    return evaluate(
        NumpyAlgebra(), f"{case.operator.name}.backward", (*case.inputs, y, dy), case.attributes
    )


def _place_by_place(case: Case) -> bool | None:
    """Return True if the result of a part is that part of the result, along every dimension."""
    shape = max((x.shape for x in case.inputs), key=len, default=())
    if max(shape, default=0) < 2 or any(x.shape not in (shape, ()) for x in case.inputs):
        return None
    whole_result = case.run()
    return all(
        _same_part(case, whole_result, axis, places)
        for axis, size in enumerate(shape)
        for places in (np.arange(1, size), np.arange(size - 1), np.arange(size)[::-1])
        if len(places)
    )


def _same_part(case: Case, whole_result: list[Array], axis: int, places: Array) -> bool:
    inputs = tuple(x.take(places, axis) if x.ndim else x for x in case.inputs)
    shape = max((x.shape for x in case.inputs), key=len)
    if any(y.shape != shape for y in whole_result):
        return False
    try:
        found = replace(case, inputs=inputs).run()
    except (PitcheckError, ValueError, IndexError):
        return False
    return all(
        is_same(part, y.take(places, axis)) for part, y in zip(found, whole_result, strict=True)
    )


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
    Trait.FLIPS_SIGNS: Law(lambda case: True if case.fields else None, _has_opposites),
    Trait.GIVES_BITS: Law(_gives_bits),
    Trait.ADDS_TERMS: Law(_adds_terms, mixes),
    Trait.ADDS_WITHIN: Law(_adds_within, mixes),
    Trait.NORMALIZES: Law(
        lambda case: True if case.fields else None,
        lambda case: mixes(case, case.fields[:1]) and _rounds_nothing(case) is False,
    ),
    Trait.ADDS_MEMBERS: Law(_of_collective(_adds_members), _has_terms),
    Trait.ADDS_PLAINLY: Law(_adds_plainly, _has_terms),
    Trait.ADDS_ALONG: Law(_adds_along, mixes),
    Trait.AVERAGES: Law(_averages, mixes),
    Trait.KEEPS_SIZES: Law(_of_collective(_keeps_sizes), _has_terms),
    Trait.LEAVES_OTHER_AXES: Law(_of_collective(_leaves_other_axes), _has_terms),
    Trait.PLACE_BY_PLACE: Law(_place_by_place, lambda case: case.inputs[0].size > 1),
    Trait.MULTILINEAR: Law(_multilinear, lambda case: len(case.fields) > 1),
    Trait.SCALES: Law(_scales, _is_scaled),
    Trait.CONTRACTS: Law(_contracts, _is_contraction),
    Trait.MULTIPLIES_MATRICES: Law(
        lambda case: True if case.fields else None, _multiplies_matrices
    ),
    Trait.TAKES_ROOT: Law(_takes_root),
    Trait.DIVIDES: Law(_divides),
    Trait.SUBTRACTS: Law(_subtracts),
    Trait.BOUNDS_ABOVE: Law(_bounds_above, lambda case: case.inputs[0].size > case.run()[0].size),
    Trait.SQUARES: Law(_squares),
    Trait.CONVERTS: Law(_converts),
    Trait.COMMUTES: Law(_commutes),
    Trait.LIMITS: Law(_limits, _keeps_some),
    Trait.STEPS: Law(_steps),
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
    """Return True if an operator claims a trait with these attributes.

    It need not be registered.
    """
    return trait in operator.traits or (
        trait in operator.conditional and operator.conditional[trait](attributes)
    )


def broken_by(operator: OperatorKind, trait: Trait, cases: Sequence[Case]) -> str:
    """Why an operator that claims a trait, on these rows, does not have it; "" where it has."""
    law = LAWS[trait]
    asked = [(case, law.holds(case)) for case in cases]
    for case, held in asked:
        if held is False:
            shapes = ", ".join(str(x.shape) for x in case.inputs)
            return (
                f"{operator.name} with {dict(case.attributes)} on operands of shapes {shapes} "
                f"is not {trait}"
            )
    if not any(held and law.shows(case) for case, held in asked):
        return f"no row of {operator.name} shows that it is {trait}"
    return ""
