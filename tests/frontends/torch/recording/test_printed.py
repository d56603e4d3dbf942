"""What ranks print: told once for all of them, in the order of the program, and nothing is lost."""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from typing import IO, NoReturn

import pytest
import torch.distributed as dist
from frontends.torch.parallelism.averaging import averaging
from torch import nn

from pitcheck.errors import PlanError
from pitcheck.frontends.torch.program import Spec
from pitcheck.frontends.torch.recording import printed as told
from pitcheck.frontends.torch.recording.printed import Printed, messages_of, output_of
from pitcheck.frontends.torch.recording.record import record


def noisy(ending: Exception | None = None) -> Spec:
    """A specification whose ranks warn in every way there is, before they average gradients."""

    def average(model: nn.Module) -> None:
        # pytest collects the warnings of this process, so that none would be printed.
        said = warnings.formatwarning("this is deprecated\n  use another", UserWarning, "f.py", 3)
        print(said, file=sys.stderr, end="")
        print(f"WARNING:framework:a slow kernel at {id(model):#x}", file=sys.stderr)
        os.write(2, b"[W1126 02:58:01.123456 Group.cpp:12] Warning: of C++\n")
        ctypes.CDLL(None).puts(b"of C")
        print(f"rank {dist.get_rank()} is ready")
        if dist.get_rank() == 1:
            print("here alone", file=sys.stderr)
            if ending is not None:
                raise ending
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= 2

    return averaging(average)


def test_what_every_rank_prints_is_told_once_and_what_one_prints_with_its_rank(
    capfd: pytest.CaptureFixture[str],
) -> None:
    spec = noisy()
    record(spec, "parallel", 2)
    out, said = capfd.readouterr()
    assert out == ""
    for once in (
        "this is deprecated\n    use another",
        "a slow kernel at 0x",
        "Warning: of C++",
        "of C\n",
        "rank 0 is ready",
        "here alone",
    ):
        assert said.count(once) == 1, said
    assert "rank 1 is ready" not in said
    assert "ranks 0..1 of the parallel program print" in said
    assert "rank 0 in these words" in said
    alone = said.partition("rank 1 of the parallel program prints")[2].split("\n")
    assert alone[1].strip() == "here alone"


def test_what_a_rank_printed_before_it_raised_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PlanError, match=r"rank 1 of the parallel program: .*ValueError: broken"):
        record(noisy(ValueError("broken")), "parallel", 1)
    said = capfd.readouterr().err
    assert "here alone" in said and said.count("this is deprecated") == 1


def test_what_was_told_is_not_told_again_of_the_same_program(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printed = Printed()
    printed.tell("parallel", {0: "a\nb\n", 1: "a\n"})
    assert capsys.readouterr().err == (
        "ranks 0..1 of the parallel program print:\n  a\n"
        "rank 0 of the parallel program prints:\n  b\n"
    )
    printed.tell("parallel", {0: "a\nb\n", 1: "a\nc\n"})
    assert capsys.readouterr().err == "rank 1 of the parallel program prints:\n  c\n"
    printed.tell("reference", {0: "a\na\n"})
    assert capsys.readouterr().err == "the reference program prints, 2 times in all:\n  a\n"
    printed.tell("reference", {0: ""})
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("at 0x7f12ab", "at 0x7f99", True),
        ("[W1126 02:58:01.123456 1234 a.cpp] x", "[W1126 02:58:09.654321 4321 a.cpp] x", True),
        ("2026-11-26 02:58:01,123 x", "2026-11-26 02:58:02,456 x", True),
        ("[rank0]: x", "[rank1]: x", True),
        ("Rank: 0 of 2", "Rank: 1 of 2", True),
        ("step 0", "step 1", False),
        ("rank 10", "rank 1", False),
        ("x", "y", False),
    ],
)
def test_messages_are_equal_but_for_addresses_times_and_the_own_rank(
    one: str, other: str, same: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    Printed().tell("parallel", {0: one, 1: other})
    said = capsys.readouterr().err
    assert one in said and (other not in said) == (same and one != other)


def test_a_message_has_the_lines_indented_below_it_and_a_traceback_its_last_line() -> None:
    traceback = "Traceback (most recent call last):\n  File x\n    y()\nValueError: z"
    output = f"\nfirst\n  more\n\nsecond\n{traceback}\nthird\n"
    assert list(messages_of(output)) == ["first\n  more", "second", traceback, "third"]
    assert list(messages_of("")) == [] and list(messages_of("  a\nb")) == ["  a", "b"]


def test_of_very_much_output_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told, "MOST_BYTES", 4)
    for data, text in ((b"abcd", "abcd"), (b"abcdef", "abcd\n... and 2 more bytes\n")):
        file = told.output_file()
        assert file is not None
        file.write(data)
        assert output_of(file) == text and file.closed
    file = told.output_file()
    assert file is not None
    file.write(b"\xff")
    assert output_of(file) == "\\xff"


def test_files_of_ranks_are_closed_when_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[IO[bytes]] = []
    made_file = told.TemporaryFile

    def counted() -> IO[bytes]:
        assert all(file.closed for file in made)
        file = made_file()
        made.append(file)
        return file

    monkeypatch.setattr(told, "TemporaryFile", counted)
    record(noisy(), "parallel", 1)
    assert len(made) == 2 and all(file.closed for file in made)


def test_without_a_place_for_files_ranks_print_as_they_go(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refused() -> NoReturn:
        raise OSError("no space")

    monkeypatch.setattr(told, "TemporaryFile", refused)
    record(noisy(), "parallel", 1)
    assert capfd.readouterr().err.count("Warning: of C++") >= 2
