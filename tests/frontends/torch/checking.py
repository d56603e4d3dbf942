"""Recording a program, and holding the traces against what the single-device module computes."""

from __future__ import annotations

from collections.abc import Sequence

from frontends.torch.replay import Skip, collectives, difference, truth

from pitcheck.frontends.torch.program import Spec
from pitcheck.frontends.torch.recording.record import record
from pitcheck.frontends.torch.trace import Trace

CLOSE = 1e-10
SKIPPED = 8
"""At most so many collectives are left out, spread over the step."""


def check(
    spec: Spec, gradients: bool = True, outputs: bool = False, idle: Sequence[Skip] = ()
) -> list[Trace]:
    """Both programs compute what autograd computes; without one of the collectives the parallel one
    does not.

    ``outputs``: the parallel outputs are those of the reference, too. ``idle``: communication that
    changes no compared result.
    """
    true = truth(spec, gradients=gradients)
    reference = record(spec, "reference", 1)
    assert difference(reference, true.tensors, true.results) < CLOSE
    traces = record(spec, "parallel", 2)
    compared = {key: value for key, value in true.results.items() if outputs or key[0] != "output"}
    assert difference(traces, true.tensors, compared) < CLOSE
    communication = collectives(traces)
    for skipped in communication[:: -(-len(communication) // SKIPPED) or 1]:
        assert (difference(traces, true.tensors, compared, skipped) < CLOSE) == (skipped in idle), (
            skipped
        )
    return traces
