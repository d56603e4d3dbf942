"""The folder of the playground: what it holds, and what the build refuses."""

from __future__ import annotations

import hashlib
import json
import subprocess
import zipfile
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from playground.served_site import BUILD

PAGE = Path(BUILD.PAGE)


def pyodide(folder: Path, version: str = BUILD.VERSION) -> Path:
    """Return an npm package in which every file holds its name, with a list of all wheels."""
    folder.mkdir()
    for name in BUILD.CORE:
        (folder / name).write_text(name)
    (folder / "package.json").write_text(json.dumps({"version": version}))
    packages: dict[str, Any] = {
        name: {"name": name, "file_name": f"{name}-1.whl", "sha256": "0", "depends": ["numpy", "x"]}
        for name in (*BUILD.PACKAGES, *BUILD.FASTER, "x")
    }
    (folder / "pyodide-lock.json").write_text(json.dumps({"info": {}, "packages": packages}))
    return folder


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy an empty file in place of the wheel of pitcheck."""

    def wheel(command: list[str], **_: Any) -> None:
        (Path(command[command.index("-w") + 1]) / "pitcheck-1-py3-none-any.whl").touch()

    monkeypatch.setattr(subprocess, "run", wheel)


def packages_of(site: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((site / "lock.json").read_text())["packages"]
    return found


@pytest.mark.usefixtures("quick")
def test_a_page_that_loads_python_from_elsewhere(tmp_path: Path) -> None:
    given, site = pyodide(tmp_path / "npm"), tmp_path / "site"
    assert BUILD.main(["--pyodide", str(given), "--out", str(site)]) == 0
    packages = packages_of(site)
    assert set(packages) == {*BUILD.PACKAGES, *BUILD.FASTER, "pitcheck"}
    assert packages["networkx"]["depends"] == ["numpy"]
    assert set(packages["pitcheck"]["depends"]) == packages.keys() - {"pitcheck"}
    settings = json.loads((site / "settings.json").read_text())
    assert settings["pyodide"] == f"https://cdn.jsdelivr.net/pyodide/v{BUILD.VERSION}/full/"
    for name, digest in settings["integrity"].items():
        kind, _, value = digest.partition("-")
        assert b64decode(value) == hashlib.new(kind, name.encode()).digest()
    assert {file.name for file in site.iterdir()} == {
        *(file.name for file in PAGE.iterdir()),
        *("lock.json", "settings.json", "examples.json", "pitcheck-1-py3-none-any.whl"),
    }
    assert "@" not in (site / "index.html").read_text()


@pytest.mark.usefixtures("quick")
def test_a_page_that_has_python_beside_it(tmp_path: Path) -> None:
    given, site, wheels = pyodide(tmp_path / "npm"), tmp_path / "site", tmp_path / "wheels"
    wheels.mkdir()
    for name in BUILD.PACKAGES:
        (wheels / f"{name}-2.5-py3-none-any.whl").write_text(name)
    command = ["--pyodide", str(given), "--out", str(site), "--wheels", str(wheels)]
    assert BUILD.main(command) == 0
    packages = packages_of(site)
    assert set(packages) == {*BUILD.PACKAGES, "pitcheck"}
    assert packages["numpy"]["version"] == "2.5"
    assert packages["numpy"]["sha256"] == hashlib.sha256(b"numpy").hexdigest()
    assert json.loads((site / "settings.json").read_text())["pyodide"] == "pyodide/"
    for name in BUILD.CORE:
        assert (site / "pyodide" / name).read_text() == name


def test_what_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given, site, empty = pyodide(tmp_path / "npm"), tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    old = pyodide(tmp_path / "old", "0.27.7")
    for arguments, message in (
        (["--pyodide", str(empty)], "lacks pyodide.mjs; run npm install pyodide@"),
        (["--pyodide", str(old)], "is Pyodide 0.27.7; run npm install pyodide@"),
        (["--pyodide", str(given), "--wheels", str(empty)], "lacks numpy-1.whl; Pyodide publishes"),
    ):
        assert BUILD.main([*arguments, "--out", str(site)]) == 2
        error = capsys.readouterr().err
        assert error.startswith("build.py: ") and message in error


@pytest.mark.slow
def test_the_wheel_holds_what_a_check_reads(tmp_path: Path) -> None:
    entry = BUILD._pitcheck(tmp_path, ["numpy"])
    file = tmp_path / entry["file_name"]
    assert entry["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    names = set(zipfile.ZipFile(file).namelist())
    report = ("page.html", "style.css", "filter.js")
    assert {f"pitcheck/report/page/{name}" for name in report} <= names
    assert "pitcheck/commands/texts.py" in names
