"""Numbers that a program reads from tensors, and that nobody has while it is recorded.

Such a number may be written to a log, kept, and computed with in Python. As soon as it decides
anything else (a comparison, an index, arithmetic with a tensor), the recording is refused.
"""

from __future__ import annotations

import dis
import math
import operator
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from numbers import Number
from types import FrameType
from typing import Any, NoReturn, Protocol

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from pitcheck.errors import PitcheckError

TEXT = "unknown"
"""The text of an unknown number, which is no number."""
NAME = "UnknownNumber"
"""The name by which messages of Python and PyTorch call the type of such a number."""
INFINITE = (math.inf, -math.inf)
_FINITE_UFUNCS = {"isnan": False, "isinf": False, "isfinite": True}
_UFUNCS = frozenset(
    {
        "add",
        "subtract",
        "multiply",
        "divide",
        "negative",
        "absolute",
        "exp",
        "log",
        "log2",
        "log10",
        "sqrt",
        "square",
    }
)
"""The functions of NumPy whose results are unknown numbers again."""


class Recording(Protocol):
    """The recording in which numbers are read."""

    def where(self) -> str:
        """Return the user's present line."""

    def unsupported(self, message: str) -> PitcheckError:
        """Return the error, to be raised, that ends the recording."""


class Reads:
    """The numbers that a program has read and nobody knows, with what is assumed of them.

    ``assumptions`` are sentences for the report, without repetitions.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.assumptions: dict[str, None] = {}
        self._taken: list[UnknownNumber] | None = None
        self._as_nan: UnknownNumber | None = None

    def assume_finite(self, lines: Iterable[str]) -> None:
        """Note that what is tested for infinity or NaN at some lines is finite."""
        for line in sorted(lines):
            self._assume(f"the numbers that are tested for infinity or NaN at {line} are finite")

    def assume_unread(self, number: UnknownNumber) -> None:
        """Note that the text that is made of a number changes no result."""
        self._assume(
            f"text that is made of the number read at {number.source} (a log) changes no result"
        )

    def as_nan(self, number: UnknownNumber) -> None:
        """Note that text has NaN in the place of a number."""
        self.assume_unread(number)
        self._as_nan = number

    def check(self, arguments: object) -> None:
        """Raise UnsupportedError if an operator is given a NaN that may come from such text."""
        if self._as_nan is not None and _has_nan(arguments):
            raise self._as_nan.refusal("it may flow back into a tensor, through text")

    def _assume(self, sentence: str) -> None:
        self.assumptions[sentence] = None

    def takes(self, dtype: torch.dtype, finite: bool) -> bool:
        """Return True if an unknown number of a dtype is taken by who reads it just now.

        ``finite`` is False for a number that the program itself may make infinite or NaN.
        """
        if self._taken is None or dtype.is_complex:
            return False
        kind = float if dtype.is_floating_point else bool if dtype == torch.bool else int
        self._taken.append(UnknownNumber(self, kind, self.recording.where(), finite))
        return True

    @contextmanager
    def taking(self) -> Iterator[list[UnknownNumber]]:
        """Collect the unknown numbers that are read in this context."""
        before, self._taken = self._taken, []
        try:
            yield self._taken
        finally:
            self._taken = before


def _has_nan(arguments: object) -> bool:
    if isinstance(arguments, tuple):
        return any(map(_has_nan, arguments))
    return isinstance(arguments, float) and math.isnan(arguments)


def _arithmetic(
    compute: Callable[[Any, Any], Any], reflected: bool = False
) -> Callable[[UnknownNumber, Any], Any]:
    """Return the method for an operator of Python; ``reflected``: of its second operand."""

    def method(self: UnknownNumber, other: Any) -> Any:
        if isinstance(other, torch.Tensor | np.ndarray):
            raise self.refusal("it flows back into a tensor")
        if not isinstance(other, Number):
            return NotImplemented
        own, one = self.kind(1), _one(other)
        # Whatever a known number alone does wrong, as a divisor of 0, is raised here.
        result = compute(one, own) if reflected else compute(own, one)
        return self.derived(type(result), is_finite(other))

    return method


def _one(number: Any) -> Any:
    """Return a number, and 1 in the place of one that nobody knows."""
    return number.kind(1) if type(number) is UnknownNumber else number


def is_finite(number: Any) -> bool:
    """Return False for a number that is infinite or NaN, or that the program may make so."""
    if type(number) is UnknownNumber:
        return number.is_finite
    return isinstance(number, complex) or math.isfinite(number)


class UnknownNumber(torch.SymFloat):
    """A number that was read from a tensor at ``source``, or that was computed from such numbers.

    It has no value. ``kind`` is the type that the number would have, and ``isinstance`` says so.
    ``is_finite`` is False if the program itself may make it infinite or NaN. To PyTorch it is a
    symbolic number, so that its functions ask for the symbol, which is refused.
    """

    def __init__(self, reads: Reads, kind: type, source: str, is_finite: bool) -> None:
        self._reads = reads
        self.kind = kind
        self.source = source
        self.is_finite = is_finite

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        # Loggers ask for the type of what they are given.
        return self.kind

    @property
    def node(self) -> NoReturn:
        """Refuse to be a number of an operator of PyTorch."""
        raise self.refusal("it flows back into a tensor")

    def __getattr__(self, name: str) -> NoReturn:
        if hasattr(self.kind, name):
            raise self.refusal(f"its {name} is asked for")
        raise AttributeError(f"{NAME} has no {name!r}")

    # --- text

    def _text(self) -> str:
        self._reads.assume_unread(self)
        return TEXT

    def __repr__(self) -> str:
        return self._text()

    def __str__(self) -> str:
        return self._text()

    def __format__(self, form: str) -> str:
        return self._text().rjust(len(format(self.kind(0), form)))

    # --- arithmetic in Python

    def derived(self, kind: type = float, finite: bool = True) -> UnknownNumber:
        """Return a number that is computed from this one, and from another that may be finite."""
        return UnknownNumber(self._reads, kind, self.source, self.is_finite and finite)

    __add__, __radd__ = _arithmetic(operator.add), _arithmetic(operator.add, True)
    __sub__, __rsub__ = _arithmetic(operator.sub), _arithmetic(operator.sub, True)
    __mul__, __rmul__ = _arithmetic(operator.mul), _arithmetic(operator.mul, True)
    __truediv__, __rtruediv__ = _arithmetic(operator.truediv), _arithmetic(operator.truediv, True)
    __floordiv__, __rfloordiv__ = (
        _arithmetic(operator.floordiv),
        _arithmetic(operator.floordiv, True),
    )
    __mod__, __rmod__ = _arithmetic(operator.mod), _arithmetic(operator.mod, True)
    __pow__, __rpow__ = _arithmetic(operator.pow), _arithmetic(operator.pow, True)

    def _same(self) -> UnknownNumber:
        return self.derived(self.kind)

    __neg__ = __pos__ = __abs__ = _same

    def _whole(self, digits: int | None = None) -> UnknownNumber:
        return self.derived(int if digits is None else self.kind)

    __round__ = __trunc__ = __floor__ = __ceil__ = _whole

    def __copy__(self) -> UnknownNumber:
        return self

    def __deepcopy__(self, _: Any) -> UnknownNumber:
        return self

    # --- decisions

    def refusal(self, what: str) -> PitcheckError:
        """Return the error, to be raised, that ends the recording: the number decides something."""
        return self._reads.recording.unsupported(
            f"a number that is read from a tensor at {self.source} depends on parameters or on the "
            f"batch, and {what}; log it, or keep it in a tensor; give Input.values if it comes "
            f"from integers of the batch"
        )

    def finite(self) -> None:
        """Assume that the number is neither infinite nor NaN.

        Raises UnsupportedError for one that the program itself may have made so.
        """
        if not self.is_finite:
            raise self.refusal("it is tested, though the program itself makes it infinite or NaN")
        self._reads.assume_finite([self._reads.recording.where()])

    def _compared(self, other: Any, compare: Callable[[Any, Any], bool]) -> Any:
        equality = compare in (operator.eq, operator.ne)
        if (other is self and equality) or (isinstance(other, float) and other in INFINITE):
            self.finite()
            return compare(0.0, 0.0 if other is self else other)
        if equality and not isinstance(other, Number | torch.Tensor | np.ndarray):
            return NotImplemented
        raise self.refusal("it is compared")

    def __eq__(self, other: object) -> Any:
        return self._compared(other, operator.eq)

    def __ne__(self, other: object) -> Any:
        return self._compared(other, operator.ne)

    def __lt__(self, other: object) -> Any:
        return self._compared(other, operator.lt)

    def __le__(self, other: object) -> Any:
        return self._compared(other, operator.le)

    def __gt__(self, other: object) -> Any:
        return self._compared(other, operator.gt)

    def __ge__(self, other: object) -> Any:
        return self._compared(other, operator.ge)

    def _other(self, *_: Any) -> NoReturn:
        raise self.refusal("bits or a quotient with a remainder are computed from it")

    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _other
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __divmod__ = __rdivmod__ = _other
    is_integer = hex = as_integer_ratio = conjugate = _other

    def __bool__(self) -> bool:
        raise self.refusal("it decides whether something is done")

    def __hash__(self) -> int:
        raise self.refusal("it is a key of a dictionary or an element of a set")

    def __int__(self) -> int:
        raise self.refusal("it becomes an integer")

    def __index__(self) -> int:
        raise self.refusal("it is an index or a size")

    def __complex__(self) -> complex:
        raise self.refusal("it becomes a complex number")

    def __float__(self) -> float:
        if _formats_text(sys._getframe(1)):
            self._reads.as_nan(self)
            return math.nan
        raise self.refusal("it becomes a plain float, of which nobody could tell what it decides")

    def __reduce_ex__(self, _: Any) -> NoReturn:
        raise self.refusal("it is pickled")

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Answer a function of NumPy on single numbers."""
        single = all(type(given) is UnknownNumber or np.isscalar(given) for given in inputs)
        if method != "__call__" or options or not single:
            raise self.refusal("it becomes an element of an array")
        if function.__name__ in _FINITE_UFUNCS:
            self.finite()
            return _FINITE_UFUNCS[function.__name__]
        if function.__name__ in _UFUNCS:
            return self.derived(finite=all(map(is_finite, inputs)))
        raise self.refusal(f"numpy.{function.__name__} is computed from it")

    @classmethod
    def __torch_function__(
        cls, function: Any, _types: Any, args: Any = (), kwargs: Any = None
    ) -> NoReturn:
        """Refuse a function of PyTorch that is given such a number."""
        for item in tree_leaves((args, kwargs)):
            if type(item) is UnknownNumber:
                raise item.refusal("it flows back into a tensor")
        raise TypeError(f"{function} got an {NAME}")


def to_float(*given: Any) -> Any:
    """Return what ``float`` returns, and an unknown number for what nobody knows."""
    number = given[0].item() if given and isinstance(given[0], torch.Tensor) else None
    number = given[0] if number is None and given else number
    if type(number) is UnknownNumber:
        return number.derived()
    return float(*given)


def stands_in(message: str) -> bool:
    """Return True if a message of an exception is about what stands in the place of a number."""
    return any(name in message for name in (NAME, f"{TEXT}'", "numpy.object_"))


def _formats_text(frame: FrameType) -> bool:
    """Return True if a line of Python is in the middle of ``text % numbers``.

    Only text asks the operands of ``%`` to become a float. Numbers and arrays leave ``%`` to an
    operand that they do not know.
    """
    place = frame.f_lasti
    return frame.f_code.co_code[place : place + 2] in _REMAINDERS


_REMAINDERS = frozenset(
    bytes((each.opcode, each.arg or 0))
    for text in ("a % b", "a %= b")
    for each in dis.get_instructions(compile(text, "", "exec"))
    if each.opname == "BINARY_OP"
)
"""The instructions of ``%`` and ``%=``."""
