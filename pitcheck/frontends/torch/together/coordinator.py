"""The matching of what ranks put into meetings with the ranks that wait for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

import msgspec

from pitcheck.base.runs import spell_numbers
from pitcheck.frontends.torch.together.messages import Meeting, Message, Need, StoreCall
from pitcheck.frontends.torch.together.shared_stores import READING, SharedStores

Key = tuple[Meeting, int]
"""A meeting, and the rank that puts something into it."""
MOST_WAITS = 8
"""The most different waits that a hang names."""


MOST_ROUNDS = 200
"""The most times that ranks may ask stores and change nothing, while no other rank goes on."""


class Coordinator:
    """All that ranks have put into meetings, and the ranks that wait for it.

    What ranks give each other is bytes, which nobody reads here.
    """

    def __init__(self) -> None:
        self._posts: dict[Key, bytes] = {}
        self._stores = SharedStores()
        self._idle = 0
        self._answers: dict[int, list[bytes]] = {}
        self._requests: dict[int, Need | StoreCall] = {}
        self._missing: dict[int, list[Key]] = {}
        self._awaited: defaultdict[Key, list[int]] = defaultdict(list)

    def receive(self, rank: int, data: bytes) -> None:
        """Take in a message of a rank."""
        message = msgspec.msgpack.decode(data, type=Message)
        for meeting, post in message.posts:
            self._posts[meeting, rank] = post
        request = message.request
        if request is not None:
            self._requests[rank] = request
            asked = request.posts if isinstance(request, Need) else request.after
            self._missing[rank] = list(reversed(asked))
            self._advance(rank)
        for meeting, _ in message.posts:
            self._idle = 0
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
        return sorted(
            rank
            for rank, missing in self._missing.items()
            if not missing and (rank in self._answers or isinstance(self._requests[rank], Need))
        )

    def answer(self, rank: int) -> bytes:
        """Return the answer to a rank that is ready, which no longer waits then."""
        del self._missing[rank]
        request = self._requests.pop(rank)
        posts = request.posts if isinstance(request, Need) else ()
        return msgspec.msgpack.encode(
            self._answers.pop(rank, None) or [self._posts[key] for key in posts]
        )

    def serve_stores(self) -> bool:
        """Serve one operation on a store for each rank that asks for one, in ascending order.

        It is called when no rank goes on. Returns True if one of them goes on now.
        """
        served, changed = False, False
        for rank, request in sorted(self._requests.items()):
            if isinstance(request, StoreCall) and not self._missing[rank]:
                answer = self._stores.served(request)
                if answer is not None:
                    self._answers[rank] = answer
                    served, changed = True, changed or request.operation not in READING
        self._idle = 0 if changed else self._idle + 1
        return served and self._idle < MOST_ROUNDS

    def forget(self, rank: int) -> None:
        """Take in that a rank has ended, for whatever reason."""
        self._idle = 0
        self._requests.pop(rank, None)
        self._missing.pop(rank, None)

    def hang(self, ended: Collection[int]) -> str:
        """Return for what ranks wait if all that have not ended wait for what never comes."""
        found: defaultdict[tuple[str, tuple[int, ...]], list[int]] = defaultdict(list)
        for rank, request in sorted(self._requests.items()):
            absent = self._absent(rank)
            found[request.what if absent else self._keys(request), absent].append(rank)
        said = [_waiting(ranks, *wait, ended) for wait, ranks in found.items()]
        more = [f"and {len(said) - MOST_WAITS} more"] * (len(said) > MOST_WAITS)
        return f"the ranks wait for ever: {'; '.join([*said[:MOST_WAITS], *more])}"

    def _absent(self, rank: int) -> tuple[int, ...]:
        missing = self._missing[rank]
        return tuple(sorted({of for meeting, of in missing if (meeting, of) not in self._posts}))

    def _keys(self, request: Need | StoreCall) -> str:
        """Return a wait for keys, or a question that is asked again and again."""
        absent = self._stores.absent(request) if isinstance(request, StoreCall) else []
        if not absent:
            return f"{request.what}, again and again, and nothing changes"
        return f"{request.what}, and nobody sets {', '.join(map(repr, absent))}"

    def _advance(self, rank: int) -> None:
        missing = self._missing.get(rank)
        while missing and missing[-1] in self._posts:
            missing.pop()
        if missing:
            self._awaited[missing[-1]].append(rank)


def _waiting(ranks: Sequence[int], what: str, absent: Sequence[int], ended: Collection[int]) -> str:
    over = [rank for rank in absent if rank in ended]
    if not absent:
        return f"{_named(ranks)} wait{'s' * (len(ranks) == 1)} in {what}"
    come = "come" if len(absent) > 1 else "comes"
    have = "have" if len(over) > 1 else "has"
    return (
        f"{_named(ranks)} wait{'s' * (len(ranks) == 1)} in {what} for {_named(absent)}, which "
        f"never {come} there" + (f" ({_named(over)} {have} ended)" if over else "")
    )


def _named(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {spell_numbers(ranks)}"
