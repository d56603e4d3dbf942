"""A broadcast whose root does not have what the others need, and what is next to it."""

from __future__ import annotations

import pytest
from explain.spread_plans import updated_by_owners
from support.explain_plans import run, said


def test_every_owner_sends_what_it_has_updated() -> None:
    assert run(updated_by_owners(0, 1)).verdict == "equivalent"
    assert run(updated_by_owners(2, 1, size=3)).verdict == "equivalent"


@pytest.mark.parametrize(("roots", "size", "wrong"), [((0, 0), 2, 1), ((1, 0), 2, 2)])
def test_a_root_that_has_old_values_is_named(roots: tuple[int, int], size: int, wrong: int) -> None:
    report = run(updated_by_owners(*roots, owners=(0, 1), size=size))
    (found,) = report.findings
    assert (report.verdict, found.code) == ("mismatch", "PIT119"), said(report)
    assert "broadcast" in (found.operator or ""), said(report)
    assert ("the same mistake is made at" in (found.cause or "")) == (wrong > 1), said(report)
    assert found.tried is not None and not found.tried.wrong, said(report)


def test_of_three_ranks_the_owner_is_named() -> None:
    report = run(updated_by_owners(0, 1, owners=(2, 1), size=3))
    (found,) = report.findings
    assert found.code == "PIT119" and "what rank 2 has" in (found.cause or ""), said(report)


def test_an_owner_that_did_not_update_is_no_matter_of_the_root() -> None:
    report = run(updated_by_owners(0, 1, owners=(0,)))
    assert report.verdict == "mismatch"
    assert all(found.code != "PIT119" for found in report.findings), said(report)
