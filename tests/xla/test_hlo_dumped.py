"""When the texts that XLA writes are taken for whole, without JAX."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.xla.running.dumping import LOOKS, Texts, call_when_whole, texts_in

EARLIER = "module_0000.f.before_optimizations.txt"
BEFORE = "module_0000.f.0000.spmd-partitioner.after_shardy-xla.before_spmd-partitioning.txt"
AFTER = "module_0000.f.0001.spmd-partitioner.after_spmd-partitioning.before_something-else.txt"
NEXT = "module_0000.f.0002.spmd-partitioner.after_something-else.before_another.txt"


class Waiting:
    """A folder that XLA writes its texts into, with an event for when they are taken for whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.whole = threading.Event()
        call_when_whole(folder, self.whole.set)

    def after(self, name: str, text: str = "") -> bool:
        """Write a file, and return True if the texts are taken for whole some looks later."""
        with (self.folder / name).open("a") as file:
            file.write(text)
        return self.whole.wait(50 * LOOKS)


def test_the_texts_are_whole_when_the_next_file_is_there(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)
    assert not waiting.after(EARLIER)
    assert not waiting.after(BEFORE)
    assert not waiting.after(AFTER, "HloModule f")
    assert waiting.after(NEXT)


def test_a_text_that_grows_is_not_whole(tmp_path: Path) -> None:
    (tmp_path / BEFORE).touch()
    waiting = Waiting(tmp_path)
    assert not waiting.after(AFTER, "HloModule f\n")
    assert not waiting.after(AFTER, "ENTRY main {\n}\n")


@pytest.mark.parametrize("names", [(), (BEFORE,), (AFTER,), (BEFORE, AFTER, "1" + AFTER)])
def test_texts_that_are_not_one_pair_are_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(UnsupportedError, match="XLA does not partition the program"):
        texts_in(tmp_path)


def test_the_pair_is_found_among_what_xla_writes(tmp_path: Path) -> None:
    for name in (EARLIER, BEFORE, AFTER, NEXT):
        (tmp_path / name).touch()
    assert texts_in(tmp_path) == Texts(tmp_path / BEFORE, tmp_path / AFTER)
