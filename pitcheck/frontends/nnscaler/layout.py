"""The mesh of a plan, its replicas, and groups by mesh axes.

The file has one replica of n devices. Rank r runs the sequence of device r mod n, with the ranks
that the sequence names shifted accordingly.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from pitcheck.errors import PlanError
from pitcheck.frontends.nnscaler.execution_plan import Call, Compute, ExecutionPlan
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import Axis, Group


class Layout:
    """The mesh of a plan.

    It is (dp, pp, tp) if all stages have equally many devices that follow each other, and (dp,
    device) if not. ``stages`` are the devices of a replica that compute parts of the same tensors,
    in order.
    """

    def __init__(self, plan: ExecutionPlan) -> None:
        self.devices = plan.devices
        self.replicas = plan.ranks // plan.devices
        self.ranks = plan.ranks
        self.stages = _stages(plan)
        size = len(self.stages[0])
        regular = all(
            stage == list(range(number * size, (number + 1) * size))
            for number, stage in enumerate(self.stages)
        )
        inner = (
            (Axis("pp", len(self.stages)), Axis("tp", size))
            if regular
            else (Axis("device", self.devices),)
        )
        self.mesh: tuple[Axis, ...] = (Axis("dp", self.replicas), *inner)
        self._by_axes: dict[tuple[int, ...], Group] | None = None
        self._groups: dict[tuple[int, tuple[int, ...]], Group] = {}

    def group(self, device: int, devices: Sequence[int], joined: bool = False) -> Group:
        """Return the group over ``devices`` of one replica that ``device`` names, at all replicas.

        ``joined`` makes it one group over the devices of all replicas together. A group is a set:
        PyTorch sorts its ranks. Raises PlanError for a device that does not exist or is named
        twice.
        """
        key = (device if not joined else device - self.devices, tuple(devices))
        if key not in self._groups:
            self._groups[key] = self._new_group(device, self._sorted(devices), joined)
        return self._groups[key]

    def _sorted(self, devices: Sequence[int]) -> tuple[int, ...]:
        ordered = tuple(sorted(devices))
        if not ordered or len(set(ordered)) != len(ordered):
            raise PlanError(f"the group {list(devices)} is empty or names a device twice")
        if not 0 <= ordered[0] <= ordered[-1] < self.devices:
            raise PlanError(
                f"the group {list(devices)} names a device that is not among the {self.devices} "
                f"of the plan"
            )
        return ordered

    def _new_group(self, device: int, ordered: tuple[int, ...], joined: bool) -> Group:
        shifts = [replica * self.devices for replica in range(self.replicas)]
        lists = (
            (tuple(sorted(d + s for d in ordered for s in shifts)),)
            if joined
            else tuple(tuple(d + s for d in ordered) for s in shifts)
        )
        if device in ordered and (found := self._axes_of(lists[0])) is not None:
            return found
        return Group(ranks=lists)

    def _axes_of(self, ranks: tuple[int, ...]) -> Group | None:
        """Return the fewest mesh axes over which ``ranks`` is a group; None without any."""
        if self._by_axes is None:
            self._by_axes = {}
            coordinates = Coordinates(self.mesh, 1)
            names = [axis.name for axis in self.mesh]
            for count in range(1, len(names) + 1):
                for axes in combinations(names, count):
                    group = Group(axes=axes)
                    for members in coordinates.groups(group):
                        self._by_axes.setdefault(members, group)
        return self._by_axes.get(ranks)


def _stages(plan: ExecutionPlan) -> list[list[int]]:
    """Return the devices that compute parts of the same tensors in the forward pass.

    Stages are ordered by their first device.
    """
    owners: dict[int, int] = {}
    stage_of = {device: device for device in plan.programs}
    for device, calls in plan.programs.items():
        for tensor in _computed(calls):
            other = stage_of[owners.setdefault(tensor, device)]
            if other != stage_of[device]:
                merged = (min(other, stage_of[device]), max(other, stage_of[device]))
                stage_of = {
                    d: merged[0] if stage == merged[1] else stage for d, stage in stage_of.items()
                }
    return [
        [d for d, first in stage_of.items() if first == stage]
        for stage in sorted(set(stage_of.values()))
    ]


def _computed(calls: list[Call]) -> set[int]:
    """Return the ids of the full tensors that forward operators write."""
    cells = {id(call.cell): call.cell for call in calls if call.cell.kind == "forward"}
    nodes = [node for cell in cells.values() for node in cell.nodes if isinstance(node, Compute)]
    return {result.tensor.full for node in nodes for result in node.results}
