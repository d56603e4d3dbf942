"""Commands of the pages print what the pages show, and pages made from code say what it says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from docs_commands.blocks import PAGES, ROOT, Step, steps
from docs_commands.generated import GENERATED, commands
from docs_commands.running import compared, follow, is_followed, rewritten, runnable

from pitcheck.cli import cli

NEEDED = {
    "docs/mutation.md": ("torch",),
    "docs/pytorch.md": ("torch",),
    "docs/tutorial.md": ("torch", "pre_commit"),
}
"""Page whose commands run PyTorch, which is slow -> the packages that it needs."""
MOST_NOT_RUN = 6
"""Blocks of commands with a reason why nothing runs them, on all pages."""


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


FOLLOWED = [
    pytest.param(page, marks=[pytest.mark.slow] if _name(page) in NEEDED else [], id=_name(page))
    for page in PAGES
    if is_followed(_text(page))
]


@pytest.mark.parametrize("page", FOLLOWED)
def test_commands_print_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    for package in NEEDED.get(_name(page), ()):
        pytest.importorskip(package)
    faults = [each.fault for each in follow(_text(page), tmp_path) if each.fault]
    assert not faults, "\n\n".join([*faults, "PYTHONPATH=.:tests python -m docs_commands --write"])


@pytest.mark.parametrize("name", GENERATED)
def test_pages_made_from_code_say_what_it_says(name: str) -> None:
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == GENERATED[name](), (
        "PYTHONPATH=.:tests python -m docs_commands --write"
    )


def test_few_commands_are_not_run() -> None:
    reasons = {
        f"{_name(page)}: {step.block.lines[0]}": step.reason
        for page in PAGES
        for step in steps(_text(page))
        if step.reason
    }
    assert len(reasons) <= MOST_NOT_RUN, reasons
    assert all(len(reason) > 10 for reason in reasons.values()), reasons


OPTIONS = dict(commands(cli, "pitcheck"))
INLINE = re.compile(r"`(pitcheck [^`]+)`")
IN_WORKFLOW = re.compile(r"(?:run|script|entry): (?:>-\n +)?(pitcheck .*)")
IN_BLOCK = re.compile(r"^(?:.* )?(?:\S+/)?(pitcheck .*)", re.MULTILINE)


BEHIND = re.compile(r"#|&&|\|")
"""What ends a command on its line."""


def _mentioned(text: str) -> Iterator[str]:
    """Yield the commands that a page mentions in its prose, workflows and blocks."""
    yield from INLINE.findall(text.replace("\n", " "))
    yield from IN_WORKFLOW.findall(text)
    for step in steps(text):
        if step.block.is_commands:
            yield from IN_BLOCK.findall(step.block.text.replace("\\\n", ""))


def _unknown(line: str) -> list[str]:
    """Return the commands and options of a line that pitcheck does not have."""
    words = shlex.split(BEHIND.split(line, maxsplit=1)[0])
    name = words.pop(0)
    while words and f"{name} {words[0]}" in OPTIONS:
        name = f"{name} {words.pop(0)}"
    command = OPTIONS[name]
    known = {"--help", "-h"}
    for each in command.params:
        known |= {*each.opts, *each.secondary_opts}
    unknown = [each for each in words if each.startswith("-") and each != "-"]
    unknown = [each for each in unknown if each.split("=")[0] not in known]
    no_command = isinstance(command, click.Group) and words and words[0].islower()
    return [*unknown, *(words[:1] if no_command else [])]


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_pages_mention_commands_that_exist(page: Path) -> None:
    for line in _mentioned(_text(page)):
        assert not _unknown(line), line


def test_an_option_or_command_that_does_not_exist_is_found() -> None:
    assert _unknown("pitcheck check A B --sed 1 --seed=1 -q") == ["--sed"]
    assert _unknown("pitcheck cache show") == ["show"]
    assert not _unknown("pitcheck cache COMMAND --help")


PAGE = """
Save this:

```python title="hello.py"
print("hello, after 1.5 s")
```

```
python hello.py
```

It prints

```
hello, after 0.1 s
```

<!-- exit code 3 -->

```
cd plans && python -c 'import os; print(os.getcwd()); raise SystemExit(3)'
```

```
/home/you/pitcheck/plans
```

<!-- not run: there is no such program -->

```
pip install nothing
```
"""


def _faults(text: str, folder: Path) -> list[str]:
    folder.mkdir()
    return [each.fault for each in follow(text, folder) if each.fault]


def test_a_right_page_is_followed_in_its_order(tmp_path: Path) -> None:
    assert not _faults(PAGE, tmp_path / "right")
    assert [step.reason for step in steps(PAGE) if step.block.is_commands][-1] is not None


@pytest.mark.parametrize(
    ("right", "wrong", "fault"),
    [
        ("hello, after 0.1 s", "hello, after 0.1 h", "prints\nhello, after 1.5 s"),
        ("exit code 3", "exit code 1", "exit code 3, not 1"),
        ("/home/you/pitcheck/plans", "/home/you/plans", "pitcheck/plans"),
        ("python hello.py", "python hallo.py", "exit code 2, not 0"),
    ],
)
def test_what_a_page_says_wrongly_is_found(
    right: str, wrong: str, fault: str, tmp_path: Path
) -> None:
    (found,) = _faults(PAGE.replace(right, wrong), tmp_path / "wrong")
    assert fault in found


def test_outputs_are_written_anew(tmp_path: Path) -> None:
    wrong = PAGE.replace("hello, after 0.1 s", "hallo").replace("pitcheck/plans", "plans")
    outcomes = follow(wrong, tmp_path)
    assert rewritten(wrong, outcomes) == PAGE.replace("after 0.1 s", "after 1.5 s")
    assert rewritten(PAGE, outcomes[:0]) == PAGE


def test_a_block_that_nothing_prints_is_refused() -> None:
    with pytest.raises(ValueError, match="line 1: no command prints this block"):
        steps("```\na drawing\n```\n")


def _runnable(line: str) -> str:
    (step,) = steps(f"```\n{line}\n```\n")
    assert isinstance(step, Step)
    return runnable(step)


def test_installations_and_the_suite_are_left_out() -> None:
    install = "python3 -m venv .venv && .venv/bin/pip install -q '.[torch]' && "
    assert _runnable(f"{install}.venv/bin/pitcheck demo") == ".venv/bin/pitcheck demo"
    assert _runnable(f"{install}.venv/bin/pytest -n auto -m 'not slow'") == ""
    assert _runnable("pip install pre-commit") == ""


def test_times_and_versions_are_not_compared() -> None:
    assert compared("8 ranks, 0.77 s\n\n") == compared("8 ranks, 10.2 s")
    assert compared("pitcheck 0.1.0, 1 passed in 3.25s") == compared(
        "pitcheck 0.2.0, 1 passed in 4.11s"
    )
    assert compared("8 ranks") != compared("4 ranks")
