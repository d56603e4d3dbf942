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
