"""Functions as tables over one large prime, in plain Python: the second tier, written down again.

``docs/mathematics.md`` (section 2) is the source. A formula becomes a list of residues modulo
2^61 - 1. A table is a dictionary from residues to random residues. The laws that are kept are
those of the page, and nothing is shared with the code that is compared.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from fractions import Fraction

from reference_tiers.formulas import PLACES, Formula, walk

PRIME = (1 << 61) - 1
LARGEST_FACTOR = 64
MOST_PARTS = 6

Cells = tuple[int, ...]
Parts = tuple[tuple[int, Cells], ...]


class UndefinedError(Exception):
    """A divisor, or the argument of a logarithm, is 0 whatever is drawn."""


@dataclass(frozen=True)
class Number:
    """A vector, or one number, modulo ``PRIME``.

    ``parts``: the differences of which it is made, (n, cells) for n times these; () for itself.
    ``logs``: n to cells, for n times their logarithm, which is added. ``square``: the number of
    which this is the formal root. ``positive`` says that no element can be negative; ``constant``
    that no drawn number is in it; ``literal`` is the integer that the formula names.
    """

    cells: Cells
    parts: Parts = ()
    logs: tuple[tuple[int, Cells], ...] = ()
    square: Number | None = None
    positive: bool = False
    constant: bool = False
    literal: int | None = None


def _wide(cells: Cells, size: int) -> Cells:
    return cells * size if len(cells) == 1 and size > 1 else cells


def _both(a: Cells, b: Cells) -> list[tuple[int, int]]:
    size = max(len(a), len(b))
    return list(zip(_wide(a, size), _wide(b, size), strict=True))


def _times(a: Cells, b: Cells) -> Cells:
    return tuple(x * y % PRIME for x, y in _both(a, b))


def _inverse(a: Cells) -> Cells:
    if 0 in a:
        raise UndefinedError
    return tuple(pow(x, -1, PRIME) for x in a)


def _raised(a: Cells, n: int) -> Cells:
    if n < 0:
        a = _inverse(a)
    return tuple(pow(x, abs(n), PRIME) for x in a)


def _placed(a: Cells, b: Cells) -> Cells:
    """The first element of one, and what is behind it of the other."""
    return (_wide(a, PLACES)[0], *_wide(b, PLACES)[1:])


class Tables:
    """One draw: the inputs and the entries of every table.

    Equal arguments have equal entries. Everything else is drawn when it is first read. Without
    ``formal_roots`` a root is a function like any other.
    """

    def __init__(self, seed: int, formal_roots: bool = True) -> None:
        self._formal_roots = formal_roots
        self._rng = random.Random(seed)
        self._entries: dict[tuple[object, ...], int] = {}
        self._inputs: dict[str, Number] = {}
        self._known: dict[Formula, Number] = {}

    # --- tables
    def _entry(self, *key: object, least: int = 0) -> int:
        found = self._entries.get(key)
        if found is None:
            found = self._entries[key] = self._rng.randrange(least, PRIME)
        return found

    def _exponential(self, cells: Cells) -> Cells:
        return tuple(self._entry("exp", x, least=1) if x else 1 for x in cells)

    def _even(self, name: str, x: int) -> int:
        return self._entry(name, min(x, PRIME - x))

    def _odd(self, name: str, x: int) -> int:
        if not x:
            return 0
        entry = self._even(name, x)
        return entry if x < PRIME - x else -entry % PRIME

    def _greatest(self, cells: list[int]) -> int:
        """The maximum of equal numbers is that number; else it is an entry for all of them."""
        return cells[0] if len(set(cells)) == 1 else self._entry("max", *sorted(cells))

    # --- what a number is made of
    def _opened(self, a: Number) -> Number:
        """A formal root that is used otherwise is a table of its square."""
        if a.square is None:
            return a
        cells = tuple(self._entry("sqrt", x) if x else 0 for x in a.square.cells)
        return Number(cells, positive=True)

    def _own_parts(self, a: Number) -> Parts:
        if a.parts:
            return a.parts
        cells = self._opened(a).cells
        return () if a.constant and not any(cells) else ((1, cells),)

    @staticmethod
    def _with_parts(a: Number, parts: Parts) -> Number:
        size = len(a.cells)
        kept = tuple((n, _wide(cells, size)) for n, cells in parts if n)
        alone = len(kept) == 1 and kept[0][0] == 1
        return replace(a, parts=() if alone or len(kept) > MOST_PARTS else kept)

    def _exp_of(self, a: Number) -> Cells:
        """exp(a - b) = exp(a)/exp(b), exp(n a) = exp(a)^n, exp(log S) = S."""
        result: Cells = (1,) * len(a.cells)
        for n, cells in a.parts or ((1, a.cells),):
            result = _times(result, _raised(self._exponential(cells), n))
        for n, cells in a.logs:
            result = _times(result, _raised(cells, n))
        return result

    def plain(self, a: Number) -> Number:
        """A logarithm that is used otherwise is a table of its exponential."""
        a = self._opened(a)
        if not a.logs:
            return a
        return Number(tuple(self._entry("log", x) if x != 1 else 0 for x in self._exp_of(a)))

    # --- operators
    def value(self, formula: Formula) -> Number:
        """The value of a formula in this draw. Raises UndefinedError."""
        for term in walk(formula):
            if term not in self._known:
                self._known[term] = self._applied(term, [self._known[e] for e in term.operands])
        return self._known[formula]

    def _applied(self, term: Formula, operands: list[Number]) -> Number:
        if term.kind == "input":
            cells = tuple(self._entry("input", term.name, place) for place in range(PLACES))
            return Number(cells)
        if term.number is not None:
            return self.literal(term.number)
        result: Number = getattr(self, f"_{term.kind}")(*operands)
        return result

    @staticmethod
    def literal(number: Fraction) -> Number:
        """A number that the formula names."""
        residue = number.numerator * pow(number.denominator, -1, PRIME) % PRIME
        whole = number.denominator == 1 and abs(number) <= LARGEST_FACTOR
        return Number(
            (residue,),
            positive=number >= 0,
            constant=True,
            literal=int(number) if whole else None,
        )

    def _added(self, a: Number, b: Number, sign: int) -> Number:
        a, b = self._opened(a), self._opened(b)
        cells = tuple((x + sign * y) % PRIME for x, y in _both(a.cells, b.cells))
        logs = dict(a.logs)
        for n, of in b.logs:
            m = sign * n
            logs[m] = _times(logs[m], of) if m in logs else of
        size = len(cells)
        result = Number(
            cells,
            logs=tuple((n, _wide(logs[n], size)) for n in sorted(logs)),
            positive=sign > 0 and a.positive and b.positive,
            constant=a.constant and b.constant,
        )
        if sign > 0 and not (a.parts or b.parts):
            return result
        second = tuple((sign * n, part) for n, part in self._own_parts(b))
        return self._with_parts(result, (*self._own_parts(a), *second))

    def _add(self, a: Number, b: Number) -> Number:
        return self._added(a, b, 1)

    def _sub(self, a: Number, b: Number) -> Number:
        return self._added(a, b, -1)

    def _neg(self, a: Number) -> Number:
        a = self._opened(a)
        result = Number(
            tuple(-x % PRIME for x in a.cells),
            logs=tuple((-n, of) for n, of in a.logs),
            constant=a.constant,
        )
        return self._with_parts(result, tuple((-n, part) for n, part in self._own_parts(a)))

    def _mul(self, a: Number, b: Number) -> Number:
        if a.square is not None and b.square is not None:
            if a is b or a.square.cells == b.square.cells:
                return a.square
            return self._root_of(self._mul(a.square, b.square))
        positive = a is b or (a.positive and b.positive)
        constant = a.constant and b.constant
        a, b = self._opened(a), self._opened(b)
        for one, other in ((a, b), (b, a)):
            if one.logs and other.literal is not None:
                return self._scaled_logarithm(one, other)
        was_log = bool(a.logs or b.logs)
        a, b = self.plain(a), self.plain(b)
        result = Number(_times(a.cells, b.cells), positive=positive, constant=constant)
        if was_log:
            return result
        for one, other in ((a, b), (b, a)):
            n = other.literal
            if n in (0, 1) and not one.parts:
                return result
            if n is not None:
                scaled = tuple((n * m, part) for m, part in self._own_parts(one))
                return self._with_parts(result, scaled)
            if one.parts and len(other.cells) == 1:
                scaled = tuple((m, _times(part, other.cells)) for m, part in one.parts)
                return self._with_parts(result, scaled)
        return result

    def _scaled_logarithm(self, a: Number, factor: Number) -> Number:
        n = factor.literal
        assert n is not None
        scaled = self._mul(replace(a, logs=(), positive=False), factor)
        logs = tuple((n * m, of) for m, of in a.logs) if n else ()
        return replace(scaled, logs=logs, positive=False)

    def _square(self, a: Number) -> Number:
        return self._mul(a, a)

    def _div(self, a: Number, b: Number) -> Number:
        if a.square is not None and b.square is not None:
            return self._root_of(self._div(a.square, b.square))
        was_log = bool(a.logs or b.logs)
        a, b = self.plain(a), self.plain(b)
        inverse = _inverse(b.cells)
        result = Number(
            _times(a.cells, inverse),
            positive=a.positive and b.positive,
            constant=a.constant and b.constant,
        )
        if not a.parts or was_log or len(b.cells) != 1:
            return result
        return self._with_parts(result, tuple((n, _times(p, inverse)) for n, p in a.parts))

    @staticmethod
    def _root_of(square: Number) -> Number:
        return Number(square.cells, square=square, positive=True, constant=square.constant)

    def _sqrt(self, a: Number) -> Number:
        a = self.plain(a)
        root = self._root_of(a)
        return root if a.positive and self._formal_roots else self._opened(root)

    def _exp(self, a: Number) -> Number:
        return Number(self._exp_of(self._opened(a)), positive=True)

    def _log(self, a: Number) -> Number:
        cells = self.plain(a).cells
        if 0 in cells:
            raise UndefinedError
        return Number((0,) * len(cells), logs=((1, cells),), constant=True)

    def _erf(self, a: Number) -> Number:
        return Number(tuple(self._odd("erf", x) for x in self.plain(a).cells))

    def _cos(self, a: Number) -> Number:
        return Number(tuple(self._even("cos", x) for x in self.plain(a).cells))

    def _sum(self, a: Number) -> Number:
        """A sum of which one term at most is not 0 is that term, and is split as it is."""
        a = self.plain(a)
        result = Number((sum(a.cells) % PRIME,), positive=a.positive, constant=a.constant)
        given = [place for place, x in enumerate(a.cells) if x]
        if not a.parts or len(given) > 1:
            return result
        return self._with_parts(
            result, tuple((n, (sum(part[i] for i in given) % PRIME,)) for n, part in a.parts)
        )

    def _top(self, a: Number) -> Number:
        a = self.plain(a)
        return Number((self._greatest(list(a.cells)),), positive=a.positive)

    def _max(self, a: Number, b: Number) -> Number:
        a, b = self.plain(a), self.plain(b)
        cells = tuple(self._greatest([x, y]) for x, y in _both(a.cells, b.cells))
        return Number(cells, positive=a.positive or b.positive)

    def _min(self, a: Number, b: Number) -> Number:
        """min(a, b) is -max(-a, -b), also under an exponential."""
        a, b = (replace(self.plain(v), parts=()) for v in (a, b))
        least = self._neg(self._max(self._neg(a), self._neg(b)))
        return replace(least, positive=a.positive and b.positive)

    def _picked(self, a: Number, b: Number) -> Number:
        """A choice by place: of parts and logarithms, too, with 0 for what one side lacks."""
        a, b = self._opened(a), self._opened(b)
        first, second = dict(a.logs), dict(b.logs)
        logs = {n: _placed(first.get(n, (1,)), second.get(n, (1,))) for n in {**first, **second}}
        return Number(
            _placed(a.cells, b.cells),
            parts=self._paired(a, b) if a.parts or b.parts else (),
            logs=tuple((n, logs[n]) for n in sorted(logs)),
            positive=a.positive and b.positive,
            constant=a.constant and b.constant,
        )

    def _ranked(self, a: Number, b: Number) -> Number:
        """b in an order that is an entry for all of a; and so its parts, and its square."""
        order = list(range(PLACES))
        key = self._entry("descending", *self.plain(a).cells)
        random.Random(key).shuffle(order)
        return self._put(b, order)

    def _put(self, b: Number, order: list[int]) -> Number:
        if b.square is not None:
            return self._root_of(self._put(b.square, order))

        def put(cells: Cells) -> Cells:
            wide = _wide(cells, PLACES)
            return tuple(wide[place] for place in order)

        return replace(
            b,
            cells=put(b.cells),
            parts=tuple((n, put(part)) for n, part in b.parts),
            logs=tuple((n, put(of)) for n, of in b.logs),
        )

    @staticmethod
    def _paired(a: Number, b: Number) -> Parts:
        first, second = (list(v.parts or ((1, v.cells),)) for v in (a, b))
        found: list[tuple[int, Cells]] = []
        while first or second:
            n = (first or second)[0][0]
            own = []
            for parts in (first, second):
                place = next((i for i, (m, _) in enumerate(parts) if m == n), None)
                own.append((0,) if place is None else parts.pop(place)[1])
            found.append((n, _placed(*own)))
        return tuple(found)

    # --- conditions
    def _outcome(self, comparison: str, x: int, y: int) -> int:
        """a < b is the entry for a - b, b > a the same one, and a >= b is 1 minus it."""
        if comparison in ("eq", "ne"):
            entry = self._even("equal", (x - y) % PRIME) if x != y else 1
        else:
            if comparison in ("gt", "le"):
                x, y = y, x
            entry = self._entry("below", (x - y) % PRIME) if x != y else 0
        return (1 - entry) % PRIME if comparison in ("ne", "le", "ge") else entry

    def _compared(self, comparison: str, a: Number, b: Number) -> Number:
        first, second = self.plain(a).cells, self.plain(b).cells
        return Number(tuple(self._outcome(comparison, x, y) for x, y in _both(first, second)))

    def _lt(self, a: Number, b: Number) -> Number:
        return self._compared("lt", a, b)

    def _le(self, a: Number, b: Number) -> Number:
        return self._compared("le", a, b)

    def _gt(self, a: Number, b: Number) -> Number:
        return self._compared("gt", a, b)

    def _ge(self, a: Number, b: Number) -> Number:
        return self._compared("ge", a, b)

    def _eq(self, a: Number, b: Number) -> Number:
        return self._compared("eq", a, b)

    def _ne(self, a: Number, b: Number) -> Number:
        return self._compared("ne", a, b)

    @staticmethod
    def _and(a: Number, b: Number) -> Number:
        return Number(_times(a.cells, b.cells))

    @staticmethod
    def _or(a: Number, b: Number) -> Number:
        return Number(tuple((x + y - x * y) % PRIME for x, y in _both(a.cells, b.cells)))

    @staticmethod
    def _not(a: Number) -> Number:
        return Number(tuple((1 - x) % PRIME for x in a.cells))

    @staticmethod
    def _number(a: Number) -> Number:
        return Number(a.cells)

    def _where(self, condition: Number, a: Number, b: Number) -> Number:
        """where(c, a, b) is b + c (a - b); where(a > b, a, b) and where(a >= b, a, b) are max."""
        positive = a.positive and b.positive
        first, second = self.plain(a).cells, self.plain(b).cells
        size = max(len(condition.cells), len(first), len(second))
        cells = [
            self._chosen(c, x, y)
            for c, x, y in zip(
                *(_wide(v, size) for v in (condition.cells, first, second)), strict=True
            )
        ]
        return Number(tuple(cells), positive=positive)

    def _chosen(self, c: int, x: int, y: int) -> int:
        if c in (self._outcome("lt", x, y), self._outcome("le", x, y)):
            return -self._greatest([-x % PRIME, -y % PRIME]) % PRIME
        if c in (self._outcome("gt", x, y), self._outcome("ge", x, y)):
            return self._greatest([x, y])
        return (y + c * (x - y)) % PRIME

    # --- the question
    def same(self, first: Formula, second: Formula) -> bool:
        """True if both formulas are equal for all tables. Raises UndefinedError."""
        a, b = self._opened(self.value(first)), self._opened(self.value(second))
        if a.logs or b.logs:
            return set(self._exp_of(self._sub(a, b))) == {1}
        return all(x == y for x, y in _both(a.cells, b.cells))
