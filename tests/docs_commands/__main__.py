"""Run the commands of the pages, and compare what they print with what the pages show.

``PYTHONPATH=.:tests python -m docs_commands [--write] [PAGE ...]``

``PAGE``: pages whose path contains it; none: all, and the pages that are generated from code, too.
``--write``: outputs and generated pages are written anew. The exit code is 1 if something differs,
or if a command ends otherwise than its page says.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from docs_commands.blocks import PAGES, ROOT
from docs_commands.generated import GENERATED
from docs_commands.running import exit_code, follow, is_followed, rewritten


def main(arguments: Sequence[str]) -> int:
    """Compare or write the pages, and return the exit code."""
    unknown = [each for each in arguments if each.startswith("--") and each != "--write"]
    if unknown:
        sys.exit(f"no such option: {', '.join(unknown)}; there is --write")
    write = "--write" in arguments
    names = [each for each in arguments if not each.startswith("--")]
    different = 0 if names else sum(_generated(name, write) for name in GENERATED)
    for page in PAGES:
        if not names or any(name in str(page.relative_to(ROOT)) for name in names):
            different += _followed(page, write)
    return int(different > 0)


def _generated(name: str, write: bool) -> bool:
    file, text = ROOT / "docs" / name, GENERATED[name]()
    if file.exists() and file.read_text(encoding="utf-8") == text:
        return False
    print(f"docs/{name} {'is written anew' if write else 'is not what the code says'}")
    if write:
        file.write_text(text, encoding="utf-8")
    return not write


def _followed(page: Path, write: bool) -> bool:
    """Return whether the page stays wrong."""
    text = page.read_text(encoding="utf-8")
    if not is_followed(text):
        return False
    with tempfile.TemporaryDirectory() as folder:
        outcomes = follow(text, Path(folder))
    faults = [fault for each in outcomes if (fault := each.fault)]
    print(f"{page.relative_to(ROOT)}: {len(outcomes)} blocks of commands", *faults, sep="\n\n")
    if write:
        page.write_text(rewritten(text, outcomes), encoding="utf-8")
        return any(each.exit_code != exit_code(each.step, each.printed) for each in outcomes)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
