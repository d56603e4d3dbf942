"""The proof of one stage: complete redraws over residues until the bound is met.

A stage is proven at two sets of sizes, and with weights for the places of axes that are reduced.

>>> import numpy as np
>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> stage = Problem.of(plan, plan).whole_stage()
>>> prove_stage(stage, {0: "x"}, Settings(np, 1, -64.0, 1, False, 1 << 30)).outcome
'proven'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from pitcheck.algebra.residues.backend_residues import Logarithms
from pitcheck.algebra.residues.drawn_primes import Family
from pitcheck.algebra.residues.weights import UnweighedError
from pitcheck.errors import BudgetError, PitcheckError, UnsupportedError
from pitcheck.prove.domains.guards import Extent
from pitcheck.prove.domains.undefined_cuts import needed
from pitcheck.prove.draws.shaped_proof import LENGTHS, joined_proof, prove_shaped
from pitcheck.prove.draws.stage_algebras import undefined_algebra_of
from pitcheck.prove.error_budget import Attempts
from pitcheck.prove.full_shapes.whole_proof import SMALL, at_reduced_sizes, prove_whole
from pitcheck.prove.integers.cases import with_cases
from pitcheck.prove.integers.joint import joint_draws
from pitcheck.prove.place_counts import MOST_PLACES, PlaceCounts
from pitcheck.prove.proof import BUDGET, MadeAhead, Proof, Settings
from pitcheck.prove.stage_sizes import (
    FIRST,
    FULL_SIZES,
    LARGER,
    WEIGHTED,
    Places,
    Statement,
    described,
    few_places,
    input_sizes,
    measured_at,
    measured_larger,
    on_cheapest,
    rough_demand,
    shaped_at,
    trials_at_once,
    with_enough_places,
)
from pitcheck.stage.reductions.pipeline import reduced
from pitcheck.stage.reductions.protocol import Context, Phase
from pitcheck.stage.reductions.sizes import Measured
from pitcheck.stage.run_batch import StepError
from pitcheck.stage.shaped_stage import ShapedStage
from pitcheck.stage.shapes import SymbolicPair, symbolic_pair
from pitcheck.stage.stage import Stage

ESTIMATED = "the bound at reduced sizes is an estimate"
TOO_FEW = (
    f"a formula may need more than {MOST_PLACES} places along an axis to be seen, and the stage is "
    "too large for its own sizes; --shapes full tries them"
)
NO_WEIGHTS = "places along an axis have no weights"
"""The reasons why a proof may not hold at every size, besides those of its places."""
PARTS_APART = "parts apart, "
"""The beginning of the names of attempts at a stage that has parts as rows."""
MOST_FREE = 2
"""The number of steps of a stage, with all that compute the same, for which any numbers are tried.
"""


def prove_stage(
    stage: Stage, keys: dict[int, str], settings: Settings, statement: str = ""
) -> Proof:
    """Prove a stage, or say why not.

    ``keys`` name the reference inputs. ``statement`` names what is to be proven: attempts at
    different statements draw different numbers. The error of the proof is that of all attempts
    made. An error of an operator becomes an inconclusive proof; nothing is raised.
    """
    settings.work.at(stage.name, *stage.ends_in)
    attempts = Attempts(statement, settings.target_log2)
    proof = _apart_or_whole(stage, keys, settings, attempts)
    if proof.code == "PIT200" and settings.full_shapes and _has_all_coordinates(stage, settings):
        every = replace(settings, full_coordinates=True, made=None)
        proof = _apart_or_whole(stage, keys, every, attempts)
    return replace(proof, error_log2=attempts.spent_log2, attempts=attempts.count)


def prove_at_reduced_sizes(
    stage: Stage, keys: dict[int, str], settings: Settings, statement: str = ""
) -> MadeAhead:
    """Return the proof at reduced sizes with which the proof of a stage at full shapes begins."""
    attempts = Attempts(statement, settings.target_log2)
    apart = _apart(stage, settings) if Phase.ROWS in settings.phases() else stage
    first = Statement(apart, keys, settings, attempts, "" if apart is stage else PARTS_APART)
    proof = _proof_of(at_reduced_sizes(first), _prove_variants)
    return MadeAhead(first.kind, proof, attempts.errors)


def _has_all_coordinates(stage: Stage, settings: Settings) -> bool:
    """Return True if a stage can be evaluated at all its coordinates, and was at a few.

    One that was cut out at a few coordinates does not have the others.
    """
    return stage.sampling is None and not settings.full_coordinates


def undefined_at_cuts(
    stage: Stage,
    keys: dict[int, str],
    settings: Settings,
    parts: Mapping[int, Extent],
    logarithms: Logarithms,
) -> Extent | None:
    """Return the part of a proven stage's target that its cuts may leave without a value.

    ``parts``: what inputs may leave without a value of a reference value that is cut at.
    ``logarithms``: the tables that several stages share. Return None if the parallel plan may lack
    more than the reference, or if that cannot be seen.
    """
    settings = settings.here
    try:
        shaped, at_once = _at_first_sizes(stage, keys, settings)
        shaped = with_cases(shaped).shaped
        further = partial(joint_draws, shaped, settings.seed)
        for length in LENGTHS:
            chain = settings.primes.chain(Family(length), 0)
            redraw = partial(
                undefined_algebra_of,
                shaped,
                settings,
                chain,
                logarithm=logarithms.of(settings.xp, chain),
            )
            try:
                return needed(shaped, parts, redraw, at_once, further)
            except StepError as error:
                if not isinstance(error.cause, BudgetError):
                    raise
    except (PitcheckError, MemoryError):
        pass
    return None


def _at_first_sizes(
    stage: Stage, keys: dict[int, str], settings: Settings
) -> tuple[ShapedStage, int]:
    """Return a stage at its first set of sizes, and the trials that are evaluated together.

    Of full shapes these are the reduced ones, at which a stage is proven first.
    """
    if settings.in_pieces:
        settings = replace(settings, full_shapes=False)
    statement = Statement(stage, keys, settings, Attempts("", settings.target_log2))
    symbolic = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts(), settings.templates)
    found = measured_at(statement, symbolic, FIRST)
    shaped, symbols, sizes = shaped_at(statement, found)
    return shaped, trials_at_once(symbols, sizes, settings)


def _apart_or_whole(
    stage: Stage, keys: dict[int, str], settings: Settings, attempts: Attempts
) -> Proof:
    """Return the proof of a stage with parts as rows, or as the plan has it if that fails."""
    apart = _apart(stage, settings) if Phase.ROWS in settings.phases() else stage
    first = (
        None
        if apart is stage
        else _proof_of(Statement(apart, keys, settings, attempts, PARTS_APART))
    )
    if first is not None and first.outcome == "proven":
        return first
    # A stage that is wrong or undecided is looked at as the plan has it, so that findings name the
    # plan's rows. If that is too large, the failure with parts as rows stands.
    proof = _proof_of(Statement(stage, keys, settings, attempts))
    return (
        first if first is not None and first.outcome == "failed" and proof.code == BUDGET else proof
    )


def _apart(stage: Stage, settings: Settings) -> Stage:
    """Return the stage with more and smaller rows; the stage itself if that is not possible."""
    try:
        return reduced(stage, Phase.ROWS, Context(settings.templates), settings.reductions)
    except (PitcheckError, MemoryError):
        return stage


def _proof_of(statement: Statement, prove: Callable[[Statement], Proof] | None = None) -> Proof:
    """Return the proof of a stage, in which errors are outcomes.

    ``prove``: the way to prove it; None: with any numbers for what is not decided.
    """
    try:
        return (prove or _whatever_is_decided)(statement)
    except StepError as error:
        return _refused(error.cause, str(error))
    except (UnsupportedError, BudgetError) as error:
        return _refused(error, str(error))
    except MemoryError as error:
        return _refused(BudgetError("memory"), f"a stage does not fit into memory: {error}")


def _whatever_is_decided(statement: Statement) -> Proof:
    """Return the proof of a stage, also if steps do not decide both ways.

    Any numbers are then drawn for what these steps give. That such numbers differ refutes nothing.
    """
    proof = last = _either_way(statement)
    free: list[int] = []
    while last.undecided is not None and last.undecided not in free and len(free) < MOST_FREE:
        free.append(last.undecided)
        try:
            last = _either_way(
                replace(statement, free=tuple(free), kind=f"{statement.kind}{len(free)} free, ")
            )
        except (PitcheckError, MemoryError):
            return proof
    return proof if last.outcome != "proven" else last


def _either_way(statement: Statement) -> Proof:
    """Return the proof with formal roots, or without if these are squared and prove nothing.

    Each is a proof by itself.
    """
    proof = _prove_variants(statement)
    if proof.outcome == "proven" or not proof.squared_roots:
        return proof
    settings = replace(statement.settings, formal_roots=False)
    plain = _prove_variants(
        replace(statement, settings=settings, kind=f"{statement.kind}roots as residues, ")
    )
    return proof if plain.outcome != "proven" else plain


def _refused(error: PitcheckError, text: str) -> Proof:
    """Return the inconclusive proof that an error leads to."""
    code = (
        "PIT200"
        if isinstance(error, UnsupportedError)
        else BUDGET
        if isinstance(error, BudgetError)
        else "PIT003"
    )
    return Proof("inconclusive", code=code, reason=text)


def _prove_variants(statement: Statement) -> Proof:
    """Return the proof at all sets of sizes; the first one that fails decides."""
    stage, settings = statement.stage, statement.settings
    if settings.in_pieces:
        return prove_whole(statement, partial(_proof_of, prove=_prove_variants))
    symbolic = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts(), settings.templates)
    found = measured_at(statement, symbolic, FIRST)
    shaped, symbols, sizes = shaped_at(statement, found)
    at_once = trials_at_once(symbols, sizes, settings)
    if settings.automatic is not None:
        statement = on_cheapest(statement, rough_demand(symbols, sizes), at_once)
    proofs = [prove_shaped(statement, shaped, FIRST, at_once)]
    proofs[0].reductions = described(sizes, settings)
    if proofs[0].outcome != "proven":
        return proofs[0]
    if proofs[0].no_tables:
        # Tables that do not prove it at one set of sizes do not at another.
        statement = replace(statement, settings=replace(statement.settings, free_functions=False))
    if not settings.full_shapes:
        proofs += _prove_with_weights(statement, symbolic, shaped, proofs[0])
    if proofs[-1].outcome != "proven":
        return proofs[-1]
    return joined_proof(proofs)


def _prove_with_weights(
    statement: Statement, symbolic: SymbolicPair, first: ShapedStage, before: Proof
) -> list[Proof]:
    """Return the proofs at other sizes than ``first``, with weights, and at more if need be.

    A proof that fails is the last. ``before`` is the proof at these first sizes, which is told why
    it may not hold at others if there are none.
    """
    places = with_enough_places(statement, symbolic)
    shaped, symbols, sizes, counts = places
    if input_sizes(shaped) == input_sizes(first):
        before.sizes = PlaceCounts.of(first).limit(first)
        return []
    at_once = trials_at_once(symbols, sizes, statement.settings)
    weighted, weighed = _prove_weighted(statement, shaped, counts, at_once)
    proven = weighted is not None and weighted.outcome == "proven"
    proof = (
        weighted
        if weighted is not None and proven
        else prove_shaped(statement, shaped, WEIGHTED, at_once)
    )
    proof.reductions = described(sizes, statement.settings)
    if not proven:
        proof.sizes = PlaceCounts.of(shaped).limit(shaped)
    if proof.outcome == "proven" and few_places(symbols, sizes, weighed):
        return [proof, *_prove_larger(statement, symbolic, weighted, places)]
    return [proof]


def _prove_larger(
    statement: Statement, symbolic: SymbolicPair, weighted: Proof | None, places: Places
) -> list[Proof]:
    """Return the proofs at full sizes if they are small, else at more reduced ones.

    A proof that fails is the last. If ``weighted`` failed, both sides differ once places have
    weights: then reduced sizes, however many, are no proof. Nor are they if more places are known
    to be needed than are tried.
    """
    full = symbolic.system.full()
    small = symbolic.reference.held(full) + symbolic.parallel.held(full) <= SMALL
    if not small and weighted is not None and weighted.outcome == "failed":
        return [
            replace(
                weighted,
                reason="both plans agree at some sizes, but not where every place along an axis "
                "that is reduced has a weight",
            )
        ]
    if not small and places.counts.beyond:
        return [Proof("inconclusive", code=BUDGET, reason=TOO_FEW)]
    why = weighted.sizes if weighted is not None and weighted.outcome == "proven" else NO_WEIGHTS
    proofs: list[Proof] = []
    for variant in (FULL_SIZES,) if small else LARGER:
        found = (
            Measured(statement.stage, symbolic)
            if small
            else measured_larger(statement, symbolic, variant, places)
        )
        shaped, symbols, sizes = shaped_at(statement, found)
        at_once = trials_at_once(symbols, sizes, statement.settings)
        proof = prove_shaped(statement, shaped, variant, at_once)
        proofs.append(replace(proof, sizes="" if small else why))
        if proof.outcome != "proven":
            break
    return proofs


def _prove_weighted(
    statement: Statement, shaped: ShapedStage, counts: PlaceCounts, at_once: int
) -> tuple[Proof | None, frozenset[int]]:
    """Return the proof of a stage with a weight for every place of its reduced axes.

    A failure refutes nothing: the real places all have weight 1.

    Returns:
        The proof, or None if it cannot be tried; the classes of dimensions that are settled, if the
        stage is proven.
    """
    context = Context()
    while (
        weighted := reduced(shaped, Phase.WEIGHTS, context, statement.settings.reductions)
    ).weights:
        try:
            proof = prove_shaped(statement, weighted, WEIGHTED, at_once)
        except StepError as error:
            if not isinstance(error.cause, UnweighedError):
                break
            context = replace(context, unweighed=context.unweighed | {error.cause.size})
        except PitcheckError:
            break
        else:
            if proof.outcome != "proven":
                return proof, frozenset()
            if context.unweighed:
                counts = PlaceCounts.of(weighted)
            proof.sizes = counts.limit(weighted) or (ESTIMATED if proof.heuristic else "")
            return proof, counts.settled
    return None, frozenset()
