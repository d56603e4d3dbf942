"""Operators that can be written by others: the formula is proven, the same with a small mistake is
caught.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.by_day import some_at_once
from support.verdicts import caught, proven
from zoo.builder import Builder, lineage, table

from pitcheck.plan.model import Number, Plan

Write = Callable[[Builder, str], str]
SHAPE = (4, 24)


def _alone(write: Write, shape: tuple[int, ...]) -> Plan:
    b = Builder("alone")
    b.op("contiguous", write(b, b.input("x", shape)), out="y")
    b.output("y")
    return b.plan()


def _cat(*parts: tuple[int, int]) -> Write:
    return lambda b, x: b.op(
        "cat", *[b.op("slice", x, axis=1, start=a, stop=c) for a, c in parts], axis=1
    )


def _place(b: Builder, x: str, axis: int) -> str:
    place: str = b.op("positions", x, axis=axis)
    return b.op("unsqueeze", place, axis=1) if axis == 0 else place


def _triangle(kind: str) -> Write:
    return lambda b, x: b.op("where", b.op(kind, _place(b, x, 1), _place(b, x, 0)), x, Number(0))


def _first(kind: str, more: int) -> Write:
    def write(b: Builder, x: str) -> str:
        values, places = b.op(
            kind, x, axis=1, out=["values", "places"], **({"k": 3} if kind == "topk" else {})
        )
        found: str = (
            values
            if more < 0
            else b.op("gather", x, places, axis=1)
            if more == 0
            else b.op("gather", b.op("flip", x, axes=(1,)), places, axis=1)
        )
        return found

    return write


def _running(kind: str) -> Write:
    def write(b: Builder, x: str) -> str:
        ones = b.op("full", sizes=(24, 24), value=1)
        return b.op("matmul", x, b.op(kind, ones))

    return write


def _moment(divisor: str) -> Write:
    def write(b: Builder, x: str) -> str:
        away = b.op("square", b.op("sub", x, b.op("mean", x, axes=(1,), keepdim=True)))
        return b.op("mul", b.op("sum", away, axes=(1,)), Number(divisor))

    return write


def _square_less_mean(b: Builder, x: str) -> str:
    return b.op(
        "sub",
        b.op("mean", b.op("square", x), axes=(1,)),
        b.op("square", b.op("mean", x, axes=(1,))),
    )


def _softmax(shift: str) -> Write:
    def write(b: Builder, x: str) -> str:
        e = b.op("exp", b.op("sub", x, b.op(shift, x, axes=(1,), keepdim=True)))
        over = (0,) if shift == "amin" else (1,)
        return b.op("div", e, b.op("sum", e, axes=over, keepdim=True))

    return write


def _op(kind: str, **attributes: object) -> Write:
    return lambda b, x: b.op(kind, x, **attributes)


def _then(*writes: Write) -> Write:
    def write(b: Builder, x: str) -> str:
        for one in writes:
            x = one(b, x)
        return x

    return write


IDENTITIES: dict[str, tuple[Write, Write, Write]] = {
    "roll by half": (
        _op("roll", axis=1, shift=12),
        _cat((12, 24), (0, 12)),
        _cat((11, 24), (0, 11)),
    ),
    "roll by five": (
        _op("roll", axis=1, shift=5),
        _cat((19, 24), (0, 19)),
        _cat((18, 24), (0, 18)),
    ),
    "roll there and back": (
        _op("contiguous"),
        _then(_op("roll", axis=1, shift=7), _op("roll", axis=1, shift=-7)),
        _then(_op("roll", axis=1, shift=7), _op("roll", axis=1, shift=-6)),
    ),
    "rolls add": (
        _op("roll", axis=1, shift=7),
        _then(_op("roll", axis=1, shift=3), _op("roll", axis=1, shift=4)),
        _then(_op("roll", axis=1, shift=3), _op("roll", axis=1, shift=3)),
    ),
    "whole roll": (_op("contiguous"), _op("roll", axis=1, shift=24), _op("roll", axis=1, shift=23)),
    "flip of halves": (
        _op("flip", axes=(1,)),
        lambda b, x: b.op(
            "cat",
            *[
                b.op("flip", b.op("slice", x, axis=1, start=s, stop=s + 12), axes=(1,))
                for s in (12, 0)
            ],
            axis=1,
        ),
        lambda b, x: b.op(
            "cat",
            *[
                b.op("flip", b.op("slice", x, axis=1, start=s, stop=s + 12), axes=(1,))
                for s in (0, 12)
            ],
            axis=1,
        ),
    ),
    "triangle": (_op("tril"), _triangle("le"), _triangle("lt")),
    "other triangle": (_op("triu", diagonal=1), _triangle("gt"), _triangle("ge")),
    "running sum": (_op("cumsum", axis=1), _running("triu"), _running("tril")),
    "top three": (_first("topk", -1), _first("topk", 0), _first("topk", 1)),
    "sorted": (_first("sort", -1), _first("sort", 0), _first("sort", 1)),
    "padding off": (
        _op("contiguous"),
        _then(
            _op("pad", axis=1, before=3, after=2, value=9), _op("slice", axis=1, start=3, stop=27)
        ),
        _then(
            _op("pad", axis=1, before=3, after=2, value=9), _op("slice", axis=1, start=2, stop=26)
        ),
    ),
    "chunk": (
        _op("chunk", axis=1, count=4, position=2),
        _op("slice", axis=1, start=12, stop=18),
        _op("slice", axis=1, start=11, stop=17),
    ),
    "select": (
        _op("select", axis=1, index=7),
        _then(_op("slice", axis=1, start=7, stop=8), _op("squeeze", axis=1)),
        _then(_op("slice", axis=1, start=8, stop=9), _op("squeeze", axis=1)),
    ),
    "every other": (
        _op("slice", axis=1, start=0, stop=24, step=2),
        _then(_op("view", sizes=(4, 12, 2)), _op("select", axis=2, index=0)),
        _then(_op("view", sizes=(4, 12, 2)), _op("select", axis=2, index=1)),
    ),
    "each twice": (
        _op("repeat_interleave", axis=1, count=2),
        lambda b, x: b.op("reshape", b.op("stack", x, x, axis=2), sizes=(4, 48)),
        lambda b, x: b.op("reshape", b.op("stack", x, x, axis=1), sizes=(4, 48)),
    ),
    "variance": (_op("var", axes=(1,), correction=0), _square_less_mean, _op("var", axes=(1,))),
    "unbiased variance": (_op("var", axes=(1,)), _moment("1/23"), _moment("1/24")),
    "stable softmax": (_op("softmax", axis=1), _softmax("amax"), _softmax("amin")),
    "logarithm of a softmax": (
        _op("log_softmax", axis=1),
        _then(_op("softmax", axis=1), _op("log")),
        _then(_op("softmax", axis=0), _op("log")),
    ),
    "square root of a square": (
        _op("abs"),
        lambda b, x: b.op("maximum", x, b.op("neg", x)),
        lambda b, x: b.op("minimum", x, b.op("neg", x)),
    ),
    "sign": (
        _op("abs"),
        lambda b, x: b.op("mul", x, b.op("sign", x)),
        lambda b, x: b.op("mul", x, b.op("sign", b.op("neg", x))),
    ),
    "sigmoid": (
        _op("sigmoid"),
        lambda b, x: b.op("div", Number(1), b.op("add", b.op("exp", b.op("neg", x)), Number(1))),
        lambda b, x: b.op("div", Number(1), b.op("add", b.op("exp", x), Number(1))),
    ),
    "silu": (
        _op("silu"),
        lambda b, x: b.op("mul", x, b.op("sigmoid", x)),
        lambda b, x: b.op("sigmoid", x),
    ),
    "tanh": (
        _op("tanh"),
        lambda b, x: b.op(
            "sub", b.op("mul", b.op("sigmoid", b.op("mul", x, Number(2))), Number(2)), Number(1)
        ),
        lambda b, x: b.op("sub", b.op("mul", b.op("sigmoid", x), Number(2)), Number(1)),
    ),
    "softplus": (
        _op("softplus"),
        lambda b, x: b.op("log", b.op("add", b.op("exp", x), Number(1))),
        lambda b, x: b.op("log", b.op("exp", x)),
    ),
    "product of exponentials": (
        _op("exp"),
        lambda b, x: b.op("square", b.op("exp", b.op("mul", x, Number("1/2")))),
        lambda b, x: b.op("square", b.op("exp", x)),
    ),
    "maximum and minimum": (
        _op("contiguous"),
        lambda b, x: b.op(
            "sub",
            b.op("add", b.op("maximum", x, Number(2)), b.op("minimum", x, Number(2))),
            Number(2),
        ),
        lambda b, x: b.op(
            "sub",
            b.op("add", b.op("maximum", x, Number(2)), b.op("minimum", x, Number(1))),
            Number(2),
        ),
    ),
    "equation": (
        _op("transpose", dim0=0, dim1=1),
        _op("einsum", equation="ij->ji"),
        _op("reshape", sizes=(24, 4)),
    ),
}


NAMES = list(IDENTITIES)


@pytest.mark.parametrize("name", some_at_once(NAMES, 2))
def test_identity(name: str) -> None:
    plan, right, wrong = IDENTITIES[name]
    shape = (24, 24) if "triangle" in name else (4, 6) if name in ("sorted", "top three") else SHAPE
    proven(_alone(plan, shape), _alone(right, shape))
    caught(_alone(plan, shape), _alone(wrong, shape))


@pytest.mark.parametrize(
    ("starts", "right"), [((0, 12), True), ((0, 11), False), ((12, 0), False), ((1, 12), False)]
)
def test_slices_by_a_table(starts: tuple[int, int], right: bool) -> None:
    """Every rank cuts its own part out of a replica."""
    b = Builder("sliced", {"tp": 2})
    x = b.input("x", (4, 24), {})
    own = b.op(
        "square",
        b.op(
            "slice",
            x,
            axis=1,
            start=table("tp", *starts),
            stop=table("tp", *(s + 12 for s in starts)),
        ),
    )
    b.output(b.op("all_gather", own, out="y", group="tp", axis=1))
    (proven if right else caught)(_alone(_op("square"), SHAPE), b.plan())


def _scaled(axis: int, exponent: str) -> Plan:
    """Rows over two ranks; (16, 12) there are (8, 12)."""
    b = Builder("scaled", {"dp": 2})
    x = b.input("x", (8, 12), {0: "dp"})
    b.output(
        b.op("scale_by_size", x, out="y", axis=axis, exponent=exponent),
        spec=lineage("y", {0: "dp"}),
    )
    return b.plan()


def test_a_size_that_a_number_follows_is_that_of_its_dimension() -> None:
    """The shard has 8 rows and 12 columns."""
    by_columns = _alone(lambda b, x: b.op("scale_by_size", x, axis=1, exponent="-1/2"), (16, 12))
    proven(by_columns, _scaled(1, "-1/2"))
    for axis, exponent in ((0, "-1/2"), (1, "1/2"), (1, "-1")):
        caught(by_columns, _scaled(axis, exponent))
    proven(by_columns, _alone(lambda b, x: b.op("mul", x, Number("sqrt(1/12)")), (16, 12)))
    caught(by_columns, _alone(lambda b, x: b.op("mul", x, Number("sqrt(1/16)")), (16, 12)))
    by_rows = _alone(lambda b, x: b.op("scale_by_size", x, axis=0, exponent="1"), (16, 12))
    caught(by_rows, _scaled(0, "1"))
    caught(by_rows, _scaled(1, "1"))


def test_terms_of_two_tensors_are_different_terms() -> None:
    b = Builder("terms", {"dp": 2})
    x, z = (
        b.input("x", (4, 24), lineage("x", partial=("dp",))),
        b.input("z", (4, 24), lineage("x", partial=("dp",))),
    )
    b.output(b.op("add", b.op("sub", x, z), b.op("all_reduce", x, group="dp"), out="y"))
    caught(_alone(_op("contiguous"), SHAPE), b.plan())
