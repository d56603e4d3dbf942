"""Rules on blocks, programs and steps, and on the order of operators within a rank.

The local order is here too, as arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from pitcheck.plan.model import MICROBATCH_AXIS, Use
from pitcheck.plan.rules.ssa import ACCUMULATE
from pitcheck.plan.rules.violations import Violation
from pitcheck.plan.schedule.events import refined, row_numbers
from pitcheck.plan.schedule.run_order import Ints, Schedule, tensor_of


@dataclass(frozen=True)
class LocalOrder:
    """The order of the ranks of one class.

    ``codes`` are operator position * microbatches + microbatch. ``missing`` are the codes that
    should run there but stand in no step, ``twice`` those that stand in several.
    """

    ranks: Ints
    codes: Ints
    missing: Ints
    twice: Ints


class LocalOrders:
    """The orders of all classes of ranks with the same program, operators and operands.

    Iterating gives one class at a time.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.microbatches = schedule.microbatches
        self.mask_of = np.array(schedule.mask_numbers, dtype=np.int64)
        first = {
            int(number): position for position, number in reversed(list(enumerate(self.mask_of)))
        }
        self.masks = [schedule.mask(first[number]) for number in range(len(first))]

    def __iter__(self) -> Iterator[LocalOrder]:
        classes = self._classes()
        for _, order in self.schedule.orders():
            for found in np.unique(classes[order.ranks]):
                ranks = order.ranks[classes[order.ranks] == found]
                yield self._local(ranks, order.codes)

    def _classes(self) -> Ints:
        classes = np.zeros(self.schedule.coordinates.ranks, dtype=np.int64)
        for mask in self.masks:
            if not mask.all():
                classes = refined(classes, row_numbers(mask))
        # Only the root of a broadcast reads its operand, so it may run before that is written.
        for mask in {id(mask): mask for mask in self.schedule.root_reads.values()}.values():
            classes = refined(classes, row_numbers(mask))
        return classes

    def _local(self, ranks: Ints, codes: Ints) -> LocalOrder:
        rows = (
            np.stack([mask[ranks[0]] for mask in self.masks])
            if self.masks
            else np.zeros((0, self.microbatches), dtype=np.bool_)
        )
        expected = rows[self.mask_of].reshape(-1)
        running = codes[expected[codes]]
        counts = np.bincount(running, minlength=len(expected))
        missing = np.flatnonzero(expected & (counts == 0))
        return LocalOrder(ranks, running, missing, np.flatnonzero(counts > 1))


def check_programs(schedule: Schedule) -> Iterator[Violation]:
    """Yield PIT009 for faults of blocks, programs and steps, wherever operators run."""
    plan = schedule.plan
    ids = {operator.id: position for position, operator in enumerate(plan.operators)}
    for name, block in plan.blocks.items():
        seen: set[str] = set()
        for number, identity in enumerate(block):
            place = f"blocks.{name}[{number}]"
            if identity not in ids:
                yield Violation(
                    "PIT009", place, f"block {name!r} names {identity!r}, which is no operator's id"
                )
            elif identity in seen:
                yield Violation(
                    "PIT009",
                    place,
                    f"block {name!r} names operator {identity!r} twice",
                    operator=identity,
                )
            seen.add(identity)
    if plan.blocks and not plan.programs:
        yield Violation(
            "PIT009",
            "programs",
            "there are blocks but no programs; add a program per class of ranks, or leave out the "
            "blocks",
        )
    yield from _check_steps(schedule, ids)
    yield from _check_ranks(schedule)


def _check_steps(schedule: Schedule, ids: dict[str, int]) -> Iterator[Violation]:
    plan = schedule.plan
    per_microbatch = {
        name: any(schedule.per_microbatch(ids[i]) for i in block if i in ids)
        for name, block in plan.blocks.items()
    }
    for number, program in enumerate(plan.programs):
        for at, step in enumerate(program.steps):
            place = f"programs[{number}].steps[{at}]"
            if step.block not in plan.blocks:
                yield Violation(
                    "PIT009", f"{place}.block", f"{step.block!r} is no block of the plan"
                )
            elif step.microbatch is not None and not 0 <= step.microbatch < plan.microbatches:
                yield Violation(
                    "PIT009",
                    f"{place}.microbatch",
                    f"micro-batch {step.microbatch} does not exist; there are {plan.microbatches}",
                )
            elif step.microbatch is None and per_microbatch[step.block] and plan.microbatches > 1:
                yield Violation(
                    "PIT009",
                    f"{place}.microbatch",
                    f"block {step.block!r} has operators that run per micro-batch; say for which "
                    f"one the step runs",
                )


