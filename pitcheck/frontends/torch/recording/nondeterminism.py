"""What differs by chance between two runs of a program, or between its ranks, while a rank is
recorded.

Numbers that Python or NumPy draw from a generator that the program has not seeded are refused:
whatever is decided by them is another thing in the next run. Where a tensor or a module stands in a
set depends on addresses; here it depends on the rank, so that a program that relies on it differs
between ranks.
"""

from __future__ import annotations

import os
import random
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from numpy.random import bit_generator
from torch._subclasses.fake_tensor import FakeTensor

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.recording.blame import OWN, short
from pitcheck.frontends.torch.recording.patching import Patch, patched
from pitcheck.frontends.torch.recording.recorder import Recorder

LIBRARY = (*OWN, f"{Path(np.__file__).parent}{os.sep}", "<")
STANDARD, PACKAGES = f"{sysconfig.get_path('stdlib')}{os.sep}", f"{os.sep}site-packages{os.sep}"
SEEDING = frozenset({"seed", "setstate", "set_state"})
READING = frozenset({"getstate", "get_state", "get_bit_generator", "set_bit_generator"})
HASH = "_pitcheck_hash"
"""The attribute of a module or tensor that its hash is made of."""


@contextmanager
def deterministic(recorder: Recorder, rank: int) -> Iterator[None]:
    """Refuse unseeded draws, and order sets by rank, while a rank is recorded.

    Raises UnsupportedError at the end if numbers were drawn by a way that could not be refused.
    """
    random.seed(rank)
    np.random.seed(rank)
    generators = [
        Generator(recorder, random, random._inst, random.getstate),
        Generator(recorder, np.random, np.random.mtrand._rand, _numpy_state),
    ]
    with patched(_patches(recorder, rank, generators)):
        yield
        for generator in generators:
            generator.check()


def _patches(recorder: Recorder, rank: int, generators: Sequence[Generator]) -> Iterator[Patch]:
    for generator in generators:
        for name, value in generator.functions():
            yield generator.module, name, value
    yield random.Random, "seed", _fresh(recorder, "random.Random", random.Random.seed, 1)
    numpy_sources: Any = bit_generator
    yield (
        numpy_sources,
        "randbits",
        _system(recorder, "a generator of numpy.random", numpy_sources.randbits),
    )
    for name in ("random", "getrandbits"):
        original = getattr(random.SystemRandom, name)
        yield random.SystemRandom, name, _system(recorder, "random.SystemRandom", original)
    for owner in (torch, torch.random):
        yield owner, "seed", _fresh(recorder, "torch.seed", torch.seed, 0)
    serial = iter(range(sys.maxsize))
    yield torch.nn.Module, "__init__", _numbered(serial, torch.nn.Module.__init__)
    for hashed in (torch.Tensor, torch.nn.Module):
        by_address: Any = hashed.__hash__
        yield hashed, "__hash__", _hash(serial, rank, by_address)


def _numpy_state() -> Any:
    name, keys, *rest = np.random.get_state(legacy=True)
    return name, np.asarray(keys).tobytes(), *rest


class Generator:
    """The generator of a module, and whether the program has seeded it. ``state`` tells
    its state.
    """

    def __init__(self, recorder: Recorder, module: Any, own: Any, state: Callable[[], Any]) -> None:
        self.module = module
        self._recorder = recorder
        self._own = own
        self._state = state
        self._seeded = False
        self._expected = state()

    def functions(self) -> Iterator[tuple[str, Any]]:
        """The functions of the module that belong to the generator, each as it is to be seen."""
        for name, value in list(vars(self.module).items()):
            if name in SEEDING:
                yield name, self._seeding(value)
            elif getattr(value, "__self__", None) is self._own and name not in READING:
                yield name, self._drawing(name, value)

    def check(self) -> None:
        """Raise UnsupportedError where numbers were drawn by a function that was imported before
        the recording, without a seed.
        """
        if not self._seeded and self._state() != self._expected:
            what = (
                f"a function of {self.module.__name__} that was imported by its own name "
                f"draws, or seeds"
            )
            raise self._recorder.tape.refuse(
                UnsupportedError(
                    f"{what}; seed the generator, and draw, through the module: "
                    f"{self.module.__name__}.seed(...)"
                )
            )

    def _drawing(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """A function that draws: refused for the program's own code before it has seeded the
        generator.
        """

        def draw(*args: Any, **kwargs: Any) -> Any:
            if self._seeded:
                return original(*args, **kwargs)
            self.check()
            _refuse(self._recorder, f"{self.module.__name__}.{name} draws")
            drawn = original(*args, **kwargs)
            self._expected = self._state()
            return drawn

        return draw

    def _seeding(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A function that seeds, or restores a state, or, given nothing, takes numbers of the
        system.
        """

        def seed(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            given = any(value is not None for value in (*args, *kwargs.values()))
            # A state that is restored is as good as the one that was saved.
            self._seeded = given and (self._seeded or self._state() != self._expected)
            self._expected = self._state()
            return result

        return seed


def _fresh(
    recorder: Recorder, name: str, original: Callable[..., Any], place: int
) -> Callable[..., Any]:
    """A function that takes a seed at ``place``, and numbers of the system where it is
    given none.
    """

    def make(*args: Any, **kwargs: Any) -> Any:
        if all(value is None for value in (*args[place:], *kwargs.values())):
            _refuse(recorder, f"{name} draws")
        return original(*args, **kwargs)

    return make


def _system(recorder: Recorder, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """A function that takes numbers of the system."""

    def draw(*args: Any, **kwargs: Any) -> Any:
        _refuse(recorder, f"{name} draws")
        return original(*args, **kwargs)

    return draw


def _refuse(recorder: Recorder, what: str) -> None:
    """Refuse what the program's code does; what a library does for itself (a name of a temporary
    file) is its own affair.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename == random.__file__:
        frame = frame.f_back
    if frame is None or _is_library(frame.f_code.co_filename):
        return
    source = f"{short(frame.f_code.co_filename)}:{frame.f_lineno}"
    raise recorder.tape.refuse(
        UnsupportedError(
            f"{source}: {what} without a seed, so that every run, and every rank, is another "
            f"program; seed it before"
        )
    )


def _is_library(file: str) -> bool:
    return file.startswith(LIBRARY) or (file.startswith(STANDARD) and PACKAGES not in file)


def _numbered(serial: Iterator[int], original: Callable[..., None]) -> Callable[..., None]:
    def init(module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        vars(module).setdefault(HASH, next(serial))
        original(module, *args, **kwargs)

    return init


def _hash(serial: Iterator[int], rank: int, original: Callable[[Any], int]) -> Callable[[Any], int]:
    """Sets go through small hashes from the smallest on: ranks of odd numbers see what they make in
    the opposite order.
    """

    def hashed(item: Any) -> int:
        own = vars(item)
        if type(item) is FakeTensor:
            own.setdefault(HASH, next(serial))
        number = own.get(HASH)
        if number is None:
            return original(item)
        return int(number) if rank % 2 == 0 else sys.maxsize // 4 - int(number)

    return hashed
