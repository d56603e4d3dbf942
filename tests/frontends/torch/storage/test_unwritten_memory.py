"""Programs with memory that nobody has written to: proven where no gradient depends on it, else a
mismatch at the line that made it.
"""

from __future__ import annotations

import pytest
from frontends.torch.proving import caught, proven, verdict
from frontends.torch.storage.unwritten_programs import EXCHANGES, masked, spec

from pitcheck.torch import Options, check

RIGHT = [name for name, (_, right) in EXCHANGES.items() if right]
LINES = {
    "reduced and used elsewhere": "dist.reduce(term, 0)",
    "broadcast of nothing": "torch.empty_like(term)",
    "gathered with tails, the tail read": "own = torch.empty(",
    "summed with tails, the tail times 0": "own = torch.empty(",
    "received into a part, another read": "buffer = torch.empty(",
    "gathered by the root, a row lost": "total = torch.empty_like(term)",
    "chosen by mask, off by one": "buffer = torch.empty(",
}


def test_what_no_gradient_depends_on() -> None:
    report = proven(spec(*RIGHT))
    assert report.outputs.total == len(RIGHT)


@pytest.mark.parametrize("name", LINES)
def test_what_a_gradient_depends_on(name: str) -> None:
    caught(spec(name), LINES[name], "PIT118")


def test_an_array_of_numpy_is_no_constant() -> None:
    assert verdict(spec("an array of numpy")) == "mismatch"


def test_every_wrong_program_is_named() -> None:
    assert LINES.keys() | {"an array of numpy"} == {
        name for name, (_, right) in EXCHANGES.items() if not right
    }


def test_a_mask_of_known_values_chooses() -> None:
    assert check(masked((1, 1, 0, 0)), Options(seed=1)).verdict == "equivalent"
    report = check(masked((0, 0, 1, 1)), Options(seed=1))
    assert (report.verdict, report.findings[0].code) == ("mismatch", "PIT118")
