"""The reference and the parallel plan of a program before and after it was partitioned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pitcheck.errors import BudgetError, PlanError, UnsupportedError
from pitcheck.frontends.protocol import Attempt
from pitcheck.frontends.xla.lowering.index_ranges import index_ranges
from pitcheck.frontends.xla.lowering.indexed.promises import assumed_promises
from pitcheck.frontends.xla.lowering.inputs import Constants, PartitionedConstants
from pitcheck.frontends.xla.lowering.loops.common import Key, Loop, common_loops
from pitcheck.frontends.xla.lowering.loops.counted import (
    CountedScalars,
    PartitionedCountedScalars,
)
from pitcheck.frontends.xla.lowering.loops.induction import NotFoldedError
from pitcheck.frontends.xla.lowering.placement import lineage_of
from pitcheck.frontends.xla.lowering.random.codebook import Codebook, Ints
from pitcheck.frontends.xla.lowering.random.draws import Draw, Draws, PartitionedDraws
from pitcheck.frontends.xla.lowering.random.samples import Sampled
from pitcheck.frontends.xla.lowering.side import Parameter, Side, parameters_of
from pitcheck.frontends.xla.text.module import Module
from pitcheck.frontends.xla.text.parser import read_hlo
from pitcheck.frontends.xla.text.rounded_literals import literals_meant
from pitcheck.frontends.xla.text.shapes import ArrayShape, leaves
from pitcheck.frontends.xla.text.sharding import Placement, Sharding, Use
from pitcheck.plan.model import Output, Plan

PARTITIONED = "_spmd"
"""The ending of the name of a program that is partitioned."""
MOST_FOLDINGS = 8
"""The times that a program is read with loops folded, one less each time."""
MOST_REPEATED = 16
"""The numbers in padding, of those that stand in several places, that are looked at."""
LATER_PASSES = "the passes of XLA behind the partitioner keep what the text after it says"
"""The assumption in every report on texts: nothing behind them is looked at."""


def read_partitioned(before: Path, after: Path) -> Iterator[Attempt]:
    """Yield the plans of a program before and after the partitioner, loops folded at first.

    Raises:
        PlanError: a text is damaged, or both are not of one program.
        UnsupportedError: something has no meaning in a plan.
        BudgetError: a text, or what it unfolds to, is too large.
        OSError: a file cannot be read.
    """
    yield from attempts_on(read_hlo(before), read_hlo(after))


def attempts_on(before: Module, after: Module, stated: Module | None = None) -> Iterator[Attempt]:
    """Yield the plans of :func:`plans_of`, before them those whose loops are folded.

    Raises what :func:`plans_of` raises.
    """
    if stated is None:
        yield from _folded(before, after)
    try:
        made = _made(before, after, stated)
    except UnsupportedError:
        yield from _drawn_late(before, after, stated)
        raise
    if made.draws:
        yield from _drawn_late(before, after, stated)
    if made.doubt is not None:
        yield Attempt(made.plans, decides=False)
        raise made.doubt
    yield Attempt(made.plans)


def _drawn_late(before: Module, after: Module, stated: Module | None) -> Iterator[Attempt]:
    """Yield plans in which what depends on random numbers alone is a random number, too.

    Fewer operators are left to prove then, and less is known of their operands.
    """
    try:
        made = _made(before, after, stated, late=True)
    except (PlanError, UnsupportedError, BudgetError):
        return
    if made.draws and made.has_numbers:
        yield Attempt(made.plans, decides=False)


def _folded(before: Module, after: Module) -> Iterator[Attempt]:
    """Yield plans in which as many loops are folded as may be; none if none may be.

    What no induction leads over may be followed all the same, so it is no error here.
    """
    loops = common_loops(before, after)
    for _ in range(MOST_FOLDINGS):
        if not loops[0]:
            return
        try:
            made = _made(before, after, None, loops, late=True)
        except NotFoldedError as error:
            loops = _without(loops[0], error.loop), _without(loops[1], error.loop)
        except (PlanError, UnsupportedError, BudgetError):
            return
        else:
            if not made.has_numbers:
                return
            reductions = tuple(_inductions(loops[1]))
            yield Attempt(made.plans, decides=False, states=made.states, reductions=reductions)
            return


def _without(loops: Mapping[Key, Loop], loop: Loop) -> dict[Key, Loop]:
    return {key: each for key, each in loops.items() if each is not loop}


def plans_of(before: Module, after: Module, stated: Module | None = None) -> tuple[Plan, Plan]:
    """Return the plans of the modules before and after the partitioner.

    ``stated`` is the module that was partitioned, from which shardings are taken, if ``before`` is
    another one, of whole arrays. Parameters and results of both correspond by their places. None:
    it is ``before``. Every loop is followed iteration by iteration.

    Raises:
        PlanError: they are not of one program.
        UnsupportedError: something has no meaning in a plan.
        BudgetError: what they unfold to is too large.
    """
    made = _made(before, after, stated)
    if made.doubt is not None:
        raise made.doubt
    return made.plans


@dataclass(frozen=True)
class Made:
    """The plans of both programs.

    Attributes:
        plans: those before and after the partitioner.
        states: for each array of a loop, which is an input, the outputs that it must be like.
        draws: the random numbers that they are given.
        book: the expressions that they are.
        files: the texts, before and after the partitioner.
        loose: True if random numbers of the reference are taken for any numbers somewhere.
        repeated: the codes of padding that stand in several places.
        constants: the constants that they are given.
    """

    plans: tuple[Plan, Plan]
    states: Mapping[str, tuple[str, ...]]
    draws: tuple[Draw, ...]
    book: Codebook
    files: tuple[str, str]
    loose: bool
    repeated: Ints
    constants: tuple[str, ...]

    @cached_property
    def doubt(self) -> UnsupportedError | None:
        """The reason why a difference says nothing, while a proof holds; None if there is none.

        Bits that little is done to may be equal though their codes are not.
        """
        before, after = self.files
        if self.not_random is not None:
            return UnsupportedError(
                f"{before}: {self.not_random.name} is of integers that wrap around or whose bits "
                f"are mixed, and of no generator of random numbers, or always one number; nothing "
                f"but that they are computed in the same way can be shown of them"
            )
        if self.constants:
            return UnsupportedError(
                f"{before}: {self.constants[0]} has more numbers than are followed; any numbers "
                f"stand for them, so a difference says nothing of these"
            )
        if self.loose or self._repeats:
            return UnsupportedError(
                f"{after}: arrays of random numbers are filled up with numbers that stand "
                f"elsewhere, too; that a result depends on these cannot be shown"
            )
        return None

    @cached_property
    def _sampled(self) -> Sampled:
        """Samples of the expressions, which are taken once."""
        return Sampled(self.book)

    @property
    def _repeats(self) -> bool:
        """True if padding has a number twice that is no constant, or too many to look at."""
        some = self.repeated[:MOST_REPEATED].tolist()
        return len(self.repeated) > len(some) or not all(map(self._sampled.is_constant, some))

    @property
    def has_numbers(self) -> bool:
        """True unless a random number is infinite, or none, for some keys that were tried."""
        return self._sampled.are_finite(draw.codes for draw in self.draws)

    @cached_property
    def not_random(self) -> Draw | None:
        """The first draw whose bits are not mixed as a generator does it, or that is constant."""
        varies = self._sampled.varies
        others = (d for d in self.draws if not (d.mixed and varies(d.codes)))
        return next(others, None)


def _made(
    before: Module,
    after: Module,
    stated: Module | None,
    loops: tuple[Mapping[Key, Loop], Mapping[Key, Loop]] = ({}, {}),
    *,
    late: bool = False,
) -> Made:
    """Return the plans of :func:`plans_of`, with loops folded, and random numbers drawn late.

    Raises what :func:`plans_of` raises.
    """
    devices = after.header.partitions
    for module in (before, before if stated is None else stated):
        _check_devices(module, after)
    _refuse_swapped(before, after)
    if stated is not None:
        _check_plain(before)
        _check_same_signature(before, stated)
    promises = assumed_promises(before if stated is None else stated, after)
    bounds = index_ranges(before)
    given = list(parameters_of(before))
    draws = Draws(late=late)
    constants = Constants()
    scalars = CountedScalars()
    reference = Side(before, 1, given, bounds, loops[0], draws, constants, scalars)
    # The reference has all its random numbers before a partitioned program is given parts of them.
    outputs, claims = reference.named_results(), reference.named_claims()
    local_given = _local(given, after, devices)
    parts = PartitionedDraws(draws)
    kept = PartitionedConstants(constants)
    counted = PartitionedCountedScalars(scalars)
    parallel = Side(after, devices, local_given, bounds, loops[1], parts, kept, counted)
    if len(outputs) != len(parallel.results):
        raise PlanError(
            f"{after.file}: the program has {len(parallel.results)} results; before it was "
            f"partitioned it has {len(outputs)}"
        )
    shardings = list(_shardings(before if stated is None else stated))
    if len(shardings) != len(outputs):
        raise PlanError(f"{after.file}: {len(shardings)} results are sharded of {len(outputs)}")
    for number, (own, result) in enumerate(zip(_shardings(after), reference.results, strict=True)):
        _check_kept(number, shardings[number], own, result.rank, after)
    if reference.induction.met != parallel.induction.met:
        raise UnsupportedError(f"{after.file}: its loops are not those of {before.file}")
    states: dict[str, tuple[str, ...]] = {}
    for name, claim in zip(claims, reference.induction.claims, strict=True):
        states[claim.given] = (*states.get(claim.given, ()), name)
    local = [
        *(
            parallel.output(name, number, reference.results[number], shardings[number])
            for number, name in enumerate(outputs)
        ),
        *map(parallel.claimed, claims, parallel.induction.claims),
    ]
    reference.make(parallel.read())
    for held in (parts, kept, counted):
        parallel.hold_rest(held)
    read = [each for each in given if each.number in reference.read()]
    plans = (
        reference.plan([Output(name) for name in (*outputs, *claims)], ()),
        parallel.plan(
            local,
            (
                LATER_PASSES,
                *promises,
                *_assumed(read, bounds),
                *_assumed_literals(before, after),
                *_assumed_random(draws.all),
            ),
        ),
    )
    files = before.file, after.file
    drawn = tuple(draws.all)
    names = tuple(constant.name for constant in constants.all)
    return Made(plans, states, drawn, draws.book, files, parts.loose, parts.repeated, names)


def _inductions(loops: Mapping[Key, Loop]) -> Iterator[str]:
    """Yield a sentence on each loop of the partitioned program that is not followed."""
    for (_, name), loop in loops.items():
        yield (
            f"loop {name} ends when its counter is {loop.limit}; it is proven by induction on one "
            f"iteration in any state"
        )


def _check_devices(module: Module, after: Module) -> None:
    """Check that a module is for one device, or for those of the partitioned program."""
    if after.header.replicas != 1 or module.header.replicas != 1:
        raise UnsupportedError(f"{after.file}: a program of several replicas has no meaning here")
    if module.header.partitions not in {1, after.header.partitions}:
        raise PlanError(
            f"{after.file}: the program has {after.header.partitions} partitions; before it was "
            f"partitioned it is for {module.header.partitions}"
        )


def _check_plain(before: Module) -> None:
    """Check that no part of a module is what one device computes. Raises UnsupportedError."""
    for computation in before.computations.values():
        for instruction in computation.instructions.values():
            target = instruction.get("custom_call_target", "")
            if target == "SPMDFullToShardShape" or instruction.opcode == "partition-id":
                raise UnsupportedError(
                    f"{before.file}:{instruction.line}: the plain program has a shard_map; give a "
                    f"function of whole arrays without one"
                )


def _check_same_signature(plain: Module, stated: Module) -> None:
    """Check that two programs have parameters and results of one number, shape and type.

    What a device holds does not tell: a part of 7 rows and one of 8 may be of one size, with
    padding behind the first. Raises PlanError.
    """
    (given, result), (sharded, sharded_result) = (
        module.computations[module.entry].signature for module in (plain, stated)
    )
    for what, these, those in (
        ("parameter", given, sharded),
        ("result", [*leaves(result)], [*leaves(sharded_result)]),
    ):
        if len(these) != len(those):
            raise PlanError(
                f"the sharded program has {len(those)} {what}s, the plain one {len(these)}; they "
                f"correspond by their places"
            )
        for number, (one, other) in enumerate(zip(these, those, strict=True)):
            if one != other:
                raise PlanError(
                    f"{what} {number} of the sharded program is {other}, and {one} of the plain "
                    f"one; give functions that agree in shapes and dtypes"
                )


def _refuse_swapped(before: Module, after: Module) -> None:
    """Raise PlanError for texts in each other's place: the partitioner adds to the name."""
    if before.entry.endswith(PARTITIONED) and not after.entry.endswith(PARTITIONED):
        raise PlanError(
            f"the texts are swapped: {before.file} is the one after the partitioner; name the one "
            f"before it first"
        )


