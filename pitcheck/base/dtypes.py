"""The dtypes that a tensor of a plan may have."""

from __future__ import annotations

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