def _check_ranks(schedule: Schedule) -> Iterator[Violation]:
    """Yield PIT009 for two programs of one rank."""
    taken = np.full(schedule.coordinates.ranks, -1, dtype=np.int64)
    for number, program in enumerate(schedule.plan.programs):
        if any(MICROBATCH_AXIS in box for box in program.where):
            continue
        ranks = np.asarray(schedule.coordinates.mask(program.where).any(axis=1))
        both = np.flatnonzero(ranks & (taken >= 0))
        if len(both):
            message = (
                f"rank {both[0]} already has programs[{taken[both[0]]}]; a rank has one program"
            )
            yield Violation(
                "PIT009",
                f"programs[{number}].where",
                message,
                ranks=tuple(int(r) for r in both[:8]),
            )
        taken[ranks] = number


class LocalRules:
    """Checks PIT009: operators not run, run twice, or run before their operands are written."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.plan = schedule.plan
        self.microbatches = schedule.microbatches
        self._readers, self._writers = self._dependences()

    def _dependences(self) -> tuple[Ints, Ints]:
        """Return the codes of reader and writer of every pair of operators at one coordinate.

        Readers are in ascending order of operators.
        """
        writers: dict[str, list[int]] = {}
        for position, operator in enumerate(self.plan.operators):
            for name in operator.outputs:
                if name:
                    writers.setdefault(name, []).append(position)
        microbatched = {name for name, found in self.schedule.microbatched.items() if found}
        # Per pair: reader, writer, and the micro-batch each is taken at (-1: all of the reader's).
        pairs: list[tuple[int, int, int]] = []
        for position, operator in enumerate(self.plan.operators):
            per_microbatch = self.schedule.per_microbatch(position)
            for operand in operator.inputs:
                name = operand if type(operand) is str else tensor_of(operand) or ""
                for writer in writers.get(name, ()):
                    if isinstance(operand, Use):
                        pairs.append((position, writer, operand.microbatch))
                    elif operator.kind == ACCUMULATE:
                        chosen = operator.attributes.get("microbatches")
                        every = chosen if isinstance(chosen, tuple) else range(self.microbatches)
                        pairs.extend((position, writer, m) for m in every if isinstance(m, int))
                    else:
                        pairs.append(
                            (position, writer, -1 if per_microbatch and name in microbatched else 0)
                        )
        table = np.fromiter(
            chain.from_iterable(pairs), dtype=np.int64, count=3 * len(pairs)
        ).reshape(-1, 3)
        return self._expanded(table)

    def _expanded(self, pairs: Ints) -> tuple[Ints, Ints]:
        """Return one row per micro-batch of the reader."""
        microbatches = np.arange(self.microbatches)
        per = np.array(
            [
                self.schedule.per_microbatch(position)
                for position in range(len(self.plan.operators))
            ],
            dtype=np.bool_,
        )[pairs[:, 0]]
        read_at = np.where(per[:, None], microbatches[None, :], 0)
        write_at = np.where(pairs[:, 2:] < 0, read_at, pairs[:, 2:])
        keep = per[:, None] | (microbatches[None, :] == 0)
        readers = (pairs[:, :1] * self.microbatches + read_at)[keep]
        writers = (pairs[:, 1:2] * self.microbatches + write_at)[keep]
        return readers, writers

    def check(self, local: LocalOrder) -> Iterator[Violation]:
        """Yield the findings for the ranks of one class."""
        for code in local.missing[:64].tolist():
            yield self._violation(
                local,
                code,
                "runs {where} but stands in no step of that rank's program; add it to a block or "
                "narrow its 'where'",
            )
        for code in local.twice[:64].tolist():
            yield self._violation(
                local, code, "is run twice {where}; each operator runs once per micro-batch"
            )
        place = np.full(len(self.plan.operators) * self.microbatches, -1, dtype=np.int64)
        place[local.codes] = np.arange(len(local.codes))
        reads = place.copy()
        reads[self.schedule.not_read(int(local.ranks[0]))] = -1
        read = reads[self._readers]
        early = np.flatnonzero((read >= 0) & (place[self._writers] >= read))
        for at in early[:64].tolist():
            writer = self.plan.operators[int(self._writers[at]) // self.microbatches].id
            yield self._violation(
                local,
                int(self._readers[at]),
                f"runs {{where}} before {writer!r}, whose output it reads; put it after",
            )

    def _violation(self, local: LocalOrder, code: int, text: str) -> Violation:
        position, microbatch = divmod(code, self.microbatches)
        identity = self.plan.operators[position].id
        where = f"on rank {local.ranks[0]} (micro-batch {microbatch})"
        ranks = tuple(int(rank) for rank in local.ranks[:8])
        message = f"{identity!r} {text.format(where=where)}"
        return Violation(
            "PIT009",
            f"operators[{position}]",
            message,
            operator=identity,
            ranks=ranks,
            microbatches=(microbatch,),
        )
