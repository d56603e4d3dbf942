"""A repair that is right without sequence parallelism and wrong with it: the keys that all heads
share are gathered along the sequence, and the gather's derivative adds up over ranks already.
"""

from __future__ import annotations

from bugs.latent_keys import HEADS, TOKENS, above_keys, given, projected, shared_keys
from bugs.record import Bug, written
from bugs.sketch import Sketch

from pitcheck.plan.model import Plan


def parallel(ranks: int, sequence: bool, wrong: bool) -> Plan:
    """``sequence``: tokens are cut over ranks; ``wrong``: keys pass the repair's copy, too."""
    plan = Sketch("repaired-keys-tp", {"tp": ranks})
    tokens, cut = (TOKENS // ranks, {0: "tp"}) if sequence else (TOKENS, {})
    given(plan, tokens, cut, HEADS // ranks, {0: "tp"})
    keys = plan.op("all_gather", "keys", group="tp", axis=0) if sequence else "keys"
    above = above_keys(plan, keys, "grad:keys:own")
    if wrong or not sequence:
        above = plan.op("all_reduce", above, out="grad:keys:sum", group="tp")
    if sequence:
        above = plan.op("reduce_scatter", above, out="grad:keys", group="tp", axis=0)
    whole = projected(plan, above, "grad:k_pos:own" if sequence else "grad:k_pos")
    if sequence:
        whole = plan.op("all_reduce", whole, out="grad:k_pos", group="tp")
    plan.gradient(whole, "k_pos")
    return plan.plan()


BUG = Bug(
    where="a wrong repair: Megatron-LM PR 6839 of #1699",
    thread="https://github.com/NVIDIA/Megatron-LM/pull/6839",
    should="the gradient of the keys that all heads share is summed over tp once",
    was="the repair of the sum that was missing adds one under sequence parallelism, too, where "
    "the gather has one",
    codes=("PIT105", "PIT111"),
    says=("tp",),
    shows=written(shared_keys, parallel, sequence_parallel=(2, True), four_ranks=(4, True)),
    silent=written(
        shared_keys, parallel, without_sequence_parallelism=(2, False), one_rank=(1, True)
    ),
)
