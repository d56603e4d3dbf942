"""Single assignment over coordinates.

Every tensor is written once at each coordinate at which it exists, and read only there.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pitcheck.plan.model import Number, Operand, Operator, Tensor, Use
from pitcheck.plan.rules.name_rules import first_coordinates
from pitcheck.plan.rules.violations import Violation
from pitcheck.plan.schedule.run_order import EXTERNAL_ROLES, Mask, Schedule, tensor_of

ACCUMULATE = "accumulate"


class SingleAssignment:
    """Checks PIT002 for one plan."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.plan = schedule.plan
        self.tensors = {tensor.name: tensor for tensor in self.plan.tensors}
        self.writers: dict[str, list[int]] = {}
        for position, operator in enumerate(self.plan.operators):
            for name in operator.outputs:
                if name:
                    self.writers.setdefault(name, []).append(position)
        self._masks_of: dict[str, tuple[int, ...]] = {}
        """The masks of all operators that write a tensor."""
        self._available: dict[tuple[int, ...], Mask] = {}
        self._covered: dict[tuple[object, ...], Mask | None] = {}

    def run(self) -> Iterator[Violation]:
        """Yield all findings, writes before reads."""
        numbers = self.schedule.mask_numbers
        self._masks_of = {
            name: (numbers[positions[0]],)
            if len(positions) == 1
            else tuple(sorted({numbers[position] for position in positions}))
            for name, positions in self.writers.items()
        }
        for position, operator in enumerate(self.plan.operators):
            yield from self._check_outputs(position, operator)
        for name, positions in self.writers.items():
            yield from self._check_once(name, positions)
        for position, operator in enumerate(self.plan.operators):
            accumulates, reader = operator.kind == ACCUMULATE, (numbers[position],)
            per_microbatch = (
                self.schedule.per_microbatch(position) or self.schedule.microbatches == 1
            )
            for number, operand in enumerate(operator.inputs):
                if type(operand) is str and not accumulates:
                    # Most operands are written exactly where, and as often as, they are read.
                    tensor = self.tensors.get(operand)
                    if (
                        tensor is not None
                        and (per_microbatch or not tensor.microbatched)
                        and self._written(tensor) in (None, reader)
                    ):
                        continue
                yield from self._check_input(position, operator, number, operand)

    def names_unknown_tensors(self) -> bool:
        """Return True if an operator reads or writes a tensor that the plan does not have."""
        return any(
            name and name not in self.tensors
            for operator in self.plan.operators
            for name in (*operator.outputs, *map(tensor_of, operator.inputs))
        )

    # --- writes

    def _check_outputs(self, position: int, operator: Operator) -> Iterator[Violation]:
        seen: set[str] = set()
        for number, name in enumerate(operator.outputs):
            place = f"operators[{position}].outputs[{number}]"
            if not name:
                continue
            tensor = self.tensors.get(name)
            if tensor is None:
                yield Violation(
                    "PIT002",
                    place,
                    f"{name!r} is no tensor of the plan; add it to tensors",
                    operator=operator.id,
                    tensor=name,
                )
                continue
            if name in seen:
                yield Violation(
                    "PIT002",
                    place,
                    f"{operator.id!r} writes {name!r} twice",
                    operator=operator.id,
                    tensor=name,
                )
            seen.add(name)
            if tensor.role in EXTERNAL_ROLES:
                message = (
                    f"{operator.id!r} writes {name!r}, whose role {tensor.role!r} says that "
                    f"it comes from outside; write a new tensor"
                )
                yield Violation("PIT002", place, message, operator=operator.id, tensor=name)
            if (
                not tensor.microbatched
                and self.schedule.per_microbatch(position)
                and self.schedule.microbatches > 1
            ):
                message = (
                    f"{operator.id!r} runs once per micro-batch, so that {name!r}, which "
                    f"exists once, is written {self.schedule.microbatches} times"
                )
                yield Violation("PIT002", place, message, operator=operator.id, tensor=name)

    def _check_once(self, name: str, positions: list[int]) -> Iterator[Violation]:
        if len(positions) < 2 or name not in self.tensors:
            return
        written = np.zeros_like(self.schedule.mask(positions[0]))
        for number, position in enumerate(positions):
            mask = self.schedule.mask(position)
            twice = written & mask
            if twice.any():
                ranks, microbatches = first_coordinates(twice)
                first = next(
                    other
                    for other in positions[:number]
                    if (self.schedule.mask(other) & twice).any()
                )
                ids = self.plan.operators[first].id, self.plan.operators[position].id
                message = (
                    f"{name!r} is written twice on rank {ranks[0]}, micro-batch "
                    f"{microbatches[0]}: by {ids[0]!r} and {ids[1]!r}; each write needs a tensor"
                )
                yield Violation(
                    "PIT002",
                    f"operators[{position}].outputs",
                    message,
                    operator=ids[1],
                    tensor=name,
                    ranks=ranks,
                    microbatches=microbatches,
                )
                return
            written = written | mask

    # --- reads

    def _written(self, tensor: Tensor) -> tuple[int, ...] | None:
        """Return the masks of the writers of a tensor, None for one that comes from outside."""
        return None if tensor.role in EXTERNAL_ROLES else self._masks_of.get(tensor.name, ())

    def _check_input(
        self, position: int, operator: Operator, number: int, operand: Operand
    ) -> Iterator[Violation]:
        if isinstance(operand, Number):
            return
        place = f"operators[{position}].inputs[{number}]"
        name = tensor_of(operand) or ""
        tensor = self.tensors.get(name)
        if tensor is None:
            message = (
                f"{name!r} is no tensor of the plan; add it to tensors"
                if name
                else "the name of an input is empty"
            )
            yield Violation("PIT002", place, message, operator=operator.id, tensor=name)
            return
        problem = self._microbatch_problem(position, operator, operand, tensor)
        if problem:
            yield Violation("PIT002", place, problem, operator=operator.id, tensor=name)
            return
        if tensor.role in EXTERNAL_ROLES:
            return
        missing = self._missing(position, operator, operand, tensor)
        if missing is not None:
            ranks, microbatches = first_coordinates(missing)
            written = (
                "nothing writes it there" if name in self.writers else "nothing writes it anywhere"
            )
            message = (
                f"{operator.id!r} reads {name!r} on rank {ranks[0]}, micro-batch "
                f"{microbatches[0]}, but {written}"
            )
            yield Violation(
                "PIT002",
                place,
                message,
                operator=operator.id,
                tensor=name,
                ranks=ranks,
                microbatches=microbatches,
            )

    def _microbatch_problem(
        self, position: int, operator: Operator, operand: Operand, tensor: Tensor
    ) -> str:
        if isinstance(operand, Use):
            if not tensor.microbatched:
                return f"{tensor.name!r} does not exist per micro-batch; name it alone"
            if not 0 <= operand.microbatch < self.schedule.microbatches:
                return (
                    f"micro-batch {operand.microbatch} of {tensor.name!r} does not exist; "
                    f"there are {self.schedule.microbatches}"
                )
            return ""
        if operator.kind == ACCUMULATE:
            return self._accumulate_problem(operator, tensor)
        if (
            tensor.microbatched
            and not self.schedule.per_microbatch(position)
            and self.schedule.microbatches > 1
        ):
            return (
                f"{operator.id!r} runs once but reads {tensor.name!r}, which exists per "
                f"micro-batch; use 'accumulate' or name the micro-batch"
            )
        return ""

    def _accumulate_problem(self, operator: Operator, tensor: Tensor) -> str:
        if not tensor.microbatched:
            return (
                f"accumulate sums over micro-batches, but {tensor.name!r} does not exist per "
                f"micro-batch"
            )
        chosen = operator.attributes.get("microbatches")
        if chosen is None:
            return ""
        if not isinstance(chosen, tuple) or not chosen:
            return (
                f"attribute 'microbatches' of accumulate is a list of micro-batches, not {chosen!r}"
            )
        wrong = [
            m for m in chosen if not isinstance(m, int) or not 0 <= m < self.schedule.microbatches
        ]
        if wrong:
            return (
                f"micro-batch {wrong[0]!r} of {tensor.name!r} does not exist; there are "
                f"{self.schedule.microbatches}"
            )
        return ""

    def _missing(
        self, position: int, operator: Operator, operand: Operand, tensor: Tensor
    ) -> Mask | None:
        """Return the coordinates at which the operator runs without its input.

        None if there are none.
        """
        writers = self._masks_of.get(tensor.name, ())
        chosen: object = operand.microbatch if isinstance(operand, Use) else None
        if operator.kind == ACCUMULATE and chosen is None:
            chosen = operator.attributes.get("microbatches") or "all"
        reader = self.schedule.mask_number(position)
        if chosen is None and writers == (reader,):
            return None
        where = self.schedule.root_reads.get(position)
        key = (
            reader if where is None else ("root", position),
            writers,
            tensor.microbatched,
            chosen,
        )
        if key not in self._covered:
            missing = (self.schedule.mask(position) if where is None else where) & ~self._at_reader(
                writers, tensor.microbatched, chosen, tensor.name
            )
            self._covered[key] = missing if missing.any() else None
        return self._covered[key]

    def _at_reader(
        self, key: tuple[int, ...], microbatched: bool, chosen: object, name: str
    ) -> Mask:
        """Return True where an operand exists, by the coordinate of its reader."""
        available = self._available.get(key)
        if available is None:
            available = np.zeros(
                (self.schedule.coordinates.ranks, self.schedule.microbatches), dtype=np.bool_
            )
            for writer in self.writers.get(name, ()):
                available = available | self.schedule.mask(writer)
            self._available[key] = available
        if not microbatched:
            return available[:, :1]
        if isinstance(chosen, int):
            return available[:, chosen : chosen + 1]
        if chosen == "all":
            return np.asarray(available.all(axis=1))[:, None]
        if isinstance(chosen, tuple):
            return np.asarray(available[:, list(chosen)].all(axis=1))[:, None]
        return available
