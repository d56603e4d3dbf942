"""Pairs that are equal as formulas, and do not have a value at the same places."""

from __future__ import annotations

from typing import Any

import pytest
from attacks.formulas import Expression, Formula, at_small_numbers, planned
from attacks.pairs import found

NOT_PROVEN = ("mismatch", "inconclusive")
E = Expression
Pair = tuple[Formula, Formula]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mismatch writes its counterexample where it is run."""
    monkeypatch.chdir(tmp_path)


def flip(a: E) -> E:
    return a.flip(axes=(0,))


def rows(a: E) -> E:
    return a.sum(axes=(1,))


def col(a: E) -> E:
    return a.sum(axes=(1,), keepdim=True)


def head(a: E, to: int = 2) -> E:
    return a.slice(axis=0, start=0, stop=to)


def tail(a: E) -> E:
    return a.slice(axis=0, start=2, stop=4)


def one(a: E) -> E:
    """1 wherever a is not 0, and without a value elsewhere."""
    return a / a


def roll(a: E, shift: int = 1) -> E:
    return a.roll(axis=0, shift=shift)


def t(a: E) -> E:
    return a.transpose(dim0=0, dim1=1)


def zeros(a: E) -> E:
    return a * 0


def wide(a: E) -> E:
    """One element for all."""
    return a.select(axis=0, index=0).select(axis=0, index=0)


WRONG: dict[str, Pair] = {
    # --- elements moved
    "the other half": (
        lambda x, z: z.cat(z / x, axis=0),
        lambda x, z: (z * one(x)).cat(z / x, axis=0),
    ),
    "flipped": (lambda x, z: z / x, lambda x, z: (z / x) * one(flip(x))),
    "rolled": (lambda x, z: z / x, lambda x, z: z / x * one(roll(x))),
    "rolled there and back": (lambda x, z: z / x, lambda x, z: z / x * roll(one(roll(x)))),
    "transposed": (lambda x, z: z / x, lambda x, z: z / x + zeros(one(t(x)))),
    "upper half for lower": (
        lambda x, z: head(z) / head(x),
        lambda x, z: head(z) / head(x) * one(tail(x)),
    ),
    "one element for all": (lambda x, z: z / x, lambda x, z: z / x * one(wide(x))),
    "all elements for one": (
        lambda x, z: wide(z / x),
        lambda x, z: wide(z / x) + zeros(rows(one(x)).sum()),
    ),
    "a row for a row": (
        lambda x, v: v / x.select(axis=0, index=0),
        lambda x, v: v / x.select(axis=0, index=0) * one(x.select(axis=0, index=1)),
    ),
    "a row for all rows": (
        lambda x, z: z / x,
        lambda x, z: z / x * one(x.select(axis=0, index=1)),
    ),
    "a sum of rows": (lambda x, z: z / x, lambda x, z: z / x + zeros(col(one(x)))),
    "a running sum": (lambda x, z: z / x, lambda x, z: z / x + zeros(one(x).cumsum(axis=0))),
    "a product of matrices": (lambda x, z: z / x, lambda x, z: z / x + zeros(one(x)).matmul(z)),
    "gathered": (
        lambda x, z, i: z / x.gather(i, axis=0),
        lambda x, z, i: z / x.gather(i, axis=0) * one(x),
    ),
    "gathered elsewhere": (
        lambda x, z, i: z / x,
        lambda x, z, i: z / x * one(x.gather(i, axis=0)),
    ),
    "selected by index": (
        lambda x, z, p: z / x,
        lambda x, z, p: z / x * one(x).index_select(p, axis=0),
    ),
    "reshaped": (
        lambda x, z: z / x,
        lambda x, z: z / x * one(t(x).reshape(sizes=(16,)).reshape(sizes=(4, 4))),
    ),
    "parts exchanged": (
        lambda x, z: head(z / x).cat(tail(z), axis=0),
        lambda x, z: (head(z) / head(x)).cat(tail(z) * one(tail(x)), axis=0),
    ),
    "three parts": (
        lambda x, z: z.cat(z / x, z, axis=1),
        lambda x, z: z.cat(z / x, z * one(x), axis=1),
    ),
    # --- divided where the reference does not
    "not divided at all": (lambda x, z: z + x, lambda x, z: z * one(x) + x),
    "times 0": (lambda x, z: z + z, lambda x, z: z + z + zeros(z / x)),
    "sum without the divided terms": (
        lambda x, z: rows(z) + z.select(axis=1, index=0) / x.select(axis=1, index=0),
        lambda x, z: rows(z * one(x)) + z.select(axis=1, index=0) / x.select(axis=1, index=0),
    ),
    "another divisor": (lambda x, y, z: z / x * y, lambda x, y, z: z / x * y * y / y),
    "one divisor more": (lambda x, y, z: z / x, lambda x, y, z: z * y / (x * y)),
    "divided and multiplied": (lambda x, y, z: z / x, lambda x, y, z: z / y / (x / y)),
    "a difference": (lambda x, y, z: z / x, lambda x, y, z: z / x * one(x - y)),
    "a sum as divisor": (lambda x, z: z / x, lambda x, z: z / x * one(col(x))),
    "the square less 1": (lambda x, z: z / (x - 1), lambda x, z: z * (x + 1) / (x * x - 1)),
    "a scalar": (lambda s, z: z + s, lambda s, z: (z * s + s * s) / s),
    "of a factor only": (lambda x, y, z: z / x, lambda x, y, z: (z * y) / x / y),
    "average of no numbers": (
        lambda m, z: rows(m.where(z, zeros(z))),
        lambda m, z: rows(m.where(z, zeros(z))) / rows(m.float()) * rows(m.float()),
    ),
    "weights that may vanish": (
        lambda x, z: rows(z),
        lambda x, z: rows(z) * one(rows(x.relu())),
    ),
    "a count that inputs decide": (
        lambda x, z: rows(z),
        lambda x, z: rows(z) * one(rows((x > 0).float())),
    ),
    "exponentials that inputs choose": (
        lambda x, z: rows(z),
        lambda x, z: rows(z) * one(rows((x > 0).where(x.exp(), zeros(x)))),
    ),
    # --- conditions
    "one branch of integers": (
        lambda x, z, i: (i > 2).where(z / x, z),
        lambda x, z, i: (i > 2).where(z / x, z * one(x)),
    ),
    "the other branch": (
        lambda x, z, m: m.where(z / x, z),
        lambda x, z, m: (~m).where(z * one(x), z / x),
    ),
    "behind no condition": (
        lambda x, z, m: m.where(z / x, z),
        lambda x, z, m: m.where(z, z * x) / x,
    ),
    "a condition at another place": (
        lambda x, z, m: m.where(z / x, z),
        lambda x, z, m: m.where(z / x, z * flip(m).where(one(x), zeros(x) + 1)),
    ),
    "a mask of numbers as factor": (
        lambda x, z: (x > 0).where(z / x, zeros(z)),
        lambda x, z: (z / x) * (x > 0).float(),
    ),
    "a mask as factor": (
        lambda x, z, m: m.where(z / x, zeros(z)),
        lambda x, z, m: z / x * m.float(),
    ),
    "at the threshold": (
        lambda x, z: (x > 0).where(z / x, zeros(z)),
        lambda x, z: (x >= 0).where(z / x, zeros(z)) * (x > 0).float(),
    ),
    "a masked sum": (
        lambda x, z, m: rows(m.where(z / x, zeros(z))),
        lambda x, z, m: rows(m.float() * (z / x)),
    ),
    "masked before": (
        lambda x, z, m: m.where(z, zeros(z)) / m.where(x, zeros(x) + 1),
        lambda x, z, m: m.where(z, zeros(z)) / x,
    ),
    "two conditions": (
        lambda x, z, m: m.where((z > 0).where(z / x, z), z),
        lambda x, z, m: m.where((z > 0).where(z / x, z * one(x)), z),
    ),
    "one of two conditions": (
        lambda x, z, m, i: m.where((i > 1).where(z / x, z), z),
        lambda x, z, m, i: (i > 1).where(m.where(z / x, z * one(x)), z),
    ),
    "relu hides": (
        lambda x, z: (z / x).relu() * (x > 0).float() if False else z.relu(),
        lambda x, z: (z * one(x)).relu(),
    ),
    "a maximum": (lambda x, z: z.maximum(x), lambda x, z: (z * one(x)).maximum(x)),
    "a maximum over rows": (
        lambda x, z: z.amax(axes=(1,)) / x.select(axis=1, index=0),
        lambda x, z: (z * one(x)).amax(axes=(1,)) / x.select(axis=1, index=0),
    ),
    "in a condition": (
        lambda x, z: (z > 0).where(z, x),
        lambda x, z: (z * one(x) > 0).where(z, x),
    ),
    # --- roots and logarithms
    "the root of another": (
        lambda x, z: z.sqrt() * x,
        lambda x, z: z.sqrt() * x * one(flip(z).sqrt() + 1),
    ),
    "two roots for one": (
        lambda x, z: (x * z).sqrt(),
        lambda x, z: x.sqrt() * z.sqrt(),
    ),
    "a root that is squared": (lambda x, z: x * z, lambda x, z: z * x.sqrt() * x.sqrt()),
    "a root elsewhere": (
        lambda x, z: z.sqrt().cat(z, axis=0),
        lambda x, z: z.sqrt().cat(z.sqrt().square(), axis=0),
    ),
    "the inverse root twice": (lambda x, z: z / x, lambda x, z: z * x.rsqrt() * x.rsqrt()),
    "the inverse root for the root": (
        lambda x, z: z * x.sqrt(),
        lambda x, z: z * x * x.rsqrt(),
    ),
    "a norm": (lambda x, z: z + x, lambda x, z: z * one(col(x.square())) + x),
    "a norm of another row": (
        lambda x, z: z / col(x.square()).sqrt(),
        lambda x, z: z / col(x.square()).sqrt() * one(flip(col(x.square()))),
    ),
    "the exponential of a logarithm": (lambda x, z: x * z, lambda x, z: x.log().exp() * z),
    "a logarithm flipped": (
        lambda x, z: x.log() + z,
        lambda x, z: x.log() + z + zeros(flip(x).log()),
    ),
    "the logarithm of a product": (lambda x, z: (x * z).log(), lambda x, z: x.log() + z.log()),
    "a logarithm for a divisor": (
        lambda x, z: z / x,
        lambda x, z: z / x + zeros(x.log()),
    ),
    "a logarithm for a root": (
        lambda x, z: z * x.sqrt(),
        lambda x, z: z * x.sqrt() + zeros(x.log()),
    ),
    "a power for a power": (lambda x, z: z * x, lambda x, z: z * x.square() * x.reciprocal()),
    # --- derivatives
    "the derivative of a root": (
        lambda x, z: z * x.sqrt(),
        lambda x, z: z.apply("sqrt.backward", x, x.sqrt(), z) * x * 2,
    ),
    "the derivative of a logarithm": (
        lambda x, z: z + x,
        lambda x, z: (
            z.apply("log.backward", x.exp() - 1, (x.exp() - 1).log(), z) * (x.exp() - 1) + x
        ),
    ),
    "a derivative elsewhere": (
        lambda x, z: z.apply("reciprocal.backward", x, x.reciprocal(), z),
        lambda x, z: (
            z.apply("reciprocal.backward", x, x.reciprocal(), z)
            + zeros(flip(z.apply("reciprocal.backward", x, x.reciprocal(), z)))
        ),
    ),
    # --- over a value that may be missing
    "a cut times a mask": (
        lambda x, z, m: m.where((z / x).exp(), zeros(z)),
        lambda x, z, m: (z / x).exp() * m.float(),
    ),
    "a cut that is rolled": (
        lambda x, z: (z / x).exp() + x.exp(),
        lambda x, z: (z / x).exp() + x.exp() + zeros(roll((z / x).exp())),
    ),
    "a masked row": (
        lambda y, m: m.where(y.masked_fill(~m, float("-inf")).softmax(axis=1), zeros(y)),
        lambda y, m: y.masked_fill(~m, float("-inf")).softmax(axis=1) * m.float(),
    ),
}
RIGHT: dict[str, Pair] = {
    "times the inverse": (lambda x, z: z / x, lambda x, z: z * x.reciprocal()),
    "one after the other": (lambda x, y, z: z / (x * y), lambda x, y, z: z / x / y),
    "both at once": (lambda x, y, z: z / x / y, lambda x, y, z: z / (x * y)),
    "three at once": (lambda x, y, s, z: z / x / y / s, lambda x, y, s, z: z / (x * y * s)),
    "in another order": (lambda x, y, z: z / x / y, lambda x, y, z: z / y / x),
    "the negative": (lambda x, z: z / x, lambda x, z: -(z / -x)),
    "a multiple": (lambda x, z: z / x, lambda x, z: z * 2 / (x * 2)),
    "a square": (lambda x, z: z / x / x, lambda x, z: z / x.square()),
    "less than the reference": (lambda x, z: z * one(x), lambda x, z: z + zeros(x)),
    "flipped before": (lambda x, z: flip(z / x), lambda x, z: flip(z) / flip(x)),
    "rolled before": (lambda x, z: roll(z / x), lambda x, z: roll(z) / roll(x)),
    "transposed before": (lambda x, z: t(z / x), lambda x, z: t(z) / t(x)),
    "cut before": (lambda x, z: head(z / x), lambda x, z: head(z) / head(x)),
    "in two parts": (
        lambda x, z: z / x,
        lambda x, z: (head(z) / head(x)).cat(tail(z) / tail(x), axis=0),
    ),
    "gathered before": (
        lambda x, z, p: (z / x).index_select(p, axis=0),
        lambda x, z, p: z.index_select(p, axis=0) / x.index_select(p, axis=0),
    ),
    "divided before the sum": (
        lambda s, z: rows(z) / s,
        lambda s, z: rows(z / s),
    ),
    "one divisor for all": (
        lambda s, x, z: (z + x) / s,
        lambda s, x, z: z / s + x / s,
    ),
    "the same condition": (
        lambda x, z, i: (i > 2).where(z / x, z),
        lambda x, z, i: (i > 2).where(z * x.reciprocal(), z),
    ),
    "the contrary condition": (
        lambda x, z: (x > z).where(z / x, z),
        lambda x, z: (~(x > z)).where(z, z * x.reciprocal()),
    ),
    "the same condition between numbers": (
        lambda x, y, z: (y > 0).where(z / x, z),
        lambda x, y, z: (-y < 0).where(z * x.reciprocal(), z),
    ),
    "fewer inputs with a condition": (
        lambda x, z, m: m.where(z / x, z * one(x)),
        lambda x, z, m: m.where(z / x, z),
    ),
    "a mask before the quotient": (
        lambda s, z, m: rows(m.where(z, zeros(z))) / s,
        lambda s, z, m: rows(m.where(z / s, zeros(z) / s)),
    ),
    "a masked mean": (
        lambda z, m: rows(m.float() * z) / rows(m.float()),
        lambda z, m: rows(m.where(z, zeros(z)) / col(m.float())),
    ),
    "a weighted mean": (
        lambda x, z: rows(x * z) / rows(x),
        lambda x, z: rows(x / col(x) * z),
    ),
    "a count of at least 1": (
        lambda z, m: rows(z) / rows(m.float()).clamp(min=1),
        lambda z, m: rows(z) * rows(m.float()).clamp(min=1).reciprocal(),
    ),
    "clamped numbers": (
        lambda x, z: z,
        lambda x, z: z * one(x.clamp(min=1)),
    ),
    "squares and 1": (lambda x, z: z, lambda x, z: z * one(col(x.square()) + 1)),
    "exponentials": (lambda x, z: z, lambda x, z: z * one(rows(x.exp()).sum())),
    "softmax": (
        lambda x, z: rows(x.softmax(axis=1) * z),
        lambda x, z: rows(x.exp() * z) / rows(x.exp()),
    ),
    "a norm": (
        lambda x, z: z / col(x.square()).sqrt(),
        lambda x, z: z * col(x.square()).rsqrt(),
    ),
    "a norm in two parts": (
        lambda x, z: z / col(x.square()).sqrt(),
        lambda x, z: (
            z
            / (
                x.slice(axis=1, start=0, stop=2).square().sum(axes=(1,), keepdim=True)
                + x.slice(axis=1, start=2, stop=4).square().sum(axes=(1,), keepdim=True)
            ).sqrt()
        ),
    ),
    "a root of a root's argument": (
        lambda x, z: z * x.rsqrt(),
        lambda x, z: z / x * x.sqrt(),
    ),
    "the inverse root": (lambda x, z: z / x.sqrt(), lambda x, z: z * x.rsqrt()),
    "logarithms": (
        lambda x, y: x.exp().log() + y.log(),
        lambda x, y: x + (y * y.log()) / y,
    ),
    "Adam": (
        lambda x, y: y / (x.square().sqrt() + 1),
        lambda x, y: y * (x.square().sqrt() + 1).reciprocal(),
    ),
    "RMS norm": (
        lambda x: x / (x.square().mean(axes=(1,), keepdim=True) + 1).sqrt(),
        lambda x: x * (col(x.square()) / 4 + 1).rsqrt(),
    ),
    "a variance": (
        lambda x: (
            x / ((x - x.mean(axes=(1,), keepdim=True)).square().mean(axes=(1,), keepdim=True) + 1)
        ),
        lambda x: (
            x
            / (
                x.square().mean(axes=(1,), keepdim=True)
                - x.mean(axes=(1,), keepdim=True).square()
                + 1
            )
        ),
    ),
    "the derivative of an inverse": (
        lambda x, z: z.apply("reciprocal.backward", x, x.reciprocal(), z),
        lambda x, z: -(z / x / x),
    ),
    "the derivative of a root": (
        lambda x, z: z.apply("sqrt.backward", x, x.sqrt(), z),
        lambda x, z: z * x.rsqrt() * 0.5,
    ),
    "a maximum after": (
        lambda x, z: (z / x).maximum(x),
        lambda x, z: x.maximum(z * x.reciprocal()),
    ),
    "in the same condition": (
        lambda x, z: (z / x > 1).where(z, x),
        lambda x, z: (z * x.reciprocal() > 1).where(z, x),
    ),
    "a cut in between": (
        lambda x, z, m: m.where((z / x).exp(), zeros(z)),
        lambda x, z, m: (~m).where(zeros(z), (z * x.reciprocal()).exp()),
    ),
    "a masked row": (
        lambda y, m: m.where(y.masked_fill(~m, float("-inf")).softmax(axis=1), zeros(y)),
        lambda y, m: (~m).where(zeros(y), y.masked_fill(~m, float("-inf")).softmax(axis=1)),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    reference, parallel = WRONG[name]
    assert at_small_numbers(reference, parallel) != (True, True)
    assert found(planned(reference), planned(parallel))[0] in NOT_PROVEN


@pytest.mark.parametrize("name", RIGHT)
def test_right(name: str) -> None:
    reference, parallel = RIGHT[name]
    assert at_small_numbers(reference, parallel) == (True, True)
    assert found(planned(reference), planned(parallel)) == ("equivalent", "")


# --- over two ranks: the reference, what both ranks compute together, what each computes


def ours(a: E) -> E:
    return a.all_reduce()


def both(a: E, of: Any) -> E:
    """A formula of each rank's rows, added."""
    return of(head(a)) + of(tail(a))


