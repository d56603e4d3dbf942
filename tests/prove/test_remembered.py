"""Remembered proofs: taken where the very same stage was proven, and nowhere else."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import msgspec
import pytest

from pitcheck.base.options import Options
from pitcheck.cache.store import FILE, Store
from pitcheck.commands.reading import read, read_pair
from pitcheck.engine.check import check
from pitcheck.mutation.mutants import mutants
from pitcheck.plan.model import Plan
from pitcheck.prove import remembered
from pitcheck.prove.proof import Proof
from pitcheck.prove.remembered import KIND, Kept, decoded, encoded
from pitcheck.report.json import encode
from pitcheck.report.report import VOLATILE, Report

PAIR = tuple(f"plans/demo/mlp-L4.{side}.plan.json" for side in ("reference", "megatron"))
WRONG = "plans/demo/mlp-L4.missing-allreduce.plan.json"


@pytest.fixture
def options(tmp_path: Path) -> Options:
    return Options(jobs=1, cache_directory=tmp_path)


def _checked(options: Options) -> Report:
    return check(read(PAIR[0]), read(PAIR[1]), options)


def _pair(file: str, *assignments: str) -> tuple[Plan, Plan]:
    reference, parallel = read_pair(file, assignments)
    return reference, parallel


def _stable(report: Report) -> bytes:
    """The bytes of a report without what may differ between two runs."""
    blank = {name: getattr(Report(verdict="equivalent"), name) for name in VOLATILE}
    return encode(msgspec.structs.replace(report, **blank))


def test_all_that_a_proven_stage_says_is_kept() -> None:
    others = {"outcome", "code", "reason", "differing", "undecided"}
    assert set(Kept.__struct_fields__) | others == {field.name for field in fields(Proof)}


def test_an_unchanged_pair_is_proven_by_what_was_proven(options: Options) -> None:
    first, second = _checked(options), _checked(options)
    assert first.verdict == second.verdict == "equivalent"
    assert first.remembered < first.stages.distinct
    assert second.remembered == second.stages.distinct == first.stages.distinct
    assert second.error_bound_log2 == first.error_bound_log2
    assert second.primes == first.primes


def test_with_a_seed_a_report_is_the_same_with_and_without_memory(options: Options) -> None:
    seeded = replace(options, seed=5)
    reports = [
        _checked(replace(seeded, cache_directory=None)),
        _checked(seeded),
        _checked(seeded),
    ]
    assert len({_stable(report) for report in reports}) == 1
    assert reports[2].remembered == reports[2].stages.distinct
    assert not _checked(replace(options, seed=6)).remembered, "another seed has other numbers"


@pytest.mark.parametrize(
    "change",
    [
        {"error_bound_log2": -70.0},
        {"trials": 9},
        {"shapes": "full"},
        {"coordinates": "full"},
        {"max_memory": 1 << 31},
    ],
)
def test_other_options_take_nothing(options: Options, change: dict[str, object]) -> None:
    _checked(options)
    assert not _checked(replace(options, **change)).remembered  # type: ignore[arg-type]


def test_other_code_takes_nothing(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    _checked(options)
    monkeypatch.setattr(remembered, "meaning", lambda: "of another version")
    assert not _checked(options).remembered
    assert _checked(options).remembered


def test_another_mesh_takes_nothing(options: Options) -> None:
    for more in ((), ("dp=4",)):
        report = check(*_pair("plans/llama3-tiny.toml", "model.layers=2", *more), options)
        assert (report.verdict, report.remembered) == ("equivalent", 0)


def test_a_wrong_plan_is_caught_although_the_right_one_is_remembered(options: Options) -> None:
    _checked(options)
    reference = read(PAIR[0])
    for _ in range(2):
        report = check(reference, read(WRONG), options)
        assert report.verdict == "mismatch"
        assert [finding.code for finding in report.findings] == ["PIT104"]
    assert _checked(options).verdict == "equivalent"


def test_what_failed_is_never_kept(options: Options, tmp_path: Path) -> None:
    check(read(PAIR[0]), read(WRONG), options)
    before = Store(tmp_path / FILE).contents().entries
    report = check(read(PAIR[0]), read(WRONG), options)
    assert report.verdict == "mismatch"
    assert Store(tmp_path / FILE).contents().entries == before


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[1]",
        encoded(Proof("proven", error_log2=-80.0)).replace(b"-80.0", b"80.0"),
        encoded(Proof("proven", error_log2=-80.0)).replace(b'"trials"', b'"other"'),
    ],
)
def test_an_entry_that_is_no_proof_is_not_believed(
    options: Options, tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert decoded(content) is None
    with monkeypatch.context() as patched:
        patched.setattr(remembered, "encoded", lambda _: content)
        _checked(options)
    assert Store(tmp_path / FILE).contents().entries[KIND] > 0
    report = _checked(options)
    assert (report.verdict, report.remembered) == ("equivalent", 0)


def test_estimates_stay_estimates(options: Options) -> None:
    pair = _pair("plans/mixtral-tiny.toml")
    first, second = (check(*pair, replace(options, jobs=2)) for _ in range(2))
    assert first.heuristic == second.heuristic != ()
    assert second.routing == first.routing
    assert second.remembered == second.stages.distinct


@pytest.mark.slow
def test_a_longer_model_proves_what_is_new(options: Options) -> None:
    short, longer = (
        check(*_pair("plans/llama3-tiny.toml", f"model.layers={n}"), options) for n in (4, 6)
    )
    assert (short.verdict, longer.verdict) == ("equivalent", "equivalent")
    assert 0 < longer.remembered < longer.stages.distinct


@pytest.mark.slow
def test_no_mutant_is_taken_for_a_plan_that_was_proven(options: Options) -> None:
    reference, parallel = read(PAIR[0]), read(PAIR[1])
    quick = replace(options, explain=False)
    assert check(reference, parallel, quick).verdict == "equivalent"
    for mutant in mutants(parallel, 16, seed=3):
        alone = check(reference, mutant.plan, replace(quick, cache_directory=None, seed=1))
        assert check(reference, mutant.plan, quick).verdict == alone.verdict
        assert check(reference, mutant.plan, quick).verdict == alone.verdict
