"""Pairs that are equal as formulas, and do not have a value at the same places."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from attacks.domain_pairs import RIGHT_RANKS, WRONG, WRONG_RANKS
from attacks.domain_pairs_right import RIGHT
from attacks.formulas import at_small_numbers, planned
from attacks.pairs import found
from zoo.builder import Builder, lineage

from pitcheck.plan.model import Number, Plan

NOT_PROVEN = ("mismatch", "inconclusive")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mismatch writes its counterexample where it is run."""
    monkeypatch.chdir(tmp_path)


def half_slow(names: Iterable[str]) -> list[Any]:
    """Every second one is left to the night."""
    return [
        pytest.param(name, marks=pytest.mark.slow) if number % 2 else name
        for number, name in enumerate(names)
    ]


@pytest.mark.parametrize("name", half_slow(WRONG))
def test_wrong(name: str) -> None:
    reference, parallel = WRONG[name]
    assert at_small_numbers(reference, parallel) != (True, True)
    assert found(planned(reference), planned(parallel))[0] in NOT_PROVEN


@pytest.mark.parametrize("name", half_slow(RIGHT))
def test_right(name: str) -> None:
    reference, parallel = RIGHT[name]
    assert at_small_numbers(reference, parallel) == (True, True)
    assert found(planned(reference), planned(parallel)) == ("equivalent", "")


@pytest.mark.parametrize("name", WRONG_RANKS)
def test_wrong_over_ranks(name: str) -> None:
    reference, together, parallel, whole = WRONG_RANKS[name]
    assert at_small_numbers(reference, together) != (True, True)
    assert found(planned(reference), planned(parallel, 2, whole=whole))[0] in NOT_PROVEN


@pytest.mark.parametrize("name", RIGHT_RANKS)
def test_right_over_ranks(name: str) -> None:
    reference, parallel, whole = RIGHT_RANKS[name]
    assert found(planned(reference), planned(parallel, 2, whole=whole)) == ("equivalent", "")


# --- ranks that do something else, and cuts that the plan states

RANKS = 4
TWICE, NOTHING = Number(2), Number(0)


