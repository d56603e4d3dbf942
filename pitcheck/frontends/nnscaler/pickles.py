"""Reading a pickle without running anything that is in it.

Every class and function that the pickle names becomes an inert :class:`Stub`, which stores what it
is given. Only ``OrderedDict``, ``set`` and ``frozenset`` are real classes. Before the pickle is
loaded, its opcodes are scanned for those that reserve memory by a number in the file, or that reach
Python's registry of extensions.
"""

from __future__ import annotations

import io
import os
import pickle
import pickletools
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType, MethodType
from typing import Any

from pitcheck.errors import PlanError

LARGEST = 2**30
"""The greatest number of bytes of a pickle."""

_REAL: Mapping[tuple[str, str], type] = MappingProxyType(
    {
        ("collections", "OrderedDict"): OrderedDict,
        ("builtins", "set"): set,
        ("builtins", "frozenset"): frozenset,
        ("__builtin__", "set"): set,
        ("__builtin__", "frozenset"): frozenset,
    }
)

# Hashing a nested tuple recurses in C without a check. So the stack on which a pickle is loaded
# has room for the deepest tuple that it can contain.
_STACK_PER_TUPLE = 512
_SMALL_STACK = 2**22
_LARGEST_STACK = 2**30
_TUPLES = b"\x85\x86\x87t"


class _Sealed(type):
    """The metaclass of the stub classes that a pickle can name.

    Nothing in a pickle can change these classes.
    """

    def __setattr__(cls, name: str, value: object) -> None:
        raise TypeError(f"{cls.__name__}.{name} cannot be set")


class Stub:
    """A stand-in for an object of a class or function of the pickle.

    ``origin`` is the module and the name of the class or function. The attributes are those that
    the pickle stored. No pickle can name this class itself, so that it need not be sealed:
    ``isinstance`` is slow for a class with a metaclass.
    """

    origin: tuple[str, str] = ("", "")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the arguments that are to be kept have been stored."""

    def __setattr__(self, name: str, value: object) -> None:
        self.__dict__[name] = value

    def __setitem__(self, key: object, value: object) -> None:
        self.__dict__.setdefault("__items__", []).append((key, value))

    def __call__(self, *args: Any, **kwargs: Any) -> Stub:
        return type(self)(self, *args, **kwargs)

    def append(self, item: object) -> None:
        """Store an item that the pickle appends."""
        self.__dict__.setdefault("__list__", []).append(item)

    def extend(self, items: list[object]) -> None:
        """Store items that the pickle appends."""
        self.__dict__.setdefault("__list__", []).extend(items)


class _Listed(Stub, metaclass=_Sealed):
    """A stub that stores its arguments, and is listed in ``made``."""

    made: list[Stub]
    """The listed stubs of the pickle."""

    def __new__(cls, *args: Any, **kwargs: Any) -> _Listed:
        stub = object.__new__(cls)
        cls.made.append(stub)
        if args:
            stub.__dict__["__arguments__"] = args
        if kwargs:
            stub.__dict__["__keywords__"] = kwargs
        return stub


class _Stateful(_Listed):
    """A stub whose state may be anything, not only a dictionary of attributes."""

    def __setstate__(self, state: object) -> None:
        self.__dict__["__state__"] = state


# The method that sets ``__dict__``, bound to the stub. The unpickler takes a state over without
# running Python code or copying it; it must be a dictionary.
_TAKEN_OVER = property(partial(MethodType, vars(Stub)["__dict__"].__set__))


class _Light(Stub, metaclass=_Sealed):
    """A stub of one of the many small objects of a plan.

    It is not listed: such objects refer to each other in circles only through listed ones.
    """

    __setstate__ = _TAKEN_OVER


class _Heavy(_Listed):
    """A listed stub whose state is taken over."""

    __setstate__ = _TAKEN_OVER


_BASES: Mapping[tuple[str, str], type[Stub]] = MappingProxyType(
    {
        ("nnscaler.ir.tensor", "IRSubTensor"): _Light,
        ("nnscaler.ir.tensor", "IndexMap"): _Light,
        ("nnscaler.ir.tensor", "ValueMap"): _Light,
        ("nnscaler.graph.function.dimops", "DimAnno"): _Light,
        ("nnscaler.graph.function.dimops", "ShapeAnno"): _Light,
        ("nnscaler.graph.function.dimops", "OpAnno"): _Light,
        ("nnscaler.ir.tensor", "IRFullTensor"): _Heavy,
        ("nnscaler.graph.function.dimops", "IRDimops"): _Heavy,
        ("nnscaler.ir.operator", "IRBpOperation"): _Heavy,
        ("nnscaler.graph.gener.utils", "DummyInputOuput"): _Heavy,
    }
)
"""The classes with most objects. The state of each is a dictionary."""


class _Reader(pickle.Unpickler):
    """An unpickler that makes stubs of everything that the pickle names."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self._stubs: dict[tuple[str, str], type[Any]] = {}
        self.made: list[Stub] = []

    def find_class(self, module: str, name: str) -> Any:
        """Return one of the three real classes, or else a stub class. Nothing is imported."""
        key = (module, name)
        found = _REAL.get(key) or self._stubs.get(key)
        if found is None:
            found = self._stubs[key] = _Sealed(
                "Stub", (_base_of(key),), {"origin": key, "made": self.made}
            )
        return found

    def release(self) -> None:
        """Empty the stubs.

        They refer to each other in circles, and would wait for a long garbage collection.
        """
        for stub in self.made:
            stub.__dict__.clear()
        self.made.clear()


