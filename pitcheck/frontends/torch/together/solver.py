"""Values that are known once other ranks have told what they put into meetings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

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


class Posts(Protocol):
    """The posts of all ranks."""

    def ask(self, meeting: Meeting, ranks: Sequence[int]) -> list[Post]:
        """Return what ranks put into a meeting, once they have."""
        ...


class Solver:
    """The computing of values from what all ranks put into meetings."""

    def __init__(self, posts: Posts) -> None:
        self._posts = posts
        self._met: dict[tuple[Meeting, int], torch.Tensor | None] = {}

    def solve(self, cone: Cone, depth: int = 0) -> dict[int, torch.Tensor] | None:
        """Return the numbers of the values of a cone; None if they depend on what is not known.

        Raises MeetingError if ranks meet in calls that do not fit together.
        """
        found = {number: tensor_of(numbers) for number, numbers in cone.known.items()}
        for step in cone.steps:
            computed = self._computed(step, cone.rank, found, depth)
            if computed is None:
                return None
            found[step.value] = computed
        return found

    def _computed(
        self, step: Step, rank: int, found: dict[int, torch.Tensor], depth: int
    ) -> torch.Tensor | None:
        if step.meeting is not None:
            key = step.meeting, rank
            if key not in self._met:
                self._met[key] = self._meet(step.meeting, rank, step.shape, depth)
            return self._met[key]
        if step.event is None:
            return None
        if step.event.operator == "wait":
            return found[operands(step.event.arguments)[0]]
        results = evaluate(step.event, found)
        return None if results is None else results[step.place]

    def _meet(
        self, meeting: Meeting, rank: int, shape: Sequence[int], depth: int
    ) -> torch.Tensor | None:
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
        return result(posts, parts, channel.group.index(rank), shape)

    def _operand(self, post: Post, depth: int) -> torch.Tensor | None:
        if isinstance(post.operand, Numbers):
            return tensor_of(post.operand)
        if post.operand is None:
            return None
        found = self.solve(post.operand, depth + 1)
        return None if found is None else found[post.operand.value]
