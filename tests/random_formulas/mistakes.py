"""Mistakes at one term that show at the full size or at rare numbers only.

Every mistake names the numbers at which it shows, so that the judge can try them: ``hints`` maps an
input to numbers that some of its elements should take.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pitcheck.execution.places import number as number_of
from random_formulas.growth import RANGE
from random_formulas.shapes import (
    add,
    div,
    joined,
    literal,
    mul,
    part,
    places,
    reduced,
    sub,
    two,
    where,
)
from random_formulas.term import FLOAT, GIVEN, INT, Number, Term, given, op, walk

BEYOND = 5
"""The least place that a reduced axis may not have."""


@dataclass(frozen=True)
class Mistaken:
    """A wrong term, and numbers of inputs at which it may show."""

    term: Term
    hints: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


Mistake = Callable[[Term, random.Random, int], Mistaken | Term | None]
"""A function of a term, a generator, and the number of rows of the given matrices."""


def mistaken(formula: Term, rng: random.Random, rows: int) -> tuple[str, Term, Mistaken] | None:
    """Return the name of a mistake, the term it is made at, and the wrong term.

    All kinds of mistakes are as likely. Return None if none applies.
    """
    places_of = [term for term in walk(formula) if term.kind != GIVEN]
    for name in rng.sample(sorted(MISTAKES), len(MISTAKES)):
        for place in rng.sample(places_of, len(places_of)):
            found = MISTAKES[name](place, rng, rows)
            wrong = Mistaken(found) if isinstance(found, Term) else found
            if wrong is not None and wrong.term != place:
                return name, place, wrong
    return None


def _number_of(term: Term) -> float:
    for each in term.inputs:
        if isinstance(each, Number):
            return number_of(each.value)
    return 0.0


def _matrix(t: Term) -> bool:
    return t.dtype == FLOAT and len(t.shape) == 2


def _far_axis(t: Term, rng: random.Random) -> int | None:
    axes = [axis for axis, size in enumerate(t.shape) if size > BEYOND + 1]
    return rng.choice(axes) if axes else None


def _one_place(t: Term, rng: random.Random, _rows: int) -> Term | None:
    """One row or column beyond the reduced size is changed."""
    axis = _far_axis(t, rng)
    if axis is None or not _matrix(t):
        return None
    place = rng.choice((t.shape[axis] - 1, rng.randrange(BEYOND, t.shape[axis])))
    here = two("eq", places(t, axis), literal(place))
    other = rng.choice((literal(0), mul(t, literal(2)), add(t, literal(1)), op("neg", t)))
    return where(here, other, t)


def _one_element(t: Term, rng: random.Random, _rows: int) -> Term | None:
    """One element beyond the reduced sizes is changed."""
    if not _matrix(t) or min(t.shape) <= BEYOND:
        return None
    here = [
        two("eq", places(t, axis), literal(rng.randrange(BEYOND, t.shape[axis]))) for axis in (0, 1)
    ]
    return where(two("logical_and", *here), literal(0), t)


def _shifted_cut(t: Term, rng: random.Random, _rows: int) -> Term | None:
    """A part repeats the element before it in place of its last."""
    axis = _far_axis(t, rng)
    if axis is None or t.dtype != FLOAT:
        return None
    size = t.shape[axis]
    cut = rng.randrange(BEYOND, size)
    return joined(
        [part(t, axis, 0, cut), part(t, axis, cut - 1, size - 1)],
        axis,
    )


def _exchanged(t: Term, rng: random.Random, _rows: int) -> Term | None:
    """Two far rows or columns are exchanged."""
    axis = _far_axis(t, rng)
    if axis is None or t.dtype != FLOAT:
        return None
    size = t.shape[axis]
    cut = rng.randrange(BEYOND - 1, size - 1)
    parts = [
        part(t, axis, 0, cut),
        part(t, axis, cut + 1, cut + 2),
        part(t, axis, cut, cut + 1),
    ]
    if cut + 2 < size:
        parts.append(part(t, axis, cut + 2, size))
    return joined(parts, axis)


def _rotated(t: Term, rng: random.Random, _rows: int) -> Term | None:
    """Elements are rolled by a multiple of a small size, which small sizes do not show."""
    axis = _far_axis(t, rng)
    if axis is None or t.dtype != FLOAT:
        return None
    return op("roll", t, axis=axis, shift=rng.choice((1, t.shape[axis] // 2, 4, t.shape[axis] - 1)))


def _threshold(t: Term, rng: random.Random, _rows: int) -> Mistaken | None:
    """A comparison with a literal has another literal."""
    if t.kind not in TO_STRICT or not isinstance(t.inputs[1], Number):
        return None
    was = number_of(t.inputs[1].value)
    now = was + rng.choice((1, -1, 10, 30))
    return Mistaken(replace(t, inputs=(t.inputs[0], Number(_exact(now)))), _hints(t, (was, now)))


def _exact(value: float) -> int | float:
    return int(value) if value == int(value) else value


def _hints(t: Term, values: tuple[float, ...]) -> Mapping[str, tuple[float, ...]]:
    """Return numbers for the given tensors that a condition reads, around those named."""
    near = tuple(v + d for v in values for d in (-1, 0, 1))
    found: dict[str, tuple[float, ...]] = {}
    stack = [t]
    while stack:
        term = stack.pop()
        if term.kind == GIVEN:
            found[term.name] = near
        stack.extend(term.terms)
    return found


TO_STRICT = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "eq": "ge", "ne": "lt"}


def _strict(t: Term, _rng: random.Random, _rows: int) -> Mistaken | None:
    """A comparison is strict where it was not, or the reverse."""
    if t.kind not in TO_STRICT:
        return None
    kind = TO_STRICT[t.kind]
    return Mistaken(replace(t, kind=kind), _hints(t, (_number_of(t),)))


def _bound(t: Term, rng: random.Random, _rows: int) -> Mistaken | None:
    """Rare numbers are clamped."""
    if not _matrix(t):
        return None
    limit = rng.choice((50, 200, 1000))
    kind = rng.choice(("minimum", "where"))
    if kind == "minimum":
        return Mistaken(two("minimum", t, literal(limit)), _hints(t, (limit, 3 * limit)))
    high = two("gt", t, literal(limit))
    return Mistaken(where(high, literal(0), t), _hints(t, (limit, 3 * limit)))


def _count(t: Term, rng: random.Random, _rows: int) -> Term | None:
    """A mean divides by another count."""
    if t.kind != "mean":
        return None
    axes = t.attribute("axes")
    if not isinstance(axes, tuple) or len(axes) != 1 or not isinstance(axes[0], int):
        return None
    total = Term("sum", t.inputs, t.shape, t.dtype, t.attributes)
    size = t.terms[0].shape[axes[0]]
    return div(total, literal(size + rng.choice((1, -1))))


def _last_left_out(t: Term, _rng: random.Random, _rows: int) -> Term | None:
    """A reduction leaves the last element out."""
    axes = t.attribute("axes")
    if t.kind not in ("sum", "mean", "amax", "amin") or not isinstance(axes, tuple):
        return None
    (x,), axis = t.terms, axes[0]
    if not isinstance(axis, int) or x.shape[axis] <= BEYOND:
        return None
    return replace(t, inputs=(part(x, axis, 0, x.shape[axis] - 1),))


def _sized(t: Term, rng: random.Random, _rows: int) -> Term | None:
    """A polynomial of an axis's size that is 0 at small sizes is added."""
    axis = _far_axis(t, rng)
    if axis is None or not _matrix(t):
        return None
    size = reduced("sum", op("full_like", t, value=1), axis)
    product = sub(size, literal(2))
    for small in range(3, BEYOND + 1):
        product = mul(product, sub(size, literal(small)))
    return add(t, product)


