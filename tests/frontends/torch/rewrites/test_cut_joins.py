"""Parts of joins are cut out of what was joined."""

from __future__ import annotations

import torch

from pitcheck.frontends.torch.recording.tape import Kind
from pitcheck.frontends.torch.rewrites.cut_joins import through_joins
from pitcheck.frontends.torch.trace import Event, Ref

KINDS = [Kind((n,), torch.float32) for n in (3, 4, 7, 2, 9)]
FIRST = Event("cat.default", ((Ref(0), Ref(1)), 0), (2,))
SECOND = Event("cat.default", ((Ref(2), Ref(3)), 0), (4,))


def cut(start: int, stop: int, kinds: list[Kind] = KINDS) -> tuple[object, ...]:
    part = Event("slice.Tensor", (Ref(4), 0, start, stop, 1), (5,))
    kinds = [*kinds, Kind((stop - start,), torch.float32)]
    *_, found = through_joins([FIRST, SECOND, part], kinds)
    return found.arguments


def test_a_part_is_that_of_the_row_in_which_it_lies() -> None:
    assert cut(7, 9) == (Ref(3), 0, 0, 2, 1)
    assert cut(4, 6) == (Ref(1), 0, 1, 3, 1)
    assert cut(0, 3) == (Ref(0), 0, 0, 3, 1)


def test_a_part_of_several_rows_is_cut_out_of_their_join() -> None:
    assert cut(2, 5) == (Ref(2), 0, 2, 5, 1)
    assert cut(6, 8) == (Ref(4), 0, 6, 8, 1)


def test_a_join_that_casts_is_left() -> None:
    kinds = [Kind((3,), torch.bfloat16), *KINDS[1:]]
    assert cut(0, 2, kinds) == (Ref(2), 0, 0, 2, 1)


def test_a_part_is_followed_through_the_split_of_a_join() -> None:
    kinds = [*KINDS, *(Kind((n,), torch.float32) for n in (5, 4, 4, 1))]
    split = Event("split.Tensor", (Ref(4), 5, 0), (5, 6))
    copy = Event("clone.default", (Ref(6), None), (7,))
    part = Event("slice.Tensor", (Ref(7), 0, 3, 4, 1), (8,))
    *_, found = through_joins([FIRST, SECOND, split, copy, part], kinds)
    # The last element of the second part of 5 is the last of all 9, which is the last of 2.
    assert found.arguments == (Ref(3), 0, 1, 2, 1)
