"""Random formulas over all kinds of operators.

Exponentials, logarithms, roots and quotients are taken of numbers for which float64 computes them
well, so that the judge is right: nothing overflows, and nothing cancels but by a mistake.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from random_formulas.shapes import add, div, literal, mul, part, places, reduced, sub, two, where
from random_formulas.term import FLOAT, INT, Term, given, op

ROWS = (16, 24, 32, 48, 64)
COLUMNS = (6, 8, 12)
LITERALS = (2, 3, "1/2", "1/3", -1, 5, "3/4")
THRESHOLDS = (0, 1, -1, 2, "1/2", 100, -50, 110)
CLASSES = 40
RANGE = 2000

Step = Callable[["Growth"], Term | None]


class Growth:
    """A pool of terms that grows by random steps.

    ``rows`` and ``columns`` are the sizes of the matrices x, y and z; v and u are vectors over the
    rows, i and j integers below ``RANGE`` over the rows, k integers below ``CLASSES``, w a square
    matrix over the columns, table a matrix of ``CLASSES`` rows.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.rows, self.columns = rng.choice(ROWS), rng.choice(COLUMNS)
        n, d = self.rows, self.columns
        self.inputs = {
            "x": given("x", n, d),
            "y": given("y", n, d),
            "z": given("z", n, d),
            "v": given("v", n, 1),
            "u": given("u", 1, d),
            "w": given("w", d, d),
            "table": given("table", CLASSES, d),
            "i": given("i", n, 1, dtype=INT, bounds=(0, RANGE)),
            "j": given("j", n, 1, dtype=INT, bounds=(0, RANGE)),
            "k": given("k", n, dtype=INT, bounds=(0, CLASSES)),
        }
        self.pool = [self.inputs[name] for name in "xyz"]
        self.masks: list[Term] = []

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of a matrix."""
        return self.rows, self.columns

    def any(self) -> Term:
        """Return a matrix, the newest ones with preference."""
        return self.rng.choice(self.pool[-3:] if self.rng.random() < 0.7 else self.pool)

    def tame(self) -> Term:
        """Return a matrix whose elements are of moderate size."""
        x = self.any()
        return self.inputs[self.rng.choice("xyz")] if self.rng.random() < 0.3 else op("tanh", x)

    def positive(self) -> Term:
        """Return a matrix that is positive."""
        x = self.tame()
        how = self.rng.randrange(4)
        if how == 0:
            return op("exp", x)
        if how == 1:
            return op("sigmoid", x)
        if how == 2:
            return add(op("square", x), literal("1/4"))
        return add(op("abs", x), literal(1))

    def mask(self) -> Term:
        """Return a condition on elements, rows or columns."""
        rng = self.rng
        how = rng.randrange(6)
        kind = rng.choice(("lt", "le", "gt", "ge"))
        if how == 0:
            return two(kind, self.any(), literal(rng.choice(THRESHOLDS)))
        if how == 1:
            return two(kind, self.any(), self.any())
        if how == 2:
            i = self.inputs[rng.choice("ij")]
            return two(rng.choice((kind, "eq")), i, literal(rng.randrange(RANGE)))
        if how == 3:
            return two(kind, places(self.inputs["x"], 0), literal(rng.randrange(1, self.rows)))
        if how == 4:
            return two(kind, places(self.inputs["x"], 1), literal(rng.randrange(1, self.columns)))
        return two(rng.choice(("lt", "eq", "ne")), self.inputs["i"], self.inputs["j"])

    def condition(self) -> Term:
        """Return a mask, or one made of two."""
        first = self.mask()
        if self.rng.random() < 0.6:
            return first
        if self.rng.random() < 0.3:
            return op("logical_not", first)
        return two(
            self.rng.choice(("logical_and", "logical_or", "logical_xor")), first, self.mask()
        )

    def step(self) -> None:
        """Add one matrix to the pool."""
        step = self.rng.choice(STEPS)
        found = step(self)
        if found is not None and found.shape == self.shape:
            self.pool.append(found)


def grown(rng: random.Random) -> tuple[Term, Growth]:
    """Return a random formula, a matrix or a reduction of one, and that from which it grew."""
    growth = Growth(rng)
    for _ in range(rng.randrange(2, 7)):
        growth.step()
    x = growth.pool[-1]
    how = rng.randrange(6)
    if how == 0:
        return reduced("sum", x, 0, keepdim=False), growth
    if how == 1:
        return reduced("mean", x, 1, keepdim=False), growth
    if how == 2:
        return op("sum", x, shape=(), axes=(0, 1)), growth
    return x, growth


def _arithmetic(g: Growth) -> Term:
    a, b = g.any(), g.any()
    how = g.rng.randrange(7)
    if how == 0:
        return mul(a, g.inputs[g.rng.choice("vu")])
    if how == 1:
        return mul(a, literal(g.rng.choice(LITERALS)))
    if how == 2:
        return add(a, literal(g.rng.choice(LITERALS)))
    return two(g.rng.choice(("add", "sub", "mul")), a, b)


def _quotient(g: Growth) -> Term:
    how = g.rng.randrange(3)
    if how == 0:
        return div(g.any(), g.inputs[g.rng.choice("xyzvu")])
    return div(g.any(), g.positive())


def _root(g: Growth) -> Term:
    return op(g.rng.choice(("sqrt", "rsqrt", "log")), g.positive())


def _activation(g: Growth) -> Term:
    kind = g.rng.choice(("sigmoid", "silu", "tanh", "relu", "gelu", "erf", "softplus", "sin"))
    return op(kind, g.tame())


def _exponential(g: Growth) -> Term:
    return op("exp", g.tame())


def _softmax(g: Growth) -> Term:
    axis = g.rng.choice((0, 1))
    return op(g.rng.choice(("softmax", "log_softmax")), g.tame(), axis=axis)


def _norm(g: Growth) -> Term:
    x = g.any()
    how = g.rng.randrange(3)
    if how == 0:
        return op("rms_norm", x, eps=g.rng.choice(("1/100", "1/8")))
    if how == 1:
        return op("layer_norm", x, eps=g.rng.choice(("1/100", "1/8")))
    scale = add(reduced("mean", op("square", x), 0), literal("1/16"))
    return mul(x, op("rsqrt", scale))


def _reduction(g: Growth) -> Term:
    kind = g.rng.choice(("sum", "mean", "amax", "amin", "logsumexp"))
    x, axis = g.tame() if kind == "logsumexp" else g.any(), g.rng.choice((0, 1))
    if kind == "logsumexp":
        shape = tuple(1 if a == axis else s for a, s in enumerate(x.shape))
        small = op(kind, x, shape=shape, axis=axis, keepdim=True)
    else:
        small = reduced(kind, x, axis)
    return two(g.rng.choice(("add", "mul", "sub")), g.any(), small)


def _running(g: Growth) -> Term:
    return op("cumsum", g.any(), axis=g.rng.choice((0, 1)))


def _move(g: Growth) -> Term:
    x, axis = g.any(), g.rng.choice((0, 1))
    size, how = x.shape[axis], g.rng.randrange(5)
    if how == 0:
        return op("flip", x, axes=(axis,))
    if how == 1:
        return op("roll", x, axis=axis, shift=g.rng.randrange(1, size))
    if how == 2:
        cut = g.rng.randrange(1, size)
        first, second = part(x, axis, 0, cut), part(g.any(), axis, cut, size)
        return op("cat", first, second, shape=x.shape, axis=axis)
    if how == 3:
        cut = g.rng.randrange(1, size)
        return op("pad", part(x, axis, cut, size), shape=x.shape, axis=axis, before=cut, after=0)
    return op(g.rng.choice(("tril", "triu")), x, diagonal=g.rng.randrange(-2, 4))


def _select(g: Growth) -> Term:
    x, how = g.any(), g.rng.randrange(3)
    if how == 0:
        return op("embedding", g.inputs["k"], g.inputs["table"], shape=g.shape, dtype=FLOAT)
    limit = g.rows if how == 1 else g.columns
    rest = op("cast", op("remainder", g.inputs["k"], literal(limit)), dtype=INT)
    if how == 1:
        return op("index_select", x, rest, shape=g.shape, axis=0)
    row = op("reshape", rest, shape=(g.rows, 1), dtype=INT, sizes=(g.rows, 1))
    return mul(g.any(), op("gather", x, row, shape=(g.rows, 1), axis=1))


def _choice(g: Growth) -> Term:
    how = g.rng.randrange(5)
    if how == 0:
        low = g.rng.choice(THRESHOLDS)
        return op("clamp", g.any(), min=low)
    if how == 1:
        return two(g.rng.choice(("maximum", "minimum")), g.any(), g.any())
    if how == 2:
        return where(g.condition(), g.any(), literal(g.rng.choice((0, 1, -1))))
    return where(g.condition(), g.any(), g.any())


def _count(g: Growth) -> Term:
    ones = op("cast", g.condition(), dtype=FLOAT)
    kept = op("cast", two("lt", g.inputs["i"], literal(RANGE // 2)), dtype=FLOAT)
    count = reduced("sum", kept if g.rng.random() < 0.5 or len(ones.shape) < 2 else ones, 0)
    return div(g.any(), two("maximum", count, literal(1)))


def _integers(g: Growth) -> Term:
    i, j = g.inputs["i"], g.inputs["j"]
    how = g.rng.randrange(4)
    if how == 0:
        made = add(mul(i, literal(g.rng.randrange(2, 9))), j)
    elif how == 1:
        made = op("floor_divide", i, literal(g.rng.randrange(2, 50)), dtype=INT)
    elif how == 2:
        made = op("remainder", i, literal(g.rng.randrange(2, 50)), dtype=INT)
    else:
        made = sub(i, j)
    if g.rng.random() < 0.5:
        return mul(g.any(), op("cast", made, dtype=FLOAT))
    return where(
        two(g.rng.choice(("lt", "ge")), made, literal(g.rng.randrange(60))), g.any(), g.any()
    )


def _product(g: Growth) -> Term:
    x, w = g.any(), g.inputs["w"]
    if g.rng.random() < 0.5:
        return op("matmul", x, w, shape=g.shape)
    y = op("transpose", g.any(), shape=(g.columns, g.rows), dim0=0, dim1=1)
    scores = op("matmul", x, y, shape=(g.rows, g.rows))
    if g.rng.random() < 0.5:
        scores = op("softmax", op("tanh", scores), axis=1)
    return op("matmul", scores, g.any(), shape=g.shape)


def _sorted(g: Growth) -> Term:
    x, axis = g.any(), g.rng.choice((0, 1))
    if g.rng.random() < 0.5:
        ordered = op("sort", x, axis=axis, descending=g.rng.random() < 0.5)
        return replace(ordered, outputs=2)
    count = g.rng.randrange(1, 5)
    shape = tuple(count if a == axis else size for a, size in enumerate(x.shape))
    best = replace(op("topk", x, shape=shape, k=count, axis=axis), outputs=2)
    return two("add", g.any(), reduced("sum", best, axis))


def _attention(g: Growth) -> Term:
    shape = (1, g.rows, g.columns)
    q, k, v = (op("reshape", g.tame(), shape=shape, sizes=shape) for _ in range(3))
    made = op("scaled_dot_product_attention", q, k, v, is_causal=g.rng.random() < 0.6)
    return op("reshape", made, shape=g.shape, sizes=g.shape)


def _losses(g: Growth) -> Term:
    target = op("cast", op("remainder", g.inputs["k"], literal(g.columns)), dtype=INT)
    loss = op("cross_entropy", g.tame(), target, shape=(g.rows,), reduction="none")
    return mul(g.any(), op("reshape", loss, shape=(g.rows, 1), sizes=(g.rows, 1)))


def _written(g: Growth) -> Term:
    x, source = g.any(), g.any()
    limit = g.rows
    index = op("cast", op("remainder", g.inputs["k"], literal(limit)), dtype=INT)
    return op("index_add", x, index, source, axis=0)


def _one_hot(g: Growth) -> Term:
    index = op("cast", op("remainder", g.inputs["k"], literal(g.columns)), dtype=INT)
    hot = op("one_hot", index, shape=g.shape, dtype=INT, classes=g.columns)
    return mul(g.any(), op("cast", hot, dtype=FLOAT))


def _einsum(g: Growth) -> Term:
    if g.rng.random() < 0.5:
        return op("einsum", g.any(), g.inputs["w"], shape=g.shape, equation="nd,ed->ne")
    inner = op("einsum", g.any(), g.any(), shape=(g.columns,) * 2, equation="nd,ne->de")
    return op("matmul", g.any(), inner, shape=g.shape)


def _gradient(g: Growth) -> Term:
    kind = g.rng.choice(("sigmoid", "silu", "tanh", "relu", "gelu", "exp", "square", "softplus"))
    return op(f"{kind}.backward", g.tame(), g.any(), forward_outputs=0)


def _gradient_along(g: Growth) -> Term:
    kind = g.rng.choice(("softmax", "log_softmax", "cumsum", "rms_norm", "layer_norm"))
    more = {"eps": "1/8"} if kind.endswith("norm") else {"axis": g.rng.choice((0, 1))}
    return op(f"{kind}.backward", g.tame(), g.any(), forward_outputs=0, **more)


def _small(g: Growth) -> Term:
    kind = g.rng.choice(("abs", "sign", "neg", "square", "cos", "identity"))
    return op(kind, g.any())


def _power(g: Growth) -> Term:
    return op("pow", g.positive(), exponent=g.rng.choice((3, -1, "1/2", "-3/2")))


def _variance(g: Growth) -> Term:
    axis = g.rng.choice((0, 1))
    shape = tuple(1 if a == axis else size for a, size in enumerate(g.shape))
    spread = op("var", g.any(), shape=shape, axes=(axis,), keepdim=True, correction=1)
    return mul(g.any(), op("rsqrt", add(spread, literal("1/8"))))


STEPS: tuple[Step, ...] = (
    _sorted,
    _attention,
    _losses,
    _written,
    _one_hot,
    _einsum,
    _gradient,
    _gradient_along,
    _small,
    _power,
    _variance,
    _arithmetic,
    _arithmetic,
    _arithmetic,
    _quotient,
    _root,
    _activation,
    _exponential,
    _softmax,
    _norm,
    _reduction,
    _reduction,
    _running,
    _move,
    _move,
    _select,
    _choice,
    _choice,
    _count,
    _integers,
    _product,
)
"""The steps, the common ones more than once."""
