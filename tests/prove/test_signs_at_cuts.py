"""Cuts that carry signs: the norm of norms of gradients is the norm of them all, and no other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from attacks.domain_pairs import zeros
from attacks.formulas import Expression, Formula
from ops.ops_torch_rows import ROWS
from zoo.builder import Builder

from pitcheck.algebra.bound.degree_values import ABOVE_ZERO, Sign
from pitcheck.algebra.bound.signs import SignAlgebra
from pitcheck.algebra.reals.real import RealAlgebra
from pitcheck.algebra.value import Value
from pitcheck.base.options import Options
from pitcheck.claims.problem import Problem
from pitcheck.engine.check import check
from pitcheck.errors import PitcheckError
from pitcheck.graph.cuts import resolve
from pitcheck.ops.registry import evaluate
from pitcheck.plan.model import Lineage, Number, Plan
from pitcheck.prove.proof import Settings
from pitcheck.prove.prover import Prover

SIZES = (4, 6, 9)


def _squares(b: Builder, given: tuple[dict[str, object], ...]) -> list[str]:
    """Return the sums of squares of three gradients, each of them an output, so a cut."""
    gradients = [b.input(f"g{n}", (size, 3), *given) for n, size in enumerate(SIZES)]
    squares = [b.op("sum", b.op("mul", g, g), axes=(0, 1)) for g in gradients]
    for number, square in enumerate(squares):
        b.output(b.op("identity", square, out=f"square{number}"), *given)
    return squares


def _reference() -> Plan:
    b = Builder("reference", {})
    norms = [b.op("sqrt", square) for square in _squares(b, ())]
    again = [b.op("mul", norm, norm) for norm in norms]
    norm = b.op("sqrt", b.op("add", b.op("add", again[0], again[1]), again[2]))
    b.output(b.op("identity", norm, out="norm"))
    return b.plan()


def _parallel(way: str) -> Plan:
    b = Builder("parallel", {"dp": 1})
    squares = _squares(b, ({},))
    if way == "one is left out":
        squares[2] = b.op("mul", squares[2], Number(0))
    if way == "one counts twice":
        squares[1] = b.op("add", squares[1], squares[1])
    if way == "one is subtracted":
        squares[2] = b.op("neg", squares[2])
    total = b.op("add", squares[0], b.op("add", squares[1], squares[2]))
    norm = b.op("sqrt", total)
    if way == "of the other sign":
        norm = b.op("neg", norm)
    b.output(b.op("identity", norm, out="norm"), {})
    return b.plan()


def test_a_norm_of_norms_is_the_norm_of_all() -> None:
    report = check(_reference(), _parallel("right"), Options(seed=1, jobs=1))
    assert (report.verdict, report.heuristic) == ("equivalent", ())


@pytest.mark.parametrize(
    "way", ["one is left out", "one counts twice", "one is subtracted", "of the other sign"]
)
def test_another_norm_is_a_mismatch(way: str) -> None:
    report = check(_reference(), _parallel(way), Options(seed=1, jobs=1, explain=False))
    assert report.verdict == "mismatch"
    assert report.findings[0].output == "norm"


# --- the proofs alone, which no run on real numbers helps

CUTS = "cedp"
"""Two sums of squares, a sum, and its exponential: both sides are given them."""
Pair = tuple[Formula, Formula]
WRONG: dict[str, Pair] = {
    "the negative of an absolute value": (lambda c, e, d, p: c.abs(), lambda c, e, d, p: -c),
    "relu of a negative": (lambda c, e, d, p: (-c).relu(), lambda c, e, d, p: c),
    "a difference by its root": (
        lambda c, e, d, p: c - e,
        lambda c, e, d, p: (c - e).sqrt() * (c - e).sqrt(),
    ),
    "a difference for its size": (
        lambda c, e, d, p: ((c - e) * (c - e)).sqrt(),
        lambda c, e, d, p: c - e,
    ),
    "a sum of norms": (lambda c, e, d, p: (c + e).sqrt(), lambda c, e, d, p: c.sqrt() + e.sqrt()),
    "a weight that is negative": (
        lambda c, e, d, p: (c - e).abs().sqrt(),
        lambda c, e, d, p: (c - e).sqrt(),
    ),
    "a quotient that is 1 but at 0": (
        lambda c, e, d, p: zeros(c) + 1,
        lambda c, e, d, p: c.sqrt() / c.sqrt(),
    ),
    "a root by a quotient": (lambda c, e, d, p: c.sqrt(), lambda c, e, d, p: c / c.sqrt()),
    "above 0, or 0": (lambda c, e, d, p: d, lambda c, e, d, p: (c > 0).where(d, e)),
    "a root of any square": (
        lambda c, e, d, p: (d * d * c).sqrt(),
        lambda c, e, d, p: d * c.sqrt(),
    ),
    "roots of two factors of any sign": (
        lambda c, e, d, p: (d * (c - e)).sqrt(),
        lambda c, e, d, p: d.sqrt() * (c - e).sqrt(),
    ),
    "a logarithm of 0": (
        lambda c, e, d, p: p.log(),
        lambda c, e, d, p: (p * e).log() - e.log(),
    ),
    "clamped and not": (lambda c, e, d, p: d.clamp(min=0).sqrt(), lambda c, e, d, p: d.sqrt()),
}
RIGHT: dict[str, Pair] = {
    "a root of a product": (
        lambda c, e, d, p: (c * e).sqrt(),
        lambda c, e, d, p: c.sqrt() * e.sqrt(),
    ),
    "the square of a root": (lambda c, e, d, p: c.sqrt() * c.sqrt(), lambda c, e, d, p: c),
}


def _given(name: str, formula: Formula) -> Plan:
    b = Builder(name, {"dp": 1} if name == "parallel" else {})

    def made(kind: str, operands: tuple[Any, ...], attributes: Any) -> Any:
        read = [Number(o) if isinstance(o, int) else o for o in operands]
        return b.op(kind, *read, **attributes)

    lineage = [{}] if name == "parallel" else []
    x, y, z = (Expression(made, b.input(n, (4, 3), *lineage)) for n in "xyz")
    squares = [(a * a).sum(axes=(1,), keepdim=True) for a in (x, y)]
    total = z.sum(axes=(1,), keepdim=True)
    cuts = [
        Expression(made, b.op("identity", value.value, out=cut))
        for cut, value in zip(CUTS, (*squares, total, total.exp()), strict=True)
    ]
    b.output(b.op("identity", formula(*cuts).value, out="out"), *lineage)
    return b.plan()


def _outcome(reference: Formula, parallel: Formula) -> tuple[str, bool]:
    problem = Problem.of(_given("reference", reference), _given("parallel", parallel))
    first, second = problem.reference, problem.parallel
    cuts = {}
    for name in CUTS:
        value, other = second.number[name], first.number[name]
        shape = first.values[other].shape
        cuts[value] = resolve(Lineage(name), value, second, other, shape, "")
    ledger = Prover(problem, Settings(np, 1, -64.0, 1, False, 1 << 30)).run(cuts)
    (proof,) = (o.proof for o in ledger.obligations if o.output)
    return proof.outcome, proof.heuristic


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_at_signs_is_not_proven(name: str) -> None:
    assert _outcome(*WRONG[name])[0] == "failed"


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_at_signs_is_proven(name: str) -> None:
    assert _outcome(*RIGHT[name]) == ("proven", False)


# --- the signs of results


def _numbers(sign: Sign, shape: tuple[int, ...], seed: int) -> Any:
    generator = np.random.default_rng(seed)
    numbers = generator.normal(size=shape).round(1) * (generator.random(shape) < 0.8)
    if ABOVE_ZERO in sign:
        return abs(numbers) + 0.1
    return abs(numbers) if Sign.NONNEGATIVE in sign else numbers


@pytest.mark.parametrize("sign", [Sign(0), Sign.NONNEGATIVE, ABOVE_ZERO], ids=str)
def test_signs_are_those_of_real_numbers(sign: Sign) -> None:
    """No operator has a negative result, or 0, that is said to be impossible."""
    said = 0
    for row in ROWS:
        signs, inputs = SignAlgebra(), [np.asarray(a) for a in row.inputs]
        kinds: list[Any] = [{"f": "field", "b": "bool", "i": "int"}[a.dtype.kind] for a in inputs]
        fresh = [
            signs.fresh(f"x{n}", a.shape, 1, "any", kind)
            for n, (a, kind) in enumerate(zip(inputs, kinds, strict=True))
        ]
        try:
            results = evaluate(
                signs,
                row.kind,
                [replace(v, sign=v.sign | sign) if v.kind == "field" else v for v in fresh],
                row.attributes,
            )
        except PitcheckError:
            continue
        for seed in range(3):
            reals = RealAlgebra(np, 1, (0,))
            drawn = [
                Value("field", _numbers(sign, a.shape, seed + n)[None, None, None])
                if kind == "field"
                else reals.integers(a[None, None])
                for n, (a, kind) in enumerate(zip(inputs, kinds, strict=True))
            ]
            with np.errstate(all="ignore"):
                numbers = evaluate(reals, row.kind, drawn, row.attributes)
            for result, number in zip(results, numbers, strict=True):
                if number is None or number.kind != "field":
                    continue
                data = number.data[~np.isnan(number.data)]
                assert Sign.NONNEGATIVE not in result.sign or not (data < 0).any(), row.label
                assert Sign.NEVER_ZERO not in result.sign or data.all(), row.label
                said += Sign.NONNEGATIVE in result.sign
    assert said > 50
