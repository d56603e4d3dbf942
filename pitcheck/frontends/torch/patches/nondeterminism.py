"""Differences by chance between two runs of a program or between its ranks.

Numbers that Python or NumPy draw from a generator that the program has not seeded are refused, as
are hashes of strings, also while its file is imported: what they decide is another thing in the
next run. The place of a tensor or module in a set depends on addresses. While recording it depends
on the rank instead, so that a program that relies on it differs between ranks.
"""

from __future__ import annotations

import builtins
import os
import random
import secrets
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from numpy.random import bit_generator
from torch._subclasses.fake_tensor import FakeTensor

from pitcheck.errors import PitcheckError, UnsupportedError
from pitcheck.frontends.torch.patches.patching import Patch, patched
from pitcheck.frontends.torch.recording.blame import OWN, short
from pitcheck.frontends.torch.recording.generator_state import is_seeded
from pitcheck.frontends.torch.recording.recorder import Recorder

# Files whose draws are not the program's own.
LIBRARY = (*OWN, f"{Path(np.__file__).parent}{os.sep}", "<")
STANDARD, PACKAGES = f"{sysconfig.get_path('stdlib')}{os.sep}", f"{os.sep}site-packages{os.sep}"
DRAWING = frozenset({random.__file__, secrets.__file__})
"""The files of the standard library that draw for those who call them."""
SEEDING = frozenset({"seed", "setstate", "set_state"})
"""The functions of a generator's module that set its state."""
READING = frozenset({"getstate", "get_state", "get_bit_generator", "set_bit_generator"})
"""The functions of a generator's module that leave its state."""
HASH = "_pitcheck_hash"
"""The attribute of a module or tensor that its hash is made of."""


@contextmanager
def deterministic(recorder: Recorder, rank: int) -> Iterator[None]:
    """Refuse unseeded draws, and order sets by rank, while a rank is recorded.

    Raises UnsupportedError at the end if numbers were drawn by a way that could not be refused.
    """
    random.seed(rank)
    np.random.seed(rank)
    with patched(_ordered(rank)), seeded(Refusal(recorder.tape.refuse, _is_library)):
        yield


@contextmanager
def seeded_import() -> Iterator[None]:
    """Refuse unseeded draws of the program's files, but not of packages, while it is imported.

    Raises UnsupportedError as they are made, or at the end.
    """

    def is_foreign(file: str) -> bool:
        return PACKAGES in file or _is_library(file)

    refusal = Refusal(lambda error: error, is_foreign, shows_states=False)
    with patched(_states(refusal)), seeded(refusal):
        yield


@contextmanager
def seeded(refusal: Refusal) -> Iterator[None]:
    """Refuse draws from generators of Python, NumPy and PyTorch that nobody has seeded."""
    generators = [
        Generator(refusal, random, random._inst, random.getstate),
        Generator(refusal, np.random, np.random.mtrand._rand, _numpy_state),
    ]
    with patched(_patches(refusal, generators)):
        yield
        for generator in generators:
            generator.check()


@dataclass(frozen=True)
class Refusal:
    """A way to refuse draws.

    ``noted`` takes the error and returns it. ``is_foreign`` returns True for a file whose draws are
    not the program's. ``shows_states``: the state of a generator may be read before it is seeded,
    because every rank has its own.
    """

    noted: Callable[[UnsupportedError], PitcheckError]
    is_foreign: Callable[[str], bool]
    shows_states: bool = True

    def check(self, what: str) -> None:
        """Raise UnsupportedError if the program's own code is what draws.

        Libraries may draw for themselves, as for the name of a temporary file.
        """
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename in DRAWING:
            frame = frame.f_back
        if frame is None or self.is_foreign(frame.f_code.co_filename):
            return
        source = f"{short(frame.f_code.co_filename)}:{frame.f_lineno}"
        raise self.noted(
            UnsupportedError(
                f"{source}: {what} without a seed, so that every run, and every rank, is another "
                f"program; seed it before"
            )
        )


def _states(refusal: Refusal) -> Iterator[Patch]:
    """Yield the patches that refuse to show the state of PyTorch's generator without a seed."""
    for owner in (torch, torch.random):
        for name in ("initial_seed", "get_rng_state"):
            original = getattr(owner, name)
            yield owner, name, _showing(refusal, f"torch.{name}", original, is_seeded)


def _showing(
    refusal: Refusal, name: str, original: Callable[..., Any], is_known: Callable[[], bool]
) -> Callable[..., Any]:
    """Wrap a function that shows the state of a generator, which must be known by then."""

    def show(*args: Any, **kwargs: Any) -> Any:
        if not is_known():
            refusal.check(f"{name} shows the state of a generator")
        return original(*args, **kwargs)

    return show


def _patches(refusal: Refusal, generators: Sequence[Generator]) -> Iterator[Patch]:
    for generator in generators:
        for name, value in generator.functions():
            yield generator.module, name, value
    yield random.Random, "seed", _fresh(refusal, "random.Random", random.Random.seed, 1)
    numpy_sources: Any = bit_generator
    yield (
        numpy_sources,
        "randbits",
        _system(refusal, "a generator of numpy.random", numpy_sources.randbits),
    )
    for name in ("random", "getrandbits"):
        original = getattr(random.SystemRandom, name)
        yield random.SystemRandom, name, _system(refusal, "random.SystemRandom", original)
    for owner in (torch, torch.random):
        yield owner, "seed", _fresh(refusal, "torch.seed", torch.seed, 0)
    yield torch, "Generator", _generator_class(refusal)
    yield builtins, "hash", _same_everywhere(refusal, builtins.hash)


