"""Routes of tokens.

Every pair of ranks and every expert of every rank is tried, or the stage is not called proven.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pytest
from prove.mixtures import Change, Mixture, first_two
from support.verdicts import caught, said
from zoo.builder import Builder, lineage

from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.base.options import Options
from pitcheck.claims.specification import specify
from pitcheck.engine.check import check
from pitcheck.graph.lowering import lower
from pitcheck.plan.model import Number
from pitcheck.plan.schedule.matching import match
from pitcheck.prove import coverage as outcomes
from pitcheck.prove.proof import Proof, Settings
from pitcheck.prove.reals.trial_inputs import FIRST_ALIKE
from pitcheck.prove.routing import LEAST_CARRIED, LEAST_TOKENS, Routing, routing_of
from pitcheck.prove.routing_counts import Coverage
from pitcheck.prove.stage_proof import prove_stage
from pitcheck.report.report import VOLATILE, Report
from pitcheck.report.text import render
from pitcheck.stage.building import build_stage
from pitcheck.stage.canonical import canonical_form
from pitcheck.stage.evaluate import Evaluated
from pitcheck.stage.stage import Target

RIGHT = Mixture()


@dataclass
class Drawn:
    """The draws for one stage at one set of sizes.

    ``choices`` has the experts that tokens chose, by draw, row, token and choice.
    """

    choices: list[Any] = field(default_factory=list)
    sorts: list[str] = field(default_factory=list)
    """The kind of numbers of each draw."""

    def take(self, evaluated: Evaluated, good: Any, value: int) -> None:
        found = evaluated.parallel[value].data[0]
        for trial, chosen, kept in zip(evaluated.algebra.trials, found, good, strict=True):
            if kept:
                self.choices.append(chosen.reshape(len(chosen), -1, chosen.shape[-1]))
                self.sorts.append(
                    "residues"
                    if isinstance(evaluated.algebra, ResidueAlgebra)
                    else "alike"
                    if trial >= FIRST_ALIKE
                    else "real"
                )


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Drawn]:
    """All that is drawn, by stage and sizes."""
    everything: list[Drawn] = []

    def recorded(shaped: Any) -> Routing | None:
        found = routing_of(shaped)
        graph = shaped.stage.parallel.graph
        own = [step.outputs[1] for step in shaped.stage.parallel.steps if step.kind == "topk"]
        if found is None:
            return None
        assert [graph.values[value].name for value in own] == ["choice"]
        everything.append(Drawn())

        class Recorded:
            def __getattr__(self, name: str) -> Any:
                return getattr(found, name)

            def take(self, evaluated: Evaluated, good: Any, to: Drawn = everything[-1]) -> None:
                to.take(evaluated, good, own[0])
                found.take(evaluated, good)

        return Recorded()  # type: ignore[return-value]

    monkeypatch.setattr(outcomes, "routing_of", recorded)
    return everything


def _counted(mixture: Mixture, found: Drawn) -> Coverage:
    """The coverage by plain loops over the tokens of every draw: a token goes once to every rank
    that has an expert it chose.
    """
    own = mixture.experts // mixture.ranks
    tokens, pairs, chosen = Counter[int](), Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    best = (0, 0.0)
    for draw in found.choices:
        loads = Counter[int]()
        for row, sent in enumerate(draw):
            for places in sent.tolist():
                tokens[row] += 1
                pairs.update((row, receiver) for receiver in {place // own for place in places})
                chosen.update((row, place) for place in places)
                loads.update(places)
        empty = mixture.experts - len(loads)
        share = max(loads.values()) * mixture.experts / sum(loads.values())
        if empty and share > best[1]:
            best = empty, share
    rows = len(found.choices[0])
    assert len(pairs) == rows * mixture.ranks
    assert len(chosen) == rows * mixture.experts
    return Coverage(
        len(found.choices),
        min(tokens.values()),
        len(pairs),
        min(pairs.values()),
        len(chosen),
        min(chosen.values()),
        *best,
    )


@pytest.mark.parametrize("coordinates", ["reduced", "full"])
def test_what_is_reported_is_what_plain_loops_count(drawn: list[Drawn], coordinates: str) -> None:
    report = check(RIGHT.reference(), RIGHT.parallel(), Options(seed=3, coordinates=coordinates))
    assert report.verdict == "equivalent", said(report)
    (routed,) = report.routing
    small, large = (_counted(RIGHT, found) for found in drawn)
    both = small.joined(large)
    assert (
        (routed.draws, routed.tokens)
        == (small.draws + large.draws, min(small.tokens, large.tokens))
        == (both.draws, both.tokens)
    )
    assert (routed.sender_receiver_pairs, routed.tokens_per_pair) == (
        large.pairs,
        min(small.carried, large.carried),
    )
    assert (routed.source_expert_pairs, routed.tokens_per_expert) == (
        large.choices,
        min(small.chosen, large.chosen),
    )
    assert (routed.empty_experts, routed.largest_share) == (
        min(small.empty, large.empty),
        round(min(small.share, large.share), 3),
    )
    assert routed.tokens >= LEAST_TOKENS
    assert routed.tokens_per_pair >= LEAST_CARRIED
    assert routed.tokens_per_expert >= 1
    shown = " ".join(" ".join(line.text.split()) for line in render(report, verbose=True))
    assert (
        f"{routed.sender_receiver_pairs} sender-receiver pairs, at least {routed.tokens_per_pair} "
        f"tokens each" in shown
    )
    empty = "1 expert" if routed.empty_experts == 1 else f"{routed.empty_experts} experts"
    assert (
        f"one draw with {empty} empty and one with {routed.largest_share:.1f} times its share"
        in shown
    )


def test_hardly_a_draw_that_is_not_made_for_it_leaves_experts_empty(drawn: list[Drawn]) -> None:
    mixture = Mixture(experts=4, each=1)
    report = check(mixture.reference(), mixture.parallel(), Options(seed=3, coordinates="full"))
    assert report.routing[0].empty_experts >= 1, said(report)
    for found in drawn:
        used = [
            (len(np.unique(draw)), sort)
            for draw, sort in zip(found.choices, found.sorts, strict=True)
        ]
        plain = [n == 4 for n, sort in used if sort == "residues"]
        assert sum(plain) > 0.9 * len(plain)
        assert min(n for n, sort in used if sort == "alike") < 4


# --- what is wrong on one way alone


def _on_one_way(sender: int, receiver: int) -> Change:
    """A rank multiplies by 2 what it gets from one other."""

    def change(b: Builder, got: str) -> str:
        size = b.tensors[got].shape[0]
        sizes = tuple(n for n in (sender, 1, size - sender - 1) if n)
        parts = b.op("split", got, sizes=sizes, axis=0, out=[f"part{n}" for n in range(len(sizes))])
        part = parts[1 if sender else 0]
        b.op(
            "identity",
            part,
            where=({"ep": tuple(r for r in range(4) if r != receiver)},),
            out="used",
        )
        b.op("mul", part, Number(2), where=({"ep": (receiver,)},), out="used")
        return str(b.op("cat", *("used" if p == part else p for p in parts), axis=0))

    return change


@pytest.mark.parametrize(("sender", "receiver"), [(0, 3), (2, 1), (3, 3)])
def test_one_sender_to_one_receiver_is_caught(sender: int, receiver: int) -> None:
    caught(RIGHT.reference(), RIGHT.parallel(got=_on_one_way(sender, receiver)))


def _seldom_chosen(expert: int, rank: int) -> Change:
    """A rank does not send the tokens that chose one expert to it, if its rank has another one that
    they chose.
    """

    def change(b: Builder, scores: str) -> str:
        if b.name == "reference":
            return scores
        before, one, behind = b.op(
            "split", scores, sizes=(expert, 1, 7 - expert), axis=2, out=["before", "one", "behind"]
        )
        b.op("identity", one, where=({"ep": tuple(r for r in range(4) if r != rank)},), out="score")
        b.op(
            "masked_fill",
            one,
            b.op("eq", one, one),
            Number("-inf"),
            where=({"ep": (rank,)},),
            out="score",
        )
        return str(b.op("cat", before, "score", behind, axis=2))

    return change


@pytest.mark.parametrize(("expert", "rank"), [(5, 2), (3, 0)])
def test_one_expert_that_one_rank_never_chooses_is_caught(expert: int, rank: int) -> None:
    wrong = Mixture(scored=_seldom_chosen(expert, rank))
    caught(wrong.reference(), wrong.parallel())


def _full_but_for_the_last(b: Builder, goes: str) -> str:
    """Leave the last token behind of those that all go to one receiver.

    A buffer with a place too few does that.
    """
    return str(
        b.op(
            "logical_and",
            goes,
            b.op("lt", b.op("cumsum", goes, axis=2), Number(b.tensors[goes].shape[2])),
        )
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_token_that_is_lost_only_where_a_receiver_overflows_is_caught(seed: int) -> None:
    """Eight tokens of one rank that all choose one of four experts: once in 16,384 draws
    by chance.
    """
    mixture = Mixture(experts=4, each=1)
    report = check(
        mixture.reference(),
        mixture.parallel(goes=_full_but_for_the_last),
        Options(seed=seed, shapes="full"),
    )
    assert report.verdict == "mismatch", said(report)


# --- what cannot be tried


@pytest.mark.parametrize("shapes", ["reduced", "full"])
def test_a_way_that_no_token_can_take_is_named(shapes: str) -> None:
    mixture = Mixture(ranks=2, experts=4, each=1, taken=first_two)
    report = check(mixture.reference(), mixture.parallel(), Options(seed=3, shapes=shapes))
    assert report.verdict == "inconclusive", said(report)
    (finding,) = report.findings
    assert finding.code == "PIT204"
    assert finding.output == "y"
    assert (
        "the routing of the stage of 'y' was not tried: from rank 0 to rank 1 went 0 tokens in"
        in finding.title
    )
    assert f"and {LEAST_CARRIED} are needed" in finding.title
    assert report.routing == ()


def _masked(b: Builder, scores: str) -> str:
    """The last expert is there to fill up."""
    first = b.op("slice", scores, axis=2, start=0, stop=7)
    filled = b.op("full_like", b.op("slice", scores, axis=2, start=7, stop=8), value="-inf")
    return str(b.op("cat", first, filled, axis=2))


def test_an_expert_that_fills_up_is_none_that_tokens_must_choose() -> None:
    mixture = Mixture(scored=_masked)
    report = check(mixture.reference(), mixture.parallel(), Options(seed=3, coordinates="full"))
    assert report.verdict == "equivalent", said(report)
    assert report.routing[0].source_expert_pairs == 4 * 7


def test_where_all_tokens_choose_all_experts_none_is_empty() -> None:
    """Every rank has all experts, so that nothing is sent either."""
    mixture = Mixture(experts=4, each=4)
    b = Builder("parallel", {"dp": 2})
    mixture.computed(b, b.input("x", (2, mixture.length, mixture.hidden), {0: "dp"}), {})
    b.output("y", spec=lineage("y", {0: "dp"}))
    report = check(mixture.reference(), b.plan(), Options(seed=3))
    assert report.verdict == "equivalent", said(report)
    (routed,) = report.routing
    assert (routed.sender_receiver_pairs, routed.empty_experts, routed.largest_share) == (0, 0, 0.0)


def _proof(mixture: Mixture, **more: Any) -> Proof:
    """The whole plan as one stage."""
    reference, parallel = mixture.reference(), mixture.parallel()
    first, second = (lower(plan, match(plan)[0]) for plan in (reference, parallel))
    specification = specify(reference, parallel, first, second)
    (expected,) = specification.expected
    stage = build_stage(
        first,
        second,
        specification.initial.get,
        [Target.at(expected.cut, expected.where, second, expected.name)],
    )
    return prove_stage(
        stage,
        canonical_form(stage)[1],
        Settings(np, 3, -64.0, 1, True, 1 << 30, full_coordinates=True, **more),
    )


def test_draws_are_added_until_every_way_was_taken() -> None:
    """Two tokens on each of 20 ranks, 80 experts: few draws do not meet all 1600 pairs."""
    mixture = Mixture(ranks=20, experts=80, each=1, sequences=20, length=2)
    few = _proof(mixture, most_trials=90)
    assert few.outcome == "inconclusive"
    assert few.code == "PIT204"
    assert "after 90 draws the routing of the stage of 'y' was not tried: " in few.reason
    enough = _proof(mixture)
    assert enough.outcome == "proven", enough.reason
    assert enough.routing is not None
    assert enough.trials > 90
    assert (enough.routing.pairs, enough.routing.choices) == (400, 1600)
    assert enough.routing.carried >= LEAST_CARRIED
    assert enough.routing.chosen >= 1


# --- the same whoever counts


def _lasting(report: Report) -> dict[str, object]:
    return {
        name: value for name, value in msgspec.to_builtins(report).items() if name not in VOLATILE
    }


def test_two_processes_count_what_one_counts() -> None:
    first, second = (
        check(RIGHT.reference(), RIGHT.parallel(), Options(seed=4, jobs=jobs)) for jobs in (1, 2)
    )
    assert first.routing
    assert _lasting(first) == _lasting(second)


def test_a_plan_without_routing_says_nothing_of_it() -> None:
    b = Builder("reference")
    b.output(b.op("relu", b.input("x", (4, 6)), out="y"))
    p = Builder("parallel", {"dp": 2})
    p.op("relu", p.input("x", (2, 6), {0: "dp"}), out="y")
    p.output("y", spec=lineage("y", {0: "dp"}))
    report = check(b.plan(), p.plan(), Options(seed=1))
    assert report.verdict == "equivalent", said(report)
    assert report.routing == ()
