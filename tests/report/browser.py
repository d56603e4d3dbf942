"""A headless Chromium that opens a page and says what a script finds in it."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
COMMON = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SWITCHES = (*COMMON, "--virtual-time-budget=20000", "--dump-dom")
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
FOUND = re.compile(r'<pre id="found-by-the-test">(.*?)</pre>', re.DOTALL)


def chromium() -> str:
    """Return the browser's path; skip the test where there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"none of {', '.join(NAMES)} is installed (apt-get install chromium)")
    return found


def axe() -> str:
    """Return the source of axe-core; skip the test where it is not installed."""
    folders = [Path(each) for each in os.environ.get("NODE_PATH", "").split(os.pathsep) if each]
    for folder in (*folders, ROOT / "node_modules"):
        file = folder / "axe-core" / "axe.min.js"
        if file.is_file():
            return file.read_text(encoding="utf-8")
    pytest.skip("axe-core is not below NODE_PATH or ./node_modules (npm install axe-core)")


def ask(page: str, script: str, folder: Path, width: int, *, dark: bool = False) -> Any:
    """Return what ``script``, the body of an async function, returns in a page.

    The page stands in a frame, because windows have a least width. Its policy is taken off, so that
    nothing but its text holds names back.
    """
    asking = (
        "<script>(async () => { let found; "
        f"try {{ found = await (async () => {{ {script} }})(); }} "
        "catch (error) { found = { failed: String(error) }; } "
        "const out = parent.document.createElement('pre'); out.id = 'found-by-the-test'; "
        "out.textContent = JSON.stringify(found); parent.document.body.append(out); })();</script>"
    )
    bare, count = POLICY.subn("", page)
    assert count == 1
    file = folder / "asked.html"
    head, end, tail = bare.rpartition("</body>")
    framed = html.escape(head + asking + end + tail)
    file.write_text(
        f'<!DOCTYPE html><meta charset="utf-8"><body>'
        f'<iframe style="width:{width}px;height:900px;border:0" srcdoc="{framed}"></iframe></body>',
        encoding="utf-8",
    )
    ran = subprocess.run(
        [
            chromium(),
            *SWITCHES,
            f"--user-data-dir={folder / 'browser'}",
            "--window-size=1600,1000",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            file.as_uri(),
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = FOUND.search(ran.stdout)
    assert found is not None, ran.stderr[-2000:]
    return json.loads(html.unescape(found.group(1)))