def of_four(formula: Any, ranks: int = 1, *, whole: bool = False) -> Plan:
    """A formula of a builder, with x and z of 8 rows, of which four ranks hold 2 each."""
    b = Builder("four", {"r": ranks} if ranks > 1 else None)
    x, z = (b.input(name, (8 // ranks, 4), {0: "r"} if ranks > 1 else None) for name in ("x", "z"))
    b.op("identity", b.op("add", formula(b, x, z), b.op("mul", x, NOTHING)), out="out")
    b.output("out", spec=lineage("out", {} if whole else {0: "r"}) if ranks > 1 else None)
    return b.plan()


def twice(b: Builder, _: str, z: str) -> str:
    return str(b.op("mul", z, TWICE))


@pytest.mark.parametrize("rank", [0, 3])
def test_one_rank_divides(rank: int) -> None:
    def spoiled(b: Builder, x: str, z: str) -> str:
        others = tuple(each for each in range(RANKS) if each != rank)
        b.op("mul", z, b.op("div", x, x), out="h", where={"r": (rank,)})
        b.op("identity", z, out="h", where={"r": others})
        return twice(b, x, "h")

    assert found(of_four(twice), of_four(spoiled, RANKS))[0] in NOT_PROVEN


@pytest.mark.parametrize("spoiled", [False, True])
def test_each_rank_divides_where_the_reference_does(spoiled: bool) -> None:
    def first_rows(b: Builder, x: str, z: str) -> str:
        part = [b.op("slice", each, axis=0, start=0, stop=2) for each in (z, x)]
        rest = b.op("slice", z, axis=0, start=2, stop=8)
        return str(b.op("cat", b.op("div", *part), rest, axis=0))

    def by_rank(b: Builder, x: str, z: str) -> str:
        b.op("div", z, x, out="h", where={"r": (0,)})
        if spoiled:
            b.op("mul", z, b.op("div", x, x), out="h", where={"r": (1,)})
        b.op("identity", z, out="h", where={"r": (2, 3) if spoiled else (1, 2, 3)})
        return "h"

    verdict = found(of_four(first_rows), of_four(by_rank, RANKS))[0]
    assert verdict in NOT_PROVEN if spoiled else verdict == "equivalent"


@pytest.mark.parametrize(("masked", "verdicts"), [(True, ("equivalent",)), (False, NOT_PROVEN)])
def test_a_cut_that_the_plan_states_may_lack_a_value(
    masked: bool, verdicts: tuple[str, ...]
) -> None:
    def formula(chosen: bool, hint: Any) -> Any:
        def of(b: Builder, x: str, z: str) -> str:
            h, m = b.op("div", z, x, out="h", hint=hint), b.op("gt", z, Number(1))
            if chosen:
                return str(b.op("where", m, h, b.op("mul", z, NOTHING)))
            return str(b.op("mul", h, b.op("cast", m, dtype="float32")))

        return of

    assert (
        found(of_four(formula(True, None)), of_four(formula(masked, {0: "r"}), RANKS))[0]
        in verdicts
    )
    # The parallel plan may have a value that the reference lacks.
    assert found(of_four(formula(False, None)), of_four(formula(True, {0: "r"}), RANKS)) == (
        "equivalent",
        "",
    )


@pytest.mark.parametrize("spoiled", [False, True])
def test_what_a_cut_lacks_is_lacking_behind_further_cuts(spoiled: bool) -> None:
    def formula(hint: Any, *, moved: bool) -> Any:
        def of(b: Builder, x: str, z: str) -> str:
            h = b.op("exp", b.op("div", z, x, out="h", hint=hint), out="e", hint=hint)
            t = b.op("tanh", h, out="t", hint=hint)
            if moved:
                flipped = b.op("flip", t, axes=(1,))
                t = b.op("add", t, b.op("sub", flipped, flipped))
            return str(b.op("mul", t, z))

        return of

    verdict = found(
        of_four(formula(None, moved=False)), of_four(formula({0: "r"}, moved=spoiled), RANKS)
    )[0]
    assert verdict in NOT_PROVEN if spoiled else verdict == "equivalent"


POSITIVE: dict[str, Any] = {
    "softmax": lambda b, x: b.op("softmax", x, axis=1),
    "exp": lambda b, x: b.op("exp", x),
    "sigmoid": lambda b, x: b.op("sigmoid", x),
    "over a square": lambda b, x: b.op("rsqrt", b.op("add", b.op("square", x), Number(1))),
    "of a sum of exponentials": lambda b, x: b.op(
        "exp", b.op("logsumexp", x, axis=1, keepdim=True)
    ),
}


@pytest.mark.parametrize("function", POSITIVE)
@pytest.mark.parametrize("masked", [False, True])
def test_a_cut_is_0_only_where_something_is_masked(function: str, masked: bool) -> None:
    """A stage behind such a cut divides by it; what is before decides if that has a value."""

    def formula(hint: Any, *, divides: bool) -> Any:
        def of(b: Builder, x: str, z: str) -> str:
            if masked:
                x = b.op("where", b.op("gt", z, Number(1)), x, Number("-inf"))
            h = b.op("mul", POSITIVE[function](b, x), TWICE, out="h", hint=hint)
            factor = b.op("div", h, h) if divides else Number(1)
            return str(b.op("add", b.op("mul", z, factor), b.op("tanh", h)))

        return of

    verdict = found(
        of_four(formula(None, divides=False)), of_four(formula({0: "r"}, divides=True), RANKS)
    )[0]
    assert verdict in NOT_PROVEN if masked else verdict == "equivalent"


CHOICES: dict[str, Any] = {
    "a boolean": lambda b, x, i, m: m,
    "its contrary": lambda b, x, i, m: b.op("logical_not", m),
    "an integer": lambda b, x, i, m: b.op("eq", i, Number(7)),
    "integers of one side": lambda b, x, i, m: b.op("ge", i, Number(25)),
    "all numbers": lambda b, x, i, m: b.op("all", b.op("gt", x, NOTHING)),
    "none of all numbers": lambda b, x, i, m: b.op(
        "logical_not", b.op("any", b.op("ge", x, Number(1)))
    ),
}


@pytest.mark.parametrize("choice", CHOICES)
def test_what_is_divided_by_may_be_chosen(choice: str) -> None:
    """Few numbers make z - 1.375 x - 0.15625 vanish, and x does not."""

    def plan(ranks: int, *, chosen: bool) -> Plan:
        b = Builder("four", {"r": ranks} if ranks > 1 else None)
        by, whole = ({0: "r"}, lineage) if ranks > 1 else (None, lambda _: None)
        x, z = (b.input(name, (8 // ranks, 4), by) for name in ("x", "z"))
        i = b.input("i", (1,), whole("i"), dtype="int64", bounds=(0, 50))
        m = b.input("m", (1,), whole("m"), dtype="bool")
        divisor = x
        if chosen:
            line = b.op("sub", b.op("mul", x, Number("1.375")), Number("0.15625"))
            condition = CHOICES[choice](b, x, i, m)
            divisor = b.op("where", condition, b.op("sub", z, line), x)
        result = b.op("mul", z, b.op("div", divisor, divisor))
        used = b.op("add", *(b.op("cast", each, dtype="float32") for each in (i, m)))
        b.op("add", result, b.op("mul", used, b.op("mul", x, NOTHING)), out="out")
        b.output("out", spec=lineage("out", {0: "r"}) if ranks > 1 else None)
        return b.plan()

    assert found(plan(1, chosen=False), plan(4, chosen=True))[0] in NOT_PROVEN
    assert found(plan(1, chosen=False), plan(4, chosen=False)) == ("equivalent", "")


@pytest.mark.parametrize("seed", [1, 3])
def test_the_first_draw_may_choose_what_is_positive(seed: int) -> None:
    """A draw that divides by positive numbers alone says nothing of others."""

    def plan(ranks: int, *, spoiled: bool) -> Plan:
        b = Builder("four", {"r": ranks} if ranks > 1 else None)
        by, whole = ({0: "r"}, lineage) if ranks > 1 else (None, lambda _: None)
        x, z = (b.input(name, (8 // ranks, 4), by) for name in ("x", "z"))
        m = b.input("m", (1,), whole("m"), dtype="bool")
        s = b.input("s", (16,), whole("s"))
        above = b.op("exp", x)
        line = b.op("sub", z, b.op("mul", x, Number("1.375")))
        divisor = b.op("where", m, above, b.op("sub", line, Number("0.15625")))
        quotients = b.op("div", z, divisor), b.op("div", x, above)
        h = b.op("add", *quotients, out="h", hint={0: "r"} if ranks > 1 else None)
        given = b.op("add", z, b.op("sub", h, h)) if spoiled else z
        total = b.op("sum", s, keepdim=True)
        chosen = b.op("where", b.op("gt", total, NOTHING), given, h)
        used = b.op("add", b.op("cast", m, dtype="float32"), b.op("sum", s))
        b.op("add", chosen, b.op("mul", b.op("mul", x, used), NOTHING), out="out")
        b.output("out", spec=lineage("out", {0: "r"}) if ranks > 1 else None)
        return b.plan()

    assert found(plan(1, spoiled=False), plan(RANKS, spoiled=True), seed)[0] in NOT_PROVEN


def test_gradients_are_clipped_by_the_norm_of_all() -> None:
    def clipped(together: bool, spoiled: bool = False) -> Any:
        def of(b: Builder, x: str, _: str) -> str:
            own = b.op("sum", b.op("square", x))
            total = b.op("all_reduce", own, group="r") if together else own
            factor = b.op("clamp", b.op("reciprocal", b.op("sqrt", total)), max=1)
            result = b.op("mul", x, factor)
            return str(b.op("mul", result, b.op("div", own, own)) if spoiled else result)

        return of

    assert found(of_four(clipped(False)), of_four(clipped(True), RANKS)) == ("equivalent", "")
    assert found(of_four(clipped(False)), of_four(clipped(True, True), RANKS))[0] in NOT_PROVEN
