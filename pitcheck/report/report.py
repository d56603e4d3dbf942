"""The report: everything that a check found, as immutable data.

Its JSON form (``docs/report-format.md``) is these structs, field by field. A report knows the
verdict and what led to it, and nothing of fields, stages or plans.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal as OneOf

import msgspec

from pitcheck.errors import PitcheckError
from pitcheck.report.pictures import HeldValues, StageSteps

SCHEMA = "pitcheck.report/1"

Verdict = OneOf["equivalent", "mismatch", "invalid", "inconclusive", "nothing-checked"]
FindingVerdict = OneOf[
    "mismatch", "invalid", "inconclusive", "nothing-checked", "warning", "imprecise"
]

EXIT_CODES: Mapping[Verdict, int] = {
    "equivalent": 0,
    "mismatch": 1,
    "invalid": 2,
    "inconclusive": 3,
    "nothing-checked": 5,
}

IMPRECISE = 4
"""The exit code of an equivalent report with a finding of verdict ``imprecise``."""

NOTHING_CLAIMED = 0.0
"""``error_bound_log2`` of a report that claims no equivalence: a probability of at most 1."""

VOLATILE = ("backend", "peak_memory_mb", "remembered", "seconds")
"""The fields that may differ between two runs with the same plans, options and seed.

All others are equal byte for byte.
"""


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a repair: ``text`` is part of the plan that goes ("-") or comes ("+")."""

    sign: OneOf["-", "+"]
    text: str


