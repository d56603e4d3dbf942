"""A rank's line to the process that records all ranks."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from threading import get_ident

import msgspec

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.together.messages import (
    Meeting,
    Message,
    Need,
    Post,
    StoreCall,
)


class Line:
    """The line of one rank. Posts are sent when the rank waits for others, and when it ends.

    ``where`` returns the present line of the program.
    """

    def __init__(self, connection: Connection, where: Callable[[], str]) -> None:
        self._connection = connection
        self._caller = os.getpid(), get_ident()
        self._where = where
        self._unsent: list[tuple[Meeting, Post]] = []
        self._called: dict[Meeting, str] = {}

    def post(self, meeting: Meeting, post: Post) -> None:
        """Put something into a meeting."""
        self._unsent.append((meeting, post))
        self._called[meeting] = f"{post.operator} at {post.source}"

    def ask(self, meeting: Meeting, ranks: Sequence[int]) -> list[Post]:
        """Return what ranks put into a meeting, once they have."""
        posts = tuple((meeting, rank) for rank in ranks)
        answer = self._asked(Need(posts, self._waits_in(meeting)))
        return [msgspec.msgpack.decode(post, type=Post) for post in answer]

    def store(self, call: StoreCall) -> list[bytes]:
        """Return the answer to an operation on a store."""
        return self._asked(call)

    def flush(self) -> None:
        """Send the posts that were not sent yet."""
        if self._unsent:
            self._send(None)

    def _waits_in(self, meeting: Meeting) -> str:
        called = self._called.get(meeting)
        if called is None:
            return f"a call of other ranks, {list(meeting.channel.group)}, on which a value depends"
        where = self._where()
        return (
            called if called.endswith(where) else f"{called}, at whose result it looks at {where}"
        )

    def _asked(self, request: Need | StoreCall) -> list[bytes]:
        self._send(request)
        try:
            return msgspec.msgpack.decode(self._connection.recv_bytes(), type=list[bytes])
        except EOFError:
            # The process that records has ended, so nobody waits for this rank.
            raise SystemExit(1) from None

    def _send(self, request: Need | StoreCall | None) -> None:
        if self._caller != (os.getpid(), get_ident()):
            raise UnsupportedError(
                f"{self._where()}: another thread, or a process that the program has forked, "
                f"exchanges something with other ranks, in no order with what the rank itself "
                f"does; let the rank's main thread do that"
            )
        encode = msgspec.msgpack.encode
        message = Message(tuple((meeting, encode(post)) for meeting, post in self._unsent), request)
        self._unsent.clear()
        self._connection.send_bytes(encode(message))
