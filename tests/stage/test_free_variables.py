"""Steps that residues decide one way only: what holds whatever they give is proven, and what
depends on them is not.
"""

from __future__ import annotations

import pytest
from support.verdicts import CHOICES, proven
from zoo.builder import Builder, lineage

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Number, Plan

WIDE = 80
"""No draw over residues makes the largest of so many numbers small."""


FAR = -(10**9)
"""No number that is tried is so small."""


def never_equivalent(reference: Plan, parallel: Plan) -> None:
    """Whatever the shapes and coordinates."""
    for shapes, coordinates in CHOICES:
        assert check(
            reference, parallel, Options(seed=7, shapes=shapes, coordinates=coordinates)
        ).verdict in ("mismatch", "inconclusive")


def _softmax(columns: int = WIDE) -> Plan:
    b = Builder("softmax")
    b.output(b.op("softmax", b.input("x", (4, columns)), axis=1, out="y"))
    return b.plan()


def _shifted(numerator: bool, denominator: bool, least: int = 0) -> Plan:
    """A softmax whose exponents are shifted by the largest of a row, or by the least shift if that
    is below; or by the former alone.
    """
    b = Builder("shifted")
    x = b.input("x", (4, WIDE))
    top = b.op("amax", x, axes=(1,), keepdim=True)
    clamped = b.op("clamp", top, min=least)
    over, under = (
        b.op("exp", b.op("sub", x, clamped if also else top)) for also in (numerator, denominator)
    )
    b.output(b.op("div", over, b.op("sum", under, axes=(1,), keepdim=True), out="y"))
    return b.plan()


def test_a_shift_that_cancels() -> None:
    proven(_softmax(), _shifted(True, True))


@pytest.mark.parametrize("least", [0, FAR])
@pytest.mark.parametrize("numerator", [True, False])
def test_a_shift_that_does_not_cancel(numerator: bool, least: int) -> None:
    never_equivalent(_softmax(), _shifted(numerator, not numerator, least))


def _over_ranks(*least: int) -> Plan:
    """The columns over ranks, each of which shifts by the largest of all, or by the least shift of
    the rank if that is below.
    """
    b = Builder("over ranks", {"tp": 2})
    x = b.input("x", (4, WIDE), {1: "tp"})
    top = b.op("all_reduce", b.op("amax", x, axes=(1,), keepdim=True), group="tp", reduction="max")
    for rank, own in enumerate(least):
        b.op("clamp", top, min=own, where={"tp": (rank,)}, out="shift")
    e = b.op("exp", b.op("sub", x, "shift"))
    b.output(
        b.op(
            "div",
            e,
            b.op("all_reduce", b.op("sum", e, axes=(1,), keepdim=True), group="tp"),
            out="y",
        ),
        spec=lineage("y", {1: "tp"}),
    )
    return b.plan()


def test_ranks_shift_alike() -> None:
    proven(_softmax(2 * WIDE), _over_ranks(0, 0))


@pytest.mark.parametrize("least", [(0, -1), (FAR, 2 * FAR)])
def test_ranks_shift_by_numbers_of_their_own(least: tuple[int, int]) -> None:
    never_equivalent(_softmax(2 * WIDE), _over_ranks(*least))


@pytest.mark.parametrize("least", [0, FAR])
@pytest.mark.parametrize("kind", ["div", "log", "rsqrt"])
def test_what_has_no_value_where_the_step_gives_a_certain_number(kind: str, least: int) -> None:
    """All of a row below ``least``: a quotient of nothings, and others of that sort, where the
    reference has a number. Any number drawn cancels.
    """
    b = Builder("reference")
    b.output(b.op("mul", b.input("x", (4, WIDE)), Number(1), out="y"))
    reference = b.plan()
    b = Builder("cancels")
    x = b.input("x", (4, WIDE))
    above = b.op(
        "sub", b.op("clamp", b.op("amax", x, axes=(1,), keepdim=True), min=least), Number(least)
    )
    if kind == "div":
        b.output(b.op("div", b.op("mul", x, above), above, out="y"))
    else:
        taken = b.op(kind, above)
        b.output(b.op("add", x, b.op("sub", taken, taken), out="y"))
    never_equivalent(reference, b.plan())


def _numbered(numerator: bool, denominator: bool) -> Plan:
    """As ``_shifted``, over exponents of which the places along a row are asked for: their shape
    tells these, whatever the shift is.
    """
    b = Builder("numbered")
    x = b.input("x", (4, WIDE))
    top = b.op("amax", x, axes=(1,), keepdim=True)
    clamped = b.op("clamp", top, min=0)
    over, under = (b.op("sub", x, clamped if also else top) for also in (numerator, denominator))
    here = b.op("cast", b.op("lt", b.op("positions", over, axis=1), Number(WIDE)), dtype="float32")
    b.output(
        b.op(
            "div",
            b.op("mul", b.op("exp", over), here),
            b.op("sum", b.op("exp", under), axes=(1,), keepdim=True),
            out="y",
        )
    )
    return b.plan()


def test_a_shape_depends_on_no_shift() -> None:
    proven(_softmax(), _numbered(True, True))


