"""Equal formulas of which the second lacks a value that the first has; pairs over ranks."""

from __future__ import annotations

from typing import Any

from attacks.formulas import Expression, Formula

E = Expression
Pair = tuple[Formula, Formula]


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


def down(a: E) -> E:
    return a.sum(axes=(0,))


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
    # --- found by looking for holes
    "a running sum of later ones": (
        lambda x, z: (z / x).cumsum(axis=0),
        lambda x, z: (z / x).cumsum(axis=0) + zeros(flip(one(x)).cumsum(axis=0)),
    ),
    "a threshold of integers": (
        lambda x, z, i: (i > 2).where(z * one(x), z),
        lambda x, z, i: (i > 1).where(z * one(x), z),
    ),
    "a quotient made safe": (
        lambda x, z: x.eq(0).where(z, z / x),
        lambda x, z: z / x,
    ),
    "gathered by integers": (
        lambda x, z, i: z.gather(i, axis=0),
        lambda x, z, i: (z * one(x)).gather(i, axis=0),
    ),
    "what softmax takes away": (
        lambda x, z: z.softmax(axis=1),
        lambda x, z: (z + x - x * one(x)).softmax(axis=1),
    ),
    "rows scaled and scaled back": (
        lambda x, z: x.matmul(z),
        lambda x, z: (x / col(x)).matmul(z) * col(x),
    ),
    "the root of a square": (
        lambda x, z: z * x.square().sqrt(),
        lambda x, z: z * x.sqrt() * x.sqrt(),
    ),
    "conditions in another order": (
        lambda x, y, z: (y > 0).where((z > 0).where(z / x, z), z),
        lambda x, y, z: (z > 0).where((y > 0).where(z / x, z * one(x)), z),
    ),
    "in another shape": (
        lambda x, z: z / x,
        lambda x, z: z / x * one(x.reshape(sizes=(2, 8)).flip(axes=(0,)).reshape(sizes=(4, 4))),
    ),
    "columns for rows": (
        lambda v, z: z / v,
        lambda v, z: z / v * one(v.reshape(sizes=(4, 1))),
    ),
    "a quotient by a logarithm": (lambda x, z: z / x, lambda x, z: z * (-x.log()).exp()),
    "a variance": (
        lambda x, z: z + x,
        lambda x, z: z * one((x - x.mean(axes=(1,), keepdim=True)).square().sum(axes=(1,))) + x,
    ),
    "clamped at 0": (lambda x, z: z + zeros(x), lambda x, z: z * one(x.clamp(min=0))),
    "the larger of two": (
        lambda x, y, z: z + zeros(x + y),
        lambda x, y, z: z * one(x.maximum(y)),
    ),
    "an exponential less 1": (
        lambda x, z: z + zeros(x),
        lambda x, z: z * one(x.exp() - 1),
    ),
    "one of four integers": (
        lambda i, z: z + zeros(i.cast(dtype="float32")),
        lambda i, z: z * one(i.cast(dtype="float32") - 3),
    ),
    "a count of zeros": (
        lambda x, z: down(z) + zeros(down(x)),
        lambda x, z: down(z) * one(down(x.eq(0).float())),
    ),
    "a divisor that is chosen": (
        lambda x, z: z / (x > 0).where(x, zeros(x) + 1),
        lambda x, z: z / (x >= 0).where(x, zeros(x) + 1),
    ),
    "a divisor that is made of masks": (
        lambda x, z: z / ((x > 0).float() * (x - 1) + 1),
        lambda x, z: z / ((x >= 0).float() * (x - 1) + 1),
    ),
    "a factor under a root that may be 0": (
        lambda x, y: (x.square() * y).sqrt(),
        lambda x, y: x.square().sqrt() * y.sqrt(),
    ),
    "a divisor that is divided": (lambda x, y, z: z / y, lambda x, y, z: z / x / (y / x)),
    "a cut that is gathered": (
        lambda x, z, i: (z / x).exp().gather(i, axis=0),
        lambda x, z, i: (z / x).exp().gather(i, axis=0) + zeros((z / x).exp()),
    ),
    "rows of a cut": (
        lambda x, z: head((z / x).softmax(axis=1)),
        lambda x, z: head((z / x).softmax(axis=1) + zeros(flip((z / x).softmax(axis=1)))),
    ),
    "whether any of many is large": (
        lambda x, z: z + zeros(x),
        lambda x, z: z * one(((x > 1).float().sum() > 0).float()) + zeros(x),
    ),
    "whether any is large, beside a quotient by 1": (
        lambda x, z: z / 1 + zeros(x),
        lambda x, z: z / 1 * one(((x > 1).float().sum() > 0).float()) + zeros(x),
    ),
    "whether any of others is large": (
        lambda x, y, z: z * one(((x > 1).float().sum() > 0).float()) + zeros(y),
        lambda x, y, z: z * one(((y > 1).float().sum() > 0).float()) + zeros(x),
    ),
    "a quotient made safe in vain": (
        lambda x, z: (x > 0).where(z / x, z),
        lambda x, z: z / (x >= 0).where(x, zeros(x) + 1),
    ),
    "two cuts": (
        lambda x, y, z: (z / x).exp().cat((z / y).exp(), axis=0),
        lambda x, y, z: ((z / x).exp() + zeros((z / y).exp())).cat((z / y).exp(), axis=0),
    ),
    "the largest of a cut": (
        lambda x, z: head((z / x).exp(), 1),
        lambda x, z: head((z / x).exp(), 1) + zeros((z / x).exp().amax(axes=(0,))),
    ),
    # --- numbers where the reference has one and the plan has more, or none
    "a logarithm for that of a square": (lambda x: (x * x).log() / 2, lambda x: x.log()),
    "another number where the logarithm is not taken": (
        lambda x: (x > 0).where(x.log(), zeros(x)),
        lambda x: (x > 0).where(x.log(), zeros(x) + 1),
    ),
    "a root without relu": (lambda x: x.relu().sqrt(), lambda x: x.sqrt()),
}
# --- over two ranks: the reference, what both ranks compute together, what each computes


def ours(a: E) -> E:
    return a.all_reduce()


def both(a: E, of: Any) -> E:
    """A formula of each rank's rows, added."""
    return of(head(a)) + of(tail(a))


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
