"""``pitcheck check BEFORE AFTER``: texts that XLA dumps around its partitioner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli.cli_plans import parallel
from conftest import Call
from xla.hlo_loops import looped

from pitcheck.plan.files import write_plan

PAIRS = Path(__file__).parent.parent / "xla" / "texts" / "pairs.jsonl"
BEFORE = "before.hlo.txt"
AFTER = "module_0001.jit_f.spmd-partitioning.after_spmd-partitioning.before_layout.txt"


def pair_named(name: str) -> dict[str, Any]:
    cases = map(json.loads, PAIRS.read_text().splitlines())
    return next(case for case in cases if case["name"] == name)


@pytest.fixture(autouse=True)
def texts(folder: Path) -> None:
    case = pair_named("mlp")
    Path(BEFORE).write_text(case["before"])
    Path(AFTER).write_text(case["after"])


def report(call: Call, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call("check", *words, "--output", "json").out)
    return found


def test_a_partitioned_program_is_proven(call: Call) -> None:
    found = report(call, BEFORE, AFTER)
    assert found["verdict"] == "equivalent"
    assert found["outputs"] == {"proven": 3, "total": 3}
    assert any("passes of XLA behind the partitioner" in each for each in found["assumptions"])


def without_the_first_sum(after: str) -> tuple[str, int]:
    """Return a text whose first all-reduce is a copy, and the line of what it summed."""
    lines = after.splitlines()
    place = next(n for n, text in enumerate(lines) if " all-reduce(" in text)
    name, _, rest = lines[place].partition(" all-reduce(")
    lines[place] = f"{name} copy({rest.partition(')')[0]})"
    return "\n".join(lines), place


def test_what_was_proven_is_remembered_until_a_text_changes(call: Call) -> None:
    assert not report(call, BEFORE, AFTER).get("remembered")
    assert report(call, BEFORE, AFTER)["remembered"] > 0
    Path(AFTER).write_text(without_the_first_sum(Path(AFTER).read_text())[0])
    assert report(call, BEFORE, AFTER)["verdict"] == "mismatch"


def test_a_loop_is_proven_by_induction_and_a_wrong_one_is_followed(call: Call) -> None:
    """The outputs of the induction are none of the program's."""
    Path(BEFORE).write_text(looped(4, limit=5000))
    Path(AFTER).write_text(looped(2, limit=5000, sharded=False))
    found = report(call, BEFORE, AFTER, "--seed", "1")
    assert (found["verdict"], found["outputs"]["total"]) == ("equivalent", 7)
    assert found["reductions"][0].startswith("loop loop ends when its counter is 5000;")
    Path(BEFORE).write_text(looped(4))
    wrong = looped(2, sharded=False).replace("dynamic-slice(%w, %i,", "dynamic-slice(%w, %zero,")
    Path(AFTER).write_text(wrong)
    found = report(call, BEFORE, AFTER, "--seed", "1")
    assert (found["verdict"], found["outputs"]["total"]) == ("mismatch", 3)
    assert set(found["differing"]) <= {"result[0]", "result[1]", "result[2]"}


def test_a_sum_that_is_missing_stands_at_its_line(call: Call) -> None:
    changed, line = without_the_first_sum(Path(AFTER).read_text())
    Path(AFTER).write_text(changed)
    found = report(call, BEFORE, AFTER)
    assert (found["verdict"], found["findings"][0]["code"]) == ("mismatch", "PIT104")
    assert "over ranks [0, 1]" in found["findings"][0]["repair"]
    assert f"{AFTER}:{line}" in json.dumps(found["findings"][0])
    assert Path(found["findings"][0]["witness"]).exists()


def test_both_texts_are_named(call: Call) -> None:
    result = call("check", BEFORE)
    assert result.code == 2
    assert "PARALLEL is missing beside before.hlo.txt" in result.err
    result = call("plan", "show", BEFORE)
    assert result.code == 2
    assert "reads the one before the partitioner with the one after it" in result.err


def test_swapped_texts_are_refused(call: Call) -> None:
    result = call("check", AFTER, BEFORE)
    assert result.code == 2
    assert "the texts are swapped" in result.out


def test_a_plan_is_no_second_text(call: Call) -> None:
    write_plan(parallel(), "p.plan.json")
    result = call("check", BEFORE, "p.plan.json")
    assert result.code == 2
    assert result.err.startswith("pitcheck: p.plan.json is of another format than the file beside")


@pytest.mark.parametrize("missing", [BEFORE, AFTER])
def test_a_text_that_is_missing_is_named(call: Call, missing: str) -> None:
    Path(missing).unlink()
    result = call("check", BEFORE, AFTER)
    assert result.code == 2
    assert f"{missing}: no such file" in " ".join(result.out.split())


def test_a_text_that_ends_early_is_refused_at_its_line(call: Call) -> None:
    lines = Path(AFTER).read_text().splitlines()[:30]
    Path(AFTER).write_text("\n".join(lines))
    result = call("check", BEFORE, AFTER)
    assert result.code == 2
    assert ".txt:30" in "".join(result.out.split())


def test_a_certificate_is_of_both_texts(call: Call) -> None:
    assert call("check", BEFORE, AFTER, "--output", "certificate:c.json").code == 0
    assert call("verify", "c.json", BEFORE, AFTER).code == 0
    Path(AFTER).write_text(Path(AFTER).read_text() + "\n")
    assert call("verify", "c.json", BEFORE, AFTER).code == 2