@pytest.mark.parametrize("numerator", [True, False])
def test_a_shift_that_does_not_cancel_where_places_are_asked_for(numerator: bool) -> None:
    never_equivalent(_softmax(), _numbered(numerator, not numerator))


def _placed(shifted: tuple[bool, bool] | None) -> Plan:
    """A softmax of which some elements are kept, and added up by given places; ``shifted``: as
    ``_shifted``.
    """
    b = Builder("placed")
    x, places = b.input("x", (4, WIDE)), b.input("places", (WIDE,), dtype="int64", bounds=(0, WIDE))
    kept = b.op("lt", b.op("positions", x, axis=1), Number(WIDE // 2))
    if shifted is None:
        weights = b.op("where", kept, b.op("softmax", x, axis=1), Number(0))
    else:
        top = b.op("amax", x, axes=(1,), keepdim=True)
        clamped = b.op("clamp", top, min=0)
        over, under = (b.op("exp", b.op("sub", x, clamped if also else top)) for also in shifted)
        weights = b.op(
            "div", b.op("where", kept, over, Number(0)), b.op("sum", under, axes=(1,), keepdim=True)
        )
    b.output(b.op("index_add", b.op("mul", x, Number(0)), places, weights, axis=1, out="y"))
    return b.plan()


def test_a_shift_that_cancels_where_elements_are_kept_and_placed() -> None:
    proven(_placed(None), _placed((True, True)))


@pytest.mark.parametrize("shifted", [(True, False), (False, True)])
def test_a_shift_that_does_not_cancel_where_elements_are_kept_and_placed(
    shifted: tuple[bool, bool],
) -> None:
    never_equivalent(_placed(None), _placed(shifted))


def test_what_is_kept_by_the_shift_depends_on_it() -> None:
    """Elements above half the clamped maximum: a condition that any drawn number would decide
    otherwise.
    """

    def plan(shift: bool) -> Plan:
        b = Builder("kept")
        x = b.input("x", (4, WIDE))
        top = b.op("amax", x, axes=(1,), keepdim=True)
        shifted = b.op("sub", x, b.op("clamp", top, min=0)) if shift else x
        b.output(b.op("where", b.op("lt", shifted, Number(0)), x, Number(0), out="y"))
        return b.plan()

    never_equivalent(plan(False), plan(True))


@pytest.mark.parametrize("kind", ["where", "masked_fill"])
def test_the_largest_of_no_elements_is_no_number(kind: str) -> None:
    """A row without an element that counts has the shift -inf, and is no number when shifted.

    The reference has 0 there. Any number drawn cancels.
    """

    def plan(shift: bool) -> Plan:
        b = Builder("counted")
        x, counts = b.input("x", (4, WIDE)), b.input("counts", (4, WIDE), dtype="bool")
        ones = b.op("cast", counts, dtype="float32")
        rest: object = Number(1)
        if shift:
            seen = (
                (counts, x, Number("-inf"))
                if kind == "where"
                else (x, b.op("logical_not", counts), Number("-inf"))
            )
            top = b.op("amax", b.op(kind, *seen), axes=(1,), keepdim=True)
            x, rest = b.op("sub", x, top), b.op("exp", b.op("neg", top))
        weights = b.op("mul", b.op("exp", x), ones)
        b.output(
            b.op(
                "div",
                weights,
                b.op("add", b.op("sum", weights, axes=(1,), keepdim=True), rest),
                out="y",
            )
        )
        return b.plan()

    never_equivalent(plan(False), plan(True))


def _cancels(alpha: int, least: int) -> Plan:
    """A quotient of x z by z, z = exp(top) + alpha exp(0): positive for ``alpha`` 1, and 0 for -1
    where all of a row is below ``least``.
    """
    b = Builder("cancels")
    x = b.input("x", (4, WIDE))
    above = b.op(
        "sub", b.op("clamp", b.op("amax", x, axes=(1,), keepdim=True), min=least), Number(least)
    )
    z = b.op("add", b.op("exp", above), b.op("exp", b.op("mul", above, Number(0))), alpha=alpha)
    b.output(b.op("div", b.op("mul", x, z), z, out="y"))
    return b.plan()


def _given() -> Plan:
    b = Builder("reference")
    b.output(b.op("mul", b.input("x", (4, WIDE)), Number(1), out="y"))
    return b.plan()


def test_a_sum_of_exponentials_is_positive() -> None:
    proven(_given(), _cancels(1, 0))


@pytest.mark.parametrize("least", [0, FAR])
def test_a_difference_of_exponentials_is_not_positive(least: int) -> None:
    never_equivalent(_given(), _cancels(-1, least))


@pytest.mark.parametrize("least", [0, FAR])
def test_a_number_that_is_read_as_a_truth_decides(least: int) -> None:
    """The number drawn for the step is never 0, but the step can be.

    It gives 0 if all of a row is below ``least``.
    """
    b = Builder("kept")
    x = b.input("x", (4, WIDE))
    above = b.op(
        "sub", b.op("clamp", b.op("amax", x, axes=(1,), keepdim=True), min=least), Number(least)
    )
    b.output(b.op("where", above, x, Number(0), out="y"))
    never_equivalent(_given(), b.plan())
