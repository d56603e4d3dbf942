"""Megatron-core's GPTModel, proven on a CPU without launch, and with planted mistakes that are caught where they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from frontends.torch import megatron_bugs as bugs
from frontends.torch.megatron_gpt import HEADS, INSTALLED, Bug, Setup, spec

from pitcheck.frontends.torch.record import record
from pitcheck.torch import assert_equivalent, check

pytestmark = [
    pytest.mark.skipif(not INSTALLED, reason="megatron-core is not installed; pip install '.[megatron]' does"),
    pytest.mark.slow,
]
SEQUENCE = Setup(sequence=True)
LLAMA = Setup(sequence=True, gated=True, groups=HEADS // 2)

RIGHT = [
    SEQUENCE,
    *(
        pytest.param(setup, marks=pytest.mark.nightly)
        for setup in (Setup(), Setup(tensor=4, sequence=True), Setup(sequence=True, tied=True), LLAMA, Setup(tensor=1, data=2), Setup(sequence=True, data=2))
    ),
]


@pytest.mark.parametrize("setup", RIGHT, ids=str)
def test_gpt_is_proven(setup: Setup) -> None:
    report = assert_equivalent(spec(setup))
    assert report.outputs.proven == report.outputs.total > 10


WRONG = [
    (SEQUENCE, bugs.attribute_forgotten, "PIT104", "param.main_grad.add_(param.grad.data)"),
    *(
        pytest.param(*row, marks=pytest.mark.nightly)
        for row in (
            (Setup(), bugs.input_gradient_not_summed, "PIT104", "grad_input = grad_output.matmul(weight)"),
            (Setup(data=2), bugs.other_group, "PIT106", "torch.distributed.all_reduce(input_.contiguous(), group=group)"),
            (Setup(tensor=1, data=2), bugs.scale_forgotten, "PIT101", "grad_input.mul_(grad_output.unsqueeze(dim=-1))"),
            (SEQUENCE, bugs.largest_of_own, "PIT104", "logits_max = torch.max(vocab_parallel_logits, dim=-1)[0]"),
            (SEQUENCE, bugs.last_id_missed, "PIT100", "predicted_logits_1d = logits_2d[arange_1d, masked_target_1d]"),
            (LLAMA, bugs.halves_in_a_row, "PIT107", "x_glu, x_linear = torch.chunk(x, 2, dim=-1)"),
        )
    ),
]


@pytest.mark.parametrize(("setup", "bug", "code", "line"), WRONG)
def test_a_mistake_is_caught_at_its_line(setup: Setup, bug: Bug, code: str, line: str) -> None:
    report = check(spec(setup, bug))
    assert report.verdict == "mismatch", report.findings
    found = report.findings[0]
    source, _, number = (found.source or "").rpartition(":")
    assert (found.code, Path(source).read_text().splitlines()[int(number) - 1].strip()) == (code, line), found


def test_the_mistakes_change_what_is_recorded_and_nothing_else() -> None:
    """Without a mistake planted, a program is recorded as it was; a bug does not stay behind in this process."""
    (trace, other) = record(spec(SEQUENCE), "parallel", 2)
    record(spec(SEQUENCE, bugs.attribute_forgotten), "parallel", 2)
    assert record(spec(SEQUENCE), "parallel", 2) == [trace, other]
    assert [event.operator for event in trace.events if event.group] == [event.operator for event in other.events if event.group]
