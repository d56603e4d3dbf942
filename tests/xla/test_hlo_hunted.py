"""Programs that ``bench/xla_hunt.py`` has found checks to fail on."""

from __future__ import annotations

import pytest
from xla.hlo_pairs import cases_in, edits, is_right, plans_in

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.errors import PlanError

PAIRS = (r"source_target_pairs=\{\{1,0\},\{2,1\}", r"source_target_pairs={{2,0},{1,1}")
ONE_LESS = (r",\{3,2\}\}", r"}")
"""Another order of devices, and a device that is sent nothing."""
OTHER_PLACES = (r"slice=\{\[0:2\], \[0:6\], \[0:2\]\}", r"slice={[0:2], [0:6], [1:3]}")


def test_integers_reach_places_of_which_some_devices_hold_zeros() -> None:
    """A permutation sends nothing to the last device, which makes its zeros in another step."""
    reference, parallel = plans_in(cases_in("hunted.jsonl")["updated_rows_moved"])
    assert is_right(reference, parallel)
    assert check(reference, parallel, Options(seed=1)).verdict == "equivalent"


@pytest.mark.parametrize("wrong", [PAIRS, ONE_LESS, OTHER_PLACES])
def test_what_moves_otherwise_is_found(wrong: tuple[str, str]) -> None:
    case = cases_in("hunted.jsonl")["updated_rows_moved"]
    found = edits(case["after"], (wrong,))
    assert found
    for what, text in found:
        try:
            pair = plans_in(case, after=text)
        except PlanError:
            continue
        assert not is_right(*pair), what
        assert check(*pair, Options(seed=1, explain=False)).verdict == "mismatch", what


ROWS = cases_in("hunted_rows.jsonl.gz")["rows_that_numbers_decide"]
CHOSEN = ("%eq.48, %broadcast.45, %broadcast.37", "%eq.48, %broadcast.37, %broadcast.45")
MASKED = ("select(%compare.5, %dynamic-slice.45", "select(%compare.4, %dynamic-slice.45")


def test_truths_that_numbers_decide_have_a_row_for_each_device() -> None:
    """Devices choose by comparisons of numbers, which are taken as given, a row for each."""
    assert check(*plans_in(ROWS), Options(seed=1, explain=False)).verdict == "equivalent"


@pytest.mark.parametrize("wrong", [CHOSEN, MASKED])
def test_another_choice_by_such_truths_is_found(wrong: tuple[str, str]) -> None:
    assert wrong[0] in ROWS["after"]
    pair = plans_in(ROWS, after=ROWS["after"].replace(*wrong))
    assert not is_right(*pair)
    assert check(*pair, Options(seed=1, explain=False)).verdict == "mismatch"
