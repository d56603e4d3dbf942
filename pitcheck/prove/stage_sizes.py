"""The sizes at which a stage is evaluated, and with how many places along its axes.

>>> import numpy as np
>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> from pitcheck.stage.shapes import symbolic_pair
>>> plan = one_operator("exp", [(64, 512)], (64, 512))
>>> stage = Problem.of(plan, plan).whole_stage()
>>> settings = Settings(np, 1, -64.0, 1, False, 1 << 30)
>>> statement = Statement(stage, {0: "x"}, settings, Attempts("", -64.0))
>>> symbolic = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts())
>>> input_sizes(shaped_at(statement, measured_at(statement, symbolic, 0))[0])
(3, 4)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

from pitcheck.algebra.dimensions.axis_classes import AxisSystem
from pitcheck.algebra.dimensions.scaling_class import Use
from pitcheck.algebra.dimensions.size_choice import Sizes
from pitcheck.algebra.residues.weights import clashing_sizes, patterns
from pitcheck.errors import BudgetError, UnsupportedError
from pitcheck.prove.error_budget import Attempts
from pitcheck.prove.full_shapes.demand import Demand
from pitcheck.prove.full_shapes.pieces import TOGETHER
from pitcheck.prove.place_counts import MOST_PLACES, NEVER, PlaceCounts, weighed_classes
from pitcheck.prove.proof import Settings
from pitcheck.stage.reductions.pipeline import measured, reduced
from pitcheck.stage.reductions.protocol import Context, Phase
from pitcheck.stage.reductions.sizes import Measured
from pitcheck.stage.reductions.weigh_places import plain_sizes
from pitcheck.stage.shaped_stage import ShapedStage, shape_stage
from pitcheck.stage.shapes import SymbolicPair
from pitcheck.stage.stage import Stage

MOST_ELEMENTS = 1 << 19
"""The elements of the largest value, over trials that are evaluated together. More do not fit into
caches, and fewer calls save little.
"""
LEVELS = 3
"""The residues of an element: the length of the shortest chain of primes."""
USUAL_DRAWS = 8
"""The draws together that most stages ask for, if so many are allowed."""
ARRAYS = 3
"""The arrays that an operator reads and writes."""
FIRST = 0
"""The first set of sizes, which refutes."""
WEIGHTED = 1
"""The set of sizes with which places have weights; every stage is proven at both."""
LARGER = (2, 3)
"""The sets of sizes for axes that have no weights."""
SPREAD_OF_INTEGERS = 2
"""The times more places than integers along an axis at which these may stand."""
MOST_HELD = 1 << 21
"""The elements of a stage up to which places that are counted have the number that they need."""
MOST_AVOIDED = 8
"""The most sizes that are avoided because two axes would have them."""
FULL_SIZES = 4
"""The number of full sizes among the sets of sizes, so that other numbers are drawn."""
WHOLE = 5
"""The number of full sizes at which a stage is compared after it was proven at reduced ones."""
FULL = "full shapes, where smaller sizes left a stage open"
"""The words for full shapes in a report."""


@dataclass(frozen=True)
class Statement:
    """A stage, the settings, and the attempts at it.

    ``kind`` begins the names of the attempts. ``free``: the nodes that give any numbers.
    """

    stage: Stage
    keys: dict[int, str]
    settings: Settings
    attempts: Attempts
    kind: str = ""
    free: tuple[int, ...] = ()


class Places(NamedTuple):
    """A stage at definite sizes, its dimensions, its sizes, and the places that it needs."""

    shaped: ShapedStage
    symbols: SymbolicPair
    sizes: Sizes
    counts: PlaceCounts


def measured_at(statement: Statement, symbolic: SymbolicPair, variant: int) -> Measured:
    """Return the stage at full or reduced shapes, after the reductions of its coordinates.

    At reduced shapes it has one (then two) coordinates of every symmetric class.

    Raises:
        UnsupportedError: a stage that shows a few coordinates does not stand for all.
    """
    context = statement.settings.context(variant)
    return _measured(statement, symbolic, context)


def measured_larger(
    statement: Statement, symbolic: SymbolicPair, variant: int, places: Places
) -> Measured:
    """Return the stage at one more set of reduced sizes, with at least the ``places`` of another.

    A class of which no number of places is known has as many as any other needs. Places that are
    counted have the number that they need at the last of these sets of sizes alone, and only if it
    is not too large: nearly all of a mixture of experts is computed along them.

    Raises:
        UnsupportedError: a stage that shows a few coordinates does not stand for all.
    """
    settings, system = statement.settings, places.symbols.system
    tallied = _tallied(system)
    apart = {n: few for n, few in places.counts.needed.items() if n not in tallied}
    most = max((settings.least, *apart.values()))
    partition = system.partition()
    context = settings.context(variant)

    def measured_with(known: Mapping[int, int]) -> Measured:
        needed = {number: known.get(number, most) for number in partition}
        return _measured(statement, symbolic, replace(context, needed=needed))

    all_counted = bool(tallied) and variant == LARGER[-1]
    found = measured_with(places.counts.needed if all_counted else apart)
    if all_counted and held(found) > MOST_HELD:
        found = measured_with(apart)
    if found.symbolic.system.partition() == partition:
        return found
    return _measured(statement, symbolic, replace(context, least=most, needed={}))


def held(found: Measured) -> int:
    """Return the elements of all values of a stage at its sizes."""
    symbolic = found.symbolic
    return symbolic.reference.held(found.sizes) + symbolic.parallel.held(found.sizes)


def _measured(statement: Statement, symbolic: SymbolicPair, context: Context) -> Measured:
    settings = statement.settings
    return measured(statement.stage, symbolic, settings.phases(), context, settings.reductions)


def shaped_at(statement: Statement, found: Measured) -> tuple[ShapedStage, SymbolicPair, Sizes]:
    """Return a stage at definite sizes, with any numbers for the results of the free steps.

    Returns:
        The stage, its dimensions, and the sizes.
    """
    shaped = shape_stage(found.stage, found.symbolic, found.sizes, statement.keys)
    shaped = reduced(
        shaped, Phase.STEPS, Context(free=statement.free), statement.settings.reductions
    )
    if statement.free and not shaped.free:
        raise UnsupportedError("no step is freed of those that are not decided")
    return shaped, found.symbolic, found.sizes


def with_enough_places(statement: Statement, symbolic: SymbolicPair) -> Places:
    """Return the stage at the second set of sizes, with as many places as its degrees ask for.

    Sizes that may be two axes are avoided, so that as many axes as possible have weights.
    """
    settings = statement.settings
    needed: dict[int, int] = {}
    avoided: frozenset[int] = frozenset()
    while True:
        context = replace(settings.context(WEIGHTED), needed=dict(needed), avoided=avoided)
        found = _measured(statement, symbolic, context)
        shaped, symbols, sizes = shaped_at(statement, found)
        counted = _with_all_axes(shaped)
        counts = PlaceCounts.of(counted)
        lacking = {
            number: few
            for number, few in _lacking(counted, counts).items()
            if few > needed.get(number, 0)
        }
        clashing = avoided
        if not _combined(symbols, sizes) <= weighed_classes(counted):
            clashing |= clashing_sizes(sizes.system, sizes, plain_sizes(shaped))
        if len(clashing) > MOST_AVOIDED:
            clashing = avoided
        if not lacking and clashing == avoided:
            return Places(shaped, symbols, sizes, counts)
        needed |= lacking
        avoided = clashing


def _tallied(system: AxisSystem) -> frozenset[int]:
    """Return the classes along which a number of places is compared with that of all."""
    return frozenset(number for number, own in system.classes() if Use.TALLIED in own.uses)


def _with_all_axes(shaped: ShapedStage) -> ShapedStage:
    """Return a stage in which places of all axes are counted that can be told from others."""
    found = patterns(shaped.sizes.system, shaped.sizes, plain_sizes(shaped), tallied=True)
    return replace(shaped, weights=found)


def _lacking(counted: ShapedStage, counts: PlaceCounts) -> dict[int, int]:
    """Return the classes that may lack places at the second set of sizes, with the needed number.

    Places that are compared with the number of all are as many as they need at the last set alone.
    """
    tallied = _tallied(counted.sizes.system)
    found = _told_by_integers(counted)
    for number, few in counts.lacking(counted).items():
        if number not in tallied:
            found[number] = max(few, found.get(number, 0))
    return found


def _told_by_integers(shaped: ShapedStage) -> dict[int, int]:
    """Return the classes along which integers are places, with enough places for them to differ.

    Each of them may stand at a place of its own, and between any two of the others.
    """
    drawn = sum(
        prod(fresh.shape)
        for fresh in shaped.fresh.values()
        if fresh.kind == "int" and not fresh.unread
    )
    few = min(SPREAD_OF_INTEGERS * drawn, MOST_PLACES)
    return {
        number: -(-few * own.unit // own.total)
        for number, own in shaped.sizes.system.classes()
        if own.indexed and shaped.sizes.unit(number) is not None
    }


def input_sizes(shaped: ShapedStage) -> tuple[int, ...]:
    """Return the sizes of all that a stage draws."""
    return tuple(n for fresh in shaped.fresh.values() for n in fresh.shape)


def trials_at_once(symbolic: SymbolicPair, sizes: Sizes, settings: Settings) -> int:
    """Return how many trials are evaluated together.

    Raises:
        BudgetError: one trial needs more memory, or more elements, than is allowed.
    """
    most = settings.max_memory
    largest = max(symbolic.reference.largest(sizes), symbolic.parallel.largest(sizes), 1)
    read = max(symbolic.reference.largest_read(sizes), symbolic.parallel.largest_read(sizes))
    if 8 * LEVELS * read > most:
        raise BudgetError(
            f"a stage reads {read} elements at once, more than --max-memory allows ({most >> 20} "
            f"MiB)"
        )
    held = symbolic.reference.held(sizes) + symbolic.parallel.held(sizes)
    if 8 * LEVELS * held > most:
        raise BudgetError(
            f"a draw of a stage has {held} elements, more than --max-memory allows ({most >> 20} "
            f"MiB)"
        )
    if settings.allowance is not None:
        settings.allowance.take(held)
    return max(1, MOST_ELEMENTS // largest)


def rough_demand(symbolic: SymbolicPair, sizes: Sizes) -> Demand:
    """Return what one draw at reduced sizes takes, by the number of its elements alone."""
    held = symbolic.reference.held(sizes) + symbolic.parallel.held(sizes)
    return Demand(LEVELS * held, held, ARRAYS * held, 0)


def on_cheapest(statement: Statement, demand: Demand, draws: int) -> Statement:
    """Return the statement with the array module on which it is predicted to be proven first.

    It stays as it is if the module is given.
    """
    settings, stage = statement.settings, statement.stage
    if settings.automatic is None:
        return statement
    steps = len(stage.reference.steps) + len(stage.parallel.steps)
    xp = settings.automatic.cheapest(demand, min(draws, USUAL_DRAWS), steps)
    return replace(statement, settings=replace(settings, xp=xp))


def draws_together(shaped: ShapedStage, demand: Demand, most: int) -> int:
    """Return how many draws of a piece are evaluated together within ``most`` bytes."""
    largest = max(
        batch.counts[value] * prod(shape)
        for batch, shapes in zip(
            (shaped.stage.reference, shaped.stage.parallel), shaped.shapes, strict=True
        )
        for value, shape in shapes.items()
    )
    return max(TOGETHER, min(MOST_ELEMENTS // max(largest, 1), most // max(demand.bytes(1), 1)))


def few_places(symbolic: SymbolicPair, sizes: Sizes, weighed: Collection[int]) -> bool:
    """Return True if places along a reduced axis without weights are combined.

    That the axis has few places may be why both sides agree.
    """
    never = {number for number, own in symbolic.system.classes() if own.uses & NEVER}
    return any(n in never or n not in weighed for n in _combined(symbolic, sizes))


def _combined(symbolic: SymbolicPair, sizes: Sizes) -> frozenset[int]:
    """Return the classes of reduced axes along which places are combined."""
    return frozenset(
        number
        for number, own in symbolic.system.classes()
        if own.mixed and sizes.unit(number) is not None
    )


def described(sizes: Sizes, settings: Settings) -> tuple[str, ...]:
    """Return the sizes in sentences, which say if they are larger than those of other stages."""
    if not settings.attempt:
        return tuple(sizes.describe())
    if sizes.identity:
        return (FULL,)
    return tuple(f"{line}, where smaller sizes left a stage open" for line in sizes.describe())
