"""Mistakes that the size of a mesh axis, or chance, makes look like others: each has its cause at
its place, and its neighbours have theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from explain.mesh_plans import (
    biased_terms,
    gathered_hidden,
    left_as_it_was,
    long_chain,
    many_gradients,
    masked_rows,
    norm_of_joined,
    norm_of_rows,
    squared_loss,
    updated_on,
)
from support.explain_plans import Pair, run, said

from pitcheck.algebra.value import Value
from pitcheck.explain import search as tried
from pitcheck.explain.repairs.collectives import REDUCED_ONCE_MORE
from pitcheck.explain.repairs.repair import Repair
from pitcheck.explain.rerun.changes import Override
from pitcheck.explain.rerun.site import Candidate, Site
from pitcheck.explain.table import REPAIRS

RIGHT: dict[str, Callable[[], Pair]] = {
    "averaged on two ranks": lambda: squared_loss(2),
    "averaged on four ranks": lambda: squared_loss(4),
    "reduce-scatter": lambda: gathered_hidden("reduce_scatter"),
    "gradients": lambda: many_gradients(2, 0),
    "bias": lambda: biased_terms(True),
    "mask": lambda: masked_rows(True),
    "update": lambda: left_as_it_was(True),
    "update of rows": lambda: updated_on((0, 1)),
    "norm": lambda: norm_of_joined(False),
    "norm of rows": lambda: norm_of_rows(True),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_plan_is_equivalent(name: str) -> None:
    report = run(RIGHT[name]())
    assert report.verdict == "equivalent", said(report)


@pytest.mark.parametrize("size", [2, 4])
def test_a_forgotten_average_is_a_factor_of_the_mesh_at_the_collectives(size: int) -> None:
    report = run(squared_loss(size, ()))
    (found,) = report.findings
    assert found.code == "PIT101", said(report)
    assert "all_reduce" in (found.operator or ""), said(report)
    assert f"{size} (size of dp: {size})" in (found.cause or ""), said(report)
    assert all(name in f"{found.title} {found.cause}" for name in ("'dw'", "'dv'")), said(report)
    assert "(tested: with it, every output is right)" in (found.repair or ""), said(report)
    assert found.tried is not None and set(found.tried.right) == {"dw", "dv"}


def test_one_sum_that_should_be_a_mean_is_told_alone() -> None:
    report = run(squared_loss(2, (0,)))
    (found,) = report.findings
    assert found.code in ("PIT101", "PIT111") and "all_reduce" in (found.operator or ""), said(
        report
    )
    assert "'dw'" not in (found.cause or ""), said(report)


def test_a_gradient_that_is_sliced_where_it_should_be_reduced_and_scattered_lacks_a_sum() -> None:
    report = run(gathered_hidden("slice"))
    (found,) = report.findings
    assert found.code == "PIT104", said(report)
    assert (
        "a term of a sum over tp" in (found.cause or "")
        and "mean" not in f"{found.cause} {found.repair}"
    ), said(report)


@pytest.mark.parametrize("missing", [10, 3])
def test_gradients_that_are_not_reduced_are_one_finding_with_all_their_places(missing: int) -> None:
    report = run(many_gradients(10, missing))
    (found,) = report.findings
    assert found.code == "PIT104", said(report)
    named = f"{found.title} {found.cause}"
    assert [f"'dw{n}'" in named for n in range(10)] == [n < missing for n in range(10)], said(
        report
    )
    assert found.tried is not None and set(found.tried.right) == {f"dw{n}" for n in range(missing)}
    assert (found.tried.wrong, found.tried.compared) == ((), 10)


def test_a_bias_on_every_rank_is_not_mended_by_another_reduction() -> None:
    report = run(biased_terms(False))
    (found,) = report.findings
    assert found.code == "PIT108" and "'c' on every rank over tp" in (found.cause or ""), said(
        report
    )
    assert "all-reduce" not in (found.repair or ""), said(report)


def test_what_is_reduced_anyway_is_never_to_be_reduced_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        tried,
        "REPAIRS",
        tuple(repair for repair in REPAIRS if repair.name != "added on every rank"),
    )
    for found in run(biased_terms(False)).findings:
        assert "all-reduce" not in (found.repair or ""), found


def test_a_mask_of_other_rows_is_named_where_it_is_used() -> None:
    report = run(masked_rows(False))
    assert report.verdict == "mismatch"
    found = report.findings[0]
    assert found.code in ("PIT102", "PIT107"), said(report)
    assert any(kind in (found.operator or "") for kind in ("masked_fill", "chunk")), said(report)


def test_parameters_that_nothing_updates_are_told_as_one_mistake() -> None:
    report = run(left_as_it_was(False))
    (found,) = report.findings
    assert found.code == "PIT108" and "as it was given" in (found.cause or ""), said(report)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_updates_nothing_is_told_with_the_operator_of_the_others(rank: int) -> None:
    report = run(updated_on((1 - rank,)))
    (found,) = report.findings
    assert (found.code, found.ranks) == ("PIT108", (rank,)), said(report)
    assert f"'w' as it was given on rank {rank}" in (found.cause or ""), said(report)
    assert (found.operator or "").endswith("(sub)") and found.tried is None, said(report)


def test_a_tensor_that_counts_twice_in_a_norm_is_left_out_of_one_join() -> None:
    report = run(norm_of_joined(True))
    (found,) = report.findings
    assert found.code == "PIT108" and "both put 'tied' into the norm" in (found.cause or ""), said(
        report
    )
    assert "(tested: with it, every output is right)" in (found.repair or ""), said(report)


def test_squares_that_are_products_of_equal_operands_are_those_of_a_norm() -> None:
    report = run(norm_of_rows(False))
    (found,) = report.findings
    assert (found.code, found.operator) == ("PIT113", "4:sum (sum)"), said(report)
    assert "(tested: with it, every output is right)" in (found.repair or ""), said(report)


def test_a_mistake_before_a_long_chain_of_operators_is_found() -> None:
    report = run(long_chain(240, "sigmoid"))
    (found,) = report.findings
    assert found.code == "PIT102" and "where it should be 'tanh'" in (found.cause or ""), said(
        report
    )


def test_a_repair_that_is_right_in_one_draw_alone_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def lucky(site: Site) -> Iterator[Candidate]:
        for number, comparison in enumerate(site.evidence.run.comparisons):
            if comparison.target.cut.value == site.value:
                wanted = site.rerun.wanted(number)
                draws = len(site.rerun.algebra.trials)
                data = np.array(
                    np.broadcast_to(
                        wanted.expected.data, (1, draws, *wanted.expected.data.shape[2:])
                    )
                )
                data[:, 1:] += 1
                asked.append(draws)
                yield (
                    site.diagnosis(REDUCED_ONCE_MORE, times=""),
                    [Override(site.value, wanted.codes, Value("field", data))],
                )

    before = run(squared_loss(2, ())).findings
    monkeypatch.setattr(tried, "REPAIRS", (Repair("lucky", lucky, along=0, search=0), *REPAIRS))
    assert run(squared_loss(2, ())).findings == before
    assert asked and min(asked) >= 2
