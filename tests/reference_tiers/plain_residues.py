"""Residues in plain Python: rings, division, and the exponential of a chain of primes.

A value is one list of integers for each prime that it has, by the number of the prime. Matrices are
lists of rows. ``docs/mathematics.md`` (sections 1, 3 and 7) is the source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from reference_tiers.formulas import Formula, walk

Cells = list[int]
Matrix = list[list[int]]
MOST = 64
"""The largest integer that multiplies formal logarithms."""


class NoLevelError(Exception):
    """A function needs a level that the chain does not have."""


@dataclass(frozen=True)
class Residues:
    """Residues by level, and n log S for each n and S of ``logs``.

    ``number`` is the number of a value that is made of literals alone, logarithms aside.
    """

    cells: Mapping[int, Cells]
    logs: Mapping[int, Residues] = field(default_factory=dict)
    number: Fraction | None = None

    @property
    def size(self) -> int:
        """The number of elements."""
        return len(next(iter(self.cells.values())))


class ChainValues:
    """One draw along a chain: exp(x) at level i + 1 is w^x, of x at level i.

    ``bases``: w by the level of its exponents; without any there is neither exponential nor
    logarithm. ``inputs``: the residues of each name by level. ZeroDivisionError says that a divisor
    is 0 at some level.
    """

    def __init__(
        self, primes: Sequence[int], bases: Sequence[int], inputs: Mapping[str, Mapping[int, Cells]]
    ) -> None:
        self.primes = primes
        self.bases = bases
        self.inputs = inputs
        self._known: dict[Formula, Residues] = {}
        self._logarithms: dict[int, dict[int, int]] = {}

    def value(self, root: Formula) -> Residues:
        """The residues of a formula. Raises ZeroDivisionError and NoLevelError."""
        for term in walk(root):
            if term not in self._known:
                self._known[term] = self._applied(term, [self._known[e] for e in term.operands])
        return self._known[root]

    def _applied(self, term: Formula, operands: list[Residues]) -> Residues:
        if term.kind == "input":
            return Residues(self.inputs[term.name])
        if term.number is not None:
            return self._literal(term.number)
        result: Residues = getattr(self, f"_{term.kind}")(*operands)
        numbers = [each.number for each in operands]
        logs = any(each.logs for each in operands) and term.kind not in ("add", "sub", "neg")
        if logs or None in numbers or term.kind not in _ON_NUMBERS:
            return result
        return replace(result, number=_ON_NUMBERS[term.kind](*numbers))

    def _literal(self, number: Fraction) -> Residues:
        top, bottom = number.numerator, number.denominator
        cells = {i: [top * pow(bottom, -1, p) % p] for i, p in enumerate(self.primes)}
        return Residues(cells, number=number)

    # --- arithmetic, on the levels that both have
    def _both(self, a: Residues, b: Residues, of: Callable[[int, int], int]) -> Residues:
        size = max(a.size, b.size)
        found = {}
        for level in a.cells.keys() & b.cells.keys():
            pairs = zip(*(_wide(v.cells[level], size) for v in (a, b)), strict=True)
            found[level] = [of(x, y) % self.primes[level] for x, y in pairs]
        if not found:
            raise NoLevelError
        return Residues(dict(sorted(found.items())))

    def _added(self, a: Residues, b: Residues, sign: int) -> Residues:
        logs = dict(a.logs)
        for n, s in b.logs.items():
            m = sign * n
            logs[m] = self._mul(logs[m], s) if m in logs else s
        found = self._both(a, b, lambda x, y: x + sign * y)
        return replace(found, logs={n: _widened(s, found.size) for n, s in logs.items()})

    def _add(self, a: Residues, b: Residues) -> Residues:
        return self._added(a, b, 1)

    def _sub(self, a: Residues, b: Residues) -> Residues:
        return self._added(a, b, -1)

    def _neg(self, a: Residues) -> Residues:
        cells = {i: [-x % self.primes[i] for x in cells] for i, cells in a.cells.items()}
        return Residues(cells, {-n: s for n, s in a.logs.items()})

    def _mul(self, a: Residues, b: Residues) -> Residues:
        for one, other in ((a, b), (b, a)):
            n = _small_integer(other.number)
            if one.logs and not other.logs and n is not None:
                product = self._both(one, other, lambda x, y: x * y)
                size = product.size
                logs = {n * k: _widened(s, size) for k, s in one.logs.items()} if n else {}
                number = None if one.number is None else one.number * n
                return Residues(product.cells, logs, number)
        return self._both(self.plain(a), self.plain(b), lambda x, y: x * y)

    def _square(self, a: Residues) -> Residues:
        return self._mul(a, a)

    def _div(self, a: Residues, b: Residues) -> Residues:
        a, b = self.plain(a), self.plain(b)
        inverse = {}
        for level, cells in b.cells.items():
            if 0 in cells:
                raise ZeroDivisionError
            inverse[level] = [pow(x, -1, self.primes[level]) for x in cells]
        return self._both(a, Residues(inverse), lambda x, y: x * y)

    def _sum(self, a: Residues) -> Residues:
        cells = {i: [sum(cells) % self.primes[i]] for i, cells in a.cells.items()}
        number = None if a.number is None else a.number * a.size
        return Residues(cells, {n: self._multiplied(s) for n, s in a.logs.items()}, number)

    def _multiplied(self, a: Residues) -> Residues:
        found = {}
        for level, cells in a.cells.items():
            product = 1
            for x in cells:
                product = product * x % self.primes[level]
            found[level] = [product]
        return Residues(found)

    # --- the exponential
    def _exp(self, a: Residues) -> Residues:
        """exp(data + sum n log S) is w^data times the powers of S."""
        result = None if a.logs and a.number == 0 else self._raised(a)
        for n, s in a.logs.items():
            if n < 0 and any(0 in cells for cells in s.cells.values()):
                raise ZeroDivisionError
            power = Residues(
                {i: [pow(x, n, self.primes[i]) for x in cells] for i, cells in s.cells.items()}
            )
            result = power if result is None else self._mul(result, power)
        assert result is not None
        return result

    def _raised(self, a: Residues) -> Residues:
        found = {}
        for level, cells in a.cells.items():
            if level < len(self.bases):
                p = self.primes[level + 1]
                found[level + 1] = [pow(self.bases[level], x, p) for x in cells]
        if not found:
            raise NoLevelError
        return Residues(found)

    def _log(self, a: Residues) -> Residues:
        a = self.plain(a)
        if any(0 in cells for cells in a.cells.values()):
            raise ZeroDivisionError
        if max(a.cells) < 1:
            raise NoLevelError
        zero = {i: [0] * a.size for i in range(len(self.primes))}
        return Residues(zero, {1: Residues(a.cells)}, Fraction(0))

    def plain(self, a: Residues) -> Residues:
        """Logarithms worked out: log S is the exponent of |S|, one level down."""
        if not a.logs:
            return a
        total = None if a.number == 0 else Residues(a.cells)
        for n, s in a.logs.items():
            found = {
                level - 1: [n * self._exponent(x, level) % self.primes[level - 1] for x in cells]
                for level, cells in s.cells.items()
                if level >= 1
            }
            if not found:
                raise NoLevelError
            term = Residues(found)
            total = term if total is None else self._both(total, term, lambda x, y: x + y)
        assert total is not None
        return total

    def _exponent(self, x: int, level: int) -> int:
        """The r with w^r = x, or = -x if x is no square, by a list of all powers."""
        p, w = self.primes[level], self.bases[level - 1]
        known = self._logarithms.get(level)
        if known is None:
            known, power = {}, 1
            for r in range(self.primes[level - 1]):
                known[power] = r
                power = power * w % p
            self._logarithms[level] = known
        return known[x] if x in known else known[p - x]


_ON_NUMBERS: Mapping[str, Callable[..., Fraction]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "square": lambda a: a * a,
}


def _small_integer(number: Fraction | None) -> int | None:
    if number is None or number.denominator != 1 or abs(number) > MOST:
        return None
    return int(number)


def _wide(cells: Cells, size: int) -> Cells:
    return cells * size if len(cells) < size else cells


def _widened(a: Residues, size: int) -> Residues:
    return replace(a, cells={i: _wide(cells, size) for i, cells in a.cells.items()})


# --- matrices, and sums with weights


def matmul(a: Matrix, b: Matrix, prime: int, weights: Cells | None = None) -> Matrix:
    """A product of matrices; with weights one for every place along the summed axis."""
    return [
        [
            sum((1 if weights is None else weights[k]) * row[k] * b[k][j] for k in range(len(row)))
            % prime
            for j in range(len(b[0]))
        ]
        for row in a
    ]


def transposed(a: Matrix) -> Matrix:
    """Rows as columns."""
    return [list(column) for column in zip(*a, strict=True)]


def summed(a: Matrix, axis: int, prime: int, weights: Cells | None = None) -> Cells:
    """The sum along an axis; with weights one for every place along it."""
    rows = a if axis == 1 else transposed(a)
    return [
        sum((1 if weights is None else weights[k]) * x for k, x in enumerate(row)) % prime
        for row in rows
    ]


def weights_of(
    pattern: Sequence[tuple[int, int, int]], units: Mapping[int, Cells], prime: int
) -> Cells:
    """The weights along an axis that is made of factors, the last one varying fastest.

    A factor (number, count, unit) is ``count`` equal segments of ``unit`` places. Those of class
    ``number`` have the weights ``units[number]``; a class without any has the weight 1.
    """
    result = [1]
    for number, count, unit in pattern:
        own = units.get(number, [1] * unit)
        result = [w * own[i] % prime for w in result for _ in range(count) for i in range(unit)]
    return result
