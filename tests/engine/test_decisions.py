"""Decisions between numbers: plans that decide otherwise only where few inputs lead. None may be
called equivalent; plans that decide alike are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from support.by_day import some_at_once
from support.verdicts import caught, proven
from zoo.builder import Builder, lineage

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Number, Plan, Table

SEEDS = range(2)


def _plan(
    steps: Callable[[Builder, str], str], shape: tuple[int, ...] = (4, 6), hinted: bool = False
) -> Plan:
    """One input x, and what ``steps`` make of it."""
    b = Builder("decides")
    x = b.input("x", shape)
    b.output(b.op("identity", steps(b, x), out="y", **({"hint": hinted} if hinted else {})))
    return b.plan()


def _column(b: Builder, x: str, i: int) -> str:
    return b.op("slice", x, axis=1, start=i, stop=i + 1)


def _unchanged(b: Builder, x: str) -> str:
    return b.op("mul", x, Number(1))


def never_equivalent(reference: Plan, parallel: Plan) -> None:
    """Whatever the seed."""
    for seed in SEEDS:
        assert check(reference, parallel, Options(seed=seed, explain=False)).verdict != "equivalent"


# --- thresholds


def _doubled_where(kind: str, number: Any, shift: Any = 0, scale: Any = 1) -> Plan:
    def steps(b: Builder, x: str) -> str:
        y = b.op("mul", b.op("sub", x, Number(shift)), Number(scale))
        return b.op("where", b.op(kind, y, Number(number)), b.op("mul", x, Number(2)), x)

    return _plan(steps)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (("gt", 3), ("ge", 3)),
        (("lt", -2), ("le", -2)),
        (("gt", 3), ("gt", 4)),
        (("gt", 3), ("gt", "3001/1000")),
        (("gt", 100000), ("gt", 200000)),
        (("gt", "1/1000"), ("gt", "2/1000")),
        (("gt", 6, 0, 2), ("gt", 7, 0, 2)),
        (("lt", 0, 5), ("lt", 0, 6)),
        (("eq", 3), ("eq", 4)),
        (("ne", 3), ("ne", 2)),
    ],
)
def test_other_threshold(right: tuple[Any, ...], wrong: tuple[Any, ...]) -> None:
    if right[0] not in ("eq", "ne"):
        proven(_doubled_where(*right), _doubled_where(*right))
    never_equivalent(_doubled_where(*right), _doubled_where(*wrong))


def test_threshold_of_a_sum() -> None:
    def steps(number: int) -> Callable[[Builder, str], str]:
        return lambda b, x: b.op(
            "where",
            b.op("gt", b.op("sum", x, axes=(1,), keepdim=True), Number(number)),
            b.op("mul", x, Number(2)),
            x,
        )

    proven(_plan(steps(1000)), _plan(steps(1000)))
    never_equivalent(_plan(steps(1000)), _plan(steps(1100)))


@pytest.mark.parametrize(("low", "high"), [(-1, 1), (0, 6), (-1000, 1000)])
def test_clamp_between(low: int, high: int) -> None:
    def steps(low: int, high: int) -> Callable[[Builder, str], str]:
        return lambda b, x: b.op("clamp", x, min=low, max=high)

    proven(_plan(steps(low, high)), _plan(steps(low, high)))
    never_equivalent(_plan(steps(low, high)), _plan(steps(low, high + 1)))
    never_equivalent(_plan(steps(low, high)), _plan(lambda b, x: b.op("clamp", x, max=high)))


def test_sum_over_ranks_that_decides() -> None:
    """The terms of a sum over ranks are any numbers; what is decided by their sum is decided on all
    ranks alike.
    """

    def spread(threshold: int) -> Plan:
        b = Builder("decides", {"tp": 2})
        x, w = b.input("x", (4, 3), {1: "tp"}), b.parameter("w", (3, 6), {0: "tp"})
        h = b.op("all_reduce", b.op("matmul", x, w), group="tp")
        b.output(
            b.op("where", b.op("gt", h, Number(threshold)), b.op("mul", h, Number(2)), h, out="y")
        )
        return b.plan()

    r = Builder("decides")
    h = r.op("matmul", r.input("x", (4, 6)), r.parameter("w", (6, 6)))
    r.output(r.op("where", r.op("gt", h, Number(0)), r.op("mul", h, Number(2)), h, out="y"))
    proven(r.plan(), spread(0))
    never_equivalent(r.plan(), spread(1))


def test_derivative_at_a_kink_is_a_convention() -> None:
    """relu and clamp differ in their derivatives at 0 alone; a derivative of a clamp elsewhere is
    another one.
    """

    def derived(kind: str, **attributes: Any) -> Plan:
        b = Builder("derived")
        x, g = b.input("x", (4, 6)), b.input("g", (4, 6))
        b.back(kind, [x], b.op(kind, x, **attributes), g, ["dx"], **attributes)
        b.output("dx")
        return b.plan()

    proven(derived("relu"), derived("clamp", min=0))
    for low in (1, "1/100", -20):
        proven(derived("clamp", min=low), derived("clamp", min=low))
        never_equivalent(derived("relu"), derived("clamp", min=low))
    never_equivalent(derived("clamp", min=100), derived("clamp", min="1001/10"))


# --- conditions made of many


SIGNS = {"alike": (1,) * 14, "mixed": (1, -1, -1, 1, -1, 1, 1, 1, -1, -1, 1, -1, 1, -1)}


def _each(b: Builder, x: str, signs: Sequence[int]) -> list[str]:
    return [
        b.op("gt" if sign > 0 else "lt", _column(b, x, i), Number(0))
        for i, sign in enumerate(signs)
    ]


def _nested(b: Builder, x: str, signs: Sequence[int]) -> str:
    y = b.op("mul", x, Number(2))
    for condition in _each(b, x, signs):
        y = b.op("where", condition, y, x)
    return y


def _anded(b: Builder, x: str, signs: Sequence[int]) -> str:
    every, *rest = _each(b, x, signs)
    for condition in rest:
        every = b.op("logical_and", every, condition)
    return b.op("where", every, b.op("mul", x, Number(2)), x)


def _ored(b: Builder, x: str, signs: Sequence[int]) -> str:
    some, *rest = _each(b, x, signs)
    for condition in rest:
        some = b.op("logical_or", some, condition)
    return b.op("where", some, x, b.op("mul", x, Number(2)))


def _cast(b: Builder, x: str, signs: Sequence[int]) -> str:
    every, *rest = (b.op("cast", condition, dtype="float32") for condition in _each(b, x, signs))
    for factor in rest:
        every = b.op("mul", every, factor)
    return b.op("add", x, every)


def _rectified(b: Builder, x: str, signs: Sequence[int], kind: str) -> str:
    every, *rest = (
        b.op("relu", b.op("mul", _column(b, x, i), Number(sign))) for i, sign in enumerate(signs)
    )
    for factor in rest:
        every = b.op(kind, every, factor)
    return b.op("add", x, every)


MANY: dict[str, Callable[[Builder, str, Sequence[int]], str]] = {
    "nested": _nested,
    "and": _anded,
    "or": _ored,
    "cast": _cast,
    "product": lambda b, x, signs: _rectified(b, x, signs, "mul"),
    "minimum": lambda b, x, signs: _rectified(b, x, signs, "minimum"),
}


@pytest.mark.parametrize("signs", some_at_once(SIGNS, 2))
@pytest.mark.parametrize("how", MANY)
def test_many_conditions(how: str, signs: str) -> None:
    def steps(b: Builder, x: str) -> str:
        return MANY[how](b, x, SIGNS[signs])

    plan = _plan(steps, (2, 14))
    never_equivalent(_plan(_unchanged, (2, 14)), plan)
    if signs == "alike":
        assert check(plan, plan, Options(seed=1)).verdict == "equivalent"


# --- the first of many


def _chosen(kind: str, size: int, stop: int, masked: Any = None, **options: Any) -> Plan:
    """Return the plan of an operator that chooses among the first ``stop`` of ``size`` elements.

    ``masked``: a value that replaces the last two of all elements.
    """
    b = Builder("chosen")
    x = b.input("x", (4, size))
    if masked is not None:
        x = b.op(
            "where", b.op("lt", b.op("positions", x, axis=1), Number(size - 2)), x, Number(masked)
        )
    y = b.op("slice", x, axis=1, start=0, stop=stop)
    if kind in ("sort", "topk"):
        y, _ = b.op(kind, y, out=["values", "places"], **options)
    else:
        y = b.op(kind, y, **options)
    b.output(b.op("identity", y, out="y"))
    return b.plan()


@pytest.mark.parametrize("size", [12, 90])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("topk", {"k": 3}),
        ("argmin", {"axis": 1}),
        ("argmax", {"axis": 1}),
        ("amax", {"axes": (1,)}),
    ],
)
def test_first_of_many(kind: str, options: dict[str, Any], size: int) -> None:
    proven(_chosen(kind, size, size, **options), _chosen(kind, size, size, **options))
    never_equivalent(_chosen(kind, size, size, **options), _chosen(kind, size, size - 1, **options))


@pytest.mark.parametrize("kind", ["topk", "argmax", "amax"])
@pytest.mark.parametrize(("size", "masked"), [(12, "-inf"), (90, "-inf"), (90, -1000000)])
def test_masked_elements_never_come_first(kind: str, size: int, masked: Any) -> None:
    """Padding that a mask takes out: whether it is cut off or masked does not matter."""
    options = {"topk": {"k": 2}, "argmax": {"axis": 1}, "amax": {"axes": (1,)}}[kind]
    assert (
        check(
            _chosen(kind, size, size, masked, **options),
            _chosen(kind, size, size, masked, **options),
            Options(seed=2),
        ).verdict
        == "equivalent"
    )


@pytest.mark.parametrize(
    ("shift", "kind", "number"),
    [(0, "eq", 3517), (2, "eq", 3519), (0, "gt", 4998), (0, "lt", 1), (-7, "le", -7)],
)
def test_one_id_of_many(shift: int, kind: str, number: int) -> None:
    """One id of 5,000 is looked up wrongly."""

    def looked(lost: bool) -> Plan:
        b = Builder("looked")
        ids, w = b.input("ids", (4,), dtype="int64", bounds=(0, 5000)), b.parameter("w", (5000, 2))
        y = b.op("embedding", ids, w)
        if lost:
            moved = b.op("add", ids, Number(shift)) if shift else ids
            y = b.op(
                "masked_fill",
                y,
                b.op("unsqueeze", b.op(kind, moved, Number(number)), axis=1),
                Number(0),
            )
        b.output(b.op("identity", y, out="y"))
        return b.plan()

    proven(looked(True), looked(True))
    never_equivalent(looked(False), looked(True))


def _later(
    ranks: int, first: int, kind: str = "maximum", masked: str = "-inf", last: str = ""
) -> Plan:
    """The larger of two numbers, of which one is only to be seen from place ``first`` of 8 on; the
    last rank may do something else.
    """
    b = Builder("later", {"tp": ranks} if ranks > 1 else None)
    spec = {0: "tp"} if ranks > 1 else None
    x, y = (b.input(name, (8 // ranks,), spec) for name in "xy")
    places = b.op(
        "positions",
        x,
        axis=0,
        offset=Table(("tp",), tuple(8 // ranks * i for i in range(ranks))) if ranks > 1 else 0,
    )
    seen = b.op("where", b.op("ge", places, Number(first)), y, Number(masked))
    for doing, where in (
        ((kind, {"tp": tuple(range(ranks - 1))}), (last, {"tp": (ranks - 1,)}))
        if last
        else ((kind, ()),)
    ):
        b.op(doing, x, seen, out="z", where=where)
    b.output("z", "z", lineage("z", spec) if spec else None)
    return b.plan()


@pytest.mark.parametrize(("kind", "masked"), [("maximum", "-inf"), ("minimum", "inf")])
def test_a_rank_with_nothing_to_decide(kind: str, masked: str) -> None:
    """The first rank's maximum is never the other number, which it may not see."""
    reference = _later(1, 6, kind, masked)
    proven(reference, _later(2, 6, kind, masked))
    for wrong in (
        _later(2, 7, kind, masked),
        _later(2, 4, kind, masked),
        _later(2, 8, kind, masked),
    ):
        caught(reference, wrong)
    caught(
        reference, _later(2, 6, kind, masked, last="minimum" if kind == "maximum" else "maximum")
    )


