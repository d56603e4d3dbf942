"""``pitcheck doctor`` sees exact arithmetic as exact, and arithmetic that is off by one as that."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from conftest import Call

from pitcheck.algebra.residues.chains import chains_of
from pitcheck.algebra.residues.modular import Modular
from pitcheck.commands.doctor import galois_agrees, matmul_is_exact


def test_doctor_finds_this_machine_exact(call: Call) -> None:
    result = call("doctor")
    assert (result.code, result.err) == (0, "")
    assert re.search(r"^numpy +\d", result.out, re.M)
    assert re.search(r"^NumPy +exact$", result.out, re.M)
    assert re.search(r"^galois +exact$", result.out, re.M)
    assert re.search(r"^GPU ", result.out, re.M)


@pytest.mark.parametrize("terms", [1, 9, 193])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_one_element_off_by_one_is_seen(
    call: Call, monkeypatch: pytest.MonkeyPatch, terms: int, level: int
) -> None:
    exact = Modular.matmul

    def off_by_one(self: Modular, a: Any, b: Any, low: int) -> Any:
        result = exact(self, a, b, low)
        if a.shape[-1] == terms:
            result[level, 2, 1] ^= 1
        return result

    monkeypatch.setattr(Modular, "matmul", off_by_one)
    assert not matmul_is_exact(np, chains_of(3)[0])
    assert galois_agrees(chains_of(3)[0]) == (terms != 9)
    result = call("doctor")
    assert result.code == 2
    assert "NOT EXACT" in result.out