def _base_of(origin: tuple[str, str]) -> type[Stub]:
    # The planner's other objects have plain attributes, too. The unpickler fills them without
    # calling Python.
    return _BASES.get(origin) or (
        _Listed if origin[0].partition(".")[0] == "nnscaler" else _Stateful
    )


@contextmanager
def loaded(path: Path) -> Iterator[Any]:
    """Yield the objects of the pickle at ``path``: stubs, plain containers and plain values.

    Afterwards the stubs are empty. Raises PlanError for a file that is too large, is no pickle, is
    damaged, or asks for more memory than it may.
    """
    place = str(path)
    data = _content(path)
    if len(data) > LARGEST:
        raise PlanError(
            f"the pickle has more than {LARGEST} bytes, which is the largest that is read", place
        )
    check_opcodes(data, place)
    stack = (len(data) - len(data.translate(None, _TUPLES))) * _STACK_PER_TUPLE
    if stack > _LARGEST_STACK:
        raise PlanError(
            f"the pickle has more than {_LARGEST_STACK // _STACK_PER_TUPLE} tuples, which is the "
            f"most that is read",
            place,
        )
    reader = _Reader(data)
    try:
        yield _on_stack(stack, lambda: _unpickled(reader, place))
    finally:
        reader.release()


def _content(path: Path) -> bytes:
    """Return the content of a file, up to one byte more than the limit."""
    with path.open("rb") as file:
        # A buffer of the greatest size would cost more than reading most files. The size may be
        # wrong for anything but an ordinary file.
        stated = min(os.fstat(file.fileno()).st_size, LARGEST)
        data = file.read(stated + 1)
        return data if len(data) <= stated else data + file.read(LARGEST + 1 - len(data))


def _unpickled(reader: _Reader, place: str) -> Any:
    try:
        return reader.load()
    except MemoryError:
        raise PlanError("the pickle asks for more memory than there is", place) from None
    except RecursionError:
        raise PlanError("the pickle is nested too deeply", place) from None
    # Damaged data can raise anything. Nothing of the file has run, so there is no other cause.
    except Exception as error:
        raise PlanError(
            f"the pickle is damaged ({type(error).__name__}: {str(error)[:200]}); write it anew",
            place,
        ) from None


