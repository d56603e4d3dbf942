"""Where reports go: options, files, devices, descriptors and the console."""

from __future__ import annotations

import io
import os
import re
import stat
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report.report_samples import MISSING, samples

from pitcheck.errors import UsageError
from pitcheck.report.destinations import (
    Destination,
    check_destinations,
    exit_code_after,
    parse_destination,
    write_everywhere,
    write_whole,
)
from pitcheck.report.json import decode
from pitcheck.report.text import render
from pitcheck.report.write import FORMATS, write_report


@pytest.mark.parametrize("text", ["json:a.json", "text:-", "json:-", "text:a:b"])
def test_destinations(text: str) -> None:
    format_, _, file = text.partition(":")
    assert parse_destination(text, FORMATS) == Destination(format_, file)


@given(st.text(max_size=30))
def test_junk_destinations_name_the_formats(text: str) -> None:
    if text.split(":", maxsplit=1)[0] in FORMATS:
        return
    with pytest.raises(UsageError, match="text, json, html, jsonl, junit, sarif, github"):
        parse_destination(text, FORMATS)


@pytest.mark.parametrize("format_", FORMATS)
def test_a_format_alone_goes_to_standard_output_but_no_file_is_unnamed(format_: str) -> None:
    assert parse_destination(format_, FORMATS) == Destination(format_, "-")
    with pytest.raises(UsageError, match="no file"):
        parse_destination(f"{format_}:", FORMATS)


def test_colliding_and_unwritable_destinations(tmp_path: Path) -> None:
    file = tmp_path / "a"
    same = tmp_path / "." / "x" / ".." / "a"
    for pair in (["-", "-"], [str(file), str(file)], [str(file), str(same)]):
        with pytest.raises(UsageError, match="two outputs"):
            check_destinations([Destination("json", each) for each in pair])
    with pytest.raises(UsageError, match="does not exist"):
        check_destinations([Destination("json", str(tmp_path / "none" / "a"))])
    with pytest.raises(UsageError, match="is a directory"):
        check_destinations([Destination("json", str(tmp_path))])
    check_destinations([Destination("json", str(file)), Destination("text", "-")])


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "report.json"
    file.write_bytes(b"old")

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(file, b"new")
    assert file.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["report.json"]


def test_all_destinations_are_tried_and_stdout_is_printed(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    good = tmp_path / "good.json"
    bad = tmp_path / "gone" / "bad.json"
    with pytest.raises(UsageError, match=r"bad\.json"):
        write_report(
            samples()["invalid"], [Destination("json", str(bad)), Destination("json", str(good))]
        )
    assert decode(good.read_bytes()).verdict == "invalid"
    assert capsysbinary.readouterr().out.startswith(b"error[PIT001]: ")


def test_files_follow_the_umask_links_are_kept_and_devices_are_written_to(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "plain", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "plain").stat().st_mode) == 0o640
    (tmp_path / "link").symlink_to(tmp_path / "plain")
    write_whole(tmp_path / "link", b"y")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "plain").read_bytes() == b"y"
    write_whole(Path(os.devnull), b"z")
    assert not Path(os.devnull).is_file()


