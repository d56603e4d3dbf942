"""Configurations on the command line: both plans are built and checked, or written to files."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Call

SHIPPED = Path(__file__).parents[2] / "plans"


def test_a_configuration_is_checked(call: Call) -> None:
    result = call(
        "check",
        str(SHIPPED / "llama3-tiny.toml"),
        "--seed",
        "1",
        "-q",
        "--set",
        "pp=1",
        "--set",
        "model.layers=1",
    )
    assert result.code == 0, result.out
    assert result.out.startswith("equivalent: ")


def test_plans_are_made_that_check_as_the_configuration_does(call: Call, folder: Path) -> None:
    made = call(
        "plan",
        "make",
        str(SHIPPED / "gpt3-tiny.toml"),
        "--out",
        str(folder),
        "--set",
        "layers=1",
        "--set",
        "tp=1",
    )
    assert made.code == 0
    files = made.out.split()
    assert files == [
        str(folder / f"gpt3-tiny.{side}.plan.zst") for side in ("reference", "parallel")
    ]
    result = call("check", *files, "--seed", "1", "-q")
    assert result.code == 0, result.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("check", str(SHIPPED / "llama3-tiny.toml"), "--set", "tp=3"),
            "4 attention heads cannot be cut evenly over tp 3",
        ),
        (("check", "none.toml"), "cannot read"),
        (("check", str(SHIPPED / "llama3-tiny.toml"), "other.plan.json"), "stands for two plans"),
        (("check", "a.plan.json", "b.plan.json", "--set", "tp=2"), "--set"),
        (("check", str(SHIPPED / "llama3-tiny.toml"), "--set", "speed=9"), "speed"),
        (("plan", "make", "x.plan.json"), ".toml"),
        (("plan", "make", str(SHIPPED / "llama3-tiny.toml"), "--out", "nowhere"), "no directory"),
        (("plan", "show", str(SHIPPED / "llama3-tiny.toml")), "plan make"),
    ],
)
def test_what_is_refused(call: Call, arguments: tuple[str, ...], said: str) -> None:
    result = call(*arguments)
    assert result.code == 2
    assert said in " ".join((result.out + result.err).split())
    assert "Traceback" not in result.err


def test_another_model_on_the_same_ranks(call: Call) -> None:
    result = call(
        "check",
        str(SHIPPED / "llama3-tiny.toml"),
        "--set",
        "model=mixtral-8x7b-tiny",
        "--seed",
        "1",
    )
    assert result.code == 0
    assert "equivalent" in result.out


@pytest.mark.parametrize(
    "words",
    [
        ("check", "c.toml"),
        ("plan", "make", "c.toml"),
        ("mutate", "c.toml"),
    ],
)
def test_all_commands_say_the_code_of_a_configuration(
    call: Call, folder: Path, words: tuple[str, ...]
) -> None:
    (folder / "c.toml").write_text('model = "llama3-8b-tiny"\n[layout]\ntp = 3\n')
    wrong = call(*words)
    assert wrong.code == 2
    assert "PIT013" in wrong.out + wrong.err
    assert "pitcheck explain PIT013" in wrong.out + wrong.err
    assert list(folder.glob("*.plan.*")) == []


def test_a_wrong_argument_has_no_code(call: Call) -> None:
    for words in (("plan", "make", "c.plan.json"), ("capture", "c.toml")):
        wrong = call(*words)
        assert (wrong.code, "PIT" in wrong.err) == (2, False)


def test_a_plan_that_cannot_be_read_has_its_code(call: Call) -> None:
    wrong = call("plan", "show", "none.plan.json")
    assert (wrong.code, wrong.err.startswith("pitcheck: PIT001: none.plan.json: ")) == (2, True)
