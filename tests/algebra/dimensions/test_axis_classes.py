"""Ties, factors and sizes, against cases computed by hand."""

from fractions import Fraction
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitcheck.algebra.dimensions.axes import AxisSystem, Dimension
from pitcheck.errors import UnsupportedError


def shards(system: AxisSystem, size: int, count: int) -> tuple[Dimension, list[Dimension]]:
    whole = system.dimension(size)
    parts = [system.dimension(size // count) for _ in range(count)]
    for i, part in enumerate(parts):
        system.tie(part, whole, i * (size // count))
    return whole, parts


def test_a_free_dimension_gets_three_then_four() -> None:
    system = AxisSystem()
    node = system.dimension(4096)
    assert [system.solve(v).size(node) for v in range(3)] == [3, 4, 5]


@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_small_dimensions_stay(size: int) -> None:
    system = AxisSystem()
    node = system.dimension(size)
    assert system.solve(0).size(node) == size
    assert system.solve(1).size(node) == size


def test_shards_keep_their_number_and_stay_equal() -> None:
    system = AxisSystem()
    whole, parts = shards(system, 128, 8)
    sizes = system.solve(0)
    assert sizes.size(whole) == 24
    assert {sizes.size(p) for p in parts} == {3}
    assert [sizes.position(whole, 16 * i) for i in range(9)] == [3 * i for i in range(9)]
    assert [sizes.full_position(whole, n) for n in (0, 3, 21, 24)] == [0, 16, 112, 128]
    assert sizes.full_position(whole, 4) is None


def test_uneven_segments_keep_their_ratio() -> None:
    system = AxisSystem()
    whole = system.dimension(60)
    for size, offset in ((10, 0), (20, 10), (30, 30)):
        system.tie(system.dimension(size), whole, offset)
    sizes = system.solve(0)
    assert [sizes.position(whole, n) for n in (0, 10, 30, 60)] == [0, 3, 9, 18]


def test_an_offset_off_by_one_keeps_the_class_whole() -> None:
    system = AxisSystem()
    whole = system.dimension(128)
    system.tie(system.dimension(64), whole, 0)
    system.tie(system.dimension(64), whole, 63)
    for variant in (0, 1):
        sizes = system.solve(variant)
        assert sizes.size(whole) == 128
        assert sizes.position(whole, 63) == 63


def test_a_size_off_by_one_keeps_the_class_whole() -> None:
    system = AxisSystem()
    whole = system.dimension(128)
    system.tie(system.dimension(65), whole, 0)
    assert system.solve(0).size(whole) == 128


def test_permuted_dimensions_have_at_least_five() -> None:
    system = AxisSystem()
    node, other = system.dimension(64), system.dimension(64)
    system.mark_permuted(node)
    assert system.solve(0).size(node) == 5
    assert system.solve(0, roomy=[other]).size(other) == 6


def test_independent_dimensions_differ_and_differ_again() -> None:
    system = AxisSystem()
    nodes = [system.dimension(64) for _ in range(6)]
    first, second = system.solve(0), system.solve(1)
    assert len({first.size(n) for n in nodes}) == len({second.size(n) for n in nodes}) == 6
    assert all(first.size(n) != second.size(n) for n in nodes)


def test_a_shard_is_not_as_long_as_another_dimension() -> None:
    """A number that is the size of the one would be the size of the other."""
    system = AxisSystem()
    _, parts = shards(system, 16, 2)
    other = system.dimension(12)
    for variant in (0, 1):
        sizes = system.solve(variant)
        assert sizes.size(parts[0]) != sizes.size(other)


@given(
    st.lists(st.tuples(st.integers(2, 40), st.integers(1, 4)), min_size=1, max_size=5), st.data()
)
def test_counts_of_elements_that_differ_stay_different(
    cut: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Compare counts of wholes, of shards and of factors, along one dimension and along several."""
    system = AxisSystem()
    nodes: list[Dimension] = []
    for size, count in cut:
        whole, parts = shards(system, size * count, count)
        nodes += [whole, parts[0]]
    if data.draw(st.booleans()):
        nodes += system.factor(
            nodes[0],
            data.draw(
                st.sampled_from([n for n in range(1, nodes[0].size + 1) if nodes[0].size % n == 0])
            ),
        )
    counted = data.draw(
        st.lists(st.lists(st.sampled_from(nodes), min_size=1, max_size=2), min_size=2, max_size=6)
    )
    for along in counted:
        system.add_extent(along)
    for variant in (0, 1):
        sizes = system.solve(variant)
        small: dict[int, int] = {}
        for along in counted:
            full = prod(node.size for node in along)
            assert small.setdefault(prod(sizes.size(node) for node in along), full) == full


def test_no_reduced_size_is_a_literal() -> None:
    system = AxisSystem()
    node = system.dimension(60)
    system.add_literal(Fraction(3))
    system.add_literal(Fraction(1, 4))
    # 3 and 4 are literals, 4 and 5 may be dimensions less one.
    assert system.solve(0).size(node) == 6


def test_a_count_less_one_may_be_a_dimension() -> None:
    system = AxisSystem()
    node = system.dimension(24)
    system.mix(node)
    system.add_literal(Fraction(1, 23))
    assert system.solve(0).size(node) == 24


@pytest.mark.parametrize(
    "number", [Fraction(64), Fraction(-64), Fraction(1, 64), Fraction(1, 8), Fraction(8)]
)
def test_a_literal_that_may_be_a_dimension_or_its_root(number: Fraction) -> None:
    system = AxisSystem()
    node, other, batch = system.dimension(64), system.dimension(63), system.dimension(64)
    system.add_literal(number)
    for counted in (node, other):
        system.mix(counted)
    assert system.solve(0).size(node) == 64
    assert system.solve(0).size(other) == 3
    assert system.solve(0).size(batch) < 64, "nothing is done along it that a number could enter"


def test_a_literal_equal_to_a_shard_fixes_the_class() -> None:
    system = AxisSystem()
    whole, parts = shards(system, 128, 4)
    system.mix(whole)
    system.add_literal(Fraction(32))
    assert system.solve(0).size(whole) == 128
    assert system.solve(0).size(parts[0]) == 32


def test_a_literal_equal_to_a_count_over_two_dimensions() -> None:
    system = AxisSystem()
    batch, tokens = system.dimension(6), system.dimension(50)
    system.add_extent([batch, tokens])
    system.add_literal(Fraction(1, 300))
    assert [system.solve(0).size(n) for n in (batch, tokens)] == [6, 50]


@pytest.mark.parametrize(
    "number", [Fraction(0), Fraction(1), Fraction(-1), Fraction(2), Fraction(1, 2), float("inf")]
)
def test_small_literals_are_no_dimensions(number: Fraction | float) -> None:
    system = AxisSystem()
    node = system.dimension(4)
    system.add_literal(number)
    assert system.solve(0).size(node) == 3


def test_factors_multiply() -> None:
    system = AxisSystem()
    node = system.dimension(512)
    heads, depth = system.factor(node, 64)
    assert (heads.size, depth.size) == (8, 64)
    sizes = system.solve(0)
    assert sizes.size(node) == sizes.size(heads) * sizes.size(depth) == 12


def test_positions_of_a_factored_dimension_are_positions_of_its_outer_factor() -> None:
    system = AxisSystem()
    node = system.dimension(512)
    heads, depth = system.factor(node, 64)
    system.position(node, 128)
    sizes = system.solve(0)
    assert sizes.size(heads) == 8
    assert sizes.size(depth) == 3
    assert sizes.position(node, 128) == 6
    assert sizes.full_position(node, 6) == 128
    assert sizes.full_position(node, 7) is None


def test_a_position_inside_a_factor_makes_the_class_and_its_factors_rigid() -> None:
    system = AxisSystem()
    node = system.dimension(512)
    heads, depth = system.factor(node, 64)
    system.position(node, 100)
    sizes = system.solve(0)
    assert [sizes.size(n) for n in (node, heads, depth)] == [512, 8, 64]


def test_the_same_before_the_split() -> None:
    system = AxisSystem()
    node = system.dimension(512)
    system.position(node, 100)
    heads, depth = system.factor(node, 64)
    sizes = system.solve(0)
    assert [sizes.size(n) for n in (node, heads, depth)] == [512, 8, 64]


def test_two_factorisations_are_refined_in_common() -> None:
    system = AxisSystem()
    one, other = system.dimension(128), system.dimension(128)
    four, thirty_two = system.factor(one, 32)
    big, small = system.factor(other, 4)
    system.tie(one, other)
    sizes = system.solve(0)
    middle = sizes.size(thirty_two) // sizes.size(small)
    assert middle * sizes.size(small) == sizes.size(thirty_two)
    assert sizes.size(four) * middle == sizes.size(big)
    assert (
        sizes.size(one) == sizes.size(other) == sizes.size(four) * middle * sizes.size(small) < 128
    )


def test_incompatible_factorisations_are_rigid() -> None:
    for tie_first in (True, False):
        system = AxisSystem()
        one, other = system.dimension(12 * 50), system.dimension(12 * 50)
        if tie_first:
            system.tie(one, other)
        factors = [*system.factor(one, 3 * 50), *system.factor(other, 4 * 50)]
        if not tie_first:
            system.tie(one, other)
        sizes = system.solve(0)
        assert [sizes.size(n) for n in (one, other, *factors)] == [600, 600, 4, 150, 3, 200]


def test_shards_of_a_factored_dimension_share_the_inner_factor() -> None:
    system = AxisSystem()
    whole, parts = shards(system, 4096, 8)
    heads, depth = system.factor(whole, 128)
    local_heads, local_depth = system.factor(parts[3], 128)
    sizes = system.solve(0)
    assert (sizes.size(heads), sizes.size(local_heads)) == (24, 3)
    assert sizes.size(depth) == sizes.size(local_depth)
    assert sizes.size(whole) == 8 * sizes.size(parts[0]) == 24 * sizes.size(depth)


def test_different_inner_factors_in_one_class_are_refined_or_rigid() -> None:
    system = AxisSystem()
    whole, (part, _) = shards(system, 96, 2)
    factors = [*system.factor(whole, 32), *system.factor(part, 12)]
    sizes = system.solve(0)
    assert [sizes.size(n) for n in (whole, part, *factors)] == [96, 48, 3, 32, 4, 12]


def test_one_inner_factor_is_a_segment() -> None:
    """A rank with one head of four: what it holds is the head's dimension itself."""
    system = AxisSystem()
    outer, inner = system.dimension(4), system.dimension(64)
    whole = system.product(outer, inner)
    system.tie(inner, whole, 64)
    sizes = system.solve(0)
    assert [sizes.size(n) for n in (whole, inner, outer)] == [12, 3, 4]
    assert [sizes.position(whole, n) for n in (64, 128)] == [3, 6]


def test_one_inner_factor_that_has_halves_is_a_segment() -> None:
    """Cut the head's dimension in halves on the rank before it is known to be one of several."""
    system = AxisSystem()
    whole, local, half = system.dimension(256), system.dimension(64), system.dimension(32)
    _, depth = system.factor(whole, 64)
    system.tie(half, local, 32)
    system.tie(local, whole, 128)
    sizes = system.solve(0)
    assert [sizes.size(n) for n in (whole, local, depth, half)] == [24, 6, 6, 3]


def test_a_dimension_that_would_be_its_own_factor_is_rigid() -> None:
    system = AxisSystem()
    outer, inner = system.dimension(4), system.dimension(64)
    whole = system.product(outer, inner)
    system.tie(outer, whole, 64)
    sizes = system.solve(0)
    assert [sizes.size(n) for n in (whole, inner, outer)] == [256, 64, 4]


def test_joined_members_of_a_stack_are_segments() -> None:
    system = AxisSystem()
    members, local, whole = (
        system.dimension(4, fixed="a group", copies=True),
        system.dimension(64),
        system.dimension(256),
    )
    system.tie(local, whole, 64)
    system.tie(system.product(members, local), whole)
    sizes = system.solve(0)
    assert [sizes.size(n) for n in (whole, local, members)] == [12, 3, 4]


def test_what_is_no_boundary_has_no_place() -> None:
    system = AxisSystem()
    whole, _ = shards(system, 128, 2)
    with pytest.raises(UnsupportedError, match="100 is not a boundary"):
        system.solve(0).position(whole, 100)


def test_full_sizes_are_the_identity() -> None:
    system = AxisSystem()
    whole, parts = shards(system, 128, 2)
    full = system.full()
    assert full.identity
    assert not system.solve(0).identity
    assert [full.size(n) for n in (whole, *parts)] == [128, 64, 64]
    assert full.position(whole, 17) == full.full_position(whole, 17) == 17


def test_description_says_what_was_reduced_and_why_not() -> None:
    system = AxisSystem()
    shards(system, 128, 2)
    system.dimension(50257, fixed="it is indexed by values")
    system.dimension(2)
    assert system.solve(0).describe() == [
        "128 -> 6 (segments of 64 -> 3)",
        "50257 whole: it is indexed by values",
        "2 whole: its segments of 2 are small",
    ]


def test_solving_is_repeatable() -> None:
    def made() -> list[str]:
        system = AxisSystem()
        whole, _ = shards(system, 96, 3)
        system.factor(whole, 8)
        for size in (40, 50, 60):
            system.dimension(size)
        return [line for v in (0, 1) for line in system.solve(v).describe()]

    assert made() == made()


def test_sizes_without_regard_to_literals() -> None:
    """A dimension that a literal may mean shrinks, too; one that is whole for others does not."""
    for loose, expected in ((False, [96, 50, 8]), (True, [3, 3, 8])):
        system = AxisSystem()
        mean, other, given = system.dimension(96), system.dimension(50), system.dimension(8)
        system.fix(given)
        system.mix(mean)
        system.mix(other)
        system.add_extent([other])
        for number in (96, 25):
            system.add_literal(Fraction(1, number))
        sizes = system.shrink(3, loose=loose)
        assert [sizes.size(n) for n in (mean, other, given)] == expected


def test_the_least_sizes_need_not_differ() -> None:
    system = AxisSystem()
    whole, parts = shards(system, 128, 2)
    other, small, turned = system.dimension(96), system.dimension(3), system.dimension(50)
    system.mark_permuted(turned)
    sizes = system.shrink(3)
    assert [sizes.size(n) for n in (whole, parts[0], other, small, turned)] == [6, 3, 3, 3, 4]