def _on_stack(size: int, work: Callable[[], Any]) -> Any:
    """Return the result of ``work`` on a stack of at least ``size`` bytes.

    An exception that it raises is raised here. Raises PlanError if there is no memory for the
    stack.
    """
    if size <= _SMALL_STACK:
        return work()
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    before = threading.stack_size()
    try:
        threading.stack_size(-(-(size + _SMALL_STACK) // 4096) * 4096)
        thread = threading.Thread(target=run)
        thread.start()
    except (RuntimeError, ValueError):
        raise PlanError(
            f"the pickle needs a stack of {size} bytes, which there is no memory for"
        ) from None
    finally:
        threading.stack_size(before)
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


# --- the scan


@cache
def _plain_opcodes() -> re.Pattern[bytes]:
    """Return the pattern of a run of opcodes of fixed size that need no look."""
    sizes: dict[int, list[bytes]] = {}
    for opcode in pickletools.opcodes:
        size = 0 if opcode.arg is None else opcode.arg.n
        if size >= 0 and opcode.name not in _LOOKED_AT:
            sizes.setdefault(size, []).append(opcode.code.encode("latin-1"))
    kinds = {size: b"[" + b"".join(map(re.escape, codes)) + b"]" for size, codes in sizes.items()}
    bare = kinds.pop(0)
    # References to the memo come first because they are most frequent: the engine tries the
    # alternatives in order, and fastest those that begin with one byte. Dots are faster than {n}.
    ways = [
        _MEMO[1] + b".",
        _MEMO[4] + b"....",
        *(kinds[size] + b"." * size for size in sorted(kinds)),
    ]
    return re.compile(
        b"(?s:" + b"|".join([way + bare + b"*+" for way in ways] + [bare + b"++"]) + b")*+"
    )


_MEMO = MappingProxyType({1: b"h", 4: b"j"})
"""The opcodes that refer to the memo, by the size of their argument in bytes."""
_LOOKED_AT = frozenset({"STOP", "LONG_BINPUT", "EXT1", "EXT2", "EXT4"})
_LENGTHS = MappingProxyType(
    {
        0x8A: 1,
        0x55: 1,
        0x43: 1,
        0x8C: 1,
        0x8B: 4,
        0x54: 4,
        0x42: 4,
        0x58: 4,
        0x8E: 8,
        0x96: 8,
        0x8D: 8,
    }
)
"""The opcodes with a length in front of their argument, with the bytes of that length.

The argument is as many bytes of text, bytes or integer.
"""
_LINES = MappingProxyType(
    {0x49: 1, 0x4C: 1, 0x53: 1, 0x56: 1, 0x46: 1, 0x67: 1, 0x70: 1, 0x50: 1, 0x63: 2, 0x69: 2}
)
"""The opcodes followed by lines, with the number of lines."""
_STOP, _PUT, _LONG_PUT = 0x2E, 0x70, 0x72
_EXTENSIONS = frozenset({0x82, 0x83, 0x84})


def check_opcodes(data: bytes, place: str) -> None:
    """Scan the opcodes of a pickle.

    Raises PlanError, with the byte, for one that is cut off, is no pickle, or asks for what it may
    not.
    """
    plain = _plain_opcodes()
    position = 0
    while True:
        run = plain.match(data, position)
        position = run.end() if run else position
        if position >= len(data):
            raise PlanError("the pickle is cut off: it has no end", f"{place}: byte {len(data)}")
        opcode = data[position]
        if opcode == _STOP:
            if position + 1 != len(data):
                raise PlanError(
                    f"{len(data) - position - 1} bytes follow the end of the pickle",
                    f"{place}: byte {position + 1}",
                )
            return
        position = _after(data, position, opcode, place)


def _after(data: bytes, position: int, opcode: int, place: str) -> int:
    """Return the position of the opcode after the one at ``position``."""
    here = f"{place}: byte {position}"
    if opcode in _EXTENSIONS:
        raise PlanError(
            "the pickle names an object by an extension code; only names are read", here
        )
    if opcode == _LONG_PUT:
        _check_memo(int.from_bytes(data[position + 1 : position + 5], "little"), len(data), here)
        return position + 5
    if opcode in _LENGTHS:
        width = _LENGTHS[opcode]
        end = (
            position
            + 1
            + width
            + int.from_bytes(data[position + 1 : position + 1 + width], "little")
        )
        if end > len(data):
            raise PlanError(
                f"the pickle is cut off or damaged: a value ends at byte {end} of {len(data)}", here
            )
        return end
    if opcode not in _LINES:
        raise PlanError(
            f"this is no pickle: {opcode:#04x} is no opcode, or its argument is cut off", here
        )
    end = position
    for _ in range(_LINES[opcode]):
        end = data.find(b"\n", end + 1)
        if end < 0:
            raise PlanError("the pickle is cut off within a line", here)
    if opcode == _PUT:
        number = data[position + 1 : end].strip()
        _check_memo(
            int(number) if number.isdigit() and len(number) < 20 else len(data), len(data), here
        )
    return end + 1


def _check_memo(number: int, size: int, place: str) -> None:
    """Raise PlanError for a number in the memo that exceeds the size of the pickle.

    The reader's memo has room for twice its largest number. An honest pickle has fewer entries than
    bytes.
    """
    if number >= size:
        raise PlanError(
            f"the pickle remembers a value under number {number}, more than it has bytes", place
        )
