"""Tests whose numbers come from a rank that makes them infinite or NaN on purpose.

A rank assumes that what it tests is finite, and does not see what others gave. Once all ranks are
recorded, this is looked up: infinity passes from operand to operand, from meeting to meeting.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.together.messages import Meeting, Passage


class Reliance(msgspec.Struct, frozen=True):
    """The operands of a rank in all of its meetings, and the tests on whose outcomes it relies.

    ``relied`` has the meetings through which an outcome came by the line of its test, as bits.
    """

    passages: tuple[Passage, ...] = ()
    relied: Mapping[str, bytes] = {}


def reliance_of(passages: Sequence[Passage], relied: Mapping[str, int]) -> Reliance:
    """Return the reliance of a rank that has the meetings of each line as a number."""
    return Reliance(tuple(passages), {line: bits_of(found) for line, found in relied.items()})


def bits_of(number: int) -> bytes:
    """Return the bits of a number, the lowest byte first."""
    return number.to_bytes((number.bit_length() + 7) // 8, "little")


def check_reliance(ranks: Mapping[int, Reliance]) -> None:
    """Raise UnsupportedError for a test of numbers that another rank may make infinite or NaN."""
    if not any(bits for reliance in ranks.values() for bits in reliance.relied.values()):
        return
    infinite = _infinite(ranks)
    for rank, reliance in sorted(ranks.items()):
        for line, bits in reliance.relied.items():
            if not infinite.isdisjoint(_meetings(bits, reliance.passages)):
                raise UnsupportedError(
                    f"rank {rank} of the parallel program relies on the outcome of a test for "
                    f"infinity or NaN at {line}; it is not assumed to find neither, because a rank "
                    f"that communicates with it makes such numbers itself; test before they are "
                    f"made, or give finite numbers to others"
                )


def _infinite(ranks: Mapping[int, Reliance]) -> set[Meeting]:
    """Return the meetings through which infinity may pass, directly or from earlier ones."""
    later: defaultdict[Meeting, list[Meeting]] = defaultdict(list)
    waiting = []
    for reliance in ranks.values():
        for passage in reliance.passages:
            if passage.infinite:
                waiting.append(passage.meeting)
            for earlier in _meetings(passage.through, reliance.passages):
                later[earlier].append(passage.meeting)
    found: set[Meeting] = set()
    while waiting:
        meeting = waiting.pop()
        if meeting not in found:
            found.add(meeting)
            waiting.extend(later[meeting])
    return found


def _meetings(bits: bytes, passages: Sequence[Passage]) -> list[Meeting]:
    number = int.from_bytes(bits, "little")
    return [passages[place].meeting for place in range(number.bit_length()) if number >> place & 1]
