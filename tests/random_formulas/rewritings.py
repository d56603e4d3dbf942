"""Rewritings of a term that are right for all real numbers for which the term is defined."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

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
from random_formulas.term import BOOL, FLOAT, INT, Number, Term, op

Rewriting = Callable[[Term, random.Random], Term | None]
TURNED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}
OPPOSITE = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}


def rewritten(term: Term, rng: random.Random) -> Term | None:
    """Return a term of the same value made by one applicable rewriting, None if there is none."""
    names = [*BY_KIND.get(term.kind, ()), *ANY]
    rng.shuffle(names)
    for rewriting in names:
        found = rewriting(term, rng)
        if found is not None and found != term:
            return found
    return None


def _commuted(t: Term, _rng: random.Random) -> Term | None:
    a, b = t.inputs
    return two(t.kind, b, a)


def _distributed(t: Term, _rng: random.Random) -> Term | None:
    a, b = t.inputs
    if isinstance(b, Term) and b.kind in ("add", "sub") and not b.attributes:
        return two(b.kind, mul(a, b.inputs[0]), mul(a, b.inputs[1]))
    return None


def _subtracted(t: Term, _rng: random.Random) -> Term | None:
    a, b = t.inputs
    return add(op("neg", b), a) if isinstance(b, Term) else None


def _divided(t: Term, _rng: random.Random) -> Term | None:
    a, b = t.inputs
    return mul(a, op("reciprocal", b)) if isinstance(b, Term) and b.dtype == FLOAT else None


def _squared(t: Term, _rng: random.Random) -> Term | None:
    return mul(*t.terms, *t.terms)


def _exp(t: Term, _rng: random.Random) -> Term | None:
    (x,) = t.terms
    if x.kind in ("add", "sub") and len(x.terms) == 2:
        a, b = x.terms
        return two("mul" if x.kind == "add" else "div", op("exp", a), op("exp", b))
    half = mul(x, literal("1/2"))
    return mul(op("exp", half), op("exp", half))


def _sigmoid(t: Term, _rng: random.Random) -> Term | None:
    (x,) = t.terms
    below = add(op("exp", op("neg", x)), literal(1))
    return op("reciprocal", below)


def _silu(t: Term, _rng: random.Random) -> Term | None:
    (x,) = t.terms
    return mul(x, op("sigmoid", x))


def _tanh(t: Term, _rng: random.Random) -> Term | None:
    (x,) = t.terms
    return sub(mul(op("sigmoid", mul(x, literal(2))), literal(2)), literal(1))


def _relu(t: Term, rng: random.Random) -> Term | None:
    (x,) = t.terms
    if rng.random() < 0.5:
        return where(two("gt", x, literal(0)), x, literal(0))
    return op("clamp", x, min=0)


def _abs(t: Term, _rng: random.Random) -> Term | None:
    (x,) = t.terms
    return two("maximum", x, op("neg", x))


def _rsqrt(t: Term, _rng: random.Random) -> Term | None:
    (x,) = t.terms
    return op("reciprocal", op("sqrt", x))


def _cut_place(t: Term, axis: int, rng: random.Random) -> int | None:
    return rng.randrange(1, t.shape[axis]) if t.shape[axis] > 1 else None


def _axis_of(t: Term) -> int | None:
    axes = t.attribute("axes")
    if isinstance(axes, tuple) and len(axes) == 1 and isinstance(axes[0], int):
        return axes[0]
    axis = t.attribute("axis")
    return axis if isinstance(axis, int) else None


def _halves(t: Term, rng: random.Random) -> tuple[Term, Term, int] | None:
    x, axis = t.terms[0], _axis_of(t)
    if axis is None:
        return None
    axis %= len(x.shape)
    cut = _cut_place(x, axis, rng)
    if cut is None:
        return None
    return part(x, axis, 0, cut), part(x, axis, cut, x.shape[axis]), axis


def _again(t: Term, x: Term) -> Term:
    return Term(t.kind, (x,), t.shape, t.dtype, t.attributes)


def _summed_in_parts(t: Term, rng: random.Random) -> Term | None:
    halves = _halves(t, rng)
    return None if halves is None else add(_again(t, halves[0]), _again(t, halves[1]))


def _largest_in_parts(t: Term, rng: random.Random) -> Term | None:
    halves = _halves(t, rng)
    kind = "maximum" if t.kind == "amax" else "minimum"
    return None if halves is None else two(kind, _again(t, halves[0]), _again(t, halves[1]))


def _mean(t: Term, rng: random.Random) -> Term | None:
    x, axis = t.terms[0], _axis_of(t)
    if axis is None:
        return None
    total = Term("sum", t.inputs, t.shape, t.dtype, t.attributes)
    count = x.shape[axis]
    return div(total, literal(count)) if rng.random() < 0.5 else mul(total, literal(f"1/{count}"))


def _softmax(t: Term, rng: random.Random) -> Term | None:
    x, axis = t.terms[0], _axis_of(t)
    if axis is None:
        return None
    if rng.random() < 0.5:
        x = sub(x, reduced("amax", x, axis))
    above = op("exp", x)
    return div(above, reduced("sum", above, axis))


def _log_softmax(t: Term, rng: random.Random) -> Term | None:
    x, axis = t.terms[0], _axis_of(t)
    if axis is None:
        return None
    if rng.random() < 0.5:
        x = sub(x, reduced("amax", x, axis))
    return sub(x, op("log", reduced("sum", op("exp", x), axis)))


def _logsumexp(t: Term, _rng: random.Random) -> Term | None:
    x, axis = t.terms[0], _axis_of(t)
    if axis is None or not t.attribute("keepdim"):
        return None
    most = reduced("amax", x, axis)
    return add(most, op("log", reduced("sum", op("exp", sub(x, most)), axis)))


def _rms_norm(t: Term, _rng: random.Random) -> Term | None:
    (x,) = t.terms
    eps = str(t.attribute("eps"))
    return mul(x, op("rsqrt", add(reduced("mean", op("square", x), 1), literal(eps))))


def _layer_norm(t: Term, _rng: random.Random) -> Term | None:
    (x,) = t.terms
    centred = sub(x, reduced("mean", x, 1))
    return mul(
        centred,
        op(
            "rsqrt",
            add(reduced("mean", op("square", centred), 1), literal(str(t.attribute("eps")))),
        ),
    )


def _running_in_parts(t: Term, rng: random.Random) -> Term | None:
    halves = _halves(t, rng)
    if halves is None:
        return None
    first, second, axis = halves
    return joined(
        [
            op("cumsum", first, axis=axis),
            add(op("cumsum", second, axis=axis), reduced("sum", first, axis)),
        ],
        axis,
    )


def _flipped_in_parts(t: Term, rng: random.Random) -> Term | None:
    halves = _halves(t, rng)
    if halves is None:
        return None
    first, second, axis = halves
    return joined([op("flip", second, axes=(axis,)), op("flip", first, axes=(axis,))], axis)


def _rolled_in_parts(t: Term, _rng: random.Random) -> Term | None:
    x, axis, shift = t.terms[0], t.attribute("axis"), t.attribute("shift")
    if not isinstance(axis, int) or not isinstance(shift, int):
        return None
    size = x.shape[axis]
    cut = (size - shift) % size
    if cut in (0, size):
        return None
    return joined([part(x, axis, cut, size), part(x, axis, 0, cut)], axis)


def _triangle(t: Term, _rng: random.Random) -> Term | None:
    (x,) = t.terms
    diagonal = t.attribute("diagonal")
    if not isinstance(diagonal, int):
        return None
    beyond = sub(places(x, 1), places(x, 0))
    kept = two("le" if t.kind == "tril" else "ge", beyond, literal(diagonal))
    return where(kept, x, literal(0))


def _turned_where(t: Term, _rng: random.Random) -> Term | None:
    condition, a, b = t.inputs
    if not isinstance(condition, Term):
        return None
    return Term("where", (op("logical_not", condition), b, a), t.shape, t.dtype)


def _extreme(t: Term, rng: random.Random) -> Term | None:
    a, b = t.inputs
    if not (isinstance(a, Term) and isinstance(b, Term)) or a.dtype != FLOAT:
        return _commuted(t, rng)
    if rng.random() < 0.5:
        other = "minimum" if t.kind == "maximum" else "maximum"
        return op("neg", two(other, op("neg", a), op("neg", b)))
    return where(two("ge" if t.kind == "maximum" else "le", a, b), a, b)


def _clamp(t: Term, _rng: random.Random) -> Term | None:
    low = t.attribute("min")
    if low is None or t.attribute("max") is not None or isinstance(low, tuple | bool):
        return None
    return two("maximum", t.terms[0], literal(str(low)))


def _compared(t: Term, rng: random.Random) -> Term | None:
    a, b = t.inputs
    if rng.random() < 0.5 and isinstance(b, Term):
        return two(TURNED[t.kind], b, a)
    return op("logical_not", two(OPPOSITE[t.kind], a, b), dtype=BOOL)


def _matmul(t: Term, rng: random.Random) -> Term | None:
    a, b = t.terms
    if len(a.shape) != 2:
        return None
    cut = _cut_place(a, 1, rng)
    if cut is None:
        return None
    size = a.shape[1]
    return add(
        op("matmul", part(a, 1, 0, cut), part(b, 0, 0, cut), shape=t.shape),
        op("matmul", part(a, 1, cut, size), part(b, 0, cut, size), shape=t.shape),
    )


def _embedding(t: Term, rng: random.Random) -> Term | None:
    index, table = t.terms
    cut = _cut_place(table, 0, rng)
    if cut is None or len(index.shape) != 1:
        return None
    count = table.shape[0]
    total: Term | None = None
    for start, stop in ((0, cut), (cut, count)):
        low = two("ge", index, literal(start))
        inside = two("logical_and", low, two("lt", index, literal(stop)))
        place = op("cast", where(inside, sub(index, literal(start)), literal(0)), dtype=INT)
        rows = op("embedding", place, part(table, 0, start, stop), shape=t.shape, dtype=table.dtype)
        column = op("reshape", inside, shape=(*index.shape, 1), sizes=(*index.shape, 1))
        kept = where(column, rows, literal(0))
        total = kept if total is None else add(total, kept)
    return total


def _quotient_and_rest(t: Term, _rng: random.Random) -> Term | None:
    i, n = t.inputs
    if not isinstance(i, Term) or i.dtype != INT or not isinstance(n, Number):
        return None
    whole = mul(op("floor_divide", i, n, dtype=INT), n)
    return sub(i, whole)


def _cast(t: Term, _rng: random.Random) -> Term | None:
    (x,) = t.terms
    if x.dtype != BOOL or t.dtype != FLOAT:
        return None
    one = op("full_like", x, dtype=FLOAT, value=1)
    return where(x, one, literal(0))


def _attention(t: Term, _rng: random.Random) -> Term | None:
    q, k, v = t.terms
    _, rows, columns = q.shape
    turned = op("transpose", k, shape=(1, columns, rows), dim0=1, dim1=2)
    scores = mul(op("matmul", q, turned, shape=(1, rows, rows)), literal(f"sqrt(1/{columns})"))
    if t.attribute("is_causal"):
        seen = two("le", places(scores, 2), places(scores, 1))
        scores = where(seen, scores, literal("-inf"))
    return op("matmul", op("softmax", scores, axis=2), v, shape=t.shape)


def _cross_entropy(t: Term, _rng: random.Random) -> Term | None:
    x, target = t.terms
    rows = x.shape[0]
    index = op("reshape", target, shape=(rows, 1), sizes=(rows, 1))
    picked = op("gather", op("log_softmax", x, axis=1), index, shape=(rows, 1), axis=1)
    return op("neg", op("reshape", picked, shape=(rows,), sizes=(rows,)))


def _one_hot(t: Term, _rng: random.Random) -> Term | None:
    (index,) = t.terms
    if len(index.shape) != 1:
        return None
    column = op("reshape", index, shape=(*index.shape, 1), sizes=(*index.shape, 1))
    line = op("positions", t, shape=(t.shape[1],), dtype=INT, axis=1)
    return op("cast", two("eq", column, line), dtype=INT)


def _einsum(t: Term, rng: random.Random) -> Term | None:
    a, b = t.terms
    if t.attribute("equation") != "nd,ne->de":
        turned = op("transpose", b, shape=(b.shape[1], b.shape[0]), dim0=0, dim1=1)
        return op("matmul", a, turned, shape=t.shape)
    rows = a.shape[0]
    cut = rng.randrange(1, rows)
    return add(
        replace(t, inputs=(part(a, 0, 0, cut), part(b, 0, 0, cut))),
        replace(t, inputs=(part(a, 0, cut, rows), part(b, 0, cut, rows))),
    )


def _gradient(t: Term, _rng: random.Random) -> Term | None:
    x, g = t.terms
    if t.kind == "exp.backward":
        return mul(g, op("exp", x))
    if t.kind == "square.backward":
        return mul(mul(x, literal(2)), g)
    if t.kind == "relu.backward":
        return where(two("gt", x, literal(0)), g, literal(0))
    y = op(t.kind.removesuffix(".backward"), x)
    if t.kind == "sigmoid.backward":
        return mul(g, sub(y, mul(y, y)))
    if t.kind == "tanh.backward":
        return sub(g, mul(g, op("square", y)))
    return mul(g, op("sigmoid", x)) if t.kind == "softplus.backward" else None


def _softmax_gradient(t: Term, _rng: random.Random) -> Term | None:
    (x, g), axis = t.terms, _axis_of(t)
    if axis is None:
        return None
    y = op("softmax", x, axis=axis)
    if t.kind == "log_softmax.backward":
        return sub(g, mul(y, reduced("sum", g, axis)))
    return mul(y, sub(g, reduced("sum", mul(g, y), axis)))


def _running_gradient(t: Term, _rng: random.Random) -> Term | None:
    (_, g), axis = t.terms, _axis_of(t)
    if axis is None:
        return None
    turned = op("cumsum", op("flip", g, axes=(axis,)), axis=axis)
    return op("flip", turned, axes=(axis,))


def _power(t: Term, _rng: random.Random) -> Term | None:
    (x,), exponent = t.terms, t.attribute("exponent")
    if exponent == 3:
        return mul(op("square", x), x)
    if exponent == -1:
        return op("reciprocal", x)
    root = op("sqrt", x)
    return root if exponent == "1/2" else op("reciprocal", mul(x, root))


def _variance(t: Term, _rng: random.Random) -> Term | None:
    x, axis = t.terms[0], _axis_of(t)
    if axis is None:
        return None
    size = x.shape[axis]
    centred = sub(x, reduced("mean", x, axis))
    return mul(reduced("mean", op("square", centred), axis), literal(f"{size}/{size - 1}"))


def _added_by_index(t: Term, rng: random.Random) -> Term | None:
    base, index, source = t.terms
    rows = source.shape[0]
    cut = rng.randrange(1, rows)
    first = replace(t, inputs=(base, part(index, 0, 0, cut), part(source, 0, 0, cut)))
    return replace(t, inputs=(first, part(index, 0, cut, rows), part(source, 0, cut, rows)))


def _cut_and_joined(t: Term, rng: random.Random) -> Term | None:
    axes = [axis for axis, size in enumerate(t.shape) if size > 1]
    if not axes:
        return None
    axis = rng.choice(axes)
    cut = rng.randrange(1, t.shape[axis])
    return joined([part(t, axis, 0, cut), part(t, axis, cut, t.shape[axis])], axis)


def _moved_twice(t: Term, rng: random.Random) -> Term | None:
    axes = [axis for axis, size in enumerate(t.shape) if size > 1]
    if not axes:
        return None
    axis = rng.choice(axes)
    if rng.random() < 0.5:
        return op("flip", op("flip", t, axes=(axis,)), axes=(axis,))
    shift = rng.randrange(1, t.shape[axis])
    return op("roll", op("roll", t, axis=axis, shift=shift), axis=axis, shift=-shift)


def _scaled_twice(t: Term, rng: random.Random) -> Term | None:
    if t.dtype != FLOAT:
        return None
    return div(mul(t, literal(3)), literal(3)) if rng.random() < 0.5 else sub(add(t, t), t)


BY_KIND: Mapping[str, tuple[Rewriting, ...]] = {
    "add": (_commuted,),
    "mul": (_commuted, _distributed),
    "sub": (_subtracted,),
    "div": (_divided,),
    "square": (_squared,),
    "exp": (_exp,),
    "sigmoid": (_sigmoid,),
    "silu": (_silu,),
    "tanh": (_tanh,),
    "relu": (_relu,),
    "abs": (_abs,),
    "rsqrt": (_rsqrt,),
    "sum": (_summed_in_parts,),
    "mean": (_mean,),
    "amax": (_largest_in_parts,),
    "amin": (_largest_in_parts,),
    "softmax": (_softmax,),
    "log_softmax": (_log_softmax,),
    "logsumexp": (_logsumexp,),
    "rms_norm": (_rms_norm,),
    "layer_norm": (_layer_norm,),
    "cumsum": (_running_in_parts,),
    "flip": (_flipped_in_parts,),
    "roll": (_rolled_in_parts,),
    "tril": (_triangle,),
    "triu": (_triangle,),
    "where": (_turned_where,),
    "maximum": (_extreme,),
    "minimum": (_extreme,),
    "clamp": (_clamp,),
    **dict.fromkeys(("lt", "le", "gt", "ge", "eq", "ne"), (_compared,)),
    **dict.fromkeys(
        tuple(
            f"{kind}.backward" for kind in ("exp", "square", "relu", "sigmoid", "tanh", "softplus")
        ),
        (_gradient,),
    ),
    **dict.fromkeys(("softmax.backward", "log_softmax.backward"), (_softmax_gradient,)),
    "cumsum.backward": (_running_gradient,),
    "scaled_dot_product_attention": (_attention,),
    "cross_entropy": (_cross_entropy,),
    "one_hot": (_one_hot,),
    "einsum": (_einsum,),
    "pow": (_power,),
    "var": (_variance,),
    "index_add": (_added_by_index,),
    "matmul": (_matmul,),
    "embedding": (_embedding,),
    "remainder": (_quotient_and_rest,),
    "cast": (_cast,),
}
"""The rewritings of one kind of operator, which are tried before those of any kind."""

ANY: tuple[Rewriting, ...] = (_cut_and_joined, _moved_twice, _scaled_twice)
