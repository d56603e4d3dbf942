"""Values of expressions for some keys and bits: whether they are finite, and whether they vary.

Bits of generators, and words of keys, are hashes here. Real numbers are rounded as float64 is. So
this shows that random numbers are not what they are taken for, and never that they are.

>>> book = Codebook()
>>> word = book.code(("parameter", 0), np.arange(1))
>>> types = ElementType.U32, ElementType.U32, ElementType.U32
>>> zero = book.code(("subtract", "", types), word, word)
>>> [Choice(book.by_code(), seed).value(int(zero[0])) for seed in (0, 1)]
[0, 0]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from pitcheck.base.numbers import Root
from pitcheck.errors import UnsupportedError
from pitcheck.frontends.xla.lowering.arrays import NUMPY, width_of
from pitcheck.frontends.xla.lowering.random.codebook import Codebook, Ints
from pitcheck.frontends.xla.text.literals import Special
from pitcheck.frontends.xla.text.shapes import ElementType

ELEMENTS = 8
"""The elements of an array of which samples are taken."""
FEW = 32
"""The samples of an array that must be finite."""
MANY = 64
"""The samples of an array that must not all be one."""
Sample: TypeAlias = int | float
"""An integer, a truth as 0 or 1, or a real number."""
_LOW = (1 << 32) - 1
_PATTERNS = {ElementType.F16: np.uint16, ElementType.F32: np.uint32, ElementType.F64: np.uint64}
_FLOATS = {ElementType.F16: np.float16, ElementType.F32: np.float32, ElementType.F64: np.float64}


Entry = Callable[[int], tuple[Any, int]]
"""A function that gives the operator of a code, and the key of its operands."""


class Sampled:
    """Samples of the expressions of a codebook, which is complete."""

    def __init__(self, book: Codebook) -> None:
        self._entry = book.by_code()
        self._choices: list[Choice] = []
        """The values for one choice of all keys and bits after the other."""

    def are_finite(self, arrays: Iterable[Ints]) -> bool:
        """Return True if no sample of arrays of codes is infinite, or no number, or unknown."""
        try:
            return all(
                math.isfinite(value) for codes in arrays for value in self._taken(codes, FEW)
            )
        except UnsupportedError:
            return False

    def varies(self, codes: Ints) -> bool:
        """Return True if two samples of an array of codes differ, and none is unknown."""
        try:
            return len({*self._taken(codes, MANY)}) > 1
        except UnsupportedError:
            return False

    def is_constant(self, code: int) -> bool:
        """Return True if an expression is one known number in all samples."""
        try:
            return len({*self._taken(np.array([code], dtype=np.int64), MANY)}) == 1
        except UnsupportedError:
            return False

    def _taken(self, codes: Ints, count: int) -> Iterator[Sample]:
        """Yield values of elements of an array, for as many choices as make up ``count``."""
        flat = codes.reshape(-1)
        places = np.unique(np.linspace(0, len(flat) - 1, min(len(flat), ELEMENTS)).astype(int))
        for number in range(-(-count // len(places))):
            if number == len(self._choices):
                self._choices.append(Choice(self._entry, number))
            yield from (self._choices[number].value(int(flat[place])) for place in places)


class Choice:
    """The values of the expressions of a codebook for one choice of all keys and bits."""

    def __init__(self, entry: Entry, seed: int) -> None:
        self._entry = entry
        self._seed = seed
        self._values: dict[int, Sample] = {}

    def value(self, code: int) -> Sample:
        """Return the value of an expression.

        Raises UnsupportedError if it has an operator without a value.
        """
        waiting = [code]
        while waiting:
            here = waiting[-1]
            operator, operands = self._of(here)
            missing = [each for each in operands if each not in self._values]
            if missing:
                waiting += missing
                continue
            if here not in self._values:
                self._values[here] = self._made(here, operator, operands)
            waiting.pop()
        return self._values[code]

    def _of(self, code: int) -> tuple[Any, tuple[int, ...]]:
        """Return the operator of an expression, and the codes of the operands that have values."""
        operator, key = self._entry(code)
        name, *form = operator
        if form == [1]:
            is_leaf = name[0] in {"number", "parameter", "real"}
            return name, () if is_leaf else (key,)
        if name[0] == "rng-bit-generator":
            return name, ()
        first, last = key >> 32, key & _LOW
        if form == [2]:
            of_part = name[0] == "bitcast-convert" and width_of(name[1]) > width_of(name[2])
            return name, (first,) if of_part else (first, last)
        return name, (*self._before(first, form[-1] - 1), last)

    def _before(self, code: int, count: int) -> tuple[int, ...]:
        """Return so many operands that were entered as one code."""
        _, key = self._entry(code)
        first, last = key >> 32, key & _LOW
        return (first, last) if count == 2 else (*self._before(first, count - 1), last)

    def _made(self, code: int, operator: Any, operands: Sequence[int]) -> Sample:
        name, given = operator[0], [self._values[each] for each in operands]
        _, key = self._entry(code)
        if name == "number":
            return key % (1 << 64) if operator[1] is ElementType.U64 else key
        if name == "real":
            return _real(operator[2])
        if name == "parameter":
            return self._hashed(operator, key)
        if name == "rng-bit-generator":
            *_, shapes, number = operator
            return _held(self._hashed(operator, key), shapes.elements[number].element)
        if name == "bitcast-convert":
            return _reinterpreted(operator, given, key & _LOW)
        return _computed(operator, given)

    def _hashed(self, operator: Hashable, key: int) -> int:
        """Return 32 bits, and as many zeros before them, of something that is given."""
        said = repr((self._seed, operator, key)).encode()
        return int.from_bytes(blake2b(said, digest_size=4).digest(), "little")


def _real(number: Fraction | Root | Special) -> float:
    return float(number.value) if isinstance(number, Special) else float(number)


def _held(number: int, element: ElementType) -> int:
    """Return the integer of a type that has the same bits, as many as it has."""
    if element is ElementType.PRED:
        return int(bool(number))
    number %= 1 << width_of(element)
    is_negative = element.value[0] == "s" and number >> (width_of(element) - 1)
    return number - (1 << width_of(element)) if is_negative else number


def _reinterpreted(operator: Any, given: Sequence[Sample], part: int) -> Sample:
    """Return the bits of one integer, of several or of a part of one as another type."""
    _, source, target = operator
    words = [int(each) % (1 << width_of(source)) for each in given]
    if target is ElementType.BF16:
        return float(np.array(words[0] << 16, np.uint32).view(np.float32))
    if target in _FLOATS:
        return float(np.array(words[0], _PATTERNS[target]).view(_FLOATS[target]))
    if len(words) > 1:
        return _held(sum(n << (width_of(source) * at) for at, n in enumerate(words)), target)
    is_part = width_of(source) > width_of(target)
    return _held(words[0] >> (width_of(target) * part) if is_part else words[0], target)


def _computed(operator: Any, given: Sequence[Sample]) -> Sample:
    """Return the value of an elementwise operator. Raises UnsupportedError for another."""
    opcode, direction, (target, *sources) = operator
    held = [
        _held(int(each), source) if source in NUMPY else float(each)
        for each, source in zip(given, sources, strict=True)
    ]
    if opcode == "not" and target is ElementType.PRED:
        return 1 - held[0]
    of_integers = target in NUMPY and all(source in NUMPY for source in sources)
    table = _INTEGERS if of_integers else _REALS
    function = _BOTH.get(opcode) or table.get(opcode)
    if opcode == "compare":
        function = _COMPARED[direction]
    elif opcode == "convert":
        function = _converted
    elif opcode in _SHIFTS:
        function = _SHIFTS[opcode](width_of(sources[0]))
    if function is None:
        raise UnsupportedError(f"values of the operator {opcode} are not known")
    try:
        with np.errstate(all="ignore"):
            found = function(*held)
    except (OverflowError, ValueError, ZeroDivisionError):
        found = math.nan
    return _typed(found, target)


def _typed(number: Any, target: ElementType) -> Sample:
    if target not in NUMPY:
        return float(number)
    return _held(int(number), target) if math.isfinite(number) else 0


def _converted(number: Sample) -> Sample:
    return number


def _shift(of: Callable[[int, int], int], *, natural: bool) -> Callable[[int], Callable[..., int]]:
    """Return a function of a width that gives a shift of numbers of so many bits."""

    def with_width(width: int) -> Callable[..., int]:
        def shifted(a: int, by: int) -> int:
            bits, half = a % (1 << width), 1 << (width - 1)
            if natural:
                return of(bits, by if 0 <= by < width else width)
            # The highest bit is a sign, in unsigned types as well.
            return of((bits ^ half) - half, by if 0 <= by < width else width - 1)

        return shifted

    return with_width


_SHIFTS: Mapping[str, Callable[[int], Callable[..., int]]] = MappingProxyType(
    {
        "shift-left": _shift(lambda a, by: a << by, natural=True),
        "shift-right-logical": _shift(lambda a, by: a >> by, natural=True),
        "shift-right-arithmetic": _shift(lambda a, by: a >> by, natural=False),
        "popcnt": lambda width: lambda a: (a % (1 << width)).bit_count(),
        "count-leading-zeros": lambda width: lambda a: width - (a % (1 << width)).bit_length(),
    }
)
_COMPARED: Mapping[str, Callable[..., bool]] = MappingProxyType(
    {
        "EQ": lambda a, b: a == b,
        "NE": lambda a, b: a != b,
        "LT": lambda a, b: a < b,
        "LE": lambda a, b: a <= b,
        "GT": lambda a, b: a > b,
        "GE": lambda a, b: a >= b,
    }
)


def _quotient(a: int, b: int) -> int:
    """Return a quotient rounded toward 0."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _extreme(of: Callable[[Sample, Sample], Sample]) -> Callable[[Sample, Sample], Sample]:
    """Return an extremum that is no number if one operand is none."""
    return lambda a, b: math.nan if math.isnan(a) or math.isnan(b) else of(a, b)


