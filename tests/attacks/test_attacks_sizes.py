"""Formulas that are equal for few places along an axis, and not for as many as there are.

A determinant of power sums vanishes for fewer places than it has rows, whatever their weights are.
The stages are too large to be looked at at full sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from attacks.pairs import found
from zoo.builder import Builder, lineage

from pitcheck.plan.model import Number, Plan

PLACES, WIDE = 128, (1024, 512)
NOT_PROVEN = ("mismatch", "inconclusive")
ONE, NOTHING = Number(1), Number(0)

Rows = Sequence[Sequence[str]]
Extra = Callable[[Builder, str, int], str]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mismatch writes its counterexample where it is run."""
    monkeypatch.chdir(tmp_path)


def determinant(b: Builder, rows: Rows, first: int = 0) -> str:
    """Expand a determinant along its row ``first``; later ones along their first rows."""
    if len(rows) == 1:
        return rows[0][0]
    total = ""
    for column, entry in enumerate(rows[first]):
        others = [row for number, row in enumerate(rows) if number != first]
        minor = determinant(b, [(*row[:column], *row[column + 1 :]) for row in others])
        term = str(b.op("mul", entry, minor))
        odd = (first + column) % 2
        if not total:
            total = str(b.op("neg", term)) if odd else term
        else:
            total = str(b.op("sub" if odd else "add", total, term))
    return total


def power_sums(b: Builder, x: str, rows: int, add: Callable[[str], str] | None = None) -> Rows:
    """Return rows of power sums; their determinant is 0 for fewer places than rows."""
    sums, power = [], x
    for _ in range(2 * rows - 1):
        sums.append(str(b.op("sum", power) if add is None else add(power)))
        power = str(b.op("mul", power, x))
    return [sums[row : row + rows] for row in range(rows)]


def of_sums(b: Builder, x: str, rows: int, first: int = 0) -> str:
    return determinant(b, power_sums(b, x, rows), first)


def of_means(b: Builder, x: str, rows: int, first: int = 0) -> str:
    return determinant(b, power_sums(b, x, rows, lambda power: b.op("mean", power)), first)


def of_products(b: Builder, x: str, rows: int, first: int = 0) -> str:
    """Return the determinant of the matrix of scalar products of powers of ``x``."""
    powers, power = [], x
    for _ in range(rows):
        powers.append(str(b.op("reshape", power, sizes=(PLACES, 1))))
        power = str(b.op("mul", power, x))
    columns = b.op("cat", *powers, axis=1)
    products = b.op("matmul", b.op("transpose", columns, dim0=0, dim1=1), columns)
    lines = b.op("split", products, axis=0, sizes=(1,) * rows, out=[f"l{n}" for n in range(rows)])
    cells = [
        b.op("split", line, axis=1, sizes=(1,) * rows, out=[f"c{n}.{m}" for m in range(rows)])
        for n, line in enumerate(lines)
    ]
    return str(b.op("sum", determinant(b, cells, first)))


def at_an_index(b: Builder, x: str, rows: int, first: int = 0) -> str:
    """Return the determinant of power sums that are added at one index."""
    number = b.input("i", (PLACES,), dtype="int64", bounds=(0, 1))
    nothing = b.input("zero", (1,))

    def add(power: str) -> str:
        return str(b.op("index_add", b.op("mul", nothing, NOTHING), number, power, axis=0))

    return str(b.op("sum", determinant(b, power_sums(b, x, rows, add), first)))


def in_an_exponential(b: Builder, x: str, rows: int, first: int = 0) -> str:
    return str(b.op("sum", b.op("exp", b.op("add", x, of_sums(b, x, rows, first)))))


def in_a_divisor(b: Builder, x: str, rows: int, first: int = 0) -> str:
    square = b.op("square", of_sums(b, x, rows, first))
    return str(b.op("sum", b.op("div", x, b.op("add", square, ONE))))


