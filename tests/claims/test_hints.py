"""Lineage that a plan states of its own tensors: right, wrong, partly right, partial, absent. It
saves the run of both plans, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.by_day import some_at_once
from support.planner_plans import SHIPPED, plans, row_of, rows
from support.verdicts import caught, proven
from zoo.builder import Builder, intervals, lineage, table

from pitcheck.base.options import Options
from pitcheck.claims.problem import Problem
from pitcheck.engine import state as checking
from pitcheck.engine.check import check
from pitcheck.plan.model import Lineage, Output, Plan
from pitcheck.prove import prover as obligations
from pitcheck.refute.whole_run import WholeRun

LAYERS = 3
VERDICT = Options(seed=1, explain=False)
Hints = Mapping[str, Lineage | None]


def reference() -> Plan:
    """Layers of two matrices with a square between them, added to their input."""
    b = Builder("layers")
    x = b.input("h0", (4, 4))
    for n in range(LAYERS):
        up, down = b.parameter(f"u{n}", (6, 4)), b.parameter(f"d{n}", (4, 6))
        b.op("square", b.op("linear", x, up, out=f"a{n}"), out=f"s{n}")
        b.op("linear", f"s{n}", down, out=f"y{n}")
        x = b.op("add", x, f"y{n}", out=f"h{n + 1}")
    b.output(x)
    return b.plan()


def right_hints() -> dict[str, Lineage | None]:
    """Return the lineage that each parallel tensor really has."""
    found: dict[str, Lineage | None] = {}
    for n in range(LAYERS):
        found |= {
            f"a{n}": lineage(f"a{n}", {0: "dp", 1: "tp"}),
            f"s{n}": lineage(f"s{n}", {0: "dp", 1: "tp"}),
            f"t{n}": lineage(f"y{n}", {0: "dp"}, partial=("tp",)),
            f"y{n}": lineage(f"y{n}", {0: "dp"}),
            f"h{n + 1}": lineage(f"h{n + 1}", {0: "dp"}),
        }
    return found


def parallel(damage: str = "") -> Plan:
    """The layers over two data-parallel and two tensor-parallel ranks, with hints that are right
    where nothing is damaged.
    """
    b = Builder("sharded", {"dp": 2, "tp": 2})
    x = b.input("h0", (2, 4), {0: "dp"})
    for n in range(LAYERS):
        up, down = b.parameter(f"u{n}", (3, 4), {0: "tp"}), b.parameter(f"d{n}", (4, 3), {1: "tp"})
        b.op("square", b.op("linear", x, up, out=f"a{n}"), out=f"s{n}")
        b.op("linear", f"s{n}", down, out=f"t{n}")
        if n == 1 and damage == "no reduction":
            b.op("mul", f"t{n}", b.constant("one", 1), out=f"y{n}")
        elif n == 1 and damage == "other group":
            b.op("all_reduce", f"t{n}", out=f"y{n}", group="dp")
        elif n == 1 and damage == "average":
            b.op("all_reduce", f"t{n}", out=f"y{n}", group="tp", reduction="avg")
        else:
            b.op("all_reduce", f"t{n}", out=f"y{n}", group="tp")
        if n == 1 and damage == "one rank":
            b.op("add", x, f"y{n}", out=f"h{n + 1}", where=[{"dp": (0,)}, {"tp": (0,)}])
            b.op("sub", x, f"y{n}", out=f"h{n + 1}", where={"dp": (1,), "tp": (1,)})
            x = f"h{n + 1}"
        elif n == 1 and damage == "other tensor":
            x = b.op("add", "h0", f"y{n}", out=f"h{n + 1}")
        else:
            x = b.op("add", x, f"y{n}", out=f"h{n + 1}")
    b.output(x, spec=lineage(f"h{LAYERS}", {0: "dp"}))
    return hinted(b.plan(), right_hints())


DAMAGES = ("no reduction", "other group", "average", "one rank", "other tensor")


def hinted(plan: Plan, hints: Hints) -> Plan:
    """The plan with these hints."""
    return replace(
        plan,
        tensors=tuple(
            replace(t, lineage=hints[t.name]) if t.name in hints else t for t in plan.tensors
        ),
    )


def swapped(name: str, dims: Mapping[int, str]) -> Lineage:
    """Rank 0 and rank 1 of an axis take each other's part."""
    return lineage(
        name,
        {
            dim: intervals(axis, [(2 + dim, 4 + 2 * dim)], [(0, 2 + dim)])
            for dim, axis in dims.items()
        },
    )


