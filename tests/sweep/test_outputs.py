"""The pipes of a process of a sweep: its answer, and words without end."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from sweep.test_sweep import folder, swept

from pitcheck.sweep.child import outputs
from pitcheck.sweep.child.outputs import MOST_LAST, Outputs

__all__ = ["folder"]

LOUD = (
    "import os\nfor _ in range(1000):\n    os.write({0}, b'x' * 100_000)\nos.write({0}, b'end')\n"
)


def run(code: str, given: bytes = b"") -> Outputs:
    """Return the outputs of a process that has ended."""
    command = [sys.executable, "-c", code]
    pipe = subprocess.PIPE
    found = Outputs.of(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe), given)
    assert found.ended(60)
    return found


def test_the_last_words_of_a_loud_process_fill_no_memory() -> None:
    tracemalloc.start()
    found = run(LOUD.format(2))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found.said) == MOST_LAST
    assert found.said.endswith(b"xend")
    assert peak < 10_000_000


def test_an_answer_is_read_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MOST_ANSWER", 1000)
    assert len(run(LOUD.format(1)).answer) == 1000


def test_orders_are_given_whole_or_not_at_all() -> None:
    """A process may end, or close its input, before it has read them."""
    orders = b"a" * 1_000_000
    echo = "import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read())\n"
    assert run(echo, orders).answer == orders
    for code in ("pass", "import os\nos.close(0)\nprint('x')"):
        assert run(code, orders).process.returncode == 0


def test_a_process_is_waited_for_as_long_as_somebody_holds_its_outputs() -> None:
    code = "import os, time\nif os.fork() == 0:\n    time.sleep(1)\n    os.write(1, b'late')\n"
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=pipe)
    found = Outputs.of(process, b"")
    assert not found.ended(0.3)
    assert found.ended(60)
    assert found.answer == b"late"


def test_a_configuration_that_says_much_is_one_row(folder: Path) -> None:
    Path("loud.py").write_text(LOUD.format(2) + "raise ValueError('last words')\n", "utf-8")
    code, (found,) = swept('[[program]]\nsource = "loud.py:spec"\n')
    assert (code, found.status) == (1, "unexpected")
    assert "last words" in found.said