def plan(extra: Extra, rows: int, first: int | None) -> Plan:
    """Return y^2 + what ``extra`` makes of x, or of x and a determinant that is 0 (None)."""
    b = Builder("sizes")
    x, y = b.input("x", (PLACES,)), b.input("y", WIDE)
    if first is None:
        made = extra(b, x, rows)
        if extra is in_an_exponential:
            made = str(b.op("sum", b.op("exp", x)))
        elif extra is in_a_divisor:
            made = str(b.op("sum", x))
        else:
            made = str(b.op("mul", made, NOTHING))
    else:
        made = extra(b, x, rows, first)  # type: ignore[call-arg]
    b.op("add", b.op("square", y), made, out="out")
    b.output("out")
    return b.plan()


EXTRAS = [of_sums, of_means, of_products, at_an_index, in_an_exponential, in_a_divisor]


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_determinant_that_is_0_for_few_places(extra: Extra) -> None:
    assert found(plan(extra, 5, None), plan(extra, 5, 0))[0] in NOT_PROVEN


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_determinant_is_itself_along_another_row(extra: Extra) -> None:
    assert found(plan(extra, 3, 0), plan(extra, 3, 1)) == ("equivalent", "")


def before(b: Builder, x: str) -> str:
    """Return the sums of all elements before each."""
    return str(b.op("sub", b.op("cumsum", x, axis=0), x))


@pytest.mark.parametrize("depth", [1, 4])
def test_arguments_that_differ_by_a_place_before_all_that_are_added(depth: int) -> None:
    """At ``depth`` + 1 places the first one has none before it, where the arguments differ."""

    def ordered(right: bool) -> Plan:
        b = Builder("ordered")
        x, t, y = (b.input(name, (PLACES,)) for name in ("x", "t", "y"))
        wide = b.input("wide", WIDE)
        moved = y if right else b.op("add", y, before(b, t))
        term = b.op("mul", x, b.op("sub", b.op("exp", moved), b.op("exp", y)))
        for _ in range(depth):
            term = b.op("mul", x, before(b, term))
        b.op("add", b.op("square", wide), b.op("sum", term), out="out")
        b.output("out")
        return b.plan()

    assert found(ordered(True), ordered(False))[0] in NOT_PROVEN
    assert found(ordered(False), ordered(False)) == ("equivalent", "")