class TriedRepair(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a repair that was tried, seen in a run of both plans with the repair made.

    ``right`` are the outputs that differ and are right then, ``wrong`` those that are wrong then,
    of ``compared`` outputs in all. If a repair was tried in one stage only, they are the tensor of
    that stage. ``together``: the repairs of all findings that have one were made. ``meshes`` are
    the other meshes at which the same repairs make every output right, ``faultless`` those at which
    no output differs without them; each has the size of every axis. ``said`` is all that in words.
    """

    right: tuple[str, ...]
    wrong: tuple[str, ...] = ()
    compared: int
    together: bool = False
    meshes: tuple[dict[str, int], ...] = ()
    faultless: tuple[dict[str, int], ...] = ()
    said: str = ""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong, or that could not be decided.

    ``code`` has a page (``pitcheck explain CODE``). ``ranks`` and ``microbatches`` are the numbers
    of the coordinates concerned (ranks are numbered row-major over the mesh); they are empty if it
    concerns none in particular. ``element`` is the index in the reference tensor ``output`` at
    which ``reference_value`` and ``parallel_value`` stand, both as exact or decimal text. What is
    not known is ``None``. A finding of verdict ``warning`` does not change the verdict. One of
    verdict ``imprecise`` is a broken precision rule under ``--precision error``; it changes only
    the exit code of an equivalent report. ``edits`` are the ``repair`` as lines that go and come,
    those that go first. ``steps`` are the operators of both plans around the
    difference, ``held`` an element that differs as every rank holds it.
    """

    code: str
    verdict: FindingVerdict
    title: str
    stage: str | None = None
    output: str | None = None
    operator: str | None = None
    source: str | None = None
    ranks: tuple[int, ...] = ()
    microbatches: tuple[int, ...] = ()
    element: tuple[int, ...] | None = None
    reference_value: str | None = None
    parallel_value: str | None = None
    cause: str | None = None
    repair: str | None = None
    edits: tuple[Edit, ...] = ()
    witness: str | None = None
    unsaved: str | None = None
    """The reason why a witness that was found is not saved."""
    tried: TriedRepair | None = None
    steps: StageSteps | None = None
    held: HeldValues | None = None
    known: bool = False
    """True if the baseline of the check lists it."""
    variants: tuple[str, ...] = ()
    """The variants of the specification that show it; empty if there is only one check."""


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """The findings that a file accepts, held against those of a report.

    ``known`` is the number of findings of the report that ``file`` lists. ``gone`` are its entries
    that are no longer found, each as code, operator and output. ``new_outputs`` are outputs that
    are not proven, and for which no entry that is still found stands.
    """

    file: str
    known: int
    gone: tuple[str, ...] = ()
    new_outputs: tuple[str, ...] = ()


class OperatorCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of operators.

    ``reference`` and ``parallel`` count instances (over ranks and micro-batches), ``records`` the
    records of both plans.
    """

    reference: int = 0
    parallel: int = 0
    records: int = 0


class OutputCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Outputs of the reference: how many there are, and how many of them are proven."""

    total: int = 0
    proven: int = 0


class StageCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of stages.

    ``distinct``: those left when equal stages are proven once. ``widened``: those that were merged
    with their predecessors. ``every_size``: those whose proof holds at every size of the axes that
    were reduced, or was made at their own sizes.
    """

    total: int = 0
    distinct: int = 0
    proven: int = 0
    failed: int = 0
    inconclusive: int = 0
    widened: int = 0
    every_size: int = 0


class RoutedTokens(msgspec.Struct, frozen=True, kw_only=True):
    """The ways of tokens through a stage in which they choose experts, over all draws of its proof.

    ``tensor`` is the one proven, ``tokens`` the least number of tokens that a rank routed. Each of
    ``sender_receiver_pairs`` (0 if no rank sends tokens to others) carried at least
    ``tokens_per_pair``, and each of ``source_expert_pairs`` at least ``tokens_per_expert``. In one
    of the ``draws`` ``empty_experts`` received nothing, and in another one an expert received
    ``largest_share`` times its even share (both 0 if no draw can do that). Ranks are those that are
    kept.
    """

    stage: str
    tensor: str
    draws: int
    tokens: int
    sender_receiver_pairs: int
    tokens_per_pair: int
    source_expert_pairs: int
    tokens_per_expert: int
    empty_experts: int
    largest_share: float


class Seconds(msgspec.Struct, frozen=True, kw_only=True):
    """Wall time of each step."""

    load: float = 0.0
    validate: float = 0.0
    lineage: float = 0.0
    stages: float = 0.0
    evaluate: float = 0.0
    explain: float = 0.0
    total: float = 0.0


class Shown(msgspec.Struct, frozen=True):
    """The element of ``output`` that shows a mismatch on one input of both plans.

    It was evaluated again by another arithmetic than float64. ``arithmetic`` says which one, and
    from where on. Both values are decimal text, with as many digits as tell them apart.
    """

    output: str
    element: tuple[int, ...]
    reference_value: str
    parallel_value: str
    arithmetic: str


class VariantVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one variant of a specification, such as one packing of its batch.

    ``outputs`` and ``error_bound_log2`` are those of its check.
    """

    name: str
    verdict: Verdict
    outputs: OutputCounts
    error_bound_log2: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one check.

    ``error_bound_log2`` is the base-2 logarithm of the bound on the probability that unequal plans
    were called equivalent: finite, at most 0, and 0 if nothing is claimed. ``exit_code`` follows
    from the verdict, the findings and the baseline, and is set here, as is ``all_known``: the check
    found what its baseline lists, and nothing else. ``trials`` is the largest number of complete
    redraws that any stage needed. ``remembered`` counts the distinct stages whose proof an earlier
    run made. ``routing`` has every proof of a stage in which tokens choose
    experts. The sentences: ``exceptions`` are what the user's specification excepts from full
    equality; ``reductions`` say which shapes and coordinates were made smaller and by which rule;
    ``heuristic`` names the terms of the bound that are not proven; ``not_covered`` says what the
    bound does not cover. ``shown`` is what shows a mismatch, and ``None`` for every other verdict.
    ``differing`` are the outputs that differ in that run, and if the check went on after it also
    those that differ modulo a prime. ``unproven`` are the outputs that are not proven, if the
    verdict is inconclusive or the check went on. ``ignored`` counts the warnings that are left out,
    by code. ``variants`` has the verdict on each variant of a specification that has some; all
    counts are then sums over them.

    Raises PitcheckError for an error bound that is not finite or above probability 1, and for a
    mismatch that nothing shows.
    """

    schema: str = SCHEMA
    verdict: Verdict
    exit_code: int = -1
    exceptions: tuple[str, ...] = ()
    error_bound_log2: float = NOTHING_CLAIMED
    seed: int = 0
    primes: tuple[int, ...] = ()
    trials: int = 0
    backend: str = "numpy"
    mesh: dict[str, int] = {}
    ranks: int = 0
    microbatches: int = 0
    operators: OperatorCounts = OperatorCounts()
    outputs: OutputCounts = OutputCounts()
    stages: StageCounts = StageCounts()
    remembered: int = 0
    seconds: Seconds = Seconds()
    peak_memory_mb: float = 0.0
    assumptions: tuple[str, ...] = ()
    discrete_cases: tuple[str, ...] = ()
    routing: tuple[RoutedTokens, ...] = ()
    reductions: tuple[str, ...] = ()
    heuristic: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()
    dead_operators: tuple[str, ...] = ()
    shown: Shown | None = None
    differing: tuple[str, ...] = ()
    unproven: tuple[str, ...] = ()
    ignored: dict[str, int] = {}
    baseline: Baseline | None = None
    all_known: bool = False
    variants: tuple[VariantVerdict, ...] = ()
    findings: tuple[Finding, ...] = ()
    volatile: tuple[str, ...] = VOLATILE

    def __post_init__(self) -> None:
        if not math.isfinite(self.error_bound_log2) or self.error_bound_log2 > 0:
            raise PitcheckError(
                f"error_bound_log2 is {self.error_bound_log2}; it must be finite and at most 0 (a "
                f"probability of at most 1)"
            )
        if (self.verdict == "mismatch") != (self.shown is not None):
            raise PitcheckError(
                f"a report of verdict {self.verdict!r} with shown={self.shown!r}; give one of "
                f"them the other"
            )
        msgspec.structs.force_setattr(self, "all_known", self._all_known())
        msgspec.structs.force_setattr(self, "exit_code", self._exit_code())

    def _repr_html_(self) -> str:
        """Return the page of the report in a frame; notebooks ask for it."""
        from pitcheck.report.html import notebook  # noqa: PLC0415  heavy, and it needs this module

        return notebook(self)

    def _all_known(self) -> bool:
        failing = [finding for finding in self.findings if finding.verdict != "warning"]
        return (
            self.baseline is not None
            and not self.baseline.new_outputs
            and all(finding.known for finding in failing)
            and self.verdict not in ("invalid", "nothing-checked")
            # The findings must hold the reason of the verdict: without any, nothing is known.
            and (self.verdict == "equivalent" or self.verdict in {f.verdict for f in failing})
        )

    def _exit_code(self) -> int:
        if self.all_known:
            return EXIT_CODES["equivalent"]
        imprecise = self.verdict == "equivalent" and any(
            finding.verdict == "imprecise" for finding in self.findings
        )
        return IMPRECISE if imprecise else EXIT_CODES[self.verdict]
