"""Python objects that pass between ranks.

A rank pickles what it gives, and the rank that gets it unpickles it: both are processes of the
user's own program. In the trace such a call is a barrier, or a send and a receive of numbers that
nobody reads, so that it waits as the original does.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import CellType
from typing import Any

import torch
from torch.distributed import distributed_c10d as c10d

from pitcheck.errors import PitcheckError, PlanError, UnsupportedError
from pitcheck.frontends.torch.communication.calls import Members, members_of
from pitcheck.frontends.torch.recording.recorder import PLAIN, Recorder
from pitcheck.frontends.torch.recording.tape import Kind
from pitcheck.frontends.torch.together.meaning import check_agreement, check_received
from pitcheck.frontends.torch.together.meetings import Gift, Meetings
from pitcheck.frontends.torch.together.messages import Meeting, Numbers, Post
from pitcheck.frontends.torch.together.tensor_bytes import numbers_of, tensor_of
from pitcheck.frontends.torch.trace import Item, Ref

ALL = -1
"""The key of objects that every member gets."""
Objects = list[Any]


@contextmanager
def objects_exchanged(recorder: Recorder, meetings: Meetings) -> Iterator[None]:
    """Pass objects between ranks through the recording process while a rank is recorded."""
    exchange = Exchange(recorder, meetings)
    with ExitStack() as stack:
        for name in (
            "all_gather_object",
            "broadcast_object_list",
            "gather_object",
            "scatter_object_list",
            "send_object_list",
            "recv_object_list",
            "split_group",
        ):
            stack.enter_context(_replaced(getattr(c10d, name), getattr(exchange, name)))
        yield


@contextmanager
def _replaced(function: Any, by: Callable[..., Any]) -> Iterator[None]:
    """Have a decorated function call another one, under whatever name it was imported."""
    cell = _cell_of(function)
    original = cell.cell_contents
    cell.cell_contents = by
    try:
        yield
    finally:
        cell.cell_contents = original


def _cell_of(function: Any) -> CellType:
    cells: tuple[CellType, ...] = function.__closure__ or ()
    return next(cell for cell in cells if cell.cell_contents is function.__wrapped__)


class Exchange:
    """The functions of torch.distributed that pass objects, by their names, for one rank."""

    def __init__(self, recorder: Recorder, meetings: Meetings) -> None:
        self._recorder = recorder
        self._tape = recorder.tape
        self._meetings = meetings

    def all_gather_object(self, object_list: Objects, obj: Any, group: Any = None) -> None:
        """Fill a list with the objects of all members."""
        if c10d._rank_not_in_group(group):
            return
        posts = self._meet("all_gather_object", group, (), 1, {ALL: [obj]})
        for place, post in enumerate(posts):
            (object_list[place],) = self._loaded(post, ALL)

    def gather_object(
        self,
        obj: Any,
        object_gather_list: Objects | None = None,
        dst: int | None = None,
        group: Any = None,
        group_dst: int | None = None,
    ) -> None:
        """Fill the list of one member with the objects of all."""
        group, root = _named(group, dst, group_dst)
        if c10d._rank_not_in_group(group):
            return
        c10d._validate_output_list_for_rank(group.rank(), root, object_gather_list)
        posts = self._meet("gather_object", group, (root,), 1, {root: [obj]})
        if object_gather_list is not None and group.rank() == root:
            for place, post in enumerate(posts):
                (object_gather_list[place],) = self._loaded(post, root)

    def broadcast_object_list(
        self,
        object_list: Objects,
        src: int | None = None,
        group: Any = None,
        device: Any = None,  # noqa: ARG002  part of the signature
        group_src: int | None = None,
    ) -> None:
        """Fill the lists of all members with the objects of one."""
        group, root = _named(group, src, group_src)
        if c10d._rank_not_in_group(group):
            return
        given = {ALL: object_list} if group.rank() == root else {}
        posts = self._meet("broadcast_object_list", group, (root,), len(object_list), given)
        if group.rank() != root:
            object_list[:] = self._loaded(posts[root], ALL)

    def scatter_object_list(
        self,
        scatter_object_output_list: Objects,
        scatter_object_input_list: Objects | None = None,
        src: int | None = None,
        group: Any = None,
        group_src: int | None = None,
    ) -> None:
        """Give every member one of the objects in the list of one member."""
        group, root = _named(group, src, group_src)
        if c10d._rank_not_in_group(group):
            return
        if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
            raise ValueError("scatter_object_output_list must be a list of size at least 1")
        given: dict[int, Objects] = {}
        if group.rank() == root:
            if scatter_object_input_list is None or len(scatter_object_input_list) != group.size():
                raise ValueError(
                    "scatter_object_input_list must have one object for each rank of the group"
                )
            given = {place: [obj] for place, obj in enumerate(scatter_object_input_list)}
        posts = self._meet("scatter_object_list", group, (root,), 1, given)
        (scatter_object_output_list[0],) = self._loaded(posts[root], group.rank())

    def send_object_list(
        self,
        object_list: Objects,
        dst: int | None = None,
        group: Any = None,
        device: Any = None,  # noqa: ARG002  part of the signature
        group_dst: int | None = None,
        use_batch: bool = False,  # noqa: ARG002  part of the signature
    ) -> None:
        """Send objects to one member."""
        group, place = _peer(group, dst, group_dst, "destination")
        if c10d._rank_not_in_group(group):
            return
        members = members_of(group)
        self._meetings.give(
            self._gift("send_object_list", (), len(object_list), {ALL: object_list}),
            lambda: self._send(len(object_list), members.ranks[place], members),
        )

    def recv_object_list(
        self,
        object_list: Objects,
        src: int | None = None,
        group: Any = None,
        device: Any = None,  # noqa: ARG002  part of the signature
        group_src: int | None = None,
        use_batch: bool = False,  # noqa: ARG002  part of the signature
    ) -> int:
        """Fill a list with the objects that one member sends; return the member's rank."""
        if src is None and group_src is None:
            raise self._tape.unsupported(
                "recv_object_list from any rank: what arrives depends on time; name the source"
            )
        group, place = _peer(group, src, group_src, "source")
        if c10d._rank_not_in_group(group):
            return -1
        members = members_of(group)
        source = members.ranks[place]
        gift = self._gift("recv_object_list", (), len(object_list), {})
        meeting = self._meetings.give(
            gift, lambda: self._receive(len(object_list), source, members)
        )
        sent, received = self._ask(meeting, meeting.channel.pair)
        self._checked(check_received, meeting, sent, received)
        object_list[:] = self._loaded(sent, ALL)
        return source

    def split_group(
        self,
        parent_pg: Any = None,
        split_ranks: Sequence[Sequence[int]] | None = None,
        *_: Any,
        **__: Any,
    ) -> Any:
        """Return this rank's part of a group that all members split; None if it is in no part.

        The original asks a device for its communicator.
        """
        if not split_ranks:
            raise ValueError("split_ranks must name the ranks of at least one group")
        parent = c10d._group_or_default_group(parent_pg)
        parts = tuple(tuple(part) for part in split_ranks)
        self._meet("split_group", parent, parts, 1, {})
        mine = next((part for part in parts if parent.rank() in part), None)
        if mine is None:
            return None
        ranks = [members_of(parent).ranks[place] for place in mine]
        return c10d.new_group(ranks, use_local_synchronization=True)

    def _meet(
        self,
        operator: str,
        group: Any,
        literals: tuple[Item | tuple[Item, ...], ...],
        count: int,
        given: dict[int, Objects],
    ) -> list[Post]:
        """Give objects to the members of a group; return what all of them have given."""
        members = members_of(c10d._group_or_default_group(group))
        meeting = self._meetings.give(
            self._gift(operator, literals, count, given),
            lambda: self._recorder.communication.barrier(members),
        )
        posts = self._ask(meeting, members.ranks)
        self._checked(check_agreement, meeting, posts)
        return posts

    def _ask(self, meeting: Meeting, ranks: Sequence[int]) -> list[Post]:
        return self._meetings.line.ask(meeting, ranks)

    def _checked(self, check: Callable[..., None], *given: Any) -> None:
        """Run a check, whose error ends the recording even if the program catches it."""
        try:
            check(*given)
        except PitcheckError as error:
            raise self._tape.refuse(error) from None

    def _send(self, count: int, peer: int, members: Members) -> None:
        shape = (count,)
        value = self._tape.one(
            "full.default", (shape, 0, "int64", None, None, None), shape, torch.int64
        )
        self._tape.emit("send", (Ref(value), peer, 0), [], members.ranks, None, members.name)

    def _receive(self, count: int, peer: int, members: Members) -> None:
        kind = Kind((count,), torch.int64)
        self._tape.emit("receive", (peer, 0), [kind], members.ranks, None, members.name)

    def _gift(
        self,
        operator: str,
        literals: tuple[Item | tuple[Item, ...], ...],
        count: int,
        given: dict[int, Objects],
    ) -> Gift:
        packed = {place: self._dumped(objects) for place, objects in given.items()}
        return Gift(operator, literals, count, packed)

    def _dumped(self, objects: Objects) -> bytes:
        into = io.BytesIO()
        try:
            _Pickler(self._recorder, into).dump(list(objects))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise self._tape.refuse(
                PlanError(f"{self._tape.where()}: an object cannot be sent to other ranks: {error}")
            ) from None
        return into.getvalue()

    def _loaded(self, post: Post, place: int) -> Objects:
        loaded: Objects = pickle.loads(post.objects[place])
        return loaded


