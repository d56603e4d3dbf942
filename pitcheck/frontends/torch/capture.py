"""From a pair of programs to a pair of plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from msgspec.structs import replace as replaced

from pitcheck.errors import UnsupportedError, UsageError
from pitcheck.forks import usable_jobs
from pitcheck.frontends.protocol import Pair
from pitcheck.frontends.torch.program import Spec
from pitcheck.frontends.torch.recording.printed import Printed
from pitcheck.frontends.torch.routing import Routed, assumed
from pitcheck.frontends.torch.variants import not_covered, only_variant, variants
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
        UsageError: if PyTorch is not installed, and for a specification of several variants.
    """
    spec = only_variant(spec)
    try:
        from pitcheck.frontends.torch.planning.build import parallel_plan, reference_plan  # noqa: PLC0415  a specification is written without torch
        from pitcheck.frontends.torch.planning.common_forms import in_one_form  # noqa: PLC0415
        from pitcheck.frontends.torch.planning.compared_state import matched  # noqa: PLC0415
        from pitcheck.frontends.torch.recording.record import record  # noqa: PLC0415
        from pitcheck.frontends.torch.rewrites.joined_documents import joined_documents  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise UsageError("PyTorch programs need PyTorch; install pitcheck[torch]") from None
    jobs = usable_jobs() if jobs is None else jobs
    printed = Printed() if printed is None else printed
    routing = next(iter(spec.routings), None)
    routed = None if routing is None else Routed(routing)
    (single,) = record(spec, "reference", jobs, printed, routed)
    if routing is not None:
        if not single.routers:
            raise UnsupportedError(NO_ROUTER)
        routed = Routed(routing, single.routers)
        single = replaced(single, assumptions=(*single.assumptions, assumed(routing)))
    traces = record(spec, "parallel", jobs, printed, routed)
    single, traces = in_one_form(*matched(single, traces, spec))
    if spec.packings:
        single = joined_documents(single, spec)
    reference = reference_plan(single, spec)
    return reference, parallel_plan(traces, spec, reference, single)


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


def captured_pairs(spec: Spec, *, jobs: int | None = None) -> list[Pair]:
    """Return a pair of plans for every variant of a specification, each recorded when it is read.

    What the programs print is told once for all of them. Raises UsageError for variants that do not
    fit the batch.
    """
    printed = Printed()
    return [
        Pair(
            partial(capture, one, jobs=jobs, printed=printed),
            partial(capture_at, one, jobs=jobs, printed=printed),
            name,
            not_covered(spec),
        )
        for name, one in variants(spec).items()
    ]
