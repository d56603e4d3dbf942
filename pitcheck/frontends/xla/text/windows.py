"""Reading the windows and dimension labels of convolutions and reductions over windows."""

from __future__ import annotations

import re

from pitcheck.frontends.xla.text.lexer import Kind, Lexer
from pitcheck.frontends.xla.text.limits import DEEPEST
from pitcheck.frontends.xla.text.values import ConvolutionDimensions, WindowDimension

_FIELDS = ("size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal")
_LEAST = {"size": 1, "stride": 1, "lhs_dilate": 1, "rhs_dilate": 1, "rhs_reversal": 0}
_LONGEST_NUMBER = 18
_NUMBERS = re.compile(r"\d+(?:x\d+)*")
_PADS = re.compile(r"-?\d+_-?\d+(?:x-?\d+_-?\d+)*")


def read_window(lexer: Lexer) -> tuple[WindowDimension, ...]:
    """Return the window that is next, such as ``{size=3x3 pad=1_1x1_1}``."""
    lexer.expect("{", "before a window")
    fields: dict[str, tuple[int, ...]] = {}
    while not lexer.take("}"):
        name = lexer.word("a field of a window")
        if name not in _FIELDS or name in fields:
            raise lexer.damaged(f"{name[:60]!r} is no field of a window, or stands twice")
        lexer.expect("=", "behind a field of a window")
        fields[name] = _pads(lexer) if name == "pad" else _numbers(lexer, _LEAST[name])
    return _window(lexer, fields)


def _window(lexer: Lexer, fields: dict[str, tuple[int, ...]]) -> tuple[WindowDimension, ...]:
    """Return the dimensions of a window from its fields."""
    rank = len(fields.get("size", ()))
    for name, values in fields.items():
        if len(values) != rank * (2 if name == "pad" else 1):
            raise lexer.damaged(f"{name} of a window is not of its {rank} dimensions")
    ones, pads = (1,) * rank, fields.get("pad", (0,) * (2 * rank))
    columns = zip(
        fields.get("size", ()),
        fields.get("stride", ones),
        pads[::2],
        pads[1::2],
        fields.get("lhs_dilate", ones),
        fields.get("rhs_dilate", ones),
        map(bool, fields.get("rhs_reversal", (0,) * rank)),
        strict=True,
    )
    return tuple(WindowDimension(*column) for column in columns)


def _numbers(lexer: Lexer, least: int) -> tuple[int, ...]:
    """Return numbers such as ``3x3``."""
    if lexer.kind not in (Kind.SIZES, Kind.NUMBER) or not _NUMBERS.fullmatch(lexer.text):
        raise lexer.damaged(f"numbers such as 3x3 are expected, not {lexer.shown()}")
    values = _whole(lexer, lexer.text.split("x"))
    if any(value < least for value in values):
        raise lexer.damaged(f"{lexer.shown()} has a number below {least}")
    lexer.advance()
    return values


def _pads(lexer: Lexer) -> tuple[int, ...]:
    """Return the padding before and behind each dimension, such as ``1_1x0_2``."""
    if lexer.kind is not Kind.PADDING or not _PADS.fullmatch(lexer.text):
        raise lexer.damaged(f"a padding such as 0_0x1_1 is expected, not {lexer.shown()}")
    values = _whole(lexer, re.split("[x_]", lexer.text))
    lexer.advance()
    return values


def _whole(lexer: Lexer, parts: list[str]) -> tuple[int, ...]:
    if len(parts) > 2 * DEEPEST or any(len(part) > _LONGEST_NUMBER for part in parts):
        raise lexer.too_large(f"{lexer.shown()} has too many numbers, or too long ones")
    return tuple(map(int, parts))


def read_dimension_labels(lexer: Lexer) -> ConvolutionDimensions:
    """Return the meaning of a convolution's dimensions, such as ``b01f_01io->b01f``."""
    if lexer.kind is not Kind.LABELS:
        raise lexer.damaged(f"labels such as b01f_01io->b01f are expected, not {lexer.shown()}")
    sides, output = lexer.text.split("->")
    operand, kernel = sides.split("_")
    rank = len(output) - 2
    input_batch, input_feature, input_spatial = _places(lexer, operand, "bf", rank)
    kernel_input, kernel_output, kernel_spatial = _places(lexer, kernel, "io", rank)
    output_batch, output_feature, output_spatial = _places(lexer, output, "bf", rank)
    lexer.advance()
    return ConvolutionDimensions(
        input_batch,
        input_feature,
        input_spatial,
        kernel_input,
        kernel_output,
        kernel_spatial,
        output_batch,
        output_feature,
        output_spatial,
    )


def _places(lexer: Lexer, labels: str, letters: str, rank: int) -> tuple[int, int, tuple[int, ...]]:
    """Return the dimensions with two letters, and those of each spatial number in order."""
    expected = sorted([*letters, *map(str, range(rank))])
    if rank > 10 or sorted(labels) != expected:
        raise lexer.damaged(f"{labels[:60]!r} does not have each of {' '.join(expected[:12])} once")
    spatial = tuple(labels.index(str(number)) for number in range(rank))
    return labels.index(letters[0]), labels.index(letters[1]), spatial
