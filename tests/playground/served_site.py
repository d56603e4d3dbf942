"""The playground, built and served on this machine, from packages that are kept between runs."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any
from urllib.request import urlopen

import pytest

ROOT = Path(__file__).parents[2]
WHEELS = "PITCHECK_PYODIDE_WHEELS"
"""The variable that names a folder of wheels for Pyodide."""
FROM_PYPI = ("msgspec", "networkx", "mpmath", "jinja2")
"""The packages of which PyPI has a wheel for Pyodide, or one for every platform."""


def builder() -> ModuleType:
    """Return the module that builds the page."""
    spec = importlib.util.spec_from_file_location("build", ROOT / "docs/playground/build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BUILD = builder()


def made(name: str, make: Any) -> Path:
    """Return a folder for this version of Pyodide outside of the repository, made once.

    ``make`` fills an empty folder; the result appears whole or not at all.
    """
    folder = Path(tempfile.gettempdir()) / f"pitcheck-playground-{BUILD.VERSION}" / name
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=folder.parent))
        try:
            make(fresh)
            with suppress(OSError):  # another process was first
                fresh.rename(folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return folder


def node_modules() -> Path:
    """Return the folder with the npm packages; skip the test where they are not to be had."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed (apt-get install npm)")

    def install(folder: Path) -> None:
        packages = [f"pyodide@{BUILD.VERSION}", "axe-core@4"]
        command = [npm, "install", "--silent", "--prefix", str(folder), *packages]
        ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
        if ran.returncode:
            pytest.skip(f"npm cannot install {' '.join(packages)}: {ran.stderr[-300:]}")

    return made("npm", install) / "node_modules"


def wheels(pyodide: Path) -> Path:
    """Return the folder of wheels for Pyodide, with as many as are to be had."""
    given = os.environ.get(WHEELS)
    if given:
        return Path(given)
    known = json.loads((pyodide / "pyodide-lock.json").read_text())["packages"]

    def download(folder: Path) -> None:
        if not _published(known, folder):
            for name in FROM_PYPI:
                _from_pypi(name, known[name]["version"], folder)
            _pure_markupsafe(known["markupsafe"]["version"], folder)

    return made("wheels", download)


def _published(known: dict[str, Any], folder: Path) -> bool:
    """Download the wheels that Pyodide publishes; return False where they are not reached."""
    for name in (*BUILD.PACKAGES, *BUILD.FASTER):
        file = known[name]["file_name"]
        try:
            with urlopen(BUILD.CDN + file, timeout=20) as answer:
                content = answer.read()
        except OSError:
            return False
        assert hashlib.sha256(content).hexdigest() == known[name]["sha256"], file
        (folder / file).write_bytes(content)
    return True


def _from_pypi(name: str, version: str, folder: Path) -> None:
    """Download a wheel of a package: of one version if it is for every platform."""
    for wanted in (f"{name}=={version}", name):
        platform = "--platform pyemscripten_2026_0_wasm32 --python-version 3.14 --abi cp314 "
        options = f"{platform} --implementation cp --no-deps --only-binary=:all: -q".split()
        command = [sys.executable, "-m", "pip", "download", *options, "-d", str(folder), wanted]
        if not subprocess.run(command, check=False, capture_output=True, timeout=300).returncode:
            return


def _pure_markupsafe(version: str, folder: Path) -> None:
    """Build the wheel of markupsafe without its compiled part, as it does without a compiler."""
    options = ["-q", "--no-deps", "--no-binary", "markupsafe", "-w", str(folder)]
    command = [sys.executable, "-m", "pip", "wheel", *options, f"markupsafe=={version}"]
    environment = {**os.environ, "CC": "false", "CXX": "false"}
    subprocess.run(command, check=False, capture_output=True, timeout=300, env=environment)


def built(folder: Path) -> Path:
    """Build the page into a folder with the packages that are to be had, and return it."""
    pyodide = node_modules() / "pyodide"
    BUILD.build(folder, pyodide, wheels(pyodide), whole=False)
    return folder


def lacking(site: Path) -> list[str]:
    """Return the packages that a check imports and that a site lacks."""
    held = json.loads((site / "lock.json").read_text())["packages"]
    return [name for name in BUILD.PACKAGES if name not in held]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Yield the address at which a folder is served."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site)))
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/index.html"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
