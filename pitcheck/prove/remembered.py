"""Proofs of stages that earlier runs made, by the canonical form of the stage.

A proof is a statement about a stage, its bound included: it holds in every plan that has the stage.
It is believed only if the same code made it, with the same settings.

>>> one = Proof("proven", error_log2=-80.0, trials=3, attempts=1, primes=(5, 7))
>>> decoded(encoded(one)) == one, decoded(b"{}") is None
(True, True)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from hashlib import sha256

import msgspec

from pitcheck.algebra.residues.drawn_primes import DrawnPrimes
from pitcheck.base.options import Options
from pitcheck.cache.meaning import meaning
from pitcheck.cache.store import FILE, Store
from pitcheck.plan.model import Plan
from pitcheck.prove.proof import Proof, Settings
from pitcheck.prove.routing_counts import Coverage
from pitcheck.stage.reductions.pipeline import STAGE_REDUCTIONS

KIND = "stage"
"""The kind of entry that has the proof of a stage."""


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A proof as it is kept: all fields that a proven stage may have."""

    error_log2: float
    trials: int
    attempts: int
    primes: tuple[int, ...]
    heuristic: bool
    no_tables: str
    sizes: str
    together: str
    unread: str
    reductions: tuple[str, ...]
    discrete: tuple[str, ...]
    squared_roots: bool
    routing: Coverage | None
    undefined: int
    on_gpu: bool


@dataclass
class Remembered:
    """The proofs of earlier runs in a store.

    ``meaning`` is the version of the code, and ``mesh`` describes the axes of the parallel plan: a
    stage of another mesh counts as another one. ``seeded``: True if the user chose the seed. Then
    only proofs by the same seed are taken, so that a seed repeats a report. ``found`` are the forms
    of stages whose proofs were taken.
    """

    store: Store
    meaning: str
    mesh: str
    seeded: bool
    found: set[str] = field(default_factory=set)

    def recall(self, form: str, settings: Settings) -> Proof | None:
        """Return the proof of a stage by its canonical form, or None."""
        if not _is_usual(settings):
            return None
        content = self.store.get(KIND, self._key(form, settings))
        proof = None if content is None else decoded(content)
        if proof is not None:
            self.found.add(form)
        return proof

    def keep(self, form: str, proof: Proof, settings: Settings) -> None:
        """Keep the proof of a stage that is proven."""
        if (
            proof.outcome == "proven"
            and math.isfinite(proof.error_log2)
            and form not in self.found
            and _is_usual(settings)
        ):
            self.store.put(KIND, self._key(form, settings), encoded(proof))

    def _key(self, form: str, settings: Settings) -> str:
        """Return what a proof depends on, in one word: the stage, the code and the settings."""
        seed = settings.seed if self.seeded else None
        said = (
            form,
            self.meaning,
            self.mesh,
            seed,
            settings.xp.__name__ if settings.automatic is None else "auto",
            settings.target_log2,
            settings.least_trials,
            settings.full_shapes,
            settings.max_memory,
            settings.most_trials,
            settings.full_coordinates,
            settings.formal_roots,
            settings.free_functions,
            settings.free_margin_log2,
            settings.least,
            settings.attempt,
        )
        return sha256(repr(said).encode()).hexdigest()


def remembered(options: Options, parallel: Plan) -> Remembered | None:
    """Return the proofs that the options let a check of a parallel plan remember, or None.

    None stands for code that cannot be read as well: then nothing tells its version.
    """
    if options.cache_directory is None:
        return None
    try:
        version = meaning()
    except OSError:
        return None
    store = Store(options.cache_directory / FILE)
    axes = [(axis.name, axis.size) for axis in parallel.mesh]
    return Remembered(store, version, repr((axes, parallel.microbatches)), options.seed is not None)


def encoded(proof: Proof) -> bytes:
    """Return the bytes of the proof of a stage that is proven."""
    fields = {name: getattr(proof, name) for name in Kept.__struct_fields__}
    return msgspec.json.encode(Kept(**{**fields, "undefined": int(proof.undefined)}))


def decoded(content: bytes) -> Proof | None:
    """Return the proof from its bytes; None if they are none."""
    try:
        kept = msgspec.json.decode(content, type=Kept)
    except msgspec.MsgspecError:
        return None
    if not math.isfinite(kept.error_log2) or kept.error_log2 > 0:
        return None
    fields = {name: getattr(kept, name) for name in Kept.__struct_fields__}
    return replace(Proof("proven"), **fields)


def _is_usual(settings: Settings) -> bool:
    """Return True if nothing but what a key says decides how stages are proven."""
    return (
        settings.allowance is None
        and isinstance(settings.primes, DrawnPrimes)
        and settings.reductions == STAGE_REDUCTIONS
    )
