"""The options of a check."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

GIB = 1 << 30


@dataclass(frozen=True)
class Options:
    """The choices of a user.

    ``error_bound_log2``: base-2 logarithm of the accepted probability that unequal plans are called
    equivalent (< 0). ``trials``: least number of complete redraws per stage, None for as many as
    the bound needs. ``seed``: None draws one. ``backend``: auto, numpy or cupy. ``shapes`` and
    ``coordinates``: reduced or full. ``jobs``: processes, None for one per processor, and with cupy
    one for each GPU at full shapes and one at reduced. ``max_memory``: bytes of each.
    ``witness_directory``: the folder in which a witness is written, None for nowhere.
    ``precision``: broken precision rules are warnings (``warn``), make an equivalent report's exit
    code 4 (``error``), or are not looked for (``off``). ``estimates``: a pair of plans of which
    part of the bound is an estimate is called equivalent (``accept``) or not (``refuse``).
    ``cache_directory``: the folder of proofs that are remembered between runs, None for none.
    ``explain``: True to look for the cause, the repair and a small witness of a mismatch.
    ``prove_rest``: True to prove the outputs that do not differ after a mismatch, too, and to check
    the precision rules. ``seconds``: the time after which the check ends without a verdict; None
    for as long as it takes.
    """

    error_bound_log2: float = -64.0
    trials: int | None = None
    seed: int | None = None
    backend: str = "auto"
    shapes: str = "reduced"
    coordinates: str = "reduced"
    jobs: int | None = 1
    max_memory: int = 4 * GIB
    witness_directory: Path | None = None
    precision: str = "warn"
    estimates: str = "accept"
    cache_directory: Path | None = None
    explain: bool = True
    prove_rest: bool = False
    seconds: float | None = None
