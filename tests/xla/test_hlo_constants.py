"""Constants of many different numbers: tables of cosines, masks, orders, rows.

Any numbers stand for them, the same ones in both programs.
"""

from __future__ import annotations

import re

import pytest
from xla.hlo_pairs import Case, cases_in, edits, is_right

from pitcheck.base.options import Options
from pitcheck.commands.checking.attempts import checked_in_turn
from pitcheck.engine.check import check
from pitcheck.errors import UnsupportedError
from pitcheck.frontends.xla.lowering.pair import attempts_on
from pitcheck.frontends.xla.text.parser import parse_hlo
from pitcheck.plan.model import Plan
from pitcheck.plan.validate import validate

CASES: dict[str, Case] = cases_in("constants.jsonl.gz")
"""Programs of JAX on four devices: attention with a causal mask and tables of cosines and sines,
rows in an order, a table that is added, and a mask of two arrays.
"""


def attempts(case: Case, after: str | None = None) -> list[tuple[Plan, Plan]]:
    """The pairs of plans that are tried, none of which decides, and the error behind them."""
    found = []
    with pytest.raises(UnsupportedError, match="any numbers stand for them"):
        for attempt in attempts_on(parse_hlo(case["before"]), parse_hlo(after or case["after"])):
            assert not attempt.decides
            reference, parallel = attempt.plans
            assert not [*validate(reference), *validate(parallel, reference=reference)]
            found.append((reference, parallel))
    return found


def verdict(pair: tuple[Plan, Plan]) -> str:
    return check(*pair, Options(seed=1, explain=False)).verdict


@pytest.mark.parametrize("name", CASES)
def test_what_holds_for_any_numbers_is_proven(name: str) -> None:
    (pair,) = attempts(CASES[name])
    assert is_right(*pair)
    assert verdict(pair) == "equivalent"


WRONG = [
    ("in_an_order", r"constant\(\{0, 150\}\)", "constant({0, 149})"),
    ("in_an_order", r"constant\(\{0, 0, 1, 1\}\)", "constant({0, 1, 0, 1})"),
    ("in_an_order", r"constant\(\{0, 0, 1, 1\}\)", "constant({0, 0, 0, 1})"),
    ("in_an_order", r"f32\[\] constant\(2\)", "f32[] constant(3)"),
    ("positions", r"constant\(\{0, 0, 150, 150\}\)", "constant({0, 0, 149, 150})"),
    ("positions", r"constant\(\{0, 0, 150, 150\}\)", "constant({0, 150, 0, 150})"),
    ("positions", r"constant\(\{0, 4, 0, 4\}\)", "constant({0, 4, 0, 3})"),
    ("positions", r"(%dynamic-slice.2 = .*)%reshape.3, %reshape.4", r"\1%constant.11, %reshape.4"),
    ("masked", r"constant\(\{0, 0, 10, 10\}\)", "constant({0, 0, 10, 0})"),
    ("masked", r"constant\(\{0, 15, 0, 15\}\)", "constant({0, 15, 1, 15})"),
    ("masked", r"constant\(\{0, 15, 0, 15\}\)", "constant({15, 0, 15, 0})"),
    ("masked", r"(select\(%dynamic-slice.2), %param, (%dynamic-slice.7)", r"\1, \2, %param"),
    ("masked", r"replica_groups=\[2,2\]<=\[4\]", "replica_groups=[2,2]<=[2,2]T(1,0)"),
    ("masked", r"all-reduce\((%\w+)\).*", r"copy(\1)"),
]


@pytest.mark.parametrize(
    ("name", "old", "new"), WRONG, ids=[f"{n}: {w[0]}" for n, w in enumerate(WRONG)]
)
def test_a_mistake_beside_a_constant_is_not_proven(name: str, old: str, new: str) -> None:
    found = edits(CASES[name]["after"], ((old, new),))
    assert found
    for what, text in found:
        (pair,) = attempts(CASES[name], text)
        assert not is_right(*pair, seeds=range(1, 7)), what
        assert verdict(pair) == "mismatch", what


