"""Multi-latent attention: each rank has some heads, and all heads share a part of the keys."""

from __future__ import annotations

from bugs.latent_keys import HEADS, TOKENS, above_keys, given, projected, shared_keys
from bugs.record import Bug, written
from bugs.sketch import Sketch

from pitcheck.plan.model import Plan


def parallel(ranks: int, wrong: bool) -> Plan:
    plan = Sketch("shared-keys-tp", {"tp": ranks})
    given(plan, TOKENS, {}, HEADS // ranks, {0: "tp"})
    above = above_keys(plan, "keys", "grad:keys:own")
    if not wrong:
        above = plan.op("all_reduce", above, out="grad:keys", group="tp")
    plan.gradient(projected(plan, above, "grad:k_pos"), "k_pos")
    return plan.plan()


BUG = Bug(
    where="Megatron-LM #1699, TransformerEngine #1975",
    thread="https://github.com/NVIDIA/Megatron-LM/issues/1699",
    should="the gradient of the keys that all heads share is summed over tp",
    was="the gather before them splits it: each rank goes on with the term of its heads",
    codes=("PIT104",),
    says=("grad:keys", "tp"),
    shows=written(shared_keys, parallel, two_ranks=(2,), four_ranks=(4,)),
    silent=written(shared_keys, parallel, one_rank=(1,)),
)
