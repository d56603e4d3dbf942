"""``pitcheck plan``: show, validate, convert."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from cli.cli_plans import parallel, reference
from conftest import Call

from pitcheck.plan.files import read_plan, write_plan
from pitcheck.plan.model import Plan


@pytest.fixture(autouse=True)
def plans(folder: Path) -> None:
    write_plan(reference(), "r.plan.json")
    write_plan(parallel(), "p.plan.json")


def damaged() -> Plan:
    """The second operand of the first operator is a tensor that does not exist."""
    plan = parallel()
    first = msgspec.structs.replace(plan.operators[0], inputs=("x", "v"))
    return msgspec.structs.replace(plan, operators=(first, *plan.operators[1:]))


def test_show(call: Call) -> None:
    result = call("plan", "show", "p.plan.json")
    assert (result.code, result.err) == (0, "")
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    assert lines == [
        "mesh tp=2 (2 ranks)",
        "micro-batches 1",
        "tensors 4: 1 activation, 1 input, 1 output, 1 parameter",
        "operators 2",
        "1 all_gather",
        "1 linear",
        "outputs 1",
        "y [8, 10] float32",
    ]
    assert call("plan", "show", "r.plan.json").out.splitlines()[:2] == [
        "name           one linear layer",
        "mesh           one device (1 rank)",
    ]


def test_names_cannot_steer_a_terminal(call: Call) -> None:
    write_plan(msgspec.structs.replace(reference(), name="\x1b]0;owned\x07"), "evil.plan.json")
    out = call("plan", "show", "evil.plan.json").out
    assert "\x1b" not in out
    assert "\\x1b]0;owned\\x07" in out


def test_validate(call: Call) -> None:
    result = call("plan", "validate", "r.plan.json", "p.plan.json", "--reference", "r.plan.json")
    assert (result.code, result.out, result.err) == (
        0,
        "r.plan.json: valid\np.plan.json: valid\n",
        "",
    )


def test_validate_prints_every_violation_with_its_place(call: Call) -> None:
    write_plan(damaged(), "d.plan.json")
    result = call("plan", "validate", "p.plan.json", "d.plan.json")
    assert (result.code, result.err) == (2, "")
    lines = result.out.splitlines()
    assert (lines[0], lines[-1]) == ("p.plan.json: valid", "d.plan.json: invalid")
    assert any(
        line.startswith("error[PIT") and "operators[0].inputs[1]" in line and "'v'" in line
        for line in lines
    )


@pytest.mark.parametrize("target", ["c.plan.json", "c.plan.zst"])
def test_convert_keeps_the_plan(call: Call, target: str) -> None:
    result = call("plan", "convert", "p.plan.json", target)
    assert (result.code, result.out, result.err) == (0, "", "")
    assert read_plan(target) == parallel()
    assert call("plan", "convert", target, "back.plan.json").code == 0
    assert Path("back.plan.json").read_bytes() == Path("p.plan.json").read_bytes()


def test_convert_of_a_damaged_file_writes_nothing(call: Call, folder: Path) -> None:
    Path("bad.plan.json").write_text(json.dumps({"format": "pitcheck.plan/1", "mesh": 3}))
    before = sorted(folder.iterdir())
    result = call("plan", "convert", "bad.plan.json", "c.plan.zst")
    assert (result.code, result.out) == (2, "")
    assert "mesh" in result.err
    assert sorted(folder.iterdir()) == before