def _own_quotient(t: Term, rng: random.Random, _rows: int) -> Mistaken | None:
    """A factor x / x is not defined at 0."""
    if not _matrix(t):
        return None
    x = _some_input(t, rng)
    if x is None:
        return None
    y = op("flip", x, axes=(0,)) if rng.random() < 0.4 and len(x.shape) == 2 else x
    return Mistaken(mul(t, div(y, y)), {x.name: (0.0,)})


def _logarithm(t: Term, rng: random.Random, _rows: int) -> Mistaken | None:
    """A way through a logarithm or a root is not defined for negative numbers."""
    x = _some_input(t, rng)
    if not _matrix(t) or x is None:
        return None
    kind = rng.choice(("log", "sqrt"))
    lost = mul(op(kind, x), literal(0))
    return Mistaken(add(t, lost), {x.name: (-1.0, 0.0)})


def _some_input(t: Term, rng: random.Random) -> Term | None:
    """Return a given tensor that the term reads, of its shape or one that broadcasts to it."""
    found = [
        term
        for term in walk(t)
        if term.kind == GIVEN
        and term.dtype == FLOAT
        and len(term.shape) == 2
        and (term.shape == t.shape or 1 in term.shape)
    ]
    return rng.choice(sorted(found, key=lambda each: each.name)) if found else None


