"""The identity of a finding: it stays where nothing of the fault changes, and changes with it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from report.report_samples import IMPRECISE, MESH, MISSING, NOWHERE, ODD, RENDEZVOUS, sample

from pitcheck.report.fingerprint import fingerprint, fingerprints
from pitcheck.report.report import Finding


def of(finding: Finding, mesh: dict[str, int] = MESH, microbatches: int = 2) -> str:
    return fingerprint(finding, mesh, microbatches)


SAME: dict[str, dict[str, Any]] = {
    "another line": {"source": "model/norm.py:99"},
    "another element": {"element": (1, 1)},
    "other values": {"reference_value": "-3", "parallel_value": "8"},
    "another witness": {"witness": "other.json"},
    "a witness that is not saved": {"witness": None, "unsaved": "disk full"},
    "another stage key": {"stage": "0123456789ab"},
    "another repair": {"repair": "something else"},
}
OTHER: dict[str, dict[str, Any]] = {
    "code": {"code": "PIT105"},
    "verdict": {"verdict": "inconclusive"},
    "title": {"title": "another one"},
    "cause": {"cause": "another one"},
    "no cause": {"cause": None},
    "operator": {"operator": "another one"},
    "file": {"source": "model/other.py:41"},
    "module": {"source": "model.norm"},
    "output": {"output": "layers.4.attention_norm.weight.grad"},
    "no output": {"output": None},
    "ranks of one axis": {"ranks": (0, 2, 4, 6)},
    "one rank": {"ranks": (1,)},
    "ranks that are no product": {"ranks": (0, 3)},
    "no rank in particular": {"ranks": ()},
    "micro-batches": {"microbatches": (1,)},
}


@pytest.mark.parametrize("change", SAME)
def test_it_stays(change: str) -> None:
    assert of(replace(MISSING, **SAME[change])) == of(MISSING)


@pytest.mark.parametrize("change", OTHER)
def test_it_changes(change: str) -> None:
    assert of(replace(MISSING, **OTHER[change])) != of(MISSING)


def test_no_two_of_these_are_one() -> None:
    several = [replace(MISSING, **change) for change in OTHER.values()]
    found = {of(each) for each in [MISSING, NOWHERE, ODD, RENDEZVOUS, IMPRECISE, *several]}
    assert len(found) == len(OTHER) + 5


def test_an_axis_of_which_all_ranks_are_concerned_counts_without_its_size() -> None:
    wider = replace(MISSING, ranks=tuple(range(16)), microbatches=tuple(range(4)))
    assert of(wider, {"pp": 2, "dp": 4, "tp": 2}, 4) == of(MISSING)
    assert of(replace(MISSING, ranks=(0, 1)), {"pp": 2, "dp": 4, "tp": 2}) != of(MISSING)


def test_ranks_that_are_no_product_count_with_their_mesh() -> None:
    odd = replace(MISSING, ranks=(0, 3))
    assert of(odd, {"dp": 2, "tp": 2}) != of(odd, {"dp": 4, "tp": 2})
    assert of(odd, {"dp": 2, "tp": 2}) == of(odd, {"dp": 2, "tp": 2})


def test_a_line_in_a_sentence_does_not_count_and_a_part_of_a_tensor_does() -> None:
    def caused(cause: str) -> str:
        return of(replace(IMPRECISE, cause=cause))

    assert caused("it is part of 'g' (matmul at model.py:8)") == caused(
        "it is part of 'g' (matmul at model.py:80)"
    )
    assert caused("it is part of 'g' (matmul at model.py:8)") != caused(
        "it is part of 'g' (matmul at other.py:8)"
    )
    assert caused("[0:2, 4:8] is held by no rank") != caused("[0:2, 4:6] is held by no rank")
    assert caused("reads 'x.y:1'") != caused("reads 'x.y:2'")


def test_a_precision_rule_is_one_fault_whether_it_warns_or_fails() -> None:
    assert of(IMPRECISE) == of(replace(IMPRECISE, verdict="warning"))


def test_equal_ones_are_numbered() -> None:
    found = fingerprints(sample("mismatch", MISSING, NOWHERE, MISSING))
    assert found[0].removesuffix(":1") == found[2].removesuffix(":2") == of(MISSING)
    assert found[1] == f"{of(NOWHERE)}:1"


@given(st.lists(st.text(max_size=8), min_size=4, max_size=4), st.data())
def test_no_text_reaches_from_one_field_into_another(texts: list[str], data: Any) -> None:
    fields = ("title", "operator", "output", "cause")
    other = data.draw(st.permutations(texts))
    pair = [
        Finding(code="PIT104", verdict="mismatch", **dict(zip(fields, each, strict=True)))
        for each in (texts, other)
    ]
    assert (of(pair[0]) == of(pair[1])) == (texts == other)


@given(st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)))
def test_other_ranks_are_another_fault(first: set[int], second: set[int]) -> None:
    pair = [replace(MISSING, ranks=tuple(each)) for each in (first, second)]
    assert (of(pair[0]) == of(pair[1])) == (first == second)


@given(st.sets(st.integers(0, 7)), st.randoms())
def test_the_order_of_ranks_does_not_count(ranks: set[int], random: Any) -> None:
    mixed = list(ranks)
    random.shuffle(mixed)
    assert of(replace(MISSING, ranks=tuple(mixed))) == of(
        replace(MISSING, ranks=tuple(sorted(ranks)))
    )
