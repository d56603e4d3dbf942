"""Pairs about arithmetic, gathers of many ranks and reduced shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attacks.folder import ATTACKS, EXISTS, NOT_EQUIVALENT
from support.verdicts import AT_NIGHT
from zoo.builder import Builder

from pitcheck.base.options import Options
from pitcheck.commands.checking.pair import checked
from pitcheck.commands.reading import read
from pitcheck.plan.model import Number, Operator, Output, Plan, Tensor
from pitcheck.report.report import Report

FOLDER = ATTACKS / "formulas"
ANY = ("equivalent", *NOT_EQUIVALENT)
EQUIVALENT = ("equivalent",)
RIGHT = {
    "01-capacity-per-rank": NOT_EQUIVALENT,
    "03-position-table-zeroed-from-16": NOT_EQUIVALENT,
    "05-threshold-beside-1e30": NOT_EQUIVALENT,
    "07-sqrt4-domain": NOT_EQUIVALENT,
    "08-sqrt-a-sqrt-c": NOT_EQUIVALENT,
    "09-literal-zero-mod-all-primes": NOT_EQUIVALENT,
    "11-free-int-padding": NOT_EQUIVALENT,
    # 30 perfect shuffles of 64 elements are the identity: their order is 6.
    "14-shuffle-30-times": EQUIVALENT,
    "15-polynomial-in-n": NOT_EQUIVALENT,
    "F1-false-invalid-all-gather-dp16": EQUIVALENT,
    "F2-huge-exponent": ANY,
}


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mismatch writes its counterexample where it is run."""
    monkeypatch.chdir(tmp_path)


def settled(found: Report, verdicts: tuple[str, ...]) -> None:
    """The verdict is one of these, no error inside stands for it, and what is not proven has its
    reason.
    """
    assert found.verdict in verdicts, found.findings
    assert found.verdict == "equivalent" or found.findings
    assert "PIT900" not in {finding.code for finding in found.findings}, found.findings


@pytest.mark.skipif(not EXISTS, reason="the folder of attacks is not there")
def test_the_folder_is_whole() -> None:
    assert {path.name for path in FOLDER.iterdir()} == RIGHT.keys()


@pytest.mark.parametrize("name", RIGHT if EXISTS else [])
def test_a_formula_of_the_folder_gets_a_verdict_that_is_right(name: str) -> None:
    files = [FOLDER / name / f"{side}.plan.json" for side in ("reference", "parallel")]
    settled(
        checked(
            [lambda: [read(str(files[0]))], lambda: [read(str(files[1]))]],
            Options(seed=1, jobs=1, explain=AT_NIGHT),
        ),
        RIGHT[name],
    )


def verdict_of(reference: Plan, parallel: Plan) -> str:
    options = Options(seed=1, jobs=1, explain=AT_NIGHT)
    found = checked([lambda: [reference], lambda: [parallel]], options)
    settled(found, ANY)
    return found.verdict


# --- shuffles


def shuffled(times: int, length: int = 64) -> Plan:
    """Halves of the columns that become even and odd columns' places, ``times`` over."""
    b = Builder("shuffles")
    x = b.input("x", (4, length))
    for _ in range(times):
        x = b.op(
            "reshape",
            b.op("transpose", b.op("view", x, sizes=(4, length // 2, 2)), dim0=1, dim1=2),
            sizes=(4, length),
        )
    b.output(b.op("mul", x, Number(2), out="y"))
    return b.plan()


def test_the_order_of_a_perfect_shuffle() -> None:
    """The shuffle sends place i < 63 to i / 2 modulo 63, so the order is that of 2 modulo 63, which
    is 6: 2^6 = 64 = 1. So 30 are the identity.
    """
    places, found = np.arange(64), []
    for _ in range(30):
        places = places.reshape(32, 2).T.reshape(64)
        found.append(bool((places == np.arange(64)).all()))
    assert [times + 1 for times, identity in enumerate(found) if identity] == [6, 12, 18, 24, 30]


@pytest.mark.parametrize(
    ("times", "verdict"), [(6, "equivalent"), (29, "mismatch"), (31, "mismatch")]
)
def test_only_whole_orders_of_shuffles_are_nothing(times: int, verdict: str) -> None:
    assert verdict_of(shuffled(0), shuffled(times)) == verdict


def test_reduced_lengths_have_other_orders() -> None:
    """The shuffle of 62 elements has the order of 2 modulo 61, which is 60.

    At a reduced size 6 shuffles might change nothing.
    """
    assert verdict_of(shuffled(0, 62), shuffled(6, 62)) == "mismatch"


# --- gathers of many ranks


@pytest.mark.parametrize("ranks", [8, 9, 16])
def test_rows_are_gathered_from_many_ranks(ranks: int) -> None:
    def plan(size: int, reverse: bool = False) -> Plan:
        b = Builder("rows", {"dp": size} if size > 1 else None)
        y = b.op("square", b.input("x", (4 * ranks // size, 8), {0: "dp"} if size > 1 else None))
        group = [tuple(range(size))[:: -1 if reverse else 1]]
        b.output(
            b.op("all_gather", y, out="y", axis=0, group=group)
            if size > 1
            else b.op("identity", y, out="y")
        )
        return b.plan()

    assert verdict_of(plan(1), plan(ranks)) == "equivalent"
    assert verdict_of(plan(1), plan(ranks, reverse=True)) == "mismatch"


# --- numbers that are too large


@pytest.mark.parametrize(
    "exponent", [10**5, 10**400, -(10**400)], ids=["large", "beyond floats", "below them"]
)
def test_a_huge_exponent_is_no_internal_error(exponent: int) -> None:
    def plan(power: int) -> Plan:
        tensors = (Tensor("x", (4, 6), role="input"), Tensor("y", (4, 6)))
        return Plan(
            (),
            tensors,
            (Operator("y", "pow", ("x",), ("y",), {"exponent": power}),),
            (Output("y"),),
        )

    verdict_of(plan(exponent), plan(exponent))
    assert verdict_of(plan(2), plan(exponent)) != "equivalent"
