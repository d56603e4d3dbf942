"""The progress bar: on a terminal's stderr and nowhere else."""

from __future__ import annotations

import io

import pytest

from pitcheck.commands.check import progress_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_the_step_and_stdout_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", terminal)
    with progress_bar(wanted=True) as progress:
        assert progress is not None
        progress("stages", 3, 7)
    assert "stages" in terminal.getvalue()
    assert "42%" in terminal.getvalue() or "43%" in terminal.getvalue()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("stream", "wanted"), [(io.StringIO, True), (Terminal, False)])
def test_elsewhere_there_is_none(
    monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO], wanted: bool
) -> None:
    where = stream()
    monkeypatch.setattr("sys.stderr", where)
    with progress_bar(wanted=wanted) as progress:
        assert progress is None
    assert where.getvalue() == ""
