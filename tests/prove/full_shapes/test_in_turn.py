"""A check at full shapes says beforehand what it takes, and then how far it is."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from zoo.pairs import pair

from pitcheck.base.options import Options
from pitcheck.commands.progress import watched
from pitcheck.commands.reading import read_pair
from pitcheck.engine.check import check
from pitcheck.prove import pool, stage_proof
from pitcheck.prove.full_shapes import in_turn
from pitcheck.prove.full_shapes.demand import Demand
from pitcheck.prove.full_shapes.forecast import CUPY, NUMPY, Forecast, rounded, said_of, seconds_of
from pitcheck.report.report import VOLATILE, Report

NAME = "megatron_mlp_silu"


def _told(**options: Any) -> tuple[Report, list[tuple[Any, ...]]]:
    """Return the report of a pair, and all that its progress was told."""
    told: list[tuple[Any, ...]] = []
    report = check(*pair(NAME), Options(seed=1, **options), lambda *each: told.append(each))
    return report, told


def _said(told: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return what was told with a sentence, before any stage was proven."""
    first = next(number for number, each in enumerate(told) if len(each) == 4)
    assert not any("left" in each[0] for each in told[:first])
    return told[first]


def _lasting(report: Report) -> dict[str, Any]:
    return {k: v for k, v in msgspec.to_builtins(report).items() if k not in VOLATILE}


def test_what_it_takes_is_said_first() -> None:
    report, told = _told(shapes="full")
    assert report.verdict == "equivalent"
    step, done, total, said = _said(told)
    assert (step, done) == ("stages", 0)
    assert re.fullmatch(
        rf"full shapes: {total} distinct stages, none taken apart; the largest, '\w+', takes about "
        r"\d+ MiB of 4096; about 1 s in all",
        said,
    )


@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_counts_stages_and_says_what_is_left(jobs: int) -> None:
    _, told = _told(shapes="full", jobs=jobs)
    steps = [each for each in told if each[0].startswith("stages (")]
    assert [done for _, done, *_ in steps] == list(range(1, len(steps) + 1))
    assert steps[-1][2] == len(steps)
    assert all(re.fullmatch(r"stages \(about \d+ \w+ left\)", each[0]) for each in steps)


def test_reduced_shapes_say_nothing_beforehand() -> None:
    assert all(len(each) == 3 for each in _told()[1])


def test_the_report_has_no_word_of_it() -> None:
    first, second = _told(shapes="full")[0], _told(shapes="full")[0]
    assert _lasting(first) == _lasting(second)
    assert b"distinct stages, none" not in msgspec.json.encode(_lasting(first))


def test_two_processes_say_the_same_at_full_shapes() -> None:
    first, second = (_told(shapes="full", jobs=jobs) for jobs in (1, 2))
    assert _lasting(first[0]) == _lasting(second[0])
    assert _said(first[1]) == _said(second[1])


@pytest.mark.parametrize("jobs", [2, 4])
def test_the_proofs_are_those_up_to_the_first_that_fails(
    jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stages are dealt in another order, and some of them are found false."""
    found: list[list[tuple[str, str]]] = []
    of_all = in_turn.InTurn.proofs

    def kept(waiting: in_turn.InTurn) -> Any:
        proofs = of_all(waiting)
        found.append([(key, proof.outcome) for key, proof in proofs.items()])
        return proofs

    def refusing(own: Any) -> Any:
        def proven(stage: Any, keys: Any, settings: Any, statement: str) -> Any:
            proof = own(stage, keys, settings, statement)
            return replace(proof, outcome="failed") if statement[0] in "0123456" else proof

        return proven

    for module in (in_turn, pool):
        monkeypatch.setattr(module, "prove_stage", refusing(stage_proof.prove_stage))
    monkeypatch.setattr(in_turn.InTurn, "proofs", kept)
    for each in (1, jobs):
        check(*pair(NAME), Options(seed=1, shapes="full", jobs=each, explain=False))
    assert found[0] and found[0] == found[len(found) // 2]
    assert "failed" in [outcome for _, outcome in found[0]]


def test_a_stage_that_fails_ends_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    own = in_turn.prove_stage

    def proven(*given: Any) -> Any:
        made.append(given[-1])
        return own(*given)

    monkeypatch.setattr(in_turn, "prove_stage", proven)
    reference, parallel = pair(NAME)
    wrong = [
        msgspec.structs.replace(each, kind="relu") if each.kind == "silu" else each
        for each in parallel.operators
    ]
    plan = msgspec.structs.replace(parallel, operators=tuple(wrong))
    report = check(reference, plan, Options(seed=1, shapes="full", explain=False))
    assert report.verdict == "mismatch"
    assert len(made) == len(set(made))


def test_a_sentence_names_what_does_not_fit() -> None:
    found = [
        Forecast(3 << 20, 60.0, 4, "y"),
        Forecast(1 << 20, 30.0, 1, "z"),
        Forecast(0, 0.0, 0, "w", "too large"),
    ]
    assert said_of(found, 4 << 20) == (
        "full shapes: 3 distinct stages, 1 taken apart, 'y' into most pieces (4); the largest, 'y',"
        " takes about 3 MiB of 4; about 90 s in all; 1 do not fit or cannot be told: too large"
    )


def test_the_sentence_is_printed_for_people_alone(capsys: pytest.CaptureFixture[str]) -> None:
    for shown in (True, False):
        with watched(shown=shown) as tell:
            tell("stages", 0, 3, "it takes an hour")
        printed = capsys.readouterr()
        assert (printed.out, "it takes an hour" in printed.err) == ("", shown)


def test_more_work_takes_longer_and_a_gpu_less() -> None:
    little, much = (Demand(0, n, 10 * n, 100 * n) for n in (10**6, 10**9))
    assert seconds_of(little, NUMPY) < seconds_of(much, NUMPY)
    assert seconds_of(much, CUPY) < seconds_of(much, NUMPY)


@pytest.mark.parametrize(("seconds", "said"), [(0.2, "1 s"), (99, "99 s"), (120, "2 min")])
def test_times_are_rounded(seconds: float, said: str) -> None:
    assert rounded(seconds) == said


@pytest.mark.nightly
def test_stages_are_the_same_with_a_little_memory() -> None:
    plans = read_pair("plans/llama3-tiny.toml", ())
    whole, apart = (
        check(*plans, Options(seed=2, shapes="full", max_memory=memory))
        for memory in (1 << 30, 1 << 20)
    )
    assert whole.verdict == apart.verdict == "equivalent"
    assert whole.stages == apart.stages
