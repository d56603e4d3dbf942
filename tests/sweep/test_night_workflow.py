"""What the workflows of a night do: their commands exist, and issues are opened and closed."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from pitcheck.cli import cli

NIGHT = Path(__file__).resolve().parents[2] / "docs" / "examples" / "night"
STUB = """#!/bin/sh
echo "$*" >> calls
case "$1 $2" in "issue list") cat open;; esac
"""


@pytest.fixture
def stubbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a command gh that records how it is called."""
    (tmp_path / "gh").write_text(STUB, encoding="utf-8")
    (tmp_path / "gh").chmod(0o755)
    (tmp_path / "night.txt").write_text("NOT GOOD\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


@pytest.mark.parametrize(
    ("code", "number", "called"),
    [
        ("0", "", []),
        ("0", "7\n", ["issue close 7 --comment The night is good again."]),
        ("1", "7\n", ["issue comment 7 --body-file night.txt"]),
        (
            "3",
            "",
            [
                "label create pitcheck-night --description pitcheck sweep --force",
                "issue create --title The night is not good --label pitcheck-night"
                " --body-file night.txt",
            ],
        ),
    ],
)
def test_an_issue_is_open_while_nights_are_not_good(
    stubbed: Path, code: str, number: str, called: list[str]
) -> None:
    (stubbed / "open").write_text(number, encoding="utf-8")
    subprocess.run([NIGHT / "issue.sh", code, "night.txt"], check=True)
    first, *rest = (stubbed / "calls").read_text(encoding="utf-8").splitlines()
    assert first.startswith("issue list --state open --label pitcheck-night")
    assert rest == called


@pytest.mark.parametrize("name", ["github.yml", "gitlab.yml"])
def test_the_commands_of_a_workflow_exist(name: str) -> None:
    text = (NIGHT / name).read_text(encoding="utf-8")
    found = re.findall(
        r"pitcheck (sweep|page|merge)\b(.*?)(?:\|\||\n      - |\n    - |$)", text, re.S
    )
    assert {command for command, _ in found} >= {"sweep", "page"}
    for command, rest in found:
        said = CliRunner().invoke(cli, [command, "--help"]).output
        for option in re.findall(r"--[a-z-]+", rest):
            assert option in said, (command, option)


def test_the_page_of_a_bad_night_is_published() -> None:
    """A badge that stays green after a bad night would be worse than none."""
    github = (NIGHT / "github.yml").read_text(encoding="utf-8")
    upload = github[github.index("upload-pages-artifact") :]
    assert upload.split("\n")[1].strip() == "if: always()"
    assert "path: night\n" in upload
    assert "\n  pages:\n    needs: sweep\n    if: always()\n" in github
    gitlab = (NIGHT / "gitlab.yml").read_text(encoding="utf-8")
    assert "when: always" in gitlab[gitlab.index("\npages:") :]
