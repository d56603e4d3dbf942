"""The coordinates and the order of every operator: masks, and places in the order of a rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pitcheck.ops.registry import kinds_meeting
from pitcheck.ops.traits import Communication
from pitcheck.plan.collective_roots import at_root, reads_at_root
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import Box, Number, Operand, Operator, Plan, Table, Use

Mask = NDArray[np.bool_]
Ints = NDArray[np.int64]

COMMUNICATION = kinds_meeting(
    Communication.SEND, Communication.RECEIVE, Communication.WAIT, Communication.BARRIER
)
PAIRED = kinds_meeting(Communication.SEND, Communication.RECEIVE)
"""The operators that name the rank which they meet."""
MATCHING_ONLY = frozenset({"peer", "protocol", "batch", "tag", "async", "of", "microbatches"})
"""The attributes that say who meets whom and when, not what is computed."""
EXTERNAL_ROLES = frozenset({"input", "parameter", "constant", "optimizer_state"})


@dataclass(frozen=True)
class Order:
    """The order of the ranks of one program.

    ``codes`` are ``operator position * microbatches + microbatch`` of all its operators, in order.
    """

    ranks: Ints
    codes: Ints


def is_event(operator: Operator) -> bool:
    """Return True if a rank may have to wait for others in the operator.

    It is a collective (it has a group), a send, a receive, or a wait.
    """
    return operator.group is not None or operator.kind in COMMUNICATION


def tensor_of(operand: Operand) -> str | None:
    """Return the tensor that an operand names, None for a literal."""
    if isinstance(operand, Number):
        return None
    return operand.tensor if isinstance(operand, Use) else operand


def where_key(where: tuple[Box, ...]) -> tuple[tuple[tuple[str, tuple[int, ...]], ...], ...]:
    """Return a hashable form of boxes."""
    return tuple(tuple(sorted(box.items())) for box in where)


def runs_per_microbatch(operator: Operator, microbatched: Mapping[str, bool]) -> bool:
    """Return True if an operator runs once per micro-batch.

    It does if an output, or without outputs an input, exists per micro-batch.
    """
    for name in operator.outputs:
        if name and microbatched.get(name, False):
            return True
    if any(operator.outputs):
        return False
    return any(microbatched.get(name, False) for name in map(tensor_of, operator.inputs) if name)


class Schedule:
    """Masks and orders of one plan, each distinct one computed once.

    Unknown tensors count as not microbatched.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.coordinates = Coordinates.of(plan)
        self.microbatches = plan.microbatches
        self.microbatched = {tensor.name: tensor.microbatched for tensor in plan.tensors}
        self._masks: dict[object, tuple[int, Mask]] = {}
        self._mask_of: dict[int, tuple[int, Mask]] = {}
        self._shared: dict[tuple[int, bool], tuple[int, Mask]] = {}
        self._per_microbatch: list[bool] = [
            runs_per_microbatch(operator, self.microbatched) for operator in plan.operators
        ]

    def per_microbatch(self, position: int) -> bool:
        """Return True if the operator at ``position`` of the list runs once per micro-batch."""
        return self._per_microbatch[position]

    def mask(self, position: int) -> Mask:
        """Return True where the operator runs, shape (ranks, microbatches).

        One that runs once does so at micro-batch 0.

        Raises:
            PlanError: as ``Coordinates.mask``.
        """
        return self._numbered_mask(position)[1]

    def mask_number(self, position: int) -> int:
        """Return a number that is equal for operators with equal ``where`` and micro-batches."""
        return self._numbered_mask(position)[0]

    def _numbered_mask(self, position: int) -> tuple[int, Mask]:
        known = self._mask_of.get(position)
        if known is not None:
            return known
        operator = self.plan.operators[position]
        # Records that were made together have the same boxes as one object, which the plan keeps.
        shared = (id(operator.where), self._per_microbatch[position])
        found = self._shared.get(shared)
        if found is None:
            found = self._shared[shared] = self._mask_at(position, operator)
        self._mask_of[position] = found
        return found

    def _mask_at(self, position: int, operator: Operator) -> tuple[int, Mask]:
        key = (where_key(operator.where), self._per_microbatch[position])
        found = self._masks.get(key)
        if found is None:
            mask = self.coordinates.mask(operator.where, f"operators[{position}].where")
            if not self._per_microbatch[position]:
                ranks = mask.any(axis=1)
                mask = np.zeros_like(mask)
                mask[:, 0] = ranks
            found = self._masks[key] = (len(self._masks), mask)
        return found

    @cached_property
    def mask_numbers(self) -> list[int]:
        """The ``mask_number`` of every operator."""
        return [self._numbered_mask(position)[0] for position in range(len(self.plan.operators))]

    @cached_property
    def root_reads(self) -> Mapping[int, Mask]:
        """The coordinates at which collectives read an operand that their root alone reads.

        Position -> mask, shape (ranks, microbatches). All other operators read wherever they run. A
        missing root is left to the rules on operators.
        """
        found: dict[int, Mask] = {}
        known: dict[object, Mask] = {}
        for position, operator in enumerate(self.plan.operators):
            if reads_at_root(operator) and "root" in operator.attributes:
                root = operator.attributes["root"]
                key = (
                    operator.group,
                    id(root) if isinstance(root, Table) else root,
                    self.mask_number(position),
                )
                if key not in known:
                    known[key] = self.mask(position) & at_root(self.coordinates, operator)
                found[position] = known[key]
        return found

    def not_read(self, rank: int) -> list[int]:
        """Return the codes of collectives that a rank runs without reading their operand.

        A code is position * microbatches + micro-batch.
        """
        found: list[int] = []
        for position, mask in self.root_reads.items():
            here = self.mask(position)[rank] & ~mask[rank]
            found.extend((position * self.microbatches + np.flatnonzero(here)).tolist())
        return found

    @cached_property
    def program_of(self) -> Ints:
        """The program of every rank (the first that names it), shape (ranks,); -1 if none does.

        Without programs it is 0 everywhere.
        """
        result = np.full(self.coordinates.ranks, -1, dtype=np.int64)
        if not self.plan.programs:
            result[:] = 0
        for number, program in enumerate(self.plan.programs):
            ranks = self.coordinates.mask(program.where, f"programs[{number}].where").any(axis=1)
            result[ranks & (result < 0)] = number
        return result

    @cached_property
    def _blocks(self) -> dict[str, Ints]:
        position = {operator.id: number for number, operator in enumerate(self.plan.operators)}
        return {
            name: np.array([position[i] for i in ids if i in position], dtype=np.int64)
            for name, ids in self.plan.blocks.items()
        }

    def orders(self) -> Iterator[tuple[int, Order]]:
        """Yield (program, order) of all programs that some rank has.

        Unknown blocks, ids and micro-batches are left out. ``codes`` may name operators whose
        ``where`` leaves out some or all of these ranks.
        """
        for program in np.unique(self.program_of):
            ranks = np.flatnonzero(self.program_of == program)
            if program < 0:
                yield -1, Order(ranks, np.zeros(0, dtype=np.int64))
            elif not self.plan.programs:
                yield 0, Order(ranks, self._default_codes())
            else:
                yield int(program), Order(ranks, self._codes(int(program)))

    def _default_codes(self) -> Ints:
        counts = np.where(np.array(self._per_microbatch, dtype=np.bool_), self.microbatches, 1)
        starts = np.arange(len(counts), dtype=np.int64) * self.microbatches
        within = np.arange(counts.sum(), dtype=np.int64) - np.repeat(
            np.cumsum(counts) - counts, counts
        )
        codes: Ints = np.repeat(starts, counts) + within
        return codes

    def _codes(self, program: int) -> Ints:
        per_microbatch = np.array(self._per_microbatch, dtype=np.bool_)
        parts = [np.zeros(0, dtype=np.int64)]
        for step in self.plan.programs[program].steps:
            operators = self._blocks.get(step.block)
            microbatch = step.microbatch or 0
            if operators is None or not 0 <= microbatch < self.microbatches:
                continue
            parts.append(
                operators * self.microbatches + np.where(per_microbatch[operators], microbatch, 0)
            )
        return np.concatenate(parts)