def test_stdout_takes_one_format_only(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    write_report(samples()["mismatch"], [Destination("json", "-")])
    assert decode(capsysbinary.readouterr().out) == samples()["mismatch"]


class Stream(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize(
    ("terminal", "variables", "red", "escapes"),
    [
        (True, {}, True, True),
        (True, {"NO_COLOR": "1"}, False, True),
        (True, {"TERM": "dumb"}, False, False),
        (False, {}, False, False),
        (False, {"FORCE_COLOR": "1"}, True, True),
        (False, {"FORCE_COLOR": ""}, False, False),
        (False, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, True),
    ],
)
def test_a_terminal_gets_colour_and_the_same_words(
    terminal: bool,
    variables: dict[str, str],
    red: bool,
    escapes: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Stream(terminal)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm-256color", **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout", stream)
    write_report(samples()["repaired"], [])
    assert ("\x1b[1;31m" in stream.getvalue()) == red
    assert ("\x1b[32m" in stream.getvalue()) == red
    assert ("\x1b[" in stream.getvalue()) == escapes
    assert MISSING.title in stream.getvalue()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
    assert plain.split() == [
        word for line in render(samples()["repaired"]) for word in line.text.split()
    ]


# --- names of open files


@pytest.mark.parametrize("file", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/dev/fd/01"])
def test_names_of_standard_output_are_standard_output(file: str) -> None:
    assert parse_destination(f"json:{file}", FORMATS) == Destination("json", "-")


def test_a_name_with_a_nul_character_is_refused() -> None:
    with pytest.raises(UsageError, match="NUL"):
        parse_destination("json:a\0b", FORMATS)


def test_a_descriptor_is_written_where_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("before\n")
    with file.open("ab") as opened:
        destination = Destination("json", f"/dev/fd/{opened.fileno()}")
        check_destinations([destination])
        write_everywhere([destination], lambda _: b"report\n")
    assert file.read_text() == "before\nreport\n"


def test_a_descriptor_that_takes_nothing_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with (tmp_path / "a").open() as opened, pytest.raises(UsageError, match="not open for writing"):
        check_destinations([Destination("json", f"/dev/fd/{opened.fileno()}")])
    with pytest.raises(UsageError, match="descriptor 999999 is not open"):
        check_destinations([Destination("json", "/dev/fd/999999")])


def test_two_names_of_one_file_collide(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("")
    (tmp_path / "hard").hardlink_to(file)
    (tmp_path / "soft").symlink_to(file)
    with file.open("ab") as opened:
        for other in ("hard", "soft", f"/dev/fd/{opened.fileno()}"):
            names = [Destination("json", str(file)), Destination("sarif", str(tmp_path / other))]
            with pytest.raises(UsageError, match=r"two outputs go to .*, which is .*"):
                check_destinations(names)
    check_destinations([Destination("json", "/dev/null"), Destination("text", str(file))])


def test_a_file_that_standard_output_goes_to_collides_with_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "out").open("w") as printed, (tmp_path / "other").open("w"):
        monkeypatch.setattr(sys, "stdout", printed)
        with pytest.raises(UsageError, match="out, which is standard output"):
            check_destinations([Destination("json", str(tmp_path / "out"))])
        check_destinations([Destination("json", str(tmp_path / "other"))])


@pytest.mark.parametrize(
    ("denied", "said"),
    [("a", "no permission to write .*a; "), (".", "no permission to write in directory")],
)
def test_no_permission_is_said_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, denied: str, said: str
) -> None:
    (tmp_path / "a").write_text("")
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != tmp_path / denied)
    with pytest.raises(UsageError, match=said):
        check_destinations([Destination("json", str(tmp_path / "a"))])


def test_a_plan_that_is_read_is_not_written_over(tmp_path: Path) -> None:
    plan = tmp_path / "a.plan.json"
    plan.write_text("{}")
    (tmp_path / "link").symlink_to(plan)
    for name in (plan, tmp_path / "link"):
        with pytest.raises(UsageError, match="which is a plan"):
            check_destinations([Destination("json", str(name))], ["none", str(plan)])
    check_destinations([Destination("json", str(tmp_path / "b"))], ["none", str(plan)])


@pytest.mark.parametrize("name", ["a" * 255, "模" * 85])
def test_a_name_may_be_as_long_as_the_file_system_takes(tmp_path: Path, name: str) -> None:
    write_whole(tmp_path / name, b"x")
    assert (tmp_path / name).read_bytes() == b"x"
    assert len(list(tmp_path.iterdir())) == 1


# --- failures


def test_every_failure_is_named_and_the_text_goes_to_stderr_if_nothing_else_takes_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = [Destination("json", str(tmp_path / "gone" / name)) for name in ("a", "b")]
    with pytest.raises(UsageError, match=r"/a: No such file.*/b: No such file"):
        write_report(samples()["mismatch"], gone)
    shown = capfd.readouterr()
    assert (shown.out[:9], shown.err) == ("mismatch:", "")
    with Path(os.devnull).open() as closed:
        monkeypatch.setattr(sys, "stdout", os.fdopen(closed.fileno(), "w", closefd=False))
        with pytest.raises(UsageError, match="standard output: it is closed"):
            write_report(samples()["mismatch"], gone)
        assert capfd.readouterr().err == shown.out


def test_a_bug_in_one_format_costs_neither_the_others_nor_the_verdict(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def encode(each: Destination) -> bytes:
        if each.format == "sarif":
            raise KeyError("x")
        return b"whole"

    destinations = [Destination(name, str(tmp_path / name)) for name in ("sarif", "json")]
    with pytest.raises(UsageError, match="sarif: internal error: KeyError"):
        write_everywhere(destinations, encode)
    shown = capfd.readouterr()
    assert (shown.out, (tmp_path / "json").read_bytes()) == ("whole", b"whole")
    assert "Traceback" in shown.err
    assert not (tmp_path / "sarif").exists()


@pytest.mark.parametrize("code", [1, 2, 3, 4, 5])
def test_a_failed_output_leaves_every_exit_code_but_0(
    code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise UsageError("cannot write")

    assert exit_code_after(code, fail) == code
    assert capfd.readouterr().err == "pitcheck: cannot write\n"
    assert exit_code_after(0, lambda: None) == 0
    with pytest.raises(UsageError, match="cannot write"):
        exit_code_after(0, fail)
