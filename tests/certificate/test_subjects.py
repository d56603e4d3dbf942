"""Certificates are of the bytes that were checked, and of all that operators compute."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pitcheck.certificate.digests import Digests
from pitcheck.certificate.trace import HIDDEN, computing
from pitcheck.errors import UsageError
from pitcheck.ops.registry import operator_kind, operator_names
from pitcheck.ops.traits import Communication


def files_of(folder: Path) -> Digests:
    (folder / "a").write_text("one")
    (folder / "b").write_text("two")
    return Digests.of_files(str(folder / "a"), str(folder / "b"))


def test_files_that_stay_are_taken(tmp_path: Path) -> None:
    files_of(tmp_path).check_unchanged()


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_file_that_changes_while_it_is_checked_is_refused(tmp_path: Path, name: str) -> None:
    digests = files_of(tmp_path)
    (tmp_path / name).write_text("three")
    with pytest.raises(UsageError, match=f"{name} was changed while it was read"):
        digests.check_unchanged()


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_no_file_is_not_waited_for(kind: str, tmp_path: Path) -> None:
    """A pipe gives its bytes once, and a device for ever."""
    path = Path("/dev/zero") if kind == "device" else tmp_path / kind
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    (tmp_path / "a").write_text("one")
    with pytest.raises(UsageError, match="this is none"):
        Digests.of_files(str(tmp_path / "a"), str(path))


@pytest.mark.parametrize("kind", operator_names())
def test_an_attribute_is_left_out_only_where_ranks_or_microbatches_meet(kind: str) -> None:
    attributes = dict.fromkeys((*operator_kind(kind).attributes, *HIDDEN), 1)
    alone = operator_kind(kind).communication is Communication.NONE and kind != "accumulate"
    assert (computing(kind, attributes) == attributes) is alone
    assert not alone or not HIDDEN & operator_kind(kind).attributes.keys()
