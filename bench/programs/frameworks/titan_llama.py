"""torchtitan's Llama 3, as its own function spreads it: the programs of the tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frontends.torch.frameworks import titan

from pitcheck.torch import Part, Spec

MISTAKES: dict[str, dict[str, Any]] = {
    "": {},
    "a norm's gradient not summed": {"change": titan.local_norm},
    "a mean over own tokens": {"loss_of": titan.averaged, "loss": Part(mean="dp")},
    "exponentials summed over own columns": {"loss_of": titan.of_own_columns(1)},
    "largest of own columns": {"loss_of": titan.of_own_columns(0)},
    "replicas not synchronised": {"dims_of": titan.of_one_replica},
}
AXES = {"replicas": "rep", "data": "dp", "tensor": "tp"}


def spec(mesh: Mapping[str, int], mistake: str = "", **setup: Any) -> Spec:
    """Return its model on one device, and spread over the axes "rep", "dp" and "tp"."""
    sizes = {name: mesh.get(axis, 1) for name, axis in AXES.items()}
    return titan.spec(titan.Setup(**sizes, **setup), **MISTAKES[mistake])
