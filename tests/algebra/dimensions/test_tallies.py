"""Counts of places that are compared with the count of all leave an axis reduced; no others do."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from pitcheck.algebra.dimensions.axes import AxisAlgebra, AxisSystem, AxisValue
from pitcheck.algebra.dimensions.scaling_class import Use
from pitcheck.algebra.dimensions.size_choice import LEAST_TALLIED

TOKENS = 4096
Compared = Callable[[AxisAlgebra, AxisValue, AxisValue], AxisValue]


def count(algebra: AxisAlgebra, mask: AxisValue) -> AxisValue:
    return algebra.sum(algebra.cast(mask, "int"), (0,))


def one_each(algebra: AxisAlgebra, like: AxisValue) -> AxisValue:
    return algebra.expand(algebra.constant(1, "int"), algebra.shape(like))


def ones(algebra: AxisAlgebra, like: AxisValue) -> AxisValue:
    return algebra.sum(one_each(algebra, like), (0,))


def before(algebra: AxisAlgebra, mask: AxisValue) -> AxisValue:
    """Return True at each place that a place of the mask lies before."""
    places = algebra.arange(mask, 0)
    earlier = algebra.compare(
        "lt", algebra.reshape(places, (*algebra.shape(mask), 1)), algebra.arange(mask, 0)
    )
    held = algebra.multiply(
        algebra.cast(earlier, "int"),
        algebra.reshape(algebra.cast(mask, "int"), (*algebra.shape(mask), 1)),
    )
    return algebra.compare("gt", algebra.sum(held, (0,)), algebra.constant(0, "int"))


def some(algebra: AxisAlgebra, mask: AxisValue) -> AxisValue:
    """Return numbers that a mask chooses."""
    return algebra.where(mask, algebra.tensor(mask.shape, "int"), algebra.constant(0, "int"))


def real(algebra: AxisAlgebra, like: AxisValue) -> AxisValue:
    return algebra.multiply(algebra.cast(like, "field"), algebra.tensor(like.shape))


def greatest(algebra: AxisAlgebra, numbers: AxisValue) -> AxisValue:
    return algebra.reduce_max(numbers, 0)


def zeros(algebra: AxisAlgebra, like: AxisValue) -> AxisValue:
    return algebra.expand(algebra.constant(0, "int"), algebra.shape(like))


def reduced(compare: Compared) -> tuple[int, AxisSystem]:
    """The size of the axis after two masks along it were compared somehow."""
    algebra = AxisAlgebra(AxisSystem())
    first, second = (algebra.tensor((TOKENS,), "bool") for _ in range(2))
    algebra.logical_and(first, second)
    compare(algebra, first, second)
    return algebra.system.solve().size(first.dims[0]), algebra.system


def test_counts_that_are_compared_leave_the_axis_reduced() -> None:
    size, system = reduced(lambda a, x, y: a.compare("le", count(a, x), ones(a, y)))
    assert LEAST_TALLIED <= size < 24
    assert any(Use.TALLIED in own.uses for _, own in system.classes())
    assert system.decides


@pytest.mark.parametrize(
    "compare",
    [
        pytest.param(lambda a, x, y: a.compare("eq", count(a, x), ones(a, y)), id="all places"),
        pytest.param(
            lambda a, x, y: a.compare(
                "lt", a.cast(count(a, x), "field"), a.cast(ones(a, y), "field")
            ),
            id="as numbers",
        ),
        pytest.param(
            lambda a, x, y: a.compare(
                "gt", ones(a, x), a.multiply(count(a, y), a.cast(a.tensor((), "bool"), "int"))
            ),
            id="a count where a mask holds",
        ),
        pytest.param(
            lambda a, x, y: a.compare(
                "gt",
                ones(a, x),
                a.sum(a.where(x, a.cast(y, "int"), zeros(a, y)), (0,)),
            ),
            id="of what another mask chooses",
        ),
    ],
)
def test_these_are_counts_of_places(compare: Compared) -> None:
    assert reduced(compare)[0] < 24


def test_ids_that_existence_chooses_keep_what_was_asked() -> None:
    algebra = AxisAlgebra(AxisSystem())
    mask, ids = algebra.tensor((TOKENS,), "bool"), algebra.tensor((9,))
    asked = before(algebra, mask)
    one, other = (replace(algebra.tensor((TOKENS,), "int"), places=ids.dims[0]) for _ in range(2))
    chosen = algebra.where(asked, one, other)
    found = algebra.compare("eq", algebra.add(chosen, algebra.boundary(ids, 0, 0)), one)
    assert found.counting.added == chosen.counting.added == asked.counting.added != ()


@pytest.mark.parametrize("number", [0, 7, 80])
def test_a_greatest_number_asks_for_one_place(number: int) -> None:
    size, _ = reduced(
        lambda a, x, y: a.compare("gt", greatest(a, some(a, x)), a.constant(number, "int"))
    )
    assert size < LEAST_TALLIED


@pytest.mark.parametrize(
    "compare",
    [
        pytest.param(
            lambda a, x, y: a.compare("le", count(a, x), a.constant(20, "int")), id="a literal"
        ),
        pytest.param(
            lambda a, x, y: a.compare("le", count(a, x), a.constant(1, "int")), id="the literal 1"
        ),
        pytest.param(
            lambda a, x, y: a.compare("le", count(a, x), count(a, y)),
            id="the places of two conditions",
        ),
        pytest.param(
            lambda a, x, y: a.compare(
                "le", count(a, x), a.sum(a.where(y, one_each(a, x), zeros(a, x)), (0,))
            ),
            id="ones that a condition chooses",
        ),
        pytest.param(
            lambda a, x, y: a.compare("le", count(a, before(a, x)), ones(a, x)),
            id="places before which some place is",
        ),
        pytest.param(
            lambda a, x, y: a.compare("gt", count(a, before(a, x)), a.constant(0, "int")),
            id="a place before which some place is",
        ),
        pytest.param(
            lambda a, x, y: a.cast(count(a, before(a, x)), "bool"),
            id="the same as a conversion",
        ),
        pytest.param(
            lambda a, x, y: a.reduce_max(a.cast(before(a, x), "int"), 0), id="the same as a maximum"
        ),
        pytest.param(
            lambda a, x, y: a.compare(
                "gt", greatest(a, some(a, before(a, x))), a.constant(0, "int")
            ),
            id="a maximum of what a choice after existence gives",
        ),
        pytest.param(
            lambda a, x, y: a.compare(
                "gt", a.sum(some(a, before(a, x)), (0,)), a.constant(0, "int")
            ),
            id="a number of what a choice after existence gives",
        ),
        pytest.param(
            lambda a, x, y: a.compare("le", a.sum(some(a, before(a, x)), (0,)), ones(a, x)),
            id="a tally of what a choice after existence gives",
        ),
        pytest.param(
            lambda a, x, y: greatest(
                a, a.add(some(a, x), a.expand(greatest(a, some(a, x)), a.shape(x)))
            ),
            id="a maximum of numbers with a maximum in them",
        ),
        pytest.param(
            lambda a, x, y: a.compare("le", a.add(count(a, x), count(a, x)), ones(a, y)),
            id="twice a count",
        ),
        pytest.param(
            lambda a, x, y: a.compare(
                "le", count(a, a.concatenate([x, x], 0)), count(a, a.concatenate([y, y], 0))
            ),
            id="a count of what is joined",
        ),
        pytest.param(
            lambda a, x, y: a.compare(
                "le",
                a.sum(a.concatenate([one_each(a, x)] * 3, 0), (0,)),
                a.sum(a.concatenate([a.cast(y, "int")] * 3, 0), (0,)),
            ),
            id="the number of all joined places",
        ),
        pytest.param(
            lambda a, x, y: greatest(
                a, a.multiply(real(a, x), a.expand(greatest(a, real(a, x)), a.shape(x)))
            ),
            id="a real maximum of numbers with a maximum in them",
        ),
        pytest.param(
            lambda a, x, y: greatest(
                a, a.take(a.tensor((2,), "int"), 0, a.cast(before(a, x), "int"))
            ),
            id="a maximum of what existence indexes",
        ),
        pytest.param(
            lambda a, x, y: a.compare("le", a.multiply(count(a, x), count(a, x)), ones(a, y)),
            id="a square",
        ),
        pytest.param(
            lambda a, x, y: a.compare(
                "eq", a.remainder(count(a, x), a.constant(2, "int")), a.constant(0, "int")
            ),
            id="parity",
        ),
        pytest.param(
            lambda a, x, y: a.compare(
                "le", count(a, x), a.sum(a.expand(a.cast(y, "int"), (7, TOKENS)), (0, 1))
            ),
            id="repeated places",
        ),
        pytest.param(
            lambda a, x, y: a.compare(
                "le", count(a, x), a.sum(a.cast(a.tensor((512,), "bool"), "int"), (0,))
            ),
            id="another axis",
        ),
        pytest.param(
            lambda a, x, y: a.maximum(count(a, x), count(a, y)), id="the larger of two counts"
        ),
        pytest.param(
            lambda a, x, y: a.take(a.tensor((TOKENS,)), 0, count(a, x)), id="a count as an index"
        ),
        pytest.param(
            lambda a, x, y: a.compare(
                "le", a.where(x, ones(a, x), a.add(ones(a, x), ones(a, x))), count(a, y)
            ),
            id="a choice between a count and twice a count",
        ),
    ],
)
def test_these_need_the_whole_axis(compare: Compared) -> None:
    assert reduced(compare)[0] == TOKENS
