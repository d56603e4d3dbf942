"""torchtitan's mixtures of experts, as its own functions spread them: the programs of the tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frontends.torch.frameworks import titan, titan_experts

from pitcheck.torch import Spec

MISTAKES: dict[str, dict[str, Any]] = {
    "": {},
    "a mean over own tokens": {"loss_of": titan.averaged},
    "gradients of experts halved": {"after": titan_experts.halved},
    "tokens of the place beside": {"change": titan_experts.neighbours},
    "biases by the tokens of a rank": {"counted": titan_experts.ALONE},
}


def spec(mesh: Mapping[str, int], mistake: str = "", **setup: Any) -> Spec:
    """Return its model on one device, and spread over "dp" and "tp" with experts over both."""
    data, tensor = mesh.get("dp", 1), mesh.get("tp", 1)
    chosen = titan_experts.Setup(data=data, tensor=tensor, sequence=tensor > 1, **setup)
    return titan_experts.spec(chosen, **MISTAKES[mistake])
