"""The matching of what ranks put into meetings with the ranks that wait for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import msgspec

from pitcheck.base.runs import spell_numbers
from pitcheck.frontends.torch.together.messages import Meeting, Message, Need

Key = tuple[Meeting, int]
"""A meeting, and the rank that puts something into it."""


class Coordinator:
    """All that ranks have put into meetings, and the ranks that wait for it.

    What ranks give each other is bytes, which nobody reads here.
    """

    def __init__(self) -> None:
        self._posts: dict[Key, bytes] = {}
        self._requests: dict[int, Need] = {}
        self._missing: dict[int, list[Key]] = {}
        self._awaited: defaultdict[Key, list[int]] = defaultdict(list)

    def receive(self, rank: int, data: bytes) -> None:
        """Take in a message of a rank."""
        message = msgspec.msgpack.decode(data, type=Message)
        for meeting, post in message.posts:
            self._posts[meeting, rank] = post
        if isinstance(message.request, Need):
            self._requests[rank] = message.request
            self._missing[rank] = list(reversed(message.request.posts))
            self._advance(rank)
        for meeting, _ in message.posts:
            for waiting in self._awaited.pop((meeting, rank), ()):
                self._advance(waiting)

    def waits(self, rank: int) -> bool:
        """Return True if a rank has asked for something, and has no answer yet."""
        return rank in self._requests

    def wants(self, ranks: Collection[int]) -> bool:
        """Return True if someone waits for one of some ranks."""
        return any(of in ranks for missing in self._missing.values() for _, of in missing)

    def ready(self) -> list[int]:
        """Return the waiting ranks that can be answered, in ascending order."""
        return sorted(rank for rank, missing in self._missing.items() if not missing)

    def answer(self, rank: int) -> bytes:
        """Return the answer to a rank that is ready, which no longer waits then."""
        del self._missing[rank]
        request = self._requests.pop(rank)
        return msgspec.msgpack.encode([self._posts[key] for key in request.posts])

    def forget(self, rank: int) -> None:
        """Take in that a rank has ended, for whatever reason."""
        self._requests.pop(rank, None)
        self._missing.pop(rank, None)

    def hang(self, ended: set[int]) -> str:
        """Return for what each rank waits, if all that have not ended wait for what never comes."""
        lines = [self._waiting(rank, ended) for rank in sorted(self._requests)]
        return "\n".join(["the ranks wait for each other for ever:", *lines])

    def _waiting(self, rank: int, ended: set[int]) -> str:
        missing = sorted(
            {of for meeting, of in self._missing[rank] if (meeting, of) not in self._posts}
        )
        several = "s" * (len(missing) > 1)
        over = " (its step is over)" if ended.issuperset(missing) and not several else ""
        return (
            f"  rank {rank} waits in {self._requests[rank].what} for rank{several} "
            f"{spell_numbers(missing)}, which never come{'s' * (not several)} there{over}"
        )

    def _advance(self, rank: int) -> None:
        missing = self._missing.get(rank)
        while missing and missing[-1] in self._posts:
            missing.pop()
        if missing:
            self._awaited[missing[-1]].append(rank)
