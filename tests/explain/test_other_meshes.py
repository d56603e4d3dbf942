"""Repairs are tried at another mesh size, too, where the pair can be made again.

What fits one size by chance loses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from explain.mesh_plans import squared_loss
from explain.mesh_size_plans import (
    Mesh,
    biased,
    halved_square,
    halved_sum,
    in_pairs,
    mean_over,
    taken_rows,
    two_axes,
)
from support.explain_plans import Pair, said

from pitcheck.base.options import Options
from pitcheck.commands.reading import pair_at
from pitcheck.engine.check import check
from pitcheck.errors import PlanError
from pitcheck.explain.other_meshes import MOST_RANKS, other_sizes
from pitcheck.plan.model import PairAt
from pitcheck.report.report import Finding, Report

DP, BOTH = {"dp": 2}, {"dp": 2, "tp": 2}
Made = Callable[[Mesh], Pair]


def at(make: Made, mesh: Mesh, again: PairAt | None) -> Report:
    return check(*make(mesh), Options(seed=1), again=again)


def only(report: Report) -> Finding:
    assert report.verdict == "mismatch", said(report)
    (found,) = report.findings
    return found


RIGHT: dict[str, tuple[Made, Mesh]] = {
    "half of a sum": (halved_sum, DP),
    "half of a square": (halved_square, DP),
    "mean": (lambda mesh: mean_over(mesh, mesh["dp"]), DP),
    "two axes": (lambda mesh: two_axes(mesh, 1), BOTH),
    "rows": (lambda mesh: taken_rows(mesh, *range(mesh["dp"])), DP),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_pair_is_never_made_again(name: str) -> None:
    make, mesh = RIGHT[name]
    asked: list[Mesh] = []

    def again(other: Mesh) -> Pair:
        asked.append(other)
        return make(other)

    assert at(make, mesh, again).verdict == "equivalent"
    assert asked == []


def test_a_mean_that_should_be_a_sum_is_no_factor_of_one_half() -> None:
    """On two ranks the factor 1/2 before the mean may be dropped just as well."""

    def wrong(mesh: Mesh) -> Pair:
        return halved_sum(mesh, "avg")

    found = only(at(wrong, DP, wrong))
    assert (found.code, found.operator) == ("PIT111", "4:all_reduce (all_reduce)"), found
    assert found.repair == (
        "reduce with 'sum' (tested at dp=2 and at dp=4: with it, every output is right)"
    )
    assert found.tried is not None and found.tried.meshes == ({"dp": 4},)
    assert only(at(wrong, DP, None)).code == "PIT101"


FACTORS: dict[str, tuple[Made, Mesh, str]] = {
    "of the axis": (lambda mesh: halved_sum(mesh, "sum", f"1/{mesh['dp']}"), DP, "1 / size of dp"),
    "of no axis": (lambda mesh: halved_sum(mesh, "sum", "1/2"), DP, ""),
    "of the first of two": (lambda mesh: two_axes(mesh, mesh["dp"]), BOTH, "1 / size of dp"),
    "of the second of two": (lambda mesh: two_axes(mesh, mesh["tp"]), BOTH, "1 / size of tp"),
    "of neither of two": (lambda mesh: two_axes(mesh, 2), BOTH, ""),
}


@pytest.mark.parametrize("name", FACTORS)
def test_a_factor_has_the_name_of_the_axis_whose_size_it_is_everywhere(name: str) -> None:
    make, mesh, named = FACTORS[name]
    found = only(at(make, mesh, make))
    meaning = f"1/2 = {named}" if named else "1/2"
    assert found.code == "PIT101" and f"every element is {meaning} times" in (found.cause or "")
    axes = [{**mesh, axis: 4} for axis in mesh]
    assert found.tried is not None and list(found.tried.meshes) == axes, found
    where = {1: "at dp=2 and at dp=4", 2: "at dp=2, tp=2, at dp=4 and at tp=4"}[len(mesh)]
    assert f"(tested {where}: with it, every output is right)" in (found.repair or "")
    # Nothing says that the factor follows the mesh where no other mesh can be made.
    assert re.search(r"\(size of dp.*: \d\) times", only(at(make, mesh, None)).cause or "")


def test_repairs_of_several_places_are_tried_again_together() -> None:
    def wrong(mesh: Mesh) -> Pair:
        return squared_loss(mesh["dp"], ())

    found = only(at(wrong, {"dp": 4}, wrong))
    assert found.tried is not None and found.tried.meshes == ({"dp": 2},), found
    assert "4 = size of dp" in (found.cause or "") and "'dv'" in (found.cause or "")


@pytest.mark.parametrize("size", [2, 4])
def test_sums_that_should_be_means_are_no_addend_too_much(size: int) -> None:
    """On two ranks one of two equal addends of every gradient may be dropped just as well."""

    def wrong(mesh: Mesh) -> Pair:
        return halved_square(mesh, "sum")

    found = only(at(wrong, {"dp": size}, wrong))
    assert (found.code, found.operator) == ("PIT101", "8:all_reduce (all_reduce)"), found
    assert f"it is {size} = size of dp times" in (found.cause or "")
    assert found.tried is not None and found.tried.meshes == ({"dp": 6 - size},), found
    alone = only(at(wrong, {"dp": size}, None))
    assert (alone.code, alone.operator) == (found.code, found.operator)


def test_a_bias_of_every_rank_is_told_of_every_size() -> None:
    found = only(at(biased, {"tp": 2}, biased))
    assert found.code == "PIT108" and "it counts 2 times" in (found.cause or "")
    assert found.tried is not None and found.tried.meshes == ({"tp": 4},), found


def test_a_number_that_fits_another_size_is_told() -> None:
    def wrong(mesh: Mesh) -> Pair:
        return mean_over(mesh, 4)

    found = only(at(wrong, DP, wrong))
    assert "use 2 (tested: with it, every output is right; at dp=4 no output differs as it is)" in (
        found.repair or ""
    )
    assert found.tried is not None
    assert (found.tried.meshes, found.tried.faultless) == ((), ({"dp": 4},))


def test_ranks_that_are_others_at_another_size_are_not_said_to_be_tried_there() -> None:
    """The reverse order of two ranks is a shift by one, too; of four ranks it is not."""

    def shifted(mesh: Mesh) -> Pair:
        count = mesh["dp"]
        return taken_rows(mesh, *((number + 1) % count for number in range(count)))

    def reversed_(mesh: Mesh) -> Pair:
        return taken_rows(mesh, *reversed(range(mesh["dp"])))

    assert "(tested at dp=2 and at dp=4" in (only(at(shifted, DP, shifted)).repair or "")
    assert only(at(reversed_, DP, reversed_)).repair == only(at(reversed_, DP, None)).repair


def _never(mesh: Mesh) -> Pair:
    raise PlanError(f"made for two ranks, not for {mesh}")


def _of_one_size(mesh: Mesh) -> Pair:
    del mesh
    return halved_sum(DP, "sum", "3")


def _wrong_elsewhere(mesh: Mesh) -> Pair:
    return halved_sum(mesh, "avg", "7")


def _invalid(mesh: Mesh) -> Pair:
    reference, parallel = halved_sum(mesh, "sum", "3")
    return parallel, reference


def test_a_program_whose_groups_do_not_follow_the_mesh_is_another_one() -> None:
    found = only(at(in_pairs, DP, in_pairs))
    assert found == only(at(in_pairs, DP, None)) and found.tried is not None


@pytest.mark.parametrize("again", [_never, _of_one_size, _wrong_elsewhere, _invalid])
def test_what_cannot_be_made_again_is_explained_as_before(again: PairAt) -> None:
    def wrong(mesh: Mesh) -> Pair:
        return halved_sum(mesh, "sum", "3")

    before = at(wrong, DP, None)
    assert at(wrong, DP, again).findings == before.findings
    assert only(before).tried is not None


def test_pairs_of_many_ranks_are_not_made_again() -> None:
    asked: list[Mesh] = []

    def again(mesh: Mesh) -> Pair:
        asked.append(mesh)
        raise PlanError("never")

    at(lambda mesh: halved_sum(mesh, "sum", "3"), {"dp": 8}, again)
    assert [mesh["dp"] for mesh in asked] == [4, 16]
    asked.clear()
    at(lambda mesh: halved_sum(mesh, "sum", "3"), {"dp": 8, "other": 2}, again)
    assert asked == [{"dp": 4, "other": 2}]
    assert max(mesh["dp"] for mesh in asked) <= MOST_RANKS
    assert [other_sizes(size) for size in (2, 3, 4)] == [[4], [6], [2, 8]]


def test_plan_files_and_configurations_have_one_mesh(tmp_path: Path) -> None:
    assert pair_at(str(tmp_path / "some.toml")) is pair_at(str(tmp_path / "some.plan.json")) is None
    assert pair_at(f"{tmp_path}/program.py:spec") is not None
