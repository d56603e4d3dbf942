"""Follow a page in a copy of the tree, and compare what its commands print."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from docs_commands.blocks import ROOT, Step, steps

COPIED = ("plans", "docs/examples", "README.md", "pyproject.toml")
PROGRAMS = ("pitcheck", "pytest", "mkdocs", "pre_commit")
"""Modules of the environment that are commands in the copy's ``.venv``."""
FOLDER = "/home/you/pitcheck"
"""Stands for the copy of the tree in what commands print."""

LEFT_OUT = (
    re.compile(r"python3 -m venv \S+(?: && )?"),
    re.compile(r"\S*pip install (?:-q )?(?:'[^']+'|[^-\s]\S*)+(?: && )?"),
    re.compile(r"\S*pytest -n auto .*"),
)
"""Parts of commands that are not run: installations, and the whole suite."""

VARYING = (
    (re.compile(r"\b\d+(\.\d+)? s\b"), "N s"),
    (re.compile(r"\bin \d+\.\d+s"), "in N s"),
    (re.compile(r"\bpitcheck \d+\.\d+\.\d+"), "pitcheck VERSION"),
    (re.compile(r"\b\d+ KiB"), "N KiB"),
)
"""What may differ between two runs, and what it is compared as."""
PROGRESS = re.compile(r"^\d+ s: .*\n", re.MULTILINE)
"""A line that a check prints to stderr every ten seconds; a fast machine prints none."""
VERDICTS = {"mismatch": 1, "invalid": 2, "Error": 2, "inconclusive": 3, "nothing checked": 5}
"""How an output begins -> the exit code of its command."""
EXIT_CODE = re.compile(r"<!-- exit code (\d+) -->")


@dataclass(frozen=True)
class Outcome:
    """What the commands of a step printed, and the exit code of the last."""

    step: Step
    printed: str
    exit_code: int

    @property
    def fault(self) -> str | None:
        """Return how the page is wrong about the step, or nothing if it is right."""
        expected = exit_code(self.step, self.printed)
        where = f"line {self.step.block.first}: {self.step.block.lines[0]}"
        if self.exit_code != expected:
            return f"{where}\nexit code {self.exit_code}, not {expected}:\n{self.printed}"
        shown = self.step.output
        if shown and compared(shown.text) != compared(self.printed):
            return f"{where}\nprints\n{self.printed}\nand not\n{shown.text}"
        return None


def exit_code(step: Step, printed: str) -> int:
    """Return the exit code that a page promises: by a comment, by the verdict it shows, or 0."""
    if stated := EXIT_CODE.fullmatch(step.block.remark):
        return int(stated[1])
    shown = printed if step.output else ""
    return next((code for start, code in VERDICTS.items() if shown.startswith(start)), 0)


def compared(text: str) -> str:
    """Return an output without what differs from run to run."""
    for varying, name in VARYING:
        text = varying.sub(name, text)
    return "".join(f"{line.rstrip()}\n" for line in text.rstrip().splitlines())


def runnable(step: Step) -> str:
    """Return the commands of a step as they are run: nothing if all of them are left out."""
    if step.reason:
        return ""
    text = step.block.text
    for part in LEFT_OUT:
        text = part.sub("", text)
    return text.strip()


def is_followed(text: str) -> bool:
    """Return whether a page has commands that are run."""
    return any(step.block.is_commands and runnable(step) for step in steps(text))


def follow(text: str, folder: Path, timeout: float = 600) -> list[Outcome]:
    """Follow a page in ``folder``, an empty one, and return what its commands did.

    The commands share one shell, so that a folder entered or a variable set stays so. Raises
    subprocess.TimeoutExpired after ``timeout`` seconds.
    """
    tree, notes = folder / "tree", folder / "notes"
    notes.mkdir()
    copy_tree(tree)
    taken = [step for step in steps(text) if step.block.title or runnable(step)]
    script = "".join(_lines(number, step, notes) for number, step in enumerate(taken))
    subprocess.run(
        ["bash", "-c", script],
        cwd=tree,
        env=environment(tree, folder),
        stdin=subprocess.DEVNULL,
        check=True,
        timeout=timeout,
    )
    return [
        Outcome(step, _printed(notes / f"{number}.out", tree), int(_read(notes / f"{number}.code")))
        for number, step in enumerate(taken)
        if not step.block.title
    ]


def _lines(number: int, step: Step, notes: Path) -> str:
    """Return the shell's lines for a step: save its file, or run its commands."""
    content = notes / f"{number}.step"
    content.write_text(step.block.text if step.block.title else f"{runnable(step)}\n")
    here = shlex.quote(str(content))
    if step.block.title:
        return f"cp {here} {shlex.quote(step.block.title)} || exit 1\n"
    output, code = (shlex.quote(str(notes / f"{number}.{each}")) for each in ("out", "code"))
    return f". {here} > {output} 2>&1\necho $? > {code}\n"


def copy_tree(tree: Path) -> None:
    """Copy what commands read to ``tree``, with an environment in ``.venv``."""
    for name in COPIED:
        source, target = ROOT / name, tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    scripts = tree / ".venv" / "bin"
    scripts.mkdir(parents=True)
    for module in PROGRAMS:
        _script(scripts / module.replace("_", "-"), f"-m {module}")
    for name in ("python", "python3"):
        _script(scripts / name, "")
    (scripts / "activate").write_text(f"PATH={shlex.quote(str(scripts))}:$PATH\n")


def _script(file: Path, arguments: str) -> None:
    file.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments} "$@"\n')
    file.chmod(0o755)


def environment(tree: Path, folder: Path) -> dict[str, str]:
    """Return the variables of a reader's shell, in which ``pitcheck`` is that of this tree."""
    name = {"NAME": "You", "EMAIL": "you@example.org"}
    return {
        "PATH": f"{tree / '.venv' / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "COLUMNS": "100",
        "GIT_CONFIG_NOSYSTEM": "1",
        **{
            f"GIT_{who}_{key}": value
            for who in ("AUTHOR", "COMMITTER")
            for key, value in name.items()
        },
    }


def _printed(file: Path, tree: Path) -> str:
    printed = _read(file).replace(str(tree.resolve()), FOLDER).replace(str(tree), FOLDER)
    return PROGRESS.sub("", printed)


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def rewritten(text: str, outcomes: Sequence[Outcome]) -> str:
    """Return the page with the outputs that its commands print now.

    An output that differs in times and versions alone stays as it is.
    """
    lines = text.splitlines()
    for outcome in reversed(outcomes):
        shown = outcome.step.output
        if shown and compared(shown.text) != compared(outcome.printed):
            lines[shown.first : shown.end] = outcome.printed.rstrip().splitlines()
    return "".join(f"{line}\n" for line in lines)
