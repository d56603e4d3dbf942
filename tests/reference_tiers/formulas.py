"""Random formulas of few operators, rewritings that are right, and mistakes.

A formula is a vector of ``PLACES`` elements, or one number: a sum or a maximum along the vector. A
condition is a vector of outcomes.

>>> x, y = Formula("input", name="x"), Formula("input", name="y")
>>> str(two("mul", x, two("sub", y, literal(2))))
'mul(x, sub(y, 2))'
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

PLACES = 2
NAMES = ("x", "y", "z")
LITERALS = tuple(map(Fraction, ("2", "3", "-1", "1/2", "-2", "5/3", "1", "0")))
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
SWAPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}
CONTRARY = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}
MASKS = frozenset((*COMPARISONS, "and", "or", "not"))
REDUCTIONS = frozenset(("sum", "top"))


@dataclass(frozen=True)
class Formula:
    """An operator with its operands, an input, or a literal."""

    kind: str
    operands: tuple[Formula, ...] = ()
    number: Fraction | None = None
    name: str = ""

    @cached_property
    def _hash(self) -> int:
        return hash((self.kind, self.operands, self.number, self.name))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        if self.kind == "input":
            return self.name
        if self.number is not None:
            return str(self.number)
        return f"{self.kind}({', '.join(map(str, self.operands))})"

    @cached_property
    def size(self) -> int:
        """The number of elements: ``PLACES``, or 1 for a literal, a sum or a maximum."""
        if self.kind in ("input", "picked", "ranked"):
            return PLACES
        if self.kind in REDUCTIONS or not self.operands:
            return 1
        return max(each.size for each in self.operands)

    @property
    def is_mask(self) -> bool:
        """True for a condition."""
        return self.kind in MASKS


def literal(number: Fraction | int) -> Formula:
    """Return a literal number."""
    return Formula("literal", number=Fraction(number))


def one(kind: str, a: Formula) -> Formula:
    """Return an operator of one operand."""
    return Formula(kind, (a,))


def two(kind: str, a: Formula, b: Formula) -> Formula:
    """Return an operator of two operands."""
    return Formula(kind, (a, b))


def picked(a: Formula, b: Formula) -> Formula:
    """Return a vector of the first element of ``a``, and of ``b`` behind it."""
    return Formula("picked", (a, b))


def ranked(a: Formula, b: Formula) -> Formula:
    """Return the elements of ``b`` in the descending order of those of ``a``, two vectors."""
    return Formula("ranked", (a, b))


def where(condition: Formula, a: Formula, b: Formula) -> Formula:
    """Return a choice."""
    return Formula("where", (condition, a, b))


def walk(root: Formula) -> Iterator[Formula]:
    """Yield every different term of a formula once, operands first."""
    seen: set[Formula] = set()
    stack = [(root, False)]
    while stack:
        term, ready = stack.pop()
        if term in seen:
            continue
        if ready:
            seen.add(term)
            yield term
        else:
            stack += [(term, True), *((each, False) for each in reversed(term.operands))]


def exchanged(root: Formula, old: Formula, new: Formula) -> Formula:
    """Return a formula with one term exchanged wherever it is read."""
    made: dict[Formula, Formula] = {}
    for term in walk(root):
        operands = tuple(made[each] for each in term.operands)
        made[term] = new if term == old else replace(term, operands=operands)
    return made[root]


class Growth:
    """A source of random formulas.

    ``decides`` adds comparisons, choices and extrema; ``functions`` adds exponentials, logarithms,
    roots and named functions; ``orders`` adds orders along the vector.
    """

    def __init__(
        self,
        rng: random.Random,
        *,
        functions: bool = True,
        decides: bool = True,
        orders: bool = False,
    ) -> None:
        self.rng = rng
        self.orders = orders
        self.functions = functions
        self.decides = decides

    def formula(self, depth: int) -> Formula:
        """Return a formula of numbers."""
        rng = self.rng
        if depth <= 0:
            if rng.random() < 0.15:
                return literal(rng.choice(LITERALS))
            return Formula("input", name=rng.choice(NAMES))
        if self.orders and rng.random() < 0.3:
            return ranked(self._vector(depth - 1), self._vector(depth - 1))
        how = rng.random()
        if self.functions and how < 0.45:
            return self._function(depth - 1)
        if self.decides and how < 0.65:
            return self._decision(depth - 1)
        kind = rng.choice(("add", "sub", "sub", "mul", "div", "neg", "scaled", "square", "sum"))
        a = self.formula(depth - 1)
        if kind in ("neg", "square"):
            return one(kind, a)
        if kind == "sum":
            return one("sum", a) if a.size > 1 else one("neg", a)
        if kind == "scaled":
            return two("mul", literal(rng.choice(LITERALS[:6])), a)
        if kind == "div":
            return two("div", a, self.positive(depth - 1) if rng.random() < 0.8 else self.leaf())
        return two(kind, a, self.formula(depth - 1))

    def _vector(self, depth: int) -> Formula:
        found = self.formula(depth)
        return found if found.size > 1 else two("add", found, self.leaf())

    def leaf(self) -> Formula:
        """Return an input."""
        return Formula("input", name=self.rng.choice(NAMES))

    def positive(self, depth: int) -> Formula:
        """Return a formula of positive numbers."""
        rng = self.rng
        how = rng.randrange(6)
        if not self.functions and how in (0, 4):
            how = 1
        if depth <= 0 or how < 2:
            inner = self.formula(min(depth, 1) - 1)
            if how == 0 or (depth > 0 and how == 1 and self.functions and rng.random() < 0.5):
                return one("exp", inner)
            return two("add", one("square", inner), literal(rng.choice((1, 2))))
        if how == 4:
            return one("sqrt", self.positive(depth - 1))
        kind = ("add", "mul", "div")[how % 3]
        return two(kind, self.positive(depth - 1), self.positive(depth - 1))

    def _function(self, depth: int) -> Formula:
        kind = self.rng.choice(
            ("exp", "exp", "exp", "log", "log", "sqrt", "erf", "cos", "picked", "one of")
        )
        if kind == "picked":
            return picked(self.formula(depth), self.formula(depth - 1))
        if kind == "one of":
            one_alone = one("sum", picked(self.formula(depth), literal(0)))
            return two("add", one_alone, self.leaf())
        if kind == "exp" and self.rng.random() < 0.5:
            a, b = self.formula(depth - 1), self.formula(depth - 1)
            return one("exp", two("sub", a, b))
        if kind in ("log", "sqrt"):
            return one(kind, self.positive(depth))
        return one(kind, self.formula(depth))

    def condition(self, depth: int) -> Formula:
        """Return a condition."""
        how = self.rng.randrange(6)
        if depth > 0 and how == 0:
            return one("not", self.condition(depth - 1))
        if depth > 0 and how == 1:
            kind = self.rng.choice(("and", "or"))
            return two(kind, self.condition(depth - 1), self.condition(depth - 1))
        kind = self.rng.choice(COMPARISONS[:4] * 2 + COMPARISONS[4:])
        return two(kind, self.formula(depth - 1), self.formula(depth - 1))

    def _decision(self, depth: int) -> Formula:
        how = self.rng.randrange(8)
        a, b = self.formula(depth - 1), self.formula(depth - 1)
        if how < 2:
            return two(("max", "min")[how], a, b)
        if how == 2 and a.size > 1:
            return one("top", a)
        if how == 3:
            return one("number", self.condition(depth))
        if how == 4:
            return where(two(self.rng.choice(COMPARISONS[:4]), a, b), a, b)
        return where(self.condition(depth), a, b)


Rewriting = Callable[[Formula, random.Random], Formula | None]


def _commuted(f: Formula, rng: random.Random) -> Formula | None:
    if f.kind in ("add", "mul", "max", "min", "and", "or", "eq", "ne"):
        return two(f.kind, f.operands[1], f.operands[0])
    return None


def _regrouped(f: Formula, rng: random.Random) -> Formula | None:
    """(a + b) + c is a + (b + c), and products, extrema and conditions likewise."""
    if f.kind in ("add", "mul", "max", "and") and f.operands[0].kind == f.kind:
        (a, b), c = f.operands[0].operands, f.operands[1]
        return two(f.kind, a, two(f.kind, b, c))
    return None


def _difference(f: Formula, rng: random.Random) -> Formula | None:
    if f.kind == "sub":
        a, b = f.operands
        return two("add", a, one("neg", b)) if rng.random() < 0.5 else one("neg", two("sub", b, a))
    if f.kind == "add":
        return two("sub", f.operands[0], one("neg", f.operands[1]))
    if f.kind == "neg":
        return two("mul", literal(-1), f.operands[0])
    return None


def _quotient(f: Formula, rng: random.Random) -> Formula | None:
    if f.kind == "div":
        return two("mul", f.operands[0], two("div", literal(1), f.operands[1]))
    if f.kind == "mul" and f.operands[1].kind == "exp":
        return two("div", f.operands[0], one("exp", one("neg", f.operands[1].operands[0])))
    return None


def _distributed(f: Formula, rng: random.Random) -> Formula | None:
    if f.kind == "mul":
        for sums, other in (f.operands, f.operands[::-1]):
            if sums.kind in ("add", "sub"):
                a, b = (two("mul", each, other) for each in sums.operands)
                return two(sums.kind, a, b)
    if f.kind == "square":
        return two("mul", f.operands[0], f.operands[0])
    if f.kind == "sum" and f.operands[0].kind in ("add", "sub"):
        if any(each.size == 1 for each in f.operands[0].operands):
            return None
        a, b = (one("sum", each) for each in f.operands[0].operands)
        return two(f.operands[0].kind, a, b)
    return None


def _exponential(f: Formula, rng: random.Random) -> Formula | None:
    if f.kind != "exp":
        return None
    (t,) = f.operands
    if t.kind == "sub":
        return two("div", *(one("exp", each) for each in t.operands))
    if t.kind == "neg":
        return two("div", literal(1), one("exp", t.operands[0]))
    if t.kind == "add":
        return two("mul", *(one("exp", each) for each in t.operands))
    if t.kind == "log":
        return t.operands[0]
    if t.kind == "mul" and t.operands[0].number == 2:
        return one("square", one("exp", t.operands[1]))
    if t.kind == "mul" and t.operands[0].number == 3:
        return two("mul", f_of := one("exp", t.operands[1]), one("square", f_of))
    return None


def _logarithm(f: Formula, rng: random.Random) -> Formula | None:
    if f.kind == "exp" and rng.random() < 0.5:
        return one("exp", one("log", f))
    if f.kind == "log":
        (s,) = f.operands
        if s.kind == "mul":
            return two("add", *(one("log", each) for each in s.operands))
        if s.kind == "div":
            return two("sub", *(one("log", each) for each in s.operands))
        if s.kind == "exp":
            return s.operands[0]
    return None


def _root(f: Formula, rng: random.Random) -> Formula | None:
    if f.kind == "square" and f.operands[0].kind == "sqrt":
        return f.operands[0].operands[0]
    if f.kind == "mul" and all(each.kind == "sqrt" for each in f.operands):
        a, b = (each.operands[0] for each in f.operands)
        return one("sqrt", two("mul", a, b))
    if f.kind == "sqrt" and f.operands[0].kind in ("mul", "div"):
        return two(f.operands[0].kind, *(one("sqrt", each) for each in f.operands[0].operands))
    if f.kind in ("exp", "square"):
        return one("square", one("sqrt", f))
    return None


def _symmetric(f: Formula, rng: random.Random) -> Formula | None:
    if f.kind == "erf":
        return one("neg", one("erf", one("neg", f.operands[0])))
    if f.kind == "cos":
        return one("cos", one("neg", f.operands[0]))
    return None


def _extremum(f: Formula, rng: random.Random) -> Formula | None:
    if f.kind in ("max", "min"):
        a, b = f.operands
        if rng.random() < 0.5:
            kinds = ("gt", "ge") if f.kind == "max" else ("lt", "le")
            return where(two(rng.choice(kinds), a, b), a, b)
        other = "min" if f.kind == "max" else "max"
        return one("neg", two(other, one("neg", a), one("neg", b)))
    return None


def _chosen(f: Formula, rng: random.Random) -> Formula | None:
    """A choice by place is a sum of two, and functions may be taken before or after it."""
    if f.kind == "picked":
        a, b = f.operands
        return two("add", picked(a, literal(0)), picked(literal(0), b))
    if f.kind in ("exp", "erf", "neg") and f.operands[0].kind == "picked":
        return picked(*(one(f.kind, each) for each in f.operands[0].operands))
    if f.kind == "exp" and f.operands[0].kind == "sum":
        (inner,) = f.operands[0].operands
        if inner.kind == "picked" and inner.operands[1].number == 0:
            return one("sum", picked(one("exp", inner.operands[0]), literal(0)))
    return None


def _condition(f: Formula, rng: random.Random) -> Formula | None:
    if f.kind in SWAPPED:
        if rng.random() < 0.5:
            return two(SWAPPED[f.kind], f.operands[1], f.operands[0])
        return one("not", two(CONTRARY[f.kind], *f.operands))
    if f.kind in ("and", "or"):
        other = "or" if f.kind == "and" else "and"
        return one("not", two(other, *(one("not", each) for each in f.operands)))
    if f.kind == "where":
        condition, a, b = f.operands
        if rng.random() < 0.5:
            return where(one("not", condition), b, a)
        held = one("number", condition)
        return two("add", two("mul", held, a), two("mul", two("sub", literal(1), held), b))
    return None


def _moved_difference(f: Formula, rng: random.Random) -> Formula | None:
    """a < b compares a - b with 0."""
    if f.kind in SWAPPED and f.operands[0].kind != "sub":
        return two(f.kind, two("sub", *f.operands), literal(0))
    return None


def _in_order(f: Formula, rng: random.Random) -> Formula | None:
    """Numbers may be added or negated before or after they are put in order."""
    if f.kind != "ranked":
        return None
    a, b = f.operands
    if b.kind in ("add", "sub", "mul") and all(each.size > 1 for each in b.operands):
        return two(b.kind, *(ranked(a, each) for each in b.operands))
    if b.kind in ("neg", "exp", "erf", "square"):
        return one(b.kind, ranked(a, b.operands[0]))
    return ranked(a, two("add", one("neg", b), two("mul", literal(2), b)))


def _nothing_added(f: Formula, rng: random.Random) -> Formula | None:
    if f.is_mask or f.size == 1:
        return None
    x = Formula("input", name=rng.choice(NAMES))
    how = rng.randrange(4)
    if how == 0:
        return two("sub", two("add", f, x), x)
    if how == 1:
        return two("max", f, f)
    if how == 2:
        return two("add", two("sub", f, x), x)
    return two("mul", f, literal(1))


RIGHT: tuple[Rewriting, ...] = (
    _commuted,
    _regrouped,
    _difference,
    _quotient,
    _distributed,
    _exponential,
    _exponential,
    _logarithm,
    _root,
    _symmetric,
    _extremum,
    _chosen,
    _condition,
    _condition,
    _moved_difference,
    _in_order,
    _in_order,
    _nothing_added,
)
"""Rewritings that real numbers allow wherever both sides have a value."""


def rewritten(root: Formula, rng: random.Random) -> Formula | None:
    """Return an equal formula, None if no place was found for a rewriting."""
    terms = list(walk(root))
    for _ in range(20):
        term, law = rng.choice(terms), rng.choice(RIGHT)
        new = law(term, rng)
        if new is not None and new.size == term.size:
            return exchanged(root, term, new)
    return None


_OTHER = {
    "add": "sub",
    "sub": "add",
    "mul": "add",
    "div": "mul",
    "max": "min",
    "min": "max",
    "exp": "erf",
    "erf": "cos",
    "cos": "erf",
    "sum": "top",
    "top": "sum",
    "square": "neg",
    "neg": "square",
    "lt": "le",
    "le": "lt",
    "gt": "lt",
    "ge": "gt",
    "eq": "le",
    "ne": "lt",
    "and": "or",
    "or": "and",
    "log": "neg",
    "sqrt": "log",
}


def mistaken(root: Formula, rng: random.Random) -> Formula | None:
    """Return a formula with one small mistake, which may happen to be none."""
    terms = list(walk(root))
    for _ in range(20):
        term, how = rng.choice(terms), rng.randrange(4)
        new: Formula | None = None
        if how == 0 and term.kind in _OTHER:
            new = replace(term, kind=_OTHER[term.kind])
        elif how == 1 and term.kind in ("sub", "div", "lt", "le", "ranked"):
            new = two(term.kind, term.operands[1], term.operands[0])
        elif how == 2 and term.kind == "input":
            new = Formula("input", name=rng.choice([n for n in NAMES if n != term.name]))
        elif how == 2 and term.number is not None:
            new = literal(term.number + 1)
        elif how == 3 and term.kind == "where":
            new = where(term.operands[0], term.operands[2], term.operands[1])
        elif how == 2 and term.kind == "picked":
            new = picked(term.operands[1], term.operands[0])
        elif how == 1 and term.kind == "number" and term.operands[0].kind in SWAPPED:
            a, b = term.operands[0].operands
            new = one("neg", one("number", two(term.operands[0].kind, b, a)))
        elif how == 3 and term.kind == "ranked":
            new = ranked(one("neg", term.operands[0]), term.operands[1])
        elif how == 3 and term.kind in ("add", "sub", "mul") and term.size > 1:
            new = next((each for each in term.operands if each.size > 1), None)
        if new is not None and new != term and new.size == term.size:
            return exchanged(root, term, new)
    return None


@dataclass(frozen=True)
class Pair:
    """Two formulas; ``right`` says that only rewritings lie between them."""

    first: Formula
    second: Formula
    right: bool


def pair_of(
    rng: random.Random, *, functions: bool = True, decides: bool = True, orders: bool = False
) -> Pair:
    """Return a random pair: one to three rewritings, and in half of all cases a mistake."""
    while True:
        growth = Growth(rng, functions=functions, decides=decides, orders=orders)
        first = growth.formula(rng.randint(2, 4))
        second: Formula | None = first
        for _ in range(rng.randint(1, 3)):
            second = second and (rewritten(second, rng) or second)
        right = rng.random() < 0.5
        if not right:
            second = second and mistaken(second, rng)
        if second is not None and second != first and first.size == second.size == PLACES:
            return Pair(first, second, right)


def is_positive(f: Formula) -> bool:
    """True if a formula is positive by construction, as the page on mathematics lists it."""
    if f.number is not None:
        return f.number > 0
    if f.kind == "exp":
        return True
    if f.kind == "max":
        return any(map(is_positive, f.operands))
    if f.kind == "add":
        a, b = f.operands
        positive = is_positive(a) or is_positive(b)
        return positive and all(is_positive(each) or each.kind == "square" for each in (a, b))
    if f.kind == "ranked":
        return is_positive(f.operands[1])
    return f.kind in ("mul", "div", "sqrt", "sum", "top") and all(map(is_positive, f.operands))


def is_defined(root: Formula) -> bool:
    """True if every divisor, and every argument of a root or logarithm, is positive."""
    return all(
        is_positive(term.operands[-1]) for term in walk(root) if term.kind in ("div", "log", "sqrt")
    )


def chooses_literals(root: Formula) -> bool:
    """True if a term is made of literals alone: in a plan its dtype is not a number's."""
    return any(
        bool(term.operands)
        and all(each.number is not None for each in term.operands[term.kind == "where" :])
        for term in walk(root)
    )
