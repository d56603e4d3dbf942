"""Pairs on one device whose functions are taken as tables of random residues.

The right ones are theorems: nothing about them is called an estimate. The wrong ones are as near to
right ones as can be made, and hold for some numbers, for small sizes or but for a sign.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.verdicts import AT_NIGHT
from zoo.builder import Builder
from zoo.pairs import pair

from pitcheck.base.options import Options
from pitcheck.claims.problem import Problem
from pitcheck.commands.checking.pair import checked
from pitcheck.plan.model import Number, Plan
from pitcheck.prove.bounds.free_degrees import FreeStageDegrees
from pitcheck.prove.draws.shaped_proof import decide
from pitcheck.prove.integers.cases import with_cases
from pitcheck.prove.proof import Settings
from pitcheck.prove.stage_trials import StageTrials
from pitcheck.report.report import Report
from pitcheck.stage.shaped_stage import shape_reduced

Formula = Callable[..., str]
INFINITE = Number("-inf")


def _plan(inputs: str, formula: Formula) -> Plan:
    """``inputs``: letters; i and j are integers of shape (4, 6), all others are numbers."""
    b = Builder("formula")
    given = [
        b.input(name, (4, 6), dtype="int64", bounds=(0, 2))
        if name in "ij"
        else b.input(name, (4, 6))
        for name in inputs
    ]
    b.output(b.op("identity", formula(b, *given), out="result"))
    return b.plan()


def _checked(inputs: str, reference: Formula, parallel: Formula) -> Report:
    plans = _plan(inputs, reference), _plan(inputs, parallel)
    options = Options(seed=1, jobs=1, explain=AT_NIGHT)
    return checked([lambda: [plans[0]], lambda: [plans[1]]], options)


def _by_tables(inputs: str, reference: Formula, parallel: Formula) -> str:
    """The outcome at the first sizes, if nothing but tables is tried."""
    problem = Problem.of(_plan(inputs, reference), _plan(inputs, parallel))
    shaped = shape_reduced(problem.whole_stage())
    degrees = FreeStageDegrees.of(shaped)
    settings = Settings(np, 1, -74.0, 1, full_shapes=False, max_memory=1 << 30)
    trials = StageTrials(with_cases(shaped), degrees.family, degrees, settings, 8, refutes=False)
    proof = decide(trials)
    assert proof is not None
    return proof.outcome


def _op(kind: str, **attributes: Any) -> Formula:
    return lambda b, *operands: b.op(kind, *operands, **attributes)


def _chain(*kinds: str) -> Formula:
    """Operators of one operand, one after the other."""

    def formula(b: Builder, x: str) -> str:
        for kind in kinds:
            x = b.op(kind, x)
        return x

    return formula


def _squares(b: Builder, x: str, y: str) -> str:
    return b.op("add", b.op("square", x), b.op("square", y))


def _softmax(b: Builder, x: str) -> str:
    return b.op("softmax", x, axis=-1)


def _softmax_by_hand(b: Builder, x: str) -> str:
    powers = b.op("exp", b.op("sub", x, b.op("amax", x, axes=[1], keepdim=True)))
    return b.op("div", powers, b.op("sum", powers, axes=[1], keepdim=True))


def _silu_by_hand(b: Builder, x: str) -> str:
    return b.op("div", x, b.op("add", b.op("exp", b.op("neg", x)), Number(1)))


def _rms(root: Formula) -> Formula:
    def formula(b: Builder, x: str) -> str:
        mean = b.op("mean", b.op("square", x), axes=[1], keepdim=True)
        return root(b, x, b.op("add", mean, Number("1/100000")))

    return formula


def _attention(b: Builder, s: str, v: str) -> str:
    return b.op("matmul", b.op("softmax", s, axis=-1), b.op("transpose", v, dim0=0, dim1=1))


def _online(
    *, rescaled: bool = True, swapped: bool = False, mask: bool = False, guarded: bool = False
) -> Formula:
    """Online softmax over two blocks of columns. ``mask``: the last operand hides the first block's
    scores where it is 0. ``guarded``: a maximum of nothing is taken as 0.
    """

    def formula(b: Builder, s: str, v: str, *hidden: str) -> str:
        columns = b.op("transpose", v, dim0=0, dim1=1)
        blocks = []
        for start in (0, 3):
            part = b.op("slice", s, axis=1, start=start, stop=start + 3)
            if mask and not start:
                hide = b.op("slice", hidden[0], axis=1, start=0, stop=3)
                part = b.op("masked_fill", part, b.op("eq", hide, Number(0)), INFINITE)
            blocks.append((part, b.op("slice", columns, axis=0, start=start, stop=start + 3)))
        top = total = out = ""
        for number, (scores, values) in enumerate(blocks):
            own = b.op("amax", scores, axes=[1], keepdim=True)
            new = b.op("maximum", top, own) if top else own
            used = new
            if guarded:
                used = b.op("masked_fill", new, b.op("eq", new, INFINITE), Number(0))
            powers = b.op("exp", b.op("sub", scores, used))
            mass = b.op("sum", powers, axes=[1], keepdim=True)
            part = b.op("matmul", powers, blocks[1 - number][1] if swapped else values)
            if top:
                factor = b.op("exp", b.op("sub", top, used))
                if rescaled:
                    out = b.op("mul", out, factor)
                total = b.op("add", b.op("mul", total, factor), mass)
                out = b.op("add", out, part)
            else:
                total, out = mass, part
            top = new
        return b.op("div", out, total)

    return formula


def _masked(b: Builder, s: str, v: str, hidden: str) -> str:
    """Attention whose first three columns are hidden where ``hidden`` is 0."""
    first = b.op("slice", s, axis=1, start=0, stop=3)
    hide = b.op("eq", b.op("slice", hidden, axis=1, start=0, stop=3), Number(0))
    first = b.op("masked_fill", first, hide, INFINITE)
    whole = b.op("cat", first, b.op("slice", s, axis=1, start=3, stop=6), axis=1)
    return _attention(b, whole, v)


RIGHT: dict[str, tuple[str, Formula, Formula]] = {
    "silu": ("x", _op("silu"), _silu_by_hand),
    "softmax": ("x", _softmax, _softmax_by_hand),
    "e^(x - y)": (
        "xy",
        lambda b, x, y: b.op("exp", b.op("sub", x, y)),
        lambda b, x, y: b.op("div", b.op("exp", x), b.op("exp", y)),
    ),
    "e^(x - y) by the inverse": (
        "xy",
        lambda b, x, y: b.op("exp", b.op("sub", x, y)),
        lambda b, x, y: b.op("mul", b.op("exp", b.op("neg", y)), b.op("exp", x)),
    ),
    "e^(2 x)": (
        "x",
        lambda b, x: b.op("exp", b.op("mul", x, Number(2))),
        lambda b, x: b.op("square", b.op("exp", x)),
    ),
    "a scale after a difference": (
        "xy",
        lambda b, x, y: b.op("exp", b.op("mul", b.op("sub", x, y), Number("3/7"))),
        lambda b, x, y: b.op(
            "div",
            b.op("exp", b.op("mul", x, Number("3/7"))),
            b.op("exp", b.op("mul", y, Number("3/7"))),
        ),
    ),
    "log of a product of powers": (
        "xy",
        lambda b, x, y: b.op("log", b.op("mul", b.op("exp", x), b.op("exp", y))),
        lambda b, x, y: b.op("add", b.op("log", b.op("exp", x)), b.op("log", b.op("exp", y))),
    ),
    "log-sum-exp": (
        "x",
        _op("logsumexp", axis=1),
        lambda b, x: b.op("log", b.op("sum", b.op("exp", x), axes=[1])),
    ),
    "rms norm": (
        "x",
        _rms(lambda b, x, mean: b.op("div", x, b.op("sqrt", mean))),
        _rms(lambda b, x, mean: b.op("mul", x, b.op("rsqrt", mean))),
    ),
    "a norm of norms": (
        "xy",
        lambda b, x, y: b.op("sqrt", _squares(b, x, y)),
        lambda b, x, y: b.op("sqrt", b.op("square", b.op("sqrt", _squares(b, x, y)))),
    ),
    "sqrt(2) sqrt(3)": (
        "x",
        lambda b, x: b.op("mul", b.op("mul", b.op("exp", x), Number("sqrt(2)")), Number("sqrt(3)")),
        lambda b, x: b.op("mul", b.op("exp", x), Number("sqrt(6)")),
    ),
    "sqrt(4)": (
        "x",
        lambda b, x: b.op("mul", b.op("exp", x), Number("sqrt(4)")),
        lambda b, x: b.op("mul", b.op("exp", x), Number(2)),
    ),
    "erf is odd": (
        "x",
        _chain("neg", "erf"),
        _chain("erf", "neg"),
    ),
    "a maximum under a function": (
        "xy",
        lambda b, x, y: b.op("exp", b.op("maximum", x, y)),
        lambda b, x, y: b.op("exp", b.op("maximum", y, x)),
    ),
    "online softmax": ("sv", _attention, _online()),
    "online softmax with a mask": ("svi", _masked, _online(mask=True, guarded=True)),
}

WRONG: dict[str, tuple[str, Formula, Formula]] = {
    "exp(log x) for x": ("x", _chain("identity"), _chain("log", "exp")),
    "sqrt(x)^2 for x": ("x", _chain("identity"), _chain("sqrt", "square")),
    "sqrt(x) sqrt(y) for sqrt(x y)": (
        "xy",
        lambda b, x, y: b.op("sqrt", b.op("mul", x, y)),
        lambda b, x, y: b.op("mul", b.op("sqrt", x), b.op("sqrt", y)),
    ),
    "log x - log y for log(x / y)": (
        "xy",
        lambda b, x, y: b.op("log", b.op("div", x, y)),
        lambda b, x, y: b.op("sub", b.op("log", x), b.op("log", y)),
    ),
    "e^x x / x for e^x": (
        "x",
        lambda b, x: b.op("exp", x),
        lambda b, x: b.op("mul", b.op("exp", x), b.op("div", x, x)),
    ),
    "exp of a sum for a mean of exp": (
        "x",
        lambda b, x: b.op("exp", b.op("sum", x, axes=[1])),
        lambda b, x: b.op("mean", b.op("exp", x), axes=[1]),
    ),
    "e^x e^y for e^(x - y)": (
        "xy",
        lambda b, x, y: b.op("exp", b.op("sub", x, y)),
        lambda b, x, y: b.op("mul", b.op("exp", x), b.op("exp", y)),
    ),
    "e^(3 x) for (e^x)^2": (
        "x",
        lambda b, x: b.op("square", b.op("exp", x)),
        lambda b, x: b.op("exp", b.op("mul", x, Number(3))),
    ),
    "e^(n x) for a product over n places": (
        "x",
        lambda b, x: b.op("exp", b.op("mul", x, Number(6))),
        lambda b, x: b.op("exp", b.op("mul", x, Number(4))),
    ),
    "log(x)^2 for 2 log(x)": (
        "x",
        lambda b, x: b.op("mul", b.op("log", b.op("exp", x)), Number(2)),
        lambda b, x: b.op("square", b.op("log", b.op("exp", x))),
    ),
    "-2 for sqrt(4)": (
        "x",
        lambda b, x: b.op("mul", b.op("exp", x), Number("sqrt(4)")),
        lambda b, x: b.op("mul", b.op("exp", x), Number(-2)),
    ),
    "-19 for sqrt(361)": (
        "x",
        lambda b, x: b.op(
            "mul", b.op("exp", x), b.op("sqrt", b.op("add", b.op("mul", x, Number(0)), Number(361)))
        ),
        lambda b, x: b.op("mul", b.op("exp", x), Number(-19)),
    ),
    "-sqrt for sqrt": (
        "xy",
        lambda b, x, y: b.op("sqrt", _squares(b, x, y)),
        lambda b, x, y: b.op("neg", b.op("sqrt", _squares(b, x, y))),
    ),
    "cos of another number": (
        "xy",
        lambda b, x, y: b.op("cos", b.op("sub", x, y)),
        lambda b, x, y: b.op("cos", b.op("add", x, y)),
    ),
    "the even for the odd": ("x", _chain("sin"), _chain("neg", "sin")),
    "max for min": (
        "xy",
        lambda b, x, y: b.op("exp", b.op("maximum", x, y)),
        lambda b, x, y: b.op("exp", b.op("minimum", x, y)),
    ),
    "a row for all": (
        "x",
        _softmax,
        lambda b, x: b.op("softmax", x, axis=0),
    ),
    "online softmax without rescaling": ("sv", _attention, _online(rescaled=False)),
    "online softmax with the blocks' values swapped": ("sv", _attention, _online(swapped=True)),
    "online softmax whose first block is hidden": ("svi", _masked, _online(mask=True)),
    "a product with a mask after NaN": (
        "xi",
        lambda b, x, i: b.op(
            "where",
            b.op("eq", i, Number(1)),
            b.op("softmax", b.op("masked_fill", x, b.op("eq", i, Number(0)), INFINITE), axis=1),
            Number(0),
        ),
        lambda b, x, i: b.op(
            "mul",
            b.op("softmax", b.op("masked_fill", x, b.op("eq", i, Number(0)), INFINITE), axis=1),
            b.op("cast", i, dtype="float32"),
        ),
    ),
}

THEOREMS = (
    "megatron_mlp_silu",
    "attention_heads_causal",
    "ring_attention_3",
    "ring_attention_logsumexp",
    "cross_entropy_vocabulary_parallel",
    "cross_entropy_ranges",
    "communication_that_cancels",
)
"""Pairs of the zoo with exponentials, of which nothing is an estimate."""


ESTIMATED = ("online softmax with a mask",)
"""Right pairs whose masks decide together where a maximum is replaced."""


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_pair_is_a_theorem(name: str) -> None:
    report = _checked(*RIGHT[name])
    assert report.verdict == "equivalent"
    assert bool(report.heuristic) == (name in ESTIMATED)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_pair_is_not_equivalent(name: str) -> None:
    assert _by_tables(*WRONG[name]) in ("failed", "inconclusive")
    assert _checked(*WRONG[name]).verdict in ("mismatch", "inconclusive")


@pytest.mark.parametrize("name", THEOREMS)
def test_a_parallel_plan_is_a_theorem(name: str) -> None:
    reference, parallel = pair(name)
    report = checked([lambda: [reference], lambda: [parallel]], Options(seed=1, jobs=1))
    assert (report.verdict, report.heuristic) == ("equivalent", ())