def _local(given: Sequence[Parameter], after: Module, devices: int) -> list[Parameter]:
    """Return the parameters as the partitioned program has them, by the shardings stated there."""
    entry = after.computations[after.entry]
    if len(entry.parameters) != len(given):
        raise PlanError(
            f"{after.file}: the program has {len(entry.parameters)} parameters; before it was "
            f"partitioned it has {len(given)}"
        )
    found = []
    for parameter, name in zip(given, entry.parameters, strict=True):
        instruction = entry.instructions[name]
        place = f"{after.file}:{instruction.line}"
        sharding = instruction.sharding
        if isinstance(sharding, tuple) or not isinstance(instruction.shape, ArrayShape):
            raise UnsupportedError(f"{place}: a parameter that is a tuple has no meaning here")
        if parameter.sharding is not None and sharding is not None:
            _check_same(parameter, sharding, devices, place)
        stated = sharding or parameter.sharding
        sizes = lineage_of("", parameter.shape.dimensions, stated, devices, place)[1]
        if instruction.shape != ArrayShape(parameter.shape.element, sizes):
            raise PlanError(
                f"parameter {parameter.number} ({parameter.name}) is {instruction.shape}; its "
                f"sharding makes it {ArrayShape(parameter.shape.element, sizes)}",
                place,
            )
        found.append(
            Parameter(
                parameter.name, parameter.number, parameter.shape, stated, instruction.line, sizes
            )
        )
    return found