def down(a: E) -> E:
    return a.sum(axes=(0,))


WRONG_RANKS: dict[str, tuple[Formula, Formula, Formula, bool]] = {
    "the own rows of each": (
        lambda z, x, s: down(z) / s + zeros(down(x)),
        lambda z, x, s: (
            (down(head(z)) * one(down(head(x))) + down(tail(z)) * one(down(tail(x)))) / s
        ),
        lambda z, x, s: ours(down(z) * one(down(x))) / s,
        True,
    ),
    "the rows of the other": (
        lambda z, x: z / x,
        lambda z, x: z / x * flip(one(x)),
        lambda z, x: z / x * flip(one(x).all_gather(axis=0)).reduce_scatter(axis=0) * 0.5,
        False,
    ),
    "gathered": (
        lambda z, x: z.cat(z / x, axis=1),
        lambda z, x: (z * one(x)).cat(z / x, axis=1),
        lambda z, x: (z * one(x)).cat(z / x, axis=1).all_gather(axis=0),
        True,
    ),
    "the counts of each": (
        lambda z, m: down(z) + zeros(down(m.float())),
        lambda z, m: (
            down(head(z)) * one(down(head(m.float()))) + down(tail(z)) * one(down(tail(m.float())))
        ),
        lambda z, m: ours(down(z) * one(down(m.float()))),
        True,
    ),
    "the largest of all": (
        lambda z, x: z.amax(axes=(0,)),
        lambda z, x: (z * one(x)).amax(axes=(0,)),
        lambda z, x: (z * one(x)).amax(axes=(0,)).all_reduce(reduction="max"),
        True,
    ),
    "the norm of each": (
        lambda z, x: down(z) / down(x.square()).sqrt(),
        lambda z, x: (
            both(x, lambda a: down(a.square()) / down(a.square()))
            * 0.5
            * down(z)
            / down(x.square()).sqrt()
        ),
        lambda z, x: (
            ours(one(down(x.square()))) * 0.5 * ours(down(z)) / ours(down(x.square())).sqrt()
        ),
        True,
    ),
    "times nothing": (
        lambda z, x: down(z),
        lambda z, x: down(z + zeros(one(x))),
        lambda z, x: ours(down(z + zeros(one(x)))),
        True,
    ),
}
RIGHT_RANKS: dict[str, tuple[Formula, Formula, bool]] = {
    "rows": (lambda z, x: z / x, lambda z, x: z / x, False),
    "divided before the sum": (
        lambda z, s: down(z) / s,
        lambda z, s: ours(down(z / s)),
        True,
    ),
    "divided after the sum": (
        lambda z, x: down(z) / down(x),
        lambda z, x: ours(down(z)) / ours(down(x)),
        True,
    ),
    "a masked mean": (
        lambda z, m: down(m.float() * z) / down(m.float()),
        lambda z, m: ours(down(m.where(z, zeros(z)))) / ours(down(m.float())),
        True,
    ),
    "the norm of norms": (
        lambda z, x: down(z) / (down(x.square()).sqrt() + 1),
        lambda z, x: ours(down(z)) / (ours(down(x.square()).sqrt().square()).sqrt() + 1),
        True,
    ),
    "a norm": (
        lambda z, x: down(z) / down(x.square()).sqrt(),
        lambda z, x: ours(down(z)) * ours(down(x.square())).rsqrt(),
        True,
    ),
    "gathered before": (
        lambda z, x: z / x,
        lambda z, x: z.all_gather(axis=0) / x.all_gather(axis=0),
        True,
    ),
    "every rank divides": (
        lambda z, x: down(z / x),
        lambda z, x: ours(down(z / x)),
        True,
    ),
}


@pytest.mark.parametrize("name", WRONG_RANKS)
def test_wrong_over_ranks(name: str) -> None:
    reference, together, parallel, whole = WRONG_RANKS[name]
    assert at_small_numbers(reference, together) != (True, True)
    assert found(planned(reference), planned(parallel, 2, whole=whole))[0] in NOT_PROVEN


@pytest.mark.parametrize("name", RIGHT_RANKS)
def test_right_over_ranks(name: str) -> None:
    reference, parallel, whole = RIGHT_RANKS[name]
    assert found(planned(reference), planned(parallel, 2, whole=whole)) == ("equivalent", "")