@pytest.mark.parametrize("rows", [3, 5])
def test_a_determinant_over_ranks(rows: int) -> None:
    def over(ranks: int, first: int | None) -> Plan:
        b = Builder("ranks", {"r": ranks} if ranks > 1 else None)
        x = b.input("x", (PLACES // ranks,), {0: "r"} if ranks > 1 else None)
        y = b.input("y", WIDE)

        def add(power: str) -> str:
            own = b.op("sum", power)
            return str(b.op("all_reduce", own, group="r") if ranks > 1 else own)

        made = b.op("mul", add(x), NOTHING)
        if first is not None:
            made = determinant(b, power_sums(b, x, rows, add), first)
        b.op("add", b.op("square", y), made, out="out")
        b.output("out", spec=lineage("out") if ranks > 1 else None)
        return b.plan()

    assert found(over(1, None), over(2, 0))[0] in NOT_PROVEN
    if rows == 3:
        assert found(over(1, 0), over(2, 1)) == ("equivalent", "")


# --- places that are told apart by an order, by integers, or by an extremum

Places = Callable[[Builder, str], str]
"""A wrong formula of x, which is 0, or the least element, for few places."""


def row(b: Builder, x: str) -> str:
    return str(b.op("reshape", x, sizes=(1, PLACES)))


def column(b: Builder, x: str) -> str:
    return str(b.op("reshape", x, sizes=(PLACES, 1)))


def earlier(b: Builder, x: str, *, integers: bool) -> str:
    """Return which places come before which, or have smaller integers."""
    place = b.op("positions", x, axis=0)
    if integers:
        place = b.input("c", (PLACES,), dtype="int64", bounds=(0, 1000))
    return str(b.op("lt", row(b, place), column(b, place)))


def largest_before(integers: bool) -> Places:
    def make(b: Builder, x: str) -> str:
        """Six times the largest of all before, less what it is where there is none before."""
        none, where, y = b.input("none", ()), earlier(b, x, integers=integers), x
        for _ in range(6):
            y = b.op("amax", b.op("where", where, row(b, y), none), axes=(1,))
        return str(b.op("sub", b.op("sum", y), b.op("sum", b.op("add", none, zeros(b, x)))))

    return make


def zeros(b: Builder, x: str) -> str:
    return str(b.op("mul", x, NOTHING))


def of_labels(count: int, function: str) -> Places:
    def make(b: Builder, x: str) -> str:
        """The product of sums over labels, of which some have no place if there are few."""
        label = b.input("c", (PLACES,), dtype="int64", bounds=(0, count))
        hot = b.op("cast", b.op("one_hot", label, classes=count), dtype="float32")
        sums = b.op("matmul", row(b, x), hot)
        sums = b.op(function, sums) if function else sums
        names = [f"p{n}" for n in range(count)]
        parts = b.op("split", sums, axis=1, sizes=(1,) * count, out=names)
        result = parts[0]
        for part in parts[1:]:
            result = b.op("mul", result, part)
        return str(b.op("sum", result))

    return make


def by_layers(integers: bool) -> Places:
    def make(b: Builder, x: str) -> str:
        """Ten layers of a function of all before, the tenth of which begins behind ten places."""
        where, y = earlier(b, x, integers=integers), x
        for _ in range(10):
            y = b.op("erf", b.op("sum", b.op("where", where, row(b, y), NOTHING), axes=(1,)))
        return str(b.op("sum", b.op("mul", x, y)))

    return make


def without_the_largest(b: Builder, x: str) -> str:
    """The largest once four are left out, less the least."""
    least, y = b.op("amin", x), x
    for _ in range(4):
        y = b.op("where", b.op("eq", y, b.op("amax", y)), least, y)
    return str(b.op("sub", b.op("amax", y), least))


def numbers(count: Places, factors: int) -> Places:
    def make(b: Builder, x: str) -> str:
        """(n - 1) (n - 2) ..., of a number of places."""
        number = count(b, x)
        product = b.op("sub", number, ONE)
        for _ in range(factors - 1):
            number = b.op("sub", number, ONE)
            product = b.op("mul", product, b.op("sub", number, ONE))
        return str(product)

    return make


def by_logarithms(b: Builder, x: str) -> str:
    return str(b.op("sum", b.op("log", b.op("exp", b.op("add", zeros(b, x), ONE)))))


def by_integers(b: Builder, x: str) -> str:
    ones = b.input("c", (PLACES,), dtype="int64", bounds=(0, 2))
    return str(b.op("cast", b.op("sum", ones), dtype="float32"))


TOLD_APART: dict[str, Places] = {
    "largest before": largest_before(integers=False),
    "largest of smaller integers": largest_before(integers=True),
    "labels under a function": of_labels(6, "tanh"),
    "labels": of_labels(8, ""),
    "layers by places": by_layers(integers=False),
    "layers by integers": by_layers(integers=True),
    "without the largest": without_the_largest,
    "a number by logarithms": numbers(by_logarithms, 6),
    "a number of integers": numbers(by_integers, 12),
}


@pytest.mark.parametrize("name", TOLD_APART)
def test_formulas_that_vanish_for_few_places(name: str) -> None:
    def beside(make: Places, *, right: bool) -> Plan:
        b = Builder("places")
        x, y = b.input("x", (PLACES,)), b.input("y", WIDE)
        made = b.op("mul", make(b, x), NOTHING) if right else make(b, x)
        b.op("add", b.op("square", y), made, out="out")
        b.output("out")
        return b.plan()

    make = TOLD_APART[name]
    assert found(beside(make, right=True), beside(make, right=False))[0] in NOT_PROVEN
