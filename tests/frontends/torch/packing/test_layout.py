"""What follows from a packing, and the packings that pitcheck tries by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pitcheck.errors import UsageError
from pitcheck.frontends.torch.packing.derived import call_before
from pitcheck.torch import Input, Packing, Program, Spec, variants

X = Input((1, 8), "int64", bounds=(0, 9), split={1: "cp"}, tokens=1)
TWO = Input((2, 8), tokens=1)


def nothing(*_: object) -> Program:
    raise NotImplementedError


def spec(packings: Sequence[Packing], mesh: Any = None, **batch: Input) -> Spec:
    return Spec(nothing, nothing, mesh or {"cp": 2}, batch or {"x": X}, packings=packings)


def known(packing: Packing, what: str, x: Input = X) -> tuple[tuple[int, ...], list[int]]:
    """The shape and the values of what follows from a packing."""
    (one,) = variants(spec([packing], x=x, known=Input(packed=what))).values()
    return one.batch["known"].shape, list(one.batch["known"].values or ())


@pytest.mark.parametrize(
    ("what", "shape", "values"),
    [
        ("position_ids", (1, 8), [0, 1, 2, 0, 1, 0, 0, 0]),
        ("document_ids", (1, 8), [0, 0, 0, 1, 1, 2, -1, -1]),
        ("token_mask", (1, 8), [1, 1, 1, 1, 1, 1, 0, 0]),
        ("next_token_mask", (1, 8), [1, 1, 0, 1, 0, 0, 0, 0]),
        ("cu_seqlens", (4,), [0, 3, 5, 6]),
        ("cu_seqlens_padded", (4,), [0, 3, 5, 6]),
        ("lengths", (3,), [3, 2, 1]),
        ("max_seqlen", (), [3]),
    ],
)
def test_what_follows(what: str, shape: tuple[int, ...], values: list[int]) -> None:
    assert known(Packing([3, 2, 1]), what) == (shape, values)


def test_masks() -> None:
    """Padding sees itself alone."""
    x = Input((4,), tokens=0)
    assert known(Packing([1, 2]), "same_document_mask", x) == (
        (4, 4),
        [1, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 1],
    )
    assert known(Packing([1, 2]), "causal_mask", x) == (
        (4, 4),
        [1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1],
    )


def test_documents_in_multiples() -> None:
    """Padding lies behind each document; both running sums are those of frameworks."""
    packing = Packing([3, 2], multiple=4)
    assert known(packing, "document_ids")[1] == [0, 0, 0, -1, 1, 1, -1, -1]
    assert known(packing, "position_ids")[1] == [0, 1, 2, 0, 0, 1, 0, 0]
    assert known(packing, "cu_seqlens")[1] == [0, 3, 5]
    assert known(packing, "cu_seqlens_padded")[1] == [0, 4, 8]


def test_sequences_of_a_batch() -> None:
    """A sequence of fewer documents repeats its last sum."""
    packing = Packing([[3, 5], [8]])
    assert known(packing, "cu_seqlens", TWO) == ((2, 3), [0, 3, 8, 0, 8, 8])
    assert known(packing, "lengths", TWO) == ((2, 2), [3, 5, 8, 0])
    assert known(packing, "document_ids", TWO)[1] == [0, 0, 0, *[1] * 5, *[0] * 8]


def test_stated_shape_and_dtype() -> None:
    given = Input((1, 1, 8, 8), packed="causal_mask")
    ends = Input(dtype="int32", packed="cu_seqlens")
    (one,) = variants(spec([Packing([8])], x=X, mask=given, ends=ends)).values()
    assert one.batch["mask"].shape == (1, 1, 8, 8)
    assert one.batch["mask"].dtype == "bool"
    assert one.batch["ends"].dtype == "int32"


def test_boundaries_at_and_beside_edges() -> None:
    """Parts are those in which ranks have the tokens."""
    names = list(variants(spec([Packing()])))
    for lengths in ("8", "4, 4", "3, 5", "5, 3", "1, 6, 1"):
        assert f"documents of {lengths} tokens" in names
    assert len(names) == len(set(names)) == 6


def test_more_parts_than_ranks() -> None:
    """In zigzag order a rank has two parts."""
    assert "documents of 2, 2, 2, 2 tokens" in variants(spec([Packing(parts=4)]))


def test_other_mesh_other_boundaries() -> None:
    assert "documents of 2, 2, 2, 2 tokens" in variants(spec([Packing()], {"cp": 4}))


def test_a_seed_stands_for_its_lengths() -> None:
    one, again, other = (list(variants(spec([Packing(seed=n)]))) for n in (1, 1, 2))
    assert one == again != other


def test_default_in_multiples() -> None:
    """Every document but the first of a sequence is shorter than its room."""
    found = variants(spec([Packing(multiple=2)]))
    assert list(found)[1] == "documents of 4, 3 tokens and 1 of padding, in multiples of 2"


def test_equal_packings_are_one_variant() -> None:
    found = variants(spec([Packing([4, 4]), Packing((4, 4)), Packing([4, 4], multiple=4)]))
    assert list(found) == [
        "documents of 4, 4 tokens",
        "documents of 4, 4 tokens, in multiples of 4",
    ]


def test_lists_of_one_sequence_are_another_variant() -> None:
    """What follows from it has another shape."""
    assert len(variants(spec([Packing([4, 4]), Packing([[4, 4]])]))) == 2


def test_a_variant_is_its_only_variant() -> None:
    for name, one in variants(spec([Packing()], x=X, ids=Input(packed="lengths"))).items():
        assert variants(one) == {name: one}


@pytest.mark.parametrize(
    ("packing", "before"),
    [
        (Packing([3, 5]), [5, 3]),
        (Packing([1, 6, 1]), [6, 1, 1]),
        (Packing([4, 4]), [3, 5]),
        (Packing([3, 1], multiple=4), [1, 3]),
        (Packing([4, 4], multiple=4), [4, 4]),
        (Packing([8]), [8]),
    ],
)
def test_the_call_before_has_another_packing(packing: Packing, before: list[int]) -> None:
    """Of as many documents, so that shapes are the same."""
    (one,) = variants(spec([packing], x=X, known=Input(packed="lengths"))).values()
    assert list(call_before(one).batch["known"].values or ()) == before


def test_packings_need_a_mesh() -> None:
    with pytest.raises(UsageError, match="packings need a mesh"):
        variants(Spec(nothing, nothing, {}, {"x": X}, packings=[Packing([8])]))


@pytest.mark.parametrize(
    ("packing", "batch", "said"),
    [
        (Packing([5, 4]), {"x": X}, "documents of 5, 4 tokens take 9, but a sequence has 8"),
        (Packing([5, 2], multiple=4), {"x": X}, "take 12, but a sequence has 8"),
        (Packing([3, 0]), {"x": X}, "each must be an integer above 0"),
        (Packing([]), {"x": X}, "a sequence without documents"),
        (Packing([True, 7]), {"x": X}, "each must be an integer above 0"),
        (Packing([[8], [8]]), {"x": X}, "is of 2 sequences, but the batch has 1"),
        (Packing([3, 5]), {"x": TWO}, "is of 1 sequences, but the batch has 2"),
        (Packing([8], multiple=0), {"x": X}, "multiple=0; it must be at least 1"),
        (Packing(parts=0), {"x": X}, "parts=0; it must be at least 1"),
        (Packing([8]), {"x": Input((1, 8))}, "write Input(..., tokens=1)"),
        (Packing([8]), {"x": Input((1, 8), tokens=2)}, "has tokens=2"),
        (Packing([8]), {"x": X, "y": Input((1, 9), tokens=1)}, "1 sequences of 9 tokens"),
        (
            Packing([8]),
            {"x": X, "p": Input(packed="positions_ids")},
            "the nearest is 'position_ids'",
        ),
        (Packing([8]), {"x": X, "p": Input((2, 8), packed="position_ids")}, "has 8 elements"),
        (Packing([8]), {"x": X, "p": Input((8,), packed="lengths", tokens=0)}, "leave tokens=0"),
    ],
)
def test_refused(packing: Packing, batch: dict[str, Input], said: str) -> None:
    with pytest.raises(UsageError) as raised:
        variants(spec([packing], **batch))
    assert said in str(raised.value)


@pytest.mark.parametrize("given", [Input(packed="lengths"), Input((1, 8), tokens=1)])
def test_no_packing(given: Input) -> None:
    with pytest.raises(UsageError, match="but the specification has none"):
        variants(spec([], x=given))
