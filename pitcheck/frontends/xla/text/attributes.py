"""Reading attributes of instructions, each by the kind of its value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import TypeAlias

from pitcheck.frontends.xla.text.groups import Groups, read_groups, read_pairs
from pitcheck.frontends.xla.text.lexer import Kind, Lexer
from pitcheck.frontends.xla.text.mesh import DeviceLists
from pitcheck.frontends.xla.text.values import (
    ConvolutionDimensions,
    Pad,
    Range,
    WindowDimension,
)
from pitcheck.frontends.xla.text.windows import read_dimension_labels, read_window

Value: TypeAlias = (
    bool
    | int
    | str
    | Fraction
    | tuple[int, ...]
    | tuple[bool, ...]
    | tuple[str, ...]
    | Groups
    | tuple[Pad, ...]
    | tuple[Range, ...]
    | tuple[WindowDimension, ...]
    | ConvolutionDimensions
    | Mapping[str, str]
)
"""The value of an attribute. Its type follows from the attribute's name."""

CALLS = (
    "to_apply",
    "condition",
    "body",
    "true_computation",
    "false_computation",
    "branch_computations",
    "calls",
    "called_computations",
    "select",
    "scatter",
)
"""Attributes whose values are names of computations."""

_WORDS: dict[str, str] = {
    "direction": "EQ NE GE GT LE LT",
    "type": "FLOAT TOTALORDER SIGNED UNSIGNED",
    "distribution": "rng_uniform rng_normal",
    "fft_type": "FFT IFFT RFFT IRFFT",
    "transpose_a": "NO_TRANSPOSE TRANSPOSE ADJOINT",
    "padding_type": "PADDING_VALID PADDING_SAME",
    "algorithm": "",
    "api_version": "",
    "schedule": "",
    "kind": "",
    "conv_kind": "",
}
"""The words that an attribute may have; any if none is listed."""
_PRECISIONS = frozenset({"default", "high", "highest", "packed_nibble"})
_PAD = re.compile(r"(-?\d+)_(-?\d+)(?:_(\d+))?")
_LONGEST_PADDING = 2000


def read_attribute(lexer: Lexer, lists: DeviceLists, name: str) -> Value:
    """Return the value of attribute ``name``, which is next."""
    if name in _WORDS:
        return _word(lexer, name)
    if name == "replica_groups":
        return read_groups(lexer, lists)
    return _READERS[name](lexer)


def _word(lexer: Lexer, name: str) -> str:
    allowed = _WORDS[name].split()
    word = lexer.word(f"the word of {name}")
    if allowed and word not in allowed:
        raise lexer.unsupported(f"{name}={word[:60]} has no meaning here; known: {_WORDS[name]}")
    return word


def _names(lexer: Lexer) -> tuple[str, ...]:
    """Return names within braces."""
    lexer.expect("{", "before names")
    names: list[str] = []
    while not lexer.take("}"):
        if names:
            lexer.expect(",", "between names")
        names.append(lexer.identifier("a name"))
    return tuple(names)


def _precisions(lexer: Lexer) -> tuple[str, ...]:
    words = _names(lexer)
    for word in words:
        if word not in _PRECISIONS:
            raise lexer.unsupported(f"the precision {word[:60]!r} has no meaning here")
    return words


def _flags(lexer: Lexer) -> tuple[bool, ...]:
    """Return truth values within braces."""
    lexer.expect("{", "before truth values")
    flags: list[bool] = []
    while not lexer.take("}"):
        if flags:
            lexer.expect(",", "between truth values")
        flags.append(lexer.flag("a truth value"))
    return tuple(flags)


def read_flags(lexer: Lexer) -> tuple[bool, ...]:
    """Return truth values within braces, or the one that stands without."""
    return _flags(lexer) if lexer.at("{") else (lexer.flag("a truth value"),)


def read_strings(lexer: Lexer) -> Mapping[str, str]:
    """Return strings by name. A value in braces is kept as text."""
    lexer.expect("{", "before attributes")
    values: dict[str, str] = {}
    while not lexer.take("}"):
        if values:
            lexer.expect(",", "between attributes")
        key = lexer.string("a name") if lexer.kind is Kind.STRING else lexer.word("a name")
        if key in values:
            raise lexer.damaged(f"the attribute {key[:60]!r} stands twice")
        lexer.expect("=", "behind an attribute's name")
        values[key] = lexer.balanced("a value") if lexer.at("{") else lexer.string("a value")
    return MappingProxyType(values)


