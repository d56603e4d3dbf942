"""Claims that wait for those that they stand on, and processes that look at several of them.

>>> waiting = Waiting([frozenset(), frozenset({0}), frozenset({1})])
>>> waiting.take(), waiting.done(0), waiting.take()
(0, None, 1)
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Generic, TypeVar

from pitcheck.forks import Answering, can_fork, ready

Key = TypeVar("Key", bound=Hashable)
Question = TypeVar("Question")
Answer = TypeVar("Answer")

FEW = 16
"""The questions that the caller answers itself before it begins other processes."""


class Waiting:
    """Tasks of which each waits for some of those before it.

    ``before``: for each task, the tasks that it waits for.
    """

    def __init__(self, before: Sequence[Collection[int]]) -> None:
        self._left = [len(tasks) for tasks in before]
        self._behind: list[list[int]] = [[] for _ in before]
        for number, tasks in enumerate(before):
            for task in tasks:
                self._behind[task].append(number)
        self._ready = [number for number, left in enumerate(self._left) if not left]

    def take(self) -> int | None:
        """Take the first task that waits for nothing more; None if none is left."""
        return heapq.heappop(self._ready) if self._ready else None

    def done(self, task: int) -> None:
        """Let those go on that waited for a task."""
        for number in self._behind[task]:
            self._left[number] -= 1
            if not self._left[number]:
                heapq.heappush(self._ready, number)


class Answers(Generic[Key, Question, Answer]):
    """Answers to questions by their keys, from ``jobs`` processes if there are many questions.

    ``answer`` gives one; a process begins with a copy of all that it knows. The answers do not
    depend on who gives them.
    """

    def __init__(self, answer: Callable[[Question], Answer], jobs: int) -> None:
        self._answer = answer
        self._jobs = jobs if jobs > 1 and can_fork() else 1
        self._asked: list[tuple[Key, Question]] = []
        self._by_caller = 0
        self._processes: list[Answering] = []
        self._busy: dict[Answering, tuple[Key, Question]] = {}

    def ask(self, key: Key, question: Question) -> None:
        """Ask a question."""
        self._asked.append((key, question))

    def given(self) -> list[tuple[Key, Answer]]:
        """Return answers that were not returned before; none if all questions are answered."""
        if self._asked and (self._jobs < 2 or self._by_caller < FEW):
            self._by_caller += 1
            key, question = self._asked.pop(0)
            return [(key, self._answer(question))]
        self._ask_processes()
        if not self._busy:
            return []
        pipes = {process.pipe: process for process in self._busy}
        return [self._taken(pipes[pipe]) for pipe in ready(pipes)]

    def stop(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.stop()
        self._processes, self._busy = [], {}

    def _ask_processes(self) -> None:
        """Give questions to processes that have none, and begin processes while some are left."""
        while self._asked and len(self._busy) < self._jobs:
            idle = [each for each in self._processes if each not in self._busy]
            if not idle:
                idle = [Answering(lambda: self._answer)]
                self._processes += idle
            key, question = self._asked.pop(0)
            idle[0].ask(question)
            self._busy[idle[0]] = key, question

    def _taken(self, process: Answering) -> tuple[Key, Answer]:
        """Return the answer of a process; if it has ended without one, the caller gives it."""
        key, question = self._busy.pop(process)
        try:
            return key, process.answer()
        except EOFError:
            self._processes.remove(process)
            process.stop()
            return key, self._answer(question)
