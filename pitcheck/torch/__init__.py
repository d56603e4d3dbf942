"""Check that a distributed PyTorch program computes what the single-device one computes.

It needs the extra ``torch``, but no GPU and no launch.

    from pitcheck.torch import Input, Part, Program, Rank, Spec, assert_equivalent

    def reference():
        model = Net()
        return Program(model, lambda batch: train(model, batch))

    def parallel(rank):
        model = shard(Net(), rank)
        return Program(model, lambda batch: train(model, batch))

    spec = Spec(
        reference,
        parallel,
        mesh={"dp": 2},
        batch={"x": Input((8, 16), split={0: "dp"})},
        outputs={"loss": Part(mean="dp")},
    )

    def test_parallel_program():
        assert_equivalent(spec)

The command ``pitcheck check my_program.py:spec`` checks the same ``spec``.
"""

from __future__ import annotations

from typing import Any

from pitcheck.base.options import Options
from pitcheck.frontends.torch.capture import capture, captured_pairs
from pitcheck.frontends.torch.packing.losses import over_documents
from pitcheck.frontends.torch.program import Dropout, Input, Packing, Part, Program, Rank, Spec
from pitcheck.frontends.torch.routing import Router, Routing
from pitcheck.frontends.torch.variants import variants
from pitcheck.report.report import Report

__all__ = [
    "Dropout",
    "Input",
    "Options",
    "Packing",
    "Part",
    "Program",
    "Rank",
    "Router",
    "Routing",
    "Spec",
    "assert_equivalent",
    "capture",
    "check",
    "over_documents",
    "variants",
]


def check(spec: Spec, options: Options | None = None) -> Report:
    """Return the report on a pair of programs, over all variants of the specification.

    Whatever stops the check (an operator without a meaning, a budget) is a finding of the report
    and not an exception.
    """
    from pitcheck.commands.checking.sources import checked_pairs  # noqa: PLC0415  heavy

    options = Options() if options is None else options
    return checked_pairs(lambda: captured_pairs(spec, jobs=options.jobs), options)


def assert_equivalent(spec: Spec, **options: Any) -> Report:
    """Return the report on a pair of programs that are proven equivalent.

    ``options`` are the fields of :class:`Options`. The seed is 0 unless it is given, so that a test
    says the same every time.

    Raises:
        AssertionError: with the whole report as its message, for any other verdict.
    """
    from pitcheck.report.text import render  # noqa: PLC0415

    report = check(spec, Options(**{"seed": 0, **options}))
    if report.verdict != "equivalent":
        raise AssertionError("\n".join(["", *(line.text for line in render(report))]))
    return report