# --- numbers that are none


@pytest.mark.parametrize("how", ["sqrt", "log"])
def test_nan_in_one_plan_alone(how: str) -> None:
    """0 times what is no number for negative inputs."""
    never_equivalent(
        _plan(_unchanged), _plan(lambda b, x: b.op("add", x, b.op("mul", b.op(how, x), Number(0))))
    )


def test_logarithm_of_a_square() -> None:
    def steps(b: Builder, x: str) -> str:
        return b.op("log", b.op("mul", x, x))

    proven(_plan(steps), _plan(steps))
    never_equivalent(_plan(steps), _plan(lambda b, x: b.op("mul", b.op("log", x), Number(2))))


# --- what excludes each other


def test_masks_that_are_not_needed() -> None:
    """relu(x), masked where x <= 0, is the same; two sides of a relu have product 0: neither is a
    case that was not seen.
    """

    def masked(b: Builder, x: str) -> str:
        return b.op("masked_fill", b.op("relu", x), b.op("le", x, Number(0)), Number(0))

    def both_sides(b: Builder, x: str) -> str:
        return b.op("add", x, b.op("mul", b.op("relu", x), b.op("relu", b.op("neg", x))))

    for steps in (masked, both_sides):
        assert check(_plan(steps), _plan(steps), Options(seed=4)).verdict == "equivalent"
    assert (
        check(_plan(masked), _plan(lambda b, x: b.op("relu", x)), Options(seed=4)).verdict
        == "equivalent"
    )
    assert check(_plan(both_sides), _plan(_unchanged), Options(seed=4)).verdict == "equivalent"
