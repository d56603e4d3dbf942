"""PyTorch programs about time, state and the recorder, each with the verdicts that its file says
are right.
"""

from __future__ import annotations

import ast
from typing import Any

import pytest
from attacks.folder import ATTACKS, EXISTS

from pitcheck.base.options import Options
from pitcheck.commands.checking.pair import checked
from pitcheck.commands.reading import read_pair
from pitcheck.report.report import Report

FOLDER = ATTACKS / "torch"
NOT_EQUIVALENT = "mismatch|invalid|inconclusive"
SAID = {
    "cap.py": dict.fromkeys(("spec", "nodrop"), NOT_EQUIVALENT),
    "gather.py": dict.fromkeys(("spec8", "spec16"), "equivalent"),
    # The gradient of a key bias is 0 for every input.
    "key_bias.py": dict.fromkeys(("ddp", "ddp_sdpa", "by_hand", "by_hand_opt"), "equivalent"),
    "deep_copied.py": dict.fromkeys(("control", "deepcopied"), "mismatch"),
    "module_to.py": {
        **dict.fromkeys(
            ("to_cpu", "to_f64", "bf16", "deep", "metainit", "load_sd", "fmt", "wn"), "equivalent"
        ),
        # They look at numbers that no recording knows, or call what has no meaning; the reason is
        # said.
        **dict.fromkeys(("item", "nonfinite", "isnan", "sn"), "equivalent|inconclusive"),
    },
}
MISTAKEN = {
    # Its specification has the name of the function that its step calls, so the step raises
    # TypeError.
    "barrier_all": "invalid",
}


def steps() -> dict[str, str]:
    """Verdicts of ``steps.py``, read from its text: importing PyTorch only to collect tests would
    cost seconds.
    """
    calls = [
        node.value
        for node in ast.parse((FOLDER / "steps.py").read_text()).body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ]
    said = [
        call.args[:2] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "dp"
    ]
    return {
        ast.literal_eval(name): ast.literal_eval(verdicts) for name, verdicts in said
    } | MISTAKEN


def programs() -> list[Any]:
    if not EXISTS:
        return []
    said = {"steps.py": steps(), **SAID}
    return [
        pytest.param(file, name, said[file][name], id=f"{file[:-3]}-{name}")
        for file in said
        for name in said[file]
    ]


def report(file: str, name: str) -> Report:
    return checked([lambda: read_pair(f"{FOLDER / file}:{name}", (), 2)], Options(seed=1, jobs=1))


@pytest.mark.skipif(not EXISTS, reason="the folder of attacks is not there")
def test_the_folder_is_whole() -> None:
    assert {file.name for file in FOLDER.glob("*.py")} == {"steps.py", *SAID}
    assert len(steps()) == 26


@pytest.mark.slow
@pytest.mark.parametrize(("file", "name", "verdicts"), programs())
def test_a_program_gets_a_verdict_that_is_right(
    file: str, name: str, verdicts: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = report(file, name)
    assert found.verdict in verdicts.split("|"), found.findings
    assert found.verdict == "equivalent" or found.findings
    assert "PIT900" not in {finding.code for finding in found.findings}, found.findings
