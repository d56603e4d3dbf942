"""What is remembered between runs, at the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from conftest import Call

from pitcheck.commands import reading, remembered_pairs
from pitcheck.frontends.protocol import Frontend

DEMO = Path(__file__).parents[2] / "plans" / "demo"
PLANNER = Path(__file__).parents[1] / "data" / "nnscaler"


@pytest.fixture(autouse=True)
def pair(folder: Path) -> list[str]:
    for file in DEMO.glob("*.plan.json"):
        shutil.copy(file, folder)
    return ["mlp-L4.reference.plan.json", "mlp-L4.megatron.plan.json"]


def test_an_unchanged_pair_is_answered_from_memory(call: Call, pair: list[str]) -> None:
    first, second = (call("check", *pair, "--output", "json") for _ in range(2))
    before, after = json.loads(first.out), json.loads(second.out)
    assert (first.code, second.code) == (0, 0)
    assert before["remembered"] < before["stages"]["distinct"]
    assert after["remembered"] == after["stages"]["distinct"]
    changed = {name for name in before if before[name] != after[name]}
    assert changed <= set(before["volatile"])


def test_the_report_says_what_is_remembered_and_how_to_do_without(
    call: Call, pair: list[str]
) -> None:
    call("check", *pair)
    assert "--no-cache" in call("check", *pair).out
    again = call("check", *pair, "--no-cache")
    assert (again.code, "remembered" in again.out) == (0, False)
    assert call("check", *pair, "--quiet").out == "equivalent: 5 of 5 outputs proven\n"


def test_a_byte_more_is_another_pair(call: Call, pair: list[str]) -> None:
    call("check", *pair)
    file = Path(pair[1])
    file.write_bytes(file.read_bytes() + b"\n")
    report = json.loads(call("check", *pair, "--output", "json").out)
    assert report["seconds"]["stages"] > 0, "the pair was read, and its stages were remembered"
    assert report["remembered"] == report["stages"]["distinct"]


def test_a_wrong_plan_in_the_place_of_the_right_one_is_caught(call: Call, pair: list[str]) -> None:
    assert call("check", *pair).code == 0
    shutil.copy("mlp-L4.missing-allreduce.plan.json", pair[1])
    assert call("check", *pair).code == 1
    assert call("check", *pair).code == 1


def test_what_is_written_unasked_goes_to_one_folder(call: Call, pair: list[str]) -> None:
    before = sorted(Path().iterdir())
    assert call("check", pair[0], "mlp-L4.missing-allreduce.plan.json").code == 1
    assert sorted(Path().iterdir()) == sorted([*before, Path(".pitcheck")])
    assert "*" in Path(".pitcheck/.gitignore").read_text().splitlines()
    (witness,) = Path(".pitcheck/witnesses").iterdir()
    assert call("replay", str(witness)).code == 1


def test_without_cache_nothing_is_written(call: Call, pair: list[str]) -> None:
    before = sorted(Path().iterdir())
    assert call("check", *pair, "--no-cache").code == 0
    assert sorted(Path().iterdir()) == before


def test_the_configuration_can_turn_it_off_or_place_it(call: Call, pair: list[str]) -> None:
    settings = Path("pyproject.toml")
    settings.write_text("[tool.pitcheck]\ncache = false\n")
    call("check", *pair)
    assert not Path(".pitcheck").exists()
    settings.write_text('[tool.pitcheck]\ncache-directory = "kept"\n')
    call("check", *pair)
    assert Path("kept", "proofs.sqlite").is_file()
    assert not Path(".pitcheck").exists()


def test_a_damaged_file_costs_a_message_and_nothing_else(
    call: Call, pair: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    call("check", *pair)
    Path(".pitcheck/proofs.sqlite").write_bytes(b"damaged" * 500)
    result = call("check", *pair)
    assert (result.code, "set aside" in caplog.text) == (0, True)
    assert Path(".pitcheck/proofs.sqlite.damaged").is_file()
    assert "--no-cache" in call("check", *pair).out


def test_the_cache_can_be_looked_at_verified_and_cleared(call: Call, pair: list[str]) -> None:
    assert "nothing remembered" in call("cache", "info").out
    call("check", *pair)
    assert "1 reports, 13 stages" in call("cache", "info").out
    assert call("cache", "verify").code == 0
    assert call("cache", "clear").code == 0
    assert "nothing remembered" in call("cache", "info").out
    Path(".pitcheck/proofs.sqlite").write_bytes(b"damaged" * 500)
    assert call("cache", "verify").code == 1


def test_a_file_that_changed_while_it_was_read_is_not_remembered(
    call: Call, pair: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wrong plan stands there before and after, and the right one while it is read."""
    right, wrong = Path(pair[1]).read_bytes(), Path("mlp-L4.missing-allreduce.plan.json")
    shutil.copy(wrong, pair[1])
    known = reading.read

    def read(file: str) -> object:
        Path(file).write_bytes(right if file == pair[1] else Path(file).read_bytes())
        plan = known(file)
        if file == pair[1]:
            shutil.copy(wrong, file)
        return plan

    with monkeypatch.context() as patched:
        patched.setattr(reading, "read", read)
        assert call("check", *pair).code == 0
    assert call("check", *pair).code == 1


def test_a_pair_of_an_installed_frontend_is_not_recognised(
    call: Call, pair: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def frontend(source: str) -> Frontend:
        return Frontend("other", "another", lambda _: True, lambda _: [], in_one_file=True)

    monkeypatch.setattr(remembered_pairs, "frontend_of", frontend)
    call("check", *pair)
    assert "reports" not in call("cache", "info").out


def test_a_pair_of_planner_files_is_recognised_by_its_bytes(call: Call) -> None:
    """A wrong plan in the place of one that was proven is read."""
    planner = ["reference.pkl", "parallel.pkl"]
    for file, name in zip(planner, ("reference", "dp1-pp1-tp2-mb1.megatron"), strict=True):
        shutil.copy(PLANNER / "pairs" / f"mlp-L4-gbs128.{name}.pkl", file)
    assert call("check", *planner).code == 0
    again = json.loads(call("check", *planner, "--output", "json").out)
    assert again["remembered"] == again["stages"]["distinct"]
    assert again["seconds"].get("stages", 0) == 0, "no plan was read"
    shutil.copy(PLANNER / "mutants" / "m01_drop_fw_allreduce.pkl", planner[1])
    assert call("check", *planner).code in (1, 2)
