"""Runs on float64 of inputs in which most blocks of the batch are equal.

They run the whole pair of plans, or one stage of it, for thousands of ranks at the cost of a few.
The input is one of the whole pair, and both plans are evaluated on it as they are. It is cheap
because equal blocks give equal rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from pitcheck.algebra.dimensions.size_choice import Sizes
from pitcheck.algebra.reals.real import RealAlgebra
from pitcheck.claims.problem import Problem
from pitcheck.errors import BudgetError, UnsupportedError
from pitcheck.graph.cuts import Cut
from pitcheck.graph.grids import Codes
from pitcheck.refute.whole_run import WholeRun, compared_run
from pitcheck.stage.block_weights import weighted
from pitcheck.stage.building import build_stage
from pitcheck.stage.equal_blocks import Batched, Blocks, BlockSizes, block_sizes
from pitcheck.stage.evaluate import Keeping, check_memory, evaluate_stage
from pitcheck.stage.reductions.split_all_to_all import taken_apart
from pitcheck.stage.shaped_stage import ShapedStage, shape_stage
from pitcheck.stage.shapes import SymbolicPair, symbolic_pair
from pitcheck.stage.stage import CutOf, Target

COLOURS = 3
"""The number of different blocks of an input that is coloured at random."""
ATTEMPTS = 3
"""The number of inputs that are tried. The first separates the suspected coordinate from those
around it, the next ones colour at random.
"""
TRIALS = 4
"""The draws of a run of the whole pair, one of every kind of discrete draw. There are fewer if that
needs too much memory.
"""
STAGE_TRIALS = 8
"""The draws of a run of one stage."""
LEAST = (3, 2)
"""The elements of a segment of every dimension of the whole pair. The smaller number is used if one
draw at the larger one needs too much memory.

