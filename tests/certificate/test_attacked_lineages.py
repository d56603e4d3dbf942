"""Cuts and outputs that say something else than what ranks hold; the certificate is forged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from attacks.pairs import ALL, OTHER, alone, evenly, given, rows, spread, tensor
from certificate.forgeries import Pair, formulas, step, told

from pitcheck.plan.model import (
    Axis,
    Lineage,
    Number,
    Operator,
    Output,
    Plan,
    Shard,
    Table,
    Tensor,
    Use,
)

X, NEG = given("x", lineage=Lineage("x")), Operator("y", "neg", ("x",), ("y",))
REFERENCE = alone([given("x"), tensor("y")], [NEG])
W = Tensor("w", (4,), role="parameter")
UPDATED = alone(
    [W, given("v", role="parameter"), tensor("n", updated="w"), tensor("y")],
    [Operator("n", "neg", ("w",), ("n",)), Operator("y", "neg", ("v",), ("y",))],
    "n",
    "y",
)
EVEN, ODD = rows("y", ((0, 2),), ((2, 4),)), rows("y", ((2, 4),), ((0, 2),))


def negated(held: Tensor, *outputs: Output, like: Tensor | None = None, **more: Any) -> Pair:
    """Return the reference, and a plan that negates what it holds of x."""
    result = msgspec.structs.replace(like or tensor("y"), shape=held.shape)
    return REFERENCE, spread([held, result], [NEG], *outputs, **more)


def said(lineage: Lineage, held: Lineage, size: int = 4) -> Pair:
    """Return a plan whose output has a lineage, and whose input has another."""
    return negated(given("x", size, lineage=held), Output("y", "y", lineage))


def renewed(new: Tensor, *lineage: Lineage, source: str = "w", **more: Any) -> Pair:
    """Return a plan that replaces w by another value; ``more`` is of the operator."""
    held = (
        Tensor("w", (4,), role="parameter", lineage=Lineage("w")),
        Tensor("v", (4,), role="parameter", lineage=Lineage("v")),
    )
    operators = [
        Operator("n", "neg", (source,), (new.name,), **more),
        Operator("k", "neg", ("w",), ("k",)),
        Operator("y", "neg", ("v",), ("y",)),
    ]
    outputs = Output(new.name, "n", *lineage), Output("y", "y")
    return UPDATED, spread([*held, new, tensor("k"), tensor("y")], operators, *outputs)


def exchanged() -> Pair:
    """Return plans of two outputs, each of which is named as the other one."""
    steps = [step("y", "neg", "x"), step("z", "square", "x")]
    tensors, operators = zip(*steps, strict=True)
    return (
        alone([given("x"), *tensors], operators, "y", "z"),
        spread([X, *tensors], operators, Output("y", "z"), Output("z", "y")),
    )


def batches(operand: Any) -> Pair:
    """Return a plan of two micro-batches that reads an operand in each."""
    by_batch = Shard(0, ("mb",))
    held = given("x", 2, microbatched=True, lineage=Lineage("x", (by_batch,)))
    made = Tensor("y", (2,), microbatched=True)
    own = Operator("y", "neg", (operand,), ("y",))
    return REFERENCE, spread(
        [held, made], [own], Output("y", "y", Lineage("y", (by_batch,))), microbatches=2
    )


def chain(ranks: int, sent: str) -> Pair:
    """Return a plan in which the last rank's number is handed on to the first, rank by rank."""
    last, places = ({"r": (ranks - 1,)},), range(ranks)
    tensors = [X, tensor("z"), tensor("y")]
    operators = [
        Operator("z", "neg", ("x",), ("z",)),
        Operator("own", "identity", ("z",), ("y",), where=last),
        Operator(
            "receive",
            "receive",
            (),
            ("y",),
            {"peer": Table(("r",), tuple(place + 1 for place in places))},
            where=({"r": tuple(places[:-1])},),
        ),
        Operator(
            "send",
            "send",
            (sent,),
            (),
            {"peer": Table(("r",), tuple(place - 1 for place in places))},
            where=({"r": tuple(places[1:])},),
        ),
    ]
    return REFERENCE, spread(tensors, operators, mesh=(Axis("r", ranks),))


def shared(kind: str, factor: Number, **attributes: Any) -> Pair:
    """Return a plan whose ranks add up y."""
    made = [step("z", "mul", "x", factor), step("y", kind, "z", **attributes)]
    made[1] = made[1][0], msgspec.structs.replace(made[1][1], group=ALL)
    tensors, operators = zip(*made, strict=True)
    return REFERENCE, spread([X, *tensors], operators)


