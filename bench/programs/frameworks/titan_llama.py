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
}


def spec(mesh: Mapping[str, int], mistake: str = "", **setup: Any) -> Spec:
    """Return its model on one device, and spread over the axes "dp" and "tp"."""
    return titan.spec(
        titan.Setup(data=mesh.get("dp", 1), tensor=mesh.get("tp", 1), **setup), **MISTAKES[mistake]
    )
