"""Facts about a plan that mutations ask for.

They are: which tensors have one form, which exist before an operator runs, which ranks run it.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property

from pitcheck.mutation.edits import axis_sizes
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import Group, Operator, Plan, Tensor, Use

GIVEN = -1
"""The position of tensors that nothing writes."""


class Facts:
    """Facts about one plan.

    Positions are those of the list of operators, which is an order in which one device could run
    them.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.tensors = {tensor.name: tensor for tensor in plan.tensors}
        self.sizes = axis_sizes(plan)
        self.position = {operator.id: number for number, operator in enumerate(plan.operators)}
        self._coordinates = Coordinates.of(plan)

    @cached_property
    def written(self) -> dict[str, int]:
        """The position of the first writer of every tensor, GIVEN if nothing writes it."""
        found = dict.fromkeys(self.tensors, GIVEN)
        for number in reversed(range(len(self.plan.operators))):
            found.update({name: number for name in self.plan.operators[number].outputs if name})
        return found

    @cached_property
    def _alike(self) -> dict[tuple[object, ...], list[tuple[int, str]]]:
        found: dict[tuple[object, ...], list[tuple[int, str]]] = {}
        for name, at in self.written.items():
            if name in self.tensors:
                found.setdefault(form(self.tensors[name]), []).append((at, name))
        return {key: sorted(members) for key, members in found.items()}

    def alike(self, name: str, operator: Operator, count: int) -> list[str]:
        """Return at most ``count`` other tensors of the same form, written before an operator runs.

        The latest comes first.
        """
        members = self._alike[form(self.tensors[name])]
        end = bisect_left(members, (self.position[operator.id], ""))
        others = [other for _, other in members[max(0, end - count - 1) : end] if other != name]
        return others[::-1][:count]

    def repeated(self, operator: Operator) -> bool:
        """Return True if an operator runs once per micro-batch."""
        names = [name for name in operator.outputs if name] or [
            o.tensor if isinstance(o, Use) else o
            for o in operator.inputs
            if not hasattr(o, "value")
        ]
        return self.plan.microbatches > 1 and any(
            isinstance(name, str) and self.tensors[name].microbatched
            for name in names
            if name in self.tensors
        )

    def floating(self, name: str) -> bool:
        """Return True if a tensor holds real numbers."""
        return name in self.tensors and self.tensors[name].dtype.startswith(("float", "bfloat"))

    def one_real_result(self, operator: Operator) -> bool:
        """Return True if an operator has one output, of real numbers."""
        return len(operator.outputs) == 1 and self.floating(operator.outputs[0])

    def values(self, operator: Operator, axis: str) -> set[int]:
        """Return the values along an axis at which an operator runs."""
        return {
            value
            for box in operator.where or ({},)
            for value in box.get(axis, range(self.sizes[axis]))
        }

    def ranks(self, operator: Operator) -> list[int]:
        """Return the ranks that run an operator."""
        mask = self._coordinates.mask(operator.where)
        return [rank for rank in range(self._coordinates.ranks) if mask[rank].any()]

    def groups(self, group: Group, operator: Operator) -> list[tuple[int, ...]]:
        """Return the lists of ranks of a group that run an operator."""
        running = set(self.ranks(operator))
        return [
            members
            for members in self._coordinates.groups(group, "group")
            if running.issuperset(members)
        ]

    def spread(self, operator: Operator) -> list[str]:
        """Return the mesh axes of more than one rank, all of which run the operator."""
        return [
            axis.name
            for axis in self.plan.mesh
            if axis.size > 1 and len(self.values(operator, axis.name)) == axis.size
        ]


def form(tensor: Tensor) -> tuple[object, ...]:
    """Return what two tensors must share to stand for each other."""
    return tensor.shape, tensor.dtype, tensor.microbatched
