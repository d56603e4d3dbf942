"""Defaults from [tool.pitcheck] of the nearest pyproject.toml."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cli.cli_plans import parallel, reference
from conftest import Call, Checker

from pitcheck.plan.files import write_plan
from pitcheck.report.report import Report

FILES = ("r.plan.json", "p.plan.json")


@pytest.fixture(autouse=True)
def plans(folder: Path, checker: Checker) -> None:
    write_plan(reference(), FILES[0])
    write_plan(parallel(), FILES[1])
    checker(Report(verdict="equivalent"))


def configure(text: str, folder: Path = Path()) -> None:
    (folder / "pyproject.toml").write_text(f"[tool.pitcheck]\n{text}\n")


def test_every_option_can_be_configured_and_the_command_line_wins(call: Call) -> None:
    Path("w").mkdir()
    configure(
        """
        error-bound = "2^-80"
        trials = 5
        seed = 11
        backend = "numpy"
        shapes = "full"
        coordinates = "full"
        jobs = 2
        max-memory = "1GiB"
        output = ["json:report.json"]
        witness-directory = "w"
        precision = "error"
        estimates = "refuse"
        quiet = true
        verbose = false
        """
    )
    result = call("check", *FILES, "--seed", "12")
    assert result.code == 0
    options = sys.modules["pitcheck.engine.check"].options
    assert (
        options.error_bound_log2,
        options.trials,
        options.seed,
        options.jobs,
        options.max_memory,
    ) == (-80, 5, 12, 2, 1 << 30)
    assert (options.backend, options.shapes, options.coordinates, options.witness_directory) == (
        "numpy",
        "full",
        "full",
        Path("w"),
    )
    assert (options.precision, options.estimates) == ("error", "refuse")
    assert Path("report.json").exists()
    assert len(result.out.splitlines()) == 1


def test_a_flag_on_the_command_line_wins(call: Call) -> None:
    configure("quiet = true")
    assert len(call("check", *FILES).out.splitlines()) == 1
    assert call("check", *FILES, "--no-quiet", "--verbose").code == 0


def test_an_output_on_the_command_line_replaces_those_of_the_file(call: Call) -> None:
    configure('output = ["json:a.json"]')
    call("check", *FILES, "--output", "json:b.json")
    assert not Path("a.json").exists()
    assert Path("b.json").exists()


def test_the_nearest_file_counts(call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure("trials = 7")
    inner = folder / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    pair = [str(folder / name) for name in FILES]
    call("check", *pair)
    assert sys.modules["pitcheck.engine.check"].options.trials == 7
    configure("trials = 8", inner)
    call("check", *pair)
    assert sys.modules["pitcheck.engine.check"].options.trials == 8


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tirals = 3", "unknown key 'tirals'"),
        ("reference = 'a'", "unknown key 'reference'"),
        ("help = true", "unknown key 'help'"),
        ("trials = 0", "trials"),
        ("trials = 2.5", "whole number"),
        ("trials = true", "trials"),
        ("trials = [1]", "must be a whole number of at least 1"),
        ("seed = 'x'", "seed"),
        ("backend = 'torch'", "backend"),
        ("backend = {a = 1}", "backend"),
        ("precision = 'strict'", "precision"),
        ("quiet = 1", "true or false"),
        ("quiet = 'yes'", "true or false"),
        ("output = 'json:a'", "a list"),
        ("output = [1]", "output"),
        ("output = ['pdf:a']", "text, json"),
        ("max-memory = '4 bananas'", "4 bananas"),
        ("error-bound = 7", "2^-64"),
        ("[[tool", "not TOML"),
    ],
)
def test_a_wrong_configuration_names_file_and_key(call: Call, text: str, said: str) -> None:
    configure(text)
    result = call("check", *FILES)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("content", [b"[tool]\npitcheck = 3", b"tool = 3", b"\xff\xfe", b""])
def test_odd_files(call: Call, content: bytes) -> None:
    Path("pyproject.toml").write_bytes(content)
    result = call("check", *FILES)
    assert result.code == (2 if b"pitcheck" in content or b"\xff" in content else 0)


def test_other_commands_do_not_read_it(call: Call) -> None:
    configure("tirals = 3")
    assert call("explain", "PIT104").code == 0
