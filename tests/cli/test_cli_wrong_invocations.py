"""Wrong commands and inputs: each message names the thing, the rule or value, and the way out."""

from __future__ import annotations

import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from cli_plans import parallel, reference
from conftest import Call
from msgspec.structs import replace

from pitcheck.plan.files import write_plan
from pitcheck.plan.model import Operator, Tensor

TABLE = Path(__file__).with_suffix(".toml")
ROWS = tomllib.loads(TABLE.read_text(encoding="utf-8"))
SHIPPED = Path(__file__).parents[2] / "plans" / "llama3-tiny.toml"
FILES: dict[str, bytes] = {
    "empty.plan.json": b"",
    "binary.plan.json": b"\x80\x00\xff\xfe" * 80,
    "short.plan.zst": b"hello",
    "json.plan.zst": b'{"format": "pitcheck.plan/1"}',
    "role.plan.json": b'{"format":"pitcheck.plan/1","tensors":'
    b'[{"name":"x","shape":[2],"role":"imput"}]}',
    "field.plan.json": b'{"format":"pitcheck.plan/1","tensors":[{"name":"x","shap":[2]}]}',
    "twice.plan.json": b'{"format":"pitcheck.plan/1","format":"pitcheck.plan/1",'
    b'"mesh":[],"tensors":[],"operators":[],"outputs":[]}',
    "line.plan.json": b'{"format":"' + b"x" * 10_000_000 + b'"}',
    "key.plan.json": b'{"format":"pitcheck.plan/1","' + b"x" * 10_000_000 + b'":1}',
    "deep.plan.json": b'{"format":"pitcheck.plan/1","mesh":' + b"[" * 200_000,
    "report.json": b'{"schema":"pitcheck.report/1"}',
    "w.witness.json": b'{"format":"pitcheck.witness/1"}',
    "spec.py": b"other = 3\n",
    "latin.toml": b"\xff\xfe[layout]",
    "twice.toml": b'model = "a"\nmodel = "b"\n',
    "deep.toml": b"a = " + b"[" * 100_000,
    "digits.toml": b"[layout]\ntp = " + b"9" * 6000,
    "place.toml": b'model = "llama3-8b-tiny"\ntp = 2\n[batch]\nsequences = 8\nlength = 8\n',
}


@pytest.fixture(autouse=True)
def inputs(folder: Path) -> None:
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    write_plan(reference(), folder / "r.plan.json")
    write_plan(parallel(), folder / "p.plan.json")
    write_plan(parallel(), folder / "whole.plan.zst")
    cut = (folder / "whole.plan.zst").read_bytes()[:-20]
    (folder / "cut.plan.zst").write_bytes(cut)
    shutil.copy(SHIPPED, folder / "c.toml")
    (folder / "zero.plan.json").symlink_to("/dev/zero")
    (folder / "zero.toml").symlink_to("/dev/zero")
    (folder / "loop.plan.json").symlink_to("loop.plan.json")
    (folder / "folder.plan.json").mkdir()


def all_files(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


@pytest.mark.parametrize("row", ROWS["wrong"], ids=lambda row: " ".join(row["command"])[:80])
def test_a_wrong_invocation_says_what_to_do(
    call: Call, folder: Path, row: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    before = all_files(folder)
    result = call(*row["command"])
    assert result.code == 2, result.out
    # What is wrong with a plan is a finding of the report; what is wrong with a command is not.
    said, silent = (result.out, result.err) if "PIT" in result.out else (result.err, result.out)
    assert silent == ""
    missing = [part for part in row["says"] if part not in " ".join(said.split())]
    assert not missing, said
    assert "Traceback" not in said
    assert all_files(folder) == before


@pytest.mark.parametrize("row", ROWS["right"], ids=lambda row: " ".join(row["command"])[:80])
def test_a_right_invocation_beside_a_wrong_one_passes(
    call: Call, row: dict[str, list[str]]
) -> None:
    result = call(*row["command"])
    assert result.code == 0, result.out + result.err


def test_a_missing_lineage_says_what_one_is_and_how_it_is_written(call: Call) -> None:
    given = parallel()
    renamed = tuple(
        replace(tensor, name="weight", lineage=None) if tensor.name == "w" else tensor
        for tensor in given.tensors
    )
    linear = replace(given.operators[0], inputs=("x", "weight"))
    plan = replace(given, tensors=renamed, operators=(linear, *given.operators[1:]))
    write_plan(plan, "none.plan.json")
    result = call("check", "r.plan.json", "none.plan.json", "--seed", "1")
    said = " ".join(result.out.split())
    assert result.code == 2
    assert "'weight' is given from outside and has no lineage" in said
    assert '"shards": [{"dim": 0, "by": ["AXIS"]}]' in said


def test_a_missing_lineage_of_a_part_says_so(call: Call) -> None:
    given = parallel()
    tensors = tuple(replace(tensor, lineage=None) for tensor in given.tensors)
    write_plan(replace(given, tensors=tensors), "none.plan.json")
    result = call("check", "r.plan.json", "none.plan.json", "--seed", "1")
    said = " ".join(result.out.split())
    assert result.code == 2
    assert "PIT008" in said
    assert "'w' has no lineage" in said
    assert "shape [5, 6], so that it is not the whole 'w' of shape [10, 6]" in said
    assert '"shards": [{"dim": 0, "by": ["AXIS"]}]' in said


def test_a_derivative_says_which_operands_it_takes(call: Call) -> None:
    given = reference()
    tensors = (*given.tensors, Tensor("g", (8, 6)))
    wrong = Operator("back", "linear.backward", ("x", "w"), ("g",))
    write_plan(replace(given, tensors=tensors, operators=(*given.operators, wrong)), "b.plan.json")
    result = call("plan", "validate", "b.plan.json")
    said = " ".join(result.out.split())
    assert result.code == 2
    assert "linear.backward has 2 inputs; it takes, in this order, the 2" in said
    assert "then the gradients of outputs (0,)" in said


@pytest.mark.parametrize("form", ["json", "jsonl", "sarif", "junit", "github", "html", "text"])
def test_every_format_has_the_code_of_a_wrong_configuration(call: Call, form: str) -> None:
    result = call("check", "c.toml", "--set", "tp=3", "--output", form)
    assert (result.code, result.err) == (2, "")
    assert "PIT013" in result.out
