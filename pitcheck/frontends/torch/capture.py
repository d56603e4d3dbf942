"""From a pair of programs to a pair of plans."""

from __future__ import annotations

from pitcheck.check.workers import usable_jobs
from pitcheck.frontends.torch.build import parallel_plan, reference_plan
from pitcheck.frontends.torch.matched import matched
from pitcheck.frontends.torch.program import Spec
from pitcheck.frontends.torch.record import record
from pitcheck.plan.model import Plan


def captured(spec: Spec, jobs: int | None) -> tuple[Plan, Plan]:
    """The reference and the parallel plan; as :func:`pitcheck.torch.capture`."""
    jobs = usable_jobs() if jobs is None else jobs
    (single,) = record(spec, "reference", jobs)
    single, traces = matched(single, record(spec, "parallel", jobs), spec)
    reference = reference_plan(single, spec)
    return reference, parallel_plan(traces, spec, reference)
