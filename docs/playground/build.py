"""Make the folder of the playground: a static page that runs pitcheck in a browser.

    python docs/playground/build.py --pyodide node_modules/pyodide --out site

``--pyodide`` is the npm package ``pyodide``, of the version below. The page loads Python from
``CDN``, and holds each file against the digest that this package or its list of wheels has for it.
With ``--wheels`` it loads nothing from elsewhere: Python and the wheels are copied beside it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from pitcheck import __version__  # noqa: E402
from pitcheck.errors import UsageError  # noqa: E402
from pitcheck.report.html import policy_digests  # noqa: E402

VERSION = "314.0.7"
"""The version of Pyodide."""
CDN = f"https://cdn.jsdelivr.net/pyodide/v{VERSION}/full/"
"""The place from which a page without ``--wheels`` loads Python."""
LOCAL = "pyodide/"
"""The folder beside the page that has Python with ``--wheels``."""
CORE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip")
PACKAGES = ("numpy", "msgspec", "mpmath", "networkx", "jinja2", "markupsafe")
"""The packages that a check imports."""
FASTER = ("gmpy2",)
"""Packages that a check is slower without."""
PAGE = Path(__file__).parent / "page"
EXAMPLES = Path(__file__).parent / "examples"
DEMO = ROOT / "plans" / "demo"

Lock = dict[str, dict[str, Any]]


def build(out: Path, pyodide: Path, wheels: Path | None = None, *, whole: bool = True) -> None:
    """Write the page into a folder.

    ``pyodide`` is the npm package; ``wheels`` a folder of wheels that are copied with Python, None
    to load both from ``CDN``. Without ``whole``, packages that ``wheels`` lacks are left out: a
    check that needs them fails. Raises UsageError for files that are missing or of another version.
    """
    known = _lock(pyodide)
    out.mkdir(parents=True, exist_ok=True)
    packages = _published(known) if wheels is None else _copied(known, wheels, out, whole=whole)
    packages["pitcheck"] = _pitcheck(out, sorted(packages))
    if wheels is not None:
        for name in CORE:
            shutil.copy(pyodide / name, out / LOCAL / name)
    _write(out / "lock.json", {**known, "packages": packages})
    _write(out / "settings.json", _settings(pyodide, CDN if wheels is None else LOCAL))
    _write(out / "examples.json", _examples())
    for file in PAGE.iterdir():
        shutil.copy(file, out / file.name)
    (out / "index.html").write_text(_page(), encoding="utf-8")


def _lock(pyodide: Path) -> dict[str, Any]:
    """Return the list of wheels of the npm package."""
    missing = [name for name in (*CORE, "pyodide-lock.json") if not (pyodide / name).is_file()]
    if missing:
        raise UsageError(f"{pyodide} lacks {missing[0]}; run npm install pyodide@{VERSION}")
    version = json.loads((pyodide / "package.json").read_text(encoding="utf-8"))["version"]
    if version != VERSION:
        raise UsageError(f"{pyodide} is Pyodide {version}; run npm install pyodide@{VERSION}")
    lock: dict[str, Any] = json.loads((pyodide / "pyodide-lock.json").read_text(encoding="utf-8"))
    return lock


def _published(known: dict[str, Any]) -> Lock:
    """Return the entries of the packages as Pyodide publishes them, and no others.

    What a package may use beyond that, as networkx does with matplotlib, is left out.
    """
    names = (*PACKAGES, *(name for name in FASTER if name in known["packages"]))
    return {name: _alone(known["packages"][name], names) for name in names}


def _alone(entry: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {**entry, "depends": [name for name in entry["depends"] if name in names]}


def _copied(known: dict[str, Any], wheels: Path, out: Path, *, whole: bool) -> Lock:
    """Copy the wheels of the packages, and return their entries."""
    (out / LOCAL).mkdir(exist_ok=True)
    entries: Lock = {}
    for name in (*PACKAGES, *FASTER):
        found = sorted(wheels.glob(f"{name}-*.whl"))
        if found:
            shutil.copy(found[-1], out / LOCAL / found[-1].name)
            entries[name] = _entry(name, found[-1], [])
        elif whole and name in PACKAGES:
            file = known["packages"][name]["file_name"]
            raise UsageError(f"{wheels} lacks {file}; Pyodide publishes it at {CDN}")
    return {name: _alone(entry, [*entries]) for name, entry in entries.items()}


def _entry(name: str, wheel: Path, depends: Sequence[str]) -> dict[str, Any]:
    return {
        "name": name,
        "version": wheel.name.split("-")[1],
        "file_name": wheel.name,
        "install_dir": "site",
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "package_type": "package",
        "imports": [name],
        "depends": list(depends),
    }


def _pitcheck(out: Path, depends: Sequence[str]) -> dict[str, Any]:
    """Build the wheel of pitcheck from this checkout, and return its entry."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, str(ROOT)]
        subprocess.run(command, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        return _entry("pitcheck", Path(shutil.copy(wheel, out)), depends)


def _settings(pyodide: Path, base: str) -> dict[str, Any]:
    return {
        "pyodide": base,
        "integrity": {name: _digest((pyodide / name).read_bytes()) for name in CORE},
    }


def _digest(content: bytes) -> str:
    return f"sha384-{b64encode(hashlib.sha384(content).digest()).decode('ascii')}"


def _examples() -> list[dict[str, Any]]:
    """Return the examples: title and texts by name."""
    listed = json.loads((EXAMPLES / "examples.json").read_text(encoding="utf-8"))
    return [
        {
            "title": example["title"],
            "texts": {
                name: (ROOT / file).read_text(encoding="utf-8")
                for name, file in example["texts"].items()
            },
        }
        for example in listed
    ]


def _page() -> str:
    """Return the page with its policy: files beside it, and the style and script of a report.

    A frame takes over the policy of the page that holds it.
    """
    style, script = policy_digests()
    policy = (
        f"default-src 'none'; base-uri 'none'; form-action 'none'; connect-src 'self'; "
        f"worker-src 'self'; script-src 'self' '{script}'; style-src 'self' '{style}'"
    )
    page = (PAGE / "index.html").read_text(encoding="utf-8")
    values = {"POLICY": policy, "VERSION": __version__}
    return re.sub(r"@([A-Z]+)@", lambda found: values[found.group(1)], page)


def _write(file: Path, content: object) -> None:
    file.write_text(json.dumps(content, sort_keys=True) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pyodide", type=Path, required=True, help="the npm package")
    parser.add_argument("--out", type=Path, required=True, help="the folder that is written")
    parser.add_argument("--wheels", type=Path, help="wheels that are copied with Python")
    given = parser.parse_args(arguments)
    try:
        build(given.out, given.pyodide, given.wheels)
    except UsageError as error:
        sys.stderr.write(f"build.py: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
