"""Pairs of equal formulas of which the second has a value wherever the first has one."""

from __future__ import annotations

from attacks.domain_pairs import Pair, col, flip, head, one, roll, rows, t, tail, zeros

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
    "three after each other": (
        lambda x, y, s, z: z / (x * y * s),
        lambda x, y, s, z: z / s / y / x,
    ),
    # --- more values than the reference has
    "the logarithm of a square": (lambda x: x.log() * 2, lambda x: (x * x).log()),
    "half the logarithm of a square": (lambda x: x.log(), lambda x: (x * x).log() / 2),
    "the square of a root": (lambda x: x.sqrt() * x.sqrt(), lambda x: x),
}
