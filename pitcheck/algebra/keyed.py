"""Randomness by key: 64-bit words of (seed, key, trial, level, instance, element).

They are the same in whatever order they are asked for. The residues that are drawn, which the bound
is about, are the output of SHAKE128 (FIPS 202) on all of the seed. Those of large tensors are the
output of Philox4x64 with ten rounds (Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy
as 1, 2, 3, SC 2011) under a key of 128 bits that BLAKE2b gives: it counts, so that a GPU draws
every element by itself. Values of keyed functions and real inputs are hashes: the mixer is the
finaliser of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA
2014).

>>> few, many = (drawn_words(("seed", "x"), range(1), t, 1, (3,)) for t in ((5,), (4, 5)))
>>> bool((few[0, 0] == many[0, 1]).all())
True
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b, shake_128
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
SHORT = 1 << 14
"""The words of a level and trial up to which they are the output of SHAKE128; more are Philox's."""
BLOCK = 4
"""The words that Philox makes together."""


def key_of(*parts: object) -> int:
    """Return a 64-bit key of the given parts (their ``repr``)."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


def mix_int(x: int) -> int:
    """Return the splitmix64 finaliser of a Python int, in [0, 2^64)."""
    x = (x + _GAMMA) & _MASK
    x = ((x ^ (x >> 30)) * _FIRST) & _MASK
    x = ((x ^ (x >> 27)) * _SECOND) & _MASK
    return x ^ (x >> 31)


def mix(xp: Any, x: Any) -> Any:
    """Return the splitmix64 finaliser, elementwise on uint64; ``x`` is not changed."""
    x = x + xp.uint64(_GAMMA)
    x ^= x >> xp.uint64(30)
    x *= xp.uint64(_FIRST)
    x ^= x >> xp.uint64(27)
    x *= xp.uint64(_SECOND)
    x ^= x >> xp.uint64(31)
    return x


def drawn_words(
    parts: tuple[object, ...],
    levels: range,
    trials: Sequence[int],
    instances: int,
    shape: Sequence[int],
) -> NDArray[np.uint64]:
    """Return uniform 64-bit words of shape (levels, trials, instances, *shape).

    Those of a level and trial are a function of ``parts`` and their numbers alone.
    """
    count = instances * prod(shape)
    if count > SHORT:
        words = bulk_words(bulk_keys(parts, levels, trials), count)
    else:
        lanes = [repr((*parts, level, trial)).encode() for level in levels for trial in trials]
        digests = b"".join(shake_128(lane).digest(8 * count) for lane in lanes)
        words = np.frombuffer(digests, dtype="<u8").astype(np.uint64, copy=False)
    return words.reshape(len(levels), len(trials), instances, *shape)


def bulk_keys(
    parts: tuple[object, ...], levels: range, trials: Sequence[int]
) -> NDArray[np.uint64]:
    """Return a 128-bit key per level and trial, uint64 of shape (levels, trials, 2).

    Each is a function of ``parts`` and its level and trial number alone.
    """
    digests = [
        blake2b(repr((*parts, level, trial)).encode(), digest_size=16).digest()
        for level in levels
        for trial in trials
    ]
    words = np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64, copy=False)
    return words.reshape(len(levels), len(trials), 2)


def bulk_words(keys: NDArray[np.uint64], count: int, first: int = 0) -> NDArray[np.uint64]:
    """Return words for every key, uint64 of shape (levels, trials, count), on the host.

    ``first``: the number of the first of them, a multiple of ``BLOCK``. They are those of
    Philox4x64 with ten rounds, whose words a GPU can make one by one.
    """
    levels, trials, _ = keys.shape
    begin = block_of(first)
    lanes = [
        np.random.Philox(key=key, counter=begin).random_raw(count) for key in keys.reshape(-1, 2)
    ]
    return np.array(lanes, dtype=np.uint64).reshape(levels, trials, count)


def block_of(word: int) -> int:
    """Return the number of the block of words that begins with a word.

    Raises:
        ValueError: no block begins there.
    """
    if word % BLOCK:
        raise ValueError(f"word {word} begins no block of {BLOCK} words")
    return word // BLOCK


def lane_keys(xp: Any, key: int, levels: range, trials: Sequence[int]) -> Any:
    """Return one 64-bit key per (level, trial), uint64 of shape (levels, trials).

    Each is a function of ``key`` and its level and trial number alone.
    """
    return xp.asarray(
        [[mix_int(mix_int(key ^ mix_int(trial)) + level) for trial in trials] for level in levels],
        dtype=xp.uint64,
    )


def uniform_words(xp: Any, lanes: Any, instances: int, shape: Sequence[int]) -> Any:
    """Return uniform 64-bit words of shape (levels, trials, instances, *shape).

    ``lanes`` has the keys of the lanes, shape (levels, trials).
    """
    rows = mix(xp, lanes[:, :, None] + xp.arange(instances, dtype=xp.uint64) * xp.uint64(_SECOND))
    words = mix(xp, rows[..., None] + xp.arange(prod(shape), dtype=xp.uint64) * xp.uint64(_GAMMA))
    return words.reshape(*lanes.shape, instances, *shape)


def hash_words(xp: Any, state: Any, words: Sequence[Any]) -> Any:
    """Fold uint64 ``words`` one after the other into uint64 ``state`` (broadcasting)."""
    for word in words:
        state = mix(xp, state ^ word)
    return state


def remainder(words: Any, divisors: Any) -> Any:
    """Return ``words`` modulo ``divisors`` for unsigned integers.

    NumPy divides by a constant much faster than it takes remainders.
    """
    quotient = words // divisors
    quotient *= divisors
    return words - quotient


def unit_interval(xp: Any, words: Any) -> Any:
    """Return words as float64 in (0, 1): the upper 52 bits, and a half."""
    return ((words >> xp.uint64(12)).astype(xp.float64) + 0.5) * 2.0**-52
