"""The proof of a stage at its full shapes, in pieces that fit into memory.

>>> import numpy as np
>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> from pitcheck.prove.error_budget import Attempts
>>> from pitcheck.prove.proof import Settings
>>> plan = one_operator("exp", [(64, 512)], (64, 512))
>>> stage = Problem.of(plan, plan).whole_stage()
>>> settings = Settings(np, 1, -64.0, 1, True, 1 << 22)
>>> statement = Statement(stage, {0: "x"}, settings, Attempts("", -64.0))
>>> prove_whole(statement, lambda reduced: Proof("proven")).reductions[-1]
'compared in 8 pieces, 1 of them distinct, each once'
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pitcheck.prove.draws.shaped_proof import joined_proof, prove_shaped
from pitcheck.prove.error_budget import Attempts
from pitcheck.prove.full_shapes.pieces import Piece, pieces, told
from pitcheck.prove.proof import BUDGET, Proof
from pitcheck.prove.stage_sizes import (
    FIRST,
    WHOLE,
    Statement,
    described,
    draws_together,
    held,
    measured_at,
    on_cheapest,
    shaped_at,
)
from pitcheck.stage.reductions.sizes import Measured
from pitcheck.stage.shapes import symbolic_pair

SMALL = 1 << 18
"""The elements of a stage at full sizes up to which these are tried if places have no weights."""
REDUCED_MEMORY = 1 << 26
"""The bytes that reduced sizes may take whatever is allowed: less than the program itself."""


def prove_whole(statement: Statement, prove_reduced: Callable[[Statement], Proof]) -> Proof:
    """Return the proof of a stage at reduced sizes, and then at its full shapes.

    What single draws do not show (where values are missing, outcomes and ties of comparisons, real
    numbers) is looked for at reduced sizes, where it costs little. At full shapes both sides are
    compared until the bound is met. A stage that is open at reduced sizes is looked at like this at
    its own, if it is small. ``prove_reduced``: the way to prove it at reduced sizes, in which
    errors are outcomes.
    """
    stage, settings = statement.stage, statement.settings
    made = settings.made
    small = (
        prove_reduced(at_reduced_sizes(statement))
        if made is None or not made.is_of(statement.kind, statement.attempts)
        else made.entered(statement.attempts)
    )
    if small.outcome == "failed":
        return small
    symbolic = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts(), settings.templates)
    found = measured_at(statement, symbolic, FIRST)
    if small.outcome == "proven":
        whole = _prove_in_pieces(statement, found, WHOLE)
    elif small.code == BUDGET or held(found) <= SMALL:
        return _prove_in_pieces(statement, found, FIRST)
    else:
        return small
    if whole.outcome != "proven":
        return whole
    reductions = whole.reductions
    return replace(joined_proof([small, whole]), reductions=reductions)


def at_reduced_sizes(statement: Statement) -> Statement:
    """Return the statement at reduced sizes, where a processor ends sooner."""
    settings = statement.settings
    memory = max(settings.max_memory, REDUCED_MEMORY)
    few = replace(settings.on_host(), full_shapes=False, max_memory=memory)
    return replace(statement, settings=few, kind=f"{statement.kind}reduced, ")


def _prove_in_pieces(statement: Statement, found: Measured, variant: int) -> Proof:
    """Return the proof of a stage at full shapes, of which one piece after the other is compared.

    A stage that is false has a false piece. So its error is that of one piece, not of all.
    """
    settings, attempts = statement.settings, statement.attempts
    in_slabs = variant == WHOLE
    parts = pieces(found, settings.templates, settings.max_memory, in_slabs=in_slabs)
    proofs: list[Proof] = []
    attempt = attempts.reserve(f"{statement.kind}in pieces") if len(parts) > 1 else None
    errors: list[float] = []
    try:
        for part in parts:
            own = attempts
            if attempt is not None:
                name = f"{attempts.statement}, {attempt.kind} {attempt.number}, {part.name}"
                own = Attempts(name, settings.target_log2)
            proofs.append(_prove_piece(replace(statement, attempts=own), part, variant))
            errors.append(own.spent_log2)
            if proofs[-1].outcome != "proven":
                return proofs[-1]
    finally:
        if attempt is not None:
            attempts.settle(attempt, max((*errors, own.spent_log2)))
    proofs[0].reductions += told(parts)
    return joined_proof(proofs)


def _prove_piece(statement: Statement, piece: Piece, variant: int) -> Proof:
    """Return the proof of a piece of a stage."""
    shaped, _, sizes = shaped_at(statement, piece.found)
    at_once = draws_together(shaped, piece.demand, statement.settings.max_memory)
    statement = on_cheapest(statement, piece.demand, at_once)
    proof = prove_shaped(statement, shaped, variant, at_once)
    proof.reductions = described(sizes, statement.settings)
    return proof
