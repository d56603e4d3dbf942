"""The checks of toy models of transformers: two classes, right and with a planted mistake."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "OPTForCausalLM"])
def test_a_class_is_decided(name: str, tmp_path: Path) -> None:
    """It trains in plain PyTorch, is equivalent, and a gradient that is not reduced is found."""
    results, page = tmp_path / "results.jsonl", tmp_path / "page.md"
    for more in ([], ["--resume", "--wrong", "unreduced", "--table", str(page)]):
        subprocess.run(
            [
                sys.executable,
                ROOT / "bench" / "model_zoo.py",
                "--results",
                results,
                "--only",
                name,
                "--limit",
                "1",
                *more,
            ],
            check=True,
            capture_output=True,
        )
    verdicts = [json.loads(line)["verdict"] for line in results.read_text().splitlines()]
    assert verdicts == ["trains", "equivalent", "mismatch"]
    assert f"| {name} |" in page.read_text()
