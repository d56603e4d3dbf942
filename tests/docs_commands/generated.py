"""The pages that are written from code."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping

import click

from pitcheck.cli import cli
from pitcheck.ops.operator_table import operator_table
from pitcheck.plan.schema import json_schema as plan_schema
from pitcheck.report.codes import CODES
from pitcheck.report.json import json_schema as report_schema

COMMAND_LINE = """# The command line

This page has every command and every option. It is written from the code, and `--help` behind a
command says the same. The [tutorial](tutorial.md) shows the commands at work.
[Settings](configuration.md#settings-of-check) may stand in a file.

A command that is used wrongly ends with exit code 2, and an interrupted one with 130.
An interrupted `check` prints what it knows. After SIGTERM its code is 143, and that of a mismatch
that is shown by then is 1.
"""
FINDINGS = """# All findings

This page lists every code that a finding can have, and what a finding of it means for the verdict.
Each code has a page with its meaning, an example, how it is found and how to repair it. `pitcheck
explain CODE` prints that page.

| code | title | verdict |
|---|---|---|
"""
OPTION = re.compile(r"(?<!\S)(--[\w-]+)")
BRACKETS = re.compile(r" *\[([^\]]+)\]")


def command_line() -> str:
    """Return the page of all commands."""
    sections = (_section(name, command) for name, command in commands(cli, "pitcheck"))
    return "\n".join([COMMAND_LINE, *sections])


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield a command and all that it has, each with its whole name."""
    yield name, command
    if isinstance(command, click.Group):
        for each in sorted(command.commands):
            yield from commands(command.commands[each], f"{name} {each}")


def _section(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name, max_content_width=1000, terminal_width=1000)
    usage = f"```text\n{command.get_usage(context).removeprefix('Usage: ')}\n```"
    parts = [f"## {name}", usage, *_paragraphs(command.help or ""), _options(command, context)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a help text, of 100 columns at most, with options as code."""
    return [
        textwrap.fill(OPTION.sub(r"`\1`", " ".join(paragraph.split())), 100, break_on_hyphens=False)
        for paragraph in text.split("\n\n")
    ]


def _options(command: click.Command, context: click.Context) -> str:
    records = [each.get_help_record(context) for each in command.params]
    rows = [_row(*record) for record in records if record is not None]
    head = ["| option | meaning | default, range |", "|---|---|---|"]
    return "\n".join([*head, *rows]) if rows else ""


def _row(names: str, meaning: str) -> str:
    limits = "; ".join(each.removeprefix("default: ") for each in BRACKETS.findall(meaning))
    text = BRACKETS.sub("", meaning)
    return f"| `{_cell(names)}` | {_cell(text)} | {_cell(limits)} |"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def findings() -> str:
    """Return the page that lists all codes."""
    rows = (
        f"| [{each.code}](causes/{each.code}.md) | {each.title} | {each.verdict} |\n"
        for each in CODES
    )
    return FINDINGS + "".join(rows)


def _schema(schema: Callable[[], object]) -> Callable[[], str]:
    return lambda: json.dumps(schema(), indent=1) + "\n"


GENERATED: Mapping[str, Callable[[], str]] = {
    "command-line.md": command_line,
    "codes.md": findings,
    "operators.md": operator_table,
    "plan.schema.json": _schema(plan_schema),
    "report.schema.json": _schema(report_schema),
}
"""File in ``docs`` -> what it must hold."""
