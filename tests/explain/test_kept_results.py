"""What is kept for several repairs is what would be computed anew, and counts as if it were."""

from __future__ import annotations

from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from explain.along_plans import biased
from support.explain_plans import run

from pitcheck.errors import BudgetError
from pitcheck.explain import difference
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.expected_values import far, same_numbers
from pitcheck.explain.rerun.changes import Held, Override, Read
from pitcheck.explain.rerun.rerun import Rerun
from pitcheck.explain.rerun.site import by_code
from pitcheck.explain.wrong_values import WrongValues
from pitcheck.graph.distinct import SMALL, distinct

NAN, INF = float("nan"), float("inf")


@cache
def evidence() -> Evidence:
    """Return what is known of a plan that adds a bias on every rank."""
    found: list[Evidence] = []
    explained = difference.explained

    def kept(given: Evidence, *others: Any, **more: Any) -> Any:
        found.append(given)
        return explained(given, *others, **more)

    with patch.object(difference, "explained", kept):
        run(biased(True, 1))
    return found[0]


def sums(rerun: Rerun) -> tuple[int, Any, Any]:
    """Return a value that every rank has, its coordinates and the groups of each."""
    grouping = next(g for g in evidence().groupings if g.table.shape[1] > 1)
    groups = by_code(np.sort(grouping.table, axis=1), rerun.graph.codes)
    for value in evidence().writers:
        held, codes = rerun.held(value), evidence().codes(value)
        whole = held is not None and len(codes) == rerun.graph.codes
        if whole and held is not None and held.value.kind == "field":
            return value, codes, groups[codes]
    raise LookupError("no value is on every rank")


def test_a_sum_that_is_kept_is_the_sum_and_is_counted() -> None:
    rerun = Rerun(evidence())
    value, codes, groups = sums(rerun)
    plain = Rerun(evidence()).one(
        "all_reduce", {"reduction": "sum"}, [Read(value, groups)], len(codes)
    )
    found = [rerun.reduced(value, codes, groups, "sum") for _ in range(2)]
    assert plain is not None and found[0] is not None and found[0] is found[1]
    assert same_numbers(rerun.numbers(plain), rerun.numbers(found[0]))
    assert rerun.spent == 2
    rerun.most = 2
    with pytest.raises(BudgetError):
        rerun.reduced(value, codes, groups, "sum")


def test_a_sum_of_a_changed_value_is_another_one() -> None:
    rerun = Rerun(evidence())
    value, codes, groups = sums(rerun)
    before, held = rerun.reduced(value, codes, groups, "sum"), rerun.held(value)
    assert before is not None and held is not None
    doubled = rerun.algebra.add(held.value, held.value)
    rerun.changes[value] = Held(doubled, held.rows, held.count)
    after = rerun.reduced(value, codes, groups, "sum")
    assert after is not None
    assert not same_numbers(rerun.numbers(before), rerun.numbers(after))


def test_rows_that_are_written_anew_at_some_coordinates_leave_the_others() -> None:
    rerun = Rerun(evidence())
    value, codes, _ = sums(rerun)
    held = rerun.held(value)
    assert held is not None
    old = rerun.numbers(rerun.algebra.gather(held.value, held.rows[codes]))
    for count in (1, len(codes)):
        data = rerun.algebra.gather(held.value, held.rows[codes[::-1][:count]])
        new = rerun.after([Override(value, codes[:count], data)], [])
        assert new is not None
        now = rerun.numbers(rerun.algebra.gather(new[value].value, new[value].rows[codes]))
        assert same_numbers(now[:, :count], old[:, ::-1][:, :count])
        assert same_numbers(now[:, count:], old[:, count:])


def test_what_is_computed_from_a_value_and_what_holds_a_reference_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also when more is asked about than is kept."""
    monkeypatch.setattr("pitcheck.explain.evidence.MOST_DOWNSTREAM", 3)
    found = evidence()
    values = [*found.readers, *found.writers]
    for value in [*values, *values]:
        steps = found.read_behind([value], lambda _: True)
        assert found.downstream(value) == {value, *(o for s in steps for o in found.outputs(s))}
    for reference in {found.alike(cut.reference) for cut in found.cuts.values()}:
        assert found.holding(reference) == [
            value
            for value, cut in found.cuts.items()
            if cut.scale == 1 and found.alike(cut.reference) == reference
        ]
    assert found.holding(-1) == []


def test_a_copy_of_judgements_leaves_the_first_ones_as_they_are() -> None:
    first = WrongValues(evidence())
    known = dict(first._wrong)
    copy = first.copy()
    for value in evidence().writers:
        assert np.array_equal(copy.wrong(value), WrongValues(evidence()).wrong(value))
    assert first._wrong.keys() == known.keys()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ([1.0, 2.0], [1.0, 2.0], True),
        ([1.0, 2.0], [1.0, 3.0], False),
        ([NAN, 2.0], [NAN, 2.0], True),
        ([NAN, 2.0], [NAN, 3.0], False),
        ([NAN, 2.0], [1.0, 2.0], False),
        ([INF, NAN], [INF, NAN], True),
        ([INF], [-INF], False),
        ([], [], True),
        ([1.0], [1.0, 1.0], False),
    ],
)
def test_arrays_of_the_same_numbers(one: list[float], other: list[float], same: bool) -> None:
    pair = np.array(one), np.array(other)
    assert same_numbers(*pair) is same
    assert np.array_equal(*pair, equal_nan=True) is same


@pytest.mark.parametrize(
    ("actual", "wanted", "differs"),
    [
        (1.0, 1.0, False),
        (1.0, 1.0 + 1e-12, False),
        (1.0, 1.1, True),
        (INF, INF, False),
        (INF, -INF, True),
        (INF, 1.0, True),
        (1.0, INF, True),
        (NAN, NAN, False),
        (NAN, 1.0, True),
        (1.0, NAN, True),
    ],
)
def test_rows_that_differ_by_more_than_rounding(
    actual: float, wanted: float, differs: bool
) -> None:
    """The other row is right, and has the size by which both are measured."""
    rows = np.array([[[actual], [2.0]]]), np.array([[[wanted], [2.0]]])
    assert far(*rows).tolist() == [differs, False]


@pytest.mark.parametrize("count", [0, 1, 5, SMALL + 1])
@pytest.mark.parametrize("order", [1, -1, 0])
def test_distinct_keys_in_the_order_in_which_they_occur(count: int, order: int) -> None:
    keys = np.arange(count, dtype=np.int64) * order
    first, which = distinct(keys)
    assert keys[first].tolist() == list(dict.fromkeys(keys.tolist()))
    assert np.array_equal(keys[first][which], keys)