WRONG: dict[str, Callable[[], Pair]] = {
    "halves exchanged": lambda: said(ODD, evenly("x"), 2),
    "pieces in another order": lambda: said(
        rows("y", ((0, 2), (2, 4)), ((0, 4),)), rows("x", ((2, 4), (0, 2)), ((0, 4),))
    ),
    "a half twice": lambda: said(*[rows(n, *[((0, 2), (0, 2))] * 2) for n in "yx"]),
    "a half nowhere": lambda: said(*[rows(n, ((0, 2),), ((0, 2),)) for n in "yx"], size=2),
    "an element nowhere": lambda: said(*[rows(n, ((0, 2),), ((1, 3),)) for n in "yx"], size=2),
    "padding that is everything": lambda: said(rows("y", ((-1, 4),), ((-1, 4),)), Lineage("x")),
    "padding of zeros that is any": lambda: said(
        rows("y", ((0, 2), (-2, 2)), ((2, 4), (-2, 2))),
        rows("x", ((0, 2), (-1, 2)), ((2, 4), (-1, 2))),
    ),
    "padding that is read": lambda: said(
        rows("y", ((0, 2),), ((2, 4),)), rows("x", ((-1, 2),), ((2, 4),)), 2
    ),
    "terms that are replicas": lambda: said(Lineage("y", partial=("r",)), Lineage("x")),
    "replicas that are terms": lambda: said(Lineage("y"), Lineage("x", partial=("r",))),
    "a scale": lambda: said(Lineage("y", scale="2"), Lineage("x")),
    "another scale of what is held": lambda: said(Lineage("y"), Lineage("x", scale="1/2")),
    "two outputs exchanged": exchanged,
    "one micro-batch for all": lambda: batches(Use("x", 0)),
    "another message": lambda: chain(4, "x"),
    "a sum over one rank too many": lambda: shared("all_reduce", Number(-1), reduction="sum"),
    "an average of terms": lambda: shared("all_reduce", Number("-1/2"), reduction="avg"),
    "integers for numbers": lambda: negated(X, like=Tensor("y", (4,), "int64")),
    "a new value of another": lambda: renewed(tensor("n", updated="w"), source="v"),
    "a new value in the place of another": lambda: renewed(tensor("n", updated="v")),
    "a new value on one rank": lambda: renewed(tensor("n", updated="w"), where=({"r": (0,)},)),
    "a new value on one rank that names none": lambda: renewed(
        tensor("n"), Lineage("n"), where=({"r": (0,)},)
    ),
    "a new value that names none": lambda: renewed(tensor("n")),
}
RIGHT: dict[str, Callable[[], Pair]] = {
    "halves": lambda: said(EVEN, evenly("x"), 2),
    "halves exchanged twice": lambda: said(ODD, rows("x", ((2, 4),), ((0, 2),)), 2),
    "halves that overlap": lambda: said(*[rows(n, ((0, 3),), ((1, 4),)) for n in "yx"], size=3),
    "padding": lambda: said(*[rows(n, ((0, 2), (-1, 2)), ((2, 4), (-1, 2))) for n in "yx"]),
    "terms": lambda: said(*[Lineage(n, partial=("r",)) for n in "yx"]),
    "scales": lambda: said(*[Lineage(n, scale="1/2") for n in "yx"]),
    "micro-batches": lambda: batches("x"),
    "messages": lambda: chain(4, "y"),
    "a sum over ranks": lambda: shared("all_reduce", Number("-1/2"), reduction="sum"),
    "a new value": lambda: renewed(tensor("n", updated="w")),
    "a new value that says how it is spread": lambda: renewed(tensor("n"), Lineage("n")),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_ranks_do_not_hold_is_not_verified(name: str) -> None:
    pair = WRONG[name]()
    assert told(pair)
    assert told(pair, ("y", Lineage("y")))


@pytest.mark.parametrize("name", RIGHT)
def test_what_ranks_hold_is_verified(name: str) -> None:
    assert told(RIGHT[name]()) == ""


# --- cuts that make no sense, of a right pair

SQUARE = formulas([given("x")], *[[step("a", "square", "x"), step("y", "neg", "a")]] * 2)
BOTH = Shard(0, ("r",), Table((), (((0, 4),),)))


def pieces(*values: Any, over: tuple[str, ...] = ("r",)) -> Lineage:
    return Lineage("a", (Shard(0, intervals=Table(over, values)),))


NONSENSE: dict[str, Lineage] = {
    **{
        f"scale {scale}": Lineage("a", scale=scale)
        for scale in (
            "0",
            "-1",
            "2",
            "1/0",
            "1e9",
            "1e-99999999",
            "1e999999999",
            "nan",
            "inf",
            "\u0661",
        )
    },
    "no tensor": Lineage("none"),
    "another tensor": Lineage("y"),
    "an axis that is none": Lineage("a", (Shard(0, ("q",)),)),
    "an axis twice": Lineage("a", (Shard(0, ("r", "r")),)),
    "a dimension that is none": Lineage("a", (Shard(1, ("r",)),)),
    "a dimension below 0": Lineage("a", (Shard(-1, ("r",)),)),
    "a dimension twice": Lineage("a", (Shard(0, ("r",)), Shard(0, ("r",)))),
    "cut in two ways": Lineage("a", (BOTH,)),
    "cut in no way": Lineage("a", (Shard(0),)),
    "halves of a whole": evenly("a"),
    "micro-batches of what has none": Lineage("a", (Shard(0, ("mb",)),)),
    "no pieces": pieces((), ()),
    "numbers for pieces": pieces(4, 4),
    "pieces beyond the end": pieces(((0, 4),), ((2, 6),)),
    "pieces backwards": pieces(((0, 4),), ((4, 0), (0, 4))),
    "a piece too many": pieces(((0, 4),), ((0, 4),), ((0, 4),)),
    "padding below 0": pieces(((-1, -4), (0, 4)), ((0, 4),)),
    "padding of a kind that is none": pieces(((-3, 4),), ((0, 4),)),
    "terms over an axis that is none": Lineage("a", partial=("q",)),
    "terms over an axis twice": Lineage("a", partial=("r", "r")),
    "terms over micro-batches": Lineage("a", partial=("mb",)),
    "terms over ranks": Lineage("a", partial=("r",)),
    "terms in two ways": Lineage("a", partial=("r",), partial_ranks=((0, 1),)),
    "terms of a maximum": Lineage("a", partial=("r",), reduction="max"),
    "terms over no ranks": Lineage("a", partial_ranks=((),)),
    "terms over one rank": Lineage("a", partial_ranks=((0,),)),
    "terms over a rank twice": Lineage("a", partial_ranks=((0, 0), (1, 1))),
    "terms over a rank that is none": Lineage("a", partial_ranks=((0, -1),)),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_cuts_that_make_no_sense_are_refused(name: str) -> None:
    assert told(SQUARE, ("a", NONSENSE[name]))


@pytest.mark.parametrize("cut", ["x", "none", ""])
def test_a_cut_of_what_is_not_computed_is_refused(cut: str) -> None:
    assert "computed nowhere" in told(SQUARE, (cut, Lineage("x")))


def test_a_cut_that_holds_is_taken() -> None:
    assert told(SQUARE, ("a", Lineage("a"))) == ""


# --- cuts that stand on each other


def circular(*steps: Operator) -> Plan:
    tensors = [X, *(tensor(name) for operator in steps for name in operator.outputs)]
    return spread(tensors, steps)


CIRCLES: dict[str, list[Operator]] = {
    "a copy": [Operator("z", "square", ("x",), ("z",)), Operator("y", "identity", ("z",), ("y",))],
    "a sum of copies": [
        Operator("z", "square", ("x",), ("z",)),
        Operator("y", "all_reduce", ("z",), ("y",), {"reduction": "avg"}, ALL),
    ],
    "a ring": [
        Operator("a", "square", ("x",), ("a",)),
        Operator("send", "send", ("a",), (), {"peer": OTHER, "protocol": "buffered"}),
        Operator("z", "receive", (), ("z",), {"peer": OTHER}),
        Operator("y", "identity", ("z",), ("y",)),
    ],
}


@pytest.mark.parametrize("name", CIRCLES)
@pytest.mark.parametrize("cuts", ["zy", "yz", "z", "y", "azy"])
@pytest.mark.parametrize("terms", [(), ("r",)])
def test_cuts_do_not_prove_each_other(name: str, cuts: str, terms: tuple[str, ...]) -> None:
    plan = circular(*CIRCLES[name])
    known = {each.name for each in plan.tensors}
    held = [(cut, Lineage("y", partial=terms)) for cut in cuts if cut in known]
    assert told((REFERENCE, plan), *held)
