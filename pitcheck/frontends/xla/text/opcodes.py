"""The opcodes that are read, with the operands and attributes that each may have.

An attribute that changes an operator's meaning and is passed over would make a wrong program look
right. So each opcode lists its attributes, and any other is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType


@dataclass(frozen=True)
class Opcode:
    """The form of an opcode.

    Attributes:
        least: the smallest number of operands.
        most: the largest number: ``least``, or None if there is none.
        required: attributes that it must have.
        optional: attributes that it may have, beside those that any opcode may have.
        elementwise: True if each operand has the dimensions of the result.
        meets: True if devices, or a device and its host, may meet in it.
    """

    least: int
    most: int | None
    required: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    elementwise: bool = False
    meets: bool = False


COMMON = frozenset(
    {
        "sharding",
        "metadata",
        "backend_config",
        "frontend_attributes",
        "statistics",
        "parameter_replication",
        "control-predecessors",
        "origin",
    }
)
"""Attributes that any opcode may have."""

_DOT = "lhs_contracting_dims rhs_contracting_dims lhs_batch_dims rhs_batch_dims operand_precision"
_GROUPED = "replica_groups channel_id"


def _opcode(
    least: int,
    most: int | None,
    required: str = "",
    optional: str = "",
    *,
    elementwise: bool = False,
    meets: bool = False,
) -> Opcode:
    return Opcode(
        least, most, frozenset(required.split()), frozenset(optional.split()), elementwise, meets
    )


def _meeting(opcodes: Mapping[str, Opcode]) -> dict[str, Opcode]:
    """Return opcodes, marked as those in which devices meet."""
    return {name: replace(opcode, meets=True) for name, opcode in opcodes.items()}


def _elementwise(names: str, operands: int, optional: str = "") -> dict[str, Opcode]:
    return {
        name: _opcode(operands, operands, "", optional, elementwise=True) for name in names.split()
    }


_ELEMENTWISE = {
    **_elementwise(
        "abs ceil convert copy count-leading-zeros floor imag is-finite negate not "
        "popcnt real round-nearest-afz round-nearest-even sign",
        1,
    ),
    **_elementwise(
        "acos acosh asin asinh atanh cbrt cosh cosine erf exponential exponential-minus-one log "
        "log-plus-one logistic rsqrt sine sinh sqrt tan tanh",
        1,
        "result_accuracy",
    ),
    **_elementwise(
        "add and atan2 complex divide maximum minimum multiply or power remainder shift-left "
        "shift-right-arithmetic shift-right-logical stochastic-convert subtract xor",
        2,
    ),
    "compare": _opcode(2, 2, "direction", "type", elementwise=True),
    "reduce-precision": _opcode(1, 1, "exponent_bits mantissa_bits", elementwise=True),
}

_MOVEMENTS = {
    "bitcast": _opcode(1, 1),
    "bitcast-convert": _opcode(1, 1),
    "broadcast": _opcode(1, 1, "dimensions"),
    "concatenate": _opcode(1, None, "dimensions"),
    "dynamic-slice": _opcode(1, None, "dynamic_slice_sizes"),
    "dynamic-update-slice": _opcode(2, None),
    "gather": _opcode(
        2,
        2,
        "offset_dims collapsed_slice_dims start_index_map index_vector_dim slice_sizes",
        "operand_batching_dims start_indices_batching_dims indices_are_sorted",
    ),
    "pad": _opcode(2, 2, "padding"),
    "reshape": _opcode(1, 1, "", "inferred_dimension"),
    "reverse": _opcode(1, 1, "dimensions"),
    "scatter": _opcode(
        3,
        None,
        "update_window_dims inserted_window_dims scatter_dims_to_operand_dims index_vector_dim "
        "to_apply",
        "input_batching_dims scatter_indices_batching_dims indices_are_sorted unique_indices",
    ),
    "select": _opcode(3, 3),
    "clamp": _opcode(3, 3),
    "slice": _opcode(1, 1, "slice"),
    "transpose": _opcode(1, 1, "dimensions"),
}

_COMPUTATIONS = {
    "batch-norm-grad": _opcode(5, 5, "epsilon feature_index"),
    "batch-norm-inference": _opcode(5, 5, "epsilon feature_index"),
    "batch-norm-training": _opcode(3, 3, "epsilon feature_index"),
    "cholesky": _opcode(1, 1, "", "lower"),
    "convolution": _opcode(
        2,
        2,
        "dim_labels",
        "window feature_group_count batch_group_count operand_precision conv_kind",
    ),
    "dot": _opcode(2, 2, "", f"{_DOT} algorithm"),
    "fft": _opcode(1, 1, "fft_type fft_length"),
    "ragged-dot": _opcode(3, 3, "", f"{_DOT} lhs_ragged_dims rhs_group_dims"),
    "reduce": _opcode(2, None, "dimensions to_apply"),
    "reduce-window": _opcode(2, None, "to_apply", "window"),
    "map": _opcode(1, None, "to_apply", "dimensions"),
    "select-and-scatter": _opcode(3, 3, "select scatter", "window"),
    "sort": _opcode(1, None, "dimensions to_apply", "is_stable"),
    "topk": _opcode(1, 1, "k", "largest"),
    "triangular-solve": _opcode(2, 2, "", "left_side lower unit_diagonal transpose_a"),
}

_CONTROL = {
    "call": _opcode(0, None, "to_apply", "is_composite"),
    "conditional": _opcode(2, None, "", "true_computation false_computation branch_computations"),
    "fusion": _opcode(0, None, "calls kind", "output_to_operand_aliasing"),
    "while": _opcode(1, 1, "body condition"),
    "custom-call": _opcode(
        0,
        None,
        "custom_call_target",
        "to_apply called_computations operand_layout_constraints custom_call_has_side_effect "
        "output_to_operand_aliasing api_version schedule window dim_labels feature_group_count "
        "batch_group_count padding_type operand_precision",
        meets=True,
    ),
    "async-start": _opcode(0, None, "calls", "async_execution_thread output_to_operand_aliasing"),
    "async-update": _opcode(1, 1, "", "calls async_execution_thread"),
    "async-done": _opcode(1, 1, "", "calls async_execution_thread"),
}

_PLUMBING = {
    "add-dependency": _opcode(2, 2),
    "after-all": _opcode(0, None),
    "constant": _opcode(0, 0),
    "copy-done": _opcode(1, 1),
    "copy-start": _opcode(1, 1, "", "cross_program_prefetch_index"),
    "domain": _opcode(1, 1, "domain"),
    "get-tuple-element": _opcode(1, 1, "index"),
    "infeed": _opcode(1, 1, "", "infeed_config", meets=True),
    "iota": _opcode(0, 0, "iota_dimension"),
    "opt-barrier": _opcode(1, 1),
    "outfeed": _opcode(2, 2, "", "outfeed_config outfeed_shape", meets=True),
    "parameter": _opcode(0, 0),
    "partition-id": _opcode(0, 0),
    "replica-id": _opcode(0, 0),
    "rng": _opcode(2, 2, "distribution"),
    "rng-bit-generator": _opcode(1, 1, "algorithm"),
    "rng-get-and-update-state": _opcode(0, 0, "delta"),
    "tuple": _opcode(0, None),
}

_REDUCING = f"{_GROUPED} constrain_layout use_global_device_ids"

_COLLECTIVES = {
    "all-gather": _opcode(1, None, "dimensions", _REDUCING),
    "all-gather-done": _opcode(1, 1),
    "all-gather-start": _opcode(1, None, "dimensions", _REDUCING),
    "all-reduce": _opcode(1, None, "to_apply", _REDUCING),
    "all-reduce-done": _opcode(1, 1),
    "all-reduce-start": _opcode(1, None, "to_apply", _REDUCING),
    "all-to-all": _opcode(1, None, "", f"{_GROUPED} dimensions constrain_layout"),
    "collective-broadcast": _opcode(1, None, "", _GROUPED),
    "collective-permute": _opcode(1, None, "source_target_pairs", "channel_id"),
    "collective-permute-done": _opcode(1, 1),
    "collective-permute-start": _opcode(1, None, "source_target_pairs", "channel_id"),
    "ragged-all-to-all": _opcode(6, 6, "", f"{_GROUPED} dimensions"),
    "recv": _opcode(1, 1, "", "channel_id is_host_transfer"),
    "recv-done": _opcode(1, 1, "", "channel_id is_host_transfer"),
    "reduce-scatter": _opcode(1, None, "dimensions to_apply", _REDUCING),
    "send": _opcode(2, 2, "", "channel_id is_host_transfer"),
    "send-done": _opcode(1, 1, "", "channel_id is_host_transfer"),
}

OPCODES: Mapping[str, Opcode] = MappingProxyType(
    {
        **_ELEMENTWISE,
        **_MOVEMENTS,
        **_COMPUTATIONS,
        **_CONTROL,
        **_PLUMBING,
        **_meeting(_COLLECTIVES),
    }
)
"""All opcodes that are read, by their names in the text."""