def _check_same(parameter: Parameter, sharding: Sharding, devices: int, place: str) -> None:
    """Check that both programs state one sharding of a parameter. Raises PlanError."""
    rank = len(parameter.shape.dimensions)
    if parameter.sharding is not None and not _same(parameter.sharding, sharding, rank, devices):
        raise PlanError(
            f"parameter {parameter.number} ({parameter.name}) has another sharding than before "
            f"the program was partitioned",
            place,
        )


def _check_kept(
    number: int, before: Sharding | None, own: Sharding | None, rank: int, after: Module
) -> None:
    """Check that a partitioned program states no other sharding of a result. Raises PlanError."""
    if before is None or own is None or _same(before, own, rank, after.header.partitions):
        return
    raise PlanError(
        f"{after.file}: result {number} has another sharding than before the program was "
        f"partitioned"
    )


def _same(first: Sharding, second: Sharding, rank: int, devices: int) -> bool:
    """Return True if each device holds the same part by two shardings."""
    return all(
        _held(first.placement(device, rank)) == _held(second.placement(device, rank))
        for device in range(devices)
    )


def _held(placement: Placement | None) -> tuple[tuple[int, ...], dict[Use, int]] | None:
    """Return what a device holds: the tile, and its number among those that are no copies."""
    if placement is None:
        return None
    numbers = dict(placement.numbers)
    numbers.pop(Use.REPLICATED, None)
    return placement.tile, numbers


