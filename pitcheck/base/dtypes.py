"""The dtypes that a tensor of a plan may have."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal as OneOf

DType = OneOf[
    "float64",
    "float32",
    "bfloat16",
    "float16",
    "float8_e4m3",
    "float8_e5m2",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
]

INTEGERS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "int8": (-(1 << 7), (1 << 7) - 1),
        "uint8": (0, (1 << 8) - 1),
        "int16": (-(1 << 15), (1 << 15) - 1),
        "int32": (-(1 << 31), (1 << 31) - 1),
        "int64": (-(1 << 63), (1 << 63) - 1),
    }
)
"""The least and the greatest number of each integer dtype."""
