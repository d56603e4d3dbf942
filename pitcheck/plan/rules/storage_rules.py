"""Rules on buffers over the time of a step.

No operator reads a version that another has replaced. Nothing touches memory that is in flight.
What the step leaves is there at its end.
"""

from __future__ import annotations

from collections.abc import Iterator

from pitcheck.ops.registry import communication_of
from pitcheck.ops.traits import Communication
from pitcheck.plan.model import Operator, Tensor
from pitcheck.plan.rules.program_rules import LocalOrder
from pitcheck.plan.rules.storage_layout import StorageLayout
from pitcheck.plan.rules.storage_walk import StorageWalk
from pitcheck.plan.rules.violations import Violation
from pitcheck.plan.schedule.run_order import EXTERNAL_ROLES, tensor_of


class StorageRules(StorageLayout):
    """Checks PIT010, and PIT011 for two new values of one tensor."""

    # --- rules on the plan as a whole

    def check_plan(self) -> Iterator[Violation]:
        """Yield the findings that do not depend on the order.

        They are about offsets, waits, and tensors that lie in a storage at the beginning.
        """
        first: dict[str, list[Tensor]] = {}
        for tensor in self.plan.tensors:
            yield from self._check_offset(tensor)
            if tensor.storage is not None and tensor.role in EXTERNAL_ROLES:
                yield from self._check_beginning(tensor, first.setdefault(tensor.storage, []))
                first[tensor.storage].append(tensor)
        for position, operator in enumerate(self.plan.operators):
            if communication_of(operator.kind) is Communication.WAIT:
                yield from self._check_wait(position, operator)
            elif communication_of(
                operator.kind
            ) is Communication.BARRIER and operator.attributes.get("async"):
                yield self._of_plan(
                    position,
                    "is a barrier that is asynchronous: nothing could wait for it; leave out "
                    "'async'",
                )

    def _check_offset(self, tensor: Tensor) -> Iterator[Violation]:
        if tensor.offset and (tensor.storage is None or tensor.offset < 0):
            what = (
                "but names no storage"
                if tensor.storage is None
                else "which is no place in a storage"
            )
            yield Violation(
                "PIT010",
                f"tensors[{self._number[tensor.name]}].offset",
                f"{tensor.name!r} has offset {tensor.offset}, {what}",
                tensor=tensor.name,
            )

    def _check_beginning(self, tensor: Tensor, others: list[Tensor]) -> Iterator[Violation]:
        place = f"tensors[{self._number[tensor.name]}].storage"
        if tensor.microbatched and self.microbatches > 1:
            message = (
                f"{tensor.name!r} comes from outside for {self.microbatches} micro-batches, and "
                f"storage {tensor.storage!r} holds one of them; "
                "leave out the storage"
            )
            yield Violation("PIT010", place, message, tensor=tensor.name)
        mine = self._access((tensor.name, 0), True)
        other = next((o for o in others if mine.conflicts(self._access((o.name, 0), True))), None)
        if other is not None:
            message = (
                f"{tensor.name!r} and {other.name!r} both come from outside in the same places of "
                f"storage {tensor.storage!r}, which hold one of "
                "them; use one tensor for both, or give them places of their own ('offset')"
            )
            yield Violation("PIT010", place, message, tensor=tensor.name)

    def _check_wait(self, position: int, operator: Operator) -> Iterator[Violation]:
        if len(operator.inputs) != 1 or len(operator.outputs) > 1:
            yield self._of_plan(
                position,
                f"has {len(operator.inputs)} inputs and {len(operator.outputs)} outputs; a wait "
                f"has one input and at most one output",
            )
            return
        name = tensor_of(operator.inputs[0]) or ""
        named = operator.attributes.get("of")
        found = {self.plan.operators[n].id for n, _ in self.launches.awaited(position, 0)}
        asked = (
            {named} if isinstance(named, str) else set(named) if isinstance(named, tuple) else set()
        )
        if named is not None and (operator.outputs or not asked or not asked <= found):
            yield self._of_plan(
                position,
                f"waits for {named!r}, which is no asynchronous send of {name!r}; name the ids of "
                f"such sends in 'of'",
            )
        elif not operator.outputs and not found:
            yield self._of_plan(
                position, f"waits for a send of {name!r}, but no asynchronous operator sends it"
            )
        elif operator.outputs and operator.outputs[0] in self.tensors and name in self.tensors:
            yield from self._check_waited(
                position, self.tensors[name], self.tensors[operator.outputs[0]]
            )

    def _check_waited(self, position: int, given: Tensor, waited: Tensor) -> Iterator[Violation]:
        if (waited.dtype, waited.shape) != (given.dtype, given.shape):
            said = (
                f"{waited.name!r} is {waited.dtype} {list(waited.shape)}, and {given.name!r} "
                f"{given.dtype} {list(given.shape)}; both are the same memory"
            )
            yield self._of_plan(position, f"changes nothing: {said}")
        elif self._lies_elsewhere(waited, given):
            there = (
                f"{waited.name!r} lies where {given.name!r} lies; leave out its storage, or "
                f"let each wait have a tensor of its own"
            )
            yield self._of_plan(position, f"moves nothing: {there}")

    def _lies_elsewhere(self, waited: Tensor, given: Tensor) -> bool:
        """Return True if a wait's output and operand have different places in a storage."""
        mine, theirs = self.place((waited.name, 0)), self.place((given.name, 0))
        return (mine.shared or theirs.shared) and mine != theirs

    def _of_plan(self, position: int, message: str) -> Violation:
        identity = self.plan.operators[position].id
        return Violation(
            "PIT010", f"operators[{position}]", f"{identity!r} {message}", operator=identity
        )

    # --- rules on the order of a rank

    def check(self, local: LocalOrder) -> Iterator[Violation]:
        """Yield the findings for the ranks of one class."""
        if not self._relevant.any() and all(len(names) < 2 for names in self.new_values.values()):
            return
        layout = self.of_rank(int(local.ranks[0])) if self.schedule.root_reads else self
        for ranks, launches in self.launches.of(local):
            yield from StorageWalk(layout, ranks, local.codes, launches).run()
