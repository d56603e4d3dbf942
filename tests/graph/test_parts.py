"""Parts as columns: what they say, and which boxes are covered, against plain loops over single
parts and elements.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pitcheck.errors import PlanError
from pitcheck.graph.cuts import Cut, resolve, uncovered
from pitcheck.graph.graph import Graph, GraphValue
from pitcheck.graph.grids import Lattice
from pitcheck.graph.parts import Part, Parts, distinct_rows
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import Axis, Lineage, Shard, Table, Tensor

INTERVALS = st.sampled_from(
    (
        ((0, 2),),
        ((2, 4),),
        ((0, 4),),
        ((0, 1), (3, 4)),
        ((1, 3),),
        ((-1, 2),),
        ((2, 3), (-1, 1)),
        ((0, 2), (2, 4)),
    )
)
PART = st.builds(
    Part, st.tuples(INTERVALS, INTERVALS), st.integers(0, 2), st.just(3), st.integers(-1, 2)
)


@given(st.lists(PART, min_size=1, max_size=12))
def test_parts_are_what_they_were_made_of(given_parts: list[Part]) -> None:
    parts = Parts(given_parts)
    assert list(parts) == given_parts
    assert parts[-1] == given_parts[-1]
    assert parts[1:3] == tuple(given_parts[1:3])
    assert parts.intervals == tuple(
        tuple(dict.fromkeys(part.box[d] for part in given_parts)) for d in range(2)
    )
    again = Parts(given_parts)
    assert again == parts
    assert again.digest == parts.digest
    assert hash(again) == hash(parts)
    other = Parts([*given_parts[:-1], Part(given_parts[-1].box, given_parts[-1].term, 4)])
    assert other != parts
    assert other.digest != parts.digest
    for dim in range(2):
        held = [part.box[dim] for part in given_parts]
        begins = parts.begins(dim)
        if all(len(i) == 1 and i[0][0] >= 0 for i in held):
            assert begins is not None
            assert begins.tolist() == [i[0][0] for i in held]
        else:
            assert begins is None


@given(st.lists(PART, min_size=2, max_size=12), st.sampled_from(((), (0,), (1,), (0, 1))))
def test_words_are_equal_where_all_else_is(
    given_parts: list[Part], without: tuple[int, ...]
) -> None:
    words = Parts(given_parts).words(without, seed=1)
    said = [
        (tuple(i for d, i in enumerate(p.box) if d not in without), p.term, p.terms, p.owner)
        for p in given_parts
    ]
    for a, b in product(range(len(said)), repeat=2):
        assert (words[a] == words[b]) == (said[a] == said[b])


@given(st.lists(PART, min_size=1, max_size=12), st.data())
def test_some_of_the_parts_get_owners(given_parts: list[Part], data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.integers(0, len(given_parts) - 1), min_size=1, max_size=15))
    owners = data.draw(st.lists(st.integers(0, 5), min_size=len(numbers), max_size=len(numbers)))
    owned = Parts(given_parts).owned(np.array(numbers), np.array(owners))
    assert owned == Parts(
        [replace(given_parts[n], owner=o) for n, o in zip(numbers, owners, strict=True)]
    )


def test_sums_of_words_tell_which_intervals_belong_together() -> None:
    low, high = ((0, 2),), ((2, 4),)
    straight, crossed = (
        Parts([Part((low, low)), Part((high, high))]),
        Parts([Part((low, high)), Part((high, low))]),
    )
    assert straight.words((), seed=1).sum() != crossed.words((), seed=1).sum()


@given(st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 3)), max_size=20))
def test_distinct_rows_come_in_the_order_of_their_first(rows: list[tuple[int, int]]) -> None:
    first, which = distinct_rows([np.array([r[i] for r in rows], dtype=np.int64) for i in range(2)])
    different = list(dict.fromkeys(rows))
    assert [rows[f] for f in first] == different
    assert [different[w] for w in which] == rows


@settings(max_examples=200)
@given(st.lists(PART, min_size=1, max_size=10), st.data())
def test_what_is_uncovered_is_found_by_element(
    given_parts: list[Part], data: st.DataObject
) -> None:
    held = data.draw(st.lists(st.booleans(), min_size=len(given_parts), max_size=len(given_parts)))
    lattice = Lattice((len(given_parts), 1), False)
    cut = Cut(0, 0, Parts(given_parts), np.arange(len(given_parts))[:, None], lattice)
    terms: dict[object, set[int]] = {}
    for part, here in zip(given_parts, held, strict=True):
        if here:
            terms.setdefault(part.box, set()).add(part.term)
    covered = np.zeros((4, 4), dtype=bool)
    for box, found in terms.items():
        if found == {0, 1, 2}:
            rows, columns = ([e for a, b in own if a >= 0 for e in range(a, b)] for own in box)  # type: ignore[attr-defined]
            covered[np.ix_(rows, columns)] = True
    box = uncovered(cut, (4, 4), np.array(held)[:, None])
    assert (box is None) == bool(covered.all())
    if box is not None:
        (((a, b),), ((c, d),)) = box
        assert not covered[a:b, c:d].any()


def placed(lineage: Lineage, local: tuple[int, ...], whole: tuple[int, ...]) -> Cut:
    graph = Graph(Coordinates((Axis("a", 2), Axis("b", 3)), 2))
    lattice = Lattice((2, 3, 2), True)
    graph.values.append(
        GraphValue("x", local, "field", Tensor("x", local, microbatched=True), lattice)
    )
    return resolve(lineage, 0, graph, 0, whole, "here")


def test_every_coordinate_has_the_part_that_its_shards_say() -> None:
    cut = placed(
        Lineage(
            "x",
            (
                Shard(0, by=("a", "mb")),
                Shard(1, intervals=Table(("b",), (((0, 2),), ((2, 4),), ((0, 2),)))),
            ),
        ),
        (2, 2),
        (8, 4),
    )
    assert len(cut.parts) == 8
    for code, number in enumerate(cut.part_of):
        (a, b), mb = divmod(code // 2, 3), code % 2
        start = 2 * (2 * a + mb)
        assert cut.parts[int(number)] == Part(
            (((start, start + 2),), ((2, 4) if b == 1 else (0, 2),))
        )


def test_padding_belongs_to_its_coordinate_and_terms_to_theirs() -> None:
    cut = placed(
        Lineage(
            "x",
            (Shard(0, intervals=Table(("a",), (((0, 3),), ((3, 4), (-1, 2))))),),
            partial=("b",),
        ),
        (3,),
        (4,),
    )
    owners = [part.owner for part in (cut.parts[int(n)] for n in cut.part_of)]
    assert owners == [-1] * 6 + list(range(6, 12))
    assert [cut.parts[int(n)].term for n in cut.part_of] == [
        b for _ in range(2) for b in range(3) for _ in range(2)
    ]
    assert {part.terms for part in cut.parts} == {3}


def test_a_part_of_another_shape_is_refused() -> None:
    with pytest.raises(
        PlanError, match=r"describes a tensor of shape \(1, 4\), but 'x' has shape \(3, 4\)"
    ):
        placed(
            Lineage("x", (Shard(0, intervals=Table(("a",), (((0, 3),), ((3, 4),)))),)),
            (3, 4),
            (4, 4),
        )
    with pytest.raises(
        PlanError, match=r"describes a tensor of shape \(4, 4\), but 'x' has shape \(4,\)"
    ):
        placed(Lineage("x"), (4,), (4, 4))
