"""Words by key: short lanes from SHAKE128, long ones from Philox, both against other programs."""

from __future__ import annotations

import tracemalloc
from hashlib import blake2b, shake_128

import numpy as np
import pytest

from pitcheck.algebra.keyed import SHORT, bulk_keys, drawn_words
from pitcheck.algebra.residues import array_forms
from pitcheck.algebra.residues.chains import chains_of
from pitcheck.algebra.residues.modular import Modular

MASK = (1 << 64) - 1


def philox(key: int, count: int) -> list[int]:
    """Return words of Philox4x64-10 in Python integers, from the paper's description."""
    words: list[int] = []
    counter = 0
    while len(words) < count:
        counter += 1
        c = [counter >> (64 * i) & MASK for i in range(4)]
        k = [key & MASK, key >> 64]
        for _ in range(10):
            first, second = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
            c = [second >> 64 ^ c[1] ^ k[0], second & MASK, first >> 64 ^ c[3] ^ k[1], first & MASK]
            k = [(k[0] + 0x9E3779B97F4A7C15) & MASK, (k[1] + 0xBB67AE8584CAA73B) & MASK]
        words += c
    return words[:count]


@pytest.mark.parametrize("count", [SHORT, SHORT + 1, SHORT + 7])
def test_the_words_of_a_lane_are_those_of_the_published_generators(count: int) -> None:
    found = drawn_words(("seed", "x"), range(1, 2), (5,), 1, (count,))
    lane = b"('seed', 'x', 1, 5)"
    expected = (
        np.frombuffer(shake_128(lane).digest(8 * count), "<u8").tolist()
        if count <= SHORT
        else philox(int.from_bytes(blake2b(lane, digest_size=16).digest(), "little"), count)
    )
    assert found.dtype == np.uint64
    assert found[0, 0, 0].tolist() == expected


def test_a_long_lane_does_not_depend_on_the_others_that_are_asked_for() -> None:
    alone = drawn_words(("x",), range(1), (4,), 2, (SHORT,))
    among = drawn_words(("x",), range(2), (3, 4), 2, (SHORT,))
    assert np.array_equal(alone[0, 0], among[0, 1])
    lanes = {among[level, trial].tobytes() for level in range(2) for trial in range(2)}
    assert len(lanes) == 4


def test_keys_of_long_lanes_differ_and_use_all_of_their_bits() -> None:
    keys = bulk_keys(("x",), range(8), range(8)).reshape(-1, 2)
    assert len({key.tobytes() for key in keys}) == 64
    assert all((keys >> np.uint64(56)).any(axis=0))


def test_no_lanes_have_no_words() -> None:
    assert drawn_words(("x",), range(0), (), 1, (SHORT + 1,)).shape == (0, 0, 1, SHORT + 1)


@pytest.mark.parametrize("domain", ["any", "nonzero", "square"])
def test_a_large_draw_is_made_a_few_words_at_a_time(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the same however many are made together, and holds few beside its residues."""
    modular, shape = Modular(np, chains_of(3)[0]), (37, SHORT // 8 + 1)
    found = []
    for together in (1 << 20, 4 * 1001):
        monkeypatch.setattr(array_forms, "AT_ONCE", together)
        tracemalloc.start()
        found.append(modular.drawn(("x",), (0, 7), 2, shape, domain))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert np.array_equal(*found)
    assert peak < 1.3 * found[1].nbytes
