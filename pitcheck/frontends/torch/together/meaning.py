"""The results of collectives on known numbers, as the library computes them.

Ranks that meet in different operators, or with shapes that do not fit, contradict each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product

import torch
from torch.utils._python_dispatch import _disable_current_modes

from pitcheck.errors import MeetingError
from pitcheck.frontends.torch.together.messages import Meeting, Post

Parts = Sequence[torch.Tensor]
"""The operands of the members, in the order of the group."""


def check_agreement(meeting: Meeting, posts: Sequence[Post]) -> None:
    """Raise MeetingError if the members of a group meet in calls that do not fit together."""
    first = posts[0]
    for place, post in enumerate(posts):
        if _said(post) != _said(first):
            one, other = meeting.channel.group[0], meeting.channel.group[place]
            raise MeetingError(
                f"call {meeting.number + 1} on the group {list(meeting.channel.group)} is "
                f"{called(first)} on rank {one}, and {called(post)} on rank {other}; all members "
                f"must come to the same calls in the same order"
            )
    if first.operator == "all_to_all":
        _check_sizes(meeting, posts)


def check_received(meeting: Meeting, sent: Post, received: Post) -> None:
    """Raise MeetingError if a receive does not fit what is sent to it."""
    if (sent.operator, received.operator) not in PAIRS or (sent.shape, sent.dtype) != (
        received.shape,
        received.dtype,
    ):
        source, target = meeting.channel.pair
        raise MeetingError(
            f"rank {target} comes to {called(received)} for what rank {source} gives to "
            f"{called(sent)}, message {meeting.number + 1} between them on this group; a message "
            f"is received as it was sent, and in that order"
        )


PAIRS = frozenset({("send", "receive"), ("send_object_list", "recv_object_list")})
"""The operators that send, each with the one that receives what it sends."""


LISTS = frozenset({"broadcast_object_list", "send_object_list", "recv_object_list"})
"""The functions that take a list of objects."""


def called(post: Post) -> str:
    """Return the call of a rank, for messages."""
    shape = f" of {post.dtype} {list(post.shape)}" if post.dtype else ""
    if post.operator in LISTS:
        shape = f" of {post.shape[0]} object{'s' * (post.shape[0] != 1)}"
    said = ", ".join(str(literal) for literal in post.literals if literal is not None)
    return f"{post.operator}{f' ({said})' if said else ''}{shape} at {post.source}"


def _said(post: Post) -> tuple[object, ...]:
    """Return in what the calls of all members must agree."""
    if post.operator == "all_to_all":
        return post.operator, post.dtype, post.shape[1:]
    return post.operator, post.literals, post.dtype, post.shape


def _check_sizes(meeting: Meeting, posts: Sequence[Post]) -> None:
    group = meeting.channel.group
    sent, received = ([_sizes(post, place, len(group)) for post in posts] for place in (0, 1))
    for post, sizes in zip(posts, sent, strict=True):
        if (len(sizes), sum(sizes)) != (len(group), (post.shape or (1,))[0]):
            raise MeetingError(
                f"the sizes sent in {called(post)} are {list(sizes)}; they must be one per rank, "
                f"and add up to the rows"
            )
    for giver, taker in product(range(len(group)), repeat=2):
        given, taken = sent[giver][taker], received[taker][giver]
        if given != taken:
            raise MeetingError(
                f"rank {group[giver]} sends {given} rows to rank {group[taker]} in "
                f"{called(posts[giver])}, and that one receives {taken} of it in "
                f"{called(posts[taker])}"
            )


def _sizes(post: Post, place: int, members: int) -> tuple[int, ...]:
    """Return the rows for, or from, each member; equal parts are not stated."""
    literal = post.literals[place]
    if isinstance(literal, tuple):
        return tuple(int(size) for size in literal if isinstance(size, int))
    return ((post.shape or (1,))[0] // members,) * members


def result(
    posts: Sequence[Post], parts: Parts, place: int, shape: Sequence[int]
) -> torch.Tensor | None:
    """Return what the member at ``place`` gets, of the given shape.

    Returns None if the library does not say what it is.
    """
    with _disable_current_modes():
        found = RESULTS[posts[place].operator](posts, parts, place)
        return None if found is None else found.reshape(tuple(shape)).clone()


def _all_reduce(posts: Sequence[Post], parts: Parts, _: int) -> torch.Tensor | None:
    return reduced(str(posts[0].literals[0]), parts)


def _reduce_scatter(posts: Sequence[Post], parts: Parts, place: int) -> torch.Tensor | None:
    whole = reduced(str(posts[0].literals[0]), parts)
    return None if whole is None else whole.chunk(len(parts))[place]


def _all_gather(_: Sequence[Post], parts: Parts, __: int) -> torch.Tensor:
    return torch.cat([part.reshape(part.shape or (1,)) for part in parts])


def _broadcast(_: Sequence[Post], parts: Parts, __: int) -> torch.Tensor:
    # Of a broadcast the root's operand is the only one.
    return parts[0]


def _all_to_all(posts: Sequence[Post], parts: Parts, place: int) -> torch.Tensor:
    return torch.cat(
        [
            part.split(list(_sizes(post, 0, len(parts))))[place]
            for post, part in zip(posts, parts, strict=True)
        ]
    )


RESULTS: Mapping[str, Callable[[Sequence[Post], Parts, int], torch.Tensor | None]] = {
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "broadcast": _broadcast,
    "all_to_all": _all_to_all,
}
"""The results of collectives with known operands."""


def givers(posts: Sequence[Post]) -> Sequence[Post]:
    """Return the posts whose operands decide the result: of a broadcast the root's alone."""
    return [posts[_root(posts[0])]] if posts[0].operator == "broadcast" else posts


def _root(post: Post) -> int:
    root = post.literals[0]
    return root if isinstance(root, int) else 0


def reduced(reduction: str, parts: Parts) -> torch.Tensor | None:
    """Return the reduction of the members' terms.

    Returns None where libraries differ: sums and products of booleans, means of integers, and
    rounded sums that depend on the order of the terms.
    """
    if reduction in ("min", "max"):
        return _folded(torch.minimum if reduction == "min" else torch.maximum, parts)
    kind = parts[0].dtype
    if kind == torch.bool or (reduction == "avg" and not kind.is_floating_point):
        return None
    combine = torch.mul if reduction == "product" else torch.add
    forward, backward = _folded(combine, parts), _folded(combine, parts[::-1])
    if not torch.equal(forward, backward):
        return None
    return forward / len(parts) if reduction == "avg" else forward


def _folded(
    combine: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], parts: Parts
) -> torch.Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = combine(total, part)
    return total
