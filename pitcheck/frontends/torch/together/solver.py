"""Values that are known once other ranks have told what they put into meetings.

An outcome of tests for infinity and NaN is computed with as a known number is, with the lines of
the tests on which it depends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import torch

from pitcheck.frontends.torch.recording.known_values import evaluate
from pitcheck.frontends.torch.together.meaning import (
    check_agreement,
    check_received,
    givers,
    result,
)
from pitcheck.frontends.torch.together.messages import Cone, Meeting, Numbers, Post, Step
from pitcheck.frontends.torch.together.tensor_bytes import tensor_of
from pitcheck.frontends.torch.trace import operands

DEEPEST = 64
"""The greatest number of meetings, one after the other, through which a value is followed."""


class Told(NamedTuple):
    """The numbers of a value, and the lines of the tests that are assumed to find nothing."""

    numbers: torch.Tensor
    tests: frozenset[str] = frozenset()


class Posts(Protocol):
    """The posts of all ranks."""

    def ask(self, meeting: Meeting, ranks: Sequence[int]) -> list[Post]:
        """Return what ranks put into a meeting, once they have."""
        ...


class Solver:
    """The computing of values from what all ranks put into meetings."""

    def __init__(self, posts: Posts) -> None:
        self._posts = posts
        self._met: dict[tuple[Meeting, int], Told | None] = {}

    def solve(self, cone: Cone, depth: int = 0) -> dict[int, Told] | None:
        """Return the numbers of the values of a cone; None if they depend on what is not known.

        Raises MeetingError if ranks meet in calls that do not fit together.
        """
        found = {number: _told(numbers) for number, numbers in cone.known.items()}
        for step in cone.steps:
            computed = self._computed(step, cone.rank, found, depth)
            if computed is None and step.assumed is not None:
                computed = _told(step.assumed)
            if computed is None or (step.firm and computed.tests):
                return None
            found[step.value] = computed
        return found

    def _computed(
        self, step: Step, rank: int, found: Mapping[int, Told], depth: int
    ) -> Told | None:
        if step.meeting is not None:
            key = step.meeting, rank
            if key not in self._met:
                self._met[key] = self._meet(step.meeting, rank, step.shape, depth)
            return self._met[key]
        if step.event is None:
            return None
        read = {number: found[number] for number in operands(step.event.arguments)}
        if step.event.operator == "wait":
            (waited,) = read.values()
            return waited
        results = evaluate(step.event, {number: told.numbers for number, told in read.items()})
        made = None if results is None else results[step.place]
        return None if made is None else Told(made, _tests(read.values()))

    def _meet(self, meeting: Meeting, rank: int, shape: Sequence[int], depth: int) -> Told | None:
        if depth >= DEEPEST:
            return None
        channel = meeting.channel
        if channel.pair:
            sent, received = self._posts.ask(meeting, channel.pair)
            check_received(meeting, sent, received)
            return self._operand(sent, depth)
        posts = self._posts.ask(meeting, channel.group)
        check_agreement(meeting, posts)
        parts = []
        for post in givers(posts):
            part = self._operand(post, depth)
            if part is None:
                return None
            parts.append(part)
        place = channel.group.index(rank)
        made = result(posts, [part.numbers for part in parts], place, shape)
        return None if made is None else Told(made, _tests(parts))

    def _operand(self, post: Post, depth: int) -> Told | None:
        if isinstance(post.operand, Numbers):
            return _told(post.operand)
        if post.operand is None:
            return None
        found = self.solve(post.operand, depth + 1)
        return None if found is None else found[post.operand.value]


def _told(numbers: Numbers) -> Told:
    return Told(tensor_of(numbers), frozenset(numbers.tests))


def _tests(parts: Iterable[Told]) -> frozenset[str]:
    """Return all tests on which some values depend."""
    return frozenset().union(*(part.tests for part in parts))