class _Pickler(pickle.Pickler):
    """A pickler of objects in which tensors may have known numbers."""

    def __init__(self, recorder: Recorder, into: io.BytesIO) -> None:
        super().__init__(into)
        self._recorder = recorder

    def reducer_override(self, obj: Any) -> Any:
        """Return how a tensor is made anew from its numbers, which must be known."""
        if not isinstance(obj, torch.Tensor):
            return NotImplemented
        if type(obj) not in PLAIN:
            raise self._recorder.tape.unsupported(
                f"a {type(obj).__name__} in an object that is sent to other ranks; send a plain "
                f"tensor, by a collective"
            )
        try:
            known = self._recorder.known(obj)
        except UnsupportedError:
            raise self._recorder.tape.unsupported(
                f"an object that is sent to other ranks has a tensor of shape {tuple(obj.shape)} "
                f"whose numbers depend on data; send the tensor by a collective"
            ) from None
        except PitcheckError as error:
            raise self._recorder.tape.refuse(error) from None
        return _tensor, (numbers_of(known),)


def _tensor(numbers: Numbers) -> torch.Tensor:
    """Return a new tensor, whose numbers are constants of the rank that unpickles it."""
    return tensor_of(numbers).clone()


def _named(group: Any, rank: int | None, group_rank: int | None) -> tuple[Any, int]:
    """Return a group, and the place in it of the root; without one that is global rank 0."""
    found = c10d._group_or_default_group(group)
    root = 0 if rank is None and group_rank is None else rank
    return found, c10d._canonicalize_group_rank(found, root, group_rank, return_global=False)


def _peer(group: Any, rank: int | None, group_rank: int | None, what: str) -> tuple[Any, int]:
    """Return a group, and the place in it of another member."""
    found = c10d._group_or_default_group(group)
    place = c10d._canonicalize_group_rank(found, rank, group_rank)
    c10d._check_not_self_rank(found, place, what)
    return found, place