CHANGES: dict[str, Hints] = {
    "none": dict.fromkeys(right_hints()),
    "wrong tensor": {"h2": lineage("h1", {0: "dp"}), "a2": lineage("a0", {0: "dp", 1: "tp"})},
    "wrong part": {"a1": swapped("a1", {0: "dp", 1: "tp"}), "h2": swapped("h2", {0: "dp"})},
    "right for the first rank only": {
        "h1": lineage("h1", {0: intervals("dp", [(0, 2)], [(1, 3)])})
    },
    "wrong scale": {
        "y1": lineage("y1", {0: "dp"}, scale="2"),
        "h1": lineage("h1", {0: "dp"}, scale="-1"),
    },
    "no such tensor": {
        "s1": lineage("nowhere", {0: "dp", 1: "tp"}),
        "h1": lineage("nothing", {0: "dp"}),
    },
    "another shape": {"h1": lineage("a0", {0: "dp"}), "s1": lineage("u0", {0: "dp"})},
    "a term that is none": {
        "h1": lineage("h1", {0: "dp"}, partial=("tp",)),
        "y2": lineage("y2", {0: "dp"}, partial=("tp",)),
    },
    "no term that is one": {"t1": lineage("y1", {0: "dp"}), "t0": lineage("h1", {0: "dp"})},
    "nothing between start and end": dict.fromkeys([name for name in right_hints() if "1" in name]),
    "only at the end": dict.fromkeys([name for name in right_hints() if "2" not in name]),
    "the input": {"h1": lineage("h0", {0: "dp"}), "y0": lineage("h0", {0: "dp"})},
    "the output": {"h1": lineage("h3", {0: "dp"}), "h3": lineage("h1", {0: "dp"})},
}
STILL_CARRY = (
    "right",
    "none",
    "no such tensor",
    "another shape",
    "a term that is none",
    "nothing between start and end",
    "only at the end",
)
"""Changes beside which hints carry a proof of the output: what does not fit, and a term, is no cut;
without hints a small plan is one stage.
"""


@pytest.mark.parametrize("change", ["right", *CHANGES])
def test_a_right_plan_is_proven_whatever_its_hints_say(change: str) -> None:
    proven(reference(), hinted(parallel(), CHANGES.get(change, {})))


@pytest.mark.parametrize("change", some_at_once(["right", *CHANGES], 2))
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_wrong_plan_is_caught_whatever_its_hints_say(damage: str, change: str) -> None:
    """At full shapes too where the hints are right, and each change beside one damage."""
    plan = hinted(parallel(damage), CHANGES.get(change, {}))
    if change == "right":
        caught(reference(), plan)
        return
    place = list(CHANGES).index(change) % len(DAMAGES)
    sizes = ("reduced", "full") if DAMAGES[place] == damage else ("reduced",)
    options = [Options(seed=3, shapes=shapes, explain=False) for shapes in sizes]
    assert {check(reference(), plan, option).verdict for option in options} == {"mismatch"}


POOL = (
    None,
    *(
        hint
        for hint in [
            *right_hints().values(),
            *(h for hints in CHANGES.values() for h in hints.values()),
        ]
        if hint is not None
    ),
)


@given(
    st.dictionaries(st.sampled_from(sorted(right_hints())), st.sampled_from(POOL)),
    st.sampled_from(["", *DAMAGES]),
    st.integers(0, 2**32),
)
@settings(max_examples=20)
def test_hints_taken_at_random_change_no_verdict(hints: Hints, damage: str, seed: int) -> None:
    report = check(reference(), hinted(parallel(damage), hints), Options(seed=seed, explain=False))
    assert report.verdict == ("mismatch" if damage else "equivalent"), report.findings


# --- terms of sums that share a buffer


def _two_sums() -> Plan:
    b = Builder("two")
    x = b.input("x", (4, 8))
    for n in range(2):
        b.output(b.op("linear", x, b.parameter(f"w{n}", (6, 8)), out=f"y{n}"))
    return b.plan()


def _bucket(
    hints: Hints, *, group: str = "tp", order: tuple[int, int] = (0, 1), reduction: str = "sum"
) -> Plan:
    """Terms of both sums are joined, added up over ``group`` together, and taken apart in
    ``order``.
    """
    b = Builder("bucket", {"dp": 2, "tp": 2})
    x = b.input("x", (4, 4), {1: "tp"})
    for n in range(2):
        b.op("linear", x, b.parameter(f"w{n}", (6, 4), {1: "tp"}), out=f"t{n}")
    whole = b.op("all_reduce", b.op("cat", "t0", "t1", axis=1), group=group, reduction=reduction)
    for n, place in enumerate(order):
        b.output(b.op("slice", whole, axis=1, start=6 * place, stop=6 * place + 6, out=f"y{n}"))
    return hinted(b.plan(), hints)