def _text(lexer: Lexer) -> str:
    return lexer.balanced("an attribute")


def _text_or_string(lexer: Lexer) -> str:
    return _text(lexer) if lexer.at("{") else lexer.string("a value")


def _decimal(lexer: Lexer) -> Fraction:
    if lexer.kind is not Kind.NUMBER or not re.fullmatch(
        r"-?\d{1,40}(\.\d{0,40})?(e[+-]?\d{1,3})?", lexer.text
    ):
        raise lexer.damaged(f"a number is expected, not {lexer.shown()}")
    return Fraction(lexer.advance())


def _padding(lexer: Lexer) -> tuple[Pad, ...]:
    """Return the padding of each dimension, such as ``0_1x-1_0_2``."""
    if lexer.kind is not Kind.PADDING or len(lexer.text) > _LONGEST_PADDING:
        raise lexer.damaged(f"a padding such as 0_0x1_1 is expected, not {lexer.shown()}")
    pads: list[Pad] = []
    for part in lexer.text.split("x"):
        found = _PAD.fullmatch(part)
        if found is None or len(part) > 60:
            raise lexer.damaged(f"{part[:60]!r} is no padding of a dimension")
        pads.append(Pad(int(found[1]), int(found[2]), int(found[3] or 0)))
    lexer.advance()
    return tuple(pads)


def _ranges(lexer: Lexer) -> tuple[Range, ...]:
    """Return the range of each dimension, such as ``{[0:4], [0:8:2]}``."""
    lexer.expect("{", "before the ranges of a slice")
    ranges: list[Range] = []
    while not lexer.take("}"):
        if ranges:
            lexer.expect(",", "between the ranges of a slice")
        lexer.expect("[", "before a range")
        start = lexer.integer("the start of a range")
        lexer.expect(":", "in a range")
        limit = lexer.integer("the limit of a range", start)
        stride = lexer.integer("the stride of a range", 1) if lexer.take(":") else 1
        lexer.expect("]", "behind a range")
        ranges.append(Range(start, limit, stride))
    return tuple(ranges)


def _integer(lexer: Lexer) -> int:
    return lexer.integer("the value of an attribute")


def _integers(lexer: Lexer) -> tuple[int, ...]:
    return lexer.integers("{", "}", "numbers")


def _flag(lexer: Lexer) -> bool:
    return lexer.flag("the value of an attribute")


def _string(lexer: Lexer) -> str:
    return lexer.string("the value of an attribute")


def _computation(lexer: Lexer) -> str:
    return lexer.identifier("the name of a computation")


def _of(reader: Callable[[Lexer], Value], names: str) -> dict[str, Callable[[Lexer], Value]]:
    return dict.fromkeys(names.split(), reader)


_READERS: Mapping[str, Callable[[Lexer], Value]] = {
    **_of(
        _integers,
        "dimensions lhs_contracting_dims rhs_contracting_dims lhs_batch_dims rhs_batch_dims "
        "lhs_ragged_dims rhs_group_dims offset_dims collapsed_slice_dims start_index_map "
        "slice_sizes operand_batching_dims start_indices_batching_dims update_window_dims "
        "inserted_window_dims scatter_dims_to_operand_dims input_batching_dims "
        "scatter_indices_batching_dims dynamic_slice_sizes fft_length",
    ),
    **_of(
        _integer,
        "index channel_id iota_dimension index_vector_dim feature_group_count batch_group_count "
        "exponent_bits mantissa_bits k feature_index delta inferred_dimension "
        "cross_program_prefetch_index",
    ),
    **_of(
        _flag,
        "use_global_device_ids constrain_layout is_stable indices_are_sorted unique_indices "
        "largest is_host_transfer is_composite custom_call_has_side_effect lower left_side "
        "unit_diagonal",
    ),
    **_of(_string, "custom_call_target async_execution_thread infeed_config outfeed_config"),
    **_of(
        _text,
        "result_accuracy statistics origin output_to_operand_aliasing "
        "operand_layout_constraints domain",
    ),
    **_of(_computation, "to_apply condition body true_computation false_computation calls"),
    **_of(_computation, "select scatter"),
    **_of(_names, "branch_computations called_computations control-predecessors"),
    "operand_precision": _precisions,
    "parameter_replication": read_flags,
    "epsilon": _decimal,
    "padding": _padding,
    "slice": _ranges,
    "window": read_window,
    "dim_labels": read_dimension_labels,
    "source_target_pairs": read_pairs,
    "backend_config": _text_or_string,
    "frontend_attributes": read_strings,
}
