"""Outputs that reduced shapes left open, tried at larger sizes and then at full ones.

Nobody asked for this work. It is limited by the elements of a draw, not by a clock: the same seed
gives the same report on any machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pitcheck.prove.proof import Allowance
from pitcheck.prove.prover import Ledger, Prover

LARGER = 8
"""The elements of a unit that are tried before full shapes."""
MOST_ELEMENTS = 1 << 23
"""The elements that are evaluated at each set of larger sizes, counting one draw of every stage.
They take about ten seconds.
"""
MOST_TRIALS = 96
"""The most draws of a stage at larger sizes."""
MOST_NODES = 20_000
"""The nodes of both plans together up to which stages are cut out once more."""
RETRIED = frozenset({"PIT003", "PIT200", "PIT202", "PIT203"})
"""The findings that sizes may cause: shapes or boundaries that reduced sizes lack, a difference
modulo a prime, a bound or a budget.
"""


@dataclass(frozen=True)
class Retried:
    """A ledger after the retries, and the sizes that were tried in vain, in words or ""."""

    ledger: Ledger
    tried: str = ""


def retried(prover: Prover, ledger: Ledger) -> Retried:
    """Return the ledger of the attempt that left fewest outputs open.

    The attempts are those of the sizes before, of larger ones, and of full shapes.
    """
    if prover.settings.full_shapes or prover.problem.nodes > MOST_NODES:
        return Retried(ledger)
    base, tried = prover.settings, ""
    for number, (least, what) in enumerate(((LARGER, "larger sizes"), (0, "full shapes")), start=1):
        left = ledger.open_outputs
        if not any((o.proof.code or "PIT202") in RETRIED for o in left):
            break
        sizes = (
            replace(prover.settings, full_shapes=True)
            if not least
            else replace(prover.settings, least=least)
        )
        found = prover.at_other_sizes(
            replace(
                sizes, attempt=number, allowance=Allowance(MOST_ELEMENTS), most_trials=MOST_TRIALS
            )
        )
        if found is None:
            break
        ledger.budget = found.budget
        if len(found.open_outputs) < len(left):
            ledger = found
        elif all(
            o.proof.code != "PIT203" or "--shapes full" not in o.proof.reason
            for o in found.open_outputs
        ):
            tried = f"{tried} and {what}" if tried else what
    prover.settings = replace(base, target_log2=prover.settings.target_log2)
    return Retried(ledger, tried)