TERMS = {f"t{n}": lineage(f"y{n}", partial=("tp",)) for n in range(2)}
WRONG_TERMS = {"t0": lineage("y1", partial=("tp",)), "t1": lineage("y0", partial=("tp",))}
OTHER_TERMS = {f"t{n}": lineage(f"y{n}", partial=("dp",)) for n in range(2)}


@pytest.mark.parametrize("hints", [{}, TERMS, WRONG_TERMS, OTHER_TERMS, {"t0": lineage("y0")}])
def test_hints_of_joined_terms(hints: Hints) -> None:
    reference = _two_sums()
    proven(reference, _bucket(hints))
    caught(reference, _bucket(hints, group="dp"))
    caught(reference, _bucket(hints, order=(1, 0)))
    caught(reference, _bucket(hints, reduction="avg"))


# --- what they save


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds of all runs of both plans as a whole."""
    original, seeds = checking.run_whole, []

    def counted(problem: Problem) -> WholeRun:
        seeds.append(problem.seed)
        return original(problem)

    monkeypatch.setattr(checking, "run_whole", counted)
    return seeds


@pytest.mark.parametrize("change", ["right", *CHANGES])
def test_plans_are_run_only_where_hints_do_not_carry(change: str, runs: list[int]) -> None:
    report = check(reference(), hinted(parallel(), CHANGES.get(change, {})), Options(seed=1))
    assert report.verdict == "equivalent"
    assert (change, len(runs)) == (change, 0 if change in STILL_CARRY else 1)
    assert report.error_bound_log2 <= -64
    # Half of what is accepted counts as spent where the attempt over the hints was given up.
    assert (report.error_bound_log2 >= -65) == (len(runs) == 1)


@pytest.mark.parametrize(
    "name", [row.name for row in rows() if row.right and row.folder == SHIPPED]
)
def test_a_real_planners_hints_carry(name: str, runs: list[int]) -> None:
    report = check(*plans(row_of(name)), Options(seed=1))
    assert (report.verdict, report.stages.widened, runs) == ("equivalent", 0, [])


def test_plans_are_run_where_stages_between_hints_are_larger_than_they_are(
    runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without hints every output is a stage that begins at the inputs."""
    layers = [f"h{n + 1}" for n in range(LAYERS)]
    first = replace(reference(), outputs=tuple(Output(name) for name in layers))
    second = replace(
        hinted(parallel(), CHANGES["none"]),
        outputs=tuple(Output(name, lineage=lineage(name, {0: "dp"})) for name in layers),
    )
    for least, expected in ((500, 0), (0, 1)):
        monkeypatch.setattr(obligations, "LEAST_STEPS", least)
        assert check(first, second, Options(seed=1)).verdict == "equivalent"
        assert len(runs) == expected


def test_wrong_plans_are_run(runs: list[int]) -> None:
    for damage in DAMAGES:
        assert check(reference(), parallel(damage), VERDICT).verdict == "mismatch"
    assert len(runs) >= len(DAMAGES)


def test_terms_of_one_sum_are_not_those_of_another() -> None:
    """Both pairs of ranks hold terms of the same sum, but not the same terms: joined across the
    pairs they add up to something else.
    """
    r = Builder("reference")
    x = r.input("x", (4, 3))
    r.op("sum", x, out="s", axes=(0,))
    r.output(r.op("cat", "s", "s", out="y", axis=0))

    def spread(crossed: bool) -> Plan:
        b = Builder("parallel", {"dp": 2, "tp": 2})
        x = b.input("x", (4, 3), {})
        b.op(
            "sum",
            b.op(
                "slice",
                x,
                axis=0,
                start=table(("dp", "tp"), 0, 2, 2, 0),
                stop=table(("dp", "tp"), 2, 4, 4, 2),
            ),
            out="s",
            axes=(0,),
        )
        b.tensors["s"] = replace(b.tensors["s"], lineage=Lineage("s", partial=("dp",)))
        own = b.op("cat", "s", "s", axis=0)
        group = ((0, 3), (1, 2)) if crossed else ((0, 2), (1, 3))
        b.output(b.op("all_reduce", own, out="y", group=group))
        return b.plan()

    assert check(r.plan(), spread(False), Options(seed=1)).verdict == "equivalent"
    assert check(r.plan(), spread(True), VERDICT).verdict == "mismatch"