Fewer draws are better than fewer elements: a norm over two elements is nearly a sign, and hides
most faults.
"""
SHARE = 2
"""The part of the memory that the values of a run may need, as a divisor. The estimate beforehand
is above what they really need.
"""


def find_batch(problem: Problem) -> Batched | None:
    """Return the dimension of the reference's inputs that is cut into the most even blocks.

    Return None if there is none.
    """
    found: dict[tuple[int, int], dict[int, int]] = {}
    for cut in problem.specification.initial.values():
        info = problem.reference.values[cut.reference]
        if info.tensor.role != "input" or cut.groups is not None:
            continue
        for dim, different in enumerate(cut.parts.intervals):
            lengths = {i[0][1] - i[0][0] for i in different if len(i) == 1 and i[0][0] >= 0}
            if (
                len(different) > 1
                and len(lengths) == 1
                and all(len(i) == 1 and i[0][0] >= 0 for i in different)
            ):
                found.setdefault((info.shape[dim], lengths.pop()), {})[cut.reference] = dim
    if not found:
        return None
    (total, segment), dims = max(found.items(), key=lambda f: f[0][0] // f[0][1])
    return Batched(total, segment, dims)


def colourings(problem: Problem, batched: Batched, suspects: Codes) -> Iterator[Blocks]:
    """Yield ways to fill the blocks of a batch with few different ones.

    ``suspects``: codes of coordinates that should hold another block than those around them. The
    first way has two blocks: a block is the second one if it is at the place of the suspect along
    an odd number of axes.
    """
    given = problem.specification.initial.values()
    cut = next(cut for cut in given if cut.reference in batched.dims)
    grid = batched.block_of(cut)
    if grid is None:
        return
    places = np.unravel_index(suspects[:1], problem.parallel.coordinates.shape)
    for attempt in range(ATTEMPTS):
        generator = np.random.default_rng([problem.seed, attempt])
        colour = np.zeros((1,) * grid.ndim, dtype=np.int64)
        for axis, size in enumerate(grid.shape):
            if size == 1:
                continue
            own = (
                np.zeros(size, dtype=np.int64)
                if attempt == 0
                else generator.integers(0, COLOURS, size)
            )
            if attempt == 0:
                at = int(places[axis][0]) if len(suspects) else 0
                own[at] = 1
            colour = colour + own.reshape([size if d == axis else 1 for d in range(grid.ndim)])
        numbers, colours = np.broadcast_arrays(grid, colour % (2 if attempt == 0 else COLOURS))
        of_block = np.zeros(batched.count, dtype=np.int64)
        held = numbers >= 0
        of_block[numbers[held]] = colours[held]
        _, firsts, which = np.unique(of_block, return_index=True, return_inverse=True)
        yield Blocks(batched, firsts[which.reshape(-1)].astype(np.int64))


def run_on_blocks(problem: Problem, blocks: Blocks, draws: range = range(TRIALS)) -> WholeRun:
    """Run both plans from their inputs, in as many of the ``draws`` as fit into memory.

    Only the outputs are kept.

    Raises:
        StepError, PlanError: an operator or a cut cannot be evaluated.
        UnsupportedError: the reference does more along the batch than add up.
        BudgetError: one draw does not fit into memory.
    """
    initial = {value: blocks.of(cut) for value, cut in problem.specification.initial.items()}
    return _run(problem, initial.get, problem.targets(), blocks, draws, targets_only=True)


def run_stage_on_blocks(
    problem: Problem, cut_of: CutOf, target: Target, blocks: Blocks
) -> WholeRun:
    """Run one stage and keep all of its values.

    ``blocks`` has the dimensions of all reference values. Raises what ``run_on_blocks`` raises.
    """

    def moved(value: int) -> Cut | None:
        cut = cut_of(value)
        return None if cut is None else blocks.of(cut)

    return _run(problem, moved, [target], blocks, range(STAGE_TRIALS), targets_only=False)


def _run(
    problem: Problem,
    cut_of: CutOf,
    targets: Sequence[Target],
    blocks: Blocks,
    draws: range,
    *,
    targets_only: bool,
) -> WholeRun:
    """Run a stage on blocks, in as many of the ``draws`` as fit into memory."""
    max_memory = problem.options.max_memory
    memory = max_memory // SHARE if targets_only else None
    shaped, symbolic, blocks = shape_on_blocks(problem, cut_of, targets, blocks, memory)
    fitting = max(1, max_memory // SHARE // _bytes(symbolic, shaped.sizes))
    draws = draws[:fitting]
    check_memory(shaped, len(draws), max_memory)
    if _bytes(symbolic, shaped.sizes) > max_memory:
        raise BudgetError(
            f"a draw needs about {_bytes(symbolic, shaped.sizes) >> 20} MiB, more than "
            f"--max-memory allows ({max_memory >> 20} MiB)"
        )
    with np.errstate(all="ignore"):
        evaluated = evaluate_stage(
            shaped,
            RealAlgebra(np, problem.seed, draws),
            keep=Keeping.targets(shaped) if targets_only else None,
        )
    run = compared_run(shaped, symbolic, evaluated)
    return replace(run, blocks=blocks, targets_only=targets_only)


def shape_on_blocks(
    problem: Problem,
    cut_of: CutOf,
    targets: Iterable[Target],
    blocks: Blocks,
    memory: int | None = None,
) -> tuple[ShapedStage, SymbolicPair, Blocks]:
    """Return a stage at reduced sizes with the different blocks alone.

    With ``memory`` (in bytes) the largest of some small sizes are taken at which one draw fits.

    Returns:
        The stage, its dimensions, and the blocks with the dimensions of all its reference values.
    """
    first, templates = problem.reference, problem.templates
    stage = build_stage(first, problem.parallel, cut_of, list(targets))
    if memory is not None:
        # Members of a group that hold equal blocks give equal parts. These are computed once only
        # if parts are rows.
        stage = taken_apart(stage, templates)
    batched = blocks.batched
    known = {value: dim for value, dim in batched.dims.items() if value < len(first.values)}
    own = weighted(
        stage.reference,
        batched.total,
        {v: d for v, d in known.items() if v in stage.reference.inputs},
        templates,
    )
    blocks = replace(
        blocks, batched=replace(batched, dims={**known, **own.dims}, scaled=own.scaled)
    )
    stage = replace(
        stage,
        reference=own.batch,
        targets=tuple(replace(t, cut=blocks.of(t.cut)) for t in stage.targets),
    )
    symbolic = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts(), templates)
    sizes = block_sizes(symbolic, blocks) if memory is None else _fitting(symbolic, blocks, memory)
    keys = {value: f"whole/{info.name}" for value, info in enumerate(own.batch.graph.values)}
    shaped = shape_stage(stage, symbolic, sizes or symbolic.system.solve(0), keys)
    for value, weight in own.weights.items():
        if sizes is None:
            raise UnsupportedError(
                "something is added up over a batch that no input of the stage has"
            )
        shaped.fresh[value] = replace(shaped.fresh[value], numbers=sizes.weights(weight))
    return shaped, symbolic, blocks


def _fitting(symbolic: SymbolicPair, blocks: Blocks, memory: int) -> BlockSizes | None:
    """Return the largest of the sizes in ``LEAST`` at which one draw fits into ``memory`` bytes."""
    sizes = None
    for least in LEAST:
        sizes = block_sizes(symbolic, blocks, least)
        if sizes is None or _bytes(symbolic, sizes) <= memory:
            break
    return sizes


def _bytes(symbolic: SymbolicPair, sizes: Sizes) -> int:
    """Return the bytes of one draw of all values of the reference; the plan's are about as many."""
    return (
        8 * sum(prod(symbolic.reference.shape(value, sizes)) for value in symbolic.reference.values)
        + 1
    )