def _masked_quotient(t: Term, rng: random.Random, _rows: int) -> Mistaken | None:
    """A quotient is taken where a condition has kept it from 0, and then hidden by a factor."""
    x = _some_input(t, rng)
    if not _matrix(t) or x is None:
        return None
    mask = op("cast", two("ge", x, literal(0)), dtype=FLOAT)
    hidden = mul(op("reciprocal", x), literal(0))
    kept = where(two("gt", x, literal(0)), hidden, literal(0))
    how = rng.randrange(2)
    return Mistaken(add(t, mul(hidden, mask) if how else add(hidden, kept)), {x.name: (0.0,)})


def _two_integers(t: Term, rng: random.Random, rows: int) -> Mistaken | None:
    """Two computed integers are equal for few numbers."""
    if not _matrix(t) or t.shape[0] != rows:
        return None
    i, j = (given(name, rows, 1, dtype=INT, bounds=(0, RANGE)) for name in "ij")
    value, factor = rng.randrange(1, RANGE // 8), rng.randrange(2, 8)
    here = two("eq", sub(i, mul(j, literal(factor))), literal(0))
    if rng.random() < 0.5:
        here = two("eq", add(i, j), literal(2 * RANGE - 2))
        return Mistaken(where(here, literal(0), t), {"i": (RANGE - 1,), "j": (RANGE - 1,)})
    high = two("logical_and", here, two("eq", j, literal(value)))
    return Mistaken(where(high, literal(0), t), {"i": (value * factor,), "j": (value,)})


def _near_threshold(t: Term, rng: random.Random, rows: int) -> Mistaken | None:
    """Two conditions on one computed integer differ for one number."""
    if not _matrix(t) or t.shape[0] != rows:
        return None
    i = given("i", rows, 1, dtype=INT, bounds=(0, RANGE))
    value, factor = rng.randrange(1, RANGE), rng.randrange(2, 40)
    first = two("ge", mul(i, literal(factor)), literal(factor * value))
    second = two("gt", mul(i, literal(factor)), literal(factor * value))
    return Mistaken(where(two("logical_xor", first, second), literal(0), t), {"i": (value,)})


def _integer(t: Term, rng: random.Random, rows: int) -> Mistaken | None:
    """One integer of many is treated in another way, as a computed number shows."""
    if not _matrix(t) or t.shape[0] != rows:
        return None
    i = given("i", rows, 1, dtype=INT, bounds=(0, RANGE))
    value = rng.randrange(RANGE)
    how = rng.randrange(5)
    if how == 0:
        here = two("eq", i, literal(value))
    elif how == 1:
        factor = rng.randrange(2, 40)
        here = two("eq", mul(i, literal(factor)), literal(value * factor))
    elif how == 2:
        here = two("eq", mul(i, i), literal(value * value))
    elif how == 3:
        here = two("eq", op("floor_divide", i, literal(17), dtype=INT), literal(value // 17))
    else:
        here = two("eq", op("remainder", i, literal(997), dtype=INT), literal(value % 997))
    return Mistaken(where(here, literal(0), t), {"i": (value,)})


def _literal(t: Term, rng: random.Random, _rows: int) -> Term | None:
    """A literal is slightly different."""
    places_of = [n for n, each in enumerate(t.inputs) if isinstance(each, Number)]
    if not places_of or t.dtype != FLOAT or t.kind in TO_STRICT:
        return None
    place = rng.choice(places_of)
    each = t.inputs[place]
    if not isinstance(each, Number):
        return None
    inputs = list(t.inputs)
    inputs[place] = Number(number_of(each.value) + 2.0**-12)
    return replace(t, inputs=tuple(inputs))


def _operator(t: Term, _rng: random.Random, _rows: int) -> Term | None:
    """Another operator of the same form stands in its place."""
    others = {
        "add": "sub",
        "maximum": "minimum",
        "amax": "amin",
        "tril": "triu",
        "sigmoid": "tanh",
        "logical_and": "logical_or",
        "logical_xor": "logical_or",
        "softmax": "log_softmax",
        "sum": "mean",
    }
    return replace(t, kind=others[t.kind]) if t.kind in others else None


def _running(t: Term, _rng: random.Random, _rows: int) -> Term | None:
    """A running sum leaves its own element out."""
    return sub(t, t.terms[0]) if t.kind == "cumsum" else None


MISTAKES: Mapping[str, Mistake] = {
    "one place": _one_place,
    "one element": _one_element,
    "shifted cut": _shifted_cut,
    "exchanged places": _exchanged,
    "rotation": _rotated,
    "threshold": _threshold,
    "strictness": _strict,
    "clamp": _bound,
    "count": _count,
    "last left out": _last_left_out,
    "size": _sized,
    "quotient's domain": _own_quotient,
    "logarithm's domain": _logarithm,
    "masked quotient": _masked_quotient,
    "integer": _integer,
    "two integers": _two_integers,
    "near threshold": _near_threshold,
    "literal": _literal,
    "operator": _operator,
    "running sum": _running,
}
