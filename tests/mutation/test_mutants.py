"""Mutants that are made, and the verdicts on them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from mutation.judged import judged, trial_of, wrong
from zoo.pairs import pair

from pitcheck.errors import UsageError
from pitcheck.execution.judge import Judge
from pitcheck.models.config import Batch
from pitcheck.models.presets import preset
from pitcheck.models.reference import reference_plan
from pitcheck.mutation.edits import changed_at
from pitcheck.mutation.kinds import KINDS
from pitcheck.mutation.mutants import chosen_kinds, mutants
from pitcheck.mutation.outcomes import Outcome, Status, status_of
from pitcheck.mutation.summary import row, rows
from pitcheck.mutation.trial import Trial, outcomes, trial
from pitcheck.plan.model import Number, Operator
from pitcheck.plan.validate import validate
from pitcheck.programs.configuration import read_configuration
from pitcheck.report.report import Finding, Report, Shown

SHOWN = Shown("y", (0,), "1", "2", "by hand")
PLANS = Path(__file__).parents[2] / "plans"
SMALL_LLAMA = ["layers=1", "pp=1", "sequences=4", "length=4"]


def test_a_seed_gives_the_same_mutants() -> None:
    _, plan = pair("three_dimensional")
    first, again, other = (list(mutants(plan, 40, seed)) for seed in (3, 3, 4))
    assert first == again
    assert {mutant.name for mutant in first} != {mutant.name for mutant in other}


def test_mutants_differ_from_the_plan_and_from_each_other() -> None:
    _, plan = pair("three_dimensional")
    made = list(mutants(plan, 100, 1))
    assert len({mutant.name for mutant in made}) == len(made) == 100
    assert all(mutant.plan != plan for mutant in made)


def test_every_kind_comes_as_often() -> None:
    _, plan = pair("three_dimensional")
    made = list(mutants(plan, 12, 1, ["factor", "operand", "peer"]))
    assert [mutant.kind for mutant in made] == ["factor", "operand", "peer"] * 4


def test_a_plan_with_few_places_gives_few_mutants() -> None:
    _, plan = pair("groups_of_one")
    assert 1 <= len(list(mutants(plan, 100, 1, ["repeat-reduction"]))) < 5
    assert not list(mutants(plan, 100, 1, ["random"]))


def test_unknown_kinds_are_refused() -> None:
    assert chosen_kinds([]) == KINDS
    with pytest.raises(
        UsageError, match="unknown kind of mutation 'slices'; the kinds are drop-reduction"
    ):
        chosen_kinds(["slice", "slices"])


def test_a_record_is_changed_at_one_place_alone() -> None:
    _, plan = pair("masked_mean")
    number, old = next(
        (n, o) for n, o in enumerate(plan.operators) if not o.where and o.group is None
    )
    axis = plan.mesh[0]

    def doubled(operator: Operator) -> tuple[Operator, ...]:
        return (
            replace(operator, kind="mul", inputs=(operator.inputs[0], Number(2)), attributes={}),
        )

    changed = changed_at(plan, old.id, {axis.name: 1}, doubled)
    assert changed is not None
    rest, part = changed.operators[number : number + 2]
    assert rest == replace(old, where=({axis.name: tuple(v for v in range(axis.size) if v != 1)},))
    assert (part.id, part.kind, part.where) == (f"{old.id}!", "mul", ({axis.name: (1,)},))
    assert changed_at(plan, old.id, {axis.name: 1}, lambda operator: (operator,)) is None
    assert changed_at(plan, old.id, {axis.name: axis.size}, doubled) is None


def test_what_a_report_says_of_an_effect() -> None:
    def report(verdict: str, code: str = "PIT100") -> Report:
        findings = (
            () if verdict == "equivalent" else (Finding(code=code, verdict="invalid", title=""),)
        )
        return Report(
            verdict=verdict, shown=SHOWN if verdict == "mismatch" else None, findings=findings
        )  # type: ignore[arg-type]

    expected: dict[str, tuple[Status, Status]] = {
        "equivalent": ("survivor", "proven"),
        "mismatch": ("caught", "alarm"),
        "invalid": ("invalid", "refused"),
        "inconclusive": ("open", "unproven"),
        "nothing-checked": ("open", "unproven"),
    }
    for verdict, (changing, same) in expected.items():
        assert (status_of("changes", report(verdict)), status_of("same", report(verdict))) == (
            changing,
            same,
        )
    assert status_of("does not run", report("equivalent")) == "survivor"
    assert status_of("changes", report("invalid", "PIT900")) == "failed"


def test_a_check_that_proves_everything_has_survivors() -> None:
    reference, parallel = pair("masked_mean")
    blind = trial(reference, parallel, lambda plan: Report(verdict="equivalent"))
    told = list(outcomes(blind, list(mutants(parallel, 6, 1, ["drop-reduction", "function"])), 1))
    assert [outcome.status for outcome in told].count("survivor") >= 3
    assert row("all", told).survivors == [outcome.status for outcome in told].count("survivor")


def test_a_check_that_fails_has_detected_nothing() -> None:
    reference, parallel = pair("masked_mean")
    failing = Report(
        verdict="invalid",
        findings=(Finding(code="PIT900", verdict="invalid", title="internal error"),),
    )
    of = Trial(Judge(reference), lambda plan: failing)
    told = list(outcomes(of, list(mutants(parallel, 2, 1, ["factor"])), 1))
    assert {outcome.status for outcome in told} == {"failed"}
    assert (row("all", told).caught, row("all", told).failed) == (0, 2)


def test_processes_give_the_same_outcomes_in_the_same_order() -> None:
    reference, parallel = pair("replicated")
    of, made = trial_of(reference, parallel), list(mutants(parallel, 5, 2))
    assert list(outcomes(of, made, 2)) == list(outcomes(of, made, 1))


def test_mutants_are_made_of_right_plans_only() -> None:
    reference, parallel = pair("masked_mean")
    mutant = next(iter(mutants(parallel, 1, 1, ["drop-reduction"])))
    with pytest.raises(
        UsageError, match="mutants are made of a right plan, but this one computes another"
    ):
        trial_of(reference, mutant.plan)


def test_a_plan_that_is_too_large_is_refused_with_the_sizes_to_take() -> None:
    large = reference_plan(preset("llama3-8b"), Batch(8, 64))
    with pytest.raises(
        UsageError,
        match=r"too large to be executed rank by rank at full shapes: .* --set "
        r"model=llama3-8b-tiny",
    ):
        trial(large, large, lambda plan: Report(verdict="equivalent"))


def test_rows_add_up() -> None:
    told = judged(*pair("uneven_rows"), ["offset", "factor"], 8)
    *kinds, all_ = rows(told)
    for field in type(all_).__struct_fields__[1:]:
        assert getattr(all_, field) == sum(getattr(kind, field) for kind in kinds)
    assert (
        all_.mutants
        == all_.invalid + all_.refused + all_.changing + all_.unchanging + all_.failed
        == len(told)
    )


def _no_mistake(told: list[Outcome]) -> None:
    assert not wrong(told)
    assert all(outcome.code == "PIT206" for outcome in told if outcome.status == "open")


@pytest.mark.slow
def test_small_plans() -> None:
    """Some mutants of every small plan that is checked in no time."""
    for name in (
        "gated_mlp",
        "data_parallel_microbatches",
        "gradient_clipping",
        "rotary_interleaved",
        "uneven_batch",
        "shared_parameter",
        "fully_sharded",
    ):
        _no_mistake(judged(*pair(name), KINDS, 12, seed=5))


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4))
def test_a_training_step(seed: int) -> None:
    """One mutant of nearly every kind; in CI of those that do not repeat what the small
    plans show.
    """
    configuration = read_configuration(PLANS / "llama3-tiny.toml", SMALL_LLAMA)
    kinds = KINDS if seed else ["regroup", "stale", "microbatch", "term", "order", "operand"]
    _no_mistake(
        judged(configuration.reference(), configuration.parallel(), kinds, len(kinds), seed)
    )


def test_mutants_of_a_training_step_are_well_formed() -> None:
    """The mistake of a mutant is the only fault in it: names, tables and groups are in order."""
    configuration = read_configuration(PLANS / "llama3-tiny.toml", SMALL_LLAMA)
    reference, parallel = configuration.reference(), configuration.parallel()
    codes = {
        violation.code
        for mutant in mutants(parallel, 52, 1)
        for violation in validate(mutant.plan, reference)
        if violation.severity == "error"
    }
    assert codes <= {"PIT003", "PIT005", "PIT006", "PIT007", "PIT009", "PIT010"}
