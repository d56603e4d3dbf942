"""Fixtures of the command line's tests: a call that returns code, stdout and stderr, and a folder
for each test.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from pitcheck.cli import main
from pitcheck.report.report import Report


class Result(NamedTuple):
    code: int
    out: str
    err: str


Call = Callable[..., Result]
Checker = Callable[[object], None]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a pyproject.toml that sets nothing, so that none from above is
    found.
    """
    (tmp_path / "pyproject.toml").write_text("[tool.pitcheck]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: str) -> Result:
        code = main(list(arguments))
        return Result(code, *capfd.readouterr())

    return run


@pytest.fixture
def checker(monkeypatch: pytest.MonkeyPatch) -> Checker:
    """Puts a checker in the place of the real one: it returns a report or raises, and keeps the
    options it was given.
    """

    def install(answer: object) -> None:
        module = ModuleType("pitcheck.engine.check")

        def check(
            reference: object,
            parallel: object,
            options: object,
            progress: object = None,
            load_seconds: float = 0.0,
            again: object = None,
            decided: object = None,
            causes: object = (),
        ) -> Report:
            module.options = options  # type: ignore[attr-defined]
            if isinstance(answer, BaseException):
                raise answer
            assert isinstance(answer, Report)
            return answer

        module.check = check  # type: ignore[attr-defined]
        monkeypatch.setitem(__import__("sys").modules, "pitcheck.engine.check", module)

    return install
