"""The messages between a rank that is recorded and the process that records all of them.

The recording process matches meetings by group and order. What a rank has put into a meeting it
passes on as bytes, and never reads.
"""

from __future__ import annotations

from typing import Literal as OneOf

import msgspec

from pitcheck.frontends.torch.trace import Argument, Event


class Channel(msgspec.Struct, frozen=True, array_like=True):
    """A sequence of meetings of the same ranks.

    ``group`` and ``name`` are those of a communicator. ``pair`` is empty for its collectives. For
    sends and receives it has the sender and the receiver, and ``tag`` is that of the message.
    """

    group: tuple[int, ...]
    name: str
    pair: tuple[int, ...] = ()
    tag: int | str = 0


class Meeting(msgspec.Struct, frozen=True, array_like=True):
    """A meeting of ranks: the ``number``-th of a channel, counted from 0."""

    channel: Channel
    number: int


class Numbers(msgspec.Struct, frozen=True, array_like=True, tag="numbers"):
    """A tensor whose numbers are known.

    ``data`` has the bytes of all elements, or those of one element if all are equal. ``tests`` are
    the lines of tests for infinity and NaN that are assumed to find neither: the numbers are an
    outcome of these. Without any, nothing is assumed.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes
    tests: tuple[str, ...] = ()


class Step(msgspec.Struct, frozen=True, array_like=True):
    """A value that a cone computes, of a shape: output ``place`` of an event, or of a meeting.

    ``assumed`` are its numbers if nothing else tells them. ``firm``: nothing may be assumed of it,
    because an earlier call of the step has left it.
    """

    value: int
    shape: tuple[int, ...]
    event: Event | None = None
    place: int = 0
    meeting: Meeting | None = None
    assumed: Numbers | None = None
    firm: bool = False


class Cone(msgspec.Struct, frozen=True, array_like=True, tag="cone"):
    """A value of a rank that is known once other ranks have told what they put into meetings.

    The steps are in the order in which they are computed, from ``known`` values. Some of these may
    be outcomes of tests.
    """

    rank: int
    value: int
    steps: tuple[Step, ...]
    known: dict[int, Numbers]


class Post(msgspec.Struct, frozen=True):
    """A rank's part in a meeting.

    - ``operator`` and ``literals``: the operator of the trace, with its arguments other than
      values; or a function on objects, with the ranks that it names.
    - ``shape`` and ``dtype``: those of the operand, or of the result of a receive.
    - ``operand``: the numbers of the operand; None if they depend on data.
    - ``objects``: the pickled objects that the rank gives, by receiving rank; -1 stands for all.
    - ``source``: the line of the program.
    """

    operator: str
    literals: tuple[Argument, ...]
    shape: tuple[int, ...]
    dtype: str
    operand: Numbers | Cone | None
    source: str
    objects: dict[int, bytes] = {}


class Need(msgspec.Struct, frozen=True, tag="need"):
    """The question for what other ranks put into meetings.

    ``posts`` are meetings, each with the rank whose post is asked for. ``what`` says in which
    operator the asking rank waits, and at which line.
    """

    posts: tuple[tuple[Meeting, int], ...]
    what: str


Operation = OneOf["set", "get", "wait", "add", "append", "compare_set", "check", "delete", "count"]
"""An operation on a store."""


class StoreCall(msgspec.Struct, frozen=True, tag="store"):
    """An operation on a store.

    It happens once all of ``after`` are posted. ``store`` is the name of the store, which ranks
    share if theirs has the same one.
    """

    store: str
    operation: Operation
    keys: tuple[str, ...]
    values: tuple[bytes, ...]
    after: tuple[tuple[Meeting, int], ...]
    what: str


class Passage(msgspec.Struct, frozen=True, array_like=True):
    """A rank's operand in a meeting, as far as infinity may come with it.

    ``infinite``: the program may have made it infinite or NaN. ``through``: the earlier meetings
    that it comes from. Bit n of these bytes, the lowest first, stands for passage n of the rank.
    """

    meeting: Meeting
    infinite: bool
    through: bytes


class Message(msgspec.Struct, frozen=True, array_like=True):
    """All that a rank has put into meetings since its last message, and what it waits for."""

    posts: tuple[tuple[Meeting, bytes], ...]
    request: Need | StoreCall | None = None
