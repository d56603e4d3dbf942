"""Megatron-core's GPTModel, trained by its own schedules: the programs of the tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frontends.torch.frameworks import megatron_bugs as bugs
from frontends.torch.frameworks import megatron_gpt as gpt

from pitcheck.torch import Spec

# The first specification imports Megatron, which is not part of any check.
gpt.spec(gpt.Setup())
MISTAKES: dict[str, gpt.Bug] = {
    "": bugs.nothing,
    "an input's gradient not summed": bugs.input_gradient_not_summed,
    "a norm's gradient not summed": bugs.attribute_forgotten,
    "largest of own logits": bugs.largest_of_own,
    "gradients summed, not averaged": bugs.scale_forgotten,
    "gradients not summed": bugs.gradients_not_summed,
    "micro-batches not averaged": bugs.micro_batches_not_averaged,
    "tokens of one rank": bugs.tokens_of_rank,
    "tied gradients not summed": bugs.tied_gradients_not_summed,
    "a gradient sent twice": bugs.gradient_sent_twice,
    "activation of the micro-batch before": bugs.stale_activation,
    "experts swapped": bugs.experts_swapped,
}


def spec(mesh: Mapping[str, int], mistake: str = "", mended: bool = False, **setup: Any) -> Spec:
    """Return the model on one rank, and spread over the axes of ``mesh``.

    Experts are spread over the axis "ep", which are data parallel ranks. ``mended``: a fault of
    Megatron 0.16.1 is.
    """
    made = gpt.Setup(
        tensor=mesh.get("tp", 1),
        data=mesh.get("ep", mesh.get("dp", 1)),
        pipeline=mesh.get("pp", 1),
        context=mesh.get("cp", 1),
        spread=mesh.get("ep", 1),
        **setup,
    )
    if mended and mistake != "as it is published":
        return gpt.spec(made, bugs.key_gradient_summed)
    return gpt.spec(made, bugs.nothing if mended else MISTAKES[mistake])