def _sign(a: Sample) -> Sample:
    return a if math.isnan(a) else (a > 0) - (a < 0)


_BOTH: Mapping[str, Callable[..., Sample]] = MappingProxyType(
    {
        "add": lambda a, b: a + b,
        "subtract": lambda a, b: a - b,
        "multiply": lambda a, b: a * b,
        "negate": lambda a: -a,
        "abs": abs,
        "sign": _sign,
        "maximum": _extreme(max),
        "minimum": _extreme(min),
        "clamp": lambda low, x, high: _extreme(min)(_extreme(max)(x, low), high),
        "select": lambda condition, a, b: a if condition else b,
    }
)
"""Operators of integers and of real numbers."""
_INTEGERS: Mapping[str, Callable[..., Sample]] = MappingProxyType(
    {
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
        "not": lambda a: ~a,
        "divide": _quotient,
        "remainder": lambda a, b: a - b * _quotient(a, b),
    }
)
_REALS: Mapping[str, Callable[..., Sample]] = MappingProxyType(
    {
        "divide": lambda a, b: float(np.float64(a) / np.float64(b)),
        "power": lambda a, b: float(np.float64(a) ** np.float64(b)),
        "exponential": lambda a: float(np.exp(a)),
        "exponential-minus-one": lambda a: float(np.expm1(a)),
        "log": lambda a: float(np.log(a)),
        "log-plus-one": lambda a: float(np.log1p(a)),
        "sqrt": lambda a: float(np.sqrt(a)),
        "rsqrt": lambda a: float(1 / np.sqrt(np.float64(a))),
        "cbrt": lambda a: float(np.cbrt(a)),
        "tanh": math.tanh,
        "logistic": lambda a: float(1 / (1 + np.exp(-a))),
        "cosine": math.cos,
        "sine": math.sin,
        "tan": math.tan,
        "erf": math.erf,
        "floor": lambda a: float(np.floor(a)),
        "ceil": lambda a: float(np.ceil(a)),
        "round-nearest-even": lambda a: float(np.rint(a)),
        "is-finite": math.isfinite,
        "reduce-precision": lambda a: a,
    }
)
