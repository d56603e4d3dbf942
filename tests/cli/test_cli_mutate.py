"""``pitcheck mutate``: what it prints, its exit codes, and what it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest
from cli.cli_plans import parallel, reference
from conftest import Call
from syrupy.assertion import SnapshotAssertion

from pitcheck.mutation.kinds import KINDS
from pitcheck.plan.files import read_plan, write_plan
from pitcheck.plan.model import Number, Operator
from pitcheck.report.report import Report

PAIR = ("r.plan.json", "p.plan.json")


@pytest.fixture(autouse=True)
def plans(folder: Path) -> None:
    write_plan(reference(), "r.plan.json")
    write_plan(parallel(), "p.plan.json")


def test_the_table(call: Call, snapshot: SnapshotAssertion) -> None:
    result = call(
        "mutate", *PAIR, "--count", "4", "--seed", "1", "--kinds", "drop-exchange,axis,factor,order"
    )
    assert (result.code, result.err) == (0, "")
    assert result.out == snapshot
    assert max(map(len, result.out.splitlines())) <= 100


def test_the_document(call: Call, snapshot: SnapshotAssertion) -> None:
    result = call(
        "mutate",
        *PAIR,
        "--count",
        "3",
        "--seed",
        "2",
        "--output",
        "json:-",
        "--kinds",
        "drop-exchange,given",
        "--kinds",
        "factor",
    )
    assert result.code == 0
    document = json.loads(result.out)
    texts = [(mutant.pop("reason"), mutant.pop("cause")) for mutant in document["mutants"]]
    assert all(reason for reason, _ in texts)
    assert document == snapshot
    assert document["kinds"] == ["drop-exchange", "given", "factor"]
    assert [mutant["kind"] for mutant in document["mutants"]] == [
        "drop-exchange",
        "given",
        "factor",
    ]


def test_the_same_seed_prints_the_same(call: Call, folder: Path) -> None:
    first = call("mutate", *PAIR, "--count", "4", "--seed", "7", "--output", "json:a.json")
    again = call(
        "mutate", *PAIR, "--count", "4", "--seed", "7", "--output", "json:b.json", "--jobs", "2"
    )
    assert first == again
    assert (folder / "a.json").read_bytes() == (folder / "b.json").read_bytes()


def test_survivors_come_first_and_are_an_error(
    call: Call, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr(
        "pitcheck.commands.mutate.checked", lambda files, options: Report(verdict="equivalent")
    )
    result = call("mutate", *PAIR, "--count", "4", "--seed", "1", "--kinds", "factor,given")
    assert result.code == 1
    assert result.out == snapshot


def test_kept_mutants_can_be_checked_alone(call: Call, folder: Path) -> None:
    (folder / "kept").mkdir()
    result = call(
        "mutate", *PAIR, "--count", "2", "--seed", "1", "--kinds", "factor", "--keep", "kept"
    )
    assert result.code == 0
    assert sorted(path.name for path in (folder / "kept").iterdir()) == [
        "0001-factor.plan.zst",
        "0002-factor.plan.zst",
        "reference.plan.zst",
    ]
    assert read_plan(folder / "kept" / "reference.plan.zst") == reference()
    assert (
        call("check", "kept/reference.plan.zst", "kept/0001-factor.plan.zst", "--seed", "1").code
        == 1
    )


def test_a_wrong_plan_has_no_mutants(call: Call) -> None:
    plan = parallel()
    doubled = (
        *plan.operators[:1],
        Operator("twice", "mul", ("h", Number(2)), ("h2",)),
        msgspec.structs.replace(plan.operators[1], inputs=("h2",)),
    )
    tensors = (*plan.tensors, msgspec.structs.replace(plan.tensors[2], name="h2"))
    write_plan(msgspec.structs.replace(plan, operators=doubled, tensors=tensors), "p.plan.json")
    result = call("mutate", *PAIR)
    assert result.code == 2
    assert (
        "mutants are made of a right plan, but this one computes another y than the reference; "
        "mend it first" in result.err
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--kinds", "slices"),
            "unknown kind of mutation 'slices'; the kinds are drop-reduction, ",
        ),
        (("--count", "0"), "0 is not in the range x>=1"),
        (("--keep", "nowhere"), "--keep nowhere is no directory; create it first"),
        (("--output", "json:no/where.json"), "no does not exist; create it first"),
        (("--output", "xml:-"), "unknown format 'xml'"),
        (("--set", "tp=2"), "--set changes a configuration"),
    ],
)
def test_wrong_options(call: Call, arguments: tuple[str, ...], said: str) -> None:
    result = call("mutate", *PAIR, *arguments)
    assert result.code == 2
    assert said in result.err


def test_without_pytorch_it_says_what_to_install(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [
        name
        for name in sys.modules
        if name.startswith(("pitcheck.execution", "pitcheck.mutation.trial"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    result = call("mutate", *PAIR)
    assert result.code == 2
    assert "mutants are executed by PyTorch; install pitcheck[torch]" in result.err


def test_every_kind_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "mutation.md").read_text()
    assert [kind for kind in KINDS if f"`{kind}`" not in page] == []
