"""The callable behind the fixture ``pitcheck_check``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click
import pytest

from pitcheck.base.options import Options
from pitcheck.cli import check as command
from pitcheck.commands.defaults import with_configuration
from pitcheck.commands.number_options import parse_memory, parse_probability_log2
from pitcheck.errors import PitcheckError, UsageError
from pitcheck.plan.model import Plan
from pitcheck.pytest_plugin.marks import Case
from pitcheck.pytest_plugin.subjects import Subject, report_on
from pitcheck.pytest_plugin.tally import Tally
from pitcheck.report.report import Report
from pitcheck.report.text import render
from pitcheck.torch import Spec

Source = str | os.PathLike[str] | Plan | Spec
"""A source as ``pitcheck check`` takes it, or a plan or specification in memory."""


class Checker:
    """A function that fails its test unless what it is given is proven equivalent."""

    def __init__(self, case: Case, tally: Tally, folder: Path) -> None:
        """Make the checks of ``case``, count them in ``tally``, save witnesses in ``folder``."""
        self._case, self._tally, self._folder = case, tally, folder

    def __call__(
        self,
        reference: Source,
        parallel: Source | None = None,
        *,
        assignments: Sequence[str] = (),
        error_bound: str | float | None = None,
        estimates: str | None = None,
        precision: str | None = None,
    ) -> Report:
        """Return the report on two plans, or on one source that stands for both.

        ``assignments`` change a configuration as ``--set KEY=VALUE`` does. The options win over
        those of the mark, and these over the settings of the project. The test fails, with the
        report as its text, unless every output is proven and the exit code of the command would be
        0. A wrong argument fails it, too.
        """
        __tracebackhide__ = True
        self._tally.begun += 1
        given = {"error_bound": error_bound, "estimates": estimates, "precision": precision}
        at_call = {name: str(value) for name, value in given.items() if value is not None}
        chosen = {**self._case.options, **at_call}
        subject = Subject(_named(reference), _named(parallel), tuple(assignments), self._case.mesh)
        try:
            options = self._options(chosen)
            report = report_on(subject, options)
        except PitcheckError as error:
            self._fail(f"pitcheck: {error}")
        if not _holds(report):
            self._fail(_text(report, subject, chosen))
        self._tally.passed += 1
        return report

    def _options(self, chosen: Mapping[str, str]) -> Options:
        """Return the options of the check, as the command would read them with the settings.

        Raises UsageError for a value that an option does not take.
        """
        seed = [] if self._case.seed is None else [f"--seed={self._case.seed}"]
        try:
            context = command.make_context("check", [*seed, *_arguments(chosen), "in memory"])
        except click.ClickException as error:
            raise UsageError(error.format_message()) from None
        with context:
            values = with_configuration(context, context.params)
        return _options_of(values, self._folder)

    def _fail(self, text: str) -> NoReturn:
        __tracebackhide__ = True
        self._tally.failures.append(text)
        pytest.fail(text, pytrace=False)


def _options_of(values: Mapping[str, Any], folder: Path) -> Options:
    """Return the options that decide about a verdict; a test remembers and shares nothing.

    Raises UsageError for layers that settings leave out: plans are given to a test as they are.
    """
    if values["layers"] != "all":
        raise UsageError(
            f"layers is {values['layers']!r}, which a test does not read; write keep_layers = "
            f"{values['layers']!r} into the configuration, or give it among the settings"
        )
    jobs = values["jobs"] or 1
    return Options(
        error_bound_log2=parse_probability_log2(values["error_bound"]),
        trials=values["trials"],
        seed=values["seed"] or 0,
        backend=values["backend"],
        shapes=values["shapes"],
        coordinates=values["coordinates"],
        jobs=jobs,
        max_memory=parse_memory(values["max_memory"], values["backend"], values["shapes"], jobs),
        witness_directory=folder,
        precision=values["precision"],
        estimates=values["estimates"],
        explain=values["explain"],
        seconds=values["seconds"],
    )


def _named(source: Source | None) -> str | Plan | Spec | None:
    return os.fspath(source) if isinstance(source, os.PathLike) else source


def _holds(report: Report) -> bool:
    """Return True if a report says that all is proven, and that something was."""
    proven = 0 < report.outputs.proven == report.outputs.total
    return report.verdict == "equivalent" and report.exit_code == 0 and proven


def _arguments(chosen: Mapping[str, str]) -> list[str]:
    """Return options as arguments of the command."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in chosen.items()]


def _text(report: Report, subject: Subject, chosen: Mapping[str, str]) -> str:
    """Return the report as the command prints it, and the command that prints it again."""
    lines = [line.text for line in render(report)]
    if (sources := subject.arguments()) is not None:
        again = [*sources, f"--seed={report.seed}", *_arguments(chosen)]
        lines += ["", f"again        pitcheck check {shlex.join(again)}"]
    return "\n".join(lines)