def _assumed(given: Sequence[Parameter], bounds: Mapping[int, tuple[int, int]]) -> Iterator[str]:
    """Yield what is assumed of integers that are given."""
    for parameter in given:
        if parameter.shape.element.is_integer:
            low, high = parameter.bounds(bounds)
            reason = ", as they index" if parameter.number in bounds else ""
            yield f"the integers in {parameter.name} lie in [{low}, {high}){reason}"


def _assumed_literals(before: Module, after: Module) -> Iterator[str]:
    """Yield that literals stand for fractions, with the first of them; nothing if none do."""
    for number, fraction in literals_meant(before, after):
        yield (
            f"a literal stands for the simplest number that rounds to it in its dtype, as "
            f"{float(number):.9g} for {fraction}"
        )
        return


def _assumed_random(draws: Sequence[Draw]) -> Iterator[str]:
    """Yield what is assumed of random numbers."""
    if draws:
        yield (
            "random numbers with one key, algorithm and place are the same before and after; they "
            "are taken as free"
        )


def _shardings(module: Module) -> Iterator[Sharding | None]:
    """Yield the sharding that is stated of each result of the program."""
    root = module.computations[module.entry].result
    count = sum(1 for _ in leaves(root.shape))
    stated = root.sharding
    if isinstance(stated, tuple):
        yield from stated
    else:
        yield from [stated] * count
