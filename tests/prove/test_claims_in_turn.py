"""Claims wait for those that they stand on, and answers do not depend on who gives them."""

from __future__ import annotations

import os
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitcheck.forks import Answering
from pitcheck.prove.domains import claims_in_turn
from pitcheck.prove.domains.claims_in_turn import Answers, Waiting


@st.composite
def graphs(draw: st.DrawFn) -> list[set[int]]:
    """Draw for each of some tasks those before it that it waits for."""
    count = draw(st.integers(0, 12))
    return [draw(st.sets(st.integers(0, n - 1))) if n else set() for n in range(count)]


@given(graphs(), st.randoms(use_true_random=False))
def test_a_task_is_taken_once_all_that_it_waits_for_is_done(before: list[set[int]], random) -> None:  # type: ignore[no-untyped-def]
    waiting, taken, done = Waiting(before), [], set[int]()
    running: list[int] = []
    while True:
        while (task := waiting.take()) is not None:
            assert before[task] <= done
            running.append(task)
            taken.append(task)
        if not running:
            break
        ended = running.pop(random.randrange(len(running)))
        done.add(ended)
        waiting.done(ended)
    assert sorted(taken) == list(range(len(before)))


def test_the_first_task_that_is_ready_is_taken_first() -> None:
    waiting = Waiting([set(), set(), {1}, {0}])
    assert [waiting.take() for _ in range(3)] == [0, 1, None]
    waiting.done(0)
    waiting.done(1)
    assert [waiting.take() for _ in range(3)] == [2, 3, None]


def _all(answers: Answers[int, int, int | None]) -> dict[int, int | None]:
    found: dict[int, int | None] = {}
    while given := answers.given():
        found.update(given)
    return found


@pytest.mark.parametrize("jobs", [1, 2, 3])
@pytest.mark.parametrize("few", [0, 2, 99])
def test_every_question_is_answered(jobs: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims_in_turn, "FEW", few)
    answers: Answers[int, int, int | None] = Answers(lambda n: n * n if n % 3 else None, jobs)
    try:
        for number in range(10):
            answers.ask(number, number)
        assert _all(answers) == {n: n * n if n % 3 else None for n in range(10)}
        answers.ask(11, 4)
        assert _all(answers) == {11: 16}
    finally:
        answers.stop()


def test_other_processes_answer_where_there_are_many_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claims_in_turn, "FEW", 2)
    answers: Answers[int, int, int | None] = Answers(lambda _: os.getpid(), 2)
    try:
        for number in range(8):
            answers.ask(number, number)
        found = _all(answers)
    finally:
        answers.stop()
    assert found[0] == found[1] == os.getpid()
    assert os.getpid() not in {found[number] for number in range(2, 8)}
    assert len({*found.values()}) == 3


def _dying(caller: int, number: int) -> int:
    if os.getpid() != caller:
        os._exit(9)
    return number


def test_what_a_process_leaves_undone_is_answered_by_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claims_in_turn, "FEW", 0)
    answers: Answers[int, int, int | None] = Answers(partial(_dying, os.getpid()), 2)
    try:
        for number in range(5):
            answers.ask(number, number)
        assert _all(answers) == {n: n for n in range(5)}
    finally:
        answers.stop()


def test_processes_end_with_their_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims_in_turn, "FEW", 0)
    stopped = []
    stop = Answering.stop
    monkeypatch.setattr(Answering, "stop", lambda each: (stopped.append(each), stop(each))[1])
    answers: Answers[int, int, int | None] = Answers(lambda n: n, 2)
    for number in range(4):
        answers.ask(number, number)
    assert answers.given()
    answers.stop()
    assert len(stopped) == 2