def test_tables_in_each_others_place_are_not_proven() -> None:
    after = CASES["attention"]["after"]
    cosines, sines = re.findall(r"= f32\[1,40,1,8\]\S* constant\((.*)\)", after)
    swapped = after.replace(cosines, "?").replace(sines, cosines).replace("?", sines)
    assert swapped != after
    (pair,) = attempts(CASES["attention"], swapped)
    assert not is_right(*pair)
    assert verdict(pair) == "mismatch"


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("positions", "-0.867616773", "-0.867616833"),
        ("positions", "constant.2 = f32", "constant.2 = f16"),
        ("in_an_order", "{36}, {291}", "{291}, {36}"),
        ("masked", "{ 1, 0, 0, 1", "{ 1, 0, 0, 0"),
    ],
)
def test_a_constant_that_the_program_before_does_not_have_is_refused(
    name: str, old: str, new: str
) -> None:
    after = CASES[name]["after"]
    assert old in after
    with pytest.raises(UnsupportedError, match="does not have"):
        list(attempts_on(parse_hlo(CASES[name]["before"]), parse_hlo(after.replace(old, new, 1))))


def test_numbers_that_are_infinite_do_not_stand_for_any() -> None:
    changed = {
        key: CASES["positions"][key].replace("-0.867616773", "inf") for key in ("before", "after")
    }
    with pytest.raises(UnsupportedError, match="different numbers"):
        list(attempts_on(parse_hlo(changed["before"]), parse_hlo(changed["after"])))


def test_a_program_that_needs_no_constant_is_given_it() -> None:
    """A result that both programs have without the table holds whatever it is."""
    after = CASES["positions"]["after"]
    text = after.replace("add(%dynamic-slice.7, %dynamic-slice.2)", "copy(%dynamic-slice.7)")
    assert text != after
    (pair,) = attempts(CASES["positions"], text)
    assert not is_right(*pair)
    assert verdict(pair) == "mismatch"


def stated(before: str, after: str) -> str:
    """Return the verdict of the command."""
    pair = parse_hlo(before), parse_hlo(after)
    return checked_in_turn(lambda: attempts_on(*pair), Options(seed=1, explain=False)).verdict


def again(text: str, name: str) -> str:
    """Return a text that has a constant a second time, which is read by a dynamic slice there."""
    line = next(line for line in text.splitlines() if f" %{name} = " in line)
    return text.replace(line, line + "\n" + line.replace(f"%{name} =", "%again ="))


POSITIONS = CASES["positions"]
PRODUCT, LOCAL_PRODUCT = "multiply(%add.0, %t.0)", "multiply(%add.2, %param.1)"
SLICED, ANOTHER = "dynamic-slice(%constant.2, %reshape.3", "dynamic-slice(%again, %reshape.3"


@pytest.mark.parametrize(
    ("product", "local", "expected"),
    [
        (PRODUCT, LOCAL_PRODUCT, "equivalent"),
        ("copy(%constant.0)", "copy(%dynamic-slice.2)", "equivalent"),
        (
            "multiply(%constant.0, %t.0)",
            "multiply(%dynamic-slice.2, %dynamic-slice.7)",
            "inconclusive",
        ),
        ("divide(%t.0, %constant.0)", "divide(%param.1, %dynamic-slice.2)", "equivalent"),
        # A quotient by what may be 0 needs one in the program before.
        (PRODUCT, "divide(%param.1, %dynamic-slice.2)", "inconclusive"),
    ],
)
def test_one_constant_that_stands_twice_is_one(product: str, local: str, expected: str) -> None:
    before = POSITIONS["before"].replace(PRODUCT, product)
    after = again(POSITIONS["after"], "constant.2").replace(SLICED, ANOTHER)
    after = after.replace(LOCAL_PRODUCT, local)
    assert stated(before, after) == expected


@pytest.mark.parametrize(
    ("zeros", "expected"), [(("-0", "-0"), "equivalent"), (("-0", "0"), "inconclusive")]
)
def test_zeros_of_other_signs_are_other_numbers(zeros: tuple[str, str], expected: str) -> None:
    texts = (POSITIONS[side] for side in ("before", "after"))
    before, after = (t.replace("-0.867616773", z, 1) for t, z in zip(texts, zeros, strict=True))
    assert stated(before, after) == expected


def test_what_is_right_by_accident_is_no_mismatch() -> None:
    """Rows 0 to 149 are those from 150 on, so that each device may take the first ones."""
    before, after = POSITIONS["before"], POSITIONS["after"]
    found = re.search(r"f32\[300,8\]\S* constant\(\{ (.*) \}\)", after)
    assert found is not None
    rows = re.findall(r"\{[^{}]*\}", found[1])[:150]
    before, after = (t.replace(found[1], ", ".join(rows + rows)) for t in (before, after))
    assert stated(before, after) == "equivalent"
    first = after.replace(SLICED, "dynamic-slice(%constant.2, %constant.11")
    assert first != after
    assert stated(before, first) == "inconclusive"