def _same_everywhere(refusal: Refusal, original: Callable[[Any], int]) -> Callable[[Any], int]:
    """Wrap ``hash``: that of a string is another number in every process.

    What a class calls in its own ``__hash__`` decides no more than places in a set.
    """

    def hashed(item: Any) -> int:
        items = item if isinstance(item, tuple) else (item,)
        if any(isinstance(each, str | bytes) for each in items):
            inner = sys._getframe(1).f_code.co_name == "__hash__"
            if not inner and not os.environ.get("PYTHONHASHSEED", "").isdigit():
                refusal.check("hash of a string draws")
        return original(item)

    return hashed


def _generator_class(refusal: Refusal) -> type:
    """Return a class of PyTorch's generators whose ``seed`` is refused; the class itself is fixed.

    Every generator is an instance of it, also one that was made before.
    """

    class Generators(type(torch._C.Generator)):  # type: ignore[misc]
        def __instancecheck__(self, instance: object) -> bool:
            return isinstance(instance, torch._C.Generator)

    class Seeded(torch._C.Generator, metaclass=Generators):
        seed = _system(refusal, "torch.Generator.seed", torch._C.Generator.seed)

    return Seeded


def _ordered(rank: int) -> Iterator[Patch]:
    serial = iter(range(sys.maxsize))
    yield torch.nn.Module, "__init__", _numbered(serial, torch.nn.Module.__init__)
    for hashed in (torch.Tensor, torch.nn.Module):
        by_address: Any = hashed.__hash__
        yield hashed, "__hash__", _hash(serial, rank, by_address)


def _numpy_state() -> Any:
    name, keys, *rest = np.random.get_state(legacy=True)
    return name, np.asarray(keys).tobytes(), *rest


class Generator:
    """The generator of a module of random functions.

    It knows if the program has seeded the generator. ``own`` is the generator object whose methods
    are the module's functions, and ``state`` returns its state.
    """

    def __init__(self, refusal: Refusal, module: Any, own: Any, state: Callable[[], Any]) -> None:
        self.module = module
        self._refusal = refusal
        self._own = own
        self._state = state
        self._seeded = False
        self._expected = state()

    def functions(self) -> Iterator[tuple[str, Any]]:
        """Yield the module's functions that use the generator, by name, with replacements."""
        for name, value in list(vars(self.module).items()):
            if name in SEEDING:
                yield name, self._seeding(value)
            elif name in READING:
                if not self._refusal.shows_states:
                    said = f"{self.module.__name__}.{name}"
                    yield name, _showing(self._refusal, said, value, lambda: self._seeded)
            elif getattr(value, "__self__", None) is self._own:
                yield name, self._drawing(name, value)

    def check(self) -> None:
        """Raise UnsupportedError if unseeded numbers were drawn unseen.

        A function that was imported by its own name before the recording is not replaced; the state
        of the generator tells that it was called.
        """
        if not self._seeded and self._state() != self._expected:
            what = (
                f"a function of {self.module.__name__} that was imported by its own name "
                f"draws, or seeds"
            )
            raise self._refusal.noted(
                UnsupportedError(
                    f"{what}; seed the generator, and draw, through the module: "
                    f"{self.module.__name__}.seed(...)"
                )
            )

    def _drawing(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function that draws.

        The program's own code may call it only after it has seeded the generator.
        """

        def draw(*args: Any, **kwargs: Any) -> Any:
            if self._seeded:
                return original(*args, **kwargs)
            self.check()
            self._refusal.check(f"{self.module.__name__}.{name} draws")
            drawn = original(*args, **kwargs)
            self._expected = self._state()
            return drawn

        return draw

    def _seeding(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function that seeds or restores a state.

        If it is given nothing, it takes numbers of the system, and the generator is not seeded.
        """

        def seed(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            values = *args, *(value for name, value in kwargs.items() if name != "version")
            given = bool(values) and values[0] is not None
            # A state that is restored is as good as the one that was saved.
            self._seeded = given and (self._seeded or self._state() != self._expected)
            self._expected = self._state()
            return result

        return seed


def _fresh(
    refusal: Refusal, name: str, original: Callable[..., Any], place: int
) -> Callable[..., Any]:
    """Wrap a function that takes a seed at ``place``, and numbers of the system without one."""

    def make(*args: Any, **kwargs: Any) -> Any:
        if all(value is None for value in (*args[place:], *kwargs.values())):
            refusal.check(f"{name} draws")
        return original(*args, **kwargs)

    return make


def _system(refusal: Refusal, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that takes numbers of the system."""

    def draw(*args: Any, **kwargs: Any) -> Any:
        refusal.check(f"{name} draws")
        return original(*args, **kwargs)

    return draw


def _is_library(file: str) -> bool:
    return file.startswith(LIBRARY) or (file.startswith(STANDARD) and PACKAGES not in file)


def _numbered(serial: Iterator[int], original: Callable[..., None]) -> Callable[..., None]:
    def init(module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        vars(module).setdefault(HASH, next(serial))
        original(module, *args, **kwargs)

    return init


def _hash(serial: Iterator[int], rank: int, original: Callable[[Any], int]) -> Callable[[Any], int]:
    """Return a hash by which sets list their elements in an order that depends on the rank.

    Sets list small hashes in ascending order. So ranks of odd numbers see the tensors and modules
    that they make in the opposite order of the others.
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
