"""The progress of a check: on a terminal's stderr after a while, and when it is interrupted."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from conftest import Call, Checker

from pitcheck.commands import progress
from pitcheck.commands.progress import watched

DEMO = Path(__file__).parents[2] / "plans" / "demo"
SIDES = ("reference", "megatron")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "AFTER", 0.0)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.usefixtures("at_once")
def test_a_terminal_sees_the_step_and_stdout_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with watched(shown=True) as tell:
        tell("stages", 3, 7)
    assert "stages" in terminal.getvalue()
    assert "3 of 7" in terminal.getvalue()
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("stream", "shown"), [(io.StringIO, True), (Terminal, False)])
def test_elsewhere_nothing_is_shown(
    monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO], shown: bool
) -> None:
    where = stream()
    monkeypatch.setattr("sys.stderr", where)
    with watched(shown=shown) as tell:
        tell("stages", 3, 7)
    assert where.getvalue() == ""


def test_a_quick_check_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with watched(shown=True) as tell:
        tell("stages", 3, 7)
    assert terminal.getvalue() == ""


def test_an_interrupt_says_what_was_reached() -> None:
    with pytest.raises(KeyboardInterrupt, match="3 of 7 stages"), watched(shown=False) as tell:
        tell("stages", 3, 7)
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt, match="before anything"), watched(shown=False):
        raise KeyboardInterrupt


def test_the_command_line_prints_it(call: Call, checker: Checker) -> None:
    checker(KeyboardInterrupt())
    result = call("check", *(str(DEMO / f"mlp-L4.{side}.plan.json") for side in SIDES))
    assert (result.code, result.out) == (130, "")
    assert result.err == "pitcheck: interrupted before anything was proven\n"
