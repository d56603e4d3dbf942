"""Attacks on the state that a step leaves for the next one, in plan files.

They concern which tensor is a new value, on which ranks, and which part of it each rank has.
"""

from __future__ import annotations

from typing import Any

import pytest
from attacks.pairs import FIRST, NEG, OTHER, alone, evenly, found, given, rows, spread, tensor

from pitcheck.plan.model import Lineage, Operator, Output, Plan, Table

UPDATE = Operator("update", "sub", ("w", "x"), ("n",))
READ = Operator("read", "mul", ("w", "x"), ("y",))
W, N = given("w", role="parameter"), tensor("n", updated="w")
REFERENCE = alone([given("x"), W, N], [UPDATE], "n")
NEW = Output("n", "n")
HALVES = [
    given("x", 2, lineage=evenly("x")),
    given("w", 2, role="parameter", lineage=evenly("w")),
    tensor("n", 2, updated="w"),
]


def stepped(
    *operators: Operator, output: Output = NEW, new: Any = N, more: Any = ()
) -> tuple[str, str]:
    return found(REFERENCE, spread([given("x"), W, new, *more], operators or (UPDATE,), output))


def halves(lineage: Lineage | None, *operators: Operator, more: Any = ()) -> tuple[str, str]:
    return found(
        REFERENCE, spread([*HALVES, *more], operators or (UPDATE,), Output("n", "n", lineage))
    )


def test_a_new_value_is_spread_as_what_it_replaces() -> None:
    assert stepped()[0] == "equivalent"
    assert stepped(output=Output("n", "n", Lineage("n")))[0] == "equivalent"
    half = (
        Operator("whole", "sub", ("w", "x"), ("f",)),
        Operator(
            "own",
            "chunk",
            ("f",),
            ("n",),
            {"axis": 0, "count": 2, "position": Table(("r",), (0, 1))},
        ),
    )
    # The output is right and whole, but each rank begins the next step with one half of its own.
    assert stepped(
        *half,
        output=Output("n", "n", evenly("n")),
        new=tensor("n", 2, updated="w"),
        more=[tensor("f")],
    ) == ("inconclusive", "PIT201")


def test_halves_of_a_new_value_stay_on_their_ranks() -> None:
    assert halves(None)[0] == "equivalent"
    assert halves(rows("n", ((0, 2),), ((2, 4),)))[0] == "equivalent"
    exchanged = (
        Operator("own", "sub", ("w", "x"), ("p",)),
        Operator("send", "send", ("p",), (), {"peer": OTHER, "batch": 1}),
        Operator("receive", "receive", (), ("n",), {"peer": OTHER, "batch": 1}),
    )
    assert halves(None, *exchanged, more=[tensor("p", 2)])[0] == "mismatch"
    assert halves(rows("n", ((2, 4),), ((0, 2),)), *exchanged, more=[tensor("p", 2)]) == (
        "inconclusive",
        "PIT201",
    )


@pytest.mark.parametrize("lineage", [Lineage("n", partial=("r",)), Lineage("n", scale="1/2")])
def test_a_new_value_is_no_term_and_no_multiple(lineage: Lineage) -> None:
    term = (
        Operator("whole", "sub", ("w", "x"), ("h",)),
        Operator("half", "div", ("h", "two"), ("n",)),
    )
    two = given("two", role="constant", value=2.0)
    assert stepped(*term, output=Output("n", "n", lineage), more=[tensor("h"), two]) == (
        "inconclusive",
        "PIT201",
    )


def test_all_ranks_that_read_a_parameter_have_its_new_value() -> None:
    reference = alone([given("x"), W, N, tensor("y")], [UPDATE, READ], "n", "y")

    def plan(where: Any) -> Plan:
        update = Operator("update", "sub", ("w", "x"), ("n",), where=where)
        return spread([given("x"), W, N, tensor("y")], [update, READ], NEW, Output("y", "y"))

    assert found(reference, plan(()))[0] == "equivalent"
    assert found(reference, plan(FIRST)) == ("inconclusive", "PIT201")


def test_the_output_is_what_the_parameter_becomes() -> None:
    other = Operator("other", "add", ("w", "x"), ("m",))
    assert stepped(UPDATE, other, new=tensor("n"), more=[tensor("m", updated="w")]) == (
        "inconclusive",
        "PIT201",
    )
    assert stepped(new=tensor("n")) == ("inconclusive", "PIT201")


def test_states_that_change_places() -> None:
    states = [given("m", role="optimizer_state"), given("v", role="optimizer_state")]
    operators = [
        Operator("one", "add", ("m", "x"), ("a",)),
        Operator("two", "sub", ("v", "x"), ("b",)),
    ]

    def plan(first: str, second: str) -> list[Any]:
        return [given("x"), *states, tensor("a", updated=first), tensor("b", updated=second)]

    reference = alone(plan("m", "v"), operators, "a", "b")
    assert (
        found(reference, spread(plan("m", "v"), operators, Output("a", "a"), Output("b", "b")))[0]
        == "equivalent"
    )
    assert found(
        reference, spread(plan("v", "m"), operators, Output("a", "a"), Output("b", "b"))
    ) == ("inconclusive", "PIT201")


@pytest.mark.parametrize("role", ["input", "parameter", "optimizer_state"])
def test_what_the_reference_computes_is_not_given(role: str) -> None:
    reference = alone([given("x"), tensor("y")], [Operator("u", "neg", ("x",), ("y",))])
    copied = [given("x"), given("q", role=role, lineage=Lineage("y")), tensor("o")]
    assert found(
        reference, spread(copied, [Operator("copy", "identity", ("q",), ("o",))], Output("o", "y"))
    ) == ("invalid", "PIT008")


def test_constants_have_their_own_values() -> None:
    def plan(value: float, **more: Any) -> list[Any]:
        return [given("x"), given("c", role="constant", value=value, **more), tensor("y")]

    times = [Operator("times", "mul", ("x", "c"), ("y",))]
    assert found(alone(plan(2.0), times), spread(plan(2.0), times))[0] == "equivalent"
    assert (
        found(alone(plan(2.0), times), spread(plan(3.0, lineage=Lineage("c")), times))[0]
        == "mismatch"
    )


@pytest.mark.parametrize(
    ("shape", "lineage"),
    [
        (4, rows("y", ((-1, 4),), ((-1, 4),))),
        (4, rows("y", ((-2, 4),), ((-2, 4),))),
        (2, rows("y", ((0, 2),), ((0, 2),))),
        (4, Lineage("y", scale="0")),
    ],
)
def test_outputs_that_say_nothing(shape: int, lineage: Lineage) -> None:
    reference = alone([given("x"), tensor("y")], [Operator("u", "neg", ("x",), ("y",))])
    cut = [NEG, Operator("cut", "slice", ("a",), ("y",), {"axis": 0, "stop": shape})]
    verdict, _ = found(
        reference,
        spread([given("x"), tensor("a"), tensor("y", shape)], cut, Output("y", "y", lineage)),
    )
    assert verdict != "equivalent"
