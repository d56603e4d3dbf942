"""From a pair of programs to a pair of plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from msgspec.structs import replace as replaced

from pitcheck.errors import UnsupportedError, UsageError
from pitcheck.forks import usable_jobs
from pitcheck.frontends.torch.program import Spec
from pitcheck.frontends.torch.recording.printed import Printed
from pitcheck.frontends.torch.routing import Routed, check_names
from pitcheck.frontends.torch.trace import Trace
from pitcheck.plan.model import Plan

NO_ROUTER = (
    "Spec.routings says how tokens choose experts, but the reference calls no router: a torch.topk "
    "along the last dimension of scores of shape (..., experts); with Spec.router.experts also a "
    "max or argmax"
)


def capture(
    spec: Spec, *, jobs: int | None = None, printed: Printed | None = None
) -> tuple[Plan, Plan]:
    """Record a pair of programs on fake tensors; return the reference and the parallel plan.

    ``jobs`` is the number of ranks that are recorded at once; by default one per processor, at most
    4. What the programs print is told, except what ``printed`` says was told before.

    Raises:
        UnsupportedError: for an operator without a meaning, and for a tensor if nothing tells which
            part of it a rank holds.
        PlanError: for programs that contradict themselves or raise.
        UsageError: if PyTorch is not installed.
    """
    try:
        from pitcheck.frontends.torch.planning.build import parallel_plan, reference_plan  # noqa: PLC0415  a specification is written without torch
        from pitcheck.frontends.torch.planning.compared_state import matched  # noqa: PLC0415
        from pitcheck.frontends.torch.planning.side_by_side import (  # noqa: PLC0415
            assumed,
            side_by_side,
            specification,
        )
        from pitcheck.frontends.torch.recording.record import record  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise UsageError("PyTorch programs need PyTorch; install pitcheck[torch]") from None
    jobs = usable_jobs() if jobs is None else jobs
    printed = Printed() if printed is None else printed
    check_names(spec.routings)
    singles: dict[str, Trace] = {}
    ranks: list[dict[str, Trace]] = [{} for _ in range(prod(spec.mesh.values()))]
    for routing in spec.routings or (None,):
        routed = None if routing is None else Routed(routing)
        (single,) = record(spec, "reference", jobs, printed, routed)
        if routed is not None and not single.routers:
            raise UnsupportedError(NO_ROUTER)
        routed = None if routing is None else Routed(routing, single.routers)
        traces = record(spec, "parallel", jobs, printed, routed)
        name = "" if routing is None else routing.name
        singles[name], traces = matched(single, traces, spec)
        for rank, trace in zip(ranks, traces, strict=True):
            rank[name] = trace
    spec = specification(spec, tuple(singles))
    whole = side_by_side(singles)
    if spec.routings:
        whole = replaced(whole, assumptions=(*whole.assumptions, *assumed(spec.routings)))
    reference = reference_plan(whole, spec)
    return reference, parallel_plan([side_by_side(rank) for rank in ranks], spec, reference)


def capture_at(
    spec: Spec,
    mesh: Mapping[str, int],
    *,
    jobs: int | None = None,
    printed: Printed | None = None,
) -> tuple[Plan, Plan]:
    """Record a pair of programs at another mesh: the size of every axis of ``Spec.mesh``.

    Raises what :func:`capture` raises, most often because the program has a fixed number of ranks.
    """
    return capture(replace(spec, mesh=dict(mesh)), jobs=jobs, printed=printed)
